"""Paths that are interrupted, kept and gone on from."""

from __future__ import annotations

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.homotopy import (
    PathOutcome,
    PathSettings,
    Predictor,
    follow_path,
    load_path,
    published_settings,
    save_path,
)
from tests.homotopy import test_problems as problems

SETTINGS = PathSettings(eigenvalues=2)


def assert_same(one, other):
    """Every number of two paths."""
    for name in one._fields:
        if name == "leading":
            for ours, theirs in zip(one.leading, other.leading):
                np.testing.assert_array_equal(ours, theirs)
        elif name != "unravel":
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize(
    "settings", [SETTINGS, PathSettings(predictor=Predictor.RK3), published_settings(0.1)]
)
@pytest.mark.parametrize("after", [1, 4])
def test_a_path_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path, settings, after):
    problem, file = problems.mixture(0), tmp_path / "path"
    whole = follow_path(problem, settings)

    def watch(path):
        return len(path.events) >= after

    part = follow_path(problem, settings, watch=watch, checkpoint=file)
    assert part.outcome is PathOutcome.INTERRUPTED
    assert len(part.events) == after
    loaded = load_path(file, problem, settings)
    assert_same(loaded, part._replace(outcome=None))
    assert_same(follow_path(problem, settings, start=loaded), whole)
    theta = loaded.parameters(-1)
    assert jax.tree.structure(theta) == jax.tree.structure(problem.constant)


def test_float32_goes_on_too(tmp_path):
    problem = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), problems.mixture(1))
    whole = follow_path(problem)
    part = follow_path(problem, PathSettings(max_steps=2))
    save_path(tmp_path / "path", part, problem, PathSettings())
    assert_same(
        follow_path(problem, start=load_path(tmp_path / "path", problem, PathSettings())), whole
    )


def test_ctrl_c_ends_it_after_the_step():
    def press(path):
        if len(path.events) == 2:
            signal.raise_signal(signal.SIGINT)

    path = follow_path(problems.mixture(0), watch=press)
    assert path.outcome is PathOutcome.INTERRUPTED
    assert len(path.events) == 2


def test_files_of_other_problems_and_settings_are_refused(tmp_path):
    problem, file = problems.mixture(0), tmp_path / "path"
    follow_path(problem, SETTINGS._replace(max_steps=2), checkpoint=file)
    load_path(file, problem, SETTINGS)  # when to stop may differ
    for other, settings in (
        (problems.mixture(1), SETTINGS),
        (problem, SETTINGS._replace(step=0.05)),
        (problems.Problem(problems.mixture(1).expect, problem.constant), SETTINGS),
    ):
        with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
            load_path(file, other, settings)


def test_foreign_files_are_refused(tmp_path):
    file = tmp_path / "path"
    file.write_text("no path")
    with pytest.raises(ValueError, match="expected a checkpoint of jaxseq"):
        load_path(file, problems.mixture(0), SETTINGS)
    with pytest.raises(FileNotFoundError):
        load_path(tmp_path / "nothing", problems.mixture(0), SETTINGS)
