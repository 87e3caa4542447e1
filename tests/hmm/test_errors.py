"""What an `HMMTagger` refuses, and what it makes of words that it does not know."""

import math

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from jaxseq.hmm import HMMTagger
from tests.hmm.toys import X, Y, tagger

pytestmark = pytest.mark.usefixtures("unchecked")


# ---------------------------------------------------------------------- what is not in the data


def test_without_smoothing_an_impossible_sentence_is_refused():
    nothing = {f"{name}_smoothing": 0 for name in ("initial", "transition", "emission")}
    one = tagger(**nothing).fit([list("uvwx")], [list("ABCA")])
    assert one.predict([list("uvwx")]) == [list("ABCA")]
    assert one.predict_k_best([list("uv")], 3) == [[(list("AB"), 0.0)]]
    for call in (one.predict, one.predict_proba, lambda x: one.predict_k_best(x, 3)):
        with pytest.raises(ValueError, match=r"^X\[1\]: expected a sentence that the model holds"):
            call([list("uv"), list("vu")])
    one.set_params(decoding="max_marginal")
    with pytest.raises(ValueError, match=r"^X\[2\]: .*probability 0"):
        one.predict([["u"], [], ["new"]])
    with pytest.raises(ValueError, match=r"^unlabelled\[1\]: .*1 of 2 are.*smoothing"):
        tagger(**nothing).fit([list("uvwx")], [list("ABCA")], unlabelled=[["u"], ["v"]])


def test_at_weight_one_smoothing_is_no_advice():
    """λ = 1 leaves nothing of the labelled sentences, nor of their smoothing."""
    one = tagger(unknown_below=1, weight=1.0).fit(
        [list("uv")], [list("AB")], unlabelled=[["u", "u"]]
    )
    for call in (one.predict, one.predict_proba, lambda x: one.predict_k_best(x, 2)):
        with pytest.raises(ValueError, match=r"^X\[1\]: .*at weight 1 .*a weight below 1$"):
            call([["u"], ["new"]])


def test_an_unseen_word_is_the_unknown_one():
    one = tagger(unknown_below=3).fit(X, Y)
    table = one.predict_proba([["x"], ["never"], ["u"]])  # x is in X, but too rarely
    np.testing.assert_array_equal(table[0], table[1])
    assert (table[0] != table[2]).any()


def test_every_word_unknown_leaves_the_labels_alone():
    one = tagger(unknown_below=99).fit(X, Y)
    assert one.vocabulary_.words == []
    np.testing.assert_array_equal(one.predict_proba([["u"]])[0], one.predict_proba([["q"]])[0])


BAD = [
    ({}, [], [], "X: expected at least one sentence, got none"),
    ({}, [[]], [[]], "y: expected at least one token with a label, got none"),
    ({}, [["u"]], [[None]], "y: expected at least one token with a label, got none"),
    ({}, [["u"]], [], "y: expected labels for 1 sentences, got 0"),
    ({}, [["u"]], [["A", "B"]], "y[0]: expected 1 labels, one per token, got 2 labels"),
    ({}, [["u"]], [[3]], "y[0][0]: expected a label (a string)"),
    ({}, [[3]], [["A"]], "sentence 0, token 0, column 'word': expected a string, found 3"),
    ({}, 3, [["A"]], "X: expected sentences, got 3"),
    ({}, ["word"], [["A"]], "sentence 0: expected a Sentence"),
    ({"column": "pos"}, [["u"]], [["A"]], "sentence 0: expected a column 'pos'"),
    ({"column": 1}, X, Y, "column: expected the name of one"),
    ({"unknown_below": 0}, X, Y, "unknown_below: expected a finite number, 1 or more, got 0"),
    ({"unknown_below": 1.5}, X, Y, "unknown_below: expected a whole number, got 1.5"),
    ({"emission_smoothing": -1}, X, Y, "emission_smoothing: expected a finite number"),
    ({"transition_smoothing": math.nan}, X, Y, "transition_smoothing: expected a finite number"),
    ({"initial_smoothing": "x"}, X, Y, "initial_smoothing: expected a number, got 'x'"),
    ({"em": "warm"}, X, Y, "em: expected one of ['soft', 'hard'], got 'warm'"),
    ({"weight": 1.5}, X, Y, "weight: expected a number from 0 to 1, or None, got 1.5"),
    ({"weight": "all"}, X, Y, "weight: expected a number, got 'all'"),
    ({"frozen": "transition"}, X, Y, "frozen: expected a tuple of some of"),
    ({"frozen": ("words",)}, X, Y, "frozen: expected some of initial, transition, emission"),
    ({"decoding": "best"}, X, Y, "decoding: expected one of"),
    ({"max_iterations": -1}, X, Y, "max_iterations: expected"),
    ({"cores": 0}, X, Y, "cores: expected"),
    ({"checkpoint": 3}, X, Y, "checkpoint: expected a path or None, got 3"),
    ({"dtype": "float16"}, X, Y, "dtype: expected one of ['float32', 'float64'], got 'float16'"),
    ({"vocabulary": "some"}, X, Y, "vocabulary: expected one of"),
]


@pytest.mark.parametrize(("params", "x", "y", "message"), BAD, ids=range(len(BAD)))
def test_nonsense_is_refused(params, x, y, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        tagger(**params).fit(x, y)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("unlabelled", "message"),
    [
        (3, "unlabelled: expected sentences, got 3"),
        ("text", "unlabelled: expected sentences, got 'text'"),
        ([["u"], [None]], "unlabelled: sentence 1, token 0, column 'word': expected a string"),
    ],
)
def test_unlabelled_sentences_that_are_none_are_refused(unlabelled, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        tagger().fit(X, Y, unlabelled=unlabelled)
    assert str(error.value).startswith(message)


def test_prediction_needs_training_and_sense():
    for method in (HMMTagger().predict, HMMTagger().predict_proba, HMMTagger().save):
        with pytest.raises(NotFittedError):
            method(X)
    one = tagger().fit(X, Y)
    with pytest.raises(ValueError, match="k: expected an integer of at least 1, got 0"):
        one.predict_k_best(X, 0)
    with pytest.raises(ValueError, match="decoding: expected"):
        one.set_params(decoding="x").predict(X)
