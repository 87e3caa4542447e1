"""The oracle against numbers worked out by hand: everything else rests on it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import jaxseq.verify._oracle as oracle
from jaxseq.verify import Enumeration

LOG_2 = np.log(2)
INF = np.inf


def two_by_two() -> Enumeration:
    """Paths 00, 01, 10, 11 with weights 1, 2, 3, 6: independent positions, 1:3 and 1:2."""
    return Enumeration(np.log([[1, 3], [1, 2]]), np.zeros((2, 2)))


def copying() -> Enumeration:
    """Two positions that must agree: only 00 and 11 are legal, with weights 1 and 3."""
    return Enumeration(np.log([[1, 3], [1, 1]]), [[0, -INF], [-INF, 0]])


def test_imports_numpy_and_the_standard_library_only():
    tree = ast.parse(Path(oracle.__file__).read_text(encoding="utf-8"))
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert modules == {"__future__", "functools", "numpy", "typing"}


def test_paths_scores_and_probabilities():
    chain = two_by_two()
    assert chain.paths.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    np.testing.assert_allclose(np.exp(chain.scores), [1, 2, 3, 6])
    np.testing.assert_allclose(np.exp(chain.log_partition), 12)
    np.testing.assert_allclose(chain.probabilities, np.array([1, 2, 3, 6]) / 12)


def test_marginals():
    chain = copying()
    np.testing.assert_allclose(chain.node_marginals(), [[0.25, 0.75], [0.25, 0.75]])
    np.testing.assert_allclose(chain.edge_marginals(), [[[0.25, 0], [0, 0.75]]])


def test_edges_are_indexed_from_left_to_right():
    edges = np.log([[[1.0, 2], [3, 4]], [[1, 1], [1, 7]]])
    chain = Enumeration(np.zeros((3, 2)), edges)
    by_path = dict(zip(map(tuple, chain.paths.tolist()), np.exp(chain.scores)))
    np.testing.assert_allclose(by_path[0, 1, 1], 2 * 7)
    np.testing.assert_allclose(by_path[1, 0, 1], 3 * 1)


def test_entropies():
    chain = two_by_two()
    first = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    second = -(np.log(1 / 3) / 3 + 2 * np.log(2 / 3) / 3)
    np.testing.assert_allclose(chain.entropy(), first + second)
    np.testing.assert_allclose(chain.span_entropy(0, 1), first)
    np.testing.assert_allclose(chain.span_entropy(1, 2), second)
    assert chain.span_entropy(1, 1) == 0
    np.testing.assert_allclose(chain.rest_entropy(0, [1]), second)
    assert chain.rest_entropy(0, [1, 0]) == 0
    np.testing.assert_allclose(chain.left_entropies(), [[0, 0], [first, first]], atol=1e-15)
    np.testing.assert_allclose(chain.right_entropies(), [[second, second], [0, 0]], atol=1e-15)


def test_conditional_entropy_of_the_impossible_is_zero():
    chain = Enumeration([[0, -INF], [0, 0]], np.zeros((2, 2)))
    assert chain.rest_entropy(0, [1]) == 0
    np.testing.assert_allclose(chain.right_entropies()[0], [LOG_2, 0])


def test_conditional_entropy_is_exact_beyond_the_range_of_floats():
    chain = Enumeration([[0, -1e4], [0, 0]], np.zeros((2, 2)))
    assert chain.node_marginals()[0, 1] == 0
    np.testing.assert_allclose(chain.rest_entropy(0, [1]), LOG_2)


def test_covariance_of_one_position_is_that_of_a_coin():
    chain = Enumeration(np.log([[1, 3]]), np.zeros((2, 2)))
    expected = np.zeros((6, 6))
    expected[:2, :2] = 3 / 16 * np.array([[1, -1], [-1, 1]])
    np.testing.assert_allclose(chain.covariance(), expected, atol=1e-15)
    nodes, edges = chain.covariance_product([[1, 0]], np.zeros((2, 2)))
    np.testing.assert_allclose(nodes, [[3 / 16, -3 / 16]])
    assert edges.tolist() == [[0, 0], [0, 0]]


def test_shared_edges_are_counted_over_positions():
    """Edge 00 of three free positions is used 0, 1 or 2 times: mean 1/2, variance 1/2."""
    shared = Enumeration(np.zeros((3, 2)), np.zeros((2, 2))).covariance()
    np.testing.assert_allclose(shared[6, 6], (1 * 2 + 4 * 1) / 8 - 0.25)
    apart = Enumeration(np.zeros((3, 2)), np.zeros((2, 2, 2))).covariance()
    assert apart.shape == (14, 14)
    np.testing.assert_allclose(shared[6, 6], apart[np.ix_([6, 10], [6, 10])].sum())


def test_entropy_gradient_of_one_position():
    """∂H/∂θ_i = −p_i (log p_i + H)."""
    p = np.array([0.2, 0.8])
    chain = Enumeration(np.log(p)[None], np.zeros((2, 2)))
    by_node, _ = chain.entropy_gradient()
    np.testing.assert_allclose(by_node[0], -p * (np.log(p) + chain.entropy()))


def test_divergences():
    p = Enumeration(np.log([[0.5, 0.5]]), np.zeros((2, 2)))
    q = Enumeration(np.log([[0.25, 0.75]]), np.zeros((2, 2)))
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    np.testing.assert_allclose(p.kl_divergence(q), expected)
    np.testing.assert_allclose(p.cross_entropy(q), expected + LOG_2)
    certain = Enumeration([[0, -INF]], np.zeros((2, 2)))
    assert p.kl_divergence(certain) == INF
    np.testing.assert_allclose(certain.kl_divergence(p), LOG_2)


def test_padding_does_not_count():
    rng = np.random.default_rng(0)
    nodes, edges = rng.normal(size=(4, 2)), rng.normal(size=(3, 2, 2))
    whole, part = Enumeration(nodes[:2], edges[:1]), Enumeration(nodes, edges, 2)
    assert part.paths[:, 2:].tolist() == [[-1, -1]] * 4
    assert part.log_partition == whole.log_partition
    assert part.entropy() == whole.entropy()
    assert part.span_entropy(1, 4) == whole.span_entropy(1, 2)
    assert part.rest_entropy(1, [0, 1, 1]) == whole.rest_entropy(1, [0])
    assert part.rest_entropy(3, [0]) == whole.entropy()
    np.testing.assert_array_equal(part.node_marginals()[2:], 0)
    np.testing.assert_array_equal(part.edge_marginals()[1:], 0)
    np.testing.assert_array_equal(part.left_entropies()[2:], 0)
    np.testing.assert_array_equal(part.right_entropies()[1:], 0)


def test_no_legal_path():
    chain = Enumeration([[0, 0], [-INF, -INF]], np.zeros((2, 2)))
    assert chain.log_partition == -INF
    assert chain.probabilities.tolist() == [0, 0, 0, 0]
    assert chain.entropy() == 0
    assert chain.cross_entropy(two_by_two()) == 0
    assert chain.kl_divergence(chain) == 0
    assert not chain.covariance().any()
    assert chain.k_best_scores(2).tolist() == [-INF, -INF]


def test_empty_chain_has_one_labelling():
    chain = Enumeration(np.ones((2, 3)), np.ones((3, 3)), 0)
    assert chain.paths.tolist() == [[-1, -1]]
    assert (chain.log_partition, chain.entropy()) == (0, 0)


def test_k_best_scores_are_sorted_and_padded():
    best = two_by_two().k_best_scores(5)
    np.testing.assert_allclose(np.exp(best), [6, 3, 2, 1, 0])


@pytest.mark.parametrize(
    ("nodes", "edges", "length", "message"),
    [
        (np.zeros(3), np.zeros((3, 3)), None, r"nodes: expected shape \[n, s\], got \[3\]"),
        (np.zeros((4, 3)), np.zeros((4, 3, 3)), None, r"\[3, 3, 3\], got \[4, 3, 3\]"),
        (np.zeros((4, 3)), np.zeros((3, 3)), 5, r"length: expected 0 … 4, got 5"),
        (np.zeros((40, 3)), np.zeros((3, 3)), None, r"at most 1048576 labellings"),
    ],
)
def test_errors(nodes, edges, length, message):
    with pytest.raises(ValueError, match=message):
        Enumeration(nodes, edges, length)


def test_divergence_of_chains_that_do_not_match():
    with pytest.raises(ValueError, match="length 2"):
        two_by_two().kl_divergence(Enumeration(np.zeros((2, 2)), np.zeros((2, 2)), 1))
