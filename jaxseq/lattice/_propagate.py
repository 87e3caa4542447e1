r"""Conditional expectations of additive functionals, from marginals alone.

For a functional :math:`g(y) = \sum_t v_t(y_t) + \sum_t w_t(y_t, y_{t+1})` and a Markov chain given
by its marginals, two recursions of O(n s²) yield what each label knows about everything to its
left and to its right:

.. math::

    G^\alpha_{t+1}(j) &= \sum_i p(y_t{=}i \mid y_{t+1}{=}j)\,
                         [G^\alpha_t(i) + v_t(i) + w_t(i, j)] \\
    G^\beta_t(i)      &= \sum_j p(y_{t+1}{=}j \mid y_t{=}i)\,
                         [w_t(i, j) + v_{t+1}(j) + G^\beta_{t+1}(j)]

Mann & McCallum's entropy lattices are these with v = 0 and w = −log of the conditional
probability. Where a link is cut the edge marginals are 0, and the recursions restart by themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxseq.lattice._chain import Edges, Nodes, Pairs
from jaxseq.lattice._numerics import safe_divide
from jaxseq.lattice._parallel import (
    Conditionals,
    EdgeValues,
    parallel_left_lattice,
    parallel_right_lattice,
)


def conditionals(edge_marginals: Conditionals) -> tuple[Conditionals, Conditionals]:
    """p(y_t = i | y_{t+1} = j) and p(y_{t+1} = j | y_t = i), both indexed [t, i, j].

    The divisors are sums of the edge marginals themselves, so that rows and columns sum to one to
    the last bit of rounding, which node marginals from another recursion would not give.
    """
    # `safe_divide` gives 0 for labels that cannot occur, whatever would be conditioned on them.
    backward = safe_divide(edge_marginals, edge_marginals.sum(1, keepdims=True))
    forward = safe_divide(edge_marginals, edge_marginals.sum(2, keepdims=True))
    return backward, forward


def left_lattice(
    backward: Conditionals, node_values: Nodes, edge_values: EdgeValues, centre: Nodes | None = None
) -> Nodes:
    """G^α. With `centre` (node marginals), each row is shifted to mean 0: a constant that every
    use inside a covariance cancels, kept out so that long chains lose no digits."""

    def step(value, inputs):
        conditional, node, edge, weights = inputs
        # What lies left of t, what is gained at t, and on the way to t + 1; the label at t averaged
        # out given that at t + 1.
        value = (conditional * ((value + node)[:, None] + edge)).sum(0)
        return (recentred := _recentre(value, weights)), recentred

    first = jnp.zeros_like(node_values[0])
    weights = None if centre is None else centre[1:]  # step t ends at position t + 1
    edge_values = jnp.broadcast_to(edge_values, backward.shape)
    scanned = (backward, node_values[:-1], edge_values, weights)
    return jnp.concatenate([first[None], lax.scan(step, first, scanned)[1]])


def right_lattice(
    forward: Conditionals, node_values: Nodes, edge_values: EdgeValues, centre: Nodes | None = None
) -> Nodes:
    """G^β; `centre` as in `left_lattice`."""

    def step(value, inputs):
        conditional, node, edge, weights = inputs
        # `node` is v of t + 1: G^β counts neither what lies at t nor, at the end, anything at all.
        value = (conditional * (edge + value + node)).sum(1)
        return (recentred := _recentre(value, weights)), recentred

    last = jnp.zeros_like(node_values[0])
    weights = None if centre is None else centre[:-1]  # step t, backwards, ends at position t
    edge_values = jnp.broadcast_to(edge_values, forward.shape)
    scanned = (forward, node_values[1:], edge_values, weights)
    return jnp.concatenate([lax.scan(step, last, scanned, reverse=True)[1], last[None]])


def lattice_functions(parallel: bool) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """The recursions for G^α and G^β: one position per step, or all in O(log n) steps."""
    if parallel:
        return parallel_left_lattice, parallel_right_lattice
    return left_lattice, right_lattice


def covariance_from_marginals(
    node_marginals: Nodes, edge_marginals: Pairs, node_tangent: Nodes, edge_tangent: Edges,
    *, parallel: bool = False,
) -> tuple[Nodes, Pairs]:  # fmt: skip
    r"""Cov[features] · tangent, one entry for each node and each edge indicator.

    For an indicator 1{e}: Cov[1{e}, g] = p(e) (E[g | e] − E[g]). Linear in the tangent,
    differentiable in the marginals. Cost O(n s²), or O(n s³) in O(log n) steps if `parallel`.
    """
    backward, forward = conditionals(edge_marginals)
    to_left, to_right = lattice_functions(parallel)
    left = to_left(backward, node_tangent, edge_tangent, node_marginals)
    right = to_right(forward, node_tangent, edge_tangent, node_marginals)
    # G^α and G^β both leave out position t itself. At a node it is counted once, at an edge the
    # left end is counted from the left and the right end from the right.
    at_left, at_right = left + node_tangent, right + node_tangent
    return (
        weigh_centred(node_marginals, left + at_right, axis=1),
        weigh_centred(
            edge_marginals, at_left[:-1, :, None] + edge_tangent + at_right[1:, None, :],
            axis=(1, 2),
        ),
    )  # fmt: skip


def weigh_centred(weights: Array, values: Array, axis: int | tuple[int, ...]) -> Array:
    """weights · (values − their weighted mean): sums to zero at each position.

    Any position yields the same mean of a functional of the whole sequence; taking each
    position's own keeps rounding local, and serves rows that hold several sequences.
    """
    return weights * (values - (weights * values).sum(axis, keepdims=True))


def _recentre(value: Array, weights: Array | None) -> Array:
    return value if weights is None else value - (weights * value).sum()
