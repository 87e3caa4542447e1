"""Counts of an HMM's events on a corpus: of known labels, of the best labels, or expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from jaxseq._runtime import map_on_cores
from jaxseq.crf import on_devices, own
from jaxseq.hmm._corpus import WordCorpus, WordShard
from jaxseq.hmm._model import Multinomials, log_or_minus_infinity
from jaxseq.lattice import (
    Method,
    PackedBatch,
    batch_log_partition,
    batch_viterbi,
    check_method,
    flat_marginals,
    is_concrete,
    matmul,
    safe_divide,
    smallest_trusted,
)
from jaxseq.parallel import (
    BY_DATA,
    DATA,
    EVERYWHERE,
    check_mesh,
    mesh_peers,
    off_mesh,
    own_rows,
    place,
    place_rows,
)

# -------------------------------------------------------------------------------------------------
# Expected counts of an HMM on a shard, from probabilities to counts without a logarithm.
#
# With π, A, B the probabilities, e_t = B[x_t] / max_i B[x_t, i] and α, β the scaled messages:
#
#     α_1 ∝ π ⊙ e_1      α_{t+1} ∝ (Aᵀ α_t) ⊙ e_{t+1}      β_t ∝ A (e_{t+1} ⊙ β_{t+1})
#
# Working on probabilities themselves, an event of probability 0 is an exact 0 and derivatives exist
# there too (with logarithms they would not), a word's factors are looked up ready-made, and JAX's
# own forward mode runs the tangents through the same two scans: about twice the work.
#
# Layout is [slots, labels, rows], as in `jaxseq.lattice`.


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

    The caller chooses what to do then, outside of compiled programs: one that holds the log-space
    functions too, although it does not run them, takes twice as long.
    """
    theta = parameters.normalised()
    tally, lowest = _scaled_tally(theta, shard)
    return tally, is_certified(theta, lowest)


class _Lowest(NamedTuple):
    """The smallest positive entry of any forward and backward message, and the smallest sum of
    their products at a slot (0 where they do not meet)."""

    ahead: Float[Array, "s c"]
    back: Float[Array, "s c"]
    met: Float[Array, " c"]


def _inverse(x: Array) -> Array:
    return safe_divide(jnp.ones_like(x), x)


def _lower(so_far: Array, values: Array) -> Array:
    # A certificate has no derivative; without this, forward mode would carry its tangent along.
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
    # What a word's factors are divided by cancels: it need not be differentiated.
    tops = lax.stop_gradient(theta.emission).max(1, keepdims=True)
    return safe_divide(theta.emission, jnp.broadcast_to(tops, theta.emission.shape)), tops


def _scaled_tally(theta: Multinomials, shard: WordShard) -> tuple[Tally, _Lowest]:
    factors, tops = word_factors(theta)
    log_tops = log_or_minus_infinity(tops[:, 0])

    def add_block(sums, block):
        tally, lowest = sums
        words, segments, allowed = block
        lattice, low = block_lattice(theta, factors, words, segments, allowed)
        of_block = block_tally(lattice, theta, words, segments)
        # What the factors were divided by comes back in the likelihood, and nowhere else.
        log_likelihood = (
            jnp.where(segments >= 0, log_tops[words], 0).sum() + of_block.log_likelihood
        )
        tally = jax.tree.map(jnp.add, tally, of_block._replace(log_likelihood=log_likelihood))
        return (tally, jax.tree.map(jnp.minimum, lowest, low)), None

    dtype, (s, c) = theta.initial.dtype, (theta.initial.shape[0], shard.words.shape[2])
    nothing = Tally(jax.tree.map(jnp.zeros_like, theta), jnp.zeros((), dtype))
    ones = _Lowest(jnp.ones((s, c), dtype), jnp.ones((s, c), dtype), jnp.ones(c, dtype))
    blocks = (shard.words, shard.segments, shard.allowed)
    return lax.scan(add_block, (nothing, ones), blocks)[0]


class BlockLattice(NamedTuple):
    """Forward–backward on a block of rows."""

    linked: Bool[Array, "w 1 c"]  # whether a slot continues the sequence of the slot before it
    alphas: Float[Array, "w s c"]  # α
    totals: Float[Array, "w c"]  # what forward messages were divided by
    masses: Float[Array, "w s c"]  # Aᵀα of the slot before
    afters: Float[Array, "w s c"]  # e ⊙ β
    raws: Float[Array, "w s c"]  # A(e ⊙ β) of the slot after, 1 at a sequence's end
    labels: Float[Array, "w s c"]  # P(label | words)
    pairs: Float[Array, "s s"]  # expected transitions, each over its probability


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
    # Words are in bounds by construction; clamping them would cost a pass over all slots.
    nodes = factors.at[words.reshape(-1)].get(mode="promise_in_bounds")
    nodes = nodes.reshape(w, c, s).transpose(0, 2, 1)
    legal = valid[:, None] if allowed is None else valid[:, None] & allowed
    # On padding all labels are impossible: nothing there is counted, nor passed on.
    nodes = jnp.where(legal, nodes, 0)

    def ahead(carry, slot):
        alpha, lowest = carry
        factor, link = slot
        mass = matmul(theta.transition.T, alpha)
        # A row holds several sequences; where one begins, nothing of the one before is left.
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
        # One product per slot for all rows; the transitions' own factor is put in at the end.
        counts = counts + matmul(jnp.where(link, share, 0), after.T)
        # Backward messages may have any scale, as shares are normalised by themselves.
        after = raw * lax.stop_gradient(_inverse(raw.max(0))) * factor
        # Where messages hardly meet, one of them has lost what mattered.
        met = jnp.minimum(met, jnp.where(real, lax.stop_gradient(total), 1))
        carry = (after, counts, linked_before, _lower(lowest, after), met)
        return carry, (after, raw, share * raw)

    carry = (start, jnp.zeros_like(theta.transition), jnp.zeros_like(linked[0]), ones, ones[0])
    slots = (alphas, nodes, linked, valid)
    (_, pairs, _, low_back, met), kept = lax.scan(back, carry, slots, reverse=True)
    lattice = BlockLattice(linked, alphas, totals, masses, *kept, pairs)
    return lattice, _Lowest(low_ahead, low_back, met)


def block_tally(
    lattice: BlockLattice,
    theta: Multinomials,
    words: Int[Array, "w c"],
    segments: Int[Array, "w c"],
) -> Tally:
    """Counts of a block, and its log-likelihood less what words' factors were divided by."""
    by_token = lattice.labels.transpose(0, 2, 1).reshape(words.size, -1)
    emission = jnp.zeros_like(theta.emission)
    # A scatter over tokens, so that nothing of [tokens, vocabulary] is ever made.
    emission = emission.at[words.reshape(-1)].add(by_token, mode="promise_in_bounds")
    initial = jnp.where(lattice.linked, 0, lattice.labels).sum((0, 2))
    log_likelihood = jnp.where(segments >= 0, log_or_minus_infinity(lattice.totals), 0).sum()
    counts = Multinomials(initial, lattice.pairs * theta.transition, emission)
    return Tally(counts, log_likelihood)


def shard_batch(theta: Multinomials, shard: WordShard) -> PackedBatch:
    """The shard's scores, log P, as a batch for the functions of `jaxseq.lattice`.

    Rows are those of the shard, block after block, and sequence q is segment q.
    """
    words, segments, first = _rows(shard)
    log_theta = theta.log()
    nodes = log_theta.emission[words] + jnp.where(first[..., None], log_theta.initial, 0)
    if shard.allowed is not None:
        nodes = jnp.where(_by_row(shard.allowed), nodes, -jnp.inf)
    return PackedBatch(nodes, log_theta.transition, segments, shard.num_sequences)


def _by_row(values: Array) -> Array:
    """[blocks, slots, …, rows] as [blocks · rows, slots, …]."""
    values = jnp.moveaxis(values, -1, 1)
    return values.reshape(-1, *values.shape[2:])


def _rows(shard: WordShard) -> tuple[Array, Array, Array]:
    """Words and segments by row, and whether a slot is the first of its segment, or of padding."""
    words, segments = _by_row(shard.words), _by_row(shard.segments)
    first = jnp.pad(segments[:, :-1], ((0, 0), (1, 0)), constant_values=-1) != segments
    return words, segments, first


def _log_tally(theta: Multinomials, shard: WordShard) -> Tally:
    batch = shard_batch(theta, shard)
    ones = jnp.ones(batch.segments.shape, batch.nodes.dtype)
    log_z, labels, pairs = flat_marginals(
        batch.nodes, batch.edges, batch.segments, ones, shard.num_sequences, "log"
    )
    return Tally(count_slots(labels, pairs, shard, theta), log_z.sum())


def count_slots(
    labels: Float[Array, "r w s"], pairs: Float[Array, "s s"], shard: WordShard, like: Multinomials
) -> Multinomials:
    """Counts from how often each slot has each label, and the transitions of all."""
    words, segments, first = _rows(shard)
    first = first & (segments >= 0)
    emission = jnp.zeros_like(like.emission).at[words].add(labels)
    return Multinomials(jnp.where(first[..., None], labels, 0).sum((0, 1)), pairs, emission)


# -------------------------------------------------------------------------------------------------
# The E-step of an HMM on the devices of a mesh.


def place_words(corpus: WordCorpus, mesh: Mesh) -> WordShard:
    """The corpus on the mesh: arrays with one more axis, the first, along ``"data"``."""
    with jax.ensure_compile_time_eval():  # also while a program is being built
        shards = replace(corpus, cores=len(own_rows(mesh))).shards
        first = shards[0]
        labels = (0, 0) if first.allowed is None else (first.allowed.shape[2], 1)
        # One program runs in all processes, so all shards must have one shape: the largest.
        shape = [*first.words.shape, first.num_sequences, *labels]
        shape = [max(sizes) for sizes in zip(*mesh_peers(mesh).exchange(shape))]
        return place_rows([_grow(shard, shape) for shard in shards], mesh)


def _grow(shard: WordShard, shape: list[int]) -> WordShard:
    """The shard in another shape, at least as large."""
    blocks, width, rows, sequences, labels, restricted = shape
    size = (blocks, width, rows)

    def grow(array, size, fill):
        if array is not None and tuple(array.shape) == size:
            return array
        out = np.full(size, fill)
        if array is not None:
            out = out.astype(array.dtype)
            out[tuple(slice(n) for n in array.shape)] = np.asarray(array)
        return jnp.asarray(out)

    allowed = shard.allowed
    if restricted:  # in some process: then all have the array, where anything goes in the others
        allowed = grow(allowed, (blocks, width, labels, rows), True)
    words, segments = grow(shard.words, size, 0), grow(shard.segments, size, -1)
    return WordShard(words, segments, allowed, sequences)


@partial(jax.jit, static_argnames=("tally", "method", "mesh"))
def _sum_on_mesh(parameters, shards: WordShard, tally: Callable, method: tuple, mesh: Mesh):
    """The sum of ``tally(parameters, shard, *method)`` over the shards of all devices."""

    def on_device(parameters, shards):
        return lax.psum(tally(parameters, own(shards), *method), DATA)

    return on_devices(on_device, mesh, (EVERYWHERE, BY_DATA), EVERYWHERE)(parameters, shards)


def _certified_or_not(parameters: Multinomials, shard: WordShard) -> tuple[Tally, Array]:
    """`certified_tally` with a number in place of a boolean, of which there is no sum."""
    tally, certified = certified_tally(parameters, shard)
    return tally, (~certified).astype(jnp.int32)


FAMILIES = Multinomials._fields
"""The names of the families: initial, transition, emission."""


def check_corpus(name: str, corpus: Any) -> None:
    """ValueError for anything but a corpus."""
    if not isinstance(corpus, WordCorpus):
        raise ValueError(f"{name}: expected sequences of word_corpus, got {corpus!r:.60}")


def check_fits(parameters: Multinomials, corpus: WordCorpus, name: str = "corpus") -> None:
    """ValueError for a corpus with other words or labels than the parameters are for."""
    v, s = parameters.emission.shape
    for what, want, got in (("words", v, corpus.num_words), ("labels", s, corpus.num_labels)):
        if got not in (None, want):
            raise ValueError(f"{name}: expected {want} {what}, as many as the model has, got {got}")


def check_families(name: str, families: Any) -> None:
    """ValueError for names of other things than families, and for one name in place of several."""
    if isinstance(families, str) or not isinstance(families, tuple | list):
        wanted = f"a tuple of some of {', '.join(FAMILIES)}"
        raise ValueError(f"{name}: expected {wanted}, got {families!r:.60}")
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"{name}: expected some of {', '.join(FAMILIES)}, got {family!r}")


def _is_traced(parameters: Multinomials) -> bool:
    """Whether a program is being built, rather than run."""
    return not all(is_concrete(leaf) for leaf in parameters)


def add_up(trees: list):
    """The sum of pytrees, entry by entry."""
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *trees)


def _over_shards(fn: Callable[[WordShard], Tally], parameters, corpus: WordCorpus) -> Tally:
    """The sum over the shards, on all cores unless it is being traced."""
    # Tracers belong to the thread that traces.
    run = map if _is_traced(parameters) else map_on_cores
    return add_up(list(run(fn, corpus.shards)))


_tally = jax.jit(shard_tally, static_argnums=2)
_certified_tally = jax.jit(certified_tally)


def _tally_shard(parameters: Multinomials, shard: WordShard, method: Method) -> Tally:
    if method != "auto" or _is_traced(parameters):
        return _tally(parameters, shard, method)
    # The choice is made here, on the host: see `certified_tally`.
    tally, certified = _certified_tally(parameters, shard)
    return tally if certified else _tally(parameters, shard, "log")


def expected_counts(
    parameters: Multinomials,
    corpus: WordCorpus,
    *,
    method: Method = "auto",
    mesh: Mesh | None = None,
) -> Tally:
    r"""The E-step: expected counts of all events, and the log-likelihood.

    .. math::
        \sum_x \sum_y P(y \mid x, \Theta) \, \mathrm{Count}(x, y, \omega)
        \qquad \sum_x \log P(x \mid \Theta)

    over the sequences x of the corpus and the labellings y that agree with what is known of its
    labels. Pure, and differentiable by the parameters in forward and reverse mode, also at
    parameters that are 0.

    Args:
        parameters: non-negative, not necessarily normalised.
        corpus: of `word_corpus`, with as many words and labels.
        method: ``"scaled"`` works on scaled probabilities, ``"log"`` in log space for any range
            (derivatives by parameters that are 0 are then 0); ``"auto"`` does the first, and the
            second for a shard where it was not safe. While JAX traces (``jax.jit``, ``jax.jvp``)
            ``"auto"`` takes twice as long as ``"scaled"``: both are then in one program.
        mesh: devices to share the sequences out to, of `jaxseq.parallel.make_mesh`; counts are
            summed along its axis ``"data"``. Where it spans several processes, `corpus` is the
            part of this one, and all call this together.

    Returns:
        ``.counts``, sums over the corpus, and ``.log_likelihood``. A sequence of probability 0
        makes the latter −inf, and is not counted.

    Cost: O(N s² + v s) time for N tokens, O(N s) memory; a ``jax.jvp`` about 2.5 times that. On
    all cores, a shard each, when called outside of any tracing.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> uniform = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.ones((3, 2)))
        >>> tally = expected_counts(uniform, word_corpus([[0, 1, 1]], 3))
        >>> tally.counts.emission.tolist()
        [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]

    References:
        Haffari & Sarkar 2008, equation 5; Rabiner 1989.
    """
    check_method(method)
    check_fits(parameters, corpus)
    if mesh is None:
        return _over_shards(lambda s: _tally_shard(parameters, s, method), parameters, corpus)
    mesh, traced = check_mesh(mesh), _is_traced(parameters)
    shards, parameters = corpus.on(mesh), place(parameters, mesh)
    if method == "auto" and not traced:
        tally, doubtful = _sum_on_mesh(parameters, shards, _certified_or_not, (), mesh)
        if not int(doubtful):
            return off_mesh(tally)
    tally = _sum_on_mesh(parameters, shards, shard_tally, (method,), mesh)
    return tally if traced else off_mesh(tally)


def mean_counts(
    parameters: Multinomials,
    corpus: WordCorpus,
    *,
    method: Method = "auto",
    mesh: Mesh | None = None,
) -> Multinomials:
    r"""Expected counts per sequence, :math:`\mathrm{EM}_1(\tilde\Theta) = E_U(\Theta)`.

    `expected_counts` divided by the number of sequences: the map from unnormalised parameters to
    unnormalised parameters whose fixed points are those of EM on unlabelled sequences.

    Args and cost: as `expected_counts`.

    Raises:
        ValueError: for a corpus without a single token.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> corpus = word_corpus([[0, 1], [1]], 2)
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> mean_counts(point, corpus).initial.tolist()
        [0.5, 0.5]
        >>> move = jax.tree.map(jnp.zeros_like, point)._replace(initial=jnp.array([1.0, 0.0]))
        >>> mean, change = jax.jvp(lambda p: mean_counts(p, corpus), (point,), (move,))
        >>> change.initial.tolist()
        [0.1875, -0.1875]
    """
    counts = expected_counts(parameters, corpus, method=method, mesh=mesh).counts
    number = count_sequences(corpus, mesh)
    return jax.tree.map(lambda family: family / number, counts)


def count_sequences(corpus: WordCorpus, mesh: Mesh | None = None, name: str = "corpus") -> int:
    """How many sequences all processes of the mesh have; ValueError if there is none."""
    number = sum(mesh_peers(mesh).exchange(corpus.num_sequences))
    if number == 0:
        raise ValueError(f"{name}: expected at least one sequence with a token, got none")
    return number


def _tally_best(parameters: Multinomials, shard: WordShard) -> Tally:
    theta = parameters.normalised()
    batch = shard_batch(theta, shard)
    labels, scores = batch_viterbi(batch)
    s = theta.initial.shape[0]
    # The label is −1 on padding and in sequences that have no possible labelling.
    marks = jax.nn.one_hot(labels, s, dtype=theta.initial.dtype)  # zeros for −1
    segments = batch.segments
    linked = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] >= 0) & (labels[:, 1:] >= 0)
    pair = jnp.where(linked, labels[:, :-1] * s + labels[:, 1:], s * s)  # out of bounds: dropped
    pairs = jnp.zeros(s * s, marks.dtype).at[pair].add(1, mode="drop").reshape(s, s)
    return Tally(count_slots(marks, pairs, shard, theta), scores.sum())


_best_tally = jax.jit(_tally_best)


def viterbi_counts(
    parameters: Multinomials, corpus: WordCorpus, *, mesh: Mesh | None = None
) -> Tally:
    r"""Counts of the events of each sequence's best labelling: the E-step of hard EM.

    Args:
        parameters: as in `expected_counts`.
        corpus: as in `expected_counts`; labels that are known are kept.
        mesh: as in `expected_counts`.

    Returns:
        ``.counts``, and as ``.log_likelihood`` that of words and best labels together,
        :math:`\sum_x \max_y \log P(x, y \mid \Theta)`. A sequence of probability 0 makes it −inf,
        and is not counted.

    Cost: O(N s² + v s) for N tokens. On all cores when not traced.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> viterbi_counts(point, word_corpus([[0, 1, 1]], 2)).counts.emission.tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    check_fits(parameters, corpus)
    if mesh is not None:
        mesh = check_mesh(mesh)
        shards, parameters = corpus.on(mesh), place(parameters, mesh)
        return off_mesh(_sum_on_mesh(parameters, shards, _tally_best, (), mesh))
    return _over_shards(lambda shard: _best_tally(parameters, shard), parameters, corpus)


def known_counts(
    corpus: WordCorpus, num_labels: int, dtype=None, *, mesh: Mesh | None = None
) -> Multinomials:
    """Counts of the events that are known for sure, all of them where every label is.

    An event counts when every label in it is known: a first label, a pair, a label with its word.

    Args:
        corpus: of `word_corpus`.
        num_labels: s.
        dtype: of the counts; JAX's default float if None.
        mesh: where it spans several processes, counts are summed over all of them.

    Cost: O(N + v s) on the host.

    Example:
        >>> from jaxseq.hmm import word_corpus
        >>> corpus = word_corpus([[0, 1, 1]], 2, labels=[[0, 1, -1]], num_labels=2)
        >>> known_counts(corpus, 2).transition.tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    v, s = corpus.num_words, num_labels
    if corpus.num_labels not in (None, s):
        raise ValueError(f"num_labels: expected the corpus's {corpus.num_labels}, got {s}")
    labels = corpus.labels
    # Tokens lie one after another: a pair across the border of two sequences is none.
    first = np.zeros(len(labels), bool)
    first[np.cumsum(corpus.lengths) - corpus.lengths] = True
    known = labels >= 0
    pair = ~first[1:] & known[1:] & known[:-1]
    initial = np.bincount(labels[first & known], minlength=s)
    transition = np.bincount((labels[:-1] * s + labels[1:])[pair], minlength=s * s)
    emission = np.bincount((corpus.words.astype(np.int64) * s + labels)[known], minlength=v * s)
    # Whole numbers are summed over processes before they are rounded to a float.
    dtype = jnp.result_type(float) if dtype is None else dtype
    peers = mesh_peers(mesh)
    initial, transition, emission = (peers.sum(a) for a in (initial, transition, emission))
    arrays = (initial, transition.reshape(s, s), emission.reshape(v, s))
    return Multinomials(*(jnp.asarray(array, dtype) for array in arrays))


@jax.jit
def _log_partitions(parameters: Multinomials, shard: WordShard) -> Array:
    return batch_log_partition(shard_batch(parameters.normalised(), shard))


def log_likelihoods(parameters: Multinomials, corpus: WordCorpus) -> np.ndarray:
    """log P of the words (and known labels) of each sequence [B]; −inf where it is impossible.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[1.0, 1.0], [0.0, 0.0]]))
        >>> log_likelihoods(point, word_corpus([[0], [0, 1]], 2)).tolist()
        [0.0, -inf]
    """
    check_fits(parameters, corpus)
    parts = map_on_cores(lambda shard: _log_partitions(parameters, shard), corpus.shards)
    out = np.empty(corpus.num_sequences, np.asarray(parts[0]).dtype)
    for values, owner in zip(parts, corpus.owners):  # segments beyond an owner's are padding
        out[owner] = np.asarray(values)[: len(owner)]
    return out
