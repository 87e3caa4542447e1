"""``jaxseq represent``, and training with what it has learnt."""

import json

import pytest

import jaxseq
from jaxseq.representations import load_representation
from tests.cli.test_train import train

TEXT = "the dog barks\nthe cat sleeps\na dog sleeps\n" * 9
SMALL = ("--sizes", "3,5", "--quiet")


@pytest.fixture
def plain(tmp_path):
    (tmp_path / "plain.txt").write_text(TEXT)
    return tmp_path / "plain.txt"


def columns(path):
    path.write_text("\n\n".join("\n".join(line.split()) for line in TEXT.splitlines()) + "\n")
    return path


def test_columns_and_plain_text_give_the_same(plain, tmp_path, succeed):
    succeed("represent", plain, "--format", "plain", "--out", tmp_path / "one", *SMALL)
    succeed("represent", columns(tmp_path / "c.txt"), "--out", tmp_path / "two", *SMALL)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    words = load_representation(tmp_path / "one")
    assert words.cluster("dog", 3) == words.cluster("cat", 3) != words.cluster("the", 3)


def test_several_files_are_one_text(plain, tmp_path, succeed):
    lines = TEXT.splitlines(keepends=True)
    for name, part in (("a", lines[:10]), ("b", lines[10:])):
        (tmp_path / name).write_text("".join(part))
    parts = (tmp_path / "a", tmp_path / "b")
    succeed("represent", *parts, "--format", "plain", "--out", tmp_path / "parts", *SMALL)
    succeed("represent", plain, "--format", "plain", "--out", tmp_path / "whole", *SMALL)
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()


def test_report(plain, tmp_path, succeed):
    usual = ("represent", plain, "--format", "plain", "--sizes", "3", "--out")
    report = json.loads(succeed(*usual, tmp_path / "one", "--json"))
    assert (report["sentences"], report["tokens"], report["words"]) == (27, 81, 6)
    assert report["representation"] == str(tmp_path / "one")
    assert "27 sentences, 81 tokens" in succeed(*usual, tmp_path / "two")


def test_vectors_of_others(tmp_path, succeed):
    (tmp_path / "v.txt").write_text("dog 1 0\ncat 1 0.1\nthe 0 1\n")
    succeed("represent", "--vectors", tmp_path / "v.txt", "--out", tmp_path / "w", "--sizes", "2")
    words = load_representation(tmp_path / "w")
    assert words.cluster("dog", 2) == words.cluster("cat", 2) != words.cluster("the", 2)


def test_training_uses_it_and_the_model_keeps_it(toy, tmp_path, succeed):
    succeed("represent", toy / "train.txt", "--out", tmp_path / "words", *SMALL)
    usual = (*train(toy, tmp_path / "m"), "--quiet", "--representation", tmp_path / "words")
    succeed(*usual)
    (tmp_path / "words").unlink()
    tagger = jaxseq.load(tmp_path / "m")
    assert any("cluster(word[-1], 5)" in name for name in tagger.extractor_.attribute_names())
    assert succeed("tag", "--model", tmp_path / "m", toy / "train.txt")


def test_training_learns_it_on_the_spot(toy, tmp_path, succeed):
    usual = train(toy, tmp_path / "m", "--unlabelled", toy / "train.txt", "--entropy-weight", "0")
    succeed(*usual, "--quiet", "--learn-representation", "clusters")
    tagger = jaxseq.load(tmp_path / "m")
    assert tagger.representation.about["sentences"] == 2 * len(
        (toy / "train.txt").read_text().strip().split("\n\n")
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "FILE: expected files of sentences, or --vectors, and not both"),
        (("no such file",), "no such file: expected a file, there is none"),
        (("plain.txt", "--vectors", "plain.txt"), "and not both"),
        (("plain.txt", "--words", "plain.txt"), "--words: expected along with --vectors"),
        (("--vectors", "plain.txt", "--kinds", "brown"), "--kinds: expected along with sentences"),
        (("--vectors", "plain.txt"), "plain.txt"),
        (("plain.txt", "--kinds", "brown,tokens"), "--kinds: expected some of clusters, brown"),
        (("plain.txt", "--sizes", "0"), "--sizes: expected a whole number, 1 or more, got '0'"),
        (("plain.txt", "--columns", "a,b,c"), "plain.txt:1: expected a column 'word'"),
        (("plain.txt", "--format", "plain", "--columns", "word"), "--columns: expected with"),
        (("plain.txt", "--tokenize", "punctuation"), "--tokenize: expected with --format plain"),
    ],
)
def test_wrong_input(plain, tmp_path, run, monkeypatch, more, told):
    monkeypatch.chdir(tmp_path)
    status, _, error = run("represent", *more, "--out", "words")
    assert status == 2
    assert told in error
    assert not (tmp_path / "words").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--learn-representation", "clusters"), "expected along with --unlabelled FILE only"),
        (("--representation", "plain.txt"), "plain.txt: expected a sound representation"),
    ],
)
def test_wrong_representation_for_training(toy, plain, tmp_path, run, monkeypatch, more, told):
    monkeypatch.chdir(tmp_path)
    status, _, error = run(*train(toy, tmp_path / "m"), *more)
    assert status == 2
    assert told in error
    assert not (tmp_path / "m").exists()
