"""A trained model on new sentences, on the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxseq.learn._corpus import Layout, Shard, make_shards
from jaxseq.learn._mesh_objective import on_devices, own
from jaxseq.learn._objective import node_scores
from jaxseq.models._crf import CRF
from jaxseq.scale._mesh import (
    BY_DATA,
    EVERYWHERE,
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


@partial(jax.jit, static_argnames=("labels", "mesh"))
def _score(table, start, stop, shards: Shard, labels: int, mesh: Mesh) -> Array:
    def on_device(table, start, stop, shards):
        return node_scores(table, start, stop, own(shards), labels)[None]

    specs = (EVERYWHERE, EVERYWHERE, EVERYWHERE, BY_DATA)
    return on_devices(on_device, mesh, specs, BY_DATA)(table, start, stop, shards)


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
        mesh: as of `jaxseq.scale.make_mesh`.
    """
    mesh = own_mesh(check_mesh(mesh))
    places = mesh.devices.shape[0]
    shards = make_shards(layout, features, model.num_attributes)
    table, start, stop, edges = place(
        (model.table, model.start, model.stop, model.transitions), mesh
    )
    found: list[np.ndarray] = []
    for first in range(0, len(shards), places):
        group = shards[first : first + places]
        # A full row of devices every time: the last shard again where there are no more.
        placed = place_rows([*group, *[group[-1]] * (places - len(group))], mesh)
        nodes = _score(table, start, stop, placed, model.num_labels, mesh)
        result = _run(nodes, edges, placed.segments, placed.num_sequences, run, mesh)
        found += own_parts(result)[: len(group)]
    return layout.collect(found)
