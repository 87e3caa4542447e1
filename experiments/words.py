"""What models see of words, for experiments that compare it."""

from __future__ import annotations

import re
from collections.abc import Callable


def _mask_digits(word: str) -> str:
    return re.sub(r"\d", "0", word)


NORMALISED: dict[str, Callable[[str], str]] = {
    "none": lambda word: word,
    "lower case": str.lower,
    "digits": _mask_digits,
    "lower case and digits": lambda word: _mask_digits(word.lower()),
}
"""What a word becomes before it is looked up."""
