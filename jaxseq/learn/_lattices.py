r"""From scores to the gradient by scores: the lattice part of the objectives on a shard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.batch import _core as lattices
from jaxseq.chain._engines import log_forward_backward
from jaxseq.learn._corpus import Shard
from jaxseq.learn._entropy_derivations import BY_ROW, EntropyGradient
from jaxseq.models import _linear
from jaxseq.models._crf import sum_edge_weights


class ScoreGradient(NamedTuple):
    """Loss of a shard and its gradient by scores; nodes [slots, padded labels]."""

    loss: Float[Array, ""]
    nodes: Float[Array, "slots p"]
    transitions: Float[Array, "s s"]
    start: Float[Array, " s"]
    stop: Float[Array, " s"]
    edge_weights: Float[Array, "b s s"] | None


def _linked(shard: Shard) -> Array:
    """Whether a slot continues the sentence of the slot before it; False in column 0."""
    return (shard.segments >= 0) & ~shard.first


def _gold_score(
    nodes: Array, pair_scores: Array, gold: Array, valid: Array, linked: Array
) -> Array:
    """Score of the known path, slot by slot [r, w]; pair scores [s, s] or [r, w, s, s], with that
    of the pair (t − 1, t) at t."""
    label = jnp.maximum(gold, 0)
    before = jnp.roll(label, 1, 1)
    score = jnp.take_along_axis(nodes, label[..., None], 2)[..., 0]
    if pair_scores.ndim == 2:
        pairs = pair_scores[before, label]
    else:
        row, slot = (jnp.arange(n) for n in label.shape)
        pairs = pair_scores[row[:, None], slot, before, label]
    return jnp.where(valid, score, 0) + jnp.where(linked, pairs, 0)


def _gold_pairs(shard: Shard, labels: int) -> Array:
    """Weighted counts [s, s] of the known transitions."""
    label = jnp.maximum(shard.gold, 0)
    amount = jnp.where(_linked(shard), shard.weights, 0)
    flat = jnp.roll(label, 1, 1) * labels + label
    return jnp.zeros(labels * labels, amount.dtype).at[flat].add(amount).reshape(labels, labels)


@jax.jit
def score_gradient(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
) -> ScoreGradient:
    """Negative log-likelihood and its gradient by scores."""
    if pair_weights is not None:
        return _row_by_row(_likelihood_of_row, nodes, edges, pair_weights, shard)
    s = edges.shape[0]
    num, segments, weights = shard.num_sequences, shard.segments, shard.weights
    log_z, expected, pairs = lattices.marginals(nodes, edges, segments, weights, num, "auto")
    if shard.allowed is None:
        known = jax.nn.one_hot(shard.gold, s, dtype=nodes.dtype)  # zeros for −1
        by_slot = _gold_score(nodes, edges, shard.gold, segments >= 0, _linked(shard))
        score = lattices.per_sequence(by_slot, segments, num)
        known_pairs = _gold_pairs(shard, s).astype(edges.dtype)
    else:
        narrowed = jnp.where(shard.allowed, nodes, -jnp.inf)
        score, known, known_pairs = lattices.marginals(
            narrowed, edges, segments, weights, num, "auto"
        )
    by_sequence = sequence_weights(shard)
    loss = (by_sequence * (log_z - score)).sum()
    by_node = weights[..., None] * (expected - known)
    return _by_scores(loss, by_node, pairs - known_pairs, shard, None)


def sequence_weights(shard: Shard) -> Array:
    """How much each sentence of a shard counts."""
    starts = jnp.where(shard.first, shard.weights, 0)
    return lattices.per_sequence(starts, shard.segments, shard.num_sequences)


def _by_scores(loss, by_node, by_pair, shard: Shard, by_edge_weight) -> ScoreGradient:
    s = by_node.shape[-1]
    flat = by_node.reshape(-1, s)
    start, stop = (
        flat.at[ends].get(mode="fill", fill_value=0).sum(0) for ends in (shard.starts, shard.stops)
    )
    flat = jnp.pad(flat, ((0, 0), (0, _linear.padded_labels(s) - s)))
    return ScoreGradient(loss, flat, by_pair, start, stop, by_edge_weight)


@partial(jax.jit, static_argnames="derivation")
def entropy_gradient(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    entropy_weight: Float[Array, ""],
    derivation: EntropyGradient = "mann",
) -> ScoreGradient:
    """γ times the weighted sum of entropies, and its gradient by scores.

    Args:
        derivation: of the gradient: all give the same, at different costs (see there).
    """
    weights = shard.weights.astype(nodes.dtype) * entropy_weight
    shard = eqx.tree_at(lambda shard: shard.weights, shard, weights)

    def entropy_of_row(row: _Row) -> tuple[Array, Array, Array]:
        return BY_ROW[derivation](row.nodes, row.pairs[1:], row.linked[1:], row.valid)

    if pair_weights is not None:
        return _row_by_row(entropy_of_row, nodes, edges, pair_weights, shard)
    if derivation != "mann":
        return _rows_at_once(entropy_of_row, nodes, edges, shard)
    num, segments = shard.num_sequences, shard.segments
    entropies, by_node, by_pair = lattices.entropy_gradient(
        nodes, edges, segments, weights, num, "auto"
    )
    loss = (sequence_weights(shard) * entropies).sum()
    return _by_scores(loss, weights[..., None] * by_node, by_pair, shard, None)


ROWS_AT_ONCE = 32
"""Rows that are worked on together where a gradient is not by whole batches: enough to fill the
processor's vectors, few enough that one long sentence does not hold up many short ones."""


def _rows_at_once(
    quantity: Callable[[_Row], tuple[Array, Array, Array]], nodes: Array, edges: Array, shard: Shard
) -> ScoreGradient:
    """A quantity and its gradient, some rows at a time."""

    def one_row(arrays):
        nodes, weights, gold, valid, linked = arrays
        pairs = jnp.broadcast_to(edges, (len(nodes), *edges.shape))
        value, by_node, by_pair = quantity(_Row(nodes, pairs, gold, None, valid, linked))
        by_pair = (weights[1:, None, None] * by_pair).sum(0)
        return (weights * value).sum(), weights[:, None] * by_node, by_pair

    rows = (nodes, shard.weights, shard.gold, shard.segments >= 0, _linked(shard))
    values, by_node, by_pair = lax.map(one_row, rows, batch_size=min(ROWS_AT_ONCE, len(nodes)))
    return _by_scores(values.sum(), by_node, by_pair.sum(0), shard, None)


# ------------------------------------------------- transitions that depend on the tokens


class _Row(NamedTuple):
    """One row of a shard; pairs [w, s, s] are the scores of the pair (t − 1, t) at t."""

    nodes: Float[Array, "w s"]
    pairs: Float[Array, "w s s"]
    gold: Int[Array, " w"]
    allowed: Bool[Array, "w s"] | None
    valid: Bool[Array, " w"]
    linked: Bool[Array, " w"]

    def lattice(self, nodes: Array):
        return log_forward_backward(nodes, self.pairs[1:], self.linked[1:], self.valid)


def _likelihood_of_row(row: _Row) -> tuple[Array, Array, Array]:
    """What each slot adds to the loss; gradients by nodes [w, s] and pairs [w − 1, s, s]."""
    increments, expected, pairs = row.lattice(row.nodes)
    if row.allowed is None:
        arrays = (row.nodes, row.pairs, row.gold, row.valid, row.linked)
        score = _gold_score(*(array[None] for array in arrays))[0]
        known = jax.nn.one_hot(row.gold, row.nodes.shape[1], dtype=row.nodes.dtype)
        known_pairs = known[:-1, :, None] * known[1:, None, :]
        known_pairs = jnp.where(row.linked[1:, None, None], known_pairs, 0)
    else:
        score, known, known_pairs = row.lattice(jnp.where(row.allowed, row.nodes, -jnp.inf))
    return jnp.where(row.valid, increments - score, 0), expected - known, pairs - known_pairs


def _row_by_row(
    quantity: Callable[[_Row], tuple[Array, Array, Array]],
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"],
    shard: Shard,
) -> ScoreGradient:
    """A quantity and its gradient, where the [w, s, s] scores of a row are formed and dropped."""
    assert shard.edge_ids is not None
    valid, linked = shard.segments >= 0, _linked(shard)
    ids = shard.edge_ids.reshape(*shard.segments.shape, -1)
    absent = pair_weights.shape[0]  # out of bounds, so that a scatter drops it

    def one_row(sums, arrays):
        total, by_pair, by_weight = sums
        nodes, ids, gold, allowed, weights, valid, linked = arrays
        pairs = edges + sum_edge_weights(pair_weights, ids)
        value, by_node, change = quantity(_Row(nodes, pairs, gold, allowed, valid, linked))
        change = weights[1:, None, None] * change
        present = (ids >= 0) & (ids < absent)
        for column in jnp.where(present, ids, absent)[1:].T:
            by_weight = by_weight.at[column].add(change, mode="drop")
        total = total + (weights * value).sum()
        return (total, by_pair + change.sum(0), by_weight), weights[:, None] * by_node

    start = (jnp.zeros((), nodes.dtype), jnp.zeros_like(edges), jnp.zeros_like(pair_weights))
    rows = (nodes, ids, shard.gold, shard.allowed, shard.weights, valid, linked)
    (total, by_pair, by_weight), by_node = lax.scan(one_row, start, rows)
    return _by_scores(total, by_node, by_pair, shard, by_weight)
