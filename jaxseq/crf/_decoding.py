"""What a trained model says of new sentences: best labellings, marginals and the k best paths.

Corpora of any size and sentences of any length are decoded in arrays of few shapes, so that few
programs are compiled: packed rows for scores that pairs of tokens share, else padded sentences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.crf._model import CRF
from jaxseq.crf._objective import mesh_scores, node_scores, on_devices, own
from jaxseq.crf._shards import Layout, Shard, lay_out, make_shards
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
from jaxseq.text import TokenFeatures

ROWS = (1, 16, 256)
"""Numbers of rows that a shard may have; each compiles one program."""

CHUNK = 64
"""Sentences of similar length that are decoded together where rows cannot be packed."""


class ScoredSentences(NamedTuple):
    """Sentences, and the CRF that scores their labellings: what a tagger decodes.

    A hidden Markov model is decoded as the CRF that has its conditional distribution.
    """

    model: CRF
    features: TokenFeatures
    sentences: Sequence[Any]

    @property
    def lengths(self) -> Int[np.ndarray, " b"]:
        """Tokens of each sentence."""
        return self.features.lengths

    def best_labels(self, mesh: Mesh | None = None) -> Int[np.ndarray, " n"]:
        """Viterbi labels of all tokens; −1 in a sentence that has no legal labelling."""
        return best_labels(self.model, self.features, mesh)

    def marginals(self, mesh: Mesh | None = None) -> Float[np.ndarray, "n s"]:
        """Probabilities of all tokens' labels; 0 in a sentence that has no legal labelling."""
        return node_marginals(self.model, self.features, mesh)

    def k_best(self, k: int, mesh: Mesh | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each sentence its best paths [n, k] and their log-probabilities [k]."""
        return k_best_paths(self.model, self.features, k, mesh)


def best_labels(
    model: CRF, features: TokenFeatures, mesh: Mesh | None = None
) -> Int[np.ndarray, " n"]:
    """Viterbi labels of all tokens, on the devices of a mesh if there is one."""
    if _has_pairs(model, features):
        return _joined(each_chain(model, features, _best_path, mesh), features.lengths)
    return _on_shards(model, features, _best_of_rows, mesh)[:, 0]


def node_marginals(
    model: CRF, features: TokenFeatures, mesh: Mesh | None = None
) -> Float[np.ndarray, "n s"]:
    """Probabilities of all tokens' labels, on the devices of a mesh if there is one."""
    if _has_pairs(model, features):
        by_sentence = each_chain(model, features, _node_marginals, mesh)
        return _joined(by_sentence, features.lengths).reshape(-1, model.num_labels)
    return _on_shards(model, features, _marginals_of_rows, mesh)


def k_best_paths(
    model: CRF, features: TokenFeatures, k: int, mesh: Mesh | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each sentence its best paths [n, k] and their log-probabilities [k]."""
    by_sentence = each_chain(model, features, _k_paths(k), mesh)
    return [(paths[:n], log_probs) for (paths, log_probs), n in zip(by_sentence, features.lengths)]


def _joined(by_sentence: list[np.ndarray], lengths: np.ndarray) -> np.ndarray:
    """Results by position of all sentences, padding cut off."""
    parts = [array[:n] for array, n in zip(by_sentence, lengths)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _has_pairs(model: CRF, features: TokenFeatures) -> bool:
    """Whether each pair of tokens has edge scores of its own, which packed rows cannot hold."""
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
    """Per-slot results of `run`, one row per token; as many shards at a time as there are cores."""
    if mesh is not None:
        layout = standard_layout(features.lengths, own_places(mesh))
        return on_mesh(model, features, layout, run, mesh)
    layout = standard_layout(features.lengths)
    shards = make_shards(layout, features, model.num_attributes)

    def on_shard(shard: Shard) -> np.ndarray:
        nodes = node_scores(model.table, model.start, model.stop, shard, model.num_labels)
        return np.asarray(run(nodes, model.transitions, shard.segments, shard.num_sequences))

    # No more than `cores` at a time: each holds scores of all its slots while it runs.
    cores, by_shard = usable_cores(), []
    for first in range(0, len(shards), cores):
        by_shard += map_on_cores(on_shard, shards[first : first + cores])
    return layout.collect(by_shard)


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
    # Of full shape even where the corpus needs less: the shape is what is compiled for.
    return dataclasses.replace(layout, rows=rows, sequences=rows * width)


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


def _best_path(chain: Chain) -> Array:
    return viterbi(chain)[0]


def _node_marginals(chain: Chain) -> Array:
    return marginals(chain).nodes


@lru_cache  # the same function for the same k, or else jit would compile it again
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
    # Widths are powers of two: padding at most doubles the work, and programs stay few.
    widths = np.array([max(8, 1 << max(int(n) - 1, 0).bit_length()) for n in lengths], np.int64)
    places = 1 if mesh is None else own_places(mesh)
    results: dict[int, Any] = {}
    for width in np.unique(widths).tolist():
        members = np.flatnonzero(widths == width)
        size = CHUNK
        if places > 1:  # one of few sizes, so that as many places as can be have work
            size = next((size for size in (1, 8) if size * places >= len(members)), CHUNK)
        chunks = [members[first : first + size] for first in range(0, len(members), size)]
        # A sentence alone is not filled up: people ask for one at a time, and wait for it.
        rows = [1 if len(chunk) == 1 and mesh is None else size for chunk in chunks]
        padded = (_padded(features, starts, *each, width) for each in zip(chunks, rows))
        if mesh is None:
            outputs = (jax.tree.map(np.asarray, run_chains(model, *each, run)) for each in padded)
        else:
            outputs = chains_on_mesh(model, padded, run, mesh)
        for chunk, arrays in zip(chunks, outputs):
            for row, sentence in enumerate(chunk.tolist()):
                results[sentence] = jax.tree.map(lambda array, row=row: array[row], arrays)
    return [results[sentence] for sentence in range(len(lengths))]


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


# ------------------------------------------------------------------ on the devices of a mesh


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
    """Per-slot results of ``run(nodes, edges, segments, num)``, one row per token.

    Sentences do not depend on each other: only the devices of this process take part, and nothing
    is sent between them.

    Args:
        model: the model.
        features: of this process's sentences.
        layout: where their tokens go.
        run: a jitted function of the rows of one shard.
        mesh: as of `jaxseq.parallel.make_mesh`.
    """
    mesh = own_mesh(check_mesh(mesh))
    places = mesh.size
    shards = make_shards(layout, features, model.num_attributes)
    model = place(model, mesh)
    by_shard: list[np.ndarray] = []
    for first in range(0, len(shards), places):
        group = shards[first : first + places]
        # A full row of devices every time: the last shard again where there are no more.
        placed = place_rows([*group, *[group[-1]] * (places - len(group))], mesh)
        ends = (model.start, model.stop)
        nodes = mesh_scores(model.table, *ends, placed, mesh, model.num_labels)
        result = _run(nodes, model.transitions, placed.segments, placed.num_sequences, run, mesh)
        by_shard += own_parts(result)[: len(group)]
    return layout.collect(by_shard)


@partial(jax.jit, static_argnames=("run", "mesh"))
def _run_chains(model: CRF, padded: PaddedChains, run: Callable[[Chain], Any], mesh: Mesh) -> Any:
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
        outputs = _run_chains(model, placed, run, mesh)
        leaves, structure = jax.tree.flatten(outputs)
        parts = [own_parts(leaf)[: len(group)] for leaf in leaves]
        yield from (jax.tree.unflatten(structure, each) for each in zip(*parts))
