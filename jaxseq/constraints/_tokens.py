"""Which tokens a rule is about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxseq.constraints._constraint import column_of

PUNCTUATION = r"[^\w\s]+"
"""Tokens that are punctuation marks, as a regular expression."""


@dataclass(frozen=True)
class Tokens:
    """Tokens that are one of some words, or match a regular expression as a whole, or both.

    Args:
        words: a dictionary or seed list.
        pattern: a regular expression that the whole token must match.
        ignore_case: whether upper and lower case are the same.
        column: of the sentences that have several.

    Raises:
        ValueError: for a bad pattern, or neither words nor a pattern.

    Example:
        >>> Tokens(["pp", "pages"], r"[.,;]").marks(["Pages", "3", "."]).tolist()
        [True, False, True]
    """

    words: tuple[str, ...] | Sequence[str] = ()
    pattern: str | None = None
    ignore_case: bool = True
    column: str = "word"

    def __post_init__(self) -> None:
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in self.words):
            raise ValueError(f"words: expected a list of strings, got {self.words!r:.60}")
        object.__setattr__(self, "words", tuple(self.words))
        if not self.words and self.pattern is None:
            raise ValueError("words, pattern: expected at least one word or a pattern, got neither")
        _ = self._expression

    @cached_property
    def _expression(self) -> re.Pattern[str] | None:
        if self.pattern is None:
            return None
        try:
            return re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)
        except (re.error, TypeError) as error:
            raise ValueError(
                f"pattern: expected a regular expression, got {self.pattern!r}: {error}"
            ) from None

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._fold(word) for word in self.words)

    def _fold(self, word: str) -> str:
        return word.casefold() if self.ignore_case else word

    @cached_property
    def _found(self) -> dict[str, bool]:
        """What was found of words so far: a text has few words, often."""
        return {}

    def __contains__(self, word: str) -> bool:
        found = self._found.get(word)
        if found is None:
            found = self._fold(word) in self._known
            if not found and self._expression is not None:
                found = self._expression.fullmatch(word) is not None
            self._found[word] = found
        return found

    def marks(self, sentence: Any) -> np.ndarray:
        """Booleans [n]: which tokens of a sentence these are."""
        found = (word in self for word in column_of(sentence, self.column))
        return np.fromiter(found, bool)
