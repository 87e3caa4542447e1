"""Word forms of a pool, so that a round need not ask for one word again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

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
