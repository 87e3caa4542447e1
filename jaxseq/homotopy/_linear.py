"""Linear algebra of a path: products with ∇E, GMRES, and the bordered systems of its steps.

Krylov methods run in NumPy on the host for every problem; only E and the products with ∇E are
compiled programs. A vector of unknowns is short beside what a product costs, and a compiled solver
would have to be compiled anew for every E, which takes longer than following a small path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from threadpoolctl import ThreadpoolController

from jaxseq.homotopy._problem import Jacobian, PathSettings, Problem, find_flat, flat_map
from jaxseq.lattice import in_full_precision

Product = Callable[[np.ndarray], np.ndarray]

_POOLS = ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Within it, NumPy's linear algebra uses one core.

    Its vectors are short, and threads that spin while they wait for the next operation would take
    the cores from the products with ∇E.
    """
    return _POOLS.limit(limits=1, user_api="blas")


# -------------------------------------------------------------------------------------------------
# E and its Jacobian at a point.


class Linearised(NamedTuple):
    """E at a point and the product with ∇E there, on flat vectors of the problem's unknowns."""

    expected: np.ndarray
    product: Product


def linearise_flat(problem: Problem, theta: np.ndarray) -> Linearised:
    """E and ∇E in the scaled unknowns, by the problem's own `linearise` or ``jax.linearize``."""
    flat = find_flat(problem)
    if problem.linearise is None:
        expected, push = linearise_program(problem, jnp.asarray(theta))

        def push_on(vector: np.ndarray) -> np.ndarray:
            return np.asarray(push_forward(push, jnp.asarray(vector, problem.dtype)))

        return Linearised(np.asarray(expected), push_on)
    expected, product = problem.linearise(flat.as_tree(theta))
    expected = flat.as_vector(expected) / flat.scale
    on_flat = getattr(product, "on_flat", None)
    quick = on_flat(flat.scale) if on_flat is not None else None
    if quick is not None:
        return Linearised(expected, quick)

    def times(vector: np.ndarray) -> np.ndarray:
        return flat.as_vector(product(flat.as_tree(vector))) / flat.scale

    return Linearised(expected, times)


@eqx.filter_jit
@in_full_precision
def linearise_program(problem: Problem, theta: Float[Array, " n"]) -> tuple[Array, Callable]:
    """E and the push-forward at a point; the latter holds what E has computed on the way."""
    return jax.linearize(flat_map(problem)[1], theta)


@eqx.filter_jit
def push_forward(push: Callable, vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """∇E·v by the push-forward of `linearise_program`."""
    return push(vector)


@eqx.filter_jit
@in_full_precision
def dense_jacobian(problem: Problem, theta: Float[Array, " n"]) -> Float[Array, "n n"]:
    """The matrix ∇E."""
    return jax.jacfwd(flat_map(problem)[1])(theta)


# -------------------------------------------------------------------------------------------------
# GMRES.
#
# SciPy has it too, but not with what makes it cheap here: float32 systems with an inexact inverse
# on the right (a sum of known eigenvectors), orthogonalisation by two matrix products instead of
# one call per basis vector, and the remainder b − A·x, which costs us no product with A.


def gmres(
    product: Product,
    right: np.ndarray,
    tolerance: float,
    size: int,
    restarts: int,
    precondition: Product = lambda vector: vector,
) -> tuple[np.ndarray, np.ndarray]:
    """x with ``‖A·x − b‖ ≤ tolerance·‖b‖`` if GMRES can, and the remainder ``b − A·x``.

    It keeps `size` vectors before it starts anew, `restarts` times at most. The preconditioner B,
    in whose range x is, makes A·B nearly I. All vectors have b's dtype.
    """
    solution, remainder = np.zeros_like(right), right
    goal = tolerance * float(np.linalg.norm(right))
    for number in range(restarts):
        length = float(np.linalg.norm(remainder))
        if not length > goal:  # also where it is not a number
            break
        start, most = remainder / length, min(size, right.size)
        correction, remainder, residual = _cycle(product, precondition, start, length, goal, most)
        solution = solution + correction
        if number + 1 == restarts or residual <= goal:
            break
        # Anew, as rounding has made the remainder of the last cycle a little too good.
        remainder = right - product(solution)
    return solution, remainder


def _cycle(
    product: Product,
    precondition: Product,
    start: np.ndarray,
    length: float,
    goal: float,
    size: int,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Grow one Krylov space until the residual of ``A·x = length·start`` reaches a goal: the best
    x of the space, its remainder, and the remainder's length."""
    basis = np.empty((size + 1, start.size), start.dtype)
    inputs = np.empty((size, start.size), start.dtype)
    table = np.zeros((size + 1, size))  # in float64 whatever the vectors are
    rotations: list[tuple[float, float]] = []
    basis[0], residual, largest, number = start, length, 0.0, 0
    rounding = 50 * float(np.finfo(start.dtype).eps)
    for number in range(size):
        inputs[number] = precondition(basis[number])
        image = product(inputs[number])
        known = basis[: number + 1]
        for _ in range(2):  # once leaves too much of the old directions in it
            shares = known @ image
            image = image - shares @ known
            table[: number + 1, number] += shares
        table[number + 1, number] = np.linalg.norm(image)
        column = table[: number + 2, number]
        if not np.isfinite(column).all():
            nothing = np.full_like(start, np.nan)
            return nothing, nothing, math.inf
        residual *= -_rotate(column.tolist(), rotations)
        largest, beyond = max(largest, float(abs(column).max())), column[-1]
        exhausted = beyond <= rounding * largest  # what is left of the image is rounding
        basis[number + 1] = 0 if exhausted else image / beyond
        if exhausted or abs(residual) <= goal:
            break
    right = np.zeros(number + 2)
    right[0] = length
    square = table[: number + 2, : number + 1]
    weights = np.linalg.lstsq(square, right, rcond=None)[0]
    left = right - square @ weights
    remainder = left.astype(basis.dtype) @ basis[: len(left)]
    solution = weights.astype(basis.dtype) @ inputs[: len(weights)]
    return solution, remainder, float(np.linalg.norm(left))


def _rotate(column: list[float], rotations: list[tuple[float, float]]) -> float:
    """Add the Givens rotation that takes a new column of the table to a triangle's.

    Its sine is the factor by which the least residual falls with that column.
    """
    for number, (cosine, sine) in enumerate(rotations):
        first, second = column[number], column[number + 1]
        column[number] = cosine * first + sine * second
        column[number + 1] = cosine * second - sine * first
    long = math.hypot(column[-2], column[-1])
    rotations.append((column[-2] / long, column[-1] / long) if long > 0 else (1.0, 0.0))
    return rotations[-1][1]


# -------------------------------------------------------------------------------------------------
# What is known of ∇E: products that a solver has taken, and eigenvectors found among them.

SINGLE = np.float32
"""The dtype of these vectors: they direct the search and are no part of the answer."""


class Seen(NamedTuple):
    """Vectors and their images under ∇E, [m, n] each."""

    inputs: np.ndarray
    images: np.ndarray

    @classmethod
    def nothing(cls, size: int) -> Seen:
        """No vectors of a length."""
        return cls(np.zeros((0, size), SINGLE), np.zeros((0, size), SINGLE))


class Leading(NamedTuple):
    """Eigenvalues of ∇E, falling [k], with their right and left eigenvectors, [k, n] each."""

    values: np.ndarray
    right: np.ndarray
    left: np.ndarray

    @classmethod
    def nothing(cls, size: int) -> Leading:
        """No eigenvectors of a length."""
        return cls(np.zeros(0), *Seen.nothing(size))


# -------------------------------------------------------------------------------------------------
# The bordered linear systems of a path: its tangents, and Newton's method towards it.
#
# At ``z = (Θ̃, λ)`` the Jacobian of ``R(z) = Θ̃ − EM_λ(Θ̃)`` is the n × (n + 1) matrix
#
#     J = [ I − g2(λ)·∇E(Θ̃)  |  −g1'(λ)·c − g2'(λ)·E(Θ̃) ],
#
# whose kernel is the path's tangent η (with linear weights, J is minus the matrix of Haffari &
# Sarkar 2008, equation 7). A row r below it makes it square. With r an earlier tangent, the square
# matrix is regular at every point of the path but at bifurcations, turning points of λ among them.


class Border(NamedTuple):
    """The system ``[I − g2·∇E | column; row] x = b`` without ∇E."""

    second_weight: float
    column: np.ndarray
    row: np.ndarray


class Solution(NamedTuple):
    """x of a bordered system at a point, ``‖R‖ / ‖Θ̃‖`` there, and the products with ∇E taken."""

    vector: np.ndarray
    residual: float
    seen: Seen


LOOSEST = 0.1
"""However little a point still lacks, no system of Newton's method is solved more loosely."""
SINGLE_FROM = 1e-5
"""Systems to be solved no better than this are solved in float32, where products cost half."""


def solve_bordered(
    problem: Problem,
    settings: PathSettings,
    point: np.ndarray,
    row: np.ndarray,
    anchor: np.ndarray,
    leading: Leading,
    tolerance: float,
    *,
    enough: float | None = None,
    guess: np.ndarray | None = None,
) -> Solution:
    """Solve ``[J; r] x = b`` at a point z, with E linearised once.

    Args:
        problem: the problem.
        settings: whether by GMRES or by the matrix, and how many vectors GMRES keeps.
        point: z.
        row: r.
        anchor: the point through which the hyperplane of Newton's method goes.
        leading: eigenvectors of ∇E that are known, about, and so left out of what is iterated.
        tolerance: ‖[J; r] x − b‖ / ‖b‖ at the end.
        enough: None for a tangent, b = (0, 1); else b = (−R(z), −r·(z − anchor)), Newton's, and
            with ‖R‖/‖Θ̃‖ up to this, x = 0 without solving.
        guess: of a tangent; the tolerance is then relative to its length.
    """
    newton = enough is not None
    point, row, anchor = (np.asarray(array, problem.dtype) for array in (point, row, anchor))
    theta, flat = point[:-1], find_flat(problem)
    linear = linearise_flat(problem, theta)
    seen = Seen.nothing(theta.size)
    if not np.isfinite(linear.expected).all():
        return Solution(np.full_like(point, np.nan), math.nan, seen)
    weights, slopes = flat.weights(float(point[-1]))
    residual = theta - weights[0] * flat.constant - weights[1] * linear.expected
    column = -(slopes[0] * flat.constant + slopes[1] * linear.expected)
    length, error = float(np.linalg.norm(theta)), float(np.linalg.norm(residual))
    relative = 0.0 if error == 0 else error / (length if length > 0 else 1.0)
    if newton and relative <= enough:
        return Solution(np.zeros_like(point), relative, seen)
    right = np.append(-residual if newton else np.zeros_like(theta), 0.0)
    right[-1] = -row @ (point - anchor) if newton else 1.0
    if not (np.isfinite(right).all() and np.isfinite(column).all()):
        return Solution(np.full_like(point, np.nan), relative, seen)
    border = Border(float(weights[1]), column, row)
    if settings.jacobian is Jacobian.DENSE:
        matrix = np.asarray(dense_jacobian(problem, jnp.asarray(theta)))
        return Solution(_solve_dense(matrix, border, right if newton else None), relative, seen)
    if newton:  # a step that will be the last need not be solved for better than is wanted
        tolerance = max(tolerance, min(settings.last_share * enough / relative, LOOSEST))
    system = _System(linear.product, border, SINGLE if tolerance >= SINGLE_FROM else point.dtype)
    first = np.zeros_like(point)
    if guess is not None and row @ guess > 0:
        # Scaled so that its last equation, r·x = 1, holds already; GMRES finds the rest.
        first = guess / (row @ guess)
        right = -system.product(first.astype(system.dtype)).astype(point.dtype)
        right[-1] = 0.0
        tolerance *= float(np.linalg.norm(first)) / max(float(np.linalg.norm(right)), 1e-30)
    known = deflation(border, leading, system.dtype)
    scale = float(np.linalg.norm(right))
    if scale == 0:
        return Solution(first, relative, system.seen())
    # Of unit length, as float32 has little room for the squares of small numbers.
    unit = (right / scale).astype(system.dtype)
    krylov = settings.krylov_size, settings.krylov_restarts
    vector, remainder = gmres(system.product, unit, tolerance, *krylov, known)
    # The remainder is small, but its share of known eigenvectors may be far from small in the
    # solution; known(remainder) solves for that share, and changes little else.
    vector = vector + known(remainder)
    return Solution(first + scale * vector.astype(point.dtype), relative, system.seen())


def _solve_dense(jacobian: np.ndarray, border: Border, right: np.ndarray | None) -> np.ndarray:
    """The same with the matrix J: LU for Newton's method, the SVD's kernel for tangents.

    n products with ∇E and O(n³) operations: for small problems, to compare with.
    """
    square = np.eye(len(jacobian), dtype=jacobian.dtype) - border.second_weight * jacobian
    matrix = np.concatenate([square, border.column[:, None]], axis=1)
    try:
        if right is not None:
            return np.linalg.solve(np.concatenate([matrix, border.row[None]]), right)
        kernel = np.linalg.svd(matrix, full_matrices=True)[2][-1]
    except np.linalg.LinAlgError:  # singular, or not finite: the step is tried again shorter
        return np.full_like(border.row, np.nan)
    return -kernel if kernel @ border.row < 0 else kernel


def deflation(border: Border, leading: Leading, dtype: Any) -> Product:
    """The inverse of a bordered matrix in which ∇E is only what is known of it, ``Σ μ·r·ℓᵀ``.

    It differs from I by a matrix ``U·Vᵀ`` of small rank: ``(I + UVᵀ)⁻¹ = I − U(I + VᵀU)⁻¹Vᵀ``,
    with U = (−g2·μ·r, column, e) and V = (ℓ, e, row − e), e the unit vector of λ.
    """
    count, long = len(leading.values), border.row.size
    tall, wide = np.zeros((count + 2, long), dtype), np.zeros((count + 2, long), dtype)
    tall[:count, :-1] = -border.second_weight * leading.values[:, None] * leading.right
    tall[count, :-1] = border.column
    tall[count + 1, -1] = 1
    wide[:count, :-1] = leading.left
    wide[count, -1] = 1
    wide[count + 1] = border.row
    wide[count + 1, -1] -= 1
    small = np.eye(count + 2) + wide @ tall.T
    try:
        tall = np.linalg.inv(small).T.astype(dtype) @ tall
    except np.linalg.LinAlgError:  # exactly on a critical point: GMRES goes without
        return lambda vector: vector
    return lambda vector: vector - (wide @ vector) @ tall


class _System:
    """A bordered matrix, which remembers what it has seen of ∇E."""

    def __init__(self, product: Product, border: Border, dtype: Any):
        self._product, self.dtype = product, np.dtype(dtype)
        self._weight = self.dtype.type(border.second_weight)
        self._column, self._row = border.column.astype(dtype), border.row.astype(dtype)
        self._inputs: list[np.ndarray] = []
        self._images: list[np.ndarray] = []

    def product(self, vector: np.ndarray) -> np.ndarray:
        """With the matrix."""
        theta = vector[:-1]
        image = self._product(theta).astype(self.dtype, copy=False)
        self._inputs.append(theta.astype(SINGLE, copy=False))
        self._images.append(image.astype(SINGLE, copy=False))
        result = np.empty_like(vector)
        above = result[:-1]
        # In place: temporaries of these lengths would cost as much as the sums.
        np.multiply(image, -self._weight, out=above)
        above += theta
        above += self._column * vector[-1]
        result[-1] = self._row @ vector
        return result

    def seen(self) -> Seen:
        """All vectors and images so far."""
        shape = (-1, self._column.size)
        return Seen(
            np.array(self._inputs, SINGLE).reshape(shape),
            np.array(self._images, SINGLE).reshape(shape),
        )
