"""Long chains in blocks: right for every way of cutting, honest about what is not proved, lean."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.lattice import Chain, entropy, log_partition, marginals
from jaxseq.lattice import _blocked as _blocked_entropy
from jaxseq.lattice._blocked import Plan, _scaled_blocked, log_blocked, plan_blocks, unfold
from tests.lattice.cases import (
    EXTREMES,
    PER_POSITION,
    SHARED,
    direction_for,
    make_case,
    random_case,
    stack,
    unstack,
)
from tests.lattice.registry import (
    FLOAT32,
    FLOAT64,
    Tolerance,
    assert_trees_close,
    by_name,
    derivatives,
    differentiate,
)

N, S = 150, 3
PLANS = {
    "one group": Plan(length=32, groups=1, columns=5, warm_up=32, proof=8),
    "groups": Plan(length=13, groups=3, columns=4, warm_up=13, proof=5),
}
ENGINES = {
    "scaled": functools.partial(_scaled_blocked, rounds=1),
    "log": lambda *row, **how: (log_blocked(*row, **how), True),
}


def _plain(nodes, edges, length):
    """log Z, node and edge marginals in float64 by the textbook's recursions, in numpy."""
    nodes, edges = np.asarray(nodes, np.float64)[:length], np.asarray(edges, np.float64)
    n, s = nodes.shape
    edges = np.broadcast_to(edges, (max(n - 1, 0), s, s)) if edges.ndim == 2 else edges[: n - 1]
    alphas, betas = [nodes[0]], [np.zeros(s)]
    with np.errstate(invalid="ignore"):
        for t in range(n - 1):
            alphas.append(np.logaddexp.reduce(alphas[-1][:, None] + edges[t], 0) + nodes[t + 1])
        for t in reversed(range(n - 1)):
            betas.insert(0, np.logaddexp.reduce(edges[t] + nodes[t + 1] + betas[0], 1))
    log_z = np.logaddexp.reduce(alphas[-1])
    pairs = [
        np.exp(alphas[t][:, None] + edges[t] + nodes[t + 1] + betas[t + 1] - log_z)
        for t in range(n - 1)
    ]
    return log_z, np.exp(np.array(alphas) + np.array(betas) - log_z), np.array(pairs)


def _scores(seed, per_position=False, spread=1.0, dtype=np.float64):
    random = np.random.default_rng([seed, 9])
    shape = (N - 1, S, S) if per_position else (S, S)
    return [jnp.asarray(random.normal(size=x) * spread, dtype) for x in ((N, S), shape)]


@functools.cache
def _engine(engine: str, plan: str, summed: bool):
    run = functools.partial(ENGINES[engine], plan=PLANS[plan], summed=summed)
    return jax.jit(lambda chain: run(chain.nodes, chain.edges, chain.linked, chain.valid))


def _run(engine: str, plan: str, summed: bool, chain: Chain):
    """log Z, marginals by position, and whether they are proved right."""
    (log_z, by_node, by_edge), certified = _engine(engine, plan, summed)(chain)
    by_edge = by_edge if summed else unfold(by_edge, 1, N - 1)
    return (log_z, unfold(by_node, 1, N), by_edge), certified


def _padded(array, length, shape):
    array = np.reshape(array, (length, *shape[1:]))
    return np.concatenate([array, np.zeros((shape[0] - length, *shape[1:]))])


@pytest.mark.parametrize("per_position", [False, True], ids=["shared", "each"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_cut_gives_the_plain_recursions(engine, plan, per_position):
    nodes, edges = _scores(0, per_position)
    for length in (150, 131, 130, 129, 64, 14, 13, 1):
        garbage = jnp.where(jnp.arange(N)[:, None] < length, nodes, jnp.nan)
        chain = Chain(garbage, edges, length)
        (log_z, by_node, by_edge), certified = _run(engine, plan, not per_position, chain)
        assert certified, f"length {length}"
        expected = _plain(nodes, edges, length)
        pairs = _padded(expected[2], length - 1, (N - 1, S, S))
        wanted = expected[0], _padded(expected[1], length, (N, S)), pairs
        found = log_z, by_node, by_edge
        if not per_position:
            wanted = *wanted[:2], pairs.sum(0)
        assert_trees_close(found, wanted, FLOAT64, f"length {length}")
        assert not by_node[length:].any()


def _stubborn():
    """Chains that never forget, or underflow, or have no path."""
    nodes, edges = _scores(1)
    off = 1 - np.eye(S)
    drifting = np.zeros((N, S))
    drifting[:, 0] = 1e-7
    dead = np.array(nodes)
    dead[70] = -np.inf
    low_first = np.array(nodes) * 0
    low_first[:, 1] = -900.0
    one_way = np.where(np.triu(np.ones((S, S))) > 0, 0.0, -np.inf)
    return {
        "labels never change": (nodes * 0.1, np.where(off > 0, -np.inf, 0.0)),
        "labels hardly ever change": (nodes * 0.1, -40.0 * off),
        "agrees with its neighbours and drifts": (drifting, -60.0 * off),
        "left to right": (nodes, one_way),
        "underflows": (
            low_first + np.array(nodes),
            np.array([[-np.inf, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ),
        "dead": (dead, edges),
    }


@pytest.mark.parametrize("name", _stubborn())
def test_what_cannot_be_proved_is_refused_and_done_in_logs(name):
    chain = Chain(*(jnp.asarray(x) for x in _stubborn()[name]), N)
    _, certified = _run("scaled", "groups", True, chain)
    (log_z, by_node, by_edge), _ = _run("log", "groups", True, chain)
    if name == "dead":
        assert log_z == -np.inf
        wanted = -np.inf, np.zeros((N, S)), np.zeros((S, S))
    else:
        log_z_plain, nodes_plain, pairs = _plain(chain.nodes, chain.edges, N)
        wanted = log_z_plain, nodes_plain, pairs.sum(0)
    assert_trees_close((log_z, by_node, by_edge), wanted, Tolerance(1e-8, 1e-8))
    assert not certified


def test_forbidden_transitions_are_proved_too():
    """Where every label comes back in time; nothing there is for the slow engine."""
    nodes, edges = _scores(2)
    edges = edges.at[0, 2].set(-jnp.inf).at[1, 1].set(-jnp.inf)
    nodes = nodes.at[::7, 1].set(-jnp.inf).at[30].set(jnp.array([-jnp.inf, -jnp.inf, 0]))
    chain = Chain(nodes, edges, N)
    found, certified = _run("scaled", "one group", True, chain)
    assert certified
    log_z, by_node, pairs = _plain(nodes, edges, N)
    assert_trees_close(found, (log_z, by_node, pairs.sum(0)), FLOAT64)


@pytest.mark.parametrize("name", ["log_partition", "marginals"])
def test_public_functions_equal_the_default_in_every_derivative(name):
    run = jax.jit(functools.partial(differentiate, by_name(name), method="blocked"))
    chosen = [random_case(PER_POSITION, 0, length=length, forbid=0.1) for length in (5, 3, 1, 0)]
    chosen += [make_case(*scores, 5) for scores in EXTREMES.values()]
    for case in chosen:
        direction = direction_for(case)
        found, expected = run(case, direction), derivatives(name)(case, direction)
        by_name(name).assert_agrees(found.output, case)
        assert_trees_close(found[1:], expected[1:], Tolerance(1e-7, 1e-7))


def test_hessian_of_shared_edges():
    case = random_case(SHARED, 3, length=4)
    run = functools.partial(differentiate, by_name("log_partition"))
    found = jax.jit(functools.partial(run, method="blocked"))(case, direction_for(case))
    expected = derivatives("log_partition")(case, direction_for(case))
    assert_trees_close(found, expected, FLOAT64)


def test_vmap_equals_a_loop():
    """One dead member sends the whole batch to the slow engine, and spoils none of it."""
    batch = [random_case(SHARED, seed, length=5 - seed).chain for seed in range(3)]
    batch.append(Chain(batch[0].nodes.at[2].set(-jnp.inf), batch[0].edges, jnp.int32(5)))
    function = lambda chain: log_partition(chain, method="blocked")  # noqa: E731
    together = jax.vmap(function)(stack(batch))
    for index, chain in enumerate(batch):
        assert_trees_close(unstack(together, index), log_partition(chain, method="log"), FLOAT64)


def test_float32_of_a_longer_chain():
    random = np.random.default_rng(4)
    nodes, edges = (jnp.asarray(random.normal(size=x), np.float32) for x in ((2500, 4), (4, 4)))
    gradient = jax.jit(jax.value_and_grad(_blocked_log_partition, (0, 1)))
    log_z, (by_node, by_edge) = gradient(nodes, edges)
    wanted = _plain(nodes, edges, 2500)
    assert_trees_close(log_z, wanted[0], Tolerance(0, 1e-6))
    assert_trees_close(by_node, wanted[1], FLOAT32)
    assert_trees_close(by_edge, wanted[2].sum(0), Tolerance(0, 1e-5))


def _blocked_log_partition(nodes, edges):
    return log_partition(Chain(nodes, edges), method="blocked")


def test_edge_marginals_of_all_positions_are_never_formed():
    """They would take s times the memory of the scores; everything together takes less."""
    n, s = 100_000, 24
    edge_marginals = 4 * n * s * s
    for function in (log_partition, entropy):
        assert _working_memory(function, "blocked", n, s) < edge_marginals
    assert _working_memory(log_partition, "auto", n, s) > edge_marginals, "would not be noticed"


def _working_memory(function, method: str, n: int, s: int) -> int:
    """Bytes that a gradient needs besides its arguments and its result."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, s), (s, s))]
    value = lambda nodes, edges: function(Chain(nodes, edges), method=method)  # noqa: E731
    analysis = jax.jit(jax.grad(value, (0, 1))).lower(*shapes).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def test_entropy_block_by_block(monkeypatch):
    """Cut anywhere, with forbidden labels and a length, it is that of the log engine."""
    nodes, edges = _scores(6)
    edges = edges.at[0, 1].set(-jnp.inf)
    for block in (7, 50, 1024):
        monkeypatch.setattr(_blocked_entropy, "LENGTH", block)
        for length in (0, 1, 99, N):
            found, wanted = (
                jax.value_and_grad(
                    lambda nodes, edges: entropy(Chain(nodes, edges, length), method=method), (0, 1)
                )(nodes, edges)
                for method in ("blocked", "log")
            )
            assert_trees_close(found, wanted, FLOAT64)
        jax.clear_caches()  # of programs for other blocks


def test_entropy_of_a_longer_chain_in_float32():
    random = np.random.default_rng(7)
    nodes, edges = random.normal(size=(20_000, 4)), random.normal(size=(4, 4))
    found, wanted = (
        jax.jit(jax.value_and_grad(functools.partial(_entropy, method), (0, 1)))(
            jnp.asarray(nodes, dtype), jnp.asarray(edges, dtype)
        )
        for method, dtype in (("blocked", "float32"), ("log", "float64"))
    )
    assert_trees_close(found[0], wanted[0], Tolerance(0, 1e-6))
    assert_trees_close(found[1][0], wanted[1][0], FLOAT32)
    assert_trees_close(found[1][1], wanted[1][1], Tolerance(1e-3, 1e-5))


def _entropy(method, nodes, edges):
    return entropy(Chain(nodes, edges), method=method)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17, 1000, 25_344, 1_000_000])
def test_plans_hold_all_positions_and_one_more(n):
    plan = plan_blocks(n, S, np.float32)
    size = plan.length * plan.blocks
    assert size >= n + 1
    assert size <= 1.1 * (n + 1) + 10 * plan.length
    assert 1 <= plan.proof <= plan.warm_up <= plan.length


def test_marginals_come_by_position():
    nodes, edges = _scores(5)
    found = marginals(Chain(nodes, edges), method="blocked")
    assert_trees_close((found.nodes, found.edges), _plain(nodes, edges, N)[1:], FLOAT64)


@pytest.mark.parametrize(("n", "length"), [(8, 8), (20, 8), (81, 81), (100, 99)])
def test_a_sequence_that_ends_where_a_block_ends(n, length):
    """The last position is then the next block's business; slow steps before it tempt to guess."""
    rng = np.random.default_rng(n)
    plan = plan_blocks(n, S, np.dtype(np.float64))
    edges = rng.normal(size=(n - 1, S, S))
    edges[max(0, length - 1 - plan.length) : length - 1] = np.where(np.eye(S) == 1, 0, -9.0)
    nodes = rng.normal(size=(n, S))
    nodes[max(0, length - plan.length) : length] *= 0.01
    found = marginals(Chain(nodes, edges, length), method="blocked")
    _, by_node, by_edge = _plain(nodes, edges, length)
    np.testing.assert_allclose(found.nodes[:length], by_node, atol=1e-9)
    np.testing.assert_allclose(found.edges[: length - 1], by_edge, atol=1e-9)
    assert not np.asarray(found.nodes[length:]).any()
