"""Sentences of biomedical abstracts with the names of genes and proteins."""

from __future__ import annotations

from dataclasses import replace

from experiments.corpora._arguments import checked_size
from experiments.corpora._clauses import capitalised, mistagged, sentence
from experiments.corpora._phrases import Lexis, Token, Tokens, chunk
from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._words import (
    COIN,
    Lexicon,
    coin_acronym,
    coin_adjective,
    coin_noun,
    coin_verb,
    listed,
)
from jaxseq.text import Sentence

_GENES = 4  # key of this corpus's streams

_BODY = listed(
    "cardi hepat neur gastr derm hem oste cyt thromb angi pulmon ren arthr my lip gluc erythr "
    "lymph fibr kerat lact ost tub cyst nephr mel prot gly ket thyr ovar plasm"
)
_SUBSTANCES = listed("in ase ogen ulin erin actin ectin okine otropin ozyme opsin adherin")
_CONDITIONS = listed("itis osis opathy emia oma ectomy ogram olysis ocyte ectasia otomy")


def _coin_protein(rank: int) -> str:
    stream = Stream.keyed(COIN, 40, rank)
    second = stream.pick(_BODY) + "o" if stream.chance(25) else ""
    return second + stream.pick(_BODY) + stream.pick(_SUBSTANCES)


def _coin_condition(rank: int) -> str:
    stream = Stream.keyed(COIN, 41, rank)
    if stream.chance(35):
        return coin_noun(rank)
    second = stream.pick(_BODY) + "o" if stream.chance(60) else ""
    return second + stream.pick(_BODY) + stream.pick(_CONDITIONS)


def _coin_symbol(rank: int) -> str:
    """A symbol of a gene, in one of the many ways to write one: ``Rpa2``, ``KCD-1``, ``gpc4``."""
    stream = Stream.keyed(COIN, 42, rank)
    letters = "".join(stream.pick("ABCDEFGHIKLMNPRSTUVXY") for _ in range(stream.between(2, 4)))
    case = stream.below(4)
    if case == 0:
        letters = letters.capitalize()
    elif case == 1:
        letters = letters.lower()
    glue = "-" if stream.chance(25) else ""
    return f"{letters}{glue}{stream.between(1, 30)}" if stream.chance(60) else letters


def _coin_adjective(rank: int) -> str:
    stream = Stream.keyed(COIN, 43, rank)
    if stream.chance(40):
        return coin_adjective(rank)
    second = stream.pick(_BODY) + "o" if stream.chance(60) else ""
    return second + stream.pick(_BODY) + stream.pick(("al", "ic", "oid", "ogenic", "otoxic", "ous"))


def _infinitive(rank: int) -> str:
    stem = coin_verb(rank)
    return stem + "e" if stem.endswith(("at", "iz", "ul", "it")) else stem


_PROTEINS = Lexicon(("insulin", "actin", "thrombin"), _coin_protein, 12)
_SYMBOLS = Lexicon((), _coin_symbol, 13)
_ACRONYMS = Lexicon(("DNA", "RNA", "mRNA", "MRI", "HIV", "PCR"), coin_acronym, 8)
_HEADS = Weighted(
    ("gene", 20), ("protein", 18), ("receptor", 14), ("kinase", 9), ("promoter", 6), ("factor", 8),
    ("domain", 5), ("mutant", 4), ("antigen", 4), ("enzyme", 3), ("genes", 5), ("subunit", 4),
)  # fmt: skip
_SHAPES = Weighted(
    ("S", 30), ("P", 17), ("S h", 16), ("P h", 6), ("P n", 4), ("q P h", 7), ("P g h", 5),
    ("q g h n", 5), ("P S h", 3), ("S / S h", 2), ("q P g h n", 3),
)  # fmt: skip
_QUALIFIERS = ("human", "tyrosine", "growth", "nuclear", "alpha", "yeast", "type", "heat-shock")
_MIDDLES = ("growth", "binding", "kinase", "transport", "inhibitor", "surface")
_NUMERALS = ("1", "II", "alpha", "beta", "2", "A")


def _mention_pairs(stream: Stream) -> list[tuple[str, str]]:
    """The words of a name, with their parts of speech."""
    pairs = []
    for part in _SHAPES.draw(stream).split():
        if part == "S":
            pairs.append((_SYMBOLS.draw(stream), "NN"))
        elif part == "P":
            pairs.append((_PROTEINS.draw(stream), "NN"))
        elif part == "h":
            head = _HEADS.draw(stream)
            pairs.append((head, "NNS" if head == "genes" else "NN"))
        elif part == "n":
            numeral = stream.pick(_NUMERALS)
            pairs.append((numeral, "CD" if numeral.isdigit() else "NN"))
        elif part == "/":
            pairs.append(("/", "SYM"))
        else:
            pairs.append((stream.pick(_QUALIFIERS if part == "q" else _MIDDLES), "NN"))
    return pairs


def _mention(stream: Stream) -> Tokens:
    """A noun phrase with the name of a gene in it."""
    name = _marked(_mention_pairs(stream))
    before = [Token("the", "DT")] if stream.chance(32) else []
    if stream.chance(8):
        before.append(Token(_ADJECTIVES.draw(stream), "JJ"))
    after = []
    if stream.chance(20):
        common = ("expression", "activity", "levels", "transcription", "binding", "complex")
        after.append(Token(stream.pick(common), "NN"))
    elif stream.chance(9):
        symbol = _marked([(_SYMBOLS.draw(stream), "NN")])
        after = [Token("(", "("), *symbol, Token(")", ")")]
    elif stream.chance(9):
        after = [Token("and", "CC"), *_marked([(_SYMBOLS.draw(stream), "NN")])]
    return [*before, *name, *after]


def _marked(pairs: list[tuple[str, str]]) -> Tokens:
    return [Token(*pair, mention=f"{'I' if at else 'B'}-GENE") for at, pair in enumerate(pairs)]


def _lookalike(stream: Stream) -> Tokens:
    """What looks like the name of a gene: an acronym, a substance, a kind of protein."""
    kind = stream.below(5)
    if kind < 2:
        return chunk("NP", (_ACRONYMS.draw(stream), "NN"))
    if kind == 2:
        noun, short = _NOUNS.draw(stream), _ACRONYMS.draw(stream)
        return [*chunk("NP", (noun, "NN")), Token("(", "("), Token(short, "NN"), Token(")", ")")]
    if kind == 3:
        return chunk("NP", (_ADJECTIVES.draw(stream), "JJ"), (_HEADS.draw(stream), "NN"))
    return chunk("NP", (_PROTEINS.draw(stream), "NN"), ("therapy", "NN"))


def _measure(stream: Stream) -> Tokens:
    number, unit = str(stream.between(1, 90)), stream.pick(("%", "patients", "mg", "h", "days"))
    if stream.chance(30):
        return chunk("NP", (number, "CD"), (".", "."), (str(stream.below(10)), "CD"), (unit, "NN"))
    return chunk("NP", (number, "CD"), (unit, "NNS" if unit.endswith("s") else "NN"))


_NOUNS = Lexicon(
    listed(
        "cell protein gene patient expression activity study effect result binding region sequence "
        "treatment level group acid analysis mutation site domain response tissue factor receptor "
        "growth rat concentration virus test mouse dose sample role kinase strain human type line "
        "concentration transcription antigen complex control mechanism therapy age change time rate"
    ),
    _coin_condition,
    14,
)
_ADJECTIVES = Lexicon(
    listed(
        "human specific normal clinical significant different high low nuclear other similar acute "
        "functional amino wild-type several new viral cellular total yeast"
    ),
    _coin_adjective,
    13,
)
_PLAIN = Lexis(
    nouns=_NOUNS,
    adjectives=_ADJECTIVES,
    verbs=Lexicon(
        listed(
            "show bind inhibit suggest induce contain increase encode indicate require express "
            "demonstrate find reduce activate regulate affect identify treat observe compare cause"
        ),
        _infinitive,
        10,
    ),
    adverbs=Lexicon(
        listed("significantly also not respectively directly only previously highly"),
        lambda rank: _coin_adjective(rank) + "ly",
        7,
    ),
    name=_lookalike,
    names=8,
    numbers=7,
    pronouns=3,
    unit=_measure,
)
_WITH_GENES = replace(
    _PLAIN,
    name=lambda stream: (_lookalike if stream.chance(14) else _mention)(stream),
    names=32,
    numbers=4,
)


def gene_mentions(count: int, seed: int = 0) -> list[Sentence]:
    """Invented sentences of biomedical abstracts, with the names of genes and proteins in IOB2.

    They resemble GENETAG: half of the sentences have no name, names have one to five words, and
    acronyms, substances and words such as *receptor* occur inside names and outside. Unlike there,
    the words of a name keep their part of speech. Sentence i of a seed does not depend on `count`.

    Args:
        count: number of sentences.
        seed: from 0 to 2⁶⁴ − 1.

    Returns:
        The sentences, with the columns "word", "pos" and "label" (B-GENE, I-GENE, O).

    Raises:
        ValueError: if an argument is not such a number.

    Example:
        >>> from experiments.corpora import gene_mentions
        >>> text = gene_mentions(50)
        >>> text[0].columns, sorted({label for sentence in text for label in sentence["label"]})
        (('word', 'pos', 'label'), ['B-GENE', 'I-GENE', 'O'])
    """
    count, seed = checked_size(count, seed)
    return [_sentence(Stream.keyed(_GENES, seed, index)) for index in range(count)]


def _sentence(stream: Stream) -> Sentence:
    tokens = sentence(stream, _PLAIN if stream.chance(37) else _WITH_GENES)
    if tokens[0].mention == "O":
        tokens = capitalised(tokens)
    word, pos, _, label = zip(*mistagged(tokens, stream), strict=True)
    return Sentence({"word": word, "pos": pos, "label": label})
