r"""Loss of a shard and its gradient by scores: the lattice part of an objective.

The loss is the negative log-likelihood, or the entropy of the model. The gradient of the entropy of
a row, :math:`H(Y) = -\sum_y p(y) \log p(y)` as a function of node and edge scores, comes in three
derivations:

- ``"mann"``: Mann & McCallum's closed form, O(n s²). The one to use.
- ``"jiao"``: the nested covariance program of Jiao et al., O(n² s³), as published.
- ``"autodiff"``: reverse-mode differentiation through plain log-space recursions; O(n s²) with a
  constant several times that of the closed form, and O(n s²) memory.

They share no formula beyond the definition, so that a training run with one checks those with the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.crf._model import padded_labels, sum_edge_weights
from jaxseq.crf._shards import Shard
from jaxseq.lattice import (
    flat_entropy_gradient,
    flat_marginals,
    gradient_from_marginals,
    label_entropies,
    log_forward_backward,
    per_sequence,
    row_gradient,
    step_entropies,
)

EntropyGradient = Literal["mann", "jiao", "autodiff"]
"""Which derivation of the entropy's gradient to train by."""

Nodes = Float[Array, "w s"]
Pairs = Float[Array, "w-1 s s"]
RowGradient = tuple[Float[Array, " w"], Nodes, Pairs]
"""What each slot adds to a quantity, and the gradients by nodes and pairs."""


def mann(
    nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]
) -> RowGradient:
    """Closed form, from the marginals."""
    _, by_node, by_pair = log_forward_backward(nodes, pairs, linked, valid)
    return _shares(by_node, by_pair, linked), *gradient_from_marginals(by_node, by_pair)


def jiao(
    nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]
) -> RowGradient:
    """Covariance program; the entropy itself is that of the marginals."""
    _, by_node, by_pair = log_forward_backward(nodes, pairs, linked, valid)
    return _shares(by_node, by_pair, linked), *row_gradient(nodes, pairs, linked, valid)


def autodiff(
    nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]
) -> RowGradient:
    """Differentiation of log Z − E[score]."""

    def total(nodes, pairs):
        shares = _entropy_in_logs(nodes, pairs, linked, valid)
        return shares.sum(), shares

    gradients, shares = jax.grad(total, (0, 1), has_aux=True)(nodes, pairs)
    return shares, *gradients


BY_ROW: dict[EntropyGradient, Callable[..., RowGradient]] = {
    "mann": mann,
    "jiao": jiao,
    "autodiff": autodiff,
}


def _shares(nodes: Nodes, pairs: Pairs, linked: Array) -> Float[Array, " w"]:
    """Entropy by the chain rule: of a sentence's first label, and of each step given the last."""
    begins = jnp.concatenate([jnp.ones(1, bool), ~linked])
    return jnp.where(begins, label_entropies(nodes), 0).at[:-1].add(step_entropies(pairs))


def _entropy_in_logs(nodes: Nodes, pairs: Pairs, linked: Array, valid: Array) -> Array:
    """log Z − E[score] of each sentence, at the slot of its last token.

    The mean score of the paths that end in a label is carried along with log α. Entries of −inf are
    replaced before they enter a sum or a product, since autodiff multiplies infinities by zero.
    """

    def step(carry, slot):
        log_alpha, mean = carry
        scores, pair_scores, goes_on = slot
        joint = log_alpha[:, None] + pair_scores + scores
        log_next = _log_sum(joint, 0)
        share = _ratio(joint, log_next)  # p(label before | label here), as Σ exp is normalised
        known = jnp.where(jnp.isneginf(joint), 0, pair_scores + scores)
        mean_next = (share * (mean[:, None] + known)).sum(0)
        fresh = (scores, jnp.where(jnp.isneginf(scores), 0, scores))
        carry = jnp.where(goes_on, log_next, fresh[0]), jnp.where(goes_on, mean_next, fresh[1])
        return carry, _entropy_at_end(*carry)

    first = (nodes[0], jnp.where(jnp.isneginf(nodes[0]), 0, nodes[0]))
    _, later = lax.scan(step, first, (nodes[1:], pairs, linked))
    ends = jnp.concatenate([_entropy_at_end(*first)[None], later])
    last = valid & jnp.concatenate([~linked, jnp.ones(1, bool)])
    return jnp.where(last, ends, 0)


def _entropy_at_end(log_alpha: Array, mean: Array) -> Array:
    log_z = _log_sum(log_alpha, 0)
    value = log_z - (_ratio(log_alpha, log_z) * mean).sum()
    return jnp.where(jnp.isneginf(log_z), 0, value)  # no legal path: entropy 0 and gradient 0


def _log_sum(logs: Array, axis: int) -> Array:
    """log Σ exp, with gradient 0 where nothing is above −inf."""
    possible = (~jnp.isneginf(logs)).any(axis)
    # Both branches of a `where` are differentiated: the one not taken must be finite as well.
    safe = jnp.where(jnp.expand_dims(possible, axis), logs, 0)
    return jnp.where(possible, jax.nn.logsumexp(safe, axis), -jnp.inf)


def _ratio(logs: Array, log_total: Array) -> Array:
    """exp(logs − log_total), 0 where either is −inf."""
    possible = ~jnp.isneginf(logs)
    difference = jnp.where(possible, logs, 0) - jnp.where(jnp.isneginf(log_total), 0, log_total)
    return jnp.where(possible, jnp.exp(jnp.where(possible, difference, 0)), 0)


# ------------------------------------------------------------------- the gradient of a shard


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
    label = jnp.maximum(gold, 0)  # any legal index: `valid` and `linked` drop what is not known
    before = jnp.roll(label, 1, 1)  # column 0 wraps around, but is never linked
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
    # One scatter by flat pairs: cheaper than an outer product of one-hot vectors for every slot.
    flat = jnp.roll(label, 1, 1) * labels + label
    return jnp.zeros(labels * labels, amount.dtype).at[flat].add(amount).reshape(labels, labels)


@jax.jit
def likelihood_gradient(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
) -> ScoreGradient:
    """Negative log-likelihood and its gradient by scores."""
    if pair_weights is not None:
        return row_by_row(_likelihood_of_row, nodes, edges, pair_weights, shard)
    s = edges.shape[0]
    num, segments, weights = shard.num_sequences, shard.segments, shard.weights
    log_z, expected, pairs = flat_marginals(nodes, edges, segments, weights, num, "auto")
    if shard.allowed is None:
        known = jax.nn.one_hot(shard.gold, s, dtype=nodes.dtype)  # zeros for −1
        by_slot = _gold_score(nodes, edges, shard.gold, segments >= 0, _linked(shard))
        score = per_sequence(by_slot, segments, num)
        known_pairs = _gold_pairs(shard, s).astype(edges.dtype)
    else:
        narrowed = jnp.where(shard.allowed, nodes, -jnp.inf)
        score, known, known_pairs = flat_marginals(narrowed, edges, segments, weights, num, "auto")
    by_sequence = sequence_weights(shard)
    loss = (by_sequence * (log_z - score)).sum()
    by_node = weights[..., None] * (expected - known)
    return by_scores(loss, by_node, pairs - known_pairs, shard, None)


def sequence_weights(shard: Shard) -> Array:
    """How much each sentence of a shard counts."""
    starts = jnp.where(shard.first, shard.weights, 0)
    return per_sequence(starts, shard.segments, shard.num_sequences)


def by_scores(loss, by_node, by_pair, shard: Shard, by_edge_weight) -> ScoreGradient:
    s = by_node.shape[-1]
    flat = by_node.reshape(-1, s)
    # The first (last) node's score has the start (stop) score in it: its gradient is theirs too.
    start, stop = (
        flat.at[ends].get(mode="fill", fill_value=0).sum(0) for ends in (shard.starts, shard.stops)
    )
    # As wide as the table, so that the scatter adds whole rows of vector registers.
    flat = jnp.pad(flat, ((0, 0), (0, padded_labels(s) - s)))
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
        nodes: scores of every slot.
        edges: scores of the transitions.
        pair_weights: of the attributes of pairs of tokens, or None.
        shard: whose labels are not looked at.
        entropy_weight: γ.
        derivation: of the gradient; all give the same, at different costs.
    """
    # Both the loss and the gradient are linear in the weights of the sentences: γ goes in there.
    weights = shard.weights.astype(nodes.dtype) * entropy_weight
    shard = eqx.tree_at(lambda shard: shard.weights, shard, weights)

    def entropy_of_row(row: Row) -> RowGradient:
        return BY_ROW[derivation](row.nodes, row.pairs[1:], row.linked[1:], row.valid)

    if pair_weights is not None:
        return row_by_row(entropy_of_row, nodes, edges, pair_weights, shard)
    if derivation != "mann":
        return _rows_at_once(entropy_of_row, nodes, edges, shard)
    num, segments = shard.num_sequences, shard.segments
    entropies, by_node, by_pair = flat_entropy_gradient(
        nodes, edges, segments, weights, num, "auto"
    )
    loss = (sequence_weights(shard) * entropies).sum()
    return by_scores(loss, weights[..., None] * by_node, by_pair, shard, None)


def lattice_gradient(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    entropy_weight: Any,
    derivation: EntropyGradient | None,
) -> ScoreGradient:
    """`likelihood_gradient` where the derivation is None, else `entropy_gradient`."""
    pair_weights = None if shard.edge_ids is None else pair_weights
    if derivation is None:
        return likelihood_gradient(nodes, edges, pair_weights, shard)
    return entropy_gradient(nodes, edges, pair_weights, shard, entropy_weight, derivation)


ROWS_AT_ONCE = 32
"""Rows that are worked on together where a gradient is not by whole batches: enough to fill the
processor's vectors, few enough that one long sentence does not hold up many short ones."""


def _rows_at_once(
    quantity: Callable[[Row], RowGradient], nodes: Array, edges: Array, shard: Shard
) -> ScoreGradient:
    """A quantity and its gradient, some rows at a time."""

    def one_row(arrays):
        nodes, weights, gold, valid, linked = arrays
        pairs = jnp.broadcast_to(edges, (len(nodes), *edges.shape))
        value, by_node, by_pair = quantity(Row(nodes, pairs, gold, None, valid, linked))
        by_pair = (weights[1:, None, None] * by_pair).sum(0)
        return (weights * value).sum(), weights[:, None] * by_node, by_pair

    rows = (nodes, shard.weights, shard.gold, shard.segments >= 0, _linked(shard))
    values, by_node, by_pair = lax.map(one_row, rows, batch_size=min(ROWS_AT_ONCE, len(nodes)))
    return by_scores(values.sum(), by_node, by_pair.sum(0), shard, None)


class Row(NamedTuple):
    """One row of a shard; pairs [w, s, s] are the scores of the pair (t − 1, t) at t, edge_ids its
    attributes, and extra whatever else there is by slot."""

    nodes: Float[Array, "w s"]
    pairs: Float[Array, "w s s"]
    gold: Int[Array, " w"]
    allowed: Bool[Array, "w s"] | None
    valid: Bool[Array, " w"]
    linked: Bool[Array, " w"]
    weights: Float[Array, " w"] | None = None
    edge_ids: Int[Array, "w m"] | None = None
    extra: Any = None

    def lattice(self, nodes: Array):
        """Forward-backward with these node scores."""
        return log_forward_backward(nodes, self.pairs[1:], self.linked[1:], self.valid)


def _likelihood_of_row(row: Row) -> RowGradient:
    """What each slot adds to the loss, and its gradients."""
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


def scan_rows(
    step: Callable[[Any, Row], tuple[Any, Any]],
    start: Any,
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    extra: Any = None,
) -> tuple[Any, Any]:
    """`lax.scan` of (carry, row) ↦ (carry, output) over the rows of a shard."""
    # The pair scores of all rows at once would be s times the shard: they are formed and dropped.
    ids = None
    if pair_weights is not None and shard.edge_ids is not None:
        ids = shard.edge_ids.reshape(*shard.segments.shape, -1)

    def one_row(carry, arrays):
        nodes, ids, *others = arrays
        pairs = jnp.broadcast_to(edges, (len(nodes), *edges.shape))
        if ids is not None and pair_weights is not None:
            pairs = pairs + sum_edge_weights(pair_weights, ids)
        gold, allowed, valid, linked, weights, extra = others
        return step(carry, Row(nodes, pairs, gold, allowed, valid, linked, weights, ids, extra))

    valid, linked = shard.segments >= 0, _linked(shard)
    rows = (nodes, ids, shard.gold, shard.allowed, valid, linked, shard.weights, extra)
    return lax.scan(one_row, start, rows)


def add_by_pair(
    sums: Float[Array, "b s s"], ids: Int[Array, "w m"], by_pair: Float[Array, "w-1 s s"]
) -> Float[Array, "b s s"]:
    """What each pair of a row has, added for each of its attributes; −1 is no attribute."""
    absent = sums.shape[0]  # out of bounds, so that a scatter drops it
    present = (ids >= 0) & (ids < absent)
    for column in jnp.where(present, ids, absent)[1:].T:
        sums = sums.at[column].add(by_pair, mode="drop")
    return sums


def row_by_row(
    quantity: Callable[[Row], RowGradient],
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    extra: Any = None,
) -> ScoreGradient:
    """A quantity and its gradient, a row at a time."""

    def one_row(sums, row: Row):
        total, by_pair, by_weight = sums
        assert row.weights is not None
        value, by_node, change = quantity(row)
        change = row.weights[1:, None, None] * change
        if row.edge_ids is not None:
            by_weight = add_by_pair(by_weight, row.edge_ids, change)
        total = total + (row.weights * value).sum()
        return (total, by_pair + change.sum(0), by_weight), row.weights[:, None] * by_node

    by_weight = None if pair_weights is None else jnp.zeros_like(pair_weights)
    start = (jnp.zeros((), nodes.dtype), jnp.zeros_like(edges), by_weight)
    sums, by_node = scan_rows(one_row, start, nodes, edges, pair_weights, shard, extra)
    total, by_pair, by_weight = sums
    return by_scores(total, by_node, by_pair, shard, by_weight)
