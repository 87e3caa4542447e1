r"""From scores to the gradient by scores: the lattice part of the objectives on a shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.crf import _model as _linear
from jaxseq.crf._model import sum_edge_weights
from jaxseq.lattice import (
    flat_entropy_gradient,
    flat_marginals,
    gradient_from_marginals,
    label_entropies,
    log_forward_backward,
    pack_lengths,
    per_sequence,
    row_gradient,
    step_entropies,
)
from jaxseq.taggers import UNKNOWN, EncodedLabels

# -------------------------------------------------------------------------------------------------
# The gradient of the entropy of one row of sentences, three ways.
#
# :math:`H(Y) = -\sum_y p(y) \log p(y)` as a function of node and edge scores.
#
# - ``"mann"``: Mann & McCallum's closed form, O(n s²). The one to use.
# - ``"jiao"``: the nested covariance program of Jiao et al., O(n² s³), as published.
# - ``"autodiff"``: reverse-mode differentiation through plain log-space recursions; O(n s²) with a
#   constant several times that of the closed form, and O(n s²) memory.
#
# Their gradients share no formula beyond the definition, so that a training run with one checks
# those with the others.


EntropyGradient = Literal["mann", "jiao", "autodiff"]
"""Which derivation of the entropy's gradient to train by."""

Nodes = Float[Array, "w s"]
Pairs = Float[Array, "w-1 s s"]
Row = tuple[Float[Array, " w"], Nodes, Pairs]
"""What each slot adds to the entropy, and the gradients by nodes and pairs."""


def mann(nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]) -> Row:
    """Closed form, from the marginals."""
    _, by_node, by_pair = log_forward_backward(nodes, pairs, linked, valid)
    return _shares(by_node, by_pair, linked), *gradient_from_marginals(by_node, by_pair)


def jiao(nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]) -> Row:
    """Covariance program; the entropy itself is that of the marginals."""
    _, by_node, by_pair = log_forward_backward(nodes, pairs, linked, valid)
    return _shares(by_node, by_pair, linked), *row_gradient(nodes, pairs, linked, valid)


def autodiff(
    nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]
) -> Row:
    """Differentiation of log Z − E[score]."""

    def total(nodes, pairs):
        shares = _entropy_in_logs(nodes, pairs, linked, valid)
        return shares.sum(), shares

    gradients, shares = jax.grad(total, (0, 1), has_aux=True)(nodes, pairs)
    return shares, *gradients


BY_ROW: dict[EntropyGradient, Callable[..., Row]] = {
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

    The mean score of the paths that end in a label is carried along with log α. What is −inf is
    replaced before it enters a sum or a product, since autodiff multiplies infinities by zero.
    """

    def step(carry, slot):
        log_alpha, mean = carry
        scores, pair_scores, goes_on = slot
        joint = log_alpha[:, None] + pair_scores + scores
        log_next = _log_sum(joint, 0)
        share = _ratio(joint, log_next)
        known = jnp.where(jnp.isneginf(joint), 0, pair_scores + scores)
        mean_next = (share * (mean[:, None] + known)).sum(0)
        fresh = (scores, jnp.where(jnp.isneginf(scores), 0, scores))
        carry = jnp.where(goes_on, log_next, fresh[0]), jnp.where(goes_on, mean_next, fresh[1])
        return carry, _entropy_at_end(*carry)

    first = (nodes[0], jnp.where(jnp.isneginf(nodes[0]), 0, nodes[0]))
    _, rest = lax.scan(step, first, (nodes[1:], pairs, linked))
    ends = jnp.concatenate([_entropy_at_end(*first)[None], rest])
    last = valid & jnp.concatenate([~linked, jnp.ones(1, bool)])
    return jnp.where(last, ends, 0)


def _entropy_at_end(log_alpha: Array, mean: Array) -> Array:
    log_z = _log_sum(log_alpha, 0)
    value = log_z - (_ratio(log_alpha, log_z) * mean).sum()
    return jnp.where(jnp.isneginf(log_z), 0, value)


def _log_sum(logs: Array, axis: int) -> Array:
    """log Σ exp, with gradient 0 where nothing is above −inf."""
    possible = (~jnp.isneginf(logs)).any(axis)
    safe = jnp.where(jnp.expand_dims(possible, axis), logs, 0)
    return jnp.where(possible, jax.nn.logsumexp(safe, axis), -jnp.inf)


def _ratio(logs: Array, log_total: Array) -> Array:
    """exp(logs − log_total), 0 where either is −inf."""
    possible = ~jnp.isneginf(logs)
    difference = jnp.where(possible, logs, 0) - jnp.where(jnp.isneginf(log_total), 0, log_total)
    return jnp.where(possible, jnp.exp(jnp.where(possible, difference, 0)), 0)


# -------------------------------------------------------------------------------------------------
# An encoded corpus, laid out for the lattices: packed rows, cut into one shard a core.


class Shard(eqx.Module):
    """Some rows of a corpus: r rows of w slots, k attributes a slot.

    ids [r·w, k] point at rows of the weight table; values [r·w, k] or None; edge_ids [r·w, m] or
    None; segments [r, w] number the sentences, −1 is padding; gold [r, w] labels, −1 where not
    known; allowed [r, w, s] or None when every label is known; weights [r, w] of the sentence that
    a slot belongs to; first [r, w] whether a slot begins its sentence; starts, stops [sentences]
    the slots (of r·w) where each begins and ends, r·w for a sentence that is not there.
    """

    ids: Int[Array, "slots k"]
    values: Float[Array, "slots k"] | None
    edge_ids: Int[Array, "slots m"] | None
    segments: Int[Array, "r w"]
    gold: Int[Array, "r w"]
    allowed: Bool[Array, "r w s"] | None
    weights: Float[Array, "r w"]
    first: Bool[Array, "r w"]
    starts: Int[Array, " q"]
    stops: Int[Array, " q"]
    num_sequences: int = eqx.field(static=True)


@dataclass(frozen=True)
class Layout:
    """Where each token of a corpus went: shard, and slot within the shard's r·w slots.

    Tokens are numbered through the corpus, sentence after sentence.
    """

    shard: np.ndarray
    slot: np.ndarray
    rows: int
    width: int
    sequences: int

    def collect(self, by_shard: list[np.ndarray]) -> np.ndarray:
        """Per-slot results of all shards, as one row a token in the corpus's order."""
        flat = [np.asarray(part).reshape(self.rows * self.width, -1) for part in by_shard]
        out = np.empty((len(self.slot), flat[0].shape[1]), flat[0].dtype)
        for index, part in enumerate(flat):
            here = self.shard == index
            out[here] = part[self.slot[here]]
        return out


def lay_out(lengths: np.ndarray, shards: int, *, width: int | None = None) -> Layout:
    """Pack sentences into rows and deal the rows out to shards of equal shape."""
    lengths = np.asarray(lengths, np.int64)
    row_list, offset_list, width = pack_lengths(lengths.tolist(), width)
    row, offset = np.array(row_list, np.int64), np.array(offset_list, np.int64)
    return _deal(lengths, row, offset, width, shards)


def lay_out_by_length(lengths: np.ndarray, shards: int) -> Layout:
    """One sentence a row, the short ones first, dealt out to shards of equal shape.

    For programs whose cost grows faster than the length of a row, and that work on a few rows at a
    time: packed rows would be longer than their sentences.
    """
    lengths = np.asarray(lengths, np.int64)
    row = np.argsort(np.argsort(lengths, kind="stable"))
    width = max(1, int(lengths.max(initial=0)))
    return _deal(lengths, row, np.zeros_like(row), width, shards)


def _deal(
    lengths: np.ndarray, row: np.ndarray, offset: np.ndarray, width: int, shards: int
) -> Layout:
    """Rows to shards by turns."""
    num_rows = int(row.max(initial=0)) + 1
    rows = -(-num_rows // shards)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    slot = np.repeat((row // shards) * width + offset, lengths) + within
    shard = np.repeat(row % shards, lengths)
    most = np.bincount(row[lengths > 0] % shards, minlength=shards).max(initial=0)
    return Layout(shard, slot, rows, width, int(most))


def make_shards(layout: Layout, *corpus) -> list[Shard]:
    """All shards, on the device. Arguments as in `ShardMaker`."""
    return ShardMaker(layout, *corpus).all()


def without_gaps(features):
    """The same features in as few columns as the token with most attributes needs.

    Templates that seldom apply leave columns that are mostly absent, and each costs as much as a
    full one. The order of a token's attributes is kept.
    """
    present = features.ids >= 0
    width = int(present.sum(1).max(initial=1))
    if width >= features.ids.shape[1]:
        return features
    rows, _ = np.nonzero(present)
    columns = (np.cumsum(present, 1, dtype=np.int32) - 1)[present]
    ids = np.full((len(present), width), -1, np.int32)
    ids[rows, columns] = features.ids[present]
    values = None
    if features.values is not None:
        values = np.zeros((len(present), width), features.values.dtype)
        values[rows, columns] = features.values[present]
    return replace(features, ids=ids, values=values)


class ShardMaker:
    """Makes the arrays of one shard at a time, so that a corpus need not fit on the device.

    Args:
        layout: of `lay_out` for the same corpus.
        features: a `jaxseq.text.TokenFeatures`.
        attributes: how many there are; absent ones point at this row of the table.
        labels: None when only prediction is wanted.
        sentence_weights: [B], 1 by default.
    """

    def __init__(
        self,
        layout: Layout,
        features,
        attributes: int,
        labels: EncodedLabels | None = None,
        sentence_weights: np.ndarray | None = None,
    ):
        self._layout, self._features, self._attributes = layout, features, attributes
        self._labels = labels
        lengths = features.lengths
        self._sentence = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._within = np.arange(len(starts)) - starts
        self._is_last = self._within == np.repeat(lengths, lengths) - 1
        weights = np.ones(len(lengths)) if sentence_weights is None else sentence_weights
        self._weights = weights[self._sentence]
        self._order = np.argsort(layout.shard, kind="stable")
        self.num_shards = int(layout.shard.max(initial=0)) + 1
        self._bounds = np.searchsorted(layout.shard[self._order], np.arange(self.num_shards + 1))

    def all(self) -> list[Shard]:
        """Every shard."""
        return [self(index) for index in range(self.num_shards)]

    def __call__(self, index: int) -> Shard:
        """One shard; one beyond the last has no token."""
        layout, features, attributes = self._layout, self._features, self._attributes
        first, stop = (self._bounds[min(i, self.num_shards)] for i in (index, index + 1))
        here = self._order[first:stop]
        where, slots = layout.slot[here], layout.rows * layout.width
        shape = (layout.rows, layout.width)

        def place(values: np.ndarray, fill, dtype) -> np.ndarray:
            array = np.full((slots, *values.shape[1:]), fill, dtype)
            array[where] = values
            return array

        def ends_of(found: np.ndarray) -> np.ndarray:
            array = np.full(layout.sequences, slots, np.int32)
            array[: len(found)] = found
            return array

        ids, values, pairs = features.ids[here], features.values, features.edge_ids
        _, local = np.unique(self._sentence[here], return_inverse=True)
        gold, allowed = np.full(slots, UNKNOWN, np.int32), None
        if self._labels is not None:
            gold = place(self._labels.gold[here], UNKNOWN, np.int32)
            if self._labels.allowed is not None:
                allowed = jnp.asarray(place(self._labels.allowed[here], True, bool))
                allowed = allowed.reshape(*shape, -1)
        return Shard(
            ids=jnp.asarray(place(np.where(ids < 0, attributes, ids), attributes, np.int32)),
            values=None if values is None else jnp.asarray(place(values[here], 0, np.float32)),
            edge_ids=None if pairs is None else jnp.asarray(place(pairs[here], -1, np.int32)),
            segments=jnp.asarray(place(local, -1, np.int32).reshape(shape)),
            gold=jnp.asarray(gold.reshape(shape)),
            allowed=allowed,
            weights=jnp.asarray(place(self._weights[here], 0, np.float32).reshape(shape)),
            first=jnp.asarray(place(self._within[here] == 0, False, bool).reshape(shape)),
            starts=jnp.asarray(ends_of(where[self._within[here] == 0])),
            stops=jnp.asarray(ends_of(where[self._is_last[here]])),
            num_sequences=layout.sequences,
        )


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
    return _by_scores(loss, by_node, pairs - known_pairs, shard, None)


def sequence_weights(shard: Shard) -> Array:
    """How much each sentence of a shard counts."""
    starts = jnp.where(shard.first, shard.weights, 0)
    return per_sequence(starts, shard.segments, shard.num_sequences)


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
    entropies, by_node, by_pair = flat_entropy_gradient(
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
