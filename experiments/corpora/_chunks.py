"""News of business with parts of speech and chunks."""

from __future__ import annotations

from experiments.corpora._arguments import checked_size
from experiments.corpora._citation_names import GIVEN_NAMES, PLACES, SURNAMES
from experiments.corpora._clauses import capitalised, clause, mistagged, sentence, with_articles
from experiments.corpora._phrases import Lexis, Token, Tokens, chunk
from experiments.corpora._stream import Stream
from experiments.corpora._words import Lexicon, coin_adjective, coin_noun, coin_verb, listed
from jaxseq.text import Sentence

_CHUNKS = 3  # key of this corpus's streams


def _infinitive(rank: int) -> str:
    stem = coin_verb(rank)
    return stem + "e" if stem.endswith(("at", "iz", "ul", "it")) else stem


def _coin_adverb(rank: int) -> str:
    return coin_adjective(rank) + "ly"


def _name(stream: Stream) -> Tokens:
    """A person, a company, a place or a time."""
    kind = stream.below(10)
    if kind < 3:
        title = stream.pick(("Mr.", "Mr.", "Mrs.", "Sen.", "President"))
        return chunk("NP", (title, "NNP"), *_proper(SURNAMES.draw(stream)))
    if kind < 4:
        given = GIVEN_NAMES.draw(stream)
        return chunk("NP", (given, "NNP"), *_proper(SURNAMES.draw(stream)))
    if kind < 7:
        tail = stream.pick(("Corp.", "Inc.", "Co.", "Ltd.", "Group", "Bank"))
        return chunk("NP", *_proper(SURNAMES.draw(stream)), (tail, "NNP"))
    if kind < 9:
        return chunk("NP", *_proper(PLACES.draw(stream)))
    times = (("yesterday", "NN"), ("Monday", "NNP"), ("September", "NNP"), ("today", "NN"))
    return chunk("NP", stream.pick(times))


def _proper(name: str) -> list[tuple[str, str]]:
    return [(word, "NNP") for word in name.split()]


def _amount(stream: Stream) -> Tokens:
    """Money, a share of a hundred, or a year."""
    kind = stream.below(10)
    number = f"{stream.between(1, 99)}.{stream.below(10)}"
    about = [("about", "IN")] if stream.chance(15) else []
    if kind < 5:
        scale = [(stream.pick(("million", "million", "billion")), "CD")] if kind < 4 else []
        return chunk("NP", *about, ("$", "$"), (number, "CD"), *scale)
    if kind < 8:
        return chunk("NP", *about, (number, "CD"), ("%", "NN"))
    if kind < 9:
        return chunk("NP", (str(stream.between(1970, 1991)), "CD"))
    share = chunk("NP", ("a", "DT"), ("share", "NN"))
    return [*chunk("NP", (str(stream.between(2, 90)), "CD"), ("cents", "NNS")), *share]


_LEXIS = Lexis(
    nouns=Lexicon(
        listed(
            "company year market share stock price trading sale bank plan rate profit issue bond "
            "business group quarter investor increase official index program analyst report month "
            "executive concern dollar industry interest loss offer product chairman cut unit move "
            "day rise debt government court fund tax deal earning growth force result demand way"
        ),
        coin_noun,
        14,
    ),
    adjectives=Lexicon(
        listed(
            "new big last major federal large high low financial recent strong likely public "
            "foreign "
            "economic early late third net common open current good due able long past weak"
        ),
        coin_adjective,
        13,
    ),
    verbs=Lexicon(
        listed(
            "say expect rise fall make report sell buy offer increase hold plan take show cut "
            "report "
            "drop end close move bring see put set carry help move issue find share force demand"
        ),
        _infinitive,
        11,
    ),
    adverbs=Lexicon(
        listed("also still only recently already however now sharply well early just even"),
        _coin_adverb,
        8,
    ),
    name=_name,
    names=24,
    numbers=11,
    pronouns=9,
    unit=_amount,
)


def chunks(count: int, seed: int = 0) -> list[Sentence]:
    """Invented news of business, with parts of speech and chunks in IOB2.

    The chunks are those of CoNLL-2000 in about its proportions (NP, VP, PP, ADVP, ADJP, SBAR, PRT,
    CONJP); tags have a tagger's errors, words are verbs here and nouns there, and prepositions
    are conjunctions elsewhere, so that a tag alone does not tell the chunk. Sentence i of a seed
    does not depend on `count`.

    Args:
        count: number of sentences.
        seed: from 0 to 2⁶⁴ − 1.

    Returns:
        The sentences, with the columns "word", "pos" and "label".

    Raises:
        ValueError: if an argument is not such a number.

    Example:
        >>> from experiments.corpora import chunks
        >>> text = chunks(4)
        >>> text[0].columns, text[3]["word"][-1]
        (('word', 'pos', 'label'), '.')
    """
    count, seed = checked_size(count, seed)
    return [_sentence(Stream.keyed(_CHUNKS, seed, index)) for index in range(count)]


def _sentence(stream: Stream) -> Sentence:
    tokens = _quotation(stream) if stream.chance(9) else sentence(stream, _LEXIS)
    tokens = mistagged(capitalised(tokens), stream)
    word, pos, label, _ = zip(*tokens, strict=True)
    return Sentence({"word": word, "pos": pos, "label": label})


def _quotation(stream: Stream) -> Tokens:
    """What someone said."""
    said = [*capitalised(with_articles(clause(stream, _LEXIS))), Token(",", ","), Token("''", "''")]
    speaker = [*_name(stream), *chunk("VP", ("said", "VBD"))]
    return [Token("``", "``"), *said, *speaker, Token(".", ".")]
