"""Schedules of γ, and unfinished searches with unlabelled sentences."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import optax
import pytest

from jaxseq._io import Stages
from jaxseq.crf import Objective
from jaxseq.crf import _search as _fit
from tests.crf.semi_toys import (
    BARE,
    MANY,
    ONE_ROW,
    U,
    X,
    Y,
    models_agree,
    supervised,
    tagger,
    with_unlabelled,
)
from tests.crf.test_checkpoint import notes_in, saved_bytes

# ------------------------------------------------------------------------------------- schedules


def test_a_constant_schedule_is_a_constant(tmp_path):
    scheduled = tagger().fit(
        X, Y, unlabelled=U, entropy_weight=optax.constant_schedule(0.5), **BARE
    )
    wanted = saved_bytes(with_unlabelled(0.5), tmp_path / "a")
    assert saved_bytes(scheduled, tmp_path / "b") == wanted


def seen_weights(monkeypatch) -> list[float]:
    """γ of every evaluation, as training goes on."""
    found: list[float] = []
    ordinary = Objective.__call__

    def call(self, parameters):
        found.append(self.entropy_weight)
        return ordinary(self, parameters)

    monkeypatch.setattr(Objective, "__call__", call)
    return found


def test_a_schedule_is_looked_at_every_ten_iterations(monkeypatch):
    start = supervised()
    found = seen_weights(monkeypatch)
    schedule = optax.linear_schedule(0.25, 1.25, 20)
    trained = tagger(max_iterations=34, tolerance=0.0).fit(
        X, Y, unlabelled=U, entropy_weight=schedule, warm_start_from=start, **BARE
    )
    assert list(dict.fromkeys(found)) == [0.25, 0.75, 1.25]
    assert found == sorted(found)
    assert trained.n_iter_ == 34
    assert min(found.count(weight) for weight in (0.25, 0.75)) >= 11  # with that at the start


def test_mini_batches_look_at_a_schedule_at_every_step(monkeypatch):
    start = supervised()
    found = seen_weights(monkeypatch)
    tagger(**ONE_ROW, epochs=2).fit(
        **MANY, entropy_weight=lambda step: step / 8, warm_start_from=start, **BARE
    )
    assert found == [step / 8 for step in range(2 * 4)]


@pytest.mark.parametrize(
    "value", [-0.5, float("nan"), float("inf"), None, "1", True, [1.0, 2.0], 1j]
)
def test_bad_values_of_a_schedule_are_refused(value):
    schedule: Callable[[int], Any] = lambda step: 0.5 if step < 20 else value  # noqa: E731
    with pytest.raises(ValueError, match=r"entropy_weight: expected a schedule .* at step 20"):
        tagger().fit(X, Y, unlabelled=U, entropy_weight=schedule, **BARE)


# ----------------------------------------------------------------------------------- checkpoints

KINDS: dict[str, tuple[dict[str, Any], Any, tuple[int, ...]]] = {
    "lbfgs": ({"max_iterations": 12}, 0.7, (3, 12, 16)),
    "schedule": ({"max_iterations": 14}, optax.linear_schedule(0.2, 1.0, 14), (4, 17, 26)),
    "adamw": ({**ONE_ROW, "algorithm": "adamw", "epochs": 4}, 0.7, (2, 6)),
}
MOMENTS = [(kind, moment) for kind, (_, _, moments) in KINDS.items() for moment in moments]


def kept(kind: str, **params):
    return tagger(**{"tolerance": 0.0, "checkpoint_every": 2, **KINDS[kind][0], **params})


def given(kind: str) -> dict[str, Any]:
    data = MANY if kind == "adamw" else {"X": X, "y": Y, "unlabelled": U}
    return {**data, "entropy_weight": KINDS[kind][1], **BARE}


@cache
def uninterrupted(kind: str):
    return kept(kind).fit(**given(kind))


@pytest.fixture
def press_after(monkeypatch):
    """Ctrl-C when the progress bar is told of an iteration."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(iteration: int, error: type[BaseException] | None = None) -> None:
        ordinary = _fit.progress_bar

        @contextmanager
        def bar(*arguments):
            with ordinary(*arguments) as tick:

                def ticking(done, value):
                    tick(done, value)
                    if done == iteration:
                        if error is not None:
                            raise error
                        signal.raise_signal(signal.SIGINT)

                yield ticking

        monkeypatch.setattr(_fit, "progress_bar", bar)

    yield press
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("kind", "moment"), MOMENTS)
def test_interrupted_and_resumed_is_the_same_to_the_byte(
    kind, moment, tmp_path, monkeypatch, press_after
):
    whole, file = uninterrupted(kind), tmp_path / "search"
    press_after(moment)
    cut = kept(kind, checkpoint=file).fit(**given(kind))
    monkeypatch.undo()
    assert cut.outcome_.startswith("interrupted")
    assert cut.n_iter_ == moment
    found = seen_weights(monkeypatch)
    resumed = kept(kind, checkpoint=file).fit(**given(kind))
    assert len(found) <= whole.n_evaluations_ - cut.n_evaluations_ + 1  # not from the beginning
    assert (resumed.n_iter_, resumed.n_evaluations_) == (whole.n_iter_, whole.n_evaluations_)
    assert resumed.loss_ == whole.loss_
    assert saved_bytes(resumed, tmp_path / "b") == saved_bytes(whole, tmp_path / "a")


@pytest.mark.parametrize(("moment", "stage"), [(7, 0), (17, 1)])
def test_an_iteration_cut_short_goes_on_from_the_last_kept(
    moment, stage, tmp_path, monkeypatch, press_after
):
    file = tmp_path / "search"
    press_after(moment, KeyboardInterrupt)
    kept("lbfgs", checkpoint=file).fit(**given("lbfgs"))
    monkeypatch.undo()
    assert notes_in(file)["stage"] == stage
    resumed = kept("lbfgs", checkpoint=file).fit(**given("lbfgs"))
    models_agree(resumed, uninterrupted("lbfgs"), 0.0)


def test_a_checkpoint_of_another_search_is_refused(tmp_path):
    file = tmp_path / "search"
    kept("lbfgs", checkpoint=file).fit(**given("lbfgs"))
    before = file.read_bytes()
    others = [
        {"unlabelled": U, "entropy_weight": 0.8},
        {"unlabelled": U, "entropy_weight": optax.linear_schedule(0.7, 0.0, 50)},
        {"unlabelled": U, "entropy_weight": 0.7, "entropy_gradient": "autodiff"},
        {"unlabelled": U[:-1], "entropy_weight": 0.7},
        {"unlabelled": U, "entropy_weight": 0.7, "warm_start_from": supervised()},
        {},
    ]
    for options in others:
        with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
            kept("lbfgs", checkpoint=file).fit(X, Y, **options, **BARE)
        assert file.read_bytes() == before


def test_a_search_that_is_over_is_kept_until_its_model_is_saved(tmp_path):
    done = tagger(checkpoint=tmp_path / "search", checkpoint_every=1).fit(
        X, Y, unlabelled=U, entropy_weight=1.0, **BARE
    )
    assert done.outcome_.startswith("converged")
    again = tagger(checkpoint=tmp_path / "search").fit(
        X, Y, unlabelled=U, entropy_weight=1.0, **BARE
    )
    np.testing.assert_array_equal(again.model_.weights, done.model_.weights)
    again.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_process_killed_between_two_stages_loses_no_stage(tmp_path, monkeypatch):
    """γ changes every ten iterations, fewer than between two checkpoints."""
    file, ordinary, kept_files = tmp_path / "search", Stages.finish, []

    def finish(stages, *arguments, **over):
        ordinary(stages, *arguments, **over)
        kept_files.append(file.read_bytes() if file.exists() else b"")

    monkeypatch.setattr(Stages, "finish", finish)
    often = {"checkpoint": file, "checkpoint_every": 1000}
    whole = kept("schedule", **often).fit(**given("schedule"))
    monkeypatch.undo()
    assert len(kept_files) > 2
    file.write_bytes(kept_files[1])
    found = seen_weights(monkeypatch)
    resumed = kept("schedule", **often).fit(**given("schedule"))
    assert len(found) < whole.n_evaluations_  # not from the beginning
    assert saved_bytes(resumed, tmp_path / "b") == saved_bytes(whole, tmp_path / "a")
