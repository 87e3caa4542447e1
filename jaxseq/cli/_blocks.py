"""Sentences of a file of columns one by one, with their lines as they came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxseq.cli._files import iter_input, shown
from jaxseq.text._conll import split_cells

DOCSTART = "-DOCSTART-"


@dataclass(frozen=True)
class Block:
    """A sentence: its lines without their ends, their cells, and the number of the first line.

    A line that begins with ``-DOCSTART-`` is a block of its own.
    """

    first: int
    lines: list[str]
    rows: list[list[str]]

    @property
    def is_docstart(self) -> bool:
        """Whether this is not a sentence, but the mark between documents."""
        return self.rows[0][0] == DOCSTART

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.rows[0])

    def column(self, index: int) -> list[str]:
        """The cells of a column."""
        return [row[index] for row in self.rows]


def iter_blocks(path: str, delimiter: str | None) -> Iterator[Block]:
    """The blocks of a file (``-`` is standard input), in the memory of one.

    Raises:
        ValueError: with the file and the line, for a line with another number of columns than
            the first one of its kind, or an empty cell.
    """
    width, block, rows, first = 0, [], [], 1
    for number, line in enumerate(iter_input(path), 1):
        blank = not line.strip(" \t")
        cells = [] if blank else split_cells(line, delimiter)
        if not blank and cells[0] != DOCSTART:
            width = width or len(cells)
            if len(cells) != width or "" in cells:
                raise ValueError(_wrong_cells(f"{shown(path)}:{number}", width, cells, line))
            first = first if block else number
            block.append(line)
            rows.append(cells)
            continue
        if block:
            yield Block(first, block, rows)
            block, rows = [], []
        if not blank:
            yield Block(number, [line], [cells])
    if block:
        yield Block(first, block, rows)


def _wrong_cells(place: str, width: int, cells: list[str], line: str) -> str:
    if len(cells) == width:
        return f"{place}: expected no empty cell, found one: {line!r:.200}"
    return (
        f"{place}: expected {width} columns, as in the lines before, found {len(cells)}: "
        f"{line!r:.200}"
    )
