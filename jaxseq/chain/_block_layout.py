"""One long row of positions cut into blocks, which stand side by side in groups.

A group holds `columns` blocks of `length` positions. The blocks of a group advance together, one
position a step, so that a step is a wide operation although a chain is a narrow thing; groups are
done one after another, and are small enough for a core's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, DTypeLike, Float

from jaxseq.chain._engines import Edges

LONGEST_BLOCK, SHORTEST_BLOCK = 99, 4
"""The longest is odd: columns a power of two apart would contend for the same lines of a cache."""

MOST_COLUMNS, VECTOR = 256, 8
CACHE_ENTRIES = 2**18
"""Scores in a group: 1 MiB in float32."""

PROOF = 8


class Plan(NamedTuple):
    """How a row is cut; decides shapes.

    length: positions in a block; groups, columns: their product is the number of blocks;
    warm_up: from how many positions the messages between blocks are guessed; proof: from how many
    it is seen that a block forgets.
    """

    length: int
    groups: int
    columns: int
    warm_up: int
    proof: int

    @property
    def blocks(self) -> int:
        return self.groups * self.columns


def plan_blocks(n: int, s: int, dtype: DTypeLike) -> Plan:
    """Blocks of about √n positions, up to a length past which they gain nothing.

    There is always at least one empty place after the last position, where the kernels put what
    they know at a position's right.
    """
    length = min(LONGEST_BLOCK, max(SHORTEST_BLOCK, math.isqrt(n)))
    blocks = -(-(n + 1) // length)
    fitting = max(VECTOR, CACHE_ENTRIES // (length * s))
    groups = -(-blocks // min(MOST_COLUMNS, fitting))
    columns = -(-blocks // groups)
    if groups > 1:
        columns = -(-columns // VECTOR) * VECTOR
    warm_up = int(jnp.finfo(dtype).nmant) + 1  # chains are expected to forget a bit a position
    return Plan(length, groups, columns, min(warm_up, length), min(PROOF, length))


class Blocks(NamedTuple):
    """A row in blocks: nodes [g, c, l, s]; linked [g, c, l], whether a position continues the one
    before it; valid [g, c, l]; edges arriving at each position [g, c, l, s, s], or shared [s, s].
    """

    nodes: Float[Array, "*g c l s"]
    linked: Bool[Array, "*g c l"]
    valid: Bool[Array, "*g c l"]
    edges: Float[Array, "..."]


def cut_row(
    nodes: Float[Array, "n s"],
    edges: Edges,
    linked: Bool[Array, " n-1"],
    valid: Bool[Array, " n"],
    plan: Plan,
) -> Blocks:
    """The row in blocks, filled up with positions that are not valid."""
    arriving = edges if edges.ndim == 2 else _fold(edges, 1, plan)
    return Blocks(
        _fold(nodes, 0, plan), _fold(linked, 1, plan), _fold(valid, 0, plan), arriving
    )  # fmt: skip


def _fold(array: Array, before: int, plan: Plan) -> Array:
    size = plan.blocks * plan.length
    missing = size - before - array.shape[0]
    array = jnp.pad(array, [(before, missing)] + [(0, 0)] * (array.ndim - 1))
    return array.reshape(plan.groups, plan.columns, plan.length, *array.shape[1:])


def unfold(blocks: Float[Array, "g c l *rest"], start: int, n: int) -> Float[Array, "n *rest"]:
    """Positions start … start + n − 1 of an array in blocks."""
    flat = blocks.reshape(-1, *blocks.shape[3:])
    return lax.slice_in_dim(flat, start, start + n)


def part_of(blocks: Blocks, start: int, stop: int) -> Blocks:
    """The same positions of every block."""
    edges = blocks.edges if blocks.edges.ndim == 2 else blocks.edges[..., start:stop, :, :]
    return Blocks(
        blocks.nodes[..., start:stop, :], blocks.linked[..., start:stop],
        blocks.valid[..., start:stop], edges,
    )  # fmt: skip


def map_groups(function: Callable[..., Any], blocks: Blocks, *others: Array) -> Any:
    """``function(group, *others)`` of one group after another, results stacked.

    Args:
        function: takes a group as `Blocks` without the leading axis.
        blocks: all groups.
        others: further arrays with a leading axis over groups.
    """
    shared = blocks.edges.ndim == 2

    def run(inputs):
        (nodes, linked, valid), edges, rest = inputs
        return function(Blocks(nodes, linked, valid, blocks.edges if shared else edges), *rest)

    return lax.map(run, (blocks[:3], None if shared else blocks.edges, others))
