"""The bordered linear systems of a path: its tangents, and Newton's method towards it.

At ``z = (Θ̃, λ)`` the Jacobian of ``R(z) = Θ̃ − EM_λ(Θ̃)`` is the n × (n + 1) matrix

    J = [ I − g2(λ)·∇E(Θ̃)  |  −g1'(λ)·c − g2'(λ)·E(Θ̃) ],

whose kernel is the path's tangent η (with linear weights, J is minus the paper's matrix). A row r
below it makes it square. With r an earlier tangent that matrix is regular at every point of the
path but at bifurcations, turning points of λ among them.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import gmres
from jaxtyping import Array, Float

from jaxseq.chain._numerics import in_full_precision
from jaxseq.learn.homotopy._problem import Problem, flat_map


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
        return gmres(
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
