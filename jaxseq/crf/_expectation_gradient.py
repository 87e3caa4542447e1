r"""Generalised expectation: a penalty on expected shares of labels, and its gradient by scores.

With v the shares that the model expects, the penalty of an expectation of weight w is

.. math::
    w \min_{\mathrm{least} \le t \le \mathrm{most}} \mathrm{KL}(t \,\|\, v)
    \qquad \text{or} \qquad w \min_{\mathrm{least} \le t \le \mathrm{most}} \|v - t\|^2.

Shares are linear in expected counts, and the derivative of an expected count by a score is the
covariance of what is counted with the score's indicator. By the chain rule only one functional
matters, however many expectations there are: that of the slopes c = ∂penalty/∂v. So there are two
passes over the text: expected counts by forward–backward, and, once the counts of all of it are
known, one covariance by the recursions of the entropy's gradient,

.. math:: \nabla = \mathrm{Cov}\big[F, \textstyle\sum_k c_k f_k\big].

References:
    Mann & McCallum 2008 and 2010; Druck 2011 for the covariance as a recursion in O(n s²).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.crf._model import spread_gradient, sum_edge_weights, sum_weights
from jaxseq.crf._score_gradient import (
    Row,
    RowGradient,
    ScoreGradient,
    add_by_pair,
    by_scores,
    row_by_row,
    scan_rows,
    sequence_weights,
)
from jaxseq.crf._shards import Shard
from jaxseq.expectations import EncodedExpectations
from jaxseq.lattice import Method, covariance_from_marginals, flat_covariance, flat_marginals


class LabelCounts(NamedTuple):
    """Expected counts of labels [P, s] and of pairs of labels [Q, s, s] where predicates hold; or
    the slopes of a penalty by them."""

    tokens: Float[Array, "p s"]
    pairs: Float[Array, "q s s"]

    def flat(self) -> Float[Array, " n"]:
        """All of them in one vector."""
        return jnp.concatenate([self.tokens.ravel(), self.pairs.ravel()])

    @classmethod
    def from_flat(cls, vector: Float[Array, " n"], sizes: tuple[int, int, int]) -> LabelCounts:
        """The counts in a vector of `flat`."""
        p, q, s = sizes
        return cls(vector[: p * s].reshape(p, s), vector[p * s :].reshape(q, s, s))


class SharePenalty(eqx.Module):
    """Shares as a sparse matrix of counts, and what is allowed of them (`EncodedExpectations`)."""

    rows: Int[Array, " m"]
    columns: Int[Array, " m"]
    coefficients: Float[Array, " m"]
    least: Float[Array, "k c"]
    most: Float[Array, "k c"]
    present: Bool[Array, "k c"]
    weights: Float[Array, " k"]
    squared: Bool[Array, " k"]
    sizes: tuple[int, int, int] = eqx.field(static=True)
    exact: bool = eqx.field(static=True)

    @classmethod
    def from_encoded(cls, encoded: EncodedExpectations, dtype: str) -> SharePenalty:
        """That of a corpus, in floats of a dtype."""
        floats = ("coefficients", "least", "most", "weights")
        arrays = {name: jnp.asarray(getattr(encoded, name), dtype) for name in floats}
        others = {
            n: jnp.asarray(getattr(encoded, n)) for n in ("rows", "columns", "present", "squared")
        }
        exact = bool(np.array_equal(encoded.least, encoded.most))
        return cls(**arrays, **others, sizes=encoded.sizes, exact=exact)

    def shares(self, counts: LabelCounts) -> Float[Array, "k c"]:
        """v = M T."""
        parts = self.coefficients * counts.flat()[self.columns]
        return (
            jnp.zeros(self.least.size, parts.dtype)
            .at[self.rows]
            .add(parts)
            .reshape(self.least.shape)
        )

    def transposed(self, by_share: Float[Array, "k c"]) -> LabelCounts:
        """Mᵀ c: values of labels from those of shares."""
        p, q, s = self.sizes
        parts = self.coefficients * by_share.ravel()[self.rows]
        flat = jnp.zeros(p * s + q * s * s, parts.dtype).at[self.columns].add(parts)
        return LabelCounts.from_flat(flat, self.sizes)


@jax.jit
def share_penalty(
    penalty: SharePenalty, counts: LabelCounts
) -> tuple[Float[Array, ""], LabelCounts]:
    """The penalty of all expectations, and its slopes by the expected counts.

    Infinite where a share must be positive and cannot.
    """
    shares = penalty.shares(counts)
    nearest = jnp.clip(shares, penalty.least, penalty.most)
    gap = shares - nearest
    squares = (gap * gap).sum(1)
    target = penalty.least if penalty.exact else nearest_distribution(penalty, shares)
    needed = penalty.present & (target > 0)
    reached = needed & (shares > 0)
    # Where one of the two is 0 the other is left out, not a logarithm of 0 multiplied away.
    ratio = jnp.where(reached, target, 1) / jnp.where(reached, shares, 1)
    divergence = jnp.where(reached, target * jnp.log(ratio), 0).sum(1)
    divergence = jnp.where((needed & ~reached).any(1), jnp.inf, divergence)
    value = penalty.weights * jnp.where(penalty.squared, squares, divergence)
    # The nearest shares move with v, but not to first order: they are where the distance is least.
    slopes = jnp.where(penalty.squared[:, None], 2 * gap, -jnp.where(reached, ratio, 0))
    slopes = jnp.where(penalty.present, penalty.weights[:, None] * slopes, 0)
    return value.sum(), penalty.transposed(slopes)


HALVINGS = 64
"""Of the interval that holds the scale: more than a float64 has bits."""


def nearest_distribution(penalty: SharePenalty, shares: Float[Array, "k c"]) -> Float[Array, "k c"]:
    """The allowed distributions that diverge least from the shares: clip(r v, least, most), with
    the r at which they sum to 1."""
    possible = penalty.present & (shares > 0)
    logs = jnp.log(jnp.where(possible, shares, 1))

    def clipped(log_scale: Array) -> Array:
        scaled = jnp.exp(jnp.where(possible, log_scale[:, None] + logs, -jnp.inf))
        return jnp.clip(scaled, penalty.least, penalty.most)

    def halve(_, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        short = clipped(middle).sum(1) < 1
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    # With r = 1 / v for the smallest share, some part of the sum is 1 unless clipped.
    reach = 1 - jnp.where(possible, logs, 0).min(1)
    low, high = lax.fori_loop(0, HALVINGS, halve, (-reach, reach))
    return clipped((low + high) / 2)


# ----------------------------------------------------------------------------- two passes


def _is_simple(pair_weights: Array | None, marks: Shard) -> bool:
    """Whether all pairs of tokens have the same scores and the same values."""
    return pair_weights is None and marks.edge_ids is None


@partial(jax.jit, static_argnames=("sizes", "method"))
def expected_counts(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    marks: Shard,
    sizes: tuple[int, int, int],
    tilt: LabelCounts | None = None,
    method: Method = "auto",
) -> tuple[Float[Array, ""], LabelCounts]:
    """log Z and expected counts where predicates hold, each sentence by its weight: the first pass.

    Args:
        nodes: scores of every slot.
        edges: scores of the transitions.
        pair_weights: of the attributes of pairs of tokens, or None.
        shard: of unlabelled sentences.
        marks: the predicates that hold at its slots, as a shard of the same layout.
        sizes: P, Q and s.
        tilt: what to add to the scores where predicates hold.
        method: the engine, where all pairs of tokens have the same scores.
    """
    p, q, s = sizes
    weights = shard.weights.astype(nodes.dtype)
    if tilt is not None:
        nodes = nodes + token_values(nodes, marks, tilt)
    if _is_simple(pair_weights, marks):
        edges = edges if tilt is None else edges + tilt.pairs.sum(0)
        log_z, by_node, by_pair = flat_marginals(
            nodes, edges, shard.segments, weights, shard.num_sequences, method
        )
        total = (sequence_weights(shard).astype(nodes.dtype) * log_z).sum()
        pairs = by_pair[None] if q else jnp.zeros((0, s, s), nodes.dtype)
    else:
        start = jnp.zeros((), nodes.dtype), jnp.zeros((q, s, s), nodes.dtype)

        def one_row(sums: tuple[Array, Array], row: Row) -> tuple[tuple[Array, Array], Array]:
            assert row.weights is not None
            total, counts = sums
            increments, by_node, by_pair = _tilted(row, row.extra, tilt).lattice(row.nodes)
            total = total + (row.weights * jnp.where(row.valid, increments, 0)).sum()
            by_pair = row.weights[1:, None, None] * by_pair
            if row.extra is not None:
                counts = add_by_pair(counts, row.extra, by_pair)
            elif q:
                counts = counts + by_pair.sum(0)
            return (total, counts), by_node

        where = (nodes, edges, pair_weights, shard, _by_slot(marks.edge_ids, shard))
        (total, pairs), by_node = scan_rows(one_row, start, *where)
    by_slot = (weights[..., None] * by_node).reshape(-1, s)
    return total, LabelCounts(spread_gradient(by_slot, marks.ids, None, p)[:-1], pairs)


@jax.jit
def expected_features(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    weight: Float[Array, ""] | float,
    marks: Shard | None = None,
    tilt: LabelCounts | None = None,
) -> ScoreGradient:
    """A weight times log Z, and its gradient by scores: marginals, summed by features later on.

    Other arguments as of `expected_counts`.
    """
    weights = shard.weights.astype(nodes.dtype) * weight
    shard = eqx.tree_at(lambda shard: shard.weights, shard, weights)
    if tilt is not None and marks is not None:
        nodes = nodes + token_values(nodes, marks, tilt)
    if pair_weights is None and (marks is None or marks.edge_ids is None):
        edges = edges if tilt is None else edges + tilt.pairs.sum(0)
        num, segments = shard.num_sequences, shard.segments
        log_z, by_node, by_pair = flat_marginals(nodes, edges, segments, weights, num, "auto")
        loss = (sequence_weights(shard) * log_z).sum()
        return by_scores(loss, weights[..., None] * by_node, by_pair, shard, None)

    def features(row: Row) -> RowGradient:
        increments, by_node, by_pair = _tilted(row, row.extra, tilt).lattice(row.nodes)
        return jnp.where(row.valid, increments, 0), by_node, by_pair

    ids = None if marks is None else _by_slot(marks.edge_ids, shard)
    return row_by_row(features, nodes, edges, pair_weights, shard, ids)


def _tilted(row: Row, ids: Array | None, tilt: LabelCounts | None) -> Row:
    """The row with the tilt of its pairs added, by their predicates."""
    if tilt is None:
        return row
    values = tilt.pairs.sum(0) if ids is None else sum_edge_weights(tilt.pairs, ids)
    return row._replace(pairs=row.pairs + values)


@partial(jax.jit, static_argnames="method")
def expectation_gradient(
    nodes: Float[Array, "r w s"],
    edges: Float[Array, "s s"],
    pair_weights: Float[Array, "b s s"] | None,
    shard: Shard,
    marks: Shard,
    slopes: LabelCounts,
    method: Method = "auto",
) -> ScoreGradient:
    """Gradient by scores of a penalty with these slopes by the counts: the second pass.

    The loss in it is 0: the penalty is of all shards together. Arguments as of `expected_counts`.
    """
    values = token_values(nodes, marks, slopes)
    weights = shard.weights.astype(nodes.dtype)
    nothing = jnp.zeros((), nodes.dtype)
    if _is_simple(pair_weights, marks):
        where = (nodes, edges, shard.segments, weights, values, slopes.pairs.sum(0))
        _, by_node, by_pair = flat_covariance(*where, shard.num_sequences, method)
        return by_scores(nothing, weights[..., None] * by_node, by_pair, shard, None)

    def covariance(row: Row) -> RowGradient:
        values, ids = row.extra
        pair_values = slopes.pairs.sum(0)
        if ids is not None:
            pair_values = sum_edge_weights(slopes.pairs, ids)[1:]
        increments, by_node, by_pair = row.lattice(row.nodes)
        gradient = covariance_from_marginals(by_node, by_pair, values, pair_values)
        return jnp.zeros_like(increments), *gradient

    extra = (values, _by_slot(marks.edge_ids, shard))
    return row_by_row(covariance, nodes, edges, pair_weights, shard, extra)


def token_values(nodes: Float[Array, "r w s"], marks: Shard, values: LabelCounts) -> Array:
    """What each label of each slot is worth [r, w, s], by the predicates that hold there."""
    table = jnp.pad(values.tokens, ((0, 1), (0, 0)))  # absent ones point at a row of zeros
    return sum_weights(table, marks.ids, None).reshape(nodes.shape)


def _by_slot(ids: Array | None, shard: Shard) -> Array | None:
    return None if ids is None else ids.reshape(*shard.segments.shape, -1)
