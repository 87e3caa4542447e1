"""What papers are about: phrases of technical words, their capitals, and titles made of them."""

from __future__ import annotations

import re

from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._words import (
    COIN,
    Lexicon,
    coin_adjective,
    coin_noun,
    coin_verb,
    listed,
    plural,
)

NOUNS = Lexicon(
    listed(
        "system model algorithm network program method analysis problem language design logic "
        "learning knowledge structure process control information machine application data "
        "performance memory query database graph function approach time computer software search "
        "communication theory constraint architecture code environment tool task agent robot image "
        "rule object tree proof type evaluation simulation protocol cache compiler processor state "
        "state-space schedule matrix equation grammar concept speech vision belief plan interface "
        "pages"
    ),
    coin_noun,
    octaves=14,
)
ADJECTIVES = Lexicon(
    listed(
        "parallel distributed efficient neural new logical formal dynamic optimal adaptive fast "
        "general real-time object-oriented automatic linear large-scale probabilistic "
        "artificial symbolic intelligent massively-parallel statistical incremental concurrent "
        "practical approximate genetic visual"
    ),
    coin_adjective,
    octaves=13,
)
_VERBS = Lexicon(
    listed("us learn design model comput improv reason schedul plan build prov understand"),
    coin_verb,
    octaves=8,
)
_PHRASES = Weighted(("N", 20), ("AN", 30), ("NN", 22), ("ANN", 16), ("AAN", 6), ("NNN", 6))
_PREPOSITIONS = Weighted(
    ("for", 30), ("of", 34), ("in", 22), ("with", 8), ("on", 4), ("from", 4), ("to", 5), ("by", 4)
)
_TITLES = Weighted(
    ("P p P", 18),
    ("P p P p P", 20),
    ("a P p P", 9),
    ("the P of P", 7),
    ("on the P of P", 4),
    ("G P p P", 11),
    ("G P", 2),
    ("P and P", 7),
    ("P and P p P", 10),
    ("P: P p P", 6),
    ("P: a P p P", 9),
    ("P", 3),
    ("a P p P and P", 10),
    ("a P to P p the P", 6),
)
_ARTICLE = re.compile(r"\b(an?) (?=(\w))")
LITTLE_WORDS = frozenset(listed("a an and by for from in of on the to with"))


def draw_phrase(stream: Stream) -> str:
    """A noun with what stands before it, in small letters: ``optimal query graphs``."""
    words = [(NOUNS if kind == "N" else ADJECTIVES).draw(stream) for kind in _PHRASES.draw(stream)]
    if stream.chance(40):
        words[-1] = plural(words[-1])
    return " ".join(words)


def draw_title(stream: Stream) -> str:
    """A title without capitals, quotation marks and full stop."""
    words = []
    for part in _TITLES.draw(stream).split():
        kind, colon = part.removesuffix(":"), ":" if part.endswith(":") else ""
        if kind == "P":
            words.append(draw_phrase(stream) + colon)
        elif kind == "p":
            words.append(_PREPOSITIONS.draw(stream))
        elif kind == "G":
            words.append(_VERBS.draw(stream) + "ing")
        else:
            words.append(part)
    return _ARTICLE.sub(_article, " ".join(words))


def _article(match: re.Match[str]) -> str:
    return "an " if match[2] in "aeiou" else "a "


def sentence_case(text: str) -> str:
    """The first letter of the text, and of what follows a colon, as capitals.

    Example:
        >>> sentence_case("on trees: a proof")
        'On trees: A proof'
    """
    return ": ".join(part[:1].upper() + part[1:] for part in text.split(": "))


def title_case(text: str) -> str:
    """Every word with a capital but the little ones.

    Example:
        >>> title_case("proof of a real-time system")
        'Proof of a Real-Time System'
    """
    return sentence_case(" ".join(_capital(word) for word in text.split()))


def _capital(word: str) -> str:
    if word in LITTLE_WORDS:
        return word
    return "-".join(part[:1].upper() + part[1:] for part in word.split("-"))


def coin_topic(rank: int) -> str:
    """A subject of conferences and journals, with capitals: ``Dynamic Memory Analysis``."""
    stream = Stream.keyed(COIN, 20, rank)
    topic = draw_phrase(stream)
    if stream.chance(35):
        topic += f" and {draw_phrase(stream)}"
    return title_case(topic)


TOPICS = Lexicon(
    (
        "Artificial Intelligence",
        "Machine Learning",
        "Computer Science",
        "Programming Languages",
        "Distributed Systems",
        "Logic Programming",
        "Very Large Data Bases",
        "Software Engineering",
        "Parallel Processing",
        "Information Theory",
        "Neural Networks",
        "Computer Vision",
        "Operating Systems",
        "Knowledge and Data Engineering",
        "Robotics and Automation",
    ),
    coin_topic,
    octaves=8,
)
