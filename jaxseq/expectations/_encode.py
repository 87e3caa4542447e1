r"""Expectations as arrays: where each one looks, and how shares follow from expected counts.

The model is asked for expected counts of labels where a predicate holds, T[p, j], and of
transitions, T[q, i, j]. Shares are linear in them, so that one sparse matrix M makes the shares of
all expectations, and its transpose turns slopes by the shares into values of labels:

.. math:: v = M T, \qquad g(y) = \sum_t (M^\top c)[p_t, y_t] + (M^\top c)[q_t, y_{t-1}, y_t].
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxseq.expectations._expectation import ROUNDING, Expectation
from jaxseq.parallel import Devices
from jaxseq.text import DictExtractor, TemplateExtractor, Templates, TokenFeatures

ANY = "*"
ABSENT = -1


@dataclass(frozen=True)
class EncodedExpectations:
    """Expectations of a corpus, K of them, with at most C shares each.

    Attributes:
        predicates: ids [N, m], the predicates that hold at each token; edge_ids likewise at the
            second token of each pair, or None where all expectations of pairs are of all pairs.
        sizes: numbers of predicates of tokens, P, of pairs, Q, and of labels, s.
        rows: of M: the place of a share in [K, C].
        columns: of M: the place of a count, those of labels [P, s] before those of pairs [Q, s, s].
        coefficients: of M, in the order of rows and columns.
        least, most: of each share [K, C]; 0 where there is none.
        present: where there is a share [K, C].
        weights: of each expectation [K].
        squared: whether its penalty is "l2" [K].
    """

    predicates: TokenFeatures
    sizes: tuple[int, int, int]
    rows: np.ndarray
    columns: np.ndarray
    coefficients: np.ndarray
    least: np.ndarray
    most: np.ndarray
    present: np.ndarray
    weights: np.ndarray
    squared: np.ndarray

    def arrays(self) -> tuple[Any, ...]:
        """What says which they are, for fingerprints."""
        where = (self.predicates.ids, self.predicates.edge_ids, self.predicates.lengths)
        matrix = (self.rows, self.columns, self.coefficients)
        return (*where, *matrix, self.least, self.most, self.weights, self.squared, self.sizes)


def check_expectations(expectations: Any, name: str = "expectations") -> list[Expectation]:
    """The expectations in a list; ValueError for anything else."""
    if isinstance(expectations, Expectation) or not isinstance(expectations, Sequence):
        raise ValueError(f"{name}: expected a list of expectations, got {expectations!r:.60}")
    for index, each in enumerate(expectations):
        if not isinstance(each, Expectation):
            raise ValueError(f"{name}[{index}]: expected an Expectation, got {each!r:.60}")
    return list(expectations)


def encode_expectations(
    expectations: Sequence[Expectation],
    sentences: Sequence[Any],
    lengths: np.ndarray,
    classes: list[str],
    *,
    by_template: bool = True,
    devices: Devices | None = None,
) -> EncodedExpectations | None:
    """Expectations of a corpus as arrays; None if none of them applies anywhere.

    Args:
        expectations: those whose `when` holds nowhere are left out, with a warning.
        sentences: of this process.
        lengths: of the sentences.
        classes: the labels.
        by_template: whether attributes are of templates; else they come with the tokens.
        devices: the processes, if there are several.

    Raises:
        ValueError: for labels that there are not, and for expectations that contradict each other.
    """
    devices = devices or Devices.alone()
    events = [_read_events(each, classes, number) for number, each in enumerate(expectations)]
    _check_consistent(expectations)
    predicates = _Predicates(expectations, sentences, lengths, by_template)
    counted = devices.sum(predicates.counts())  # of tokens, pairs and sentences, by predicate
    building = _Matrix(len(classes), predicates)
    kept, unused = [], []
    for number, (each, by_event) in enumerate(zip(expectations, events)):
        pairs = any(event.pairs.any() for event in by_event)
        if each.per == "sentence":
            total = counted[2].max()
        else:
            total = counted[1 if pairs else 0, predicates.number(each.when)]
        if total == 0 or (each.when is not None and not counted[0, predicates.number(each.when)]):
            unused.append(each.describe())
            continue
        kept.append(number)
        building.add(each, by_event, int(total))
    if unused and devices.is_first:
        named = ", ".join(unused[:3]) + (", …" if len(unused) > 3 else "")
        warnings.warn(
            f"expectations: {len(unused)} of {len(expectations)} hold nowhere in the unlabelled "
            f"sentences and are left out: {named}",
            stacklevel=2,
        )
    return building.finish() if kept else None


# ------------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class _Event:
    """What is counted: labels [s] where they stand, labels [s] of first tokens, pairs [s, s]."""

    labels: np.ndarray
    first: np.ndarray
    pairs: np.ndarray

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.labels, self.first, self.pairs

    def overlaps(self, other: _Event) -> bool:
        return any(bool((a & b).any()) for a, b in zip(self.parts(), other.parts()))


def _read_events(expectation: Expectation, classes: list[str], number: int) -> list[_Event]:
    where = f"expectations[{number}]: targets"
    events = [_read_event(text, classes, where) for text in expectation.targets]
    if expectation.penalty == "l2":
        return events
    # A divergence is of a distribution: of labels or of transitions, none of them counted twice.
    of_labels = bool(events[0].labels.any())
    mixed = any(e.first.any() or bool(e.labels.any()) != of_labels for e in events)
    if mixed or any(a.overlaps(b) for i, a in enumerate(events) for b in events[:i]):
        raise ValueError(
            f"{where}: expected events of which one excludes the other, or the penalty 'l2', got "
            f"{list(expectation.targets)}"
        )
    labels, first, pairs = (np.any(parts, 0) for parts in zip(*map(_Event.parts, events)))
    rest = _Event(~labels & of_labels, first, ~pairs & (not of_labels))
    most = sum(high for _, high in expectation.ranges.values())
    if not (rest.labels.any() or rest.pairs.any()):
        if most < 1 - ROUNDING:
            raise ValueError(
                f"{where}: expected shares of all labels that may sum to 1, got at most {most:g}"
            )
        return events
    return [*events, rest]


def _read_event(text: str, classes: list[str], where: str) -> _Event:
    s = len(classes)
    labels, first, pairs = np.zeros(s, bool), np.zeros(s, bool), np.zeros((s, s), bool)

    def mask(name: str) -> np.ndarray:
        if name == ANY and name not in classes:
            return np.ones(s, bool)
        if name not in classes:
            raise ValueError(f"{where}: expected labels of {classes}, got {name!r:.60}")
        return np.array([name == each for each in classes])

    if text in classes:  # a label may look like anything
        labels = mask(text)
    elif text == "change":
        pairs = ~np.eye(s, dtype=bool)
    elif transition := re.fullmatch(r"(.+?)\s*->\s*(.+)", text):
        pairs = mask(transition[1])[:, None] & mask(transition[2])
    elif begin := re.fullmatch(r"begin\s+(.+)", text):
        first = mask(begin[1])
        pairs = ~first[:, None] & first
    else:
        # One of several labels, in any case of one.
        labels = np.any([mask(name) for name in re.split(r"\s+\|\s+", text)], 0)
    return _Event(labels, first, pairs)


def _check_consistent(expectations: Sequence[Expectation]) -> None:
    """ValueError for two that can never both be met."""
    known: dict[Any, tuple[float, float, int]] = {}
    for number, each in enumerate(expectations):
        for event, (low, high) in each.ranges.items():
            key = (each.when, each.per, event)
            least, most, other = known.get(key, (0.0, np.inf, number))
            both = max(least, low), min(most, high)
            exact = low == high and least == most  # two estimates of one share may differ
            if both[0] > both[1] and not exact:
                raise ValueError(
                    f"expectations[{number}]: expected a share of {event!r} that agrees with "
                    f"expectations[{other}], {least:g} to {most:g}, got {low:g} to {high:g}"
                )
            known[key] = (*both, number) if both[0] <= both[1] else (low, high, number)


# --------------------------------------------------------------------------------- predicates


class _Predicates:
    """Which of the conditions of some expectations hold at each token."""

    def __init__(
        self,
        expectations: Sequence[Expectation],
        sentences: Sequence[Any],
        lengths: np.ndarray,
        by_template: bool,
    ):
        self.lengths = np.asarray(lengths, np.int64)
        self._whens = list(dict.fromkeys([None, *(each.when for each in expectations)]))
        self._numbers = {when: number for number, when in enumerate(self._whens)}
        tokens = int(self.lengths.sum())
        columns = [np.zeros((tokens, 1), np.int32)]  # all tokens are number 0
        names = {when: n for when, n in self._numbers.items() if isinstance(when, str)}
        if names:
            columns.append(_find_attributes(names, sentences, by_template))
        for when, number in self._numbers.items():
            if callable(when):
                holds = _ask(when, sentences, self.lengths)
                columns.append(np.where(holds, number, ABSENT).astype(np.int32)[:, None])
        self.ids = np.concatenate(columns, 1)
        starts = (np.cumsum(self.lengths) - self.lengths)[self.lengths > 0]
        self.first = np.zeros(tokens, bool)
        self.first[starts] = True

    def __len__(self) -> int:
        return len(self._whens)

    def number(self, when: Any) -> int:
        return self._numbers[when]

    def counts(self) -> np.ndarray:
        """Tokens, pairs by their second token, and sentences, for each predicate [3, P]."""

        def count(ids: np.ndarray) -> np.ndarray:
            return np.bincount(ids[ids >= 0], minlength=len(self))

        sentences = np.full(len(self), self.first.sum())
        pairs = count(self.ids[~self.first])
        return np.stack([count(self.ids), pairs, sentences]).astype(np.int64)


def _find_attributes(
    names: dict[Any, int], sentences: Sequence[Any], by_template: bool
) -> np.ndarray:
    """The numbers of the attributes that each token has, among those that are asked for."""
    if by_template:
        templates = []
        for name in names:
            template, equals, _ = name.partition("=")
            if not equals:
                raise ValueError(
                    f"when: expected an attribute such as 'word[0]=pp', got {name!r:.60}"
                )
            templates.append(template)
        extractor: Any = TemplateExtractor(Templates(list(dict.fromkeys(templates))))
    else:
        extractor = DictExtractor()
    features = extractor.fit_transform(sentences)
    numbers = [names.get(name, ABSENT) for name in extractor.attribute_names()]
    # One more, so that −1, no attribute, stays what it is.
    return np.array([*numbers, ABSENT], np.int32)[features.ids]


def _ask(when: Any, sentences: Sequence[Any], lengths: np.ndarray) -> np.ndarray:
    """The answers of a function, for all tokens."""
    answers = [np.zeros(0, bool)]
    for index, (sentence, length) in enumerate(zip(sentences, lengths)):
        answer = np.asarray(list(when(sentence)), bool)
        if answer.shape != (length,):
            raise ValueError(
                f"when: expected {length} truth values, one per token, for unlabelled[{index}], "
                f"got {len(answer)}"
            )
        answers.append(answer)
    return np.concatenate(answers)


class _Matrix:
    """M, built share by share."""

    def __init__(self, labels: int, predicates: _Predicates):
        self._s, self._all = labels, predicates
        self._entries: list[tuple[int, int, str, tuple[int, ...], float]] = []
        self._kept: list[tuple[Expectation, int]] = []
        self._uses: dict[str, dict[int, int]] = {"tokens": {}, "pairs": {}}

    def add(self, expectation: Expectation, events: list[_Event], total: int) -> None:
        """One expectation of these events, whose counts are divided by the total."""
        row, when = len(self._kept), self._all.number(expectation.when)
        self._kept.append((expectation, len(events)))
        for column, event in enumerate(events):
            for (label,) in np.argwhere(event.labels):
                self._note(row, column, "tokens", when, (label,), 1 / total)
            for pair in np.argwhere(event.pairs):
                self._note(row, column, "pairs", when, tuple(pair), 1 / total)
            for (label,) in np.argwhere(event.first):
                self._note(row, column, "tokens", ~when, (label,), 1 / total)

    def _note(
        self, row: int, column: int, kind: str, predicate: int, labels: tuple, amount: float
    ) -> None:
        used = self._uses[kind]
        place = used.setdefault(predicate, len(used))
        self._entries.append((row, column, kind, (place, *map(int, labels)), amount))

    def finish(self) -> EncodedExpectations:
        """The arrays, with predicates that some expectation looks at numbered anew."""
        s, most_events = self._s, max(count for _, count in self._kept)
        tokens, pairs = self._uses["tokens"], self._uses["pairs"]
        shapes = {"tokens": (len(tokens), s), "pairs": (len(pairs), s, s)}
        first_pair = len(tokens) * s
        rows, columns, coefficients = [], [], []
        for row, column, kind, place, amount in self._entries:
            flat = int(np.ravel_multi_index(place, shapes[kind]))
            rows.append(row * most_events + column)
            columns.append(flat + (first_pair if kind == "pairs" else 0))
            coefficients.append(amount)
        bounds = np.zeros((2, len(self._kept), most_events))
        present = np.zeros(bounds.shape[1:], bool)
        for row, (expectation, count) in enumerate(self._kept):
            ranges = [*expectation.ranges.values()]
            if count > len(ranges):  # all other events, which take what is left
                left = 1 - sum(low for low, _ in ranges), 1 - sum(high for _, high in ranges)
                ranges.append((max(0.0, left[1]), max(0.0, left[0])))
            bounds[:, row, :count] = np.array(ranges).T
            present[row, :count] = True
        pair_ids = None if set(pairs) <= {0} else self._pair_ids(pairs)
        return EncodedExpectations(
            predicates=TokenFeatures(self._ids(tokens), None, self._all.lengths, pair_ids),
            sizes=(len(tokens), len(pairs), s),
            rows=np.array(rows, np.int32),
            columns=np.array(columns, np.int32),
            coefficients=np.array(coefficients),
            least=bounds[0],
            most=bounds[1],
            present=present,
            weights=np.array([each.weight for each, _ in self._kept], float),
            squared=np.array([each.penalty == "l2" for each, _ in self._kept]),
        )

    @cached_property
    def _at_first(self) -> np.ndarray:
        return np.where(self._all.first[:, None], self._all.ids, ABSENT)

    def _ids(self, used: dict[int, int]) -> np.ndarray:
        """Numbers of the predicates that are used; those of first tokens alone have ~number."""
        size, parts = len(self._all), []
        if any(number >= 0 for number in used):
            parts.append(_renumber(self._all.ids, used, size))
        if any(number < 0 for number in used):
            of_first = {~number: place for number, place in used.items() if number < 0}
            parts.append(_renumber(self._at_first, of_first, size))
        empty = np.full((len(self._all.ids), 1), ABSENT, np.int32)
        return _compact(np.concatenate(parts or [empty], 1))

    def _pair_ids(self, used: dict[int, int]) -> np.ndarray:
        ids = np.where(self._all.first[:, None], ABSENT, self._all.ids)
        return _compact(_renumber(ids, used, len(self._all)))


def _renumber(ids: np.ndarray, places: dict[int, int], size: int) -> np.ndarray:
    table = np.full(size + 1, ABSENT, np.int32)
    for number, place in places.items():
        if number >= 0:
            table[number] = place
    return table[ids]


def _compact(ids: np.ndarray) -> np.ndarray:
    """The same sets in as few columns as the fullest row needs."""
    width = max(1, int((ids >= 0).sum(1).max(initial=1)))
    return np.ascontiguousarray(-np.sort(-ids, 1)[:, :width])
