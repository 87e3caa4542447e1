"""``jaxseq tag``: the lines that came, with a label more."""

import gzip
import itertools
import math
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.cli import _tag, main
from tests.cli.conftest import LEXICON, TEXTS, columns_of

NEW = ["the dog sleeps .", "the cat", "barks"]


def labelled(texts, delimiter=" ", gold=False):
    """What the command must write, by the lexicon."""
    lines = []
    for text in texts:
        for word in text.split():
            pos, label = LEXICON[word]
            lines.append(delimiter.join([word, pos, *[label] * gold, label]))
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture
def tag(toy, succeed):
    """Runs ``jaxseq tag`` with the shared model."""
    return lambda *argv: succeed("tag", "--model", toy / "model", *argv)


def test_files_with_and_without_labels(tag, tmp_path):
    (tmp_path / "without").write_text(columns_of(NEW, width=2))
    assert tag(tmp_path / "without") == labelled(NEW)
    (tmp_path / "with").write_text(columns_of(NEW))
    assert tag(tmp_path / "with") == labelled(NEW, gold=True)


def test_labels_in_the_file_do_not_matter(tag, tmp_path):
    (tmp_path / "file").write_text(columns_of(NEW).replace("B-NP", "X"))
    predicted = [line.split()[-1] for line in tag(tmp_path / "file").split("\n") if line]
    assert predicted == [LEXICON[word][1] for text in NEW for word in text.split()]


def test_standard_input_with_all_that_text_files_have(tag, type_in):
    """Byte order mark, carriage returns, tabs, blank lines of blanks, no last line end."""
    text = "\ufeff" + columns_of(NEW, width=2, delimiter="\t").replace("\n\n", "\n \t\n\n")
    type_in(text.rstrip().replace("\n", "\r\n"))
    assert tag() == labelled(NEW, delimiter="\t")
    type_in(columns_of(NEW, width=2))
    assert tag("-") == labelled(NEW)


def test_out_and_compression(tag, tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress(columns_of(NEW, width=2).encode()))
    assert tag(tmp_path / "in.gz", "--out", tmp_path / "out") == ""
    assert (tmp_path / "out").read_text() == labelled(NEW)
    tag(tmp_path / "in.gz", "--out", tmp_path / "out.gz")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode() == labelled(NEW)


def test_out_may_be_the_input_but_no_device_is_replaced(tag, tmp_path):
    path = tmp_path / "file"
    path.write_text(columns_of(NEW, width=2))
    tag(path, "--out", path)
    assert path.read_text() == labelled(NEW)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    path.write_text(columns_of(NEW, width=2))
    tag(path, "--out", fifo)
    assert os.read(reader, 10_000).decode() == labelled(NEW)
    os.close(reader)


def test_chunks_make_no_difference(tag, tmp_path, monkeypatch):
    (tmp_path / "file").write_text(columns_of(TEXTS + NEW, width=2))
    monkeypatch.setattr(_tag, "CHUNK", 2)
    assert tag(tmp_path / "file") == labelled(TEXTS + NEW)


def test_no_more_than_a_chunk_is_read_ahead(tag, monkeypatch):
    """Of an endless input, what has been written when it fails is all of the chunks before."""
    lines = itertools.chain(columns_of(NEW * 4, width=2).split("\n"), ["one-cell"])
    monkeypatch.setattr(_tag, "CHUNK", 3)
    written = []
    monkeypatch.setattr(_tag, "_write", lambda write, chunk, annotate: written.append(len(chunk)))
    monkeypatch.setattr("jaxseq.cli._files.iter_input", lambda *_: lines)
    with pytest.raises(AssertionError):
        tag("-")
    assert written == [3, 3, 3, 3]


def test_marks_of_documents_go_through(tag, tmp_path):
    mark = "-DOCSTART- -X- O\n\n"
    (tmp_path / "file").write_text(mark + columns_of(NEW[:1]) + mark + columns_of(NEW[1:]))
    marked = "-DOCSTART- -X- O O\n\n"
    first, rest = labelled(NEW[:1], gold=True), labelled(NEW[1:], gold=True)
    assert tag(tmp_path / "file") == marked + first + marked + rest


def test_columns_by_name(tag, tmp_path):
    (tmp_path / "file").write_text("NN;x;dog\nVBZ;y;barks\n")
    found = tag(tmp_path / "file", "--columns", "pos,-,word", "--delimiter", ";")
    assert found == "NN;x;dog;I-NP\nVBZ;y;barks;B-VP\n\n"


def test_names_of_training_also_fit_a_file_without_labels(tag, tmp_path):
    (tmp_path / "file").write_text(columns_of(NEW, width=2))
    assert tag(tmp_path / "file", "--columns", "word,pos,label") == labelled(NEW)


def test_plain_text(toy, tmp_path, succeed):
    argv = ["--train", toy / "train.txt", "--templates", "token", "--out", tmp_path / "m"]
    succeed("train", *argv, "--quiet")
    (tmp_path / "text").write_text("the dog\n\n  barks\t.\n")
    found = succeed("tag", "--model", tmp_path / "m", "--format", "plain", tmp_path / "text")
    assert found == "the B-NP\ndog I-NP\n\nbarks B-VP\n. O\n\n"
    (tmp_path / "text").write_text("the dog.\n")
    more = ["--format", "plain", "--tokenize", "punctuation", "--delimiter", "tab"]
    found = succeed("tag", "--model", tmp_path / "m", *more, tmp_path / "text")
    assert found == "the\tB-NP\ndog\tI-NP\n.\tO\n\n"


def test_empty_input_gives_empty_output(tag, type_in):
    type_in("")
    assert tag() == ""


def test_marginals(tag, tmp_path):
    (tmp_path / "file").write_text(columns_of(NEW, width=2))
    out = tag(tmp_path / "file", "--marginals")
    rows = [line.split() for line in out.split("\n") if line]
    assert len(rows) == sum(len(text.split()) for text in NEW)
    for word, pos, label, *pairs in rows:
        names, numbers = zip(*(pair.rsplit(":", 1) for pair in pairs))
        probabilities = list(map(float, numbers))
        assert (pos, label) == LEXICON[word]
        assert set(names) == {label for _, label in LEXICON.values()}
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert probabilities == sorted(probabilities, reverse=True)
        assert names[0] == label  # the toy leaves no doubt
        assert probabilities[0] > 0.5


def test_k_best_of_one_token_are_all_labels(tag, type_in):
    type_in("the DT\n")
    blocks = re.findall(r"#rank=(\d+),P=(\S+)\nthe DT (\S+)\n\n", tag("--k-best", 4))
    ranks, probabilities, labels = zip(*blocks)
    assert ranks == ("0", "1", "2", "3")
    assert labels[0] == "B-NP"
    assert set(labels) == {label for _, label in LEXICON.values()}
    assert sum(map(float, probabilities)) == pytest.approx(1, abs=1e-5)
    assert list(map(float, probabilities)) == sorted(map(float, probabilities), reverse=True)


def test_k_best_agree_with_the_marginals(tag, type_in):
    """All 16 labellings of two tokens: their probabilities add up to those of the labels."""
    type_in("the DT\ndog NN\n")
    blocks = re.findall(r"#rank=\d+,P=(\S+)\nthe DT (\S+)\ndog NN (\S+)\n\n", tag("--k-best", 16))
    assert len({block[1:] for block in blocks}) == 16
    type_in("the DT\ndog NN\n")
    for place, line in enumerate(tag("--marginals").split("\n")[:2], 1):
        for name, number in (pair.rsplit(":", 1) for pair in line.split()[3:]):
            total = math.fsum(float(block[0]) for block in blocks if block[place] == name)
            assert total == pytest.approx(float(number), abs=2e-5)


CELL = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=6).filter(
    lambda cell: cell != "-DOCSTART-"
)
SENTENCES = st.lists(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), max_size=5)


@given(sentences=SENTENCES, delimiter=st.sampled_from([" ", "\t", "\t \t"]))
def test_without_the_new_column_the_input_is_left(toy, tmp_path_factory, sentences, delimiter):
    folder = tmp_path_factory.getbasetemp()
    lines = ["\n".join(map(delimiter.join, rows)) + "\n\n" for rows in sentences]
    (folder / "in").write_text("".join(lines), newline="\n")
    argv = ["tag", "--model", toy / "model", folder / "in", "--out", folder / "out"]
    if delimiter == "\t":
        argv += ["--delimiter", "tab"]
    assert main([str(part) for part in [*argv, "--columns", "word,pos"]]) == 0
    written = (folder / "out").read_text()
    assert re.sub(r"[ \t]\S+\n", "\n", written) == "".join(lines)
    added = set(re.findall(r"[ \t](\S+)\n", written))
    assert added <= {label for _, label in LEXICON.values()}


def test_a_reader_that_goes_away_is_no_error(toy, tmp_path):
    (tmp_path / "file").write_text(columns_of(NEW * 20_000, width=2))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "jaxseq", "tag", "--model", toy / "model", tmp_path / "file"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "the DT B-NP\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141
