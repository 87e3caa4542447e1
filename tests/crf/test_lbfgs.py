"""L-BFGS finds minima, stops for the reason it gives, and can be stopped and taken up again."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq import Outcome
from jaxseq._io import load_checkpoint, save_checkpoint
from jaxseq.crf import Settings, State, begin_search, minimise
from tests.crf.problems import (
    COLUMNS,
    as_vector,
    draw_logistic,
    minimum_by_scipy,
    zeros,
)

TIGHT = Settings(max_iterations=300, tolerance=0, gradient_tolerance=1e-9)
SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.floats(0.1, 10))
def test_minimum_is_that_of_scipy(seed, ridge):
    problem = draw_logistic(seed, ridge)
    state, _ = minimise(problem, zeros(), TIGHT)
    found, wanted = as_vector(state.parameters), minimum_by_scipy(problem)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert state.value == pytest.approx(problem.of_vector(wanted)[0], abs=1e-9)
    np.testing.assert_allclose(as_vector(state.gradient), problem.of_vector(found)[1], atol=1e-9)


def test_crooked_valleys_are_followed():
    @jax.jit
    @jax.value_and_grad
    def rosenbrock(p):
        return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()

    state, outcome = minimise(rosenbrock, jnp.array([-1.2, 1.0, -0.5]), TIGHT)
    assert outcome is Outcome.CONVERGED_GRADIENT
    np.testing.assert_allclose(state.parameters, 1, atol=1e-7)


def test_values_fall_and_work_is_counted():
    calls, values = [], []
    problem = draw_logistic(1, 1.0)

    def counted(point):
        calls.append(point)
        return problem(point)

    state, _ = minimise(counted, zeros(), TIGHT, lambda state: values.append(state.value))
    assert state.evaluations == len(calls)
    assert state.iteration == len(values)
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))
    assert len(state.values) <= TIGHT.period + 1


def test_single_precision_stays_single():
    problem = draw_logistic(2, 1.0)
    rounded = type(problem)(np.float32(problem.inputs), np.float32(problem.targets), 1.0)
    state, _ = minimise(rounded, zeros(jnp.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.parameters)} == {np.dtype("float32")}
    np.testing.assert_allclose(as_vector(state.parameters), minimum_by_scipy(problem), atol=1e-2)


def test_the_start_is_not_used_up():
    start = zeros()
    minimise(draw_logistic(3, 1.0), start)
    np.testing.assert_array_equal(as_vector(start), np.zeros(COLUMNS))


# ---------------------------------------------------------------------------- going on


def assert_same_bits(one: State, other: State):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("l1", [0.0, 1.5])
@pytest.mark.parametrize("stop", [1, 4, 8])  # before and after the memory is full
def test_going_on_from_a_state_is_as_if_never_stopped(stop, l1):
    problem = draw_logistic(4, 0.01)
    settings = TIGHT._replace(max_iterations=10, memory_size=3, l1=l1, gradient_tolerance=0)
    whole, _ = minimise(problem, zeros(), settings)
    half, outcome = minimise(problem, zeros(), settings._replace(max_iterations=stop))
    assert outcome is Outcome.MAX_ITERATIONS
    assert half.iteration == stop
    assert_same_bits(minimise(problem, half, settings)[0], whole)


@pytest.mark.parametrize("l1", [0.0, 1.5])
def test_going_on_from_a_file_is_as_if_never_stopped(tmp_path, l1):
    problem = draw_logistic(5, 0.01)
    settings = TIGHT._replace(max_iterations=9, memory_size=3, l1=l1, gradient_tolerance=0)

    def watch(state):
        if state.iteration == 5:
            numbers = (state.value, state.iteration, state.values, state.evaluations)
            arrays = (state.parameters, state.gradient, state.memory)
            save_checkpoint(tmp_path / "file", arrays, "this", numbers)

    whole, _ = minimise(problem, zeros(), settings, watch)
    fresh = begin_search(problem, zeros(), settings)
    arrays, numbers = load_checkpoint(
        tmp_path / "file", (fresh.parameters, fresh.gradient, fresh.memory), "this"
    )
    value, iteration, values, evaluations = numbers
    state = State(arrays[0], value, *arrays[1:], iteration, tuple(values), evaluations)
    assert_same_bits(minimise(problem, state, settings)[0], whole)


def test_interrupt_while_watching_keeps_the_iteration():
    problem = draw_logistic(6, 0.1)
    kept = {}

    def watch(state):
        kept[state.iteration] = as_vector(state.parameters)
        if state.iteration == 3:
            raise KeyboardInterrupt

    state, outcome = minimise(problem, zeros(), TIGHT, watch)
    assert outcome is Outcome.INTERRUPTED
    assert state.iteration == 3
    np.testing.assert_array_equal(as_vector(state.parameters), kept[3])
    again, outcome = minimise(problem, state, TIGHT)
    np.testing.assert_allclose(as_vector(again.parameters), minimum_by_scipy(problem), atol=1e-6)


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_interrupt_within_an_iteration_keeps_the_one_before(l1):
    problem = draw_logistic(7, 0.1)
    kept, calls = {}, []

    def objective(point):
        calls.append(point)
        if len(kept) == 2:
            raise KeyboardInterrupt
        return problem(point)

    def watch(state):
        kept[state.iteration] = as_vector(state.parameters)

    state, outcome = minimise(objective, zeros(), TIGHT._replace(l1=l1), watch)
    assert outcome is Outcome.INTERRUPTED
    assert state.iteration == 2
    np.testing.assert_array_equal(as_vector(state.parameters), kept[2])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.memory))


# ---------------------------------------------------------------------------- outcomes


def test_ends_when_the_iterations_are_done():
    state, outcome = minimise(draw_logistic(8, 0.1), zeros(), TIGHT._replace(max_iterations=2))
    assert outcome is Outcome.MAX_ITERATIONS
    assert state.iteration == 2


def test_ends_at_once_where_the_gradient_is_zero():
    problem = draw_logistic(8, 0.1)
    best, _ = minimise(problem, zeros(), TIGHT)
    state, outcome = minimise(problem, best.parameters, TIGHT._replace(gradient_tolerance=1e-6))
    assert outcome is Outcome.CONVERGED_GRADIENT
    assert (state.iteration, state.evaluations) == (0, 1)


def test_ends_when_the_value_hardly_improves():
    settings = Settings(tolerance=0.5, period=2, gradient_tolerance=0)
    state, outcome = minimise(draw_logistic(8, 0.1), zeros(), settings)
    assert outcome is Outcome.CONVERGED_VALUE
    assert state.iteration == 2
    assert state.values[0] - state.values[-1] <= 0.5 * state.values[-1]


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_ends_where_no_step_improves(l1):
    def lying(point):
        return (point**2).sum(), -2 * point  # the gradient points the wrong way

    state, outcome = minimise(lying, jnp.ones(3), Settings(l1=l1))
    assert outcome is Outcome.PRECISION
    np.testing.assert_array_equal(state.parameters, 1)
    assert minimise(lying, state, Settings(l1=l1))[1] is Outcome.PRECISION  # still in one piece


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_ends_where_nothing_is_a_number(l1):
    state, outcome = minimise(
        lambda point: (jnp.nan * point.sum(), jnp.nan * point), jnp.ones(3), Settings(l1=l1)
    )
    assert outcome is Outcome.PRECISION
    np.testing.assert_array_equal(state.parameters, 1)
