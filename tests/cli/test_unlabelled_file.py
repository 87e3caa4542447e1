"""``jaxseq train --unlabelled``: the file that it reads, and options and files that it refuses."""

import argparse
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.cli._files import read_corpus, read_unlabelled
from tests.cli.conftest import TEXTS, columns_of

OPTIONS = {
    "columns": None,
    "delimiter": None,
    "encoding": "utf-8",
    "label_column": None,
    "scheme_to": None,
    "unknown_label": None,
    "templates": "t",
}


def read(path, text, train="a DT X\nb NN Y\n", needed=("word",), **more):
    """The unlabelled sentences of a file beside a labelled one."""
    options = argparse.Namespace(**{**OPTIONS, **more})
    labelled = path.with_name("labelled")
    labelled.write_text(train)
    if text is not None:
        path.write_text(text)
    found = read_unlabelled([str(path)], options, read_corpus(str(labelled), options), needed)
    return [{column: list(s[column]) for column in s.columns} for s in found]


def test_each_process_keeps_its_part_of_all_files(tmp_path):
    """By turns across the files; labels in the place of a column are seen whoever keeps them."""
    files = [str(tmp_path / name) for name in ("one", "two")]
    (tmp_path / "one").write_text("a DT\n\nb NN\n\nc NN\n")
    (tmp_path / "two").write_text("d X\n\ne Y\n")
    (tmp_path / "labelled").write_text("a DT X\nb NN Y\n")
    options = argparse.Namespace(**OPTIONS)
    train = read_corpus(str(tmp_path / "labelled"), options)

    def words(part, needed=("word",)):
        return [s["word"][0] for s in read_unlabelled(files, options, train, needed, part)]

    assert [words((index, 2)) for index in (0, 1)] == [["a", "c", "e"], ["b", "d"]]
    assert words((6, 7)) == []
    for part in ((0, 2), (6, 7)):
        with pytest.raises(ValueError, match="two:1: expected the column 'pos'"):
            words(part, ("word", "pos"))


WORD, TAG = (st.sampled_from(choice) for choice in (["New", "Y", "ö"], ["NN", "Z"]))
SENTENCES = st.lists(st.lists(st.tuples(WORD, TAG, TAG), min_size=1, max_size=3), min_size=1)


@given(sentences=SENTENCES)
def test_columns_with_without_and_before_the_label(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("f") / "more"
    for width in (3, 2, 1):
        text = "\n\n".join("\n".join(" ".join(t[:width]) for t in s) for s in sentences)
        names = ("word", "pos")[:width]
        expected = [{n: [t[i] for t in s] for i, n in enumerate(names)} for s in sentences]
        assert read(path, text) == expected


def test_names_delimiters_marks_and_compression(tmp_path, type_in):
    (tmp_path / "f.gz").write_bytes(gzip.compress(b"-DOCSTART- -X- O\n\na DT\n"))
    expected = [{"word": ["a"], "pos": ["DT"]}]
    assert read(tmp_path / "f.gz", None) == expected
    more = {"delimiter": "\t", "columns": (None, "form", "tag"), "needed": ("form",)}
    train = "1\tNew York\tX\n"
    assert read(tmp_path / "f", "1\ta b\tX\n", train, **more) == [{"form": ["a b"]}]
    assert read(tmp_path / "f", "1\ta b\n", train, **more) == [{"form": ["a b"]}]
    assert read(tmp_path / "f", "a b\n", train, **more) == [{"form": ["a b"]}]
    type_in("a DT\n\nb NN\n")
    options = argparse.Namespace(**OPTIONS)
    (tmp_path / "f").write_text("a DT X\n")
    train = read_corpus(str(tmp_path / "f"), options)
    assert [s["word"] for s in read_unlabelled(["-"], options, train, ["word"])] == [("a",), ("b",)]


def test_labels_in_the_place_of_a_feature(tmp_path):
    with pytest.raises(ValueError, match="f:1: expected the column 'pos' in the place of column 2"):
        read(tmp_path / "f", "b Y\na X\n", needed=("word", "pos"))
    read(tmp_path / "f", "b Y\na X\n", needed=("word",))  # not read: it does not matter
    named = {"columns": ("word", "pos", "label"), "needed": ("pos",)}
    assert read(tmp_path / "f", "b Y\n", **named)[0]["pos"] == ["Y"]
    outside = read(tmp_path / "f", "b O\n", "a X O\n", needed=("pos",))
    assert outside == [{"word": ["b"], "pos": ["O"]}]


# ------------------------------------------------------------------------------------- errors

FILES = {
    "more.txt": "the DT\ncow NN\n",
    "empty": "\n\n",
    "four": "the DT X B-NP\n",
    "ragged": "the DT\n\ndog NN\ncat\n",
    "words": "the\ncow\n",
    "word_label": "\nthe B-NP\ncow I-NP\n",
    "labelled": "the DT B-NP\n",
    "few": columns_of(TEXTS[:4]),
}
FILE = ("--unlabelled", "more.txt")
CASES = [
    (["--entropy-weight", "2"], "--entropy-weight: expected along with --unlabelled FILE only"),
    (["--entropy-gradient", "mann"], "--entropy-gradient: expected along with --unlabelled FILE"),
    (["--vocabulary", "all"], "--vocabulary: expected along with --unlabelled FILE only"),
    (["--self-training"], "unrecognized arguments: --self-training"),
    (["--confidence", "0.9"], "unrecognized arguments: --confidence 0.9"),
    (["--confidence-of", "token"], "unrecognized arguments: --confidence-of token"),
    (["--choose-entropy-weight"], "--choose-entropy-weight: expected along with --unlabelled"),
    ([*FILE, "--entropy-weight", "-1"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-weight", "nan"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-weight", "inf"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-weight", "x"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-gradient", "x"], "argument --entropy-gradient: invalid choice: 'x'"),
    ([*FILE, "--vocabulary", "x"], "argument --vocabulary: invalid choice: 'x'"),
    (["self"], "the following arguments are required: --unlabelled"),
    (["self", "--confidence", "0.9"], "the following arguments are required: --unlabelled"),
    (["self", *FILE, "--confidence", "1.5"], "--confidence: expected a probability"),
    (["self", *FILE, "--entropy-weight", "0"], "unrecognized arguments: --entropy-weight 0"),
    (["self", *FILE, "--entropy-gradient", "mann"], "unrecognized arguments: --entropy-gradient"),
    (["self", *FILE, "--vocabulary", "all"], "unrecognized arguments: --vocabulary all"),
    (["self", *FILE, "--choose-entropy-weight"], "unrecognized arguments: --choose-entropy-weigh"),
    (["self", *FILE, "--warm-start", "model"], "unrecognized arguments: --warm-start model"),
    (["self", *FILE, "--coordinator", "a:1"], "unrecognized arguments: --coordinator a:1"),
    (["self", *FILE, "--confidence-of", "token"], "along with --confidence only"),
    ([*FILE, "--choose-entropy-weight", "--entropy-weight", "1"], "not allowed with argument"),
    ([*FILE, "--confidence", "0.9"], "unrecognized arguments: --confidence 0.9"),
    (["slef", *FILE], "argument method: invalid choice: 'slef' (choose from"),
    ([*FILE, "--entropy", "1"], "unrecognized arguments: --entropy 1"),
    ([*FILE, "--choose-entropy-weight", "--train", "few"], "few: expected at least 5 sentences"),
    ([*FILE, "--checkpoint", "new"], "new: expected a file outside of the model's folder"),
    ([*FILE, "--out", "c.cross-validation", "--checkpoint", "c"], "outside of the model's folder"),
    ([*FILE, "--l2", "-1", "--choose-entropy-weight"], "l2: expected a finite number, 0 or more"),
    (["--unlabelled", "nowhere"], "nowhere: expected a file, there is none"),
    (["--unlabelled", "."], ".: expected a file, found a folder"),
    (["--unlabelled", "empty"], "empty: expected at least one sentence, found none"),
    (["--unlabelled", "four"], "four:1: expected the columns of the labelled sentences (word, pos"),
    (["--unlabelled", "ragged"], "ragged:4: expected 2 columns, as in the lines before, found 1"),
    (["--unlabelled", "words"], "words:1: expected a column 'pos', since the template set"),
    (["--unlabelled", "word_label"], "word_label:2: expected the column 'pos' in the place of co"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "message"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_one_line_and_nothing_written(toy, tmp_path, run, monkeypatch, more, message):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    method, more = (more[:1], more[1:]) if more[0][0] != "-" else ([], more)
    files = ["--train", toy / "train.txt", "--templates", toy / "templates"]
    status, out, err = run("train", *method, *files, "--out", "new", *more)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_labels_cannot_be_cross_validated_on(tmp_path, run):
    (tmp_path / "ads").write_text("sunny FEATURES\n\ncall ?\nnow ?\n" * 5)
    given = ["train", "--train", tmp_path / "ads", "--unknown-label", "?", "--templates", "token"]
    given += ["--unlabelled", tmp_path / "ads", "--out", tmp_path / "m"]
    status, _, err = run(*given, "--choose-entropy-weight")
    assert status == 2
    assert "sentence 2: expected a label on every token" in err
    assert not (tmp_path / "m").exists()
