"""From a labelled corpus of any size to featurised shards on disk."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxseq.crf import EncodedLabels, without_gaps
from jaxseq.lattice import pack_lengths
from jaxseq.shards._files import (
    VOCABULARY,
    ShardFile,
    ShardIndex,
    state_digest,
    write_arrays,
    write_index,
)
from jaxseq.taggers import Label, check_labels, encode_labels, find_classes
from jaxseq.text import (
    DictExtractor,
    FeatureExtractor,
    SharedCorpus,
    TemplateExtractor,
    Templates,
    TokenFeatures,
    sum_counts,
)

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
    """Learn the vocabulary of a corpus in parts, and hand over the attributes of each.

    Args:
        new_extractor: makes an extractor without a vocabulary.
        read_parts: gives the parts anew, each a list of sentences, in the same order every time.
        use: called with the number of a part, the extractor and the part's attributes; where a
            further pass is needed, the same numbers come again, with what is right.

    Returns:
        An extractor with the vocabulary of the whole, the one that `fit_transform` of all
        sentences at once would have learnt.

    Raises:
        ValueError: for a corpus without a part, or one that changes while it is read.

    Cost: three passes over the corpus; memory for one part and for the vocabulary.

    Example:
        >>> from jaxseq.text import TemplateExtractor
        >>> parts = [[["the", "dog"]], [["a", "dog"]]]
        >>> ids = {}
        >>> extractor = learn_in_passes(
        ...     lambda: TemplateExtractor(["word[0]"]),
        ...     lambda: parts,
        ...     lambda number, _, features: ids.update({number: features.ids.tolist()}),
        ... )
        >>> ids[1], extractor.attribute_names()
        ([[2], [1]], ['word[0]=the', 'word[0]=dog', 'word[0]=a'])
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
) -> Path:
    """Featurise a labelled corpus part by part, and write it to a folder of shards.

    The numbers of attributes are those that `CRFTagger.fit` would give them on the whole corpus.

    Args:
        read: gives the sentences with their labels, as `CRFTagger.fit` takes them; called three
            times, and has to give the same each time.
        folder: that does not exist yet, or is empty; it appears when it is complete.
        templates: as in `CRFTagger`.
        cutoff: as in `CRFTagger`.
        shard_tokens: a shard has so many tokens, or a few more: its last sentence is whole.

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
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{folder}: expected nothing there, or an empty folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        new = temporary / "new"
        new.mkdir(mode=0o755)
        _Writer(read, new, templates, cutoff, shard_tokens).write()
        os.replace(new, place)  # in one step, also onto an empty folder
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
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

    def __init__(self, read, folder: Path, templates: Any, cutoff: int, shard_tokens: int):
        self._read, self._folder, self._tokens = read, folder, shard_tokens
        self._templates, self._cutoff = templates, cutoff
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
        _, sha256 = write_arrays(self._folder / VOCABULARY, arrays, self._vocabulary)
        index = ShardIndex(
            classes=self._classes,
            attributes=extractor.attribute_count,
            edge_attributes=extractor.edge_attribute_count,
            columns=self._columns,
            longest=self._longest,
            width=self._width,
            weighted=self._weighted,
            partial=self._partial,
            features=meta,
            vocabulary=self._vocabulary,
            vocabulary_sha256=sha256,
            shards=[self._shards[number] for number in sorted(self._shards)],
        )
        write_index(self._folder, index)

    @property
    def _width(self) -> int:
        return max(NARROWEST, self._longest)

    def _new_extractor(self) -> FeatureExtractor:
        if self._templates is None:
            return DictExtractor(cutoff=self._cutoff)
        return TemplateExtractor(self._templates, cutoff=self._cutoff)

    def _sentences(self) -> Iterator[list[Any]]:
        """The corpus part by part; the labels of the one at hand are kept aside."""
        self._passes += 1
        for part in _parts(self._read(), self._tokens):
            self._labels = [labels for _, labels in part]
            if self._passes == 1:
                lengths = np.array([len(labels) for labels in self._labels])
                self._longest = max(self._longest, int(lengths.max(initial=0)))
                flat = [label for labels in self._labels for label in labels]
                if any(label is not None for label in flat):
                    self._seen.update(find_classes(flat, lengths))
            yield [sentence for sentence, _ in part]
        self._classes = sorted(self._seen)

    def _write_shard(
        self, number: int, extractor: FeatureExtractor, features: TokenFeatures
    ) -> None:
        if not self._classes:
            raise ValueError("corpus: expected at least one token with a label, got none")
        if number == 0:  # the vocabulary is the same for all parts of a pass
            if self._cutoff > 1 and not extractor.attribute_count + extractor.edge_attribute_count:
                raise ValueError(
                    f"cutoff: expected one that leaves some attributes, got {self._cutoff}, which "
                    "no attribute occurs as often as"
                )
            self._vocabulary = state_digest(*extractor.state())
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
        rows = max(pack_lengths(features.lengths.tolist(), self._width)[0], default=0) + 1
        name = f"shard-{number:05d}.safetensors"
        size, sha256 = write_arrays(self._folder / name, arrays, self._vocabulary)
        counts = (len(features.lengths), len(labels.gold), rows, size)
        self._shards[number] = ShardFile(name, *counts, sha256)
