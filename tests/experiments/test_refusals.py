"""Bad input: one clear line, exit status 2, and nothing written."""

from __future__ import annotations

import json

import pytest

from experiments.__main__ import main
from experiments._lock import only_one
from experiments._paper import PaperError
from tests.experiments.toy import CONFIG, write_toy


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("JAXSEQ_DATA", raising=False)


@pytest.fixture
def refused(tmp_path, capsys):
    """Runs a command that must be refused; returns the line."""

    def run(*arguments: str, config: str = CONFIG, **toy) -> str:
        papers, out = tmp_path / "papers", tmp_path / "out"
        if not papers.exists():
            write_toy(papers, config=config, **toy)
        before = _content(tmp_path)
        capsys.readouterr()  # what earlier commands said
        try:
            status = main([*arguments, "--out", str(out)], papers=papers)
        except SystemExit as error:
            status = error.code
        captured = capsys.readouterr()
        assert status == 2
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.endswith("\n")
        assert _content(tmp_path) == before
        return captured.err

    return run


def _content(folder):
    """Folders and files (not Python's own) with their bytes."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], ["NAME"]),
        (["run", "nobody1999"], ["expected all or one of", "wanvarie2011, toy", "'nobody1999'"]),
        (["run", "toy", "jiao2006"], ["jiao2006 is not here yet", "toy"]),
        (["run", "toy", "--preset", "huge"], ["--preset", "'huge'", "'smoke'"]),
        (["run", "toy", "--data", "no/such"], ["--data", "expected a folder", "no/such"]),
        (["run", "toy", "--seeds", "0"], ["--seeds", "'0'", "at least 1"]),
        (["run", "toy", "--seeds", "1,1"], ["--seeds", "different", "'1,1'"]),
        (["run", "toy", "--seeds", "1,-2"], ["--seeds", "'1,-2'"]),
        (["run", "toy", "--jobs", "0"], ["--jobs", "'0'"]),
        (["run", "toy", "--device", "abacus"], ["--device", "'abacus'"]),
        (["report"], ["expected results", "run makes them"]),
        (["report", "--preset", "smoke"], ["expected results of preset smoke"]),
        (["bench", "nothing"], ["'nothing'", "lattice"]),
    ],
)
def test_arguments(refused, arguments, said):
    line = refused(*arguments)
    assert all(text in line for text in said), line


def test_variable_of_the_data_folder(refused, monkeypatch):
    monkeypatch.setenv("JAXSEQ_DATA", "no/such")
    assert "JAXSEQ_DATA: expected a folder, no/such is none" in refused("run", "toy")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("scale =", "scael = 1\nscale =", ["default.scael", "expected one of pause, scale, seeds"]),
        ("[preset.paper]", "[preset.paper]\nsized = 1", ["preset.paper.sized"]),
        ("[preset.paper]", "[preset.large]", ["preset.large"]),
        ("[preset.paper]", "[presets.paper]", ["presets", "default and preset"]),
        ("scale = 2", "", ["expected a key scale"]),
        ("size = 4", 'size = "four"', ["size", "expected int, got 'four'"]),
        ("size = 4", "size = 4.0", ["size", "expected int, got 4.0"]),
        ("scale = 2", "scale = true", ["scale", "expected float, got True"]),
        ("seeds = 2", "seeds = [1, 1]", ["seeds", "different"]),
        ("seeds = 2", "seeds = [[1], 2]", ["seeds"]),
        ("size = 4", "size = ", ["expected TOML", "line 3"]),
        ("[default]", "[[default]]", ["default", "expected a table"]),
    ],
)
def test_config(refused, old, new, said):
    line = refused("run", "toy", config=CONFIG.replace(old, new, 1))
    assert all(text in line for text in ["config.toml", *said]), line


def test_any_wrong_paper_stops_all(refused, tmp_path):
    write_toy(tmp_path / "papers", "alpha")
    write_toy(tmp_path / "papers", "beta", config="[default]\n")
    assert "beta" in refused("run", "alpha", "beta")


def test_missing_function(refused, tmp_path):
    folder = write_toy(tmp_path / "papers")
    text = (folder / "run.py").read_text()
    (folder / "run.py").write_text(text.replace("def run_cell", "def run_cells"))
    assert "run.py: expected a function run_cell" in refused("run", "toy")


def test_results_that_are_there(refused, tmp_path):
    write_toy(tmp_path / "papers")
    arguments = ["run", "toy", "--out", str(tmp_path / "out")]
    assert main(arguments, papers=tmp_path / "papers") == 0
    assert "use --resume, or another --out" in refused("run", "toy")
    line = refused("run", "toy", "--resume", "--seeds", "3")
    assert "made with seeds = [0, 1], this run has [0, 1, 2]" in line
    config = tmp_path / "papers" / "toy" / "config.toml"
    config.write_text(CONFIG.replace("scale = 2", "scale = 3"))
    line = refused("run", "toy", "--resume")
    assert "made with config.scale = 2.0, this run has 3.0" in line


def test_damaged_results(refused, tmp_path):
    write_toy(tmp_path / "papers")
    assert main(["run", "toy", "--out", str(tmp_path / "out")], papers=tmp_path / "papers") == 0
    path = tmp_path / "out" / "toy" / "default" / "results.jsonl"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0], lines[1][:9], *lines[2:]]))
    assert f"{path}:2: expected a JSON line with a cell" in refused("run", "toy", "--resume")
    other = json.dumps({"cell": {"part": 99}})
    path.write_text("\n".join([lines[0], other, ""]))
    assert f"{path}:2: expected a cell of this run" in refused("run", "toy", "--resume")


def test_out_is_a_file(refused, tmp_path):
    (tmp_path / "out").write_text("mine")
    assert "--out: expected a folder" in refused("run", "toy")


def test_another_run_at_work(refused, tmp_path):
    folder = tmp_path / "out" / "toy" / "default"
    with only_one(folder):
        assert f"{folder}: another run is at work here" in refused("run", "toy")
    assert main(["run", "toy", "--out", str(tmp_path / "out")], papers=tmp_path / "papers") == 0


@pytest.mark.parametrize(
    ("body", "said", "jobs"),
    [
        ("if cell['part'] == 2: raise ValueError('too deep')", "ValueError: too deep", "1"),
        ("if cell['part'] == 2: raise ValueError('too deep')", "ValueError: too deep", "2"),
        ("if cell['part'] == 2: return {'f1': float('nan')}", "without NaN", "1"),
        ("if cell['part'] == 2: return 7", "expected a dict of results, got int", "1"),
        ("data.corpus('ads')", "expected one that CORPORA lists (none), got 'ads'", "1"),
    ],
)
def test_a_cell_that_fails_is_no_bad_input(tmp_path, body, said, jobs):
    """It is a fault of the code: it has a traceback, names the cell, and keeps what was done."""
    papers, out = tmp_path / "papers", tmp_path / "out"
    write_toy(papers, body=body)
    arguments = ["run", "toy", "--seeds", "1", "--out", str(out), "--jobs", jobs]
    with pytest.raises(PaperError, match="toy: cell") as caught:
        main(arguments, papers=papers)
    assert said in str(caught.value)
    path = out / "toy" / "default" / "results.jsonl"
    done = [json.loads(line)["cell"]["part"] for line in path.open()] if path.exists() else []
    if jobs == "1":
        assert done == ([0, 1] if "part" in body else [])
    assert 2 not in done


def test_a_process_that_dies(tmp_path):
    write_toy(tmp_path / "papers", body="import os; os._exit(7)")
    arguments = ["run", "toy", "--out", str(tmp_path / "out"), "--jobs", "2"]
    with pytest.raises(PaperError, match="has died with status 7"):
        main(arguments, papers=tmp_path / "papers")
