"""Readers of single corpora, on small files written here."""

import pytest

from experiments.data._formats import (
    iter_ads,
    read_ads,
    read_citations,
    read_genetag,
    read_genetag_mentions,
)
from tests.text.files import message as _message
from tests.text.files import write as _write

# ------------------------------------------------------------------------------- citations

TWO = """\ufeff<NEWREFERENCE>\r
<author> A. Cau </author> <author>B.</author>\r
<title> On it,\r
again. </title>\r
\r
<NEWREFERENCE> <date> 1992 </date>"""


def test_citations(tmp_path):
    path = _write(tmp_path, TWO)
    first, second = read_citations(path)
    assert first["word"] == ("A", ".", "Cau", "B", ".", "On", "it", ",", "again", ".")
    assert first["label"] == ("author",) * 5 + ("title",) * 5
    assert (second["word"], second["label"]) == (("1992",), ("date",))
    first, _ = read_citations(path, split_punctuation=False)
    assert first["word"] == ("A.", "Cau", "B.", "On", "it,", "again.")
    first, second = read_citations(path, scheme="IOB2", split_punctuation=False)
    author, title = ("B-author", "I-author", "B-author"), ("B-title", "I-title", "I-title")
    assert first["label"] == author + title
    first, second = read_citations(path, scheme="IOBES")
    assert first["label"][:5] == ("B-author", "I-author", "E-author", "B-author", "E-author")
    assert second["label"] == ("S-date",)
    assert read_citations(_write(tmp_path, "\n \n")) == []


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("<a> x </a>\ny <b> z </b>", 3, "expected text inside a field only, found 'y'"),
        ("<a> x </a>\n<b> y", 3, "expected </b> before the reference ends"),
        ("<a> x\n<NEWREFERENCE>\n<b> y </b>", 2, "expected </a> before the reference ends"),
        ("<a> x\n<b> y </b> </a>", 3, "expected </a>, since fields do not nest, found <b>"),
        ("<a> x\n</b>", 3, "expected </a>, found </b>"),
        ("<a> x </a> </a>", 2, "expected a tag that opens a field, found </a>"),
        ("<a> </a>", 2, "expected text in the field <a>, found none"),
        ("<a> x < y </a>", 2, "expected tags such as <author> or </author>, found 'x < y'"),
        ("<a b> x </a>", 2, "expected tags such as <author> or </author>, found '<a b> x'"),
        ("<a> x </a>\n<NEWREFERENCE>\n", 3, "expected fields after <NEWREFERENCE>, found none"),
    ],
)
def test_wrong_citations(tmp_path, body, line, words):
    path = _write(tmp_path, f"<NEWREFERENCE>\n{body}\n")
    assert _message(read_citations, path) == f"{path}:{line}: {words}"


def test_text_before_the_first_reference(tmp_path):
    path = _write(tmp_path, "\n<a> x </a>\n<NEWREFERENCE>\n")
    assert _message(read_citations, path) == f"{path}:2: expected <NEWREFERENCE>, found '<a>'"


# ------------------------------------------------------------------------------- GENETAG

GENES = """@@1 a/NN b/NEWGENE c/NEWGENE d/NEWGENE1 e/NEWGENE and/or/CC //SYM
@@2 x/NEWGENE1 y/NN z/NEWGENE
@@3
"""


def test_genetag(tmp_path):
    one, two, three = read_genetag(_write(tmp_path, GENES))
    assert (one.name, two.name, three.name) == ("1", "2", "3")
    assert one["word"] == ("a", "b", "c", "d", "e", "and/or", "/")
    assert one["pos"] == ("NN", "_", "_", "_", "_", "CC", "SYM")
    assert one["label"] == ("O", "B-GENE", "I-GENE", "B-GENE", "B-GENE", "O", "O")
    assert two["label"] == ("B-GENE", "O", "B-GENE")
    assert len(three) == 0


def test_genetag_by_the_list(tmp_path):
    gold = _write(tmp_path, "@@2|1 1|y\n@@1|0 0|a\n@@1|2 2b\n@@1|1 3|b c d|e\n\n", "gold")
    assert read_genetag_mentions(gold) == {"2": [(1, 2)], "1": [(0, 1), (2, 3), (1, 4)]}
    one, two, three = read_genetag(_write(tmp_path, GENES), gold=gold)
    assert one["label"] == ("B-GENE", "B-GENE", "I-GENE", "I-GENE", "O", "O", "O")
    assert one["pos"] == ("NN", "_", "_", "_", "_", "CC", "SYM")
    assert two["label"] == ("O", "B-GENE", "O")
    assert three["label"] == ()


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        ("@@1 a/NN\n\na/NN b/NN\n", 3, "expected a line that begins with @@id, found 'a/NN'"),
        ("@@ a/NN\n", 1, "expected a line that begins with @@id, found '@@'"),
        ("@@1 a/NN b\n", 1, "expected word/TAG, found 'b'"),
        ("@@1 a/\n", 1, "expected word/TAG, found 'a/'"),
        ("@@1 /NN\n", 1, "expected word/TAG, found '/NN'"),
        ("@@1 a/NN\n@@1 a/NN\n", 2, "expected ids once, found @@1"),
    ],
)
def test_wrong_genetag(tmp_path, data, line, words):
    path = _write(tmp_path, data)
    assert _message(read_genetag, path) == f"{path}:{line}: {words}"


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        ("\n@@1 0 0\n", 2, "expected '@@id|first last|text', found '@@1 0 0'"),
        ("@@1|1 0|x\n", 1, "expected '@@id|first last|text', found '@@1|1 0|x'"),
        ("@@1|0 0|a\n@@9|0 0|a\n", 2, "expected a known id, found @@9"),
        ("@@2|1 3|x\n", 1, "expected tokens 0 to 2 of @@2, found 3"),
    ],
)
def test_wrong_lists(tmp_path, data, line, words):
    gold = _write(tmp_path, data, "gold")
    path = _write(tmp_path, GENES)
    assert _message(read_genetag, path, gold=gold) == f"{gold}:{line}: {words}"


# ------------------------------------------------------------------------------- advertisements


def test_ads(tmp_path):
    path = _write(tmp_path, "\nsee CONTACT\n! CONTACT\n\n\ncall ?\n  ?\n? ?\n")
    first, second = read_ads(path)
    assert (first["word"], first["label"]) == (("see", "!"), ("CONTACT", "CONTACT"))
    assert (second["word"], second["label"]) == (("call", "_", "?"), ("?", "?", "?"))
    assert list(iter_ads(path)) == [first, second]


@pytest.mark.parametrize("line", ["FEATURES", "a b FEATURES"])
def test_wrong_ads(tmp_path, line):
    path = _write(tmp_path, f"a b\n{line}\n")
    assert _message(read_ads, path) == f"{path}:2: expected 'token LABEL', found {line!r}"
