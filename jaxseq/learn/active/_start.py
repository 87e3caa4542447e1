"""Where active learning starts."""

from __future__ import annotations

import operator
from typing import Literal

import numpy as np

HOW = ("longest", "random", "shortest")


def first_sentences(
    lengths: np.ndarray,
    count: int,
    how: Literal["longest", "random", "shortest"] = "longest",
    seed: int = 0,
) -> np.ndarray:
    """The sentences to label before there is a model.

    Args:
        lengths: int [B]; sentences without tokens are never chosen.
        count: how many.
        how: the ``"longest"`` (the best start in Wanvarie et al. 2011, section 5.3), the
            ``"shortest"`` or ``"random"`` ones. Those of equal length in the order of the pool.
        seed: of the random ones.

    Returns:
        int [count], or fewer where there are fewer, in the order of choice.

    Example:
        >>> import numpy as np
        >>> first_sentences(np.array([2, 5, 0, 5, 1]), 3).tolist()
        [1, 3, 0]
        >>> first_sentences(np.array([2, 5, 0, 5, 1]), 2, "shortest").tolist()
        [4, 0]
    """
    if how not in HOW:
        raise ValueError(f"how: expected one of {list(HOW)}, got {how!r:.60}")
    count = operator.index(count)
    if count < 0:
        raise ValueError(f"count: expected 0 or more, got {count}")
    lengths = np.asarray(lengths)
    there = np.flatnonzero(lengths > 0)
    if how == "random":
        order = np.random.default_rng(seed).permutation(len(there))
    else:
        order = np.argsort(lengths[there] * (-1 if how == "longest" else 1), kind="stable")
    return there[order][:count]
