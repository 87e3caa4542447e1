"""One vocabulary for a corpus that is read part by part, because it does not fit into memory.

The numbers of strings and attributes are those that the whole corpus would have been given at
once. An extractor asks for two things of the whole: the order of its strings, and how often each
combination of them occurs. Both are gathered in passes over the parts: the strings in the first,
which the second needs to count combinations. A third gives the attributes of every part, and
gathers everything once more: where nothing has changed, they are the right ones. (It changes only
where combinations are so many that they are numbered in steps, each of which needs a pass.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxseq.text import FeatureExtractor, TokenFeatures
from jaxseq.text._shared_corpus import MOST_TOKENS, SharedCorpus

MOST_PASSES = 20


@dataclass
class Ledger:
    """What the passes have gathered: one entry for every question that an extractor asks.

    strings: of each column, the time (sentence and place) at which a string first occurs.
    keys, counts: of each question for combinations, those seen, ascending, and how often.
    settled: the ledger of the pass before, whose answers are given; None in the first pass.
    """

    settled: Ledger | None = None
    strings: list[dict[str, int]] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)

    def same_as(self, other: Ledger | None) -> bool:
        """Whether two passes have gathered the same."""
        if other is None or self.strings != other.strings or len(self.keys) != len(other.keys):
            return False
        ours, theirs = (*self.keys, *self.counts), (*other.keys, *other.counts)
        return all(np.array_equal(one, two) for one, two in zip(ours, theirs))


@dataclass(frozen=True)
class _Part(SharedCorpus):
    """A part of the corpus, as an extractor sees it: its questions go to the ledger."""

    ledger: Ledger = field(default_factory=Ledger)
    asked: list[int] = field(default_factory=lambda: [0, 0])

    def order_strings(self, strings: list[str], sentence: np.ndarray, place: np.ndarray):
        """The strings of the whole corpus by first occurrence; in the first pass the part's."""
        ledger, number = self.ledger, self._next(0)
        if number == len(ledger.strings):
            ledger.strings.append({})
        earliest = ledger.strings[number]
        times = self.numbers[sentence].astype(np.int64) * MOST_TOKENS + place
        own = dict(zip(strings, times.tolist()))
        for string, time in own.items():
            earliest[string] = min(time, earliest.get(string, time))
        found = own if ledger.settled is None else ledger.settled.strings[number]
        strange = [string for string in strings if string not in found]
        if strange:
            raise ValueError(
                f"corpus: expected the same sentences in every pass, got {strange[0]!r:.40}, which "
                "was not there before"
            )
        return sorted(found, key=lambda string: (found[string], string))

    def merge_counts(self, keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and counts of the whole corpus; until strings are settled, those of the part."""
        ledger, number = self.ledger, self._next(1)
        if number == len(ledger.keys):
            ledger.keys.append(np.zeros(0, np.int64))
            ledger.counts.append(np.zeros(0, np.int64))
        every = np.concatenate([ledger.keys[number], keys])
        amounts = np.concatenate([ledger.counts[number], counts])
        distinct, inverse = np.unique(every, return_inverse=True)
        totals = np.zeros(len(distinct), np.int64)
        np.add.at(totals, inverse, amounts)
        ledger.keys[number], ledger.counts[number] = distinct, totals
        before = ledger.settled
        # Keys that were counted before the strings were settled are of another numbering.
        if before is None or before.settled is None:
            return keys, counts
        return before.keys[number], before.counts[number]

    def _next(self, kind: int) -> int:
        self.asked[kind] += 1
        return self.asked[kind] - 1


def pass_over(
    new_extractor: Callable[[], FeatureExtractor], parts: Iterable[list[Any]], ledger: Ledger
) -> Iterator[tuple[FeatureExtractor, TokenFeatures]]:
    """Of every part an extractor of the vocabulary settled so far, and the attributes by it."""
    first = 0
    for sentences in parts:
        extractor = new_extractor()
        numbers = np.arange(first, first + len(sentences))
        shared = _Part(lambda message: [message], numbers, ledger)
        yield extractor, extractor.fit_transform(sentences, shared)
        first += len(sentences)


def learn_in_passes(
    new_extractor: Callable[[], FeatureExtractor],
    read_parts: Callable[[], Iterable[list[Any]]],
    use: Callable[[int, FeatureExtractor, TokenFeatures], None],
) -> FeatureExtractor:
    """Learn the vocabulary of a corpus in parts, and hand over the attributes of each.

    Args:
        new_extractor: makes an extractor without a vocabulary.
        read_parts: gives the parts anew, each a list of sentences, in the same order every time.
        use: told the number of a part, the extractor and the part's attributes; where a further
            pass is needed, the same numbers come again, with what is right.

    Returns:
        An extractor with the vocabulary of the whole, the one that `fit_transform` of all
        sentences at once would have learnt.

    Raises:
        ValueError: for a corpus without a part, or one that changes while it is read.

    Cost: three passes over the corpus; memory for one part and for the vocabulary.

    Example:
        >>> from jaxseq.text import TemplateExtractor
        >>> parts = [[["the", "dog"]], [["a", "dog"]]]
        >>> found = {}
        >>> extractor = learn_in_passes(
        ...     lambda: TemplateExtractor(["word[0]"]),
        ...     lambda: parts,
        ...     lambda number, _, features: found.update({number: features}),
        ... )
        >>> found[1].ids.tolist(), extractor.attribute_names()
        ([[2], [1]], ['word[0]=the', 'word[0]=dog', 'word[0]=a'])
    """
    ledger: Ledger | None = None
    for number in range(MOST_PASSES):
        if ledger is not None and ledger.settled is not None:
            ledger.settled = Ledger()  # only that there was one is still asked for
        before, ledger = ledger, Ledger(ledger)
        extractor = None
        for place, (each, features) in enumerate(pass_over(new_extractor, read_parts(), ledger)):
            extractor = each
            if number >= 2:
                use(place, each, features)
        if extractor is None:
            raise ValueError("corpus: expected at least one sentence, got none")
        if number >= 2 and ledger.same_as(before):
            return extractor
    raise ValueError("corpus: expected the same sentences in every pass, got others")
