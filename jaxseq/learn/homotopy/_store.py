"""Paths on disk, to go on from exactly where they stopped."""

from __future__ import annotations

import hashlib
import os

import jax.numpy as jnp
import numpy as np

from jaxseq.learn._checkpoint import load_checkpoint, save_checkpoint
from jaxseq.learn.homotopy._leading import SINGLE, Leading
from jaxseq.learn.homotopy._path import Event, Outcome, Path, StepOutcome
from jaxseq.learn.homotopy._problem import Problem, flat_map, unraveller
from jaxseq.learn.homotopy._settings import Settings

ARRAYS = ("points", "eigenvalues", "tangent", "earlier")
LEADING = ("right", "left")
SERIES = ("arc", "residual", "step", "slope", "second_weight")
"""Kept as numbers in JSON, as JAX would round them where it has no float64."""
LIMITS = ("max_steps", "min_step")
"""Settings that say when to stop and not where the path goes: they may differ when going on."""


def save_path(
    file: str | os.PathLike[str], path: Path, problem: Problem, settings: Settings
) -> None:
    """Write a path, at once or not at all.

    Example:
        >>> import os, tempfile, jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> path = follow_path(half, Settings(max_steps=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = os.path.join(folder, "path")
        ...     save_path(file, path, half, Settings())
        ...     follow_path(half, start=load_path(file, half, Settings())).outcome.value
        'reached λ = 1'
    """
    extra = {
        "next_step": path.next_step,
        "leading": path.leading.values.tolist(),
        "events": [(e.outcome.name, e.step, e.lam, e.corrections) for e in path.events],
        "outcome": None if path.outcome is None else path.outcome.name,
        **{name: getattr(path, name).tolist() for name in SERIES},
    }
    arrays = [np.ascontiguousarray(getattr(path, name)) for name in ARRAYS]
    arrays += [np.ascontiguousarray(getattr(path.leading, name)) for name in LEADING]
    save_checkpoint(file, arrays, _about(problem, settings), extra)


def load_path(file: str | os.PathLike[str], problem: Problem, settings: Settings) -> Path:
    """The path of `save_path`; ValueError if the file is none, or another problem's.

    Example:
        See `save_path`.
    """
    points, eigenvalues, kept = _counts(file)
    long = problem.size + 1
    shapes = [(points, long), (points, eigenvalues), (long,), (long,)]
    like = [jnp.zeros(shape, problem.dtype) for shape in shapes]
    like += [jnp.zeros((kept, problem.size), SINGLE) for _ in LEADING]
    arrays, extra = load_checkpoint(file, like, _about(problem, settings))
    vectors = (np.asarray(array) for array in arrays[len(ARRAYS) :])
    return Path(
        **{name: np.asarray(array) for name, array in zip(ARRAYS, arrays)},
        **{name: np.asarray(extra[name], np.float64) for name in SERIES},
        leading=Leading(np.asarray(extra["leading"], np.float64), *vectors),
        next_step=extra["next_step"],
        events=tuple(Event(StepOutcome[name], *rest) for name, *rest in extra["events"]),
        outcome=None if extra["outcome"] is None else Outcome[extra["outcome"]],
        unravel=unraveller(problem),
    )


def _counts(file: str | os.PathLike[str]) -> tuple[int, int, int]:
    """How many points, eigenvalues a point, and eigenvectors a file has; zeros if it is none of
    ours."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            points, eigenvalues = opened.get_slice("001").get_shape()
            return points, eigenvalues, opened.get_slice(f"{len(ARRAYS):03d}").get_shape()[0]
    except SafetensorError:
        return 0, 0, 0


def _about(problem: Problem, settings: Settings) -> str:
    """A name for the problem and the way it is followed, the same whenever both are.

    The map E itself cannot be compared; its values at c stand for it, rounded as sums may be
    taken in another order on another day.
    """
    flat, expect = flat_map(problem)
    constant, expected = np.asarray(flat), np.asarray(expect(flat))
    rounded = [f"{np.linalg.norm(expected):.5g}", f"{np.linalg.norm(expected - constant):.5g}"]
    middle = [f"{float(weight):.5g}" for weight in problem.weights(jnp.asarray(0.5))]
    chosen = {k: str(v) for k, v in settings._asdict().items() if k not in LIMITS}
    said = repr((rounded, middle, problem.structure.name, chosen)).encode()
    return f"homotopy {hashlib.sha256(constant.tobytes() + said).hexdigest()}"
