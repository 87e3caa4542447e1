"""Whatever goes wrong: exit status 2, one line on standard error, and nothing half-written."""

import os
import shutil
import sys

import jax.numpy as jnp
import pytest

from jaxseq._io import locked
from jaxseq.cli import main
from tests.cli.conftest import TEXTS, columns_of
from tests.limits import no_room

FILES = {
    "empty": b"",
    "blank": b"\n \n\t\n",
    "binary": bytes(range(256)) * 4,
    "six": b"a b c d e f\n",
    "ragged": b"the DT B-NP\ndog NN\n",
    "illegal": b"the DT O\ndog NN I-NP\n",
    "words": b"the\ndog\n",
    "word_label": b"the B-NP\ndog I-NP\n",
    "bad_template": b"word[0]\nlowr(word[0])\n",
    "label_template": b"label[0]\n",
    "far_column": b"U00:%x[0,2]\nB\n",
    "long_key.toml": b"a." * 100_000 + b"b = 1\n",
}


@pytest.fixture
def place(toy, tmp_path):
    """A folder with the toy's files and those above."""
    folder = tmp_path / "place"
    shutil.copytree(toy, folder)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    (folder / "train.txt").write_text(columns_of(TEXTS))
    (folder / "loop").symlink_to("loop")
    (folder / "folder").mkdir()
    (folder / "folder" / "precious").touch()
    return folder


def train(data="train.txt", templates="templates", out="new", *more):
    return ["train", "--train", data, "--templates", templates, "--out", out, *more]


TAG = ["tag", "--model", "model"]

CASES = [
    (train("nowhere"), "nowhere: expected a file, there is none"),
    (train("folder"), "folder: expected a file, found a folder"),
    (train("empty"), "empty: expected at least one sentence, found none"),
    (train("blank"), "blank: expected at least one sentence, found none"),
    (train("binary"), "binary:3: expected text encoded as utf-8, found byte 80"),
    (train("six"), "six: expected 2 to 4 columns"),
    (train("words"), "words: expected 2 to 4 columns"),
    (train("ragged"), "ragged:2: expected 3 columns"),
    (train("train.txt", "nothing"), "--templates: expected a file or one of general, conll2000"),
    (train("train.txt", "folder"), "folder: expected a file, found a folder"),
    (train("train.txt", "empty"), "empty: expected at least one template, found none"),
    (train("train.txt", "binary"), "binary:3: expected text encoded as utf-8"),
    (train("train.txt", "bad_template"), "bad_template:2: template 'lowr(word[0])'"),
    (train("train.txt", "label_template"), "train.txt: expected a column 'label'"),
    (train("train.txt", "far_column"), "far_column:1: CRF++ template"),
    (train("train.txt", "conll2003"), "train.txt: expected a column 'chunk'"),
    (train("train.txt", "token", "folder"), "folder: expected nothing, an empty folder or an"),
    (train("train.txt", "token", "six"), "six: expected nothing, an empty folder or an"),
    (train("train.txt", "token", "six/m"), "six/m: expected a folder that can be written"),
    (train("train.txt", "token", "new", "--dev", "nowhere"), "nowhere: expected a file"),
    (train("train.txt", "token", "new", "--dev", "word_label"), "word_label:1: expected 3 columns"),
    (train("train.txt", "token", "new", "--dev", "ragged"), "ragged:2: expected 3 columns"),
    (train("train.txt", "token", "new", "--warm-start", "folder"), "folder/model.json: expected a"),
    (train("train.txt", "token", "new", "--checkpoint", "folder"), "folder: expected a file"),
    (train("train.txt", "token", "new", "--l2", "-1"), "l2: expected a finite number, 0 or more"),
    (train("train.txt", "token", "new", "--l2", "x"), "argument --l2: expected a number or auto"),
    (train("train.txt", "token", "new", "--cores", "0"), "cores: expected"),
    (train("train.txt", "token", "new", "--cutoff", "0"), "cutoff: expected a whole number"),
    (train("train.txt", "token", "new", "--scheme", "BOI"), "scheme: expected one of IOB2"),
    (train("train.txt", "token", "new", "--scheme-to", "BOI"), "scheme: expected one of IOB2"),
    (train("illegal", "token", "new", "--scheme", "IOB2"), "illegal:2: column label: "),
    (train("train.txt", "token", "new", "--columns", "a,b"), "train.txt:1: expected 2 columns"),
    (train("train.txt", "token", "new", "--columns", "a,,b"), "--columns: expected different name"),
    (train("train.txt", "token", "new", "--columns", "a,a,b"), "--columns: expected different nam"),
    (train("train.txt", "token", "new", "--columns", "a,b,-"), "--columns: expected a name for th"),
    (train("train.txt", "token", "new", "--delimiter", ""), "--delimiter: expected text within"),
    (train("train.txt", "token", "new", "--delimiter", "tab"), "train.txt: expected 2 to 4 column"),
    (["train"], "the following arguments are required: --train, --out"),
    (["tag", "six"], "the following arguments are required: --model"),
    (["tag", "--model", "folder", "train.txt"], "folder/model.json: expected a file of a model"),
    (["tag", "--model", "nowhere", "train.txt"], "nowhere/model.json: expected a file of a model"),
    ([*TAG, "nowhere"], "nowhere: expected a file, there is none"),
    ([*TAG, "folder"], "folder: expected a file, found a folder"),
    ([*TAG, "binary"], "binary:3: expected text encoded as utf-8, found byte 80"),
    ([*TAG, "ragged"], "ragged:2: expected 3 columns, as in the lines before, found 2: 'dog NN'"),
    ([*TAG, "ragged", "--out", "new"], "ragged:2: expected 3 columns"),
    ([*TAG, "words"], "words:1: expected a column 'pos', since the model reads word, pos"),
    ([*TAG, "words", "--format", "plain"], "words: expected a column 'pos'"),
    ([*TAG, "word_label"], "word_label:1: expected the column 'pos' in the place of column 2"),
    ([*TAG, "train.txt", "--columns", "a,b,c"], "train.txt:1: expected a column 'word'"),
    ([*TAG, "train.txt", "--columns", "word,pos"], "train.txt:1: expected 2 columns (word, pos)"),
    ([*TAG, "train.txt", "--out", "folder"], "folder: expected a file to write, found a folder"),
    ([*TAG, "train.txt", "--out", "no/new"], "no/new: expected a file in a folder that exists"),
    ([*TAG, "train.txt", "--k-best", "0"], "--k-best: expected 1 or more, got 0"),
    ([*TAG, "train.txt", "--k-best", "2", "--marginals"], "--k-best: expected no --marginals"),
    ([*TAG, "train.txt", "--format", "plain", "--columns", "a"], "--columns: expected with --form"),
    ([*TAG, "train.txt", "--tokenize", "punctuation"], "--tokenize: expected with --format plain"),
    (["evaluate"], "evaluate: expected FILE, or --model and --test; got neither"),
    (["evaluate", "--model", "model"], "evaluate: expected FILE, or --model and --test"),
    (["evaluate", "six", "--model", "model"], "expected FILE, or --model and --test; got both"),
    (["evaluate", "six", "--columns", "a,b"], "--columns: expected with --model and --test only"),
    (["evaluate", "six", "--unknown-label", "?"], "--unknown-label: expected with --model and"),
    (["evaluate", "nowhere"], "nowhere: expected a file, there is none"),
    (["evaluate", "folder"], "folder: expected a file, found a folder"),
    (["evaluate", "empty"], "empty: expected at least one token, found none"),
    (["evaluate", "binary"], "binary:3: expected text encoded as utf-8"),
    (["evaluate", "words"], "words:1: expected at least 2 columns"),
    (["evaluate", "ragged"], "ragged:2: expected 3 columns"),
    (["evaluate", "six", "--against", "nowhere"], "nowhere: expected a file, there is none"),
    (["evaluate", "--model", "model", "--test", "word_label"], "word_label: expected a column 'po"),
    (["evaluate", "--model", "model", "--test", "empty"], "empty: expected at least one sentence"),
    (["inspect", "nowhere"], "nowhere/model.json: expected a file of a model there, found none"),
    (["inspect", "model", "--label", "B-X"], "--label: expected one of B-NP, B-VP, I-NP, O, got"),
    (["inspect", "model", "--top", "-1"], "--top: expected 0 or more, got -1"),
    (["inspect", "model", "--top", "9" * 30], "--top: expected at most 2147483647, got '9999"),
    (train("train.txt", "token", "loop"), "loop: expected nothing, an empty folder or an older"),
    (train("train.txt", "token", "loop/x"), "loop/x: expected a folder that can be written"),
    (train("train.txt", "token", "d/" * 3000), "cannot be read or written: File name too long"),
    (train("train.txt", "token", "new", "--checkpoint", "loop"), "loop: cannot be read or writ"),
    (train("train.txt", "token", "new", "--checkpoint", "loop/x"), "loop/x: cannot be read or"),
    (train("train.txt", "token", "new", "--checkpoint", "d" * 300), "File name too long"),
    (train("train.txt", "token", "new", "--cores", "9" * 30), "--cores: expected at most 2147483"),
    (train("train.txt", "token", "new", "--cores", "2147483647"), "cores: expected at most 1024"),
    (["evaluate", "/dev/zero"], "/dev/zero: expected a file or a pipe, found a device"),
    (["constraints", "long_key.toml", "train.txt"], "expected keys of at most 32 parts, got a"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "message"), CASES, ids=[" ".join(case[0])[:99] for case in CASES])
def test_one_line_and_nothing_written(place, run, monkeypatch, argv, message):
    monkeypatch.chdir(place)
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    names = sorted(place.rglob("*"))
    status, out, err = run(*argv)
    assert status == 2, err
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(place.rglob("*")) == names
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_closed_standard_output(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["evaluate", "nowhere"]) == 2
    assert "standard output: expected to be open, it is closed" in capsys.readouterr().err


def test_too_little_memory(place, run, monkeypatch):
    monkeypatch.setattr(
        "jaxseq.crf.CRFTagger.predict_k_best",
        lambda *arguments, **how: jnp.zeros(1 << 50, jnp.int8).sum().item(),
    )
    monkeypatch.chdir(place)
    status, out, err = run(*TAG, "train.txt", "--k-best", "10000000")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "expected enough memory for the data and options" in err


def test_two_commands_do_not_share_a_place(place, run, monkeypatch):
    monkeypatch.chdir(place)
    for held, argv in (("new", train()), ("kept", train("train.txt", "token", "new"))):
        with locked(held):
            status, out, err = run(*argv, "--checkpoint", "kept")
        assert (status, out) == (2, "")
        assert f"{held}: expected to be alone with it, found another jaxseq at work on it" in err
    assert not (place / "new").exists()


def test_undecodable_standard_input(toy, run, type_in):
    type_in(b"the DT\nd\xf6g NN\n")
    status, out, err = run("tag", "--model", toy / "model")
    assert (status, out) == (2, "")
    assert "standard input:2: expected text encoded as utf-8, found byte f6" in err


@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
def test_damaged_models(place, run, monkeypatch, file):
    monkeypatch.chdir(place)
    path = place / "model" / file
    path.write_bytes(path.read_bytes()[:-20])
    for argv in (["inspect", "model"], [*TAG, "train.txt"], [*train(), "--warm-start", "model"]):
        status, out, err = run(*argv)
        assert (status, out) == (2, "")
        assert f"model/{file}: expected" in err
        assert err.count("\n") == 1
    assert not (place / "new").exists()


def test_a_model_without_templates_cannot_be_fed(tmp_path, run):
    import jaxseq

    tagger = jaxseq.CRFTagger(max_iterations=2).fit([[{"a": 1.0}, {"b": 1.0}]], [["X", "Y"]])
    tagger.save(tmp_path / "m")
    (tmp_path / "f").write_text("a X\n")
    for argv in (["tag", tmp_path / "f"], ["evaluate", "--test", tmp_path / "f"]):
        status, out, err = run(*argv, "--model", tmp_path / "m")
        assert (status, out) == (2, "")
        assert f"{tmp_path / 'm'}: expected a model with templates" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_no_permission(place, run, monkeypatch):
    monkeypatch.chdir(place)
    (place / "six").chmod(0)
    (place / "folder").chmod(0o500)
    for argv, message in [
        (train("six"), "six: cannot be read or written: Permission denied"),
        (train("train.txt", "token", "folder/m"), "folder/m: expected a folder that can be"),
        (
            [*TAG, "train.txt", "--out", "folder/x"],
            "folder/x: cannot be written: Permission denied",
        ),
    ]:
        status, out, err = run(*argv)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err
    (place / "folder").chmod(0o700)


def test_a_checkpoint_on_a_full_disk(place, run, monkeypatch):
    monkeypatch.chdir(place)
    with no_room(2048):
        status, out, err = run(*train(), "--max-iterations", 2, "--checkpoint", "state")
    assert (status, out) == (2, "")
    assert err == "jaxseq: error: state: cannot be read or written: File too large\n"
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(13, "Permission denied", "f"), "f: cannot be read or written: Permission"),
        (OSError(28, "No space left on device"), "cannot be read or written: No space left"),
        (MemoryError(), "expected enough memory"),
        (ValueError("two\nlines"), "jaxseq: error: two lines"),
        (ValueError("x" * 10_000), "x …"),
    ],
)
def test_errors_of_the_system(place, run, monkeypatch, error, line):
    def fail(*arguments, **options):
        raise error

    monkeypatch.chdir(place)
    monkeypatch.setattr("jaxseq.crf.CRFTagger.fit", fail)
    status, out, err = run(*train())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert line in err
    assert len(err) < 1200
    assert not (place / "new").exists()
