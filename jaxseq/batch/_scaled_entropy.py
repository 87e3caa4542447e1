r"""Entropy and its gradient in scaled space on a block of rows: Mann & McCallum without logarithms.

With the notation of `_scaled`, v = −(nodes − top) and D = −E ⊙ log E, the entropy lattices less
the logarithm of the message, X = Hα − log α and Y = Hβ − log β, obey

    X_{t+1} = (Eᵀ(α_t ⊙ X_t) + Dᵀ α_t) / (Eᵀ α_t) + v_{t+1} + log c_{t+1}
    Y_t     = (E(β' ⊙ (Y_{t+1} + v_{t+1})) + D β') / (E β') + log z_t

where c and z are what the messages were divided by: the logarithms of single labels, s² or s a
step, have all cancelled. The surprise of a label is −log m + Hα + Hβ = X + Y + log Σ α β, and

    ∂H/∂nodes[t, i] = m_t(i) (surprise_t(i) − H),      H = Σ_i m_t(i) surprise_t(i).

A step advances the pair [α; α ⊙ X] by one product with the block matrix [[Eᵀ, 0], [Dᵀ, Eᵀ]],
and likewise backwards; the edge gradient, summed over positions, is one product of such pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.batch._scaled import Block, certify, factorise, inverse, lowest_of
from jaxseq.chain._numerics import matmul


class BlockEntropy(NamedTuple):
    """Entropies [c, t], each at the first slot of its sequence and 0 elsewhere; their gradient by
    nodes [c, t, s]; and by edges [s, s], the weighted sum."""

    entropies: Float[Array, "c t"]
    nodes: Float[Array, "c t s"]
    edges: Float[Array, "s s"]


def _log_or_zero(x: Array) -> Array:
    return jnp.where(x > 0, jnp.log(x), 0)


def entropy(block: Block, edges: Float[Array, "s s"]) -> tuple[BlockEntropy, Bool[Array, ""]]:
    """Entropy and its gradient; also whether every message is well above underflow."""
    factors = factorise(block, edges)
    matrix, s = factors.edges, edges.shape[0]
    relative = factors.node_top[:, None] - block.nodes.transpose(1, 2, 0)
    values = jnp.where(factors.nodes > 0, relative, 0)
    surprise = jnp.where(matrix > 0, (factors.edge_top - edges) * matrix, 0)
    nothing = jnp.zeros_like(matrix)
    matrix_ahead = jnp.block([[matrix.T, nothing], [surprise.T, matrix.T]])
    matrix_back = jnp.block([[matrix, nothing], [surprise, matrix]])

    def ahead(carry, inputs):
        pair, lowest = carry  # [α; α ⊙ X]
        factor, link, value = inputs
        arriving = matmul(matrix_ahead, pair)
        mass, expected = arriving[:s], arriving[s:]
        raw = jnp.where(link, mass, 1) * factor
        total = raw.sum(0)
        alpha = raw * inverse(total)
        seen = jnp.where(link, expected * inverse(mass), 0) + value + _log_or_zero(total)
        pair = jnp.concatenate([alpha, alpha * seen])
        return (pair, lowest_of(lowest, raw, factor > 0)), pair

    def back(carry, inputs):
        after, products, link, lowest, lowest_total = carry  # after: [β'; β' ⊙ (Y + v)]
        pair, factor, value, linked_before, weight = inputs
        alpha, alpha_seen = pair[:s], pair[s:]
        leaving = matmul(matrix_back, after)
        raw = jnp.where(link, leaving[:s], 1)
        coming = jnp.where(link, leaving[s:] * inverse(leaving[:s]), 0)
        total = (alpha * raw).sum(0)
        scale = inverse(total)
        node = alpha * scale * raw
        expected = alpha_seen * scale * raw + node * coming
        mean = expected.sum(0)
        shares = jnp.concatenate([alpha, alpha_seen - alpha * mean]) * (scale * weight * link)
        products = products + matmul(shares, after.T)
        top = raw.max(0)
        beta = raw * inverse(top) * factor
        after = jnp.concatenate([beta, beta * (coming + _log_or_zero(top) + value)])
        lowest = lowest_of(lowest, raw, alpha > 0)
        lowest_total = lowest_of(lowest_total, total, (alpha > 0).any(0))
        carry = (after, products, linked_before, lowest, lowest_total)
        return carry, (expected - node * mean, mean + _log_or_zero(total))

    start = jnp.zeros((2 * s, block.nodes.shape[0]), edges.dtype)
    ones = jnp.ones_like(start[:s])
    scanned = (factors.nodes, factors.linked, values)
    (_, lowest_ahead), pairs = lax.scan(ahead, (start, ones), scanned)

    no_products, no_link = jnp.zeros((2 * s, 2 * s), edges.dtype), jnp.zeros_like(factors.linked[0])
    carry = (start, no_products, no_link, ones, ones[0])
    scanned = (pairs, factors.nodes, values, factors.linked, block.weights.T)
    carry, (nodes, means) = lax.scan(back, carry, scanned, reverse=True)
    _, products, _, lowest_back, lowest_total = carry

    by_edge = matrix * (products[:s, s:] + products[s:, :s]) + surprise * products[:s, :s]
    entropies = jnp.where(block.linked | ~block.valid, 0, means.T)
    result = BlockEntropy(entropies, nodes.transpose(2, 0, 1), by_edge)
    return result, certify(lowest_ahead, lowest_back, lowest_total)
