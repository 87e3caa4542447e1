"""Feature templates of the papers."""

from __future__ import annotations

from collections.abc import Iterable

from jaxseq.text._template_set import Templates


def _around(atom: str, offsets: Iterable[int]) -> list[str]:
    """The atom, in which ``#`` stands for the offset, at each offset."""
    return [atom.replace("#", str(offset)) for offset in offsets]


def _joined(atom: str, windows: Iterable[tuple[int, ...]]) -> list[str]:
    """The conjunction of the atom at the offsets of each window."""
    return ["|".join(_around(atom, window)) for window in windows]


_NEAR = (-2, -1, 0, 1, 2)
_NEXT = (-1, 0, 1)
_PAIRS = ((-2, -1), (-1, 0), (0, 1), (1, 2))

TOKEN_IDENTITY = Templates(["word[0]"])
"""The word itself and nothing else: what an HMM sees.

Example:
    >>> TOKEN_IDENTITY.columns
    ('word',)
"""

CONLL2000 = Templates(
    [
        *_around("word[#]", _NEAR),
        *_joined("word[#]", [(-1, 0), (0, 1)]),
        *_around("pos[#]", _NEAR),
        *_joined("pos[#]", _PAIRS),
        *_joined("pos[#]", [(-2, -1, 0), (-1, 0, 1), (0, 1, 2)]),
    ]
)
"""Chunking: the 19 templates of Wanvarie et al. (2011), table 2, for ``word`` and ``pos``.

On the training part of CoNLL-2000 they give 338,551 attributes, and one more with ``bias``.

Example:
    >>> len(CONLL2000.unigram), CONLL2000.columns, CONLL2000.transitions
    (19, ('word', 'pos'), True)

Reference: Wanvarie, Takamura and Okumura (2011), Active learning with subsequence sampling
strategy for sequence labeling tasks, table 2.
"""

CONLL2003 = Templates(
    [
        *_around("word[#]", _NEAR),
        *_joined("word[#]", [(-4, -3, -2, -1), (1, 2, 3, 4)]),
        *_around("lower(word[#])", _NEAR),
        *_joined("lower(word[#])", _PAIRS),
        *_around("word_type(word[#])", _NEAR),
        *_around("pos[#]", _NEAR),
        *_joined("pos[#]", [*_PAIRS, (-1, 0, 1)]),
        *_around("chunk[#]", _NEAR),
        *_joined("chunk[#]", [*_PAIRS, (-1, 0, 1)]),
        *_around("prefix(word[#], 2)", _NEXT),
        *_around("prefix(word[#], 3)", _NEXT),
        *_around("suffix(word[#], 2)", _NEXT),
        *_around("suffix(word[#], 3)", _NEXT),
    ]
)
"""Named entities: the 53 templates of Wanvarie et al. (2011), table 2, right-hand side.

For the columns ``word``, ``pos`` and ``chunk``. A word shorter than a prefix or a suffix does not
have it, and `word_type` says how the overlapping types of table 3 become one attribute; the paper
leaves both open.

Example:
    >>> len(CONLL2003.unigram), CONLL2003.columns
    (53, ('word', 'pos', 'chunk'))

Reference: Wanvarie, Takamura and Okumura (2011), tables 2 and 3.
"""

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    "sigma|tau|upsilon|phi|chi|psi|omega"
)
_LONG_GREEK = "alpha|beta|gamma|delta|epsilon|theta|kappa|lambda|sigma|omega"  # eta is in "beta"
_SPELLINGS = (
    "[A-Z].*",  # begins with a capital
    "[A-Z][a-z]*",  # one capital, then small letters
    "[A-Z]+",
    "[A-Za-z]+",
    ".*[a-z][A-Z].*",  # a capital after a small letter
    "[A-Z]",
    ".*[0-9].*",
    "[0-9]",
    "[0-9][0-9]",
    "[0-9]+",
    "[+-]?[0-9]+[.,][0-9.,]*",  # a real number
    "[A-Za-z0-9]*([A-Za-z][0-9]|[0-9][A-Za-z])[A-Za-z0-9]*",  # letters and digits together
    "[IVXLCDM]+|[ivxlcdm]+",  # a Roman numeral
    ".*-.*",
    "-.*",
    ".*-",
    ".*/.*",
    "[^A-Za-z0-9]+",  # punctuation
    "[()\\[\\]]",
    "['`\\\"]+",
    f"(?i:{_GREEK})",
    f"(?i:.*({_LONG_GREEK}).*)",
    "[ACGTU]+",  # a nucleotide sequence
)

GENE_MENTION = Templates(
    [
        "bias",
        *_around("word[#]", _NEAR),
        *_joined("word[#]", [(-1, 0), (0, 1)]),
        *_around("lower(word[#])", _NEXT),
        *[f"{end}(word[0], {size})" for end in ("prefix", "suffix") for size in (1, 2, 3, 4)],
        *_around("shape(word[#])", _NEXT),
        *_around("short_shape(word[#])", _NEAR),
        *_joined("short_shape(word[#])", [(-1, 0), (0, 1), (-1, 0, 1)]),
        *[f'match(word[{offset}], "{spelling}")' for spelling in _SPELLINGS for offset in _NEXT],
    ]
)
"""Gene mentions: templates in the style of McDonald and Pereira (2005), for ``word`` alone.

Words in a window of two and their conjunctions, prefixes and suffixes of up to four characters,
word shapes in full and with runs made one, and 23 orthographic predicates, each a regular
expression that the whole word matches, on the word and its two neighbours. The style is theirs;
the list of predicates is not a copy of theirs, and lexicons are left out.

Example:
    >>> GENE_MENTION.columns, len(GENE_MENTION.unigram)
    (('word',), 99)

Reference: McDonald and Pereira (2005), Identifying gene and protein mentions in text using
conditional random fields, BMC Bioinformatics 6 (Suppl 1): S6. Jiao, Wang, Lee, Greiner and
Schuurmans (2006) use the same features for semi-supervised learning.
"""
