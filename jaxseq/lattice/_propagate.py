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
from jaxtyping import Array, Float

from jaxseq.lattice._engines import Edges
from jaxseq.lattice._numerics import safe_divide
from jaxseq.lattice._parallel import parallel_left_lattice, parallel_right_lattice


def conditionals(
    edge_marginals: Float[Array, "m s s"],
) -> tuple[Float[Array, "m s s"], Float[Array, "m s s"]]:
    """p(y_t = i | y_{t+1} = j) and p(y_{t+1} = j | y_t = i), both indexed [t, i, j].

    The divisors are sums of the edge marginals themselves, so that rows and columns sum to one to
    the last bit of rounding, which node marginals from another recursion would not give.
    """
    backward = safe_divide(edge_marginals, edge_marginals.sum(1, keepdims=True))
    forward = safe_divide(edge_marginals, edge_marginals.sum(2, keepdims=True))
    return backward, forward


def left_lattice(
    backward: Float[Array, "m s s"],
    node_values: Float[Array, "n s"],
    edge_values: Float[Array, "..."],
    centre: Float[Array, "n s"] | None = None,
) -> Float[Array, "n s"]:
    """G^α. With `centre` (node marginals), each row is shifted to mean 0: a constant that every
    use inside a covariance cancels, kept out so that long chains lose no digits."""

    def step(value, inputs):
        conditional, node, edge, weights = inputs
        value = (conditional * ((value + node)[:, None] + edge)).sum(0)
        return (recentred := _recentre(value, weights)), recentred

    first = jnp.zeros_like(node_values[0])
    weights = None if centre is None else centre[1:]
    edge_values = _spread(edge_values, backward)
    return _prepend(
        first, lax.scan(step, first, (backward, node_values[:-1], edge_values, weights))[1]
    )


def right_lattice(
    forward: Float[Array, "m s s"],
    node_values: Float[Array, "n s"],
    edge_values: Float[Array, "..."],
    centre: Float[Array, "n s"] | None = None,
) -> Float[Array, "n s"]:
    """G^β; `centre` as in `left_lattice`."""

    def step(value, inputs):
        conditional, node, edge, weights = inputs
        value = (conditional * (edge + value + node)).sum(1)
        return (recentred := _recentre(value, weights)), recentred

    last = jnp.zeros_like(node_values[0])
    weights = None if centre is None else centre[:-1]
    edge_values = _spread(edge_values, forward)
    scanned = (forward, node_values[1:], edge_values, weights)
    return _append(lax.scan(step, last, scanned, reverse=True)[1], last)


def lattice_functions(parallel: bool) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """The recursions for G^α and G^β: one position a step, or all in O(log n) steps."""
    if parallel:
        return parallel_left_lattice, parallel_right_lattice
    return left_lattice, right_lattice


def covariance_from_marginals(
    node_marginals: Float[Array, "n s"],
    edge_marginals: Float[Array, "n-1 s s"],
    node_tangent: Float[Array, "n s"],
    edge_tangent: Edges,
    *,
    parallel: bool = False,
) -> tuple[Float[Array, "n s"], Float[Array, "n-1 s s"]]:
    r"""Cov[features] · tangent, one entry for each node and each edge indicator.

    For an indicator 1{e}: Cov[1{e}, g] = p(e) (E[g | e] − E[g]). Linear in the tangent,
    differentiable in the marginals. Cost O(n s²), or O(n s³) in O(log n) steps if `parallel`.
    """
    backward, forward = conditionals(edge_marginals)
    to_left, to_right = lattice_functions(parallel)
    left = to_left(backward, node_tangent, edge_tangent, node_marginals)
    right = to_right(forward, node_tangent, edge_tangent, node_marginals)
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


def _spread(edge_values: Array, like: Array) -> Array:
    return jnp.broadcast_to(edge_values, like.shape)


def _prepend(first: Array, rest: Array) -> Array:
    return jnp.concatenate([first[None], rest])


def _append(rest: Array, last: Array) -> Array:
    return jnp.concatenate([rest, last[None]])
