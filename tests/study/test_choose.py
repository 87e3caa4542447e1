"""The choice of a way to learn: honest folds, a lead that must be earned, resuming."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from jaxseq.metrics import span_scores, token_accuracy
from jaxseq.study import _choose, count_by_sentence, fit_semi_supervised, resampled_scores

TEMPLATES = ["word[0]", "word[-1]"]
ANIMALS = ["dog", "cat", "cow", "pig", "hen", "fox", "owl", "bee"]
VERBS = ["barks", "sleeps", "eats", "runs", "sees", "hides", "waits", "sings"]


def sentence(rng):
    """Animals and verbs, which only their neighbours tell apart where they are new."""
    words, labels = [], []
    for is_animal in rng.random(3) < 0.5:
        words += ["the" if is_animal else "to", str(rng.choice(ANIMALS if is_animal else VERBS))]
        labels += ["O", "N" if is_animal else "V"]  # what stands before has one label
    return words, labels


def corpus(seed, count):
    return map(list, zip(*(sentence(np.random.default_rng([seed, i])) for i in range(count))))


@pytest.fixture(scope="module")
def chosen():
    X, y = corpus(0, 6)
    unlabelled, _ = corpus(1, 300)
    tagger = jaxseq.CRFTagger(TEMPLATES[:1], cores=1)
    return fit_semi_supervised(X, y, unlabelled, tagger=tagger, folds=3, progress=False)


def test_unlabelled_text_pays_where_words_are_new(chosen):
    assert chosen.best.settings["representation"]
    assert chosen.best.gain > 0.05
    X, y = corpus(2, 50)
    plain = chosen.train(chosen.contenders[0])
    assert token_accuracy(y, chosen.tagger.predict(X)) > token_accuracy(y, plain.predict(X)) + 0.05


def test_the_table_has_all_contenders_and_marks_one(chosen):
    lines = chosen.table().splitlines()
    assert len(lines) == 1 + len(chosen.contenders)
    assert chosen.contenders[0].name == "plain CRF"
    assert sum(line.startswith("*") for line in lines) == 1
    assert [each.name for each in chosen.contenders] == [
        "plain CRF",
        "clusters",
        "clusters + brown",
        "clusters + brown + states",
        "label regularisation",
        "entropy regularisation",
        "self-training",
    ]


def test_scores_are_of_sentences_that_were_held_out(monkeypatch):
    """A tagger that remembers its sentences, and knows nothing else, scores nothing."""

    class Remembers(jaxseq.CRFTagger):
        def fit(self, X, y, *, sample_weight=None, **_):
            counted = np.ones(len(X)) if sample_weight is None else sample_weight
            self.known = {tuple(x): labels for x, labels, w in zip(X, y, counted) if w}
            self.outcome_ = jaxseq.Outcome.COUNTED
            return self

        def predict(self, X):
            return [self.known.get(tuple(x), ["?"] * len(x)) for x in X]

    X = [[f"word{i}", "end"] for i in range(9)]
    y = [["A", "B"]] * 9
    chosen = fit_semi_supervised(X, y, [], tagger=Remembers(), folds=3, progress=False)
    assert chosen.best.score == 0
    assert chosen.tagger.predict(X) == y


def test_nothing_is_tried_without_unlabelled_text_or_time():
    X, y = corpus(0, 6)
    tagger = jaxseq.CRFTagger(TEMPLATES, cores=1)
    alone = fit_semi_supervised(X, y, [], tagger=tagger, folds=2, progress=False)
    assert [each.name for each in alone.contenders] == ["plain CRF"]
    late = fit_semi_supervised(X, y, X, tagger=tagger, folds=2, seconds=0.0, progress=False)
    assert [each.note != "" for each in late.contenders] == [False] + [True] * (
        len(late.contenders) - 1
    )
    assert late.best.name == "plain CRF"


def test_an_interrupted_choice_goes_on(tmp_path, monkeypatch):
    X, y = corpus(0, 6)
    settings = {"tagger": jaxseq.CRFTagger(TEMPLATES, cores=1), "folds": 2, "progress": False}
    whole = fit_semi_supervised(X, y, [], **settings)
    trained = []
    ordinary = jaxseq.CRFTagger.fit

    def fit(self, *args, **more):
        trained.append(self.l2)
        if len(trained) == 4:
            raise KeyboardInterrupt
        return ordinary(self, *args, **more)

    monkeypatch.setattr(jaxseq.CRFTagger, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        fit_semi_supervised(X, y, [], checkpoint=tmp_path / "trials", **settings)
    again = fit_semi_supervised(X, y, [], checkpoint=tmp_path / "trials", **settings)
    assert len(trained) == 1 + 2 * len(_choose.L2_VALUES) + 1  # one of them twice, and the last
    assert again.table() == whole.table()
    assert not (tmp_path / "trials").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"y": [["A"]]}, "y: expected labels for 3 sentences, got 1"),
        ({"y": [["A"], [None], ["A"]]}, r"y\[1\]\[0\]: expected a known label"),
        ({"folds": 1}, "folds"),
        ({"folds": 4}, "X: expected at least 4 sentences"),
        ({"seed": -1}, "seed"),
        ({"tagger": jaxseq.HMMTagger()}, "tagger: expected a CRFTagger"),
        ({"expectations": ["pp"]}, "expectations"),
    ],
)
def test_wrong_input(unchecked, change, told):
    given = {"X": [["a"], ["b"], ["c"]], "y": [["A"], ["B"], ["A"]], "unlabelled": []}
    with pytest.raises(ValueError, match=told):
        fit_semi_supervised(**{**given, "folds": 3, "progress": False, **change})


LABELS = st.sampled_from(["O", "B-X", "I-X", "B-Y"])


@given(st.lists(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=6), min_size=1))
def test_counts_give_the_scores_of_metrics(pairs):
    gold, guess = ([[pair[side] for pair in one] for one in pairs] for side in (0, 1))
    by_span = count_by_sentence(gold, guess, "span_f1").score
    assert by_span == pytest.approx(span_scores(gold, guess).overall.f1, abs=1e-12)
    by_token = count_by_sentence(gold, guess, "accuracy").score
    assert by_token == pytest.approx(token_accuracy(gold, guess), abs=1e-12)


def test_resampled_scores_are_paired_and_as_wide_as_theory_says():
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.7
    gold = [["A"]] * 400
    one = count_by_sentence(gold, [["A" if r else "B"] for r in right], "accuracy")
    scores = resampled_scores([one, one], seed=1, resamples=4000)
    assert np.array_equal(*scores)
    assert scores[0].std() == pytest.approx((0.7 * 0.3 / 400) ** 0.5, rel=0.1)
