"""Values of atoms at all tokens of a corpus, as numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxseq.text._extractor_corpus import Column
from jaxseq.text._extractor_plan import Plan, SpacePlan, Stream, stream_of
from jaxseq.text._template import Atom
from jaxseq.text._template_functions import compose, is_flag
from jaxseq.text._vocabulary import StringTable


def boundary_names(left: int, right: int) -> list[str]:
    """What the codes for places past the ends stand for, as CRF++ calls it.

    Example:
        >>> boundary_names(2, 1)
        ['_B-1', '_B-2', '_B+1']
    """
    before = [f"_B-{place}" for place in range(1, left + 1)]
    return before + [f"_B+{place}" for place in range(1, right + 1)]


class Cells:
    """Codes of the strings around every token of a corpus.

    A code is a number in a table: first the places past the ends (`boundary_names`), which a
    string can therefore not be taken for, then the strings; −1 stands for nothing.

    Args:
        plan: what to compute.
        columns: the columns of the corpus.
        lengths: the number of tokens of each sentence.
        tables: tables of strings; new strings are added if ``learn``.
        learn: whether the tables are open.
    """

    def __init__(
        self,
        plan: Plan,
        columns: Mapping[str, Column],
        lengths: np.ndarray,
        tables: list[StringTable],
        learn: bool,
    ):
        self._left = plan.left
        self._first = plan.left + plan.right
        starts = np.cumsum(lengths) - lengths
        self._from_start = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        self._to_end = np.repeat(lengths, lengths) - 1 - self._from_start
        self._codes = {
            stream: self._codes_of(stream, columns, tables[plan.table_of[stream]], learn)
            for stream in plan.streams
        }
        self._shifted: dict[tuple[Stream, int], np.ndarray] = {}
        self.sizes = plan.sizes(tables)

    @property
    def everywhere(self) -> np.ndarray:
        """0 at every token."""
        return np.zeros(len(self._from_start), np.int64)

    @property
    def in_pairs(self) -> np.ndarray:
        """0 at every token that has one before it in its sentence, −1 at the others."""
        return np.where(self._from_start > 0, 0, -1)

    def places(self, plan: SpacePlan) -> list[np.ndarray]:
        """For each atom its codes at all tokens, for one template after the other."""
        each = [[self._shift(atom) for atom in template.atoms] for template in plan.templates]
        if len(each) == 1:
            return each[0]
        return [np.concatenate(same_atom) for same_atom in zip(*each)]

    def _codes_of(
        self, stream: Stream, columns: Mapping[str, Column], table: StringTable, learn: bool
    ) -> np.ndarray:
        name, calls = stream
        column = columns[name]
        values = list(map(compose(calls), column.strings)) if calls else column.strings
        numbers = table.add(values) if learn else table.numbers(values)
        return np.where(numbers < 0, -1, numbers + self._first)[column.codes]

    def _shift(self, atom: Atom) -> np.ndarray:
        """The codes ``atom.offset`` tokens on; past the ends the place, of a flag nothing."""
        stream, offset = stream_of(atom), atom.offset
        if offset == 0:
            return self._codes[stream]
        if (stream, offset) not in self._shifted:
            codes = self._codes[stream]
            moved = np.full_like(codes, -1)
            if offset < 0:
                moved[-offset:] = codes[:offset]
                outside = np.flatnonzero(self._from_start < -offset)
                place = -offset - self._from_start[outside] - 1
            else:
                moved[:-offset] = codes[offset:]
                outside = np.flatnonzero(self._to_end < offset)
                place = self._left + offset - self._to_end[outside] - 1
            moved[outside] = -1 if is_flag(atom.calls) else place
            self._shifted[stream, offset] = moved
        return self._shifted[stream, offset]
