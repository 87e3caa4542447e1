"""Arithmetic that stays finite at zero probability, in value and in every derivative.

Each helper treats a probability below the smallest normal number as zero, and gives the function
its limit there (0 · log 0 = 0) with derivative 0. No clamping: wherever the argument is positive
the result is the exact function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

F = TypeVar("F", bound=Callable[..., Any])


def _positive(x: Array) -> Array:
    # Subnormal numbers count as 0: CPUs may flush them, and their reciprocal overflows.
    return x >= jnp.finfo(x.dtype).tiny


@jax.custom_jvp
def safe_log(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log x, and 0 where x is 0 (its factor, a probability, is 0 there too)."""
    # The inner `where` keeps log 0 = −inf out: its slope would meet the outer one's 0 as 0 · ∞.
    return jnp.where(_positive(x), jnp.log(jnp.where(_positive(x), x, 1)), 0)


@safe_log.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return safe_log(x), _divide_linearly(dx, x)


@jax.custom_jvp
def safe_divide(x: Float[Array, "..."], y: Float[Array, "..."]) -> Float[Array, "..."]:
    """x / y, and 0 where y is 0.

    The derivative is written as (dx − (x/y) dy) / y: JAX's own uses y⁻², which overflows float32
    already for y = 1e-20.
    """
    return jnp.where(_positive(y), x / jnp.where(_positive(y), y, 1), 0)


@safe_divide.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    quotient = safe_divide(x, y)
    return quotient, _divide_linearly(dx - quotient * dy, y)


def _divide_linearly(x: Array, y: Array) -> Array:
    # Written so that JAX sees it linear in x, as the transposition of a derivative rule asks.
    reciprocal = safe_divide(jnp.ones_like(y), y)
    return x * reciprocal


def inverse(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 / x, and 0 where x is 0. Not for differentiation."""
    return jnp.where(x > 0, 1 / x, 0)


def finite_top(
    x: Float[Array, "..."], axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False
) -> Float[Array, "..."]:
    """The maximum along `axis`, and 0 where every entry is −inf: what may be subtracted from x."""
    top = jnp.max(x, axis=axis, keepdims=keepdims)
    return jnp.where(jnp.isneginf(top), 0, top)  # −inf − (−inf) would be NaN


def logsumexp(
    x: Float[Array, "..."], axis: int | tuple[int, ...], *, keepdims: bool = False
) -> Float[Array, "..."]:
    """log Σ exp along `axis`; −inf when every entry is. Not for differentiation."""
    top = finite_top(x, axis, keepdims=True)
    # Where every entry is −inf the sum is 0, and its logarithm the −inf that is wanted.
    total = jnp.log(jnp.sum(jnp.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else jnp.squeeze(total, axis)


def normalise(x: Float[Array, "..."], axis: int | tuple[int, ...]) -> Float[Array, "..."]:
    """exp(x) scaled to sum to 1 along `axis`; all 0 when every entry is −inf.

    Divided by its own sum: exp(x − logsumexp(x)) would be off by the rounding of the logarithm,
    which for scores of 1e4 is 1e-3 in float32.
    """
    weights = jnp.exp(x - finite_top(x, axis, keepdims=True))
    return weights * inverse(weights.sum(axis, keepdims=True))


def argmax(values: Float[Array, "*batch s"]) -> Int[Array, "*batch"]:
    """Index of the largest label score, the first of several, as int32 whatever JAX's default."""
    return jnp.argmax(values, axis=-1).astype(jnp.int32)


matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)
"""Matrix product in full precision: accelerators otherwise round to bfloat16 or TF32."""

einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)
"""`jnp.einsum` in full precision, for the same reason."""

vdot = partial(jnp.vdot, precision=lax.Precision.HIGHEST)
"""`jnp.vdot` in full precision, for the same reason."""


def in_full_precision(function: F) -> F:
    """A function whose products all have full precision, also those of libraries that it calls.

    Example:
        >>> in_full_precision(lambda x: jax.config.jax_default_matmul_precision)(0)
        'highest'
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return cast(F, run)
