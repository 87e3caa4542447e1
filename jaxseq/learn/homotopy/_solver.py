"""Tangents, predictions and corrections on the path of one problem."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxseq.learn.homotopy._bordered import Solved, solve_dense, solve_matrix_free
from jaxseq.learn.homotopy._host import solve_on_host
from jaxseq.learn.homotopy._problem import Problem, keep_positive
from jaxseq.learn.homotopy._settings import Jacobian, Predictor, Settings
from jaxseq.learn.homotopy._spectrum import leading_eigenvalues


class Tangent(NamedTuple):
    """The unit tangent η at a point, and ‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖ there."""

    direction: np.ndarray
    residual: float


class Correction(NamedTuple):
    """Where Newton's method ended, and how it went: its steps, the length of the first, and the
    ratio of the second's to it (0 if there was none)."""

    point: np.ndarray
    residual: float
    converged: bool
    steps: int
    first: float
    contraction: float


def angle_between(one: np.ndarray, other: np.ndarray) -> float:
    """The angle between two unit vectors, in radians."""
    return math.acos(min(1.0, max(-1.0, float(one @ other))))


class Solver(NamedTuple):
    """A problem with the settings by which its path is followed."""

    problem: Problem
    settings: Settings

    @property
    def tolerance(self) -> float:
        """The bound on the relative residual of corrected points."""
        return self.settings.point_tolerance(self.problem.dtype)

    def _solve(self, point, row, anchor, newton: bool, enough: float, tolerance: float) -> Solved:
        dtype, settings = self.problem.dtype, self.settings
        at, normal, through = (jnp.asarray(array, dtype) for array in (point, row, anchor))
        bound, wanted = jnp.asarray(enough, dtype), jnp.asarray(newton)
        if settings.jacobian is Jacobian.DENSE:
            return solve_dense(self.problem, at, normal, through, wanted, bound)
        if self.problem.linearise is not None:
            return solve_on_host(
                self.problem,
                np.asarray(at),
                np.asarray(normal),
                np.asarray(through),
                newton,
                enough,
                tolerance,
                settings.krylov_size,
                settings.krylov_restarts,
            )
        return solve_matrix_free(
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

    def tangent(self, point: np.ndarray, before: np.ndarray) -> Tangent:
        """The unit tangent η at a point, with ``η·before ≥ 0``.

        At a bifurcation that rule keeps to the branch on which the path came.
        """
        tolerance = self.settings.kernel_tolerance(self.problem.dtype)
        found = self._solve(point, before, point, False, -1.0, tolerance)
        direction = np.asarray(found.solution)
        length = np.linalg.norm(direction)
        if length > 0 and math.isfinite(length):
            direction = direction / length
        return Tangent(direction, float(found.residual))

    def predict(self, point: np.ndarray, tangent: np.ndarray, step: float) -> np.ndarray:
        """The point about `step` further along the path."""

        def move(velocity: np.ndarray) -> np.ndarray:
            return keep_positive(self.problem, point, point + step * velocity)

        predictor = self.settings.predictor
        if predictor is Predictor.EULER:
            return move(tangent)
        second = self.tangent(move(tangent / 2), tangent).direction
        if predictor is Predictor.RK2:
            return move(second)
        third = self.tangent(move(2 * second - tangent), tangent).direction
        return move((tangent + 4 * second + third) / 6)

    def correct(self, start: np.ndarray, row: np.ndarray) -> Correction:
        """Newton's method from `start` to the path, in the hyperplane through it across `row`."""
        return self._newton(start, row, hold=False)

    def land(self, start: np.ndarray, lam: float) -> Correction:
        """Newton's method from `start` to the solution at a given λ."""
        row = np.zeros_like(start)
        row[-1] = 1
        return self._newton(np.append(start[:-1], np.asarray([lam], start.dtype)), row, hold=True)

    def _newton(self, start: np.ndarray, row: np.ndarray, hold: bool) -> Correction:
        """The same for both; to `hold` λ is to hold it exactly, where GMRES is only near."""
        point, lengths, residual = start, [], math.inf
        most = self.settings.max_corrections
        for number in range(most + 1):
            enough = self.tolerance if number < most else math.inf
            found = self._solve(point, row, start, True, enough, self.settings.linear_tolerance)
            residual = float(found.residual)
            if residual <= enough or not math.isfinite(residual):
                break
            moved = keep_positive(self.problem, point, point + np.asarray(found.solution))
            moved[-1] = start[-1] if hold else moved[-1]
            lengths.append(float(np.linalg.norm(moved - point)))
            if not math.isfinite(lengths[-1]) or lengths[-1] > lengths[0]:
                residual = math.inf
                break
            point = moved
        contraction = lengths[1] / lengths[0] if len(lengths) > 1 and lengths[0] > 0 else 0.0
        first = lengths[0] if lengths else 0.0
        converged = residual <= self.tolerance
        return Correction(point, residual, converged, len(lengths), first, contraction)

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
        return float(self.problem.weights(jnp.asarray(lam))[1])
