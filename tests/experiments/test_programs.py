from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from experiments import _run
from experiments._programs import MAPS, forget_programs
from experiments.data import Data


def test_programs_are_forgotten_only_where_there_are_many():
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert not forget_programs(most=10**9)
    double(jnp.ones(3))
    assert len(traced) == 1
    if not MAPS.exists():
        pytest.skip("mappings of memory can be counted on Linux alone")
    assert forget_programs(most=0)
    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert len(traced) == 2


def test_every_cell_looks_at_the_number_of_programs(monkeypatch):
    seen = []
    monkeypatch.setattr(_run, "forget_programs", lambda: seen.append(True))
    paper = SimpleNamespace(
        name="toy", load_run=lambda: SimpleNamespace(run_cell=lambda config, cell, data: {"x": 1})
    )
    line = _run.run_one(paper, None, {"seed": 0}, Data({}))
    assert line["result"] == {"x": 1}
    assert seen == [True]
