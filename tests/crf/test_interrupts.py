"""Ctrl-C while training: the model is kept, and the search can be gone on from exactly."""

from __future__ import annotations

import signal
import threading

import pytest

import jaxseq
from jaxseq._io import Stages
from jaxseq._runtime import interrupts_deferred
from jaxseq.crf import _lbfgs

X = [["a", "b", "a"], ["b", "c"], ["c", "a", "b", "b"]]
Y = [["P", "Q", "P"], ["Q", "R"], ["R", "P", "Q", "Q"]]


@pytest.fixture(autouse=True)
def plain_handler():
    """As in a program, whatever the runner of the tests has installed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def tagger(**options):
    return jaxseq.CRFTagger(["word[0]"], l2=0.01, progress=False, tolerance=0.0, **options)


def press_at(monkeypatch, iteration: int) -> None:
    """Ctrl-C in the middle of an iteration."""
    ordinary = _lbfgs.iterate

    def iterate(objective, state, settings):
        if state.iteration == iteration:
            signal.raise_signal(signal.SIGINT)
        return ordinary(objective, state, settings)

    monkeypatch.setattr(_lbfgs, "iterate", iterate)


def test_first_press_waits_second_does_not():
    with interrupts_deferred() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):  # and afterwards all is as before
        signal.raise_signal(signal.SIGINT)


def test_other_threads_and_other_handlers_are_left_alone():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(interrupts_deferred().__enter__()())  # raises if it tried
    )
    thread.start()
    thread.join()
    assert found == [False]
    calls = []
    signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    with interrupts_deferred() as pressed:
        signal.raise_signal(signal.SIGINT)
        assert calls == [1]
        assert not pressed()


def test_the_iteration_under_way_is_finished_and_kept(monkeypatch):
    whole = tagger(max_iterations=4).fit(X, Y)
    press_at(monkeypatch, 3)
    cut = tagger(max_iterations=50).fit(X, Y)
    assert cut.n_iter_ == 4
    assert cut.outcome_.startswith("interrupted")
    assert (cut.model_.weights == whole.model_.weights).all()


@pytest.mark.parametrize("stop", ["Ctrl-C", "max_iterations"])
def test_going_on_gives_the_very_same_model(monkeypatch, tmp_path, stop):
    whole = tagger(max_iterations=12).fit(X, Y)
    file = tmp_path / "search"
    options = {"checkpoint": file, "checkpoint_every": 1000}
    if stop == "Ctrl-C":
        with monkeypatch.context() as patch:
            press_at(patch, 4)
            tagger(max_iterations=12, **options).fit(X, Y)
    else:
        tagger(max_iterations=5, **options).fit(X, Y)
    assert file.exists()
    resumed = tagger(max_iterations=12, **options).fit(X, Y)
    assert resumed.n_iter_ == 12
    assert (resumed.model_.weights == whole.model_.weights).all()
    assert (resumed.model_.transitions == whole.model_.transitions).all()


def test_a_state_without_memory_does_not_replace_one_on_disk(monkeypatch, tmp_path):
    """The second Ctrl-C cuts an iteration short: what is on disk is the better start."""
    file = tmp_path / "search"
    ordinary, kept = _lbfgs.iterate, []

    def iterate(objective, state, settings):
        if state.iteration == 3:
            kept.append(file.read_bytes())
            raise KeyboardInterrupt
        return ordinary(objective, state, settings)

    monkeypatch.setattr(_lbfgs, "iterate", iterate)
    tagger(max_iterations=12, checkpoint=file, checkpoint_every=2).fit(X, Y)
    assert kept == [file.read_bytes()]


def test_mini_batches_keep_every_epoch(monkeypatch, tmp_path):
    file, seen = tmp_path / "search", []
    ordinary = Stages.keep

    def keep(stages, number, state, before):
        ordinary(stages, number, state, before)
        seen.append(state.iteration)

    monkeypatch.setattr(Stages, "keep", keep)
    done = tagger(algorithm="sgd", epochs=3, checkpoint=file).fit(X, Y)
    assert seen == [1, 2]
    done.save(tmp_path / "model")
    assert not file.exists()
