"""What a path keeps beside its points: rows with room, and numbers of its problem in NumPy."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.homotopy import Problem, Structure
from jaxseq.homotopy import _path as paths
from jaxseq.homotopy import _problem as flats
from jaxseq.homotopy._linear import gmres
from jaxseq.homotopy._path import _with_row
from jaxseq.homotopy._problem import find_flat, flat_map


def test_rows_that_two_paths_go_on_from_stay_as_they_were():
    first = _with_row(np.zeros((1, 2)), np.ones(2))
    one = _with_row(first, np.full(2, 2.0))
    other = _with_row(first, np.full(2, 3.0))
    again = _with_row(other, np.full(2, 4.0))
    assert first.tolist() == [[0, 0], [1, 1]]
    assert one.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert other.tolist() == [[0, 0], [1, 1], [3, 3]]
    assert again[:3].tolist() == other.tolist()
    assert np.shares_memory(one, first)
    assert np.shares_memory(again, other)
    assert not np.shares_memory(one, other)


def test_rows_turned_round_are_copied():
    rows = _with_row(np.zeros((1, 2)), np.ones(2))
    assert _with_row(rows[::-1], np.full(2, 2.0)).tolist() == [[1, 1], [0, 0], [2, 2]]
    assert rows.tolist() == [[0, 0], [1, 1]]


def test_many_rows_are_moved_seldom():
    rows, moved = np.zeros((1, 3)), 0
    for number in range(1, 500):
        before, rows = rows, _with_row(rows, np.full(3, number))
        moved += not np.shares_memory(before, rows)
    assert rows[:, 0].tolist() == list(range(500))
    assert moved < 8


def test_nothing_is_kept_of_what_is_gone():
    gc.collect()  # what other tests have left must not go in between
    rows = _with_row(np.zeros((1, 2)), np.ones(2))
    problem = Problem(lambda x: x / 2, jnp.ones(2), structure=Structure.SYMMETRIC)
    find_flat(problem)
    before = len(paths._TAKEN), len(flats._MADE)
    del rows, problem
    gc.collect()
    assert (len(paths._TAKEN), len(flats._MADE)) == (before[0] - 1, before[1] - 1)


def _bent(lam):
    return (1 - lam) ** 2, lam**2


@pytest.mark.parametrize("weights", [None, _bent], ids=["linear", "bent"])
def test_numbers_of_a_problem_are_those_of_jax(weights):
    constant = {"a": jnp.arange(1.0, 4.0), "b": jnp.ones((2, 2))}
    scale = jax.tree.map(lambda leaf: leaf + 0.5, constant)
    given = {} if weights is None else {"weights": weights}
    problem = Problem(lambda tree: tree, constant, scale=scale, **given)
    flat = find_flat(problem)
    assert flat is find_flat(problem)
    np.testing.assert_allclose(flat.constant, flat_map(problem)[0], rtol=1e-12)
    for lam in (0.0, 0.3, 0.3, 1.0):
        at = jnp.asarray(lam)
        values, slopes = jax.jvp(problem.weights, (at,), (jnp.ones_like(at),))
        np.testing.assert_allclose(flat.weights(lam), [values, slopes], rtol=1e-12)
    tree = flat.as_tree(flat.constant)
    for name, leaf in constant.items():
        np.testing.assert_allclose(tree[name], leaf, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 5, 30])
def test_gmres_ends_as_soon_as_its_goal_is_reached(size):
    """Residuals by rotations are those of the systems themselves."""
    rng = np.random.default_rng(size)
    matrix = np.eye(40) + 0.1 * rng.normal(size=(40, 40))
    right, counted = rng.normal(size=40), []

    def product(vector):
        counted.append(1)
        return matrix @ vector

    goal = np.inf
    for number in range(1, size + 1):
        _, rest = gmres(product, right, 0.0, number, 1, lambda x: x)
        goal = np.linalg.norm(rest) / np.linalg.norm(right)
    counted.clear()
    _, rest = gmres(product, right, goal * (1 + 1e-9), 40, 1, lambda x: x)
    assert len(counted) == size
    assert np.linalg.norm(rest) <= goal * (1 + 1e-6) * np.linalg.norm(right)
