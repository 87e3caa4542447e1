"""Krylov methods in NumPy, whose vectors are short beside what a product with the matrix costs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]


def gmres(
    product: Product,
    right: np.ndarray,
    tolerance: float,
    size: int,
    restarts: int,
    precondition: Product = lambda vector: vector,
) -> np.ndarray:
    """Solve a linear system by GMRES, to ``‖A x − b‖ ≤ tolerance·‖b‖`` if it can.

    Args:
        product: with A.
        right: b; its dtype is that of all vectors.
        tolerance: relative residual wanted.
        size: vectors kept before it begins again.
        restarts: how often it begins at most.
        precondition: product with a matrix B for which A·B is nearly I; x is B·(…).

    Example:
        >>> matrix = np.array([[2.0, 1.0], [0.0, 1.0]])
        >>> gmres(lambda x: matrix @ x, np.array([3.0, 1.0]), 1e-12, 2, 1).round(6).tolist()
        [1.0, 1.0]
    """
    return gmres_and_rest(product, right, tolerance, size, restarts, precondition)[0]


def gmres_and_rest(
    product: Product,
    right: np.ndarray,
    tolerance: float,
    size: int,
    restarts: int,
    precondition: Product,
) -> tuple[np.ndarray, np.ndarray]:
    """As `gmres`, with the residual ``b − A x``, for which it needs no product more."""
    found, rest = np.zeros_like(right), right
    goal = tolerance * float(np.linalg.norm(right))
    for number in range(restarts):
        length = float(np.linalg.norm(rest))
        if not length > goal:
            break
        cycle = _Cycle(product, precondition, rest / length, min(size, right.size))
        found = found + cycle.solve(length, goal)
        rest = cycle.rest
        if number + 1 == restarts or cycle.residual <= goal:
            break
        rest = right - product(found)
    return found, rest


class _Residuals:
    """The least residuals of the growing systems of GMRES, by Givens' rotations."""

    def __init__(self, size: int, length: float):
        self._turns = np.zeros((size, 2))
        self._count, self._left = 0, length

    def after(self, column: np.ndarray) -> float:
        """With one column more, [count + 2]."""
        values = column.tolist()
        for number, (along, across) in enumerate(self._turns[: self._count].tolist()):
            first, second = values[number], values[number + 1]
            values[number] = along * first + across * second
            values[number + 1] = along * second - across * first
        long = math.hypot(values[-2], values[-1])
        along, across = (values[-2] / long, values[-1] / long) if long > 0 else (1.0, 0.0)
        self._turns[self._count] = along, across
        self._count += 1
        self._left *= -across
        return abs(self._left)


class _Cycle:
    """A Krylov space, grown until the residual reaches a goal."""

    def __init__(self, product: Product, precondition: Product, start: np.ndarray, size: int):
        self._product, self._precondition, self._size = product, precondition, size
        self._basis = np.empty((size + 1, start.size), start.dtype)
        self._inputs = np.empty((size, start.size), start.dtype)
        self._basis[0] = start
        self._table = np.zeros((size + 1, size))
        self.residual, self.rest = np.inf, np.full_like(start, np.nan)

    def solve(self, length: float, goal: float) -> np.ndarray:
        """The best vector of the space, for the right side ``length·start``."""
        number, largest = 0, 0.0
        residuals = _Residuals(self._size, length)
        for number in range(self._size):
            image = self._extend(number)
            column = self._table[: number + 2, number]
            if not np.isfinite(column).all():
                return np.full_like(self._basis[0], np.nan)
            self.residual = residuals.after(column)
            largest, beyond = max(largest, float(abs(column).max())), column[-1]
            exhausted = beyond <= self._rounding() * largest
            self._basis[number + 1] = 0 if exhausted else image / beyond
            if exhausted or self.residual <= goal:
                break
        right = np.zeros(number + 2)
        right[0] = length
        square = self._table[: number + 2, : number + 1]
        weights = np.linalg.lstsq(square, right, rcond=None)[0]
        left = right - square @ weights
        self.residual = float(np.linalg.norm(left))
        self.rest = left.astype(self._basis.dtype) @ self._basis[: len(left)]
        return weights.astype(self._basis.dtype) @ self._inputs[: len(weights)]

    def _rounding(self) -> float:
        return 50 * float(np.finfo(self._basis.dtype).eps)

    def _extend(self, number: int) -> np.ndarray:
        self._inputs[number] = self._precondition(self._basis[number])
        image = self._product(self._inputs[number])
        known = self._basis[: number + 1]
        for _ in range(2):  # once leaves too much of the old directions in it
            shares = known @ image
            image = image - shares @ known
            self._table[: number + 1, number] += shares
        self._table[number + 1, number] = np.linalg.norm(image)
        return image


def lanczos_on_host(
    product: Product, start: np.ndarray, steps: int, count: int, accuracy: float
) -> tuple[np.ndarray, np.ndarray]:
    """Largest Ritz values of a symmetric operator, falling, and bounds on their errors.

    As `jaxseq.learn.homotopy._spectrum.lanczos`, but it ends as soon as the first `count` are
    known to `accuracy`.

    Example:
        >>> diagonal = np.array([3.0, 2.0, 1.0])
        >>> lanczos_on_host(lambda v: diagonal * v, np.ones(3), 3, 1, 0.0)[0].round(6).tolist()
        [3.0]
    """
    steps = min(steps, start.size)
    basis = np.zeros((steps + 1, start.size), start.dtype)
    basis[0] = start / np.linalg.norm(start)
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    values, errors = np.zeros(0), np.zeros(0)
    for number in range(steps):
        image = product(basis[number])
        size = float(np.linalg.norm(image))
        diagonal[number] = basis[number] @ image
        for _ in range(2):
            image = image - (basis[: number + 1] @ image) @ basis[: number + 1]
        beside[number] = np.linalg.norm(image)
        kept = number + 1
        small = np.diag(diagonal[:kept])
        small += np.diag(beside[: kept - 1], 1) + np.diag(beside[: kept - 1], -1)
        values, vectors = np.linalg.eigh(small)
        values, errors = values[::-1], (beside[number] * abs(vectors[-1]))[::-1]
        known = kept >= count and bool((errors[:count] <= accuracy * abs(values[:count])).all())
        if known or beside[number] <= 1e-14 * size:
            break
        basis[number + 1] = image / beside[number]
    short = max(count - len(values), 0)
    return np.pad(values, (0, short))[:count], np.pad(errors, (0, short))[:count]
