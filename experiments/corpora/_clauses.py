"""Clauses and sentences of English, with chunks."""

from __future__ import annotations

from experiments.corpora._inflection import inflect
from experiments.corpora._phrases import (
    Lexis,
    Token,
    Tokens,
    chunk,
    full_noun_phrase,
    noun_phrase,
    prepositional_phrase,
    verb_phrase,
)
from experiments.corpora._stream import Stream, Weighted

_CONJUNCTIONS = Weighted(
    ("that", 40), ("if", 10), ("because", 8), ("as", 9), ("while", 6), ("after", 6), ("before", 3),
    ("since", 3), ("although", 5), ("whether", 4), ("until", 2),
)  # fmt: skip
_PARTICLES = ("up", "out", "down", "off", "on", "over")
_COPULAS = Weighted(
    (("is", "VBZ"), 36), (("was", "VBD"), 30), (("are", "VBP"), 18), (("were", "VBD"), 14),
    (("remains", "VBZ"), 3), (("became", "VBD"), 3), (("seems", "VBZ"), 3),
)  # fmt: skip
_PREDICATES = Weighted(("object", 52), ("copula", 17), ("bare", 18), ("that", 9), ("particle", 4))
_COMMA = Token(",", ",")


def clause(stream: Stream, lexis: Lexis, depth: int = 0) -> Tokens:
    """A subject and a predicate, sometimes with a subordinate clause."""
    tokens = full_noun_phrase(stream, lexis, subject=True)
    if tokens[-1].pos.startswith("NN") and stream.chance(6):
        tokens += [*chunk("NP", stream.pick((("which", "WDT"), ("that", "WDT"), ("who", "WP"))))]
        tokens += [*verb_phrase(stream, lexis), *noun_phrase(stream, lexis)]
    return tokens + predicate(stream, lexis, depth)


def predicate(stream: Stream, lexis: Lexis, depth: int = 0) -> Tokens:
    """A verb and what follows it."""
    kind = _PREDICATES.draw(stream)
    if kind == "copula":
        tokens = [*chunk("VP", _COPULAS.draw(stream)), *_complement(stream, lexis)]
    else:
        tokens = verb_phrase(stream, lexis)
    if kind == "particle":
        tokens += chunk("PRT", (stream.pick(_PARTICLES), "RP"))
    if kind in ("object", "particle"):
        tokens += full_noun_phrase(stream, lexis)
    if kind == "that" and depth < 2:
        tokens += subordinate(stream, lexis, depth)
    if stream.chance(11):
        tokens += _adverb(stream, lexis)
    while stream.chance(38):
        tokens += prepositional_phrase(stream, lexis)
    return tokens


def _complement(stream: Stream, lexis: Lexis) -> Tokens:
    """What follows *is*: adjectives that make a chunk of their own, or a noun phrase."""
    if stream.chance(28):
        return full_noun_phrase(stream, lexis)
    pairs = [(lexis.adjectives.draw(stream), "JJ")]
    if stream.chance(14):
        pairs = [(inflect(lexis.verbs.draw(stream), "VBN"), "VBN")]
    if stream.chance(30):
        pairs.insert(0, (lexis.adverbs.draw(stream), "RB"))
    tokens = chunk("ADJP", *pairs)
    return tokens + (prepositional_phrase(stream, lexis) if stream.chance(30) else [])


def _adverb(stream: Stream, lexis: Lexis) -> Tokens:
    pairs = [(lexis.adverbs.draw(stream), "RB")]
    if stream.chance(12):
        pairs.insert(0, (stream.pick(("very", "more", "so")), "RB"))
    return chunk("ADVP", *pairs)


def subordinate(stream: Stream, lexis: Lexis, depth: int) -> Tokens:
    """A conjunction, which is a chunk by itself, and its clause; *that* is often left out."""
    word = _CONJUNCTIONS.draw(stream)
    head = [] if word == "that" and stream.chance(25) else chunk("SBAR", (word, "IN"))
    return head + clause(stream, lexis, depth + 1)


def _opening(stream: Stream, lexis: Lexis) -> Tokens:
    """What stands before the subject of a sentence."""
    kind = stream.below(100)
    if kind < 18:
        return [*prepositional_phrase(stream, lexis), _COMMA]
    if kind < 25:
        return [Token(stream.pick(("but", "and", "yet")), "CC")]
    if kind < 33:
        return [*subordinate(stream, lexis, 1), _COMMA]
    if kind < 41:
        return [*_adverb(stream, lexis), _COMMA]
    return []


def _continuation(stream: Stream, lexis: Lexis) -> Tokens:
    """What follows the main clause."""
    kind = stream.below(100)
    if kind < 20:
        return [_COMMA, Token(stream.pick(("and", "but")), "CC"), *clause(stream, lexis, 1)]
    if kind < 30:
        return [Token("and", "CC"), *predicate(stream, lexis, 1)]
    if kind < 44:
        verb = inflect(lexis.verbs.draw(stream), "VBG")
        return [_COMMA, *chunk("VP", (verb, "VBG")), *full_noun_phrase(stream, lexis)]
    if kind < 60:
        return subordinate(stream, lexis, 1)
    if kind < 67:
        return [_COMMA, *full_noun_phrase(stream, lexis), _COMMA, *predicate(stream, lexis, 1)]
    if kind < 68:
        link = chunk("CONJP", ("as", "RB"), ("well", "RB"), ("as", "IN"))
        return [*link, *noun_phrase(stream, lexis)]
    return []


def sentence(stream: Stream, lexis: Lexis) -> Tokens:
    """A sentence, without its capital: see `capitalised`."""
    tokens = [*_opening(stream, lexis), *clause(stream, lexis), *_continuation(stream, lexis)]
    return with_articles([*tokens, Token(".", ".")])


def capitalised(tokens: Tokens) -> Tokens:
    """The tokens with a capital at the first word.

    Example:
        >>> [token.word for token in capitalised([Token("a", "DT"), Token("dog", "NN")])]
        ['A', 'dog']
    """
    first = tokens[0]
    return [first._replace(word=first.word[:1].upper() + first.word[1:]), *tokens[1:]]


def with_articles(tokens: Tokens) -> Tokens:
    """The tokens with *an* for *a* before a vowel."""
    following = [*(token.word[0] in "aeiou" for token in tokens[1:]), False]
    return [
        token._replace(word="an") if vowel and token.word == "a" else token
        for token, vowel in zip(tokens, following)
    ]


_SLIPS = {
    "NN": ("JJ", "VB", "NNP"),
    "JJ": ("NN", "VBN", "NN"),
    "VBD": ("VBN", "VBN", "NN"),
    "VBN": ("VBD", "VBD", "JJ"),
    "VBG": ("NN", "NN", "JJ"),
    "NNS": ("VBZ", "VBZ", "NN"),
    "VBZ": ("NNS", "NNS", "NN"),
    "VB": ("NN", "VBP", "VBP"),
    "VBP": ("VB", "VB", "NN"),
    "RP": ("IN", "IN", "RB"),
    "IN": ("RB", "RB", "DT"),
    "RB": ("JJ", "JJ", "IN"),
    "DT": ("IN", "PRP", "NN"),
}


def mistagged(tokens: Tokens, stream: Stream) -> Tokens:
    """The tokens with the errors of a tagger in their parts of speech, three in a hundred."""
    out = []
    for token in tokens:
        slip = token.pos in _SLIPS and stream.below(100) < (25 if token.pos == "RP" else 3)
        out.append(token._replace(pos=stream.pick(_SLIPS[token.pos])) if slip else token)
    return out
