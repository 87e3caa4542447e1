"""Columns of a corpus: all its sentences' strings, one after the other."""

from __future__ import annotations

import io
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np

from jaxseq.text._sentence import Sentence

# -------------------------------------------------------------------------------------------------
# Attributes of the tokens of a corpus, as arrays.


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Integer attributes of every token of a corpus, its sentences one after the other.

    ids: int32 ``[N, K]``, the attributes of each token; −1 where there is none (it was not seen
        when the vocabulary was learnt, it was cut off, or the token has fewer than K).
    values: float32 ``[N, K]``, how much of each attribute; None when everything is 1.
    lengths: int64 ``[B]``, the number of tokens of each sentence, which may be 0; the sum is N.
    edge_ids: int32 ``[N, Ke]``, attributes of the pair of tokens (t−1, t), at token t, numbered
        apart from ``ids``; −1 throughout at the first token of a sentence, which has no pair.
        None when no template asks for them.

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
        _check("ids", self.ids, np.int32, 2)
        _check("lengths", self.lengths, np.int64, 1)
        tokens = int(self.lengths.sum())
        if len(self.ids) != tokens:
            raise ValueError(f"ids: expected one row a token, {tokens}, found {len(self.ids)}")
        if self.values is not None:
            _check("values", self.values, np.float32, 2)
            if self.values.shape != self.ids.shape:
                raise ValueError(
                    f"values: expected the shape of ids {self.ids.shape}, found {self.values.shape}"
                )
        if self.edge_ids is not None:
            _check("edge_ids", self.edge_ids, np.int32, 2)
            if len(self.edge_ids) != tokens:
                raise ValueError(
                    f"edge_ids: expected one row a token, {tokens}, found {len(self.edge_ids)}"
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
            if step == 1:
                ends = np.append(0, np.cumsum(self.lengths))
                tokens = slice(int(ends[start]), int(ends[max(start, stop)]))
                return self._taken(sentences, tokens)
            sentences = np.arange(start, stop, step)
        chosen = np.asarray(sentences)
        if chosen.dtype != np.bool_:
            chosen = chosen.astype(np.int64)  # an empty list would be float64
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


def _check(name: str, array: np.ndarray, dtype: type[np.generic], dimensions: int) -> None:
    if array.dtype != dtype or array.ndim != dimensions:
        raise ValueError(
            f"{name}: expected {dimensions} dimensions of {np.dtype(dtype)}, "
            f"found {array.ndim} of {array.dtype}"
        )


# -------------------------------------------------------------------------------------------------
# Checks of a stored extractor's state.


LARGEST_COUNT = int(np.iinfo(np.int32).max)


def check_cutoff(cutoff: Any) -> int:
    """A whole number from 1 on; ValueError otherwise.

    Example:
        >>> check_cutoff(2)
        2
    """
    whole = isinstance(cutoff, (int, np.integer)) and not isinstance(cutoff, bool)
    if not whole or not 1 <= cutoff <= LARGEST_COUNT:
        raise ValueError(f"cutoff: expected a whole number from 1 on, found {cutoff!r:.80}")
    return int(cutoff)


def check_meta(meta: Any, kind: str, keys: Iterable[str]) -> None:
    """ValueError unless it is a dict of the kind with exactly the keys, and of version 1.

    Example:
        >>> check_meta({"kind": "dicts", "version": 1, "cutoff": 2}, "dicts", ["cutoff"])
    """
    wanted = {"kind", "version", *keys}
    if not isinstance(meta, Mapping) or set(meta) != wanted:
        found = sorted(map(str, meta)) if isinstance(meta, Mapping) else repr(meta)[:80]
        raise ValueError(f"state: expected a dict of {sorted(wanted)}, found {found}")
    if meta["kind"] != kind:
        raise ValueError(f"state, kind: expected {kind!r}, found {meta['kind']!r:.80}")
    if type(meta["version"]) is not int or meta["version"] != 1:
        raise ValueError(f"state, version: expected 1, found {meta['version']!r:.80}")


def check_names(arrays: Any, names: Iterable[str]) -> None:
    """ValueError unless the arrays are a dict of exactly these names.

    Example:
        >>> check_names({"a": np.zeros(1)}, ["a"])
    """
    wanted = set(names)
    if not isinstance(arrays, Mapping) or set(arrays) != wanted:
        found = sorted(map(str, arrays)) if isinstance(arrays, Mapping) else repr(arrays)[:80]
        raise ValueError(f"state: expected the arrays {sorted(wanted)}, found {found}")


def take_array(arrays: Any, name: str, dtype: type[np.generic]) -> np.ndarray:
    """The array of that name, checked to be one-dimensional and of the dtype.

    Example:
        >>> take_array({"ends": np.array([1, 2])}, "ends", np.int64).tolist()
        [1, 2]
    """
    array = arrays.get(name) if isinstance(arrays, Mapping) else None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
        wanted = f"a one-dimensional array of {np.dtype(dtype)}"
        found = (
            f"{array.ndim} dimensions of {array.dtype}"
            if isinstance(array, np.ndarray)
            else f"{array!r:.80}"
        )
        raise ValueError(f"{name}: expected {wanted}, found {found}")
    return array


def check_ascending(name: str, keys: np.ndarray, size: int) -> None:
    """ValueError unless the keys ascend strictly within 0 … size − 1.

    Example:
        >>> check_ascending("keys", np.array([0, 2, 5]), 6)
    """
    if (keys[1:] <= keys[:-1]).any():
        raise ValueError(f"{name}: expected strictly ascending keys")
    if len(keys) and (keys[0] < 0 or keys[-1] >= size):
        raise ValueError(f"{name}: expected keys from 0 to {size - 1}, found {keys[[0, -1]]}")


# -------------------------------------------------------------------------------------------------
# Tables of strings: each distinct string has a number.


# Lone surrogates are legal in Python's strings (files read with "surrogateescape" have them).
_UTF8 = ("utf-8", "surrogatepass")


class StringTable:
    """Distinct strings, numbered from 0 in the order in which they were added.

    Example:
        >>> table = StringTable(["the", "dog"])
        >>> table.numbers(["dog", "cat", None]).tolist(), len(table)
        ([1, -1, -1], 2)
        >>> table.add(["the", "cat", None]).tolist(), table.strings
        ([0, 2, -1], ['the', 'dog', 'cat'])
    """

    def __init__(self, strings: Iterable[str] = ()):
        self._numbers: dict[str, int] = {}
        self.add(list(strings))

    @property
    def strings(self) -> list[str]:
        """The strings in the order of their numbers."""
        return list(self._numbers)

    def add(self, strings: Sequence[str | None]) -> np.ndarray:
        """Number of each string, new ones joining the table; None has −1."""
        table = self._numbers
        for string in dict.fromkeys(strings):
            if string is not None and string not in table:
                table[string] = len(table)
        return self.numbers(strings)

    def numbers(self, strings: Sequence[str | None]) -> np.ndarray:
        """Number of each string; −1 for None and for strings that are not in the table."""
        known = cast("dict[str | None, int]", self._numbers)
        return np.fromiter((known.get(string, -1) for string in strings), np.int64, len(strings))

    def __len__(self) -> int:
        return len(self._numbers)

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Two arrays: all strings as UTF-8 in a row, and where each of them ends.

        Example:
            >>> arrays = StringTable(["the", "dog"]).to_arrays("words")
            >>> {key: array.tolist() for key, array in arrays.items()}["words.ends"]
            [3, 6]
        """
        encoded = [string.encode(*_UTF8) for string in self._numbers]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return {
            f"{name}.bytes": np.frombuffer(b"".join(encoded), np.uint8).copy(),
            f"{name}.ends": np.cumsum(lengths, dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], name: str) -> StringTable:
        """The table that `to_arrays` wrote; ValueError where the arrays are not of that form.

        Example:
            >>> StringTable.from_arrays(StringTable(["a", "ü"]).to_arrays("x"), "x").strings
            ['a', 'ü']
        """
        data = take_array(arrays, f"{name}.bytes", np.uint8).tobytes()
        ends = take_array(arrays, f"{name}.ends", np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends])
        if (starts[1:] < starts[:-1]).any() or starts[-1] != len(data):
            raise ValueError(f"{name}.ends: expected ascending ends up to {len(data)}")
        try:
            strings = [
                data[start:end].decode(*_UTF8)
                for start, end in zip(starts[:-1].tolist(), ends.tolist())
            ]
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}.bytes: expected strings in UTF-8 ({error})") from None
        table = cls(strings)
        if len(table) != len(strings):
            raise ValueError(f"{name}: expected {len(strings)} different strings, found fewer")
        return table


ONLY_COLUMN = "word"


@dataclass(frozen=True)
class Column:
    """One column of a corpus: its distinct strings, and which of them each token has.

    Example:
        >>> column = Column.of(["the", "dog", "the"])
        >>> column.strings, column.codes.tolist()
        (['the', 'dog'], [0, 1, 0])
    """

    strings: list[str]
    codes: np.ndarray

    @classmethod
    def of(cls, cells: list[str]) -> Column:
        """The column of these cells; distinct strings in the order of first occurrence."""
        places: dict[str, int] = dict.fromkeys(cells, 0)
        for place, string in enumerate(places):
            places[string] = place
        codes = np.fromiter(map(places.__getitem__, cells), np.int64, len(cells))
        return cls(list(places), codes)


def read_corpus(
    sentences: Iterable[Any], wanted: Sequence[str]
) -> tuple[dict[str, Column], np.ndarray]:
    """The wanted columns of all sentences, one after the other, and the sentences' lengths.

    Args:
        sentences: each a `Sentence`, a mapping column → strings, or strings (column "word").
        wanted: names of the columns to read.

    Returns:
        Column by name, and lengths int64 ``[B]``.

    Raises:
        ValueError: naming the sentence, on a missing column, columns of different lengths, or a
            cell that is no string.

    Example:
        >>> columns, lengths = read_corpus([["the", "dog"], [], ["the"]], ["word"])
        >>> columns["word"].codes.tolist(), lengths.tolist()
        ([0, 1, 0], [2, 0, 1])
    """
    rows: dict[str, list[Sequence[Any]]] = {name: [] for name in wanted}
    lengths: list[int] = []
    for index, sentence in enumerate(sentences):
        columns = _columns_of(sentence, index)
        length = -1
        for name in wanted:
            if name not in columns:
                _fail_missing(columns, index, name)
            cells = columns[name]
            if length < 0:
                length = _length(cells, index, name)
            elif _length(cells, index, name) != length:
                raise ValueError(
                    f"sentence {index}: expected columns of equal length, found "
                    f"{wanted[0]!r} with {length} and {name!r} with {len(cells)}"
                )
            rows[name].append(cells)
        lengths.append(length if wanted else _any_length(sentence, columns))
    read = {name: _column(rows[name], name) for name in wanted}
    return read, np.array(lengths, np.int64)


def _columns_of(sentence: Any, index: int) -> Sentence | Mapping[str, Any]:
    if isinstance(sentence, (Sentence, Mapping)):
        return sentence
    if isinstance(sentence, np.ndarray) and sentence.ndim == 1:
        sentence = sentence.tolist()
    if isinstance(sentence, Sequence) and not isinstance(sentence, (str, bytes)):
        return {ONLY_COLUMN: sentence}
    raise ValueError(
        f"sentence {index}: expected a Sentence, a mapping column → strings, or a list of "
        f"strings, found {sentence!r:.80}"
    )


def _fail_missing(columns: Sentence | Mapping[str, Any], index: int, name: str) -> NoReturn:
    names = columns.columns if isinstance(columns, Sentence) else columns
    there = ", ".join(map(repr, names)) or "none"
    raise ValueError(f"sentence {index}: expected a column {name!r}, found the columns {there}")


def _length(cells: Any, index: int, name: str) -> int:
    if isinstance(cells, (str, bytes)) or not isinstance(cells, Sequence):
        raise ValueError(
            f"sentence {index}, column {name!r}: expected a list of strings, found {cells!r:.80}"
        )
    return len(cells)


def _any_length(sentence: Any, columns: Sentence | Mapping[str, Any]) -> int:
    """Number of tokens where the templates read no column at all."""
    if isinstance(columns, Mapping):
        return len(next(iter(columns.values()), ()))
    return len(sentence)


def _column(rows: list[Sequence[Any]], name: str) -> Column:
    cells = list(itertools.chain.from_iterable(rows))
    if not all(issubclass(kind, str) for kind in set(map(type, cells))):
        _fail_cell(rows, name)
    return Column.of(cells)


def _fail_cell(rows: list[Sequence[Any]], name: str) -> NoReturn:
    index, token, cell = next(
        (index, token, cell)
        for index, cells in enumerate(rows)
        for token, cell in enumerate(cells)
        if not isinstance(cell, str)
    )
    raise ValueError(
        f"sentence {index}, token {token}, column {name!r}: expected a string, found {cell!r:.80}"
    )


# -------------------------------------------------------------------------------------------------
# A corpus that several processes read, a part each, and one vocabulary for all of them.
#
# Numbers of strings and attributes are those that a single process would have given to the whole
# corpus: they depend on the order of its sentences, and not on who has read which.


MOST_TOKENS = 1 << 31
"""More than any sentence has."""


@dataclass(frozen=True)
class SharedCorpus:
    """The place of this process's sentences in the whole, and the way to the other processes.

    Args:
        gather: what every process sends (bytes), in one order for all, from what this one sends;
            all processes must be asked for the same in the same order.
        numbers: int64 [B], the place of each own sentence in the whole corpus.

    Example:
        >>> alone = SharedCorpus(lambda message: [message], np.array([0, 1]))
        >>> alone.merge_counts(np.array([3, 5]), np.array([1, 2]))[0].tolist()
        [3, 5]
    """

    gather: Callable[[bytes], list[bytes]]
    numbers: np.ndarray

    def check(self, sentences: int) -> None:
        """ValueError unless there is a number for every sentence."""
        if self.numbers.shape != (sentences,):
            raise ValueError(
                f"sentence_numbers: expected {sentences}, one a sentence, got "
                f"{list(self.numbers.shape)}"
            )

    def order_strings(
        self, strings: list[str], sentence: np.ndarray, place: np.ndarray
    ) -> list[str]:
        """The strings of all processes, in the order in which they first occur in the whole.

        Args:
            strings: the distinct strings of this process.
            sentence: of each, the (own) sentence where it first occurs. place: where in it.
        """
        first = self.numbers[sentence].astype(np.int64) * MOST_TOKENS + place
        arrays = StringTable(strings).to_arrays("s")
        earliest: dict[str, int] = {}
        for data, ends, times in self._exchange(arrays["s.bytes"], arrays["s.ends"], first):
            table = StringTable.from_arrays({"s.bytes": data, "s.ends": ends}, "s")
            for string, time in zip(table.strings, times.tolist()):
                earliest[string] = min(time, earliest.get(string, time))
        return sorted(earliest, key=lambda string: (earliest[string], string))

    def merge_counts(self, keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sorted keys of all processes, and how often each occurs in the whole."""
        found = self._exchange(keys, counts)
        everything = np.concatenate([part[0] for part in found])
        amounts = np.concatenate([part[1] for part in found])
        distinct, inverse = np.unique(everything, return_inverse=True)
        totals = np.zeros(len(distinct), np.int64)
        np.add.at(totals, inverse, amounts)
        return distinct, totals

    def share_column(self, column: Column, lengths: np.ndarray) -> Column:
        """The column with the strings of all processes, and the codes of the own tokens."""
        codes, first = np.unique(column.codes, return_index=True)
        ends = np.cumsum(lengths)
        sentence = np.searchsorted(ends, first, side="right")
        place = first - (ends - lengths)[sentence]
        strings = [column.strings[code] for code in codes.tolist()]
        together = self.order_strings(strings, sentence, place)
        numbers = {string: number for number, string in enumerate(together)}
        moved = np.array([numbers[string] for string in column.strings], np.int64)
        return Column(together, moved[column.codes])

    def _exchange(self, *arrays: np.ndarray) -> list[list[np.ndarray]]:
        file = io.BytesIO()
        np.savez(file, *arrays, allow_pickle=False)
        found = []
        for message in self.gather(file.getvalue()):
            with np.load(io.BytesIO(message), allow_pickle=False) as read:
                found.append([read[f"arr_{number}"] for number in range(len(arrays))])
        return found


# -------------------------------------------------------------------------------------------------
# What every feature extractor does.


class FeatureExtractor(ABC):
    """Turns sentences into integer attributes, with a vocabulary that is learnt once.

    `fit_transform` learns the vocabulary, after which it is frozen: `transform` gives −1 for
    what was not seen. The same sentences give the same numbers in every run. `state` and
    `from_state` store an extractor; `extractor_from_state` finds the class by itself.

    Example:
        >>> from jaxseq.text import TemplateExtractor
        >>> extractor = TemplateExtractor(["word[0]"])
        >>> extractor.fit_transform([["the", "dog"]]).ids.tolist()
        [[0], [1]]
        >>> extractor.transform([["the", "cat"]]).ids.tolist()
        [[0], [-1]]
    """

    @abstractmethod
    def fit_transform(
        self, sentences: Iterable[Any], shared: SharedCorpus | None = None
    ) -> TokenFeatures:
        """Learn the vocabulary of the sentences and give their attributes.

        With `shared`, the vocabulary is that of the whole corpus, of which these are a part.

        Raises ValueError when the extractor already has a vocabulary.
        """

    @abstractmethod
    def transform(self, sentences: Iterable[Any]) -> TokenFeatures:
        """Attributes of the sentences; −1 for those that are not in the vocabulary."""

    @property
    @abstractmethod
    def attribute_count(self) -> int:
        """Number of attributes; ids are 0 … attribute_count − 1."""

    @property
    @abstractmethod
    def edge_attribute_count(self) -> int:
        """Number of attributes of pairs of tokens, numbered apart."""

    @abstractmethod
    def attribute_names(self) -> list[str]:
        """Name of each attribute, by id; made when first asked for, and meant for reading."""

    @abstractmethod
    def edge_attribute_names(self) -> list[str]:
        """Name of each attribute of pairs of tokens, by id."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything needed to rebuild it: a dict that JSON can hold, and named arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> FeatureExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""


def require_fitted(fitted: bool) -> None:
    """ValueError unless there is a vocabulary.

    Example:
        >>> require_fitted(True)
    """
    if not fitted:
        raise ValueError("extractor: expected a learnt vocabulary; call fit_transform first")


def require_unfitted(fitted: bool) -> None:
    """ValueError if there is already a vocabulary.

    Example:
        >>> require_unfitted(False)
    """
    if fitted:
        raise ValueError(
            "extractor: its vocabulary is learnt and frozen; call transform, or make a new one"
        )
