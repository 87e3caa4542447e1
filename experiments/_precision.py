"""float64 for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def double_precision() -> Iterator[None]:
    """float64 in all threads, which JAX's own context manager would set in one only.

    Example:
        >>> import jax.numpy as jnp
        >>> with double_precision():
        ...     jnp.zeros(1).dtype.name
        'float64'
    """
    # The configuration of the process: worker threads of jaxseq read it as well.
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
