"""The notation of templates, sets of them, their files, and the papers' sets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import (
    CONLL2000,
    CONLL2003,
    GENE_MENTION,
    TOKEN_IDENTITY,
    Template,
    Templates,
    parse_template,
    read_templates,
)
from jaxseq.text._functions import Call, compose
from jaxseq.text._templates import Atom


def test_an_atom_is_a_column_and_an_offset():
    assert parse_template("word[-1]").atoms == (Atom("word", -1),)
    assert parse_template(" pos [ +2 ] ").atoms == (Atom("pos", 2),)
    assert parse_template("größe[0]").atoms == (Atom("größe", 0),)


def test_functions_nest_and_apply_from_the_inside():
    (atom,) = parse_template("suffix(lower(word[1]), 3)").atoms
    assert atom == Atom("word", 1, (Call("lower"), Call("suffix", 3)))
    assert compose(atom.calls)("WALKING") == "ing"


def test_a_column_may_be_called_like_a_function():
    assert parse_template("lower[0]|lower(lower[0])").atoms == (
        Atom("lower", 0),
        Atom("lower", 0, (Call("lower"),)),
    )


def test_regular_expressions_may_hold_every_sign():
    first, second = parse_template(r'match(word[0], "a|\"b\"|\)\\")|word[1]').atoms
    assert first.calls == (Call("match", r"a|\"b\"|\)\\"),)
    assert second == Atom("word", 1)
    matches = compose(first.calls)
    assert [matches(word) for word in ("a", '"b"', ")\\", "aa", "b")] == ["1", "1", "1", None, None]


def test_the_bias_has_no_atoms():
    assert parse_template(" bias ").atoms == ()
    assert parse_template("bias").name([]) == "bias"


WORDS = ["", "a", "The", "IL-2", "x-ray", "1988", "U.K.", "ABC"]


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("lower(word[0])", ["", "a", "the", "il-2", "x-ray", "1988", "u.k.", "abc"]),
        ("prefix(word[0], 3)", [None, None, "The", "IL-", "x-r", "198", "U.K", "ABC"]),
        ("suffix(word[0], 3)", [None, None, "The", "L-2", "ray", "988", ".K.", "ABC"]),
        ("shape(word[0])", ["", "a", "Aaa", "AA-0", "a-aaa", "0000", "A.A.", "AAA"]),
        ("short_shape(word[0])", ["", "a", "Aa", "A-0", "a-a", "0", "A.A.", "A"]),
        ("has_digit(word[0])", [None, None, None, "1", None, "1", None, None]),
        ("has_hyphen(word[0])", [None, None, None, "1", "1", None, None, None]),
        ("has_upper(word[0])", [None, None, "1", "1", None, None, "1", "1"]),
        ("is_capitalized(word[0])", [None, None, "1", "1", None, None, "1", "1"]),
        ("is_upper(word[0])", [None, None, None, "1", None, None, "1", "1"]),
        ("is_digits(word[0])", [None, None, None, None, None, "1", None, None]),
        ('match(word[0], "[A-Z].*")', [None, None, "1", "1", None, None, "1", "1"]),
        ('match(word[0], "[A-Z]")', [None] * 8),
    ],
)
def test_functions_of_strings(template, values):
    (atom,) = parse_template(template).atoms
    assert [compose(atom.calls)(word) for word in WORDS] == values


@pytest.mark.parametrize(
    ("text", "character", "expected"),
    [
        ("", 1, "a column or a function"),
        ("word", 5, "'[' or '('"),
        ("word[x]", 6, "a whole number"),
        ("word[]", 6, "a whole number"),
        ("word[0", 7, "']'"),
        ("word[0]|", 9, "a column or a function"),
        ("word[0] word[1]", 9, "'|' or the end"),
        ("word[1001]", 6, "an offset from -1000 to 1000"),
        ("word[99999999999999999999]", 6, "an offset from -1000 to 1000"),
        ("word[0]|low(word[1])", 9, "a function (lower"),
        ("lower(word[0]", 14, "')'"),
        ("lower(word[0], 2)", 14, "')'"),
        ("prefix(word[0])", 15, "','"),
        ("prefix(word[0], x)", 17, "a length"),
        ("prefix(word[0], 0)", 17, "a length from 1"),
        ("suffix(word[0], -1)", 17, "a length from 1"),
        ("match(word[0], [a])", 16, "a regular expression in double quotes"),
        ('match(word[0], "[a")', 16, "a regular expression (unterminated"),
        ("bias|word[0]", 5, "'[' or '('"),
    ],
)
def test_errors_point_at_the_place(text, character, expected):
    with pytest.raises(ValueError, match="template") as error:
        parse_template(text)
    assert f"character {character}: expected {expected}" in str(error.value)


@given(st.text(alphabet='ab[]()|,"0-1 \\', max_size=12) | st.text(max_size=8))
def test_any_text_parses_or_is_a_value_error(text):
    try:
        template = parse_template(text)
    except ValueError:
        return
    assert parse_template(template.text) == template


# ------------------------------------------------------------------------------------- sets


def test_a_set_keeps_order_and_knows_its_columns():
    templates = Templates(["pos[0]", "word[0]|pos[1]"], bigram=["chunk[0]"])
    assert [template.text for template in templates.unigram] == ["pos[0]", "word[0]|pos[1]"]
    assert templates.columns == ("pos", "word", "chunk")
    assert templates.transitions


def test_sets_are_equal_by_their_templates():
    one = Templates(["word[0]", "word[-1]|word[0]"])
    assert one == Templates(["word[ 0 ]", parse_template("word[-1] | word[0]")])
    assert hash(one) == hash(Templates(["word[0]", "word[-1]|word[0]"]))
    assert one != Templates(["word[-1]|word[0]", "word[0]"])
    assert one != Templates(["word[0]", "word[-1]|word[0]"], transitions=False)
    assert one != Templates(["word[0]"], bigram=["word[-1]|word[0]"])


def test_a_repeated_template_is_refused():
    with pytest.raises(ValueError, match=r"found twice 'word\[0\]'"):
        Templates(["word[0]", "word[ 0]"])


SETS = {
    "native": Templates(["bias", 'match(word[0], "a|\\"")'], ["word[0]"], transitions=False),
    "crfpp": Templates.parse("U0:%x[0,0]/%x[-1,1]x\nU1:]\nB0:%x[0,0]\nB", ("the word", "pos")),
    "conll2000": CONLL2000,
    "conll2003": CONLL2003,
    "gene": GENE_MENTION,
}


@pytest.mark.parametrize("name", SETS)
def test_json_brings_the_set_back(name):
    text = json.dumps(SETS[name].to_json())
    assert Templates.from_json(json.loads(text)) == SETS[name]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"unigram": [], "bigram": []},
        {"unigram": [], "bigram": [], "transitions": 1},
        {"unigram": "word[0]", "bigram": [], "transitions": True},
        {"unigram": [1], "bigram": [], "transitions": True},
        {"unigram": ["word"], "bigram": [], "transitions": True},
        {"unigram": [{"crfpp": "B:%x[0,0]"}], "bigram": [], "transitions": True},
        {"unigram": [], "bigram": [{"crfpp": "U:%x[0,0]"}], "transitions": True},
        {"unigram": [{"crfpp": "U:%x[0]"}], "bigram": [], "transitions": True},
        {"unigram": [{"crfpp": 1}], "bigram": [], "transitions": True},
    ],
)
def test_wrong_json_is_refused(value):
    with pytest.raises(ValueError, match="expected"):
        Templates.from_json(value)


# ------------------------------------------------------------------------------------- files


def test_a_file_of_templates(tmp_path):
    path = tmp_path / "chunking.templates"
    path.write_bytes(
        b"\xef\xbb\xbf# words\r\nword[0]\r\n\r\n  # indented\r\n word[-1]|word[0]\r\n"
        b"edge: pos[0]\r\ntransitions: no"
    )
    assert read_templates(path) == Templates(
        ["word[0]", "word[-1]|word[0]"], bigram=["pos[0]"], transitions=False
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"word[0]\n# x\nword[\n", r":3: template 'word\[', character 6: expected a whole number"),
        (b"word[0]\nword[ 0]\n", r":2: expected different templates, found twice 'word\[0\]'"),
        (b"transitions: maybe\n", ":1: transitions: expected yes or no, found 'maybe'"),
        (b"# nothing\n\n", ": expected at least one template, found none"),
        (b"word[0]\n\xff\n", ":2: expected text encoded as utf-8, found byte ff"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, content, message):
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.txt" + message):
        read_templates(path)


# ------------------------------------------------------------------------------------ papers


def _texts(templates: tuple[Template, ...]) -> set[str]:
    return {template.text for template in templates}


def test_conll2000_is_table_2():
    texts = _texts(CONLL2000.unigram)
    assert len(CONLL2000.unigram) == 5 + 2 + 5 + 4 + 3
    assert texts == {
        *("word[-2]", "word[-1]", "word[0]", "word[1]", "word[2]"),
        *("word[-1]|word[0]", "word[0]|word[1]"),
        *("pos[-2]", "pos[-1]", "pos[0]", "pos[1]", "pos[2]"),
        *("pos[-2]|pos[-1]", "pos[-1]|pos[0]", "pos[0]|pos[1]", "pos[1]|pos[2]"),
        *("pos[-2]|pos[-1]|pos[0]", "pos[-1]|pos[0]|pos[1]", "pos[0]|pos[1]|pos[2]"),
    }
    assert CONLL2000.transitions
    assert not CONLL2000.bigram


def test_conll2003_is_table_2():
    texts = _texts(CONLL2003.unigram)
    assert len(CONLL2003.unigram) == len(texts) == 5 + 2 + 9 + 5 + 10 + 10 + 6 + 6
    assert "word[-4]|word[-3]|word[-2]|word[-1]" in texts
    assert "word[1]|word[2]|word[3]|word[4]" in texts
    assert "word[-1]|word[0]" not in texts
    assert "lower(word[1])|lower(word[2])" in texts
    assert {"pos[-1]|pos[0]|pos[1]", "chunk[-1]|chunk[0]|chunk[1]"} <= texts
    assert "pos[-2]|pos[-1]|pos[0]" not in texts
    assert {"prefix(word[-1], 2)", "prefix(word[1], 3)", "suffix(word[0], 2)"} <= texts


def test_gene_mention_and_token_identity():
    assert _texts(TOKEN_IDENTITY.unigram) == {"word[0]"}
    texts = _texts(GENE_MENTION.unigram)
    assert {f"suffix(word[0], {size})" for size in (1, 2, 3, 4)} <= texts
    predicates = [t.atoms[0] for t in GENE_MENTION.unigram if t.text.startswith("match(word[0]")]
    assert len(predicates) == 23
    assert len(GENE_MENTION.unigram) == 99
    assert GENE_MENTION.columns == ("word",)

    def holding(word: str) -> set[str]:
        return {str(a.calls[0].argument) for a in predicates if compose(a.calls)(word)}

    assert holding("the") == {"[A-Za-z]+"}
    assert holding("IV") == {"[A-Z].*", "[A-Z]+", "[A-Za-z]+", "[IVXLCDM]+|[ivxlcdm]+"}
    assert holding("12") == {".*[0-9].*", "[0-9][0-9]", "[0-9]+"}
    assert {"[A-Z].*", ".*-.*", ".*[a-z][A-Z].*"} < holding("NF-kappaB")
    assert [len(holding(word)) for word in ("NF-kappaB", "p53", "beta", '"')] == [4, 2, 3, 2]
