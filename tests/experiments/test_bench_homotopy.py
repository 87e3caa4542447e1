import json

import pytest

from experiments.bench import _homotopy_accuracy as accuracy
from experiments.bench import homotopy
from experiments.bench._report import Report
from experiments.haffari2008._summary import by_method


def _lines(monotone):
    def scored(percent):
        return {"balance": 0.1, **{key: {"accuracy": percent / 100} for key in accuracy.DECODINGS}}

    methods = {"supervised": 88.0, "em": 84.5, "max_entropy": 87.0}
    for seed, percent in enumerate(monotone):
        found = {**methods, "monotone": percent}
        results = {name: scored(value) for name, value in found.items()}
        yield {"cell": {"seed": seed}, "result": {"methods": results}}


@pytest.mark.parametrize(
    ("monotone", "held"), [((88.5, 87.5), True), ((88.0, 87.5), False), ((88.0, 87.0), False)]
)
def test_accuracies_have_their_bars(monotone, held, capsys):
    told = Report("homotopy")
    accuracy.tell(told, by_method(list(_lines(monotone))), {"splits": 2})
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told.held is held
    assert len(found) == 10
    bars = {line["metric"]: line["bar"] for line in found if line["bar"]}
    assert sorted(bars.values()) == ["≥ 0", "≥ 0", "≥ 3", "≥ 3", "≥ 86", "≥ 86"]
    assert not any("maxEnt" in name for name in bars)
    less = next(line for line in found if "monotone less supervised, SMS" in line["metric"])
    assert less["value"] == pytest.approx(sum(monotone) / 2 - 88)
    assert less["measured_on"]["standard_error"] > 0


def test_without_corpora_a_bar_fails(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JAXSEQ_DATA", str(tmp_path))
    told = Report("homotopy")
    homotopy.run(told, tmp_path)
    assert not told.held
    assert json.loads(capsys.readouterr().out)["measured_on"]["needs"]
