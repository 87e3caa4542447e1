"""Functions on several cores give what they give on one."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import pytest

from jaxseq import CRFTagger, _runtime
from jaxseq._runtime import MAPS, Outcome, forget_programs, map_on_cores
from tests.taggers.toys import toy_corpus


@pytest.mark.parametrize("items", [[], [3], [3, 1, 2], list(range(20))])
def test_results_come_in_the_order_of_the_items(items):
    assert map_on_cores(lambda item: item * 10, iter(items)) == [item * 10 for item in items]


def test_later_items_may_end_first():
    done = threading.Event()

    def run(item):
        if item == 0:
            assert done.wait(timeout=30)
        else:
            done.set()
        return item

    assert map_on_cores(run, [0, 1]) == [0, 1]


@pytest.mark.parametrize("items", [[1], [0, 1, 2]])
def test_exceptions_reach_the_caller(items):
    def run(item):
        if item == 1:
            raise KeyError("item 1")
        return item

    with pytest.raises(KeyError, match="item 1"):
        map_on_cores(run, items)


def test_results_are_trees_that_are_ready():
    double = jax.jit(lambda x: {"twice": x * 2})
    found = map_on_cores(double, [jnp.full(3, float(i)) for i in range(3)])
    assert [tree["twice"].tolist() for tree in found] == [[0.0] * 3, [2.0] * 3, [4.0] * 3]
    assert all(tree["twice"].is_ready() for tree in found)


@pytest.mark.parametrize("double", [False, True])
def test_precision_of_a_with_block_holds_on_all_cores(double):
    with jax.enable_x64(double):
        found = map_on_cores(jnp.asarray, [0.5, 0.25])
    wanted = jnp.float64 if double else jnp.float32
    assert [array.dtype for array in found] == [wanted, wanted]


needs_maps = pytest.mark.skipif(not MAPS.exists(), reason="mappings are counted on Linux alone")


@needs_maps
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
    assert forget_programs(most=0)
    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert len(traced) == 2


@needs_maps
def test_trainings_of_many_sizes_do_not_pile_up_programs(monkeypatch, tmp_path):
    """With a bound that the second training passes; the models are the same as without."""
    X, Y = toy_corpus(0)
    sizes = (3, 5, 7)

    def weights(size):
        tagger = CRFTagger(cores=1, max_iterations=2, progress=False).fit(X[:size], Y[:size])
        return tagger.model_.weights

    expected = [weights(size) for size in sizes]
    forgotten = []
    clear = jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(clear()))
    monkeypatch.setattr(_runtime, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(_runtime, "MAX_MAPS", tmp_path / "most")
    jax.clear_caches()
    gc.collect()
    # Half of what may still be made: nearly nothing.
    monkeypatch.setattr(_runtime, "_others", 0)
    (tmp_path / "most").write_text("2\n")
    for size, usual in zip(sizes, expected):
        assert (weights(size) == usual).all()
    assert len(forgotten) > 1
    (tmp_path / "most").write_text("1000000000\n")
    forgotten.clear()
    weights(sizes[0])
    assert not forgotten


def test_outcomes_whose_words_have_changed_are_known_by_the_old_ones():
    """Models that were saved before keep the old text."""
    old = "stopped: no step improves the value within the precision of its arithmetic"
    assert Outcome(old) is Outcome.PRECISION
    assert Outcome.PRECISION.startswith("converged")
    with pytest.raises(ValueError, match="not a valid Outcome"):
        Outcome("stopped: of its own accord")
