"""Following the path of fixed points from λ = 0 to λ = 1."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxseq._runtime import interrupts_deferred, progress_bar
from jaxseq.homotopy._linear import (
    HostSolved,
    Leading,
    Seen,
    find_leading,
    linearise_flat,
    nothing_leading,
    nothing_seen,
    one_thread,
    solve_dense,
    solve_matrix_free,
    solve_on_host,
)
from jaxseq.homotopy._path import (
    Event,
    NewPoint,
    Outcome,
    Path,
    PathKeeper,
    StepOutcome,
    extend,
    first_point,
    load_path,
    tried,
)
from jaxseq.homotopy._problem import (
    Problem,
    Structure,
    flat_map,
    flat_of,
    keep_positive,
    unraveller,
)
from jaxseq.homotopy._settings import Jacobian, Predictor, Settings, check_settings, least_tolerance
from jaxseq.homotopy._spectrum import leading_eigenvalues

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
        if not len(self.weights):
            return vector
        found = vector.copy()
        found[:-1] += (self.weights * (self.left @ vector[:-1])) @ self.left
        return found

    def product(self, one: np.ndarray, other: np.ndarray) -> float:
        """⟨one, other⟩."""
        plain = float(one @ other)
        if not len(self.weights):
            return plain
        return plain + float(
            (self.weights * (self.left @ one[:-1])) @ (self.left @ other[:-1])
        )  # fmt: skip

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
    """The frame at a point with leading eigenvectors.

    Args:
        leading: of ∇E there.
        second_weight: g2(λ) there.
        stretch: δ; None for Euclid's frame.

    Example:
        >>> left = np.array([[1.0, 0.0]])
        >>> frame = make_frame(Leading(np.array([2.0]), left, left), 0.5, 0.5)
        >>> round(frame.length(np.array([1.0, 0.0, 0.0])), 6)  # the square root of 1 + 1/0.25
        2.236068
    """
    if stretch is None:
        return Frame(np.zeros(0), leading.left[:0])
    weights = 1 / ((1 - second_weight * leading.values) ** 2 + stretch**2)
    return Frame(weights, leading.left.astype(np.float64))


# -------------------------------------------------------------------------------------------------
# The cubic through two points of a path and their tangents, and on beyond them.


class Hermite(NamedTuple):
    """``z(h) = end + h·first + h²/2·second + h³/6·third``, h a length from its end on.

    span: the length from its beginning to its end.

    Example:
        >>> plain = Frame(np.zeros(0), np.zeros((0, 1)))
        >>> ends, tangents = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
        >>> hermite_cubic(plain, *ends, *tangents).at(0.5).tolist()
        [1.5, 0.0]
    """

    end: np.ndarray
    first: np.ndarray
    second: np.ndarray
    third: np.ndarray
    span: float

    def at(self, length: float) -> np.ndarray:
        """z(h)."""
        return self.end + length * (
            self.first + length / 2 * (self.second + length / 3 * self.third)
        )

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
    """The cubic through two points with given directions, by length in a frame."""
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


CONTRACTION, SLOW = 0.1, 0.3
"""Wanted and greatest ratio of a Newton step's length to that of the one before."""
DISTANCE, FAR = 0.06, 0.2
"""Wanted and greatest length of the first Newton step, as a share of the step along the path."""
ANGLE, SHARP = 0.4, 0.8
"""Wanted and greatest angle between tangents, in radians."""
UNEVEN, LEAP = 1.3, 0.1
"""On a smooth arc the angles from a chord to the tangents at its ends add up to the angle between
these; if they are more than UNEVEN times that and LEAP, the chord may lead to another part of the
path, past folds in between."""
LEAST, MOST = 0.1, 2.5
"""Factors between one step and the next."""


class Step(NamedTuple):
    """How a step went.

    Attributes:
        contraction: greatest ratio of the lengths of two Newton steps in a row.
        distance: length of the first Newton step, as a share of the step along the path.
        angle: between the tangents at both ends, in radians; 0 if not known.
        chord: sum of the angles from the chord to either; 0 if not known.
        growth: by how much the predictor's error, as a share of the step, grows when steps are
            so many times as long.
    """

    contraction: float
    distance: float
    angle: float = 0.0
    chord: float = 0.0
    growth: Callable[[float], float] = lambda factor: factor


class Verdict(NamedTuple):
    """Whether a step is kept, and the factor by which to lengthen the next."""

    outcome: StepOutcome
    factor: float


def judge(step: Step, noise: float = 0.0) -> Verdict:
    """Compare a step with the wanted one (Allgower & Georg 2003, chapter 6).

    The contraction of Newton's method grows with the distance of the predicted point from the
    path, this as the predictor's error does, and angles in proportion to the step.

    Args:
        step: how it went.
        noise: error of a chord's angles.

    Example:
        >>> judge(Step(0.0, 0.03, 0.1))
        Verdict(outcome=<StepOutcome.ACCEPTED: 'accepted'>, factor=2.0)
        >>> judge(Step(0.0, 0.03, 0.9)).outcome.value
        'step shortened because the path bends too much along it'
    """
    by_contraction = _longest(lambda f: f * step.growth(f) * step.contraction <= CONTRACTION)
    by_distance = _longest(lambda f: step.growth(f) * step.distance <= DISTANCE)
    by_angle = _longest(lambda f: f * step.angle <= ANGLE)
    shortest = min(by_contraction, by_distance, by_angle)
    if not step.distance <= FAR:
        return Verdict(StepOutcome.SHORTENED_DISTANCE, min(by_distance, 0.5))
    if not step.contraction <= SLOW:
        return Verdict(StepOutcome.SHORTENED_CONTRACTION, min(by_contraction, 0.5))
    if not step.angle <= SHARP:
        return Verdict(StepOutcome.SHORTENED_ANGLE, min(by_angle, 0.5))
    if not step.chord <= UNEVEN * step.angle + LEAP + noise:
        return Verdict(StepOutcome.SHORTENED_LEAP, min(shortest, 0.5))
    return Verdict(StepOutcome.ACCEPTED, shortest)


def _longest(holds: Callable[[float], bool]) -> float:
    """The largest factor allowed with which a condition holds, about; the least if none."""
    if holds(MOST):
        return MOST
    low, high = LEAST, MOST
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


class Correction(NamedTuple):
    """Where Newton's method ended, and how it went: its steps, the length of the first, and the
    greatest ratio of one's length to that of the one before (0 if there was none)."""

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
    settings: Settings

    @property
    def tolerance(self) -> float:
        """The bound on the relative residual of corrected points."""
        return self.settings.point_tolerance(self.problem.dtype)

    @property
    def keeps_leading(self) -> bool:
        """Whether eigenvectors are kept from point to point."""
        return (
            self.settings.deflated > 0
            and self.problem.linearise is not None
            and self.problem.structure is not Structure.GENERAL
            and self.settings.jacobian is Jacobian.MATRIX_FREE
        )

    def base(self, point: np.ndarray, leading: Leading | None = None) -> Base:
        """The base at a point with known eigenvectors; these are sought if None."""
        if leading is None:
            leading = self.leading(point, nothing_seen(self.problem.size))
        weight = self.second_weight(float(point[-1]))
        return Base(make_frame(leading, weight, self.settings.stretch), leading)

    def _solve(
        self, point, row, anchor, newton: bool, enough: float, tolerance: float, leading, guess=None
    ) -> HostSolved:
        dtype, settings = self.problem.dtype, self.settings
        if self.problem.linearise is not None and settings.jacobian is Jacobian.MATRIX_FREE:
            return solve_on_host(
                self.problem,
                np.asarray(point, dtype),
                np.asarray(row, dtype),
                np.asarray(anchor, dtype),
                newton,
                enough,
                tolerance,
                settings.krylov_size,
                settings.krylov_restarts,
                leading,
                guess,
            )
        at, normal, through = (jnp.asarray(array, dtype) for array in (point, row, anchor))
        bound, wanted = jnp.asarray(enough, dtype), jnp.asarray(newton)
        if settings.jacobian is Jacobian.DENSE:
            found = solve_dense(self.problem, at, normal, through, wanted, bound)
        else:
            found = solve_matrix_free(
                self.problem,
                at,
                normal,
                through,
                wanted,
                bound,
                jnp.asarray(tolerance, dtype),
                settings.krylov_size,
                settings.krylov_restarts,
            )
        seen = nothing_seen(self.problem.size)
        return HostSolved(np.asarray(found.solution), float(found.residual), seen)

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
        tolerance = self.settings.kernel_tolerance(self.problem.dtype)
        row, leading = self._across(before, base)
        found = self._solve(point, row, point, False, -1.0, tolerance, leading, guess)
        direction = found.solution
        length = np.linalg.norm(direction)
        if length > 0 and math.isfinite(length):
            direction = direction / length
        return Tangent(direction, found.residual, found.seen)

    def _across(self, direction: np.ndarray, base: Base | None) -> tuple[np.ndarray, Leading]:
        """The unit row of the hyperplane across a direction, and what is known of ∇E."""
        if base is None:
            return direction, nothing_leading(self.problem.size)
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

    def correct(
        self,
        start: np.ndarray,
        direction: np.ndarray,
        base: Base | None = None,
        step: float = math.inf,
    ) -> Correction:
        """Newton's method from `start` to the path, in the hyperplane across a direction.

        Args:
            start: a point near the path.
            direction: to which the hyperplane through it is orthogonal, in the base's frame.
            base: the frame, and what is known of ∇E.
            step: a length: Newton's method gives up if it leads too far as a share of that.
        """
        row, leading = self._across(direction, base)
        return self._newton(start, row, False, base, leading, FAR * step)

    def land(self, start: np.ndarray, lam: float, base: Base, step: float) -> Correction:
        """Newton's method from `start` to the solution at a given λ; as `correct` otherwise."""
        row = np.zeros_like(start)
        row[-1] = 1
        at = np.append(start[:-1], np.asarray([lam], start.dtype))
        return self._newton(at, row, True, base, base.leading, FAR * step)

    def _newton(
        self,
        start: np.ndarray,
        row: np.ndarray,
        hold: bool,
        base: Base | None,
        leading: Leading,
        reach: float,
    ) -> Correction:
        """The same for both; to `hold` λ is to hold it exactly, where GMRES is only near."""
        point, lengths, residual, contraction = start, [], math.inf, 0.0
        most, tolerance = self.settings.max_corrections, self.settings.linear_tolerance
        for number in range(most + 1):
            enough = self.tolerance if number < most else math.inf
            found = self._solve(point, row, start, True, enough, tolerance, leading)
            residual = found.residual
            if residual <= enough or not math.isfinite(residual):
                break
            moved = keep_positive(self.problem, point, point + found.solution)
            moved[-1] = start[-1] if hold else moved[-1]
            change = moved - point
            lengths.append(base.frame.length(change) if base else float(np.linalg.norm(change)))
            if len(lengths) > 1 and lengths[-2] > 0:
                contraction = max(contraction, lengths[-1] / lengths[-2])
            if not lengths[-1] <= reach or contraction > SLOW:
                residual = math.inf
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
        settings, nothing = self.settings, nothing_leading(self.problem.size)
        if not self.keeps_leading:
            return nothing
        product = linearise_flat(self.problem, point[:-1]).product
        with one_thread():
            return find_leading(
                self.problem,
                point[:-1],
                product,
                seen,
                before or nothing,
                count=count or max(settings.eigenvalues, 1),
                kept=max(settings.deflated, settings.eigenvalues, count or 0),
                accuracy=settings.lanczos_accuracy,
                most=settings.lanczos_steps,
            )

    def eigenvalues(self, point: np.ndarray, count: int | None = None) -> np.ndarray:
        """The largest eigenvalues of ∇E at a point, as many as the settings say."""
        settings = self.settings
        if not (count or settings.eigenvalues):
            return np.zeros(0, self.problem.dtype)
        return leading_eigenvalues(
            self.problem,
            jnp.asarray(point[:-1]),
            count or settings.eigenvalues,
            settings.lanczos_steps,
            settings.jacobian is Jacobian.DENSE,
            settings.lanczos_accuracy,
        ).values

    def second_weight(self, lam: float) -> float:
        """g2(λ)."""
        return flat_of(self.problem).weights(lam)[0][1]


# -------------------------------------------------------------------------------------------------
# Which way a path is followed: whether a step has leapt over a fold and turned back.
#
# Along a curve of solutions ``z(s) = (Θ̃, λ)`` with the unit tangent η, the determinant of
# ``[J; ηᵀ]`` keeps its sign, and so does what follows from it,
#
# .. math::
#     \operatorname{sign} \det(I - g_2(\lambda) \nabla E) \cdot \operatorname{sign}(d\lambda / ds)
#     = (-1)^{\#\{\mu : g_2(\lambda) \mu > 1\}} \operatorname{sign}(d\lambda / ds),
#
# with μ the eigenvalues of ∇E, which are real: a fold changes both signs, and only at a bifurcation
# that is leapt over does one change alone. At λ = 0 it is +1. Both sides of a hairpin lie side by
# side, with tangents alike but for their signs. A step from one to the other passes for a step along
# the path, and leads back on it, all the way to λ = 0: by this sign it is found out.
#
# References:
#     Allgower & Georg, Introduction to numerical continuation methods, SIAM 2003, chapter 2.1.


UNSURE = 1e-3
"""An eigenvalue of ``g2(λ)·∇E − I`` nearer to 0 than this has no sign to be trusted."""
NEAR_TURN = 0.2
"""Those up to so far below 0 are looked at closely, in case of doubt."""
CLOSE = 1e-4
"""Steps that turn back are tried again shorter; one as short as this share of ‖z‖ passes a
bifurcation, or two branches that come as near to each other as that."""
SHORTER = 0.25
"""How much shorter."""


def sign_of(shifted: np.ndarray, slope: float, unsure: float = 0.0) -> int:
    """The sign above, of eigenvalues of ``g2(λ)·∇E − I`` and dλ/ds; 0 if one may be 0.

    Example:
        >>> sign_of(np.array([0.5, -0.5]), 1.0), sign_of(np.array([0.5, 0.5]), 1.0)
        (-1, 1)
    """
    if (np.abs(shifted) <= unsure).any() or slope == 0:
        return 0
    return (-1 if (shifted > 0).sum() % 2 else 1) * (1 if slope > 0 else -1)


def expected_sign(crossed: int) -> int:
    """+1, changed by every bifurcation that was passed."""
    return -1 if crossed % 2 else 1


def turns_back(solver: Solver, crossed: int, new: NewPoint, seen: Seen) -> bool:
    """Whether a point is on a part of the path that leads back.

    Args:
        solver: with the problem, and settings that keep eigenvectors; False without.
        crossed: bifurcations that the path has passed so far.
        new: the point, with eigenvalues of ∇E, all but the first of them rough.
        seen: what was seen of ∇E there.

    Cost: none, unless signs say so: then some ten products with ∇E.
    """
    slope, weight = float(new.tangent[-1]), new.second_weight
    if not solver.keeps_leading:
        return False
    expected, values = expected_sign(crossed), new.leading.values
    if sign_of(weight * values - 1, slope) == expected:
        return False
    count = int((weight * values > 1 - NEAR_TURN).sum()) + 1
    exact: Leading = solver.leading(new.point, seen, new.leading, count)
    noise = 10 * solver.settings.kernel_tolerance(solver.problem.dtype)
    if abs(slope) <= noise:
        return False
    return sign_of(weight * exact.values - 1, slope, UNSURE) == -expected


def is_crossing(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a step that turns back is short enough to have passed a bifurcation."""
    return bool(np.linalg.norm(after - before) <= CLOSE * np.linalg.norm(before))


STUCK, TINY, CAREFUL = 4, 1e-6, 12
"""After so many failures in a row, or a step shorter than that share of ‖z‖, so many steps are
taken with care: see `_with_care`."""
NEAR, SHORT_OF_ONE = 0.05, 1e-4
"""No farther than this from λ = 1, a step shorter than that share is tiny already, and the first
with care tries to land."""
EXACT = 1e-4
"""Accuracy of the last point's eigenvalues, which are sought anew, once a path."""
SHORT = 1e-3
"""Steps shorter than this share of ‖z‖ count as that long when their ends' distance from the path
is judged: the distance of their beginnings, within the tolerance, would be taken for it."""


def follow_path(
    problem: Problem,
    settings: Settings = Settings(),  # noqa: B008 - an immutable tuple
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
    eigenvectors are kept (`Settings.deflated`; `_orientation`).

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
    check_settings(settings, problem.dtype)
    solver = Solver(problem, settings)
    if start is None and checkpoint is not None and os.path.exists(checkpoint):
        start = load_path(checkpoint, problem, settings)
    keeper = PathKeeper(checkpoint, problem, settings)
    path = (start or _begin(solver))._replace(outcome=None)
    advance = _advance_corrected if settings.corrected else _advance_as_published
    bar = progress_bar("homotopy", 100, progress, "residual")
    with bar as tick, interrupts_deferred() as pressed, one_thread():
        try:
            while (outcome := _why_stop(path, settings)) is None:
                path = advance(solver, path)
                keeper.keep(path)
                tick(int(100 * min(max(path.lam[-1], 0), 1)), float(path.residual[-1]))
                if path.outcome is None and (watch(path) or pressed()):
                    return path._replace(outcome=Outcome.INTERRUPTED)
                if path.outcome is not None:
                    return path
        finally:
            keeper.keep(path, at_once=True)
    return path._replace(outcome=outcome)


def _why_stop(path: Path, settings: Settings) -> Outcome | None:
    if path.lam[-1] >= 1:
        return Outcome.REACHED_ONE
    if len(path.events) >= settings.max_steps:
        return Outcome.MAX_STEPS
    if settings.corrected and path.next_step < settings.min_step:
        return Outcome.STEP_TOO_SMALL
    return None


def _begin(solver: Solver) -> Path:
    """The path that is only its point at λ = 0, where c is the solution."""
    point = np.append(np.asarray(flat_map(solver.problem)[0]), np.zeros(1, solver.problem.dtype))
    upwards = np.zeros_like(point)
    upwards[-1] = 1
    tangent = solver.tangent(point, upwards)
    if not (math.isfinite(tangent.residual) and np.isfinite(tangent.direction).all()):
        raise ValueError("expect: expected finite values and slopes at the constant, got others")
    new = _measure(solver, point, tangent, 0.0, None)
    return first_point(new, solver.settings.step, unraveller(solver.problem))


def _measure(
    solver: Solver,
    point: np.ndarray,
    tangent: Tangent,
    step: float,
    before: Leading | None,
    last: bool = False,
) -> NewPoint:
    """What is recorded of a point.

    Where parameters vanish, the last point is unlike the one before it, and what was known there
    of ∇E need not lead to the largest eigenvalues here: Lanczos, with nothing presumed, looks for
    them too. Both find none that are too large (Cauchy's interlacing): the greater are nearer.
    """
    leading = solver.leading(point, tangent.seen, before)
    count = solver.settings.eigenvalues
    if not solver.keeps_leading:
        eigenvalues = solver.eigenvalues(point)
    else:
        short = max(count - len(leading.values), 0)
        eigenvalues = np.pad(leading.values, (0, short))[:count].astype(point.dtype)
        if last and count:
            exact = solver._replace(settings=solver.settings._replace(lanczos_accuracy=EXACT))
            found = exact.eigenvalues(point)
            eigenvalues[: len(found)] = np.maximum(eigenvalues[: len(found)], found)
    weight = solver.second_weight(float(point[-1]))
    return NewPoint(point, tangent.residual, step, tangent.direction, eigenvalues, weight, leading)


class _Trial(NamedTuple):
    """A step that was tried, before it is judged."""

    correction: Correction
    step: float
    lands: bool
    at_once: bool = False


def _is_stuck(path: Path, events: tuple[Event, ...]) -> bool:
    """Whether, a few steps ago at most, many in a row have failed or one was tiny."""
    share = SHORT_OF_ONE if 1 - float(path.lam[-1]) <= NEAR else TINY
    failures, tiny = 0, share * float(np.linalg.norm(path.points[-1]))
    recent = events[-(STUCK + CAREFUL) + 1 :]
    for number, event in enumerate(recent):
        failures = 0 if event.outcome.is_accepted else failures + 1
        short = event.step < tiny and number >= len(recent) - CAREFUL
        if failures >= STUCK or short:
            return True
    return False


def _with_care(solver: Solver, path: Path) -> Solver:
    """The solver for the next step: as the settings say, unless the path is stuck.

    Where ∇E is nearly singular and yet nothing turns, as it is towards a λ = 1 whose fixed points
    are many, a frame stretches errors of points and tangents, within their tolerances, to more
    than a step's length, and a cubic through points so near together foretells nothing. Plain
    lengths, Euler's steps and exact tangents then lead on.
    """
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


def _cubic(solver: Solver, path: Path, base: Base) -> Hermite | None:
    """The cubic through the last two points, if it is wanted and there are two."""
    if solver.settings.predictor is not Predictor.HERMITE or len(path.points) < 2:
        return None
    begin, end = path.points[-2:]
    return hermite_cubic(base.frame, begin, end, path.earlier, path.tangent)


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
    share = float((1 - point[-1]) / (predicted[-1] - point[-1]))
    start = point + share * (predicted - point) if cubic is None else predict(share * step)
    landed = solver.land(start, 1.0, base, _yardstick(point, share * step))
    return _Trial(landed, share * step, True)


def _should_land(path: Path) -> bool:
    """Where the path gets stuck, and then at every so many steps: most are in vain, and cost little
    beside the crawling that one of them ends."""
    if not _is_stuck(path, path.events):
        return False
    return not _is_stuck(path, path.events[:-1]) or len(path.events) % CAREFUL == 0


def _land_at_once(solver: Solver, path: Path, base: Base) -> _Trial | None:
    """A step along the tangent to λ = 1, if that is near and can be corrected."""
    point, unit = path.points[-1], path.tangent / base.frame.length(path.tangent)
    left = 1 - float(point[-1])
    if not (unit[-1] > 0 and left <= NEAR):
        return None
    step = left / float(unit[-1])
    start = keep_positive(solver.problem, point, point + step * unit)
    landed = solver.land(start, 1.0, base, _yardstick(point, step))
    if base.frame.angle(landed.point - point, unit) > LEAP:
        return None
    return _Trial(landed, step, True, at_once=True) if landed.converged else None


def _yardstick(point: np.ndarray, step: float) -> float:
    return max(step, SHORT * float(np.linalg.norm(point)))


def _advance_corrected(solver: Solver, path: Path) -> Path:
    """One step more, or the same path with a shorter step to try next."""
    solver, usual = _with_care(solver, path), solver
    base = solver.base(path.points[-1], path.leading)
    cubic = _cubic(solver, path, base)
    trial = _try_step(solver, path, base, cubic)
    correction, lam = trial.correction, float(path.lam[-1])
    went = Step(correction.contraction, correction.first / _yardstick(path.points[-1], trial.step))
    if cubic is not None:
        went = went._replace(growth=partial(cubic.growth, trial.step))

    def followed_by(following: Path, factor: float, chord: np.ndarray) -> Path:
        """The path with its next step: a factor times this one, as the next frame measures it."""
        after = _with_care(usual, following).base(following.points[-1], following.leading)
        measured = after.frame.length(chord) / base.frame.length(chord)
        length = min(trial.step * measured * factor, solver.settings.max_step)
        return following._replace(next_step=length)

    def shortened(outcome: StepOutcome, factor: float = 0.5) -> Path:
        event = Event(outcome, trial.step, lam, correction.steps)
        return followed_by(tried(path, event), factor, path.tangent)

    if not correction.converged:
        return shortened(*_why_not(trial, judge(went)))
    if correction.point[-1] < 0:
        return shortened(StepOutcome.SHORTENED_RANGE)
    guess = None if cubic is None else cubic.slope(trial.step)
    tangent = solver.tangent(correction.point, path.tangent, base, guess)
    if not np.isfinite(tangent.direction).all():
        return shortened(StepOutcome.SHORTENED_NOT_FINITE)
    chord, frame = correction.point - path.points[-1], base.frame
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
    new = _measure(
        solver, correction.point, tangent, trial.step, path.leading, last=trial.lands
    )  # fmt: skip
    outcome = StepOutcome.LANDED if trial.lands else StepOutcome.ACCEPTED
    if not trial.lands and turns_back(solver, path.crossed, new, tangent.seen):
        if not is_crossing(path.points[-1], new.point):
            return shortened(StepOutcome.SHORTENED_REVERSED, SHORTER)
        outcome = StepOutcome.CROSSED
    event = Event(outcome, trial.step, lam, correction.steps)
    # A length that has just failed would fail again: no growth right after.
    failed = bool(path.events) and not path.events[-1].outcome.is_accepted
    factor = min(verdict.factor, 1.0) if failed else verdict.factor
    return followed_by(tried(extend(path, new), event), factor, chord)


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
    """Algorithm 1 of the paper: one Euler step, whatever comes of it."""
    step, lam = solver.settings.step, float(path.lam[-1])
    point = path.points[-1] + step * path.tangent
    tangent = solver.tangent(point, path.tangent)
    event = Event(StepOutcome.ACCEPTED, step, lam, 0)
    if not (math.isfinite(tangent.residual) and np.isfinite(tangent.direction).all()):
        return path._replace(outcome=Outcome.NOT_FINITE)
    longer = extend(path, _measure(solver, point, tangent, step, path.leading))
    outcome = Outcome.LEFT_RANGE if point[-1] < 0 else None
    return tried(longer, event)._replace(outcome=outcome)
