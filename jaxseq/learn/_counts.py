"""Counts of an HMM's events on a corpus: of known labels, of the best labels, or expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxseq.batch import batch_log_partition, batch_viterbi, map_on_cores
from jaxseq.chain._chain import is_concrete
from jaxseq.chain._engines import Method, check_method
from jaxseq.learn._em_corpus import WordCorpus, WordShard
from jaxseq.learn._em_lattice import Tally, certified_tally, count_slots, shard_batch, shard_tally
from jaxseq.learn._mesh_counts import mesh_expected_counts, peers_of, sum_on_mesh
from jaxseq.models._hmm import Multinomials

FAMILIES = Multinomials._fields
"""The names of the families: initial, transition, emission."""


def check_corpus(name: str, corpus: Any) -> None:
    """Refuse what is no corpus."""
    if not isinstance(corpus, WordCorpus):
        raise ValueError(f"{name}: expected sequences of word_corpus, got {corpus!r:.60}")


def check_fits(parameters: Multinomials, corpus: WordCorpus, name: str = "corpus") -> None:
    """Refuse a corpus with other words or labels than the parameters are for."""
    v, s = parameters.emission.shape
    if corpus.num_words != v:
        raise ValueError(
            f"{name}: expected {v} words, as many as the model has, got {corpus.num_words}"
        )
    if corpus.num_labels not in (None, s):
        raise ValueError(
            f"{name}: expected {s} labels, as many as the model has, got {corpus.num_labels}"
        )


def check_families(name: str, families: Any) -> None:
    """Refuse names that are no families, and one name for several."""
    if isinstance(families, str) or not isinstance(families, tuple | list):
        wanted = f"a tuple of some of {', '.join(FAMILIES)}"
        raise ValueError(f"{name}: expected {wanted}, got {families!r:.60}")
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"{name}: expected some of {', '.join(FAMILIES)}, got {family!r}")


def is_traced(parameters: Multinomials) -> bool:
    """Whether a program is being built, rather than run."""
    return not all(is_concrete(leaf) for leaf in jax.tree.leaves(parameters))


def add_up(trees: list):
    """The sum of pytrees, entry by entry."""
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *trees)


def _over_shards(fn: Callable[[WordShard], Tally], parameters, corpus: WordCorpus) -> Tally:
    """The sum over the shards, on all cores unless it is being traced."""
    if is_traced(parameters):
        found = [fn(shard) for shard in corpus.shards]
    else:
        found = map_on_cores(fn, corpus.shards)
    return add_up(found)


_tally = jax.jit(shard_tally, static_argnums=2)
_certified_tally = jax.jit(certified_tally)


def _tally_shard(parameters: Multinomials, shard: WordShard, method: Method) -> Tally:
    if method != "auto" or is_traced(parameters):
        return _tally(parameters, shard, method)
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
        mesh: devices to share the sequences out to, of `jaxseq.scale.make_mesh`; counts are summed
            along its axis ``"data"``. Where it spans several processes, `corpus` is the part of
            this one, and all call this together.

    Returns:
        ``.counts``, sums over the corpus, and ``.log_likelihood``. A sequence of probability 0
        makes the latter −inf, and is not counted.

    Cost: O(N s² + v s) time for N tokens, O(N s) memory; a ``jax.jvp`` about 2.5 times that. On
    all cores, a shard each, when called outside of any tracing.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.models import Multinomials
        >>> uniform = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.ones((3, 2)))
        >>> found = expected_counts(uniform, word_corpus([[0, 1, 1]], 3))
        >>> found.counts.emission.tolist()
        [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]

    References:
        Haffari & Sarkar 2008, equation 5; Rabiner 1989.
    """
    check_method(method)
    check_fits(parameters, corpus)
    if mesh is not None:
        return mesh_expected_counts(parameters, corpus, method, mesh, is_traced(parameters))
    return _over_shards(lambda shard: _tally_shard(parameters, shard, method), parameters, corpus)


def mean_counts(
    parameters: Multinomials,
    corpus: WordCorpus,
    *,
    method: Method = "auto",
    mesh: Mesh | None = None,
) -> Multinomials:
    r"""Expected counts a sequence, :math:`\mathrm{EM}_1(\tilde\Theta) = E_U(\Theta)`.

    `expected_counts` divided by the number of sequences: the map from unnormalised parameters to
    unnormalised parameters whose fixed points are those of EM on unlabelled sequences.

    Args and cost: as `expected_counts`.

    Raises:
        ValueError: for a corpus without a single token.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.models import Multinomials
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
    number = number_of(corpus, mesh)
    return jax.tree.map(lambda family: family / number, counts)


def number_of(corpus: WordCorpus, mesh: Mesh | None = None, name: str = "corpus") -> int:
    """How many sequences all processes of the mesh have, which must not be none."""
    number = sum(peers_of(mesh).exchange(corpus.num_sequences))
    if number == 0:
        raise ValueError(f"{name}: expected at least one sequence with a token, got none")
    return number


def _tally_best(parameters: Multinomials, shard: WordShard) -> Tally:
    theta = parameters.normalised()
    batch = shard_batch(theta, shard)
    labels, scores = batch_viterbi(batch)
    s = theta.initial.shape[0]
    marks = jax.nn.one_hot(labels, s, dtype=theta.initial.dtype)  # zeros for −1
    segments = batch.segments
    linked = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] >= 0) & (labels[:, 1:] >= 0)
    pair = jnp.where(linked, labels[:, :-1] * s + labels[:, 1:], s * s)
    pairs = jnp.zeros(s * s, marks.dtype).at[pair].add(1, mode="drop").reshape(s, s)
    return Tally(count_slots(marks, pairs, shard, theta), scores.sum())


_best_tally = jax.jit(_tally_best)


def viterbi_counts(
    parameters: Multinomials, corpus: WordCorpus, *, mesh: Mesh | None = None
) -> Tally:
    r"""Counts of the events of each sequence's best labelling: the E-step of hard EM.

    Args:
        parameters, corpus, mesh: as in `expected_counts`; labels that are known are kept.

    Returns:
        ``.counts``, and as ``.log_likelihood`` that of words and best labels together,
        :math:`\sum_x \max_y \log P(x, y \mid \Theta)`. A sequence of probability 0 makes it −inf,
        and is not counted.

    Cost: O(N s² + v s) for N tokens. On all cores when not traced.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.models import Multinomials
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> viterbi_counts(point, word_corpus([[0, 1, 1]], 2)).counts.emission.tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    check_fits(parameters, corpus)
    if mesh is not None:
        return sum_on_mesh(parameters, corpus, _tally_best, mesh)
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
        >>> from jaxseq.learn import word_corpus
        >>> corpus = word_corpus([[0, 1, 1]], 2, labels=[[0, 1, -1]], num_labels=2)
        >>> known_counts(corpus, 2).transition.tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    v, s = corpus.num_words, num_labels
    if corpus.num_labels not in (None, s):
        raise ValueError(f"num_labels: expected the corpus's {corpus.num_labels}, got {s}")
    labels = corpus.labels
    starts = (np.cumsum(corpus.lengths) - corpus.lengths).astype(np.int64)
    first = np.zeros(len(labels), bool)
    first[starts] = True
    known = labels >= 0
    pair = ~first[1:] & known[1:] & known[:-1]
    initial = np.bincount(labels[first & known], minlength=s)
    transition = np.bincount((labels[:-1] * s + labels[1:])[pair], minlength=s * s)
    emission = np.bincount((corpus.words.astype(np.int64) * s + labels)[known], minlength=v * s)
    dtype = jnp.result_type(float) if dtype is None else dtype
    peers = peers_of(mesh)
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
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.models import Multinomials
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[1.0, 1.0], [0.0, 0.0]]))
        >>> log_likelihoods(point, word_corpus([[0], [0, 1]], 2)).tolist()
        [0.0, -inf]
    """
    check_fits(parameters, corpus)
    found = map_on_cores(lambda shard: _log_partitions(parameters, shard), corpus.shards)
    out = np.empty(corpus.num_sequences, np.asarray(found[0]).dtype)
    for values, owner in zip(found, corpus.owners):
        out[owner] = np.asarray(values)[: len(owner)]
    return out
