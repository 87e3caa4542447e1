"""Functions of one token's string that templates may call, word types among them."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from jaxseq.text._vocabulary import Column

# By name, since it stands above this package: it is trained on corpora, and by EM.
_HOME = "jaxseq.representations"


@runtime_checkable
class WordRepresentation(Protocol):
    """Features of words that were learnt from text without labels."""

    @property
    def column(self) -> str:
        """The column of sentences that has the words."""
        ...

    @property
    def digest(self) -> str:
        """Differs between representations that give different features."""
        ...

    def function(self, name: str, argument: int | str | None) -> Callable[[str], str | None]:
        """The function ``cluster`` or ``brown``; ValueError where there is none with it."""
        ...

    def states(self, words: Column, lengths: np.ndarray) -> Column:
        """The state of each token of a corpus."""
        ...

    def templates(self) -> list[str]:
        """Templates that make good use of it."""
        ...

    def coverage(self, words: Any) -> float:
        """The share of words that it knows."""
        ...

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What JSON can hold, and arrays: all that makes it again."""
        ...


def find_representation(value: Any) -> WordRepresentation | None:
    """A representation, of itself or of the file it is in; None for None."""
    if value is None or isinstance(value, WordRepresentation):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ValueError(
            f"representation: expected a Representation, its file or None, got {value!r:.60}"
        )
    return importlib.import_module(_HOME).load_representation(value)


def representation_from_state(meta: Any, arrays: Mapping[str, Any]) -> WordRepresentation:
    """The representation that `WordRepresentation.to_state` described; ValueError on no such."""
    return importlib.import_module(_HOME).Representation.from_state(meta, arrays)


# Word types: the spelling properties of Wanvarie et al. (2011), table 3.

# ----------------------------------------------------------------------------------- kinds of words

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


# Functions of one token's string that templates may call.


FLAG = "1"  # what a flag gives where it holds
TokenFunction = Callable[[str], str | None]


@dataclass(frozen=True)
class Call:
    """One call of a function: its name and its argument besides the string, if it has one."""

    name: str
    argument: int | str | None = None

    def around(self, inner: str) -> str:
        """The call as written in a template, with ``inner`` as the string it works on."""
        if self.argument is None:
            return f"{self.name}({inner})"
        if isinstance(self.argument, int):
            return f"{self.name}({inner}, {self.argument})"
        return f'{self.name}({inner}, "{self.argument}")'

    def __str__(self) -> str:
        return self.around("…")


@dataclass(frozen=True)
class FunctionKind:
    """How a function of the template language is called, and what makes it."""

    argument: Literal["none", "length", "size", "regex"]  # what it takes besides the string
    make: Callable[[int | str | None], TokenFunction]  # the argument → the function of a string
    flag: bool  # it says yes (`FLAG`) or nothing; nothing of a place past the end of a sentence
    learnt: bool = False  # a word representation knows what it gives


def shape(word: str) -> str:
    """The word with capitals as ``A``, other letters as ``a`` and digits as ``0``: ``AA-0Aa``."""
    return "".join(map(_shape_of_character, word))


def short_shape(word: str) -> str:
    """The `shape` with every run of one sign as one sign."""
    return "".join(sign for sign, _ in itertools.groupby(shape(word)))


def _shape_of_character(character: str) -> str:
    if character.isupper():
        return "A"
    if character.isalpha():
        return "a"
    return "0" if character.isdecimal() else character


def _plain(function: TokenFunction) -> FunctionKind:
    return FunctionKind("none", lambda _: function, flag=False)


def _flag(holds: Callable[[str], bool]) -> FunctionKind:
    return FunctionKind("none", lambda _: lambda word: FLAG if holds(word) else None, flag=True)


def _prefix(length: int | str | None) -> TokenFunction:
    size = int(length or 0)
    return lambda word: word[:size] if len(word) >= size else None


def _suffix(length: int | str | None) -> TokenFunction:
    size = int(length or 0)  # at least 1, or else word[-0:] would be all of it
    return lambda word: word[-size:] if len(word) >= size else None


def _match(pattern: int | str | None) -> TokenFunction:
    matches = re.compile(str(pattern)).fullmatch
    return lambda word: FLAG if matches(word) else None


def _learnt(name: str, argument: Literal["none", "length", "size"]) -> FunctionKind:
    def refuse(_: int | str | None) -> TokenFunction:
        raise ValueError(f"templates: expected a representation along with {name}(…), got none")

    return FunctionKind(argument, refuse, flag=False, learnt=True)


STATE = "state"
"""The one function that looks at the sentence around the word."""

FUNCTIONS: dict[str, FunctionKind] = {
    "lower": _plain(str.lower),
    "prefix": FunctionKind("length", _prefix, flag=False),
    "suffix": FunctionKind("length", _suffix, flag=False),
    "shape": _plain(shape),
    "short_shape": _plain(short_shape),
    "word_type": _plain(word_type),
    "has_digit": _flag(lambda word: any(map(str.isdecimal, word))),
    "has_hyphen": _flag(lambda word: "-" in word),
    "has_upper": _flag(lambda word: any(map(str.isupper, word))),
    "is_capitalized": _flag(lambda word: word[:1].isupper()),
    "is_upper": _flag(str.isupper),
    "is_digits": _flag(str.isdecimal),
    "match": FunctionKind("regex", _match, flag=True),
    "cluster": _learnt("cluster", "size"),
    "brown": _learnt("brown", "length"),
    STATE: _learnt(STATE, "none"),
}


def compose(
    calls: tuple[Call, ...], representation: WordRepresentation | None = None
) -> TokenFunction:
    """The calls one after the other, as one function; nothing (None) stays nothing."""
    # Made once for a corpus, regular expressions compiled; called once per distinct string.
    functions = [_make(call, representation) for call in calls]
    if len(functions) == 1:
        return functions[0]

    def composed(word: str) -> str | None:
        value: str | None = word
        for function in functions:
            if value is None:
                return None
            value = function(value)
        return value

    return composed


def _make(call: Call, representation: WordRepresentation | None) -> TokenFunction:
    kind = FUNCTIONS[call.name]
    if not kind.learnt or representation is None:
        return kind.make(call.argument)
    if call.name == STATE:
        raise ValueError(f"templates: expected {STATE}(…) of a cell alone, got it of a function")
    return representation.function(call.name, call.argument)


def is_learnt(calls: tuple[Call, ...]) -> bool:
    """Whether a word representation is needed."""
    return any(FUNCTIONS[call.name].learnt for call in calls)


def is_flag(calls: tuple[Call, ...]) -> bool:
    """Whether the calls give only yes or nothing."""
    return any(FUNCTIONS[call.name].flag for call in calls)
