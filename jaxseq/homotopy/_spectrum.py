"""The largest eigenvalues of ∇E without its matrix, and their eigenvectors along a path.

For multinomials ``∇E = COV·H``, with COV the covariance of counts and H block-diagonal with blocks
``diag(1/Θ̃) − 11ᵀ/ΣΘ̃``. With ``D = diag(Θ̃)``, ``u = sqrt(Θ̃/ΣΘ̃)`` and the projection
``P = I − uuᵀ``, a block is ``H = D^{-1/2} P D^{-1/2} = FᵀF`` with ``F = P D^{-1/2}``. So COV·H has
the eigenvalues of the symmetric ``M = F·COV·Fᵀ``, beside zeros. As ``Fᵀ = H·D^{1/2} P``, that is
one product with ∇E between two scalings:

    M = P D^{-1/2} · ∇E · D^{1/2} P.

As ``F·∇E = M·F``, what a linear solver has seen of ∇E, vectors x and images ∇E·x, are vectors Fx
and images M·Fx of M as well. Eigenvectors of M are found among them by Rayleigh and Ritz for next
to nothing. An eigenvector w of M gives ∇E the left one ``Fᵀw`` and the right one ``COV·Fᵀw/μ``,
biorthonormal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxseq.homotopy._linear import (
    SINGLE,
    Leading,
    Product,
    Seen,
    dense_jacobian,
    linearise_flat,
    one_thread,
)
from jaxseq.homotopy._problem import Problem, Structure, find_flat


class Spectrum(NamedTuple):
    """Largest eigenvalues, falling, and a bound on the error of each."""

    values: np.ndarray
    errors: np.ndarray


class Symmetriser:
    """F, and its neighbours, at a point Θ̃/σ, flat, on rows of vectors [m, n] of the same unknowns.

    F is I where ∇E is symmetric itself; a parameter of 0, or less, is left out of it.
    """

    def __init__(self, problem: Problem, theta: np.ndarray, dtype: Any = SINGLE):
        self._is_identity = problem.structure is Structure.SYMMETRIC
        scale = np.broadcast_to(find_flat(problem).scale, theta.shape)
        leaves = jax.tree.leaves(problem.constant)
        self._ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        # Of each leaf u, σ·D^{-1/2}, and the axis of its multinomials behind that of the rows.
        self._parts = []
        flats = np.split(theta * scale, self._ends), np.split(scale, self._ends)
        for leaf, axis, flat, sigma in zip(leaves, problem.leaf_axes(), *flats):
            tilde = np.maximum(flat.reshape(leaf.shape), 0)  # uncorrected steps may go below
            root, total = np.sqrt(tilde), tilde.sum(axis, keepdims=True)
            unit = root / np.sqrt(np.where(total > 0, total, 1))
            ratio = np.where(root > 0, sigma.reshape(leaf.shape) / np.where(root > 0, root, 1), 0)
            along = axis if axis < 0 else axis + 1
            self._parts.append((unit.astype(dtype), ratio.astype(dtype), along))

    def _each(self, rows: np.ndarray, change: Callable) -> np.ndarray:
        """Change the parts of the rows that belong to each leaf."""
        if self._is_identity:
            return rows
        changed = [
            change(part.reshape(-1, *unit.shape), unit, ratio, axis).reshape(part.shape)
            for part, (unit, ratio, axis) in zip(np.split(rows, self._ends, axis=1), self._parts)
        ]
        return np.concatenate(changed, axis=1)

    def forward(self, rows: np.ndarray) -> np.ndarray:
        """F·x."""
        return self._each(rows, lambda v, unit, ratio, axis: _project(v * ratio, unit, axis))

    def backward(self, rows: np.ndarray) -> np.ndarray:
        """Fᵀ·w."""
        return self._each(rows, lambda v, unit, ratio, axis: _project(v, unit, axis) * ratio)

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """D^{1/2} P·w, the right factor of M."""
        return self._each(rows, lambda v, unit, ratio, axis: _over(_project(v, unit, axis), ratio))

    def right_from_left(self, left: np.ndarray) -> np.ndarray:
        """Vectors x with ``FᵀF·x`` the given ones: right eigenvectors from left ones, about.

        They are small where Θ̃ is, as right eigenvectors are. Those of a point nearby would not do:
        F, which divides by the root of Θ̃, would leave little else of them where Θ̃ has vanished
        since.
        """
        return self._each(left, lambda v, unit, ratio, axis: _over(v, ratio**2))

    def operator(self, product: Product) -> Product:
        """M on one vector, by products with ∇E."""
        return lambda vector: self.forward(product(self.spread(vector[None])[0])[None])[0]


def _project(rows: np.ndarray, unit: np.ndarray, axis: int) -> np.ndarray:
    return rows - unit * (unit * rows).sum(axis, keepdims=True)


def _over(rows: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    return np.where(ratio > 0, rows / np.where(ratio > 0, ratio, 1), 0)


# -------------------------------------------------------------------------------------------------
# Lanczos, where nothing is known of ∇E yet.


def lanczos(
    product: Product, start: np.ndarray, steps: int, count: int, accuracy: float
) -> Spectrum:
    """The `count` largest Ritz values of a symmetric operator, falling, and bounds on their errors.

    Every new vector is made orthogonal to all before, twice: without that, converged eigenvalues
    come up again as ghosts, and a ghost would pass for a crossing. One vector finds one copy of
    a multiple eigenvalue. Where the space is exhausted early, zeros fill the rest. It ends after
    so many steps, or as soon as errors are within the accuracy as a share of these values.
    """
    steps = min(steps, start.size)
    basis = np.zeros((steps + 1, start.size), start.dtype)
    basis[0] = start / np.linalg.norm(start)
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    values, errors = np.zeros(0), np.zeros(0)
    rounding = max(1e-14, 10 * float(np.finfo(start.dtype).eps))
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
        # A residual is what lies outside of the space: the share of its last vector.
        values, errors = values[::-1], (beside[number] * abs(vectors[-1]))[::-1]
        known = kept >= count and bool((errors[:count] <= accuracy * abs(values[:count])).all())
        if known or beside[number] <= rounding * size:
            break
        basis[number + 1] = image / beside[number]
    short = max(count - len(values), 0)
    return Spectrum(np.pad(values, (0, short))[:count], np.pad(errors, (0, short))[:count])


def leading_eigenvalues(
    problem: Problem,
    theta: Float[Array | np.ndarray, " n"],
    count: int,
    steps: int = 40,
    dense: bool = False,
    accuracy: float = 1e-8,
) -> Spectrum:
    """The largest eigenvalues of ∇E at a point, by Lanczos on the symmetrised operator.

    An eigenvalue of ∇E is the share of information that EM is missing in some direction;
    ``I − g2(λ)·∇E`` is singular where one reaches ``1/g2(λ)``.

    Args:
        problem: the problem.
        theta: the point, flat.
        count: how many eigenvalues.
        steps: products with ∇E at most, each of which costs as much as a Jacobian–vector product
            of E.
        dense: from the matrix ∇E instead: n products and O(n³).
        accuracy: relative bound on errors with which Lanczos ends earlier.

    Example:
        >>> import jax.numpy as jnp
        >>> slopes = jnp.array([0.5, 0.25])
        >>> problem = Problem(lambda x: slopes * x, jnp.ones(2), structure=Structure.SYMMETRIC)
        >>> leading_eigenvalues(problem, jnp.ones(2), 1).values.round(3).tolist()
        [0.5]
    """
    count = min(count, theta.size)
    if dense:
        values = np.linalg.eigvals(np.asarray(dense_jacobian(problem, jnp.asarray(theta)))).real
        values = np.sort(values)[::-1][:count].astype(problem.dtype)
        return Spectrum(values, np.zeros_like(values))
    if problem.structure is Structure.GENERAL:
        raise ValueError("eigenvalues: expected a structure other than GENERAL, or Jacobian.DENSE")
    theta = np.asarray(theta)
    start = np.random.default_rng(0).standard_normal(theta.size).astype(problem.dtype)
    operator = Symmetriser(problem, theta, problem.dtype).operator(
        linearise_flat(problem, theta).product
    )
    with one_thread():
        return lanczos(operator, start, max(steps, count), count, accuracy)


# -------------------------------------------------------------------------------------------------
# Eigenvectors kept from point to point, improved by what was seen of ∇E on the way.

DEPENDENT = 1e-5
"""A direction with less than this share of the largest in a Gram matrix is rounding."""
REFRESHED_ONE_IN = 4
"""One kept eigenvector in so many is multiplied anew at every point: what solvers have seen there
holds the others."""
LEAST_EIGENVALUE = 0.05
"""Eigenvectors of smaller eigenvalues are not worth keeping."""


class _Space(NamedTuple):
    """Vectors w, their images M·w, and the images ∇E·x of the x with w = F·x."""

    vectors: np.ndarray
    images: np.ndarray
    before: np.ndarray

    @classmethod
    def from_seen(cls, symmetric: Symmetriser, seen: Seen) -> _Space:
        """What was seen of ∇E, scaled to unit length."""
        vectors, images = symmetric.forward(seen.inputs), symmetric.forward(seen.images)
        lengths = np.linalg.norm(vectors, axis=1)
        kept = lengths > 0
        return cls(*(rows[kept] / lengths[kept, None] for rows in (vectors, images, seen.images)))

    def rotated(self, table: np.ndarray) -> _Space:
        """Linear combinations of the rows."""
        return _Space(*(table @ rows for rows in self))

    def joined(self, other: _Space) -> _Space:
        """The rows of both."""
        return _Space(*(np.concatenate(pair) for pair in zip(self, other)))


def find_leading(
    problem: Problem,
    theta: np.ndarray,
    product: Product,
    seen: Seen,
    before: Leading,
    *,
    count: int,
    kept: int,
    accuracy: float,
    most: int,
) -> Leading:
    """The leading eigenvectors of ∇E at a point (`theta`, flat), from what is known of it.

    Args:
        problem: of a structure other than GENERAL.
        theta: the point, flat.
        product: with ∇E there.
        seen: of ∇E there.
        before: those of a point nearby, the first of which are looked at anew.
        count: how many are wanted to the relative residual `accuracy`; eigenvalues err by about
            its square.
        kept: how many to return; those after the first `count` are rough.
        accuracy: of the first `count`.
        most: products at most, beside the first look.
    """
    symmetric = Symmetriser(problem, theta)
    first = symmetric.right_from_left(before.left[: max(count, kept // REFRESHED_ONE_IN)])
    if not first.any():  # none before, or only those of the eigenvalue 0
        first = np.random.default_rng(0).standard_normal((1, problem.size)).astype(SINGLE)
    seen = Seen(*(np.concatenate(pair) for pair in zip(seen, _look_at(product, first))))
    space, spent = _Space.from_seen(symmetric, seen), 0
    while True:
        if not len(space.vectors):
            return Leading.nothing(problem.size)
        values, ritz = _rayleigh_ritz(space)
        errors = np.linalg.norm(ritz.images - values[:, None] * ritz.vectors, axis=1)
        worse = np.flatnonzero(errors[:count] > accuracy * np.abs(values[:count]))
        missing = len(values) < min(count, problem.size)
        if not (worse.size or missing) or spent >= most or len(values) >= problem.size:
            break
        # The image of a Ritz vector holds its residual, and is nearer to the eigenvector.
        more = ritz.before[worse if worse.size else slice(0, 1)]
        space = space.joined(_Space.from_seen(symmetric, _look_at(product, more)))
        spent += len(more)
    worth = np.flatnonzero((values > LEAST_EIGENVALUE) | (np.arange(len(values)) < count))[:kept]
    divisor = np.where(np.abs(values[worth]) > LEAST_EIGENVALUE, values[worth], 1.0)
    right = ritz.before[worth] / divisor[:, None]
    left = symmetric.backward(ritz.vectors[worth])
    return Leading(values[worth], right.astype(SINGLE), left.astype(SINGLE))


def _rayleigh_ritz(space: _Space) -> tuple[np.ndarray, _Space]:
    """Ritz values, falling, and the orthonormal Ritz vectors of a span."""
    # By the Gram matrix: rows that nearly depend on each other are left out with their rounding.
    squares, turn = np.linalg.eigh((space.vectors @ space.vectors.T).astype(np.float64))
    kept = squares > DEPENDENT * squares[-1]
    basis = turn[:, kept] / np.sqrt(squares[kept])
    small = basis.T @ (space.vectors @ space.images.T).astype(np.float64) @ basis
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    table = (basis @ vectors[:, ::-1]).T
    return values[::-1], space.rotated(table.astype(space.vectors.dtype))


def _look_at(product: Product, rows: np.ndarray) -> Seen:
    """Rows, of unit length, and their images under ∇E."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    inputs = (rows / np.where(lengths > 0, lengths, 1)).astype(SINGLE)
    images = [product(row).astype(SINGLE) for row in inputs]
    return Seen(inputs, np.array(images, SINGLE).reshape(inputs.shape))
