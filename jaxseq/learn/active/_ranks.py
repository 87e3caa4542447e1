"""Limits on how many of a kind are taken."""

from __future__ import annotations

import numpy as np


def rank_among_equals(keys: np.ndarray) -> np.ndarray:
    """How many equal keys stand before each.

    Example:
        >>> rank_among_equals(np.array([7, 3, 7, 7, 3])).tolist()
        [0, 0, 1, 2, 1]
    """
    order = np.argsort(keys, kind="stable")
    together = keys[order]
    is_first = np.append(True, together[1:] != together[:-1])[: len(keys)]
    places = np.arange(len(keys))
    ranks = np.empty(len(keys), int)
    ranks[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return ranks
