"""A trained model on new sentences, in few shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxseq.batch import PackedBatch, batch_marginals, batch_viterbi, map_on_cores
from jaxseq.batch._cores import usable_cores
from jaxseq.chain import Chain, k_best, log_partition, marginals, viterbi
from jaxseq.learn._corpus import Layout, Shard, lay_out, make_shards
from jaxseq.learn._objective import node_scores
from jaxseq.models._crf import CRF
from jaxseq.tagger._mesh_lattices import PaddedChains, chains_on_mesh, on_mesh, own_places
from jaxseq.tagger._mesh_lattices import run_chains as _run_chains
from jaxseq.text import TokenFeatures

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
            found = (jax.tree.map(np.asarray, _run_chains(model, *each, run)) for each in padded)
        else:
            found = chains_on_mesh(model, padded, run, mesh)
        for chunk, arrays in zip(chunks, found):
            for place, sentence in enumerate(chunk.tolist()):
                results[sentence] = jax.tree.map(lambda array, place=place: array[place], arrays)
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
