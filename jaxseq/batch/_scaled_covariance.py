r"""Covariance of the features with an additive functional, in scaled space on a block of rows.

For a functional g (values v at nodes, w at edges; D = E ⊙ w, the rest as in `_scaled`),
X_t = Gα_t + v_t and Y_t = Gβ_t are the conditional expectations, given the label at t, of what
lies left of and at t, and of what lies right of t:

    X_{t+1} = (Eᵀ(α_t ⊙ X_t) + Dᵀ α_t) / (Eᵀ α_t) + v_{t+1}
    Y_t     = (E(β' ⊙ (Y_{t+1} + v_{t+1})) + D β') / (E β'),       β' = e_{t+1} ⊙ β_{t+1}

All that depends on the scores alone comes first, then scans that are linear in the values: only
so can JAX transpose them, which reverse mode over reverse mode needs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.batch._scaled import Block, certify, factorise, inverse, run_ahead, run_back
from jaxseq.chain._numerics import einsum, matmul


class BlockCovariance(NamedTuple):
    """Covariance of the features with a functional g.

    means [c, t]: summed over a sequence, E[g]; nodes [c, t, s]: Cov[1{y_t = i}, g]; edges [s, s]:
    the weighted sum of Cov[1{y_t = i, y_{t+1} = j}, g].
    """

    means: Float[Array, "c t"]
    nodes: Float[Array, "c t s"]
    edges: Float[Array, "s s"]


def covariance(
    block: Block,
    edges: Float[Array, "s s"],
    node_values: Float[Array, "c t s"],
    edge_values: Float[Array, "s s"],
) -> tuple[BlockCovariance, Bool[Array, ""]]:
    """Covariance with the functional of the given (finite) values; linear in them."""
    values = jnp.where(block.valid[..., None], node_values, 0).transpose(1, 2, 0)
    factors = factorise(block, edges)
    matrix = factors.edges
    weighted = matrix * edge_values
    ahead = run_ahead(factors)
    back = run_back(factors, ahead.alphas)
    alphas, afters = ahead.alphas, back.afters
    before = jnp.concatenate([jnp.zeros_like(alphas[:1]), alphas[:-1]])
    linked_after = jnp.concatenate([factors.linked[1:], jnp.zeros_like(factors.linked[:1])])

    node_totals = (alphas * back.raws).sum(1, keepdims=True)
    shares = alphas * inverse(node_totals)
    nodes = shares * back.raws

    def look_left(seen, inputs):
        alpha, share, fresh, value, weights = inputs
        seen = matmul(matrix.T, alpha * seen) * share + fresh + value
        # Any constant a slot cancels in the end; the mean is taken out to keep the digits.
        return (centred := seen - (weights * seen).sum(0)), centred

    share_left = jnp.where(factors.linked, inverse(ahead.masses), 0)
    fresh_left = einsum("ij,tic->tjc", weighted, before) * share_left
    start = jnp.zeros_like(values[0])
    _, seen = lax.scan(look_left, start, (before, share_left, fresh_left, values, nodes))

    def look_right(coming, inputs):
        after, share, fresh, value, weights = inputs
        ahead_of = matmul(matrix, after * coming) * share + fresh
        return ahead_of - (weights * ahead_of).sum(0) + value, (coming, ahead_of)

    share_right = jnp.where(linked_after, inverse(back.raws), 0)
    fresh_edges = einsum("ij,tjc->tic", weighted, afters)
    scanned = (afters, share_right, fresh_edges * share_right, values, nodes)
    _, (coming, ahead_of) = lax.scan(look_right, start, scanned, reverse=True)

    total = seen + ahead_of
    mean = (nodes * total).sum(1, keepdims=True)
    by_node = nodes * (total - mean)
    share = jnp.where(linked_after, shares, 0)
    means = (nodes * values).sum(1) + (share * fresh_edges).sum(1)

    share = share * block.weights.T[:, None]
    counts = einsum("tic,tjc->ij", share, afters)
    products = einsum("tic,tjc->ij", share * (seen - mean), afters)
    products += einsum("tic,tjc->ij", share, afters * coming)
    result = BlockCovariance(
        means.T, by_node.transpose(2, 0, 1), products * matrix + counts * weighted
    )
    met = jnp.where(ahead.totals > 0, node_totals[:, 0], 1)
    return result, certify(ahead.lowest, back.lowest, met)
