"""The default method is right where the scaled engine is not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxseq
from jaxseq.lattice import Chain, entropy, log_partition, mann_entropy_gradient, marginals
from tests.lattice.cases import (
    PER_POSITION,
    SHARED,
    make_case,
    random_case,
    stack,
    underflows,
    unstack,
)
from tests.lattice.registry import FLOAT32, FLOAT64, Tolerance, assert_trees_close

ENGINE_FUNCTIONS = {
    function.__name__: function
    for function in (log_partition, marginals, entropy, mann_entropy_gradient)
}
RELATIVE = Tolerance(2e-5, 2e-5)


def _chain(name, gap, dtype) -> Chain:
    return make_case(*underflows(gap)[name], 5, dtype=dtype).chain


@pytest.mark.parametrize("function", ENGINE_FUNCTIONS)
@pytest.mark.parametrize(
    ("dtype", "gaps"),
    [(np.float32, [50, 85, 100, 120, 130, 150, 200]), (np.float64, [600, 745, 1000, 1300, 1500])],
    ids=["float32", "float64"],
)
def test_auto_equals_log_where_scaled_underflows(function, dtype, gaps):
    call = ENGINE_FUNCTIONS[function]
    for gap in gaps:
        for name in underflows(gap):
            chain = _chain(name, gap, dtype)
            expected = call(chain, method="log")
            assert_trees_close(call(chain), expected, RELATIVE, f"{name}, gap {gap}")


def test_the_chains_do_underflow():
    """Otherwise the test above would show nothing."""
    for name in underflows(200):
        chain = _chain(name, 200, np.float32)
        scaled, log = marginals(chain, method="scaled"), marginals(chain, method="log")
        assert not np.allclose(scaled.nodes, log.nodes, atol=0.1, equal_nan=False), name
        np.testing.assert_allclose(log.nodes.sum(1), np.ones(5), atol=1e-4)


@pytest.mark.parametrize("function", ENGINE_FUNCTIONS)
def test_one_extreme_member_does_not_spoil_a_batch(function):
    call = ENGINE_FUNCTIONS[function]
    batch = [random_case(PER_POSITION, seed, dtype=np.float32).chain for seed in range(3)]
    batch.insert(1, _chain("a low label is the only way on", 150, np.float32))
    together = jax.jit(jax.vmap(call))(stack(batch))
    for index, chain in enumerate(batch):
        expected = call(chain, method="log")
        assert_trees_close(unstack(together, index), expected, RELATIVE, f"member {index}")


def _random_chains(shape, seed, count, spread, forbid, dtype):
    """Many chains with scores anywhere down to −spread, and many of them forbidden."""
    random = np.random.default_rng([seed, 5])

    def scores(size):
        low = random.choice([0.0, 1.0, 0.5], (count, *size))
        values = -spread * low * random.random((count, *size))
        return np.where(random.random(values.shape) < forbid, -np.inf, values)

    lengths = random.integers(1, shape.n + 1, count)
    nodes, edges = scores((shape.n, shape.s)), scores(shape.edges)
    return stack_chains(jnp.asarray(nodes, dtype), jnp.asarray(edges, dtype), jnp.asarray(lengths))


def stack_chains(nodes, edges, lengths) -> Chain:
    return jax.vmap(Chain)(nodes, edges, lengths)


@functools.cache
def _one_by_one(method):
    """log Z and marginals of each chain by itself: in a `vmap`, one would be rescued for all."""

    def both(chain):
        found = marginals(chain, method=method)
        return log_partition(chain, method=method), found.nodes, found.edges

    return jax.jit(lambda chains: lax.map(both, chains))


@pytest.mark.parametrize("forbid", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("spread", [30, 70, 100, 140, 300])
@pytest.mark.parametrize("shape", [PER_POSITION, SHARED], ids=str)
def test_auto_equals_log_on_random_spreads(shape, spread, forbid):
    """3,000 chains of float32 each: the engine's certificate leaves no gap."""
    chains = _random_chains(shape, spread, 3000, spread, forbid, np.float32)
    found, expected = (_one_by_one(method)(chains) for method in ("auto", "log"))
    for name, a, b in zip(("log Z", "nodes", "edges"), found, expected):
        assert_trees_close(a, b, Tolerance(1e-4, 1e-4), name)


def test_the_rescue_is_exact_about_topologies():
    """Left to right over 40 positions with three labels: few paths, none of them lost."""
    n, s = 40, 3
    edges = np.where(np.triu(np.ones((s, s))) > 0, 0.0, -np.inf)
    nodes = np.random.default_rng(0).normal(size=(n, s)) * 5
    nodes[0, 1:] = nodes[-1, :-1] = -np.inf
    for dtype, tolerance in ((np.float32, FLOAT32), (np.float64, FLOAT64)):
        for offset in (0, -30, -200):  # the last label is far less likely until it must come
            tilted = nodes + np.array([0, 0, offset]) * (np.arange(n) < n - 1)[:, None]
            chain = Chain(jnp.asarray(tilted, dtype), jnp.asarray(edges, dtype))
            auto, log = jaxseq.marginals(chain), jaxseq.marginals(chain, method="log")
            assert_trees_close(auto, log, tolerance)
            expected = _left_to_right_log_partition(tilted.astype(dtype).astype(np.float64))
            assert_trees_close(jaxseq.log_partition(chain), expected, tolerance)


def _left_to_right_log_partition(nodes: np.ndarray) -> float:
    """Sum over the two positions at which the label rises."""
    n = len(nodes)
    sums = np.concatenate([np.zeros((1, 3)), np.cumsum(np.where(nodes > -np.inf, nodes, 0), 0)])
    scores = [
        sums[a, 0] + sums[b, 1] - sums[a, 1] + sums[n, 2] - sums[b, 2]
        for a in range(1, n)
        for b in range(a, n)
    ]
    return float(np.logaddexp.reduce(scores))
