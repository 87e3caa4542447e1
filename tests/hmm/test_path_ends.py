"""Paths of HMMs to ends at which parameters vanish or fixed points are many."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from experiments.haffari2008._jacobian import published_jacobian
from jaxseq.hmm import HMM_SETTINGS, EMOperator, hmm_path, word_corpus
from jaxseq.homotopy import PathOutcome

LABELS, WORDS = 3, 8
FROZEN = ("initial", "transition")


def _drawn(seed):
    """Two labelled and thirty unlabelled sequences of six words, of a random HMM."""
    rng = np.random.default_rng(seed)
    emission = rng.dirichlet(np.full(WORDS, 0.5), LABELS)
    transition = rng.dirichlet(np.ones(LABELS), LABELS)

    def draw():
        labels = [int(rng.integers(LABELS))]
        for _ in range(5):
            labels.append(int(rng.choice(LABELS, p=transition[labels[-1]])))
        return [int(rng.choice(WORDS, p=emission[y])) for y in labels], labels

    words, labels = zip(*(draw() for _ in range(2)))
    others = [draw()[0] for _ in range(30)]
    labelled = word_corpus(words, WORDS, labels=labels, num_labels=LABELS, cores=1)
    return labelled, word_corpus(others, WORDS, cores=1)


def _symmetric():
    """Labels that could be exchanged for one another."""
    words = [[0, 1], [0, 1], [2, 3], [2, 3], [1, 2], [1, 2]]
    labels = [[0, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, 0]]
    others = [[0, 0, 1, 0, 1, 2, 3, 3, 2, 3, 2], [3, 2, 2, 3, 0, 1, 0, 0, 1], [0, 1, 0, 1, 1]]
    others = 2 * [*others, [2, 3, 3, 2]]
    return word_corpus(words, 4, labels=labels, num_labels=2, cores=1), word_corpus(
        others, 4, cores=1
    )


@cache
def _path(seed):
    frozen = () if seed % 2 else FROZEN
    return hmm_path(*_drawn(seed), frozen=frozen, settings=HMM_SETTINGS._replace(max_steps=200))


def _spectrum(found, index, unlabelled, frozen):
    """All eigenvalues of the published matrix, falling."""
    matrix = np.asarray(published_jacobian(found.parameters(index), unlabelled))
    if frozen:
        held = LABELS + LABELS**2
        matrix = matrix[held:, held:]
    return np.sort(np.linalg.eigvals(matrix).real)[::-1]


def test_labels_that_could_be_exchanged_hold_nothing_up():
    """Eigenvalues pass 1/λ, and come near it at the end, without a turn of λ."""
    corpora = _symmetric()
    found = hmm_path(*corpora, settings=HMM_SETTINGS._replace(max_steps=100))
    assert found.path.outcome is PathOutcome.REACHED_ONE
    assert len(found.path.events) < 30
    assert (found.path.slope > 0).all()
    _assert_fixed(found, corpora, ())


def test_fixed_points_that_are_many_are_landed_on():
    """At λ = 1 six eigenvalues are 1: every step near it is to a nearly singular place."""
    corpora = _drawn(108)
    found = _path(108)
    assert found.path.outcome is PathOutcome.REACHED_ONE
    assert len(found.path.events) < 100
    assert (_spectrum(found, -1, corpora[1], FROZEN)[:6] > 1 - 1e-3).all()
    _assert_fixed(found, corpora, FROZEN)


def _assert_fixed(found, corpora, frozen):
    """Every point is a fixed point of EM, by the operator itself."""
    scale = found.problem.scale
    for index, lam in enumerate(found.path.lam):
        point = found.parameters(index)
        following = EMOperator(*corpora, float(lam), frozen=frozen)(point).following
        gap = size = 0.0
        for p, f, s in zip(point, following, scale):
            if s is not None:
                gap += float((((p - f) / s) ** 2).sum())
                size += float(((p / s) ** 2).sum())
        assert np.sqrt(gap / size) <= 1e-8


@pytest.mark.parametrize("seed", [102, 106, 107, 119, 123, 126])
def test_recorded_eigenvalues_are_the_largest(seed):
    """Also where parameters vanish from one point to the next, as they do at λ = 1."""
    frozen = () if seed % 2 else FROZEN
    _, unlabelled = _drawn(seed)
    found = _path(seed)
    path = found.path
    assert path.outcome is PathOutcome.REACHED_ONE
    spectra = np.array(
        [_spectrum(found, index, unlabelled, frozen) for index in range(len(path.lam))]
    )
    np.testing.assert_allclose(path.eigenvalues[:, 0], spectra[:, 0], atol=1e-3)
    np.testing.assert_allclose(path.eigenvalues[:, 1], spectra[:, 1], atol=5e-3)
    np.testing.assert_allclose(path.eigenvalues[-1], spectra[-1, :2], atol=1e-4)
    nearest = abs(path.lam[:, None] * spectra - 1).min(axis=1)
    assert found.select("min_eigenvalue").index == int(nearest.argmin())
