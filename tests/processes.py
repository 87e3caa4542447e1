"""Processes of their own, which tests start."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]

COMPILED = {
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
}
"""Where the suite keeps compiled programs, so that a program is compiled once and not in every
process."""


def environment(**more: str) -> dict[str, str]:
    """Variables of a process with none of the suite's settings but those that compile quickly."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in COMPILED or not name.startswith(("JAX_", "XLA_"))
    }
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])
    return kept | {"XLA_FLAGS": os.environ["XLA_FLAGS"]} | more
