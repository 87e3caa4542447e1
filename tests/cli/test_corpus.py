"""Labelled files in all formats, names of columns, and the choice of templates."""

import argparse
import os

import pytest

from jaxseq.cli._files import labelled_layout, read_corpus, unlabelled_columns
from jaxseq.cli._models import choose_templates
from jaxseq.text import CONLL2000, CONLL2003, GENE_MENTION, TOKEN_IDENTITY


def reading(**options):
    chosen = dict.fromkeys(["columns", "delimiter", "label_column", "scheme_to", "unknown_label"])
    return argparse.Namespace(**{**chosen, "encoding": "utf-8", **options})


def read(path, text, **options):
    path.write_text(text)
    return read_corpus(str(path), reading(**options))


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (2, ("word", "label")),
        (3, ("word", "pos", "label")),
        (4, ("word", "pos", "chunk", "label")),
    ],
)
def test_names_by_number(tmp_path, width, names):
    corpus = read(tmp_path / "f", "-DOCSTART- -X-\n\n" + " ".join("abcd"[:width]) + "\n")
    assert corpus.layout.names == names == labelled_layout(width, reading(), "f").names
    assert corpus.labels == [["abcd"[width - 1]]]
    assert corpus.sentences[0]["word"] == ("a",)


def test_given_names_win(tmp_path):
    corpus = read(tmp_path / "f", "a b c d e\n", columns=("x", None, "y", None, "z"))
    assert corpus.sentences[0].columns == ("x", "y", "z")
    assert corpus.labels == [["e"]]


@pytest.mark.parametrize("given", [("word", None), ("label",), (None, "label")])
def test_names_that_cannot_be(given):
    with pytest.raises(ValueError, match="--columns: expected a name for the"):
        labelled_layout(len(given), reading(columns=given), "f")


def test_names_of_a_file_to_tag():
    assert unlabelled_columns(2, None, ["word", "pos"], "f") == ("word", "pos")
    assert unlabelled_columns(5, None, ["word"], "f") == ("word", "pos", "chunk", None, None)
    assert unlabelled_columns(1, ("form", "label"), ["form"], "f") == ("form",)
    with pytest.raises(ValueError, match="f: expected a column 'pos', since the model reads"):
        unlabelled_columns(1, None, ["word", "pos"], "f")
    with pytest.raises(ValueError, match="f: expected 4 columns"):
        unlabelled_columns(2, ("a", "b", "c", "d"), ["a"], "f")


def test_what_stands_for_an_unknown_label(tmp_path):
    text = "sunny FEATURES\ncall ?\n"
    corpus = read(tmp_path / "f", text, unknown_label="?")
    assert corpus.labels == [["FEATURES", None]]
    with pytest.raises(ValueError, match="sentence 1: expected a label on every token"):
        corpus.known_labels()
    corpus = read(tmp_path / "f", text)
    assert corpus.labels == corpus.known_labels() == [["FEATURES", "?"]]
    with pytest.raises(ValueError, match="f:1: column label: expected tags that obey"):
        read(tmp_path / "f", text, unknown_label="?", scheme_to="IOB2")


def test_a_scheme_does_not_refuse_unknown_labels(tmp_path):
    (tmp_path / "f").write_text("the B-NP\ndog ?\n")
    corpus = read_corpus(str(tmp_path / "f"), reading(unknown_label="?"), scheme="IOB2")
    assert corpus.labels == [["B-NP", None]]


def test_what_can_be_read_only_once_needs_names(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a regular file, found a pipe or a device"):
        read_corpus(str(tmp_path / "pipe"), reading())


def test_built_in_templates(tmp_path, monkeypatch):
    columns = ("word", "pos", "chunk")
    names = {"conll2000": CONLL2000, "conll2003": CONLL2003, "gene": GENE_MENTION}
    for name, templates in {**names, "token": TOKEN_IDENTITY}.items():
        assert choose_templates(name, columns, "f") is templates
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("pos[0]\n")  # a file of that name
    assert choose_templates("token", columns, "f") is TOKEN_IDENTITY
    assert choose_templates("./token", columns, "f").columns == ("pos",)


def test_a_column_left_out_is_out_of_reach(tmp_path):
    (tmp_path / "t").write_text("U00:%x[0,0]\nU01:%x[0,1]\n")
    assert choose_templates(str(tmp_path / "t"), ("word", "pos"), "f").columns == ("word", "pos")
    with pytest.raises(ValueError, match="f: expected a column '-'"):
        choose_templates(str(tmp_path / "t"), ("word", None), "f")
