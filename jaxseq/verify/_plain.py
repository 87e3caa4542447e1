"""Plain log-space twins of the library's functions, for automatic differentiation to work on.

The library replaces the derivatives of its functions by closed forms, so `jax.grad` of them checks
nothing. Here is the same mathematics with no closed form in it and no code of `jaxseq.lattice`: one
log-sum-exp recursion, everything else defined from it, every derivative left to JAX.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int


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
    # `where` inside and outside: JAX multiplies the slope of the branch not taken by 0, and 0 · ∞
    # would be NaN.
    terms = jnp.where(finite, jnp.exp(jnp.where(finite, x, top) - top), 0)
    total = jnp.log(jnp.where(some, terms.sum(axis), 1)) + jnp.squeeze(top, axis)
    return jnp.where(some, total, -jnp.inf)


def log_partition(chain: PlainChain) -> Float[Array, ""]:
    """log Z by the forward recursion, α_{t+1}(j) = log Σ_i exp(α_t(i) + edge(i, j)) + node(j)."""
    n, s = chain.nodes.shape
    edges = jnp.broadcast_to(chain.edges, (n - 1, s, s))

    def step(alpha, inputs):
        t, node, edge = inputs
        # On padding α stays what it was at the last real position.
        extended = log_sum_exp(alpha[:, None] + edge, 0) + node
        return jnp.where(t < chain.length, extended, alpha), None

    alpha, _ = lax.scan(step, chain.nodes[0], (jnp.arange(1, n), chain.nodes[1:], edges))
    return jnp.where(chain.length > 0, log_sum_exp(alpha, 0), 0)


def marginals(chain: PlainChain) -> tuple[Float[Array, "n s"], Float[Array, "..."]]:
    """∂ log Z / ∂(nodes, edges); where the edges are shared theirs are summed over positions."""
    return jax.grad(_log_z_in_scores(chain), (0, 1))(chain.nodes, chain.edges)


def entropy(chain: PlainChain) -> Float[Array, ""]:
    """H = log Z − E[score], where E[score] is the derivative of log Z along the scores.

    0 when no path is legal.
    """
    # E[score] = ⟨scores, marginals⟩, without a forbidden score, which never occurs.
    direction = tuple(jnp.where(x > -jnp.inf, x, 0) for x in (chain.nodes, chain.edges))
    log_z, mean = jax.jvp(_log_z_in_scores(chain), (chain.nodes, chain.edges), direction)
    legal = log_z > -jnp.inf
    return jnp.where(legal, jnp.where(legal, log_z, 0) - mean, 0)


def entropy_along(chain: PlainChain, direction: tuple[Array, Array]) -> Float[Array, ""]:
    """The derivative of the entropy along a direction in the space of scores."""
    value = lambda nodes, edges: entropy(PlainChain(nodes, edges, chain.length))  # noqa: E731
    return jax.jvp(value, (chain.nodes, chain.edges), direction)[1]


def _log_z_in_scores(chain: PlainChain):
    return lambda nodes, edges: log_partition(PlainChain(nodes, edges, chain.length))


# What does not follow from log Z alone is written down path by path, as its definition reads, over
# a table of all labellings. No code is shared with the oracle either, which does the same in NumPy.

MOST_PATHS = 1024  # chains with more labellings than this are checked without a table


@lru_cache
def all_paths(n: int, s: int) -> Int[np.ndarray, "m n"]:
    """Every labelling of n positions."""
    return np.array(list(product(range(s), repeat=n)))


def log_probabilities(
    chain: PlainChain, allowed: Bool[Array, " m"] | None = None
) -> Float[Array, " m"]:
    """log p of every labelling, −inf where illegal; among the `allowed` only, renormalised.

    Of the labellings that differ on padding only, the one with zeros there stands for all.
    """
    n, s = chain.nodes.shape
    paths, position = jnp.asarray(all_paths(n, s)), jnp.arange(n)
    real = position < chain.length
    edges = jnp.broadcast_to(chain.edges, (n - 1, s, s))
    node_scores = jnp.where(real, chain.nodes[position, paths], 0)
    edge_scores = jnp.where(real[1:], edges[position[:-1], paths[:, :-1], paths[:, 1:]], 0)
    scores = jnp.concatenate([node_scores, edge_scores], axis=1)
    finite = scores > -jnp.inf
    legal = finite.all(1) & ((paths == 0) | real).all(1)
    legal = legal if allowed is None else legal & allowed
    total = jnp.where(legal, jnp.where(finite, scores, 0).sum(1), -jnp.inf)
    log_z = log_sum_exp(total, 0)
    return total - jnp.where(jnp.isneginf(log_z), 0, log_z)


def marginal_entropy(
    log_probability: Float[Array, " m"], chain: PlainChain, kept: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Entropy of the labels at the `kept` positions, the others summed out."""
    n, s = chain.nodes.shape
    paths = jnp.asarray(all_paths(n, s))
    # Labellings that agree on what is kept have one code, and their probabilities add up.
    code = jnp.where(kept, paths * s ** np.arange(n), 0).sum(1)
    legal = log_probability > -jnp.inf
    probability = jnp.where(legal, jnp.exp(jnp.where(legal, log_probability, 0)), 0)
    grouped = jax.ops.segment_sum(probability, code, s**n)
    return -(grouped * jnp.log(jnp.where(grouped > 0, grouped, 1))).sum()


def span_entropy(
    chain: PlainChain, start: Int[Array, ""], stop: Int[Array, ""]
) -> Float[Array, ""]:
    """H(Y[start:stop])."""
    position = jnp.arange(chain.nodes.shape[0])
    return marginal_entropy(
        log_probabilities(chain), chain, (position >= start) & (position < stop)
    )


def rest_entropy(
    chain: PlainChain, first: Int[Array, ""], labels: Int[Array, " w"]
) -> Float[Array, ""]:
    """Entropy of the labelling given `labels` at first, first + 1, …"""
    n, s = chain.nodes.shape
    offset = jnp.arange(n) - first
    fixed = (offset >= 0) & (offset < labels.shape[0]) & (jnp.arange(n) < chain.length)
    wanted = labels[jnp.clip(offset, 0, labels.shape[0] - 1)]
    allowed = ((jnp.asarray(all_paths(n, s)) == wanted) | ~fixed).all(1)
    return marginal_entropy(log_probabilities(chain, allowed), chain, jnp.ones(n, bool))


def entropy_lattices(chain: PlainChain) -> tuple[Float[Array, "n s"], Float[Array, "n s"]]:
    """Entropy of what lies left, and of what lies right, of t given y_t = i, at [t, i]."""
    n, s = chain.nodes.shape
    paths, position = jnp.asarray(all_paths(n, s)), jnp.arange(n)

    def conditional(t, i):
        log_probability = log_probabilities(chain, paths[:, t] == i)
        left, right = (
            marginal_entropy(log_probability, chain, side) for side in (position < t, position > t)
        )
        return jnp.where(t < chain.length, left, 0), jnp.where(t < chain.length, right, 0)

    return jax.vmap(jax.vmap(conditional, (None, 0)), (0, None))(position, jnp.arange(s))


def cross_entropy(p: PlainChain, q: PlainChain) -> Float[Array, ""]:
    """−Σ p log q; +inf when q forbids what p allows."""
    log_p, log_q = log_probabilities(p), log_probabilities(q)
    return _expected_difference(log_p, jnp.zeros_like(log_p), log_q)


def kl_divergence(p: PlainChain, q: PlainChain) -> Float[Array, ""]:
    """Σ p log (p / q); +inf when q forbids what p allows."""
    log_p, log_q = log_probabilities(p), log_probabilities(q)
    return _expected_difference(log_p, log_p, log_q)


def _expected_difference(log_p: Array, minuend: Array, log_q: Array) -> Array:
    """Σ p (minuend − log q) over the labellings that p allows."""
    allowed = log_p > -jnp.inf
    # An infinite value has gradient 0, here as in the library: then nothing is usable.
    covered = (~allowed | (log_q > -jnp.inf)).all()
    usable = allowed & covered
    probability = jnp.where(usable, jnp.exp(jnp.where(usable, log_p, 0)), 0)
    difference = jnp.where(usable, minuend, 0) - jnp.where(usable, log_q, 0)
    return jnp.where(covered, (probability * difference).sum(), jnp.inf)
