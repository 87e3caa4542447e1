r"""Forward–backward on a group of blocks in scaled space, given what comes before and after each.

Layout is [positions, labels, columns]. With e and E the factors exp(score − largest) of nodes and
of arriving edges, and a link between t − 1 and t,

    α_t ∝ (Eᵀ α_{t−1}) ⊙ e_t        β_{t−1} ∝ E (e_t ⊙ β_t)

A block starts from the α of the position before it and from the β of its own last position. Step t
of the way back ends at position t − 1 and meets the pair (t − 1, t): so what a block returns for
its place t belongs to position t − 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.chain._block_layout import Blocks
from jaxseq.chain._engines import smallest_trusted
from jaxseq.chain._numerics import matmul


class Factors(NamedTuple):
    """Scores as factors, and the logarithm of what was taken out at each position.

    `plain_zeros` says that no edge is so small that a message entry could come out 0 but by being
    impossible: then a 0 among messages that are otherwise well above underflow is exact.
    """

    nodes: Float[Array, "l s c"]
    edges: Float[Array, "..."]
    taken: Float[Array, "l c"]
    linked: Bool[Array, "l 1 c"]
    valid: Bool[Array, "l c"]
    plain_zeros: Bool[Array, ""]


class Sweep(NamedTuple):
    """What one pass over a group leaves behind.

    nodes: marginals of the position before each place; edges: of the pairs that arrive at each
    place, or their sum; log_z: the group's share; alphas, betas: messages at the last position of
    each block, and at the position before each; lowest: the smallest entry that had to be ample.
    """

    nodes: Float[Array, "c l s"]
    edges: Float[Array, "..."]
    log_z: Float[Array, ""]
    alphas: Float[Array, "s c"]
    betas: Float[Array, "s c"]
    lowest: Float[Array, ""]


def factorise(group: Blocks) -> Factors:
    """exp of the scores, each less the largest of its position; 0 for forbidden and padding.

    A legal factor that would underflow is held at the smallest number instead, where it cannot be
    taken for a forbidden one.
    """
    floor = jnp.finfo(group.nodes.dtype).tiny
    valid, linked = group.valid.T, group.linked.T
    nodes = group.nodes.transpose(1, 2, 0)
    legal = (nodes > -jnp.inf) & valid[:, None]
    top = _finite(jnp.where(legal, nodes, -jnp.inf).max(1))
    factors = jnp.where(legal, jnp.maximum(jnp.exp(nodes - top[:, None]), floor), 0)

    edges, counts = group.edges, jnp.ones((), bool)
    if edges.ndim == 4:
        edges, counts = edges.transpose(1, 2, 3, 0), linked[:, None, None]
    legal = (edges > -jnp.inf) & counts
    labels = (0, 1) if edges.ndim == 2 else (1, 2)
    edge_top = _finite(jnp.where(legal, edges, -jnp.inf).max(labels, keepdims=True))
    edges = jnp.where(legal, jnp.maximum(jnp.exp(edges - edge_top), floor), 0)
    trusted = smallest_trusted(nodes.dtype) / nodes.shape[1]
    plain_zeros = jnp.where(legal, edges, 1).min() * trusted > 2 * floor
    edge_top = edge_top[0, 0] if edges.ndim == 2 else edge_top[:, 0, 0]
    taken = jnp.where(valid, top, 0) + jnp.where(linked, edge_top, 0)
    return Factors(factors, edges, taken, linked[:, None], valid, plain_zeros)


def sweep_group(
    group: Blocks, before: Float[Array, "s c"], after: Float[Array, "s c"], summed: bool
) -> Sweep:
    """Marginals and log Z of a group.

    Args:
        group: its scores.
        before: α of the position before each block, summing to 1.
        after: β of the last position of each block, at most 1.
        summed: whether edge marginals are wanted as their sum [s, s].

    Cost: O(s²) a position; memory O(s) a position, O(s²) when edge marginals are not summed.
    """
    factors = factorise(group)
    ahead = _sweep_ahead(factors, before)
    labels = before.shape[0]

    def step(carry, inputs):
        beta, alpha, counts, lowest = carry
        alpha_before, factor, link, edge = inputs
        edge = factors.edges if edge is None else edge
        following = beta * factor
        lowest = jnp.minimum(lowest, jnp.where((alpha > 0) & (beta > 0), following, 1))
        arrived = go_back(edge, following)
        raw = jnp.where(link, arrived, 1)
        total = (alpha_before * raw).sum(0)
        share = alpha_before * inverse(total)
        possible = alpha_before > 0
        looked_at = jnp.minimum(jnp.where(factors.plain_zeros & (raw == 0), 1, raw), total)
        lowest = jnp.minimum(lowest, jnp.where(possible, looked_at, 1))
        linked_share = jnp.where(link, share, 0)
        pairs = jnp.zeros((0, 0, 0, 0), before.dtype)
        if summed:
            counts = counts + matmul(linked_share, following.T)
        else:
            pairs = linked_share[:, None] * (edge[:, :, None] if edge.ndim == 2 else edge)
            pairs = pairs * following
        beta = raw * inverse(raw.max(0))
        return (beta, alpha_before, counts, lowest), (share * raw, pairs)

    counts = jnp.zeros((labels, labels), before.dtype)
    edges = None if factors.edges.ndim == 2 else factors.edges
    inputs = (ahead.alphas, factors.nodes, factors.linked, edges)
    carry = (after, ahead.last, counts, ahead.lowest)
    (beta, _, counts, lowest), (nodes, pairs) = lax.scan(step, carry, inputs, reverse=True)
    edge_marginals = counts * factors.edges if summed else pairs.transpose(3, 0, 1, 2)
    return Sweep(
        nodes.transpose(2, 0, 1), edge_marginals, ahead.log_z, ahead.last, beta, lowest.min()
    )  # fmt: skip


class _Ahead(NamedTuple):
    alphas: Float[Array, "l s c"]  # of the position before each place
    last: Float[Array, "s c"]
    log_z: Float[Array, ""]
    lowest: Float[Array, "s c"]


def _sweep_ahead(factors: Factors, before: Float[Array, "s c"]) -> _Ahead:
    def step(carry, inputs):
        alpha, lowest = carry
        factor, link, edge = inputs
        edge = factors.edges if edge is None else edge
        mass = jnp.where(link, go_ahead(edge, alpha), 1)
        raw = mass * factor
        reachable = (factor > 0) & ~(factors.plain_zeros & (mass == 0))
        lowest = jnp.minimum(lowest, jnp.where(reachable, raw, 1))
        total = raw.sum(0)
        return (raw * inverse(total), lowest), (alpha, total)

    edges = None if factors.edges.ndim == 2 else factors.edges
    scanned = (factors.nodes, factors.linked, edges)
    (last, lowest), (alphas, totals) = lax.scan(step, (before, jnp.ones_like(before)), scanned)
    log_z = jnp.where(factors.valid, jnp.log(totals) + factors.taken, 0).sum(1).sum()
    return _Ahead(alphas, last, log_z, lowest)


def go_ahead(edge: Array, alpha: Float[Array, "s c"]) -> Float[Array, "s c"]:
    """Eᵀ α, with one matrix for all columns or one for each."""
    return matmul(edge.T, alpha) if edge.ndim == 2 else (edge * alpha[:, None]).sum(0)


def go_back(edge: Array, following: Float[Array, "s c"]) -> Float[Array, "s c"]:
    """E (e ⊙ β), with one matrix for all columns or one for each."""
    return matmul(edge, following) if edge.ndim == 2 else (edge * following).sum(1)


def inverse(x: Array) -> Array:
    """1 / x, and 0 where x is 0."""
    return jnp.where(x > 0, 1 / x, 0)


def _finite(top: Array) -> Array:
    return jnp.where(jnp.isneginf(top), 0, top)
