"""Open vocabularies: a few common words, then words coined by rule, under Zipf's law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from experiments.corpora._stream import Stream


def listed(text: str, separator: str | None = None) -> tuple[str, ...]:
    """The words of a list that is written as one text, between spaces or another separator.

    Example:
        >>> listed("red green"), listed("New York|Rome", "|")
        (('red', 'green'), ('New York', 'Rome'))
    """
    return tuple(text.split(separator))


COIN = 0x636F696E  # keeps the streams of coined words apart from those of sentences


class Lexicon:
    """Words (or phrases) by rank: the common ones are listed, the rest are coined from the rank.

    Every seed draws from the same words, as texts of one language do; a sample of any size leaves
    rare words for the next one.

    Args:
        common: the most frequent words, most frequent first.
        coin: the word of a rank past the common ones.
        octaves: ranks go up to 2^octaves − 2.

    Example:
        >>> lexicon = Lexicon(["the"], lambda rank: f"word{rank}", octaves=2)
        >>> sorted({lexicon.draw(Stream(state)) for state in range(50)})
        ['the', 'word1', 'word2']
    """

    __slots__ = ("_coin", "_common", "_octaves")

    def __init__(self, common: Sequence[str], coin: Callable[[int], str], octaves: int):
        self._common, self._coin, self._octaves = common, lru_cache(maxsize=None)(coin), octaves

    def draw(self, stream: Stream) -> str:
        """A word."""
        rank = stream.rank(self._octaves)
        return self._common[rank] if rank < len(self._common) else self._coin(rank)


_ONSETS = listed("b br c ch d dr f fr g gr h j k kl l m n p pr r s sch sh st t tr v w y z")
_VOWELS = listed("a e i o u a e o ai ei ie oo")
_CODAS = listed("l n r s t m nd ck rt ll nn ss x th")
_SURNAME_ENDINGS = listed(
    "son sen berg mann ski sky ov ova ev ini elli etti ez aki ara awa uchi er el ard and eau "
    "ton ley ford worth man as is ic escu yan oglu nen sson dijk stra ing ham well"
)
_PLACE_ENDINGS = listed("ville ton burg field ford bridge port haven dale mouth wick by stad holm")


def _syllable(stream: Stream, closed: int) -> str:
    coda = stream.pick(_CODAS) if stream.chance(closed) else ""
    return stream.pick(_ONSETS) + stream.pick(_VOWELS) + coda


def coin_surname(rank: int) -> str:
    """A family name, such as ``Trochuini``; some are double, some have a particle.

    Example:
        >>> coin_surname(1) == coin_surname(1)
        True
    """
    stream = Stream.keyed(COIN, 1, rank)
    name = _plain_surname(stream)
    if stream.chance(4):
        name = f"{name}-{_plain_surname(stream)}"
    elif stream.chance(4):
        name = f"{stream.pick(('de', 'van', 'von', 'Mac', 'di', 'la'))} {name}"
    return name


def _plain_surname(stream: Stream) -> str:
    shape = stream.below(10)
    if shape < 2:
        return _syllable(stream, 70).capitalize()
    stem = _syllable(stream, 45)
    if shape < 4:
        stem += _syllable(stream, 30)
    return (stem + stream.pick(_SURNAME_ENDINGS)).capitalize()


def coin_given_name(rank: int) -> str:
    """A given name, such as ``Brela``."""
    stream = Stream.keyed(COIN, 2, rank)
    ending = stream.pick(("a", "o", "e", "is", "ard", "ine", "us", "en", "ia", "y"))
    return (_syllable(stream, 40) + stream.pick(_CODAS)[0] + ending).capitalize()


def coin_place(rank: int) -> str:
    """A town, such as ``Kleibridge``; some have two words."""
    stream = Stream.keyed(COIN, 3, rank)
    name = _syllable(stream, 50)
    name += stream.pick(_PLACE_ENDINGS) if stream.chance(65) else _syllable(stream, 60)
    first = stream.pick(("San", "New", "Los", "St", "Port", "Mount", "East"))
    return f"{first} {name.capitalize()}" if stream.chance(15) else name.capitalize()


_PREFIXES = listed(
    "re de un pre sub inter multi auto hyper co non meta micro trans para super over semi poly "
    "bi out self counter pseudo quasi"
)
_ROOTS = listed(
    "form struct comput relat transit not express press scal model sort part norm sequenc symbol "
    "cluster segment index bound buffer pattern vector signal filter orient domin factor fram "
    "gener integr iter label layer link list load map match measur merg migr mod mut object optim "
    "order parti perform plan plat pol posit predic prob prun quant reason recurs reduct regul "
    "replic "
    "resolv rout sampl schem sect select sens sim solv spars spec stabil stat stor strat strip "
    "sweep swap tabl tag term test thread token trac track tun typ unif valid valu vari verif "
    "vis weav weight writ annot assert assign cach call cod compil compos concept condens deleg "
    "denot dispatch distrib embed encod estim evolv exten fold fus grad hash imag infer inher invok"
)
_NOUN_SUFFIXES = listed("ation or er ity ment ance ency ism ness age ure izer ability ator")
_ADJECTIVE_SUFFIXES = listed("al ive ic able ed ary ous ant ational ative less ible")


def _technical(stream: Stream, suffixes: Sequence[str]) -> str:
    prefix = stream.pick(_PREFIXES) if stream.chance(45) else ""
    return prefix + stream.pick(_ROOTS) + stream.pick(suffixes)


def coin_noun(rank: int) -> str:
    """A noun of a technical kind, such as ``retokenization``."""
    return _technical(Stream.keyed(COIN, 4, rank), _NOUN_SUFFIXES)


def coin_adjective(rank: int) -> str:
    """An adjective of a technical kind, such as ``subscalable``."""
    return _technical(Stream.keyed(COIN, 5, rank), _ADJECTIVE_SUFFIXES)


def coin_verb(rank: int) -> str:
    """The stem of a verb that takes -e, -es, -ed, -ing, such as ``interfold``."""
    return _technical(Stream.keyed(COIN, 6, rank), ("", "at", "iz", "ul", "it"))


def coin_acronym(rank: int) -> str:
    """Three to five capitals, such as ``PDSL``."""
    stream = Stream.keyed(COIN, 7, rank)
    letters = (stream.pick("ABCDEFGHILMNOPRSTUVWX") for _ in range(stream.between(3, 5)))
    return "".join(letters)


def plural(noun: str) -> str:
    """The plural by the regular rules of spelling.

    Example:
        >>> [plural(noun) for noun in ("graph", "query", "process", "analysis")]
        ['graphs', 'queries', 'processes', 'analyses']
    """
    if noun.endswith("sis"):
        return noun[:-2] + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def misspelt(word: str, stream: Stream) -> str:
    """The word with one slip of the fingers: letters swapped, lost or doubled; short words stay."""
    if len(word) < 4:
        return word
    at = stream.between(1, len(word) - 3)
    slip = stream.below(3)
    if slip == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return word[:at] + (word[at + 1 :] if slip == 1 else word[at] + word[at:])
