"""Paths against closed forms, dense linear algebra and each other."""

from __future__ import annotations

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.homotopy import (
    Jacobian,
    PathOutcome,
    PathSettings,
    Predictor,
    Problem,
    StepOutcome,
    Structure,
    follow_path,
    published_settings,
)
from tests.homotopy import test_problems as problems

EXACT = PathSettings(linear_tolerance=1e-12, tangent_tolerance=1e-12)
"""Linear systems as exact as LU would solve them."""


def assert_complete(path, tolerance=1e-8):
    """It ends on λ = 1, and every point is a solution."""
    assert path.outcome is PathOutcome.REACHED_ONE
    assert path.lam[0] == 0
    assert path.lam[-1] == 1
    assert path.residual.max() <= tolerance
    assert path.events[-1].outcome is StepOutcome.LANDED
    assert len(path.points) == 1 + sum(event.outcome.is_accepted for event in path.events)


def independent_residuals(problem, path):
    """‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖ at every point, in NumPy."""
    found, expect = [], eqx.filter_jit(problem.expect)
    for index, lam in enumerate(path.lam):
        theta = path.parameters(index)
        first, second = problem.weights(lam)
        errors, sizes = [], []
        expected = expect(theta)
        for here, c, e in zip(*map(jax.tree.leaves, (theta, problem.constant, expected))):
            errors.append(np.asarray(here - first * c - second * e).ravel())
            sizes.append(np.asarray(here).ravel())
        found.append(np.linalg.norm(np.concatenate(errors)) / np.linalg.norm(np.concatenate(sizes)))
    return np.array(found)


# --------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("jacobian", Jacobian)
@pytest.mark.parametrize("predictor", Predictor)
def test_the_s_curve_is_passed(predictor, jacobian):
    path = follow_path(problems.s_curve(), PathSettings(predictor=predictor, jacobian=jacobian))
    assert path.outcome is PathOutcome.REACHED_ONE
    x = path.points[1:, 0]
    np.testing.assert_allclose(path.lam[1:], problems.s_lambda(x), atol=1e-7)
    assert x[-1] == pytest.approx(problems.s_end(), abs=1e-7)
    assert (np.diff(x) > 0).all()
    back = (x > 1) & (x < 2)
    assert back.any()
    np.testing.assert_array_equal(path.direction[1:], np.where(back, -1, 1))


@pytest.mark.parametrize("predictor", Predictor)
def test_the_s_curve_in_many_dimensions_is_passed(predictor):
    problem, turn = problems.rotated_s_curve(5)
    path = follow_path(problem, PathSettings(predictor=predictor))
    assert_complete(path)
    for point in path.points:
        before = turn.T @ point[:-1]
        want = problems.rotated_s_solution(5, point[-1], before[0])
        np.testing.assert_allclose(before, want, atol=3e-7)
        assert problems.s_lambda(before[0]) == pytest.approx(point[-1], abs=3e-7)
    assert path.parameters(-1) @ turn[:, 0] == pytest.approx(problems.s_end(), abs=1e-6)


@given(st.integers(0, 2**31), st.floats(0.05, 0.8))
def test_linear_maps_have_the_path_that_they_should(seed, step):
    """E(x) = A x + b: Θ̃(λ) = (I − λA)⁻¹((1 − λ)c + λb)."""
    size, random = 4, np.random.default_rng(seed)
    half = random.standard_normal((size, size))
    matrix = half @ half.T
    matrix *= 0.9 / np.linalg.norm(matrix, 2)
    shift, constant = random.standard_normal((2, size))
    expect = jax.tree_util.Partial(_affine, jnp.asarray(matrix), jnp.asarray(shift))
    problem = Problem(expect, jnp.asarray(constant), structure=Structure.SYMMETRIC)
    path = follow_path(problem, PathSettings(step=step))
    assert_complete(path)
    for point, lam in zip(path.points, path.lam):
        right = (1 - lam) * constant + lam * shift
        want = np.linalg.solve(np.eye(size) - lam * matrix, right)
        np.testing.assert_allclose(point[:-1], want, atol=1e-6 * (1 + np.linalg.norm(want)))


def _affine(matrix, shift, x):
    return matrix @ x + shift


# --------------------------------------------------------------------------- EM


@pytest.mark.parametrize("name", problems.EM_PROBLEMS)
def test_matrix_free_is_dense(name):
    problem = problems.EM_PROBLEMS[name]()
    free = follow_path(problem, EXACT)
    dense = follow_path(problem, EXACT._replace(jacobian=Jacobian.DENSE))
    assert_complete(free)
    assert [event.outcome for event in free.events] == [event.outcome for event in dense.events]
    np.testing.assert_allclose(free.points, dense.points, atol=1e-7)
    np.testing.assert_allclose(free.slope, dense.slope, atol=1e-6)


@pytest.mark.parametrize("name", problems.EM_PROBLEMS)
def test_every_point_is_a_positive_fixed_point(name):
    problem = problems.EM_PROBLEMS[name]()
    path = follow_path(problem, PathSettings(max_step=0.5))
    assert_complete(path)
    assert (path.points[:, :-1] > 0).all()
    got = independent_residuals(problem, path)
    assert got.max() <= 1e-8
    np.testing.assert_allclose(got, path.residual, atol=1e-12)


@pytest.mark.parametrize("name", problems.EM_PROBLEMS)
def test_the_predictors_give_the_same_path(name):
    problem = problems.EM_PROBLEMS[name]()
    # Where information is nearly lost, the points are known a hundred times worse than residuals.
    tight = EXACT._replace(tolerance=1e-12)
    paths = [follow_path(problem, tight._replace(predictor=kind)) for kind in Predictor]
    for path in paths:
        assert_complete(path, 1e-12)
        np.testing.assert_allclose(path.points[-1], paths[0].points[-1], atol=1e-8)
        assert len(np.flatnonzero(np.diff(path.direction))) % 2 == 0


def test_general_weights_give_the_same_points_at_other_allocations():
    """With g(λ) = (1 − λ², λ²), the solution at λ is the linear one at λ²."""
    base = problems.mixture(1)
    bent = Problem(base.expect, base.constant, weights=lambda lam: (1 - lam**2, lam**2))
    path = follow_path(bent, PathSettings())
    assert_complete(path)
    assert independent_residuals(bent, path).max() <= 1e-8
    expect = eqx.filter_jit(base.expect)
    for index in (len(path.lam) // 2, -1):
        lam = path.lam[index] ** 2
        theta = base.constant
        for _ in range(300):  # EM_λ itself, from c
            counts = expect(theta)
            theta = jax.tree.map(lambda c, e: (1 - lam) * c + lam * e, base.constant, counts)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), path.parameters(index), theta
        )


@pytest.mark.parametrize("jacobian", Jacobian)
def test_published_steps_drift_and_corrected_ones_do_not(jacobian):
    problem = problems.mixture(2)
    steps = (0.1, 0.05, 0.025)
    drifts = []
    for step in steps:
        path = follow_path(problem, published_settings(step, jacobian=jacobian))
        assert path.outcome is PathOutcome.REACHED_ONE
        assert path.lam[-1] >= 1 > path.lam[-2]
        np.testing.assert_allclose(np.linalg.norm(np.diff(path.points, axis=0), axis=1), step)
        drifts.append(path.residual.max())
    corrected = follow_path(problem, PathSettings(jacobian=jacobian)).residual.max()
    assert corrected <= 1e-8 < 1e-5 < drifts[-1]
    assert drifts[0] > drifts[1] > drifts[2] > drifts[0] / 16  # of first order, about


def test_published_paths_approach_the_corrected_one():
    problem, turn = problems.rotated_s_curve(5)
    path = follow_path(problem, published_settings(0.02, jacobian=Jacobian.DENSE))
    x = path.points[:, :-1] @ turn[:, 0]
    np.testing.assert_allclose(problems.s_lambda(x), path.lam, atol=0.05)
    assert {-1, 1} == set(path.direction.tolist())


def test_float32_holds_its_looser_bound():
    problem = problems.mixture(1)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), problem)
    path = follow_path(single)
    assert path.points.dtype == np.float32
    assert_complete(path, 1e-5)
    want = follow_path(problem).points[-1]
    np.testing.assert_allclose(path.points[-1], want, atol=1e-4)


def test_programs_are_compiled_once():
    base = problems.mixture(1)

    class Counted(eqx.Module):
        step: problems.MixtureStep

        def __call__(self, tilde):
            return traced(self.step, tilde)

    chex.clear_trace_counter()
    most = 4  # the check of shapes, and one program each for solving and for eigenvalues
    traced = chex.assert_max_traces(lambda step, tilde: step(tilde), n=most)
    for seed in (1, 2):
        other = problems.mixture(seed)
        problem = Problem(Counted(other.expect), other.constant)
        path = follow_path(problem, PathSettings(eigenvalues=1))
        assert_complete(path)
    assert base.size == problem.size


# --------------------------------------------------------------------------- what goes wrong


def test_a_path_that_cannot_be_followed_says_so():
    """E is not finite from 0.4 on, so that steps towards it get too short."""
    problem = Problem(
        lambda x: jnp.where(x < 0.4, x / 2 + 1, jnp.nan),
        jnp.zeros(1),
        structure=Structure.SYMMETRIC,
    )
    path = follow_path(problem, PathSettings(min_step=1e-3))
    assert path.outcome is PathOutcome.STEP_TOO_SMALL
    assert path.events[-1].outcome is StepOutcome.SHORTENED_NOT_FINITE
    assert "step shortened because" in path.events[-1].message
    assert np.isfinite(path.points).all()
    assert path.points[-1, 0] < 0.4
    published = follow_path(problem, published_settings(0.1))
    assert published.outcome is PathOutcome.NOT_FINITE
    assert np.isfinite(published.points).all()


def test_the_number_of_steps_is_kept():
    path = follow_path(problems.mixture(0), PathSettings(max_steps=3))
    assert path.outcome is PathOutcome.MAX_STEPS
    assert len(path.events) == 3


def test_a_map_that_is_not_finite_at_the_start_is_refused():
    problem = Problem(jnp.log, jnp.zeros(2))
    with pytest.raises(ValueError, match="expected finite values and slopes at the constant"):
        follow_path(problem)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 0.0}, "step: expected a positive number, got 0.0"),
        ({"step": 2.0}, "step: expected one between min_step 1e-07 and max_step 1.0, got 2.0"),
        ({"tolerance": -1.0}, "tolerance: expected a positive number, got -1.0"),
        ({"max_steps": 0}, "max_steps: expected a positive number, got 0"),
        ({"eigenvalues": -1}, "eigenvalues: expected 0 or more, got -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        follow_path(problems.s_curve(), PathSettings()._replace(**changes))
