"""``jaxseq train --unlabelled``: how it trains with the file, and what it reports."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

import jaxseq
from jaxseq.crf import _lbfgs, usual_scoring
from jaxseq.text import Templates
from tests.cli.conftest import LEXICON, TEMPLATES, TEXTS, columns_of

MORE = ["the cat sleeps .", "barks the dog", "the dog"]
"""Texts of the unlabelled sentences, before a word of them is made new."""

MORE_TOKENS = sum(len(text.split()) for text in MORE)
GAMMAS = (0.0, 0.1, 0.5, 1.0, 5.0, 10.0)


def unlabelled():
    """A file of unlabelled sentences, whose "cow" has no label anywhere."""
    return columns_of(MORE).replace("dog", "cow")


def as_data(texts):
    """Sentences and labels as the library takes them, without a file."""
    words = [text.split() for text in texts]
    sentences = [{"word": s, "pos": [LEXICON[word][0] for word in s]} for s in words]
    return sentences, [[LEXICON[word][1] for word in s] for s in words]


def with_cows(sentences):
    return [
        {**s, "word": ["cow" if word == "dog" else word for word in s["word"]]} for s in sentences
    ]


@pytest.fixture
def command(toy, tmp_path, monkeypatch):
    """The arguments that train with unlabelled sentences, run in a folder of its own."""
    (tmp_path / "more.txt").write_text(unlabelled())
    monkeypatch.chdir(tmp_path)
    usual = ["--train", toy / "train.txt", "--templates", toy / "templates"]
    usual += ["--max-iterations", 20, "--l2", 0.1, "--unlabelled", "more.txt"]
    return lambda out, *more, method=(): ["train", *method, *usual, "--out", out, *more]


def tagger():
    """With the settings of `command`."""
    return jaxseq.CRFTagger(Templates(TEMPLATES.split()), max_iterations=20, l2=0.1)


def same_model(path, other):
    found = jaxseq.load(path).model_
    pairs = ((found.weights, other.model_.weights), (found.transitions, other.model_.transitions))
    return all(a.shape == b.shape and np.allclose(a, b, atol=1e-6) for a, b in pairs)


@pytest.fixture
def fits(monkeypatch):
    """Keywords of all trainings; each is on the toy corpus alone, so that nothing is compiled."""
    calls, whole = [], jaxseq.CRFTagger.fit

    def fit(self, X, y, **keywords):
        calls.append({"trained_on": len(X), **keywords})
        return whole(self, *as_data(TEXTS))

    monkeypatch.setattr(jaxseq.CRFTagger, "fit", fit)
    return calls


# ------------------------------------------------------------------------------------ entropy


def test_the_entropy_is_added(command, succeed):
    report = json.loads(succeed(*command("m", "--entropy-weight", 0.5, "--json")))
    assert report["sentences"] == len(TEXTS)
    assert report["unlabelled"] == {
        "sentences": len(MORE),
        "tokens": MORE_TOKENS,
        "method": "entropy",
        "entropy_weight": 0.5,
        "entropy_gradient": "mann",
        "vocabulary": "all",
        "expectations": None,
        "expectation_method": "gradient",
    }
    X, y = as_data(TEXTS)
    others = with_cows(as_data(MORE)[0])
    expected = tagger().fit(X, y, unlabelled=others, entropy_weight=0.5)
    assert same_model("m", expected)
    assert "word[0]=cow" in jaxseq.load("m").extractor_.attribute_names()
    assert report["loss"] == pytest.approx(expected.loss_, rel=1e-5)
    supervised = tagger().fit(X, y)
    assert expected.loss_ > supervised.loss_ + 0.01  # so that the test can tell the two apart
    assert supervised.model_.weights.shape != expected.model_.weights.shape


def test_options_reach_fit(command, succeed, fits):
    succeed(*command("a", "--quiet"))
    more = ["--entropy-weight", 0, "--entropy-gradient", "jiao", "--vocabulary", "labelled"]
    out = succeed(*command("b", *more, "--warm-start", "a"))
    first, second = fits
    words = [list(sentence["word"]) for sentence in first.pop("unlabelled")]
    assert words == [s["word"] for s in with_cows(as_data(MORE)[0])]
    assert (first.pop("warm_start_from"), first.pop("trained_on")) == (None, len(TEXTS))
    assert first == {
        "entropy_weight": 0, "entropy_gradient": "mann", "vocabulary": "all",
        "expectations": None, "expectation_method": "gradient",
    }  # fmt: skip
    assert second["warm_start_from"].classes_.tolist() == ["B-NP", "B-VP", "I-NP", "O"]
    assert {name: second[name] for name in first} == {
        **first, "entropy_gradient": "jiao", "vocabulary": "labelled",
    }  # fmt: skip
    assert f"\n          {len(MORE)} unlabelled sentences, {MORE_TOKENS} tokens\n" in out
    assert "\nentropy   weight 0, gradient jiao, vocabulary labelled\n" in out


EXPECTED = """
[[expectation]]
when = "word[0]=cow"
targets = { "B-NP" = [0.0, 0.1] }
"""


def test_a_file_says_what_is_expected(command, succeed, fits, tmp_path):
    (tmp_path / "expected.toml").write_text(EXPECTED)
    out = succeed(*command("a", "--expectations", "expected.toml"))
    assert "\nexpected  1, by gradient\n" in out
    succeed(*command("b", "--expectations", "none", "--expectation-method", "projection"))
    first, second = fits
    assert [each.targets for each in first["expectations"]] == [{"B-NP": (0.0, 0.1)}]
    assert (second["expectations"], second["expectation_method"]) == ([], "projection")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--expectations", "absent.toml"], "absent.toml"),
        (["--expectations", "bad.toml"], "bad.toml: expected TOML"),
        (["--expectations", "none", "--expectation-method", "em"], "--expectation-method"),
        (
            ["--expectation-method", "projection", "--entropy-weight", 1],
            "--entropy-weight: expected none with --expectation-method projection",
        ),
    ],
)
def test_bad_expectations_are_refused_in_one_line(command, run, tmp_path, more, message):
    (tmp_path / "bad.toml").write_text("[[")
    status, out, err = run(*command("m", *more))
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_without_the_option_nothing_is_said_of_it(command, succeed, toy):
    given = ["train", "--train", toy / "train.txt", "--templates", toy / "templates"]
    assert json.loads(succeed(*given, "--out", "m", "--json"))["unlabelled"] is None
    assert "unlabelled" not in succeed(*given, "--out", "m")


# ------------------------------------------------------------------------------ self-training


def test_self_training_learns_from_its_own_labels(command, succeed):
    report = json.loads(succeed(*command("m", "--json", method=["self"])))
    X, y = as_data(TEXTS)
    others = with_cows(as_data(MORE)[0])
    trained, labels, rounds = tagger().fit(X, y), None, 0
    while (guess := trained.predict(others)) != labels:
        trained, labels, rounds = tagger().fit(X + others, y + guess), guess, rounds + 1
    assert same_model("m", trained)
    found = report["unlabelled"]
    assert (found["method"], found["rounds"]) == ("self-training", rounds)
    assert found["history"][-1] == {"changed": 0, "learnt_from": MORE_TOKENS}
    assert found["outcome"].startswith("converged")
    assert report["seconds"]["self_training"] >= report["seconds"]["training"]


def test_confidence_that_no_label_has(command, succeed):
    more = ["--confidence", 1, "--confidence-of", "token"]
    out = succeed(*command("m", *more, method=["self", "crf"]))
    assert "\nrounds    0 of self-training" in out
    assert "\n          stopped: no label is sure enough to learn from\n" in out
    assert same_model("m", tagger().fit(*as_data(TEXTS)))


def test_settings_and_interrupts_of_self_training(command, run, monkeypatch):
    given = {}

    class Interrupted(jaxseq.SelfTraining):
        def fit(self, X, y, *, unlabelled):
            given.update(self.get_params(deep=False))
            self.tagger_ = self.estimator.set_params(checkpoint=None).fit(X, y)
            self.rounds_, self.history_, self.outcome_ = 2, [], jaxseq.Outcome.INTERRUPTED
            return self

    monkeypatch.setattr("jaxseq.taggers.SelfTraining", Interrupted)
    more = ["--confidence", 0.75, "--confidence-of", "token", "--quiet", "--checkpoint", "kept"]
    status, out, err = run(*command("m", *more, method=["self"]))
    assert (status, out) == (130, "")
    assert "interrupted after 2 rounds of self-training: the best model so far is kept" in err
    assert (given["confidence"], given["confidence_of"]) == (0.75, "token")
    assert (given["checkpoint"], given["progress"]) == ("kept", False)
    assert jaxseq.load("m").n_iter_ > 0


def test_interrupted_in_the_first_training(command, run, tmp_path, monkeypatch):
    def iterate(*arguments):
        raise KeyboardInterrupt

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(_lbfgs, "iterate", iterate)
    for method in (["self"], []):
        given = command("m", "--checkpoint", "kept", method=method)
        assert run(*given) == (130, "", "jaxseq: interrupted\n")
    assert sorted(tmp_path.iterdir()) == before


# --------------------------------------------------------------------------- cross-validation


@pytest.fixture
def choices(monkeypatch):
    """Keywords of all cross-validations; the third weight wins in each."""
    calls = []

    def choose(tagger, X, y, **keywords):
        calls.append({"settings": tagger.get_params(), "sentences": len(X), **keywords})
        if keywords["checkpoint"] is not None:
            Path(keywords["checkpoint"]).touch()
        scores = np.tile(np.array([[0.5], [0.25], [0.75], [0.5], [0.5], [0.125]]), (1, 5))
        return jaxseq.CrossValidation(GAMMAS, scores)

    monkeypatch.setattr("jaxseq.crf.choose_entropy_weight", choose)
    return calls


def test_the_best_weight_is_trained_with(command, succeed, fits, choices):
    out = succeed(*command("m", "--choose-entropy-weight", "--seed", 3))
    assert out.startswith("weights   mean span F1 in 5-fold cross-validation")
    rows = [line.split() for line in out.split("\n")[1:7]]
    means = ("0.5000", "0.2500", "0.7500", "0.5000", "0.5000", "0.1250")
    assert [row[:2] for row in rows] == [[f"{g:g}", mean] for g, mean in zip(GAMMAS, means)]
    assert [row[2:] for row in rows] == [[], [], ["*"], [], [], []]
    assert "\nentropy   weight 0.5, gradient mann, vocabulary all\n" in out
    assert [call["entropy_weight"] for call in fits] == [0.5]
    (call,) = choices
    assert (call["sentences"], len(call["unlabelled"])) == (len(TEXTS), len(MORE))
    assert (call["scoring"], call["seed"], call["checkpoint"]) == ("span_f1", 3, None)
    assert call["settings"]["l2"] == 0.1

    report = json.loads(succeed(*command("m", "--choose-entropy-weight", "--json")))
    assert report["unlabelled"]["entropy_weight"] == 0.5
    assert report["unlabelled"]["cross_validation"] == {
        "scoring": "span_f1",
        "folds": 5,
        "weights": list(GAMMAS),
        "means": [float(mean) for mean in means],
    }
    assert report["seconds"]["cross_validation"] > 0
    assert succeed(*command("m", "--choose-entropy-weight", "--quiet")) == ""


def test_cross_validation_trains_every_weight_on_every_fold(command, succeed, fits, tmp_path):
    (tmp_path / "train.txt").write_text(columns_of(["the dog barks ."] * 5))
    more = ["--train", "train.txt", "--choose-entropy-weight", "--checkpoint", "kept", "--json"]
    report = json.loads(succeed(*command("m", *more)))
    found = report["unlabelled"]["cross_validation"]
    usual = [0, 1e-4, 1e-3, 1e-2, 0.1, 1]
    assert (found["weights"], found["means"]) == (usual, [1] * len(usual))
    assert report["unlabelled"]["entropy_weight"] == 0  # the smallest of equals
    *folds, last = fits
    tried = [call["entropy_weight"] for call in folds if "entropy_weight" in call]
    assert sorted(tried) == sorted(5 * usual)
    assert {call["trained_on"] for call in folds} == {4}
    assert (last["trained_on"], last["entropy_weight"]) == (5, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"m", "more.txt", "train.txt"}


def test_scores_are_kept_until_the_model_is_saved(
    command, run, succeed, fits, choices, tmp_path, monkeypatch
):
    whole, done = _lbfgs.iterate, []

    def iterate(*arguments):
        done.append(1)
        if len(done) == 3:
            signal.raise_signal(signal.SIGINT)
        return whole(*arguments)

    given = command("m", "--choose-entropy-weight", "--checkpoint", "kept", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(_lbfgs, "iterate", iterate)
        status, _, err = run(*given)
    assert status == 130
    assert "interrupted after 3 iterations" in err
    assert choices[0]["checkpoint"] == "kept.cross-validation"
    assert {path.name for path in tmp_path.glob("kept*")} == {"kept", "kept.cross-validation"}

    report = json.loads(succeed(*given))
    assert choices[0].items() <= choices[1].items()
    assert [call["entropy_weight"] for call in fits] == [0.5, 0.5]
    assert report["unlabelled"]["cross_validation"]["means"][2] == 0.75
    assert report["iterations"] > 3
    assert list(tmp_path.glob("kept*")) == []


@pytest.mark.parametrize(
    ("labels", "scoring"),
    [
        (["O", "B-NP", "I-NP"], "span_f1"),
        (["I-PER"], "span_f1"),
        (["B-X", "E-X", "S-X", "O"], "span_f1"),
        (["U-X", "L-X", "B-X"], "span_f1"),
        (["E-X", "L-X"], "accuracy"),  # letters of two schemes
        (["O"], "accuracy"),
        (["DT", "NN"], "accuracy"),
        (["title", "O", "B-X"], "accuracy"),
    ],
)
def test_scoring_by_the_look_of_the_labels(labels, scoring):
    assert usual_scoring(labels) == scoring
