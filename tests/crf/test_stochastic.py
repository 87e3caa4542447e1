"""Descent by mini-batches: where it ends, and that it can be repeated and taken up again."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxseq import Outcome
from jaxseq.crf import StochasticSettings, descend
from tests.crf.problems import (
    COLUMNS,
    as_vector,
    batches_of,
    draw_logistic,
    minimum_by_proximal_steps,
    minimum_by_scipy,
    zeros,
)

BATCHES = 4
ALGORITHMS = ["adamw", "sgd"]
PROBLEM = draw_logistic(0, 1.0)
OBJECTIVE = batches_of(PROBLEM, BATCHES)
RATES = {"adamw": 0.03, "sgd": 0.03}


def settings_of(algorithm, epochs, **others):
    basic = StochasticSettings(algorithm, epochs, BATCHES, RATES[algorithm], seed=3, sentences=40.0)
    return basic._replace(**others)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ends_near_the_minimum_of_the_whole(algorithm):
    start = zeros()
    state, outcome = descend(OBJECTIVE, start, settings_of(algorithm, 150))
    assert outcome is Outcome.MAX_ITERATIONS
    np.testing.assert_allclose(as_vector(state.parameters), minimum_by_scipy(PROBLEM), atol=5e-3)
    np.testing.assert_array_equal(as_vector(start), np.zeros(COLUMNS))


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 5.0), (3.0, 0.0), (3.0, 5.0)])
def test_sgd_ends_near_the_minimum_with_penalties(l1, l2):
    state, _ = descend(OBJECTIVE, zeros(), settings_of("sgd", 300, l1=l1, l2=l2))
    wanted = minimum_by_proximal_steps(PROBLEM, l1, l2)
    np.testing.assert_allclose(as_vector(state.parameters), wanted, atol=5e-3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_l1_makes_weights_exactly_zero(algorithm):
    found = {}
    for l1 in (0.0, 10.0, 1000.0):
        state, _ = descend(OBJECTIVE, zeros(), settings_of(algorithm, 60, l1=l1))
        found[l1] = int((as_vector(state.parameters) == 0).sum())
    assert found[0.0] == 0
    assert 0 < found[10.0] < found[1000.0] == COLUMNS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_l2_makes_weights_smaller(algorithm):
    sizes = []
    for l2 in (0.0, 20.0):
        state, _ = descend(OBJECTIVE, zeros(), settings_of(algorithm, 60, l2=l2))
        sizes.append(np.linalg.norm(as_vector(state.parameters)))
    assert sizes[1] < 0.9 * sizes[0]


def bits(state):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_seed_decides_every_bit(algorithm):
    settings = settings_of(algorithm, 5, l1=1.0, l2=1.0)
    first, again = (descend(OBJECTIVE, zeros(), settings)[0] for _ in range(2))
    other, _ = descend(OBJECTIVE, zeros(), settings._replace(seed=4))
    assert bits(first) == bits(again)
    assert bits(first) != bits(other)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_going_on_after_an_epoch_is_as_if_never_stopped(algorithm):
    settings = settings_of(algorithm, 6, l1=1.0, l2=1.0)
    kept = {}
    whole, _ = descend(
        OBJECTIVE, zeros(), settings, lambda state: kept.update({state.iteration: state})
    )
    assert sorted(kept) == [1, 2, 3, 4, 5, 6]
    assert bits(descend(OBJECTIVE, kept[2], settings)[0]) == bits(whole)


def test_every_batch_is_seen_once_an_epoch_in_another_order():
    seen = []

    def objective(point, batch, step):
        seen.append(batch)
        return OBJECTIVE(point, batch, step)

    descend(objective, zeros(), settings_of("sgd", 5))
    epochs = [tuple(seen[i : i + BATCHES]) for i in range(0, len(seen), BATCHES)]
    assert all(sorted(epoch) == list(range(BATCHES)) for epoch in epochs)
    assert len(epochs) == 5
    assert len(set(epochs)) > 1


def test_the_value_is_the_loss_summed_over_an_epoch():
    settings = settings_of("sgd", 1, learning_rate=0.0)
    state, _ = descend(OBJECTIVE, zeros(), settings)
    assert state.values[-1] == pytest.approx(PROBLEM.of_vector(np.zeros(COLUMNS))[0])


def test_interrupts_keep_the_last_epoch():
    kept, calls = {}, []

    def objective(point, batch, step):
        calls.append(batch)
        if len(calls) == 2 * BATCHES + 2:
            raise KeyboardInterrupt
        return OBJECTIVE(point, batch, step)

    settings = settings_of("adamw", 5)
    state, outcome = descend(
        objective, zeros(), settings, lambda state: kept.update({state.iteration: state})
    )
    assert outcome is Outcome.INTERRUPTED
    assert state.iteration == 2
    assert bits(state) == bits(kept[2])
    whole, _ = descend(OBJECTIVE, zeros(), settings)
    assert bits(descend(OBJECTIVE, state, settings)[0]) == bits(whole)
