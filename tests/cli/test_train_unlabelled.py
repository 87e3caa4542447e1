"""``jaxseq train --unlabelled``: what it reads, how it trains with it, and what it reports."""

import argparse
import gzip
import json
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from jaxseq.cli._corpus import read_corpus
from jaxseq.cli._entropy_choice import scoring_of
from jaxseq.cli._unlabelled import read_unlabelled
from jaxseq.learn import _lbfgs
from jaxseq.text import Templates
from tests.cli.conftest import LEXICON, TEMPLATES, TEXTS, columns_of

MORE = ["the cat sleeps .", "barks the dog", "the dog"]
"""Texts of the unlabelled sentences, before a word of them is made new."""

MORE_TOKENS = sum(len(text.split()) for text in MORE)
GAMMAS = (0.0, 0.1, 0.5, 1.0, 5.0, 10.0)


def unlabelled(width=3):
    """A file of unlabelled sentences, whose "cow" has no label anywhere."""
    return columns_of(MORE, width).replace("dog", "cow")


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
    given = ["train", "--train", toy / "train.txt", "--templates", toy / "templates"]
    given += ["--max-iterations", 20, "--l2", 0.1, "--unlabelled", "more.txt"]
    return lambda out, *more: [*given, "--out", out, *more]


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
    assert first == {"entropy_weight": 1, "entropy_gradient": "mann", "vocabulary": "all"}
    assert second["warm_start_from"].classes_.tolist() == ["B-NP", "B-VP", "I-NP", "O"]
    assert {name: second[name] for name in first} == {
        "entropy_weight": 0, "entropy_gradient": "jiao", "vocabulary": "labelled",
    }  # fmt: skip
    assert f"\n          {len(MORE)} unlabelled sentences, {MORE_TOKENS} tokens\n" in out
    assert "\nentropy   weight 0, gradient jiao, vocabulary labelled\n" in out


def test_without_the_option_nothing_is_said_of_it(command, succeed, toy):
    given = ["train", "--train", toy / "train.txt", "--templates", toy / "templates"]
    assert json.loads(succeed(*given, "--out", "m", "--json"))["unlabelled"] is None
    assert "unlabelled" not in succeed(*given, "--out", "m")


# ------------------------------------------------------------------------------ self-training


def test_self_training_learns_from_its_own_labels(command, succeed):
    report = json.loads(succeed(*command("m", "--self-training", "--json")))
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
    more = ["--self-training", "--confidence", 1, "--confidence-of", "token"]
    out = succeed(*command("m", *more))
    assert "\nrounds    0 of self-training" in out
    assert "\n          stopped: no label is sure enough to learn from\n" in out
    assert same_model("m", tagger().fit(*as_data(TEXTS)))


def test_settings_and_interrupts_of_self_training(command, run, monkeypatch):
    given = {}

    class Interrupted(jaxseq.SelfTraining):
        def fit(self, X, y, *, unlabelled):
            given.update(self.get_params(deep=False))
            self.tagger_ = self.estimator.set_params(checkpoint=None).fit(X, y)
            self.rounds_, self.history_, self.outcome_ = 2, [], "interrupted: …"
            return self

    monkeypatch.setattr("jaxseq.tagger.SelfTraining", Interrupted)
    more = ["--self-training", "--confidence", 0.75, "--confidence-of", "token", "--quiet"]
    status, out, err = run(*command("m", *more, "--checkpoint", "kept"))
    assert (status, out) == (0, "")
    assert "interrupted after 2 rounds of self-training: the best model so far is kept" in err
    assert (given["confidence"], given["confidence_of"]) == (0.75, "token")
    assert (given["checkpoint"], given["progress"]) == ("kept", False)
    assert jaxseq.load("m").n_iter_ > 0


def test_interrupted_in_the_first_training(command, run, tmp_path, monkeypatch):
    def iterate(*arguments):
        raise KeyboardInterrupt

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(_lbfgs, "iterate", iterate)
    for more in (["--self-training"], []):
        given = command("m", *more, "--checkpoint", "kept")
        assert run(*given) == (130, "", "jaxseq: interrupted\n")
    assert sorted(tmp_path.iterdir()) == before


def test_labels_on_disk_that_are_not_sure_enough(command, run, monkeypatch):
    class Resumed(jaxseq.SelfTraining):
        def fit(self, X, y, *, unlabelled):
            return self

    monkeypatch.setattr("jaxseq.tagger.SelfTraining", Resumed)
    status, out, err = run(*command("m", "--self-training", "--checkpoint", "kept"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "kept: expected labels to learn from, found none that is sure enough" in err


# --------------------------------------------------------------------------- cross-validation


@pytest.fixture
def choices(monkeypatch):
    """Keywords of all cross-validations; the third weight wins in each."""
    calls = []

    def choose(tagger, X, y, **keywords):
        calls.append({"settings": tagger.get_params(), "sentences": len(X), **keywords})
        scores = np.tile(np.array([[0.5], [0.25], [0.75], [0.5], [0.5], [0.125]]), (1, 5))
        return jaxseq.EntropyWeights(GAMMAS, scores)

    monkeypatch.setattr("jaxseq.tagger.choose_entropy_weight", choose)
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
    assert (found["weights"], found["means"]) == (list(GAMMAS), [1] * len(GAMMAS))
    assert report["unlabelled"]["entropy_weight"] == 0  # the smallest of equals
    *folds, last = fits
    tried = [call["entropy_weight"] for call in folds if "entropy_weight" in call]
    assert sorted(tried) == sorted(5 * GAMMAS[1:])
    assert {call["trained_on"] for call in folds} == {4}
    assert (last["trained_on"], last["entropy_weight"]) == (5, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"m", "more.txt", "train.txt"}


def test_a_choice_is_not_made_twice(command, run, succeed, fits, choices, tmp_path, monkeypatch):
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
    assert status == 0
    assert "interrupted after 3 iterations" in err
    assert choices[0]["checkpoint"] == "kept.cross-validation"
    assert {path.name for path in tmp_path.glob("kept*")} == {"kept", "kept.entropy-weight"}

    status, _, err = run(*given, "--l2", 3)
    assert status == 2
    assert "kept.entropy-weight: expected notes of this very job" in err

    report = json.loads(succeed(*given))
    assert len(choices) == 1
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
    assert scoring_of([*labels, None]) == scoring


# --------------------------------------------------------------------------------------- file


def read(path, text, train="a DT X\nb NN Y\n", needed=("word",), **more):
    """The unlabelled sentences of a file beside a labelled one."""
    chosen = {"format": "conll", "columns": None, "delimiter": None, "scheme_to": None, **more}
    options = argparse.Namespace(**chosen, templates="t", unlabelled=str(path))
    labelled = path.with_name("labelled")
    labelled.write_text(train)
    if text is not None:
        path.write_text(text)
    found = read_unlabelled(options, read_corpus(str(labelled), options), needed)
    return [{column: list(s[column]) for column in s.columns} for s in found]


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
    options = argparse.Namespace(
        format="conll", columns=None, delimiter=None, templates="t", unlabelled="-"
    )
    (tmp_path / "f").write_text("a DT X\n")
    train = read_corpus(str(tmp_path / "f"), argparse.Namespace(**vars(options), scheme_to=None))
    assert [s["word"] for s in read_unlabelled(options, train, ["word"])] == [("a",), ("b",)]


def test_other_formats(tmp_path):
    ads = "sunny FEATURES\n\ncall ?\nnow ?\n"
    expected = [{"word": ["sunny"]}, {"word": ["call", "now"]}]
    assert read(tmp_path / "f", ads, ads, format="ads") == expected
    tagged = "<NEWREFERENCE>\n<title> On CRFs. </title> <date> 2001 </date>\n"
    expected = [{"word": ["On", "CRFs", ".", "2001"]}]
    for text in (tagged, "\nOn CRFs. 2001\n"):
        assert read(tmp_path / "f", text, tagged, format="citations") == expected
    genes = "@@1 The/DT SNF1/NEWGENE\n"
    assert read(tmp_path / "f", genes, genes, format="genetag") == [{"word": ["The", "SNF1"]}]


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
    (["--self-training"], "--self-training: expected along with --unlabelled FILE only"),
    (["--confidence", "0.9"], "--confidence: expected along with --unlabelled FILE only"),
    (["--confidence-of", "token"], "--confidence-of: expected along with --unlabelled FILE only"),
    (["--choose-entropy-weight"], "--choose-entropy-weight: expected along with --unlabelled"),
    ([*FILE, "--entropy-weight", "-1"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-weight", "nan"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-weight", "inf"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-weight", "x"], "--entropy-weight: expected a finite number, 0 or more"),
    ([*FILE, "--entropy-gradient", "x"], "argument --entropy-gradient: invalid choice: 'x'"),
    ([*FILE, "--vocabulary", "x"], "argument --vocabulary: invalid choice: 'x'"),
    ([*FILE, "--self-training", "--confidence", "1.5"], "--confidence: expected a probability"),
    ([*FILE, "--self-training", "--entropy-weight", "0"], "-training: expected no --entropy-wei"),
    ([*FILE, "--self-training", "--entropy-gradient", "mann"], "expected no --entropy-gradient"),
    ([*FILE, "--self-training", "--vocabulary", "all"], "expected no --vocabulary along with it"),
    ([*FILE, "--self-training", "--choose-entropy-weight"], "expected no --choose-entropy-weight"),
    ([*FILE, "--self-training", "--warm-start", "model"], "expected no --warm-start along with it"),
    ([*FILE, "--choose-entropy-weight", "--entropy-weight", "1"], "expected no --entropy-weight"),
    ([*FILE, "--choose-entropy-weight", "--vocabulary", "labelled"], "no --vocabulary labelled"),
    ([*FILE, "--confidence", "0.9"], "--confidence: expected along with --self-training only"),
    ([*FILE, "--self-training", "--confidence-of", "token"], "along with --confidence only"),
    ([*FILE, "--choose-entropy-weight", "--train", "few"], "few: expected at least 5 sentences"),
    ([*FILE, "--checkpoint", "new"], "new: expected a file outside of the model's folder"),
    ([*FILE, "--out", "c.entropy-weight", "--checkpoint", "c"], "outside of the model's folder"),
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
    for name, text in {**FILES, "more.txt": unlabelled()}.items():
        (tmp_path / name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    given = ["train", "--train", toy / "train.txt", "--templates", toy / "templates"]
    status, out, err = run(*given, "--out", "new", *more)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_labels_cannot_be_cross_validated_on(tmp_path, run):
    (tmp_path / "ads").write_text("sunny FEATURES\n\ncall ?\nnow ?\n" * 5)
    given = ["train", "--train", tmp_path / "ads", "--format", "ads", "--templates", "token"]
    given += ["--unlabelled", tmp_path / "ads", "--out", tmp_path / "m"]
    status, _, err = run(*given, "--choose-entropy-weight")
    assert status == 2
    assert "sentence 2: expected a label on every token" in err
    assert not (tmp_path / "m").exists()
