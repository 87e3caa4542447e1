"""Run a kernel over a batch, block of rows by block of rows, rescuing the blocks that need it.

A block is small enough to stay in a core's cache, and bounds what the kernels hold at a time. It
is also the unit of rescue: a sequence whose scores are too spread out for scaled space sends its
own block to the log-space functions, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.batch import _scaled, _scaled_covariance, _scaled_entropy
from jaxseq.batch._scaled import Block, BlockMarginals
from jaxseq.batch._scaled_covariance import BlockCovariance
from jaxseq.batch._scaled_entropy import BlockEntropy
from jaxseq.batch._viterbi import best_labels
from jaxseq.chain._engines import (
    METHODS,
    Method,
    check_method,
    log_forward,
    log_forward_backward,
    scaled_forward_backward,
)
from jaxseq.chain._entropy import gradient_from_marginals, label_entropies, step_entropies
from jaxseq.chain._propagate import covariance_from_marginals
from jaxseq.native import call_native, has_native, why_not

BatchMethod = Literal["auto", "native", "scaled", "log"]
"""Of functions on batches: the engines of single chains, and scaled space in C++ on a CPU."""

CACHE_ENTRIES = 2**18
"""Scores in a block on the CPU: 1 MiB in float32."""


def check_batch_method(method: str, quantity: str, nodes: Float[Array, "r t s"]) -> None:
    """Refuse a method that does not exist, or not here."""
    check_method(method, (*METHODS, "native"))
    if method == "native" and not has_native(quantity, nodes):
        why = why_not(str(nodes.dtype)) or "for CPUs alone, and rows that fit its cache"
        raise ValueError(
            f"method: expected {', '.join(METHODS)}, got 'native', which is not: {why}"
        )


def rows_per_block(rows: int, slots: int, labels: int) -> int:
    """How many rows to work on at a time: what fits a CPU's cache; all on an accelerator."""
    if jax.default_backend() != "cpu":
        return max(1, rows)
    fitting = CACHE_ENTRIES // (slots * labels)
    return max(1, min(rows, max(32, min(128, fitting // 16 * 16))))


def cut_block(
    segments: Int[Array, "c t"], weights: Float[Array, "c t"], nodes: Float[Array, "c t s"]
) -> Block:
    """Some rows of a batch as a block."""
    valid = segments >= 0
    linked = jnp.pad((segments[:, 1:] == segments[:, :-1]) & valid[:, 1:], ((0, 0), (1, 0)))
    return Block(nodes, linked, valid, weights)


class Kernel(NamedTuple):
    """A quantity of a block: `fast` also says whether it is certified, `slow` is always right.

    Both return a tuple of per-slot arrays [c, t, …] followed by one sum over the block. `native`
    names a twin of `fast` in C++, for all blocks at once, that CPUs run where it can be had.
    """

    fast: Callable[[Block], tuple[tuple[Array, ...], Bool[Array, ""]]]
    slow: Callable[[Block], tuple[Array, ...]]
    native: str | None = None


def run_blocks(
    kernel: Kernel,
    method: BatchMethod,
    edges: Float[Array, "s s"],
    segments: Int[Array, "r t"],
    weights: Float[Array, "r t"],
    nodes: Float[Array, "r t s"],
) -> tuple[Array, ...]:
    """The kernel on all rows: per-slot arrays [r, t, …], then the sum over the batch.

    Blocks are read and written in place: no padded copy of the input, none of the output. When
    the rows are no multiple of the block, the last block reaches back over rows that are done
    already; it writes the same values there, and its sum leaves them out.
    """
    rows, slots, labels = nodes.shape
    if rows == 0:  # one row of padding has the shapes, and nothing in it
        padding = (jnp.full((1, slots), -1), jnp.ones((1, slots)), jnp.zeros((1, slots, labels)))
        parts = (new.astype(a.dtype) for new, a in zip(padding, (segments, weights, nodes)))
        *all_slots, total = run_blocks(kernel, method, edges, *parts)
        return (*(array[:0] for array in all_slots), total)
    size = rows_per_block(rows, slots, labels)
    blocks = -(-rows // size)

    def read(index):
        start = jnp.minimum(index * size, rows - size)
        parts = (lax.dynamic_slice_in_dim(a, start, size) for a in (segments, weights, nodes))
        block = cut_block(*parts)
        fresh = start + jnp.arange(size) >= index * size
        return start, block._replace(weights=jnp.where(fresh[:, None], block.weights, 0))

    def write(outputs, index, start, result):
        *per_slot, total = result
        *all_slots, totals = outputs
        all_slots = [
            lax.dynamic_update_slice_in_dim(whole, part, start, 0)
            for whole, part in zip(all_slots, per_slot)
        ]
        return (*all_slots, totals.at[index].set(total))

    def first_pass(index, state):
        outputs, certified = state
        start, block = read(index)
        if method == "log":
            return write(outputs, index, start, kernel.slow(block)), certified
        result, fine = kernel.fast(block)
        return write(outputs, index, start, result), certified.at[index].set(fine)

    def second_pass(place, outputs):
        index = suspects[place]
        start, block = read(index)
        # Where there is one block it is the same for all suspects, and XLA would take it out of
        # the loop, log space with it, and do that even if there is no suspect.
        block, _ = lax.optimization_barrier((block, place))
        *all_slots, totals = outputs
        current = (
            *(lax.dynamic_slice_in_dim(whole, start, size) for whole in all_slots),
            totals[index],
        )
        chosen = lax.cond(
            really_certified(block, edges), lambda: current, lambda: tuple(kernel.slow(block))
        )
        return write(outputs, index, start, chosen)

    *per_slot, total = jax.eval_shape(lambda: kernel.slow(read(jnp.int32(0))[1]))

    def by_xla():
        outputs = (
            *(jnp.zeros((rows, *part.shape[1:]), part.dtype) for part in per_slot),
            jnp.zeros((blocks, *total.shape), total.dtype),
        )
        state = (outputs, jnp.ones(blocks, bool))
        return lax.fori_loop(0, blocks, first_pass, state, unroll=False)

    native, watched = kernel.native, method == "auto"

    def by_native():
        assert native is not None
        found = call_native(native, edges, segments, weights, nodes, size, watched)
        return (*found[: len(per_slot)], found[-2]), found[-1]

    may = method in ("auto", "native")
    if may and native is not None and has_native(native, nodes, watched):
        outputs, certified = lax.platform_dependent(cpu=by_native, default=by_xla)
    else:
        outputs, certified = by_xla()
    if method == "auto":
        suspects = jnp.argsort(certified)  # those that are not, first
        outputs = lax.fori_loop(0, (~certified).sum(), second_pass, outputs)
    *all_slots, totals = outputs
    return (*all_slots, totals.sum(0))


def really_certified(block: Block, edges: Float[Array, "s s"]) -> Bool[Array, ""]:
    """The exact certificate.

    The fast kernels may suspect a chain that forbids transitions without cause: they take every
    legal label for reachable.
    """
    certificate = jax.vmap(lambda *row: scaled_forward_backward(row[0], edges, *row[1:])[1])
    return certificate(block.nodes, block.linked[:, 1:], block.valid).all()


def map_linear(
    kernel: Callable[..., tuple[Array, Array, Array]],
    segments: Int[Array, "r t"],
    weights: Float[Array, "r t"],
    nodes: Float[Array, "r t s"],
    values: Float[Array, "r t s"],
) -> tuple[Array, Array, Array]:
    """``kernel(block, values)`` on all rows, like `run_blocks`, for kernels linear in the values.

    Written as a map over padded blocks, which JAX can transpose; a loop that updates in place
    it cannot.
    """
    rows, slots, labels = nodes.shape
    size = rows_per_block(rows, slots, labels)
    blocks = -(-rows // size)
    missing = blocks * size - rows

    def split(array, fill):
        if missing:
            widths = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
            array = jnp.pad(array, widths, constant_values=fill)
        return array.reshape(blocks, size, *array.shape[1:])

    def run(rows_of_block):
        *parts, value = rows_of_block
        return kernel(cut_block(*parts), value)

    arrays = (split(segments, -1), *(split(array, 0) for array in (weights, nodes, values)))
    *per_slot, totals = lax.map(run, arrays)
    first, second = (part.reshape(-1, *part.shape[2:])[:rows] for part in per_slot)
    return first, second, totals.sum(0)


# --------------------------------------------------------------- the same, row by row, in logs


def _log_lattice(block: Block, edges: Array):
    return jax.vmap(log_forward_backward, (0, None, 0, 0))(
        block.nodes, edges, block.linked[:, 1:], block.valid
    )


def _weigh_edges(block: Block, values: Float[Array, "c m s s"]) -> Float[Array, "s s"]:
    return (block.weights[:, :-1, None, None] * values).sum((0, 1))


def forward(edges: Array) -> Kernel:
    """Increments of log Z; there is nothing to sum."""
    nothing = jnp.zeros(0, edges.dtype)

    def fast(block):
        increments, certified = _scaled.forward(block, edges)
        return (increments, nothing), certified

    def slow(block):
        run = jax.vmap(log_forward, (0, None, 0, 0))
        return run(block.nodes, edges, block.linked[:, 1:], block.valid)[1], nothing

    return Kernel(fast, slow, "forward")


def marginals(edges: Array) -> Kernel:
    """Increments of log Z, node marginals, and the weighted sum of edge marginals."""

    def slow(block):
        increments, nodes, pairs = _log_lattice(block, edges)
        return BlockMarginals(increments, nodes, _weigh_edges(block, pairs))

    return Kernel(lambda block: _scaled.marginals(block, edges), slow, "marginals")


def entropy(edges: Array) -> Kernel:
    """Shares of the entropy, its gradient by nodes, and the weighted sum of that by edges."""

    def slow(block):
        _, nodes, pairs = _log_lattice(block, edges)
        by_node, by_pair = jax.vmap(gradient_from_marginals)(nodes, pairs)
        shares = jnp.where(block.linked, 0, jax.vmap(label_entropies)(nodes))
        shares = shares.at[:, :-1].add(jax.vmap(step_entropies)(pairs))
        return BlockEntropy(shares, by_node, _weigh_edges(block, by_pair))

    return Kernel(lambda block: _scaled_entropy.entropy(block, edges), slow, "entropy")


def viterbi(edges: Array) -> Kernel:
    """The best label of every slot; there is nothing to sum, and nothing can underflow."""

    def run(block):
        return best_labels(block, edges), jnp.zeros(0, edges.dtype)

    return Kernel(lambda block: (run(block), jnp.array(True)), run)


def covariance(
    block: Block, edges: Array, node_values: Array, edge_values: Array, method: Method
) -> BlockCovariance:
    """Covariance with an additive functional; linear in its values."""

    def slow():
        _, nodes, pairs = _log_lattice(block, edges)
        by_node, by_pair = jax.vmap(covariance_from_marginals, (0, 0, 0, None))(
            nodes, pairs, node_values, edge_values
        )
        means = (nodes * node_values).sum(2)
        means = means.at[:, :-1].add((pairs * edge_values).sum((2, 3)))
        return BlockCovariance(means, by_node, _weigh_edges(block, by_pair))

    if method == "log":
        return slow()
    result, certified = _scaled_covariance.covariance(block, edges, node_values, edge_values)
    if method == "scaled":
        return result

    def look_again():
        return lax.cond(really_certified(block, edges), lambda: result, slow)

    return lax.cond(certified, lambda: result, look_again)
