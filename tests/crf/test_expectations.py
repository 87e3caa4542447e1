"""Training with expectations: that they are met, by both methods, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import jaxseq
from jaxseq.expectations import (
    Expectation,
    attribute_shares,
    check_expectations,
    label_shares,
)
from jaxseq.hmm import HMMTagger

X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["the", "cat", "barks"]]
Y = [["D", "N", "V"]] * 3
U = [["the", "cow", "moos"], ["a", "cow", "sleeps"], ["cow", "moos"]] * 5
METHODS = ["gradient", "projection"]


def tagger(**params: Any) -> jaxseq.CRFTagger:
    return jaxseq.CRFTagger(
        ["word[0]"], weights="dense", cores=1, progress=False, max_iterations=60, **params
    )


def share(trained, label: str, word: str) -> float:
    """The mean probability of a label of all tokens that are this word."""
    column = trained.classes_.tolist().index(label)
    rows = zip(U, trained.predict_proba(U))
    return float(np.mean([p[column] for words, ps in rows for w, p in zip(words, ps) if w == word]))


@pytest.mark.parametrize(
    ("target", "low", "high"), [(0.8, 0.78, 0.82), ((0.7, 0.9), 0.68, 0.92), (0.1, 0.08, 0.12)]
)
def test_the_model_comes_to_have_the_shares(target, low, high):
    expected = Expectation({"V": target}, "word[0]=cow", 200.0)
    trained = tagger().fit(X, Y, unlabelled=U, expectations=[expected])
    assert low < share(trained, "V", "cow") < high


def test_by_projection_it_comes_as_near_as_the_penalty_of_weights_lets_it():
    expected = Expectation({"V": 0.8}, "word[0]=cow", np.inf)
    shares = []
    for l2 in (1.0, 0.01):
        how: dict[str, Any] = {"expectations": [expected], "expectation_method": "projection"}
        shares.append(share(tagger(l2=l2).fit(X, Y, unlabelled=U, **how), "V", "cow"))
    plain = tagger().fit(X, Y, unlabelled=U, expectations=[])
    assert share(plain, "V", "cow") < 0.2 < shares[0] < shares[1] < 0.82
    assert shares[1] > 0.75


@pytest.mark.parametrize("method", METHODS)
def test_a_range_that_is_met_already_changes_next_to_nothing(method):
    plain = tagger().fit(X, Y, vocabulary="all")
    wide = Expectation({"V": (0.0, 1.0)}, "word[0]=barks", 50.0)
    trained = tagger().fit(
        X, Y, unlabelled=U + X, expectations=[wide], expectation_method=method,
        vocabulary="labelled",
    )  # fmt: skip
    np.testing.assert_allclose(trained.model_.weights, plain.model_.weights, atol=2e-3)


def test_a_transition_is_learnt_from_its_share():
    often = Expectation({"N -> N": 0.4}, weight=500.0)
    plain = tagger().fit(X, Y)
    trained = tagger().fit(X, Y, unlabelled=U, expectations=[often])
    index = plain.classes_.tolist().index("N")
    gain = trained.model_.transitions[index, index] - plain.model_.transitions[index, index]
    assert gain > 0.5


def test_a_hidden_markov_model_meets_expectations_and_never_gets_worse():
    expected = Expectation({"V": 0.7}, "word[0]=cow", np.inf)
    how: dict[str, Any] = {"unknown_below": 1, "cores": 1, "weight": 0.5, "max_iterations": 30}
    plain = HMMTagger(**how).fit(X, Y, unlabelled=U)
    trained = HMMTagger(**how).fit(X, Y, unlabelled=U, expectations=[expected])
    # The expected counts are of 70 %, and are mixed with those of the labelled sentences.
    assert share(plain, "V", "cow") < 0.01 < 0.2 < share(trained, "V", "cow") < 0.7
    assert (np.diff(trained.objectives_) > -1e-3).all()


def test_labels_are_as_frequent_as_where_they_are_known_unless_told_otherwise():
    usual = tagger().fit(X, Y, unlabelled=U)
    expected = [label_shares(Y, weight=0.9, slack=1.5)]
    same = tagger().fit(X, Y, unlabelled=U, expectations=expected)
    np.testing.assert_array_equal(usual.model_.weights, same.model_.weights)
    exact = tagger().fit(X, Y, unlabelled=U, expectations=[label_shares(Y, weight=9)])
    assert np.abs(usual.model_.weights - exact.model_.weights).max() > 1e-3


def test_one_weight_of_the_entropy_means_the_same_for_any_number_of_sentences():
    how: dict[str, Any] = {"entropy_weight": 0.2, "expectations": []}
    few = tagger().fit(X, Y, unlabelled=U, **how)
    many = tagger().fit(X, Y, unlabelled=U * 4, **how)
    assert many.loss_ == pytest.approx(few.loss_, rel=1e-4)


def test_a_model_that_has_collapsed_is_warned_of():
    words, y = [["a"], ["b"], ["c"]], [["O"], ["O"], ["A"]]
    how: dict[str, Any] = {"entropy_weight": 5.0, "expectations": []}
    with pytest.warns(UserWarning, match=r"unlabelled: the model .* quite differently .* O 100.0%"):
        tagger().fit(words, y, unlabelled=[["new"]] * 150, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger(l2=0.01).fit(words, y, unlabelled=words * 50)


def test_shares_from_labelled_sentences():
    assert label_shares(Y, smoothing=0).targets == {label: (1 / 3, 1 / 3) for label in "DNV"}
    assert label_shares(Y, smoothing=0, slack=2).targets["D"] == (1 / 6, 2 / 3)
    with pytest.raises(ValueError, match="slack: expected a finite number, 1 or more"):
        label_shares(Y, slack=0.5)
    found = attribute_shares(X, Y, ["word[0]"], least_count=2, smoothing=0)
    assert {each.when: each.targets for each in found}["word[0]=the"]["D"] == (1, 1)
    assert [each.when for each in found] == ["word[0]=the", "word[0]=barks", "word[0]=cat"]


def test_what_holds_nowhere_is_left_out_with_a_warning():
    absent = Expectation({"V": 0.5}, "word[0]=zebra")
    with pytest.warns(UserWarning, match=r"1 of 2 hold nowhere .*: word\[0\]=zebra"):
        trained = tagger().fit(X, Y, unlabelled=U, expectations=[absent, label_shares(Y)])
    alone = tagger().fit(X, Y, unlabelled=U, expectations=[label_shares(Y)])
    np.testing.assert_array_equal(trained.model_.weights, alone.model_.weights)


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        (lambda: Expectation({"V": 1.2}), r"targets\['V'\]: expected a share from 0 to 1"),
        (lambda: Expectation({"V": (0.5, 0.4)}), r"targets\['V'\]: expected a share"),
        (lambda: Expectation({"V": "x"}), r"targets\['V'\]: expected a share"),
        (lambda: Expectation({"V": 0.7, "N": 0.6}), "expected shares that sum to at most 1"),
        (lambda: Expectation({}), "targets: expected shares by label"),
        (lambda: Expectation({"V": 0.5}, weight=-1), "weight: expected a finite number"),
        (lambda: Expectation({"V": 2}, per="sentence"), "penalty: expected 'l2'"),
        (lambda: Expectation({"X": 0.5}), "expected labels of .*, got 'X'"),
        (lambda: Expectation({"V": 0.1, "N": 0.1, "D": 0.1}), "may sum to 1, got at most 0.3"),
        (lambda: Expectation({"V": 0.1, "N -> V": 0.1}), "one excludes the other"),
        (lambda: Expectation({"V": 0.5}, "cow"), "when: expected an attribute such as"),
        (lambda: Expectation({"V": 0.5}, lambda words: [True]), "expected 3 truth values"),
        (lambda: Expectation({"V": 0.5}, weight=np.inf), "expected finite weights"),
    ],
)
def test_bad_expectations_are_refused(expectation, message):
    with pytest.raises(ValueError, match=message):
        tagger().fit(X, Y, unlabelled=U, expectations=[expectation()])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"expectations": [Expectation({"V": (0, 0.2)}), Expectation({"V": (0.4, 1)})]}, "agrees"),
        ({"expectation_method": "projection", "entropy_weight": 1.0}, "expected 'gradient'"),
    ],
)
def test_what_does_not_go_together_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        tagger().fit(X, Y, unlabelled=U, **how)


@pytest.mark.parametrize("wrong", ["V", [{"V": 0.5}], Expectation({"V": 0.2}), None])
def test_other_things_than_expectations_are_refused(wrong):
    with pytest.raises(ValueError, match=r"expectations(\[0\])?: expected (a list|an Expectation)"):
        check_expectations(wrong)


def test_mini_batches_know_no_shares():
    with pytest.raises(ValueError, match="algorithm: expected 'lbfgs' with expectations"):
        tagger(algorithm="adamw").fit(X, Y, unlabelled=U, expectations=[label_shares(Y)])
