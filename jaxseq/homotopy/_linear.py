"""The leading eigenvectors of ∇E, kept from point to point of a path.

With ``∇E = COV·FᵀF`` (see `_spectrum`), ``F·∇E = M·F`` for the symmetric ``M = F·COV·Fᵀ``: what a
linear solver has seen of ∇E, vectors x and images ∇E·x, are vectors Fx and images M·Fx of M as
well. Eigenvectors of M are found among them by Rayleigh and Ritz for next to nothing. An
eigenvector w of M gives ∇E the left one ``Fᵀw`` and the right one ``COV·Fᵀw/μ``, biorthonormal.
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
from jax.scipy.sparse.linalg import gmres as device_gmres
from jaxtyping import Array, Float
from threadpoolctl import ThreadpoolController

from jaxseq.homotopy._problem import Problem, Structure, flat_map, flat_of
from jaxseq.lattice import in_full_precision

# -------------------------------------------------------------------------------------------------
# Krylov methods in NumPy, whose vectors are short beside what a product with the matrix costs.


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

    As `jaxseq.homotopy._spectrum.lanczos`, but it ends as soon as the first `count` are
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


SINGLE = np.float32
"""Of these vectors: they direct the search and are no part of the answer."""
DEPENDENT = 1e-5
"""A direction with less than this share of the largest in a Gram matrix is rounding."""
AGAIN = 4
"""One in so many is looked at anew at every point: what solvers have seen there holds the rest."""
LEAST = 0.05
"""Eigenvalues below this are not worth keeping."""


class Seen(NamedTuple):
    """Vectors and their images under ∇E, [m, n] each."""

    inputs: np.ndarray
    images: np.ndarray

    def and_also(self, other: Seen) -> Seen:
        """Both together."""
        return Seen(*(np.concatenate(pair) for pair in zip(self, other)))


class Leading(NamedTuple):
    """Eigenvalues of ∇E, falling [k], with their right and left eigenvectors, [k, n] each."""

    values: np.ndarray
    right: np.ndarray
    left: np.ndarray


def nothing_seen(size: int) -> Seen:
    """No vectors of a length."""
    return Seen(np.zeros((0, size), SINGLE), np.zeros((0, size), SINGLE))


def nothing_leading(size: int) -> Leading:
    """No eigenvectors of a length."""
    return Leading(np.zeros(0), *nothing_seen(size))


class _Symmetriser:
    """F and its transpose at a point, on rows of [m, n]."""

    def __init__(self, problem: Problem, theta: np.ndarray):
        self._plain = problem.structure is Structure.SYMMETRIC
        scale = np.broadcast_to(flat_of(problem).scale, theta.shape)
        leaves = jax.tree.leaves(problem.constant)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        self._ends = ends
        self._parts = []
        for leaf, axis, here, sigma in zip(
            leaves, problem.leaf_axes(), np.split(theta * scale, ends), np.split(scale, ends)
        ):
            tilde = np.maximum(here.reshape(leaf.shape), 0)
            root, total = np.sqrt(tilde), tilde.sum(axis, keepdims=True)
            unit = root / np.sqrt(np.where(total > 0, total, 1))
            ratio = np.where(root > 0, sigma.reshape(leaf.shape) / np.where(root > 0, root, 1), 0)
            along = axis if axis < 0 else axis + 1
            self._parts.append((unit.astype(SINGLE), ratio.astype(SINGLE), along))

    def _each(self, rows: np.ndarray, change: Callable) -> np.ndarray:
        if self._plain:
            return rows
        found = []
        for part, (unit, ratio, axis) in zip(np.split(rows, self._ends, axis=1), self._parts):
            changed = change(part.reshape(-1, *unit.shape), unit, ratio, axis)
            found.append(changed.reshape(part.shape))
        return np.concatenate(found, axis=1)

    def forward(self, rows: np.ndarray) -> np.ndarray:
        """F."""
        return self._each(rows, lambda v, u, r, axis: _project(v * r, u, axis))

    def backward(self, rows: np.ndarray) -> np.ndarray:
        """Fᵀ."""
        return self._each(rows, lambda v, u, r, axis: _project(v, u, axis) * r)

    def space(self, seen: Seen) -> _Space:
        """What was seen of ∇E, of M; of unit length."""
        vectors, images = (self.forward(rows) for rows in seen)
        return _unit(_Space(vectors, images, seen.images))

    def right_of(self, left: np.ndarray) -> np.ndarray:
        """Vectors x with ``Fᵀ·F·x`` the given ones: right eigenvectors of left ones, about.

        They are small where Θ̃ is, as right eigenvectors are; those of a point nearby are not
        where Θ̃ has vanished since, and F, which divides by its root, would leave little else of
        them.
        """

        def change(v: np.ndarray, unit: np.ndarray, ratio: np.ndarray, axis: int) -> np.ndarray:
            return np.where(ratio > 0, v / np.where(ratio > 0, ratio, 1) ** 2, 0)

        return self._each(left, change)


def _project(rows: np.ndarray, unit: np.ndarray, axis: int) -> np.ndarray:
    return rows - unit * (unit * rows).sum(axis, keepdims=True)


class _Space(NamedTuple):
    """Vectors w, their images M·w, and the images ∇E·x of which these are F."""

    vectors: np.ndarray
    images: np.ndarray
    before: np.ndarray

    def combine(self, table: np.ndarray) -> _Space:
        return _Space(*(table @ rows for rows in self))

    def and_also(self, other: _Space) -> _Space:
        return _Space(*(np.concatenate(pair) for pair in zip(self, other)))


def _ritz(space: _Space) -> tuple[np.ndarray, _Space]:
    """Ritz values, falling, and the orthonormal Ritz vectors of a span."""
    squares, turn = np.linalg.eigh((space.vectors @ space.vectors.T).astype(np.float64))
    kept = squares > DEPENDENT * squares[-1]
    basis = turn[:, kept] / np.sqrt(squares[kept])
    small = basis.T @ (space.vectors @ space.images.T).astype(np.float64) @ basis
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    table = (basis @ vectors[:, ::-1]).T
    return values[::-1], space.combine(table.astype(space.vectors.dtype))


def _unit(space: _Space) -> _Space:
    lengths = np.linalg.norm(space.vectors, axis=1)
    kept = lengths > 0
    return _Space(*(rows[kept] / lengths[kept, None] for rows in space))


def find_leading(
    problem: Problem,
    theta: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    seen: Seen,
    before: Leading,
    *,
    count: int,
    kept: int,
    accuracy: float,
    most: int,
) -> Leading:
    """The leading eigenvectors of ∇E at a point, from what is known of it.

    Args:
        problem: the problem, of a structure other than GENERAL.
        theta: the point, flat.
        product: with ∇E there.
        seen: of ∇E there.
        before: those of a point nearby, the first of which are looked at anew.
        count: how many eigenvalues are wanted to the accuracy.
        kept: how many eigenvectors to return; those after the first `count` are rough.
        accuracy: relative residual of the first `count`; eigenvalues err by about its square.
        most: products at most, beside the first look.
    """
    symmetric = _Symmetriser(problem, theta)
    again = max(count, kept // AGAIN)
    first = symmetric.right_of(before.left[:again])
    if not first.any():  # none before, or only those of the eigenvalue 0
        first = _random_vector(problem.size)
    space, spent = symmetric.space(seen.and_also(_look_at(product, first))), 0
    while True:
        if not len(space.vectors):
            return nothing_leading(problem.size)
        values, ritz = _ritz(space)
        errors = np.linalg.norm(ritz.images - values[:, None] * ritz.vectors, axis=1)
        worse = np.flatnonzero(errors[:count] > accuracy * np.abs(values[:count]))
        missing = len(values) < min(count, problem.size)
        if not (worse.size or missing) or spent >= most or len(values) >= problem.size:
            break
        # The image of a Ritz vector holds its residual, and is nearer to the eigenvector.
        more = ritz.before[worse if worse.size else slice(0, 1)]
        space = space.and_also(symmetric.space(_look_at(product, more)))
        spent += len(more)
    worth = np.flatnonzero((values > LEAST) | (np.arange(len(values)) < count))[:kept]
    safe = np.where(np.abs(values[worth]) > LEAST, values[worth], 1.0)
    right = ritz.before[worth] / safe[:, None]
    left = symmetric.backward(ritz.vectors[worth])
    return Leading(values[worth], right.astype(SINGLE), left.astype(SINGLE))


def _random_vector(size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, size)).astype(SINGLE)


def _look_at(product: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> Seen:
    """Rows, of unit length, and their images."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    inputs = (rows / np.where(lengths > 0, lengths, 1)).astype(SINGLE)
    images = [product(row).astype(SINGLE) for row in inputs]
    return Seen(inputs, np.array(images, SINGLE).reshape(inputs.shape))


# -------------------------------------------------------------------------------------------------
# Linear algebra of a path whose map E is linearised outside of compiled programs, on all cores.
#
# A compiled program runs its loops on one core of a CPU. Where a problem brings a `linearise` of its
# own, Krylov methods run here in NumPy, and only products with ∇E are compiled.


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
    flat = flat_of(problem)
    expected, product = problem.linearise(flat.as_tree(theta))
    expected = flat.as_vector(expected) / flat.scale
    on_flat = getattr(product, "on_flat", None)
    quick = on_flat(flat.scale) if on_flat is not None else None
    if quick is not None:
        return Linearised(expected, quick)

    def times(vector: np.ndarray) -> np.ndarray:
        return flat.as_vector(product(flat.as_tree(vector))) / flat.scale

    return Linearised(expected, times)


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
    except np.linalg.LinAlgError:
        return lambda vector: vector
    return lambda vector: vector - (wide @ vector) @ tall


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
    weights, slopes = flat_of(problem).weights(lam)
    constant = flat_of(problem).constant
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
        image = self._product(theta).astype(self.dtype, copy=False)
        self._inputs.append(theta.astype(SINGLE, copy=False))
        self._images.append(image.astype(SINGLE, copy=False))
        found = np.empty_like(vector)
        above = found[:-1]
        np.multiply(image, -self._weight, out=above)
        above += theta
        above += self._column * vector[-1]
        found[-1] = self._row @ vector
        return found

    def seen(self) -> Seen:
        """All vectors and images so far."""
        shape = (-1, self._size)
        return Seen(
            np.array(self._inputs, SINGLE).reshape(shape),
            np.array(self._images, SINGLE).reshape(shape),
        )


# -------------------------------------------------------------------------------------------------
# The bordered linear systems of a path: its tangents, and Newton's method towards it.
#
# At ``z = (Θ̃, λ)`` the Jacobian of ``R(z) = Θ̃ − EM_λ(Θ̃)`` is the n × (n + 1) matrix
#
#     J = [ I − g2(λ)·∇E(Θ̃)  |  −g1'(λ)·c − g2'(λ)·E(Θ̃) ],
#
# whose kernel is the path's tangent η (with linear weights, J is minus the paper's matrix). A row r
# below it makes it square. With r an earlier tangent that matrix is regular at every point of the
# path but at bifurcations, turning points of λ among them.


class Solved(NamedTuple):
    """Solution of a bordered system at a point, and ``‖R‖ / ‖Θ̃‖`` there."""

    solution: Float[Array, " z"]
    residual: Float[Array, ""]


class _Local(NamedTuple):
    """R at a point, E there, and the last column of its Jacobian."""

    residual: Array
    relative: Array
    column: Array
    second_weight: Array


def _look(problem: Problem, point: Array, expected: Array) -> _Local:
    theta, lam = point[:-1], point[-1]
    constant, _ = flat_map(problem)
    weights, slopes = jax.jvp(problem.weights, (lam,), (jnp.ones_like(lam),))
    residual = theta - (weights[0] * constant + weights[1] * expected)
    column = -(slopes[0] * constant + slopes[1] * expected)
    size, error = jnp.linalg.norm(theta), jnp.linalg.norm(residual)
    relative = jnp.where(error == 0, 0.0, error / jnp.where(size > 0, size, 1.0))
    return _Local(residual, relative, column, jnp.asarray(weights[1], theta.dtype))


def _right_hand_side(local: _Local, point: Array, row: Array, anchor: Array, newton: Array):
    """``(−R, −r·(z − anchor))`` for Newton's method, ``(0, 1)`` for a tangent."""
    above = jnp.where(newton, -local.residual, 0.0)
    below = jnp.where(newton, -row @ (point - anchor), 1.0)
    return jnp.append(above, below)


@eqx.filter_jit
@in_full_precision
def solve_matrix_free(
    problem: Problem,
    point: Float[Array, " z"],
    row: Float[Array, " z"],
    anchor: Float[Array, " z"],
    newton: Array,
    enough: Array,
    tolerance: Array,
    size: int,
    restarts: int,
) -> Solved:
    """Solve ``[J; r] x = b`` by GMRES, with E linearised once.

    One program for tangents and Newton's method, as compiling E is what costs. JAX's incremental
    GMRES looks at the residual after every product with ∇E, and stops there: a product costs as
    much as an E-step or more.

    Args:
        problem: the problem.
        point: z.
        row: r.
        anchor: the point through which the hyperplane of Newton's method goes.
        newton: ``b = (−R(z), −r·(z − anchor))`` if true, else ``b = (0, 1)``.
        enough: with ‖R‖/‖Θ̃‖ up to this, x = 0 without solving.
        tolerance: ‖[J; r] x − b‖ / ‖b‖ at the end.
        size, restarts: vectors that GMRES keeps, and how often it begins again.
    """
    expected, product = jax.linearize(flat_map(problem)[1], point[:-1])
    local = _look(problem, point, expected)

    def matrix(x: Array) -> Array:
        above = x[:-1] - local.second_weight * product(x[:-1]) + local.column * x[-1]
        return jnp.append(above, row @ x)

    def solve() -> Array:
        right = _right_hand_side(local, point, row, anchor, newton)
        return device_gmres(
            matrix,
            right,
            tol=tolerance,  # pyright: ignore[reportArgumentType] - it may be an array
            restart=min(size, point.size),
            maxiter=restarts,
            solve_method="incremental",
        )[0]

    found = jax.lax.cond(local.relative <= enough, lambda: jnp.zeros_like(point), solve)
    return Solved(found, local.relative)


@eqx.filter_jit
@in_full_precision
def solve_dense(
    problem: Problem,
    point: Float[Array, " z"],
    row: Float[Array, " z"],
    anchor: Float[Array, " z"],
    newton: Array,
    enough: Array,
) -> Solved:
    """The same with the matrix J: LU for Newton's method, the SVD's kernel for tangents.

    n products with ∇E and O(n³) operations: for small problems, to compare with.
    """
    _, expect = flat_map(problem)
    local = _look(problem, point, expect(point[:-1]))
    identity = jnp.eye(point.size - 1, dtype=point.dtype)
    square = identity - local.second_weight * jax.jacfwd(expect)(point[:-1])
    matrix = jnp.concatenate([square, local.column[:, None]], axis=1)

    def solve() -> Array:
        right = _right_hand_side(local, point, row, anchor, newton)
        return jnp.linalg.solve(jnp.concatenate([matrix, row[None]]), right)

    def kernel() -> Array:
        last = jnp.linalg.svd(matrix, full_matrices=True)[2][-1]
        return jnp.where(last @ row < 0, -last, last)

    step = jax.lax.cond(newton, solve, kernel)
    return Solved(jnp.where(local.relative <= enough, 0.0, step), local.relative)


@eqx.filter_jit
@in_full_precision
def dense_jacobian(problem: Problem, theta: Float[Array, " n"]) -> Float[Array, "n n"]:
    """The matrix ∇E."""
    return jax.jacfwd(flat_map(problem)[1])(theta)
