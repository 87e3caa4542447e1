"""Compiled programs, of which a process can hold only so many."""

from __future__ import annotations

import gc
from pathlib import Path

import jax

MAPS, MOST_MAPS = Path("/proc/self/maps"), 30_000


def forget_programs(most: int = MOST_MAPS) -> bool:
    """Forget compiled programs if there are many; says whether it did.

    Each holds about fifty mappings of memory, of which Linux gives a process 65,530; past that the
    compiler crashes. Corpora of other sizes are other programs, and an experiment has many.

    Args:
        most: mappings that are left alone. Where they cannot be counted, nothing is forgotten.

    Example:
        >>> forget_programs(most=10**9)
        False
    """
    if not MAPS.exists() or MAPS.read_bytes().count(b"\n") <= most:
        return False
    jax.clear_caches()
    gc.collect()  # programs are in reference cycles, and would stay mapped
    return True
