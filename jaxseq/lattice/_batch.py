"""Run a kernel over a batch, block of rows by block of rows, rescuing the blocks that need it.

A block is small enough to stay in a core's cache, and bounds what the kernels hold at a time. It
is also the unit of rescue: a sequence whose scores are too spread out for scaled space sends its
own block to the log-space functions, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int

from jaxseq.lattice import _scaled
from jaxseq.lattice._chain import check_same_shapes
from jaxseq.lattice._decode import NO_LABEL
from jaxseq.lattice._engines import (
    METHODS,
    Method,
    check_method,
    log_forward,
    log_forward_backward,
    scaled_forward_backward,
)
from jaxseq.lattice._entropy import gradient_from_marginals, label_entropies, step_entropies
from jaxseq.lattice._layout import Batch
from jaxseq.lattice._marginals import HasScores, row_marginals
from jaxseq.lattice._propagate import covariance_from_marginals
from jaxseq.lattice._scaled import Block, BlockCovariance, BlockEntropy, BlockMarginals, best_labels
from jaxseq.native import call_native, has_native, is_worthwhile, why_not_native

F = TypeVar("F", bound=Callable[..., Any])

BatchMethod = Literal["auto", "native", "scaled", "log"]
"""Of functions on batches: the engines of single chains, and scaled space in C++ on a CPU."""

CACHE_ENTRIES = 2**18
"""Scores in a block on the CPU: 1 MiB in float32."""


def batch_function(kernel: str) -> Callable[[F], F]:
    """As `chain_function`, for batches; `kernel`: what the method ``"native"`` needs in C++."""

    def decorate(function: F) -> F:
        compiled = jax.jit(function, static_argnames="method")

        @wraps(function)
        def run(batch: Batch, *, method: BatchMethod = "auto") -> Any:
            check_batch_method(method, kernel, batch.nodes)
            return compiled(batch, method=method)

        return cast(F, run)

    return decorate


def check_batch_method(method: str, quantity: str, nodes: Float[Array, "r t s"]) -> None:
    """Refuse a method that does not exist, or not here."""
    check_method(method, (*METHODS, "native"))
    # It does not look for underflow. The very library that will run must be there, or `run_blocks`
    # would quietly do without.
    if method == "native" and (why := why_not_native(quantity, nodes, watched=False)):
        raise ValueError(
            f"method: expected {', '.join(METHODS)}, got 'native', which is not: {why}"
        )


def rows_per_block(rows: int, slots: int, labels: int) -> int:
    """How many rows to work on at a time: what fits a CPU's cache; all on an accelerator."""
    if jax.default_backend() != "cpu":
        return max(1, rows)  # an accelerator wants all the width that there is
    fitting = CACHE_ENTRIES // (slots * labels)
    return max(1, min(rows, max(32, min(128, fitting // 16 * 16))))


def _links(segments: Int[Array, "r t"]) -> tuple[Bool[Array, "r t-1"], Bool[Array, "r t"]]:
    """Whether slots t and t + 1 belong to one sequence, and which slots to any."""
    valid = segments >= 0
    return (segments[:, 1:] == segments[:, :-1]) & valid[:, 1:], valid


def cut_block(
    segments: Int[Array, "c t"], weights: Float[Array, "c t"], nodes: Float[Array, "c t s"]
) -> Block:
    """Some rows of a batch as a block."""
    linked, valid = _links(segments)
    return Block(nodes, jnp.pad(linked, ((0, 0), (1, 0))), valid, weights)


class Kernel(NamedTuple):
    """A quantity of a block, as per-slot arrays [c, t, …] followed by one sum over the block."""

    fast: Callable[[Block], tuple[tuple[Array, ...], Bool[Array, ""]]]  # and whether certified
    slow: Callable[[Block], tuple[Array, ...]]  # always right
    native: str | None = None  # a twin of `fast` in C++, for all blocks at once, on CPUs


Nodes = Float[Array, "r t s"]
Edges = Float[Array, "s s"]
Segments = Int[Array, "r t"]
Weights = Float[Array, "r t"]


def run_blocks(
    kernel: Kernel, method: BatchMethod, edges: Edges, segments: Segments, weights: Weights,
    nodes: Nodes,
) -> tuple[Array, ...]:  # fmt: skip
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
            lax.dynamic_update_slice_in_dim(array, part, start, 0)
            for array, part in zip(all_slots, per_slot)
        ]
        return (*all_slots, totals.at[index].set(total))

    def first_pass(index, state):
        outputs, certified = state
        start, block = read(index)
        if method == "log":  # right for any range: no certificate, and no second pass
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
            *(lax.dynamic_slice_in_dim(array, start, size) for array in all_slots),
            totals[index],
        )
        # The fast certificate is stricter than need be. The exact one costs a pass of its own, but
        # less than log space.
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
        # Log space and Viterbi have nothing to certify: what nobody looks at counts as fine.
        state = (outputs, jnp.ones(blocks, bool))
        return lax.fori_loop(0, blocks, first_pass, state, unroll=False)

    native, watched = kernel.native, method == "auto"

    def by_native():
        assert native is not None
        *by_slot, totals, certified = call_native(
            native, edges, segments, weights, nodes, size, watched
        )
        # The forward kernel returns nothing by node, which XLA's twin does not have either.
        return (*by_slot[: len(per_slot)], totals), certified

    wanted = method == "native" or (method == "auto" and is_worthwhile(nodes))
    if wanted and native is not None and has_native(native, nodes, watched):
        # Decided when the program is lowered: it may be exported for other platforms as well.
        outputs, certified = lax.platform_dependent(cpu=by_native, default=by_xla)
    else:
        outputs, certified = by_xla()
    if method == "auto":
        # The second pass runs over the blocks that underflowed and no others: as a rule there are
        # none, and the loop does not run at all. A `cond` for each block would ask every block.
        suspects = jnp.argsort(certified)  # those that are not certified come first
        outputs = lax.fori_loop(0, (~certified).sum(), second_pass, outputs)
    *all_slots, totals = outputs
    return (*all_slots, totals.sum(0))


def really_certified(block: Block, edges: Float[Array, "s s"]) -> Bool[Array, ""]:
    """The exact certificate."""
    # The fast kernels may suspect a chain that forbids transitions without cause: they take every
    # legal label for reachable.
    certificate = jax.vmap(lambda *row: scaled_forward_backward(row[0], edges, *row[1:])[1])
    return certificate(block.nodes, block.linked[:, 1:], block.valid).all()


def map_linear(
    kernel: Callable[..., tuple[Array, Array, Array]], segments: Segments, weights: Weights,
    nodes: Nodes, values: Nodes,
) -> tuple[Array, Array, Array]:  # fmt: skip
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


def _log_lattice(block: Block, edges: Array):
    return jax.vmap(log_forward_backward, (0, None, 0, 0))(
        block.nodes, edges, block.linked[:, 1:], block.valid
    )


def _weigh_edges(weights: Weights, values: Float[Array, "r m s s"]) -> Edges:
    return (weights[:, :-1, None, None] * values).sum((0, 1))


def _covariance_from_rows(
    nodes: Nodes, pairs: Array, weights: Weights, node_values: Nodes, edge_values: Edges
) -> BlockCovariance:
    by_node, by_pair = jax.vmap(covariance_from_marginals, (0, 0, 0, None))(
        nodes, pairs, node_values, edge_values
    )
    means = (nodes * node_values).sum(2)
    means = means.at[:, :-1].add((pairs * edge_values).sum((2, 3)))
    return BlockCovariance(means, by_node, _weigh_edges(weights, by_pair))


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


def blocks_marginals(edges: Array) -> Kernel:
    """Increments of log Z, node marginals, and the weighted sum of edge marginals."""

    def slow(block):
        increments, nodes, pairs = _log_lattice(block, edges)
        return BlockMarginals(increments, nodes, _weigh_edges(block.weights, pairs))

    return Kernel(lambda block: _scaled.marginals(block, edges), slow, "marginals")


def blocks_entropy(edges: Array) -> Kernel:
    """Shares of the entropy, its gradient by nodes, and the weighted sum of that by edges."""

    def slow(block):
        _, nodes, pairs = _log_lattice(block, edges)
        by_node, by_pair = jax.vmap(gradient_from_marginals)(nodes, pairs)
        shares = jnp.where(block.linked, 0, jax.vmap(label_entropies)(nodes))
        shares = shares.at[:, :-1].add(jax.vmap(step_entropies)(pairs))
        return BlockEntropy(shares, by_node, _weigh_edges(block.weights, by_pair))

    return Kernel(lambda block: _scaled.entropy(block, edges), slow, "entropy")


def viterbi(edges: Array) -> Kernel:
    """The best label of every slot; there is nothing to sum, and nothing can underflow."""

    def run(block):
        return best_labels(block, edges), jnp.zeros(0, edges.dtype)

    return Kernel(lambda block: (run(block), jnp.array(True)), run)


def blocks_covariance(
    block: Block, edges: Array, node_values: Array, edge_values: Array, method: Method
) -> BlockCovariance:
    """Covariance with an additive functional; linear in its values."""

    def slow():
        _, nodes, pairs = _log_lattice(block, edges)
        return _covariance_from_rows(nodes, pairs, block.weights, node_values, edge_values)

    if method == "log":
        return slow()
    result, certified = _scaled.covariance(block, edges, node_values, edge_values)
    if method == "scaled":
        return result

    def look_again():
        return lax.cond(really_certified(block, edges), lambda: result, slow)

    return lax.cond(certified, lambda: result, look_again)


# -------------------------------------------------------------------------------------------------
# Batch quantities as differentiable functions of arrays, and the rules of their derivatives.
#
# Sums over sequences have gradients of the batch's own size: node gradients per slot, edge
# gradients already summed. So the rules below are reverse-mode rules for the per-sequence values,
# and forward-mode rules for those gradients, which together give Hessian–vector products
# (``jax.jvp`` of ``jax.grad``) at the cost of the covariance kernel.


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
    # One sequence per row, as in padded batches: then sums over rows are far quicker.
    of_rows = (~valid | (segments == jnp.arange(num)[:, None])).all()
    return lax.cond(of_rows, by_row, by_bin)


def _ones(nodes: Nodes) -> Weights:
    return jnp.ones(nodes.shape[:2], nodes.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def flat_marginals(
    nodes: Nodes, edges: Edges, segments: Segments, weights: Weights,
    num: int, method: BatchMethod,
) -> tuple[Float[Array, " num"], Nodes, Edges]:  # fmt: skip
    """log Z of each sequence, node marginals, and the weighted sum of all edge marginals."""
    increments, by_node, by_edge = run_blocks(
        blocks_marginals(edges), method, edges, segments, weights, nodes
    )
    return per_sequence(increments, segments, num), by_node, by_edge


def _marginals_jvp(num, method, primals, tangents):
    nodes, edges, segments, _weights = primals
    moves = [
        jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent
        for primal, tangent in zip((nodes, edges), tangents)
    ]
    log_z, by_node, by_edge = flat_marginals(*primals, num, method)
    log_z_change, node_change, edge_change = flat_covariance(
        *primals, *moves, num, "scaled" if method == "native" else method
    )
    if not isinstance(tangents[3], SymbolicZero):  # edge marginals are linear in the weights
        edge_change += flat_marginals(nodes, edges, segments, tangents[3], num, method)[2]
    # Zero marginals: a sequence with no legal path does not move.
    return (log_z, by_node, by_edge), (log_z_change, node_change, edge_change)


flat_marginals.defjvp(_marginals_jvp, symbolic_zeros=True)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def flat_log_partition(
    nodes: Nodes, edges: Edges, segments: Segments, num: int, method: BatchMethod
) -> Float[Array, " num"]:
    """log Z of each sequence."""
    increments, _ = run_blocks(forward(edges), method, edges, segments, _ones(nodes), nodes)
    return per_sequence(increments, segments, num)


def _define_vjp(values: Any, gradient: Callable[..., tuple[Array, Array, Array]]) -> None:
    """The reverse-mode rule of a function with one value per sequence.

    `gradient`: the values, and the gradient of their sum by nodes and, weighted, by edges.
    """

    def forward(nodes, edges, segments, num, method):
        # The gradient comes with the values at little extra cost; kept, it makes the way back free.
        result, by_node, by_edge = gradient(nodes, edges, segments, _ones(nodes), num, method)
        return result, (nodes, edges, segments, by_node, by_edge)

    def backward(num, method, residuals, cotangent):
        nodes, edges, segments, by_node, by_edge = residuals
        if cotangent.shape[0] == 0:
            return by_node, by_edge, None
        # The gradient of a weighted sum. By nodes, which have one sequence each, it is scaled; by
        # edges, which all sequences share, only equal weights, the usual case, scale it.
        weights = jnp.where(segments >= 0, cotangent[segments], 0)
        by_edge = lax.cond(
            (cotangent == cotangent[0]).all(),
            lambda: cotangent[0] * by_edge,
            lambda: gradient(nodes, edges, segments, weights, num, method)[2],
        )
        return by_node * weights[..., None], by_edge, None

    values.defvjp(forward, backward)


_define_vjp(flat_log_partition, flat_marginals)


@partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def flat_entropy_gradient(
    nodes: Nodes, edges: Edges, segments: Segments, weights: Weights,
    num: int, method: BatchMethod,
) -> tuple[Float[Array, " num"], Nodes, Edges]:  # fmt: skip
    """Entropy of each sequence, ∂/∂nodes of its own, ∂/∂edges of the weighted sum."""
    shares, by_node, by_edge = run_blocks(
        blocks_entropy(edges), method, edges, segments, weights, nodes
    )
    return per_sequence(shares, segments, num), by_node, by_edge


@flat_entropy_gradient.defjvp
def _(num, method, primals, tangents):
    nodes, edges, segments, weights = primals

    def row_by_row(nodes, edges, weights):
        lattice = _row_marginals(nodes, edges, segments)
        by_node, by_pair = jax.vmap(gradient_from_marginals)(*lattice)
        return by_node, _weigh_edges(weights, by_pair)

    values = flat_entropy_gradient(*primals, num, method)
    moves = (tangents[0], tangents[1], tangents[3])
    change = jax.jvp(row_by_row, (nodes, edges, weights), moves)[1]
    # dH = ⟨∂H/∂nodes, dnodes⟩ + ⟨∂H/∂edges, dedges⟩ for each sequence.
    _, by_pair = jax.vmap(gradient_from_marginals)(*_row_marginals(nodes, edges, segments))
    slots = (values[1] * tangents[0]).sum(2)
    slots = slots.at[:, :-1].add((by_pair * tangents[1]).sum((2, 3)))
    return values, (per_sequence(slots, segments, num), *change)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def flat_entropy(
    nodes: Nodes, edges: Edges, segments: Segments, num: int, method: BatchMethod
) -> Float[Array, " num"]:
    """Entropy of each sequence."""
    return flat_entropy_gradient(nodes, edges, segments, _ones(nodes), num, method)[0]


_define_vjp(flat_entropy, flat_entropy_gradient)


@partial(jax.custom_jvp, nondiff_argnums=(6, 7))
def flat_covariance(
    nodes: Nodes, edges: Edges, segments: Segments, weights: Weights,
    node_values: Nodes, edge_values: Edges, num: int, method: Method,
) -> tuple[Float[Array, " num"], Nodes, Edges]:  # fmt: skip
    """E[g] of each sequence, Cov[node indicators, g], weighted sum of Cov[edge indicators, g]."""

    def kernel(block, values):
        return blocks_covariance(block, edges, values, edge_values, method)

    means, by_node, by_edge = map_linear(kernel, segments, weights, nodes, node_values)
    return per_sequence(means, segments, num), by_node, by_edge


@flat_covariance.defjvp
def _(num, method, primals, tangents):
    nodes, edges, segments, weights, node_values, edge_values = primals

    # Third derivatives of log Z: rarely wanted, so by the single-chain functions, row by row.
    def row_by_row(nodes, edges, weights, node_values, edge_values):
        by_slot, by_pair = _row_marginals(nodes, edges, segments)
        values = (weights, node_values, edge_values)
        means, node_part, edge_part = _covariance_from_rows(by_slot, by_pair, *values)
        return per_sequence(means, segments, num), node_part, edge_part

    points = (nodes, edges, weights, node_values, edge_values)
    moves = (*tangents[:2], *tangents[3:])
    return flat_covariance(*primals, num, method), jax.jvp(row_by_row, points, moves)[1]


def _row_marginals(nodes: Nodes, edges: Edges, segments: Segments):
    linked, valid = _links(segments)
    return jax.vmap(row_marginals, (0, None, 0, 0, None))(nodes, edges, linked, valid, "auto")


# -------------------------------------------------------------------------------------------------
# The public functions on batches.


def _plain_parts(batch: Batch) -> tuple[Nodes, Edges, Segments, Weights]:
    """What the functions above take, for plain sums over sequences: every slot weighs 1."""
    return batch.nodes, batch.edges, batch.segments, _ones(batch.nodes)


@batch_function("forward")
def batch_log_partition(
    batch: Batch, *, method: BatchMethod = "auto"
) -> Float[Array, " sequences"]:
    """log Z of every sequence.

    Differentiable in reverse mode; the gradient of a sum is `batch_marginals`, and ``jax.jvp`` of
    ``jax.grad`` gives Hessian–vector products. (For forward mode on the values themselves,
    `jax.vmap` `jaxseq.log_partition`.)

    Args:
        batch: a `PaddedBatch` or `PackedBatch`.
        method: as in `jaxseq.log_partition`; with ``"auto"`` only the few rows around a sequence
            that scaled space cannot hold are computed in log space. On a CPU with a C++
            compiler ``"auto"`` runs scaled space in C++, two to three times as fast, and
            ``"native"`` does so without looking for underflow; ``"scaled"`` is by XLA.

    Returns:
        [number of sequences]; −inf where no path is legal, 0 for an empty sequence.

    Cost: O(N s²) time for N slots, O(N s) memory, gradient included.

    Example:
        >>> import jax, jax.numpy as jnp, jaxseq
        >>> nodes, edges = jnp.zeros((2, 3, 2)), jnp.zeros((2, 2))
        >>> total = lambda nodes: jaxseq.batch_log_partition(jaxseq.PaddedBatch(nodes, edges)).sum()
        >>> jax.grad(total)(nodes)[0, 0].tolist()
        [0.5, 0.5]
    """
    segments = batch.segments
    return flat_log_partition(batch.nodes, batch.edges, segments, batch.num_sequences, method)


class BatchMarginals(eqx.Module):
    """Marginals of a batch.

    ``nodes`` [rows, slots, s]; ``edges`` [s, s], expected transition counts, summed over all
    positions of all sequences; ``log_partition`` [number of sequences], which comes free.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4)))
        >>> marginals = jaxseq.batch_marginals(batch)
        >>> marginals.nodes.shape, marginals.edges.shape, marginals.log_partition.shape
        ((2, 3, 4), (4, 4), (2,))
    """

    nodes: Float[Array, "r t s"]
    edges: Float[Array, "s s"]
    log_partition: Float[Array, " sequences"]


@batch_function("marginals")
def batch_marginals(batch: Batch, *, method: BatchMethod = "auto") -> BatchMarginals:
    """Node marginals of every slot and the expected transition counts of the whole batch.

    Differentiable in forward and reverse mode.

    Args:
        batch: a `PaddedBatch` or `PackedBatch`.
        method: as in `batch_log_partition`.

    Cost: O(N s²) time for N slots, O(N s) memory: [rows, slots, s, s] is never formed.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 2)), jnp.zeros((2, 2)))
        >>> jaxseq.batch_marginals(batch).edges.tolist()  # 4 transitions, 4 kinds
        [[1.0, 1.0], [1.0, 1.0]]
    """
    log_z, nodes, edges = flat_marginals(*_plain_parts(batch), batch.num_sequences, method)
    return BatchMarginals(nodes, edges, log_z)


@batch_function("entropy")
def batch_entropy(batch: Batch, *, method: BatchMethod = "auto") -> Float[Array, " sequences"]:
    """Entropy of every sequence.

    Differentiable in reverse mode by Mann & McCallum's closed form (`batch_entropy_gradient`).
    Second derivatives go through the single-chain functions and need O(N s²) memory.

    Args:
        batch: a `PaddedBatch` or `PackedBatch`.
        method: as in `batch_log_partition`.

    Cost: O(N s²) time for N slots, O(N s) memory, gradient included.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((1, 3, 2)), jnp.zeros((2, 2)))
        >>> bool(jnp.allclose(jaxseq.batch_entropy(batch), 3 * jnp.log(2)))
        True
    """
    segments = batch.segments
    return flat_entropy(batch.nodes, batch.edges, segments, batch.num_sequences, method)


class BatchEntropyGradient(eqx.Module):
    """The gradient of a sum of entropies.

    ``nodes`` [rows, slots, s] and ``edges`` [s, s]: the gradient; ``entropy`` [number of
    sequences], which comes free.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4)))
        >>> gradient = jaxseq.batch_entropy_gradient(batch)
        >>> gradient.nodes.shape, gradient.edges.shape, gradient.entropy.shape
        ((2, 3, 4), (4, 4), (2,))
    """

    nodes: Float[Array, "r t s"]
    edges: Float[Array, "s s"]
    entropy: Float[Array, " sequences"]


@batch_function("entropy")
def batch_entropy_gradient(batch: Batch, *, method: BatchMethod = "auto") -> BatchEntropyGradient:
    """Gradient of the sum of all entropies, by Mann & McCallum's lattices in scaled space.

    Args:
        batch: a `PaddedBatch` or `PackedBatch`.
        method: as in `batch_log_partition`.

    Cost: O(N s²) time for N slots, O(N s) memory.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> nodes = jnp.log(jnp.array([[[0.2, 0.8]]]))
        >>> batch = jaxseq.PaddedBatch(nodes, jnp.zeros((2, 2)))
        >>> [round(x, 3) for x in jaxseq.batch_entropy_gradient(batch).nodes[0, 0].tolist()]
        [0.222, -0.222]

    References:
        Mann & McCallum 2007. Certified by ``jaxseq verify`` against `mann_entropy_gradient`.
    """
    values, nodes, edges = flat_entropy_gradient(*_plain_parts(batch), batch.num_sequences, method)
    return BatchEntropyGradient(nodes, edges, values)


class BatchCovariance(eqx.Module):
    """The covariance of the features with a functional of the labels.

    ``nodes`` [rows, slots, s] and ``edges`` [s, s]: the covariances; ``mean`` [number of
    sequences] of the functional.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4)))
        >>> product = jaxseq.batch_covariance_product(batch, batch)
        >>> product.nodes.shape, product.edges.shape, product.mean.shape
        ((2, 3, 4), (4, 4), (2,))
    """

    nodes: Float[Array, "r t s"]
    edges: Float[Array, "s s"]
    mean: Float[Array, " sequences"]


def batch_covariance_product(
    batch: Batch, tangent: HasScores, *, method: Method = "auto"
) -> BatchCovariance:
    """Hessian of Σ log Z times a tangent: the covariance of features with ⟨tangent, features⟩.

    Args:
        batch: a `PaddedBatch` or `PackedBatch`.
        tangent: ``.nodes`` [rows, slots, s] and ``.edges`` [s, s], finite, but for what the batch
            forbids, where it does not matter.
        method: as in `batch_log_partition`.

    Cost: O(N s²) time for N slots, O(N s) memory: about twice `batch_marginals`.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((1, 1, 2)), jnp.zeros((2, 2)))
        >>> tangent = jaxseq.PaddedBatch(jnp.array([[[1.0, 0.0]]]), jnp.zeros((2, 2)))
        >>> jaxseq.batch_covariance_product(batch, tangent).nodes.tolist()
        [[[0.25, -0.25]]]
    """
    check_method(method)
    nodes, edges = check_same_shapes("tangent", tangent, batch, "batch")
    return _covariance_product(batch, nodes, edges, method)


@partial(jax.jit, static_argnums=3)
def _covariance_product(batch: Batch, nodes: Array, edges: Array, method: Method):
    nodes = jnp.where(batch.nodes != -jnp.inf, nodes, 0)
    edges = jnp.where(batch.edges != -jnp.inf, edges, 0)
    mean, by_node, by_edge = flat_covariance(
        *_plain_parts(batch), nodes, edges, batch.num_sequences, method
    )
    return BatchCovariance(by_node, by_edge, mean)


def batch_viterbi(batch: Batch) -> tuple[Int[Array, "r t"], Float[Array, " sequences"]]:
    """Best labelling of every sequence, and its score.

    Args:
        batch: a `PaddedBatch` or `PackedBatch`.

    Returns:
        (labels [rows, slots], −1 on padding and where no path is legal; scores [number of
        sequences], −inf there). Scores are differentiable.

    Cost: O(N s²) time for N slots, O(N s) memory.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.array([[[1.0, 2.0], [3.0, 2.5]]]), jnp.eye(2))
        >>> labels, scores = jaxseq.batch_viterbi(batch)
        >>> labels.tolist(), scores.tolist()
        ([[1, 1]], [5.5])
    """
    return _viterbi(batch)


@jax.jit
def _viterbi(batch: Batch) -> tuple[Array, Array]:
    nodes, edges, segments, num = batch.nodes, batch.edges, batch.segments, batch.num_sequences
    linked, valid = _links(segments)
    frozen, uniform = lax.stop_gradient(nodes), jnp.ones(segments.shape, nodes.dtype)
    kernel = viterbi(lax.stop_gradient(edges))
    labels, _ = run_blocks(kernel, "scaled", edges, segments, uniform, frozen)

    node_scores = jnp.take_along_axis(nodes, labels[..., None], 2)[..., 0]
    edge_scores = edges[labels[:, :-1], labels[:, 1:]]
    illegal = jnp.isneginf(node_scores) & valid
    illegal = illegal.at[:, :-1].max(jnp.isneginf(edge_scores) & linked)
    legal = per_sequence(illegal.astype(nodes.dtype), segments, num) == 0
    in_legal = jnp.where(valid, legal[segments], False) if num else valid

    shares = jnp.where(in_legal, node_scores, 0)
    shares = shares.at[:, :-1].add(jnp.where(linked & in_legal[:, :-1], edge_scores, 0))
    scores = jnp.where(legal, per_sequence(shares, segments, num), -jnp.inf)
    return jnp.where(in_legal, labels, NO_LABEL), scores
