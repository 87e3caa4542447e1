"""Attributes by templates."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxseq.text._features import (
    LARGEST_COUNT,
    Column,
    FeatureExtractor,
    SharedCorpus,
    StringTable,
    TokenFeatures,
    check_ascending,
    check_cutoff,
    check_meta,
    check_names,
    read_corpus,
    require_fitted,
    require_unfitted,
    take_array,
)
from jaxseq.text._templates import Atom, Call, Template, Templates, compose, is_flag

# -------------------------------------------------------------------------------------------------
# What an extractor has to compute for a set of templates.


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


# -------------------------------------------------------------------------------------------------
# Values of atoms at all tokens of a corpus, as numbers.


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


# -------------------------------------------------------------------------------------------------
# Numbering of combinations: tuples of small numbers become one number each.


if TYPE_CHECKING:
    from jaxseq.text._features import SharedCorpus

# Keys stay below it, so that no product leaves int64.
LARGEST_KEY = 2**62
# Up to so many possible keys for each one present, a table of them all beats sorting.
DENSE_FACTOR = 8


class KeySpace:
    """The distinct tuples (a, b, …) with 0 ≤ a < size of the first, …, in ascending order.

    A tuple is folded into one int64 key from left to right, ``key * size + next``. Where that
    would leave int64, the keys so far are first numbered by the distinct ones among them.

    sizes: how many values each place of the tuple has. steps: the sorted keys at each numbering
    on the way. keys: the sorted keys of the tuples kept; a tuple's number is its place there.

    Example:
        >>> places = [np.array([0, 1, 0, -1]), np.array([2, 2, 2, 1])]
        >>> space, numbers = KeySpace.learn([2, 3], np.zeros(4, int), places, cutoff=1)
        >>> numbers.tolist(), space.keys.tolist()
        ([0, 1, 0, -1], [2, 5])
        >>> [place.tolist() for place in space.tuples()]
        [[0, 1], [2, 2]]
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
        """The space of the tuples present, and the number of each.

        Args:
            sizes: how many values each place has.
            base: int64 ``[n]``, 0 where there is a tuple and −1 where there is nothing.
            places: for each place its values, ``[n]``; −1 makes the tuple nothing.
            cutoff: tuples that occur fewer times are left out.
            shared: where other processes have tuples too, which the space then holds as well.

        Returns:
            The space, and numbers int64 ``[n]``, −1 for nothing. O(n log n).
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
        """The tuples of the space in order, as one array a place."""
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
        distinct, found, counts = np.unique(
            keys if everywhere else keys[present], return_inverse=True, return_counts=True
        )
        inverse = found
        if not everywhere:
            inverse = np.zeros(len(keys), np.int64)
            inverse[present] = found
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
    places[places == len(known)] = 0
    return np.where(known[places] == keys, places, -1)


KIND = "templates"


class TemplateExtractor(FeatureExtractor):
    """Attributes of tokens by templates: column k of ``ids`` is of the k-th unigram template.

    A sentence is a `Sentence`, a mapping column → strings, or a list of strings, which is then
    the column "word". An attribute is a template with the values of its atoms. Its name is made
    for reading, ``word[-1]|word[0]=the|dog``; values that hold the separators may give two
    attributes one name. Templates of CRF++ have names as there, and share attributes where
    their literal text and their values are the same.

    Attributes are numbered template by template, and within one by first occurrence of the
    values of its atoms in the corpus. Functions run once for every distinct string; the rest is
    vectorised: 211,727 tokens with 20 templates take a fraction of a second.

    Args:
        templates: a `Templates`, or template strings.
        cutoff: attributes that occur fewer times in the corpus are left out.

    Example:
        >>> extractor = TemplateExtractor(["word[0]", "word[-1]|word[0]"])
        >>> extractor.fit_transform([["the", "dog"], ["the"]]).ids.tolist()
        [[0, 2], [1, 3], [0, 2]]
        >>> extractor.attribute_names()[2:]
        ['word[-1]|word[0]=_B-1|the', 'word[-1]|word[0]=the|dog']
    """

    def __init__(self, templates: Templates | Iterable[str | Template], cutoff: int = 1):
        self._templates = templates if isinstance(templates, Templates) else Templates(templates)
        self._cutoff = check_cutoff(cutoff)
        self._plan = Plan(self._templates)
        self._tables = [StringTable() for _ in range(self._plan.table_count)]
        self._unigram: list[KeySpace] = []
        self._bigram: list[KeySpace] = []
        self._fitted = False
        self._names: dict[str, list[str]] = {}

    @property
    def templates(self) -> Templates:
        """The templates."""
        return self._templates

    @property
    def cutoff(self) -> int:
        """Attributes that occurred fewer times were left out."""
        return self._cutoff

    def fit_transform(
        self, sentences: Iterable[Any], shared: SharedCorpus | None = None
    ) -> TokenFeatures:
        """Learn the vocabulary of the sentences and give their attributes."""
        require_unfitted(self._fitted)
        features = self._extract(sentences, learn=True, shared=shared)
        self._fitted = True
        return features

    def transform(self, sentences: Iterable[Any]) -> TokenFeatures:
        """Attributes of the sentences; −1 for those that are not in the vocabulary."""
        require_fitted(self._fitted)
        return self._extract(sentences, learn=False)

    @property
    def attribute_count(self) -> int:
        """Number of attributes; ids are 0 … attribute_count − 1."""
        require_fitted(self._fitted)
        return sum(map(len, self._unigram))

    @property
    def edge_attribute_count(self) -> int:
        """Number of attributes of pairs of tokens, numbered apart."""
        require_fitted(self._fitted)
        return sum(map(len, self._bigram))

    def attribute_names(self) -> list[str]:
        """Name of each attribute, by id."""
        return self._names_of("unigram", self._plan.unigram, self._unigram)

    def edge_attribute_names(self) -> list[str]:
        """Name of each attribute of pairs of tokens, by id."""
        return self._names_of("bigram", self._plan.bigram, self._bigram)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Templates and cutoff; strings as UTF-8 with their ends, and keys of attributes."""
        require_fitted(self._fitted)
        meta = {
            "kind": KIND,
            "version": 1,
            "cutoff": self._cutoff,
            "templates": self._templates.to_json(),
        }
        arrays: dict[str, np.ndarray] = {}
        for index, table in enumerate(self._tables):
            arrays |= table.to_arrays(f"table{index}")
        for side, _, spaces in self._sides():
            for index, space in enumerate(spaces):
                arrays |= space.to_arrays(f"{side}{index}")
        return meta, arrays

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> TemplateExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""
        check_meta(meta, KIND, ["cutoff", "templates"])
        extractor = cls(Templates.from_json(meta["templates"]), check_cutoff(meta["cutoff"]))
        extractor._tables = [
            StringTable.from_arrays(arrays, f"table{index}")
            for index in range(len(extractor._tables))
        ]
        sizes = extractor._plan.sizes(extractor._tables)
        for side, plans, spaces in extractor._sides():
            for index, plan in enumerate(plans):
                shape = [sizes[table] for table in plan.tables]
                spaces.append(KeySpace.from_arrays(shape, arrays, f"{side}{index}"))
            _check_count(spaces)
        extractor._fitted = True
        check_names(arrays, extractor.state()[1])
        return extractor

    def _sides(self) -> list[tuple[str, list[SpacePlan], list[KeySpace]]]:
        return [
            ("unigram", self._plan.unigram, self._unigram),
            ("bigram", self._plan.bigram, self._bigram),
        ]

    def _extract(
        self, sentences: Iterable[Any], learn: bool, shared: SharedCorpus | None = None
    ) -> TokenFeatures:
        columns, lengths = read_corpus(sentences, self._templates.columns)
        if shared is not None:
            shared.check(len(lengths))
            columns = {
                name: shared.share_column(column, lengths) for name, column in columns.items()
            }
        cells = Cells(self._plan, columns, lengths, self._tables, learn)
        plan, how = self._plan, (learn, shared)
        ids = self._number(plan.unigram, self._unigram, cells, cells.everywhere, *how)
        edge_ids = None
        if plan.bigram:
            edge_ids = self._number(plan.bigram, self._bigram, cells, cells.in_pairs, *how)
        return TokenFeatures(ids, None, lengths, edge_ids)

    def _number(
        self,
        plans: list[SpacePlan],
        spaces: list[KeySpace],
        cells: Cells,
        base: np.ndarray,
        learn: bool,
        shared: SharedCorpus | None,
    ) -> np.ndarray:
        """Attributes of one side, ``[N, K]``; ``base`` is 0 at the tokens that can have them."""
        width = sum(len(plan.templates) for plan in plans)
        ids = np.empty((len(base), width), np.int32)
        first = 0
        for index, plan in enumerate(plans):
            present = np.tile(base, len(plan.templates))
            places = cells.places(plan)
            if learn:
                sizes = [cells.sizes[table] for table in plan.tables]
                space, numbers = KeySpace.learn(sizes, present, places, self._cutoff, shared)
                spaces.append(space)
                _check_count(spaces)
            else:
                numbers = spaces[index].find(present, places)
            numbers = np.where(numbers < 0, -1, numbers + first).astype(np.int32)
            for column, part in zip(plan.columns, np.split(numbers, len(plan.columns))):
                ids[:, column] = part
            first += len(spaces[index])
        return ids

    def _names_of(self, side: str, plans: list[SpacePlan], spaces: list[KeySpace]) -> list[str]:
        require_fitted(self._fitted)
        if side not in self._names:
            codes = [
                boundary_names(self._plan.left, self._plan.right) + table.strings
                for table in self._tables
            ]
            names: list[str] = []
            for plan, space in zip(plans, spaces):
                names += _space_names(plan, space, codes)
            self._names[side] = names
        return list(self._names[side])


def _space_names(plan: SpacePlan, space: KeySpace, codes: list[list[str]]) -> list[str]:
    """Names of a space's attributes; ``codes`` has the string of each code of each table."""
    parts: list[Iterable[str]] = []
    values = zip(plan.tables, space.tuples())
    for literal in plan.templates[0].skeleton:
        if literal is None:
            table, place = next(values)
            parts.append(map(codes[table].__getitem__, place.tolist()))
        else:
            parts.append(itertools.repeat(literal, len(space)))
    return list(map("".join, zip(*parts)))


def _check_count(spaces: list[KeySpace]) -> None:
    count = sum(map(len, spaces))
    if count > LARGEST_COUNT:
        raise ValueError(f"attributes: expected at most {LARGEST_COUNT}, found {count}")
