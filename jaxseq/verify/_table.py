"""Plain functions of the whole distribution, written down path by path in JAX.

The second half of the reference (see `jaxseq.verify._reference`): entropies of parts and
divergences, as their definitions read, over a table of all labellings. Differentiable to any
order by JAX; no recursion, no closed form, and no code shared with the library or the oracle.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxseq.verify._reference import PlainChain, log_sum_exp

MOST_PATHS = 1024
"""Chains with more labellings than this are checked without a table."""


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


def entropy_of(
    log_probability: Float[Array, " m"], chain: PlainChain, kept: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Entropy of the labels at the `kept` positions, the others summed out."""
    n, s = chain.nodes.shape
    paths = jnp.asarray(all_paths(n, s))
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
    return entropy_of(log_probabilities(chain), chain, (position >= start) & (position < stop))


def rest_entropy(
    chain: PlainChain, first: Int[Array, ""], labels: Int[Array, " w"]
) -> Float[Array, ""]:
    """Entropy of the labelling given `labels` at first, first + 1, …"""
    n, s = chain.nodes.shape
    offset = jnp.arange(n) - first
    given = (offset >= 0) & (offset < labels.shape[0]) & (jnp.arange(n) < chain.length)
    wanted = labels[jnp.clip(offset, 0, labels.shape[0] - 1)]
    allowed = ((jnp.asarray(all_paths(n, s)) == wanted) | ~given).all(1)
    return entropy_of(log_probabilities(chain, allowed), chain, jnp.ones(n, bool))


def entropy_lattices(chain: PlainChain) -> tuple[Float[Array, "n s"], Float[Array, "n s"]]:
    """Entropy of what lies left, and of what lies right, of t given y_t = i, at [t, i]."""
    n, s = chain.nodes.shape
    paths, position = jnp.asarray(all_paths(n, s)), jnp.arange(n)

    def given(t, i):
        log_probability = log_probabilities(chain, paths[:, t] == i)
        left, right = (
            entropy_of(log_probability, chain, side) for side in (position < t, position > t)
        )
        return jnp.where(t < chain.length, left, 0), jnp.where(t < chain.length, right, 0)

    return jax.vmap(jax.vmap(given, (None, 0)), (0, None))(position, jnp.arange(s))


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
    covered = (~allowed | (log_q > -jnp.inf)).all()
    usable = allowed & covered
    probability = jnp.where(usable, jnp.exp(jnp.where(usable, log_p, 0)), 0)
    difference = jnp.where(usable, minuend, 0) - jnp.where(usable, log_q, 0)
    return jnp.where(covered, (probability * difference).sum(), jnp.inf)
