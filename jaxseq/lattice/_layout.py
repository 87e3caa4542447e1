"""Many sequences in one array: padded (one per row) or packed (several per row)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import SupportsIndex

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from jaxseq.lattice._chain import as_count, as_scores, check_integers, is_concrete


class PaddedBatch(eqx.Module):
    """Sequences of one model, one per row, padded to a common width.

    Args:
        nodes: scores [b, n, s], float32 or float64.
        edges: scores [s, s], shared by all positions and sequences. (For anything else, `jax.vmap`
            the functions on a single `jaxseq.Chain`.)
        lengths: integers [b], 0 … n; None means n for all.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 2)), jnp.zeros((2, 2)), jnp.array([3, 1]))
        >>> jnp.exp(jaxseq.batch_log_partition(batch)).round().tolist()
        [8.0, 2.0]
    """

    nodes: Float[Array, "b n s"]
    edges: Float[Array, "s s"]
    lengths: Int[Array, " b"] | None

    def __init__(
        self, nodes: ArrayLike, edges: ArrayLike, lengths: ArrayLike | Sequence[int] | None = None
    ):
        self.nodes, self.edges = _check_scores(nodes, edges)
        b, n, _ = self.nodes.shape
        if lengths is not None:
            lengths = check_integers("lengths", lengths, (b,)).astype(jnp.int32)
            _check_range("lengths", lengths, 0, n)
        self.lengths = lengths

    @property
    def segments(self) -> Int[Array, "b n"]:
        """Which sequence each slot belongs to; −1 for padding."""
        b, n, _ = self.nodes.shape
        rows = jnp.arange(b, dtype=jnp.int32)[:, None]
        if self.lengths is None:
            return jnp.broadcast_to(rows, (b, n))
        return jnp.where(jnp.arange(n) < self.lengths[:, None], rows, -1)

    @property
    def num_sequences(self) -> int:
        """b."""
        return self.nodes.shape[0]


class PackedBatch(eqx.Module):
    """Sequences of one model, several one after another in a row; recursions restart at each.

    On real sentences this wastes under a tenth of the slots where padding wastes half, and one
    shape serves all lengths. `pack` makes one from a list.

    Args:
        nodes: scores [r, w, s], float32 or float64.
        edges: scores [s, s].
        segments: integers [r, w]: the index of the sequence that a slot belongs to, −1 for
            padding. A sequence fills consecutive slots of one row.
        num_sequences: how many sequences there are, at least the largest index + 1.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> segments = jnp.array([[0, 0, 0, 1, -1]])  # three slots, one slot, one of padding
        >>> batch = jaxseq.PackedBatch(jnp.zeros((1, 5, 2)), jnp.zeros((2, 2)), segments, 2)
        >>> jnp.exp(jaxseq.batch_log_partition(batch)).round().tolist()
        [8.0, 2.0]
    """

    nodes: Float[Array, "r w s"]
    edges: Float[Array, "s s"]
    segments: Int[Array, "r w"]
    num_sequences: int = eqx.field(static=True)

    def __init__(
        self,
        nodes: ArrayLike,
        edges: ArrayLike,
        segments: ArrayLike | Sequence[Sequence[int]],
        num_sequences: SupportsIndex,
    ):
        self.nodes, self.edges = _check_scores(nodes, edges)
        segments = check_integers("segments", segments, self.nodes.shape[:2])
        self.segments = segments.astype(jnp.int32)
        self.num_sequences = as_count("num_sequences", num_sequences, 0)
        _check_range("segments", self.segments, -1, self.num_sequences - 1)
        _check_contiguous(self.segments)


Batch = PaddedBatch | PackedBatch


def _check_scores(nodes: ArrayLike, edges: ArrayLike) -> tuple[Array, Array]:
    nodes, edges = as_scores("nodes", nodes), as_scores("edges", edges)
    if nodes.ndim != 3 or 0 in nodes.shape[1:]:
        raise ValueError(
            "nodes: expected shape [rows, positions, labels] with at least one position and "
            f"label, got {list(nodes.shape)}"
        )
    s = nodes.shape[2]
    if edges.shape != (s, s):
        raise ValueError(
            f"edges: expected shape [{s}, {s}] to go with nodes of shape {list(nodes.shape)}, "
            f"got {list(edges.shape)}"
        )
    dtype = jnp.promote_types(nodes.dtype, edges.dtype)
    return nodes.astype(dtype), edges.astype(dtype)


def _check_range(name: str, values: Array, low: int, high: int) -> None:
    if not is_concrete(values) or values.size == 0:
        return  # while JAX traces, values cannot be looked at
    known = np.asarray(values)
    wrong = np.argwhere((known < low) | (known > high))
    if len(wrong):
        where = tuple(int(index) for index in wrong[0])
        raise ValueError(f"{name}{list(where)}: expected {low} … {high}, got {int(known[where])}")


def _check_contiguous(segments: Array) -> None:
    """Refuse a sequence that comes in several pieces."""
    if not is_concrete(segments):
        return
    known = np.asarray(segments)
    # A sequence starts wherever a slot's number differs from that of the slot before it in its row;
    # one that starts twice is in several pieces.
    before = np.pad(known, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    rows, slots = np.nonzero((known >= 0) & (known != before))
    starts = known[rows, slots]
    _, first = np.unique(starts, return_index=True)
    again = np.setdiff1d(np.arange(len(starts)), first)
    if len(again):
        row, slot = int(rows[again[0]]), int(slots[again[0]])
        raise ValueError(
            f"segments[{row}, {slot}]: expected each sequence in consecutive slots of one row, "
            f"got sequence {int(starts[again[0]])} a second time"
        )


def pack(nodes: Sequence[ArrayLike], edges: ArrayLike, *, width: int | None = None) -> PackedBatch:
    """Pack sequences of different lengths into rows.

    Args:
        nodes: one array [n_q, s] per sequence; n_q may be 0.
        edges: scores [s, s].
        width: slots in a row; by default 128, or the longest sequence if that is longer.

    Returns:
        A `PackedBatch` in which sequence q of the list has index q. `unpack` goes back.

    Cost: O(Σ n_q s) on the host; best-fit packing, longest first.

    Example:
        >>> import numpy as np, jaxseq
        >>> nodes = [np.zeros((n, 2), np.float32) for n in (3, 1, 2)]
        >>> batch = jaxseq.pack(nodes, np.zeros((2, 2), np.float32), width=4)
        >>> batch.segments.tolist()
        [[0, 0, 0, 1], [2, 2, -1, -1]]
    """
    arrays = [np.asarray(sequence) for sequence in nodes]
    labels = np.shape(edges)[-1] if np.ndim(edges) else 0
    for index, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[1] != labels:
            raise ValueError(
                f"nodes[{index}]: expected shape [n, {labels}] to go with edges of shape "
                f"{list(np.shape(edges))}, got {list(array.shape)}"
            )
    lengths = [len(array) for array in arrays]
    rows, offsets, width = pack_lengths(lengths, width)
    num_rows = max(rows, default=0) + 1
    dtype = np.result_type(*arrays, np.asarray(edges)) if arrays else np.asarray(edges).dtype
    packed = np.zeros((num_rows, width, labels), dtype)
    segments = np.full((num_rows, width), -1, np.int32)
    for index, (array, row, offset) in enumerate(zip(arrays, rows, offsets)):
        packed[row, offset : offset + len(array)] = array
        segments[row, offset : offset + len(array)] = index
    return PackedBatch(packed, edges, segments, len(arrays))


def pack_lengths(
    lengths: Sequence[int], width: int | None = None
) -> tuple[list[int], list[int], int]:
    """Row and offset for each length, and the row width: best fit, longest first.

    Rows are kept by how much room they have left, so that each placement looks at no more than
    `width` lists.

    Example:
        >>> import jaxseq
        >>> jaxseq.pack_lengths([3, 1, 2], width=4)
        ([0, 0, 1], [0, 3, 0], 4)
    """
    longest = max(lengths, default=1)
    if width is None:
        width = max(128, longest)
    if width < max(longest, 1):
        raise ValueError(f"width: expected at least {max(longest, 1)} (the longest), got {width}")
    rows, offsets = [0] * len(lengths), [0] * len(lengths)
    with_room: list[list[int]] = [[] for _ in range(width + 1)]  # rows, by the slots still free
    num_rows = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        if length == 0:
            continue  # takes no slot, and says so by having none with its number
        # The fullest row that still has room: what is left of it is of least use to others.
        room = next((room for room in range(length, width + 1) if with_room[room]), None)
        if room is None:
            row, room = num_rows, width
            num_rows += 1
        else:
            row = with_room[room].pop()
        rows[index], offsets[index] = row, width - room
        with_room[room - length].append(row)
    return rows, offsets, width


def unpack(batch: Batch, values: ArrayLike) -> list[np.ndarray]:
    """Per-slot values [rows, slots, …] as one array per sequence, padding dropped.

    Example:
        >>> import numpy as np, jaxseq
        >>> nodes = [np.full((n, 1), n, np.float32) for n in (3, 1)]
        >>> batch = jaxseq.pack(nodes, np.zeros((1, 1), np.float32))
        >>> [array[:, 0].tolist() for array in jaxseq.unpack(batch, batch.nodes)]
        [[3.0, 3.0, 3.0], [1.0]]
    """
    values, segments = np.asarray(values), np.asarray(batch.segments)
    if values.shape[:2] != segments.shape:
        raise ValueError(
            f"values: expected the batch's slots {list(segments.shape)} first, "
            f"got shape {list(values.shape)}"
        )
    flat, owner = values.reshape(-1, *values.shape[2:]), segments.reshape(-1)
    order = np.argsort(owner, kind="stable")  # stable: slots of a sequence stay in their order
    bounds = np.searchsorted(owner[order], np.arange(batch.num_sequences + 1))
    return [flat[order[low:high]] for low, high in itertools.pairwise(bounds)]
