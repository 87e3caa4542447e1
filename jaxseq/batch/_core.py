"""Batch quantities as differentiable functions of arrays, and the rules of their derivatives.

Sums over sequences have gradients of the batch's own size: node gradients a slot, edge gradients
already summed. So the rules below are reverse-mode rules for the per-sequence values, and
forward-mode rules for those gradients, which together give Hessian–vector products
(``jax.jvp`` of ``jax.grad``) at the cost of the covariance kernel.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from jaxseq.batch import _blocks
from jaxseq.batch._blocks import BatchMethod
from jaxseq.chain._engines import Method
from jaxseq.chain._entropy import gradient_from_marginals
from jaxseq.chain._marginals import row_marginals
from jaxseq.chain._propagate import covariance_from_marginals

Nodes = Float[Array, "r t s"]
Edges = Float[Array, "s s"]
Segments = Int[Array, "r t"]


def per_sequence(values: Float[Array, "r t"], segments: Segments, num: int) -> Float[Array, " num"]:
    """Sum of each sequence's slots."""
    valid = segments >= 0

    def by_row():
        return jnp.where(valid, values, 0).sum(1)

    def by_bin():
        # Padding goes to one bin past the end, which is dropped.
        bins = jnp.where(valid, segments, num)
        return jnp.zeros(num + 1, values.dtype).at[bins].add(values)[:num]

    if num != len(segments):
        return by_bin()
    # One sequence a row, as in padded batches: then sums over rows are far quicker.
    of_rows = (~valid | (segments == jnp.arange(num)[:, None])).all()
    return lax.cond(of_rows, by_row, by_bin)


def _ones(nodes: Nodes) -> Float[Array, "r t"]:
    return jnp.ones(nodes.shape[:2], nodes.dtype)


# ----------------------------------------------------------------------- log Z and marginals


@partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def marginals(
    nodes: Nodes, edges: Edges, segments: Segments, weights: Float[Array, "r t"],
    num: int, method: BatchMethod,
) -> tuple[Float[Array, " num"], Nodes, Edges]:  # fmt: skip
    """log Z of each sequence, node marginals, and the weighted sum of all edge marginals."""
    increments, by_node, by_edge = _blocks.run_blocks(
        _blocks.marginals(edges), method, edges, segments, weights, nodes
    )
    return per_sequence(increments, segments, num), by_node, by_edge


def _marginals_jvp(num, method, primals, tangents):
    nodes, edges, segments, _weights = primals
    moves = [
        jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent
        for primal, tangent in zip((nodes, edges), tangents)
    ]
    log_z, by_node, by_edge = marginals(*primals, num, method)
    log_z_change, node_change, edge_change = covariance(
        *primals, *moves, num, "scaled" if method == "native" else method
    )
    if not isinstance(tangents[3], SymbolicZero):  # edge marginals are linear in the weights
        edge_change += marginals(nodes, edges, segments, tangents[3], num, method)[2]
    # Zero marginals: a sequence with no legal path does not move.
    return (log_z, by_node, by_edge), (log_z_change, node_change, edge_change)


marginals.defjvp(_marginals_jvp, symbolic_zeros=True)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def log_partition(
    nodes: Nodes, edges: Edges, segments: Segments, num: int, method: BatchMethod
) -> Float[Array, " num"]:
    """log Z of each sequence."""
    increments, _ = _blocks.run_blocks(
        _blocks.forward(edges), method, edges, segments, _ones(nodes), nodes
    )
    return per_sequence(increments, segments, num)


def _log_partition_forward(nodes, edges, segments, num, method):
    log_z, by_node, by_edge = marginals(nodes, edges, segments, _ones(nodes), num, method)
    return log_z, (nodes, edges, segments, by_node, by_edge)


def _log_partition_backward(num, method, residuals, cotangent):
    nodes, edges, segments, by_node, by_edge = residuals

    def weighted_edges(weights):
        return marginals(nodes, edges, segments, weights, num, method)[2]

    return _pull_back(segments, by_node, by_edge, cotangent, weighted_edges)


log_partition.defvjp(_log_partition_forward, _log_partition_backward)


def _pull_back(segments, by_node, by_edge, cotangent, weighted_edges):
    """Gradient of Σ cotangent[q] · value[q] from the gradient of Σ value[q].

    Node gradients only need scaling. The edge gradient is a sum over sequences: for a plain sum,
    the usual case, it scales too; for unequal weights it is computed again with them.
    """
    if cotangent.shape[0] == 0:
        return by_node, by_edge, None
    weights = jnp.where(segments >= 0, cotangent[segments], 0)
    equal = (cotangent == cotangent[0]).all()
    edges = lax.cond(equal, lambda: cotangent[0] * by_edge, lambda: weighted_edges(weights))
    return by_node * weights[..., None], edges, None


# --------------------------------------------------------------------------------- entropy


@partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def entropy_gradient(
    nodes: Nodes, edges: Edges, segments: Segments, weights: Float[Array, "r t"],
    num: int, method: BatchMethod,
) -> tuple[Float[Array, " num"], Nodes, Edges]:  # fmt: skip
    """Entropy of each sequence, ∂/∂nodes of its own, ∂/∂edges of the weighted sum."""
    shares, by_node, by_edge = _blocks.run_blocks(
        _blocks.entropy(edges), method, edges, segments, weights, nodes
    )
    return per_sequence(shares, segments, num), by_node, by_edge


@entropy_gradient.defjvp
def _(num, method, primals, tangents):
    nodes, edges, segments, weights = primals

    def row_by_row(nodes, edges, weights):
        lattice = _row_marginals(nodes, edges, segments)
        by_node, by_pair = jax.vmap(gradient_from_marginals)(*lattice)
        return by_node, (weights[:, :-1, None, None] * by_pair).sum((0, 1))

    values = entropy_gradient(*primals, num, method)
    moves = (tangents[0], tangents[1], tangents[3])
    change = jax.jvp(row_by_row, (nodes, edges, weights), moves)[1]
    # dH = ⟨∂H/∂nodes, dnodes⟩ + ⟨∂H/∂edges, dedges⟩ for each sequence.
    _, by_pair = jax.vmap(gradient_from_marginals)(*_row_marginals(nodes, edges, segments))
    slots = (values[1] * tangents[0]).sum(2)
    slots = slots.at[:, :-1].add((by_pair * tangents[1]).sum((2, 3)))
    return values, (per_sequence(slots, segments, num), *change)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def entropy(
    nodes: Nodes, edges: Edges, segments: Segments, num: int, method: BatchMethod
) -> Float[Array, " num"]:
    """Entropy of each sequence."""
    return entropy_gradient(nodes, edges, segments, _ones(nodes), num, method)[0]


def _entropy_forward(nodes, edges, segments, num, method):
    values, by_node, by_edge = entropy_gradient(nodes, edges, segments, _ones(nodes), num, method)
    return values, (nodes, edges, segments, by_node, by_edge)


def _entropy_backward(num, method, residuals, cotangent):
    nodes, edges, segments, by_node, by_edge = residuals

    def weighted_edges(weights):
        return entropy_gradient(nodes, edges, segments, weights, num, method)[2]

    return _pull_back(segments, by_node, by_edge, cotangent, weighted_edges)


entropy.defvjp(_entropy_forward, _entropy_backward)


# ------------------------------------------------------------------------------ covariance


@partial(jax.custom_jvp, nondiff_argnums=(6, 7))
def covariance(
    nodes: Nodes, edges: Edges, segments: Segments, weights: Float[Array, "r t"],
    node_values: Nodes, edge_values: Edges, num: int, method: Method,
) -> tuple[Float[Array, " num"], Nodes, Edges]:  # fmt: skip
    """E[g] of each sequence, Cov[node indicators, g], weighted sum of Cov[edge indicators, g]."""

    def kernel(block, values):
        return _blocks.covariance(block, edges, values, edge_values, method)

    means, by_node, by_edge = _blocks.map_linear(kernel, segments, weights, nodes, node_values)
    return per_sequence(means, segments, num), by_node, by_edge


@covariance.defjvp
def _(num, method, primals, tangents):
    nodes, edges, segments, weights, node_values, edge_values = primals

    # Third derivatives of log Z: rarely wanted, so by the single-chain functions, row by row.
    def row_by_row(nodes, edges, weights, node_values, edge_values):
        by_slot, by_pair = _row_marginals(nodes, edges, segments)
        node_part, pair_part = jax.vmap(covariance_from_marginals, (0, 0, 0, None))(
            by_slot, by_pair, node_values, edge_values
        )
        means = (by_slot * node_values).sum(2)
        means = means.at[:, :-1].add((by_pair * edge_values).sum((2, 3)))
        edge_part = (weights[:, :-1, None, None] * pair_part).sum((0, 1))
        return per_sequence(means, segments, num), node_part, edge_part

    points = (nodes, edges, weights, node_values, edge_values)
    moves = (*tangents[:2], *tangents[3:])
    return covariance(*primals, num, method), jax.jvp(row_by_row, points, moves)[1]


def _row_marginals(nodes: Nodes, edges: Edges, segments: Segments):
    valid = segments >= 0
    linked = (segments[:, 1:] == segments[:, :-1]) & valid[:, 1:]
    return jax.vmap(row_marginals, (0, None, 0, 0, None))(nodes, edges, linked, valid, "auto")
