"""Self-training against a plain loop, and its ends with a tagger whose next answer is known."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

import jaxseq
from tests.crf.test_checkpoint import saved_bytes
from tests.taggers.toys import toy_corpus

X, Y = toy_corpus(0)
U, _ = toy_corpus(1)
FEW = slice(0, 7)  # of the labelled sentences, so that the first labels are not the last


def tagger():
    return jaxseq.CRFTagger(cores=1, l2=1.0, weights="dense", progress=False, max_iterations=30)


def trained_on(*data):
    return tagger().fit(*data)


@pytest.fixture(scope="module")
def trained():
    estimator = tagger()
    found = jaxseq.SelfTraining(estimator).fit(X[FEW], Y[FEW], unlabelled=U)
    assert not hasattr(estimator, "model_")  # it was cloned
    return found


# -------------------------------------------------------------------------- with real taggers


def test_it_is_a_plain_loop(trained):
    labels, rounds = trained_on(X[FEW], Y[FEW]).predict(U), 0
    while True:
        last = trained_on(X[FEW] + U, Y[FEW] + labels)
        rounds += 1
        if (following := last.predict(U)) == labels:
            break
        labels = following
    assert trained.labels_ == labels
    assert trained.rounds_ == rounds == len(trained.history_) > 1  # some label did change
    np.testing.assert_array_equal(trained.tagger_.model_.weights, last.model_.weights)


def test_the_fixed_point_is_one(trained):
    assert trained.outcome_.startswith("converged")
    assert trained.history_[-1] == {"changed": 0, "learnt_from": sum(map(len, U))}
    again = trained_on(X[FEW] + U, Y[FEW] + trained.labels_)
    assert again.predict(U) == trained.labels_ == trained.predict(U)


def test_the_last_tagger_speaks_for_it(trained, tmp_path):
    trained.save(tmp_path / "model")
    loaded = jaxseq.load(tmp_path / "model")
    assert loaded.predict(X) == trained.predict(X)
    assert trained.score(X, Y) == loaded.score(X, Y)


@pytest.mark.parametrize("of", ["sentence", "token"])
def test_no_confidence_asked_for_takes_all(trained, of, tmp_path):
    found = jaxseq.SelfTraining(tagger(), confidence=0.0, confidence_of=of)
    found.fit(X[FEW], Y[FEW], unlabelled=U)
    assert found.labels_ == trained.labels_
    wanted = saved_bytes(trained, tmp_path / "a")
    assert saved_bytes(found, tmp_path / "b") == wanted


@pytest.mark.parametrize("of", ["sentence", "token"])
def test_certainty_asked_for_learns_nothing(of, tmp_path):
    found = jaxseq.SelfTraining(tagger(), confidence=1.0, confidence_of=of)
    found.fit(X[FEW], Y[FEW], unlabelled=U)
    assert found.outcome_ == "stopped: no label is sure enough to learn from"
    assert found.labels_ == [[None] * len(tokens) for tokens in U]
    assert found.rounds_ == 0
    wanted = saved_bytes(trained_on(X[FEW], Y[FEW]), tmp_path / "a")
    assert saved_bytes(found, tmp_path / "b") == wanted


def test_tokens_that_are_not_sure_stay_unknown():
    found = jaxseq.SelfTraining(tagger(), confidence=0.6, confidence_of="token", max_rounds=1)
    found.fit(X[FEW], Y[FEW], unlabelled=U)
    first = trained_on(X[FEW], Y[FEW])
    sure = [proba.max(1) >= 0.6 for proba in first.predict_proba(U)]
    labels = [
        [label if here else None for label, here in zip(*both)]
        for both in zip(first.predict(U), sure)
    ]
    assert any(0 < known.sum() < len(known) for known in sure)  # some are known in part
    assert found.history_[0]["learnt_from"] == sum(int(known.sum()) for known in sure)
    used = [(x, y) for x, y in zip(U, labels) if any(label is not None for label in y)]
    second = trained_on(X[FEW] + [x for x, _ in used], Y[FEW] + [y for _, y in used])
    np.testing.assert_array_equal(found.tagger_.model_.weights, second.model_.weights)


# ------------------------------------------------------------- with answers that are known


class Rule(BaseEstimator):
    """Labels every token with what follows the last label that it was taught.

    Args:
        follows: from label to label. sure: probability of each label; 1 where not said.
    """

    trainings: ClassVar[list[tuple[int, str]]] = []
    interrupt_at: ClassVar[int | None] = None

    def __init__(self, follows="SA", sure=None):
        self.follows = follows
        self.sure = sure

    def fit(self, X, y):
        last = [label for labels in y for label in labels if label is not None][-1]
        Rule.trainings.append((len(X), last))
        table = dict(zip(self.follows[:-1], self.follows[1:]))
        self.label_ = table[last]
        self.classes_ = np.array(sorted(set(self.follows)), object)
        self.outcome_ = jaxseq.Outcome.CONVERGED_VALUE
        if len(Rule.trainings) == Rule.interrupt_at:
            self.outcome_ = jaxseq.Outcome.INTERRUPTED
        return self

    @property
    def _probability(self):
        return (self.sure or {}).get(self.label_, 1.0)

    def predict(self, X):
        return [[self.label_] * len(x) for x in X]

    def predict_k_best(self, X, k):
        assert k == 1
        return [[(labels, math.log(self._probability))] for labels in self.predict(X)]

    def predict_proba(self, X):
        place = self.classes_ == self.label_
        return [np.tile(np.where(place, self._probability, 0.0), (len(x), 1)) for x in X]


@pytest.fixture(autouse=True)
def fresh_rule():
    Rule.trainings, Rule.interrupt_at = [], None


def train(estimator, unlabelled=(["u", "v"], [], ["w"]), **options):
    return jaxseq.SelfTraining(estimator, **options).fit([["x"]], [["S"]], unlabelled=unlabelled)


def test_a_fixed_point_ends_it():
    found = train(Rule("SABB"))
    assert found.labels_ == [["B", "B"], [], ["B"]]
    assert found.outcome_.startswith("converged")
    assert [round_["changed"] for round_ in found.history_] == [3, 0]
    assert Rule.trainings == [(1, "S"), (3, "A"), (3, "B")]  # the empty sentence is left out


def test_labels_that_go_in_a_circle_end_it():
    found = train(Rule("SABCA"))
    assert "circle" in found.outcome_
    assert found.rounds_ == 3
    assert found.labels_ == [["A", "A"], [], ["A"]]
    assert found.tagger_.label_ == "A"


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_are_limited(rounds):
    found = train(Rule("SABCDEF"), max_rounds=rounds)
    assert "number of rounds" in found.outcome_
    assert found.rounds_ == rounds
    assert len(Rule.trainings) == rounds + 1
    assert found.tagger_.label_ == "ABCDEF"[rounds]


@pytest.mark.parametrize("of", ["sentence", "token"])
def test_the_threshold_itself_is_sure_enough(of):
    options = {"confidence": 0.5, "confidence_of": of, "max_rounds": 1}
    assert train(Rule("SAA", {"A": 0.5}), **options).history_ == [{"changed": 0, "learnt_from": 3}]
    assert train(Rule("SAA", {"A": 0.49}), **options).history_ == []


def test_nothing_to_learn_from_in_a_later_round(tmp_path):
    file = tmp_path / "notes"
    options = {"confidence": 0.5, "checkpoint": file}
    for _ in range(2):  # and again, for nothing must be left of the first time
        found = train(Rule("SAB", {"B": 0.1}), **options)
        assert "no label is sure enough" in found.outcome_
        assert found.labels_ == [[None, None], [], [None]]
        assert found.predict([["x"]]) == [["B"]]
        assert not file.exists()


def test_without_unlabelled_sentences_it_is_the_tagger():
    found = train(Rule("SA"), unlabelled=[])
    assert found.predict([["x"]]) == [["A"]]
    assert found.labels_ == []
    assert Rule.trainings == [(1, "S")]


# ------------------------------------------------------------------------------- interrupts


def test_an_interrupted_round_does_not_count():
    Rule.interrupt_at = 3
    found = train(Rule("SABCC"))
    assert found.outcome_.startswith("interrupted")
    assert found.tagger_.label_ == "B"  # of the round before
    assert found.labels_ == [["B", "B"], [], ["B"]]
    Rule.trainings, Rule.interrupt_at = [], 1
    found = train(Rule("SABCC"))
    assert found.outcome_.startswith("interrupted")
    assert (found.labels_, found.history_) == (None, [])


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_interrupted_and_resumed_is_as_if_never_stopped(at, tmp_path):
    whole = train(Rule("SABCDD"))
    trainings, file = list(Rule.trainings), tmp_path / "notes"
    Rule.trainings, Rule.interrupt_at = [], at
    train(Rule("SABCDD"), checkpoint=file)
    assert file.exists() == (at > 2)
    Rule.trainings, Rule.interrupt_at = [], None
    found = train(Rule("SABCDD"), checkpoint=file)
    if at > 2:
        assert Rule.trainings == trainings[at - 1 :]
    for name in ("labels_", "history_", "rounds_", "outcome_"):
        assert getattr(found, name) == getattr(whole, name), name
    assert found.tagger_.label_ == whole.tagger_.label_
    assert not file.exists()


def test_a_resumed_search_interrupted_at_once_has_no_tagger_to_show(tmp_path):
    file = tmp_path / "notes"
    Rule.interrupt_at = 3
    train(Rule("SABCC"), checkpoint=file)
    before = file.read_bytes()
    Rule.trainings, Rule.interrupt_at = [], 1
    with pytest.raises(KeyboardInterrupt):
        train(Rule("SABCC"), checkpoint=file)
    assert file.read_bytes() == before


def test_notes_of_another_job_are_refused(tmp_path):
    file = tmp_path / "notes"
    Rule.interrupt_at = 3
    train(Rule("SABCC"), checkpoint=file)
    before = file.read_bytes()
    others = [
        {"estimator": Rule("SABB")},
        {"estimator": Rule("SABCC"), "unlabelled": [["u"]]},
        {"estimator": Rule("SABCC"), "confidence": 0.5},
    ]
    for other in others:
        with pytest.raises(ValueError, match="notes: expected a checkpoint of this very search"):
            train(**other, checkpoint=file)
        assert file.read_bytes() == before


# ----------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.5}, "confidence: expected a probability, 0 to 1, got 1.5"),
        ({"confidence": -0.1}, "confidence: expected a finite number"),
        ({"confidence": float("nan")}, "confidence: expected a finite number"),
        ({"confidence": True}, "confidence: expected a number"),
        ({"confidence_of": "word"}, "confidence_of: expected 'sentence' or 'token', got 'word'"),
        ({"max_rounds": 0}, "max_rounds: expected a finite number, 1 or more"),
        ({"max_rounds": 2.5}, "max_rounds: expected a whole number"),
        ({"unlabelled": "text"}, "unlabelled: expected sentences, got 'text'"),
        ({"unlabelled": None}, "unlabelled: expected sentences, got None"),
        ({"checkpoint": 5}, "checkpoint: expected a path or None, got 5"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_trained(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        train(Rule(), **options)
    assert not Rule.trainings


def test_a_sentence_without_a_labelling_is_named():
    class Impossible(Rule):
        def predict_k_best(self, X, k):
            return [[], *super().predict_k_best(X[1:], k)]

    with pytest.raises(ValueError, match="unlabelled: sentence 0: expected one that the scheme"):
        train(Impossible("SAA"), confidence=0.5)


def test_an_untrained_one_says_so():
    untrained = jaxseq.SelfTraining(Rule())
    for call in (untrained.predict, lambda x: untrained.score(x, Y), untrained.save):
        with pytest.raises(NotFittedError):
            call("x")
