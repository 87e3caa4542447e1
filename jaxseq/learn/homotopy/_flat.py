"""A problem's numbers as NumPy's vectors, made once a problem: a path asks for them at every step,
and each operation of JAX outside of a compiled program costs as much as a product of vectors."""

from __future__ import annotations

import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.learn.homotopy._problem import SHRINK, Problem, Structure, flat_scale, linear_weights


class Flat:
    """The problem on flat vectors of its unknowns Θ̃/σ.

    scale: σ [n], or 1. constant: c/σ [n].

    Example:
        >>> flat = flat_of(Problem(lambda x: x / 2, jnp.ones(2), scale=jnp.array([1.0, 2.0])))
        >>> flat.constant.tolist(), flat.weights(0.25)
        ([1.0, 0.5], ((0.75, 0.25), (-1.0, 1.0)))
    """

    def __init__(self, problem: Problem):
        leaves, self._tree = jax.tree.flatten(problem.constant)
        self._shapes = [leaf.shape for leaf in leaves]
        ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
        self._slices = [slice(start, end) for start, end in zip([0, *ends], ends)]
        self._weights, self._dtype = problem.weights, problem.dtype
        self._last: tuple[float, tuple[tuple[float, ...], tuple[float, ...]]] | None = None
        self.scale = np.asarray(flat_scale(problem))
        self.constant = self.as_vector(problem.constant) / self.scale

    def as_tree(self, vector: np.ndarray) -> Any:
        """Θ̃ of Θ̃/σ, as the pytree that c is."""
        whole = (vector * self.scale).astype(self._dtype, copy=False)
        parts = [whole[here].reshape(shape) for here, shape in zip(self._slices, self._shapes)]
        return self._tree.unflatten(parts)

    def as_vector(self, tree: Any) -> np.ndarray:
        """The leaves one after another, not scaled."""
        leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)]
        return leaves[0] if len(leaves) == 1 else np.concatenate(leaves)

    def weights(self, lam: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """g(λ) and g'(λ); those asked for last are remembered."""
        if self._weights is linear_weights:
            return (1 - lam, lam), (-1.0, 1.0)
        if self._last is None or self._last[0] != lam:
            at = jnp.asarray(lam, self._dtype)
            found = jax.jvp(self._weights, (at,), (jnp.ones_like(at),))
            values, slopes = (tuple(float(number) for number in pair) for pair in found)
            self._last = (lam, (values, slopes))
        return self._last[1]


_MADE: dict[int, Flat] = {}


def flat_of(problem: Problem) -> Flat:
    """The flat numbers of a problem, kept as long as it is."""
    number = id(problem)
    if number not in _MADE:
        _MADE[number] = Flat(problem)
        weakref.finalize(problem, _MADE.pop, number, None).atexit = False
    return _MADE[number]


def keep_positive(problem: Problem, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The point `after`, (Θ̃, λ), moved to where solutions can be.

    As E ≥ 0, every solution has ``Θ̃ ≥ g1(λ)·c``: projecting on that box brings an iterate nearer
    to each of them. In log Θ̃ all would be positive too, but the path would be infinitely long
    where a parameter vanishes towards λ = 1. Each parameter also keeps a share of what it was
    before, as 0 is a fixed point of its own from which EM never returns.
    """
    if problem.structure is not Structure.MULTINOMIALS:
        return after
    flat = flat_of(problem)
    first = flat.weights(float(after[-1]))[0][0]
    bound = np.maximum(max(first, 0.0) * flat.constant, SHRINK * before[:-1])
    return np.append(np.maximum(after[:-1], bound.astype(after.dtype)), after[-1:])
