"""Spans of tags as the script conlleval finds them."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int, str]

_SAME_AS = {"L": "E", "U": "S"}  # BILOU's letters for what IOBES calls E and S
_OUTSIDE = ("O", ".")


def _pairs(*texts: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(pair) for text in texts for pair in text.split())


# Letters of two tags of one type. Of each table the first line is the script's, the second is for
# IOBES, which the script does not know.
_END_BETWEEN = _pairs("BB IB EE EI", "EB BS IS ES SB SI SE SS")
_START_AT_SECOND = _pairs("BB IB OB OI EE EI OE", "EB OS BS IS ES SB SI SE SS")


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans in a sequence of tags, by the rules of conlleval.

    No tag is illegal: a span begins where the type changes, or where the letters say so (such as
    O and then I), and ends likewise, so that tags of IOB1 and IOB2 and the errors of a labeller
    are all read. The letters E and S of IOBES, and L and U of BILOU, which mean the same, are
    read too. For B, I, E and O the rules are those of the script, with one exception that IOBES
    needs: B after E of the same type begins a span. A tag is split at its first dash; without
    one its type is empty.

    Args:
        tags: one sequence. (`jaxseq.text.tag_spans` reads it strictly by one scheme.)

    Returns:
        (start, stop, type) of each span, in order; the last token is stop − 1.

    Example:
        >>> spans(["I-NP", "I-NP", "B-NP", "O", "I-VP", "I-PP"])
        [(0, 2, 'NP'), (2, 3, 'NP'), (4, 5, 'VP'), (5, 6, 'PP')]

    Reference:
        Tjong Kim Sang & Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking".
    """
    found: list[Span] = []
    last_letter, last_kind, start = "O", "", -1
    for position, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = _SAME_AS.get(letter, letter)
        outside, same = letter in _OUTSIDE, kind == last_kind
        pair = (last_letter, letter)
        if start >= 0 and (outside or not same or pair in _END_BETWEEN):
            found.append((start, position, last_kind))
            start = -1
        if not outside and (not same or pair in _START_AT_SECOND):
            start = position
        last_letter, last_kind = letter, kind
    return found
