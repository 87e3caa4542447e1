"""A corpus on disk: how it is featurised part by part, and what is checked when it is read.

A folder holds ``index.json``, ``vocabulary.safetensors`` and one safetensors file per shard. The
index has the counts, the size and the SHA-256 of every file, and the digest of the vocabulary,
which is also written into each shard: one that is cut off, changed, missing or of another
vocabulary is noticed before it is used. Nothing in these files is executed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxseq._io import replacing_folder
from jaxseq.crf import EncodedLabels, without_gaps
from jaxseq.lattice import pack_lengths
from jaxseq.taggers import Label, check_classes, check_labels, encode_labels, find_classes
from jaxseq.text import (
    GENERAL,
    DictExtractor,
    FeatureExtractor,
    SharedCorpus,
    TemplateExtractor,
    Templates,
    TokenFeatures,
    extractor_from_state,
    sum_counts,
    tokens_are_attributes,
)

FORMAT, VERSION = "jaxseq shards", 1
INDEX, VOCABULARY = "index.json", "vocabulary.safetensors"
# The dtypes that we write, by their names in safetensors.
DTYPES = {"I32": np.int32, "I64": np.int64, "F32": np.float32, "BOOL": np.bool_, "U8": np.uint8}


@dataclass(frozen=True)
class ShardFile:
    """The file of one shard, and what is in it."""

    file: str
    sentences: int
    tokens: int
    rows: int  # packed rows of the index's width
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardIndex:
    """What there is to know of a corpus on disk without reading it."""

    classes: list[str]
    attributes: int
    edge_attributes: int
    columns: int  # attributes of a token, at most
    longest: int  # tokens of a sentence, at most
    width: int  # slots of a packed row
    weighted: bool  # whether attributes of any shard have values
    partial: bool  # whether labels of any shard are not known for sure
    features: dict[str, Any]  # the extractor's description
    vocabulary: str  # the digest of the extractor's state
    vocabulary_sha256: str  # of its file
    shards: list[ShardFile]

    @property
    def sentences(self) -> int:
        """Of all shards."""
        return sum(shard.sentences for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Of all shards."""
        return sum(shard.tokens for shard in self.shards)


def _state_digest(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Says which vocabulary this is, from an extractor's state."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray], vocabulary: str) -> tuple[int, str]:
    """Write arrays as safetensors, and say how many bytes they take and their SHA-256."""
    from safetensors.numpy import save

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    data = save(contiguous, {"vocabulary": vocabulary})
    path.write_bytes(data)
    return len(data), hashlib.sha256(data).hexdigest()


def _write_index(folder: Path, index: ShardIndex) -> None:
    """Last of all files, so that a folder with an index is complete."""
    body = {"format": FORMAT, "version": VERSION, **asdict(index)}
    body["checksum"] = _checksum(body)
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def _checksum(body: dict[str, Any]) -> str:
    checked = {name: value for name, value in body.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(checked, sort_keys=True).encode()).hexdigest()


def read_index(folder: Path) -> ShardIndex:
    """The index of a folder; ValueError where there is none, or one that was changed."""
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
    try:
        fields = {name: body[name] for name in ShardIndex.__dataclass_fields__}
        shards = [ShardFile(**shard) for shard in body["shards"]]
        index = ShardIndex(**{**fields, "shards": shards})
        _check_index(index)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: expected an index of shards, got {error!s:.150}") from error
    return index


def _check_index(index: ShardIndex) -> None:
    """ValueError for counts that no corpus has: a checksum is soon forged, and what is allotted by
    these numbers, or looked up at them, must stay within bounds."""
    shards, classes = index.shards, index.classes
    counts = [index.attributes, index.edge_attributes, index.columns, index.longest, index.width]
    for shard in shards:
        counts += [shard.sentences, shard.tokens, shard.rows, shard.bytes]
    if not all(type(count) is int and 0 <= count < 1 << 62 for count in counts):
        raise ValueError("counts that are not whole numbers from 0 on")
    texts = [index.vocabulary, index.vocabulary_sha256]
    texts += [text for shard in shards for text in (shard.file, shard.sha256)]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("names or digests that are no text")
    if not classes or classes != sorted({str(label) for label in classes}):
        raise ValueError("classes that are not labels in their order")
    if not shards or any(Path(shard.file).name != shard.file for shard in shards):
        raise ValueError("shards that are not files of this folder")
    if not index.longest <= max(index.width, NARROWEST) == index.width <= index.tokens + NARROWEST:
        raise ValueError("rows of another width than that of its sentences")
    if any(shard.rows > max(1, shard.sentences) for shard in shards):
        raise ValueError("more rows than sentences")
    if index.columns > max(shard.bytes // (4 * max(1, shard.tokens)) for shard in shards):
        raise ValueError("more columns than any shard has room for")


def _check_digest(where: Path, sha256: str) -> None:
    """ValueError unless a file has the content that the index says."""
    with open(where, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise ValueError(f"{where}: expected the file that {INDEX} describes; it was changed")


def check_shard(folder: Path, index: ShardIndex, shard: ShardFile) -> Path:
    """The path of a shard's file; ValueError where it is missing, another's or cut off."""
    where = folder / shard.file
    if not where.is_file():
        raise ValueError(f"{where}: expected a shard of the corpus there, found none")
    try:
        vocabulary = dict(_read_header(where)[0].get("__metadata__", {})).get("vocabulary")
    except (ValueError, TypeError):
        vocabulary = index.vocabulary  # a header that is cut off: the size will tell
    if vocabulary != index.vocabulary:
        raise ValueError(
            f"{where}: expected a shard of the vocabulary {index.vocabulary[:12]}…, got one of "
            f"another, {str(vocabulary)[:12]}…"
        )
    if (size := where.stat().st_size) != shard.bytes:
        raise ValueError(f"{where}: expected {shard.bytes} bytes, got {size}: it was cut off")
    return where


def _check_arrays(arrays: dict[str, np.ndarray], index: ShardIndex, shard: ShardFile) -> None:
    """ValueError unless the arrays of a shard are those that `write_shards` could have written.

    A program that is compiled looks nothing up with care: numbers out of range give wrong weights.
    """
    tokens, s = shard.tokens, len(index.classes)
    columns = arrays["ids"].shape[1:] if "ids" in arrays else ()
    shapes = {
        "ids": (tokens, *columns),
        "values": (tokens, *columns),
        "gold": (tokens,),
        "allowed": (tokens, s),
        "lengths": (shard.sentences,),
        "edge_ids": (tokens, *(arrays["edge_ids"].shape[1:] if "edge_ids" in arrays else ())),
    }
    for name, shape in shapes.items():
        needed = name in ("ids", "gold", "lengths")
        if (needed and name not in arrays) or (name in arrays and arrays[name].shape != shape):
            got = arrays[name].shape if name in arrays else "none"
            raise ValueError(f"{name}: expected an array of shape {shape}, got {got}")
    ranges = {
        "ids": (-1, index.attributes - 1),
        "edge_ids": (-1, index.edge_attributes - 1),
        "gold": (-1, s - 1),
        "lengths": (0, index.longest),
    }
    for name, (low, high) in ranges.items():
        array = arrays.get(name)
        if array is not None and array.size and not low <= array.min() <= array.max() <= high:
            got = f"{array.min()} … {array.max()}"
            raise ValueError(f"{name}: expected numbers from {low} to {high}, got {got}")
    if len(columns) != 1 or columns[0] > index.columns:
        raise ValueError(f"ids: expected at most {index.columns} columns, got {columns}")
    if (total := int(arrays["lengths"].sum())) != tokens:
        raise ValueError(f"lengths: expected a sum of {tokens}, got {total}")
    rows = max(pack_lengths(arrays["lengths"].tolist(), index.width)[0], default=0) + 1
    if rows != shard.rows:
        raise ValueError(f"lengths: expected sentences for {shard.rows} rows, got {rows}")
    if "values" in arrays and not (index.weighted and np.isfinite(arrays["values"]).all()):
        raise ValueError("values: expected finite numbers, in shards that have some; got others")
    known = index.partial or (not tokens or arrays["gold"].min() >= 0)
    if not known or ("allowed" in arrays and not index.partial):
        raise ValueError("gold: expected all labels to be known, got some that are not")


# safetensors itself copies an array as a whole, where a batch needs a few rows of it: so the
# headers are read here, and NumPy maps what they point at.


def _map_arrays(where: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, mapped: a page is read when it is looked at."""
    header, start = _read_header(where)
    header.pop("__metadata__", None)
    try:
        return {name: _map(where, start, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{where}: expected safetensors, got {error!r:.100}") from error


def _read_header(where: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of itself, and where its arrays begin."""
    with open(where, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        # A wrong length must not ask for memory.
        text = file.read(length) if length <= where.stat().st_size else b""
    try:
        header = json.loads(text)
        if not isinstance(header, dict):
            raise ValueError(f"{header!r:.60}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected safetensors, got {error!r:.100}") from error
    return header, 8 + length


def _map(where: Path, start: int, entry: dict[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    first, end = entry["data_offsets"]
    inside = first >= 0 and start + end <= where.stat().st_size and min(shape, default=0) >= 0
    if not inside or end - first != math.prod(shape) * dtype.itemsize:
        raise ValueError("arrays that reach beyond the end of the file")
    if first == end:
        return np.zeros(shape, dtype)  # an empty range cannot be mapped
    return np.memmap(where, dtype, "r", start + first, shape)


def read_arrays(
    folder: Path, index: ShardIndex, shard: ShardFile, *, check: bool
) -> dict[str, np.ndarray]:
    """The arrays of a shard, mapped; what is in them is looked at where `check` says so."""
    where = check_shard(folder, index, shard)
    arrays = _map_arrays(where)
    if check:
        _check_digest(where, shard.sha256)
        try:
            _check_arrays(arrays, index, shard)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}: {error}") from error
    return arrays


def read_extractor(folder: Path, index: ShardIndex) -> FeatureExtractor:
    """What a corpus was featurised by, with its vocabulary."""
    where = folder / VOCABULARY
    if not where.is_file():
        raise ValueError(f"{where}: expected the vocabulary of the shards, there is none")
    _check_digest(where, index.vocabulary_sha256)
    arrays = {name: np.array(array) for name, array in _map_arrays(where).items()}
    if _state_digest(index.features, arrays) != index.vocabulary:
        raise ValueError(f"{where}: expected the vocabulary of the index, got another")
    extractor = extractor_from_state(index.features, arrays)
    numbers = extractor.attribute_count, extractor.edge_attribute_count
    expected = index.attributes, index.edge_attributes
    if numbers != expected:
        raise ValueError(f"{where}: expected {expected} attributes, got {numbers}")
    return extractor


# -------------------------------------------------------------------------------------------------
# One vocabulary for a corpus that is read part by part, because it does not fit into memory.
#
# The numbers of strings and attributes are those that the whole corpus would have been given at
# once. An extractor asks for two things of the whole: the order of its strings, and how often each
# combination of them occurs. Both are gathered in passes over the parts: the strings in the first,
# which the second needs to count combinations. A third gives the attributes of every part, and
# gathers everything once more: where nothing has changed, they are the right ones. (It changes only
# where combinations are so many that they are numbered in steps, each of which needs a pass.)

MAX_PASSES = 20  # far more than numberings in steps: what needs more changes while it is read


@dataclass
class Ledger:
    """What the passes have gathered: one entry for every question that an extractor asks."""

    # The ledger of the pass before, whose answers are given; None in the first pass.
    settled: Ledger | None = None
    # Of each question for strings, the time (sentence and place) at which each first occurs.
    strings: list[dict[str, int]] = field(default_factory=list)
    # Of each question for combinations, those seen, ascending, and how often.
    counts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def same_as(self, other: Ledger | None) -> bool:
        """Whether two passes have gathered the same."""
        if other is None or self.strings != other.strings or len(self.counts) != len(other.counts):
            return False
        pairs = zip(self.counts, other.counts)
        return all(np.array_equal(*two) for one in pairs for two in zip(*one))


@dataclass(frozen=True)
class _Part(SharedCorpus):
    """A part of the corpus, as an extractor sees it: its questions go to the ledger."""

    ledger: Ledger = field(default_factory=Ledger)
    # An extractor asks in the same order for every part, so that questions go by their number.
    string_questions: Iterator[int] = field(default_factory=itertools.count)
    count_questions: Iterator[int] = field(default_factory=itertools.count)

    def order_strings(self, strings: list[str], sentence: np.ndarray, place: np.ndarray):
        """The strings of the whole corpus by first occurrence; in the first pass the part's."""
        ledger, number = self.ledger, next(self.string_questions)
        if number == len(ledger.strings):
            ledger.strings.append({})
        own = dict(zip(strings, self.times(sentence, place).tolist()))
        earliest = ledger.strings[number]
        for string, time in own.items():
            earliest[string] = min(time, earliest.get(string, time))
        times = own if ledger.settled is None else ledger.settled.strings[number]
        strange = [string for string in strings if string not in times]
        if strange:
            raise ValueError(
                f"corpus: expected the same sentences in every pass, got {strange[0]!r:.40}, which "
                "was not there before"
            )
        return sorted(times, key=lambda string: (times[string], string))

    def merge_counts(self, keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and counts of the whole corpus; until strings are settled, those of the part."""
        ledger, number = self.ledger, next(self.count_questions)
        if number == len(ledger.counts):
            ledger.counts.append((keys[:0], counts[:0]))
        ledger.counts[number] = sum_counts([ledger.counts[number], (keys, counts)])
        before = ledger.settled
        # Keys that were counted before the strings were settled are of another numbering.
        if before is None or before.settled is None:
            return keys, counts
        return before.counts[number]


def learn_in_passes(
    new_extractor: Callable[[], FeatureExtractor],
    read_parts: Callable[[], Iterable[list[Any]]],
    use: Callable[[int, FeatureExtractor, TokenFeatures], None],
) -> FeatureExtractor:
    """The extractor that `fit_transform` of all sentences at once would have given.

    `use` is called with the number of a part, the extractor and the part's attributes; where a
    further pass is needed, the same numbers come again, with what is right.
    """
    ledger: Ledger | None = None
    for number in range(MAX_PASSES):
        if ledger is not None and ledger.settled is not None:
            ledger.settled = Ledger()  # only that there was one is still asked for
        before, ledger = ledger, Ledger(ledger)
        extractor, first = None, 0
        for place, sentences in enumerate(read_parts()):
            extractor = new_extractor()
            numbers = np.arange(first, first + len(sentences))
            shared = _Part(lambda message: [message], numbers, ledger)
            features = extractor.fit_transform(sentences, shared)
            if number >= 2:  # before, features are not of the whole's vocabulary
                use(place, extractor, features)
            first += len(sentences)
        if extractor is None:
            raise ValueError("corpus: expected at least one sentence, got none")
        if number >= 2 and ledger.same_as(before):
            return extractor
    raise ValueError("corpus: expected the same sentences in every pass, got others")


SHARD_TOKENS = 1_000_000
"""Tokens of a shard: some hundred megabytes with twenty attributes each."""

NARROWEST = 128
"""Slots of a packed row, unless a sentence is longer."""

Labelled = tuple[Any, Sequence[Label]]
"""A sentence and what is known of its labels."""


def write_shards(
    read: Callable[[], Iterable[Labelled]],
    folder: str | os.PathLike[str],
    *,
    templates: Templates | Sequence[str] | None = None,
    cutoff: int = 1,
    shard_tokens: int = SHARD_TOKENS,
    classes: Collection[str] | None = None,
) -> Path:
    """Featurise a labelled corpus part by part, and write it to a folder of shards.

    The numbers of attributes are those that `CRFTagger.fit` would give them on the whole corpus.

    Args:
        read: gives the sentences with their labels, as `CRFTagger.fit` takes them; called a few
            times, and has to give the same each time.
        folder: that does not exist yet, or is empty; it appears when it is complete.
        templates: as in `CRFTagger`.
        cutoff: as in `CRFTagger`.
        shard_tokens: a shard has so many tokens, or a few more: its last sentence is whole.
        classes: as in `CRFTagger`.

    Returns:
        The folder.

    Raises:
        ValueError: for a folder that has something in it, and for sentences or labels that
            `CRFTagger.fit` would refuse.

    Cost: three passes over the corpus; memory for a shard and the vocabulary.

    Example:
        >>> import tempfile
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(
        ...         lambda: corpus, place + "/s", templates=["word[0]"], shard_tokens=2)
        ...     sorted(file.name for file in folder.iterdir())[:2]
        ['index.json', 'shard-00000.safetensors']
    """
    place = Path(folder).absolute()
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens: expected 1 or more, got {shard_tokens}")
    check_classes(classes)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{folder}: expected nothing there, or an empty folder")
    if templates is None:
        templates = None if tokens_are_attributes(s for s, _ in read()) else GENERAL
    new_extractor = partial(DictExtractor, cutoff=cutoff)
    if templates is not None:
        new_extractor = partial(TemplateExtractor, templates, cutoff=cutoff)
    with replacing_folder(place) as new:
        _Writer(lambda: _parts(read(), shard_tokens), new, new_extractor, classes).write()
    return place


def _parts(corpus: Iterable[Labelled], tokens: int) -> Iterator[list[Labelled]]:
    """Lists of sentences with so many tokens."""
    part: list[Labelled] = []
    size = 0
    for sentence, labels in corpus:
        labels = list(labels)
        part.append((sentence, labels))
        size += max(1, len(labels))
        if size >= tokens:
            yield part
            part, size = [], 0
    if part:
        yield part


class _Writer:
    """The passes over a corpus, and what they gather for the index."""

    def __init__(
        self,
        read: Callable[[], Iterator[list[Labelled]]],
        folder: Path,
        new_extractor: Callable[[], FeatureExtractor],
        classes: Collection[str] | None,
    ):
        self._read, self._folder, self._new_extractor = read, folder, new_extractor
        self._every = classes
        self._passes, self._longest = 0, 1
        self._labels: list[Sequence[Label]] = []  # of the part at hand
        self._seen: set[str] = set()
        self._classes: list[str] = []
        self._vocabulary = ""
        self._shards: dict[int, ShardFile] = {}
        self._columns, self._weighted, self._partial = 1, False, False

    def write(self) -> None:
        """All files."""
        extractor = learn_in_passes(self._new_extractor, self._sentences, self._write_shard)
        meta, arrays = extractor.state()
        if meta["cutoff"] > 1 and not extractor.attribute_count + extractor.edge_attribute_count:
            raise ValueError(
                f"cutoff: expected one that leaves some attributes, got {meta['cutoff']}, which no "
                "attribute occurs as often as"
            )
        _, sha256 = _write_arrays(self._folder / VOCABULARY, arrays, self._vocabulary)
        index = ShardIndex(
            classes=self._classes,
            attributes=extractor.attribute_count,
            edge_attributes=extractor.edge_attribute_count,
            columns=self._columns,
            longest=self._longest,
            width=max(NARROWEST, self._longest),
            weighted=self._weighted,
            partial=self._partial,
            features=meta,
            vocabulary=self._vocabulary,
            vocabulary_sha256=sha256,
            shards=[self._shards[number] for number in sorted(self._shards)],
        )
        _write_index(self._folder, index)

    def _sentences(self) -> Iterator[list[Any]]:
        """The corpus part by part; the labels of the one at hand are kept aside."""
        self._passes += 1
        for part in self._read():
            self._labels = [labels for _, labels in part]
            if self._passes == 1:
                lengths = np.array([len(labels) for labels in self._labels])
                self._longest = max(self._longest, int(lengths.max(initial=0)))
                flat = [label for labels in self._labels for label in labels]
                if any(label is not None for label in flat):
                    self._seen.update(find_classes(flat, lengths, classes=self._every))
            yield [sentence for sentence, _ in part]
        self._classes = sorted(self._seen)

    def _write_shard(
        self, number: int, extractor: FeatureExtractor, features: TokenFeatures
    ) -> None:
        if not self._classes:
            raise ValueError("corpus: expected at least one token with a label, got none")
        if number == 0:  # the vocabulary is the same for all parts of a pass
            self._vocabulary = _state_digest(*extractor.state())
        flat = check_labels(self._labels, features.lengths)
        labels: EncodedLabels = encode_labels(flat, self._classes, features.lengths)
        features = without_gaps(features)
        arrays = {
            "ids": features.ids,
            "lengths": features.lengths,
            "gold": labels.gold,
            "values": features.values,
            "edge_ids": features.edge_ids,
            "allowed": labels.allowed,
        }
        arrays = {name: array for name, array in arrays.items() if array is not None}
        self._columns = max(self._columns, features.ids.shape[1])
        self._weighted |= features.values is not None
        self._partial |= labels.allowed is not None
        width = max(NARROWEST, self._longest)
        rows = max(pack_lengths(features.lengths.tolist(), width)[0], default=0) + 1
        name = f"shard-{number:05d}.safetensors"
        size, sha256 = _write_arrays(self._folder / name, arrays, self._vocabulary)
        counts = (len(features.lengths), len(labels.gold), rows, size)
        self._shards[number] = ShardFile(name, *counts, sha256)
