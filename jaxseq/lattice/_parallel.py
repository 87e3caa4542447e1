r"""Forward–backward and Viterbi on one sequence in O(log n) steps.

A step from t to t + 1 is the matrix edges[t, i, j] + nodes[t + 1, j]; steps are multiplied in the
semiring (logsumexp, +) for sums over paths, and in (max, +) for the best of them. Products are kept
at a maximum of 0, and what is taken out of them is added up apart: so a long chain loses no digits,
and any range of scores is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.lattice._chain import Edges, Linked, Nodes, Pairs, Valid
from jaxseq.lattice._numerics import argmax, einsum, finite_top, logsumexp, matmul, normalise

# -------------------------------------------------------------------------------------------------
# All prefixes and suffixes of a product, in a number of steps that grows with log m.
#
# Elements x_0 … x_{m−1} of a semigroup act on states. Neighbours are combined in pairs, pairs of
# pairs, and so on to the root (Blelloch 1990); then states are handed down: the state before a
# right half is the state before the whole, moved by the left half. On the way up elements are
# combined, on the way down they only act: one tree of matrices serves vectors from the left and
# from the right.


Elements = TypeVar("Elements")
"""A tree of arrays whose first axis runs over elements."""


def build_tree(combine: Callable[[Any, Any], Any], elements: Elements) -> list[Elements]:
    """The elements, their products in pairs, …, the product of all: fewer than m of them.

    `combine` takes equally many left factors and right ones.
    """
    levels = [elements]
    while (size := _count(levels[-1])) > 1:
        pairs = size // 2
        left, right = (_slice(levels[-1], start, 2 * pairs, 2) for start in (0, 1))
        above = combine(left, right)
        if size % 2:
            above = _concatenate(above, _slice(levels[-1], size - 1, size))
        levels.append(above)
    return levels


def states_ahead(levels: list[Any], start: Array, act: Callable[[Array, Any], Array]) -> Array:
    """The state before each element, and after the last: [m + 1, …].

    `act`: state, element ↦ state after it; many at a time.
    """
    states = start[None]
    for elements in reversed(levels[:-1]):
        # An odd one out at the end of a level has no right half: its state is that of the pair.
        size = _count(elements)
        left = _slice(elements, 0, size // 2 * 2, 2)
        states = _interleave(states, act(states[: size // 2], left))
    last = act(states[-1:], _slice(levels[0], _count(levels[0]) - 1, _count(levels[0])))
    return jnp.concatenate([states, last])


def states_back(levels: list[Any], end: Array, act: Callable[[Any, Array], Array]) -> Array:
    """The same from the state after the last; `act`: element, state ↦ state before it."""
    states = end[None]  # after each element
    for elements in reversed(levels[:-1]):
        size = _count(elements)
        right = _slice(elements, 1, size // 2 * 2, 2)
        states = _interleave(act(right, states[: size // 2]), states)
    first = act(_slice(levels[0], 0, 1), states[:1])
    return jnp.concatenate([first, states])


def _interleave(even: Array, odd: Array) -> Array:
    """even_0, odd_0, even_1, …; the longer of the two ends."""
    pairs = min(len(even), len(odd))
    both = jnp.stack([even[:pairs], odd[:pairs]], 1).reshape(2 * pairs, *even.shape[1:])
    return jnp.concatenate([both, even[pairs:], odd[pairs:]])


def _count(elements: Any) -> int:
    return jax.tree.leaves(elements)[0].shape[0]


def _slice(elements: Any, start: int, stop: int, step: int = 1) -> Any:
    return jax.tree.map(lambda leaf: leaf[start:stop:step], elements)


def _concatenate(first: Any, second: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)


Add = Callable[[Array, int], Array]
"""The semiring's sum along an axis."""


class Steps(NamedTuple):
    """Products of steps: [m, s, s] with a maximum of 0, and the logarithm taken out of each."""

    matrices: Float[Array, "m s s"]
    taken: Float[Array, " m"]


def parallel_log_partition(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid
) -> Float[Array, ""]:
    """log Z of a row that holds one sequence. Cost O(n s³) in O(log n) steps."""
    start = _first(nodes, valid)
    if nodes.shape[0] == 1:
        return logsumexp(start, 0)
    root = _tree_of_steps(logsumexp, nodes, edges, linked)[-1]
    return logsumexp(start[:, None] + root.matrices[0], (0, 1)) + root.taken[0]


def parallel_marginals(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid
) -> tuple[Nodes, Pairs]:
    """Node and edge marginals of a row that holds one sequence, in O(n s³) like log Z."""
    start = _shift(_first(nodes, valid), 0)
    if nodes.shape[0] == 1:  # no step, hence no tree
        no_pairs = jnp.zeros((0, nodes.shape[1], nodes.shape[1]), nodes.dtype)
        return jnp.where(valid[:, None], normalise(start[None], 1), 0), no_pairs
    levels = _tree_of_steps(logsumexp, nodes, edges, linked)
    log_alphas = states_ahead(levels, start, _advance(logsumexp))
    log_betas = states_back(levels, jnp.zeros_like(start), _retreat)
    log_nodes = jnp.where(valid[:, None], log_alphas + log_betas, -jnp.inf)
    log_pairs = log_alphas[:-1, :, None] + edges + (nodes[1:] + log_betas[1:])[:, None, :]
    log_pairs = jnp.where(linked[:, None, None], log_pairs, -jnp.inf)
    return normalise(log_nodes, 1), normalise(log_pairs, (1, 2))


def parallel_best_path(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid
) -> Int[Array, " n"]:
    """Best labels; arbitrary on padding and where no path is legal."""
    # The best score of a prefix that ends in each label comes from the tree of steps; that says
    # which label is best before each label, and these functions are composed in a tree of their
    # own. Ties go to the smaller label, decided from the last position backwards.
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
    return states_back(pointers, argmax(bests[-1]), lambda step, label: _step_to(label, step))


def follow(first: Int[Array, ""], steps: Int[Array, "m s"]) -> Int[Array, " m+1"]:
    """Labels first, steps[0, first], …: functions of labels, composed in a tree."""
    if steps.shape[0] == 0:
        return first[None]
    levels = build_tree(lambda left, right: _look_up(right, left), steps)
    return states_ahead(levels, first, _step_to)


def _step_to(labels: Int[Array, " m"], steps: Int[Array, "m s"]) -> Int[Array, " m"]:
    return _look_up(steps, labels[:, None])[:, 0]


def _look_up(function: Int[Array, "m s"], at: Int[Array, "m k"]) -> Int[Array, "m k"]:
    return jnp.take_along_axis(function, at, axis=1)


def _first(nodes: Float[Array, "n s"], valid: Bool[Array, " n"]) -> Float[Array, " s"]:
    """Scores of the first label; with no position at all there is one empty path, of score 0."""
    zero = jnp.zeros((), nodes.dtype)
    return jnp.where(valid[0], nodes[0], jnp.where(jnp.arange(nodes.shape[1]) == 0, zero, -jnp.inf))


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
    top = finite_top(matrices, (1, 2))
    return Steps(matrices - top[:, None, None], taken + top)


def _shift(scores: Array, axis: int) -> Array:
    return scores - finite_top(scores, axis, keepdims=True)


def _advance(add: Add) -> Callable[[Array, Steps], Array]:
    return lambda states, steps: _shift(add(states[:, :, None] + steps.matrices, 1), 1)


def _retreat(steps: Steps, states: Array) -> Array:
    return _shift(logsumexp(steps.matrices + states[:, None, :], 2), 1)


# -------------------------------------------------------------------------------------------------
# The recursions of `jaxseq.lattice._propagate` in O(log n) steps.
#
# Each of their steps is an affine map, value ↦ value · C + d forwards and value ↦ C · value + d
# backwards, and affine maps are closed under composition: (C, d) is the expectation semiring of
# Eisner 2002 with the probabilities conditioned already, so that no product leaves 0 … 1.


Conditionals = Float[Array, "m s s"]
EdgeValues = Float[Array, "..."]  # one value per position, shared values, or a scalar


class _Affine(NamedTuple):
    matrix: Float[Array, "m s s"]
    offset: Float[Array, "m s"]


def parallel_left_lattice(
    backward: Conditionals, node_values: Nodes, edge_values: EdgeValues, centre: Nodes | None = None
) -> Nodes:
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
    forward: Conditionals, node_values: Nodes, edge_values: EdgeValues, centre: Nodes | None = None
) -> Nodes:
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
