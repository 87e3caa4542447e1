"""What training with unlabelled sentences refuses."""

from __future__ import annotations

import jax
import pytest

from tests.crf.semi_toys import (
    U,
    X,
    Y,
    tagger,
)

# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"entropy_weight": weight}, "entropy_weight: expected a")
            for weight in (-0.1, float("nan"), float("inf"), True, "1", None, [1.0])
        ),
        ({"entropy_gradient": "newton"}, "entropy_gradient: expected one of .*'mann'.*'newton'"),
        ({"entropy_gradient": ["mann"]}, "entropy_gradient: expected one of"),
        ({"vocabulary": "some"}, "vocabulary: expected one of .* got 'some'"),
        ({"unlabelled": "text"}, "unlabelled: expected sentences, got 'text'"),
        ({"unlabelled": 5}, "unlabelled: expected sentences, got 5"),
        ({"unlabelled": [*U[:2], "text"]}, "unlabelled: sentence 2: expected a list of tokens"),
        ({"unlabelled": [["a", "word"]]}, "unlabelled: sentence 0, token 0: expected"),
        ({"unlabelled": [U[0], [7]], "vocabulary": "labelled"}, "unlabelled: sentence 1, token 0"),
    ],
)
def test_bad_arguments(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        tagger().fit(X, Y, **{"unlabelled": U, **options})


@pytest.mark.parametrize("vocabulary", ["all", "labelled"])
@pytest.mark.parametrize(
    ("bad", "complaint"),
    [({"word": ["a"]}, "expected a column 'pos'"), (U[0], "expected"), (5, "expected")],
    ids=["column", "dicts", "number"],
)
def test_other_features_than_the_labelled_have(bad, complaint, vocabulary):
    good = {"word": ["a", "b"], "pos": ["D", "N"]}
    with pytest.raises(ValueError, match=rf"^unlabelled: sentence 1\b.*{complaint}"):
        tagger(templates=["word[0]", "pos[0]"]).fit(
            [good, good], [["P", "Q"]] * 2, unlabelled=[good, bad], vocabulary=vocabulary
        )


def test_complaints_about_labelled_sentences_stay_theirs():
    with pytest.raises(ValueError, match=r"^sentence 1\b"):
        tagger().fit([X[0], [7]], [Y[0], ["A"]], unlabelled=U)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([], [], "X: expected at least one sentence"),
        (X, [[None] * len(labels) for labels in Y], "y: expected at least one token with a label"),
        ([[]], [[]], "y: expected at least one token with a label"),
    ],
)
def test_no_labelled_data(x, y, message):
    with pytest.raises(ValueError, match=message):
        tagger().fit(x, y, unlabelled=U)


def test_double_precision_must_be_switched_on():
    with jax.enable_x64(False), pytest.raises(ValueError, match="dtype: expected JAX to have 64"):
        tagger().fit(X, Y, unlabelled=U)
