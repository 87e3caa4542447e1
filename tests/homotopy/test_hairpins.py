"""Hairpins of a path: the frame that makes bends of them, and what is kept of ∇E."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.homotopy import (
    PathOutcome,
    PathSettings,
    Predictor,
    Problem,
    StepOutcome,
    Structure,
    follow_path,
    load_path,
)
from jaxseq.homotopy._follow import Frame, Step, hermite_cubic, judge, make_frame
from jaxseq.homotopy._linear import (
    Border,
    Leading,
    Seen,
    deflation,
    dense_jacobian,
)
from jaxseq.homotopy._problem import flat_map
from jaxseq.homotopy._spectrum import find_leading
from tests.homotopy import test_problems as problems

SMALL = 1e-3
"""How little the coordinate that turns moves against the others."""
STRETCHED = PathSettings(
    predictor=Predictor.HERMITE, tolerance=1e-11, min_step=1e-9, deflated=3, eigenvalues=1,
    stretch=0.03,
)  # fmt: skip


def _hairpin(small: float) -> Problem:
    """The S-curve in a coordinate shrunk to `small`, beside three that follow λ closely."""
    slopes = jnp.array([0.1, 0.2, 0.3])

    def expect(theta):
        return jnp.append(small * problems.s_map(theta[:1] / small), slopes * theta[1:] + 1)

    compiled = jax.jit(expect)
    push = jax.jit(lambda theta, vector: jax.jvp(expect, (theta,), (vector,))[1])

    def linearise(theta):
        theta = jnp.asarray(theta)
        return compiled(theta), lambda vector: push(theta, vector)

    constant = jnp.zeros(4)
    return Problem(expect, constant, structure=Structure.SYMMETRIC, linearise=linearise)


@pytest.fixture(scope="module")
def stretched():
    """A problem, and its path by frames."""
    problem = _hairpin(SMALL)
    return problem, follow_path(problem, STRETCHED)


def test_a_hairpin_is_passed_in_fewer_steps_than_without_a_frame(stretched):
    problem, path = stretched
    assert path.outcome is PathOutcome.REACHED_ONE
    x = path.points[1:, 0] / SMALL
    np.testing.assert_allclose(problems.s_lambda(x), path.lam[1:], atol=1e-5)
    assert (np.diff(x) > 0).all()
    assert int((np.diff(path.direction) != 0).sum()) == 2
    plain = follow_path(problem, STRETCHED._replace(stretch=None))
    assert plain.outcome is PathOutcome.REACHED_ONE
    assert len(path.events) < len(plain.events)


def test_a_stretched_path_goes_on_from_a_file(stretched, tmp_path):
    (problem, whole), file = stretched, tmp_path / "path"
    part = follow_path(problem, STRETCHED._replace(max_steps=7), checkpoint=file)
    assert len(part.leading.values) > 0
    rest = follow_path(problem, STRETCHED, start=load_path(file, problem, STRETCHED))
    np.testing.assert_array_equal(rest.points, whole.points)


@given(st.integers(0, 99))
def test_leading_eigenvectors_are_those_of_the_matrix(seed):
    problem = problems.mixture(seed % 3)
    constant = flat_map(problem)[0]
    theta = np.asarray(constant) * np.random.default_rng(seed).uniform(0.5, 2, problem.size)
    matrix = np.asarray(dense_jacobian(problem, jnp.asarray(theta)))
    found = find_leading(
        problem,
        theta,
        lambda vector: matrix @ vector,
        Seen.nothing(problem.size),
        Leading.nothing(problem.size),
        count=2,
        kept=2,
        accuracy=1e-4,
        most=50,
    )
    wanted = np.sort(np.linalg.eigvals(matrix).real)[::-1][:2]
    np.testing.assert_allclose(found.values, wanted, atol=1e-5)
    for value, right, left in zip(*found):
        np.testing.assert_allclose(matrix @ right, value * right, atol=2e-3)
        np.testing.assert_allclose(left @ matrix, value * left, atol=2e-3 * np.abs(left).max())
    np.testing.assert_allclose(found.left @ found.right.T, np.eye(2), atol=2e-3)


@given(st.integers(0, 99), st.integers(0, 3))
def test_deflation_inverts_what_is_known(seed, kept):
    rng, size = np.random.default_rng(seed), 6
    right, left = 0.3 * rng.normal(size=(2, kept, size))
    values = rng.uniform(0, 1, kept)
    column, row = rng.normal(size=size), np.append(0.1 * rng.normal(size=size), 1.0)
    known = np.eye(size) - 0.5 * (right.T * values) @ left
    matrix = np.block([[known, column[:, None]], [row[None]]])
    vector = rng.normal(size=size + 1)
    inverse = deflation(Border(0.5, column, row), Leading(values, right, left), np.float64)
    if np.linalg.cond(matrix) < 1e6:
        np.testing.assert_allclose(matrix @ inverse(vector), vector, atol=1e-7)


@given(st.integers(0, 99))
def test_a_frame_is_an_inner_product(seed):
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(2, 4))
    frame = make_frame(Leading(np.array([2.0, 1.0]), left, left), 0.5, 0.1)
    one, other = rng.normal(size=(2, 5))
    wide = np.eye(5)
    wide[:4, :4] += left.T @ np.diag([1 / 0.01, 1 / (0.25 + 0.01)]) @ left
    assert frame.product(one, other) == pytest.approx(one @ wide @ other)
    assert frame.row(one) @ other == pytest.approx(one @ wide @ other)
    assert frame.angle(one, -one) == pytest.approx(math.pi)


def test_the_cubic_is_exact_on_cubics():
    plain = Frame(np.zeros(0), np.zeros((0, 1)))

    def line(s):
        return np.array([s, 0.0]), np.array([1.0, 0.0])

    (begin, first), (end, last) = line(1.0), line(3.0)
    cubic = hermite_cubic(plain, begin, end, first, last)
    np.testing.assert_allclose(cubic.at(2.0), line(5.0)[0])
    np.testing.assert_allclose(cubic.at(-cubic.span), begin)
    bent = hermite_cubic(plain, np.array([0.0, 0.0]), np.array([1.0, 1.0]), *np.eye(2))
    np.testing.assert_allclose(bent.at(-bent.span), [0, 0], atol=1e-12)
    np.testing.assert_allclose(bent.slope(-bent.span), [1, 0], atol=1e-12)
    np.testing.assert_allclose(bent.slope(0.0), [0, 1], atol=1e-12)


def test_a_chord_that_does_not_fit_its_tangents_is_a_leap():
    assert judge(Step(0.05, 0.05, angle=0.2, chord=0.2)).outcome is StepOutcome.ACCEPTED
    assert judge(Step(0.05, 0.05, angle=0.2, chord=0.7)).outcome is StepOutcome.SHORTENED_LEAP
    assert judge(Step(0.5, 0.05)).outcome is StepOutcome.SHORTENED_CONTRACTION
    assert judge(Step(0.0, 0.5)).outcome is StepOutcome.SHORTENED_DISTANCE
    assert judge(Step(0.0, 0.0, 0.1), 0.0).factor == 2.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stretch": 0.1}, "stretch: expected None, as deflated is 0"),
        ({"deflated": -1}, "deflated: expected 0 or more, got -1"),
        ({"stretch": 0.0, "deflated": 1}, "stretch: expected a positive number, got 0.0"),
    ],
)
def test_frames_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        follow_path(problems.s_curve(), PathSettings()._replace(**changes))
