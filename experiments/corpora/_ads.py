"""Advertisements of flats: long, noisy, one subject running into the next."""

from __future__ import annotations

from experiments.corpora._ad_phrases import ASIDES, CLAUSES, GAPS, ORDINALS, TAILS
from experiments.corpora._arguments import checked_size
from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._words import misspelt
from jaxseq.text import Sentence

AD_LABELS = tuple(sorted(CLAUSES))
"""The 11 fields of an advertisement."""

_ADS = 2  # key of this corpus's streams

# How often in a hundred advertisements a field has a first run, a second one and a third.
_RUNS = {
    "FEATURES": (98, 60, 50),
    "NEIGHBORHOOD": (78, 22, 8),
    "SIZE": (81, 14, 2),
    "RENT": (57, 11, 2),
    "RESTRICTIONS": (48, 6, 0),
    "AVAILABLE": (27, 1, 0),
    "UTILITIES": (26, 2, 0),
    "ADDRESS": (26, 1, 0),
    "PHOTOS": (10, 1, 0),
    "ROOMATES": (2, 0, 0),
    "CONTACT": (91, 11, 2),
}
# Clauses of a run: a length, before the size of the advertisement lengthens the talkative fields.
_CLAUSES_OF_RUN = Weighted((1, 46), (2, 28), (3, 14), (4, 8), (6, 4))
_TALKATIVE = {"FEATURES": 2, "NEIGHBORHOOD": 1, "CONTACT": 1}
_SIZES = Weighted((0, 42), (1, 28), (2, 16), (3, 9), (7, 5))
_ENDS = Weighted((".", 40), (",", 24), ("", 18), ("!", 7), ("-", 5), (";", 2), ("and", 4))
_LAST_ENDS = Weighted((".", 44), ("", 37), (",", 10), ("!", 9))
_FIRST = Weighted(("SIZE", 60), ("", 40))


def ads(count: int, seed: int = 0) -> list[Sentence]:
    """Invented advertisements of flats, labelled with 11 fields.

    They resemble the Craigslist advertisements of Grenager et al. (2005): small letters, numbers
    and telephones replaced by their kind (``*NUMBER*1*1``, ``*PHONE*``), about 110 tokens, fields
    that come back and often change without a sign. Advertisement i of a seed does not depend on
    `count`.

    Args:
        count: number of advertisements.
        seed: from 0 to 2⁶⁴ − 1.

    Returns:
        The advertisements, with the columns "word" and "label".

    Raises:
        ValueError: if an argument is not such a number.

    Example:
        >>> from experiments.corpora import ads
        >>> advertisement = ads(3)[2]
        >>> advertisement.columns, ads(5)[2] == advertisement
        (('word', 'label'), True)
    """
    count, seed = checked_size(count, seed)
    return [_ad(Stream.keyed(_ADS, seed, index)) for index in range(count)]


def _ad(stream: Stream) -> Sentence:
    size = _SIZES.draw(stream)
    words: list[str] = []
    labels: list[str] = []
    for label in _draw_fields(stream):
        tokens = _run(stream, label, size)
        words += tokens
        labels += [label] * len(tokens)
    return Sentence({"word": words, "label": labels})


def _draw_fields(stream: Stream) -> list[str]:
    """The fields in their order; at least one."""
    fields = [
        label for label, chances in _RUNS.items() for percent in chances if stream.chance(percent)
    ]
    fields = stream.shuffled(fields or ["FEATURES"])
    first, last = _FIRST.draw(stream), "CONTACT" if stream.chance(88) else ""
    if first in fields:
        fields.remove(first)
        fields.insert(0, first)
    if last in fields:
        fields.remove(last)
        fields.append(last)
    return fields


def _run(stream: Stream, label: str, size: int) -> list[str]:
    number = _CLAUSES_OF_RUN.draw(stream) if label in _TALKATIVE else 1 + stream.chance(35)
    number += size * _TALKATIVE.get(label, 0) * stream.below(3) // 2
    tokens: list[str] = []
    for at in range(number):
        tokens += _clause(stream, label)
        end = (_LAST_ENDS if at == number - 1 else _ENDS).draw(stream)
        tokens += [end] if end else []
    return tokens


def _clause(stream: Stream, label: str) -> list[str]:
    """A clause of the field, an aside, or (one in twenty) what another field would claim."""
    source = stream.pick(AD_LABELS) if stream.chance(5) else label
    aside = stream.chance(22 if label in _TALKATIVE else 8)
    clause = stream.pick(ASIDES if aside else CLAUSES[source])
    if stream.chance(38 if label in _TALKATIVE else 22):
        clause = f"{clause} {stream.pick(TAILS)}"
    tokens: list[str] = []
    for token in clause.split():
        if token in GAPS:
            tokens += GAPS[token].draw(stream).split()
        else:
            tokens.append(stream.pick(ORDINALS) if token == "ORDINAL" else token)
    if stream.chance(5):
        at = stream.below(len(tokens))
        if tokens[at].isalpha():
            tokens[at] = misspelt(tokens[at], stream)
    return tokens
