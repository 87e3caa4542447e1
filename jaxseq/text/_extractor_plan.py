"""What an extractor has to compute for a set of templates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jaxseq.text._template import Atom, Template
from jaxseq.text._template_functions import Call
from jaxseq.text._template_set import Templates
from jaxseq.text._vocabulary import StringTable

Stream = tuple[str, tuple[Call, ...]]


@dataclass(frozen=True)
class SpacePlan:
    """Templates that number their attributes together, as they have the same skeleton.

    templates: the templates. columns: their indices among all of their side. tables: for each
    atom the table of strings that its values are in.
    """

    templates: tuple[Template, ...]
    columns: tuple[int, ...]
    tables: tuple[int, ...]


class Plan:
    """Streams, tables and spaces of a set of templates.

    A stream is a column with functions applied. A table numbers the strings of a stream, or of
    several where attributes of theirs can be the same. A space numbers the combinations.

    Example:
        >>> plan = Plan(Templates(["word[0]", "word[-1]|lower(word[1])"]))
        >>> plan.streams
        [('word', ()), ('word', (Call(name='lower', argument=None),))]
        >>> plan.unigram[1].tables, plan.left, plan.right
        ((0, 1), 1, 1)
    """

    def __init__(self, templates: Templates):
        self.templates = templates
        atoms = [atom for template in self._all for atom in template.atoms]
        self.streams: list[Stream] = list(dict.fromkeys(map(stream_of, atoms)))
        self.left = -min([0, *(atom.offset for atom in atoms)])
        self.right = max([0, *(atom.offset for atom in atoms)])
        self.unigram = self._spaces(templates.unigram)
        self.bigram = self._spaces(templates.bigram)

    @property
    def _all(self) -> tuple[Template, ...]:
        return self.templates.unigram + self.templates.bigram

    @cached_property
    def table_of(self) -> dict[Stream, int]:
        """The table of each stream: its own, unless templates of CRF++ mix their columns."""
        crfpp = {stream_of(atom) for t in self._all if t.crfpp for atom in t.atoms}
        mixed = crfpp if self._mixes_columns() else set()
        tables: dict[Stream | None, int] = {}
        return {
            stream: tables.setdefault(None if stream in mixed else stream, len(tables))
            for stream in self.streams
        }

    @property
    def table_count(self) -> int:
        """How many tables there are."""
        return len(set(self.table_of.values()))

    def sizes(self, tables: list[StringTable]) -> list[int]:
        """How many codes each table has: one a string, after those for places past the ends."""
        return [self.left + self.right + len(table) for table in tables]

    def _mixes_columns(self) -> bool:
        """Whether a word and, say, a tag of the same spelling can be one attribute."""
        columns: dict[tuple[str | None, ...], tuple[str, ...]] = {}
        return any(
            columns.setdefault(template.skeleton, read) != read
            for template in self._all
            for read in [tuple(atom.column for atom in template.atoms)]
        )

    def _spaces(self, templates: tuple[Template, ...]) -> list[SpacePlan]:
        groups: dict[tuple[str | None, ...], list[int]] = {}
        for column, template in enumerate(templates):
            groups.setdefault(template.skeleton, []).append(column)
        return [
            SpacePlan(
                tuple(templates[column] for column in columns),
                tuple(columns),
                tuple(self.table_of[stream_of(atom)] for atom in templates[columns[0]].atoms),
            )
            for columns in groups.values()
        ]


def stream_of(atom: Atom) -> Stream:
    """The atom without its offset.

    Example:
        >>> stream_of(Atom("word", -1))
        ('word', ())
    """
    return atom.column, atom.calls
