"""The words that a model of discrete sequences knows, and the one that stands for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

UNKNOWN_WORD = 0
"""The number of the unknown word in every vocabulary."""


class WordVocabulary:
    """Words numbered from 1, in the order in which they first occur; 0 is the unknown word.

    Args:
        sentences: sequences of words.
        min_count: a word seen less often in them is unknown (5 in the paper).

    Example:
        >>> vocabulary = WordVocabulary([["a", "b", "a"], ["c", "b"]], min_count=2)
        >>> vocabulary.words, len(vocabulary)
        (['a', 'b'], 3)
        >>> [ids.tolist() for ids in vocabulary.encode([["b", "c", "d"], []])]
        [[2, 0, 0], []]

    References:
        Haffari & Sarkar 2008, section 5: words seen less than 5 times become the unknown word.
    """

    def __init__(self, sentences: Iterable[Sequence[str]], *, min_count: int = 5):
        if min_count < 1:
            raise ValueError(f"min_count: expected 1 or more, got {min_count}")
        counts = Counter(word for sentence in sentences for word in sentence)
        kept = (word for word, count in counts.items() if count >= min_count)
        self._numbers = {word: number for number, word in enumerate(kept, UNKNOWN_WORD + 1)}

    @property
    def words(self) -> list[str]:
        """The known words, in the order of their numbers."""
        return list(self._numbers)

    @property
    def unknown(self) -> int:
        """The number of the unknown word."""
        return UNKNOWN_WORD

    def __len__(self) -> int:
        """v: the known words and the unknown one."""
        return len(self._numbers) + 1

    def encode(self, sentences: Iterable[Sequence[str]]) -> list[np.ndarray]:
        """The numbers of the words of each sentence."""
        find = self._numbers.get
        return [
            np.fromiter((find(word, UNKNOWN_WORD) for word in sentence), np.int32, len(sentence))
            for sentence in sentences
        ]
