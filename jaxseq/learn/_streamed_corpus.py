"""A corpus on disk that is trained on batch by batch, in an order that the step decides."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq.learn._corpus import EncodedLabels, Shard, ShardMaker, lay_out
from jaxseq.learn._shard_files import (
    ShardIndex,
    check_digest,
    check_shard,
    map_shard,
    read_extractor,
    read_index,
)
from jaxseq.text import FeatureExtractor, TokenFeatures


@dataclass(frozen=True)
class Place:
    """Where a step's batch is: the epoch, the shard, and the batch's number within it."""

    epoch: int
    shard: int
    batch: int


class StreamedCorpus:
    """Mini-batches of a corpus on disk, with one shard of it in memory at a time.

    The batches of a shard are cut once and for all: its sentences are packed into rows, and the
    rows dealt out to batches of equal shape. An epoch goes through all shards in an order drawn
    from (seed, epoch), and through the batches of each in an order drawn from (seed, epoch,
    shard). So the batch of a step depends on the seed and the step alone: training that was
    stopped goes on at any step without knowing how it came there.

    Args:
        folder: of `jaxseq shard`, or `jaxseq.tagger.write_shards`.
        batch_size: sentences of a batch, about; more of them where sentences are short.
        seed: of the order, 0 or more.

    Raises:
        ValueError: for a folder without an index, and for a shard that is missing, cut off, changed
            or of another vocabulary, with the file; all are looked for at once, the content of
            each when it is first read.

    Cost: memory for the arrays of the shard at hand that are looked at: they are mapped.

    Example:
        >>> import tempfile
        >>> from jaxseq.tagger import write_shards
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(lambda: corpus, place + "/shards", templates=["word[0]"])
        ...     streamed = StreamedCorpus(folder, batch_size=1)
        ...     streamed.sentences, streamed.classes, streamed.batch_at(0).segments.shape
        (2, ['D', 'N'], (1, 128))
    """

    def __init__(self, folder: str | os.PathLike[str], *, batch_size: int = 64, seed: int = 0):
        if batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, got {batch_size}")
        if seed < 0:
            raise ValueError(f"seed: expected 0 or more, got {seed}")
        self.folder, self.seed = Path(folder), seed
        self.index: ShardIndex = read_index(self.folder)
        for shard in self.index.shards:
            check_shard(self.folder, self.index, shard)
        share = self.index.rows * batch_size / max(1, self.index.sentences)
        self.rows_of_batch = max(1, round(share))
        self._batches = np.array([-(-s.rows // self.rows_of_batch) for s in self.index.shards])
        self._checked: set[int] = set()
        self._held: tuple[int, ShardMaker] | None = None
        self.loads = 0

    # ------------------------------------------------------------------------------- counts

    @property
    def classes(self) -> list[str]:
        """The labels."""
        return self.index.classes

    @property
    def sentences(self) -> int:
        """Of the whole corpus."""
        return self.index.sentences

    @property
    def num_shards(self) -> int:
        """Files of the corpus."""
        return len(self.index.shards)

    @property
    def num_batches(self) -> int:
        """Batches, and so steps, of an epoch."""
        return int(self._batches.sum())

    def extractor(self) -> FeatureExtractor:
        """What the corpus was featurised by, with its vocabulary."""
        return read_extractor(self.folder, self.index)

    # -------------------------------------------------------------------------------- order

    def place_of(self, step: int) -> Place:
        """Where the batch of a step is."""
        if step < 0:
            raise ValueError(f"step: expected 0 or more, got {step}")
        epoch, position = divmod(step, self.num_batches)
        order = np.random.default_rng([self.seed, epoch]).permutation(self.num_shards)
        ends = np.cumsum(self._batches[order])
        turn = int(np.searchsorted(ends, position, side="right"))
        shard = int(order[turn])
        within = position - int(ends[turn] - self._batches[shard])
        random = np.random.default_rng([self.seed, epoch, shard])
        return Place(epoch, shard, int(random.permutation(self._batches[shard])[within]))

    def batch_at(self, step: int) -> Shard:
        """The batch of a step; all have the same shape."""
        place = self.place_of(step)
        if self._held is None or self._held[0] != place.shard:
            self._held = None  # before the next is there, so that there are never two
            self._held = place.shard, self._maker(place.shard)
        return self._uniform(self._held[1](place.batch))

    def batches(self, start: int, stop: int) -> Iterator[Shard]:
        """The batches of the steps from `start` on, up to the one before `stop`."""
        return (self.batch_at(step) for step in range(start, stop))

    # ------------------------------------------------------------------------------- shards

    def part(self, number: int) -> tuple[TokenFeatures, EncodedLabels]:
        """Features and labels of a shard, mapped.

        Its labels are never None where any shard of the corpus has some that are not known.
        """
        shard = self.index.shards[number]
        if number not in self._checked:
            check_digest(check_shard(self.folder, self.index, shard), shard.sha256)
            self._checked.add(number)
        arrays = map_shard(self.folder, self.index, shard)
        self.loads += 1
        lengths, gold = np.array(arrays["lengths"]), np.array(arrays["gold"])
        values = arrays.get("values")
        if values is None and self.index.weighted:
            values = (arrays["ids"] >= 0).astype(np.float32)
        features = TokenFeatures(arrays["ids"], values, lengths, arrays.get("edge_ids"))
        allowed = arrays.get("allowed")
        if allowed is None and self.index.partial:
            allowed = gold[:, None] == np.arange(len(self.classes))
        return features, EncodedLabels(gold, allowed)

    def _maker(self, number: int) -> ShardMaker:
        features, labels = self.part(number)
        batches = int(self._batches[number])
        layout = lay_out(features.lengths, batches, width=self.index.width)
        rows = self.rows_of_batch
        layout = replace(layout, rows=rows, sequences=rows * self.index.width)
        return ShardMaker(layout, features, self.index.attributes, labels)

    def _uniform(self, batch: Shard) -> Shard:
        """With as many columns as the widest shard has."""
        missing = self.index.columns - batch.ids.shape[1]
        if not missing:
            return batch
        width = ((0, 0), (0, missing))
        ids = jnp.pad(batch.ids, width, constant_values=self.index.attributes)
        batch = eqx.tree_at(lambda batch: batch.ids, batch, ids)
        if batch.values is None:
            return batch
        return eqx.tree_at(lambda batch: batch.values, batch, jnp.pad(batch.values, width))
