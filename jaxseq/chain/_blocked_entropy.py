r"""Entropy of one long chain and its gradient, block by block, in bounded memory.

Of a chain's messages α and β, which take O(n s), the edge marginals of any position follow at once:
they are formed for a block of positions at a time, used, and forgotten. One pass from the left
gives H^α, one from the right H^β with all that is summed up (math in `mann_entropy_gradient`).
Messages are of log space: right for all scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.chain._engines import log_backward, log_forward
from jaxseq.chain._numerics import normalise, safe_log
from jaxseq.chain._propagate import conditionals, weigh_centred

LENGTH = 1024
"""Positions of a block."""


class EntropyTotals(NamedTuple):
    """H, and its gradient by nodes and by shared edges."""

    entropy: Float[Array, ""]
    nodes: Float[Array, "n s"]
    edges: Float[Array, "s s"]


class _Positions(NamedTuple):
    """Of positions t: log α_t; log β_{t+1} with the scores of t + 1; whether a link goes on from
    t; log α_t + log β_t; whether a sequence starts at t."""

    alphas: Array
    following: Array
    linked: Array
    both: Array
    starts: Array


def blocked_entropy(
    nodes: Float[Array, "n s"],
    edges: Float[Array, "s s"],
    linked: Bool[Array, " n-1"],
    valid: Bool[Array, " n"],
) -> EntropyTotals:
    """Sum of the entropies of a row's sequences, and its gradient.

    Cost: O(n s²) time, O(n s) memory.
    """
    n, s = nodes.shape
    blocks = _cut(nodes, edges, linked, valid)
    nothing = jnp.zeros(s, nodes.dtype)

    def from_left(carry, block):
        pairs, backward, _ = _pairs(block, edges)
        return _scan_entropies(carry, pairs, backward, axis=0)

    def from_right(carry, inputs):
        value, total, by_edge = carry
        block, left = inputs
        pairs, _, forward = _pairs(block, edges)
        after, right = _scan_entropies(value, pairs, forward, axis=1)
        # What is known after each position: of the block's last one, by the block after it.
        arrived = jnp.concatenate([right[1:], value[None]])
        marginals = normalise(block.both, 1)
        first = -(marginals * safe_log(marginals)).sum(1)
        total += jnp.where(block.starts, first, 0).sum() - (pairs * safe_log(forward)).sum()
        surprise = -safe_log(pairs) + left[:, :, None] + arrived[:, None, :]
        by_edge += weigh_centred(pairs, surprise, axis=(1, 2)).sum(0)
        by_node = weigh_centred(marginals, -safe_log(marginals) + left + right, axis=1)
        return (after, total, by_edge), by_node

    _, left = lax.scan(from_left, nothing, blocks)
    start = (nothing, jnp.zeros((), nodes.dtype), jnp.zeros_like(edges))
    (_, total, by_edge), by_node = lax.scan(from_right, start, (blocks, left), reverse=True)
    return EntropyTotals(total, by_node.reshape(-1, s)[:n], by_edge)


def _cut(nodes: Array, edges: Array, linked: Array, valid: Array) -> _Positions:
    """The row in blocks, [blocks, length, …], filled up with positions without a label."""
    alphas, betas = log_forward(nodes, edges, linked, valid)[0], log_backward(nodes, edges, linked)
    following = jnp.concatenate([(nodes + betas)[1:], jnp.full_like(nodes[:1], -jnp.inf)])
    links = jnp.concatenate([linked, jnp.zeros(1, bool)])
    starts = jnp.concatenate([jnp.ones(1, bool), ~linked])
    length = min(LENGTH, len(nodes))
    missing = -len(nodes) % length

    def fold(array: Array, fill: Any) -> Array:
        rest = jnp.full((missing, *array.shape[1:]), fill, array.dtype)
        return jnp.concatenate([array, rest]).reshape(-1, length, *array.shape[1:])

    return _Positions(
        fold(alphas, -jnp.inf),
        fold(following, -jnp.inf),
        fold(links, False),
        fold(alphas + betas, -jnp.inf),
        fold(starts, False),
    )


def _pairs(block: _Positions, edges: Array) -> tuple[Array, Array, Array]:
    """Edge marginals of a block's positions, and the conditionals to the left and to the right."""
    scores = block.alphas[:, :, None] + edges + block.following[:, None, :]
    pairs = normalise(jnp.where(block.linked[:, None, None], scores, -jnp.inf), (1, 2))
    return pairs, *conditionals(pairs)


def _scan_entropies(
    start: Float[Array, " s"],
    pairs: Float[Array, "l s s"],
    conditional: Float[Array, "l s s"],
    axis: int,
) -> tuple[Float[Array, " s"], Float[Array, "l s"]]:
    """H^α from the left (axis 0) or H^β from the right (axis 1), one position a step.

    Each is less its mean: a constant that the gradient's own centring cancels, and which would
    take more and more of the digits along a long chain.

    Returns what goes to the next block, and H^α at each position before its step, or H^β after it.
    """
    own = -(conditional * safe_log(conditional)).sum(axis + 1)

    def step(value, inputs):
        conditional, entropy, weights = inputs
        moved = value[:, None] if axis == 0 else value[None]
        following = (conditional * moved).sum(axis) + entropy
        following -= (weights * following).sum()
        return following, value if axis == 0 else following

    return lax.scan(step, start, (conditional, own, pairs.sum(axis + 1)), reverse=axis == 1)
