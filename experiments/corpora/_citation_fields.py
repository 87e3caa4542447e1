"""The text of each field of a reference, in the style of the reference."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.corpora._citation_names import (
    PUBLISHERS,
    draw_institution,
    draw_location,
    draw_people,
)
from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._topics import TOPICS, draw_phrase, draw_title, sentence_case, title_case
from experiments.corpora._words import COIN, Lexicon, coin_acronym, listed


@dataclass(frozen=True, slots=True)
class Style:
    """How a bibliography writes.

    Attributes:
        harvard: the date in brackets follows the author.
        names: the manner of `draw_people`.
        separator: the sign after author and title.
        quotes: the marks around a title, both empty for none.
        capitals: titles have a capital at every word.
        pages: what stands before page numbers.
        volume: template of volume and number.
    """

    harvard: bool
    names: str
    separator: str
    quotes: tuple[str, str]
    capitals: bool
    pages: str
    volume: str


_NO_QUOTES = ("", "")
_QUOTES = Weighted((('"', '"'), 6), (("``", "''"), 3), (("`", "'"), 1))
_PLAIN_NAMES = Weighted(("initials", 55), ("full", 30), ("surname", 10), ("mixed", 5))
_PLAIN_PAGES = Weighted(("pages ", 42), ("pp. ", 32), ("", 24), ("Pages ", 2))
_HARVARD_PAGES = Weighted(("", 68), ("pp. ", 28), ("pages ", 4))
_PLAIN_VOLUME = Weighted(
    ("{v}({n})", 42), ("{v}", 22), ("Vol. {v}, No. {n}", 14), ("vol. {v}", 8), ("{v}, {n}", 6),
    ("{v}:{n}", 4), ("Volume {v}", 4),
)  # fmt: skip
_HARVARD_VOLUME = Weighted(("{v}", 60), ("{v} ({n})", 22), ("{v}({n})", 14), ("(Vol. {v})", 4))


def draw_style(stream: Stream) -> Style:
    """The style of one reference."""
    harvard = stream.chance(37)
    quoted = stream.chance(3 if harvard else 22)
    return Style(
        harvard=harvard,
        names=("surname" if stream.chance(88) else "mixed")
        if harvard
        else _PLAIN_NAMES.draw(stream),
        separator="," if stream.chance(5 if harvard else 70 if quoted else 22) else ".",
        quotes=_QUOTES.draw(stream) if quoted else _NO_QUOTES,
        capitals=stream.chance(25 if harvard else 40),
        pages=(_HARVARD_PAGES if harvard else _PLAIN_PAGES).draw(stream),
        volume=(_HARVARD_VOLUME if harvard else _PLAIN_VOLUME).draw(stream),
    )


_MONTHS = listed(
    "January February March April May June July August September October November December"
)
_REPORTS = Weighted(
    ("Technical Report {c}", 44), ("Technical report", 10), ("Tech. Rep. {c}", 8),
    ("PhD thesis", 16), ("Ph.D. Thesis", 6), ("Master's thesis", 6), ("Research Report {c}", 4),
    ("Report No. {c}", 3), ("Doctoral dissertation", 3), ("A. I. Memo {c}", 3), ("TR {c}", 3),
)  # fmt: skip
_NOTES = Weighted(
    ("To appear", 22), ("to appear", 12), ("Submitted for publication", 10), ("Submitted", 4),
    ("In press", 6), ("(in German)", 4), ("In preparation", 4), ("Also in {r}", 9),
    ("Also available as {r}", 9), ("Unpublished manuscript", 5), ("Personal communication", 3),
    ("A preliminary version of this paper appeared in {r}", 7), ("Note: {t}", 4),
    ("Second edition", 5),
)  # fmt: skip
_EVENTS = Weighted(
    ("Conference on {}", 26), ("International Conference on {}", 30), ("Symposium on {}", 18),
    ("Workshop on {}", 16), ("International Joint Conference on {}", 8),
    ("Annual Meeting on {}", 3),
    ("National Conference on {}", 6), ("Conference of {}", 2),
)  # fmt: skip
_ORDINALS = listed(
    "First Second Third Fourth Fifth Sixth Seventh Eighth Ninth Tenth Eleventh Twelfth Thirteenth "
    "Fourteenth Fifteenth"
)
_SHORT = {"Transactions": "Trans.", "Journal": "J.", "Proceedings": "Proc.", "Conference": "Conf."}
_ACRONYMS = Lexicon(("AAAI", "SIGMOD", "ICML"), coin_acronym, octaves=7)
_BODIES = Weighted(("ACM", 40), ("IEEE", 40), ("European", 8), ("IFIP", 6), ("ACM/IEEE", 6))


def _coin_journal(rank: int) -> str:
    stream = Stream.keyed(COIN, 23, rank)
    topic = TOPICS.draw(stream)
    forms = ("Journal of {}", "{b} Transactions on {}", "{}", "{}", "{} Letters", "International "
             "Journal of {}", "{b} {}", "Annals of {}")  # fmt: skip
    return stream.pick(forms).format(topic, b=_BODIES.draw(stream))


_JOURNALS = Lexicon(
    listed(
        "Artificial Intelligence|Communications of the ACM|Machine Learning|"
        "Journal of the ACM|IEEE Transactions on Computers|Theoretical Computer Science|"
        "Proceedings of the IEEE|IEEE Computer",
        "|",
    ),
    _coin_journal,
    octaves=7,
)
_SERIES = ("Lecture Notes in Computer Science", "Studies in Logic", "Frontiers in Computing")


def _year(stream: Stream) -> int:
    return 1998 - stream.below(3 + stream.below(28))


def _ordinal(stream: Stream) -> str:
    if stream.chance(55):
        return stream.pick(_ORDINALS)
    number = stream.between(1, 29)
    if 10 < number < 14:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _abbreviated(text: str, stream: Stream) -> str:
    """Some of its words shortened, those that are always and others at will."""
    words = [_SHORT.get(word, word) for word in text.split()]
    for index, word in enumerate(words):
        if len(word) > 7 and word.isalpha() and stream.chance(40):
            words[index] = word[: stream.between(3, 5)] + "."
    return " ".join(words)


def write_author(stream: Stream, style: Style) -> str:
    """Names of authors."""
    return draw_people(stream, style.names)


def write_editor(stream: Stream, style: Style) -> str:
    """Names of editors, with what says that they are."""
    if style.harvard:
        return f"In {draw_people(stream, style.names, 4)} (Eds.)"
    people = draw_people(stream, "initials", 4)
    word = stream.pick(("in", "In", "In", "In", "in:"))
    mark = stream.pick((", editors", ", editors", ", editor", " (eds.)", ", eds.", ", Ed."))
    return f"{word} {people}{mark}"


def write_title(stream: Stream, style: Style) -> str:
    """The title in its quotation marks."""
    title = draw_title(stream)
    title = title_case(title) if style.capitals else sentence_case(title)
    if stream.chance(2):
        title += f" {stream.pick(('1', '2', 'II', str(_year(stream))))}"
    return title


def write_booktitle(stream: Stream, style: Style, after_editor: bool = False) -> str:
    """Proceedings, or the book in which the paper is a chapter."""
    if stream.below(500) == 0:
        return f'In "{title_case(draw_phrase(stream))}"'
    lead = "" if after_editor or stream.chance(18) else "In "
    kind = stream.below(100)
    if (after_editor and kind < 60) or kind < 10:
        return lead + title_case(draw_phrase(stream))
    if kind < 22:
        year = f"-{_year(stream) % 100}" if stream.chance(50) else ""
        proc = stream.pick(("Proceedings of ", "Proc. ", "", "Proceedings of the "))
        return f"{lead}{proc}{_ACRONYMS.draw(stream)}{year}"
    if kind < 27:
        return f"{lead}Advances in {TOPICS.draw(stream)} {stream.between(1, 9)}"
    parts = ["Proceedings of the"] if stream.chance(78) else ["the"] if lead else []
    if stream.chance(12):
        parts.append(str(_year(stream)))
    elif stream.chance(62):
        parts.append(_ordinal(stream))
    if stream.chance(26):
        parts.append("Annual")
    if stream.chance(30):
        parts.append(_BODIES.draw(stream))
    parts.append(_EVENTS.draw(stream).format(TOPICS.draw(stream)))
    text = " ".join(parts)
    if stream.chance(20):
        text = _abbreviated(text, stream)
    if stream.chance(8):
        text += f" ({_ACRONYMS.draw(stream)}'{_year(stream) % 100})"
    return lead + text


def write_series(stream: Stream, style: Style) -> str:
    """The series of a book, told apart from the book."""
    return f"of {stream.pick(_SERIES)}"


def write_journal(stream: Stream, style: Style) -> str:
    """The name of a journal, or what is left of it."""
    journal = _JOURNALS.draw(stream)
    return _abbreviated(journal, stream) if stream.chance(22) else journal


def write_volume(stream: Stream, style: Style) -> str:
    """Volume, and number if the style gives it."""
    volume = stream.between(1, 12 if stream.chance(40) else 90)
    return style.volume.format(v=volume, n=stream.between(1, 12))


def write_pages(stream: Stream, style: Style) -> str:
    """First and last page."""
    first = stream.between(1, 2000 if stream.chance(7) else 640)
    last = first + stream.between(2, 34)
    dash = "" if stream.chance(4) else "--" if stream.chance(5) else "-"
    text = f"{style.pages}{first}{dash}{last}"
    return f"({text})" if style.harvard and style.pages and stream.chance(12) else text


def write_date(stream: Stream, style: Style) -> str:
    """A year, sometimes with its month."""
    year = str(_year(stream))
    if stream.below(200) == 0:
        return f"To appear, {year}"
    if style.harvard:
        return f"({year}{stream.pick('aabc') if stream.chance(12) else ''})"
    if stream.chance(42):
        month = stream.pick(_MONTHS)
        if stream.chance(28):
            month = f"{month[:3]}."
        comma = "," if stream.chance(12) else ""
        day = f" {stream.between(1, 28)}" if stream.chance(8) else ""
        return f"{month}{day}{comma} {year}"
    return f"({year})" if stream.chance(7) else year


def write_publisher(stream: Stream, style: Style) -> str:
    """A publisher."""
    return PUBLISHERS.draw(stream)


def write_location(stream: Stream, style: Style) -> str:
    """Where the publisher sits, or the conference was."""
    text = draw_location(stream)
    return f"({text})" if stream.chance(4) else text


def write_institution(stream: Stream, style: Style) -> str:
    """Whose report it is."""
    return draw_institution(stream)


def write_tech(stream: Stream, style: Style) -> str:
    """The kind and the number of a report, or the kind of a thesis."""
    code = str(stream.between(1, 1400))
    if stream.chance(65):
        code = f"{_ACRONYMS.draw(stream)[:4]}-{_year(stream) % 100}-{stream.between(1, 90)}"
    elif stream.chance(20):
        code = f"{_year(stream)}-{stream.between(1, 60)}"
    return _REPORTS.draw(stream).format(c=code)


def write_note(stream: Stream, style: Style) -> str:
    """What else there is to say."""
    form = _NOTES.draw(stream)
    report = write_tech(stream, style) if "{r}" in form else ""
    return form.format(r=report, t=draw_phrase(stream) if "{t}" in form else "")


WRITERS = {
    "author": write_author,
    "editor": write_editor,
    "title": write_title,
    "booktitle": write_booktitle,
    "journal": write_journal,
    "volume": write_volume,
    "pages": write_pages,
    "date": write_date,
    "publisher": write_publisher,
    "location": write_location,
    "institution": write_institution,
    "tech": write_tech,
    "note": write_note,
}
"""Label → the function that writes the text of such a field."""
