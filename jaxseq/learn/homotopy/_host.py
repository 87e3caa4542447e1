"""Linear algebra of a path whose map E is linearised outside of compiled programs, on all cores.

A compiled program runs its loops on one core of a CPU. Where a problem brings a `linearise` of its
own, Krylov methods run here in NumPy, and only products with ∇E are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import ThreadpoolController

from jaxseq.learn.homotopy._bordered import Solved
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
        return tree.unflatten(
            [jnp.asarray(part.reshape(leaf.shape)) for part, leaf in zip(parts, leaves)]
        )

    expected, product = problem.linearise(make_tree(theta))

    def times(vector: np.ndarray) -> np.ndarray:
        return _as_vector(product(make_tree(vector))) / scale

    return Linearised(_as_vector(expected) / scale, times)


def _as_vector(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def gmres(
    product: Product, right: np.ndarray, tolerance: float, size: int, restarts: int
) -> np.ndarray:
    """Solve a linear system by GMRES, to ``‖A x − b‖ ≤ tolerance·‖b‖`` if it can.

    Args:
        product: with A.
        right: b.
        tolerance: relative residual wanted.
        size: vectors kept before it begins again.
        restarts: how often it begins at most.

    Example:
        >>> matrix = np.array([[2.0, 1.0], [0.0, 1.0]])
        >>> gmres(lambda x: matrix @ x, np.array([3.0, 1.0]), 1e-12, 2, 1).round(6).tolist()
        [1.0, 1.0]
    """
    found, rest = np.zeros_like(right), right
    goal = tolerance * float(np.linalg.norm(right))
    for number in range(restarts):
        length = float(np.linalg.norm(rest))
        if not length > goal:
            break
        found = found + _one_cycle(product, rest / length, length, goal, min(size, right.size))
        if number + 1 < restarts:
            rest = right - product(found)
    return found


def _one_cycle(
    product: Product, start: np.ndarray, length: float, goal: float, size: int
) -> np.ndarray:
    """The best vector of the Krylov space of `start`, grown until the residual reaches `goal`."""
    basis = np.zeros((size + 1, start.size), start.dtype)
    basis[0] = start
    table = np.zeros((size + 1, size))
    weights = np.zeros(0)
    for number in range(size):
        image = product(basis[number])
        for _ in range(2):  # once leaves too much of the old directions in it
            shares = basis[: number + 1] @ image
            image = image - shares @ basis[: number + 1]
            table[: number + 1, number] += shares
        table[number + 1, number] = np.linalg.norm(image)
        right = np.zeros(number + 2)
        right[0] = length
        square = table[: number + 2, : number + 1]
        weights = np.linalg.lstsq(square, right, rcond=None)[0]
        if not np.isfinite(weights).all():
            return np.full_like(start, np.nan)
        exhausted = table[number + 1, number] <= 1e-14 * abs(table[: number + 2]).max()
        if exhausted or np.linalg.norm(square @ weights - right) <= goal:
            break
        basis[number + 1] = image / table[number + 1, number]
    return weights.astype(start.dtype) @ basis[: len(weights)]


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


def _solved(solution: np.ndarray, residual: float) -> Solved:
    return Solved(cast(Any, solution), cast(Any, residual))


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
) -> Solved:
    """As `solve_matrix_free`, with NumPy's arrays."""
    theta, lam = point[:-1], float(point[-1])
    linear = linearise_flat(problem, theta)
    weights, slopes = slopes_of(problem, lam)
    constant = _as_vector(problem.constant) / np.asarray(flat_scale(problem))
    residual = theta - weights[0] * constant - weights[1] * linear.expected
    column = -(slopes[0] * constant + slopes[1] * linear.expected)
    length, error = float(np.linalg.norm(theta)), float(np.linalg.norm(residual))
    relative = 0.0 if error == 0 else error / (length if length > 0 else 1.0)
    if relative <= enough:
        return _solved(np.zeros_like(point), relative)

    def matrix(x: np.ndarray) -> np.ndarray:
        above = x[:-1] - weights[1] * linear.product(x[:-1]) + column * x[-1]
        return np.append(above, row @ x)

    if newton:
        right = np.append(-residual, -row @ (point - anchor))
    else:
        right = np.append(np.zeros_like(residual), 1.0)
    if not np.isfinite(right).all():
        return _solved(np.full_like(point, np.nan), relative)
    with one_thread():
        found = gmres(matrix, right.astype(point.dtype), tolerance, size, restarts)
    return _solved(found, relative)
