"""Columns of a corpus: all its sentences' strings, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from jaxseq.text._sentence import Sentence

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
