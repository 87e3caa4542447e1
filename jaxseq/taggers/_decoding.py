"""Predictions of a trained model under constraints."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.constraints import (
    Constraints,
    CorpusLabellings,
    Scheme,
    bind_constraints,
    search_corpus,
)
from jaxseq.crf import (
    CRF,
    Layout,
    Shard,
    lay_out,
    make_shards,
    mesh_scores,
    node_scores,
    on_devices,
    own,
)
from jaxseq.lattice import (
    Chain,
    PackedBatch,
    batch_marginals,
    batch_viterbi,
    k_best,
    log_partition,
    marginals,
    viterbi,
)
from jaxseq.parallel import (
    BY_DATA,
    EVERYWHERE,
    check_mesh,
    own_mesh,
    own_parts,
    place,
    place_rows,
)
from jaxseq.taggers._labels import Label, check_labels, check_sentence_weights
from jaxseq.text import TokenFeatures

# -------------------------------------------------------------------------------------------------
# What estimators of label sequences make of their predictions, whatever the model.


def split_by_sentence(values: Any, lengths: np.ndarray) -> list[Any]:
    """Values of all tokens, as one piece a sentence.

    Example:
        >>> split_by_sentence(["a", "b", "c"], np.array([2, 0, 1]))
        [['a', 'b'], [], ['c']]
    """
    ends = np.cumsum(lengths)
    return [values[end - n : end] for end, n in zip(ends.tolist(), lengths.tolist())]


def token_score(
    predicted: Sequence[Sequence[str]], y: Sequence[Sequence[Label]], sample_weight: Any = None
) -> float:
    """Share of tokens that get their label; those without a known label do not count.

    Args:
        predicted: labels of each sentence. y: what is known of the right ones.
        sample_weight: how much each sentence counts, or None.

    Example:
        >>> token_score([["A", "B"], ["A"]], [["A", "A"], [None]])
        0.5
    """
    lengths = np.array([len(sentence) for sentence in predicted], np.int64)
    flat = check_labels(y, lengths)
    weights = check_sentence_weights(sample_weight, len(lengths))
    by_token = np.repeat(np.ones(len(lengths)) if weights is None else weights, lengths)
    guesses = (label for sentence in predicted for label in sentence)
    right = np.array([guess == gold for guess, gold in zip(guesses, flat)], bool)
    known = np.array([isinstance(gold, str) for gold in flat], bool)
    total = by_token[known].sum()
    if not total > 0:
        raise ValueError("y: expected at least one token with a known label, got none")
    return float(by_token[known & right].sum() / total)


# -------------------------------------------------------------------------------------------------
# A trained model on new sentences, on the devices of a mesh.


def own_places(mesh: Mesh) -> int:
    """How many shards are done at a time."""
    return own_mesh(check_mesh(mesh)).size


@partial(jax.jit, static_argnames=("num", "run", "mesh"))
def _run(nodes, edges, segments, num: int, run: Callable[..., Array], mesh: Mesh) -> Array:
    def on_device(nodes, edges, segments):
        return run(nodes[0], edges, segments[0], num)[None]

    specs = (BY_DATA, EVERYWHERE, BY_DATA)
    return on_devices(on_device, mesh, specs, BY_DATA)(nodes, edges, segments)


def on_mesh(
    model: CRF, features: TokenFeatures, layout: Layout, run: Callable[..., Array], mesh: Mesh
) -> np.ndarray:
    """Per-slot results of ``run(nodes, edges, segments, num)``, one row a token.

    Sentences do not depend on each other: only the devices of this process take part, and nothing
    is sent between them.

    Args:
        model: the model. features: of this process's sentences. layout: where their tokens go.
        run: a jitted function of the rows of one shard.
        mesh: as of `jaxseq.parallel.make_mesh`.
    """
    mesh = own_mesh(check_mesh(mesh))
    places = mesh.size
    shards = make_shards(layout, features, model.num_attributes)
    model = place(model, mesh)
    found: list[np.ndarray] = []
    for first in range(0, len(shards), places):
        group = shards[first : first + places]
        # A full row of devices every time: the last shard again where there are no more.
        placed = place_rows([*group, *[group[-1]] * (places - len(group))], mesh)
        ends = (model.start, model.stop)
        nodes = mesh_scores(model.table, *ends, placed, mesh, model.num_labels)
        result = _run(nodes, model.transitions, placed.segments, placed.num_sequences, run, mesh)
        found += own_parts(result)[: len(group)]
    return layout.collect(found)


# --------------------------------------------------------------------- sentence by sentence


class PaddedChains(NamedTuple):
    """Sentences of one width, padded: their attributes [b, width, k] and lengths [b]."""

    ids: Any
    values: Any
    pairs: Any
    lengths: Any


@partial(jax.jit, static_argnums=5)
def run_chains(model: CRF, ids, values, pairs, lengths, run: Callable[[Chain], Any]) -> Any:
    """`run` on the chain of every sentence of `PaddedChains`."""

    def one(ids, values, pairs, length):
        return run(model.chain(ids, values, length, pairs))

    return jax.vmap(one)(ids, values, pairs, lengths)


@partial(jax.jit, static_argnames=("run", "mesh"))
def _run_chains(
    model: CRF, padded: PaddedChains, run: Callable[[Chain], Any], mesh: Mesh
) -> Any:
    def on_device(model, padded):
        return jax.tree.map(lambda array: array[None], run_chains(model, *own(padded), run))

    return on_devices(on_device, mesh, (EVERYWHERE, BY_DATA), BY_DATA)(model, padded)


def chains_on_mesh(
    model: CRF, chunks: Iterable[PaddedChains], run: Callable[[Chain], Any], mesh: Mesh
) -> Iterator[Any]:
    """`run_chains` of chunks of one shape, a chunk for every place of this process at a time."""
    mesh = own_mesh(check_mesh(mesh))
    places = mesh.size
    model = place(model, mesh)
    chunks = iter(chunks)
    while group := list(islice(chunks, places)):
        placed = place_rows([*group, *[group[-1]] * (places - len(group))], mesh)
        found = _run_chains(model, placed, run, mesh)
        leaves, structure = jax.tree.flatten(found)
        parts = [own_parts(leaf)[: len(group)] for leaf in leaves]
        yield from (jax.tree.unflatten(structure, each) for each in zip(*parts))


# -------------------------------------------------------------------------------------------------
# A trained model on new sentences, in few shapes.


ROWS = (1, 16, 256)
"""Rows of a shard: corpora of any size are done in one of these, so that few programs are
compiled."""

CHUNK = 64
"""Sentences of similar length that are done together, where rows cannot be packed."""


def best_labels(model: CRF, features: TokenFeatures, mesh: Mesh | None = None) -> np.ndarray:
    """Viterbi labels [N] of all tokens; on the devices of a mesh where there is one."""
    if _has_pairs(model, features):
        return _joined(each_chain(model, features, _best_path, mesh), features.lengths)
    return _on_shards(model, features, _best_of_rows, mesh)[:, 0]


def node_marginals(model: CRF, features: TokenFeatures, mesh: Mesh | None = None) -> np.ndarray:
    """Probabilities [N, s] of all tokens' labels; on a mesh as `best_labels`."""
    if _has_pairs(model, features):
        found = each_chain(model, features, _node_marginals, mesh)
        return _joined(found, features.lengths).reshape(-1, model.num_labels)
    return _on_shards(model, features, _marginals_of_rows, mesh)


def k_best_paths(
    model: CRF, features: TokenFeatures, k: int, mesh: Mesh | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every sentence its best paths [n, k] and their log-probabilities [k]."""
    found = each_chain(model, features, _k_paths(k), mesh)
    return [(paths[:n], log_probs) for (paths, log_probs), n in zip(found, features.lengths)]


def _joined(by_sentence: list[np.ndarray], lengths: np.ndarray) -> np.ndarray:
    """Results by position of all sentences, padding cut off."""
    parts = [array[:n] for array, n in zip(by_sentence, lengths)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _has_pairs(model: CRF, features: TokenFeatures) -> bool:
    return model.edge_weights is not None and features.edge_ids is not None


# ------------------------------------------------------------------------------ packed rows


@partial(jax.jit, static_argnums=3)
def _best_of_rows(nodes: Array, edges: Array, segments: Array, num: int) -> Array:
    return batch_viterbi(PackedBatch(nodes, edges, segments, num))[0]


@partial(jax.jit, static_argnums=3)
def _marginals_of_rows(nodes: Array, edges: Array, segments: Array, num: int) -> Array:
    return batch_marginals(PackedBatch(nodes, edges, segments, num)).nodes


def _on_shards(
    model: CRF, features: TokenFeatures, run: Callable[..., Array], mesh: Mesh | None
) -> np.ndarray:
    """Per-slot results of `run`, one row a token; as many shards at a time as there are cores."""
    if mesh is not None:
        layout = standard_layout(features.lengths, own_places(mesh))
        return on_mesh(model, features, layout, run, mesh)
    layout = standard_layout(features.lengths)
    shards = make_shards(layout, features, model.num_attributes)

    def on_shard(shard: Shard) -> np.ndarray:
        nodes = node_scores(model.table, model.start, model.stop, shard, model.num_labels)
        return np.asarray(run(nodes, model.transitions, shard.segments, shard.num_sequences))

    cores, found = usable_cores(), []
    for first in range(0, len(shards), cores):
        found += map_on_cores(on_shard, shards[first : first + cores])
    return layout.collect(found)


def standard_layout(lengths: np.ndarray, places: int = 1) -> Layout:
    """Packed into shards whose shape is one of few, small enough for so many places."""
    longest = int(lengths.max(initial=1))
    width = max(128, 1 << max(longest - 1, 0).bit_length())
    needed = lay_out(lengths, 1, width=width).rows
    most = ROWS[-1] * 128 // width  # a single long sentence must not widen hundreds of rows
    sizes = [size for size in ROWS if size <= max(1, most)]
    rows = next((size for size in sizes if size >= needed), sizes[-1])
    if places > 1:  # rather several rounds than places without work
        rows = max(size for size in sizes if size <= max(1, needed // places))
    layout = lay_out(lengths, -(-needed // rows), width=width)
    return dataclasses.replace(layout, rows=rows, sequences=rows * width)


# --------------------------------------------------------------------- sentence by sentence


def _best_path(chain: Chain) -> Array:
    return viterbi(chain)[0]


def _node_marginals(chain: Chain) -> Array:
    return marginals(chain).nodes


@lru_cache  # so that each k is compiled once
def _k_paths(k: int) -> Callable[[Chain], tuple[Array, Array]]:
    def run(chain: Chain) -> tuple[Array, Array]:
        paths, scores = k_best(chain, k)
        return paths.T, scores - log_partition(chain)

    return run


def each_chain(
    model: CRF, features: TokenFeatures, run: Callable[[Chain], Any], mesh: Mesh | None = None
) -> list[Any]:
    """`run` on the padded chain of every sentence: what it returns, as NumPy arrays.

    Chunks of sentences are done one after another; with a mesh, as many at a time as this process
    has places on it.
    """
    lengths = features.lengths
    starts = np.cumsum(lengths) - lengths
    widths = np.array([max(8, 1 << max(int(n) - 1, 0).bit_length()) for n in lengths], np.int64)
    places = 1 if mesh is None else own_places(mesh)
    results: dict[int, Any] = {}
    for width in np.unique(widths).tolist():
        members = np.flatnonzero(widths == width)
        size = _chunk_size(len(members), places)
        chunks = [members[first : first + size] for first in range(0, len(members), size)]
        rows = [1 if len(chunk) == 1 and mesh is None else size for chunk in chunks]
        padded = (_padded(features, starts, *each, width) for each in zip(chunks, rows))
        if mesh is None:
            found = (jax.tree.map(np.asarray, run_chains(model, *each, run)) for each in padded)
        else:
            found = chains_on_mesh(model, padded, run, mesh)
        for chunk, arrays in zip(chunks, found):
            for row, sentence in enumerate(chunk.tolist()):
                results[sentence] = jax.tree.map(lambda array, row=row: array[row], arrays)
    return [results[sentence] for sentence in range(len(lengths))]


def _chunk_size(sentences: int, places: int) -> int:
    """One of few, so that as many places as can be have work."""
    if places == 1:
        return CHUNK
    return next((size for size in (1, 8) if size * places >= sentences), CHUNK)


def _padded(
    features: TokenFeatures, starts: np.ndarray, chunk: np.ndarray, size: int, width: int
) -> PaddedChains:
    """Some sentences, and others without a token up to `size`."""
    lengths, begins = np.zeros(size, np.int32), np.zeros(size, np.int64)
    lengths[: len(chunk)], begins[: len(chunk)] = features.lengths[chunk], starts[chunk]
    inside = np.arange(width) < lengths[:, None]
    index = np.where(inside, begins[:, None] + np.arange(width), 0)

    def rows(array: np.ndarray | None, absent: int) -> Any:
        if array is None:
            return None
        out = np.full((size, width, array.shape[1]), absent, array.dtype)
        out[inside] = array[index[inside]]
        return out

    ids, values = rows(features.ids, -1), rows(features.values, 0)
    return PaddedChains(ids, values, rows(features.edge_ids, -1), lengths)


MOST_NUMBERS = 1 << 24
"""Scores of pairs of labels held at a time, where each pair of tokens has its own."""


class ConstraintWarning(UserWarning):
    """Some sentences have no labelling that satisfies all hard constraints.

    They get one with the fewest violations.
    """


class Scored(NamedTuple):
    """Sentences with a model that scores their labellings, as the CRF that it is."""

    model: CRF
    features: TokenFeatures
    sentences: Sequence[Any]


def bound_to(
    classes: Sequence[str],
    constraints: Any,
    penalty: float | None = None,
    scheme: Scheme = "plain",
) -> Constraints:
    """Constraints in any form, for a model with these labels.

    Args:
        classes: the labels, in the model's order.
        constraints: rules with penalties; `Constraints` for as many labels; or anything with
            `rules` and a `scheme`, as of a file.
        penalty: of rules that have none. scheme: of rules that come without.

    Raises:
        ValueError: for a label that is none of the model's, or what is no rule.

    Example:
        >>> from jaxseq.constraints import Penalised, StartsWith
        >>> bound_to(["A", "B"], [Penalised(StartsWith(["A"]), 2.0)]).names
        ('StartsWith',)
    """
    if isinstance(constraints, Constraints):
        if constraints.num_labels != len(classes):
            raise ValueError(
                f"constraints: expected them for {len(classes)} labels, as the model has, got "
                f"{constraints.num_labels}"
            )
        return constraints
    rules = getattr(constraints, "rules", constraints)
    if isinstance(rules, str) or not isinstance(rules, Sequence):
        raise ValueError(f"constraints: expected rules with penalties, got {constraints!r:.60}")
    scheme = getattr(constraints, "scheme", scheme)
    try:
        return bind_constraints(rules, [str(c) for c in classes], penalty=penalty, scheme=scheme)
    except ValueError as error:
        raise ValueError(f"constraints: {error}") from None


def costly(classes: Sequence[str], constraints: Any) -> Constraints | None:
    """Constraints in any form as those that cost something; None if there are none."""
    if constraints is None:
        return None
    found, _ = without_free(bound_to(classes, constraints))
    return found if len(found) else None


def without_free(constraints: Constraints) -> tuple[Constraints, tuple[int, ...]]:
    """The constraints that cost something, and their numbers: those of ρ = 0 change nothing."""
    kept = constraints.costly
    return constraints.only(kept), kept


def search_scored(
    scored: Scored,
    constraints: Constraints,
    k: int,
    width: int | None = None,
    x: tuple[Any, ...] | None = None,
    mesh: Mesh | None = None,
) -> CorpusLabellings:
    """The k best labellings of each sentence by the model's scores less the penalties.

    Labellings that violate hard constraints more often than the best one are none: where there are
    fewer than k others, scores are −inf.

    Args:
        scored: sentences and model. constraints: of `bound_to`; those of ρ = 0 are left out, so
            that the result is that without them to the bit.
        k: labellings wanted. width: of the beam; None for 50, or k if that is more.
        x: of `Constraints.observe_all`, where it is there already.
        mesh: devices to search on.
    """
    model, features = scored.model, scored.features
    wanted, kept = without_free(constraints)
    seen = wanted.observe_all(scored.sentences) if x is None else tuple(x[n] for n in kept)
    lengths = features.lengths
    if not lengths.sum():
        shape = (len(lengths), k)
        nothing = np.zeros(shape, np.asarray(model.transitions).dtype)
        nothing[:, 1:] = -np.inf
        return CorpusLabellings(np.zeros((0, k), np.int32), nothing, np.zeros(shape, int), True)
    nodes = flat_nodes(model, features)
    if model.edge_weights is None or features.edge_ids is None:
        found = search_corpus(nodes, model.transitions, lengths, wanted, seen, k, width, mesh=mesh)
        return _least_violation(found, lengths)
    found = []
    for group in _groups(lengths, MOST_NUMBERS // model.num_labels**2):
        tokens = slice(int(lengths[: group.start].sum()), int(lengths[: group.stop].sum()))
        edges = flat_edges(model, features.edge_ids[tokens])
        here = tuple(_rows(part, tokens) for part in seen)
        part = search_corpus(
            nodes[tokens], edges, lengths[group], wanted, here, k, width, mesh=mesh
        )
        found.append(part)
    labels, scores, hard = (np.concatenate(arrays) for arrays in list(zip(*found))[:3])
    together = CorpusLabellings(labels, scores, hard, all(part.exact for part in found))
    return _least_violation(together, lengths)


def _least_violation(found: CorpusLabellings, lengths: np.ndarray) -> CorpusLabellings:
    """Without labellings of more hard violations than the best: beside it their weight is 0. A
    sentence without a token has nothing to violate anything with."""
    worse = found.hard > found.hard[:, :1]
    scores = np.where(worse, -np.inf, found.scores).astype(found.scores.dtype)
    return found._replace(scores=scores, hard=np.where(lengths[:, None] > 0, found.hard, 0))


def _rows(observed: Any, tokens: slice) -> Any:
    return jax.tree.map(lambda array: array[tokens], observed)


def _groups(lengths: np.ndarray, most: int) -> list[slice]:
    """Neighbouring sentences, about `most` tokens together and at least one sentence."""
    number = (np.cumsum(lengths) - lengths) // max(1, most)
    bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(lengths)]
    return [slice(first, end) for first, end in pairwise(bounds)]


def flat_nodes(model: CRF, features: TokenFeatures) -> np.ndarray:
    """Scores [N, s] of all tokens' labels, those of starting and stopping included."""
    layout = standard_layout(features.lengths)
    shards = make_shards(layout, features, model.num_attributes)
    ends = (model.start, model.stop)
    return layout.collect(
        [np.asarray(node_scores(model.table, *ends, shard, model.num_labels)) for shard in shards]
    )


def flat_edges(model: CRF, edge_ids: np.ndarray) -> np.ndarray:
    """Scores [N, s, s] of the pairs of labels into each token."""
    assert model.edge_weights is not None
    weights = np.asarray(model.edge_weights)
    table = np.concatenate([weights, np.zeros((1, *weights.shape[1:]), weights.dtype)])
    absent = (edge_ids < 0) | (edge_ids >= len(weights))
    rows = np.where(absent, len(weights), edge_ids)
    scores = np.repeat(np.asarray(model.transitions)[None], len(rows), axis=0)
    for column in rows.T:
        scores += table[column]
    return scores


def best_under(
    scored: Scored, constraints: Constraints, width: int | None, mesh: Mesh | None = None
) -> np.ndarray:
    """Labels [N] of the best labellings, −1 where there is none; warns of what cannot be met."""
    found = search_scored(scored, constraints, 1, width, mesh=mesh)
    warn_unmet(found.hard[:, 0])
    return found.labels[:, 0]


def k_best_under(
    scored: Scored,
    constraints: Constraints,
    k: int,
    width: int | None,
    mesh: Mesh | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every sentence its best paths [n, k] and log P(y | x) less the soft penalties [k]."""
    found = search_scored(scored, constraints, k, width, mesh=mesh)
    warn_unmet(found.hard[:, 0])
    ends = np.cumsum(scored.features.lengths)
    totals = each_chain(scored.model, scored.features, _log_partition, mesh)
    return [
        (found.labels[end - n : end], row - (total if n else 0))
        for row, total, end, n in zip(found.scores, totals, ends, scored.features.lengths)
    ]


def _log_partition(chain: Chain) -> Any:
    found = log_partition(chain)
    return jnp.where(jnp.isneginf(found), 0, found)


def warn_unmet(hard: np.ndarray, what: str = "X") -> None:
    """Say which best labellings violate hard constraints, from their violations [B]."""
    unmet = np.flatnonzero(hard)
    if len(unmet):
        warnings.warn(
            f"{what}[{unmet[0]}]: no labelling that satisfies all hard constraints was found for "
            f"{len(unmet)} of {len(hard)} sentences, this the first; they get the fewest "
            "violations",
            ConstraintWarning,
            stacklevel=4,
        )
