"""The record of a path that was followed, from which it can also be gone on."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxseq.learn.homotopy._leading import Leading


class Outcome(enum.Enum):
    """Why the following of a path ended, in words."""

    REACHED_ONE = "reached λ = 1"
    STEP_TOO_SMALL = "stopped: no step of the least length allowed could be corrected"
    MAX_STEPS = "stopped: the number of steps asked for is reached"
    NOT_FINITE = "stopped: the map or its tangent is not finite here"
    LEFT_RANGE = "stopped: the path has gone back to λ < 0, where no solution belongs to it"
    INTERRUPTED = "interrupted: the path so far is kept, and can be gone on from"


class StepOutcome(enum.Enum):
    """What came of one step that was tried, in words."""

    ACCEPTED = "accepted"
    CROSSED = "accepted: past a bifurcation"
    LANDED = "accepted: landed on λ = 1"
    SHORTENED_NOT_FINITE = "step shortened because the map is not finite at its end"
    SHORTENED_DIVERGED = "step shortened because its end could not be corrected to the path"
    SHORTENED_CONTRACTION = "step shortened because the correction converged too slowly"
    SHORTENED_DISTANCE = "step shortened because its end was too far from the path"
    SHORTENED_ANGLE = "step shortened because the path bends too much along it"
    SHORTENED_LEAP = "step shortened because it may have leapt over folds of the path"
    SHORTENED_REVERSED = "step shortened because from its end the path would lead back"
    SHORTENED_RANGE = "step shortened because it led to λ < 0"
    SHORTENED_OVERSHOT = "step shortened because it could not be ended at λ = 1"

    @property
    def is_accepted(self) -> bool:
        """Whether there is a point of the path for it."""
        return self in (StepOutcome.ACCEPTED, StepOutcome.CROSSED, StepOutcome.LANDED)


class Event(NamedTuple):
    """One step that was tried: what came of it, its length, λ at its start, and the corrections
    it took."""

    outcome: StepOutcome
    step: float
    lam: float
    corrections: int

    @property
    def message(self) -> str:
        """It in words."""
        return f"λ = {self.lam:.6g}, step {self.step:.3g}: {self.outcome.value}"


class Path(NamedTuple):
    """A path of fixed points, p of them (the first at λ = 0), with n unknowns.

    Attributes:
        points: the points (Θ̃/σ, λ), flat, [p, n + 1], with σ the problem's scale, or 1.
        arc: arc length up to each, as a sum of chords.
        residual: ‖(EM_λ(Θ̃) − Θ̃)/σ‖ / ‖Θ̃/σ‖ at each.
        step: length of the step to each (0 for the first), in the frame of the one before.
        slope: dλ/ds at each.
        eigenvalues: the largest eigenvalues of ∇E at each, falling, [p, k].
        second_weight: g2(λ) at each.
        tangent: the unit tangent at the last point.
        earlier: the one at the point before it (0 if there is none).
        leading: eigenvectors of ∇E at the last point, if any are kept.
        next_step: the length that the next step will have.
        events: all steps that were tried.
        crossed: how many of them passed a bifurcation.
        outcome: why it ended; None while it has not.
        unravel: makes the pytree Θ̃ of a flat Θ̃/σ.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> path = follow_path(half)
        >>> path.outcome.value, path.lam[-1].item(), path.parameters(-1).tolist()
        ('reached λ = 1', 1.0, [2.0])
    """

    points: np.ndarray
    arc: np.ndarray
    residual: np.ndarray
    step: np.ndarray
    slope: np.ndarray
    eigenvalues: np.ndarray
    second_weight: np.ndarray
    tangent: np.ndarray
    earlier: np.ndarray
    leading: Leading
    next_step: float
    events: tuple[Event, ...]
    crossed: int
    outcome: Outcome | None
    unravel: Callable[[Any], Any]

    @property
    def lam(self) -> np.ndarray:
        """λ at each point."""
        return self.points[:, -1]

    @property
    def norm(self) -> np.ndarray:
        """‖Θ̃/σ‖ at each point."""
        return np.linalg.norm(self.points[:, :-1], axis=1)

    @property
    def direction(self) -> np.ndarray:
        """The sign of dλ/ds at each point: −1 where λ goes back."""
        return np.sign(self.slope).astype(int)

    @property
    def nearest_to_singular(self) -> np.ndarray:
        """The eigenvalue of ``g2(λ)·∇E − I`` nearest to 0 at each point, of those recorded."""
        if not self.eigenvalues.shape[1]:
            raise ValueError("expected a path with eigenvalues (Settings(eigenvalues=1)), got none")
        shifted = self.second_weight[:, None] * self.eigenvalues - 1
        nearest = np.abs(shifted).argmin(axis=1)
        return shifted[np.arange(len(shifted)), nearest]

    def parameters(self, index: int) -> Any:
        """Θ̃ at a point, as the pytree that the problem's constant is."""
        return self.unravel(self.points[index, :-1])


class NewPoint(NamedTuple):
    """What is recorded of a point."""

    point: np.ndarray
    residual: float
    step: float
    tangent: np.ndarray
    eigenvalues: np.ndarray
    second_weight: float
    leading: Leading


_TAKEN: dict[int, int] = {}
"""How many rows of each array with room for more are a path's."""


def _with_row(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Rows and one more, in the same memory if that has room and no other path went on from them:
    copying all points at each of thousands of steps would cost as much as following the path."""
    room, number = rows.base, len(rows)
    if not (
        isinstance(room, np.ndarray)
        and _TAKEN.get(id(room)) == number < len(room)
        and rows.__array_interface__["data"] == room.__array_interface__["data"]
        and rows.strides == room.strides
    ):
        room = np.empty((max(32, 2 * number), *rows.shape[1:]), rows.dtype)
        room[:number] = rows
        weakref.finalize(room, _TAKEN.pop, id(room), None).atexit = False
    room[number] = row
    _TAKEN[id(room)] = number + 1
    return room[: number + 1]


def tried(path: Path, event: Event) -> Path:
    """The path with one more event."""
    crossed = path.crossed + (event.outcome is StepOutcome.CROSSED)
    return path._replace(events=(*path.events, event), crossed=crossed)


def extend(path: Path, new: NewPoint) -> Path:
    """The path with one more point."""
    chord = np.linalg.norm(new.point - path.points[-1])
    return path._replace(
        points=_with_row(path.points, new.point),
        arc=np.append(path.arc, path.arc[-1] + chord),
        residual=np.append(path.residual, new.residual),
        step=np.append(path.step, new.step),
        slope=np.append(path.slope, new.tangent[-1]),
        eigenvalues=np.concatenate([path.eigenvalues, new.eigenvalues[None]]),
        second_weight=np.append(path.second_weight, new.second_weight),
        tangent=new.tangent,
        earlier=path.tangent,
        leading=new.leading,
    )


def first_point(new: NewPoint, step: float, unravel: Callable[[Any], Any]) -> Path:
    """The path of one point."""
    return Path(
        points=new.point[None],
        arc=np.zeros(1),
        residual=np.array([new.residual]),
        step=np.zeros(1),
        slope=np.array([float(new.tangent[-1])]),
        eigenvalues=new.eigenvalues[None],
        second_weight=np.array([new.second_weight]),
        tangent=new.tangent,
        earlier=np.zeros_like(new.tangent),
        leading=new.leading,
        next_step=step,
        events=(),
        crossed=0,
        outcome=None,
        unravel=unravel,
    )
