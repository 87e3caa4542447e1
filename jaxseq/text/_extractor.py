"""What every feature extractor does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxseq.text._shared_corpus import SharedCorpus
from jaxseq.text._token_features import TokenFeatures


class FeatureExtractor(ABC):
    """Turns sentences into integer attributes, with a vocabulary that is learnt once.

    `fit_transform` learns the vocabulary, after which it is frozen: `transform` gives −1 for
    what was not seen. The same sentences give the same numbers in every run. `state` and
    `from_state` store an extractor; `extractor_from_state` finds the class by itself.

    Example:
        >>> from jaxseq.text import TemplateExtractor
        >>> extractor = TemplateExtractor(["word[0]"])
        >>> extractor.fit_transform([["the", "dog"]]).ids.tolist()
        [[0], [1]]
        >>> extractor.transform([["the", "cat"]]).ids.tolist()
        [[0], [-1]]
    """

    @abstractmethod
    def fit_transform(
        self, sentences: Iterable[Any], shared: SharedCorpus | None = None
    ) -> TokenFeatures:
        """Learn the vocabulary of the sentences and give their attributes.

        With `shared`, the vocabulary is that of the whole corpus, of which these are a part.

        Raises ValueError when the extractor already has a vocabulary.
        """

    @abstractmethod
    def transform(self, sentences: Iterable[Any]) -> TokenFeatures:
        """Attributes of the sentences; −1 for those that are not in the vocabulary."""

    @property
    @abstractmethod
    def attribute_count(self) -> int:
        """Number of attributes; ids are 0 … attribute_count − 1."""

    @property
    @abstractmethod
    def edge_attribute_count(self) -> int:
        """Number of attributes of pairs of tokens, numbered apart."""

    @abstractmethod
    def attribute_names(self) -> list[str]:
        """Name of each attribute, by id; made when first asked for, and meant for reading."""

    @abstractmethod
    def edge_attribute_names(self) -> list[str]:
        """Name of each attribute of pairs of tokens, by id."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything needed to rebuild it: a dict that JSON can hold, and named arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> FeatureExtractor:
        """The extractor that `state` describes; ValueError on a state that is not sound."""


def require_fitted(fitted: bool) -> None:
    """ValueError unless there is a vocabulary.

    Example:
        >>> require_fitted(True)
    """
    if not fitted:
        raise ValueError("extractor: expected a learnt vocabulary; call fit_transform first")


def require_unfitted(fitted: bool) -> None:
    """ValueError if there is already a vocabulary.

    Example:
        >>> require_unfitted(False)
    """
    if fitted:
        raise ValueError(
            "extractor: its vocabulary is learnt and frozen; call transform, or make a new one"
        )
