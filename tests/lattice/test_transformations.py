"""Laws: jit equals eager, vmap equals a loop, grad∘vmap equals vmap∘grad, one trace a shape."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.lattice import Chain, entropy, log_partition, marginals
from tests.lattice.cases import (
    EXTREMES,
    PER_POSITION,
    SHARED,
    direction_for,
    make_case,
    random_case,
    scores_of,
    stack,
    unstack,
)
from tests.lattice.registry import (
    DIFFERENTIABLE,
    ENTRIES,
    FLOAT64,
    Tolerance,
    assert_trees_close,
    by_name,
    derivatives,
    projected,
    value_and_gradient,
)

CLOSE = Tolerance(2e-4, 2e-4)  # float32: a batch may run by another engine than its members


def _mixed_batch(dtype=np.float32):
    """Ordinary chains of several lengths; one that no engine but the log can do; one dead."""
    ordinary = [
        random_case(PER_POSITION, seed, length=length, dtype=dtype, forbid=0.1)
        for seed, length in enumerate((5, 3, 1, 4))
    ]
    extreme = [
        make_case(*EXTREMES[name], 5, dtype=dtype)
        for name in ("a low label is the only way on (f32)", "no legal label at one position")
    ]
    return [*ordinary[:2], *extreme, *ordinary[2:]]


@pytest.mark.parametrize("entry", ENTRIES, ids=repr)
def test_one_trace_for_all_values_and_lengths(entry):
    """Of a caller's jit; and an eager call compiles nothing new for new values."""
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def compiled(case):
        return entry.call(case, "auto")

    batch = [random_case(SHARED, seed, length=seed, forbid=0.1) for seed in range(SHARED.n + 1)]
    for case in batch:
        compiled.trace(case)  # traces as a call would, without the time to compile
    jax.block_until_ready(entry.call(batch[0], "auto"))
    with _counting_compilations() as count:
        for case in batch:
            jax.block_until_ready(entry.call(case, "auto"))
    assert not count, f"compiled {len(count)} times for known shapes"


@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
def test_jit_equals_eager(entry):
    for seed, length in enumerate((5, 3, 1)):
        case = random_case(SHARED, seed, length=length, forbid=0.1)
        compiled = derivatives(entry.name)(case, direction_for(case)).output
        assert_trees_close(compiled, entry.call(case, "auto"), FLOAT64)


class _counting_compilations:
    """Collects XLA's compilations while it is entered."""

    def __enter__(self):
        self.durations: list[float] = []
        self.active = True
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self.durations

    def __exit__(self, *_):
        self.active = False  # listeners cannot be taken back by public means

    def _listen(self, event: str, duration: float, **_):
        if self.active and event == "/jax/core/compile/backend_compile_duration":
            self.durations.append(duration)


def test_compilations_are_counted():
    """The counter above would notice."""
    with _counting_compilations() as count:
        jax.jit(lambda x: jnp.cos(x) * 7).lower(jnp.ones(13)).compile()
    assert count


@functools.cache
def _batched(name: str):
    """vmap∘grad, compiled: outputs and gradients of a stack of cases."""
    return jax.jit(jax.vmap(functools.partial(value_and_gradient, by_name(name))))


@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
def test_vmap_equals_a_loop_in_value_and_gradient(entry):
    batch = _mixed_batch()
    together = _batched(entry.name)(stack(batch))
    for index, case in enumerate(batch):
        alone = derivatives(entry.name)(case, direction_for(case))
        expected = alone.output, alone.gradient
        assert_trees_close(unstack(together, index), expected, CLOSE, f"member {index}")


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e not in DIFFERENTIABLE], ids=repr)
def test_vmap_equals_a_loop(entry):
    batch = _mixed_batch()
    together = jax.vmap(lambda case: entry.call(case, "auto"))(stack(batch))
    for index, case in enumerate(batch):
        assert_trees_close(unstack(together, index), entry.call(case, "auto"), FLOAT64)


@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
def test_gradient_of_a_batch_is_the_batch_of_gradients(entry):
    together = stack(_mixed_batch())

    def total(scores):
        return jax.vmap(lambda case, own: projected(entry, case)(own)[0])(together, scores).sum()

    gradient = jax.jit(jax.grad(total))(scores_of(together))
    assert_trees_close(gradient, _batched(entry.name)(together)[1], CLOSE)


@pytest.mark.parametrize("function", [log_partition, marginals, entropy])
def test_nested_vmap_equals_vmap(function):
    batch = stack([case.chain for case in _mixed_batch()])
    nested = jax.tree.map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), batch)
    expected = jax.vmap(function)(batch)
    result = jax.jit(jax.vmap(jax.vmap(function)))(nested)
    flat = jax.tree.map(lambda leaf: leaf.reshape(6, *leaf.shape[2:]), result)
    assert_trees_close(flat, expected, CLOSE)


@pytest.mark.parametrize("axes", [(0, None), (None, 0)], ids=["nodes", "edges"])
def test_vmap_over_one_argument_only(axes):
    cases = [random_case(SHARED, seed).chain for seed in range(3)]
    together = stack(cases)
    nodes = together.nodes if axes[0] == 0 else cases[0].nodes
    edges = together.edges if axes[1] == 0 else cases[0].edges
    result = jax.vmap(lambda nodes, edges: log_partition(Chain(nodes, edges)), axes)(nodes, edges)
    for index in range(3):
        pick = lambda x, axis: x[index] if axis == 0 else x  # noqa: E731
        alone = Chain(pick(nodes, axes[0]), pick(edges, axes[1]))
        assert_trees_close(result[index], log_partition(alone), FLOAT64)
