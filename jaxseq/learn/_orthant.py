r"""Orthant-wise steps: L-BFGS for objectives with an l1 term.

:math:`F(x) = f(x) + c \|x\|_1` is smooth inside every orthant. Directions come from the curvature
of f, corrected so that they descend; a step that would leave the orthant stops at its border,
which is how weights become exactly zero.

References:
    Andrew & Gao 2007, "Scalable training of L1-regularized log-linear models".
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array


@jax.jit
def l1_norm(parameters) -> Array:
    """Sum of absolute values."""
    return jnp.stack([jnp.abs(leaf).sum() for leaf in jax.tree.leaves(parameters)]).sum()


@jax.jit
def pseudo_gradient(parameters, gradient, l1):
    """The one-sided derivative of F along which it falls fastest; 0 where it falls to no side."""

    def of(x: Array, g: Array) -> Array:
        right, left = g + l1, g - l1
        at_zero = jnp.where(right < 0, right, jnp.where(left > 0, left, 0))
        return jnp.where(x == 0, at_zero, g + l1 * jnp.sign(x))

    return jax.tree.map(of, parameters, gradient)


@jax.jit
def direction(memory, pseudo):
    """Minus the inverse-Hessian estimate times the pseudo-gradient, where that descends.

    `memory` is the state of `optax.scale_by_lbfgs`, whose own product is with the gradient that
    it remembers; here it is with another one.
    """
    steps, changes, weights = (
        memory.diff_params_memory,
        memory.diff_updates_memory,
        memory.weights_memory,
    )
    size = weights.shape[0]
    # Slots count − 2, count − 3, … hold the newest pairs; unused ones have weight 0. Backtracking
    # does not promise positive curvature: pairs without it are left out.
    order = (memory.count - 2 - jnp.arange(size)) % size
    weights = jnp.maximum(weights, 0).astype(jax.tree.leaves(pseudo)[0].dtype)

    def at(tree, index):
        return jax.tree.map(lambda leaf: leaf[index], tree)

    def newest_first(vector, index):
        share = weights[index] * optax.tree.vdot(at(steps, index), vector)
        return optax.tree.add_scale(vector, -share, at(changes, index)), share

    vector, shares = jax.lax.scan(newest_first, pseudo, order)
    last_step, last_change = at(steps, order[0]), at(changes, order[0])
    curvature = jnp.asarray(optax.tree.vdot(last_change, last_change))
    agreement = jnp.asarray(optax.tree.vdot(last_step, last_change))
    norm = optax.tree.norm(pseudo)
    first = 1 / jnp.maximum(norm, 1)  # before anything is known of the curvature
    scale = jnp.where(agreement > 0, agreement / jnp.where(curvature > 0, curvature, 1), first)
    vector = optax.tree.scale(scale, vector)

    def oldest_first(vector, pair):
        index, share = pair
        back = weights[index] * optax.tree.vdot(at(changes, index), vector)
        return optax.tree.add_scale(vector, share - back, at(steps, index)), None

    vector, _ = jax.lax.scan(oldest_first, vector, (order, shares), reverse=True)
    return jax.tree.map(lambda v, g: jnp.where(v * g > 0, -v, 0), vector, pseudo)


@jax.jit
def move(parameters, direction, pseudo, step):
    """The point reached, held within the orthant; and the slope times the way gone."""

    def of(x: Array, d: Array, g: Array) -> Array:
        side = jnp.where(x == 0, -jnp.sign(g), jnp.sign(x))
        moved = x + step * d
        return jnp.where(moved * side > 0, moved, 0)

    moved = jax.tree.map(of, parameters, direction, pseudo)
    gone = jax.tree.map(jnp.subtract, moved, parameters)
    return moved, optax.tree.vdot(pseudo, gone)
