"""Tables of strings: each distinct string has a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from jaxseq.text._extractor_checks import take_array

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
