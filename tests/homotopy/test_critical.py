"""Eigenvalues, critical points, and the choice of λ."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from jaxseq.homotopy import (
    Jacobian,
    Kind,
    PathOutcome,
    PathSettings,
    Predictor,
    find_critical_points,
    follow_path,
    leading_eigenvalues,
    select_max_entropy,
    select_min_eigenvalue,
    select_monotone,
)
from jaxseq.homotopy._linear import dense_jacobian, linearise_flat
from jaxseq.homotopy._spectrum import Symmetriser, lanczos
from tests.homotopy import test_problems as problems

# --------------------------------------------------------------------------- eigenvalues


def _symmetrised_matrix(problem, theta):
    theta = np.asarray(theta)
    product = linearise_flat(problem, theta).product
    operator = Symmetriser(problem, theta, np.float64).operator(product)
    return np.stack([operator(unit) for unit in np.eye(problem.size)]).T


@pytest.mark.parametrize("name", problems.EM_PROBLEMS)
def test_the_symmetrised_operator_is_symmetric_with_the_eigenvalues_of_the_jacobian(name):
    problem = problems.EM_PROBLEMS[name]()
    theta = jnp.asarray(np.random.default_rng(0).uniform(0.1, 2.0, problem.size))
    matrix = np.asarray(_symmetrised_matrix(problem, theta))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    values = np.linalg.eigvalsh(matrix)
    assert values.min() > -1e-12
    jacobian = np.asarray(dense_jacobian(problem, theta))
    found = np.linalg.eigvals(jacobian)
    assert np.abs(found.imag).max() < 1e-7
    np.testing.assert_allclose(np.sort(values), np.sort(found.real), atol=1e-7)


@pytest.mark.parametrize("name", problems.EM_PROBLEMS)
def test_lanczos_finds_the_largest(name):
    problem = problems.EM_PROBLEMS[name]()
    theta = ravel_pytree(problem.constant)[0]
    got = leading_eigenvalues(problem, theta, 2)
    want = leading_eigenvalues(problem, theta, 2, dense=True)
    np.testing.assert_allclose(got.values, want.values, atol=1e-9)
    assert (got.errors < 1e-7).all()


def _all_ritz_values(matrix, start, steps):
    return lanczos(lambda v: matrix @ v, start, steps, min(steps, start.size), 0.0)


@given(st.sampled_from([(1, 3), (6, 4), (6, 9), (25, 8)]), st.integers(0, 2**31))
def test_lanczos_errors_are_bounded_as_it_says(sizes, seed):
    size, steps = sizes
    random = np.random.default_rng(seed)
    half = random.standard_normal((size, size))
    matrix = half @ half.T / size
    start = random.standard_normal(size)
    values, errors = _all_ritz_values(matrix, start, steps)
    true = np.linalg.eigvalsh(np.asarray(matrix))
    assert (np.diff(values) <= 1e-12).all()
    gaps = np.abs(np.asarray(values)[:, None] - true).min(axis=1)
    assert (gaps <= np.asarray(errors) + 1e-9).all()
    if steps >= size:
        np.testing.assert_allclose(values[0], true[-1], atol=1e-8)


def test_lanczos_stops_where_the_space_is_exhausted():
    matrix = np.diag([2.0, 1.0, 0.0, 0.0, 0.0])
    values, errors = _all_ritz_values(matrix, np.ones(5), 5)
    np.testing.assert_allclose(values, [2, 1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(errors, 0, atol=1e-12)


def test_a_parameter_of_zero_does_no_harm():
    problem = problems.mixture(0)
    tilde = {**problem.constant, "prior": jnp.array([1.0, 0.0])}

    def expect(theta):  # a map that is smooth there
        return {"prior": theta["prior"] / theta["prior"].sum(), "words": theta["words"]}

    smooth = problems.Problem(expect, problem.constant)
    found = leading_eigenvalues(smooth, ravel_pytree(tilde)[0], 2)
    assert np.isfinite(found.values).all()


def test_eigenvalues_without_structure_need_the_matrix():
    problem, _ = problems.rotated_s_curve(5)
    with pytest.raises(ValueError, match="expected a structure other than GENERAL"):
        follow_path(problem, PathSettings(eigenvalues=1))


# --------------------------------------------------------------------------- critical points


@pytest.mark.parametrize("predictor", Predictor)
def test_folds_of_the_s_curve(predictor):
    settings = PathSettings(predictor=predictor, eigenvalues=1)
    problem = problems.s_curve()
    found = find_critical_points(problem, follow_path(problem, settings), settings)
    assert [point.kind for point in found] == [Kind.FOLD, Kind.FOLD]
    for point, (lam, place) in zip(found, problems.S_FOLDS):
        assert point.is_refined
        assert point.lam == pytest.approx(lam, abs=1e-6)
        assert point.point[0] == pytest.approx(place, abs=1e-5)
        assert point.eigenvalue == pytest.approx(0, abs=1e-4)


def test_folds_in_many_dimensions_without_eigenvalues_and_densely_with_them():
    problem, _ = problems.rotated_s_curve(5)
    for settings in (PathSettings(), PathSettings(eigenvalues=2, jacobian=Jacobian.DENSE)):
        found = find_critical_points(problem, follow_path(problem, settings), settings)
        assert [point.kind for point in found] == [Kind.FOLD, Kind.FOLD]
        for point, (lam, _) in zip(found, problems.S_FOLDS):
            assert point.lam == pytest.approx(lam, abs=1e-6)
            assert (point.eigenvalue is None) == (settings.eigenvalues == 0)


@pytest.mark.parametrize(
    ("make", "lam", "jacobian"),
    [
        (problems.pitchfork, 0.5, Jacobian.MATRIX_FREE),
        (problems.pitchfork, 0.5, Jacobian.DENSE),
        (problems.transcritical, 0.4, Jacobian.MATRIX_FREE),
    ],
)
def test_bifurcations_are_found_and_passed_straight_on(make, lam, jacobian):
    problem = make()
    settings = PathSettings(eigenvalues=2, jacobian=jacobian)
    path = follow_path(problem, settings)
    assert path.outcome is PathOutcome.REACHED_ONE
    np.testing.assert_allclose(path.points[:, 0], 0, atol=1e-9)
    assert (path.direction == 1).all()
    (found,) = find_critical_points(problem, path, settings)
    assert (found.kind, found.is_refined) == (Kind.BIFURCATION, True)
    assert found.lam == pytest.approx(lam, abs=1e-6)


def test_a_step_onto_a_bifurcation_does_not_stick():
    """λ = 1/2 is hit exactly by a dyadic step where the path is straight."""
    problem = problems.Problem(
        lambda theta: jnp.stack([jnp.tanh(2 * theta[0]), jnp.ones_like(theta[1])]),
        jnp.array([0.0, 1.0]),
        structure=problems.Structure.SYMMETRIC,
    )
    path = follow_path(problem, PathSettings(step=0.25, max_step=0.25))
    assert path.outcome is PathOutcome.REACHED_ONE
    assert 0.5 in path.lam
    np.testing.assert_allclose(path.points[:, 0], 0, atol=1e-12)


def test_the_bifurcation_of_a_mixture_whose_labels_say_nothing():
    """On the even branch the leading eigenvalue is constant, so λ = 1/μ."""
    problem = problems.even_mixture()
    settings = PathSettings(eigenvalues=2)
    path = follow_path(problem, settings)
    assert path.outcome is PathOutcome.REACHED_ONE
    words = path.parameters(-1)["words"]
    np.testing.assert_allclose(words[0], words[1], atol=1e-9)
    found = find_critical_points(problem, path, settings)
    point = next(point for point in found if point.lam < 0.9)
    theta = problem.constant
    for _ in range(2):  # the even fixed point at that λ
        counts = problem.expect(theta)
        theta = jax.tree.map(
            lambda c, e: (1 - point.lam) * c + point.lam * e, problem.constant, counts
        )
    jacobian = np.asarray(dense_jacobian(problem, ravel_pytree(theta)[0]))
    assert point.kind is Kind.BIFURCATION
    assert point.lam == pytest.approx(1 / np.linalg.eigvals(jacobian).real.max(), abs=1e-6)


@pytest.mark.parametrize("predictor", [Predictor.EULER, Predictor.RK3])
def test_folds_of_an_hmm_are_where_the_jacobian_is_singular(predictor):
    problem = problems.hmm(0)
    settings = PathSettings(predictor=predictor, eigenvalues=3)
    path = follow_path(problem, settings)
    found = find_critical_points(problem, path, settings)
    assert [point.kind for point in found] == [Kind.FOLD, Kind.FOLD]
    for point in found:
        jacobian = dense_jacobian(problem, jnp.asarray(point.point[:-1]))
        values = np.linalg.eigvals(np.asarray(point.lam * jacobian)).real
        assert np.abs(values - 1).min() < 1e-5
    turns = path.lam[np.flatnonzero(np.diff(path.direction))]
    assert found[0].lam >= turns[0] - 1e-9
    assert found[0].lam > found[1].lam


# --------------------------------------------------------------------------- choosing λ


def test_monotone_is_the_last_point_before_the_fold():
    path = follow_path(problems.s_curve())
    chosen = select_monotone(path)
    assert path.points[chosen.index, 0] < 1 < path.points[chosen.index + 1, 0]
    assert chosen.lam == path.lam[chosen.index]
    assert "before λ turns" in chosen.why


def test_monotone_is_the_end_where_nothing_turns():
    path = follow_path(problems.mixture(1))
    assert select_monotone(path).lam == 1


def _choices(path):
    return {
        "monotone": lambda: select_monotone(path),
        "min_eigenvalue": lambda: select_min_eigenvalue(path),
        "max_entropy": lambda: select_max_entropy(path, lambda tilde: -tilde.sum()),
    }


@pytest.mark.parametrize("rule", ["monotone", "min_eigenvalue", "max_entropy"])
def test_a_choice_on_a_path_that_died_says_so(rule):
    problem, settings = problems.s_curve(), PathSettings(eigenvalues=1)
    died = follow_path(problem, settings._replace(max_steps=2))
    assert died.outcome is PathOutcome.MAX_STEPS
    assert (died.slope > 0).all()
    with pytest.warns(UserWarning, match=f"number of steps.*λ = {died.lam[-1]:.6g}"):
        chosen = _choices(died)[rule]()
    assert PathOutcome.MAX_STEPS.value in chosen.why
    begun = follow_path(problem, settings, watch=lambda path: True)
    arrays = ("points", "slope", "eigenvalues", "second_weight")
    none = begun._replace(**{name: getattr(begun, name)[:1] for name in arrays})
    none = none._replace(outcome=PathOutcome.STEP_TOO_SMALL)
    with pytest.raises(ValueError, match=r"path: expected one that leaves λ = 0.*no step"):
        _choices(none)[rule]()


@pytest.mark.parametrize("rule", ["monotone", "min_eigenvalue", "max_entropy"])
def test_a_choice_on_a_path_that_ended_as_it_should_warns_of_nothing(rule):
    problem, settings = problems.s_curve(), PathSettings(eigenvalues=1)
    whole = follow_path(problem, settings)
    ended = follow_path(problem, settings, watch=lambda path: len(path.lam) > 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in (whole, ended):
            _choices(path)[rule]()
        if rule == "monotone":  # what comes after the turn does not matter
            _choices(whole._replace(outcome=PathOutcome.STEP_TOO_SMALL))[rule]()


def test_min_eigenvalue_is_the_most_singular():
    problem = problems.hmm(0)
    path = follow_path(problem, PathSettings(eigenvalues=3, max_step=0.3))
    distances = []
    for point in path.points:
        jacobian = dense_jacobian(problem, jnp.asarray(point[:-1]))
        values = np.linalg.eigvals(np.asarray(point[-1] * jacobian)) - 1
        distances.append(np.abs(values).min())
    assert select_min_eigenvalue(path).index == int(np.argmin(distances))
    np.testing.assert_allclose(np.abs(path.nearest_to_singular), distances, atol=1e-6)


def test_min_eigenvalue_needs_eigenvalues():
    with pytest.raises(ValueError, match="expected a path with eigenvalues"):
        select_min_eigenvalue(follow_path(problems.s_curve()))


def test_max_entropy_asks_every_point():
    path = follow_path(problems.mixture(1))

    def entropy(tilde):
        prior = tilde["prior"] / tilde["prior"].sum()
        return -(prior * jnp.log(prior)).sum()

    values = [float(entropy(path.parameters(index))) for index in range(len(path.points))]
    assert select_max_entropy(path, entropy).index == 1 + int(np.argmax(values[1:]))
    falling = iter(range(0, -len(values), -1))
    assert select_max_entropy(path, lambda tilde: next(falling)).index == 1
    with pytest.raises(ValueError, match="entropy: expected finite numbers, got nan at point 0"):
        select_max_entropy(path, lambda tilde: jnp.nan)
