"""A small corpus with unlabelled sentences, and taggers trained on it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import jaxseq
from tests.taggers.toys import (
    attributes_of,
    log_sum,
    negative_log_likelihood,
    path_scores,
    squares,
    toy_corpus,
)

X, Y = toy_corpus(0)
U, _ = toy_corpus(1)
PARTIAL: list[list[Any]] = [[None if t == 1 else label for t, label in enumerate(y)] for y in Y]
PARTIAL[0][2] = {"A", "C"}
L2 = 0.3

# Rows of 128 words: three batches and four.
MANY: dict[str, Any] = {"X": X * 9, "y": Y * 9, "unlabelled": U * 18}
BARE: dict[str, Any] = {"expectations": [], "normalise_entropy": False}
"""The entropy as Jiao et al. have it, and nothing to hold it."""
ONE_ROW: dict[str, Any] = {"algorithm": "sgd", "l2": 9 * L2, "batch_size": 1}


def tagger(**params):
    given = {"cores": 1, "l2": L2, "weights": "dense", "progress": False, "dtype": "float64"}
    return jaxseq.CRFTagger(**{**given, **params})


@cache
def supervised():
    return tagger().fit(X, Y)


@cache
def with_unlabelled(gamma: float, derivation="mann"):
    how: dict[str, Any] = {"entropy_weight": gamma, "entropy_gradient": derivation}
    return tagger().fit(X, Y, unlabelled=U, **how, **BARE)


def in_attributes(sentences):
    return [[attributes_of(token) for token in sentence] for sentence in sentences]


def entropy(trained, sentences) -> float:
    """Σ −p log p over all labellings."""
    total = 0.0
    for tokens in in_attributes(sentences):
        _, scores = path_scores(trained, tokens)
        log_p = scores[np.isfinite(scores)] - log_sum(scores)
        total -= float((np.exp(log_p) * log_p).sum())
    return total


def objective(trained, gamma: float, y=None, sentences=None) -> float:
    labels, others = Y if y is None else y, U if sentences is None else sentences
    loss = negative_log_likelihood(trained, in_attributes(X), labels) + L2 / 2 * squares(trained)
    return loss + gamma * entropy(trained, others)


def models_agree(left, right, tolerance: float) -> None:
    for name in ("weights", "transitions", "start", "stop"):
        a, b = (np.asarray(getattr(one.model_, name)) for one in (left, right))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=name)
