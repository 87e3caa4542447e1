"""Constraint-driven learning interrupted and resumed, with a CRF, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import jaxseq
from jaxseq.constraints import (
    AtMostOnce,
    ConstraintWarning,
    CRFLearner,
    HMMLearner,
    MustAppear,
    Penalised,
    StartsWith,
    bind_constraints,
)
from tests.constraints.test_codl import CONSTRAINTS, U, codl, crf_tagger, learnt
from tests.hmm.toys import X, Y, saved_bytes, tagger

# ------------------------------------------------------------------------------- interrupts


@pytest.fixture
def interrupt(monkeypatch):
    """Makes the n-th learning from labellings end by Ctrl-C; None for none."""
    learn = HMMLearner.learn

    def at(number):
        calls = 0

        def counted(self, *arguments):
            nonlocal calls
            calls += 1
            if calls == number:
                raise KeyboardInterrupt
            return learn(self, *arguments)

        monkeypatch.setattr(HMMLearner, "learn", counted)

    return at


@pytest.mark.parametrize(("at", "weights"), [(1, "uniform"), (2, "uniform"), (3, "score")])
def test_interrupted_and_resumed_is_as_if_never_stopped(at, weights, interrupt, tmp_path):
    whole = learnt(cycles=3, weights=weights)
    file, options = tmp_path / "notes", {"cycles": 3, "weights": weights}
    interrupt(at)
    found = learnt(**options, checkpoint=file)
    assert found.outcome_.startswith("interrupted")
    assert found.history_ == whole.history_[: at - 1]  # of the cycles that are whole
    kept = learnt(cycles=at - 1, weights=weights) if at > 1 else tagger_of_labelled()
    for a, b in zip(found.tagger_.model_.probabilities, kept.tagger_.model_.probabilities):
        np.testing.assert_array_equal(a, b)
    assert file.exists() == (at > 1)
    interrupt(None)
    resumed = learnt(**options, checkpoint=file)
    assert resumed.history_ == whole.history_
    assert resumed.outcome_ == whole.outcome_
    assert saved_bytes(resumed, tmp_path / "a") == saved_bytes(whole, tmp_path / "b")
    assert not file.exists()


def tagger_of_labelled():
    return learnt(keep=1.0, cycles=1)


def test_a_resumed_search_interrupted_at_once_leaves_its_notes(interrupt, tmp_path):
    file = tmp_path / "notes"
    interrupt(2)
    learnt(cycles=3, checkpoint=file)
    before = file.read_bytes()
    interrupt(1)
    with pytest.raises(KeyboardInterrupt):
        learnt(cycles=3, checkpoint=file)
    assert file.read_bytes() == before


def test_notes_of_another_job_are_refused(interrupt, tmp_path):
    file = tmp_path / "notes"
    interrupt(2)
    learnt(checkpoint=file)
    before = file.read_bytes()
    others = [
        {"k": 2},
        {"keep": 0.5},
        {"weights": "score"},
        {"constraints": CONSTRAINTS[:1]},
        {"constraints": [CONSTRAINTS[0], CONSTRAINTS[1]._replace(penalty=0.5)]},
        {"constraints": [CONSTRAINTS[0], Penalised(StartsWith(["B"]), 0.75)]},
        {"estimator": tagger(emission_smoothing=0.1)},
        {"learn_with_constraints": False},
    ]
    for other in others:
        with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
            codl(checkpoint=file).set_params(**other).fit(X, Y, unlabelled=U)
    with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
        codl(checkpoint=file).fit(X, Y, unlabelled=U[1:])
    assert file.read_bytes() == before


# ------------------------------------------------------------------------------------- a CRF


def test_a_crf_is_mixed_from_both_in_the_attributes_of_all():
    def made():
        return crf_tagger().set_params(weights="dense", max_iterations=50, tolerance=1e-9)

    found = learnt(made(), CONSTRAINTS, k=1, keep=0.25, cycles=1).tagger_
    first = made().fit(X, Y)
    labels = first.predict([x for x in U if x], constraints=CONSTRAINTS)
    scale = sum(map(len, X)) / sum(map(len, U))
    # The labelled sentences give no more than their attributes: they weigh nothing.
    second = made().fit(
        [*X, *filter(None, U)], [*Y, *labels], sample_weight=[0.0] * len(X) + [scale] * len(labels)
    )
    assert found.extractor_.attribute_names() == second.extractor_.attribute_names()
    names = first.extractor_.attribute_names()
    rows = [found.extractor_.attribute_names().index(name) for name in names]
    mixed = 0.75 * np.asarray(second.model_.weights)
    mixed[rows] += 0.25 * np.asarray(first.model_.weights)
    np.testing.assert_allclose(found.model_.weights, mixed, atol=1e-3)
    wanted = 0.25 * first.model_.transitions + 0.75 * second.model_.transitions
    np.testing.assert_allclose(found.model_.transitions, wanted, atol=1e-3)


@pytest.mark.parametrize("weights", ["mixed", "observed"])
def test_labellings_of_a_crf_are_weighted_copies(weights):
    made = crf_tagger().set_params(weights=weights)
    learner = CRFLearner(made, X, Y, [list("uv"), [], ["w"]], None)
    assert learner.classes == ["A", "B", "C"]
    labels = np.array([[0, 1], [1, 1], [2, 2]])
    each = np.array([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]])
    found = learner.learn(learner.supervised(), labels, each)
    copies = [list("uv"), list("uv"), ["w"]]
    by_hand = (
        crf_tagger()
        .set_params(weights=weights)
        .fit(
            [*X, *copies],
            [*Y, ["A", "B"], ["B", "B"], ["C"]],
            sample_weight=[1.0] * len(X) + [0.75, 0.25, 1.0],
        )
    )
    assert found.loss_ == pytest.approx(by_hand.loss_, rel=1e-6)
    np.testing.assert_allclose(found.model_.weights, by_hand.model_.weights, atol=1e-4)


def test_a_scheme_stays_forbidden_in_a_mixture():
    x, y = [["a", "b", "c"], ["c", "a"]], [["B-X", "I-X", "O"], ["O", "B-X"]]
    one = jaxseq.CRFTagger(["word[0]"], scheme="IOB2", cores=1, progress=False, max_iterations=5)
    found = codl(one, [Penalised(StartsWith(["X"]), 1.0)], scheme="iob2", k=2, cycles=1)
    found.fit(x, y, unlabelled=[["a", "b", "b"], ["c", "c"]])
    classes = found.tagger_.classes_.tolist()
    forbidden = np.asarray(found.tagger_.model_.transitions)
    assert forbidden[classes.index("O"), classes.index("I-X")] == -math.inf
    assert np.isfinite(np.asarray(found.tagger_.model_.weights)).all()
    assert np.isneginf(forbidden).sum() == 1


def test_labels_known_in_part_are_learnt_from():
    y = [[None, *labels[1:]] if len(labels) > 1 else labels for labels in Y]
    for one, pool in ((tagger(), False), (crf_tagger(), True)):
        found = codl(one, CONSTRAINTS, cycles=1, pool=pool).fit(X, y, unlabelled=U)
        assert len(found.history_) == 1
        assert set(found.tagger_.predict(X)[1]) <= {"A", "B", "C"}
    with pytest.raises(ValueError, match="y: expected the label of every token"):
        codl(pool=True).fit(X, y, unlabelled=U)


# -------------------------------------------------------------------------- what it refuses


def test_hard_constraints_that_cannot_be_met_are_told():
    needs = [Penalised(MustAppear(["A", "B", "C"]), math.inf)]
    with pytest.warns(ConstraintWarning, match=r"unlabelled\[1\]: .* 3 of 6 sentences"):
        found = learnt(tagger(), needs, cycles=1)
    assert found.history_[0]["unmet"] == 3
    assert found.history_[0]["violated"]["MustAppear"] == pytest.approx(3 / 5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "k: expected a finite number, 1 or more, got 0"),
        ({"k": 1.5}, "k: expected a whole number"),
        ({"cycles": 0}, "cycles: expected a finite number, 1 or more"),
        ({"keep": -0.1}, "keep: expected a number from 0 to 1, got -0.1"),
        ({"keep": 1.1}, "keep"),
        ({"keep": math.nan}, "keep"),
        ({"keep": None}, "keep"),
        ({"weights": "best"}, "weights: expected 'uniform' or 'score', got 'best'"),
        ({"temperature": 0}, "temperature: expected a finite number above 0"),
        ({"width": 2}, "width: expected a finite number, 3 or more, got 2"),
        ({"estimator": "hmm"}, "estimator: expected an HMMTagger or a CRFTagger"),
        ({"constraints": [Penalised(StartsWith(["Z"]), 1.0)]}, r"constraints: rules\[0\]: labels"),
        ({"constraints": [AtMostOnce()]}, r"rules\[0\]: penalty: expected one"),
        ({"constraints": [Penalised(AtMostOnce(), -1.0)]}, r"rules\[0\]: penalty"),
        ({"constraints": bind_constraints([], ["A"])}, "constraints: expected them for 3 labels"),
        ({"constraints": None}, "constraints: expected rules with penalties, got None"),
        ({"scheme": "IO"}, "scheme: expected 'plain', 'iob2' or 'iobes'"),
        ({"checkpoint": 3}, "checkpoint: expected a path or None"),
    ],
)
def test_bad_parameters_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        codl().set_params(**options).fit(X, Y, unlabelled=U)


@pytest.mark.parametrize("make", [tagger, crf_tagger])
@pytest.mark.parametrize("unlabelled", [[], [[]]])
def test_no_unlabelled_sentence_is_refused(make, unlabelled):
    with pytest.raises(ValueError, match="unlabelled: expected at least one sentence with a token"):
        codl(make(), ()).fit(X, Y, unlabelled=unlabelled)


@pytest.mark.parametrize("make", [tagger, crf_tagger])
def test_bad_sentences_are_refused(make):
    one = codl(make(), CONSTRAINTS)
    with pytest.raises(ValueError, match="unlabelled: expected sentences"):
        one.fit(X, Y, unlabelled="word")
    with pytest.raises(ValueError, match="unlabelled: sentence 1"):
        one.fit(X, Y, unlabelled=[["u"], [3]])
    with pytest.raises(ValueError, match=r"y: expected labels for 5 sentences, got 4"):
        one.fit(X, Y[1:], unlabelled=U)


def test_untrained_it_says_so():
    with pytest.raises(NotFittedError):
        codl().predict(X)
