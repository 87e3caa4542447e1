"""``jaxseq shard``: what it writes, and what it refuses."""

import json

import pytest

import jaxseq
from jaxseq.crf import CRFTagger
from jaxseq.shards import StreamedCorpus, train_from_shards
from tests.cli.conftest import LEXICON, TEXTS, columns_of


@pytest.fixture
def command(toy, tmp_path):
    return ["shard", "--train", toy / "train.txt", "--templates", toy / "templates",
            "--out", tmp_path / "shards"]  # fmt: skip


def test_shards_can_be_trained_from(succeed, command, tmp_path):
    report = json.loads(succeed(*command, "--shard-tokens", "8", "--json"))
    tokens = sum(len(text.split()) for text in TEXTS)
    assert (report["sentences"], report["tokens"]) == (len(TEXTS), tokens)
    assert report["shards"] > 2
    corpus = StreamedCorpus(tmp_path / "shards")
    assert corpus.classes == ["B-NP", "B-VP", "I-NP", "O"]
    settings = {"algorithm": "adamw", "epochs": 20, "batch_size": 2, "scheme": "IOB2"}
    tagger = train_from_shards(tmp_path / "shards", CRFTagger(**settings, progress=False))
    tagger.save(tmp_path / "model")
    rows = [LEXICON[word] for word in TEXTS[0].split()]
    sentence = {"word": TEXTS[0].split(), "pos": [pos for pos, _ in rows]}
    assert jaxseq.load(tmp_path / "model").predict([sentence]) == [[label for _, label in rows]]


def test_train_from_shards_on_the_command_line(succeed, command, toy, tmp_path):
    succeed(*command, "--shard-tokens", "8")
    train = ["train", "--shards", tmp_path / "shards", "--algorithm", "adamw", "--epochs", "20",
             "--batch-size", "2", "--out", tmp_path / "model"]  # fmt: skip
    report = json.loads(succeed(*train, "--dev", toy / "train.txt", "--json"))
    assert report["sentences"] == len(TEXTS)
    assert report["dev"]["overall"]["f1"] == 1.0
    settings = {"algorithm": "adamw", "epochs": 20, "batch_size": 2, "progress": False}
    again = train_from_shards(tmp_path / "shards", CRFTagger(**settings))
    words = {"word": ["the"], "pos": ["DT"]}
    one, other = (t.predict_proba([words]) for t in (jaxseq.load(tmp_path / "model"), again))
    assert (one[0] == other[0]).all()


@pytest.mark.parametrize("place", [0, 1])
def test_a_file_without_sentences_may_stand_anywhere(succeed, toy, tmp_path, place):
    files = [toy / "train.txt"]
    files.insert(place, tmp_path / "empty.txt")
    (tmp_path / "empty.txt").write_text("\n\n")
    more = ["--templates", toy / "templates", "--out", tmp_path / "shards", "--json"]
    report = json.loads(succeed("shard", "--train", *files, *more))
    assert report["sentences"] == len(TEXTS)


def test_a_cutoff_that_leaves_nothing_is_refused(run, command, tmp_path):
    status, _, err = run(*command, "--cutoff", "100000")
    assert status == 2
    assert "cutoff: expected one that leaves some attributes, got 100000" in err
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "--algorithm: expected adamw or sgd along with --shards"),
        (["--train", "train.txt"], "--shards: expected alone, got --train too"),
        (["--templates", "token"], "--templates: expected nothing along with --shards"),
        (["--unlabelled", "more.txt"], "--unlabelled: expected nothing along with --shards"),
    ],
)
def test_what_does_not_go_with_shards(run, tmp_path, changes, message):
    status, out, err = run("train", "--shards", "nowhere", "--out", tmp_path / "m", *changes)
    assert (status, out) == (2, "")
    assert message in err
    for method in (["hmm"], ["codl", "hmm"], ["self", "hmm"]):
        files = ["--train", "a", "--unlabelled", "b", "--out", tmp_path / "m"]
        status, _, err = run("train", *method, *files, "--shards", "nowhere")
        assert status == 2
        assert err.endswith("error: unrecognized arguments: --shards nowhere\n")
    status, _, err = run(
        "train", "--shards", tmp_path, "--out", tmp_path / "m", "--algorithm", "sgd"
    )
    assert status == 2
    assert str(tmp_path) in err
    assert not (tmp_path / "m").exists()


def test_streams_of_shards(succeed, run, command, toy, tmp_path):
    """At most as many as there are shards, and nothing without shards."""
    succeed(*command, "--shard-tokens", "8")
    train = ["train", "--shards", tmp_path / "shards", "--algorithm", "adamw", "--epochs", "20",
             "--batch-size", "2", "--out", tmp_path / "m", "--dev", toy / "train.txt"]  # fmt: skip
    report = json.loads(succeed(*train, "--streams", 2, "--json"))
    assert report["dev"]["overall"]["f1"] == 1.0
    status, _, err = run(*train, "--streams", 99)
    assert status == 2
    assert "streams: expected 1 … " in err
    files = ["--train", toy / "train.txt", "--templates", toy / "templates"]
    status, _, err = run("train", *files, "--out", tmp_path / "n", "--streams", 2)
    assert (status, err) == (2, "jaxseq: error: --streams: expected along with --shards only\n")


def test_several_files_are_one_corpus(succeed, command, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(columns_of(["the dog barks"]))
    out = succeed(*command, "--train", other, other)
    assert "sentences  2" in out
    assert "tokens     6" in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--shard-tokens", "0"], "shard_tokens: expected 1 or more, got 0"),
        (["--cutoff", "0"], "cutoff: expected"),
        (["--train", "nowhere.txt"], "nowhere.txt: expected a file, there is none"),
        (["--columns", "a,b"], "expected a column 'word'"),
    ],
)
def test_bad_arguments_write_nothing(run, command, tmp_path, changes, message):
    status, out, err = run(*command, *changes)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "shards").exists()


def test_a_folder_with_something_in_it_is_left_alone(run, command, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "mine").write_text("kept")
    status, _, err = run(*command)
    assert status == 2
    assert "expected nothing there, or an empty folder" in err
    assert (tmp_path / "shards" / "mine").read_text() == "kept"
