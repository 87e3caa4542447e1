"""Attributes by templates."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxseq.text._extractor import FeatureExtractor, require_fitted, require_unfitted
from jaxseq.text._extractor_cells import Cells, boundary_names
from jaxseq.text._extractor_checks import LARGEST_COUNT, check_cutoff, check_meta, check_names
from jaxseq.text._extractor_corpus import read_corpus
from jaxseq.text._extractor_keys import KeySpace
from jaxseq.text._extractor_plan import Plan, SpacePlan
from jaxseq.text._shared_corpus import SharedCorpus
from jaxseq.text._template import Template
from jaxseq.text._template_set import Templates
from jaxseq.text._token_features import TokenFeatures
from jaxseq.text._vocabulary import StringTable

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
