"""Scores of any size, one legal path, no legal path: right, and never NaN, in any derivative."""

import jax
import numpy as np
import pytest

import jaxseq
from tests.lattice.cases import (
    EXTREMES,
    PER_POSITION,
    SHARED,
    SHARED_EXTREMES,
    direction_for,
    enumerate_chain,
    make_case,
    random_case,
)
from tests.lattice.registry import (
    DIFFERENTIABLE,
    ENTRIES,
    FLOAT32,
    FLOAT64,
    Tolerance,
    assert_trees_close,
    derivatives,
)

DEAD = [name for name in SHARED_EXTREMES if name.startswith("no")]


def _best_path(nodes, edges):
    table = enumerate_chain(make_case(nodes, edges, 5).chain)
    return table.paths[table.scores.argmax()]


def _extreme_cases(extremes, dtype, reverse):
    """Each extreme chain with its best path; `reverse` adds it in the place of the other chain."""
    for name, (nodes, edges) in extremes.items():
        best = _best_path(nodes, edges)
        labels = {"given": 1, "labels": best[1:3], "path": best}
        ordinary = random_case(SHARED if edges.ndim == 2 else PER_POSITION, 0).chain
        ordinary = np.asarray(ordinary.nodes), np.asarray(ordinary.edges)
        yield name, make_case(nodes, edges, 5, dtype=dtype, **labels)
        if reverse:
            swapped = make_case(*ordinary, 5, other=(nodes, edges), dtype=dtype, **labels)
            yield f"{name}, as the second chain", swapped
            itself = make_case(nodes, edges, 5, other=(nodes, edges), dtype=dtype, **labels)
            yield f"{name}, twice", itself


def _assert_no_nan(tree, name):
    for leaf in jax.tree.leaves(tree):
        assert not np.isnan(leaf).any(), name


@pytest.mark.parametrize(
    ("dtype", "extremes"),
    [(np.float32, EXTREMES), (np.float64, SHARED_EXTREMES)],
    ids=["float32", "float64"],
)
@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
def test_extremes_are_right_and_their_derivatives_finite(entry, dtype, extremes):
    reverse = entry.name in ("cross_entropy", "kl_divergence")
    for name, case in _extreme_cases(extremes, dtype, reverse):
        result = derivatives(entry.name)(case, direction_for(case))
        _assert_no_nan(result, name)
        for leaf in jax.tree.leaves((result.gradient, result.curve)):
            assert np.isfinite(leaf).all(), name
        try:
            entry.assert_agrees(result.output, case)
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry not in DIFFERENTIABLE], ids=repr
)
def test_extremes_are_right(entry):
    for name, case in _extreme_cases(EXTREMES, np.float32, reverse=False):
        try:
            entry.assert_agrees(entry.call(case, "auto"), case)
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize("name", DEAD)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_a_legal_path(name, dtype):
    """The conventions, spelled out once."""
    chain = make_case(*SHARED_EXTREMES[name], 5, dtype=dtype).chain
    assert jaxseq.log_partition(chain) == -np.inf
    gradient = jax.grad(lambda nodes: jaxseq.log_partition(_with_nodes(chain, nodes)))(chain.nodes)
    np.testing.assert_array_equal(gradient, np.zeros(chain.nodes.shape))
    for leaf in jax.tree.leaves(jaxseq.marginals(chain)):
        np.testing.assert_array_equal(leaf, np.zeros(leaf.shape))
    assert jaxseq.entropy(chain) == 0
    path, score = jaxseq.viterbi(chain)
    assert score == -np.inf
    np.testing.assert_array_equal(path, np.full(5, -1))
    paths, scores = jaxseq.k_best(chain, 7)
    np.testing.assert_array_equal(paths, np.full((7, 5), -1))
    np.testing.assert_array_equal(scores, np.full(7, -np.inf))
    np.testing.assert_array_equal(jaxseq.max_marginal(chain), np.full(5, -1))


def _with_nodes(chain, nodes):
    return jaxseq.Chain(nodes, chain.edges, chain.length)


@pytest.mark.parametrize("name", [name for name in SHARED_EXTREMES if name.startswith("one")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_with_one_legal_path(name, dtype):
    nodes, edges = SHARED_EXTREMES[name]
    chain, path = make_case(nodes, edges, 5, dtype=dtype).chain, _best_path(nodes, edges)
    tolerance = FLOAT64 if dtype == np.float64 else FLOAT32
    found, score = jaxseq.viterbi(chain)
    np.testing.assert_array_equal(found, path)
    assert_trees_close(jaxseq.log_partition(chain), score, tolerance)
    assert_trees_close(jaxseq.log_prob(chain, path), 0.0, Tolerance(tolerance.absolute * 1e4, 0))
    assert_trees_close(jaxseq.entropy(chain), 0.0, tolerance)
    assert_trees_close(jaxseq.marginals(chain).nodes, np.eye(3)[path], tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_length_zero_has_one_empty_path(dtype):
    chain = random_case(SHARED, 0, length=0, dtype=dtype).chain
    assert jaxseq.log_partition(chain) == 0
    assert jaxseq.entropy(chain) == 0
    path, score = jaxseq.viterbi(chain)
    assert score == 0
    np.testing.assert_array_equal(path, np.full(5, -1))
    assert jaxseq.log_prob(chain, path) == 0
