"""Constraints from the command line: in tagging, in evaluation, in training, and tried alone."""

import json
import math
import re

import numpy as np
import pytest

import jaxseq
from jaxseq.constraints import Penalised, StartsWith, Words, WordsImply, bind_constraints
from jaxseq.hmm import HMMTagger
from tests.cli.conftest import LEXICON, TEXTS, columns_of

SOFT = """scheme = "iob2"
penalty = 9.0

[[constraint]]
kind = "words_imply"
name = "dogs"
words = ["dog"]
labels = ["VP"]

[[constraint]]
kind = "starts_with"
labels = ["NP"]
penalty = 0.5
"""
HARD = SOFT.replace("9.0", "inf") + '[[constraint]]\nkind = "must_appear"\nlabels = ["O"]\n'
RULES = [
    Penalised(WordsImply(Words(["dog"]), ["VP"]), 9.0),
    Penalised(StartsWith(["NP"]), 0.5),
]
X = [text.split() for text in TEXTS]
Y = [[LEXICON[word][1] for word in words] for words in X]


@pytest.fixture(scope="module")
def hmm(toy, tmp_path_factory):
    """The folder of a hidden Markov model that knows every word."""
    folder = tmp_path_factory.mktemp("hmm") / "model"
    HMMTagger(unknown_below=1, cores=1).fit(X, Y).save(folder)
    return folder


@pytest.fixture
def place(toy, tmp_path, monkeypatch):
    """A folder with files of constraints and of sentences."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soft.toml").write_text(SOFT)
    (tmp_path / "hard.toml").write_text(HARD)
    (tmp_path / "free.toml").write_text(SOFT.replace("9.0", "0").replace("0.5", "0"))
    (tmp_path / "unknown.toml").write_text(SOFT.replace('["VP"]', '["PP"]'))
    (tmp_path / "pos.toml").write_text(SOFT.replace("words =", 'column = "pos"\nwords ='))
    (tmp_path / "words.txt").write_text(columns_of(TEXTS, width=1))
    (tmp_path / "train.txt").write_text(columns_of(TEXTS))
    return tmp_path


def labels_of(out, column=-1):
    """A column of the output, sentence by sentence."""
    blocks = [block for block in out.split("\n\n") if block.strip()]
    return [[line.split()[column] for line in block.splitlines()] for block in blocks]


def expected_of(model, penalties=None, k=None):
    """What the library gives."""
    tagger = jaxseq.load(model)
    rules = bind_constraints(RULES, tagger.classes_.tolist(), scheme="iob2")
    rules = rules if penalties is None else rules.with_penalties(penalties)
    if k is None:
        return tagger.predict(X, constraints=rules)
    return tagger.predict_k_best(X, k, constraints=rules)


# ------------------------------------------------------------------------------------- tagging


def test_tags_are_those_of_the_library_under_constraints(hmm, place, succeed):
    found = labels_of(succeed("tag", "--model", hmm, "words.txt", "--constraints", "soft.toml"))
    assert found == expected_of(hmm)
    free = labels_of(succeed("tag", "--model", hmm, "words.txt"))
    assert found != free
    verbs = {label for words, labels in zip(X, found) for w, label in zip(words, labels)
             if w == "dog"}  # fmt: skip
    assert "B-VP" in verbs
    none = labels_of(succeed("tag", "--model", hmm, "words.txt", "--constraints", "free.toml"))
    assert none == free


def test_tags_of_a_crf(toy, place, succeed):
    given = ["tag", "--model", toy / "model", "train.txt"]
    plain = labels_of(succeed(*given))
    (place / "strong.toml").write_text(SOFT.replace("9.0", "50"))
    strong = labels_of(succeed(*given, "--constraints", "strong.toml"))
    changed = {w for words, a, b in zip(X, plain, strong) for w, one, two in zip(words, a, b)
               if one != two}  # fmt: skip
    assert changed == {"dog"}


def test_k_best_and_the_beam(hmm, place, succeed):
    out = succeed("tag", "--model", hmm, "words.txt", "--constraints", "soft.toml", "--k-best", 2,
                  "--beam", 7)  # fmt: skip
    titles = re.findall(r"^(#rank=)(\d+),P=(\S+)$", out, re.MULTILINE)
    expected = [rank for paths in expected_of(hmm, k=2) for rank in enumerate(paths)]
    assert [title[1] for title in titles] == [str(rank) for rank, _ in expected]
    for title, (_, (_, score)) in zip(titles, expected):
        assert float(title[2]) == pytest.approx(math.exp(score), abs=1e-5)


def test_hard_constraints_that_cannot_be_met_are_told_once(hmm, place, run):
    """Those that end without a full stop could still call something O; one word cannot be all."""
    (place / "one.txt").write_text("the\n\ndog\n\nthe\n\n")
    status, out, err = run("tag", "--model", hmm, "one.txt", "--constraints", "hard.toml")
    assert status == 0
    assert len(labels_of(out)) == 3
    assert err == (
        "jaxseq: warning: no labelling that satisfies all hard constraints was found for 1 of 3 "
        "sentences, the first of them sentence 2; they get the fewest violations\n"
    )
    more = ["--k-best", 1, "--constraints", "hard.toml"]
    assert run("tag", "--model", hmm, "one.txt", *more)[2] == err


def test_evaluation_under_constraints(hmm, place, succeed):
    given = ["evaluate", "--model", hmm, "--test", "train.txt", "--json", "--tokens"]
    found = json.loads(succeed(*given, "--constraints", "soft.toml", "--beam", 5))
    pairs = [(a, b) for one, two in zip(Y, expected_of(hmm)) for a, b in zip(one, two)]
    assert found["token_accuracy"] == pytest.approx(np.mean([a == b for a, b in pairs]))
    assert found["token_accuracy"] < json.loads(succeed(*given))["token_accuracy"]


# ------------------------------------------------------------------------------------ training


def train(*more, method=("codl", "hmm")):
    usual = ["--train", "train.txt", "--out", "m", "--cores", 1, "--unknown-below", 1]
    return ["train", *method, *usual, *more]


CODL = ["--unlabelled", "words.txt", "--constraints", "soft.toml"]


def test_codl_is_that_of_the_library(place, succeed):
    more = ["--top-k", 2, "--cycles", 2, "--keep", 0.25, "--labelling-weights", "score"]
    report = json.loads(succeed(*train(*CODL, *more, "--dev", "train.txt", "--json")))
    learner = jaxseq.CoDL(
        HMMTagger(unknown_below=1, cores=1), RULES, scheme="iob2", k=2, cycles=2, keep=0.25,
        weights="score", progress=False,
    ).fit(X, Y, unlabelled=X)  # fmt: skip
    learner.save("n")
    saved, expected = ((place / name / "model.safetensors").read_bytes() for name in "mn")
    assert saved == expected
    found = report["unlabelled"]
    assert (found["method"], found["cycles"]) == ("codl", len(learner.history_))
    assert found["constraints"] == ["dogs", "starts_with"]
    assert (found["top_k"], found["keep"], found["labelling_weights"]) == (2, 0.25, "score")
    assert found["outcome"] == learner.outcome_
    changed = [cycle["changed"] for cycle in found["history"]]
    assert changed == [cycle["changed"] for cycle in learner.history_]
    scores = jaxseq.metrics.span_scores(Y, learner.predict(X))
    assert report["dev"] == json.loads(json.dumps(scores.as_dict()))
    assert set(report["seconds"]) == {"codl"}  # of the mixture nothing else is known


def test_no_time_is_named_that_was_not_taken(place, succeed):
    out = succeed(*train(*CODL, "--cycles", 1))
    assert "(0.0 s)" not in out.replace(re.findall(r"cycles .*", out)[0], "")
    assert re.search(r"^training +\d+ iterations[^(]*$", out, re.MULTILINE)


def test_rules_may_name_labels_that_the_labelled_sentences_lack(place, succeed, run):
    """Those of --classes, for both models and for a file of rules alone."""
    rule = '[[constraint]]\nkind = "words_imply"\nwords = ["cow"]\nlabels = ["ANIMAL"]\n'
    (place / "animal.toml").write_text(f"penalty = 9\n{rule}")
    labels = "B-NP,I-NP,B-VP,O,ANIMAL"
    rules = ["--unlabelled", "words.txt", "--constraints", "animal.toml", "--cycles", 1]
    for method, more in (("hmm", []), ("crf", ["--templates", "token", "--max-iterations", 2])):
        argv = ["train", "codl", method, "--train", "train.txt", "--out", "m", *rules, *more]
        status, _, err = run(*argv)
        assert (status, err.count("\n")) == (2, 1)
        assert err.endswith("got 'ANIMAL'\n")
        report = json.loads(succeed(*argv, "--classes", labels, "--json"))
        assert report["labels"] == len(labels.split(","))
        assert "ANIMAL" in jaxseq.load("m").classes_.tolist()


def test_a_message_with_many_labels_still_names_the_wrong_one(place, run):
    words = "".join(f"w LABEL-{number:04}\n" for number in range(300))
    (place / "many.txt").write_text(words)
    rule = '[[constraint]]\nkind = "must_appear"\nlabels = ["NONE-SUCH"]\npenalty = 1\n'
    (place / "r.toml").write_text(rule)
    status, _, err = run("constraints", "r.toml", "many.txt")
    assert status == 2
    assert err.startswith("jaxseq: error: r.toml: constraint 1 (must_appear): labels: expected one")
    assert err.endswith("got 'NONE-SUCH'\n")
    assert len(err) < 1100


def test_options_reach_codl(place, succeed, run, monkeypatch):
    given = {}

    class Quick(jaxseq.CoDL):
        def fit(self, X, y, *, unlabelled):
            given.update(self.get_params(deep=False), sentences=len(unlabelled))
            self.tagger_ = HMMTagger(unknown_below=1, cores=1).fit(X, y)
            self.constraints_ = self.constraints.bind(self.tagger_.classes_.tolist())
            violated = {"dogs": 0.5, "starts_with": 0.0, "must_appear": 0.25}
            self.history_ = [{"changed": 1, "mean_score": 0.0, "unmet": 2, "violated": violated}]
            self.outcome_ = jaxseq.Outcome.INTERRUPTED
            return self

    monkeypatch.setattr("jaxseq.constraints.CoDL", Quick)
    options = ["--pool", "--beam", 60, "--checkpoint", "kept", "--constraints", "hard.toml"]
    status, out, err = run(*train(*CODL, *options))
    assert status == 130
    expected = {"pool": True, "width": 60, "checkpoint": "kept", "k": 50, "cycles": 5, "keep": 0.1}
    assert {name: given[name] for name in expected} == expected
    assert (given["sentences"], given["weights"]) == (len(X), "uniform")
    assert given["constraints"].scheme == "iob2"
    assert "CoDL      3 constraints, top 50, weights uniform, pooled\ncycles    1 (" in out
    assert "           50.00%  dogs\n" in out
    assert err.splitlines() == [
        "jaxseq: warning: no labelling that satisfies all hard constraints was found for 2 of 6 "
        "unlabelled sentences; they get the fewest violations",
        "jaxseq: interrupted after 1 cycles of constraint-driven learning: the best model so far "
        "is kept",
    ]
    assert jaxseq.load("m").classes_.tolist() == sorted({label for labels in Y for label in labels})


# --------------------------------------------------------------------------------- tried alone


def test_constraints_on_labelled_sentences(place, succeed):
    report = json.loads(succeed("constraints", "hard.toml", "train.txt", "train.txt", "--json"))
    tokens, dogs = sum(map(len, X)), sum(words.count("dog") for words in X)
    verbs_first = sum(labels[0] != "B-NP" for labels in Y)
    endless = sum("O" not in labels for labels in Y)
    assert (report["sentences"], report["tokens"]) == (2 * len(X), 2 * tokens)
    rows = report["constraints"]
    assert [row["name"] for row in rows] == ["dogs", "starts_with", "must_appear"]
    assert [row["penalty"] for row in rows] == ["inf", 0.5, "inf"]
    assert [row["violations"] for row in rows] == [2 * dogs, 2 * verbs_first, 2 * endless]
    assert [row["sentences_violating"] for row in rows] == [2 * dogs, 2 * verbs_first, 2 * endless]
    assert rows[1]["share_of_sentences"] == pytest.approx(verbs_first / len(X))
    odds = (2 * len(X) - 2 * endless + 1) / (2 * endless + 1)
    assert rows[2]["estimated_penalty"] == pytest.approx(max(0, math.log(odds)))
    out = succeed("constraints", "hard.toml", "train.txt")
    head, _, title, *lines = out.splitlines()
    assert head == f"3 constraints, {len(X)} sentences, {tokens} tokens"
    assert title.split() == ["violations", "sentences", "share", "penalty", "estimated"]
    assert lines[0].split()[:5] == ["dogs", str(dogs), str(dogs), f"{dogs / len(X):.2%}", "inf"]


def test_constraints_for_the_labels_of_a_model(hmm, place, succeed, run):
    (place / "few.txt").write_text("the DT B-NP\n")
    status, _, err = run("constraints", "soft.toml", "few.txt")
    assert (status, err) == (
        2,
        "jaxseq: error: soft.toml: constraint 1 (dogs): labels: expected one of NP, B-NP, "
        "got 'VP'\n",
    )  # fmt: skip
    given = ["constraints", "soft.toml", "few.txt", "--model", hmm, "--json"]
    rows = json.loads(succeed(*given))["constraints"]
    assert [row["violations"] for row in rows] == [0, 0]
    (place / "other.txt").write_text("the DT B-PP\n")
    status, _, err = run("constraints", "soft.toml", "other.txt", "--model", hmm)
    assert (status, err.count("\n")) == (2, 1)
    assert "other.txt: expected the labels of" in err


# ----------------------------------------------------------------------------------- mistakes

TAG = ["tag", "--model", "MODEL", "words.txt"]
WITH = ["--constraints", "soft.toml"]
EVALUATE = ["evaluate", "--model", "MODEL", "--test", "train.txt"]

MISTAKES = {
    "label": (
        [*TAG, "--constraints", "unknown.toml"],
        "unknown.toml: constraint 1 (dogs): labels: expected one of",
    ),
    "no file": ([*TAG, "--constraints", "nowhere.toml"], "nowhere.toml: expected a file, there is"),
    "format": ([*TAG, "--constraints", "words.txt"], "words.txt: expected a file whose name ends"),
    "beam alone": ([*TAG, "--beam", 3], "--beam: expected along with --constraints FILE only"),
    "beam": ([*TAG, *WITH, "--beam", 0], "--beam: expected a whole number, 1 or more, got '0'"),
    "narrow": ([*TAG, *WITH, "--beam", 3, "--k-best", 4], "--beam: expected at least as many as"),
    "marginals": ([*TAG, *WITH, "--marginals"], "--marginals: expected no --constraints along"),
    "column": (
        [*TAG, "--constraints", "pos.toml"],
        "words.txt:1: expected a column 'pos', since the model with its constraints reads",
    ),
    "plain": (
        [*TAG, "--format", "plain", "--constraints", "pos.toml"],
        "words.txt: expected a column 'pos'",
    ),
    "evaluate": ([*EVALUATE, "--beam", 3], "--beam: expected along with --constraints FILE only"),
    "evaluate label": (
        [*EVALUATE, "--constraints", "unknown.toml"],
        "unknown.toml: constraint 1 (dogs): labels: exp",
    ),
    "evaluate file": (
        ["evaluate", "train.txt", *WITH],
        "--constraints: expected with --model and --test only",
    ),
    "no codl": (train(*WITH, method=["hmm"]), "unrecognized arguments: --constraints soft.toml"),
    "top-k": (train("--top-k", 3, method=["hmm"]), "unrecognized arguments: --top-k 3"),
    "no unlabelled": (train(*WITH), "the following arguments are required: --unlabelled"),
    "self-training": (train(*CODL, "--confidence", 1), "unrecognized arguments: --confidence 1"),
    "em": (train(*CODL, "--em", "hard"), "unrecognized arguments: --em hard"),
    "pool": (train(*CODL, "--keep", 0.5, "--pool"), "--pool: not allowed with argument --keep"),
    "vocabulary": (
        train(*CODL, "--pool", "--vocabulary", "all"),
        "--pool: expected no --vocabulary along with it",
    ),
    "beam of 50": (train(*CODL, "--beam", 10), "--beam: expected at least as many as labellings"),
    "cycles": (train(*CODL, "--cycles", -1), "--cycles: expected a whole number, 1 or more"),
    "keep": (train(*CODL, "--keep", 1.5), "--keep: expected a probability, 0 to 1, got '1.5'"),
    "train label": (
        train(*CODL, "--constraints", "unknown.toml"),
        "unknown.toml: constraint 1 (dogs): labels: expected one of NP, VP, O, B-NP, B-VP, I-NP, "
        "got 'PP'",
    ),
    "train column": (
        train(*CODL, "--constraints", "pos.toml", "--columns", "word,-,label"),
        "train.txt: expected a column 'pos', since pos.toml reads pos",
    ),
    "try": (["constraints", "soft.toml", "words.txt"], "words.txt: expected 2 to 4 columns"),
    "try label": (
        ["constraints", "unknown.toml", "train.txt"],
        "unknown.toml: constraint 1 (dogs): labels: expected",
    ),
    "smoothing": (
        ["constraints", "soft.toml", "train.txt", "--smoothing", 0],
        "--smoothing: expected a number, more than 0, got '0'",
    ),
}


@pytest.mark.parametrize(("argv", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_line(hmm, place, run, argv, message):
    before = sorted(place.iterdir())
    status, out, err = run(*[hmm if part == "MODEL" else part for part in argv])
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "error: " in err
    assert message in err
    assert sorted(place.iterdir()) == before
