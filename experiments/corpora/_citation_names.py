"""People, places, publishers and institutions of references."""

from __future__ import annotations

from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._topics import TOPICS
from experiments.corpora._words import (
    COIN,
    Lexicon,
    coin_given_name,
    coin_place,
    coin_surname,
    listed,
)

SURNAMES = Lexicon(
    listed(
        "Smith Lee Chen Brown Miller Wang Johnson Cohen Jones Kim Clark Li Davis Martin Singh Wolf "
        "Fischer Taylor Allen King Moore Weber Suzuki Baker Morgan Hall"
    ),
    coin_surname,
    octaves=14,
)
GIVEN_NAMES = Lexicon(
    listed(
        "John David Michael Robert James Thomas Peter William Richard Mark Mary Susan Paul Daniel "
        "Anna Martin George Allen Alan Barbara Hans Laura"
    ),
    coin_given_name,
    octaves=9,
)
PLACES = Lexicon(
    listed(
        "New York|San Francisco|Cambridge|Berlin|Boston|London|Amsterdam|Washington|Paris|San Jose|"
        "Sydney|Philadelphia|Toronto|Edinburgh|Austin|Pittsburgh|Tokyo|Vienna",
        "|",
    ),
    coin_place,
    octaves=8,
)
_REGIONS = Weighted(
    ("CA", 24),
    ("NY", 8),
    ("MA", 12),
    ("Australia", 6),
    ("D. C.", 5),
    ("PA", 5),
    ("California", 6),
    ("Germany", 4),
    ("France", 4),
    ("Canada", 5),
    ("USA", 5),
    ("NJ", 4),
    ("TX", 4),
    ("IL", 4),
    ("Italy", 3),
    ("England", 3),
    ("Japan", 4),
    ("WA", 3),
    ("Netherlands", 2),
)
_INITIALS = "AAABBCCDDDEEFFGGHIJJJJKLLMMMMNOPPPRRRRSSSTTUVWXYZ"
_NUMBER_OF_NAMES = Weighted((1, 30), (2, 38), (3, 19), (4, 9), (5, 3), (7, 1))


def _initials(stream: Stream) -> str:
    letters = [stream.pick(_INITIALS)]
    if stream.chance(40):
        letters.append(stream.pick(_INITIALS))
    glue = "-" if len(letters) == 2 and stream.chance(4) else " "
    return glue.join(f"{letter}." for letter in letters)


def _name(stream: Stream, manner: str, first: bool) -> str:
    surname = SURNAMES.draw(stream)
    if manner == "full":
        middle = f" {stream.pick(_INITIALS)}." if stream.chance(30) else ""
        return f"{GIVEN_NAMES.draw(stream)}{middle} {surname}"
    if manner == "surname" or (manner == "mixed" and first):
        given = GIVEN_NAMES.draw(stream) if stream.chance(10) else _initials(stream)
        return f"{surname}, {given}"
    return f"{_initials(stream)} {surname}"


def draw_people(stream: Stream, manner: str, most: int = 7) -> str:
    """A list of names without its last sign.

    Args:
        stream: of choices.
        manner: how a name is written: ``full`` (given names first), ``initials`` (they first),
            ``surname`` (it first), ``mixed`` (the first name so, the others not).
        most: number of names at most.
    """
    number = min(_NUMBER_OF_NAMES.draw(stream), most)
    names = [_name(stream, manner, index == 0) for index in range(number)]
    if len(names) == 1:
        return names[0]
    if number > 2 and stream.chance(4):
        return f"{names[0]} et al"
    if stream.chance(4):
        return ", ".join(names)
    last = "&" if manner == "surname" and stream.chance(75) else "and"
    comma = "," if (number > 2 or manner == "surname") and stream.chance(80) else ""
    return f"{', '.join(names[:-1])}{comma} {last} {names[-1]}"


def draw_location(stream: Stream) -> str:
    """A town, mostly with its region."""
    town = PLACES.draw(stream)
    if not stream.chance(72):
        return town
    region = f"{town}, {_REGIONS.draw(stream)}"
    return f"{region} {stream.between(10000, 99999)}" if stream.chance(5) else region


def _coin_publisher(rank: int) -> str:
    stream = Stream.keyed(COIN, 21, rank)
    kind, name = stream.below(8), SURNAMES.draw(stream)
    if kind < 2:
        return f"{name} Press"
    if kind == 2:
        return f"{name} & {SURNAMES.draw(stream)}"
    if kind == 3:
        return f"{name} and Sons"
    if kind == 4:
        return f"{GIVEN_NAMES.draw(stream)} {name}"
    if kind == 5:
        return f"{name} Publishers, Inc."
    if kind == 6:
        return f"{name}-{SURNAMES.draw(stream)}"
    return f"{PLACES.draw(stream)} University Press"


PUBLISHERS = Lexicon(
    listed(
        "Springer-Verlag|MIT Press|Morgan Kaufmann|ACM Press|Springer|John Wiley|Addison-Wesley|"
        "Academic Press|Prentice Hall|The MIT Press|Morgan Kaufmann Publishers|North-Holland|"
        "IEEE Computer Society Press|Kluwer Academic|Wiley & Sons",
        "|",
    ),
    _coin_publisher,
    octaves=8,
)


def _coin_institution(rank: int) -> str:
    stream = Stream.keyed(COIN, 22, rank)
    place = PLACES.draw(stream)
    kind = stream.below(7)
    if kind < 2:
        return f"University of {place}"
    if kind < 4:
        return f"{place} University"
    if kind == 4:
        return f"{SURNAMES.draw(stream)} Laboratories"
    if kind == 5:
        return f"Institute of Technology, {place}"
    return f"{SURNAMES.draw(stream)} Research Center"


_INSTITUTIONS = Lexicon((), _coin_institution, octaves=8)


def draw_institution(stream: Stream) -> str:
    """A university, a laboratory or an institute, sometimes with its department."""
    institution = _INSTITUTIONS.draw(stream)
    if not stream.chance(50):
        return institution
    topic = "Computer Science" if stream.chance(60) else TOPICS.draw(stream)
    form = stream.pick(("Department of {}", "Dept. of {}", "{} Department", "Institute for {}"))
    return f"{form.format(topic)}, {institution}"
