"""The largest eigenvalues of ∇E without its matrix.

For multinomials ``∇E = COV·H``, with COV the covariance of counts and H block-diagonal with blocks
``diag(1/Θ̃) − 11ᵀ/ΣΘ̃``. With ``D = diag(Θ̃)``, ``u = sqrt(Θ̃/ΣΘ̃)`` and the projection
``P = I − uuᵀ``, a block is ``H = D^{-1/2} P D^{-1/2} = FᵀF`` with ``F = P D^{-1/2}``. So COV·H has
the eigenvalues of the symmetric ``F·COV·Fᵀ``, beside zeros. As ``Fᵀ = H·D^{1/2} P``, that is

    M = P D^{-1/2} · ∇E · D^{1/2} P,

one product with ∇E between two scalings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxseq.homotopy._linear import dense_jacobian, lanczos_on_host, linearise_flat, one_thread
from jaxseq.homotopy._problem import Problem, Structure, flat_map, flat_scale
from jaxseq.lattice import in_full_precision


class Spectrum(NamedTuple):
    """Largest eigenvalues, falling, and a bound on the error of each."""

    values: np.ndarray
    errors: np.ndarray


@in_full_precision
def lanczos(
    product: Callable[[Array], Array], start: Float[Array, " n"], steps: int
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Ritz values of a symmetric operator, falling, and bounds on their errors.

    Every new vector is made orthogonal to all before, twice: without that, converged eigenvalues
    come up again as ghosts, and a ghost would pass for a crossing. One vector finds one copy of
    a multiple eigenvalue. Where the space is exhausted early, zeros fill the rest.

    Args:
        product: the operator.
        start: any vector with a part in every direction sought.
        steps: m, products taken, at most n.

    Example:
        >>> import jax.numpy as jnp
        >>> values, errors = lanczos(lambda v: jnp.array([3.0, 2.0, 1.0]) * v, jnp.ones(3), 3)
        >>> [round(value, 3) for value in values.tolist()]
        [3.0, 2.0, 1.0]
    """
    precision = jnp.finfo(start.dtype).eps
    steps = min(steps, start.size)

    def extend(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        basis, diagonal, beside = carry
        image = product(basis[number])
        rest = image
        for _ in range(2):
            rest = rest - basis.T @ (basis @ rest)
        length = jnp.linalg.norm(rest)
        goes_on = length > 10 * precision * jnp.linalg.norm(image)
        following = jnp.where(goes_on, rest / jnp.where(goes_on, length, 1.0), 0.0)
        return (
            basis.at[number + 1].set(following),
            diagonal.at[number].set(basis[number] @ image),
            beside.at[number].set(jnp.where(goes_on, length, 0.0)),
        )

    zeros = jnp.zeros(steps, start.dtype)
    basis = jnp.zeros((steps + 1, start.size), start.dtype)
    basis = basis.at[0].set(start / jnp.linalg.norm(start))
    _, diagonal, beside = jax.lax.fori_loop(0, steps, extend, (basis, zeros, zeros))
    small = jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1)
    values, vectors = jnp.linalg.eigh(small)
    return values[::-1], (beside[-1] * jnp.abs(vectors[-1]))[::-1]


def _scalings(problem: Problem, theta: Array) -> tuple[Callable, Callable]:
    """``D^{1/2} P`` and ``P D^{-1/2}`` on vectors; a parameter of 0, or less, is out of both."""
    if problem.structure is Structure.SYMMETRIC:
        return (lambda v: v), (lambda v: v)
    _, unravel = ravel_pytree(problem.constant)
    scale = flat_scale(problem)
    tilde = unravel(theta * scale)
    leaves, tree = jax.tree.flatten(tilde)
    leaves = [jnp.maximum(leaf, 0) for leaf in leaves]  # uncorrected steps may go below
    roots = [jnp.sqrt(leaf) for leaf in leaves]
    sums = [leaf.sum(axis, keepdims=True) for leaf, axis in zip(leaves, problem.leaf_axes())]
    units = [r / jnp.sqrt(jnp.where(s > 0, s, 1.0)) for r, s in zip(roots, sums)]

    def project(parts: list) -> list:
        triples = zip(parts, units, problem.leaf_axes())
        return [v - u * (u * v).sum(axis, keepdims=True) for v, u, axis in triples]

    def after(vector: Array) -> Array:
        parts = project(jax.tree.leaves(unravel(vector)))
        return ravel_pytree(tree.unflatten([r * v for r, v in zip(roots, parts)]))[0] / scale

    def before(vector: Array) -> Array:
        parts = jax.tree.leaves(unravel(vector * scale))
        scaled = [jnp.where(r > 0, v / jnp.where(r > 0, r, 1.0), 0.0) for r, v in zip(roots, parts)]
        return ravel_pytree(tree.unflatten(project(scaled)))[0]

    return after, before


def symmetrised(problem: Problem, theta: Float[Array, " n"]) -> Callable[[Array], Array]:
    """The operator M, symmetric and with the eigenvalues of ∇E (zeros aside)."""
    product = jax.linearize(flat_map(problem)[1], theta)[1]
    after, before = _scalings(problem, theta)
    return lambda vector: before(product(after(vector)))


@eqx.filter_jit
@in_full_precision
def _leading(problem: Problem, theta: Array, start: Array, steps: int) -> tuple[Array, Array]:
    return lanczos(symmetrised(problem, theta), start, steps)


def _leading_on_host(
    problem: Problem,
    theta: np.ndarray,
    start: np.ndarray,
    steps: int,
    count: int,
    accuracy: float,
) -> Spectrum:
    product = linearise_flat(problem, theta).product
    after, before = _scalings(problem, jnp.asarray(theta))

    def times(vector: np.ndarray) -> np.ndarray:
        return np.asarray(before(jnp.asarray(product(np.asarray(after(jnp.asarray(vector)))))))

    with one_thread():
        return Spectrum(*lanczos_on_host(times, start, steps, count, accuracy))


def leading_eigenvalues(
    problem: Problem,
    theta: Float[Array, " n"],
    count: int,
    steps: int = 40,
    dense: bool = False,
    accuracy: float = 1e-6,
) -> Spectrum:
    """The largest eigenvalues of ∇E at a point, by Lanczos on the symmetrised operator.

    An eigenvalue of ∇E is the share of information that EM is missing in some direction;
    ``I − g2(λ)·∇E`` is singular where one reaches ``1/g2(λ)``.

    Args:
        problem: the problem.
        theta: the point, flat.
        count: how many eigenvalues.
        steps: products with ∇E, each of which costs as much as a Jacobian–vector product of E.
        dense: from the matrix ∇E instead: n products and O(n³).
        accuracy: relative bound on errors at which a problem with a `linearise` of its own ends.

    Example:
        >>> import jax.numpy as jnp
        >>> slopes = jnp.array([0.5, 0.25])
        >>> problem = Problem(lambda x: slopes * x, jnp.ones(2), structure=Structure.SYMMETRIC)
        >>> leading_eigenvalues(problem, jnp.ones(2), 1).values.round(3).tolist()
        [0.5]
    """
    count = min(count, theta.size)
    if dense:
        values = np.linalg.eigvals(np.asarray(dense_jacobian(problem, theta))).real
        values = np.sort(values)[::-1][:count].astype(problem.dtype)
        return Spectrum(values, np.zeros_like(values))
    if problem.structure is Structure.GENERAL:
        raise ValueError("eigenvalues: expected a structure other than GENERAL, or Jacobian.DENSE")
    random = np.random.default_rng(0).standard_normal(theta.size)
    start = jnp.asarray(random, problem.dtype)
    steps = min(max(steps, count), theta.size)
    if problem.linearise is not None:
        return _leading_on_host(
            problem, np.asarray(theta), np.asarray(start), steps, count, accuracy
        )
    values, errors = _leading(problem, jnp.asarray(theta), start, steps)
    return Spectrum(np.asarray(values)[:count], np.asarray(errors)[:count])
