"""Run a kernel over a batch, block of rows by block of rows, rescuing the blocks that need it.

A block is small enough to stay in a core's cache, and bounds what the kernels hold at a time. It
is also the unit of rescue: a sequence whose scores are too spread out for scaled space sends its
own block to the log-space functions, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.batch import _scaled, _scaled_covariance, _scaled_entropy
from jaxseq.batch._scaled import Block, BlockMarginals
from jaxseq.batch._scaled_covariance import BlockCovariance
from jaxseq.batch._scaled_entropy import BlockEntropy
from jaxseq.chain._engines import (
    Method,
    log_forward,
    log_forward_backward,
    scaled_forward_backward,
)
from jaxseq.chain._entropy import gradient_from_marginals, label_entropies, step_entropies
from jaxseq.chain._propagate import covariance_from_marginals

CACHE_ENTRIES = 2**18
"""Scores in a block on the CPU: 1 MiB in float32."""


def rows_per_block(rows: int, slots: int, labels: int) -> int:
    """How many rows to work on at a time: what fits a CPU's cache; all on an accelerator."""
    if jax.default_backend() != "cpu":
        return rows
    fitting = CACHE_ENTRIES // (slots * labels)
    return min(rows, max(32, min(128, fitting // 16 * 16)))


def map_blocks(
    kernel: Callable[..., Any],
    segments: Int[Array, "r t"],
    weights: Float[Array, "r t"],
    nodes: Float[Array, "r t s"],
    *more: Float[Array, "r t s"],
) -> Any:
    """`kernel(block, *more rows)` for all blocks, results stacked [blocks, …]."""
    rows, slots, labels = nodes.shape
    size = max(1, rows_per_block(rows, slots, labels))
    blocks = -(-rows // size)
    missing = blocks * size - rows

    def split(array, fill):
        if missing:
            widths = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
            array = jnp.pad(array, widths, constant_values=fill)
        return array.reshape(blocks, size, *array.shape[1:])

    def run(rows_of_block):
        segment, weight, node, *rest = rows_of_block
        valid = segment >= 0
        linked = jnp.pad((segment[:, 1:] == segment[:, :-1]) & valid[:, 1:], ((0, 0), (1, 0)))
        return kernel(Block(node, linked, valid, weight), *rest)

    arrays = (split(segments, -1), *(split(array, 0) for array in (weights, nodes, *more)))
    return lax.map(run, arrays)


def join_rows(stacked: Array, rows: int) -> Array:
    """Results [blocks, size, …] as [rows, …]."""
    return stacked.reshape(-1, *stacked.shape[2:])[:rows]


def choose(
    method: Method, fast: Callable[[], tuple[Any, Bool[Array, ""]]], slow: Callable[[], Any],
    block: Block, edges: Array,
) -> Any:  # fmt: skip
    """The fast kernel's result where it is certified, else the slow one's.

    The kernels certify cheaply and may suspect a chain that forbids transitions without cause;
    such a block is looked at again, exactly, before it is sent to log space.
    """
    if method == "log":
        return slow()
    result, certified = fast()
    if method == "scaled":
        return result

    def look_again():
        rows = (block.nodes, block.linked[:, 1:], block.valid)
        exactly = jax.vmap(lambda n, l, v: scaled_forward_backward(n, edges, l, v)[1])(*rows)  # noqa: E741
        return lax.cond(exactly.all(), lambda: result, slow)

    return lax.cond(certified, lambda: result, look_again)


# --------------------------------------------------------------- the same, row by row, in logs


def _log_lattice(block: Block, edges: Array):
    return jax.vmap(log_forward_backward, (0, None, 0, 0))(
        block.nodes, edges, block.linked[:, 1:], block.valid
    )


def _weigh_edges(block: Block, values: Float[Array, "c m s s"]) -> Float[Array, "s s"]:
    return (block.weights[:, :-1, None, None] * values).sum((0, 1))


def forward(block: Block, edges: Array, method: Method) -> Float[Array, "c t"]:
    """Increments of log Z."""

    def slow():
        run = jax.vmap(log_forward, (0, None, 0, 0))
        return run(block.nodes, edges, block.linked[:, 1:], block.valid)[1]

    return choose(method, lambda: _scaled.forward(block, edges), slow, block, edges)


def marginals(block: Block, edges: Array, method: Method) -> BlockMarginals:
    """Forward–backward."""

    def slow():
        lattice = _log_lattice(block, edges)
        return BlockMarginals(lattice.increments, lattice.nodes, _weigh_edges(block, lattice.edges))

    return choose(method, lambda: _scaled.marginals(block, edges), slow, block, edges)


def covariance(
    block: Block, edges: Array, node_values: Array, edge_values: Array, method: Method
) -> BlockCovariance:
    """Covariance with an additive functional."""

    def slow():
        _, nodes, pairs = _log_lattice(block, edges)
        by_node, by_pair = jax.vmap(covariance_from_marginals, (0, 0, 0, None))(
            nodes, pairs, node_values, edge_values
        )
        means = (nodes * node_values).sum(2)
        means = means.at[:, :-1].add((pairs * edge_values).sum((2, 3)))
        return BlockCovariance(means, by_node, _weigh_edges(block, by_pair))

    fast = lambda: _scaled_covariance.covariance(block, edges, node_values, edge_values)  # noqa: E731
    return choose(method, fast, slow, block, edges)


def entropy(block: Block, edges: Array, method: Method) -> BlockEntropy:
    """Entropy and its gradient."""

    def slow():
        _, nodes, pairs = _log_lattice(block, edges)
        by_node, by_pair = jax.vmap(gradient_from_marginals)(nodes, pairs)
        entropies = jnp.where(block.linked, 0, jax.vmap(label_entropies)(nodes))
        entropies = entropies.at[:, :-1].add(jax.vmap(step_entropies)(pairs))
        return BlockEntropy(entropies, by_node, _weigh_edges(block, by_pair))

    return choose(method, lambda: _scaled_entropy.entropy(block, edges), slow, block, edges)
