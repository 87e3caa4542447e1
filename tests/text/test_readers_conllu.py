"""CoNLL-U: comments, multi-word tokens and empty nodes, in files that are read as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import CONLLU, decode_lines, iter_blocks, iter_conll, read_conll
from tests.text.files import message, write


def row(number, word, upos="X"):
    return "\t".join([str(number), word, "_", upos, *["_"] * 6])


TEXT = "\n".join(
    [
        "# newdoc",
        "# text = vámonos al # mar",
        row("1-2", "vámonos", "_"),
        row(1, "vamos", "VERB"),
        row(2, "nos", "PRON"),
        row("3-4", "al", "_"),
        row(3, "a", "ADP"),
        row(4, "el", "DET"),
        row("4.1", "gran", "ADJ"),
        row(5, "#", "SYM"),
        row(6, "mar de sal", "NOUN"),
        "",
        "# a comment alone",
        "",
        "# sent_id = 2",
        row("0.1", "yo", "PRON"),
        row(1, "sí", "INTJ"),
        "",
    ]
)
WORDS = [("vamos", "nos", "a", "el", "#", "mar de sal"), ("sí",)]
TAGS = [("VERB", "PRON", "ADP", "DET", "SYM", "NOUN"), ("INTJ",)]


def test_tokens_are_the_words_alone(tmp_path):
    path = write(tmp_path, TEXT)
    for sentences in (read_conll(path, CONLLU, conllu=True), iter_conll(path, CONLLU, conllu=True)):
        pairs = [(s["word"], s["upos"]) for s in sentences]
        assert pairs == list(zip(WORDS, TAGS))


def test_blocks_keep_all_lines_and_know_the_tokens():
    one, two = iter_blocks(TEXT.split("\n"), "f", conllu=None)
    assert "\n".join(one.lines) == TEXT.split("\n\n")[0]
    assert [one.line_number(token) for token in range(6)] == [4, 5, 7, 8, 10, 11]
    assert (two.first, two.line_number(0)) == (15, 17)
    assert one.is_conllu


def test_wrong_lines_have_their_numbers(tmp_path):
    path = write(tmp_path, TEXT.replace(row(5, "#", "SYM"), "5\t#"))
    assert message(read_conll, path, CONLLU, conllu=True).startswith(f"{path}:10: expected 10 col")
    path = write(tmp_path, TEXT)
    text = message(read_conll, path, CONLLU, conllu=True, scheme_from="IOB2", scheme_column="upos")
    assert text.startswith(f"{path}:4: column upos: expected a tag")


@pytest.mark.parametrize(
    "text",
    [
        "# # O\nthe DT O\n",  # a token may be called #
        "#\n#\n",
        "1\tthe\tDT\n",
        row(1, "a").replace("\t", " ") + "\n",
        row(7, "a") + "\n",  # sentences begin with word 1
        row(1, "a", "") + "\n",
    ],
)
def test_other_files_are_not_taken_for_it(text):
    lines = text.split("\n")
    try:
        blocks = list(iter_blocks(lines, "f", conllu=None))
    except ValueError:
        blocks = []
        with pytest.raises(ValueError, match="f:"):
            list(iter_blocks(lines, "f"))
    assert blocks == ([] if not blocks else list(iter_blocks(lines, "f")))
    assert not any(block.is_conllu for block in blocks)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5))
def test_lines_that_are_no_tokens_change_nothing(extras):
    """Wherever comments, multi-word tokens and empty nodes stand, the words are the same."""
    lines = ["# text"]
    for number, (spans, nodes) in enumerate(extras, 1):
        lines += [row(f"{number}-{number + 1}", "both")] * (spans and not nodes)
        lines += [row(number, f"w{number}")]
        lines += [row(f"{number}.{k}", "none") for k in range(1, nodes + 1)]
    (block,) = iter_blocks(lines, "f", conllu=None)
    assert list(block.columns[1]) == [f"w{n}" for n in range(1, len(extras) + 1)]
    assert [lines[block.line_number(t) - 1] for t in range(len(extras))] == [
        row(n, f"w{n}") for n in range(1, len(extras) + 1)
    ]


@given(st.text(alphabet="aé\n€𝄞\r", max_size=30), st.sampled_from(["utf-8", "utf-16", "latin-1"]))
def test_streams_are_decoded_as_files_are(text, encoding):
    text = text.replace("\r", "")
    data = text.encode(encoding, "ignore")
    expected = data.decode(encoding).split("\n")
    expected = expected[:-1] if not expected[-1] else expected
    for pieces in (data.splitlines(keepends=True), [data[i : i + 1] for i in range(len(data))]):
        assert list(decode_lines(pieces, "stdin", encoding)) == expected


def test_streams_say_where_bytes_are_wrong():
    assert list(decode_lines([b"\xef\xbb\xbfa\r\n", b"b"], "f")) == ["a", "b"]
    for pieces in ([b"a\nb\n\xe9\n"], [b"a\n", b"b\n", b"\xe9\n"]):
        assert "expected text encoded as utf-8, found byte e9" in message(
            lambda p=pieces: list(decode_lines(p, "f"))
        )
    assert message(lambda: list(decode_lines([b"a\n", b"\xe9\n"], "f"))).startswith("f:2: ")


@pytest.mark.parametrize("name", ["hex", "rot13", "undefined", "no such", "a\0b", ""])
def test_what_is_no_encoding_of_text(tmp_path, name):
    path = write(tmp_path, "a b\n")
    expected = "encoding: expected a known encoding"
    assert message(read_conll, path, ["word", "x"], encoding=name).startswith(expected)
