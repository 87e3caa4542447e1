"""Plain log-space twins of the library's functions, for automatic differentiation to work on.

The library replaces the derivatives of its functions by closed forms, so `jax.grad` of them checks
nothing. Here is the same mathematics with no closed form in it and no code of `jaxseq.chain`: one
log-sum-exp recursion, everything else defined from it, every derivative left to JAX. What does not
follow from log Z alone is in `jaxseq.verify._table`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int


class PlainChain(NamedTuple):
    """Scores of one chain: nodes ``[n, s]``, edges ``[s, s]`` or ``[n - 1, s, s]``, and length."""

    nodes: Float[Array, "n s"]
    edges: Float[Array, "..."]
    length: Int[Array, ""]


def log_sum_exp(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """log Σ exp(x); −inf with derivatives 0 where every entry is −inf.

    An entry of −inf never enters the arithmetic, so no derivative of any order meets ∞ − ∞.
    """
    finite = x > -jnp.inf
    some = finite.any(axis)
    top = lax.stop_gradient(jnp.max(x, axis, keepdims=True))
    top = jnp.where(jnp.isneginf(top), 0, top)
    terms = jnp.where(finite, jnp.exp(jnp.where(finite, x, top) - top), 0)
    total = jnp.log(jnp.where(some, terms.sum(axis), 1)) + jnp.squeeze(top, axis)
    return jnp.where(some, total, -jnp.inf)


def log_partition(chain: PlainChain) -> Float[Array, ""]:
    """log Z by the forward recursion, α_{t+1}(j) = log Σ_i exp(α_t(i) + edge(i, j)) + node(j)."""
    n, s = chain.nodes.shape
    edges = jnp.broadcast_to(chain.edges, (n - 1, s, s))

    def step(alpha, inputs):
        t, node, edge = inputs
        extended = log_sum_exp(alpha[:, None] + edge, 0) + node
        return jnp.where(t < chain.length, extended, alpha), None

    alpha, _ = lax.scan(step, chain.nodes[0], (jnp.arange(1, n), chain.nodes[1:], edges))
    return jnp.where(chain.length > 0, log_sum_exp(alpha, 0), 0)


def marginals(chain: PlainChain) -> tuple[Float[Array, "n s"], Float[Array, "..."]]:
    """∂ log Z / ∂(nodes, edges); where the edges are shared theirs are summed over positions."""
    return jax.grad(_log_partition_of(chain), (0, 1))(chain.nodes, chain.edges)


def entropy(chain: PlainChain) -> Float[Array, ""]:
    """H = log Z − E[score], where E[score] is the derivative of log Z along the scores.

    0 when no path is legal.
    """
    direction = tuple(jnp.where(x > -jnp.inf, x, 0) for x in (chain.nodes, chain.edges))
    log_z, mean = jax.jvp(_log_partition_of(chain), (chain.nodes, chain.edges), direction)
    legal = log_z > -jnp.inf
    return jnp.where(legal, jnp.where(legal, log_z, 0) - mean, 0)


def entropy_along(chain: PlainChain, direction: tuple[Array, Array]) -> Float[Array, ""]:
    """The derivative of the entropy along a direction in the space of scores."""
    value = lambda nodes, edges: entropy(PlainChain(nodes, edges, chain.length))  # noqa: E731
    return jax.jvp(value, (chain.nodes, chain.edges), direction)[1]


def _log_partition_of(chain: PlainChain):
    return lambda nodes, edges: log_partition(PlainChain(nodes, edges, chain.length))
