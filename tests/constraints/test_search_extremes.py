"""Searches where there is little to search: one label, one position, ties, nothing possible."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.constraints import (
    AtMostOnce,
    Constraint,
    Count,
    EndsWith,
    MustAppear,
    Order,
    Penalised,
    StartsWith,
    beam_search,
    bind_constraints,
    exact_search,
    fold_local,
    joint_states,
)
from jaxseq.lattice import Chain

SEARCHES = {"beam": lambda *given: beam_search(*given, 16), "exact": exact_search}
both_searches = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def zeros(n, s, dtype=np.float64):
    return Chain(np.zeros((n, s), dtype), np.zeros((s, s), dtype))


@both_searches
def test_one_label(search):
    rules = bind_constraints([StartsWith(["A"]), Count(["A"], at_most=1)], ["A"], penalty=2.0)
    found = search(Chain(np.array([[1.0], [2.0], [4.0]]), np.array([[0.5]])), rules, (None,) * 2, 3)
    assert found.paths.tolist() == [[0, 0, 0]] * 3
    assert found.scores.tolist() == [1 + 2 + 4 + 2 * 0.5 - 2 * 2, -math.inf, -math.inf]
    assert found.hard.tolist() == [0, 0, 0]


@both_searches
def test_one_position(search):
    rules = bind_constraints([StartsWith(["B"]), MustAppear(["C"])], ["A", "B", "C"], penalty=2.0)
    found = search(Chain(np.array([[1.0, 0.5, 0.25]]), np.zeros((3, 3))), rules, (None,) * 2, 4)
    assert found.paths.tolist() == [[1], [2], [0], [0]]
    assert found.scores.tolist() == [0.5 - 2, 0.25 - 2, 1 - 4, -math.inf]


@both_searches
def test_ties_go_to_the_smaller_labels(search):
    rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=1.0)
    found = search(zeros(3, 2), rules, (None,), 8)
    free = [[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert sorted(found.paths[:6].tolist()) == free
    assert found.scores.tolist() == [0] * 6 + [-1] * 2
    assert found.paths[0].tolist() == [0, 0, 0]
    again = search(zeros(3, 2), rules, (None,), 8)
    assert found.paths.tolist() == again.paths.tolist()


def test_ties_of_the_beam_are_in_the_order_of_prefix_and_label():
    rules = bind_constraints([], ["A", "B"])
    found = beam_search(zeros(3, 2), rules, (), 8, 8)
    assert found.paths.tolist() == [list(path) for path in itertools.product(range(2), repeat=3)]
    narrow = beam_search(zeros(3, 2), rules, (), 2, 2)
    assert narrow.paths.tolist() == [[0, 0, 0], [0, 0, 1]]


@both_searches
def test_nothing_is_possible(search):
    nodes = np.array([[0.0, 0.0], [-np.inf, -np.inf]])
    rules = bind_constraints(
        [Penalised(AtMostOnce(), math.inf), Penalised(EndsWith(["A"]), 1.0)], ["A", "B"]
    )
    found = search(Chain(nodes, np.zeros((2, 2))), rules, (None, None), 3)
    assert found.paths.tolist() == [[-1, -1]] * 3
    assert np.isneginf(found.scores).all()


@both_searches
def test_impossible_labels_are_worse_than_violations(search):
    """A forbidden transition is never taken to satisfy a hard constraint."""
    edges = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    rules = bind_constraints([Penalised(MustAppear(["A", "B"]), math.inf)], ["A", "B"])
    found = search(Chain(np.array([[0.0, 1.0], [0.0, 1.0]]), edges), rules, (None,), 4)
    assert found.paths.tolist() == [[1, 1], [0, 0], [0, 0], [0, 0]]
    assert found.scores.tolist() == [2, 0, -math.inf, -math.inf]
    assert found.hard[:2].tolist() == [1, 1]


@both_searches
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes(search, dtype):
    rng = np.random.default_rng(1)
    nodes, edges = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    rules = bind_constraints(
        [Penalised(AtMostOnce(), 0.75), Penalised(StartsWith(["C"]), math.inf)], ["A", "B", "C"]
    )
    found = search(Chain(nodes.astype(dtype), edges.astype(dtype)), rules, (None, None), 4)
    exact = search(Chain(nodes, edges), rules, (None, None), 4)
    assert found.scores.dtype == dtype
    assert found.paths.tolist() == exact.paths.tolist()
    assert found.scores.tolist() == pytest.approx(exact.scores.tolist(), rel=1e-5)


def test_a_narrow_beam_may_miss_what_the_exact_search_finds():
    """The best first label is B, by little; then B may not begin, and the beam has no A left."""
    nodes = np.array([[0.0, 0.1], [0.0, 0.0]])
    rules = bind_constraints([Penalised(MustAppear(["A"]), 5.0)], ["A", "B"])
    edges = np.array([[0.0, 0.0], [-9.0, 0.0]])
    exact = exact_search(Chain(nodes, edges), rules, (None,), 1)
    narrow = beam_search(Chain(nodes, edges), rules, (None,), 1, 1)
    assert (exact.paths.tolist(), exact.scores.tolist()) == ([[0, 0]], [0.0])
    assert (narrow.paths.tolist(), narrow.scores.tolist()) == ([[1, 1]], [0.1 - 5])


class Many(Constraint):
    """Does not say how many states it has."""

    def init(self, x):
        return jnp.int32(0)

    def step(self, state, t, y_prev, y, x):
        return (y == 0) * 1, state + 1


def test_refusals():
    rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=1.0)
    with pytest.raises(ValueError, match="k: expected at most the width of the beam, 2, got 3"):
        beam_search(zeros(2, 2), rules, (None,), 3, 2)
    with pytest.raises(ValueError, match=r"^k: "):
        beam_search(zeros(2, 2), rules, (None,), 0)
    with pytest.raises(ValueError, match=r"^width: "):
        beam_search(zeros(2, 2), rules, (None,), 1, 0)
    with pytest.raises(ValueError, match=r"^k: "):
        exact_search(zeros(2, 2), rules, (None,), 0)
    for search in (beam_search, exact_search, fold_local):
        with pytest.raises(ValueError, match="expected them for 3 labels, as the chain has, got 2"):
            search(zeros(2, 3), rules, (None,))
    unknown = bind_constraints([Penalised(Many(), 1.0)], ["A", "B"])
    with pytest.raises(ValueError, match="at most 4096 joint states, got one that does not say"):
        exact_search(zeros(2, 2), unknown, (None,))
    names = [f"L{number}" for number in range(13)]
    many = bind_constraints([AtMostOnce()], names, penalty=1.0)
    with pytest.raises(ValueError, match="expected at most 4096 joint states, got 8192"):
        exact_search(zeros(2, 13), many, (None,))
    assert beam_search(zeros(2, 2), unknown, (None,)).paths.tolist() == [[1, 1]]


def test_joint_states():
    rules = [AtMostOnce(["A"]), Order(["A", "B"]), EndsWith(["A"]), Count(["A"], 0, 2)]
    bound = bind_constraints([*rules, StartsWith(["A"])], ["A", "B"], penalty=1.0)
    assert joint_states(bound) == 2 * 3 * 2 * 4
    assert joint_states(bind_constraints([StartsWith(["A"])], ["A"], penalty=1.0)) == 1


def test_more_fields_than_fit_one_number():
    """40 labels: AtMostOnce remembers each of them."""
    names = [f"L{number:02}" for number in range(40)]
    rules = bind_constraints([AtMostOnce(), MustAppear(names[35:])], names, penalty=1.0)
    nodes = np.full((6, 40), -5.0)
    nodes[np.arange(6), [35, 3, 35, 36, 3, 39]] = 0.0
    found = beam_search(Chain(nodes, np.zeros((40, 40))), rules, (None, None), 1)
    # Without rules 35 3 35 36 3 39 scores 0 − 2 − 2; nothing costs less than a field again.
    assert found.paths.tolist() == [[35, 3, 35, 36, 3, 39]]
    assert found.scores.tolist() == [-4.0]
    strict = rules.with_penalties([20.0, 0.0])
    found = beam_search(Chain(nodes, np.zeros((40, 40))), strict, (None, None), 1)
    assert found.scores.tolist() == [-5.0]  # 35 in the place of the first 3
    fields = [label for label, _ in itertools.groupby(found.paths[0].tolist())]
    assert len(set(fields)) == len(fields)
