"""The leading eigenvectors of ∇E, kept from point to point of a path.

With ``∇E = COV·FᵀF`` (see `_spectrum`), ``F·∇E = M·F`` for the symmetric ``M = F·COV·Fᵀ``: what a
linear solver has seen of ∇E, vectors x and images ∇E·x, are vectors Fx and images M·Fx of M as
well. Eigenvectors of M are found among them by Rayleigh and Ritz for next to nothing. An
eigenvector w of M gives ∇E the left one ``Fᵀw`` and the right one ``COV·Fᵀw/μ``, biorthonormal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxseq.learn.homotopy._flat import flat_of
from jaxseq.learn.homotopy._problem import Problem, Structure

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
