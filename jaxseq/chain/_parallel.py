r"""Forward–backward and Viterbi on one sequence in O(log n) steps.

A step from t to t + 1 is the matrix edges[t, i, j] + nodes[t + 1, j]; steps are multiplied in the
semiring (logsumexp, +) for sums over paths, and in (max, +) for the best of them. Products are kept
at a maximum of 0, and what is taken out of them is added up apart: so a long chain loses no digits,
and any range of scores is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.chain._engines import Edges
from jaxseq.chain._numerics import argmax, logsumexp, normalise
from jaxseq.chain._tree import build_tree, states_ahead, states_back

Add = Callable[[Array, int], Array]
"""The semiring's sum along an axis."""


class Steps(NamedTuple):
    """Products of steps: [m, s, s] with a maximum of 0, and the logarithm taken out of each."""

    matrices: Float[Array, "m s s"]
    taken: Float[Array, " m"]


def parallel_log_partition(
    nodes: Float[Array, "n s"], edges: Edges, linked: Bool[Array, " n-1"], valid: Bool[Array, " n"]
) -> Float[Array, ""]:
    """log Z of a row that holds one sequence. Cost O(n s³) in O(log n) steps."""
    start = _first(nodes, valid)
    if nodes.shape[0] == 1:
        return logsumexp(start, 0)
    root = _tree_of_steps(logsumexp, nodes, edges, linked)[-1]
    return logsumexp(start[:, None] + root.matrices[0], (0, 1)) + root.taken[0]


def parallel_marginals(
    nodes: Float[Array, "n s"], edges: Edges, linked: Bool[Array, " n-1"], valid: Bool[Array, " n"]
) -> tuple[Float[Array, "n s"], Float[Array, "n-1 s s"]]:
    """Node and edge marginals of a row that holds one sequence.

    Cost: O(n s³) time in O(log n) steps, O(n s²) memory.
    """
    start = _shift(_first(nodes, valid), 0)
    if nodes.shape[0] == 1:
        return jnp.where(valid[:, None], normalise(start[None], 1), 0), _no_pairs(nodes)
    levels = _tree_of_steps(logsumexp, nodes, edges, linked)
    log_alphas = states_ahead(levels, start, _advance(logsumexp))
    log_betas = states_back(levels, jnp.zeros_like(start), _retreat)
    log_nodes = jnp.where(valid[:, None], log_alphas + log_betas, -jnp.inf)
    log_pairs = log_alphas[:-1, :, None] + edges + (nodes[1:] + log_betas[1:])[:, None, :]
    log_pairs = jnp.where(linked[:, None, None], log_pairs, -jnp.inf)
    return normalise(log_nodes, 1), normalise(log_pairs, (1, 2))


def parallel_best_path(
    nodes: Float[Array, "n s"], edges: Edges, linked: Bool[Array, " n-1"], valid: Bool[Array, " n"]
) -> Int[Array, " n"]:
    """Best labels; arbitrary on padding and where no path is legal.

    The best score of a prefix that ends in each label comes from the tree of steps; that says which
    label is best before each label, and these functions are composed in a tree of their own. Ties
    go to the smaller label, decided from the last position backwards.
    """
    nodes, edges = lax.stop_gradient((nodes, edges))
    start = _shift(_first(nodes, valid), 0)
    if nodes.shape[0] == 1:
        return argmax(start[None])
    levels = _tree_of_steps(jnp.max, nodes, edges, linked)
    bests = states_ahead(levels, start, _advance(jnp.max))
    before = argmax(bests[:-1, None, :] + jnp.swapaxes(edges, -2, -1))  # [t, label at t + 1]
    stay = jnp.arange(nodes.shape[1], dtype=jnp.int32)
    before = jnp.where(linked[:, None], before, stay)
    pointers = build_tree(_look_up, before)
    return states_back(pointers, argmax(bests[-1]), lambda step, label: step_to(label, step))


def follow(
    first: Int[Array, ""], steps: Int[Array, "m s"]
) -> Int[Array, " m+1"]:  # fmt: skip
    """Labels first, steps[0, first], …: functions of labels, composed in a tree."""
    if steps.shape[0] == 0:
        return first[None]
    levels = build_tree(lambda left, right: _look_up(right, left), steps)
    return states_ahead(levels, first, step_to)


def step_to(labels: Int[Array, " m"], steps: Int[Array, "m s"]) -> Int[Array, " m"]:
    """steps[k, labels[k]] for each k."""
    return _look_up(steps, labels[:, None])[:, 0]


def _look_up(function: Int[Array, "m s"], at: Int[Array, "m k"]) -> Int[Array, "m k"]:
    return jnp.take_along_axis(function, at, axis=1)


def _first(nodes: Float[Array, "n s"], valid: Bool[Array, " n"]) -> Float[Array, " s"]:
    """Scores of the first label; with no position at all there is one empty path, of score 0."""
    zero = jnp.zeros((), nodes.dtype)
    return jnp.where(valid[0], nodes[0], jnp.where(jnp.arange(nodes.shape[1]) == 0, zero, -jnp.inf))


def _no_pairs(nodes: Float[Array, "n s"]) -> Float[Array, "0 s s"]:
    return jnp.zeros((0, nodes.shape[1], nodes.shape[1]), nodes.dtype)


def _tree_of_steps(add: Add, nodes: Array, edges: Array, linked: Array) -> list[Steps]:
    # Past the end every label stays what it is, so that the last real position is the last of all.
    zero = jnp.zeros((), nodes.dtype)
    stay = jnp.where(jnp.eye(nodes.shape[1], dtype=bool), zero, -jnp.inf)
    matrices = jnp.where(linked[:, None, None], edges + nodes[1:, None, :], stay)

    def combine(left: Steps, right: Steps) -> Steps:
        product = add(left.matrices[:, :, :, None] + right.matrices[:, None], 2)
        return _scaled(product, left.taken + right.taken)

    return build_tree(combine, _scaled(matrices, jnp.zeros(len(matrices), nodes.dtype)))


def _scaled(matrices: Float[Array, "m s s"], taken: Float[Array, " m"]) -> Steps:
    top = matrices.max((1, 2))
    top = jnp.where(jnp.isneginf(top), 0, top)
    return Steps(matrices - top[:, None, None], taken + top)


def _shift(scores: Array, axis: int) -> Array:
    top = scores.max(axis, keepdims=True)
    return scores - jnp.where(jnp.isneginf(top), 0, top)


def _advance(add: Add) -> Callable[[Array, Steps], Array]:
    return lambda states, steps: _shift(add(states[:, :, None] + steps.matrices, 1), 1)


def _retreat(steps: Steps, states: Array) -> Array:
    return _shift(logsumexp(steps.matrices + states[:, None, :], 2), 1)
