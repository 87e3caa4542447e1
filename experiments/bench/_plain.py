"""What one would write without this library: log space, and autodiff for the rest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp


def log_partition(nodes: jax.Array, edges: jax.Array) -> jax.Array:
    """log Z of one chain [n, s] by the textbook recursion."""

    def step(log_alpha, node):
        return logsumexp(log_alpha[:, None] + edges, axis=0) + node, None

    return logsumexp(lax.scan(step, nodes[0], nodes[1:])[0])


def entropy(nodes: jax.Array, edges: jax.Array) -> jax.Array:
    """Entropy of one chain as log Z − E[score], the expectation carried along."""

    def step(carry, node):
        log_alpha, expected = carry
        joint = log_alpha[:, None] + edges
        arriving = logsumexp(joint, axis=0)
        weights = jnp.exp(joint - arriving)
        expected = (weights * (expected[:, None] + edges)).sum(0) + node
        return (arriving + node, expected), None

    (log_alpha, expected), _ = lax.scan(step, (nodes[0], nodes[0]), nodes[1:])
    return logsumexp(log_alpha) - (jax.nn.softmax(log_alpha) * expected).sum()


@jax.jit
def batch_marginals(nodes: jax.Array, edges: jax.Array):
    """Σ log Z of a batch [b, n, s], and its gradient."""
    return jax.value_and_grad(_total(log_partition), (0, 1))(nodes, edges)


@jax.jit
def batch_entropy_gradient(nodes: jax.Array, edges: jax.Array):
    """Σ H of a batch [b, n, s], and its gradient."""
    return jax.value_and_grad(_total(entropy), (0, 1))(nodes, edges)


def _total(fn):
    return lambda nodes, edges: jax.vmap(fn, (0, None))(nodes, edges).sum()
