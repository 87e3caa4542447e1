"""The pool of active learning: everything that stays the same from round to round."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxseq.learn._corpus import EncodedLabels, lay_out, without_gaps
from jaxseq.learn._parameters import Legal
from jaxseq.learn.active import Groups, Strategy
from jaxseq.tagger._active_forms import groups_alike, word_forms
from jaxseq.tagger._active_known import as_partial
from jaxseq.tagger._active_look import PoolView
from jaxseq.tagger._active_train import ROWS, next_size, take_sentences
from jaxseq.tagger._checks import check_sentences
from jaxseq.tagger._labels import check_labels, find_classes, legal_by_scheme
from jaxseq.tagger._problem import Problem
from jaxseq.tagger._tagger import CRFTagger
from jaxseq.text import FeatureExtractor, Templates, TokenFeatures


@dataclass(frozen=True, eq=False)
class Pool:
    """Sentences as features, and the labels that they may get.

    extractor: has the attributes of the whole pool. legal: what the tagger's scheme allows.
    forms: int [N], word forms of the tokens; None where there are no words.
    groups: int [N], of tokens that are alike; None where no template says which are.
    """

    extractor: FeatureExtractor
    features: TokenFeatures
    classes: list[str]
    legal: Legal | None
    transitions: bool
    forms: np.ndarray | None = None
    groups: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        estimator: CRFTagger,
        X: Iterable[Any],
        y: Any,
        classes: Any,
        strategy: Strategy | None = None,
    ) -> Pool:
        """Read the sentences.

        Args:
            estimator: whose templates and scheme to use.
            X: sentences. y: labels or None. classes: all labels, or None for those in y.
            strategy: what it wants to know of the tokens is found out.
        """
        extractor = estimator._new_extractor()
        sentences = list(check_sentences(X))  # read twice, for attributes and for words
        features = extractor.fit_transform(sentences)
        if not features.lengths.sum():
            raise ValueError("X: expected sentences with at least one token, got none")
        names = _classes(classes, y, features.lengths)
        templates = estimator.templates
        transitions = not isinstance(templates, Templates) or templates.transitions
        legal = legal_by_scheme(names, estimator.scheme)
        forms = word_forms(sentences)
        is_by_group = isinstance(strategy, Groups)
        groups = groups_alike(sentences, strategy.alike) if is_by_group else None
        return cls(extractor, without_gaps(features), names, legal, transitions, forms, groups)

    @cached_property
    def view(self) -> PoolView:
        """For looks at the whole pool."""
        return PoolView(self.features, self.extractor.attribute_count, self.forms, self.groups)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sentence."""
        return self.features.lengths

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Slots of a row that every sentence fits into, and rows of a shard for training."""
        width = max(128, int(self.lengths.max()))
        needed = lay_out(self.lengths, 1, width=width).rows
        most = max(1, ROWS * 128 // width)  # a single long sentence must not widen many rows
        return width, min(most, next_size(-(-needed // 2)))

    def digest(self) -> str:
        """Says which pool this is."""
        digest = hashlib.sha256(repr(self.classes).encode("utf-8", "surrogatepass"))
        features = self.features
        for array in (features.ids, features.values, features.lengths, features.edge_ids):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        if self.groups is not None:
            digest.update(self.groups.tobytes())
        return digest.hexdigest()

    def problem(self, trained: np.ndarray, labels: EncodedLabels) -> Problem:
        """To learn from some of the sentences."""
        return Problem(
            features=take_sentences(self.features, trained),
            labels=labels,
            classes=self.classes,
            attributes=self.extractor.attribute_count,
            edge_attributes=self.extractor.edge_attribute_count,
            transitions=self.transitions,
            legal=self.legal,
            sentence_weights=None,
        )


def _classes(classes: Any, y: Any, lengths: np.ndarray) -> list[str]:
    if classes is None:
        if y is None:
            raise ValueError("classes: expected the labels that may be given, got None without y")
        return find_classes(check_labels(as_partial(y, lengths), lengths), lengths)
    plain = isinstance(classes, Iterable) and not isinstance(classes, str | bytes)
    found = list(classes) if plain else []
    if not found or not all(isinstance(name, str) for name in found):
        raise ValueError(f"classes: expected labels, strings, at least one, got {classes!r:.80}")
    return sorted({str(name) for name in found})
