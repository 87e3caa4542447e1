"""EM of an `HMMTagger` that stops and goes on, and EM for many λ."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from jaxseq.hmm import _search as _hmm_search
from jaxseq.hmm import sweep_weights
from tests.hmm.plain import assert_same_model, counted, em_step
from tests.hmm.toys import MORE, X, Y, saved_bytes, tagger

# ---------------------------------------------------------------------------- interrupt, resume


@pytest.fixture
def ctrl_c(monkeypatch):
    """Presses Ctrl-C when the progress bar is told of that iteration."""

    def after(iterations):
        real = _hmm_search.progress_bar

        class Bar:
            def __init__(self, *args):
                self._bar = real(*args)

            def __enter__(self):
                tick = self._bar.__enter__()

                def pressing(done, value):
                    tick(done, value)
                    if done == iterations:
                        signal.raise_signal(signal.SIGINT)

                return pressing

            def __exit__(self, *error):
                return self._bar.__exit__(*error)

        monkeypatch.setattr(_hmm_search, "progress_bar", Bar)

    return after


PARTIAL = [[None if t == 1 else label for t, label in enumerate(labels)] for labels in Y]
KINDS = {
    "soft": (Y, {}),
    "frozen": (Y, {"frozen": ("transition",), "weight": 0.3}),
    "first stage": (PARTIAL, {"max_iterations": 9}),
    "second stage": (PARTIAL, {"max_iterations": 5, "weight": 0.6}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_and_resumed_is_the_same_to_the_byte(kind, tmp_path, ctrl_c, monkeypatch):
    y, params = KINDS[kind]
    params = {"max_iterations": 12, "checkpoint_every": 2, **params}
    whole = tagger(**params).fit(X, y, unlabelled=MORE)
    checkpoint = tmp_path / "search"
    ctrl_c(7)
    cut = tagger(**params, checkpoint=checkpoint).fit(X, y, unlabelled=MORE)
    monkeypatch.undo()
    assert cut.outcome_.startswith("interrupted")
    assert cut.n_iter_ == 7
    assert [entry.name for entry in tmp_path.iterdir()] == ["search"]
    kept, real = [], _hmm_search.EMOperator.__call__
    monkeypatch.setattr(
        _hmm_search.EMOperator, "__call__", lambda self, p: kept.append(1) or real(self, p)
    )
    resumed = tagger(**params, checkpoint=checkpoint).fit(X, y, unlabelled=MORE)
    assert len(kept) < whole.n_iter_  # not from the beginning
    assert resumed.objectives_ == whole.objectives_
    assert saved_bytes(resumed, tmp_path / "b") == saved_bytes(whole, tmp_path / "a")


def test_checkpoints_are_taken_further_refused_and_removed(tmp_path):
    checkpoint = tmp_path / "search"
    tagger(max_iterations=3, checkpoint=checkpoint).fit(X, Y, unlabelled=MORE)
    for params, y, more in (
        ({"weight": 0.1}, Y, MORE),
        ({"emission_smoothing": 0.1}, Y, MORE),
        ({}, [labels[::-1] for labels in Y], MORE),
        ({}, Y, MORE[1:]),
        ({"em": "hard"}, Y, MORE),
    ):
        before = checkpoint.read_bytes()
        with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
            tagger(checkpoint=checkpoint, **params).fit(X, y, unlabelled=more)
        assert checkpoint.read_bytes() == before
    further = tagger(max_iterations=6, checkpoint=checkpoint).fit(X, Y, unlabelled=MORE)
    whole = tagger(max_iterations=6).fit(X, Y, unlabelled=MORE)
    assert further.objectives_ == whole.objectives_
    checkpoint.unlink()
    done = tagger(checkpoint=checkpoint, tolerance=1e-3).fit(X, Y, unlabelled=MORE)
    assert done.outcome_.startswith("converged")
    again = tagger(checkpoint=checkpoint, tolerance=1e-3).fit(X, Y, unlabelled=MORE)
    assert saved_bytes(again, tmp_path / "b") == saved_bytes(done, tmp_path / "a")
    assert again.log_likelihood_ == done.log_likelihood_
    assert not checkpoint.exists()
    with pytest.raises(ValueError, match="expected a file to keep the search in, got a folder"):
        tagger(checkpoint=tmp_path).fit(X, Y, unlabelled=MORE)


# ------------------------------------------------------------------------------ sweeps over λ


def test_a_cold_sweep_trains_as_fit_does():
    weights = (0.0, 0.25, 1.0)
    base = tagger(max_iterations=4, weight=0.7)
    found = sweep_weights(
        base, X, Y, unlabelled=MORE, weights=weights, scoring=lambda t: t.score(X, Y)
    )
    assert base.weight == 0.7
    assert found.weights == weights
    for weight, trained in zip(weights[1:], found.taggers[1:]):
        alone = tagger(max_iterations=4, weight=weight).fit(X, Y, unlabelled=MORE)
        assert trained.weight == weight
        for a, b in zip(trained.model_.probabilities, alone.model_.probabilities):
            np.testing.assert_array_equal(a, b)
    assert_same_model(found.taggers[0], counted(X, Y, also=MORE))
    assert found.scores.tolist() == [trained.score(X, Y) for trained in found.taggers]
    assert found.best == weights[int(np.argmax(found.scores))]


def test_a_warm_sweep_starts_where_the_one_before_ended():
    found = sweep_weights(
        tagger(max_iterations=2),
        X,
        Y,
        unlabelled=MORE,
        weights=(0.2, 0.8),
        warm_start=True,
        scoring=lambda trained: -trained.loss_,
    )
    plain = counted(X, Y, also=MORE)
    labelled = plain.counts
    for balance in (0.2, 0.2, 0.8, 0.8):
        plain, _ = em_step(plain, labelled, len(X), MORE, balance)
    assert_same_model(found.taggers[1], plain)


def test_a_sweep_takes_steps_of_a_fortieth_and_refuses_nonsense():
    found = sweep_weights(
        tagger(max_iterations=0), X, Y, unlabelled=MORE, scoring=lambda trained: 1.0
    )
    np.testing.assert_allclose(found.weights, np.arange(41) / 40, atol=1e-15)
    assert found.best == 0.0
    for weights, message in (
        ((), "weights: expected at least one"),
        ((0.5, 2.0), r"weights\[1\]: expected a number from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            sweep_weights(
                tagger(), X, Y, unlabelled=MORE, weights=weights, scoring=lambda trained: 1.0
            )
    with pytest.raises(ValueError, match="unlabelled: expected at least one token"):
        sweep_weights(tagger(), X, Y, unlabelled=[[]], scoring=lambda trained: 1.0)


def test_a_sweep_outlives_a_weight_that_makes_a_scored_word_impossible():
    def score(trained):
        return trained.score([["u", "new"]], [["A", "B"]])

    found = sweep_weights(
        tagger(unknown_below=1), [list("uv")], [list("AB")], unlabelled=[["u"], ["v", "u"]],
        weights=(0.0, 1.0, 0.5), scoring=score,
    )  # fmt: skip
    assert np.isnan(found.scores).tolist() == [False, True, False]
    assert len(found.taggers) == 3
    assert found.best != 1
    nothing = replace(found, scores=np.full(3, np.nan))
    with pytest.raises(ValueError, match="scores: expected a number at some λ"):
        nothing.best  # noqa: B018 - the property is asked for
