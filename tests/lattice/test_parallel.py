"""The method for long chains on accelerators gives what the others give, in every derivative."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.lattice import Chain, sample, viterbi
from tests.lattice.cases import (
    EXTREMES,
    ONE_LABEL,
    ONE_POSITION,
    PER_POSITION,
    SHARED,
    Case,
    cases,
    direction_for,
    enumerate_chain,
    make_case,
    random_case,
    stack,
    ties,
    unstack,
)
from tests.lattice.registry import (
    FLOAT64,
    KEY,
    NUM,
    Tolerance,
    assert_trees_close,
    by_name,
    derivatives,
    differentiate,
)
from tests.lattice.test_sampling import COUNT, chi_square

TWINS = ["log_partition", "marginals", "viterbi", "sample", "entropy"]
SMOOTH = ["log_partition", "marginals", "entropy"]


def _ordinary(dtype=np.float64) -> list[Case]:
    """Every length, with and without forbidden scores."""
    return [
        random_case(PER_POSITION, seed, length=length, dtype=dtype, forbid=forbid)
        for seed, (length, forbid) in enumerate(
            [(5, 0), (4, 0.2), (3, 0), (2, 0.1), (1, 0), (0, 0)]
        )
    ]


def _with_garbage() -> list[tuple[Case, Case]]:
    """Chains of length 3, and the same with padding that is no number."""
    pairs = []
    for seed, value in enumerate([np.nan, np.inf, -np.inf, 1e30]):
        case = random_case(PER_POSITION, seed, length=3)
        nodes, edges = np.array(case.chain.nodes), np.array(case.chain.edges)
        nodes[3:], edges[2:] = value, value
        pairs.append((case, make_case(nodes, edges, 3, seed=seed)))
    return pairs


@functools.cache
def _parallel(name: str):
    return jax.jit(functools.partial(differentiate, by_name(name), method="parallel"))


def _assert_equal_derivatives(name: str, case: Case, where: str):
    direction = direction_for(case)
    found, expected = (f(name)(case, direction) for f in (_parallel, derivatives))
    for leaf in jax.tree.leaves((found.gradient, found.curve)):
        assert np.isfinite(leaf).all(), where
    by_name(name).assert_agrees(found.output, case)
    tolerance = Tolerance(1e-7, 1e-7)
    assert_trees_close(found[1:], expected[1:], tolerance, where)


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_of_both_orders_are_the_same(name):
    for index, case in enumerate(_ordinary()):
        _assert_equal_derivatives(name, case, f"case {index}")
    for extreme, scores in EXTREMES.items():
        _assert_equal_derivatives(name, make_case(*scores, 5), extreme)


@pytest.mark.parametrize("name", SMOOTH)
def test_padding_of_anything_changes_nothing_and_has_no_gradient(name):
    for case, padded in _with_garbage():
        direction = direction_for(case)
        expected, found = (_parallel(name)(c, direction) for c in (case, padded))
        assert_trees_close(found.output, expected.output, FLOAT64)
        assert_trees_close(found.gradient[:2], expected.gradient[:2], FLOAT64)
        for part in (found.gradient, found.curve):
            np.testing.assert_array_equal(part.nodes[3:], np.zeros((2, 3)))
            np.testing.assert_array_equal(part.edges[2:], np.zeros((2, 3, 3)))


@pytest.mark.parametrize("shape", [SHARED, ONE_POSITION, ONE_LABEL], ids=str)
@pytest.mark.parametrize("name", TWINS)
@given(data=st.data())
def test_other_shapes_equal_enumeration(name, shape, data):
    case = data.draw(cases(shape))
    by_name(name).assert_agrees(by_name(name).call(case, "parallel"), case)


@pytest.mark.parametrize("name", ["log_partition", "marginals", "viterbi", "entropy"])
def test_float32_equals_enumeration(name):
    for extreme, scores in EXTREMES.items():
        case = make_case(*scores, 5, dtype=np.float32)
        try:
            by_name(name).assert_agrees(by_name(name).call(case, "parallel"), case)
        except AssertionError as error:
            raise AssertionError(extreme) from error


@given(cases(SHARED, finite=ties))
def test_ties_are_broken_alike(case):
    found, expected = (viterbi(case.chain, method=method) for method in ("parallel", "auto"))
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_a_key_gives_the_same_labels():
    for case in _ordinary():
        found, expected = (
            sample(case.chain, key=KEY, num=NUM, method=method) for method in ("parallel", "auto")
        )
        np.testing.assert_array_equal(found, expected)


def test_samples_come_as_often_as_they_are_probable():
    chain = random_case(SHARED, 5, length=4, forbid=0.25).chain
    table = enumerate_chain(chain)
    drawn = np.asarray(sample(chain, key=KEY, num=COUNT, method="parallel"))
    observed = np.array([(drawn == path).all(1).sum() for path in table.paths])
    assert observed.sum() == COUNT
    statistic, bound = chi_square(observed, COUNT * table.probabilities)
    assert statistic < bound


@pytest.mark.parametrize("name", ["marginals", "viterbi"])
def test_vmap_equals_a_loop(name):
    batch = _ordinary()
    together = jax.vmap(lambda case: by_name(name).call(case, "parallel"))(stack(batch))
    for index, case in enumerate(batch):
        alone = by_name(name).call(case, "parallel")
        assert_trees_close(unstack(together, index), alone, FLOAT64)


def test_long_chains_lose_no_digits():
    """Scores of a long sum far larger than its differences."""
    nodes = np.random.default_rng(0).normal(size=(401, 3)) + 1000
    nodes = jnp.asarray(nodes, np.float32)
    chain = Chain(nodes, jnp.zeros((3, 3), np.float32))
    path, _ = viterbi(chain, method="parallel")
    np.testing.assert_array_equal(path, np.asarray(nodes).argmax(1))
