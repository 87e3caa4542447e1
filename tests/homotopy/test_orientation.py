"""Paths that leap to the other side of a hairpin, or to another branch, are found out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from jaxseq.homotopy import PathOutcome, PathSettings, Problem, StepOutcome, Structure, follow_path
from jaxseq.homotopy._follow import (
    Solver,
    expected_orientation,
    is_crossing,
    orientation,
    turns_back,
)
from jaxseq.homotopy._linear import Leading, Seen
from jaxseq.homotopy._path import NewPoint
from tests.homotopy import test_problems as problems

WATCHED = PathSettings(deflated=1, eigenvalues=1)
PLAIN = PathSettings(eigenvalues=1)
"""Without eigenvectors that are kept, nothing is known of the determinant."""


def on_the_host(expect, constant) -> Problem:
    """A problem that is linearised outside of compiled programs."""
    compiled = jax.jit(expect)
    push = jax.jit(lambda theta, vector: jax.jvp(expect, (theta,), (vector,))[1])

    def linearise(theta):
        theta = jnp.asarray(theta)
        return compiled(theta), lambda vector: push(theta, vector)

    constant = jnp.asarray(constant)
    return Problem(expect, constant, structure=Structure.SYMMETRIC, linearise=linearise)


def fork(apart: float) -> Problem:
    """x = λ (tanh 2x + apart): for λ > 1/2, the branch that x = 0 leads to goes up, and near 0
    there is another, which it does not lead to unless `apart` is 0."""

    def expect(theta):
        x, y = theta
        return jnp.stack([jnp.tanh(2 * x) + apart, y / 4 + 1])

    return on_the_host(expect, [0.0, 1.0])


@pytest.mark.parametrize("apart", [1e-4, 1e-3])
def test_a_step_to_another_branch_is_taken_back(apart):
    there = brentq(lambda x: x - np.tanh(2 * x) - apart, 0.5, 2)
    ours = follow_path(fork(apart), WATCHED)
    assert ours.outcome is PathOutcome.REACHED_ONE
    assert ours.points[-1, 0] == pytest.approx(there, abs=1e-7)
    outcomes = [event.outcome for event in ours.events]
    assert StepOutcome.SHORTENED_REVERSED in outcomes
    assert StepOutcome.CROSSED not in outcomes
    leapt = follow_path(fork(apart), PLAIN)
    assert leapt.outcome is PathOutcome.REACHED_ONE
    assert abs(leapt.points[-1, 0]) < 0.01  # which is why it is looked at


def test_a_bifurcation_is_passed_straight_on_and_said():
    path = follow_path(fork(0.0), WATCHED)
    assert path.outcome is PathOutcome.REACHED_ONE
    np.testing.assert_allclose(path.points[:, 0], 0, atol=1e-9)
    assert sum(event.outcome is StepOutcome.CROSSED for event in path.events) == 1
    (at,) = (event for event in path.events if event.outcome is StepOutcome.CROSSED)
    assert at.lam == pytest.approx(0.5, abs=1e-3)  # nearer, an eigenvalue has no sign to be trusted
    assert len(path.lam) - 1 == sum(event.outcome.is_accepted for event in path.events)


def _turns_back(x: float, slope: float) -> bool:
    """At a point of the S-curve, which has a fold at x = 1 and one at x = 2."""
    problem = on_the_host(problems.s_map, np.zeros(1))
    solver = Solver(problem, WATCHED)
    point = np.array([x, problems.s_lambda(x)])
    tangent = np.array([1.0, slope]) / np.hypot(1, slope)
    leading = solver.leading(point, Seen.nothing(1), Leading.nothing(1))
    new = NewPoint(point, 0.0, 0.1, tangent, leading.values, float(point[-1]), leading)
    return turns_back(solver, 0, new, Seen.nothing(1))


@pytest.mark.parametrize(
    ("x", "slope", "expected"),
    [(0.5, 1.0, False), (0.5, -1.0, True), (1.5, -1.0, False), (1.5, 1.0, True), (2.5, 1.0, False),
     (1.0 + 1e-6, 1.0, False), (1.5, 1e-6, False)],
)  # fmt: skip
def test_the_parts_of_the_s_curve(x, slope, expected):
    """Near a fold nothing is said."""
    assert _turns_back(x, slope) is expected


def test_signs():
    assert orientation(np.array([-0.1, -0.9]), 0.1) == 1
    assert orientation(np.array([0.1, -0.9]), -0.1) == 1
    assert orientation(np.array([0.2, 0.1]), -0.1) == -1
    assert orientation(np.array([0.2, 1e-4]), -0.1, 1e-3) == 0
    assert orientation(np.array([-0.2]), 0.0) == 0
    assert [expected_orientation(n) for n in range(3)] == [1, -1, 1]
    assert is_crossing(np.array([0.0, 1.0]), np.array([5e-5, 1.0]))
    assert not is_crossing(np.array([0.0, 1.0]), np.array([5e-4, 1.0]))
