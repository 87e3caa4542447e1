"""The choice of the entropy's weight by cross-validation, against a plain loop."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.model_selection import KFold

import jaxseq
from jaxseq.metrics import token_accuracy

X = [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"], ["b", "a"], ["a", "b"]]
GOLD = {"a": "B-X", "b": "O"}
Y = [[GOLD[word] for word in words] for words in X]
Y[2], Y[3] = ["O", "B-X"], ["O", "O"]
U = [["a", "a"], ["b", "b"], ["a", "b"]]


class Known(jaxseq.CRFTagger):
    """Labels as in `GOLD` where γ is at least 0.5, else everything outside."""

    trainings: ClassVar[list[tuple[int, float | None]]] = []
    interrupt_at: ClassVar[int | None] = None

    how: ClassVar[list[dict[str, str]]] = []

    def fit(self, X, y, *, unlabelled=None, entropy_weight=1.0, warm_start_from=None, **how):
        gamma = None if unlabelled is None else entropy_weight
        assert (warm_start_from is None) == (gamma is None)
        Known.trainings.append((len(X), gamma))
        Known.how.append(how)
        self.good_ = gamma is not None and gamma >= 0.5
        self.outcome_ = jaxseq.Outcome.CONVERGED_VALUE
        if len(Known.trainings) == Known.interrupt_at:
            self.outcome_ = jaxseq.Outcome.INTERRUPTED
        return self

    def predict(self, X):
        return [[GOLD[word] if self.good_ else "O" for word in x] for x in X]


@pytest.fixture(autouse=True)
def fresh_trainings():
    Known.trainings, Known.interrupt_at, Known.how = [], None, []


def choose(tagger=None, **options):
    given: dict[str, Any] = {"unlabelled": U, "folds": 2, "progress": False}
    given |= {"expectations": [], "normalise_entropy": False}
    return jaxseq.choose_entropy_weight(tagger or Known(), X, Y, **{**given, **options})


def test_it_is_a_plain_loop():
    def tagger():
        return jaxseq.CRFTagger(
            ["word[0]"], cores=1, l2=0.5, weights="dense", progress=False, max_iterations=15
        )

    estimator = tagger()
    found = choose(estimator, weights=(0.0, 4.0), scoring="accuracy", seed=3)
    assert not hasattr(estimator, "model_")
    wanted = np.zeros((2, 2))
    for fold, (train, test) in enumerate(KFold(2, shuffle=True, random_state=3).split(X)):
        x, y, x_test, y_test = ([part[i] for i in where]
                                for where in (train, test) for part in (X, Y))  # fmt: skip
        plain = tagger().fit(x, y)
        how = {"entropy_weight": 4.0, "expectations": [], "normalise_entropy": False}
        more = tagger().fit(x, y, unlabelled=U, **how, warm_start_from=plain)
        assert more.model_.weights.dtype == np.float32
        assert more.loss_ > plain.loss_  # the entropy is added
        for row, one in enumerate((plain, more)):
            pairs = zip(chain(*one.predict(x_test)), chain(*y_test))
            wanted[row, fold] = np.mean([got == gold for got, gold in pairs])
    np.testing.assert_array_equal(found.scores, wanted)
    assert found.values == (0.0, 4.0)
    np.testing.assert_allclose(found.means, wanted.mean(1))


def test_every_label_is_held_out_once_and_the_start_is_shared():
    found = choose(weights=(0.0, 0.1, 1.0), folds=4, scoring="accuracy")
    assert found.scores.shape == (3, 4)
    assert Known.trainings == [(6, None), (6, 0.1), (6, 1.0)] * 4


def test_without_zero_the_supervised_start_is_trained_all_the_same():
    choose(weights=(1.0,))
    assert Known.trainings == [(4, None), (4, 1.0)] * 2


def test_without_unlabelled_sentences_all_weights_are_the_supervised_model():
    found = choose(weights=(0.0, 1.0), unlabelled=[])
    assert Known.trainings == [(4, None)] * 2
    np.testing.assert_array_equal(found.scores[0], found.scores[1])
    assert found.best == 0.0


@pytest.mark.parametrize("weights", [(1.0, 0.5, 0.0), [0.0, 0.5, 1.0], np.array([0.5, 5.0, 0.1])])
def test_of_equals_the_smallest_is_best(weights, unchecked):
    found = choose(weights=weights, scoring="accuracy")
    assert found.best == 0.5
    assert found.values == tuple(weights)


def test_scores_by_name_and_by_function():
    """Without the good weights no span is predicted; with them, one a sentence."""
    accuracy = choose(weights=(0.0, 1.0), scoring="accuracy")
    by_function = choose(weights=(0.0, 1.0), scoring=lambda gold, got: token_accuracy(gold, got))
    np.testing.assert_array_equal(accuracy.scores, by_function.scores)
    assert accuracy.means[0] == 9 / 16  # the words outside spans, by hand
    spans = choose(weights=(0.0, 1.0), scoring="span_f1")
    assert spans.means[0] == 0
    assert 0 < spans.means[1] < 1
    calls = []
    choose(weights=(0.0,), scoring=lambda gold, got: calls.append((gold, got)) or 0.0)
    assert [len(gold) for gold, _ in calls] == [4, 4]
    assert sorted(chain(*(gold for gold, _ in calls))) == sorted(Y)


def test_derivation_and_vocabulary_are_handed_on():
    how: Any = {"entropy_gradient": "jiao", "vocabulary": "labelled"}
    choose(weights=(1.0,), **how)
    usual = {"expectations": [], "normalise_entropy": False}
    assert Known.how == [{}, {**how, **usual}] * 2


def test_the_folds_are_drawn_by_seed():
    by_seed = [choose(weights=(1.0,), scoring="accuracy", seed=seed).scores for seed in range(6)]
    again = choose(weights=(1.0,), scoring="accuracy", seed=1).scores
    np.testing.assert_array_equal(by_seed[1], again)
    assert len({scores.tobytes() for scores in by_seed}) > 1


@pytest.mark.parametrize("at", [1, 2, 4, 6])
def test_interrupted_and_resumed_is_as_if_never_stopped(at, tmp_path):
    options = {"weights": (0.0, 0.1, 1.0), "scoring": "accuracy"}
    whole, file = choose(**options), tmp_path / "notes"
    assert len(Known.trainings) == 6
    Known.trainings, Known.interrupt_at = [], at
    with pytest.raises(KeyboardInterrupt):
        choose(**options, checkpoint=file)
    assert file.exists() == (at > 1)
    Known.trainings, Known.interrupt_at = [], None
    found = choose(**options, checkpoint=file)
    # The supervised start of a fold under way is trained again, where a weight needs it.
    assert len(Known.trainings) == 6 - (at - 1) + (at in (2, 6))
    np.testing.assert_array_equal(found.scores, whole.scores)
    Known.trainings = []
    again = choose(**options, checkpoint=file)  # until who has chosen has made use of it
    np.testing.assert_array_equal(again.scores, whole.scores)
    assert not Known.trainings


def test_notes_of_another_job_are_refused(tmp_path):
    file = tmp_path / "notes"
    Known.interrupt_at = 3
    with pytest.raises(KeyboardInterrupt):
        choose(weights=(0.0, 1.0), checkpoint=file)
    before = file.read_bytes()
    others = [
        {"seed": 1},
        {"folds": 4},
        {"scoring": "accuracy"},
        {"unlabelled": U[:1]},
        {"weights": (0.0, 2.0)},
        {"vocabulary": "labelled"},
        {"tagger": Known(l2=3.0)},
    ]
    for other in others:
        with pytest.raises(ValueError, match="notes: expected a checkpoint of this very search"):
            choose(**{"weights": (0.0, 1.0), **other}, checkpoint=file)
        assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": ()}, "weights: expected at least one"),
        ({"weights": (0.0, -1.0)}, "weights: expected a finite number, 0 or more, got -1"),
        ({"weights": (float("nan"),)}, "weights: expected a finite number"),
        ({"weights": ("1",)}, "weights: expected a number, got '1'"),
        ({"weights": (True,)}, "weights: expected a number, got True"),
        ({"weights": 5}, "weights: expected numbers to choose from, got 5"),
        ({"weights": "12"}, "weights: expected numbers to choose from, got '12'"),
        ({"folds": 1}, "folds: expected a finite number, 2 or more"),
        ({"folds": 2.0}, "folds: expected a whole number"),
        ({"folds": 9}, "folds: expected at most one per sentence, 8, got 9"),
        ({"seed": -1}, "seed: expected a finite number, 0 or more"),
        ({"scoring": "f2"}, r"scoring: expected one of \['span_f1', 'accuracy'\] or a function"),
        ({"scoring": ["accuracy"]}, "scoring: expected one of"),
        ({"entropy_gradient": "newton"}, "entropy_gradient: expected one of"),
        ({"vocabulary": "none"}, "vocabulary: expected one of"),
        ({"unlabelled": "text"}, "unlabelled: expected sentences, got 'text'"),
        ({"unlabelled": None}, "unlabelled: expected sentences, got None"),
        ({"checkpoint": 5}, "checkpoint: expected a path or None"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_trained(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        choose(**options)
    assert not Known.trainings


def test_labels_must_be_known_to_score_by():
    partial = [list(labels) for labels in Y]
    partial[3][1] = None
    for scoring in (None, "accuracy", "span_f1"):
        with pytest.raises(ValueError, match=r"y\[3\]\[1\]: expected a known label to score by"):
            jaxseq.choose_entropy_weight(Known(), X, partial, unlabelled=U, scoring=scoring)
    assert not Known.trainings


def test_chunk_tags_are_scored_by_spans_unless_told():
    options = {"weights": (0.0, 1.0), "unlabelled": U}
    found = jaxseq.choose_entropy_weight(Known(), X, Y, **options)
    by_span = jaxseq.choose_entropy_weight(Known(), X, Y, **options, scoring="span_f1")
    assert found.scores.tolist() == by_span.scores.tolist()


def test_labels_must_go_with_the_sentences():
    with pytest.raises(ValueError, match="y: expected labels for 8 sentences, got 7"):
        jaxseq.choose_entropy_weight(Known(), X, Y[:-1], unlabelled=U)
