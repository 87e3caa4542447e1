"""Run a fast algorithm that certifies itself, and a slower one only where it could not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool


def rescue(
    fast: Callable[..., tuple[Any, Bool[Array, "..."]]], slow: Callable[..., Any]
) -> Callable[..., Any]:
    """``fast(*args)[0]`` when ``fast(*args)[1]`` (certified) holds, else ``slow(*args)``.

    A plain `lax.cond` would do for one sequence, but `jax.vmap` turns its condition into an array
    and then runs both branches for everybody. Here a batch asks once whether *any* member needs
    the slow algorithm, so the common case never pays for it, at any depth of nested `vmap`.

    The result is not differentiable (it is called inside custom derivative rules only).

    Args:
        fast: returns (result, certified), where `certified` is a boolean scalar.
        slow: returns a result of the same structure.

    Both take arrays as positional arguments.
    """

    @custom_vmap
    def run(*args):
        result, certified = fast(*args)
        return lax.cond(certified.all(), lambda: result, lambda: slow(*args))

    @run.def_vmap
    def _(axis_size, in_batched, *args):
        in_axes = tuple(0 if batched else None for batched in in_batched)
        batched_run = rescue(
            jax.vmap(fast, in_axes, axis_size=axis_size),
            jax.vmap(slow, in_axes, axis_size=axis_size),
        )
        result = batched_run(*args)
        return result, jax.tree.map(lambda _: True, result)

    return run
