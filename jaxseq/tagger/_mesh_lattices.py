"""A trained model on new sentences, on the devices of a mesh.

Along ``"model"`` a device has the weights of its own block of attributes, and scores are summed
along it; all that follows from the scores is then done by every device of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array

from jaxseq.chain import Chain
from jaxseq.learn._corpus import Layout, make_shards
from jaxseq.learn._mesh_blocks import Blocks
from jaxseq.learn._mesh_objective import mesh_scores, on_devices, own
from jaxseq.learn._parameters import Spread
from jaxseq.models._crf import CRF
from jaxseq.scale._mesh import (
    BY_DATA,
    EVERYWHERE,
    MODEL,
    check_mesh,
    own_mesh,
    own_parts,
    place,
    place_rows,
)
from jaxseq.text import TokenFeatures


def own_places(mesh: Mesh) -> int:
    """How many shards are done at a time."""
    return own_mesh(check_mesh(mesh)).devices.shape[0]


def _place_model(model: CRF, mesh: Mesh) -> tuple[CRF, Blocks]:
    """The model on the mesh with its table whole or in blocks, and how it is cut."""
    blocks = Blocks.of(Spread(model.num_attributes, model.num_labels), mesh)
    if blocks.count == 1:
        return place(model, mesh), blocks
    cut = eqx.tree_at(lambda crf: crf.table, model, blocks.cut(model.table, mesh))
    return place(cut, mesh), blocks  # the table stays as it is


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
    is sent between them but scores, where weights are in blocks.

    Args:
        model: the model. features: of this process's sentences. layout: where their tokens go.
        run: a jitted function of the rows of one shard.
        mesh: as of `jaxseq.scale.make_mesh`.
    """
    mesh = own_mesh(check_mesh(mesh))
    places = mesh.devices.shape[0]
    shards = make_shards(layout, features, model.num_attributes)
    labels = model.num_labels
    model, blocks = _place_model(model, mesh)
    found: list[np.ndarray] = []
    for first in range(0, len(shards), places):
        group = shards[first : first + places]
        # A full row of devices every time: the last shard again where there are no more.
        placed = place_rows([*group, *[group[-1]] * (places - len(group))], mesh)
        nodes = mesh_scores(model.table, model.start, model.stop, placed, mesh, blocks, labels)
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


@partial(jax.jit, static_argnames=("run", "mesh", "blocks"))
def _run_chains(
    model: CRF, padded: PaddedChains, run: Callable[[Chain], Any], mesh: Mesh, blocks: Blocks
) -> Any:
    def on_device(model, padded):
        mine = own(padded)
        if blocks.count == 1:
            found = run_chains(model, *mine, run)
        else:
            found = _run_chains_in_blocks(model, mine, run, blocks)
        return jax.tree.map(lambda array: array[None], found)

    whole = jax.tree.map(lambda _: EVERYWHERE, model)
    specs = eqx.tree_at(lambda crf: crf.table, whole, blocks.spec)
    return on_devices(on_device, mesh, (specs, BY_DATA), BY_DATA)(model, padded)


def _run_chains_in_blocks(
    model: CRF, padded: PaddedChains, run: Callable[[Chain], Any], blocks: Blocks
) -> Any:
    """`run_chains` on a device that has one block of the table."""
    local = padded.ids - lax.axis_index(MODEL) * blocks.rows
    local = jnp.where((local >= 0) & (local < blocks.rows), local, -1)
    flat = local.reshape(-1, local.shape[-1])
    values = None if padded.values is None else padded.values.reshape(flat.shape)
    nodes = lax.psum(model.scores(flat, values), MODEL)
    nodes = nodes.reshape(*local.shape[:2], model.num_labels)

    def one(nodes, pairs, length):
        return run(model.chain_of(nodes, length, pairs))

    return jax.vmap(one)(nodes, padded.pairs, padded.lengths)


def chains_on_mesh(
    model: CRF, chunks: Iterable[PaddedChains], run: Callable[[Chain], Any], mesh: Mesh
) -> Iterator[Any]:
    """`run_chains` of chunks of one shape, a chunk for every place of this process at a time."""
    mesh = own_mesh(check_mesh(mesh))
    places = mesh.devices.shape[0]
    model, blocks = _place_model(model, mesh)
    chunks = iter(chunks)
    while group := list(islice(chunks, places)):
        placed = place_rows([*group, *[group[-1]] * (places - len(group))], mesh)
        found = _run_chains(model, placed, run, mesh, blocks)
        leaves, structure = jax.tree.flatten(found)
        parts = [own_parts(leaf)[: len(group)] for leaf in leaves]
        yield from (jax.tree.unflatten(structure, each) for each in zip(*parts))
