"""Partial labels, and divergences between chains."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given

from jaxseq.lattice import (
    Chain,
    constrain,
    cross_entropy,
    entropy,
    kl_divergence,
    log_partition,
    log_prob,
    marginals,
    path_score,
)
from tests.lattice.cases import SHARED, cases, enumerate_chain, random_case
from tests.lattice.registry import FLOAT64, Tolerance, assert_trees_close


@given(cases(SHARED))
def test_full_labels_leave_the_score_of_their_path(case):
    only = case.path[:, None] == jnp.arange(3)
    clamped = log_partition(constrain(case.chain, only))
    assert_trees_close(clamped, path_score(case.chain, case.path), FLOAT64)


@given(cases(SHARED))
def test_all_labels_allowed_change_nothing(case):
    free = constrain(case.chain, jnp.ones((5, 3), bool))
    for leaf, expected in zip(jax.tree.leaves(free), jax.tree.leaves(case.chain)):
        np.testing.assert_array_equal(leaf, expected)
    assert jax.tree.structure(free) == jax.tree.structure(case.chain)


def test_gradient_of_partial_labels_is_clamped_less_free_marginals():
    case = random_case(SHARED, 0, length=4)

    def log_likelihood(nodes):
        chain = Chain(nodes, case.chain.edges, case.chain.length)
        return log_partition(constrain(chain, case.allowed)) - log_partition(chain)

    clamped = enumerate_chain(constrain(case.chain, case.allowed))
    assert clamped.legal
    expected = clamped.node_marginals() - enumerate_chain(case.chain).node_marginals()
    assert_trees_close(jax.grad(log_likelihood)(case.chain.nodes), expected, FLOAT64)


@given(cases(SHARED))
def test_probabilities_of_given_paths(case):
    """log_prob = path_score − log Z, and the gradient of an illegal path is 0."""
    table = enumerate_chain(case.chain)
    score, probability = (float(f(case.chain, case.path)) for f in (path_score, log_prob))
    if score > -np.inf:
        assert_trees_close(probability, score - table.log_partition, FLOAT64)
    else:
        assert probability == -np.inf
        gradient = _log_prob_gradient(case.chain.nodes, case.chain, case.path)
        np.testing.assert_array_equal(gradient, np.zeros((5, 3)))


_log_prob_gradient = jax.jit(
    jax.grad(lambda nodes, chain, path: log_prob(Chain(nodes, chain.edges, chain.length), path))
)


@given(cases(SHARED))
def test_divergence_is_not_negative(case):
    assert kl_divergence(case.chain, case.other) >= -1e-9


@given(cases(SHARED))
def test_divergence_from_itself_is_zero(case):
    assert_trees_close(kl_divergence(case.chain, case.chain), 0.0, FLOAT64)
    own = cross_entropy(case.chain, case.chain)
    assert_trees_close(own, entropy(case.chain), FLOAT64)


def test_divergence_is_infinite_where_q_forbids_what_p_allows():
    p = random_case(SHARED, 0).chain
    by_node = Chain(p.nodes.at[2, 1].set(-jnp.inf), p.edges, p.length)
    by_edge = Chain(p.nodes, p.edges.at[0, 2].set(-jnp.inf), p.length)
    dead = Chain(p.nodes.at[2].set(-jnp.inf), p.edges, p.length)
    gradient = jax.jit(
        jax.grad(lambda p, q: kl_divergence(Chain(*p, 5), Chain(*q, 5)), argnums=(0, 1))
    )
    for q in (by_node, by_edge, dead):
        assert kl_divergence(p, q) == cross_entropy(p, q) == jnp.inf
        for leaf in jax.tree.leaves(gradient((p.nodes, p.edges), (q.nodes, q.edges))):
            np.testing.assert_array_equal(leaf, np.zeros(leaf.shape))
    for q in (by_node, by_edge):
        backwards = float(kl_divergence(q, p))
        expected = enumerate_chain(q).kl_divergence(enumerate_chain(p))
        assert_trees_close(backwards, expected, FLOAT64)
        for leaf in jax.tree.leaves(gradient((q.nodes, q.edges), (p.nodes, p.edges))):
            assert np.isfinite(leaf).all()


def test_what_q_forbids_on_padding_does_not_matter():
    p = random_case(SHARED, 0, length=3).chain
    q = Chain(p.nodes.at[3:].set(-jnp.inf), p.edges, p.length)
    assert_trees_close(kl_divergence(p, q), 0.0, FLOAT64)


def test_shared_and_per_position_edges_can_be_compared():
    p, q = random_case(SHARED, 0, length=4).chain, random_case(SHARED, 1, length=4).chain
    spread = Chain(q.nodes, jnp.broadcast_to(q.edges, (4, 3, 3)), q.length)
    assert_trees_close(kl_divergence(p, spread), kl_divergence(p, q), FLOAT64)
    assert_trees_close(kl_divergence(spread, p), kl_divergence(q, p), FLOAT64)


def test_gradient_of_cross_entropy_in_q_is_the_difference_of_marginals():
    p, q = random_case(SHARED, 0, length=4).chain, random_case(SHARED, 1, length=4).chain
    by_q = jax.grad(lambda nodes: cross_entropy(p, Chain(nodes, q.edges, q.length)))(q.nodes)
    expected = marginals(q).nodes - marginals(p).nodes
    assert_trees_close(by_q, expected, Tolerance(1e-9, 0))
