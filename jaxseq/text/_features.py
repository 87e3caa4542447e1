"""Attributes of the tokens of a corpus, and what every extractor of them does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jaxseq.text._vocabulary import SharedCorpus

_ARRAYS = (
    ("ids", np.int32, 2),
    ("lengths", np.int64, 1),
    ("values", np.float32, 2),
    ("edge_ids", np.int32, 2),
)


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Integer attributes of every token of a corpus, its sentences one after the other.

    Args:
        ids: int32 ``[N, K]``, the attributes of each token; −1 where there is none (it was not
            seen when the vocabulary was learnt, it was cut off, or the token has fewer than K).
        values: float32 ``[N, K]``, how much of each attribute; None when everything is 1.
        lengths: int64 ``[B]``, the number of tokens of each sentence, which may be 0; N is the sum.
        edge_ids: int32 ``[N, Ke]``, attributes of the pair of tokens (t−1, t), at token t,
            numbered apart from ``ids``; −1 throughout at the first token of a sentence, which has
            no pair. None when no template asks for them.

    Example:
        >>> features = TokenFeatures(
        ...     ids=np.array([[0, 1], [2, -1]], np.int32),
        ...     values=None,
        ...     lengths=np.array([2]),
        ...     edge_ids=None,
        ... )
        >>> len(features.ids), int(features.lengths.sum())
        (2, 2)
    """

    ids: np.ndarray
    values: np.ndarray | None
    lengths: np.ndarray
    edge_ids: np.ndarray | None

    def __post_init__(self) -> None:
        for name, dtype, dimensions in _ARRAYS:
            array = getattr(self, name)
            if array is not None and (array.dtype != dtype or array.ndim != dimensions):
                raise ValueError(
                    f"{name}: expected {dimensions} dimensions of {np.dtype(dtype)}, "
                    f"found {array.ndim} of {array.dtype}"
                )
        tokens = int(self.lengths.sum())
        for name in ("ids", "edge_ids"):
            array = getattr(self, name)
            if array is not None and len(array) != tokens:
                raise ValueError(
                    f"{name}: expected one row per token, {tokens}, found {len(array)}"
                )
        if self.values is not None and self.values.shape != self.ids.shape:
            raise ValueError(
                f"values: expected the shape of ids {self.ids.shape}, found {self.values.shape}"
            )

    def take(self, sentences: slice | Sequence[int] | np.ndarray) -> TokenFeatures:
        """The features of some of the sentences, in the order asked for.

        Args:
            sentences: their numbers, in any order and as often as wanted; or a bool ``[B]``; or a
                slice, of which a contiguous one gives views and copies nothing.

        Returns:
            Features of as many columns as these have. Cost: O(tokens taken).

        Example:
            >>> ids = np.array([[0], [1], [2]], np.int32)
            >>> features = TokenFeatures(ids, None, np.array([1, 2]), None)
            >>> features.take([1, 0]).ids.tolist(), features.take(slice(1)).lengths.tolist()
            ([[1], [2], [0]], [1])
        """
        if isinstance(sentences, slice):
            start, stop, step = sentences.indices(len(self.lengths))
            # A memory-mapped corpus, or one as large as memory allows, is cut without a copy.
            if step == 1:
                ends = np.append(0, np.cumsum(self.lengths))
                tokens = slice(int(ends[start]), int(ends[max(start, stop)]))
                return self._taken(sentences, tokens)
            sentences = np.arange(start, stop, step)
        chosen = np.asarray(sentences)
        if chosen.dtype != np.bool_:
            chosen = chosen.astype(np.int64)  # an empty list is float64, which is no index
        return self._taken(chosen, token_rows(self.lengths, chosen))

    def _taken(self, sentences: Any, tokens: Any) -> TokenFeatures:
        """The features at an index of the sentences and the index of their tokens."""
        values = None if self.values is None else self.values[tokens]
        edge_ids = None if self.edge_ids is None else self.edge_ids[tokens]
        return TokenFeatures(self.ids[tokens], values, self.lengths[sentences], edge_ids)

    @classmethod
    def concatenate(cls, parts: Sequence[TokenFeatures]) -> TokenFeatures:
        """The sentences of several corpora, one corpus after the other, numbered alike.

        Narrower parts are filled up with −1. Where only some parts have values, the attributes of
        the others have 1; where only some have attributes of pairs, the others have −1.

        Args:
            parts: at least one.

        Returns:
            Features of as many columns as the widest part has.

        Raises:
            ValueError: for no part at all.

        Example:
            >>> one = TokenFeatures(np.array([[0]], np.int32), None, np.array([1]), None)
            >>> two = TokenFeatures(np.array([[1, 2]], np.int32), None, np.array([1]), None)
            >>> TokenFeatures.concatenate([one, two]).ids.tolist()
            [[0, -1], [1, 2]]
        """
        if not parts:
            raise ValueError("parts: expected at least one, got none")
        values, edge_ids = None, None
        if any(part.values is not None for part in parts):
            # Values of absent attributes are 0, as extractors have them.
            ones = ((part.ids >= 0).astype(np.float32) for part in parts)
            values = _stack(
                [one if part.values is None else part.values for part, one in zip(parts, ones)], 0
            )
        if any(part.edge_ids is not None for part in parts):
            edge_ids = _stack(
                [part.ids[:, :0] if part.edge_ids is None else part.edge_ids for part in parts], -1
            )
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(_stack([part.ids for part in parts], -1), values, lengths, edge_ids)


def token_rows(lengths: np.ndarray, sentences: np.ndarray) -> np.ndarray:
    """The rows of the tokens of some sentences, in a corpus that has its tokens in a row.

    Args:
        lengths: the number of tokens of each sentence, ``[B]``.
        sentences: numbers of sentences, or a bool ``[B]``.

    Returns:
        int64, as many as the sentences have tokens.

    Example:
        >>> token_rows(np.array([2, 3, 1]), np.array([2, 0])).tolist()
        [5, 0, 1]
    """
    lengths = lengths.astype(np.int64)
    starts, counts = (np.cumsum(lengths) - lengths)[sentences], lengths[sentences]
    # Tokens already taken before each sentence: its k-th token is row starts + k, and k is the
    # place in the result less these.
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def _stack(arrays: list[np.ndarray], fill: int) -> np.ndarray:
    """Arrays below each other, the narrower ones filled up at the right."""
    widths = [array.shape[1] for array in arrays]
    if len(set(widths)) == 1:
        return np.concatenate(arrays)
    stacked = np.full((sum(map(len, arrays)), max(widths)), fill, arrays[0].dtype)
    first = 0
    for array, width in zip(arrays, widths):
        stacked[first : first + len(array), :width] = array
        first += len(array)
    return stacked


# What every feature extractor does.

LARGEST_COUNT = int(np.iinfo(np.int32).max)  # ids are int32


class FeatureExtractor(ABC):
    """Turns sentences into integer attributes, with a vocabulary that is learnt once.

    `fit_transform` learns the vocabulary, after which it is frozen: `transform` gives −1 for
    what was not seen. The same sentences give the same numbers in every run. `state` and
    `from_state` store an extractor; `extractor_from_state` finds the class by itself.

    A class of its own has a `kind`, its name in stored models, and says how features are extracted.

    Args:
        cutoff: attributes that occur fewer times in the corpus are left out.

    Example:
        >>> from jaxseq.text import TemplateExtractor
        >>> extractor = TemplateExtractor(["word[0]"])
        >>> extractor.fit_transform([["the", "dog"]]).ids.tolist()
        [[0], [1]]
        >>> extractor.transform([["the", "cat"]]).ids.tolist()
        [[0], [-1]]
    """

    kind: ClassVar[str]

    def __init__(self, cutoff: int = 1):
        self._cutoff = _check_cutoff(cutoff)
        self._fitted = False

    @property
    def cutoff(self) -> int:
        """Attributes that occurred fewer times were left out."""
        return self._cutoff

    def fit_transform(
        self, sentences: Iterable[Any], shared: SharedCorpus | None = None
    ) -> TokenFeatures:
        """Learn the vocabulary of the sentences and give their attributes.

        With `shared`, the vocabulary is that of the whole corpus, of which these are a part.

        Raises ValueError when the extractor already has a vocabulary.
        """
        if self._fitted:
            raise ValueError(
                "extractor: its vocabulary is learnt and frozen; call transform, or make a new one"
            )
        features = self._extract(sentences, True, shared)
        self._fitted = True  # only now: sentences that are refused leave it without a vocabulary
        return features

    def transform(self, sentences: Iterable[Any]) -> TokenFeatures:
        """Attributes of the sentences; −1 for those that are not in the vocabulary."""
        self._require_fitted()
        return self._extract(sentences, False, None)

    def _require_fitted(self) -> None:
        if not self._fitted:
            raise ValueError("extractor: expected a learnt vocabulary; call fit_transform first")

    @abstractmethod
    def _extract(
        self, sentences: Iterable[Any], learn: bool, shared: SharedCorpus | None
    ) -> TokenFeatures:
        """Attributes of the sentences, and if `learn` the vocabulary, which is empty before."""

    @abstractmethod
    def _counts(self) -> tuple[int, int]:
        """Number of attributes of tokens, and of pairs of tokens."""

    @abstractmethod
    def _names(self, pairs: bool) -> list[str]:
        """Name of each attribute of tokens, or of pairs of tokens."""

    @property
    def attribute_count(self) -> int:
        """Number of attributes; ids are 0 … attribute_count − 1."""
        self._require_fitted()
        return self._counts()[0]

    @property
    def edge_attribute_count(self) -> int:
        """Number of attributes of pairs of tokens, numbered apart."""
        self._require_fitted()
        return self._counts()[1]

    def attribute_names(self) -> list[str]:
        """Name of each attribute, by id; made when first asked for, and meant for reading."""
        self._require_fitted()
        return list(self._names(pairs=False))

    def edge_attribute_names(self) -> list[str]:
        """Name of each attribute of pairs of tokens, by id."""
        self._require_fitted()
        return list(self._names(pairs=True))

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything needed to rebuild it: a dict that JSON can hold, and named arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> FeatureExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""

    def _meta(self, **more: Any) -> dict[str, Any]:
        """The first half of `state`."""
        return {"kind": self.kind, "version": 1, "cutoff": self._cutoff, **more}

    @classmethod
    def _check_meta(cls, meta: Any, *more: str) -> None:
        """ValueError unless it has the keys of `_meta`, and is of this kind and version."""
        _check_keys(meta, {"kind", "version", "cutoff", *more}, "a dict of")
        if meta["kind"] != cls.kind:
            raise ValueError(f"state, kind: expected {cls.kind!r}, found {meta['kind']!r:.80}")
        if type(meta["version"]) is not int or meta["version"] != 1:
            raise ValueError(f"state, version: expected 1, found {meta['version']!r:.80}")
        _check_cutoff(meta["cutoff"])

    def _finish_state(self, arrays: Any) -> None:
        """Take the vocabulary that was read for learnt; ValueError for arrays beyond it."""
        self._fitted = True
        # What this state would be written as has all names that may be there, and no others.
        _check_keys(arrays, set(self.state()[1]), "the arrays")


def _check_cutoff(cutoff: Any) -> int:
    # True is an int of Python's, and no number of times; NumPy's integers come from searches.
    is_whole = isinstance(cutoff, (int, np.integer)) and not isinstance(cutoff, bool)
    if not is_whole or not 1 <= cutoff <= LARGEST_COUNT:
        raise ValueError(f"cutoff: expected a whole number from 1 on, found {cutoff!r:.80}")
    return int(cutoff)


def _check_keys(value: Any, wanted: set[str], what: str) -> None:
    if not isinstance(value, Mapping) or set(value) != wanted:
        actual = sorted(map(str, value)) if isinstance(value, Mapping) else repr(value)[:80]
        raise ValueError(f"state: expected {what} {sorted(wanted)}, found {actual}")
