"""An encoded corpus, laid out for the lattices: packed rows, cut into one shard a core."""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxseq.batch import pack_lengths

UNKNOWN = -1
"""Stands for the label of a token that has none, or several possible ones."""


class Shard(eqx.Module):
    """Some rows of a corpus: r rows of w slots, k attributes a slot.

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
        """Per-slot results of all shards, as one row a token in the corpus's order."""
        flat = [np.asarray(part).reshape(self.rows * self.width, -1) for part in by_shard]
        out = np.empty((len(self.slot), flat[0].shape[1]), flat[0].dtype)
        for index, part in enumerate(flat):
            here = self.shard == index
            out[here] = part[self.slot[here]]
        return out


def lay_out(lengths: np.ndarray, shards: int, *, width: int | None = None) -> Layout:
    """Pack sentences into rows and deal the rows out to shards of equal shape."""
    lengths = np.asarray(lengths, np.int64)
    row_list, offset_list, width = pack_lengths(lengths.tolist(), width)
    row, offset = np.array(row_list, np.int64), np.array(offset_list, np.int64)
    return _deal(lengths, row, offset, width, shards)


def lay_out_by_length(lengths: np.ndarray, shards: int) -> Layout:
    """One sentence a row, the short ones first, dealt out to shards of equal shape.

    For programs whose cost grows faster than the length of a row, and that work on a few rows at a
    time: packed rows would be longer than their sentences.
    """
    lengths = np.asarray(lengths, np.int64)
    row = np.argsort(np.argsort(lengths, kind="stable"))
    width = max(1, int(lengths.max(initial=0)))
    return _deal(lengths, row, np.zeros_like(row), width, shards)


def _deal(
    lengths: np.ndarray, row: np.ndarray, offset: np.ndarray, width: int, shards: int
) -> Layout:
    """Rows to shards by turns."""
    num_rows = int(row.max(initial=0)) + 1
    rows = -(-num_rows // shards)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    slot = np.repeat((row // shards) * width + offset, lengths) + within
    shard = np.repeat(row % shards, lengths)
    most = np.bincount(row[lengths > 0] % shards, minlength=shards).max(initial=0)
    return Layout(shard, slot, rows, width, int(most))


@dataclass(frozen=True)
class EncodedLabels:
    """Labels of all tokens of a corpus, one after another.

    gold: int32 [N], −1 where not known. allowed: bool [N, s], or None when all are known.
    """

    gold: np.ndarray
    allowed: np.ndarray | None


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
        here = self._order[first:stop]
        where, slots = layout.slot[here], layout.rows * layout.width
        shape = (layout.rows, layout.width)

        def place(values: np.ndarray, fill, dtype) -> np.ndarray:
            array = np.full((slots, *values.shape[1:]), fill, dtype)
            array[where] = values
            return array

        def ends_of(found: np.ndarray) -> np.ndarray:
            array = np.full(layout.sequences, slots, np.int32)
            array[: len(found)] = found
            return array

        ids, values, pairs = features.ids[here], features.values, features.edge_ids
        _, local = np.unique(self._sentence[here], return_inverse=True)
        gold, allowed = np.full(slots, UNKNOWN, np.int32), None
        if self._labels is not None:
            gold = place(self._labels.gold[here], UNKNOWN, np.int32)
            if self._labels.allowed is not None:
                allowed = jnp.asarray(place(self._labels.allowed[here], True, bool))
                allowed = allowed.reshape(*shape, -1)
        return Shard(
            ids=jnp.asarray(place(np.where(ids < 0, attributes, ids), attributes, np.int32)),
            values=None if values is None else jnp.asarray(place(values[here], 0, np.float32)),
            edge_ids=None if pairs is None else jnp.asarray(place(pairs[here], -1, np.int32)),
            segments=jnp.asarray(place(local, -1, np.int32).reshape(shape)),
            gold=jnp.asarray(gold.reshape(shape)),
            allowed=allowed,
            weights=jnp.asarray(place(self._weights[here], 0, np.float32).reshape(shape)),
            first=jnp.asarray(place(self._within[here] == 0, False, bool).reshape(shape)),
            starts=jnp.asarray(ends_of(where[self._within[here] == 0])),
            stops=jnp.asarray(ends_of(where[self._is_last[here]])),
            num_sequences=layout.sequences,
        )
