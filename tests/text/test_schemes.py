"""Label schemes: round trips, and tables and spans worked out another way."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import IllegalTagError, convert_tags, detect_scheme, legal_transitions, tag_spans

SCHEMES = ("IOB1", "IOB2", "IOBES", "BILOU")
LETTERS = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}
KINDS = ("NP", "NP-X", "")

# The same five spans (of which two touch and are of one type) in all schemes.
SPELLED = {
    "IOB1": "I-A I-A B-A I-A I-A I-B O O I-B I-A",
    "IOB2": "B-A I-A B-A I-A I-A B-B O O B-B B-A",
    "IOBES": "B-A E-A B-A I-A E-A S-B O O S-B S-A",
    "BILOU": "B-A L-A B-A I-A L-A U-B O O U-B U-A",
}
SPANS = [(0, 2, "A"), (2, 5, "A"), (5, 6, "B"), (8, 9, "B"), (9, 10, "A")]


@st.composite
def _spans_and_length(draw):
    """Spans that do not overlap, in order, and the length of their sequence."""
    spans, position = [], 0
    for gap, length, kind in draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(KINDS)), max_size=5
        )
    ):
        spans.append((position + gap, position + gap + length, kind))
        position += gap + length
    return spans, position + draw(st.integers(0, 2))


def _iob2(spans, length):
    tags = ["O"] * length
    for start, stop, kind in spans:
        for t in range(start, stop):
            tags[t] = ("B" if t == start else "I") + (f"-{kind}" if kind else "")
    return tags


def _tags_of(scheme, kinds=("X", "Y")):
    return ["O"] + [f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in kinds]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_written_out(scheme):
    tags = SPELLED[scheme].split()
    assert tag_spans(tags, scheme) == SPANS
    assert detect_scheme([["O"], tags]) == scheme
    for target in SCHEMES:
        assert convert_tags(tags, scheme, target) == SPELLED[target].split()


@given(drawn=_spans_and_length(), scheme=st.sampled_from(SCHEMES))
def test_spans_survive_every_scheme(drawn, scheme):
    spans, length = drawn
    tags = convert_tags(_iob2(spans, length), "IOB2", scheme)
    assert len(tags) == length
    assert tag_spans(tags, scheme) == spans
    assert convert_tags(tags, scheme, "IOB2") == _iob2(spans, length)
    if spans and not (scheme == "IOB1" and tags == _iob2(spans, length)):
        assert detect_scheme([tags]) == scheme


@given(data=st.data(), scheme=st.sampled_from(SCHEMES))
def test_the_legal_are_those_that_come_back(data, scheme):
    """Strictness: a sequence is legal just when writing its spans gives it again (IOB1: more)."""
    tags = data.draw(st.lists(st.sampled_from(_tags_of(scheme)), max_size=5))
    legal, start, stop = legal_transitions(_tags_of(scheme), scheme)
    index = [_tags_of(scheme).index(tag) for tag in tags]
    by_table = not tags or bool(
        start[index[0]]
        and stop[index[-1]]
        and all(legal[i, j] for i, j in itertools.pairwise(index))
    )
    try:
        spans = tag_spans(tags, scheme)
    except ValueError:
        assert not by_table
        return
    assert by_table
    again = convert_tags(_iob2(spans, len(tags)), "IOB2", scheme)
    assert again == tags or scheme == "IOB1"


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_how_many_are_legal(scheme):
    """As many as there are ways to place spans of two types in four tokens."""
    ways = [1]
    for n in range(1, 5):
        ways.append(
            ways[n - 1] + 2 * sum(ways[:n])
        )  # the last token is O, or in a span of any length
    count = 0
    for tags in itertools.product(_tags_of(scheme), repeat=4):
        try:
            tag_spans(tags, scheme)
            count += 1
        except ValueError:
            pass
    assert count == ways[4]


def test_iob1_reads_a_begin_that_is_not_needed():
    assert tag_spans(["O", "B-A", "I-A", "B-B"], "IOB1") == [(1, 3, "A"), (3, 4, "B")]
    assert convert_tags(["B-A", "I-A", "B-A"], "IOB1", "IOB1") == ["I-A", "I-A", "B-A"]
    assert detect_scheme([["B-A"], ["O", "I-A"]]) == "IOB1"
    assert all(table.all() for table in legal_transitions(_tags_of("IOB1"), "IOB1"))


def test_aliases():
    assert convert_tags(["B-A", "I-A"], "BIO", "BIOES") == ["B-A", "E-A"]
    assert detect_scheme([["O", "O"], []]) == "IOB2"


@pytest.mark.parametrize(
    ("tags", "scheme", "position", "words"),
    [
        ("O I-NP", "IOB2", 1, "'I-NP' may not stand after 'O' in IOB2"),
        ("I-NP", "IOB2", 0, "'I-NP' may not stand first in IOB2"),
        ("B-NP I-VP", "IOB2", 1, "'I-VP' may not stand after 'B-NP'"),
        ("B-NP E-NP", "IOB2", 1, "expected a tag of IOB2 (O, B-TYPE, I-TYPE), got 'E-NP'"),
        ("B-NP O", "IOBES", 1, "'O' may not stand after 'B-NP'"),
        ("O B-NP", "IOBES", 1, "'B-NP' may not stand last in IOBES"),
        ("S-NP E-NP", "IOBES", 1, "'E-NP' may not stand after 'S-NP'"),
        ("U-NP S-NP", "BILOU", 1, "expected a tag of BILOU"),
        ("O B-", "IOB1", 1, "got 'B-'"),
        ("NP", "IOB1", 0, "got 'NP'"),
        ("o", "IOB2", 0, "got 'o'"),
    ],
)
def test_illegal_tags(tags, scheme, position, words):
    with pytest.raises(IllegalTagError, match=rf"^tag {position}: ") as caught:
        convert_tags(tags.split(), scheme, "IOB2")
    assert caught.value.position == position
    assert words in str(caught.value)


def test_no_scheme_fits():
    with pytest.raises(ValueError, match=r"^sequence 1, tag 2: expected .*IOBES.*after 'S-A'"):
        detect_scheme([["B-A", "E-A"], ["O", "S-A", "I-A"]])
    with pytest.raises(ValueError, match=r"^sequence 1, tag 0: "):
        detect_scheme([["B-A", "L-A"], ["S-A"]])


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"^scheme: expected one of IOB2.*, got 'IOB3'$"):
        tag_spans(["O"], "IOB3")
    with pytest.raises(ValueError, match=r"^labels: expected different labels, got 'O' more"):
        legal_transitions(["O", "B-A", "O"], "IOB2")
    with pytest.raises(ValueError, match=r"^labels: label 1: expected a tag of IOB2.*got 'L-A'"):
        legal_transitions(["O", "L-A"], "IOB2")


def test_tables_by_hand():
    allowed, start, stop = legal_transitions(["O", "B-X", "I-X", "E-X", "S-X"], "IOBES")
    expected = [
        [1, 1, 0, 0, 1],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [1, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
    ]
    np.testing.assert_array_equal(allowed, np.array(expected, bool))
    np.testing.assert_array_equal(start, np.array([1, 1, 0, 0, 1], bool))
    np.testing.assert_array_equal(stop, np.array([1, 0, 0, 1, 1], bool))
    assert legal_transitions([], "IOB2").allowed.shape == (0, 0)
