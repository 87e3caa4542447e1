"""Phrases of English, token by token, with parts of speech and chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from experiments.corpora._inflection import inflect
from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._words import Lexicon, plural


class Token(NamedTuple):
    """A word, its tag of the Penn Treebank, its chunk and its mention (both IOB2)."""

    word: str
    pos: str
    chunk: str = "O"
    mention: str = "O"


Tokens = list[Token]


def chunk(kind: str, *pairs: tuple[str, str]) -> Tokens:
    """The (word, pos) pairs as one chunk.

    Example:
        >>> [token.chunk for token in chunk("NP", ("the", "DT"), ("price", "NN"))]
        ['B-NP', 'I-NP']
    """
    return [Token(*pair, f"{'I' if at else 'B'}-{kind}") for at, pair in enumerate(pairs)]


def inside(kind: str, tokens: Tokens) -> Tokens:
    """The tokens of one chunk, as they are when it began before them."""
    return [token._replace(chunk=f"I-{kind}") for token in tokens]


@dataclass(frozen=True)
class Lexis:
    """The words of a kind of text.

    Attributes:
        nouns: common nouns in the singular.
        adjectives: that stand before nouns and after verbs.
        verbs: infinitives.
        adverbs: of manner and degree.
        name: makes a noun phrase that names something.
        names: how many noun phrases of a hundred are such.
        numbers: how many noun phrases of a hundred are amounts.
        pronouns: how many of a hundred are pronouns.
        unit: makes an amount.
    """

    nouns: Lexicon
    adjectives: Lexicon
    verbs: Lexicon
    adverbs: Lexicon
    name: Callable[[Stream], Tokens]
    names: int
    numbers: int
    pronouns: int
    unit: Callable[[Stream], Tokens]


_DETERMINERS = Weighted(
    (("the", "DT"), 50), (("a", "DT"), 24), (("this", "DT"), 4), (("its", "PRP$"), 8),
    (("their", "PRP$"), 4), (("some", "DT"), 3), (("any", "DT"), 2), (("that", "DT"), 2),
    (("each", "DT"), 2), (("no", "DT"), 2), (("all", "DT"), 2), (("both", "DT"), 1),
)  # fmt: skip
_PRONOUNS = Weighted(
    (("it", "PRP"), 30), (("he", "PRP"), 20), (("they", "PRP"), 18), (("we", "PRP"), 10),
    (("I", "PRP"), 6), (("that", "DT"), 6), (("there", "EX"), 4), (("this", "DT"), 4),
)  # fmt: skip
_OBJECTS = Weighted(
    (("it", "PRP"), 40), (("them", "PRP"), 30), (("him", "PRP"), 14), (("that", "DT"), 10),
    (("us", "PRP"), 6),
)  # fmt: skip
_PREPOSITIONS = Weighted(
    ("of", 36), ("in", 24), ("for", 12), ("with", 7), ("by", 6), ("from", 6), ("on", 6), ("at", 5),
    ("after", 2), ("before", 1), ("since", 1), ("as", 3), ("under", 1), ("about", 1), ("than", 2),
    ("to", 9), ("over", 2), ("through", 1), ("during", 2), ("between", 1), ("up", 1), ("like", 1),
)  # fmt: skip
_LONG_PREPOSITIONS = (("because", "of"), ("such", "as"), ("according", "to"), ("instead", "of"))
_SINGULAR = frozenset(("a", "this", "each", "that"))
_PLURAL = frozenset(("both", "all", "some"))


def noun_phrase(stream: Stream, lexis: Lexis, subject: bool = False) -> Tokens:
    """A noun phrase of one chunk, or of two with a genitive between."""
    kind = stream.below(100)
    if kind < (2 * lexis.pronouns if subject else lexis.pronouns // 3):
        return chunk("NP", (_PRONOUNS if subject else _OBJECTS).draw(stream))
    if stream.chance(lexis.names):
        phrase = lexis.name(stream)
    elif stream.chance(lexis.numbers):
        return lexis.unit(stream)
    else:
        phrase = _common_phrase(stream, lexis)
    if stream.chance(5):
        owned = _common_phrase(stream, lexis, bare=True)
        return [*phrase, *chunk("NP", ("'s", "POS")), *inside("NP", owned)]
    return phrase


def _common_phrase(stream: Stream, lexis: Lexis, bare: bool = False) -> Tokens:
    pairs: list[tuple[str, str]] = []
    many = stream.chance(32)
    if not bare and stream.chance(35 if many else 82):
        pairs.append(_DETERMINERS.draw(stream))
        many = (many or pairs[0][0] in _PLURAL) and pairs[0][0] not in _SINGULAR
    if many and stream.chance(12):
        pairs.append((stream.pick(("two", "three", "many", "several", "10", "25")), "CD"))
        if pairs[-1][0] in ("many", "several"):
            pairs[-1] = (pairs[-1][0], "JJ")
    while stream.chance(34 if len(pairs) < 3 else 10):
        pairs.append(_modifier(stream, lexis))
    if stream.chance(27):
        pairs.append((lexis.nouns.draw(stream), "NN"))
    noun = lexis.nouns.draw(stream)
    pairs.append((plural(noun), "NNS") if many else (noun, "NN"))
    if stream.chance(4):
        pairs += [("and", "CC"), (plural(lexis.nouns.draw(stream)), "NNS")]
    return chunk("NP", *pairs)


def _modifier(stream: Stream, lexis: Lexis) -> tuple[str, str]:
    """An adjective, or a participle that looks like a verb."""
    if stream.chance(14):
        pos = stream.pick(("VBN", "VBG"))
        return inflect(lexis.verbs.draw(stream), pos), pos
    if stream.chance(4):
        return stream.pick((("more", "JJR"), ("most", "JJS"), ("higher", "JJR"), ("last", "JJ")))
    return lexis.adjectives.draw(stream), "JJ"


def prepositional_phrase(stream: Stream, lexis: Lexis) -> Tokens:
    """A preposition, which is a chunk by itself, and its noun phrase."""
    if stream.chance(3):
        first, second = stream.pick(_LONG_PREPOSITIONS)
        head = chunk("PP", (first, "JJ" if first == "such" else "IN"), (second, "IN"))
    else:
        preposition = _PREPOSITIONS.draw(stream)
        head = chunk("PP", (preposition, "TO" if preposition == "to" else "IN"))
    return [*head, *noun_phrase(stream, lexis)]


def full_noun_phrase(stream: Stream, lexis: Lexis, subject: bool = False) -> Tokens:
    """A noun phrase with what hangs on it: phrases of prepositions, a second one after *and*."""
    tokens = noun_phrase(stream, lexis, subject)
    while stream.chance(26 if subject else 31):
        tokens += prepositional_phrase(stream, lexis)
    if stream.chance(6):
        tokens += [Token("and", "CC"), *noun_phrase(stream, lexis)]
    return tokens


_MODALS = ("will", "would", "could", "may", "can", "should", "might")
_VERB_SHAPES = Weighted(
    ("VBD", 36), ("VBZ", 12), ("VBP", 8), ("MD VB", 10), ("has VBN", 7), ("is VBG", 7),
    ("was VBN", 10), ("MD be VBN", 4), ("has been VBN", 2), ("VBD to VB", 5), ("is VBN to VB", 2),
)  # fmt: skip
_AUXILIARIES = {
    "has": (("has", "VBZ"), ("have", "VBP"), ("had", "VBD")),
    "is": (("is", "VBZ"), ("are", "VBP"), ("was", "VBD")),
    "was": (("was", "VBD"), ("were", "VBD"), ("is", "VBZ")),
    "be": (("be", "VB"),),
    "been": (("been", "VBN"),),
    "to": (("to", "TO"),),
}


def verb_phrase(stream: Stream, lexis: Lexis) -> Tokens:
    """The verbs of a clause; adverbs among them belong to the chunk, others may not."""
    before = chunk("ADVP", (lexis.adverbs.draw(stream), "RB")) if stream.chance(4) else []
    shape = _VERB_SHAPES.draw(stream).split()
    pairs: list[tuple[str, str]] = []
    splits = 0
    for at, part in enumerate(shape):
        if part == "to" and stream.chance(20):
            splits = len(pairs)
        if part == "MD":
            pairs.append((stream.pick(_MODALS), "MD"))
        elif part in _AUXILIARIES:
            pairs.append(stream.pick(_AUXILIARIES[part]))
        else:
            pairs.append((inflect(lexis.verbs.draw(stream), part), part))
        if at == 0 and len(shape) > 1 and stream.chance(14):
            adverb = "not" if stream.chance(30) else lexis.adverbs.draw(stream)
            pairs.append((adverb, "RB"))
    if splits:
        return [*before, *chunk("VP", *pairs[:splits]), *chunk("VP", *pairs[splits:])]
    return [*before, *chunk("VP", *pairs)]
