"""Paths on disk, to go on from exactly where they stopped."""

from __future__ import annotations

import hashlib
import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.learn._checkpoint import load_checkpoint, save_checkpoint
from jaxseq.learn.homotopy._host import linearise_flat
from jaxseq.learn.homotopy._leading import SINGLE, Leading
from jaxseq.learn.homotopy._path import Event, Outcome, Path, StepOutcome
from jaxseq.learn.homotopy._problem import Problem, flat_map, flat_scale, unraveller
from jaxseq.learn.homotopy._settings import Settings

ARRAYS = ("points", "eigenvalues", "tangent", "earlier")
LEADING = ("right", "left")
SERIES = ("arc", "residual", "step", "slope", "second_weight")
"""Kept as numbers in JSON, as JAX would round them where it has no float64."""
LIMITS = ("max_steps", "min_step")
"""Settings that say when to stop and not where the path goes: they may differ when going on."""
SECONDS = 10.0
"""Between two writings of a path that is being followed: each writes all of its points."""


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
    _write(file, path, _about(problem, settings))


class PathKeeper:
    """Keeps a path in a file while it is followed: every few seconds, and at its end.

    Args:
        file: to keep it in; None keeps nothing.
        problem, settings: of the path.
    """

    def __init__(
        self, file: str | os.PathLike[str] | None, problem: Problem, settings: Settings
    ) -> None:
        self._file, self._last = file, -float("inf")
        # Once a path and not once a file: it takes an E-step.
        self._about = "" if file is None else _about(problem, settings)

    def keep(self, path: Path, *, at_once: bool = False) -> None:
        """Write it, unless that was done a moment ago."""
        if self._file is None or not (at_once or time.monotonic() - self._last > SECONDS):
            return
        _write(self._file, path, self._about)
        self._last = time.monotonic()


def _write(file: str | os.PathLike[str], path: Path, about: str) -> None:
    extra = {
        "next_step": path.next_step,
        "leading": path.leading.values.tolist(),
        "events": [(e.outcome.name, e.step, e.lam, e.corrections) for e in path.events],
        "outcome": None if path.outcome is None else path.outcome.name,
        **{name: getattr(path, name).tolist() for name in SERIES},
    }
    arrays = [np.ascontiguousarray(getattr(path, name)) for name in ARRAYS]
    arrays += [np.ascontiguousarray(getattr(path.leading, name)) for name in LEADING]
    save_checkpoint(file, arrays, about, extra)


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
    events = tuple(Event(StepOutcome[name], *rest) for name, *rest in extra["events"])
    return Path(
        **{name: np.asarray(array) for name, array in zip(ARRAYS, arrays)},
        **{name: np.asarray(extra[name], np.float64) for name in SERIES},
        leading=Leading(np.asarray(extra["leading"], np.float64), *vectors),
        next_step=extra["next_step"],
        events=events,
        crossed=sum(event.outcome is StepOutcome.CROSSED for event in events),
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
    constant = np.asarray(flat)
    if problem.linearise is not None:
        expected = linearise_flat(problem, constant).expected
    else:
        expected = np.asarray(eqx.filter_jit(expect)(flat))
    sizes = (flat_scale(problem), expected, expected - constant)
    rounded = [f"{np.linalg.norm(size):.5g}" for size in sizes]
    middle = [f"{float(weight):.5g}" for weight in problem.weights(jnp.asarray(0.5))]
    chosen = {k: str(v) for k, v in settings._asdict().items() if k not in LIMITS}
    said = repr((rounded, middle, problem.structure.name, chosen)).encode()
    # Unscaled, as a sum is in the scale.
    digest = hashlib.sha256(said)
    for leaf in jax.tree.leaves(problem.constant):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return f"homotopy {digest.hexdigest()}"
