"""Files of columns: what is written by hand is read, and what is wrong is named with its line."""

import gzip
import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import Sentence, iter_conll, read_conll, write_conll
from tests.text.files import message as _message
from tests.text.files import write as _write

THREE = ("word", "pos", "chunk")


@pytest.mark.parametrize(
    "data",
    [
        "the DT B\ndog NN I\n\nran VB B\n",
        "the DT B\ndog NN I\n\nran VB B",
        "\n\nthe DT B\ndog NN I\n\n\n \t \nran VB B\n\n\n",
        "the DT B\r\ndog NN I\r\n\r\nran VB B\r\n",
        "the DT B\rdog NN I\r\rran VB B\r",
        "\ufeffthe DT B\ndog NN I\n\nran VB B\n",
        "the\tDT  B\n  dog NN \t I  \n\nran\t\tVB B",
        "-DOCSTART- -X- O\n\nthe DT B\ndog NN I\n\nran VB B\n",
        "the DT B\ndog NN I\n-DOCSTART-\nran VB B\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_one_content_in_many_dresses(tmp_path, data, packed):
    raw = data.encode()
    path = _write(tmp_path, gzip.compress(raw) if packed else raw, "a.gz" if packed else "a")
    assert read_conll(path, THREE) == [
        Sentence({"word": ["the", "dog"], "pos": ["DT", "NN"], "chunk": ["B", "I"]}),
        Sentence({"word": ["ran"], "pos": ["VB"], "chunk": ["B"]}),
    ]
    assert read_conll(str(path), ["word", None, "chunk"]) == [
        Sentence({"word": ["the", "dog"], "chunk": ["B", "I"]}),
        Sentence({"word": ["ran"], "chunk": ["B"]}),
    ]


def test_delimiters(tmp_path):
    expected = [Sentence({"a": ["New York", "b"], "b": ["x", "y z"]})]
    for delimiter in ("\t", ",", "|", "||", "::"):
        path = _write(tmp_path, f"New York{delimiter}x\nb{delimiter}y z\n  \n")
        assert read_conll(path, "ab", delimiter=delimiter) == expected
    path = _write(tmp_path, "x||a|\ny||b\n")
    assert read_conll(path, "ab", delimiter="||")[0]["b"] == ("a|", "b")


def test_only_spaces_and_tabs_separate(tmp_path):
    """A no-break space and a form feed are parts of words, as in many corpora."""
    path = _write(tmp_path, "10\u00a0000 CD\n\u3000\x0c X\n")
    assert read_conll(path, ["word", "pos"])[0]["word"] == ("10\u00a0000", "\u3000\x0c")


def test_docstart_kept(tmp_path):
    path = _write(tmp_path, "-DOCSTART- O\nx O\n\n-DOCSTART- O\n")
    words = [sentence["word"] for sentence in read_conll(path, ["word", "tag"], docstart="keep")]
    assert words == [("-DOCSTART-",), ("x",), ("-DOCSTART-",)]
    path = _write(tmp_path, "-DOCSTART-\n")
    assert read_conll(path, ["word", "tag"]) == []
    message = _message(read_conll, path, ["word", "tag"], docstart="keep")
    assert message == f"{path}:1: expected 2 columns (word, tag), found 1: '-DOCSTART-'"


def test_other_encodings(tmp_path):
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        path = _write(tmp_path, "Müller N\n".encode(encoding))
        assert read_conll(path, ["word", "pos"], encoding=encoding)[0]["word"] == ("Müller",)


@pytest.mark.parametrize(
    ("data", "delimiter", "line", "expected"),
    [
        ("a b c\n\nthe DT\n", None, 3, "3 columns (word, pos, chunk), found 2: 'the DT'"),
        ("a b\na b c d\n", None, 1, "3 columns (word, pos, chunk), found 2: 'a b'"),
        ("a b c\na b c d", None, 2, "3 columns (word, pos, chunk), found 4: 'a b c d'"),
        ("a b c\na\tb c d\n", None, 2, "3 columns (word, pos, chunk), found 4: 'a\\tb c d'"),
        ("a\tb\t\n", "\t", 1, "no empty cell (word, pos, chunk), found one: 'a\\tb\\t'"),
        ("a,b,c\n\n\nx,,z\n", ",", 4, "no empty cell (word, pos, chunk), found one: 'x,,z'"),
        ("a b c\n", "\t", 1, "3 columns (word, pos, chunk), found 1: 'a b c'"),
    ],
)
def test_wrong_lines(tmp_path, data, delimiter, line, expected):
    path = _write(tmp_path, data)
    message = _message(read_conll, path, THREE, delimiter=delimiter)
    assert message == f"{path}:{line}: expected {expected}"


@pytest.mark.parametrize("packed", [False, True])
def test_undecodable_bytes(tmp_path, packed):
    raw = b"\xef\xbb\xbfa b\r\n" + "\u00e9 b\r\n".encode() * 9000 + b"caf\xe9 b\r\n"
    path = _write(tmp_path, gzip.compress(raw) if packed else raw, "a.gz" if packed else "a")
    message = _message(read_conll, path, "ab")
    assert message == f"{path}:9002: expected text encoded as utf-8, found byte e9"


def test_damaged_gzip_and_missing_file(tmp_path):
    path = _write(tmp_path, gzip.compress(b"a b\n" * 1000)[:-20], "a.gz")
    assert _message(read_conll, path, "ab").startswith(f"{path}: damaged gzip file")
    path = _write(tmp_path, "a b\n", "b.gz")
    assert _message(read_conll, path, "ab").startswith(f"{path}: damaged gzip file")
    with pytest.raises(FileNotFoundError):
        read_conll(tmp_path / "none", "ab")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"columns": ()}, "columns: expected different names"),
        ({"columns": (None,)}, "columns: expected different names"),
        ({"columns": ("a", "a")}, "columns: expected different names"),
        ({"delimiter": ""}, "delimiter: expected"),
        ({"docstart": "drop"}, "docstart: expected 'skip' or 'keep', got 'drop'"),
        ({"encoding": "utf-9"}, "encoding: expected a known encoding, got 'utf-9'"),
        ({"scheme_to": "IOB3"}, "scheme: expected one of"),
        ({"scheme_to": "IOB2", "scheme_column": "c"}, "scheme_column: expected one of a, b, got"),
    ],
)
def test_wrong_arguments(tmp_path, options, expected):
    path = _write(tmp_path, "a b\n")
    assert _message(read_conll, **({"path": path, "columns": "ab"} | options)).startswith(expected)


def test_schemes_on_reading(tmp_path):
    path = _write(tmp_path, "\n\na I-X 1\nb B-X 2\nc O 3\n\nd I-Y 4\n")
    columns = ["word", "tag", "number"]
    for source in ("IOB1", None):
        read = read_conll(path, columns, scheme_from=source, scheme_to="IOBES", scheme_column="tag")
        assert [s["tag"] for s in read] == [("S-X", "S-X", "O"), ("S-Y",)]
        assert [s["number"] for s in read] == [("1", "2", "3"), ("4",)]
    last = read_conll(path, ["word", "tag", None], scheme_to="IOB2")
    assert [s["tag"] for s in last] == [("B-X", "B-X", "O"), ("B-Y",)]
    unchanged = read_conll(path, ["word", "tag", None], scheme_from="IOB1")
    assert [s["tag"] for s in unchanged] == [("I-X", "B-X", "O"), ("I-Y",)]


@pytest.mark.parametrize(
    ("data", "source", "line", "words"),
    [
        ("a B-X\n\n\nb O\nc I-X\n", "IOB2", 5, "'I-X' may not stand after 'O' in IOB2"),
        ("a O\nb NP\n", "IOB2", 2, "got 'NP'"),
        ("a B-X\n\nb S-X\n", None, 3, "expected tags that obey one of IOB2, IOB1: "),
        ("a B-X\nb E-X\n\nb B-X\n", None, 4, "expected tags that obey IOBES: "),
    ],
)
def test_illegal_tags_have_their_line(tmp_path, data, source, line, words):
    path = _write(tmp_path, data)
    message = _message(read_conll, path, ["word", "tag"], scheme_from=source, scheme_to="IOB2")
    assert message.startswith(f"{path}:{line}: column tag: ")
    assert words in message


def test_iterating_reads_no_further_than_it_must(tmp_path):
    path = _write(tmp_path, "a b\n\nc d\n\nwrong\n")
    sentences = iter_conll(path, "ab")
    assert [s["a"] for s in itertools.islice(sentences, 2)] == [("a",), ("c",)]
    assert _message(next, sentences).startswith(f"{path}:5: ")


# ------------------------------------------------------------------------------- writing

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"), min_size=1, max_size=5)


@given(data=st.data())
@pytest.mark.parametrize("delimiter", [" ", "\t", ",", "||"])
def test_written_reads_back(tmp_path_factory, delimiter, data):
    forbidden = {"\n", "\r", *delimiter} | ({"\t"} if delimiter == " " else set())
    cells = CELLS.filter(lambda cell: cell.strip() and not forbidden & set(cell))
    rows = st.lists(st.tuples(cells, cells), min_size=1, max_size=4)
    drawn = data.draw(st.lists(rows, max_size=4))
    sentences = [Sentence({"a": [x for x, _ in s], "b": [y for _, y in s]}) for s in drawn]
    path = tmp_path_factory.mktemp("written") / data.draw(st.sampled_from(["a.txt", "a.gz"]))
    write_conll(path, sentences, delimiter=delimiter)
    given_back = None if delimiter == " " else delimiter
    assert read_conll(path, "ab", delimiter=given_back, docstart="keep") == sentences
    assert os.listdir(path.parent) == [path.name]


def test_columns_and_bytes_written(tmp_path):
    path = tmp_path / "out"
    sentences = [Sentence({"a": ["x", "y"], "b": ["1", "2"]}), Sentence({"b": ["3"]})]
    write_conll(path, sentences, ["b"])
    assert path.read_bytes() == b"1\n2\n\n3\n\n"
    write_conll(path, sentences[:1], ["b", "a"], delimiter="\t")
    assert path.read_bytes() == b"1\tx\n2\ty\n\n"


@pytest.mark.parametrize(
    ("sentence", "delimiter", "expected"),
    [
        ({"a": ["x y"], "b": ["z"]}, " ", "sentence 1, column 'a': expected a cell that"),
        ({"a": ["x\ty"], "b": ["z"]}, " ", "sentence 1, column 'a': expected a cell that"),
        ({"a": ["x"], "b": ["p,q"]}, ",", "sentence 1, column 'b': expected a cell that"),
        ({"a": ["x"], "b": [""]}, " ", "sentence 1, column 'b': expected a cell that"),
        ({"a": ["x"], "b": ["\n"]}, "\t", "sentence 1, column 'b': expected a cell that"),
        ({"a": ["x"]}, " ", "sentence 1: expected a column 'b', got a"),
        ({"a": [], "b": []}, " ", "sentence 1: expected at least one token, got none"),
        ({"a": ["x"], "b": ["y"]}, "\n", "delimiter: expected text within one line"),
        ({"a": ["x"], "b": ["y"]}, "", "delimiter: expected text within one line"),
    ],
)
@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_what_cannot_be_written_changes_no_file(tmp_path, sentence, delimiter, expected, name):
    path = _write(tmp_path, "as it was", name)
    sentences = [Sentence({"a": ["ok"], "b": ["ok"]}), Sentence(sentence)]
    assert _message(write_conll, path, sentences, delimiter=delimiter).startswith(expected)
    assert path.read_bytes() == b"as it was"
    assert os.listdir(tmp_path) == [name]
