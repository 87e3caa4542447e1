r"""Scaled-space kernels on a block of rows: the fast path of every batch function.

Layout is [positions, labels, rows]: with rows innermost each step is one small matrix times a
wide one, and sums over labels run across whole vectors. Nothing of size rows × positions × s² is
ever formed; expected transition counts come from products of [s, rows] matrices.

Notation of one step, with E = exp(edges − top), e = exp(nodes − top) and α, β the scaled
messages (architecture of Rabiner 1989):

    α_{t+1} ∝ (Eᵀ α_t) ⊙ e_{t+1}        β_t ∝ E (e_{t+1} ⊙ β_{t+1})
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.lattice._engines import smallest_trusted
from jaxseq.lattice._numerics import einsum, finite_top, inverse, matmul


class Block(NamedTuple):
    """Some rows of a batch."""

    nodes: Float[Array, "c t s"]  # scores
    linked: Bool[Array, "c t"]  # whether a slot continues the sequence of the slot before it
    valid: Bool[Array, "c t"]
    weights: Float[Array, "c t"]  # how much a slot's sequence counts in sums over the batch


class Factors(NamedTuple):
    """Scores as factors (`factorise`), and what was taken out of them."""

    nodes: Float[Array, "t s c"]
    node_top: Float[Array, "t c"]
    edges: Float[Array, "s s"]
    edge_top: Float[Array, ""]
    linked: Bool[Array, "t 1 c"]


def factorise(block: Block, edges: Array) -> Factors:
    """exp of the scores, each less the largest of its slot; 0 for the forbidden and for padding."""
    nodes = block.nodes.transpose(1, 2, 0)
    legal = (nodes != -jnp.inf) & block.valid.T[:, None, :]  # NaN is to be seen in what follows
    node_top = finite_top(jnp.where(legal, nodes, -jnp.inf), 1)
    # A legal factor that would underflow is held at the smallest number instead, where it cannot
    # be taken for a forbidden one and the certificate will find it.
    floor = jnp.finfo(nodes.dtype).tiny
    factors = jnp.where(legal, jnp.maximum(jnp.exp(nodes - node_top[:, None]), floor), 0)
    edge_top = finite_top(edges)
    linked = block.linked.T[:, None, :]
    return Factors(factors, node_top, jnp.exp(edges - edge_top), edge_top, linked)


def log_z_increments(totals: Array, factors: Factors, block: Block) -> Float[Array, "c t"]:
    """What each slot adds to log Z."""
    tops = factors.node_top + jnp.where(factors.linked[:, 0], factors.edge_top, 0)
    return jnp.where(block.valid, (jnp.log(totals) + tops).T, 0)


def certify(*lowest: Array) -> Bool[Array, ""]:
    """Whether the lowest legal message entries are all well above underflow."""
    # Products of messages too: each may be fine and their product not, where the labels that one
    # favours are dead ends for the other.
    trusted = smallest_trusted(lowest[0].dtype)
    return jnp.stack([low.min() >= trusted for low in lowest]).all()


def certify_at_once(lowest: Array, totals: Array) -> Bool[Array, ""]:
    """As `certify`, for scaled forward messages: they and their divisors must both be ample."""
    # Stricter than need be, for half the work; what it turns down without cause the exact
    # certificate lets pass.
    margin = 2.0**-20
    trusted = smallest_trusted(lowest.dtype)
    return (lowest.min() >= trusted / margin) & (totals.min() >= margin)


def track_lowest(seen_so_far: Array, raw: Array, legal: Array) -> Array:
    """Running minimum of the legal entries of a message before it is scaled."""
    return jnp.minimum(seen_so_far, jnp.where(legal, raw, 1))


class Ahead(NamedTuple):
    """Forward messages, the sum each was divided by, Eᵀα before each slot, and the lowest entry."""

    alphas: Float[Array, "t s c"]
    totals: Float[Array, "t c"]
    masses: Float[Array, "t s c"]
    lowest: Float[Array, "s c"]


def run_ahead(factors: Factors) -> Ahead:
    """The forward recursion. What a caller leaves unused is not computed either, once jitted."""

    def step(carry, inputs):
        alpha, lowest = carry
        factor, link = inputs
        mass = matmul(factors.edges.T, alpha)
        raw = jnp.where(link, mass, 1) * factor
        total = raw.sum(0)
        alpha = raw * inverse(total)
        return (alpha, track_lowest(lowest, raw, factor > 0)), (alpha, total, mass)

    start = jnp.zeros_like(factors.nodes[0])
    (_, lowest), kept = lax.scan(
        step, (start, jnp.ones_like(start)), (factors.nodes, factors.linked)
    )
    return Ahead(*kept, lowest)


def forward(block: Block, edges: Array) -> tuple[Float[Array, "c t"], Bool[Array, ""]]:
    """Increments of log Z, and whether every entry is well above underflow."""
    factors = factorise(block, edges)
    ahead = run_ahead(factors)
    return log_z_increments(ahead.totals, factors, block), certify(ahead.lowest)


class BlockMarginals(NamedTuple):
    """Increments of log Z; node marginals; weighted edge marginals, summed."""

    increments: Float[Array, "c t"]
    nodes: Float[Array, "c t s"]
    edges: Float[Array, "s s"]


def marginals(block: Block, edges: Array) -> tuple[BlockMarginals, Bool[Array, ""]]:
    """Forward–backward; also whether every entry is well above underflow."""
    factors = factorise(block, edges)
    ahead = run_ahead(factors)

    def back(carry, inputs):
        # `after` is e ⊙ β of the next slot and `link` whether there is one in this sequence.
        after, counts, link, lowest = carry
        alpha, factor, linked_before, weight = inputs
        raw = jnp.where(link, matmul(factors.edges, after), 1)
        total = (alpha * raw).sum(0)
        share = alpha * inverse(total)
        counts = counts + matmul(share * (weight * link), after.T)
        after = raw * inverse(raw.max(0)) * factor
        # One look at both messages and their product, for every look is a pass of its own: α,
        # less what it was divided by, stands for its raw form.
        lowest = track_lowest(lowest, jnp.minimum(jnp.minimum(alpha, raw), total), factor > 0)
        return (after, counts, linked_before, lowest), share * raw

    start = jnp.zeros_like(factors.nodes[0])
    ones, no_link = jnp.ones_like(start), jnp.zeros_like(factors.linked[0])
    carry = (start, jnp.zeros_like(edges), no_link, ones)
    inputs = (ahead.alphas, factors.nodes, factors.linked, block.weights.T)
    (_, counts, _, lowest), nodes = lax.scan(back, carry, inputs, reverse=True)

    result = BlockMarginals(
        log_z_increments(ahead.totals, factors, block),
        nodes.transpose(2, 0, 1),
        counts * factors.edges,
    )
    return result, certify_at_once(lowest, jnp.where(block.valid.T, ahead.totals, 1))


class Back(NamedTuple):
    """e ⊙ β of the slot after each; E(e ⊙ β), or 1 at a sequence's end; and the lowest entry."""

    afters: Float[Array, "t s c"]
    raws: Float[Array, "t s c"]
    lowest: Float[Array, "s c"]


def run_back(factors: Factors, alphas: Array) -> Back:
    """The backward recursion."""

    def step(carry, inputs):
        after, link, lowest = carry
        alpha, factor, linked_before = inputs
        raw = jnp.where(link, matmul(factors.edges, after), 1)
        before = raw * inverse(raw.max(0)) * factor
        return (before, linked_before, track_lowest(lowest, raw, alpha > 0)), (after, raw)

    start = jnp.zeros_like(factors.nodes[0])
    carry = (start, jnp.zeros_like(factors.linked[0]), jnp.ones_like(start))
    inputs = (alphas, factors.nodes, factors.linked)
    (_, _, lowest), kept = lax.scan(step, carry, inputs, reverse=True)
    return Back(*kept, lowest)


# -------------------------------------------------------------------------------------------------
# Covariance of the features with an additive functional, in scaled space on a block of rows.
#
# For a functional g (values v at nodes, w at edges; D = E ⊙ w, the rest as in `_scaled`),
# X_t = Gα_t + v_t and Y_t = Gβ_t are the conditional expectations, given the label at t, of what
# lies left of and at t, and of what lies right of t:
#
#     X_{t+1} = (Eᵀ(α_t ⊙ X_t) + Dᵀ α_t) / (Eᵀ α_t) + v_{t+1}
#     Y_t     = (E(β' ⊙ (Y_{t+1} + v_{t+1})) + D β') / (E β'),       β' = e_{t+1} ⊙ β_{t+1}
#
# All that depends on the scores alone comes first, then scans that are linear in the values: only
# so can JAX transpose them, which reverse mode over reverse mode needs.


class BlockCovariance(NamedTuple):
    """Covariance of the features with a functional g."""

    means: Float[Array, "c t"]  # summed over a sequence, E[g]
    nodes: Float[Array, "c t s"]  # Cov[1{y_t = i}, g]
    edges: Float[Array, "s s"]  # the weighted sum of Cov[1{y_t = i, y_{t+1} = j}, g]


def covariance(
    block: Block, edges: Array, node_values: Float[Array, "c t s"], edge_values: Array
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
        # Any constant per slot cancels in the end; the mean is taken out to keep the digits.
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


# -------------------------------------------------------------------------------------------------
# Entropy and its gradient in scaled space on a block of rows: Mann & McCallum without logarithms.
#
# With the notation of `_scaled`, v = −(nodes − top) and D = −E ⊙ log E, the entropy lattices less
# the logarithm of the message, X = Hα − log α and Y = Hβ − log β, obey
#
#     X_{t+1} = (Eᵀ(α_t ⊙ X_t) + Dᵀ α_t) / (Eᵀ α_t) + v_{t+1} + log c_{t+1}
#     Y_t     = (E(β' ⊙ (Y_{t+1} + v_{t+1})) + D β') / (E β') + log z_t
#
# where c and z are what the messages were divided by: the logarithms of single labels, s² or s per
# step, have all cancelled. The surprise of a label is −log m + Hα + Hβ = X + Y + log Σ α β, and
#
#     ∂H/∂nodes[t, i] = m_t(i) (surprise_t(i) − H),      H = Σ_i m_t(i) surprise_t(i).
#
# A step advances the pair [α; α ⊙ X] by one product with the block matrix [[Eᵀ, 0], [Dᵀ, Eᵀ]],
# and likewise backwards; the edge gradient, summed over positions, is one product of such pairs.


class BlockEntropy(NamedTuple):
    """Entropies and their gradient, by edges of the weighted sum."""

    entropies: Float[Array, "c t"]  # each at the first slot of its sequence, 0 elsewhere
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
        return (pair, track_lowest(lowest, raw, factor > 0)), pair

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
        lowest = track_lowest(lowest, raw, alpha > 0)
        lowest_total = track_lowest(lowest_total, total, (alpha > 0).any(0))
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


# -------------------------------------------------------------------------------------------------
# Viterbi on a block of rows, in the layout [positions, labels, rows] of `_scaled`.


UNROLLED_LABELS = 64
"""Up to so many labels the maximum is written out, label by label: twice as fast on a CPU as one
reduction over [s, s, rows], at a compile time that grows with the labels."""


def best_labels(block: Block, edges: Float[Array, "s s"]) -> Int[Array, "c t"]:
    """The best label of every slot; arbitrary on padding and where no path is legal.

    Ties go to the smaller label, decided from a sequence's last slot backwards.
    """
    nodes = jnp.where(block.valid.T[:, None, :], block.nodes.transpose(1, 2, 0), 0)
    linked = block.linked.T[:, None, :]

    def ahead(best, inputs):
        node, link = inputs
        raw = jnp.where(link, _best_arrivals(best, edges), 0) + node
        # Only differences matter; without the shift, long rows would lose digits to large sums.
        best = raw - finite_top(raw, 0)
        return best, best

    _, bests = lax.scan(ahead, jnp.zeros_like(nodes[0]), (nodes, linked))
    labels = jnp.arange(edges.shape[0], dtype=jnp.int32)[:, None]

    def back(label, inputs):
        best, link = inputs
        scores = best + jnp.where(link, edges[:, label], 0)
        # The first of the best; XLA's own argmax carries pairs along, and is slower.
        label = jnp.where(scores == scores.max(0), labels, len(labels)).min(0)
        return label, label

    linked_after = jnp.concatenate([linked[1:], jnp.zeros_like(linked[:1])])
    last = jnp.zeros(nodes.shape[2], jnp.int32)
    _, path = lax.scan(back, last, (bests, linked_after), reverse=True)
    return path.T


def _best_arrivals(best: Float[Array, "s c"], edges: Float[Array, "s s"]) -> Float[Array, "s c"]:
    """max_i best(i) + edges(i, j)."""
    if edges.shape[0] > UNROLLED_LABELS:
        return (best[:, None, :] + edges[:, :, None]).max(0)
    arrivals = best[0] + edges[0][:, None]
    for i in range(1, edges.shape[0]):
        arrivals = jnp.maximum(arrivals, best[i] + edges[i][:, None])
    return arrivals
