"""The record of a path that was followed, from which it can also be gone on."""

from __future__ import annotations

import enum
import os
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxseq._io import Fingerprint, SearchStore
from jaxseq.homotopy._linear import Leading, linearise_flat
from jaxseq.homotopy._problem import PathSettings, Problem, find_flat, unraveller


class PathOutcome(enum.Enum):
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
    """One step that was tried.

    Attributes:
        outcome: what came of it.
        step: its length.
        lam: λ at its start.
        corrections: steps of Newton's method that it took.
    """

    outcome: StepOutcome
    step: float
    lam: float
    corrections: int

    @property
    def message(self) -> str:
        """The event in words."""
        return f"λ = {self.lam:.6g}, step {self.step:.3g}: {self.outcome.value}"


class NewPoint(NamedTuple):
    """What is recorded of a point."""

    point: np.ndarray
    residual: float
    step: float
    tangent: np.ndarray
    eigenvalues: np.ndarray
    second_weight: float
    leading: Leading


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
        >>> from jaxseq.homotopy import Problem, Structure, follow_path
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
    outcome: PathOutcome | None
    unravel: Callable[[Any], Any]

    @classmethod
    def from_point(cls, new: NewPoint, step: float, unravel: Callable[[Any], Any]) -> Path:
        """The path of one point, and the length of the step from it."""
        return cls(
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

    def with_point(self, new: NewPoint) -> Path:
        """The path with one more point."""
        chord = np.linalg.norm(new.point - self.points[-1])
        return self._replace(
            points=_with_row(self.points, new.point),
            arc=np.append(self.arc, self.arc[-1] + chord),
            residual=np.append(self.residual, new.residual),
            step=np.append(self.step, new.step),
            slope=np.append(self.slope, new.tangent[-1]),
            eigenvalues=np.concatenate([self.eigenvalues, new.eigenvalues[None]]),
            second_weight=np.append(self.second_weight, new.second_weight),
            tangent=new.tangent,
            earlier=self.tangent,
            leading=new.leading,
        )

    def with_event(self, event: Event) -> Path:
        """The path with one more event."""
        crossed = self.crossed + (event.outcome is StepOutcome.CROSSED)
        return self._replace(events=(*self.events, event), crossed=crossed)

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
            raise ValueError(
                "expected a path with eigenvalues (PathSettings(eigenvalues=1)), got none"
            )
        shifted = self.second_weight[:, None] * self.eigenvalues - 1
        nearest = np.abs(shifted).argmin(axis=1)
        return shifted[np.arange(len(shifted)), nearest]

    def parameters(self, index: int) -> Any:
        """Θ̃ at a point, as the pytree that the problem's constant is."""
        return self.unravel(self.points[index, :-1])


_TAKEN: dict[int, int] = {}
"""How many rows of each array with room for more are a path's, by the array's id."""


def _with_row(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Rows and one more, in the same memory if that has room and no other path went on from them.

    Copying all points at each of thousands of steps would cost as much as following the path.
    """
    room, number = rows.base, len(rows)
    if not (
        isinstance(room, np.ndarray)
        and _TAKEN.get(id(room)) == number < len(room)
        # The first rows of that array, in its order, and not some view of them.
        and rows.__array_interface__["data"] == room.__array_interface__["data"]
        and rows.strides == room.strides
    ):
        room = np.empty((max(32, 2 * number), *rows.shape[1:]), rows.dtype)
        room[:number] = rows
        # An id may come up again when the array is gone; it must not look taken then.
        weakref.finalize(room, _TAKEN.pop, id(room), None).atexit = False
    room[number] = row
    _TAKEN[id(room)] = number + 1
    return room[: number + 1]


# -------------------------------------------------------------------------------------------------
# Paths on disk, to go on from exactly where they stopped.


ARRAYS = ("points", "eigenvalues", "tangent", "earlier")
LEADING = ("right", "left")
SERIES = ("arc", "residual", "step", "slope", "second_weight")
"""Kept as numbers in JSON, as JAX would round them where it has no float64."""
LIMITS = ("max_steps", "min_step")
"""Settings that say when to stop and not where the path goes: they may differ when going on."""
SECONDS_BETWEEN_WRITES = 10.0
"""Of a path that is being followed: each write is of all of its points."""


def save_path(
    file: str | os.PathLike[str], path: Path, problem: Problem, settings: PathSettings
) -> None:
    """Write a path, at once or not at all.

    Example:
        >>> import os, tempfile, jax.numpy as jnp
        >>> from jaxseq.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> path = follow_path(half, PathSettings(max_steps=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = os.path.join(folder, "path")
        ...     save_path(file, path, half, PathSettings())
        ...     follow_path(half, start=load_path(file, half, PathSettings())).outcome.value
        'reached λ = 1'
    """
    PathKeeper(file, problem, settings).keep(path, at_once=True)


class PathKeeper:
    """Keeps a path in a file, if there is one, while it is followed: every few seconds, and at its
    end."""

    def __init__(
        self, file: str | os.PathLike[str] | None, problem: Problem, settings: PathSettings
    ) -> None:
        # The fingerprint once per path, and not at every write: it takes an E-step.
        self._store = SearchStore(file, lambda: _fingerprint(problem, settings))
        self._last = -float("inf")

    def keep(self, path: Path, *, at_once: bool = False) -> None:
        """Write it, unless that was done a moment ago."""
        due = at_once or time.monotonic() - self._last > SECONDS_BETWEEN_WRITES
        if self._store.path is None or not due:
            return
        notes = {
            "next_step": path.next_step,
            "leading": path.leading.values.tolist(),
            "events": [(e.outcome.name, e.step, e.lam, e.corrections) for e in path.events],
            "outcome": None if path.outcome is None else path.outcome.name,
            **{name: getattr(path, name).tolist() for name in SERIES},
        }
        arrays = {name: getattr(path, name) for name in ARRAYS}
        arrays |= {name: getattr(path.leading, name) for name in LEADING}
        self._store.save(notes, arrays)
        self._last = time.monotonic()


def load_path(file: str | os.PathLike[str], problem: Problem, settings: PathSettings) -> Path:
    """The path of `save_path`; ValueError if the file has none, or another problem's.

    Example:
        See `save_path`.
    """
    saved = SearchStore(file, lambda: _fingerprint(problem, settings)).load()
    if saved is None:
        raise FileNotFoundError(f"{file}: expected a file of save_path, got none")
    notes, arrays = saved
    events = tuple(Event(StepOutcome[name], *numbers) for name, *numbers in notes["events"])
    values = np.asarray(notes["leading"], np.float64)
    return Path(
        **{name: arrays[name] for name in ARRAYS},
        **{name: np.asarray(notes[name], np.float64) for name in SERIES},
        leading=Leading(values, *(arrays[name] for name in LEADING)),
        next_step=notes["next_step"],
        events=events,
        crossed=sum(event.outcome is StepOutcome.CROSSED for event in events),
        outcome=None if notes["outcome"] is None else PathOutcome[notes["outcome"]],
        unravel=unraveller(problem),
    )


def _fingerprint(problem: Problem, settings: PathSettings) -> Fingerprint:
    """A name for the problem and the way it is followed, the same whenever both are.

    The map E itself cannot be compared; its values at c stand for it, rounded as sums may be
    taken in another order on another day.
    """
    flat = find_flat(problem)
    expected = linearise_flat(problem, flat.constant).expected
    sizes = (flat.scale, expected, expected - flat.constant)
    rounded = [f"{np.linalg.norm(size):.5g}" for size in sizes]
    middle = [f"{weight:.5g}" for weight in flat.weights(0.5)[0]]
    chosen = {k: str(v) for k, v in settings._asdict().items() if k not in LIMITS}
    # The constant unscaled, as the scale may hold a sum too.
    constant = [np.asarray(leaf) for leaf in jax.tree.leaves(problem.constant)]
    name = problem.structure.name
    return Fingerprint("homotopy", rounded, middle, name, chosen, *constant)


# -------------------------------------------------------------------------------------------------
# Choosing one point of a path, and with it λ.
#
# A rule looks at the path as far as it was followed. If that ended neither at λ = 1 nor because the
# caller ended it, a warning and the reasons say so: its end is where steps failed or ran out, and
# means nothing. (For `select_monotone` what comes after the first turn does not matter.)

INTENDED_ENDS = (PathOutcome.REACHED_ONE, PathOutcome.INTERRUPTED)


class Selection(NamedTuple):
    """A point of a path that a rule has chosen: its index, λ, Θ̃, and why, in words."""

    index: int
    lam: float
    parameters: Any
    why: str


def select_monotone(path: Path) -> Selection:
    """The last point before dλ/ds first changes sign; the last of all if it never does.

    Beyond it, a fixed point may have no root in the labelled data any more.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.homotopy import Problem, Structure, follow_path
        >>> bent = lambda x: 1 / (0.3 * (x**2 - 4.5 * x + 6))
        >>> problem = Problem(bent, jnp.zeros(1), structure=Structure.SYMMETRIC)
        >>> round(select_monotone(follow_path(problem)).lam, 1)
        0.7

    References:
        Haffari & Sarkar 2008, section 5.2; Corduneanu & Jaakkola 2002.
    """
    turned = np.flatnonzero(path.slope <= 0)
    if turned.size:
        return _at(path, max(int(turned[0]) - 1, 0), "the last point before λ turns")
    return _choose(path, len(path.points) - 1, "λ has not turned: the last point")


def select_min_eigenvalue(path: Path) -> Selection:
    """The point at which an eigenvalue of ``g2(λ)·∇E − I`` is nearest to 0.

    The path must have been followed with ``PathSettings(eigenvalues=k)``, k ≥ 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.homotopy import Problem, PathSettings, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> select_min_eigenvalue(follow_path(half, PathSettings(eigenvalues=1))).lam
        1.0

    References:
        Haffari & Sarkar 2008, section 5.2.
    """
    sizes = np.abs(path.nearest_to_singular)
    index = int(sizes.argmin())
    return _choose(path, index, f"an eigenvalue of g2(λ)·∇E − I is {sizes[index]:.3g} from 0")


def select_max_entropy(path: Path, entropy: Callable[[Any], Any] | np.ndarray) -> Selection:
    """The point after the first with the greatest entropy of labels on the unlabelled data.

    The paper chooses among iterations, each of which has made a step: λ = 0, where the path begins,
    is the model without unlabelled data, with which the choice is to be compared. Where entropy
    falls all along, as unlabelled data make a model surer of itself, the first step's end is chosen
    (λ = .004 to .008 in the paper).

    Args:
        path: the path.
        entropy: of Θ̃, a pytree, called for every point; or the entropy at each point.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> select_max_entropy(follow_path(half), lambda theta: -theta.sum()).index
        1

    References:
        Haffari & Sarkar 2008, section 5.2; Ji, Watson & Carin 2007.
    """
    values = entropy
    if not isinstance(values, np.ndarray):
        values = np.array([float(values(path.parameters(i))) for i in range(len(path.points))])
    if not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"entropy: expected finite numbers, got {values[where]} at point {where}")
    # The first is left out unless it is the only one.
    index = 1 + int(values[1:].argmax()) if len(values) > 1 else 0
    return _choose(path, index, f"the entropy there, {values[index]:.6g}, is the greatest")


def _choose(path: Path, index: int, why: str) -> Selection:
    """The selection of a point, by a rule that all of the path matters to.

    Warns if the path died on its way, and raises ValueError if it never left λ = 0.
    """
    if path.outcome is None:
        return _at(path, index, f"{why}; path: still being followed")
    ended = path.outcome.value
    if path.outcome not in INTENDED_ENDS:
        if len(path.points) == 1:
            raise ValueError(f"path: expected one that leaves λ = 0, got one point; it {ended}")
        warnings.warn(
            f"path: {ended}, at λ = {path.lam[-1]:.6g}; a choice among its {len(path.points)} "
            "points knows nothing of what would come after",
            stacklevel=3,
        )
    return _at(path, index, f"{why}; path: {ended}")


def _at(path: Path, index: int, why: str) -> Selection:
    return Selection(index, float(path.lam[index]), path.parameters(index), why)
