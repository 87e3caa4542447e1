"""Attributes by templates, and those that the user computes, as python-crfsuite takes them."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxseq.text._features import LARGEST_COUNT, FeatureExtractor, TokenFeatures
from jaxseq.text._functions import (
    STATE,
    Call,
    WordRepresentation,
    compose,
    is_flag,
    representation_from_state,
)
from jaxseq.text._sentence import Sentence
from jaxseq.text._templates import Atom, Template, Templates
from jaxseq.text._vocabulary import Column, KeySpace, SharedCorpus, StringTable, read_corpus

# ---------------------------------------------------------------------- attributes by templates

Stream = tuple[str, tuple[Call, ...]]


@dataclass(frozen=True)
class SpacePlan:
    """Templates that number their attributes together, as they have the same skeleton."""

    templates: tuple[Template, ...]
    columns: tuple[int, ...]  # the templates' indices among all of their side
    tables: tuple[int, ...]  # for each atom the table of strings that its values are in


class Plan:
    """What is to be computed for a set of templates: streams, tables and spaces.

    A stream is a column with functions applied. A table numbers the strings of a stream, or of
    several where attributes of theirs can be the same. A space numbers the combinations.
    """

    def __init__(self, templates: Templates):
        self.templates = templates
        self._all = templates.unigram + templates.bigram
        atoms = [atom for template in self._all for atom in template.atoms]
        self.streams: list[Stream] = list(dict.fromkeys(atom.stream for atom in atoms))
        self.left = -min([0, *(atom.offset for atom in atoms)])
        self.right = max([0, *(atom.offset for atom in atoms)])
        # A stream has a table of its own, unless templates of CRF++ mix their columns.
        crfpp = {atom.stream for t in self._all if t.crfpp for atom in t.atoms}
        mixed = crfpp if self._mixes_columns() else set()
        numbers: dict[Stream | None, int] = {}
        self.tables: dict[Stream, int] = {
            stream: numbers.setdefault(None if stream in mixed else stream, len(numbers))
            for stream in self.streams
        }
        self.table_count = len(numbers)
        self.unigram = self._spaces(templates.unigram)
        self.bigram = self._spaces(templates.bigram)

    def sizes(self, tables: list[StringTable]) -> list[int]:
        """How many codes each table has: one per string, after those for places past the ends."""
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
                tuple(self.tables[atom.stream] for atom in templates[columns[0]].atoms),
            )
            for columns in groups.values()
        ]


# Values of atoms at all tokens of a corpus, as numbers.


def boundary_names(left: int, right: int) -> list[str]:
    """What the codes for places past the ends stand for, as CRF++ calls it."""
    before = [f"_B-{place}" for place in range(1, left + 1)]
    return before + [f"_B+{place}" for place in range(1, right + 1)]


class Cells:
    """Codes of the strings around every token of a corpus.

    A code is a number in a table: first the places past the ends (`boundary_names`), which a
    string can therefore not be taken for, then the strings; −1 stands for nothing. To learn is
    to add new strings to the tables.
    """

    def __init__(
        self,
        plan: Plan,
        columns: Mapping[str, Column],
        lengths: np.ndarray,
        tables: list[StringTable],
        learn: bool,
        representation: WordRepresentation | None = None,
    ):
        self._representation, self._lengths = representation, lengths
        self._left = plan.left
        self._first = plan.left + plan.right  # the code of the first string of a table
        starts = np.cumsum(lengths) - lengths
        self.from_start = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        self._to_end = np.repeat(lengths, lengths) - 1 - self.from_start
        self._codes = {
            stream: self._encode(stream, columns, tables[plan.tables[stream]], learn)
            for stream in plan.streams
        }
        self._shifted: dict[tuple[Stream, int], np.ndarray] = {}
        self.sizes = plan.sizes(tables)

    def places(self, plan: SpacePlan) -> list[np.ndarray]:
        """For each atom its codes at all tokens, for one template after the other."""
        each = [[self._shift(atom) for atom in template.atoms] for template in plan.templates]
        if len(each) == 1:  # all of jaxseq's own templates: nothing is copied
            return each[0]
        return [np.concatenate(same_atom) for same_atom in zip(*each)]

    def _encode(
        self, stream: Stream, columns: Mapping[str, Column], table: StringTable, learn: bool
    ) -> np.ndarray:
        name, calls = stream
        column = columns[name]
        if calls and calls[0].name == STATE and self._representation is not None:
            # What a state is depends on the sentence, so that tokens have it and strings have none.
            column, calls = self._representation.states(column, self._lengths), calls[1:]
        values = column.strings
        if calls:
            values = list(map(compose(calls, self._representation), values))
        numbers = table.add(values) if learn else table.numbers(values)
        return np.where(numbers < 0, -1, numbers + self._first)[column.codes]

    def _shift(self, atom: Atom) -> np.ndarray:
        """The codes ``atom.offset`` tokens on; past the ends the place, of a flag nothing."""
        stream, offset = atom.stream, atom.offset
        if offset == 0:
            return self._codes[stream]
        if (stream, offset) not in self._shifted:
            codes = self._codes[stream]
            moved = np.full_like(codes, -1)
            # Tokens are shifted over the ends of sentences, and what came from outside is mended.
            if offset < 0:
                moved[-offset:] = codes[:offset]
                outside = np.flatnonzero(self.from_start < -offset)
                place = -offset - self.from_start[outside] - 1
            else:
                moved[:-offset] = codes[offset:]
                outside = np.flatnonzero(self._to_end < offset)
                place = self._left + offset - self._to_end[outside] - 1
            moved[outside] = -1 if is_flag(atom.calls) else place
            self._shifted[stream, offset] = moved
        return self._shifted[stream, offset]


LEARNT = "representation"
"""The entry of stored extractors, and the beginning of the names of arrays, that have one."""


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
        representation: what templates with ``cluster``, ``brown`` and ``state`` look words up in.

    Example:
        >>> extractor = TemplateExtractor(["word[0]", "word[-1]|word[0]"])
        >>> extractor.fit_transform([["the", "dog"], ["the"]]).ids.tolist()
        [[0, 2], [1, 3], [0, 2]]
        >>> extractor.attribute_names()[2:]
        ['word[-1]|word[0]=_B-1|the', 'word[-1]|word[0]=the|dog']
    """

    kind = "templates"

    def __init__(
        self,
        templates: Templates | Iterable[str | Template],
        cutoff: int = 1,
        representation: WordRepresentation | None = None,
    ):
        super().__init__(cutoff)
        self._templates = templates if isinstance(templates, Templates) else Templates(templates)
        self._plan = Plan(self._templates)
        self._representation = representation if self._templates.need_representation else None
        self._check_calls()
        self._tables = self._tables_of(self._plan)
        self._unigram: list[KeySpace] = []
        self._bigram: list[KeySpace] = []
        self._known_names: dict[str, list[str]] = {}  # made when first asked for

    @staticmethod
    def _tables_of(plan: Plan) -> list[StringTable]:
        return [StringTable() for _ in range(plan.table_count)]

    @property
    def templates(self) -> Templates:
        """The templates."""
        return self._templates

    @property
    def representation(self) -> WordRepresentation | None:
        """What the templates look words up in; None where none does."""
        return self._representation

    def _check_calls(self) -> None:
        """ValueError for a call of what the representation does not have."""
        nothing = Column([], np.zeros(0, np.int64))
        columns = dict.fromkeys(self._templates.columns, nothing)
        Cells(
            self._plan, columns, np.zeros(0, np.int64), self._tables_of(self._plan), False,
            self._representation,
        )  # fmt: skip

    def _counts(self) -> tuple[int, int]:
        return sum(map(len, self._unigram)), sum(map(len, self._bigram))

    def _names(self, pairs: bool) -> list[str]:
        name, plans, spaces = self._sides()[pairs]
        if name not in self._known_names:
            boundaries = boundary_names(self._plan.left, self._plan.right)
            codes = [boundaries + table.strings for table in self._tables]
            each = (_space_names(plan, space, codes) for plan, space in zip(plans, spaces))
            self._known_names[name] = list(itertools.chain.from_iterable(each))
        return self._known_names[name]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Templates and cutoff; strings as UTF-8 with their ends, and keys of attributes."""
        self._require_fitted()
        arrays: dict[str, np.ndarray] = {}
        for index, table in enumerate(self._tables):
            arrays |= table.to_arrays(f"table{index}")
        for side, _, spaces in self._sides():
            for index, space in enumerate(spaces):
                arrays |= space.to_arrays(f"{side}{index}")
        more: dict[str, Any] = {"templates": self._templates.to_json()}
        if self._representation is not None:
            more[LEARNT], learnt = self._representation.to_state()
            arrays |= {f"{LEARNT}.{name}": array for name, array in learnt.items()}
        return self._meta(**more), arrays

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> TemplateExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""
        learnt = (LEARNT,) if isinstance(meta, Mapping) and LEARNT in meta else ()
        cls._check_meta(meta, "templates", *learnt)
        representation = None
        if learnt:
            start = f"{LEARNT}."
            its = {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}
            representation = representation_from_state(meta[LEARNT], its)
        extractor = cls(Templates.from_json(meta["templates"]), meta["cutoff"], representation)
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
        extractor._finish_state(arrays)
        return extractor

    def _sides(self) -> list[tuple[str, list[SpacePlan], list[KeySpace]]]:
        return [
            ("unigram", self._plan.unigram, self._unigram),
            ("bigram", self._plan.bigram, self._bigram),
        ]

    def _extract(
        self, sentences: Iterable[Any], learn: bool, shared: SharedCorpus | None
    ) -> TokenFeatures:
        columns, lengths = read_corpus(sentences, self._templates.columns)
        if shared is not None:
            shared.check(len(lengths))
            columns = {
                name: shared.share_column(column, lengths) for name, column in columns.items()
            }
        cells = Cells(self._plan, columns, lengths, self._tables, learn, self._representation)
        plan, how = self._plan, (learn, shared)
        everywhere = np.zeros(int(lengths.sum()), np.int64)
        ids = self._number(plan.unigram, self._unigram, cells, everywhere, *how)
        edge_ids = None
        if plan.bigram:
            # The first token of a sentence has none before it to be a pair with.
            in_pairs = np.where(cells.from_start > 0, 0, -1)
            edge_ids = self._number(plan.bigram, self._bigram, cells, in_pairs, *how)
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
                _check_count(spaces)  # before the numbers of the next leave int32
            else:
                numbers = spaces[index].find(present, places)
            # Spaces are numbered one after the other: by template, and then by first occurrence.
            numbers = np.where(numbers < 0, -1, numbers + first).astype(np.int32)
            for column, part in zip(plan.columns, np.split(numbers, len(plan.columns))):
                ids[:, column] = part
            first += len(spaces[index])
        return ids


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


# ---------------------------------------------------------- attributes that the user computes

TABLE = "attributes"  # the name of the vocabulary among the stored arrays
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


class DictExtractor(FeatureExtractor):
    """Attributes given token by token, as for python-crfsuite and sklearn-crfsuite.

    A sentence is a list of tokens. A token is a list, tuple or set of attribute names, or a dict
    from names to

    - a string: the attribute ``name:string``;
    - True: the attribute ``name``; False: nothing;
    - a number: the attribute ``name`` with that weight; 0 is nothing;
    - a list, tuple, set or dict: as a token, with ``name:`` before its names.

    The weights of an attribute that a token has twice are added. Attributes are numbered by
    first occurrence (a set's in alphabetical order); a row of ``ids`` is in ascending order,
    then padded with −1.

    Args:
        cutoff: attributes that fewer tokens have are left out.

    Example:
        >>> extractor = DictExtractor()
        >>> features = extractor.fit_transform([[{"w": "the", "long": 0.5}, ["w:the"]]])
        >>> features.ids.tolist(), features.values.tolist()
        ([[0, 1], [0, -1]], [[1.0, 0.5], [1.0, 0.0]])
        >>> extractor.attribute_names()
        ['w:the', 'long']
    """

    kind = "dicts"

    def __init__(self, cutoff: int = 1):
        super().__init__(cutoff)
        self._table = StringTable()

    def _extract(
        self, sentences: Iterable[Any], learn: bool, shared: SharedCorpus | None
    ) -> TokenFeatures:
        items = _Items(sentences)
        if not learn:
            return _rows(*items.merged(self._table.numbers(items.names)), items.lengths)
        table = StringTable()
        if shared is not None:
            shared.check(len(items.lengths))
            table.add(shared.order_strings(*items.first_occurrences()))
        tokens, ids, weights = items.merged(table.add(items.names))
        counts = np.bincount(ids, minlength=len(table))
        if shared is not None:
            counts = shared.merge_counts(np.arange(len(table)), counts)[1]
        kept = counts >= self._cutoff
        # Of those left out −1, of the others their place among those kept.
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        self._table = StringTable(
            string for string, keep in zip(table.strings, kept.tolist()) if keep
        )
        return _rows(tokens, numbers[ids], weights, items.lengths)

    def _counts(self) -> tuple[int, int]:
        return len(self._table), 0

    def _names(self, pairs: bool) -> list[str]:
        return [] if pairs else self._table.strings

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The cutoff; the attributes' names as UTF-8 with their ends."""
        self._require_fitted()
        return self._meta(), self._table.to_arrays(TABLE)

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> DictExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""
        cls._check_meta(meta)
        extractor = cls(meta["cutoff"])
        extractor._table = StringTable.from_arrays(arrays, TABLE)
        extractor._finish_state(arrays)
        return extractor


class _Items:
    """All attributes of all tokens in a row: names, weights, and how many each token has."""

    def __init__(self, sentences: Iterable[Any]):
        self.names: list[str] = []
        self._weights: list[float] = []
        counts: list[int] = []
        lengths: list[int] = []
        for index, sentence in enumerate(sentences):
            if isinstance(sentence, (str, bytes, Mapping)) or not isinstance(sentence, Iterable):
                raise ValueError(
                    f"sentence {index}: expected a list of tokens, found {sentence!r:.80}"
                )
            before = len(counts)
            for place, token in enumerate(sentence):
                first = len(self.names)
                try:
                    self._add("", token)
                except ValueError as error:
                    raise ValueError(f"sentence {index}, token {place}: {error}") from None
                counts.append(len(self.names) - first)
            lengths.append(len(counts) - before)
        self.lengths = np.array(lengths, np.int64)
        self._tokens = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))

    def first_occurrences(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The distinct names; of each the sentence where it first occurs, and its place there."""
        first = {name: place for place, name in reversed(list(enumerate(self.names)))}
        places = np.fromiter(first.values(), np.int64, len(first))
        sentence_of_token = np.repeat(np.arange(len(self.lengths)), self.lengths)
        sentence = sentence_of_token[self._tokens]
        starts = np.searchsorted(sentence, np.arange(len(self.lengths)))
        return list(first), sentence[places], places - starts[sentence[places]]

    def merged(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token, attribute and weight of each distinct pair, ascending; −1 left out."""
        weights = np.array(self._weights, np.float64)
        known = numbers >= 0
        width = int(numbers.max(initial=0)) + 1
        keys = self._tokens[known] * width + numbers[known]
        if (np.diff(keys) > 0).all():  # as when every token has its attributes in order
            distinct, weights = keys, weights[known]
        else:
            distinct, inverse = np.unique(keys, return_inverse=True)
            weights = np.bincount(inverse, weights[known], minlength=len(distinct))
        tokens, ids = np.divmod(distinct, width)
        if (np.abs(weights) > _LARGEST_WEIGHT).any():
            raise ValueError("weights: expected sums that float32 holds, found a larger one")
        return tokens, ids, weights

    def _add(self, prefix: str, item: Any) -> None:
        """Append the attributes of a token, or of a value nested in one."""
        if isinstance(item, Mapping):
            for name, value in item.items():
                if not isinstance(name, str):
                    raise ValueError(f"expected names that are strings, found {name!r:.80}")
                self._add_value(prefix + name, value)
            return
        if not isinstance(item, (list, tuple, set, frozenset)):
            raise ValueError(
                f"expected a list, tuple, set or dict of attributes, found {item!r:.80}"
            )
        for name in item:
            if not isinstance(name, str):
                raise ValueError(f"expected attributes that are strings, found {name!r:.80}")
        # The order of a set changes from run to run.
        names = sorted(item) if isinstance(item, (set, frozenset)) else item
        self.names += [prefix + name for name in names]
        self._weights += [1.0] * len(names)

    def _add_value(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            self.names.append(f"{name}:{value}")
            self._weights.append(1.0)
        elif isinstance(value, (bool, np.bool_, numbers.Real)):
            weight = _weight(name, value)
            if weight:
                self.names.append(name)
                self._weights.append(weight)
        elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
            self._add(f"{name}:", value)
        else:
            raise ValueError(
                f"attribute {name!r}: expected a string, a bool, a number, or a list, set or "
                f"dict of them, found {value!r:.80}"
            )


def _weight(name: str, value: Any) -> float:
    try:
        weight = float(value)
    except OverflowError:
        weight = math.inf
    if not abs(weight) <= _LARGEST_WEIGHT:  # also true of NaN
        raise ValueError(
            f"attribute {name!r}: expected a finite number that float32 holds, found {value!r:.80}"
        )
    return weight


def _rows(
    tokens: np.ndarray, ids: np.ndarray, weights: np.ndarray, lengths: np.ndarray
) -> TokenFeatures:
    """Ids and weights as rows, one per token; attributes of id −1 left out."""
    known = ids >= 0
    tokens, ids, weights = tokens[known], ids[known], weights[known]
    count = int(lengths.sum())
    per_token = np.bincount(tokens, minlength=count)
    starts = np.cumsum(per_token) - per_token
    column = np.arange(len(tokens)) - starts[tokens]  # tokens ascend, so that rows fill from left
    shape = (count, int(per_token.max(initial=0)))
    rows = np.full(shape, -1, np.int32)
    rows[tokens, column] = ids
    if (weights == 1).all():  # the common case needs no array of values
        return TokenFeatures(rows, None, lengths, None)
    values = np.zeros(shape, np.float32)
    values[tokens, column] = weights
    return TokenFeatures(rows, values, lengths, None)


def tokens_are_attributes(sentences: Iterable[Any]) -> bool:
    """Whether tokens come with their attributes, as for `DictExtractor`, or are words.

    The first token decides; sentences as columns have words. False where there is no token.

    Example:
        >>> tokens_are_attributes([[], [{"w": "the"}]]), tokens_are_attributes([["the", "dog"]])
        (True, False)
    """
    for sentence in sentences:
        if isinstance(sentence, str | bytes | Mapping | Sentence):
            return False
        if not isinstance(sentence, Sequence | np.ndarray):
            return True  # to look into an iterator would use it up
        if len(sentence):
            return not isinstance(sentence[0], str)
    return False


# Stored extractors of any kind.


_KINDS = {kind.kind: kind for kind in (TemplateExtractor, DictExtractor)}


def extractor_from_state(meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> FeatureExtractor:
    """The extractor that a `FeatureExtractor.state` describes, of whatever class it was.

    Args:
        meta: the first half of the state; ``meta["kind"]`` says which class it is.
        arrays: the second half.

    Returns:
        An extractor with its vocabulary, equal in all its answers to the one stored.

    Raises:
        ValueError: on a state that is not sound: types, shapes, order or ranges.

    Example:
        >>> extractor = TemplateExtractor(["word[0]"])
        >>> _ = extractor.fit_transform([["the", "dog"]])
        >>> extractor_from_state(*extractor.state()).transform([["dog"]]).ids.tolist()
        [[1]]
    """
    kind = meta.get("kind") if isinstance(meta, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"state, kind: expected one of {sorted(_KINDS)}, found {kind!r:.80}")
    return _KINDS[kind].from_state(meta, arrays)
