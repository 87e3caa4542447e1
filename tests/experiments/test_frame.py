"""Papers that are here, configurations, results files, and the examples of the documentation."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import json
import pkgutil
import re
import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiments
from experiments import data
from experiments.__main__ import main
from experiments._config import PRESETS, as_seeds, build_config, read_config
from experiments._paper import KNOWN, Paper, discover
from experiments._results import Results, cell_key, read_results, without_seconds
from tests.experiments.toy import CONFIG, write_toy

FRAME = [
    f"{package.__name__}.{module.name}"
    for package in (experiments, data)
    for module in pkgutil.iter_modules(package.__path__)
    if module.name.startswith("_") and module.name != "__main__"
]
HERE = discover()


@pytest.mark.parametrize("name", FRAME)
def test_examples_are_true(name):
    if name.endswith("_registry"):
        pytest.importorskip("pooch")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found():
    assert {"experiments._paper", "experiments._results", "experiments.data._data"} <= {*FRAME}


# --------------------------------------------------------------------------- papers


@pytest.mark.parametrize("name", HERE)
def test_paper_is_complete(name):
    paper = HERE[name]
    module = paper.load_run()
    paper.load_report()
    assert {*getattr(module, "CORPORA", ())} <= {*data.CORPORA}
    for preset in PRESETS:
        config, seeds = read_config(paper.folder / "config.toml", preset, module.Config)
        keys = [cell_key(cell) for cell in module.cells(config, seeds)]
        assert keys, f"{name} has no cells in preset {preset}"
        assert len({*keys}) == len(keys)
        assert [cell_key(cell) for cell in module.cells(config, seeds)] == keys


@pytest.mark.parametrize("name", HERE)
def test_every_key_is_explained(name):
    """By a comment on its line or on the line before it."""
    before = ""
    text = (HERE[name].folder / "config.toml").read_text("utf-8")
    for line in text.split("[preset.")[0].splitlines():  # presets only replace
        if re.match(r"\w+\s*=", line):
            assert "#" in line or before.startswith("#"), f"{name}: {line}"
        before = line.strip()


def test_list(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("JAXSEQ_DATA", raising=False)
    write_toy(tmp_path)
    write_toy(tmp_path, "chang2007")
    assert main(["list"], papers=tmp_path) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    states = {words[0]: " ".join(words[1:4]) for words in lines if len(words) > 2}
    assert states["toy"] == "here toy"
    assert states["chang2007"].startswith("here ")
    assert all(states[name] == "not here yet" for name in KNOWN if name != "chang2007")
    assert all(states[name].startswith("generated ") for name in data.CORPORA)


def test_all_runs_what_is_here(tmp_path, capsys):
    write_toy(tmp_path / "papers", "zeta1999")
    write_toy(tmp_path / "papers", "mann2007")
    out = tmp_path / "out"
    arguments = ["run", "all", "mann2007", "--preset", "smoke", "--out", str(out)]
    assert main(arguments, papers=tmp_path / "papers") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"results: {out}/{name}/smoke/results.jsonl" for name in ("mann2007", "zeta1999")
    ]


def test_papers_of_two_folders_are_kept_apart(tmp_path):
    one = write_toy(tmp_path / "one")
    two = write_toy(tmp_path / "two", corpora=("ads",))
    assert Paper("toy", one).load_run().CORPORA == ()
    assert Paper("toy", two).load_run().CORPORA == ("ads",)


def test_provenance(tmp_path):
    write_toy(tmp_path / "papers")
    arguments = ["run", "toy", "--preset", "smoke", "--device", "cpu", "--seeds", "4,"]
    assert main([*arguments, "--out", str(tmp_path)], papers=tmp_path / "papers") == 0
    found = json.loads((tmp_path / "toy" / "smoke" / "provenance.json").read_text())
    assert found["plan"] == {
        "paper": "toy",
        "preset": "smoke",
        "config": {"size": 2, "scale": 2.0, "pause": 0.0},
        "seeds": [4],
        "corpora": {},
        "cells": 2,
    }
    (run,) = found["runs"]
    assert run["device"]["platform"] == "cpu"
    assert run["versions"]["jax"].count(".") >= 2
    assert run["commit"] is None or re.fullmatch(r"[0-9a-f]{40}", run["commit"])
    assert run["finished_before"] == 0


# --------------------------------------------------------------------------- configurations


@dataclasses.dataclass(frozen=True)
class _Config:
    size: int
    scale: float
    pause: float


@pytest.mark.parametrize(
    ("preset", "size", "seeds"),
    [("smoke", 2, (0, 1)), ("default", 4, (0, 1)), ("paper", 6, (5, 3))],
)
def test_presets(tmp_path, preset, size, seeds):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    assert read_config(path, preset, _Config) == (_Config(size, 2.0, 0.0), seeds)


def test_a_preset_overnight_is_only_of_papers_that_have_one(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    with pytest.raises(ValueError, match=r"expected a table preset\.overnight, found none"):
        read_config(path, "overnight", _Config)
    path.write_text(f"{CONFIG}\n[preset.overnight]\nsize = 9\n")
    assert read_config(path, "overnight", _Config)[0] == _Config(9, 2.0, 0.0)


@dataclasses.dataclass(frozen=True)
class _Typed:
    pair: tuple[int, str] = (1, "a")
    sizes: tuple[float, ...] = ()
    names: list[str] = dataclasses.field(default_factory=list)
    rates: dict[str, float] = dataclasses.field(default_factory=dict)
    way: Literal["em", "codl"] = "em"
    limit: int | str = 0

    def __post_init__(self):
        if self.limit == 13:
            raise ValueError("limit: expected another number, got 13")


@pytest.mark.parametrize(
    ("values", "built"),
    [
        ({"pair": [2, "b"]}, _Typed(pair=(2, "b"))),
        ({"sizes": [1, 2.5]}, _Typed(sizes=(1.0, 2.5))),
        ({"names": ["x"], "rates": {"a": 1}}, _Typed(names=["x"], rates={"a": 1.0})),
        ({"way": "codl", "limit": "none"}, _Typed(way="codl", limit="none")),
    ],
)
def test_types(values, built):
    assert build_config(_Typed, values, "file") == built
    assert repr(build_config(_Typed, values, "file")) == repr(built)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pair": [2]}, r"file: pair: expected 2 values, got \[2\]"),
        ({"pair": ["b", "b"]}, r"file: pair\[0\]: expected int, got 'b'"),
        ({"sizes": 3}, "file: sizes: expected a list, got 3"),
        ({"rates": {"a": "x"}}, "file: rates.a: expected float, got 'x'"),
        ({"way": "sgd"}, "file: way: expected one of 'em', 'codl', got 'sgd'"),
        ({"limit": 1.5}, "file: limit: expected int | str, got 1.5"),
        ({"limit": 13}, "file: limit: expected another number"),
        ({"lime": 1}, "file: lime: expected one of limit, names"),
    ],
)
def test_wrong_types(values, said):
    with pytest.raises(ValueError, match=said.replace("|", r"\|")):
        build_config(_Typed, values, "file")


@given(st.lists(st.integers(0, 10**9), min_size=1, unique=True))
def test_seeds_as_text_and_as_list(seeds):
    assert as_seeds(",".join(map(str, seeds)) + ",", "--seeds") == tuple(seeds)
    assert as_seeds(list(seeds), "seeds") == tuple(seeds)


@pytest.mark.parametrize(
    "wrong", ["", ",", "1,,2", "a", "1.5", "-1", "²", 0, True, [], [True], 2.0]
)
def test_wrong_seeds(wrong):
    with pytest.raises(ValueError, match="seeds: expected a count"):
        as_seeds(wrong, "seeds")


# --------------------------------------------------------------------------- results

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_CELLS = st.lists(
    st.text() | st.dictionaries(st.text(), st.integers() | st.text(), max_size=3),
    unique_by=lambda cell: json.dumps(cell, sort_keys=True),
    max_size=6,
)


@given(st.data(), _CELLS)
def test_the_file_is_in_the_order_of_the_plan_whichever_cell_was_first(draws, cells):
    values = {json.dumps(cell, sort_keys=True): draws.draw(_JSON) for cell in cells}
    order = draws.draw(st.permutations(cells))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        results = Results(path, cells)
        for number, cell in enumerate(order, 1):
            results.add(cell, {"result": values[json.dumps(cell, sort_keys=True)]})
            done = order[:number]
            assert [line["cell"] for line in read_results(path)] == [c for c in cells if c in done]
            again = Results(path, cells)
            again.load()
            assert again.missing == results.missing == [c for c in cells if c not in done]
        for line in read_results(path) if cells else ():
            assert line["result"] == values[json.dumps(line["cell"], sort_keys=True)]


@given(_JSON)
def test_without_seconds(value):
    plain = json.loads(json.dumps(value).replace('"seconds"', '"minutes"'))
    timed = {"a": [plain, {"seconds": value, "b": plain}], "seconds": 1}
    assert without_seconds(timed) == {"a": [plain, {"b": plain}]}


def test_cells_that_are_equal():
    with pytest.raises(ValueError, match="expected different cells"):
        Results(Path("x"), [{"a": 1, "b": 2}, {"b": 2, "a": 1}])
    with pytest.raises(ValueError, match="expected strings or dicts, got 3"):
        Results(Path("x"), [3])  # pyright: ignore[reportArgumentType]
