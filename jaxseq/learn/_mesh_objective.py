"""The objective on the devices of a mesh.

The same three programs as on the cores of one device, each under `jax.shard_map`: a device scores
its own sentences, runs its own lattices, and scatters into a gradient of its own; the loss and the
gradients are then summed along ``"data"``. Along ``"model"`` a device has the weights of its own
block of attributes: scores are summed along it, and the gradient of a block stays where it is.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array

from jaxseq.learn._corpus import Shard
from jaxseq.learn._entropy_derivations import EntropyGradient
from jaxseq.learn._lattices import entropy_gradient, score_gradient
from jaxseq.learn._mesh_blocks import Blocks
from jaxseq.learn._mesh_shards import place_shards
from jaxseq.learn._objective import finish, node_scores, sum_parts
from jaxseq.learn._parameters import Legal, Parameters, Spread, mask_forbidden
from jaxseq.models import _linear
from jaxseq.scale._mesh import (
    BY_DATA,
    DATA,
    EVERYWHERE,
    MODEL,
    check_mesh,
    off_mesh,
    place,
    place_rows,
    spans_processes,
)
from jaxseq.scale._peers import all_peers


def on_devices(fn, mesh: Mesh, in_specs: Any, out_specs: Any):
    """`jax.shard_map`, without its check of what varies along an axis: the loops of the lattices
    start from constants, which it takes for something else than what they become."""
    return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def own(tree):
    """What a device has of arrays along ``"data"``."""
    return jax.tree.map(lambda array: array[0], tree)


def _of_block(shard: Shard, blocks: Blocks) -> Shard:
    """The shard with numbers of attributes in the device's own block of the table."""
    if blocks.count == 1:
        return shard
    local = shard.ids - lax.axis_index(MODEL) * blocks.rows
    inside = (local >= 0) & (local < blocks.rows)
    return eqx.tree_at(lambda s: s.ids, shard, jnp.where(inside, local, blocks.rows))


@partial(jax.jit, static_argnames=("mesh", "blocks", "labels"))
def mesh_scores(table, start, stop, shards: Shard, mesh: Mesh, blocks: Blocks, labels: int):
    """Scores of every slot, as of `node_scores`, along ``"data"``."""

    def on_device(table, start, stop, shards):
        shard = own(shards)
        if blocks.count == 1:
            return node_scores(table, start, stop, shard, labels)[None]
        nothing = jnp.zeros_like(start)
        scores = node_scores(table, nothing, nothing, _of_block(shard, blocks), labels)
        flat = lax.psum(scores, MODEL).reshape(-1, labels)
        flat = flat.at[shard.starts].add(start, mode="drop")
        flat = flat.at[shard.stops].add(stop, mode="drop")
        return flat.reshape(1, *scores.shape)

    specs = (blocks.spec, EVERYWHERE, EVERYWHERE, BY_DATA)
    return on_devices(on_device, mesh, specs, BY_DATA)(table, start, stop, shards)


@partial(jax.jit, static_argnames=("mesh", "derivation"))
def _mesh_lattices(nodes, edges, pair_weights, shards, weight, mesh: Mesh, derivation):
    """Gradient by tokens' scores, along ``"data"``; loss and other gradients, summed along it.

    The quantity is the likelihood where `derivation` is None, otherwise the entropy.
    """

    def on_device(nodes, edges, pair_weights, shards, weight):
        shard = own(shards)
        if derivation is None:
            found = score_gradient(nodes[0], edges, pair_weights, shard)
        else:
            found = entropy_gradient(nodes[0], edges, pair_weights, shard, weight, derivation)
        return found.nodes[None], lax.psum(found._replace(nodes=None), DATA)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE, BY_DATA, EVERYWHERE)
    run = on_devices(on_device, mesh, specs, (BY_DATA, EVERYWHERE))
    return run(nodes, edges, pair_weights, shards, weight)


@partial(jax.jit, static_argnames=("mesh", "blocks", "add"), donate_argnums=0)
def _mesh_scatter(tables, by_token, shards, mesh: Mesh, blocks: Blocks, add: bool):
    """Every device's own gradient by its table, in the place of one that is no longer wanted."""

    def on_device(tables, by_token, shards):
        shard = _of_block(own(shards), blocks)
        start = tables[0] if add else jnp.zeros_like(tables[0])
        spread = _linear.spread_gradient(by_token[0], shard.ids, shard.values, blocks.rows, start)
        return spread[None]

    specs = (blocks.tables_spec, BY_DATA, BY_DATA)
    return on_devices(on_device, mesh, specs, blocks.tables_spec)(tables, by_token, shards)


@partial(jax.jit, static_argnames=("mesh", "blocks"))
def _mesh_sum(tables, spread: Spread, mesh: Mesh, blocks: Blocks):
    """Gradient by the learnt weights: only these are sent between devices."""

    def on_device(tables, spread):
        weights = tables[0] if blocks.count > 1 else spread.from_table(tables[0])
        return lax.psum(weights, DATA)

    specs = (blocks.tables_spec, EVERYWHERE)
    return on_devices(on_device, mesh, specs, blocks.spec)(tables, spread)


@partial(jax.jit, static_argnames="mesh", donate_argnums=0)
def _mesh_table(old, weights, spread: Spread, mesh: Mesh):
    specs = (EVERYWHERE,) * 3
    run = on_devices(lambda o, w, s: s.to_table(w, o), mesh, specs, EVERYWHERE)
    return run(old, weights, spread)


_end_scores = jax.jit(mask_forbidden)


class MeshObjective:
    """`Objective` with the shards on the devices of a mesh; the same value and gradient.

    Args:
        shards, spread, l2, legal, unlabelled, entropy_weight, entropy_gradient: as of `Objective`;
            the shards are those of this process.
        mesh: with the axes of `jaxseq.scale.make_mesh`. Where it spans several processes, all of
            them call the objective together, with the same parameters.

    Parameters come and go as arrays on the mesh (`place_parameters`): whole on every device, or
    along ``"model"`` in blocks of attributes, [blocks · (rows + 1), labels]. All-reduced are the
    gradient by the learnt weights and O(s²) numbers more, once an evaluation.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        spread: Spread,
        l2: Any,
        legal: Legal | None = None,
        unlabelled: Sequence[Shard] | None = None,
        entropy_weight: Any = 0.0,
        entropy_gradient: EntropyGradient = "mann",
        *,
        mesh: Mesh,
    ):
        self.mesh = mesh = check_mesh(mesh)
        self.blocks = Blocks.of(spread, mesh)
        if spans_processes(mesh):
            all_peers().check_same("vocabulary", _summary(spread))
        self.spread: Spread = place(spread, mesh)
        self.legal = None if legal is None else place(legal, mesh)
        self.l2, self.entropy_weight, self.entropy_gradient = l2, entropy_weight, entropy_gradient
        self.seconds = {"evaluations": 0.0}
        sizes = (spread.attributes, spread.labels)
        self._work = [(place_shards(shards, mesh, *sizes), False)]
        self._table: Array | None = None
        self._gradients: Array | None = None
        if unlabelled is not None:
            self._work.append((place_shards(unlabelled, mesh, *sizes), True))

    def with_unlabelled(
        self, unlabelled: Sequence[Shard], entropy_gradient: EntropyGradient
    ) -> MeshObjective:
        """The same with the entropy of unlabelled shards; the labelled ones stay where they are."""
        whole = copy.copy(self)
        whole.seconds, whole.entropy_gradient = dict(self.seconds), entropy_gradient
        whole._table = whole._gradients = None
        sizes = (self.spread.attributes, self.spread.labels)
        whole._work = [*self._work, (place_shards(unlabelled, self.mesh, *sizes), True)]
        return whole

    def take(self, shards: Sequence[Shard]) -> None:
        """Go on with other labelled shards: the next mini-batch.

        Args:
            shards: one for each place along ``"data"`` that is of this process, in its order, and
                of one shape in all processes: they are not asked. In the memory of the host.
        """
        on_host = [jax.tree.map(np.asarray, shard) for shard in shards]
        self._work = [(place_rows(on_host, self.mesh), False)]

    def place_parameters(self, parameters: Parameters) -> Parameters:
        """Parameters of any kind, on the mesh."""
        if self.blocks.count == 1:
            return place(parameters, self.mesh)
        weights = parameters.weights
        if weights.shape != self.blocks.shape:
            weights = self.blocks.cut(weights, self.mesh)
        weights = place(weights, self.mesh, self.blocks.spec)
        return place(parameters._replace(weights=weights), self.mesh)

    def collect_parameters(self, parameters: Parameters) -> Parameters:
        """Parameters as they are without a mesh; those that were in blocks, on the host."""
        if self.blocks.count == 1:
            return off_mesh(parameters)
        return Parameters(self.blocks.join(parameters.weights), *off_mesh(parameters[1:]))

    def __call__(self, parameters: Parameters) -> tuple[Array, Parameters]:
        began = time.perf_counter()
        parameters = self.place_parameters(parameters)
        table = self._take_table(parameters.weights)
        edges, start, stop = _end_scores(parameters, self.legal)
        parts = []
        tables, self._gradients = self._gradients, None
        if tables is None or tables.dtype != table.dtype:
            tables = self.blocks.empty_tables(table.dtype, self.mesh)
        for number, (shards, unlabelled) in enumerate(self._work):
            nodes = mesh_scores(
                table, start, stop, shards, self.mesh, self.blocks, self.spread.labels
            )
            pair_weights = None if shards.edge_ids is None else parameters.edge_weights
            how = self.entropy_gradient if unlabelled else None
            weight = jnp.asarray(self.entropy_weight, nodes.dtype)
            by_token, part = _mesh_lattices(
                nodes, edges, pair_weights, shards, weight, self.mesh, how
            )
            tables = _mesh_scatter(tables, by_token, shards, self.mesh, self.blocks, number > 0)
            parts.append(part)
        self._gradients = tables
        weights = _mesh_sum(tables, self.spread, self.mesh, self.blocks)
        loss, *others = sum_parts(parts, parameters.edge_weights)
        gradient = Parameters(weights, *others)
        found = finish([(loss, gradient)], parameters, self.spread, self.l2)
        jax.block_until_ready(found)
        self.seconds["evaluations"] += time.perf_counter() - began
        return found

    def _take_table(self, weights: Array) -> Array:
        if self.spread.places is None and self.spread.groups is None:
            return weights
        old = self._table
        if old is None or old.dtype != weights.dtype:
            old = place(np.zeros(self.spread.shape, weights.dtype), self.mesh)
        table = self._table = _mesh_table(old, weights, self.spread, self.mesh)
        return table


def _summary(spread: Spread) -> dict[str, Any]:
    """What processes must have in common to learn one model."""
    digest = hashlib.sha256()
    for array in (spread.places, spread.groups, spread.transitions):
        digest.update(b"-" if array is None else np.asarray(array).tobytes())
    return {
        "attributes": spread.attributes,
        "labels": spread.labels,
        "learnt weights": digest.hexdigest()[:16],
    }
