"""Vocabularies: strings, and combinations of strings, as numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, cast

import numpy as np

from jaxseq.text._sentence import Sentence

# Lone surrogates are legal in Python's strings (files read with "surrogateescape" have them).
_UTF8 = ("utf-8", "surrogatepass")


class StringTable:
    """Distinct strings, numbered from 0 in the order in which they were added."""

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
        for string in dict.fromkeys(strings):  # each once, in the order of first occurrence
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
        """Two arrays: all strings as UTF-8 in a row, and where each of them ends."""
        encoded = [string.encode(*_UTF8) for string in self._numbers]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return {
            f"{name}.bytes": np.frombuffer(b"".join(encoded), np.uint8).copy(),
            f"{name}.ends": np.cumsum(lengths, dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], name: str) -> StringTable:
        """The table that `to_arrays` wrote; ValueError where the arrays are not of that form."""
        data = take_array(arrays, f"{name}.bytes", np.uint8).tobytes()
        ends = take_array(arrays, f"{name}.ends", np.int64)
        bounds = [0, *ends.tolist()]
        if bounds != sorted(bounds) or bounds[-1] != len(data):
            raise ValueError(f"{name}.ends: expected ascending ends up to {len(data)}")
        try:
            strings = [data[start:end].decode(*_UTF8) for start, end in pairwise(bounds)]
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}.bytes: expected strings in UTF-8 ({error})") from None
        table = cls(strings)
        if len(table) != len(strings):  # numbers would no longer be places in the list
            raise ValueError(f"{name}: expected {len(strings)} different strings, found fewer")
        return table


ONLY_COLUMN = "word"


@dataclass(frozen=True)
class Column:
    """One column of a corpus: its distinct strings, and which of them each token has."""

    strings: list[str]
    codes: np.ndarray

    @classmethod
    def from_cells(cls, cells: list[str]) -> Column:
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

    A sentence is a `Sentence`, a mapping column → strings, or strings (column "word"). ValueError,
    naming the sentence, where that does not hold.
    """
    rows: dict[str, list[Sequence[Any]]] = {name: [] for name in wanted}
    lengths: list[int] = []
    for index, sentence in enumerate(sentences):
        columns = _as_columns(sentence, index)
        length = None
        for name in wanted:
            if name not in columns:
                names = columns.columns if isinstance(columns, Sentence) else columns
                listed = ", ".join(map(repr, names)) or "none"
                raise ValueError(
                    f"sentence {index}: expected a column {name!r}, found the columns {listed}"
                )
            cells = columns[name]
            if isinstance(cells, (str, bytes)) or not isinstance(cells, Sequence):
                raise ValueError(
                    f"sentence {index}, column {name!r}: expected a list of strings, "
                    f"found {cells!r:.80}"
                )
            length = len(cells) if length is None else length
            if len(cells) != length:
                raise ValueError(
                    f"sentence {index}: expected columns of equal length, found "
                    f"{wanted[0]!r} with {length} and {name!r} with {len(cells)}"
                )
            rows[name].append(cells)
        if length is None:  # templates such as "bias" read no column at all
            any_column = isinstance(columns, Mapping)
            length = len(next(iter(columns.values()), ())) if any_column else len(columns)
        lengths.append(length)
    return {name: _column(rows[name], name) for name in wanted}, np.array(lengths, np.int64)


def _as_columns(sentence: Any, index: int) -> Sentence | Mapping[str, Any]:
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


def _column(rows: list[Sequence[Any]], name: str) -> Column:
    cells = list(chain.from_iterable(rows))
    # The few types of cells are looked at, and not the millions of cells, unless one is wrong.
    if not all(issubclass(kind, str) for kind in set(map(type, cells))):
        index, token, cell = next(
            (index, token, cell)
            for index, row in enumerate(rows)
            for token, cell in enumerate(row)
            if not isinstance(cell, str)
        )
        raise ValueError(
            f"sentence {index}, token {token}, column {name!r}: expected a string, "
            f"found {cell!r:.80}"
        )
    return Column.from_cells(cells)


# A corpus that several processes read, a part each, and one vocabulary for all of them.
#
# Numbers of strings and attributes are those that a single process would have given to the whole
# corpus: they depend on the order of its sentences, and not on who has read which.

MAX_TOKENS = 1 << 31  # more than any sentence has


def sum_counts(parts: Sequence[Sequence[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of several (keys, counts), ascending, and the sum of the counts of each."""
    keys, counts = (np.concatenate(arrays) for arrays in zip(*parts))
    distinct, inverse = np.unique(keys, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, inverse, counts)  # not bincount with weights, which sums in float64
    return distinct, totals


@dataclass(frozen=True)
class SharedCorpus:
    """The place of this process's sentences in the whole, and the way to the other processes.

    Args:
        gather: the messages of all processes, in one order for all, from that of this one; all
            processes must call it equally often.
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
                f"sentence_numbers: expected {sentences}, one per sentence, got "
                f"{list(self.numbers.shape)}"
            )

    def order_strings(
        self, strings: list[str], sentence: np.ndarray, place: np.ndarray
    ) -> list[str]:
        """The strings of all processes, in the order in which they first occur in the whole.

        Of each distinct string here, `sentence` and `place` say where it first occurs.
        """
        first = self.times(sentence, place)
        arrays = StringTable(strings).to_arrays("s")  # pickles of strings would be executed
        earliest: dict[str, int] = {}
        for data, ends, times in self._exchange(arrays["s.bytes"], arrays["s.ends"], first):
            table = StringTable.from_arrays({"s.bytes": data, "s.ends": ends}, "s")
            for string, time in zip(table.strings, times.tolist()):
                earliest[string] = min(time, earliest.get(string, time))
        return sorted(earliest, key=lambda string: (earliest[string], string))

    def merge_counts(self, keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sorted keys of all processes, and how often each occurs in the whole."""
        return sum_counts(self._exchange(keys, counts))

    def times(self, sentence: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Numbers that order places in own sentences as they come in the whole corpus."""
        return self.numbers[sentence].astype(np.int64) * MAX_TOKENS + place

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
        received = []
        for message in self.gather(file.getvalue()):
            with np.load(io.BytesIO(message), allow_pickle=False) as read:
                received.append([read[f"arr_{number}"] for number in range(len(arrays))])
        return received


# Numbering of combinations: tuples of small numbers become one number each.

LARGEST_KEY = 2**62  # keys stay below it, so that no product leaves int64
DENSE_FACTOR = 8  # up to so many possible keys for each one present, a table of all beats sorting


class KeySpace:
    """The distinct tuples (a, b, …) with 0 ≤ a < size of the first, …, in ascending order.

    A tuple is folded into one int64 key from left to right, ``key * size + next``; its number is
    the place of the key among the sorted `keys`. Where a key would leave int64, the keys so far are
    first numbered by the distinct ones among them, which `steps` keeps.

    Example:
        >>> places = [np.array([0, 1, 0, -1]), np.array([2, 2, 2, 1])]
        >>> space, numbers = KeySpace.learn([2, 3], np.zeros(4, int), places, cutoff=1)
        >>> numbers.tolist(), space.keys.tolist()
        ([0, 1, 0, -1], [2, 5])
    """

    def __init__(self, sizes: Sequence[int], steps: list[np.ndarray], keys: np.ndarray):
        self.sizes = tuple(sizes)
        self.steps = steps
        self.keys = keys

    @classmethod
    def learn(
        cls,
        sizes: Sequence[int],
        base: np.ndarray,
        places: Sequence[np.ndarray],
        cutoff: int,
        shared: SharedCorpus | None = None,
    ) -> tuple[KeySpace, np.ndarray]:
        """The space of the tuples that occur `cutoff` times or more, and each one's number or −1.

        `base` is 0 where there is a tuple and −1 where there is nothing, `places` the values; with
        `shared`, the space holds the tuples of other processes, too. O(n log n).
        """
        space = cls(sizes, [], np.zeros(0, np.int64))
        keys, size = space._fold(base, places, learn=True, shared=shared)
        space.keys, numbers = _number(keys, size, cutoff, shared)
        return space, numbers

    def find(self, base: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
        """Number of each tuple, −1 for those not in the space."""
        keys, size = self._fold(base, places, learn=False)
        return _find(self.keys, keys, size)

    def tuples(self) -> list[np.ndarray]:
        """The tuples of the space in order, as one array per place."""
        plan = self._plan()
        keys, places = self.keys, []
        for size, step in zip(reversed(self.sizes), reversed(plan)):
            keys, place = np.divmod(keys, size)
            places.append(place)
            if step is not None:
                keys = self.steps[step][keys]
        return places[::-1]

    def __len__(self) -> int:
        return len(self.keys)

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays that, with the sizes, make the space again."""
        steps = {f"{name}.step{i}": step for i, step in enumerate(self.steps)}
        return {f"{name}.keys": self.keys, **steps}

    @classmethod
    def from_arrays(cls, sizes: Sequence[int], arrays: Mapping[str, Any], name: str) -> KeySpace:
        """The space that `to_arrays` wrote; ValueError where the arrays do not fit the sizes."""
        space = cls(sizes, [], take_array(arrays, f"{name}.keys", np.int64))
        reach = 1
        for size in space.sizes:
            if reach * size > LARGEST_KEY:
                step_name = f"{name}.step{len(space.steps)}"
                step = take_array(arrays, step_name, np.int64)
                check_ascending(step_name, step, reach)
                space.steps.append(step)
                reach = len(step)
            reach *= size
        check_ascending(f"{name}.keys", space.keys, reach)
        return space

    def _plan(self) -> list[int | None]:
        """For each place, the numbering (index into ``steps``) that comes before it, if any."""
        plan: list[int | None] = []
        reach, done = 1, 0
        for size in self.sizes:
            numbered = reach * size > LARGEST_KEY
            plan.append(done if numbered else None)
            reach = (len(self.steps[done]) if numbered else reach) * size
            done += numbered
        return plan

    def _fold(
        self,
        base: np.ndarray,
        places: Sequence[np.ndarray],
        learn: bool,
        shared: SharedCorpus | None = None,
    ) -> tuple[np.ndarray, int]:
        """Key of each tuple (−1 for nothing), and the size of their range."""
        keys, reach, done = base, 1, 0
        for place, size in zip(places, self.sizes):
            if reach * size > LARGEST_KEY:
                if learn:
                    step, keys = _number(keys, reach, 1, shared)
                    self.steps.append(step)
                else:
                    keys = _find(self.steps[done], keys, reach)
                reach = len(self.steps[done])
                done += 1
            # An atom that gives nothing makes the whole tuple nothing, whatever comes after it.
            nothing = (keys < 0) | (place < 0)
            keys = keys * size + place
            keys[nothing] = -1
            reach *= size
        return keys, reach


def _number(
    keys: np.ndarray, size: int, cutoff: int, shared: SharedCorpus | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The sorted keys that occur ``cutoff`` times or more, and each key's place among them."""
    present = keys >= 0
    if shared is not None:
        own = np.unique(keys[present], return_counts=True)
        together, totals = shared.merge_counts(own[0].astype(np.int64), own[1].astype(np.int64))
        known = together[totals >= cutoff]
        return known, _find(known, keys, size)
    everywhere = bool(present.all())
    if size <= DENSE_FACTOR * len(keys):
        distinct = np.arange(size)
        counts = np.bincount(keys if everywhere else keys[present], minlength=size)
        inverse = keys
    else:
        distinct, inverse, counts = np.unique(
            keys if everywhere else keys[present], return_inverse=True, return_counts=True
        )
        if not everywhere:
            spread = np.zeros(len(keys), np.int64)
            spread[present] = inverse
            inverse = spread
    kept = counts >= cutoff
    numbers = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last: for nothing
    places = numbers[inverse if everywhere else np.where(present, inverse, -1)]
    return distinct[kept], places


def _find(known: np.ndarray, keys: np.ndarray, size: int) -> np.ndarray:
    """Place of each key among the known ones, which are sorted; −1 where it is not there."""
    if size <= DENSE_FACTOR * max(len(keys), len(known)):
        numbers = np.full(size + 1, -1, np.int64)  # the last: for nothing
        numbers[known] = np.arange(len(known))
        return numbers[keys]
    if not len(known):
        return np.full(len(keys), -1, np.int64)
    places = np.searchsorted(known, keys)
    places[places == len(known)] = 0  # past the last: any place does, as the keys will differ
    return np.where(known[places] == keys, places, -1)


# Checks of stored arrays, which may come from anywhere.


def take_array(arrays: Any, name: str, dtype: type[np.generic]) -> np.ndarray:
    """The array of that name, checked to be one-dimensional and of the dtype."""
    array = arrays.get(name) if isinstance(arrays, Mapping) else None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
        actual = f"{array!r:.80}"
        if isinstance(array, np.ndarray):
            actual = f"{array.ndim} dimensions of {array.dtype}"
        raise ValueError(
            f"{name}: expected a one-dimensional array of {np.dtype(dtype)}, found {actual}"
        )
    return array


def check_ascending(name: str, keys: np.ndarray, size: int) -> None:
    """ValueError unless the keys ascend strictly within 0 … size − 1."""
    if (keys[1:] <= keys[:-1]).any():
        raise ValueError(f"{name}: expected strictly ascending keys")
    if len(keys) and (keys[0] < 0 or keys[-1] >= size):
        raise ValueError(f"{name}: expected keys from 0 to {size - 1}, found {keys[[0, -1]]}")
