"""Weights, counts and mixtures of constraint-driven learning against plain Python."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.constraints import labelling_counts, labelling_weights, mix_models
from jaxseq.crf import CRF
from jaxseq.hmm import HMM

SCORE = st.floats(-50, 50) | st.just(-math.inf)
SCORES = st.lists(st.lists(SCORE, min_size=3, max_size=3), min_size=2, max_size=2)
SHARE = st.floats(0, 1)

# ----------------------------------------------------------------------------------- weights


@given(rows=SCORES, temperature=st.floats(0.25, 4))
def test_weights_are_those_of_plain_python(rows, temperature):
    uniform = np.asarray(labelling_weights(np.array(rows)))
    soft = np.asarray(labelling_weights(np.array(rows), "score", temperature))
    for row, flat, weighed in zip(rows, uniform, soft):
        legal = [score > -math.inf for score in row]
        top = max(row) if any(legal) else 0.0
        parts = [
            math.exp((score - top) / temperature) if ok else 0.0 for score, ok in zip(row, legal)
        ]
        for found, wanted in ((flat, [float(ok) for ok in legal]), (weighed, parts)):
            total = sum(wanted)
            np.testing.assert_allclose(found, [w / total if total else 0.0 for w in wanted])
            np.testing.assert_allclose(found.sum(), 1.0 if any(legal) else 0.0)
        assert (flat[np.logical_not(legal)] == 0).all()


def test_weights_by_score_do_not_depend_on_a_constant_and_sharpen_with_the_cold():
    scores = np.array([[-1000.0, -1001.0, -1003.0]])
    here = np.asarray(labelling_weights(scores, "score"))
    np.testing.assert_allclose(here, np.asarray(labelling_weights(scores + 990, "score")))
    cold = np.asarray(labelling_weights(scores, "score", 0.01))
    np.testing.assert_allclose(cold, [[1, 0, 0]], atol=1e-12)


def test_weights_have_gradients_where_there_is_no_labelling():
    scores = jnp.array([[0.0, 1.0, -jnp.inf], [-jnp.inf] * 3])
    found = jax.grad(lambda s: labelling_weights(s, "score")[:, 0].sum())(scores)
    assert np.isfinite(found).all()
    assert (np.asarray(found)[1] == 0).all()
    assert float(found[0, 2]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([[0.0]], "best"), "weights: expected 'uniform' or 'score', got 'best'"),
        (([[0.0]], "score", 0.0), "temperature: expected a finite number above 0"),
        (([[0.0]], "score", math.nan), "temperature"),
        (([0.0],), r"scores: expected floats of shape \[sequences, labellings\]"),
        (([[0]],), "scores: expected floats"),
        (([[math.nan]],), "scores: expected finite numbers or −inf"),
        (([[math.inf]], "score"), "scores"),
    ],
)
def test_bad_weights_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        labelling_weights(np.array(arguments[0]), *arguments[1:])


# ------------------------------------------------------------------------------------ counts


def plain_counts(sentences, labellings, weights):
    """Sums by name of event."""
    initial, transition, emission = Counter(), Counter(), Counter()
    for words, paths, amounts in zip(sentences, labellings, weights):
        for path, amount in zip(paths, amounts):
            if path and path[0] >= 0:
                initial[path[0]] += amount
            for before, label in pairwise(path):
                if before >= 0 and label >= 0:
                    transition[before, label] += amount
            for word, label in zip(words, path):
                if label >= 0:
                    emission[word, label] += amount
    return initial, transition, emission


@st.composite
def corpora(draw):
    k, v, s = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(0, 4), max_size=4))

    def labels(n):
        one = st.lists(st.integers(-1, s - 1), min_size=n, max_size=n)
        return draw(st.lists(one, min_size=k, max_size=k))

    sentences = [draw(st.lists(st.integers(0, v - 1), min_size=n, max_size=n)) for n in lengths]
    labellings = [labels(n) for n in lengths]
    weight = st.lists(st.floats(0, 5), min_size=k, max_size=k)
    return k, v, s, sentences, labellings, [draw(weight) for _ in lengths]


@given(corpus=corpora())
def test_counts_are_those_of_plain_python(corpus):
    k, v, s, sentences, labellings, weights = corpus
    words = np.array([word for sentence in sentences for word in sentence], int)
    columns = [label for paths in labellings for token in zip(*paths) for label in token]
    labels = np.array(columns, int).reshape(-1, k)
    lengths = np.array([len(sentence) for sentence in sentences], int)
    each = np.array(weights, float).reshape(-1, k)
    found = labelling_counts(words, labels, lengths, each, v, s)
    initial, transition, emission = plain_counts(sentences, labellings, weights)
    np.testing.assert_allclose(found.initial, [initial[i] for i in range(s)])
    for name, wanted, rows in (("transition", transition, s), ("emission", emission, v)):
        table = [[wanted[i, j] for j in range(s)] for i in range(rows)]
        np.testing.assert_allclose(getattr(found, name), table, err_msg=name)


def test_counts_have_the_type_that_is_asked_for():
    found = labelling_counts([0], [[0]], [1], [[1.0]], 1, 1, dtype="float32")
    assert {str(family.dtype) for family in found} == {"float32"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"words": [0]}, r"words: expected shape \[2\], got \[1\]"),
        ({"labels": [0, 1]}, r"labels: expected shape \[2, 1\], got \[2\]"),
        ({"weights": [[1.0, 1.0]]}, r"weights: expected shape \[1, 1\]"),
        ({"words": [0, 3]}, "words: expected 0 … 2, got 3"),
        ({"labels": [[0], [2]]}, "labels: expected -1 … 1, got 2"),
        ({"weights": [[-1.0]]}, "weights: expected finite numbers, 0 or more"),
        ({"weights": [[math.nan]]}, "weights"),
    ],
)
def test_bad_counts_are_refused(change, said):
    given_ = {"words": [0, 1], "labels": [[0], [1]], "lengths": [2], "weights": [[1.0]]}
    with pytest.raises(ValueError, match=said):
        labelling_counts(**{**given_, **change}, num_words=3, num_labels=2)


# ---------------------------------------------------------------------------------- mixtures


def an_hmm(seed: int, labels: int = 2) -> HMM:
    rng = np.random.default_rng(seed)
    return HMM(rng.random(labels), rng.random((labels, labels)), rng.random((3, labels)), unknown=0)


def a_crf(seed: int, pairs: bool = True) -> CRF:
    rng = np.random.default_rng(seed)
    edges = rng.normal(size=(2, 2, 2)) if pairs else None
    start = np.array([-np.inf, 0.5])
    return CRF(rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), start, rng.normal(size=2), edges)


@given(share=SHARE)
def test_mixed_hmms_have_mixed_probabilities(share):
    first, other = an_hmm(0), an_hmm(1)
    found = mix_models(first, other, share)
    for name in ("initial", "transition", "emission"):
        a, b = (np.asarray(getattr(model.probabilities, name)) for model in (first, other))
        mixed = np.asarray(getattr(found.probabilities, name))
        np.testing.assert_allclose(mixed, share * a + (1 - share) * b, rtol=1e-12)
    assert found.unknown == 0


@given(share=SHARE)
def test_mixed_crfs_have_mixed_weights_and_keep_what_is_forbidden(share):
    first, other = a_crf(0), a_crf(1)
    found = mix_models(first, other, share)
    for name in ("weights", "transitions", "stop", "edge_weights"):
        a, b = (np.asarray(getattr(model, name)) for model in (first, other))
        np.testing.assert_allclose(np.asarray(getattr(found, name)), share * a + (1 - share) * b)
    assert np.asarray(found.start).tolist() == [-math.inf, 0.5]


def test_the_ends_of_a_mixture_are_the_models_themselves():
    for first, other in ((an_hmm(0), an_hmm(1)), (a_crf(0), a_crf(1))):
        assert mix_models(first, other, 1.0) is first
        assert mix_models(first, other, 0.0) is other


@pytest.mark.parametrize(
    ("other", "share", "said"),
    [
        (an_hmm(1), 1.5, "share: expected a number from 0 to 1, got 1.5"),
        (an_hmm(1), math.nan, "share"),
        (an_hmm(1, 3), 0.5, "other: expected arrays of shapes"),
        (a_crf(1), 0.5, "other: expected a model of the same kind, got HMM and CRF"),
    ],
)
def test_bad_mixtures_are_refused(other, share, said):
    with pytest.raises(ValueError, match=said):
        mix_models(an_hmm(0), other, share)


def test_crfs_with_and_without_pairs_do_not_mix():
    with pytest.raises(ValueError, match="other: expected arrays of shapes"):
        mix_models(a_crf(0), a_crf(1, pairs=False), 0.5)
