"""What every corpus asks of its arguments."""

from __future__ import annotations

from operator import index
from typing import Any


def checked_size(count: Any, seed: Any) -> tuple[int, int]:
    """The two numbers as integers.

    Raises:
        ValueError: if `count` is no integer of 0 or more, or `seed` none of 0 to 2⁶⁴ − 1.

    Example:
        >>> checked_size(3, 0)
        (3, 0)
    """
    size = _integer(count)
    if size is None or size < 0:
        raise ValueError(f"count: expected an integer of 0 or more, got {count!r}")
    start = _integer(seed)
    if start is None or not 0 <= start < 1 << 64:
        raise ValueError(f"seed: expected an integer from 0 to 2**64 - 1, got {seed!r}")
    return size, start


def _integer(value: Any) -> int | None:
    """The value as an integer, also one of NumPy's; None if it is none. Truth is no number."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None
