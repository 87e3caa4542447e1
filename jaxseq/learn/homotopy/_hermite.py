"""The cubic through two points of a path and their tangents, and on beyond them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxseq.learn.homotopy._frame import Frame


class Hermite(NamedTuple):
    """``z(h) = end + h·first + h²/2·second + h³/6·third``, h a length from its end on.

    span: the length from its beginning to its end.

    Example:
        >>> plain = Frame(np.zeros(0), np.zeros((0, 1)))
        >>> ends, tangents = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
        >>> hermite_cubic(plain, *ends, *tangents).at(0.5).tolist()
        [1.5, 0.0]
    """

    end: np.ndarray
    first: np.ndarray
    second: np.ndarray
    third: np.ndarray
    span: float

    def at(self, length: float) -> np.ndarray:
        """z(h)."""
        return self.end + length * (
            self.first + length / 2 * (self.second + length / 3 * self.third)
        )

    def slope(self, length: float) -> np.ndarray:
        """z'(h)."""
        return self.first + length * (self.second + length / 2 * self.third)

    def growth(self, length: float, factor: float) -> float:
        """By how much its error, as a share of the length, grows with a length `factor` times."""
        wide = (factor * length + self.span) / (length + self.span)
        return factor * wide**2


def hermite_cubic(
    frame: Frame,
    begin: np.ndarray,
    end: np.ndarray,
    begin_tangent: np.ndarray,
    end_tangent: np.ndarray,
) -> Hermite:
    """The cubic through two points with given directions, by length in a frame."""
    chord = end - begin
    span = frame.length(chord)
    before = begin_tangent / frame.length(begin_tangent)
    after = end_tangent / frame.length(end_tangent)
    mean = chord / span
    second = (2 * before + 4 * after - 6 * mean) / span
    third = (6 * before + 6 * after - 12 * mean) / span**2
    return Hermite(end, after, second, third, span)
