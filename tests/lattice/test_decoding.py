"""The best paths: ties, order, repetition, and agreement with `path_score`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.lattice import Chain, k_best, max_marginal, path_score, viterbi
from tests.lattice.cases import SHARED, cases, continuous, enumerate_chain, random_case, ties
from tests.lattice.registry import FLOAT64, K, assert_trees_close


@given(cases(SHARED, finite=ties))
def test_ties_go_to_the_smaller_label_from_the_last_position_backwards(case):
    table = enumerate_chain(case.chain)
    path, score = viterbi(case.chain)
    if table.legal:
        best = table.paths[table.scores == table.scores.max()]
        expected = min(best.tolist(), key=lambda labels: labels[::-1])
        np.testing.assert_array_equal(path, expected)
        assert score == table.scores.max()


@given(cases(SHARED))
def test_k_best_scores_are_path_scores_in_order(case):
    paths, scores = map(np.asarray, k_best(case.chain, K))
    found = int((scores > -np.inf).sum())
    assert found == min(K, int((enumerate_chain(case.chain).scores > -np.inf).sum()))
    rescored = jax.vmap(path_score, (None, 0))(case.chain, paths)
    np.testing.assert_array_equal(rescored[:found], scores[:found])
    assert (np.diff(scores[:found]) <= 0).all()
    assert len({tuple(path) for path in paths[:found].tolist()}) == found
    last = paths[found - 1] if found else np.full(5, -1)
    np.testing.assert_array_equal(paths[found:], np.tile(last, (K - found, 1)))


@given(cases(SHARED, finite=continuous))
def test_first_of_k_best_is_viterbi(case):
    _, score = viterbi(case.chain)
    _, scores = k_best(case.chain, K)
    assert_trees_close(scores[0], score, FLOAT64)


def test_k_of_all_paths_lists_each_once():
    chain = random_case(SHARED, 3, length=2).chain
    paths, scores = k_best(chain, 12)
    assert {tuple(path[:2]) for path in paths.tolist()} == {
        (i, j) for i in range(3) for j in range(3)
    }
    assert (scores[:9] > -jnp.inf).all()
    assert (scores[9:] == -jnp.inf).all()


def test_gradient_of_the_best_score_is_the_indicator_of_its_path():
    chain = random_case(SHARED, 4, length=4).chain
    score = lambda nodes: viterbi(Chain(nodes, chain.edges, chain.length))[1]  # noqa: E731
    path = np.asarray(viterbi(chain)[0])
    expected = np.where(path[:, None] == np.arange(3), 1.0, 0.0)
    assert_trees_close(jax.grad(score)(chain.nodes), expected, FLOAT64)


def test_max_marginal_is_not_viterbi():
    """The two decoders answer different questions; here their answers differ."""
    chain = Chain(jnp.array([[1.0, 2.0], [3.0, 2.5]]), jnp.eye(2))
    np.testing.assert_array_equal(viterbi(chain)[0], [1, 1])
    np.testing.assert_array_equal(max_marginal(chain), [1, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_chains_lose_no_digits(dtype):
    """Scores of a long sum far larger than its differences."""
    n = 400
    nodes = np.random.default_rng(0).normal(size=(n, 3)) + 1000
    nodes = jnp.asarray(nodes, dtype)
    chain = Chain(nodes, jnp.zeros((3, 3), dtype))
    np.testing.assert_array_equal(viterbi(chain)[0], np.asarray(nodes).argmax(1))
    np.testing.assert_array_equal(k_best(chain, 2)[0][0], np.asarray(nodes).argmax(1))


@given(st.integers(0, 5))
def test_labels_are_int32(length):
    chain = random_case(SHARED, 5, length=length).chain
    assert viterbi(chain)[0].dtype == max_marginal(chain).dtype == jnp.int32
    assert k_best(chain, K)[0].dtype == jnp.int32
