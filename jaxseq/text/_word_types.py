"""Word types: the spelling properties of Wanvarie et al. (2011), table 3."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

NO_WORD_TYPE = "Plain"
QUOTATION_MARKS = frozenset("'\"`´‘’‚‛“”„‟«»‹›")


def _is_punctuation(character: str) -> bool:
    """Punctuation or a symbol: the paper's examples hold ``$`` and ``#``, which are symbols."""
    return unicodedata.category(character)[0] in "PS"


def _is_dash(character: str) -> bool:
    return unicodedata.category(character) == "Pd"


def _is_mixed(word: str) -> bool:
    return any(map(str.isupper, word)) and any(map(str.islower, word))


_PROPERTIES: dict[str, Callable[[str], bool]] = {
    "InitCap": lambda word: word[:1].isupper(),
    "AllCaps": lambda word: word.isalpha() and all(map(str.isupper, word)),
    "Mixed": _is_mixed,
    "SingleDigit": lambda word: len(word) == 1 and word.isdecimal(),
    "AllDigits": str.isdecimal,
    "TwoPeriods": lambda word: word.count(".") >= 2,
    "EndsInPeriod": lambda word: word.endswith("."),
    "Dash": lambda word: any(map(_is_dash, word)),
    "SingleCharacter": lambda word: len(word) == 1,
    "Punctuation": lambda word: any(map(_is_punctuation, word)),
    "Quotation": lambda word: any(mark in QUOTATION_MARKS for mark in word),
}

WORD_TYPES: tuple[str, ...] = tuple(_PROPERTIES)
"""Names of the eleven properties, in the order of the paper's table.

>>> len(WORD_TYPES), WORD_TYPES[0]
(11, 'InitCap')
"""


def word_types(word: str) -> tuple[str, ...]:
    """The properties of table 3 that hold for a word, in the order of `WORD_TYPES`.

    InitCap: starts with a capital letter. AllCaps: every character is a capital letter.
    Mixed: holds capital and small letters. SingleDigit: is one digit. AllDigits: holds only
    digits. TwoPeriods: holds at least two periods. EndsInPeriod: ends with a period.
    Dash: holds a dash. SingleCharacter: is one character. Punctuation: holds punctuation or a
    symbol. Quotation: holds a quotation mark. They overlap; for many words none holds.

    Args:
        word: any string.

    Returns:
        Names out of `WORD_TYPES`.

    Example:
        >>> word_types("anti-American")
        ('Mixed', 'Dash', 'Punctuation')
        >>> word_types("the")
        ()

    Reference: Wanvarie, Takamura and Okumura (2011), Active learning with subsequence sampling
    strategy for sequence labeling tasks, table 3.
    """
    return tuple(name for name, holds in _PROPERTIES.items() if holds(word))


def word_type(word: str) -> str:
    """All properties of a word as one string, the value of the feature ``[wtp_i]``.

    The paper does not say how overlapping properties become one feature. Here their names are
    joined by ``+``, so that words agree in the feature when they agree in all eleven.

    Args:
        word: any string.

    Returns:
        The joined names, or ``"Plain"`` where no property holds.

    Example:
        >>> word_type("Chancellor")
        'InitCap+Mixed'
        >>> word_type("the")
        'Plain'

    Reference: Wanvarie, Takamura and Okumura (2011), table 3.
    """
    return "+".join(word_types(word)) or NO_WORD_TYPE
