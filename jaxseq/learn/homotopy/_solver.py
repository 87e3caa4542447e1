"""Tangents, predictions and corrections on the path of one problem."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxseq.learn.homotopy._bordered import solve_dense, solve_matrix_free
from jaxseq.learn.homotopy._flat import flat_of, keep_positive
from jaxseq.learn.homotopy._frame import Frame, make_frame
from jaxseq.learn.homotopy._host import HostSolved, linearise_flat, one_thread, solve_on_host
from jaxseq.learn.homotopy._leading import (
    Leading,
    Seen,
    find_leading,
    nothing_leading,
    nothing_seen,
)
from jaxseq.learn.homotopy._problem import Problem, Structure
from jaxseq.learn.homotopy._settings import Jacobian, Predictor, Settings
from jaxseq.learn.homotopy._spectrum import leading_eigenvalues
from jaxseq.learn.homotopy._step_length import FAR, SLOW


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
