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
from jaxtyping import Array, Bool, Float

from jaxseq.chain._engines import smallest_trusted
from jaxseq.chain._numerics import matmul


class Block(NamedTuple):
    """Some rows of a batch.

    nodes [c, t, s] scores; linked [c, t] whether a slot continues the sequence of the slot before
    it; valid [c, t]; weights [c, t] how much a slot's sequence counts in sums over the batch.
    """

    nodes: Float[Array, "c t s"]
    linked: Bool[Array, "c t"]
    valid: Bool[Array, "c t"]
    weights: Float[Array, "c t"]


class Factors(NamedTuple):
    """Scores as factors (`factorise`), and what was taken out of them."""

    nodes: Float[Array, "t s c"]
    node_top: Float[Array, "t c"]
    edges: Float[Array, "s s"]
    edge_top: Float[Array, ""]
    linked: Bool[Array, "t 1 c"]


def _finite(top: Array) -> Array:
    return jnp.where(jnp.isneginf(top), 0, top)


def factorise(block: Block, edges: Array) -> Factors:
    """exp of the scores, each less the largest of its slot; 0 for the forbidden and for padding.

    A legal factor that would underflow is held at the smallest number instead, where it cannot be
    taken for a forbidden one and the certificate will find it.
    """
    nodes = block.nodes.transpose(1, 2, 0)
    legal = (nodes != -jnp.inf) & block.valid.T[:, None, :]  # NaN is to be seen in what follows
    node_top = _finite(jnp.where(legal, nodes, -jnp.inf).max(1))
    floor = jnp.finfo(nodes.dtype).tiny
    factors = jnp.where(legal, jnp.maximum(jnp.exp(nodes - node_top[:, None]), floor), 0)
    edge_top = _finite(edges.max())
    linked = block.linked.T[:, None, :]
    return Factors(factors, node_top, jnp.exp(edges - edge_top), edge_top, linked)


def inverse(x: Array) -> Array:
    """1 / x, and 0 where x is 0."""
    return jnp.where(x > 0, 1 / x, 0)


def increments_of(totals: Array, factors: Factors, block: Block) -> Float[Array, "c t"]:
    """What each slot adds to log Z."""
    tops = factors.node_top + jnp.where(factors.linked[:, 0], factors.edge_top, 0)
    return jnp.where(block.valid, (jnp.log(totals) + tops).T, 0)


def certify(*lowest: Array) -> Bool[Array, ""]:
    """Whether the lowest legal message entries, and the lowest products of messages, are all well
    above underflow.

    The products too: each message may be fine and their product not, where the labels that one
    favours are dead ends for the other.
    """
    trusted = smallest_trusted(lowest[0].dtype)
    return jnp.stack([low.min() >= trusted for low in lowest]).all()


def certify_at_once(lowest: Array, totals: Array) -> Bool[Array, ""]:
    """As `certify`, for scaled forward messages: they and their divisors must both be ample.

    Stricter than need be, for half the work; what it turns down without cause the exact
    certificate lets pass.
    """
    margin = 2.0**-20
    trusted = smallest_trusted(lowest.dtype)
    return (lowest.min() >= trusted / margin) & (totals.min() >= margin)


def lowest_of(seen_so_far: Array, raw: Array, legal: Array) -> Array:
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
        return (alpha, lowest_of(lowest, raw, factor > 0)), (alpha, total, mass)

    start = jnp.zeros_like(factors.nodes[0])
    (_, lowest), kept = lax.scan(
        step, (start, jnp.ones_like(start)), (factors.nodes, factors.linked)
    )
    return Ahead(*kept, lowest)


def forward(block: Block, edges: Array) -> tuple[Float[Array, "c t"], Bool[Array, ""]]:
    """Increments of log Z, and whether every entry is well above underflow."""
    factors = factorise(block, edges)
    ahead = run_ahead(factors)
    return increments_of(ahead.totals, factors, block), certify(ahead.lowest)


class BlockMarginals(NamedTuple):
    """Increments [c, t] of log Z; node marginals [c, t, s]; weighted edge marginals, summed."""

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
        lowest = lowest_of(lowest, jnp.minimum(jnp.minimum(alpha, raw), total), factor > 0)
        return (after, counts, linked_before, lowest), share * raw

    start = jnp.zeros_like(factors.nodes[0])
    ones, no_link = jnp.ones_like(start), jnp.zeros_like(factors.linked[0])
    carry = (start, jnp.zeros_like(edges), no_link, ones)
    inputs = (ahead.alphas, factors.nodes, factors.linked, block.weights.T)
    (_, counts, _, lowest), nodes = lax.scan(back, carry, inputs, reverse=True)

    result = BlockMarginals(
        increments_of(ahead.totals, factors, block),
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
        return (before, linked_before, lowest_of(lowest, raw, alpha > 0)), (after, raw)

    start = jnp.zeros_like(factors.nodes[0])
    carry = (start, jnp.zeros_like(factors.linked[0]), jnp.ones_like(start))
    inputs = (alphas, factors.nodes, factors.linked)
    (_, _, lowest), kept = lax.scan(step, carry, inputs, reverse=True)
    return Back(*kept, lowest)
