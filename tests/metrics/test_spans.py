"""Spans by conlleval's rules, against tables written out by hand and a regular expression."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.metrics import spans
from jaxseq.text import convert_tags

TYPES = ("NP", "V-P", "")


def _letters(tags: str) -> list[str]:
    """``"B I O"`` → tags of one type."""
    return [letter if letter == "O" else f"{letter}-X" for letter in tags.split()]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("B I O", [(0, 2)]),
        ("B B", [(0, 1), (1, 2)]),
        ("I B", [(0, 1), (1, 2)]),
        ("I I", [(0, 2)]),
        ("O I", [(1, 2)]),
        ("O E", [(1, 2)]),
        ("E E", [(0, 1), (1, 2)]),
        ("E I", [(0, 1), (1, 2)]),
        ("I E", [(0, 2)]),
        ("B E O", [(0, 2)]),
        ("B E B E", [(0, 2), (2, 4)]),
        ("S S", [(0, 1), (1, 2)]),
        ("B S", [(0, 1), (1, 2)]),
        ("I S", [(0, 1), (1, 2)]),
        ("E S", [(0, 1), (1, 2)]),
        ("S B", [(0, 1), (1, 2)]),
        ("S I", [(0, 1), (1, 2)]),
        ("S E", [(0, 1), (1, 2)]),
        ("B I L U", [(0, 3), (3, 4)]),
        ("U U L", [(0, 1), (1, 2), (2, 3)]),
        ("O O", []),
        ("", []),
    ],
)
def test_letters_of_one_type(letters, expected):
    assert spans(_letters(letters)) == [(start, stop, "X") for start, stop in expected]


@pytest.mark.parametrize("first", "BIEOS")
@pytest.mark.parametrize("second", "BIES")
def test_another_type_begins_another_span(first, second):
    before = [(0, 1, "X")] if first != "O" else []
    tags = ["O" if first == "O" else f"{first}-X", f"{second}-Y"]
    assert spans(tags) == [*before, (1, 2, "Y")]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["B-NP-X", "I-NP-X", "I-NP"], [(0, 2, "NP-X"), (2, 3, "NP")]),
        (["B", "I", "O", "I"], [(0, 2, ""), (3, 4, "")]),
        (["I-NP", "."], [(0, 1, "NP")]),
        (["I-NP", "O-NP", "I-NP"], [(0, 1, "NP"), (2, 3, "NP")]),
        (["-X", "BB-X"], [(0, 2, "X")]),  # letters that mean nothing: the type alone decides
        (["FEATURES", "FEATURES"], []),
        (["[-A", "[-A", "]", "I"], [(0, 1, "A"), (1, 2, "A"), (2, 3, "")]),
        (["I-A", "[-A", "I-A", "I-A"], [(0, 1, "A"), (1, 2, "A")]),
        (["B-A", ".-A", "I-A"], [(0, 1, "A")]),
    ],
)
def test_odd_tags(tags, expected):
    assert spans(tags) == expected


BIO = st.lists(
    st.sampled_from(["O"] + [f"{x}-{y}" if y else x for x in "BI" for y in TYPES]), max_size=12
)


def _by_expression(tags: list[str]) -> list[tuple[int, int, str]]:
    """Spans of IOB2 tags by a regular expression on the text of the tags."""
    text = "".join(f"<{tag}>" for tag in tags)
    pattern = r"<B(-[^<>]*)?>(?:<I(?(1)\1|)>)*"
    found = []
    for match in re.finditer(pattern, text):
        start = text[: match.start()].count("<")
        found.append((start, start + match[0].count("<"), (match[1] or "-")[1:]))
    return found


@given(tags=BIO)
def test_iob2_by_a_regular_expression(tags):
    legal: list[str] = []  # a stray I becomes the B that IOB2 would have
    for tag in tags:
        inside = legal and tag[0] == "I" and legal[-1][1:] == tag[1:] and legal[-1] != "O"
        legal.append(tag if tag == "O" or inside else "B" + tag[1:])
    assert spans(legal) == _by_expression(legal)


@given(tags=BIO)
def test_every_scheme_spells_the_same_spans(tags):
    expected = spans(tags)
    for scheme in ("IOB1", "IOB2", "IOBES", "BILOU"):
        assert spans(convert_tags(tags, "IOB1", scheme)) == expected


@given(tags=st.lists(st.sampled_from(["O", ".", "X", "X-A", "E-A", "S-A", "B-A", "I-B", "L-B"])))
def test_spans_are_in_order_and_apart(tags):
    last = 0
    for start, stop, kind in spans(tags):
        assert last <= start < stop <= len(tags)
        assert all(tag.partition("-")[2] == kind for tag in tags[start:stop])
        assert not {"O", "."} & set(tags[start:stop])
        last = stop
