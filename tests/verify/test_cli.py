"""The command line: exit status, JSON, and one clear line when the arguments make no sense."""

import json
import os
import subprocess
import sys

import pytest

import jaxseq.verify
from jaxseq.cli import main
from jaxseq.verify import Report, Row
from jaxseq.verify._report import Error

SMALL = ["verify", "--quick", "--shapes", "2x2", "--dtypes", "float64"]


def report_of(absolute: float) -> Report:
    error = Error(absolute, absolute, 1.0, (0,))
    return Report((Row("entropy", "enumeration", {"dtype": "float64"}, error, "x", 1e-9),))


def test_json_is_valid_and_all_well_is_zero(monkeypatch, capsys):
    smaller = {"quantities": ["entropy", "marginals"], "methods": ["log"], "edges": ["shared"]}
    monkeypatch.setattr(jaxseq.verify, "quick_options", lambda: smaller)
    assert main([*SMALL, "--json", "--seed", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["passed"] is True
    assert result["failures"] == 0
    assert result["checks"] == len(result["rows"]) == 10
    row = result["rows"][0]
    assert set(row) == {
        "quantity", "check", "dtype", "method", "shape", "edges", "absolute", "relative",
        "coordinate", "tolerance", "passed",
    }  # fmt: skip
    assert {row["dtype"] for row in result["rows"]} == {"float64"}
    assert {row["shape"] for row in result["rows"]} == {"2x2"}


@pytest.mark.parametrize(("absolute", "status"), [(0.0, 0), (1.0, 1), (float("inf"), 1)])
def test_status_follows_the_report(monkeypatch, capsys, absolute, status):
    monkeypatch.setattr(jaxseq.verify, "check", lambda **options: report_of(absolute))
    assert main(["verify"]) == status
    table = capsys.readouterr().out
    assert ("FAIL" in table) == (status == 1)
    assert main(["verify", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["passed"] == (status == 0)


def test_options_reach_the_check(monkeypatch, capsys):
    seen = {}
    monkeypatch.setattr(jaxseq.verify, "check", lambda **options: seen.update(options) or ok)
    ok = report_of(0.0)
    main(["verify", "--shapes", "4x3,6x2", "--dtypes", "float32", "--seed", "7"])
    assert seen == {"shapes": [(4, 3), (6, 2)], "dtypes": ("float32",), "seed": 7}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: command"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["verify", "--shapes", "4-3"], "expected shapes such as 4x3,6x2, got '4-3'"),
        (["verify", "--shapes", "0x3"], "shapes: expected pairs"),
        (["verify", "--dtypes", "float16"], "dtypes: expected float32 or float64, got 'float16'"),
        (["verify", "--seed", "x"], "invalid int value: 'x'"),
        (["verify", "--seed", "-1"], "--seed: expected 0 or more, got -1"),
        (["verify", "--mutate"], "unrecognized arguments: --mutate"),
    ],
)
def test_bad_arguments_are_status_two_and_one_line(argv, message, capsys):
    try:
        status = main(argv)
    except SystemExit as stop:  # argparse's own way
        status = stop.code
    output = capsys.readouterr()
    assert status == 2
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert message in output.err


def test_as_a_process():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "jaxseq"]
    version = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, env=environment, check=True
    )
    assert version.stdout.startswith("jaxseq ")
    bad = subprocess.run(
        [*command, "verify", "--dtypes", "int8"], capture_output=True, text=True, env=environment
    )
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr
