"""The other cores of a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores that this process may run on, of those that the machine has.

    Example:
        >>> 1 <= usable_cores() <= os.cpu_count()
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_on_cores(fn: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[fn(item) for item in items]``, all at the same time, a thread each.

    XLA runs one compiled loop on one core of a CPU, and programs started from one thread one
    after another; programs started from different threads run side by side. So a corpus cut into
    as many batches as there are cores is done in a fraction of the time. On an accelerator, whose
    one program fills the device, the items are only handed over in order.

    Args:
        fn: a function of one item that calls jitted functions; must be safe to call from
            several threads, as pure functions are.
        items: as many as there are cores to use; the same shapes mean one compilation.

    Returns:
        The results in the order of the items, ready (not pending).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> halves = [jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4))) for _ in range(2)]
        >>> found = jaxseq.map_on_cores(jaxseq.batch_marginals, halves)
        >>> [marginals.nodes.shape for marginals in found]
        [(2, 3, 4), (2, 3, 4)]
    """
    items = list(items)
    double = jax.dtypes.canonicalize_dtype("float64") == "float64"

    def finish(item: Item) -> Result:
        # Settings made by a `with` block hold for the thread that made them.
        with jax.enable_x64(double):
            return jax.block_until_ready(fn(item))

    if len(items) < 2 or jax.default_backend() != "cpu":
        return jax.block_until_ready([fn(item) for item in items])
    # The first item is for this thread, which has nothing else to do.
    with ThreadPoolExecutor(len(items) - 1, thread_name_prefix="jaxseq") as pool:
        others = pool.map(finish, items[1:])
        return [finish(items[0]), *others]
