"""float64 for the length of a `with` block, whatever the process has set."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax
import jax.experimental

DTYPES = ("float32", "float64")


def wide(enabled: bool) -> AbstractContextManager:
    """Allow (or forbid) float64 inside the block; the setting outside is left as it was."""
    home = jax if hasattr(jax, "enable_x64") else jax.experimental  # older releases have it there
    return getattr(home, "enable_x64")(enabled)  # noqa: B009 (which of the two, types cannot know)


def check_dtypes(dtypes: tuple[str, ...]) -> None:
    """Refuse dtypes in which nothing is promised."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ValueError(f"dtypes: expected {' or '.join(DTYPES)}, got {dtype!r}")
