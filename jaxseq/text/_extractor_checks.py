"""Checks of a stored extractor's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

LARGEST_COUNT = int(np.iinfo(np.int32).max)


def check_cutoff(cutoff: Any) -> int:
    """A whole number from 1 on; ValueError otherwise.

    Example:
        >>> check_cutoff(2)
        2
    """
    whole = isinstance(cutoff, (int, np.integer)) and not isinstance(cutoff, bool)
    if not whole or not 1 <= cutoff <= LARGEST_COUNT:
        raise ValueError(f"cutoff: expected a whole number from 1 on, found {cutoff!r:.80}")
    return int(cutoff)


def check_meta(meta: Any, kind: str, keys: Iterable[str]) -> None:
    """ValueError unless it is a dict of the kind with exactly the keys, and of version 1.

    Example:
        >>> check_meta({"kind": "dicts", "version": 1, "cutoff": 2}, "dicts", ["cutoff"])
    """
    wanted = {"kind", "version", *keys}
    if not isinstance(meta, Mapping) or set(meta) != wanted:
        found = sorted(map(str, meta)) if isinstance(meta, Mapping) else repr(meta)[:80]
        raise ValueError(f"state: expected a dict of {sorted(wanted)}, found {found}")
    if meta["kind"] != kind:
        raise ValueError(f"state, kind: expected {kind!r}, found {meta['kind']!r:.80}")
    if type(meta["version"]) is not int or meta["version"] != 1:
        raise ValueError(f"state, version: expected 1, found {meta['version']!r:.80}")


def check_names(arrays: Any, names: Iterable[str]) -> None:
    """ValueError unless the arrays are a dict of exactly these names.

    Example:
        >>> check_names({"a": np.zeros(1)}, ["a"])
    """
    wanted = set(names)
    if not isinstance(arrays, Mapping) or set(arrays) != wanted:
        found = sorted(map(str, arrays)) if isinstance(arrays, Mapping) else repr(arrays)[:80]
        raise ValueError(f"state: expected the arrays {sorted(wanted)}, found {found}")


def take_array(arrays: Any, name: str, dtype: type[np.generic]) -> np.ndarray:
    """The array of that name, checked to be one-dimensional and of the dtype.

    Example:
        >>> take_array({"ends": np.array([1, 2])}, "ends", np.int64).tolist()
        [1, 2]
    """
    array = arrays.get(name) if isinstance(arrays, Mapping) else None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
        wanted = f"a one-dimensional array of {np.dtype(dtype)}"
        found = (
            f"{array.ndim} dimensions of {array.dtype}"
            if isinstance(array, np.ndarray)
            else f"{array!r:.80}"
        )
        raise ValueError(f"{name}: expected {wanted}, found {found}")
    return array


def check_ascending(name: str, keys: np.ndarray, size: int) -> None:
    """ValueError unless the keys ascend strictly within 0 … size − 1.

    Example:
        >>> check_ascending("keys", np.array([0, 2, 5]), 6)
    """
    if (keys[1:] <= keys[:-1]).any():
        raise ValueError(f"{name}: expected strictly ascending keys")
    if len(keys) and (keys[0] < 0 or keys[-1] >= size):
        raise ValueError(f"{name}: expected keys from 0 to {size - 1}, found {keys[[0, -1]]}")
