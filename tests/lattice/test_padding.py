"""Law: a padded chain equals the truncated one in value and gradient; padding has gradient 0."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.lattice import Chain, ChainVector, entropy, log_partition, marginals
from tests.lattice.cases import (
    PER_POSITION,
    SHARED,
    TRUNCATED,
    Case,
    direction_for,
    make_case,
    random_case,
    scores_of,
)
from tests.lattice.registry import (
    DIFFERENTIABLE,
    ENTRIES,
    FLOAT64,
    Tolerance,
    assert_trees_close,
    by_name,
    derivatives,
    value_and_gradient,
)

LENGTH, PADDED = TRUNCATED.n, PER_POSITION.n
CLOSE = Tolerance(1e-5, 1e-5)
GARBAGE = {
    "scores": [0.0, 1e4, -1e4, 1e30, -1e30, -np.inf],
    "no scores": [np.inf, np.nan],
}


def _pad(array, size: int, value):
    """`array` with entries of `value` appended to its first axis."""
    array = np.asarray(array)
    extra = (size - array.shape[0], *array.shape[1:])
    return np.concatenate([array, np.full(extra, value, array.dtype)])


def _padded(case: Case, garbage: float) -> Case:
    """The case with padding full of garbage, wherever the caller may leave some."""
    finite = garbage if np.isfinite(garbage) else 1e30  # a tangent has to be finite
    pad = lambda x, value: _pad(x, PADDED if len(x) == LENGTH else PADDED - 1, value)  # noqa: E731
    scores = [pad(x, garbage) for x in scores_of(case)]
    return make_case(
        *scores[:2],
        LENGTH,
        other=scores[2:],
        dtype=np.float32,
        path=pad(case.path, 99),
        tangent=(pad(case.tangent.nodes, finite), pad(case.tangent.edges, finite)),
        allowed=pad(case.allowed, garbage > 0),
        **{name: getattr(case, name) for name in ("start", "stop", "given", "labels")},
    )


def _cut(leaf, value):
    """Every axis of positions cut to the real ones; the rest has to hold `value`."""
    leaf = np.asarray(leaf)
    for axis, size in enumerate(leaf.shape):
        if size in (PADDED, PADDED - 1):
            keep = LENGTH - (PADDED - size)
            beyond = np.take(leaf, range(keep, size), axis)
            np.testing.assert_array_equal(beyond, np.full_like(beyond, value))
            leaf = np.take(leaf, range(keep), axis)
    return leaf


def _cut_all(tree):
    """Cut outputs: on padding labels are −1, everything else exactly 0."""
    return jax.tree.map(lambda x: _cut(x, -1 if np.issubdtype(x.dtype, np.integer) else 0), tree)


def _truncated_cases():
    return [
        random_case(TRUNCATED, seed, dtype=np.float32, forbid=seed % 3 / 6) for seed in range(6)
    ]


@functools.cache
def _truncated(name: str):
    """Output and gradient of chains that need no padding."""
    return jax.jit(functools.partial(value_and_gradient, by_name(name)))


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
def test_padded_equals_truncated_in_value_and_gradient(entry, garbage):
    """The gradient on padding is exactly 0, and so is the Hessian times any direction."""
    for case in _truncated_cases():
        expected = _truncated(entry.name)(case._replace(chain=_whole(case.chain)))
        for value in GARBAGE[garbage]:
            padded = _padded(case, value)
            result = derivatives(entry.name)(padded, direction_for(padded))
            found = _cut_all((result.output, result.gradient))
            assert_trees_close(found, expected, CLOSE, f"padding of {value}")
            _cut_all(result.curve)


def _whole(chain: Chain) -> Chain:
    return Chain(chain.nodes, chain.edges)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("entry", [e for e in ENTRIES if e not in DIFFERENTIABLE], ids=repr)
def test_padded_equals_truncated(entry, garbage):
    for case in _truncated_cases():
        expected = entry.call(case, "auto")
        for value in GARBAGE[garbage]:
            result = entry.call(_padded(case, value), "auto")
            assert_trees_close(_cut_all(result), expected, CLOSE, f"padding of {value}")


def test_no_length_means_all_positions():
    case = random_case(SHARED, 0)
    without = Chain(case.chain.nodes, case.chain.edges)
    for function in (log_partition, entropy):
        assert_trees_close(function(without), function(case.chain), FLOAT64)
    assert_trees_close(marginals(without), marginals(case.chain), FLOAT64)


@pytest.mark.parametrize(("length", "meaning"), [(9, 5), (-3, 0)])
def test_a_traced_length_out_of_range_means_the_nearest_in_range(length, meaning):
    case = random_case(SHARED, 1)
    at = jax.jit(lambda length: log_partition(Chain(case.chain.nodes, case.chain.edges, length)))
    assert_trees_close(at(length), at(meaning), FLOAT64)


def test_mixed_precisions_are_promoted():
    chain = Chain(jnp.zeros((3, 2), jnp.float32), jnp.zeros((2, 2), jnp.float64))
    assert chain.nodes.dtype == chain.edges.dtype == jnp.float64
    assert isinstance(marginals(chain), ChainVector)
