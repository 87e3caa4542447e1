"""The public functions on batches."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxseq.batch import _blocks, _core
from jaxseq.batch._blocks import BatchMethod, check_batch_method
from jaxseq.batch._layout import Batch
from jaxseq.chain._chain import as_scores
from jaxseq.chain._covariance import HasScores
from jaxseq.chain._decode import NO_LABEL
from jaxseq.chain._engines import Method, check_method


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
    check_batch_method(method, "forward", batch.nodes)
    return _log_partition(batch, method)


@partial(jax.jit, static_argnums=1)
def _log_partition(batch: Batch, method: BatchMethod) -> Array:
    segments = batch.segments
    return _core.log_partition(batch.nodes, batch.edges, segments, batch.num_sequences, method)


class BatchMarginals(eqx.Module):
    """Marginals of a batch.

    ``nodes`` [rows, slots, s]; ``edges`` [s, s], expected transition counts, summed over all
    positions of all sequences; ``log_partition`` [number of sequences], which comes free.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4)))
        >>> found = jaxseq.batch_marginals(batch)
        >>> found.nodes.shape, found.edges.shape, found.log_partition.shape
        ((2, 3, 4), (4, 4), (2,))
    """

    nodes: Float[Array, "r t s"]
    edges: Float[Array, "s s"]
    log_partition: Float[Array, " sequences"]


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
    check_batch_method(method, "marginals", batch.nodes)
    return _marginals(batch, method)


@partial(jax.jit, static_argnums=1)
def _marginals(batch: Batch, method: BatchMethod) -> BatchMarginals:
    weights = jnp.ones(batch.nodes.shape[:2], batch.nodes.dtype)
    log_z, nodes, edges = _core.marginals(
        batch.nodes, batch.edges, batch.segments, weights, batch.num_sequences, method
    )
    return BatchMarginals(nodes, edges, log_z)


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
    check_batch_method(method, "entropy", batch.nodes)
    return _entropy(batch, method)


@partial(jax.jit, static_argnums=1)
def _entropy(batch: Batch, method: BatchMethod) -> Array:
    segments = batch.segments
    return _core.entropy(batch.nodes, batch.edges, segments, batch.num_sequences, method)


class BatchEntropyGradient(eqx.Module):
    """The gradient of a sum of entropies.

    ``nodes`` [rows, slots, s] and ``edges`` [s, s]: the gradient; ``entropy`` [number of
    sequences], which comes free.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4)))
        >>> found = jaxseq.batch_entropy_gradient(batch)
        >>> found.nodes.shape, found.edges.shape, found.entropy.shape
        ((2, 3, 4), (4, 4), (2,))
    """

    nodes: Float[Array, "r t s"]
    edges: Float[Array, "s s"]
    entropy: Float[Array, " sequences"]


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
    check_batch_method(method, "entropy", batch.nodes)
    return _entropy_gradient(batch, method)


@partial(jax.jit, static_argnums=1)
def _entropy_gradient(batch: Batch, method: BatchMethod) -> BatchEntropyGradient:
    weights = jnp.ones(batch.nodes.shape[:2], batch.nodes.dtype)
    values, nodes, edges = _core.entropy_gradient(
        batch.nodes, batch.edges, batch.segments, weights, batch.num_sequences, method
    )
    return BatchEntropyGradient(nodes, edges, values)


class BatchCovariance(eqx.Module):
    """The covariance of the features with a functional of the labels.

    ``nodes`` [rows, slots, s] and ``edges`` [s, s]: the covariances; ``mean`` [number of
    sequences] of the functional.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4)))
        >>> found = jaxseq.batch_covariance_product(batch, batch)
        >>> found.nodes.shape, found.edges.shape, found.mean.shape
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
    for field in ("nodes", "edges"):
        expected = getattr(batch, field).shape
        actual = as_scores(f"tangent.{field}", getattr(tangent, field)).shape
        if actual != expected:
            raise ValueError(
                f"tangent.{field}: expected shape {list(expected)} like the batch's, "
                f"got {list(actual)}"
            )
    return _covariance_product(batch, tangent.nodes, tangent.edges, method)


@partial(jax.jit, static_argnums=3)
def _covariance_product(batch: Batch, nodes: Array, edges: Array, method: Method):
    weights = jnp.ones(batch.nodes.shape[:2], batch.nodes.dtype)
    nodes = jnp.where(batch.nodes != -jnp.inf, nodes, 0)
    edges = jnp.where(batch.edges != -jnp.inf, edges, 0)
    mean, by_node, by_edge = _core.covariance(
        batch.nodes, batch.edges, batch.segments, weights, nodes, edges, batch.num_sequences, method
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
    valid = segments >= 0
    linked = (segments[:, 1:] == segments[:, :-1]) & valid[:, 1:]
    frozen, uniform = lax.stop_gradient(nodes), jnp.ones(segments.shape, nodes.dtype)
    kernel = _blocks.viterbi(lax.stop_gradient(edges))
    labels, _ = _blocks.run_blocks(kernel, "scaled", edges, segments, uniform, frozen)

    node_scores = jnp.take_along_axis(nodes, labels[..., None], 2)[..., 0]
    edge_scores = edges[labels[:, :-1], labels[:, 1:]]
    illegal = jnp.isneginf(node_scores) & valid
    illegal = illegal.at[:, :-1].max(jnp.isneginf(edge_scores) & linked)
    legal = _core.per_sequence(illegal.astype(nodes.dtype), segments, num) == 0
    in_legal = jnp.where(valid, legal[segments], False) if num else valid

    shares = jnp.where(in_legal, node_scores, 0)
    shares = shares.at[:, :-1].add(jnp.where(linked & in_legal[:, :-1], edge_scores, 0))
    scores = jnp.where(legal, _core.per_sequence(shares, segments, num), -jnp.inf)
    return jnp.where(in_legal, labels, NO_LABEL), scores
