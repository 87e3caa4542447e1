"""Orthant-wise steps: the minima of objectives with an l1 term."""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import Settings, minimise
from jaxseq.crf import _lbfgs as _orthant
from jaxseq.crf._lbfgs import _direction, _empty_memory
from tests.crf.problems import (
    as_vector,
    draw_logistic,
    minimum_by_proximal_steps,
    zeros,
)

SEEDS = st.integers(0, 2**32 - 1)
TIGHT = Settings(max_iterations=500, tolerance=0, gradient_tolerance=1e-8)


def assert_optimal(point: np.ndarray, gradient: np.ndarray, l1: float):
    """The conditions of Karush, Kuhn and Tucker; zeros are exact."""
    for x, g in zip(point, gradient):
        if x == 0:
            assert abs(g) <= l1 + 1e-5
        else:
            assert g + l1 * np.sign(x) == pytest.approx(0, abs=1e-5)


@given(SEEDS, st.floats(0.5, 8), st.sampled_from([0.0, 2.0]))
def test_minimum_is_that_of_proximal_steps(seed, l1, ridge):
    problem = draw_logistic(seed, ridge)
    state, _ = minimise(problem, zeros(), TIGHT._replace(l1=l1))
    found, wanted = as_vector(state.parameters), minimum_by_proximal_steps(problem, l1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert_optimal(found, problem.of_vector(found)[1], l1)
    total = problem.of_vector(wanted)[0] + l1 * np.abs(wanted).sum()
    assert state.values[-1] == pytest.approx(total, abs=1e-8)
    assert state.value == pytest.approx(problem.of_vector(found)[0])


def test_the_weights_that_do_not_matter_are_exactly_zero():
    problem = draw_logistic(0, 0.0)
    counts = []
    for l1 in (0.0, 3.0, 1000.0):
        state, _ = minimise(problem, zeros(), TIGHT._replace(l1=l1))
        counts.append(int((as_vector(state.parameters) == 0).sum()))
    assert counts[0] == 0
    assert 0 < counts[1] < counts[2] == 6


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3), st.floats(0.05, 2))
def test_parabolas_have_their_minimum_where_arithmetic_says(centre, l1):
    centre, curvature = np.array(centre), np.array([1.0, 3.0, 0.5])

    def objective(point):
        away = point - centre
        return (curvature * away**2).sum() / 2, curvature * away

    state, _ = minimise(objective, jnp.zeros(3), TIGHT._replace(l1=l1))
    wanted = np.sign(centre) * np.maximum(np.abs(centre) - l1 / curvature, 0)
    np.testing.assert_allclose(state.parameters, wanted, atol=1e-6)


def test_weights_may_change_sign_on_the_way():
    def objective(point):
        return ((point + 2) ** 2).sum(), 2 * (point + 2)

    state, _ = minimise(objective, jnp.ones(2), TIGHT._replace(l1=1.0))
    np.testing.assert_allclose(state.parameters, -1.5, atol=1e-7)


def test_pseudo_gradient_is_the_steepest_one_sided_slope():
    point = jnp.array([2.0, -2.0, 0, 0, 0])
    gradient = jnp.array([0.5, 0.5, -3.0, 3.0, 0.5])
    found = _orthant.pseudo_gradient(point, gradient, 1.0)
    np.testing.assert_array_equal(found, [1.5, -0.5, -2.0, 2.0, 0.0])


def test_moves_stop_at_the_border_of_the_orthant():
    point, direction = jnp.array([1.0, 1.0, 0.0, 0.0]), jnp.array([-4.0, 2.0, 1.0, -1.0])
    pseudo = jnp.array([1.0, -1.0, -1.0, -1.0])
    moved, slope = _orthant.move(point, direction, pseudo, 0.5)
    np.testing.assert_array_equal(moved, [0.0, 2.0, 0.5, 0.0])
    assert float(slope) == -1 - 1 - 0.5


@pytest.mark.parametrize("steps", [1, 2, 4, 9])
def test_direction_is_that_of_the_dense_inverse_hessian(steps):
    rng = np.random.default_rng(steps)
    size, remembered = 5, 3
    root = rng.normal(size=(size, size))
    hessian = root @ root.T + np.eye(size)
    memory = _empty_memory(jnp.zeros(size), Settings(memory_size=remembered))
    points = rng.normal(size=(steps, size))
    for point in points:
        _, memory, _ = _direction(jnp.asarray(hessian @ point), memory, jnp.asarray(point))
    pseudo = rng.normal(size=size)

    moves = [after - before for before, after in pairwise(points)]
    pairs = [(move, hessian @ move) for move in moves]
    inverse = np.eye(size) / max(1, np.linalg.norm(pseudo))
    if pairs:
        step, change = pairs[-1]
        inverse = np.eye(size) * (step @ change) / (change @ change)
    for step, change in pairs[-remembered:]:
        weight = 1 / (step @ change)
        left = np.eye(size) - weight * np.outer(step, change)
        inverse = left @ inverse @ left.T + weight * np.outer(step, step)
    way = inverse @ pseudo
    found = _orthant.orthant_direction(memory, jnp.asarray(pseudo))
    np.testing.assert_allclose(found, np.where(way * pseudo > 0, -way, 0), atol=1e-12)


def test_norm_is_over_all_leaves():
    assert float(_orthant.l1_norm({"a": jnp.array([1.0, -2.0]), "b": jnp.array([[-3.0]])})) == 6
