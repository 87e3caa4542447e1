"""A sentence: named columns of strings, one string per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Sentence:
    """An immutable sentence: columns of equal length, each with a name.

    Two sentences are equal when they have the same name and the same columns, in any order.
    A sentence may be empty (no tokens), but it has at least one column.

    Args:
        columns: name of the column → its strings, one per token.
        name: what the corpus calls the sentence, if it calls it something.

    Example:
        >>> sentence = Sentence({"word": ["the", "dog"], "pos": ["DT", "NN"]}, name="s1")
        >>> len(sentence), sentence.columns, sentence["pos"]
        (2, ('word', 'pos'), ('DT', 'NN'))
        >>> sentence.without("pos")
        Sentence({'word': ('the', 'dog')}, name='s1')
    """

    _cells: dict[str, tuple[str, ...]]
    name: str | None

    def __init__(self, columns: Mapping[str, Sequence[str]], name: str | None = None):
        cells = {column: _as_cells(column, values) for column, values in columns.items()}
        if not cells:
            raise ValueError("columns: expected at least one column, got none")
        if len({len(values) for values in cells.values()}) > 1:
            lengths = ", ".join(f"{column} {len(values)}" for column, values in cells.items())
            raise ValueError(f"columns: expected equal lengths, got {lengths}")
        # A frozen dataclass refuses to set attributes in any other way.
        object.__setattr__(self, "_cells", cells)
        object.__setattr__(self, "name", name)

    @classmethod
    def from_cells(cls, cells: dict[str, tuple[str, ...]], name: str | None = None) -> Sentence:
        """A sentence of columns that have been checked: readers build millions."""
        sentence = object.__new__(cls)
        object.__setattr__(sentence, "_cells", cells)
        object.__setattr__(sentence, "name", name)
        return sentence

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order they were given."""
        return tuple(self._cells)

    def without(self, *columns: str) -> Sentence:
        """The same sentence less some of its columns."""
        for column in columns:
            self[column]
        left = {column: cells for column, cells in self._cells.items() if column not in columns}
        return Sentence(left, self.name)

    def __getitem__(self, column: str) -> tuple[str, ...]:
        try:
            return self._cells[column]
        except KeyError:
            there = ", ".join(self._cells)
            # A ValueError like every other bad input; a KeyError would show its message quoted.
            raise ValueError(f"column: expected one of {there}, got {column!r}") from None

    def __contains__(self, column: object) -> bool:
        return column in self._cells

    def __len__(self) -> int:
        return len(next(iter(self._cells.values())))

    def __hash__(self) -> int:
        # As for equality, the order of columns does not count.
        return hash((frozenset(self._cells.items()), self.name))

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Sentence({self._cells!r}{name})"


def _as_cells(column: object, values: Sequence[str]) -> tuple[str, ...]:
    """The values as a tuple, all of them strings."""
    if not isinstance(column, str):
        raise ValueError(f"columns: expected names that are strings, got {column!r}")
    if isinstance(values, (str, bytes)):
        raise ValueError(f"column {column!r}: expected a sequence of strings, got {values!r}")
    try:
        cells = tuple(values)
    except TypeError:
        raise ValueError(
            f"column {column!r}: expected a sequence of strings, got {values!r}"
        ) from None
    if not set(map(type, cells)) <= {str}:  # the exact type is quick to see; subclasses are rare
        for index, cell in enumerate(cells):
            if not isinstance(cell, str):
                raise ValueError(
                    f"column {column!r}, token {index}: expected a string, got {cell!r}"
                )
    return cells
