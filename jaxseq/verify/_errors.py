"""How far two arrays are apart, where, and whether that is close enough."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxseq.verify._oracle import Matrix


class Error(NamedTuple):
    """The worst disagreement between two arrays.

    absolute: the largest difference; infinite when a NaN is involved.
    relative: that, over the largest magnitude of what was expected (over 1 when that is 0).
    allowance: what the tolerance is multiplied by, the larger of 1 and that magnitude.
    index: where, or None when nothing was compared.
    """

    absolute: float
    relative: float
    allowance: float
    index: tuple[int, ...] | None

    def within(self, tolerance: float) -> bool:
        """Whether the error is at most `tolerance`, absolutely or relatively."""
        return self.absolute <= tolerance * self.allowance

    @property
    def severity(self) -> float:
        """To choose the worst of several."""
        return self.absolute / self.allowance


def worst_error(actual: Matrix, expected: Matrix, compare: Matrix | None = None) -> Error:
    """The worst entry of `actual` against `expected`, where `compare` is True.

    Equal infinities agree; a NaN agrees with nothing.

    Raises:
        ValueError: when the shapes differ; nothing is broadcast.

    Example:
        >>> import numpy as np
        >>> worst_error(np.array([1.0, 2.5]), np.array([1.0, 2.0])).index
        (1,)
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"expected shape {list(expected.shape)}, got {list(actual.shape)}")
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is answered by the comparison before it
        difference = np.where(actual == expected, 0, np.abs(actual - expected))
    difference = np.where(np.isnan(difference), np.inf, difference)
    if compare is not None:
        difference = np.where(compare, difference, -1)
    if difference.size == 0 or difference.max() < 0:
        return Error(0.0, 0.0, 1.0, None)
    magnitudes = np.abs(expected[np.isfinite(expected)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    index = np.unravel_index(int(difference.argmax()), difference.shape)
    absolute = float(difference[index])
    return Error(absolute, absolute / (scale or 1.0), max(scale, 1.0), tuple(int(i) for i in index))
