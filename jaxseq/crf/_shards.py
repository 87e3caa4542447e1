"""An encoded corpus, laid out for the lattices: packed rows, cut into shards of one shape.

A core or a device works on one shard at a time. On a mesh the shards are padded to the one shape
that all of its devices need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from jaxseq.lattice import pack_lengths
from jaxseq.parallel import all_peers, own_rows, place_rows, spans_processes
from jaxseq.taggers import UNKNOWN, EncodedLabels


class Shard(eqx.Module):
    """Some rows of a corpus: r rows of w slots, k attributes per slot.

    ids [r·w, k] point at rows of the weight table; values [r·w, k] or None; edge_ids [r·w, m] or
    None; segments [r, w] number the sentences, −1 is padding; gold [r, w] labels, −1 where not
    known; allowed [r, w, s] or None when every label is known; weights [r, w] of the sentence that
    a slot belongs to; first [r, w] whether a slot begins its sentence; starts, stops [sentences]
    the slots (of r·w) where each begins and ends, r·w for a sentence that is not there.
    """

    ids: Int[Array, "slots k"]
    values: Float[Array, "slots k"] | None
    edge_ids: Int[Array, "slots m"] | None
    segments: Int[Array, "r w"]
    gold: Int[Array, "r w"]
    allowed: Bool[Array, "r w s"] | None
    weights: Float[Array, "r w"]
    first: Bool[Array, "r w"]
    starts: Int[Array, " q"]
    stops: Int[Array, " q"]
    num_sequences: int = eqx.field(static=True)


@dataclass(frozen=True)
class Layout:
    """Where each token of a corpus went: shard, and slot within the shard's r·w slots.

    Tokens are numbered through the corpus, sentence after sentence.
    """

    shard: np.ndarray
    slot: np.ndarray
    rows: int
    width: int
    sequences: int

    def collect(self, by_shard: list[np.ndarray]) -> np.ndarray:
        """Per-slot results of all shards, as one row per token in the corpus's order."""
        flat = [np.asarray(part).reshape(self.rows * self.width, -1) for part in by_shard]
        out = np.empty((len(self.slot), flat[0].shape[1]), flat[0].dtype)
        for index, part in enumerate(flat):
            inside = self.shard == index
            out[inside] = part[self.slot[inside]]
        return out


def lay_out(lengths: np.ndarray, shards: int, *, width: int | None = None) -> Layout:
    """Pack sentences into rows and deal the rows out to shards of equal shape."""
    lengths = np.asarray(lengths, np.int64)
    row_list, offset_list, width = pack_lengths(lengths.tolist(), width)
    row, offset = np.array(row_list, np.int64), np.array(offset_list, np.int64)
    return _deal(lengths, row, offset, width, shards)


def lay_out_by_length(lengths: np.ndarray, shards: int) -> Layout:
    """One sentence per row, the short ones first, dealt out to shards of equal shape.

    For programs whose cost grows faster than the length of a row, and that work on a few rows at a
    time: packed rows would be longer than their sentences.
    """
    lengths = np.asarray(lengths, np.int64)
    row = np.argsort(np.argsort(lengths, kind="stable"))  # the rank of each sentence
    width = max(1, int(lengths.max(initial=0)))  # an array of width 0 would have no program
    return _deal(lengths, row, np.zeros_like(row), width, shards)


def _deal(
    lengths: np.ndarray, row: np.ndarray, offset: np.ndarray, width: int, shards: int
) -> Layout:
    """Rows to shards by turns, so that each gets long and short ones alike."""
    num_rows = int(row.max(initial=0)) + 1
    rows = -(-num_rows // shards)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    slot = np.repeat((row // shards) * width + offset, lengths) + within
    shard = np.repeat(row % shards, lengths)
    most = np.bincount(row[lengths > 0] % shards, minlength=shards).max(initial=0)
    return Layout(shard, slot, rows, width, int(most))


def make_shards(layout: Layout, *corpus) -> list[Shard]:
    """All shards, on the device. Arguments as in `ShardMaker`."""
    return ShardMaker(layout, *corpus).all()


def without_gaps(features):
    """The same features in as few columns as the token with most attributes needs.

    Templates that seldom apply leave columns that are mostly absent, and each costs as much as a
    full one. The order of a token's attributes is kept.
    """
    present = features.ids >= 0
    width = int(present.sum(1).max(initial=1))
    if width >= features.ids.shape[1]:
        return features
    # A running count over the attributes that are there gives each its new column.
    rows, _ = np.nonzero(present)
    columns = (np.cumsum(present, 1, dtype=np.int32) - 1)[present]
    ids = np.full((len(present), width), -1, np.int32)
    ids[rows, columns] = features.ids[present]
    values = None
    if features.values is not None:
        values = np.zeros((len(present), width), features.values.dtype)
        values[rows, columns] = features.values[present]
    return replace(features, ids=ids, values=values)


class ShardMaker:
    """Makes the arrays of one shard at a time, so that a corpus need not fit on the device.

    Args:
        layout: of `lay_out` for the same corpus.
        features: a `jaxseq.text.TokenFeatures`.
        attributes: how many there are; absent ones point at this row of the table.
        labels: None when only prediction is wanted.
        sentence_weights: [B], 1 by default.
    """

    def __init__(
        self,
        layout: Layout,
        features,
        attributes: int,
        labels: EncodedLabels | None = None,
        sentence_weights: np.ndarray | None = None,
    ):
        self._layout, self._features, self._attributes = layout, features, attributes
        self._labels = labels
        lengths = features.lengths
        self._sentence = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._within = np.arange(len(starts)) - starts
        self._is_last = self._within == np.repeat(lengths, lengths) - 1
        weights = np.ones(len(lengths)) if sentence_weights is None else sentence_weights
        self._weights = weights[self._sentence]
        # Tokens by shard: each is then a slice of this, made without a look at the others.
        self._order = np.argsort(layout.shard, kind="stable")
        self.num_shards = int(layout.shard.max(initial=0)) + 1
        self._bounds = np.searchsorted(layout.shard[self._order], np.arange(self.num_shards + 1))

    def all(self) -> list[Shard]:
        """Every shard."""
        return [self(index) for index in range(self.num_shards)]

    def __call__(self, index: int) -> Shard:
        """One shard; one beyond the last has no token."""
        layout, features, attributes = self._layout, self._features, self._attributes
        first, stop = (self._bounds[min(i, self.num_shards)] for i in (index, index + 1))
        tokens = self._order[first:stop]
        where, slots = layout.slot[tokens], layout.rows * layout.width
        shape = (layout.rows, layout.width)

        def place(values: np.ndarray, fill, dtype) -> np.ndarray:
            array = np.full((slots, *values.shape[1:]), fill, dtype)
            array[where] = values
            return array

        def ends(places: np.ndarray) -> np.ndarray:
            array = np.full(layout.sequences, slots, np.int32)  # out of bounds: not there
            array[: len(places)] = places
            return array

        ids, values, pairs = features.ids[tokens], features.values, features.edge_ids
        # Sentences are numbered anew within the shard, so that all shards have the same numbers.
        _, local = np.unique(self._sentence[tokens], return_inverse=True)
        gold, allowed = np.full(slots, UNKNOWN, np.int32), None
        if self._labels is not None:
            gold = place(self._labels.gold[tokens], UNKNOWN, np.int32)
            if self._labels.allowed is not None:
                allowed = jnp.asarray(place(self._labels.allowed[tokens], True, bool))
                allowed = allowed.reshape(*shape, -1)
        return Shard(
            ids=jnp.asarray(place(np.where(ids < 0, attributes, ids), attributes, np.int32)),
            values=None if values is None else jnp.asarray(place(values[tokens], 0, np.float32)),
            edge_ids=None if pairs is None else jnp.asarray(place(pairs[tokens], -1, np.int32)),
            segments=jnp.asarray(place(local, -1, np.int32).reshape(shape)),
            gold=jnp.asarray(gold.reshape(shape)),
            allowed=allowed,
            weights=jnp.asarray(place(self._weights[tokens], 0, np.float32).reshape(shape)),
            first=jnp.asarray(place(self._within[tokens] == 0, False, bool).reshape(shape)),
            starts=jnp.asarray(ends(where[self._within[tokens] == 0])),
            stops=jnp.asarray(ends(where[self._is_last[tokens]])),
            num_sequences=layout.sequences,
        )


# ---------------------------------------------------------------------------- shards on a mesh


class _Shape(NamedTuple):
    """Of a shard: rows, width, sequences; columns of ids and of edge_ids (−1: none); whether there
    are values, and sets of allowed labels."""

    rows: int
    width: int
    sequences: int
    columns: int
    edge_columns: int
    has_values: bool
    has_allowed: bool

    @classmethod
    def from_shard(cls, shard: Shard) -> _Shape:
        rows, width = shard.segments.shape
        edges = -1 if shard.edge_ids is None else shard.edge_ids.shape[1]
        values, allowed = shard.values is not None, shard.allowed is not None
        return cls(rows, width, shard.num_sequences, shard.ids.shape[1], edges, values, allowed)

    @classmethod
    def holding(cls, shapes: Sequence[_Shape]) -> _Shape:
        """One that all of these fit into."""
        return cls(*(max(column) for column in zip(*shapes)))


NOTHING = _Shape(1, 1, 0, 1, -1, False, False)
"""Of the smallest shard."""


def place_shards(shards: Sequence[Shard], mesh: Mesh, attributes: int, labels: int) -> Shard:
    """Shards on the mesh: one whose arrays have one more axis, the first, along ``"data"``.

    Args:
        shards: of this process, of any number and shapes, also none; they are dealt out to its
            places along ``"data"``.
        mesh: of `check_mesh`. All its processes must call this together.
        attributes: how many there are.
        labels: how many there are.
    """
    rows = own_rows(mesh)
    # By turns, as the last shards may be the emptier ones.
    dealt = [list(shards[place :: len(rows)]) for place in range(len(rows))]
    shape = _Shape.holding([NOTHING, *map(_Shape.from_shard, shards)])
    most = max(map(len, dealt), default=1) or 1
    if spans_processes(mesh):  # one program runs in all of them, and so on one shape
        shapes = all_peers().exchange([*map(int, shape), most])
        shape = _Shape.holding([_Shape(*each[:-1]) for each in shapes])
        most = max(each[-1] for each in shapes)
    with jax.ensure_compile_time_eval():  # also while a program is being traced
        fitted = []
        for own in dealt:
            parts = [*own, *[None] * most][:most]
            fitted.append(join_shards([_fit(part, shape, attributes, labels) for part in parts]))
        return place_rows(fitted, mesh)


def _fit(shard: Shard | None, shape: _Shape, attributes: int, labels: int) -> Shard:
    """The shard in another shape, at least as large; None for one without a token."""
    if shard is not None and _Shape.from_shard(shard) == shape:
        return shard
    rows, width = (0, 0) if shard is None else shard.segments.shape
    slots = shape.rows * shape.width

    def grow(name: str, fill: Any, dtype: Any, *columns: int) -> np.ndarray:
        """An array of the shard (zeros if it has none) in the corner of a larger one."""
        out = np.full((shape.rows, shape.width, *columns), fill, dtype)
        array = None if shard is None else getattr(shard, name)
        if array is not None:
            array = np.asarray(array)
            array = array.reshape(rows, width, *array.shape[array.ndim - len(columns) :])
            out[(slice(rows), slice(width), *map(slice, array.shape[2:]))] = array
        return out

    def ends(name: str) -> np.ndarray:
        places = np.zeros(0, np.int64) if shard is None else np.asarray(getattr(shard, name))
        places = places[places < rows * width]  # of the sentences that are there
        out = np.full(shape.sequences, slots, np.int32)
        out[: len(places)] = places // max(width, 1) * shape.width + places % max(width, 1)
        return out

    values = edge_ids = allowed = None
    if shape.has_values:
        # Where attributes are merely present their value is 1; on padding anything would do.
        fill = 0.0 if shard is None or shard.values is not None else 1.0
        values = grow("values", fill, np.float32, shape.columns).reshape(slots, -1)
    if shape.edge_columns >= 0:
        edge_ids = grow("edge_ids", -1, np.int32, shape.edge_columns).reshape(slots, -1)
    gold = grow("gold", UNKNOWN, np.int32)
    if shape.has_allowed:
        allowed = (gold[..., None] == np.arange(labels)) | (gold[..., None] == UNKNOWN)
        if shard is not None and shard.allowed is not None:
            allowed[:rows, :width] = np.asarray(shard.allowed)
    arrays: dict[str, Any] = dict(
        ids=grow("ids", attributes, np.int32, shape.columns).reshape(slots, -1),
        values=values,
        edge_ids=edge_ids,
        segments=grow("segments", -1, np.int32),
        gold=gold,
        allowed=allowed,
        weights=grow("weights", 0, np.float32),
        first=grow("first", False, bool),
        starts=ends("starts"),
        stops=ends("stops"),
    )
    return Shard(**jax.tree.map(jnp.asarray, arrays), num_sequences=shape.sequences)


def join_shards(shards: list[Shard]) -> Shard:
    """Shards of one shape below each other, as one."""
    if len(shards) == 1:
        return shards[0]
    slots, sequences = shards[0].segments.size, shards[0].num_sequences

    def stack(name: str) -> Any:
        arrays = [getattr(shard, name) for shard in shards]
        return None if arrays[0] is None else jnp.concatenate(arrays)

    def shifted(name: str) -> Any:
        """Ends of sentences; those that are not there stay out of bounds."""
        parts = [getattr(shard, name) for shard in shards]
        parts = [
            jnp.where(part < slots, part + number * slots, slots * len(shards))
            for number, part in enumerate(parts)
        ]
        return jnp.concatenate(parts)

    segments = [
        jnp.where(shard.segments >= 0, shard.segments + number * sequences, -1)
        for number, shard in enumerate(shards)
    ]
    names = ("ids", "values", "edge_ids", "gold", "allowed", "weights", "first")
    return Shard(
        **{name: stack(name) for name in names},
        segments=jnp.concatenate(segments),
        starts=shifted("starts"),
        stops=shifted("stops"),
        num_sequences=sequences * len(shards),
    )
