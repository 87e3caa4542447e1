"""Paths of HMMs on which λ turns: stopped, kept, gone on with, and their critical points."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.hmm import HMM_SETTINGS, Smoothing, has_turned, hmm_path, homotopy_problem, word_corpus
from jaxseq.homotopy import (
    Kind,
    PathOutcome,
    Predictor,
    follow_path,
    leading_eigenvalues,
    load_path,
    save_path,
)
from jaxseq.homotopy import _path as store
from jaxseq.homotopy._problem import flat_map
from tests.homotopy.test_store import assert_same

LABELS, WORDS = 2, 5
FROZEN = ("initial", "transition")


@cache
def corpora(cores=1):
    """Two habits at odds: λ turns twice between them."""
    rng = np.random.default_rng(18)
    known = [rng.integers(0, LABELS, 4).tolist() for _ in range(4)]
    words = [[int((2 * y + rng.integers(3)) % WORDS) for y in labels] for labels in known]
    others = [rng.integers(0, WORDS, 6).tolist() for _ in range(12)]
    labelled = word_corpus(words, WORDS, labels=known, num_labels=LABELS, cores=cores)
    return labelled, word_corpus(others, WORDS, cores=cores)


@cache
def whole():
    return hmm_path(*corpora(), frozen=FROZEN)


def turns(path) -> np.ndarray:
    """Indices of the last points before λ turns."""
    return np.flatnonzero(np.diff(path.direction) != 0)


def test_it_stops_at_the_first_turn_and_the_rule_finds_the_point_before():
    path = whole().path
    assert path.outcome is PathOutcome.REACHED_ONE
    assert len(turns(path)) >= 2
    stopped = hmm_path(*corpora(), frozen=FROZEN, until=has_turned)
    assert stopped.path.outcome is PathOutcome.INTERRUPTED
    assert len(turns(stopped.path)) == 1
    chosen = whole().select("monotone")
    assert chosen.index == stopped.select("monotone").index < len(path.lam) - 1
    assert chosen.lam == path.lam[: chosen.index + 2].max()


def test_every_turn_is_one_fold_and_no_bifurcation_beside_it():
    found = whole().critical_points()
    assert [one.kind for one in found] == [Kind.FOLD] * len(turns(whole().path))
    for one in found:
        assert one.is_refined
        assert one.eigenvalue is not None
        assert abs(one.eigenvalue) < 1e-5


@pytest.mark.parametrize("predictor", [Predictor.RK2, Predictor.RK3])
def test_other_predictors_pass_the_turns(predictor):
    problem = homotopy_problem(*corpora(), frozen=FROZEN)
    path = follow_path(problem, HMM_SETTINGS._replace(predictor=predictor, max_steps=250))
    assert path.outcome is PathOutcome.REACHED_ONE
    assert len(turns(path)) == len(turns(whole().path))
    np.testing.assert_allclose(path.points[-1], whole().path.points[-1], rtol=1e-3, atol=1e-5)


def test_a_path_that_was_stopped_goes_on_from_its_file(tmp_path, monkeypatch):
    def stop(path):
        return len(path.events) >= 7

    file = tmp_path / "path"
    first = hmm_path(*corpora(), frozen=FROZEN, until=stop, checkpoint=file)
    assert first.path.outcome is PathOutcome.INTERRUPTED
    named = []
    about = store._fingerprint
    monkeypatch.setattr(store, "_fingerprint", lambda *given: named.append(0) or about(*given))
    again = hmm_path(*corpora(), frozen=FROZEN, checkpoint=file)
    assert_same(again.path, whole().path)
    assert len(named) == 2  # to read and to write: not once a step, as it takes an E-step


def test_files_are_of_any_number_of_cores(tmp_path):
    problems = [homotopy_problem(*corpora(cores), frozen=FROZEN) for cores in (1, 2)]
    settings = HMM_SETTINGS._replace(max_steps=2)
    path = follow_path(problems[0], settings)
    save_path(tmp_path / "path", path, problems[0], settings)
    assert len(load_path(tmp_path / "path", problems[1], settings).events) == 2


def test_eigenvalues_are_finite_where_the_published_way_has_gone_below_zero():
    problem = homotopy_problem(*corpora(), frozen=FROZEN)
    theta = np.asarray(flat_map(problem)[0]).copy()
    theta[0] = -0.1
    assert np.isfinite(leading_eigenvalues(problem, jnp.asarray(theta), 1).values).all()


def test_words_that_tell_all_labels_leave_nothing_to_turn():
    known = word_corpus([[0], [1]], 2, labels=[[0], [0]], num_labels=1)
    found = hmm_path(known, word_corpus([[0], [1]], 2))
    assert found.path.outcome is PathOutcome.REACHED_ONE
    assert abs(found.path.eigenvalues).max() == 0


def test_sequences_that_no_labelling_explains_are_refused():
    sequences = [[0, 1], [0, 1], [0, 0, 1]]
    known = word_corpus(sequences, 3, labels=sequences, num_labels=2)
    unknown = word_corpus([[0, 1, 1], [2, 0], [0, 0, 1]], 3)
    with pytest.raises(ValueError, match=r"unlabelled\[0\]: .* probability 0 \(2 of 3 are\)"):
        hmm_path(known, unknown, smoothing=Smoothing(0, 0, 0))


def test_errors_say_which_side_is_meant():
    labelled, unlabelled = corpora()
    with pytest.raises(ValueError, match=r"^unlabelled: expected at least one sequence"):
        homotopy_problem(labelled, word_corpus([], WORDS))
    with pytest.raises(ValueError, match=r"^unlabelled: expected 5 words"):
        homotopy_problem(labelled, word_corpus([[0]], WORDS + 1))
    with pytest.raises(ValueError, match=r"^labelled: expected at least one sequence"):
        homotopy_problem(word_corpus([], WORDS, labels=[], num_labels=LABELS), unlabelled)
