"""A corpus on disk that is trained on batch by batch, in an order that the step decides."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq.crf import EncodedLabels, Layout, Shard, ShardMaker, join_shards, lay_out
from jaxseq.text import FeatureExtractor, TokenFeatures, extractor_from_state

# -------------------------------------------------------------------------------------------------
# Featurised parts of a corpus on disk, and the index of them. Nothing in them is executed.
#
# A folder holds ``index.json``, ``vocabulary.safetensors`` and one safetensors file for each part.
# The index has the counts, the size and the SHA-256 of every file, and the digest of the vocabulary,
# which is also written into each part: a part that is cut off, changed, missing or of another
# vocabulary is noticed before it is used.


FORMAT, VERSION = "jaxseq shards", 1
INDEX, VOCABULARY = "index.json", "vocabulary.safetensors"
DTYPES = {"I32": np.int32, "I64": np.int64, "F32": np.float32, "BOOL": np.bool_, "U8": np.uint8}


@dataclass(frozen=True)
class ShardFile:
    """One part: its file, and what is in it. rows: packed rows of the index's width."""

    file: str
    sentences: int
    tokens: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardIndex:
    """What there is to know of a corpus on disk without reading it.

    classes: the labels. attributes, edge_attributes: how many there are. columns: attributes of a
    token, at most. longest: tokens of a sentence, at most; width: slots of a packed row. weighted,
    partial: whether any part has values of attributes, or labels that are not known for sure.
    features: the extractor's description. vocabulary: the digest of it.
    """

    classes: list[str]
    attributes: int
    edge_attributes: int
    columns: int
    longest: int
    width: int
    weighted: bool
    partial: bool
    features: dict[str, Any]
    vocabulary: str
    vocabulary_sha256: str
    shards: list[ShardFile]

    @property
    def sentences(self) -> int:
        """Of all parts."""
        return sum(shard.sentences for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Of all parts."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(shard.rows for shard in self.shards)


def digest_of(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Says which vocabulary this is, from an extractor's state."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------------------------- writing


def to_bytes(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Arrays as safetensors."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(a) for name, a in arrays.items()}, metadata)


def write_index(folder: Path, index: ShardIndex) -> None:
    """Last of all files, so that a folder with an index is complete."""
    body = {"format": FORMAT, "version": VERSION, **asdict(index)}
    body["checksum"] = _checksum(body)
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def _checksum(body: dict[str, Any]) -> str:
    rest = {name: value for name, value in body.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------------------------- reading


def read_index(folder: Path) -> ShardIndex:
    """The index of a folder; ValueError for what is none."""
    where = folder / INDEX
    if not where.is_file():
        raise ValueError(f"{where}: expected the index of a corpus of shards, there is none")
    try:
        body = json.loads(where.read_bytes())
        sound = body["format"] == FORMAT and body["checksum"] == _checksum(body)
        version = body["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{where}: expected {FORMAT}, got {error!r:.80}") from error
    if not sound:
        raise ValueError(f"{where}: expected the text that its checksum is of; it was changed")
    if version != VERSION:
        raise ValueError(f"{where}: expected version {VERSION}, got {version!r}")
    names = set(ShardIndex.__dataclass_fields__)
    fields = {name: value for name, value in body.items() if name in names}
    fields["shards"] = [ShardFile(**shard) for shard in body["shards"]]
    return ShardIndex(**fields)


def read_extractor(folder: Path, index: ShardIndex) -> FeatureExtractor:
    """The extractor that the corpus was featurised by."""
    where = folder / VOCABULARY
    if not where.is_file():
        raise ValueError(f"{where}: expected the vocabulary of the shards, there is none")
    check_digest(where, index.vocabulary_sha256)
    plain = {name: np.array(array) for name, array in map_arrays(where).items()}
    if digest_of(index.features, plain) != index.vocabulary:
        raise ValueError(f"{where}: expected the vocabulary of the index, got another")
    return extractor_from_state(index.features, plain)


def check_digest(where: Path, sha256: str) -> None:
    """ValueError unless a file has the content that the index says."""
    with open(where, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{where}: expected the file that {INDEX} describes; it was changed")


def check_shard(folder: Path, index: ShardIndex, shard: ShardFile) -> Path:
    """The path of a part's file; ValueError where it is missing, another's or cut off."""
    where = folder / shard.file
    if not where.is_file():
        raise ValueError(f"{where}: expected a shard of the corpus there, found none")
    size = where.stat().st_size
    try:
        vocabulary = _read_header(where, size)[0].get("__metadata__", {}).get("vocabulary")
    except ValueError:
        vocabulary = index.vocabulary  # there is no telling; the size will be another
    if vocabulary != index.vocabulary:
        raise ValueError(
            f"{where}: expected a shard of the vocabulary {index.vocabulary[:12]}…, got one of "
            f"another, {str(vocabulary)[:12]}…"
        )
    if size != shard.bytes:
        raise ValueError(f"{where}: expected {shard.bytes} bytes, got {size}: it was cut off")
    return where


def map_shard(folder: Path, index: ShardIndex, shard: ShardFile) -> dict[str, np.ndarray]:
    """The arrays of a part, mapped; ValueError where they are not those of the index."""
    where = check_shard(folder, index, shard)
    arrays = map_arrays(where)
    shapes = {"ids": shard.tokens, "gold": shard.tokens, "lengths": shard.sentences}
    for name, length in shapes.items():
        if name not in arrays or len(arrays[name]) != length:
            raise ValueError(f"{where}: {name}: expected {length} rows, got another number")
    return arrays


def map_arrays(where: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, mapped: a page is read when it is looked at."""
    size = where.stat().st_size
    header, start = _read_header(where, size)
    header.pop("__metadata__", None)
    try:
        return {name: _map(where, size, start, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: expected safetensors, got {error!r:.100}") from error


def _read_header(where: Path, size: int) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of itself, and where its arrays begin."""
    with open(where, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= size else b""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected safetensors, got {error!r:.100}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{where}: expected safetensors, got {header!r:.60}")
    return header, 8 + length


def _map(where: Path, size: int, start: int, entry: dict[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    first, end = entry["data_offsets"]
    if end - first != math.prod(shape) * dtype.itemsize or start + end > size:
        raise ValueError("arrays that reach beyond the end of the file")
    if first == end:
        return np.zeros(shape, dtype)
    return np.memmap(where, dtype, "r", start + first, shape)


# -------------------------------------------------------------------------------------------------
# Which part of a batch is whose, where many devices train on shards of one corpus.
#
# The shards of a corpus are dealt out to streams: stream g of G has those whose number is g modulo G.
# A batch has rows of every stream. A place, one along ``"data"`` of a mesh, works on all rows of some
# streams, or where there are more places than streams, on some rows of one stream. So what a batch
# is depends on the number of streams, and not on that of places.


class Piece(NamedTuple):
    """What a place takes of a stream: of its rows in a batch, each `parts`-th from `part` on."""

    stream: int
    part: int = 0
    parts: int = 1


def deal_streams(streams: int, places: int) -> list[list[Piece]]:
    """The pieces of each place: neighbours have neighbouring streams, or share one.

    Example:
        >>> deal_streams(2, 1)
        [[Piece(stream=0, part=0, parts=1), Piece(stream=1, part=0, parts=1)]]
        >>> deal_streams(1, 2)
        [[Piece(stream=0, part=0, parts=2)], [Piece(stream=0, part=1, parts=2)]]
    """
    if places <= streams:
        owners = [stream * places // streams for stream in range(streams)]
        return [
            [Piece(stream) for stream in range(streams) if owners[stream] == place]
            for place in range(places)
        ]
    chosen = [place * streams // places for place in range(places)]
    return [
        [Piece(stream, place - chosen.index(stream), chosen.count(stream))]
        for place, stream in enumerate(chosen)
    ]


@dataclass(frozen=True)
class Place:
    """Where a step's batch is: the epoch, the shard, and the batch's number within it.

    The batch is None where a stream, shorter than others, has nothing for a step.
    """

    epoch: int
    shard: int
    batch: int | None


class StreamedCorpus:
    """Mini-batches of a corpus on disk, with one shard of each stream in memory at a time.

    The batches of a shard are cut once and for all: its sentences are packed into rows, and the
    rows dealt out to batches of equal shape. An epoch goes through all shards in an order drawn
    from (seed, epoch), and through the batches of each in an order drawn from (seed, epoch,
    shard). So the batch of a step depends on the seed and the step alone: training that was
    stopped goes on at any step without knowing how it came there.

    With several streams (`jaxseq.shards._files`), each goes through shards of its own in
    this way, side by side, and a batch has rows of all of them. A stream with fewer batches than
    the longest has nothing for some steps, which are spread over the epoch. Neither depends on how
    many places there are.

    Args:
        folder: of `jaxseq shard`, or `jaxseq.shards.write_shards`.
        batch_size: sentences of a batch, about; more of them where sentences are short, and at
            least a row of each stream.
        seed: of the order, 0 or more.
        streams: shards that are gone through side by side, at most as many as there are.
        places: among which the rows of a batch are dealt out.
        own: those of this process, which looks for the shards of their streams alone.

    Raises:
        ValueError: for a folder without an index, and for a shard that is missing, cut off, changed
            or of another vocabulary, with the file; all are looked for at once, the content of
            each when it is first read.

    Cost: memory for the arrays of the shards at hand that are looked at, one of each stream: they
    are mapped.

    Example:
        >>> import tempfile
        >>> from jaxseq.shards import write_shards
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(lambda: corpus, place + "/shards", templates=["word[0]"])
        ...     streamed = StreamedCorpus(folder, batch_size=1)
        ...     streamed.sentences, streamed.classes, streamed.batch_at(0).segments.shape
        (2, ['D', 'N'], (1, 128))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        batch_size: int = 64,
        seed: int = 0,
        streams: int = 1,
        places: int = 1,
        own: Sequence[int] = (0,),
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, got {batch_size}")
        if seed < 0:
            raise ValueError(f"seed: expected 0 or more, got {seed}")
        self.folder, self.seed, self.streams = Path(folder), seed, streams
        self.index: ShardIndex = read_index(self.folder)
        if not 1 <= streams <= self.num_shards:
            raise ValueError(
                f"streams: expected 1 … {self.num_shards}, the number of shards in {folder}, got "
                f"{streams}"
            )
        self._pieces, self.own = deal_streams(streams, places), list(own)
        for number in self.own_shards:
            check_shard(self.folder, self.index, self.index.shards[number])
        share = self.index.rows * batch_size / max(1, self.index.sentences)
        self.rows_of_stream = max(1, round(share / streams))
        self._batches = np.array([-(-s.rows // self.rows_of_stream) for s in self.index.shards])
        self._checked: set[int] = set()
        self._held: dict[int, tuple[int, ShardMaker]] = {}
        self._drawn: tuple[int, list[np.ndarray]] | None = None
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
        return max(int(self._batches[g :: self.streams].sum()) for g in range(self.streams))

    @property
    def own_shards(self) -> list[int]:
        """The numbers of those that this process reads."""
        streams = {piece.stream for place in self.own for piece in self._pieces[place]}
        return [number for number in range(self.num_shards) if number % self.streams in streams]

    def extractor(self) -> FeatureExtractor:
        """What the corpus was featurised by, with its vocabulary."""
        return read_extractor(self.folder, self.index)

    # -------------------------------------------------------------------------------- order

    def _orders(self, epoch: int) -> list[np.ndarray]:
        """The shards of each stream, in the order of an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            drawn = np.random.default_rng([self.seed, epoch]).permutation(self.num_shards)
            orders = [drawn[drawn % self.streams == stream] for stream in range(self.streams)]
            self._drawn = epoch, orders
        return self._drawn[1]

    def place_of(self, step: int, stream: int = 0) -> Place:
        """Where the batch of a step is, or a stream's rows of it."""
        if step < 0:
            raise ValueError(f"step: expected 0 or more, got {step}")
        epoch, position = divmod(step, self.num_batches)
        order = self._orders(epoch)[stream]
        ends = np.cumsum(self._batches[order])
        number, after = (p * int(ends[-1]) // self.num_batches for p in (position, position + 1))
        turn = int(np.searchsorted(ends, number, side="right"))
        shard = int(order[turn])
        if after == number:
            return Place(epoch, shard, None)
        within = number - int(ends[turn] - self._batches[shard])
        random = np.random.default_rng([self.seed, epoch, shard])
        return Place(epoch, shard, int(random.permutation(self._batches[shard])[within]))

    def begins_shard(self, step: int) -> bool:
        """Whether any stream, of any process, goes on to another shard at a step."""
        epoch, position = divmod(step, self.num_batches)
        for order in self._orders(epoch):
            ends = np.cumsum(self._batches[order])
            first = -((self._batches[order] - ends) * self.num_batches // ends[-1])
            if position in first:
                return True
        return False

    # ------------------------------------------------------------------------------ batches

    def open(self, step: int) -> None:
        """Have the shards at hand that this process needs for a step."""
        for stream in {piece.stream for place in self.own for piece in self._pieces[place]}:
            self._maker_of(stream, self.place_of(step, stream).shard)

    def batch_at(self, step: int, place: int = 0) -> Shard:
        """The batch of a step, or a place's rows of it; all have the same shape."""
        pieces = self._pieces[place]
        found = [self._piece_at(step, piece) for piece in pieces]
        while len(found) < max(map(len, self._pieces)):
            found.append(self._piece_at(step, pieces[0], empty=True))
        return join_shards(found)

    def batches(self, start: int, stop: int) -> Iterator[Shard]:
        """The batches of the steps from `start` on, up to the one before `stop`."""
        return (self.batch_at(step) for step in range(start, stop))

    def _piece_at(self, step: int, piece: Piece, empty: bool = False) -> Shard:
        place = self.place_of(step, piece.stream)
        maker = self._maker_of(piece.stream, place.shard)
        number = None if empty or place.batch is None else place.batch * piece.parts + piece.part
        return self._uniform(maker(maker.num_shards if number is None else number))

    def _maker_of(self, stream: int, shard: int) -> ShardMaker:
        if stream not in self._held or self._held[stream][0] != shard:
            self._held.pop(stream, None)  # before the next is there: there are never two
            self._held[stream] = shard, self._maker(shard)
        return self._held[stream][1]

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
        """Of the batches of a shard; part p of P of batch b is made as number b·P + p."""
        features, labels = self.part(number)
        layout = lay_out(features.lengths, int(self._batches[number]), width=self.index.width)
        every = [piece for pieces in self._pieces for piece in pieces]
        rows = -(-self.rows_of_stream // min(piece.parts for piece in every))
        parts = next(p.parts for p in every if p.stream == number % self.streams)
        row, offset = np.divmod(layout.slot, layout.width)
        shard, slot = layout.shard * parts + row % parts, row // parts * layout.width + offset
        layout = Layout(shard, slot, rows, layout.width, rows * layout.width)
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
