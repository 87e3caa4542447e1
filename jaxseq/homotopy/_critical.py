"""Critical points of a path: where ``I − g2(λ)·∇E`` is singular."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from jaxseq.homotopy._follow import Solver, hermite_cubic
from jaxseq.homotopy._linear import one_thread
from jaxseq.homotopy._path import Path
from jaxseq.homotopy._problem import Problem, keep_positive
from jaxseq.homotopy._settings import PathSettings

TRIAL_SHARE = 1e-3
"""Trials are corrected to this share of the usual tolerance: near a bifurcation, the residual says
little of the distance from the path."""
VANISHING = 1e-4
"""An eigenvalue of ``g2(λ)·∇E − I`` below this counts as 0."""


class Kind(enum.Enum):
    """What happens at a critical point, in words."""

    FOLD = "fold: λ turns"
    BIFURCATION = "bifurcation: another branch crosses, and λ does not turn"


class CriticalPoint(NamedTuple):
    """A critical point between two points of a path.

    Attributes:
        kind: a fold (dλ/ds changes sign) or a bifurcation (an eigenvalue of ∇E passes 1/g2(λ), and
            with it the determinant changes sign, while dλ/ds does not).
        lam: λ there.
        point: (Θ̃, λ) there, flat.
        arc: arc length there.
        after: index of the path's last point before it.
        eigenvalue: the eigenvalue of ``g2(λ)·∇E − I`` that vanishes, as refined; None if the path
            has no eigenvalues.
        is_refined: whether every trial could be corrected, and the eigenvalue of a bifurcation
            does vanish; otherwise λ is a rough guess.
    """

    kind: Kind
    lam: float
    point: np.ndarray
    arc: float
    after: int
    eigenvalue: float | None
    is_refined: bool


class _NotCorrected(Exception):
    """A trial point could not be brought back to the path."""


class _Stretch:
    """The path between two of its points, by the distance along the tangent at the first."""

    def __init__(self, solver: Solver, path: Path, after: int):
        self.solver = solver
        self.begin, self.end = path.points[after], path.points[after + 1]
        self.base = solver.base(self.begin)
        outward = self.end - self.begin
        self.tangent = solver.tangent(self.begin, outward, self.base).direction
        last = solver.tangent(self.end, self.tangent, self.base).direction
        frame = self.base.frame
        self.length = frame.product(self.tangent, outward) / frame.length(self.tangent)
        self._backwards = hermite_cubic(frame, self.end, self.begin, -last, -self.tangent)

    def at(self, distance: float) -> np.ndarray:
        """The path's point at a distance, from Hermite's cubic between the ends."""
        share = distance / self.length
        guess = self._backwards.at(-share * self._backwards.span)
        kept = keep_positive(self.solver.problem, self.begin, guess.astype(self.begin.dtype))
        frame = self.base.frame
        unit = self.tangent / frame.length(self.tangent)
        kept = kept + (distance - frame.product(unit, kept - self.begin)) * unit
        trial = self.solver.correct(kept.astype(self.begin.dtype), self.tangent, self.base)
        if not trial.residual <= self.solver.tolerance / TRIAL_SHARE:
            raise _NotCorrected
        return trial.point

    def slope(self, distance: float) -> float:
        """dλ/ds at a distance."""
        return float(self.solver.tangent(self.at(distance), self.tangent, self.base).direction[-1])

    def excess(self, distance: float, rank: int) -> float:
        """The eigenvalue of ``g2(λ)·∇E − I`` of a rank (0 is the largest) at a distance."""
        point = self.at(distance)
        values = self.solver.eigenvalues(point, rank + 1)
        return self.solver.second_weight(float(point[-1])) * float(values[rank]) - 1


def find_critical_points(
    problem: Problem,
    path: Path,
    settings: PathSettings = PathSettings(),  # noqa: B008 - an immutable tuple
    accuracy: float = 1e-6,
) -> list[CriticalPoint]:
    """The critical points between the points of a corrected path, in its order.

    Where dλ/ds changes sign there is a fold. Where an eigenvalue μ of ∇E passes 1/g2(λ), that is
    ``g2(λ)·μ − 1`` changes sign, and dλ/ds does not, there is a bifurcation; these are found only
    on paths with eigenvalues. Each is refined by Brent's method along the path, every trial being
    corrected: about 10 of them, each at the cost of a step. Two critical points of a kind in one
    step cancel out: a shorter `max_step` would part them.

    Args:
        problem: the problem.
        path: the path, from `follow_path` with corrected steps.
        settings: as it was followed.
        accuracy: error in λ.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.homotopy import Problem, Structure, follow_path
        >>> bent = lambda x: 1 / (0.3 * (x**2 - 4.5 * x + 6))
        >>> problem = Problem(bent, jnp.zeros(1), structure=Structure.SYMMETRIC)
        >>> points = find_critical_points(problem, follow_path(problem))
        >>> [(point.kind.name, round(point.lam, 3)) for point in points]
        [('FOLD', 0.75), ('FOLD', 0.6)]
    """
    base, double = settings.point_tolerance(problem.dtype), np.dtype(problem.dtype).itemsize >= 8
    tight = settings._replace(
        tolerance=base * TRIAL_SHARE if double else base,
        linear_tolerance=min(settings.linear_tolerance, 1e-6),
        tangent_tolerance=min(settings.kernel_tolerance(problem.dtype), 1e-7 if double else 1e-5),
        lanczos_steps=2 * settings.lanczos_steps,
        lanczos_accuracy=min(settings.lanczos_accuracy, 1e-4),
    )
    solver = Solver(problem, tight)
    critical = []
    with one_thread():
        for after in range(len(path.points) - 1):
            critical += _between(solver, path, after, accuracy)
    return critical


def _between(solver: Solver, path: Path, after: int, accuracy: float) -> list[CriticalPoint]:
    """The critical points between a point of the path and the next."""
    ends = slice(after, after + 2)
    slopes = path.slope[ends].tolist()
    # Eigenvalues of g2·∇E − I, [both ends, ranks].
    shifted = path.second_weight[ends, None] * path.eigenvalues[ends] - 1
    folds = (slopes[0] > 0) != (slopes[1] > 0)
    ranks = np.flatnonzero((shifted[0] > 0) != (shifted[1] > 0)).tolist()
    if not (folds or ranks):
        return []
    stretch, points = _Stretch(solver, path, after), []
    if folds:
        points.append(_refine(stretch, path, after, stretch.slope, slopes, Kind.FOLD, accuracy))
    for rank in ranks:
        excess = partial(stretch.excess, rank=rank)
        values = shifted[:, rank].tolist()
        crossing = _refine(stretch, path, after, excess, values, Kind.BIFURCATION, accuracy)
        # At a fold an eigenvalue passes 1/g2(λ) as well: that is no bifurcation of its own.
        near = math.sqrt(accuracy) * stretch.length + 10 * accuracy
        fold = points[0] if folds else None
        if fold and (
            abs(fold.arc - crossing.arc) <= near or abs(fold.lam - crossing.lam) <= accuracy
        ):
            points[0] = fold._replace(eigenvalue=crossing.eigenvalue)
        else:
            points.append(crossing)
    return sorted(points, key=lambda point: point.arc)


def _refine(
    stretch: _Stretch,
    path: Path,
    after: int,
    test: Callable[[float], float],
    ends: list[float],
    kind: Kind,
    accuracy: float,
) -> CriticalPoint:
    """Where a function of the distance, of known signs at both ends, is zero."""

    def function(distance: float) -> float:
        if distance in (0.0, stretch.length):
            return ends[int(distance > 0)]
        return test(distance)

    try:
        root = float(brentq(function, 0.0, stretch.length, xtol=accuracy / 4, rtol=1e-12))  # pyright: ignore[reportArgumentType]
        point, value, refined = stretch.at(root), function(root), True
        if kind is Kind.BIFURCATION:  # the sign at an end may have been wrong
            refined = abs(value) < VANISHING
    except _NotCorrected:
        root = stretch.length * ends[0] / (ends[0] - ends[1])
        share = root / stretch.length
        point = (1 - share) * stretch.begin + share * stretch.end
        value, refined = None, False
    eigenvalue = value if kind is Kind.BIFURCATION else None
    arc = path.arc[after] + (path.arc[after + 1] - path.arc[after]) * root / stretch.length
    return CriticalPoint(kind, float(point[-1]), point, float(arc), after, eigenvalue, refined)
