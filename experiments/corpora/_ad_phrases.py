"""What landlords write: clauses of each field, and the words that fill their gaps.

A clause is a string of tokens; a token in capitals is a gap, filled from `GAPS`. Clauses of
several fields share their words, and a few clauses stand under more than one field, as the
people who labelled real advertisements did not always agree.
"""

from __future__ import annotations

from experiments.corpora._stream import Stream
from experiments.corpora._words import (
    COIN,
    Lexicon,
    coin_adjective,
    coin_given_name,
    coin_noun,
    coin_place,
    coin_surname,
    listed,
)


def _lowered_place(rank: int) -> str:
    return coin_place(rank).lower()


def _lowered_name(rank: int) -> str:
    return coin_given_name(rank).lower()


def _coin_street(rank: int) -> str:
    return coin_surname(rank).lower().replace("-", " ")


def _coin_thing(rank: int) -> str:
    stream = Stream.keyed(COIN, 30, rank)
    first = listed("sun wall roof door wood stair glass cook book wine bed tub pantry shelf lamp")
    last = listed("room top space ware board case work light seat wall stand panel tile nook rack")
    return stream.pick(first) + stream.pick(last)


def _coin_quality(rank: int) -> str:
    stream = Stream.keyed(COIN, 31, rank)
    if stream.chance(50):
        return coin_adjective(rank)
    first = listed("sun well light tree high low quiet extra fresh double")
    last = listed("filled kept lined lit ceilinged built painted sized facing set")
    return f"{stream.pick(first)} - {stream.pick(last)}"


def _coin_number(rank: int) -> str:
    stream = Stream.keyed(COIN, 32, rank)
    return f"*NUMBER*{stream.between(3, 18)}*{stream.between(1, 4)}"


GAPS = {
    "SMALL": Lexicon(("*NUMBER*1*1", "*NUMBER*0*1", "*NUMBER*2*1"), _coin_number, 3),
    "BIG": Lexicon(
        ("*NUMBER*10*2", "*NUMBER*9*3", "*NUMBER*8*2", "*NUMBER*8*3", "*NUMBER*10*3"),
        _coin_number,
        5,
    ),
    "PLACE": Lexicon(
        listed(
            "downtown|the park|the bay bridge|campus|the marina|san mateo|the lake|oakland", "|"
        ),
        _lowered_place,
        9,
    ),
    "STREET": Lexicon(listed("main mission grand market oak telegraph park"), _coin_street, 9),
    "WHO": Lexicon(listed("the manager|owner|john|maria|dave|us", "|"), _lowered_name, 7),
    "ADJ": Lexicon(
        listed(
            "new large|large|beautiful|spacious|private|new|sunny|quiet|great|clean|bright|"
            "remodeled|"
            "modern|lovely|huge|charming|secure|small|cozy|cute|upstairs|furnished|open|gated|nice",
            "|",
        ),
        _coin_quality,
        12,
    ),
    "THING": Lexicon(
        listed(
            "kitchen|parking|laundry|closet|hardwood floors|living room|dishwasher|yard|fireplace|"
            "storage|carpet|balcony|appliances|garage|deck|washer / dryer|pool|bathroom|view|stove|"
            "refrigerator|windows|patio|ceilings|dining room|bedroom|elevator|garden|paint|"
            "cabinets",
            "|",
        ),
        _coin_thing,
        11,
    ),
    "SHOP": Lexicon(
        listed(
            "shopping|public transportation|restaurants|bart|shops|freeway|schools|cafes|"
            "parks|bus lines|the beach|stores|markets|hiking trails|theaters|the train|laundry",
            "|",
        ),
        lambda rank: f"{coin_place(rank).split()[-1].lower()} mall",
        6,
    ),
    "HOME": Lexicon(
        listed(
            "apartment|house|unit|studio|condo|home|building|flat|cottage|duplex|room|townhouse",
            "|",
        ),
        lambda rank: "place",
        4,
    ),
    "UTIL": Lexicon(
        listed("water|garbage|gas|electricity|heat|utilities|cable|hot water|pg & e|phone", "|"),
        lambda rank: "internet",
        4,
    ),
    "PET": Lexicon(
        listed("pets|smoking|dogs|cats|smokers|loud parties|small dog", "|"),
        lambda rank: "animals",
        3,
    ),
    "NOUN": Lexicon(
        listed(
            "area|space|time|property|place|people|day|people|street|city|light|water|condition|"
            "month|door|floor|home|unit|side|style|value|offer|tenant|family|party|work|room|rent",
            "|",
        ),
        coin_noun,
        12,
    ),
    "DAY": Lexicon(("*DAY*", "*DATE*", "*MONTH* *NUMBER*4*2"), lambda rank: "tomorrow", 2),
}
"""Gap → what fills it."""

CLAUSES = {
    "FEATURES": (
        "ADJ THING", "ADJ THING and THING", "THING , THING , THING", "ADJ THING with ADJ THING",
        "ADJ and ADJ THING", "the HOME has THING and THING", "this HOME has a ADJ THING",
        "on - site THING", "lots of THING and THING", "THING in the HOME",
        "ADJ ADJ HOME with THING",
        "new THING and new THING throughout", "it features a ADJ THING with THING and THING",
        "SMALL car garage", "large THING with access to THING", "coin - op laundry", "w / w carpet",
        "there is THING on the ORDINAL floor", "located in a ADJ SMALL unit building",
        "all new THING", "THING : ADJ", "- THING", "* ADJ THING", "amenities include THING , THING "
        "and THING", "plenty of THING for your THING", "the THING is ADJ",
        "you will love the THING",
        "walk - in closet in SMALL bedroom", "ADJ HOME , must see", "off - street parking",
    ),
    "NEIGHBORHOOD": (
        "close to SHOP and SHOP", "near SHOP", "walking distance to SHOP , SHOP and SHOP",
        "SMALL blocks from SHOP", "ADJ neighborhood", "located in PLACE near SHOP",
        "easy access to SHOP", "minutes from PLACE", "on a ADJ tree - lined street",
        "in the heart of PLACE", "SMALL minutes to PLACE by SHOP", "great location near PLACE",
        "the neighborhood is ADJ and ADJ", "PLACE is just steps away",
        "convenient to SHOP and PLACE",
        "corner of STREET and STREET", "across from PLACE", "a ADJ area of PLACE",
    ),
    "CONTACT": (
        "call *PHONE*", "please call WHO at *PHONE*", "contact WHO",
        "email *EMAIL* or call *PHONE*",
        "for more information call *PHONE*", "open house DAY from *TIME* - *TIME*",
        "call for an appointment", "shown by appointment only", "please leave a message",
        "visit *URL* for more details", "reply with information about yourself",
        "available to show DAY", "thanks , WHO", "office # *PHONE*", "call now , will not last",
        "drive by and call WHO", "ask for WHO", "please do not disturb tenants",
    ),
    "SIZE": (
        "SMALL bedroom SMALL bath", "ADJ SMALL bedroom HOME", "SMALL br / SMALL ba",
        "BIG sq ft", "SMALL bedrooms , SMALL baths , ADJ THING", "SMALL bdrm HOME in PLACE",
        "ADJ studio", "approx BIG sq . ft .", "SMALL + SMALL HOME",
        "this is a ADJ SMALL bedroom HOME",
        "SMALL bed , SMALL and a half bath HOME", "ADJ , ADJ SMALL bedroom",
    ),
    "RENT": (
        "$ BIG per month", "rent $ BIG", "$ BIG security deposit", "$ BIG / mo", "deposit $ BIG",
        "rent : $ BIG , deposit : $ BIG", "SMALL year lease", "$ BIG move in special",
        "month to month", "rent is $ BIG plus deposit", "ORDINAL month free", "only $ BIG",
        "credit check fee $ BIG", "BIG", "lease required", "section 8 ok",
    ),
    "RESTRICTIONS": (
        "no PET", "no PET or PET", "PET ok", "sorry , no PET", "PET negotiable", "non - smoker",
        "PET allowed with deposit", "PET : no", "quiet tenants only", "good credit a must",
        "no PET please", "PET considered",
    ),
    "AVAILABLE": (
        "available now", "available DAY", "available immediately", "move in DAY",
        "ready to move in",
        "available *MONTH* *ORDINAL*0", "begin DAY", "vacant now",
    ),
    "UTILITIES": (
        "UTIL and UTIL included", "owner pays UTIL and UTIL", "tenant pays UTIL",
        "utilities : UTIL",
        "rent includes UTIL , UTIL", "UTIL paid", "$ BIG for UTIL", "UTIL and parking included",
    ),
    "ADDRESS": (
        "BIG STREET st", "BIG STREET ave , PLACE", "STREET st , cross street is STREET",
        "address : BIG STREET street", "BIG STREET avenue between STREET and STREET",
        "at BIG STREET # SMALL", "located at BIG STREET , PLACE ca *NUMBER*16*5",
    ),
    "PHOTOS": (
        "photos at *URL*", "click here for pictures", "see pictures : *URL*LONG", "image *URL*",
        "for photos and a virtual tour go to *URL*", "link *URL*",
    ),
    "ROOMATES": (
        "looking for a ADJ respectful roommate", "share with SMALL roommates",
        "we are SMALL quiet people , no drama", "your roommates are ADJ and clean",
        "female preferred , to share THING",
    ),
}  # fmt: skip
"""Field → its clauses."""

ASIDES = (
    "this is a ADJ NOUN", "you will love this NOUN", "a ADJ place for NOUN", "NOUN , NOUN and NOUN",
    "perfect for a ADJ NOUN", "ADJ NOUN", "we have SMALL more NOUN", "ask about our ADJ NOUN",
    "must see this ADJ HOME", "the NOUN is ADJ", "it is in PLACE with ADJ NOUN", "NOUN NOUN",
    "great NOUN and ADJ THING", "please note : NOUN", "PLACE and NOUN nearby",
    "includes NOUN and THING",
)  # fmt: skip
"""Clauses of no field in particular: they take the field in which they stand."""

TAILS = (
    "for a ADJ NOUN", "with THING", "in the HOME", "and NOUN", "on a ADJ NOUN", "to the NOUN",
    "of the NOUN", "with NOUN and NOUN", "at PLACE", "for SMALL NOUN", "or ADJ NOUN", "by WHO",
    "from the THING", "which is ADJ",
)  # fmt: skip
"""What follows a clause of any field."""

ORDINALS = ("*ORDINAL*0", "*ORDINAL*1", "*ORDINAL*3")
