"""Chains on which each message of the scaled engine is fine and their product underflows."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxseq

NEVER = -np.inf


def dead_end() -> jaxseq.Chain:
    """The likeliest first label leads nowhere; the other is far below, and so is what follows."""
    nodes = np.array([[0, -58], [0, 0], [0, 0]], np.float32)
    edges = np.array([[[NEVER, NEVER], [NEVER, 0]], [[0, 0], [-58, -58]]], np.float32)
    return jaxseq.Chain(nodes, edges)


def dead_ends_both_ways() -> jaxseq.Chain:
    """With shared edges: what is likely forwards is impossible backwards, and the reverse."""
    edges = np.full((6, 6), NEVER, np.float32)
    edges[1, 2] = edges[2, 4] = edges[3, 5] = 0
    nodes = np.zeros((3, 6), np.float32)
    nodes[0] = [0, -58, NEVER, NEVER, NEVER, NEVER]
    nodes[2, 4] = -58
    return jaxseq.Chain(nodes, edges)


@pytest.mark.parametrize("make", [dead_end, dead_ends_both_ways])
def test_single_chain_sees_that_the_messages_do_not_meet(make):
    chain = make()
    found, exact = jaxseq.marginals(chain), jaxseq.marginals(chain, method="log")
    np.testing.assert_allclose(found.nodes, exact.nodes, atol=1e-6)
    np.testing.assert_allclose(found.edges, exact.edges, atol=1e-6)
    np.testing.assert_allclose(found.nodes.sum(1), 1, atol=1e-6)
    entropies = [jaxseq.entropy(chain, method=method) for method in ("auto", "log")]
    np.testing.assert_allclose(*entropies, atol=1e-5)


def test_batch_kernels_see_it_too():
    chain = dead_ends_both_ways()
    batch = jaxseq.PaddedBatch(chain.nodes[None], chain.edges)
    tangent = jaxseq.PaddedBatch(jnp.ones_like(batch.nodes), jnp.eye(6, dtype=jnp.float32))
    for fn in (
        jaxseq.batch_marginals,
        jaxseq.batch_entropy_gradient,
        lambda batch, method: jaxseq.batch_covariance_product(batch, tangent, method=method),
    ):
        found, exact = fn(batch, method="auto"), fn(batch, method="log")
        np.testing.assert_allclose(found.nodes, exact.nodes, atol=1e-5)
        np.testing.assert_allclose(found.edges, exact.edges, atol=1e-5)
    np.testing.assert_allclose(jaxseq.batch_marginals(batch).edges.sum(), 2, atol=1e-5)
