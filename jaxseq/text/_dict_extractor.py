"""Attributes that the user computes, in the convention of python-crfsuite."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxseq.text._features import FeatureExtractor, TokenFeatures
from jaxseq.text._sentence import Sentence
from jaxseq.text._template_extractor import TemplateExtractor
from jaxseq.text._vocabulary import SharedCorpus, StringTable

TABLE = "attributes"  # the name of the vocabulary among the stored arrays
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


class DictExtractor(FeatureExtractor):
    """Attributes given token by token, as for python-crfsuite and sklearn-crfsuite.

    A sentence is a list of tokens. A token is a list, tuple or set of attribute names, or a dict
    from names to

    - a string: the attribute ``name:string``;
    - True: the attribute ``name``; False: nothing;
    - a number: the attribute ``name`` with that weight; 0 is nothing;
    - a list, tuple, set or dict: as a token, with ``name:`` before its names.

    The weights of an attribute that a token has twice are added. Attributes are numbered by
    first occurrence (a set's in alphabetical order); a row of ``ids`` is in ascending order,
    then padded with −1.

    Args:
        cutoff: attributes that fewer tokens have are left out.

    Example:
        >>> extractor = DictExtractor()
        >>> features = extractor.fit_transform([[{"w": "the", "long": 0.5}, ["w:the"]]])
        >>> features.ids.tolist(), features.values.tolist()
        ([[0, 1], [0, -1]], [[1.0, 0.5], [1.0, 0.0]])
        >>> extractor.attribute_names()
        ['w:the', 'long']
    """

    kind = "dicts"

    def __init__(self, cutoff: int = 1):
        super().__init__(cutoff)
        self._table = StringTable()

    def _extract(
        self, sentences: Iterable[Any], learn: bool, shared: SharedCorpus | None
    ) -> TokenFeatures:
        items = _Items(sentences)
        if not learn:
            return _rows(*items.merged(self._table.numbers(items.names)), items.lengths)
        table = StringTable()
        if shared is not None:
            shared.check(len(items.lengths))
            table.add(shared.order_strings(*items.first_occurrences()))
        tokens, ids, weights = items.merged(table.add(items.names))
        counts = np.bincount(ids, minlength=len(table))
        if shared is not None:
            counts = shared.merge_counts(np.arange(len(table)), counts)[1]
        kept = counts >= self._cutoff
        # Of those left out −1, of the others their place among those kept.
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        self._table = StringTable(
            string for string, keep in zip(table.strings, kept.tolist()) if keep
        )
        return _rows(tokens, numbers[ids], weights, items.lengths)

    def _counts(self) -> tuple[int, int]:
        return len(self._table), 0

    def _names(self, pairs: bool) -> list[str]:
        return [] if pairs else self._table.strings

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The cutoff; the attributes' names as UTF-8 with their ends."""
        self._require_fitted()
        return self._meta(), self._table.to_arrays(TABLE)

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> DictExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""
        cls._check_meta(meta)
        extractor = cls(meta["cutoff"])
        extractor._table = StringTable.from_arrays(arrays, TABLE)
        extractor._finish_state(arrays)
        return extractor


class _Items:
    """All attributes of all tokens in a row: names, weights, and how many each token has."""

    def __init__(self, sentences: Iterable[Any]):
        self.names: list[str] = []
        self._weights: list[float] = []
        counts: list[int] = []
        lengths: list[int] = []
        for index, sentence in enumerate(sentences):
            if isinstance(sentence, (str, bytes, Mapping)) or not isinstance(sentence, Iterable):
                raise ValueError(
                    f"sentence {index}: expected a list of tokens, found {sentence!r:.80}"
                )
            before = len(counts)
            for place, token in enumerate(sentence):
                first = len(self.names)
                try:
                    self._add("", token)
                except ValueError as error:
                    raise ValueError(f"sentence {index}, token {place}: {error}") from None
                counts.append(len(self.names) - first)
            lengths.append(len(counts) - before)
        self.lengths = np.array(lengths, np.int64)
        self._tokens = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))

    def first_occurrences(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The distinct names; of each the sentence where it first occurs, and its place there."""
        first = {name: place for place, name in reversed(list(enumerate(self.names)))}
        places = np.fromiter(first.values(), np.int64, len(first))
        sentence_of_token = np.repeat(np.arange(len(self.lengths)), self.lengths)
        sentence = sentence_of_token[self._tokens]
        starts = np.searchsorted(sentence, np.arange(len(self.lengths)))
        return list(first), sentence[places], places - starts[sentence[places]]

    def merged(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token, attribute and weight of each distinct pair, ascending; −1 left out."""
        weights = np.array(self._weights, np.float64)
        known = numbers >= 0
        width = int(numbers.max(initial=0)) + 1
        keys = self._tokens[known] * width + numbers[known]
        if (np.diff(keys) > 0).all():  # as when every token has its attributes in order
            distinct, weights = keys, weights[known]
        else:
            distinct, inverse = np.unique(keys, return_inverse=True)
            weights = np.bincount(inverse, weights[known], minlength=len(distinct))
        tokens, ids = np.divmod(distinct, width)
        if (np.abs(weights) > _LARGEST_WEIGHT).any():
            raise ValueError("weights: expected sums that float32 holds, found a larger one")
        return tokens, ids, weights

    def _add(self, prefix: str, item: Any) -> None:
        """Append the attributes of a token, or of a value nested in one."""
        if isinstance(item, Mapping):
            for name, value in item.items():
                if not isinstance(name, str):
                    raise ValueError(f"expected names that are strings, found {name!r:.80}")
                self._add_value(prefix + name, value)
            return
        if not isinstance(item, (list, tuple, set, frozenset)):
            raise ValueError(
                f"expected a list, tuple, set or dict of attributes, found {item!r:.80}"
            )
        for name in item:
            if not isinstance(name, str):
                raise ValueError(f"expected attributes that are strings, found {name!r:.80}")
        # The order of a set changes from run to run.
        names = sorted(item) if isinstance(item, (set, frozenset)) else item
        self.names += [prefix + name for name in names]
        self._weights += [1.0] * len(names)

    def _add_value(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            self.names.append(f"{name}:{value}")
            self._weights.append(1.0)
        elif isinstance(value, (bool, np.bool_, numbers.Real)):
            weight = _weight(name, value)
            if weight:
                self.names.append(name)
                self._weights.append(weight)
        elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
            self._add(f"{name}:", value)
        else:
            raise ValueError(
                f"attribute {name!r}: expected a string, a bool, a number, or a list, set or "
                f"dict of them, found {value!r:.80}"
            )


def _weight(name: str, value: Any) -> float:
    try:
        weight = float(value)
    except OverflowError:
        weight = math.inf
    if not abs(weight) <= _LARGEST_WEIGHT:  # also true of NaN
        raise ValueError(
            f"attribute {name!r}: expected a finite number that float32 holds, found {value!r:.80}"
        )
    return weight


def _rows(
    tokens: np.ndarray, ids: np.ndarray, weights: np.ndarray, lengths: np.ndarray
) -> TokenFeatures:
    """Ids and weights as rows, one per token; attributes of id −1 left out."""
    known = ids >= 0
    tokens, ids, weights = tokens[known], ids[known], weights[known]
    count = int(lengths.sum())
    per_token = np.bincount(tokens, minlength=count)
    starts = np.cumsum(per_token) - per_token
    column = np.arange(len(tokens)) - starts[tokens]  # tokens ascend, so that rows fill from left
    shape = (count, int(per_token.max(initial=0)))
    rows = np.full(shape, -1, np.int32)
    rows[tokens, column] = ids
    if (weights == 1).all():  # the common case needs no array of values
        return TokenFeatures(rows, None, lengths, None)
    values = np.zeros(shape, np.float32)
    values[tokens, column] = weights
    return TokenFeatures(rows, values, lengths, None)


def tokens_are_attributes(sentences: Iterable[Any]) -> bool:
    """Whether tokens come with their attributes, as for `DictExtractor`, or are words.

    The first token decides; sentences as columns have words. False where there is no token.

    Example:
        >>> tokens_are_attributes([[], [{"w": "the"}]]), tokens_are_attributes([["the", "dog"]])
        (True, False)
    """
    for sentence in sentences:
        if isinstance(sentence, str | bytes | Mapping | Sentence):
            return False
        if not isinstance(sentence, Sequence | np.ndarray):
            return True  # to look into an iterator would use it up
        if len(sentence):
            return not isinstance(sentence[0], str)
    return False


# Stored extractors of any kind.


_KINDS = {kind.kind: kind for kind in (TemplateExtractor, DictExtractor)}


def extractor_from_state(meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> FeatureExtractor:
    """The extractor that a `FeatureExtractor.state` describes, of whatever class it was.

    Args:
        meta: the first half of the state; ``meta["kind"]`` says which class it is.
        arrays: the second half.

    Returns:
        An extractor with its vocabulary, equal in all its answers to the one stored.

    Raises:
        ValueError: on a state that is not sound: types, shapes, order or ranges.

    Example:
        >>> extractor = TemplateExtractor(["word[0]"])
        >>> _ = extractor.fit_transform([["the", "dog"]])
        >>> extractor_from_state(*extractor.state()).transform([["dog"]]).ids.tolist()
        [[1]]
    """
    kind = meta.get("kind") if isinstance(meta, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"state, kind: expected one of {sorted(_KINDS)}, found {kind!r:.80}")
    return _KINDS[kind].from_state(meta, arrays)
