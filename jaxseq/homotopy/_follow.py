r"""Following the path of fixed points from λ = 0 to λ = 1.

Three things make the path of a large problem hard, and each has an answer below. A *hairpin* is a
turning point on which the path turns almost on the spot: a `Frame` stretches lengths there until
it is a bend. A *leap* is a step to another part of the path, past folds in between: `judge`
compares its chord with the tangents at its ends, and `turns_back` finds out by the *orientation*
of the path if a step has landed on a part that leads back. *Landing* is the last step, which ends
on λ = 1 exactly: where fixed points at λ = 1 are many, ∇E is nearly singular on the way to them,
and steps that have become tiny are taken with care, or straight to λ = 1.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from jaxseq._runtime import forget_programs, interrupts_deferred, progress_bar
from jaxseq.homotopy._linear import Leading, Seen, linearise_flat, one_thread, solve_bordered
from jaxseq.homotopy._path import (
    Event,
    NewPoint,
    Path,
    PathKeeper,
    PathOutcome,
    StepOutcome,
    load_path,
)
from jaxseq.homotopy._problem import (
    Jacobian,
    PathSettings,
    Predictor,
    Problem,
    Structure,
    check_settings,
    find_flat,
    keep_positive,
    least_tolerance,
    unraveller,
)
from jaxseq.homotopy._spectrum import find_leading, leading_eigenvalues

# -------------------------------------------------------------------------------------------------
# How lengths and angles are measured along a path.
#
# Near a turning point, the path of a large problem is a hairpin: one eigenvector of ∇E, whose
# eigenvalue μ passes 1/g2(λ), moves so little against all else that depends on λ, that the path
# turns on the spot. A frame stretches lengths along such eigenvectors, by their left ones ℓ:
#
#     ⟨a, b⟩ = a·b + Σ κ (ℓ·a)(ℓ·b),    κ = 1 / ((1 − g2(λ)·μ)² + δ²),
#
# so that a hairpin becomes a bend, with ℓ·z in place of λ for a parameter.


class Frame(NamedTuple):
    """An inner product: weights κ [k] and left eigenvectors ℓ [k, n]; Euclid's if k is 0."""

    weights: np.ndarray
    left: np.ndarray

    def row(self, vector: np.ndarray) -> np.ndarray:
        """The vector whose plain products are those with `vector` in this frame."""
        row = vector.copy()
        row[:-1] += (self.weights * (self.left @ vector[:-1])) @ self.left
        return row

    def product(self, one: np.ndarray, other: np.ndarray) -> float:
        """⟨one, other⟩."""
        first, second = self.left @ one[:-1], self.left @ other[:-1]
        return float(one @ other) + float((self.weights * first) @ second)

    def length(self, vector: np.ndarray) -> float:
        """‖vector‖."""
        return math.sqrt(self.product(vector, vector))

    def angle(self, one: np.ndarray, other: np.ndarray) -> float:
        """The angle between two vectors, in radians; 0 if one is 0."""
        lengths = self.length(one) * self.length(other)
        if not lengths > 0:
            return 0.0
        return math.acos(min(1.0, max(-1.0, self.product(one, other) / lengths)))


def make_frame(leading: Leading, second_weight: float, stretch: float | None) -> Frame:
    """The frame at a point with leading eigenvectors, g2(λ) and δ; Euclid's without δ."""
    if stretch is None:
        return Frame(np.zeros(0), leading.left[:0])
    weights = 1 / ((1 - second_weight * leading.values) ** 2 + stretch**2)
    return Frame(weights, leading.left.astype(np.float64))


class Hermite(NamedTuple):
    """``z(h) = end + h·first + h²/2·second + h³/6·third``, with h the length from its end on; it
    began at h = −span."""

    end: np.ndarray
    first: np.ndarray
    second: np.ndarray
    third: np.ndarray
    span: float

    def at(self, length: float) -> np.ndarray:
        """z(h)."""
        bend = self.second + length / 3 * self.third
        return self.end + length * (self.first + length / 2 * bend)

    def slope(self, length: float) -> np.ndarray:
        """z'(h)."""
        return self.first + length * (self.second + length / 2 * self.third)

    def growth(self, length: float, factor: float) -> float:
        """By how much its error, as a share of the length, grows with a length `factor` times."""
        wide = (factor * length + self.span) / (length + self.span)
        return factor * wide**2


def hermite_cubic(
    frame: Frame,
    begin: np.ndarray,
    end: np.ndarray,
    begin_tangent: np.ndarray,
    end_tangent: np.ndarray,
) -> Hermite:
    """The cubic through two points with given directions, and on, by length in a frame."""
    chord = end - begin
    span = frame.length(chord)
    before = begin_tangent / frame.length(begin_tangent)
    after = end_tangent / frame.length(end_tangent)
    mean = chord / span
    second = (2 * before + 4 * after - 6 * mean) / span
    third = (6 * before + 6 * after - 12 * mean) / span**2
    return Hermite(end, after, second, third, span)


# -------------------------------------------------------------------------------------------------
# How long the next step should be, by how the last one went.

WANTED_CONTRACTION, MOST_CONTRACTION = 0.1, 0.3
"""Of the ratio of a Newton step's length to that of the one before."""
WANTED_DISTANCE, MOST_DISTANCE = 0.06, 0.2
"""Of the length of the first Newton step, as a share of the step along the path."""
WANTED_ANGLE, MOST_ANGLE = 0.4, 0.8
"""Of the angle between tangents, in radians."""
LEAP_RATIO, LEAP_ANGLE = 1.3, 0.1
"""On a smooth arc the angles from a chord to the tangents at its ends add up to the angle between
these; if they are more than this ratio times that, and this angle, the chord may lead to another
part of the path, past folds in between."""
SHORTEST_FACTOR, LONGEST_FACTOR = 0.1, 2.5
"""Between one step and the next."""


class Step(NamedTuple):
    """How a step went; angles are 0 where they are not known."""

    contraction: float  # greatest ratio of the lengths of two Newton steps in a row
    distance: float  # length of the first Newton step, as a share of the step along the path
    angle: float = 0.0  # between the tangents at both ends, in radians
    chord: float = 0.0  # sum of the angles from the chord to either
    # By how much the predictor's share of error grows when steps are so many times as long.
    growth: Callable[[float], float] = lambda factor: factor


class Verdict(NamedTuple):
    """Whether a step is kept, and the factor by which to lengthen the next."""

    outcome: StepOutcome
    factor: float


def judge(step: Step, noise: float = 0.0) -> Verdict:
    """Compare a step with the wanted one (Allgower & Georg 2003, chapter 6).

    The contraction of Newton's method grows with the distance of the predicted point from the
    path, this as the predictor's error does, and angles in proportion to the step. `noise` is the
    error of a chord's angles.
    """
    by_contraction = _longest(lambda f: f * step.growth(f) * step.contraction <= WANTED_CONTRACTION)
    by_distance = _longest(lambda f: step.growth(f) * step.distance <= WANTED_DISTANCE)
    by_angle = _longest(lambda f: f * step.angle <= WANTED_ANGLE)
    shortest = min(by_contraction, by_distance, by_angle)
    # Written with `not`, so that a NaN shortens the step as well.
    if not step.distance <= MOST_DISTANCE:
        return Verdict(StepOutcome.SHORTENED_DISTANCE, min(by_distance, 0.5))
    if not step.contraction <= MOST_CONTRACTION:
        return Verdict(StepOutcome.SHORTENED_CONTRACTION, min(by_contraction, 0.5))
    if not step.angle <= MOST_ANGLE:
        return Verdict(StepOutcome.SHORTENED_ANGLE, min(by_angle, 0.5))
    if not step.chord <= LEAP_RATIO * step.angle + LEAP_ANGLE + noise:
        return Verdict(StepOutcome.SHORTENED_LEAP, min(shortest, 0.5))
    return Verdict(StepOutcome.ACCEPTED, shortest)


def _longest(holds: Callable[[float], bool]) -> float:
    """The largest factor allowed with which a condition holds, about; the least if none does."""
    if holds(LONGEST_FACTOR):
        return LONGEST_FACTOR
    low, high = SHORTEST_FACTOR, LONGEST_FACTOR
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return round(low, 5)


# -------------------------------------------------------------------------------------------------
# Tangents, predictions and corrections on the path of one problem.


class Tangent(NamedTuple):
    """The unit tangent η at a point, ‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖ there, and what was seen of ∇E."""

    direction: np.ndarray
    residual: float
    seen: Seen

    @property
    def is_finite(self) -> bool:
        """Whether the map, and its slope along the path, are."""
        return math.isfinite(self.residual) and bool(np.isfinite(self.direction).all())


class Correction(NamedTuple):
    """Where Newton's method ended, and how it went.

    The residual is ‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖, infinite if it gave up; `first` is the length of the
    first of its steps, `contraction` the greatest ratio of one's length to that before, or 0.
    """

    point: np.ndarray
    residual: float
    converged: bool
    steps: int
    first: float
    contraction: float


class Base(NamedTuple):
    """Where a step sets out from: the frame by which it is measured, and what is known of ∇E."""

    frame: Frame
    leading: Leading


class Solver(NamedTuple):
    """A problem with the settings by which its path is followed."""

    problem: Problem
    settings: PathSettings

    @property
    def tolerance(self) -> float:
        """The bound on the relative residual of corrected points."""
        return self.settings.point_tolerance(self.problem.dtype)

    @property
    def keeps_leading(self) -> bool:
        """Whether eigenvectors are kept from point to point."""
        return (
            self.settings.deflated > 0
            and self.problem.structure is not Structure.GENERAL
            and self.settings.jacobian is Jacobian.MATRIX_FREE
        )

    def base(self, point: np.ndarray, leading: Leading | None = None) -> Base:
        """The base at a point with known eigenvectors; these are sought if None."""
        if leading is None:
            leading = self.leading(point, Seen.nothing(self.problem.size))
        weight = self.second_weight(float(point[-1]))
        return Base(make_frame(leading, weight, self.settings.stretch), leading)

    def tangent(
        self,
        point: np.ndarray,
        before: np.ndarray,
        base: Base | None = None,
        guess: np.ndarray | None = None,
    ) -> Tangent:
        """The unit tangent η at a point, with ``⟨η, before⟩ ≥ 0`` in a frame (Euclid's if None).

        At a bifurcation that rule keeps to the branch on which the path came.
        """
        row, leading = self._across(before, base)
        tolerance = self.settings.kernel_tolerance(self.problem.dtype)
        solution = solve_bordered(*self, point, row, point, leading, tolerance, guess=guess)
        direction = solution.vector
        length = np.linalg.norm(direction)
        if length > 0 and math.isfinite(length):
            direction = direction / length
        return Tangent(direction, solution.residual, solution.seen)

    def _across(self, direction: np.ndarray, base: Base | None) -> tuple[np.ndarray, Leading]:
        """The unit row of the hyperplane across a direction, and what is known of ∇E."""
        if base is None:
            return direction, Leading.nothing(self.problem.size)
        row = base.frame.row(direction)
        return (row / np.linalg.norm(row) if len(base.frame.weights) else row), base.leading

    def predict(
        self, point: np.ndarray, tangent: np.ndarray, step: float, base: Base
    ) -> np.ndarray:
        """The point about `step` further along the path, by tangents of unit length in a frame."""

        def tangent_at(place: np.ndarray) -> np.ndarray:
            direction = self.tangent(place, tangent, base).direction
            return direction / base.frame.length(direction)

        def move(velocity: np.ndarray) -> np.ndarray:
            return keep_positive(self.problem, point, point + step * velocity)

        predictor = self.settings.predictor
        if predictor in (Predictor.EULER, Predictor.HERMITE):
            return move(tangent)
        second = tangent_at(move(tangent / 2))
        if predictor is Predictor.RK2:
            return move(second)
        third = tangent_at(move(2 * second - tangent))
        return move((tangent + 4 * second + third) / 6)

    def land(self, start: np.ndarray, lam: float, base: Base, step: float) -> Correction:
        """Newton's method from `start` to the solution at a given λ; as `correct` otherwise."""
        upwards = np.zeros_like(start)
        upwards[-1] = 1
        at = np.append(start[:-1], np.asarray([lam], start.dtype))
        return self.correct(at, upwards, base, step, hold=True)

    def correct(
        self,
        start: np.ndarray,
        direction: np.ndarray,
        base: Base | None = None,
        step: float = math.inf,
        hold: bool = False,
    ) -> Correction:
        """Newton's method from `start` to the path, in the hyperplane across a direction; it gives
        up if it leads too far as a share of the length `step`. To `hold` λ is to hold it exactly,
        where GMRES is only near."""
        row, leading = self._across(direction, base)
        reach = MOST_DISTANCE * step

        point, lengths, residual, contraction = start, [], math.inf, 0.0
        most, tolerance = self.settings.max_corrections, self.settings.linear_tolerance
        for number in range(most + 1):
            # After the last step nothing is solved: only the residual is looked at.
            enough = self.tolerance if number < most else math.inf
            solution = solve_bordered(*self, point, row, start, leading, tolerance, enough=enough)
            residual = solution.residual
            if residual <= enough or not math.isfinite(residual):
                break
            moved = keep_positive(self.problem, point, point + solution.vector)
            moved[-1] = start[-1] if hold else moved[-1]
            change = moved - point
            lengths.append(base.frame.length(change) if base else float(np.linalg.norm(change)))
            if len(lengths) > 1 and lengths[-2] > 0:
                contraction = max(contraction, lengths[-1] / lengths[-2])
            if not lengths[-1] <= reach or contraction > MOST_CONTRACTION:
                residual = math.inf  # `judge` would refuse it, so no more is spent on it
                break
            point = moved
        first = lengths[0] if lengths else 0.0
        converged = residual <= self.tolerance
        return Correction(point, residual, converged, len(lengths), first, contraction)

    def leading(
        self,
        point: np.ndarray,
        seen: Seen,
        before: Leading | None = None,
        count: int | None = None,
    ) -> Leading:
        """Eigenvectors of ∇E to keep, from what was seen of it at a point and before, the first
        `count` (by default as many as are recorded) to the settings' accuracy."""
        settings, nothing = self.settings, Leading.nothing(self.problem.size)
        if not self.keeps_leading:
            return nothing
        return find_leading(
            self.problem,
            point[:-1],
            linearise_flat(self.problem, point[:-1]).product,
            seen,
            before or nothing,
            count=count or max(settings.eigenvalues, 1),
            kept=max(settings.deflated, settings.eigenvalues, count or 0),
            accuracy=settings.lanczos_accuracy,
            most=settings.lanczos_steps,
        )

    def eigenvalues(self, point: np.ndarray, count: int | None = None) -> np.ndarray:
        """The largest eigenvalues of ∇E at a point, as many as the settings say."""
        settings, dtype = self.settings, self.problem.dtype
        count = count or settings.eigenvalues
        if not count:
            return np.zeros(0, dtype)
        dense, accuracy = settings.jacobian is Jacobian.DENSE, settings.lanczos_accuracy
        at, steps = point[:-1].astype(dtype), settings.lanczos_steps
        spectrum = leading_eigenvalues(self.problem, at, count, steps, dense, accuracy)
        return spectrum.values.astype(dtype)

    def second_weight(self, lam: float) -> float:
        """g2(λ)."""
        return find_flat(self.problem).weights(lam)[0][1]


# -------------------------------------------------------------------------------------------------
# Which way a path is followed: whether a step has leapt over a fold and turned back.
#
# Along a curve of solutions ``z(s) = (Θ̃, λ)`` with the unit tangent η, the determinant of
# ``[J; ηᵀ]`` keeps its sign, and so does what follows from it,
#
#     sign det(I − g2(λ)·∇E) · sign(dλ/ds) = (−1)^#{μ : g2(λ)·μ > 1} · sign(dλ/ds),
#
# with μ the eigenvalues of ∇E, which are real: a fold changes both signs, and only at a bifurcation
# that is leapt over does one change alone. At λ = 0 it is +1. Both sides of a hairpin lie side by
# side, with tangents alike but for their signs. A step from one to the other passes for a step
# along the path, and leads back on it, all the way to λ = 0: by this sign it is found out.
#
# References:
#     Allgower & Georg, Introduction to numerical continuation methods, SIAM 2003, chapter 2.1.

UNSURE_EIGENVALUE = 1e-3
"""An eigenvalue of ``g2(λ)·∇E − I`` nearer to 0 than this has no sign to be trusted."""
NEAR_TURN = 0.2
"""Those up to so far below 0 are looked at closely, in case of doubt."""
SHORT_CROSSING = 1e-4
"""Steps that turn back are tried again shorter; one as short as this share of ‖z‖ passes a
bifurcation, or two branches that come as near to each other as that."""
REVERSED_FACTOR = 0.25
"""How much shorter."""


def orientation(shifted: np.ndarray, slope: float, unsure: float = 0.0) -> int:
    """The sign above, of eigenvalues of ``g2(λ)·∇E − I`` and dλ/ds; 0 if one may be 0."""
    if (np.abs(shifted) <= unsure).any() or slope == 0:
        return 0
    return (-1 if (shifted > 0).sum() % 2 else 1) * (1 if slope > 0 else -1)


def expected_orientation(crossed: int) -> int:
    """+1, changed by every bifurcation that was passed."""
    return -1 if crossed % 2 else 1


def turns_back(solver: Solver, crossed: int, new: NewPoint, seen: Seen) -> bool:
    """Whether a point is on a part of the path that leads back; False where no eigenvectors are
    kept. Costs nothing, unless signs say so: then some ten products with ∇E."""
    slope, weight = float(new.tangent[-1]), new.second_weight
    if not solver.keeps_leading:
        return False
    expected, values = expected_orientation(crossed), new.leading.values
    if orientation(weight * values - 1, slope) == expected:
        return False
    # One more than seem near or past 1, as the rough ones may be a little larger than they look.
    count = int((weight * values > 1 - NEAR_TURN).sum()) + 1
    exact = solver.leading(new.point, seen, new.leading, count)
    noise = 10 * solver.settings.kernel_tolerance(solver.problem.dtype)
    if abs(slope) <= noise:  # on the fold itself the sign of dλ/ds means nothing
        return False
    return orientation(weight * exact.values - 1, slope, UNSURE_EIGENVALUE) == -expected


def is_crossing(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a step that turns back is short enough to have passed a bifurcation."""
    return bool(np.linalg.norm(after - before) <= SHORT_CROSSING * np.linalg.norm(before))


# -------------------------------------------------------------------------------------------------
# The path.


def follow_path(
    problem: Problem,
    settings: PathSettings = PathSettings(),  # noqa: B008 - an immutable tuple
    start: Path | None = None,
    watch: Callable[[Path], bool | None] = lambda path: None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = False,
) -> Path:
    """Follow the fixed points of EM_λ from λ = 0 to λ = 1 along arc length.

    The points ``z(s) = (Θ̃, λ)`` with ``R(z) = Θ̃ − EM_λ(Θ̃) = 0`` are a curve with the unit tangent
    ``R'(z) η = 0``, on which λ may turn back and forth again. From z, a predictor along η goes a
    step h further; Newton's method on ``R(z) = 0, η·(z − z_predicted) = 0`` brings that point
    back to the curve, to ‖EM_λ(Θ̃) − Θ̃‖ ≤ 1e-8 ‖Θ̃‖ (1e-5 in float32). The step length follows from
    how hard that was. The last step ends on λ = 1 exactly. Parameters of multinomials stay
    positive. At a bifurcation the path goes straight on (η·η_old ≥ 0): a step leaps over it. A step
    to the other side of a hairpin, from which the path would lead back, is found out where
    eigenvectors are kept (`PathSettings.deflated`).

    With `published_settings` it is the algorithm as published: steps η·δ, uncorrected, up to the
    first point with λ ≥ 1.

    A corrected step costs 2 or 3 linearisations of E for Newton's method and one for the tangent
    (RK2 has one, RK3 two more), with about 5 to 30 products with ∇E for each.

    Args:
        problem: the problem.
        settings: how to follow it.
        start: a path to go on from, exactly as if it had not stopped; None goes on from the
            checkpoint, if it is there.
        watch: called with the path after every step tried; ends it by returning True.
        checkpoint: a file to keep the path in, every ten seconds and at its end.
        progress: whether to show a bar; None shows it when standard error is a terminal.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.homotopy import Problem
        >>> def em_1(tilde):
        ...     share = tilde / tilde.sum()
        ...     return jnp.array([share[0] / 2 + 0.5, share[1] / 2])
        >>> path = follow_path(Problem(em_1, jnp.array([0.4, 0.6])))
        >>> path.lam[-1].item(), path.parameters(-1).round(3).tolist()
        (1.0, [1.0, 0.0])

    References:
        Haffari & Sarkar 2008, algorithm 1; Allgower & Georg, Introduction to numerical
        continuation methods, SIAM 2003, chapters 2, 6 and 7.
    """
    forget_programs()
    check_settings(settings, problem.dtype)
    solver = Solver(problem, settings)
    if start is None and checkpoint is not None and os.path.exists(checkpoint):
        start = load_path(checkpoint, problem, settings)
    keeper = PathKeeper(checkpoint, problem, settings)
    bar = progress_bar("homotopy", 100, progress, "residual")
    with bar as tick, interrupts_deferred() as pressed, one_thread():
        path = (start or _begin(solver))._replace(outcome=None)
        advance = _advance_corrected if settings.corrected else _advance_as_published
        try:
            while (outcome := path.outcome or _why_stop(path, settings)) is None:
                path = advance(solver, path)
                keeper.keep(path)
                tick(int(100 * min(max(path.lam[-1], 0), 1)), float(path.residual[-1]))
                if path.outcome is None and (watch(path) or pressed()):
                    return path._replace(outcome=PathOutcome.INTERRUPTED)
        finally:
            # Without an outcome: whether it ends here is asked again when it is gone on from.
            keeper.keep(path, at_once=True)
    return path._replace(outcome=outcome)


def _why_stop(path: Path, settings: PathSettings) -> PathOutcome | None:
    if path.lam[-1] >= 1:
        return PathOutcome.REACHED_ONE
    if len(path.events) >= settings.max_steps:
        return PathOutcome.MAX_STEPS
    if settings.corrected and path.next_step < settings.min_step:
        return PathOutcome.STEP_TOO_SMALL
    return None


def _begin(solver: Solver) -> Path:
    """The path that is only its point at λ = 0, where c is the solution."""
    problem = solver.problem
    constant = find_flat(problem).constant.astype(problem.dtype)
    point = np.append(constant, np.zeros(1, problem.dtype))
    upwards = np.zeros_like(point)
    upwards[-1] = 1
    tangent = solver.tangent(point, upwards)
    if not tangent.is_finite:
        raise ValueError("expect: expected finite values and slopes at the constant, got others")
    new = _measure(solver, point, tangent, 0.0, None)
    return Path.from_point(new, solver.settings.step, unraveller(problem))


LAST_ACCURACY = 1e-4
"""Of the last point's eigenvalues, which are sought anew, once per path."""


def _measure(
    solver: Solver,
    point: np.ndarray,
    tangent: Tangent,
    step: float,
    before: Leading | None,
    last: bool = False,
) -> NewPoint:
    """What is recorded of a point."""
    leading = solver.leading(point, tangent.seen, before)
    count = solver.settings.eigenvalues
    if not solver.keeps_leading:
        eigenvalues = solver.eigenvalues(point)
    else:
        short = max(count - len(leading.values), 0)
        eigenvalues = np.pad(leading.values, (0, short))[:count].astype(point.dtype)
        if last and count:
            # Where parameters vanish, the last point is unlike the one before it, and what was
            # known there of ∇E need not lead to the largest eigenvalues here: Lanczos, with nothing
            # presumed, looks for them too. Neither finds any that are too large (Cauchy's
            # interlacing), so the greater are nearer.
            settings = solver.settings._replace(lanczos_accuracy=LAST_ACCURACY)
            exact = solver._replace(settings=settings).eigenvalues(point)
            eigenvalues[: len(exact)] = np.maximum(eigenvalues[: len(exact)], exact)
    weight = solver.second_weight(float(point[-1]))
    return NewPoint(point, tangent.residual, step, tangent.direction, eigenvalues, weight, leading)


# -------------------------------------------------------------------------------------------------
# Care where steps fail or become tiny.
#
# Where ∇E is nearly singular and yet nothing turns, as it is towards a λ = 1 whose fixed points
# are many, a frame stretches errors of points and tangents, within their tolerances, to more
# than a step's length, and a cubic through points so near together predicts nothing. Plain
# lengths, Euler's steps and exact tangents then lead on.

FAILURES_UNTIL_CARE, TINY_SHARE, CAREFUL_STEPS = 4, 1e-6, 12
"""After so many failures in a row, or a step shorter than that share of ‖z‖, so many steps are
taken with care."""
NEAR_ONE, TINY_SHARE_NEAR_ONE = 0.05, 1e-4
"""No farther than this from λ = 1, a step shorter than that share is tiny already, and the first
with care tries to land."""
YARDSTICK_SHARE = 1e-3
"""Steps shorter than this share of ‖z‖ count as that long when their ends' distance from the path
is judged: the distance of their beginnings, within the tolerance, would be taken for it."""


def _is_stuck(path: Path, events: tuple[Event, ...]) -> bool:
    """Whether, a few steps ago at most, many in a row have failed or one was tiny."""
    is_near = 1 - float(path.lam[-1]) <= NEAR_ONE
    share = TINY_SHARE_NEAR_ONE if is_near else TINY_SHARE
    failures, tiny = 0, share * float(np.linalg.norm(path.points[-1]))
    recent = events[-(FAILURES_UNTIL_CARE + CAREFUL_STEPS) + 1 :]
    for number, event in enumerate(recent):
        failures = 0 if event.outcome.is_accepted else failures + 1
        short = event.step < tiny and number >= len(recent) - CAREFUL_STEPS
        if failures >= FAILURES_UNTIL_CARE or short:
            return True
    return False


def _with_care(solver: Solver, path: Path) -> Solver:
    """The solver for the next step: as the settings say, unless the path is stuck."""
    if not _is_stuck(path, path.events):
        return solver
    settings, dtype = solver.settings, solver.problem.dtype
    careful = settings._replace(
        predictor=Predictor.EULER,
        stretch=None,
        linear_tolerance=min(settings.linear_tolerance, 1e-4),
        tangent_tolerance=max(settings.kernel_tolerance(dtype) / 100, least_tolerance(dtype)),
    )
    return Solver(solver.problem, careful)


def _should_land(path: Path) -> bool:
    """Where the path gets stuck, and then at every so many steps: most are in vain, and cost little
    beside the crawling that one of them ends."""
    since = not _is_stuck(path, path.events[:-1]) or len(path.events) % CAREFUL_STEPS == 0
    return since and _is_stuck(path, path.events)


class _Trial(NamedTuple):
    """A step that was tried, before it is judged: its length, and whether it ends on λ = 1."""

    correction: Correction
    step: float
    lands: bool
    at_once: bool = False


def _land_at_once(solver: Solver, path: Path, base: Base) -> _Trial | None:
    """A step along the tangent to λ = 1, if that is near and can be corrected."""
    point, unit = path.points[-1], path.tangent / base.frame.length(path.tangent)
    left = 1 - float(point[-1])
    if not (unit[-1] > 0 and left <= NEAR_ONE):
        return None
    step = left / float(unit[-1])
    start = keep_positive(solver.problem, point, point + step * unit)
    landed = solver.land(start, 1.0, base, _yardstick(point, step))
    # Any of the many fixed points would do for Newton's method; the path leads to one ahead.
    if base.frame.angle(landed.point - point, unit) > LEAP_ANGLE:
        return None
    return _Trial(landed, step, True, at_once=True) if landed.converged else None


def _yardstick(point: np.ndarray, step: float) -> float:
    return max(step, YARDSTICK_SHARE * float(np.linalg.norm(point)))


# -------------------------------------------------------------------------------------------------
# One step more.


def _try_step(solver: Solver, path: Path, base: Base, cubic: Hermite | None) -> _Trial:
    """Predict and correct; a step that passes λ = 1 is ended there."""
    point, step = path.points[-1], path.next_step
    unit = path.tangent / base.frame.length(path.tangent)

    def predict(length: float) -> np.ndarray:
        if cubic is None:
            return solver.predict(point, unit, length, base)
        return keep_positive(solver.problem, point, cubic.at(length).astype(point.dtype))

    if _should_land(path):
        landed = _land_at_once(solver, path, base)
        if landed is not None:
            return landed
    predicted = predict(step)
    if predicted[-1] <= 1:
        correction = solver.correct(predicted, unit, base, _yardstick(point, step))
        if not correction.converged or correction.point[-1] <= 1:
            return _Trial(correction, step, False)
        predicted = correction.point
    # Past λ = 1: the share of the step that ends there, by proportion, and then at fixed λ.
    share = float((1 - point[-1]) / (predicted[-1] - point[-1]))
    start = point + share * (predicted - point) if cubic is None else predict(share * step)
    landed = solver.land(start, 1.0, base, _yardstick(point, share * step))
    return _Trial(landed, share * step, True)


def _advance_corrected(solver: Solver, path: Path) -> Path:
    """One step more, or the same path with a shorter step to try next."""
    solver, usual = _with_care(solver, path), solver
    last = path.points[-1]
    base, cubic = solver.base(last, path.leading), None
    if solver.settings.predictor is Predictor.HERMITE and len(path.points) > 1:
        cubic = hermite_cubic(base.frame, path.points[-2], last, path.earlier, path.tangent)
    trial = _try_step(solver, path, base, cubic)
    correction, lam, frame = trial.correction, float(path.lam[-1]), base.frame
    went = Step(correction.contraction, correction.first / _yardstick(last, trial.step))
    if cubic is not None:
        went = went._replace(growth=partial(cubic.growth, trial.step))

    def followed_by(following: Path, factor: float, chord: np.ndarray) -> Path:
        """The path with its next step: a factor times this one, as the next frame measures it."""
        after = _with_care(usual, following).base(following.points[-1], following.leading)
        measured = after.frame.length(chord) / frame.length(chord)
        length = min(trial.step * measured * factor, solver.settings.max_step)
        return following._replace(next_step=length)

    def shortened(outcome: StepOutcome, factor: float = 0.5) -> Path:
        event = Event(outcome, trial.step, lam, correction.steps)
        return followed_by(path.with_event(event), factor, path.tangent)

    # First what costs nothing, then the tangent at the end, then its eigenvectors.
    if not correction.converged:
        return shortened(*_why_not(trial, judge(went)))
    if correction.point[-1] < 0:
        return shortened(StepOutcome.SHORTENED_RANGE)
    guess = None if cubic is None else cubic.slope(trial.step)
    tangent = solver.tangent(correction.point, path.tangent, base, guess)
    if not np.isfinite(tangent.direction).all():
        return shortened(StepOutcome.SHORTENED_NOT_FINITE)
    chord = correction.point - last
    if not chord.any():
        return shortened(StepOutcome.SHORTENED_DIVERGED)
    if trial.at_once:  # where fixed points are many, so are tangents, and most lead nowhere
        tangent = tangent._replace(direction=chord / np.linalg.norm(chord))
    if trial.lands and not tangent.direction[-1] > 0:
        return shortened(StepOutcome.SHORTENED_OVERSHOT)  # λ = 1 is first reached from below
    ends = (path.tangent, tangent.direction)
    verdict = judge(
        went._replace(angle=frame.angle(*ends), chord=sum(frame.angle(chord, end) for end in ends)),
        noise=_noise(solver, correction.point, frame) / trial.step,
    )
    if not verdict.outcome.is_accepted:
        return shortened(*verdict)
    new = _measure(solver, correction.point, tangent, trial.step, path.leading, last=trial.lands)
    outcome = StepOutcome.LANDED if trial.lands else StepOutcome.ACCEPTED
    if not trial.lands and turns_back(solver, path.crossed, new, tangent.seen):
        if not is_crossing(last, new.point):
            return shortened(StepOutcome.SHORTENED_REVERSED, REVERSED_FACTOR)
        outcome = StepOutcome.CROSSED
    event = Event(outcome, trial.step, lam, correction.steps)
    # A length that has just failed would fail again: no growth right after.
    failed = bool(path.events) and not path.events[-1].outcome.is_accepted
    factor = min(verdict.factor, 1.0) if failed else verdict.factor
    return followed_by(path.with_point(new).with_event(event), factor, chord)


def _noise(solver: Solver, point: np.ndarray, frame: Frame) -> float:
    """About how far a corrected point may be from the path, in a frame.

    Along an eigenvector the distance is 1/|1 − g2(λ)·μ| times the residual, about the square root
    of its weight in the frame, which stretches it by as much again.
    """
    residual = solver.tolerance * float(np.linalg.norm(point))
    return 10 * residual * (1 + float(frame.weights.max(initial=0.0)))


def _why_not(trial: _Trial, verdict: Verdict) -> Verdict:
    """What came of a step whose end could not be corrected."""
    if not math.isfinite(trial.correction.residual) and trial.correction.steps == 0:
        return Verdict(StepOutcome.SHORTENED_NOT_FINITE, 0.5)
    if trial.lands:
        return Verdict(StepOutcome.SHORTENED_OVERSHOT, 0.5)
    if verdict.outcome.is_accepted:
        return Verdict(StepOutcome.SHORTENED_DIVERGED, 0.5)
    return verdict


def _advance_as_published(solver: Solver, path: Path) -> Path:
    """Algorithm 1 of Haffari & Sarkar 2008: one Euler step, whatever comes of it."""
    step, lam = solver.settings.step, float(path.lam[-1])
    point = path.points[-1] + step * path.tangent
    tangent = solver.tangent(point, path.tangent)
    if not tangent.is_finite:
        return path._replace(outcome=PathOutcome.NOT_FINITE)
    longer = path.with_point(_measure(solver, point, tangent, step, path.leading))
    outcome = PathOutcome.LEFT_RANGE if point[-1] < 0 else None
    return longer.with_event(Event(StepOutcome.ACCEPTED, step, lam, 0))._replace(outcome=outcome)


# -------------------------------------------------- critical points: where I − g2(λ)·∇E is singular

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
