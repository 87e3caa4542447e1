r"""Expected counts of an HMM on a shard, from probabilities to counts without a logarithm.

With π, A, B the probabilities, e_t = B[x_t] / max_i B[x_t, i] and α, β the scaled messages:

    α_1 ∝ π ⊙ e_1      α_{t+1} ∝ (Aᵀ α_t) ⊙ e_{t+1}      β_t ∝ A (e_{t+1} ⊙ β_{t+1})

Working on probabilities themselves, an event of probability 0 is an exact 0 and derivatives exist
there too (with logarithms they would not), a word's factors are looked up ready-made, and JAX's
own forward mode runs the tangents through the same two scans: about twice the work.

Layout is [slots, labels, rows], as in `jaxseq.batch`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.batch import PackedBatch
from jaxseq.batch import _core as lattices
from jaxseq.chain._engines import Method, smallest_trusted
from jaxseq.chain._numerics import matmul, safe_divide
from jaxseq.learn._em_corpus import WordShard
from jaxseq.models._hmm import Multinomials, log_or_minus_infinity


class Tally(NamedTuple):
    """Counts of events, and the log-likelihood of the words (and labels, where known)."""

    counts: Multinomials
    log_likelihood: Float[Array, ""]


def shard_tally(parameters: Multinomials, shard: WordShard, method: Method = "auto") -> Tally:
    """Expected counts and log-likelihood of a shard under the normalised parameters.

    A sequence of probability 0 has log-likelihood −inf and no counts.
    """
    if method == "log":
        return _log_tally(parameters.normalised(), shard)
    tally, certified = certified_tally(parameters, shard)
    if method == "scaled":
        return tally
    # Checkpointed, or a linearisation would keep the log-space lattices that it hardly ever needs.
    slow = jax.checkpoint(_log_tally)
    return lax.cond(certified, lambda: tally, lambda: slow(parameters.normalised(), shard))


def certified_tally(parameters: Multinomials, shard: WordShard) -> tuple[Tally, Bool[Array, ""]]:
    """`shard_tally` by scaled probabilities, and whether nothing was lost to underflow.

    For a choice outside of compiled programs: one that holds the log-space functions too, although
    it does not run them, takes twice as long.
    """
    theta = parameters.normalised()
    tally, lowest = _scaled_tally(theta, shard)
    return tally, is_certified(theta, lowest)


# -------------------------------------------------------------------------- scaled space


class _Lowest(NamedTuple):
    """The smallest positive entry of any forward and backward message, and the smallest sum of
    their products at a slot (0 where they do not meet)."""

    ahead: Float[Array, "s c"]
    back: Float[Array, "s c"]
    met: Float[Array, " c"]


def _inverse(x: Array) -> Array:
    return safe_divide(jnp.ones_like(x), x)


def _lower(so_far: Array, values: Array) -> Array:
    values = lax.stop_gradient(values)
    return jnp.minimum(so_far, jnp.where(values > 0, values, 1))


def is_certified(theta: Multinomials, lowest: _Lowest, dtype: Any = None) -> Bool[Array, ""]:
    """Whether no entry of a message was lost to underflow, or would be in a narrower dtype.

    A step multiplies a message by a transition and a word's factor. As long as the smallest
    positive ones of the three have a product that can be trusted, an entry is 0 only where all
    ways to it are impossible, however many zeros the model has.
    """
    theta = lax.stop_gradient(theta)
    factors, _ = word_factors(theta)
    smallest = [
        jnp.where(family > 0, family, 1).min()
        for family in (theta.initial, theta.transition, factors)
    ]
    step = jnp.minimum(smallest[0], smallest[1]) * smallest[2]
    trusted = smallest_trusted(dtype or theta.initial.dtype)
    message = jnp.minimum(lowest.ahead.min(), lowest.back.min())
    return (message * step >= trusted) & (lowest.met.min() >= trusted)


def word_factors(theta: Multinomials) -> tuple[Float[Array, "v s"], Float[Array, "v 1"]]:
    """P(word | label), less a factor of each word's own, and these."""
    tops = _tops(theta)
    return safe_divide(theta.emission, jnp.broadcast_to(tops, theta.emission.shape)), tops


def _tops(theta: Multinomials) -> Float[Array, "v 1"]:
    # What a word's factors are divided by cancels: it need not be differentiated.
    return lax.stop_gradient(theta.emission).max(1, keepdims=True)


def _scaled_tally(theta: Multinomials, shard: WordShard) -> tuple[Tally, _Lowest]:
    factors, tops = word_factors(theta)
    log_tops = log_or_minus_infinity(tops[:, 0])

    def add_block(sums, block):
        tally, lowest = sums
        words, segments, allowed = block
        lattice, low = block_lattice(theta, factors, words, segments, allowed)
        found = tally_of(lattice, theta, words, segments)
        log_likelihood = jnp.where(segments >= 0, log_tops[words], 0).sum() + found.log_likelihood
        tally = jax.tree.map(jnp.add, tally, found._replace(log_likelihood=log_likelihood))
        return (tally, jax.tree.map(jnp.minimum, lowest, low)), None

    dtype, (s, c) = theta.initial.dtype, (theta.initial.shape[0], shard.words.shape[2])
    nothing = Tally(jax.tree.map(jnp.zeros_like, theta), jnp.zeros((), dtype))
    ones = _Lowest(jnp.ones((s, c), dtype), jnp.ones((s, c), dtype), jnp.ones(c, dtype))
    blocks = (shard.words, shard.segments, shard.allowed)
    return lax.scan(add_block, (nothing, ones), blocks)[0]


class BlockLattice(NamedTuple):
    """Forward–backward on a block of rows, [w, s, c] each but for totals and pairs.

    linked: [w, 1, c], whether a slot continues the sequence of the slot before it. totals [w, c]:
    what forward messages were divided by. masses: Aᵀα of the slot before. afters: e ⊙ β. raws:
    A(e ⊙ β) of the slot after, 1 at a sequence's end. labels: P(label | words). pairs [s, s]:
    expected transitions, each over its probability.
    """

    linked: Bool[Array, "w 1 c"]
    alphas: Float[Array, "w s c"]
    totals: Float[Array, "w c"]
    masses: Float[Array, "w s c"]
    afters: Float[Array, "w s c"]
    raws: Float[Array, "w s c"]
    labels: Float[Array, "w s c"]
    pairs: Float[Array, "s s"]


def block_lattice(
    theta: Multinomials,
    factors: Float[Array, "v s"],
    words: Int[Array, "w c"],
    segments: Int[Array, "w c"],
    allowed: Bool[Array, "w s c"] | None,
) -> tuple[BlockLattice, _Lowest]:
    """Both recursions. What a caller leaves unused is not computed either, once jitted."""
    (w, c), s = words.shape, theta.initial.shape[0]
    valid = segments >= 0
    linked = jnp.pad((segments[1:] == segments[:-1]) & valid[1:], ((1, 0), (0, 0)))[:, None]
    nodes = factors.at[words.reshape(-1)].get(mode="promise_in_bounds")
    nodes = nodes.reshape(w, c, s).transpose(0, 2, 1)
    legal = valid[:, None] if allowed is None else valid[:, None] & allowed
    nodes = jnp.where(legal, nodes, 0)

    def ahead(carry, slot):
        alpha, lowest = carry
        factor, link = slot
        mass = matmul(theta.transition.T, alpha)
        raw = jnp.where(link, mass, theta.initial[:, None]) * factor
        total = raw.sum(0)
        alpha = raw * _inverse(total)
        return (alpha, _lower(lowest, alpha)), (alpha, total, mass)

    start = jnp.zeros_like(nodes[0])
    ones = jnp.ones_like(start)
    (_, low_ahead), (alphas, totals, masses) = lax.scan(ahead, (start, ones), (nodes, linked))

    def back(carry, slot):
        # `after` is e ⊙ β of the next slot and `link` whether there is one in this sequence.
        after, counts, link, lowest, met = carry
        alpha, factor, linked_before, real = slot
        raw = jnp.where(link, matmul(theta.transition, after), 1)
        total = (alpha * raw).sum(0)
        share = alpha * _inverse(total)
        counts = counts + matmul(jnp.where(link, share, 0), after.T)
        after = raw * lax.stop_gradient(_inverse(raw.max(0))) * factor
        met = jnp.minimum(met, jnp.where(real, lax.stop_gradient(total), 1))
        carry = (after, counts, linked_before, _lower(lowest, after), met)
        return carry, (after, raw, share * raw)

    carry = (start, jnp.zeros_like(theta.transition), jnp.zeros_like(linked[0]), ones, ones[0])
    slots = (alphas, nodes, linked, valid)
    (_, pairs, _, low_back, met), kept = lax.scan(back, carry, slots, reverse=True)
    lattice = BlockLattice(linked, alphas, totals, masses, *kept, pairs)
    return lattice, _Lowest(low_ahead, low_back, met)


def tally_of(
    lattice: BlockLattice,
    theta: Multinomials,
    words: Int[Array, "w c"],
    segments: Int[Array, "w c"],
) -> Tally:
    """Counts of a block, and its log-likelihood less what words' factors were divided by."""
    by_token = lattice.labels.transpose(0, 2, 1).reshape(words.size, -1)
    emission = jnp.zeros_like(theta.emission)
    emission = emission.at[words.reshape(-1)].add(by_token, mode="promise_in_bounds")
    initial = jnp.where(lattice.linked, 0, lattice.labels).sum((0, 2))
    log_likelihood = jnp.where(segments >= 0, log_or_minus_infinity(lattice.totals), 0).sum()
    counts = Multinomials(initial, lattice.pairs * theta.transition, emission)
    return Tally(counts, log_likelihood)


# ----------------------------------------------------------------------------- log space


def shard_batch(theta: Multinomials, shard: WordShard) -> PackedBatch:
    """The shard's scores, log P, as a batch for the functions of `jaxseq.batch`; rows are those of
    the shard, block after block, and sequence q is segment q."""
    words, segments = _by_row(shard.words), _by_row(shard.segments)
    first = jnp.pad(segments[:, :-1], ((0, 0), (1, 0)), constant_values=-1) != segments
    log_theta = theta.log()
    nodes = log_theta.emission[words] + jnp.where(first[..., None], log_theta.initial, 0)
    if shard.allowed is not None:
        nodes = jnp.where(_by_row(shard.allowed), nodes, -jnp.inf)
    return PackedBatch(nodes, log_theta.transition, segments, shard.num_sequences)


def _by_row(values: Array) -> Array:
    """[blocks, slots, …, rows] as [blocks · rows, slots, …]."""
    values = jnp.moveaxis(values, -1, 1)
    return values.reshape(-1, *values.shape[2:])


def _log_tally(theta: Multinomials, shard: WordShard) -> Tally:
    batch = shard_batch(theta, shard)
    ones = jnp.ones(batch.segments.shape, batch.nodes.dtype)
    log_z, labels, pairs = lattices.marginals(
        batch.nodes, batch.edges, batch.segments, ones, shard.num_sequences, "log"
    )
    return Tally(count_slots(labels, pairs, shard, theta), log_z.sum())


def count_slots(
    labels: Float[Array, "r w s"], pairs: Float[Array, "s s"], shard: WordShard, like: Multinomials
) -> Multinomials:
    """Counts from how often each slot has each label, and the transitions of all."""
    words, segments = _by_row(shard.words), _by_row(shard.segments)
    first = jnp.pad(segments[:, :-1], ((0, 0), (1, 0)), constant_values=-1) != segments
    first = first & (segments >= 0)
    emission = jnp.zeros_like(like.emission).at[words].add(labels)
    return Multinomials(jnp.where(first[..., None], labels, 0).sum((0, 1)), pairs, emission)
