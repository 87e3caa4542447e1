"""Template files of CRF++, read as they are."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import TemplateExtractor, Templates, read_templates
from jaxseq.text._templates import Atom

EXAMPLE = """# Unigram
U00:%x[-2,0]
U01:%x[-1,0]
U02:%x[0,0]
U05:%x[-1,0]/%x[0,0]
U10:%x[0,1]

# Bigram
B
"""

SENTENCE = {
    "word": ["He", "reckons", "the", "current", "account"],
    "pos": ["PRP", "VBZ", "DT", "JJ", "NN"],
}


def test_example_has_the_names_of_crfpp(tmp_path):
    path = tmp_path / "template"
    path.write_text(EXAMPLE)
    extractor = TemplateExtractor(read_templates(path, columns=("word", "pos")))
    ids = extractor.fit_transform([SENTENCE]).ids
    names = extractor.attribute_names()
    assert [names[i] for i in ids[2]] == [
        "U00:He",
        "U01:reckons",
        "U02:the",
        "U05:reckons/the",
        "U10:DT",
    ]
    assert [names[i] for i in ids[0]] == [
        "U00:_B-2",
        "U01:_B-1",
        "U02:He",
        "U05:_B-1/He",
        "U10:PRP",
    ]


def test_columns_without_names_are_numbers():
    templates = Templates.parse("U0:%x[0,0]\nU1:%x[0,12]")
    assert templates.columns == ("0", "12")
    ids = TemplateExtractor(templates).fit_transform([{"0": ["a"], "12": ["b"]}]).ids
    assert ids.tolist() == [[0, 1]]


def test_literal_text_stands_around_macros():
    (template,) = Templates.parse("U7:<%x[0,0]> and\t%x[1,0]!", columns=["w"]).unigram
    assert template.pieces == ("U7:<", Atom("w", 0), "> and\t", Atom("w", 1), "!")


@pytest.mark.parametrize(
    ("text", "transitions", "bigrams"),
    [
        ("U0:%x[0,0]", False, 0),
        ("U0:%x[0,0]\nB", True, 0),
        ("U0:%x[0,0]\nB00", True, 0),
        ("U0:%x[0,0]\nB01:%x[0,0]", False, 1),
        ("B01:%x[0,0]\nB02:%x[-1,0]/%x[0,0]\nB", True, 2),
    ],
)
def test_b_lines(text, transitions, bigrams):
    templates = Templates.parse(text)
    assert templates.transitions == transitions
    assert len(templates.bigram) == bigrams


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("word[0]", "expected U or B as the first letter"),
        ("U1:%x[0]", r"character 4: expected %x\[row,column\], found '%x\[0\]'"),
        ("U1:%y[0,0]", "character 4: expected"),
        ("U1:100%", "character 7: expected"),
        ("U1:%x[0,2]", r"expected a column from 0 to 1 \(word, pos\), found 2"),
        ("U1:%x[0,99999999999999999999]", "expected the number of a column"),
        ("U1:%x[0,-1]", "expected the number of a column, found '-1'"),
        ("U1:%x[1001,0]", "expected a row from -1000 to 1000, found 1001"),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, message):
    path = tmp_path / "template"
    path.write_text(f"# x\n\nU00:%x[0,0]\n{line}\nB\n")
    with pytest.raises(ValueError, match=rf"template:4: CRF\+\+ template .*{message}"):
        read_templates(path, columns=("word", "pos"))


# ------------------------------------------------------------- against strings, as in CRF++

LINES = [
    "U00:%x[0,0]",
    "U01:%x[-1,0]",
    "U02:%x[-2,0]/%x[0,1]",
    "U03:%x[3,1]",
    "U:%x[0,0]",  # the same identifier: a bag of words, also across columns
    "U:%x[1,0]",
    "U:%x[-1,1]",
    "U:%x[0,0]/%x[0,1]",
    "U:%x[0,1]/%x[0,0]",
    "U99",
    "B01:%x[0,0]",
    "B:%x[-1,0]",
    "B:%x[-2,1]",
    "B",
]
COLUMNS = ("word", "pos")


def _expand(line: str, sentence: dict[str, list[str]], place: int) -> str:
    """The attribute of a token as the string that CRF++ makes."""

    def cell(macro: re.Match[str]) -> str:
        cells = sentence[COLUMNS[int(macro[2])]]
        at = place + int(macro[1])
        if at < 0:
            return f"_B{at}"
        return cells[at] if at < len(cells) else f"_B+{at - len(cells) + 1}"

    return re.sub(r"%x\[(-?\d+),(\d+)\]", cell, line)


def _oracle(lines: list[str], sentences: list[dict[str, list[str]]], pairs: bool) -> list:
    """Strings of all tokens; None where a token begins a sentence and pairs are asked for."""
    return [
        [None if pairs and place == 0 else _expand(line, sentence, place) for line in lines]
        for sentence in sentences
        for place in range(len(sentence["word"]))
    ]


ROWS = st.lists(st.tuples(*[st.sampled_from(["a", "b", "ab", "ü"])] * 2), max_size=4)
CORPUS = st.lists(ROWS.map(lambda rows: {c: [r[k] for r in rows] for k, c in enumerate(COLUMNS)}))


def _check(ids, names, strings, known):
    found = [[names[i] if i >= 0 else None for i in row] for row in ids.tolist()]
    assert found == [[s if s in known else None for s in row] for row in strings]


@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1, unique=True),
    corpus=CORPUS,
    other=CORPUS,
    cutoff=st.integers(1, 3),
)
def test_attributes_are_the_strings_of_crfpp(lines, corpus, other, cutoff):
    templates = Templates.parse("\n".join(lines), columns=COLUMNS)
    extractor = TemplateExtractor(templates, cutoff=cutoff)
    fitted, moved = extractor.fit_transform(corpus), extractor.transform(other)
    sides = [
        ([line for line in lines if line.startswith("U")], False, "ids", "attribute_names"),
        (
            [line for line in lines if line.startswith("B:") or line.startswith("B0")],
            True,
            "edge_ids",
            "edge_attribute_names",
        ),
    ]
    for side_lines, pairs, field, names_method in sides:
        if pairs and not side_lines:
            assert fitted.edge_ids is None
            assert extractor.edge_attribute_count == 0
            continue
        names = getattr(extractor, names_method)()
        strings = _oracle(side_lines, corpus, pairs)
        counts = Counter(s for row in strings for s in row if s is not None)
        known = {s for s, count in counts.items() if count >= cutoff}
        assert len(set(names)) == len(names)
        assert set(names) == known
        _check(getattr(fitted, field), names, strings, known)
        _check(getattr(moved, field), names, _oracle(side_lines, other, pairs), known)
