"""Commands without the options that beginners leave out: templates, l2, a strategy."""

import json

import numpy as np
import pytest

import jaxseq
from jaxseq.text import general_templates
from tests.cli.active_runs import LABELS, poisoned, write_files
from tests.cli.conftest import TEXTS, columns_of

QUICK = ("--max-iterations", 10, "--cores", 1)


@pytest.fixture
def corpus(toy):
    return ["--train", toy / "train.txt"]


def templates_in(path):
    return jaxseq.load(path).extractor_.templates


def test_training_reads_all_columns(corpus, tmp_path, succeed):
    out = succeed("train", *corpus, "--out", tmp_path / "m", *QUICK)
    assert templates_in(tmp_path / "m") == general_templates(["word", "pos"])
    assert ", l2 0.001 (" in out
    named = ["--columns", "form,-,label", "--templates", "general"]
    report = json.loads(
        succeed("train", *corpus, "--out", tmp_path / "m", *QUICK, *named, "--json")
    )
    assert templates_in(tmp_path / "m") == general_templates(["form"])
    assert report["l2"] == jaxseq.load(tmp_path / "m").l2_ == 0.001


@pytest.mark.parametrize("method", ["self", "codl"])
def test_other_methods_read_all_columns(corpus, toy, tmp_path, succeed, method):
    more = ["--unlabelled", toy / "train.txt", "--out", tmp_path / "m"]
    more += ["--top-k", 2, "--cycles", 1] if method == "codl" else []
    succeed("train", method, *corpus, *more, *QUICK)
    assert templates_in(tmp_path / "m") == general_templates(["word", "pos"])


def test_unlabelled_words_do_not_do_for_a_model_of_more(corpus, tmp_path, run):
    (tmp_path / "words").write_text("the\ndog\n")
    more = ["--unlabelled", tmp_path / "words", "--out", tmp_path / "m"]
    status, _, err = run("train", *corpus, *more)
    assert status == 2
    assert "expected a column 'pos', since the model reads word, pos" in err


def test_shards_are_of_all_columns(corpus, tmp_path, succeed):
    succeed("shard", *corpus, "--out", tmp_path / "shards")
    more = ["--shards", tmp_path / "shards", "--algorithm", "adamw", "--epochs", 1]
    succeed("train", *more, "--out", tmp_path / "m")
    assert templates_in(tmp_path / "m") == general_templates(["word", "pos"])


def test_active_learning_asks_for_groups_by_all_columns(tmp_path, succeed):
    write_files(tmp_path)
    argv = ["--train", tmp_path / "few", "--pool", tmp_path / "pool", "--out", tmp_path / "run"]
    succeed("active", "start", *argv, *QUICK, "--columns", "form,pos,label")
    assert templates_in(tmp_path / "run" / "model") == general_templates(["form", "pos"])
    assert json.loads(succeed("active", "query", tmp_path / "run", "--json"))["queries"]


@pytest.mark.parametrize("units", ["tokens", "sentences"])
def test_active_learning_at_random(tmp_path, succeed, units):
    write_files(tmp_path)
    (tmp_path / "words").write_text(poisoned(TEXTS))
    argv = ["--train", tmp_path / "few", "--pool", tmp_path / "pool", "--out", tmp_path / "run"]
    argv += ["--strategy", "random", "--units", units, "--count", 2, "--draw", 3]
    succeed("active", "start", *argv, *QUICK, "--labels", ",".join(LABELS))
    assert json.loads(succeed("active", "query", tmp_path / "run", "--json"))["queries"]


# --------------------------------------------------------------------------------- l2 auto


def test_l2_is_chosen_by_cross_validation(corpus, tmp_path, succeed, monkeypatch):
    asked = []

    def choose(tagger, X, y, **how):
        asked.append((tagger.get_params()["l2"], len(X), len(y), how["seed"]))
        return jaxseq.CrossValidation((0.02, 40.0), np.array([[0.5] * 5, [0.75] * 5]))

    monkeypatch.setattr("jaxseq.crf.choose_l2", choose)
    argv = ["train", *corpus, "--out", tmp_path / "m", *QUICK, "--l2", "auto", "--seed", 3]
    out = succeed(*argv)
    assert asked == [(None, len(TEXTS), len(TEXTS), 3)]
    assert out.startswith("l2        mean span F1 in 5-fold cross-validation (")
    assert out.split("\n")[1:3] == ["          0.02    0.5000", "          40      0.7500 *"]
    assert ", l2 40 (" in out
    tagger = jaxseq.load(tmp_path / "m")
    assert (tagger.l2, tagger.l2_) == (40.0, 40.0)
    report = json.loads(succeed(*argv, "--json"))
    assert report["l2"] == 40.0
    assert report["seconds"]["choice_of_l2"] > 0


def test_finish_chooses_l2_by_the_labels_so_far(tmp_path, succeed, monkeypatch):
    monkeypatch.setattr("jaxseq.active._learner.L2_VALUES", (0.02, 40.0))
    write_files(tmp_path)
    (tmp_path / "labelled").write_text(columns_of(TEXTS))
    argv = ["--train", tmp_path / "labelled", "--pool", tmp_path / "pool"]
    succeed("active", "start", *argv, "--out", tmp_path / "run", *QUICK)
    final = ["--l2", "auto", "--out", tmp_path / "final"]
    out = succeed("active", "finish", tmp_path / "run", *final)
    tagger = jaxseq.load(tmp_path / "final")
    assert tagger.l2 in (0.02, 40.0)
    assert f", l2 {tagger.l2:g}\n" in out
    assert jaxseq.load(tmp_path / "run" / "model").l2 == 1.0
    succeed("active", "finish", tmp_path / "run", "--out", tmp_path / "final")
    assert jaxseq.load(tmp_path / "final").l2_ == 0.001


def test_where_l2_cannot_be_chosen(tmp_path, run):
    (tmp_path / "few").write_text(columns_of(TEXTS[:4]))
    few = ["train", "--train", tmp_path / "few", "--out", tmp_path / "m"]
    for argv, message in (
        ([*few, "--l2", "auto"], "expected at least 5 sentences to choose l2 on, found 4"),
        ([*few, "--l2", "best"], "argument --l2: expected a number or auto, got 'best'"),
        (
            ["train", "--shards", tmp_path, "--algorithm", "sgd", "--out", "m", "--l2", "auto"],
            "--l2: expected a number along with --shards, got auto",
        ),
        (
            ["active", "start", "--pool", "p", "--out", "r", "--l2", "auto"],
            "argument --l2: invalid float value: 'auto'",
        ),
    ):
        status, out, err = run(*argv)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert not (tmp_path / "m").exists()


def test_of_conllu_the_words_alone_are_read(tmp_path, succeed):
    rows = ["the\tthe\tDET", "dog\tdog\tNOUN", "barks\tbark\tVERB"]
    lines = [f"{n}\t{row}{chr(9)}_" + "\t_" * 5 for n, row in enumerate(rows, 1)]
    (tmp_path / "toy.conllu").write_text("# sent_id = 1\n" + "\n".join(lines) + "\n\n")
    corpus = ["--train", tmp_path / "toy.conllu", "--label-column", "upos"]
    succeed("train", *corpus, "--out", tmp_path / "m", *QUICK)
    assert templates_in(tmp_path / "m") == general_templates()
