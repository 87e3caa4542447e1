"""Entropies of parts, the lattices' own identities, and Jiao's program on a long chain."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.lattice import (
    Chain,
    entropy,
    entropy_lattices,
    jiao_entropy_gradient,
    log_partition,
    mann_entropy_gradient,
    marginals,
    rest_entropy,
    span_entropy,
)
from tests.lattice.cases import SHARED, enumerate_chain, random_case
from tests.lattice.registry import FLOAT64, Tolerance, assert_trees_close

CHAINS = [
    random_case(SHARED, seed, length=length, forbid=forbid).chain
    for seed, (length, forbid) in enumerate([(5, 0.0), (3, 0.0), (5, 0.25), (1, 0.0), (0, 0.0)])
]


def test_entropy_of_every_span():
    """One program for all spans of a chain: start and stop are traced."""
    spans = [(a, b) for a in range(6) for b in range(a, 6)]
    starts, stops = np.array(spans).T
    every = jax.jit(jax.vmap(span_entropy, (None, 0, 0)))
    for chain in CHAINS:
        table = enumerate_chain(chain)
        expected = np.array([table.span_entropy(a, b) for a, b in spans])
        assert_trees_close(every(chain, starts, stops), expected, FLOAT64)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_entropy_of_the_rest_for_all_given_labels(width):
    queries = list(itertools.product(range(6 - width), itertools.product(range(3), repeat=width)))
    starts = jnp.array([start for start, _ in queries])
    labels = jnp.array([given for _, given in queries])
    every = jax.jit(jax.vmap(rest_entropy, (None, 0, 0)))
    for chain in CHAINS:
        table = enumerate_chain(chain)
        answers = [table.rest_entropy(start, np.array(given)) for start, given in queries]
        assert_trees_close(every(chain, starts, labels), np.array(answers), FLOAT64)


def test_every_position_tells_the_whole_entropy():
    """H = Σ_i m_t(i) [−log m_t(i) + Hα_t(i) + Hβ_t(i)] at each t."""
    for chain in CHAINS[:3]:
        weights = np.asarray(marginals(chain).nodes)
        left, right = entropy_lattices(chain)
        own = -np.log(np.where(weights > 0, weights, 1))
        length = int(chain.length)
        each = (weights * (own + left + right)).sum(1)[:length]
        assert_trees_close(each, np.full(length, entropy(chain)), FLOAT64)


def test_entropy_is_log_partition_less_expected_score():
    chain = CHAINS[0]
    found = marginals(chain)
    expected = (found.nodes * chain.nodes).sum() + (found.edges * chain.edges).sum()
    assert_trees_close(entropy(chain), log_partition(chain) - expected, FLOAT64)


def test_gradient_sums_to_zero_at_every_position():
    """Adding a constant to all labels of a position changes no distribution."""
    for gradient in (mann_entropy_gradient, jiao_entropy_gradient):
        for chain in CHAINS[:3]:
            sums = gradient(chain).nodes.sum(1)
            assert_trees_close(sums, np.zeros(5), FLOAT64)


def _long_chain(dtype, n=500, s=3) -> Chain:
    random = np.random.default_rng(0)
    nodes, edges = random.normal(size=(n, s)) * 2, random.normal(size=(s, s)) * 2
    return Chain(jnp.asarray(nodes, dtype), jnp.asarray(edges, dtype))


def test_jiao_is_stable_on_500_positions():
    for dtype, tolerance in [(np.float64, FLOAT64), (np.float32, Tolerance(1e-2, 1e-3))]:
        chain = _long_chain(dtype)
        jiao, mann = jiao_entropy_gradient(chain), mann_entropy_gradient(chain)
        assert_trees_close(jiao, mann, tolerance, str(dtype))
        assert float(jnp.abs(jiao.nodes).max()) > 0.1


def test_float32_is_accurate_on_500_positions():
    """As the docstrings promise: relative 1e-5 of log Z, absolute 1e-5 · n of the entropy."""
    single, double = _long_chain(np.float32), _long_chain(np.float64)
    assert_trees_close(log_partition(single), log_partition(double), Tolerance(0, 1e-5))
    assert_trees_close(entropy(single), entropy(double), Tolerance(1e-5 * 500, 0))
    assert_trees_close(marginals(single), marginals(double), Tolerance(1e-4, 0))


def test_uniform_chains_have_the_log_of_their_paths():
    chain = Chain(jnp.zeros((5, 3)), jnp.zeros((3, 3)), 4)
    assert_trees_close(entropy(chain), 4 * np.log(3), FLOAT64)
    assert_trees_close(span_entropy(chain, 1, 3), 2 * np.log(3), FLOAT64)
    assert_trees_close(mann_entropy_gradient(chain).nodes, np.zeros((5, 3)), FLOAT64)
