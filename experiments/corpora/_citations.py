"""References of papers: which fields, in which order, with which signs and slips."""

from __future__ import annotations

from experiments.corpora._arguments import checked_size
from experiments.corpora._citation_fields import (
    WRITERS,
    Style,
    draw_style,
    write_booktitle,
    write_series,
)
from experiments.corpora._stream import Stream, Weighted
from experiments.corpora._words import misspelt
from jaxseq.text import Sentence, tokenize

CITATION_LABELS = tuple(sorted(WRITERS))
"""The 13 fields of a reference."""

_CITATIONS = 1  # key of this corpus's streams

_PLAIN_ORDERS = Weighted(
    ("journal volume pages date", 60), ("journal volume date pages", 9), ("journal volume date", 7),
    ("journal pages date", 4), ("journal date", 5), ("journal date note", 3), ("journal note", 2),
    ("booktitle pages date", 38), ("booktitle location date", 20), ("booktitle date", 16),
    ("booktitle pages location date", 10), ("booktitle date pages", 7),
    ("booktitle volume pages date", 4), ("booktitle publisher location date", 6),
    ("booktitle publisher date", 4), ("booktitle location date pages", 4), ("booktitle", 3),
    ("booktitle location pages publisher date", 3),
    ("booktitle pages publisher date", 5), ("editor booktitle pages publisher date", 6),
    ("editor booktitle publisher location date", 5), ("editor booktitle date", 5),
    ("editor booktitle volume pages publisher date", 3), ("editor booktitle pages date", 3),
    ("tech institution date", 20), ("tech institution location date", 7), ("tech date", 5),
    ("institution tech date", 4), ("tech institution date note", 4), ("date note", 3),
    ("note", 3), ("publisher location date", 12), ("publisher date", 7),
    ("location publisher date", 3),
)  # fmt: skip
_HARVARD_ORDERS = Weighted(
    ("journal volume pages", 62), ("journal volume", 4), ("journal pages", 3), ("journal note", 3),
    ("booktitle volume pages", 10), ("booktitle pages", 14), ("booktitle", 10),
    ("booktitle pages location", 9), ("booktitle pages location publisher", 8),
    ("booktitle location", 6), ("booktitle publisher", 4),
    ("booktitle location publisher pages", 3),
    ("editor booktitle pages location publisher", 6), ("editor booktitle publisher location", 4),
    ("editor booktitle location publisher", 3), ("tech institution", 12),
    ("tech institution location", 4), ("publisher", 9), ("publisher location", 7),
    ("location publisher", 6), ("note", 2),
)  # fmt: skip


def citations(count: int, seed: int = 0, labelled: bool = True) -> list[Sentence]:
    """Invented references of papers, labelled with 13 fields.

    They resemble the Cora references in length, fields, order, signs and exceptions to the rules
    (Chang et al. 2007, table 1), and no text is taken from there. Reference i of a seed does not
    depend on `count`; other seeds give other references of the same vocabulary.

    Args:
        count: number of references.
        seed: from 0 to 2⁶⁴ − 1.
        labelled: False leaves out the column "label".

    Returns:
        The references, with the columns "word" and "label".

    Raises:
        ValueError: if an argument is not such a number.

    Example:
        >>> from experiments.corpora import citations
        >>> reference = citations(1, seed=7)[0]
        >>> reference.columns, reference["label"][0]
        (('word', 'label'), 'author')
        >>> citations(2, seed=7)[0] == reference
        True
    """
    count, seed = checked_size(count, seed)
    return [_citation(Stream.keyed(_CITATIONS, seed, index), labelled) for index in range(count)]


def _citation(stream: Stream, labelled: bool) -> Sentence:
    style = draw_style(stream)
    order = _with_exceptions(_draw_order(stream, style), stream)
    fields = [
        (label, _punctuated(_write(stream, style, order, at), label, at, order, stream, style))
        for at, label in enumerate(order)
    ]
    words: list[str] = []
    labels: list[str] = []
    for label, text in fields:
        tokens = tokenize(text)
        words += tokens
        labels += [label.removeprefix("+")] * len(tokens)
    if stream.chance(20):
        at = stream.below(len(words))
        if words[at].isalpha():
            words[at] = misspelt(words[at], stream)
    return Sentence({"word": words, "label": labels} if labelled else {"word": words})


def _draw_order(stream: Stream, style: Style) -> list[str]:
    rest = (_HARVARD_ORDERS if style.harvard else _PLAIN_ORDERS).draw(stream).split()
    first = "author"
    if stream.chance(2) and "editor" not in rest:
        first = "editor"
    elif stream.below(1000) < 6:
        first = "institution"
    head = [first, "date", "title"] if style.harvard else [first, "title"]
    return [*head, *rest]


def _with_exceptions(order: list[str], stream: Stream) -> list[str]:
    """The order as it comes in one case of eight: a field lost, moved, added or split."""
    order = list(order)
    if stream.chance(2):
        order.remove("title")
    if stream.chance(7) and len(order) > 4:
        at = stream.between(2, len(order) - 2)
        order[at], order[at + 1] = order[at + 1], order[at]
    if stream.chance(2) and "note" not in order:
        order.append("note")
    kind = stream.below(100)
    if kind < 2 and "booktitle" in order:
        at = order.index("booktitle") + 1
        order[at:at] = (
            ["+booktitle"] if "volume" in order[at : at + 1] else ["volume", "+booktitle"]
        )
    elif kind < 3:
        order += ["note", "author", "date"]
    elif kind < 4:
        order.append("date")
    elif kind < 5:
        order.append("pages")
    elif kind < 6 and "tech" in order:
        order.insert(order.index("tech"), "institution")
    return order


def _write(stream: Stream, style: Style, order: list[str], at: int) -> str:
    label, before = order[at], order[at - 1] if at else ""
    if label == "+booktitle":
        return write_series(stream, style)
    if label == "booktitle":
        return write_booktitle(stream, style, after_editor=before == "editor")
    text = WRITERS[label](stream, style)
    if label == "editor" and at == 0:
        text = text.removeprefix("In ").removeprefix("in: ").removeprefix("in ")
    return text


def _punctuated(
    text: str, label: str, at: int, order: list[str], stream: Stream, style: Style
) -> str:
    """The text with the sign that ends it, or without where the writer forgot it."""
    last = at == len(order) - 1
    forgotten = stream.chance(10 if last else 7)
    if label == "title" and style.quotes[0]:
        opening, closing = style.quotes
        sign = "." if last else stream.pick(",,,.")
        inside = stream.chance(50)
        return f"{opening}{text}{sign}{closing}" if inside else f"{opening}{text}{closing}{sign}"
    if forgotten or (label == "volume" and text.endswith(")") and stream.chance(40)):
        return text
    if last or label in ("author", "title", "editor") or (style.harvard and label == "date"):
        sign = "." if last else "," if label == "editor" else style.separator
        return text if text.endswith(sign) else text + sign
    if label == "location" and order[at + 1] == "publisher":
        return text + ":"
    if label == "volume" and order[at + 1] == "pages" and stream.chance(12):
        return text + ":"
    return text + (stream.pick(",,,,,,,.") if not style.harvard else stream.pick(",,,."))
