"""Tokens of a pool that are alike, so that a round need not ask for the same again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxseq.text import TemplateExtractor
from jaxseq.text._extractor_corpus import ONLY_COLUMN, read_corpus


def word_forms(sentences: list[Any]) -> np.ndarray | None:
    """A number for the word of every token, the same for words that differ in case alone.

    Args:
        sentences: each a `Sentence`, a mapping column → strings, or strings.

    Returns:
        int [N]; None where tokens have no words, but attributes or other columns.

    Example:
        >>> word_forms([["The", "dog"], ["the"]]).tolist()
        [0, 1, 0]
        >>> word_forms([[{"length": 3}]])
    """
    try:
        column = read_corpus(sentences, [ONLY_COLUMN])[0][ONLY_COLUMN]
    except ValueError:
        return None
    numbers: dict[str, int] = {}
    forms = [numbers.setdefault(word.casefold(), len(numbers)) for word in column.strings]
    return np.array(forms, np.int64)[column.codes]


def groups_alike(sentences: list[Any], template: str) -> np.ndarray:
    """A number for the value that a template has for every token.

    Args:
        sentences: each a `Sentence`, a mapping column → strings, or strings. template: the text.

    Returns:
        int [N].

    Raises:
        ValueError: for what is no template, or one of a column that the sentences do not have.

    Example:
        >>> groups_alike([["The", "dog"], ["the"]], "lower(word[0])").tolist()
        [1, 2, 1]
        >>> len(set(groups_alike([["the", "dog"], ["the"]], "word[0]|word[1]").tolist()))
        3
    """
    try:
        ids = TemplateExtractor([template]).fit_transform(sentences).ids
    except ValueError as error:
        raise ValueError(f"alike: {error}") from None
    # A template that is a flag has no attribute where it does not hold: these are alike, too.
    return ids[:, 0].astype(np.int64) + 1
