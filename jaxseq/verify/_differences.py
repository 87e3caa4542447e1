r"""Central differences, extrapolated: derivatives from values alone.

.. math:: D(h) = \frac{f(x + h) - f(x - h)}{2h} = f'(x) + a_2 h^2 + a_4 h^4 + \dots

Neville's tableau removes one power after the other from D(h), D(h/2), D(h/4), …, and the entry
that changed least against its neighbours is the answer (Ridders 1982; Press et al., Numerical
Recipes, `dfridr`). Large steps may then be used, which is what keeps rounding small: about 1e-11
in float64 and 1e-4 in float32 for functions of size 1.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from jaxseq.verify._oracle import Matrix

LEVELS = 7  # of step sizes; the smallest is a 64th of the largest


def steps(x: Matrix, first: float | None = None) -> Matrix:
    """Step sizes ``[LEVELS, *x.shape]``, halved from level to level.

    `first` is the largest step; by default a tenth of max(1, |x|).
    """
    x = np.where(np.isfinite(x), x, 0)
    largest = 0.1 * np.maximum(1, np.abs(x)) if first is None else np.full(x.shape, first)
    return largest * 0.5 ** np.arange(LEVELS).reshape(-1, *[1] * x.ndim)


def extrapolate(above: Matrix, below: Matrix, step: Matrix) -> Matrix:
    """The derivative from f(x + step) and f(x − step).

    Args:
        above: f(x + step), ``[LEVELS, ...]``.
        below: f(x − step), likewise.
        step: what was added and subtracted, broadcasts against the values; halved at each level.

    Returns:
        derivatives ``[...]``; 0 where both values are the same infinity at every level, for a
        value that is −inf throughout moves nowhere.
    """
    with np.errstate(invalid="ignore"):
        change = np.where(above == below, 0, above - below)
    column = list(change / (2 * step))
    best, least = column[0], np.full(column[0].shape, np.inf)
    power = 1.0  # of the ratio of two steps, 2, that is removed next: h², h⁴, …
    while len(column) > 1:
        power *= 4.0
        refined = [(power * fine - coarse) / (power - 1) for coarse, fine in pairwise(column)]
        for new, (coarse, fine) in zip(refined, pairwise(column)):
            error = np.maximum(np.abs(new - coarse), np.abs(new - fine))
            better = error < least
            best, least = np.where(better, new, best), np.where(better, error, least)
        column = refined
    return best
