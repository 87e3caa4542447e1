"""When to stop."""

from __future__ import annotations

import operator
from typing import Literal

import numpy as np

from jaxseq.active._strategies import Look

# -------------------------------------------------------------------------------------------------
# Where active learning starts.


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


def agreement(before: np.ndarray, after: np.ndarray) -> float:
    r"""Cohen's κ of two labellings of the pool: their agreement beyond that of chance.

    .. math:: \kappa = (p - q) / (1 - q),

    p the share of tokens on which they agree, q that of two independent labellings with the same
    frequencies of labels. 1 when both give one and the same label to all tokens.

    Args:
        before, after: int [N], N ≥ 1.

    Returns:
        At most 1.

    Example:
        >>> import numpy as np
        >>> agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
        0.5

    Cost: O(N log N).

    Reference:
        Bloodgood & Vijay-Shanker 2009 for its use in active learning; Cohen 1960.
    """
    before, after = np.asarray(before), np.asarray(after)
    if before.shape != after.shape or before.ndim != 1 or not len(before):
        raise ValueError(
            "before, after: expected labels of the same tokens, at least one, got shapes "
            f"{list(before.shape)} and {list(after.shape)}"
        )
    n = len(before)
    names, numbers = np.unique(np.concatenate([before, after]), return_inverse=True)
    first, second = (np.bincount(half, minlength=len(names)) for half in np.split(numbers, 2))
    agreed, chance = int((before == after).sum()), int((first * second).sum())  # of n, of n²
    if chance == n * n:
        return 1.0
    return (agreed * n - chance) / (n * n - chance)


def is_stable(found: float, number_informative: int, q: int, kappa: float = 0.9999) -> bool:
    """The rule of `should_stop`, of an agreement that is known.

    Example:
        >>> is_stable(0.99995, 20, q=500), is_stable(0.99995, 500, q=500)
        (True, False)
    """
    return found > kappa and number_informative < q


def should_stop(
    look_before: Look, look_now: Look, number_informative: int, q: int, kappa: float = 0.9999
) -> bool:
    """Whether another round would hardly change anything.

    That is when the labellings of the whole pool by the models of two rounds agree, κ above
    `kappa`, and fewer than q units are left to be asked.

    Args:
        look_before, look_now: at the same pool, by the model of the round before and by this one.
        number_informative: of `informative`.
        q: units asked a round.
        kappa: to be passed; 1 is never passed.

    Example:
        >>> import numpy as np
        >>> look = Look(np.array([0, 1]), np.ones(2), np.array([2]))
        >>> should_stop(look, look, 0, q=1)
        True

    Reference:
        Wanvarie et al. 2011, section 4.2.
    """
    found = agreement(look_before.labels, look_now.labels)
    return is_stable(found, number_informative, q, kappa)
