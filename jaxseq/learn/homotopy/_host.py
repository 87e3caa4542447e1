"""Linear algebra of a path whose map E is linearised outside of compiled programs, on all cores.

A compiled program runs its loops on one core of a CPU. Where a problem brings a `linearise` of its
own, Krylov methods run here in NumPy, and only products with ∇E are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import ThreadpoolController

from jaxseq.learn.homotopy._leading import SINGLE, Leading, Seen, nothing_seen
from jaxseq.learn.homotopy._problem import Problem, flat_scale

Product = Callable[[np.ndarray], np.ndarray]

_POOLS = ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """NumPy's algebra on one core: its vectors are short, and threads that wait for the next
    would take the cores from the products."""
    return _POOLS.limit(limits=1, user_api="blas")


class Linearised(NamedTuple):
    """E at a point and the product with ∇E there, on flat vectors of the problem's unknowns."""

    expected: np.ndarray
    product: Product


def linearise_flat(problem: Problem, theta: np.ndarray) -> Linearised:
    """E and ∇E of a problem that has a `linearise`, in its scaled unknowns."""
    assert problem.linearise is not None
    scale = np.asarray(flat_scale(problem))
    leaves, tree = jax.tree.flatten(problem.constant)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def make_tree(vector: np.ndarray) -> Any:
        parts = np.split((vector * scale).astype(problem.dtype), ends)
        return tree.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves)])

    expected, product = problem.linearise(make_tree(theta))

    def times(vector: np.ndarray) -> np.ndarray:
        return _as_vector(product(make_tree(vector))) / scale

    return Linearised(_as_vector(expected) / scale, times)


def _as_vector(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


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
        weights, left = np.zeros(0), np.array([length])
        for number in range(self._size):
            image = self._extend(number)
            right = np.zeros(number + 2)
            right[0] = length
            square = self._table[: number + 2, : number + 1]
            weights = np.linalg.lstsq(square, right, rcond=None)[0]
            if not np.isfinite(weights).all():
                return np.full_like(self._basis[0], np.nan)
            left = right - square @ weights
            self.residual = float(np.linalg.norm(left))
            beyond = self._table[number + 1, number]
            exhausted = beyond <= self._rounding() * abs(self._table[: number + 2]).max()
            self._basis[number + 1] = 0 if exhausted else image / beyond
            if exhausted or self.residual <= goal:
                break
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


def slopes_of(problem: Problem, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """g(λ) and g'(λ), each [2]."""
    at = jnp.asarray(lam, problem.dtype)
    values, slopes = jax.jvp(problem.weights, (at,), (jnp.ones_like(at),))
    return np.array([float(v) for v in values]), np.array([float(v) for v in slopes])


class Border(NamedTuple):
    """The system ``[I − g2·∇E | column; row] x = b`` without ∇E."""

    second_weight: float
    column: np.ndarray
    row: np.ndarray


def deflation(border: Border, leading: Leading, dtype: Any) -> Product:
    """The inverse of a bordered matrix in which ∇E is only what is known of it, ``Σ μ·r·ℓᵀ``.

    It differs from I by a matrix ``U·Vᵀ`` of small rank: ``(I + UVᵀ)⁻¹ = I − U(I + VᵀU)⁻¹Vᵀ``,
    with U = (−g2·μ·r, column, e) and V = (ℓ, e, row − e), e the unit vector of λ.
    """
    values, right, left = leading
    count = len(values)
    row, column = border.row.astype(dtype), border.column.astype(dtype)
    scaled = (-border.second_weight * values[:, None] * right).astype(dtype)
    small = np.zeros((count + 2, count + 2))
    small[:count, :count] = left @ scaled.T
    small[:count, count] = left @ column
    small[count, count + 1] = 1
    small[count + 1, :count] = scaled @ row[:-1]
    small[count + 1, count] = row[:-1] @ column
    small[count + 1, count + 1] = row[-1] - 1
    try:
        inverse = np.linalg.inv(np.eye(count + 2) + small).astype(dtype)
    except np.linalg.LinAlgError:
        return lambda vector: vector
    left = left.astype(dtype)

    def apply(vector: np.ndarray) -> np.ndarray:
        shares = np.empty(count + 2, dtype)
        shares[:count] = left @ vector[:-1]
        shares[count] = vector[-1]
        shares[count + 1] = row @ vector - vector[-1]
        change = inverse @ shares
        found = vector.copy()
        found[:-1] -= change[:count] @ scaled + change[count] * column
        found[-1] -= change[count + 1]
        return found

    return apply


class HostSolved(NamedTuple):
    """As `Solved`, and what was seen of ∇E."""

    solution: np.ndarray
    residual: float
    seen: Seen


ENDGAME, LOOSE = 0.3, 0.1
"""The last system of Newton's method is solved to that share of what is still wanted, and never
looser than this."""
ROUGH = 1e-5
"""Systems to be solved no better than this are solved in float32."""


def solve_on_host(
    problem: Problem,
    point: np.ndarray,
    row: np.ndarray,
    anchor: np.ndarray,
    newton: bool,
    enough: float,
    tolerance: float,
    size: int,
    restarts: int,
    leading: Leading,
    guess: np.ndarray | None = None,
) -> HostSolved:
    """As `solve_matrix_free`, with NumPy's arrays.

    Args:
        problem, point, row, anchor, newton, enough, tolerance, size, restarts: as there.
        leading: eigenvectors of ∇E that are known, about, and so left out of what is iterated.
        guess: of a tangent; the tolerance is relative to its length.
    """
    theta, lam = point[:-1], float(point[-1])
    linear = linearise_flat(problem, theta)
    weights, slopes = slopes_of(problem, lam)
    constant = _as_vector(problem.constant) / np.asarray(flat_scale(problem))
    residual = theta - weights[0] * constant - weights[1] * linear.expected
    column = -(slopes[0] * constant + slopes[1] * linear.expected)
    length, error = float(np.linalg.norm(theta)), float(np.linalg.norm(residual))
    relative = 0.0 if error == 0 else error / (length if length > 0 else 1.0)
    nothing = nothing_seen(theta.size)
    if relative <= enough:
        return HostSolved(np.zeros_like(point), relative, nothing)
    if newton:
        tolerance = max(tolerance, min(ENDGAME * enough / relative, LOOSE))
    border = Border(float(weights[1]), column, row)
    system = _System(linear.product, border, np.float32 if tolerance >= ROUGH else point.dtype)
    right = np.append(-residual if newton else np.zeros_like(theta), 0.0)
    right[-1] = -row @ (point - anchor) if newton else 1.0
    if not (np.isfinite(right).all() and np.isfinite(column).all()):
        return HostSolved(np.full_like(point, np.nan), relative, nothing)
    with one_thread():
        first = np.zeros_like(point)
        if guess is not None and row @ guess > 0:
            first = guess / (row @ guess)
            right = -system.product(first.astype(system.dtype)).astype(point.dtype)
            right[-1] = 0.0
            tolerance *= float(np.linalg.norm(first)) / max(float(np.linalg.norm(right)), 1e-30)
        known = deflation(border, leading, system.dtype)
        scale = float(np.linalg.norm(right))
        if scale == 0:
            return HostSolved(first, relative, system.seen())
        # Of unit length, as float32 has little room for the squares of small numbers.
        unit = (right / scale).astype(system.dtype)
        found, rest = gmres_and_rest(system.product, unit, tolerance, size, restarts, known)
        # What is left is small, but its share of known eigenvectors may be far from it in the
        # solution; known(rest) solves for that share, and changes little else.
        found = found + known(rest)
        return HostSolved(first + scale * found.astype(point.dtype), relative, system.seen())


class _System:
    """A bordered matrix, which remembers what it has seen of ∇E."""

    def __init__(self, product: Product, border: Border, dtype: Any):
        self._product, self.dtype = product, dtype
        self._weight = np.dtype(dtype).type(border.second_weight)
        self._column, self._row = border.column.astype(dtype), border.row.astype(dtype)
        self._size = border.column.size
        self._inputs: list[np.ndarray] = []
        self._images: list[np.ndarray] = []

    def product(self, vector: np.ndarray) -> np.ndarray:
        """With the matrix."""
        theta = vector[:-1]
        image = self._product(theta).astype(self.dtype)
        self._inputs.append(theta.astype(SINGLE))
        self._images.append(image.astype(SINGLE))
        above = theta - self._weight * image + self._column * vector[-1]
        return np.append(above, self._row @ vector)

    def seen(self) -> Seen:
        """All vectors and images so far."""
        shape = (-1, self._size)
        return Seen(
            np.array(self._inputs, SINGLE).reshape(shape),
            np.array(self._images, SINGLE).reshape(shape),
        )
