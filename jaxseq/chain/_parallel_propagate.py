r"""The recursions of `jaxseq.chain._propagate` in O(log n) steps.

Each of their steps is an affine map, value ↦ value · C + d forwards and value ↦ C · value + d
backwards, and affine maps are closed under composition: (C, d) is the expectation semiring of
Eisner 2002 with the probabilities conditioned already, so that no product leaves 0 … 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxseq.chain._numerics import einsum, matmul
from jaxseq.chain._tree import build_tree, states_ahead, states_back


class _Affine(NamedTuple):
    matrix: Float[Array, "m s s"]
    offset: Float[Array, "m s"]


def parallel_left_lattice(
    backward: Float[Array, "m s s"],
    node_values: Float[Array, "n s"],
    edge_values: Float[Array, "..."],
    centre: Float[Array, "n s"] | None = None,
) -> Float[Array, "n s"]:
    """G^α; arguments as in `left_lattice`."""
    if backward.shape[0] == 0:
        return jnp.zeros_like(node_values)
    offset = (backward * (node_values[:-1, :, None] + edge_values)).sum(1)
    offset = _centred(offset, None if centre is None else centre[1:])

    def combine(left: _Affine, right: _Affine) -> _Affine:
        return _Affine(
            matmul(left.matrix, right.matrix), _row(left.offset, right.matrix) + right.offset
        )

    levels = build_tree(combine, _Affine(backward, offset))
    act = lambda state, step: _row(state, step.matrix) + step.offset  # noqa: E731
    return states_ahead(levels, jnp.zeros_like(node_values[0]), act)


def parallel_right_lattice(
    forward: Float[Array, "m s s"],
    node_values: Float[Array, "n s"],
    edge_values: Float[Array, "..."],
    centre: Float[Array, "n s"] | None = None,
) -> Float[Array, "n s"]:
    """G^β; arguments as in `right_lattice`."""
    if forward.shape[0] == 0:
        return jnp.zeros_like(node_values)
    offset = (forward * (edge_values + node_values[1:, None, :])).sum(2)
    offset = _centred(offset, None if centre is None else centre[:-1])

    def combine(left: _Affine, right: _Affine) -> _Affine:
        return _Affine(
            matmul(left.matrix, right.matrix), left.offset + _column(left.matrix, right.offset)
        )

    levels = build_tree(combine, _Affine(forward, offset))
    act = lambda step, state: _column(step.matrix, state) + step.offset  # noqa: E731
    return states_back(levels, jnp.zeros_like(node_values[0]), act)


def _centred(offset: Array, weights: Array | None) -> Array:
    # The conditionals carry the marginals of one position to those of the next, so offsets of
    # mean 0 make every prefix of mean 0.
    return offset if weights is None else offset - (weights * offset).sum(1, keepdims=True)


def _row(vectors: Float[Array, "m s"], matrices: Float[Array, "m s s"]) -> Float[Array, "m s"]:
    return einsum("mi,mij->mj", vectors, matrices)


def _column(matrices: Float[Array, "m s s"], vectors: Float[Array, "m s"]) -> Float[Array, "m s"]:
    return einsum("mij,mj->mi", matrices, vectors)
