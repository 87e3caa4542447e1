"""A corpus that several processes read, a part each, and one vocabulary for all of them.

Numbers of strings and attributes are those that a single process would have given to the whole
corpus: they depend on the order of its sentences, and not on who has read which.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxseq.text._extractor_corpus import Column
from jaxseq.text._vocabulary import StringTable

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
