r"""The negative log-likelihood of a corpus and its gradient.

.. math::
    L = \sum_q w_q \big(\log Z(x_q) - \log Z(x_q; y_q)\big),

where :math:`Z(x; y)` sums over the labellings that agree with what is known of y: one path when
all labels are known, several with partial labels (Tsuboi et al. 2008). The gradient by node
scores is the difference of two sets of marginals, spread over the attributes of each token.

Three programs, not one: gather (scores from weights), lattice (marginals from scores), scatter
(gradient from marginals). In a single program XLA would fuse the gathers into every use of the
scores, and take more than twice as long.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxseq.batch import _core as lattices
from jaxseq.batch import map_on_cores
from jaxseq.chain._engines import log_forward_backward
from jaxseq.learn._corpus import Shard
from jaxseq.learn._parameters import Legal, Parameters, Spread, mask_forbidden
from jaxseq.models import _linear
from jaxseq.models._crf import sum_edge_weights


class Scores(NamedTuple):
    """Of one shard: nodes [r, w, s] with start and stop in; edges [s, s] or by position."""

    nodes: Float[Array, "r w s"]
    edges: Float[Array, "..."]


@partial(jax.jit, static_argnames="labels")
def node_scores(
    table: Float[Array, "a1 p"],
    start: Float[Array, " s"],
    stop: Float[Array, " s"],
    shard: Shard,
    labels: int,
) -> Float[Array, "r w s"]:
    """Scores of every slot, those of starting and stopping included."""
    rows, width = shard.segments.shape
    scores = _linear.sum_weights(table, shard.ids, shard.values)[:, :labels]
    scores = scores.at[shard.starts].add(start, mode="drop")
    scores = scores.at[shard.stops].add(stop, mode="drop")
    return scores.reshape(rows, width, labels)


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
def score_gradient(nodes: Float[Array, "r w s"], edges: Array, shard: Shard) -> ScoreGradient:
    """The lattice: loss and gradient from scores, with transitions shared by all positions."""
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
    by_sequence = _weight_of_sequences(shard)
    loss = (by_sequence * (log_z - score)).sum()
    by_node = weights[..., None] * (expected - known)
    return _by_scores(loss, by_node, pairs - known_pairs, shard, None)


def _weight_of_sequences(shard: Shard) -> Array:
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


@jax.jit
def score_gradient_with_pairs(
    nodes: Float[Array, "r w s"],
    edges: Array,
    edge_weights: Float[Array, "b s s"],
    shard: Shard,
) -> ScoreGradient:
    """As `score_gradient`, for models whose transitions depend on the tokens.

    Row by row: the [w, s, s] scores of a row are formed and dropped again.
    """
    assert shard.edge_ids is not None
    valid, linked = shard.segments >= 0, _linked(shard)
    ids = shard.edge_ids.reshape(*shard.segments.shape, -1)
    absent = edge_weights.shape[0]  # out of bounds, so that a scatter drops it

    def one_row(sums, row):
        loss, by_pair, by_weight = sums
        nodes, ids, gold, allowed, weights, valid, linked = row
        pair_scores = edges + sum_edge_weights(edge_weights, ids)

        def lattice(nodes):
            return log_forward_backward(nodes, pair_scores[1:], linked[1:], valid)

        increments, expected, pairs = lattice(nodes)
        if allowed is None:
            arrays = (nodes, pair_scores, gold, valid, linked)
            score = _gold_score(*(array[None] for array in arrays))[0]
            known = jax.nn.one_hot(gold, nodes.shape[1], dtype=nodes.dtype)
            known_pairs = known[:-1, :, None] * known[1:, None, :]
            known_pairs = jnp.where(linked[1:, None, None], known_pairs, 0)
        else:
            score, known, known_pairs = lattice(jnp.where(allowed, nodes, -jnp.inf))
        loss = loss + (weights * jnp.where(valid, increments - score, 0)).sum()
        change = weights[1:, None, None] * (pairs - known_pairs)
        present = (ids >= 0) & (ids < absent)
        for column in jnp.where(present, ids, absent)[1:].T:
            by_weight = by_weight.at[column].add(change, mode="drop")
        by_node = weights[:, None] * (expected - known)
        return (loss, by_pair + change.sum(0), by_weight), by_node

    start = (jnp.zeros((), nodes.dtype), jnp.zeros_like(edges), jnp.zeros_like(edge_weights))
    rows = (nodes, ids, shard.gold, shard.allowed, shard.weights, valid, linked)
    (loss, by_pair, by_weight), by_node = lax.scan(one_row, start, rows)
    return _by_scores(loss, by_node, by_pair, shard, by_weight)


@partial(jax.jit, donate_argnums=0, static_argnums=3)
def weight_gradient(
    scratch: Float[Array, "a1 p"], by_token: Float[Array, "slots p"], shard: Shard, attributes: int
) -> Float[Array, "a1 p"]:
    """The scatter: gradient by the table, written over a table that is no longer wanted."""
    return _linear.spread_gradient(by_token, shard.ids, shard.values, attributes, scratch)


@partial(jax.jit, donate_argnums=0)
def _write_table(old: Array, weights: Array, spread: Spread) -> Array:
    return spread.to_table(weights, old)


@jax.jit
def _from_table(gradient: Array, spread: Spread) -> Array:
    return spread.from_table(gradient)


@jax.jit
def _end_scores(parameters: Parameters, legal: Legal | None) -> tuple[Array, Array, Array]:
    return mask_forbidden(parameters, legal)


@jax.jit
def _finish(parts: list[tuple[Array, Parameters]], parameters: Parameters, spread: Spread, l2):
    """Sum over shards, and the penalty l2 · ‖parameters‖² / 2 with its gradient."""
    loss = sum(part[0] for part in parts)
    gradient = jax.tree.map(lambda *arrays: sum(arrays), *(part[1] for part in parts))
    squares = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters))
    gradient = jax.tree.map(lambda g, p: g + l2 * p, gradient, parameters)
    transitions = spread.keep_learnt(gradient.transitions)
    return loss + l2 / 2 * squares, gradient._replace(transitions=transitions)


class Objective:
    """Penalised negative log-likelihood on shards, each on a core of its own.

    Calling it with `Parameters` gives the value and the gradient, of the same structure.

    Args:
        shards: of `make_shards`, equal in shape so that each program is compiled once.
        spread: how the learnt weights make the table.
        l2: the penalty is l2 / 2 times the sum of squares of all parameters.
        legal: transitions that may be used, or None for all.

    `seconds` adds up where the time went, by the clock of the first shard. The tables of a call are
    written over by the next: memory that is asked for anew each time costs as much in page faults
    as the arithmetic on it.
    """

    def __init__(self, shards: list[Shard], spread: Spread, l2: float, legal: Legal | None = None):
        self.shards, self.spread, self.l2, self.legal = shards, spread, l2, legal
        self.seconds = {"gather": 0.0, "lattice": 0.0, "scatter": 0.0, "evaluations": 0.0}
        self._table: Array | None = None
        self._gradients: list[Array | None] = [None] * len(shards)

    def _take_table(self, parameters: Parameters) -> Array:
        """The table of these parameters."""
        if self.spread.places is None:  # nothing to keep: it is the parameters, or made from them
            return self.spread.to_table(parameters.weights)
        old = self._table
        if old is None or old.dtype != parameters.weights.dtype:
            old = jnp.zeros(self.spread.shape, parameters.weights.dtype)
        table = self._table = _write_table(old, parameters.weights, self.spread)
        return table

    def __call__(self, parameters: Parameters) -> tuple[Array, Parameters]:
        began = time.perf_counter()
        table = self._take_table(parameters)
        edges, start, stop = _end_scores(parameters, self.legal)

        def on_shard(index: int) -> tuple[Array, Parameters]:
            shard = self.shards[index]
            clock = _Clock(self.seconds if index == 0 else {})
            nodes = node_scores(table, start, stop, shard, self.spread.labels)
            clock.note("gather", nodes)
            if parameters.edge_weights is None or shard.edge_ids is None:
                found = score_gradient(nodes, edges, shard)
            else:
                found = score_gradient_with_pairs(nodes, edges, parameters.edge_weights, shard)
            clock.note("lattice", found)
            scratch, self._gradients[index] = self._gradients[index], None
            if scratch is None or scratch.dtype != found.nodes.dtype:
                scratch = jnp.zeros(self.spread.shape, found.nodes.dtype)
            by_table = weight_gradient(scratch, found.nodes, shard, self.spread.attributes)
            self._gradients[index] = by_table
            weights = _from_table(by_table, self.spread) if self.spread.sparse else by_table
            clock.note("scatter", weights)
            by_weight = found.edge_weights
            if by_weight is None and parameters.edge_weights is not None:
                by_weight = jnp.zeros_like(parameters.edge_weights)
            gradient = Parameters(weights, found.transitions, found.start, found.stop, by_weight)
            return found.loss, gradient

        parts = map_on_cores(on_shard, range(len(self.shards)))
        found = jax.block_until_ready(_finish(parts, parameters, self.spread, self.l2))
        self.seconds["evaluations"] += time.perf_counter() - began
        return found


class _Clock:
    """Adds the time since it was last asked to an entry."""

    def __init__(self, seconds: dict[str, float]):
        self._seconds, self._last = seconds, time.perf_counter()

    def note(self, name: str, result) -> None:
        jax.block_until_ready(result)
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now
