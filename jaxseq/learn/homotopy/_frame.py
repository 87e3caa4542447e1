"""How lengths and angles are measured along a path.

Near a turning point, the path of a large problem is a hairpin: one eigenvector of ∇E, whose
eigenvalue μ passes 1/g2(λ), moves so little against all else that depends on λ, that the path
turns on the spot. A frame stretches lengths along such eigenvectors, by their left ones ℓ:

    ⟨a, b⟩ = a·b + Σ κ (ℓ·a)(ℓ·b),    κ = 1 / ((1 − g2(λ)·μ)² + δ²),

so that a hairpin becomes a bend, with ℓ·z in place of λ for a parameter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxseq.learn.homotopy._leading import Leading


class Frame(NamedTuple):
    """An inner product: weights κ [k] and left eigenvectors ℓ [k, n]; Euclid's if k is 0."""

    weights: np.ndarray
    left: np.ndarray

    def row(self, vector: np.ndarray) -> np.ndarray:
        """The vector whose plain products are those with `vector` in this frame."""
        if not len(self.weights):
            return vector
        found = vector.copy()
        found[:-1] += (self.weights * (self.left @ vector[:-1])) @ self.left
        return found

    def product(self, one: np.ndarray, other: np.ndarray) -> float:
        """⟨one, other⟩."""
        plain = float(one @ other)
        if not len(self.weights):
            return plain
        return plain + float(
            (self.weights * (self.left @ one[:-1])) @ (self.left @ other[:-1])
        )  # fmt: skip

    def length(self, vector: np.ndarray) -> float:
        """‖vector‖."""
        return math.sqrt(self.product(vector, vector))

    def angle(self, one: np.ndarray, other: np.ndarray) -> float:
        """The angle between two vectors, in radians; 0 if one is 0."""
        lengths = self.length(one) * self.length(other)
        if not lengths > 0:
            return 0.0
        return math.acos(min(1.0, max(-1.0, self.product(one, other) / lengths)))


def make_frame(leading: Leading, second_weight: float, stretch: float | None) -> Frame:
    """The frame at a point with leading eigenvectors.

    Args:
        leading: of ∇E there.
        second_weight: g2(λ) there.
        stretch: δ; None for Euclid's frame.

    Example:
        >>> left = np.array([[1.0, 0.0]])
        >>> frame = make_frame(Leading(np.array([2.0]), left, left), 0.5, 0.5)
        >>> round(frame.length(np.array([1.0, 0.0, 0.0])), 6)  # the square root of 1 + 1/0.25
        2.236068
    """
    if stretch is None:
        return Frame(np.zeros(0), leading.left[:0])
    weights = 1 / ((1 - second_weight * leading.values) ** 2 + stretch**2)
    return Frame(weights, leading.left.astype(np.float64))
