"""The E-step of an HMM on the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from jaxseq.chain._engines import Method
from jaxseq.learn._em_corpus import WordCorpus, WordShard
from jaxseq.learn._em_lattice import Tally, certified_tally, shard_tally
from jaxseq.learn._mesh_objective import on_devices, own
from jaxseq.models._hmm import Multinomials
from jaxseq.scale._mesh import (
    BY_DATA,
    DATA,
    EVERYWHERE,
    check_mesh,
    off_mesh,
    own_rows,
    place,
    place_rows,
    spans_processes,
)
from jaxseq.scale._peers import Peers, all_peers

TallyShard = Callable[[Multinomials, WordShard], Tally]


def peers_of(mesh: Mesh | None) -> Peers:
    """The processes of a mesh; this one alone without one."""
    if mesh is None or not spans_processes(check_mesh(mesh)):
        return Peers(0, 1, lambda message: [message])
    return all_peers()


def place_words(corpus: WordCorpus, mesh: Mesh) -> WordShard:
    """The corpus on the mesh: arrays with one more axis, the first, along ``"data"``."""
    with jax.ensure_compile_time_eval():  # also while a program is being built
        shards = replace(corpus, cores=len(own_rows(mesh))).shards
        first = shards[0]
        shape = [*first.words.shape, first.num_sequences, *_label_sizes(corpus, first)]
        shape = [max(sizes) for sizes in zip(*peers_of(mesh).exchange(shape))]
        return place_rows([_grow(shard, shape) for shard in shards], mesh)


def _label_sizes(corpus: WordCorpus, shard: WordShard) -> tuple[int, int]:
    """Labels, where sets of them are allowed, and whether they are."""
    return (0, 0) if shard.allowed is None else (shard.allowed.shape[2], 1)


def _grow(shard: WordShard, shape: list[int]) -> WordShard:
    """The shard in another shape, at least as large."""
    blocks, width, rows, sequences, labels, restricted = shape
    size = (blocks, width, rows)

    def grow(array, fill):
        array = np.asarray(array)
        out = np.full(size, fill, array.dtype)
        out[tuple(slice(n) for n in array.shape)] = array
        return jnp.asarray(out)

    allowed = shard.allowed
    if restricted and (allowed is None or tuple(shard.words.shape) != size):
        whole = np.ones((blocks, width, labels, rows), bool)
        if allowed is not None:
            whole[tuple(slice(n) for n in allowed.shape)] = np.asarray(allowed)
        allowed = jnp.asarray(whole)
    if tuple(shard.words.shape) == size:
        return WordShard(shard.words, shard.segments, allowed, sequences)
    return WordShard(grow(shard.words, 0), grow(shard.segments, -1), allowed, sequences)


@partial(jax.jit, static_argnames=("tally", "mesh"))
def _sum_tallies(parameters, shards: WordShard, tally: TallyShard, mesh: Mesh):
    def on_device(parameters, shards):
        return lax.psum(tally(parameters, own(shards)), DATA)

    return on_devices(on_device, mesh, (EVERYWHERE, BY_DATA), EVERYWHERE)(parameters, shards)


@partial(jax.jit, static_argnames="mesh")
def _sum_certified(parameters, shards: WordShard, mesh: Mesh):
    def on_device(parameters, shards):
        tally, certified = certified_tally(parameters, own(shards))
        return lax.psum((tally, (~certified).astype(jnp.int32)), DATA)

    return on_devices(on_device, mesh, (EVERYWHERE, BY_DATA), EVERYWHERE)(parameters, shards)


def _auto(parameters: Multinomials, shard: WordShard) -> Tally:
    return shard_tally(parameters, shard, "auto")


def _scaled(parameters: Multinomials, shard: WordShard) -> Tally:
    return shard_tally(parameters, shard, "scaled")


def _log(parameters: Multinomials, shard: WordShard) -> Tally:
    return shard_tally(parameters, shard, "log")


_BY_METHOD: dict[str, TallyShard] = {"auto": _auto, "scaled": _scaled, "log": _log}


def sum_on_mesh(parameters: Multinomials, corpus: WordCorpus, tally: TallyShard, mesh: Mesh):
    """The sum of a tally over the shards of all devices, whole in every process."""
    mesh = check_mesh(mesh)
    return off_mesh(_sum_tallies(place(parameters, mesh), corpus.on(mesh), tally, mesh))


def mesh_expected_counts(
    parameters: Multinomials, corpus: WordCorpus, method: Method, mesh: Mesh, traced: bool
) -> Tally:
    """`expected_counts` on a mesh; `traced` where a program is being built."""
    mesh = check_mesh(mesh)
    shards, parameters = corpus.on(mesh), place(parameters, mesh)
    if traced:
        return _sum_tallies(parameters, shards, _BY_METHOD[method], mesh)
    if method == "auto":
        found, doubtful = _sum_certified(parameters, shards, mesh)
        if not int(doubtful):
            return off_mesh(found)
    return off_mesh(_sum_tallies(parameters, shards, _BY_METHOD[method], mesh))
