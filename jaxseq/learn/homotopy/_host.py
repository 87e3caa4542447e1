"""Linear algebra of a path whose map E is linearised outside of compiled programs, on all cores.

A compiled program runs its loops on one core of a CPU. Where a problem brings a `linearise` of its
own, Krylov methods run here in NumPy, and only products with ∇E are compiled.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from jaxseq.learn.homotopy._flat import flat_of
from jaxseq.learn.homotopy._krylov import Product, gmres_and_rest
from jaxseq.learn.homotopy._krylov import gmres as gmres
from jaxseq.learn.homotopy._krylov import lanczos_on_host as lanczos_on_host
from jaxseq.learn.homotopy._leading import SINGLE, Leading, Seen, nothing_seen
from jaxseq.learn.homotopy._problem import Problem

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
