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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from jaxseq.crf import _model as _linear
from jaxseq.crf._data import UNKNOWN, EntropyGradient, Shard, entropy_gradient, score_gradient
from jaxseq.crf._objective import finish, node_scores, sum_parts
from jaxseq.crf._parameters import Legal, Parameters, Spread, mask_forbidden
from jaxseq.parallel import (
    BY_DATA,
    BY_MODEL,
    DATA,
    EVERYWHERE,
    MODEL,
    all_peers,
    check_mesh,
    in_host_memory,
    off_mesh,
    own_rows,
    place,
    place_rows,
    spans_processes,
)

# -------------------------------------------------------------------------------------------------
# Weights that are cut into blocks of attributes, one for each place along ``"model"``.


RowsOf = Callable[[int, int], np.ndarray]
"""From two numbers of attributes to the rows [*, stop − first, columns] between them."""


@dataclass(frozen=True)
class Blocks:
    """How the table of weights is cut.

    Each of `count` blocks has the weights of `rows` attributes, and a row of zeros for what is not
    in it. With one block it is the table of `Spread` itself, of which `labels` columns are learnt.
    """

    count: int
    rows: int
    attributes: int
    labels: int
    width: int
    places: int

    @classmethod
    def of(cls, spread: Spread, mesh: Mesh | None) -> Blocks:
        """ValueError where the weights are not a table that can be cut; one without a mesh."""
        places, count = (1, 1) if mesh is None else mesh.devices.shape
        if count > 1 and spread.sparse:
            raise ValueError(
                f"mesh: expected the axis {MODEL!r} with dense weights only (a weight for every "
                "attribute and label), got others"
            )
        attributes, width = spread.attributes, spread.shape[1]
        return cls(count, -(-attributes // count), attributes, spread.labels, width, places)

    @property
    def shape(self) -> tuple[int, int]:
        """Of all blocks below each other."""
        return self.count * (self.rows + 1), self.width

    @property
    def spec(self) -> PartitionSpec:
        """Where the rows of the weights are."""
        return EVERYWHERE if self.count == 1 else BY_MODEL

    @property
    def tables_spec(self) -> PartitionSpec:
        """Where those of every device's own gradient are, [places, *shape]."""
        return PartitionSpec(DATA) if self.count == 1 else PartitionSpec(DATA, MODEL)

    def span(self, block: int) -> tuple[int, int]:
        """The first attribute of a block, and the one after its last."""
        first = min(block * self.rows, self.attributes)
        return first, min(first + self.rows, self.attributes)

    def empty_tables(self, dtype, mesh: Mesh) -> Array:
        """Zeros for `tables_spec`."""
        sharding = NamedSharding(mesh, self.tables_spec)
        shape = (self.places, *self.shape)

        def part(index) -> np.ndarray:
            return np.zeros([len(range(*i.indices(n))) for i, n in zip(index, shape)], dtype)

        return jax.make_array_from_callback(shape, sharding, part)

    def place(self, rows_of: RowsOf, dtype: Any, mesh: Mesh, lead: Sequence[int] = ()) -> Array:
        """An array [*lead, *shape] in blocks, of which nothing holds more than one at a time.

        Args:
            rows_of: the rows of a span of attributes, [*lead, stop − first, columns]; asked for
                each block once. Columns that are missing are 0.
            dtype: of the array.
            mesh: where to; every process must call this.
            lead: sizes of axes before those of the table.
        """
        here, pieces = jax.process_index(), []
        for block, devices in enumerate(mesh.devices.T):
            own = [device for device in devices if device.process_index == here]
            if not own:
                continue
            first, stop = self.span(block)
            part = np.zeros((*lead, self.rows + 1, self.width), dtype)
            found = rows_of(first, stop)
            part[..., : stop - first, : found.shape[-1]] = found
            # Memory that devices share with the host could not be written over later on.
            pieces += [jax.device_put(part, device, may_alias=False) for device in own]
        sharding = NamedSharding(mesh, PartitionSpec(*[None] * len(lead), MODEL))
        shape = (*lead, *self.shape)
        return jax.make_array_from_single_device_arrays(shape, sharding, pieces)

    def zeros(self, dtype: Any, mesh: Mesh) -> Array:
        """Weights of 0."""
        return self.place(lambda first, stop: np.zeros((stop - first, 0), dtype), dtype, mesh)

    def cut(self, table: Array | np.ndarray, mesh: Mesh) -> Array:
        """A table of `Spread` as blocks."""
        if not isinstance(table, Tracer):
            whole = np.asarray(table)
            return self.place(lambda first, stop: whole[first:stop], whole.dtype, mesh)
        missing = self.count * self.rows - self.attributes
        weights = jnp.pad(table[: self.attributes], ((0, missing), (0, 0)))
        blocks = weights.reshape(self.count, self.rows, self.width)
        return jnp.pad(blocks, ((0, 0), (0, 1), (0, 0))).reshape(self.shape)

    def join(self, blocks: Array) -> Array:
        """Blocks as a table of `Spread`, put together on the host; in each process its own copy."""
        if isinstance(blocks, Tracer):
            cut = blocks.reshape(self.count, self.rows + 1, self.width)[:, : self.rows]
            weights = cut.reshape(-1, self.width)[: self.attributes]
            return jnp.pad(weights, ((0, 1), (0, 0)))
        table = np.zeros((self.attributes + 1, self.width), blocks.dtype)
        pieces = {shard.index[0].start or 0: shard.data for shard in blocks.addressable_shards}
        for row, piece in pieces.items():
            first, stop = self.span(row // (self.rows + 1))
            table[first:stop] = np.asarray(piece)[: stop - first]
        with in_host_memory():
            return jnp.asarray(table)


# -------------------------------------------------------------------------------------------------
# Shards of a corpus on the devices of a mesh, padded to the one shape that all of them need.


class _Shape(NamedTuple):
    """Of a shard: rows, width, sequences; columns of ids and of edge_ids (−1: none); whether there
    are values, and sets of allowed labels."""

    rows: int
    width: int
    sequences: int
    columns: int
    edge_columns: int
    has_values: bool
    has_allowed: bool

    @classmethod
    def of(cls, shard: Shard) -> _Shape:
        rows, width = shard.segments.shape
        edges = -1 if shard.edge_ids is None else shard.edge_ids.shape[1]
        values, allowed = shard.values is not None, shard.allowed is not None
        return cls(rows, width, shard.num_sequences, shard.ids.shape[1], edges, values, allowed)

    @classmethod
    def holding(cls, shapes: Sequence[_Shape]) -> _Shape:
        """One that all of these fit into."""
        return cls(*(max(column) for column in zip(*shapes)))


NOTHING = _Shape(1, 1, 0, 1, -1, False, False)


def place_shards(shards: Sequence[Shard], mesh: Mesh, attributes: int, labels: int) -> Shard:
    """Shards on the mesh: one whose arrays have one more axis, the first, along ``"data"``.

    Args:
        shards: of this process, of any number and shapes, also none; they are dealt out to its
            places along ``"data"``.
        mesh: of `check_mesh`. All its processes must call this together.
        attributes, labels: how many there are.
    """
    rows = own_rows(mesh)
    dealt = [list(shards[place :: len(rows)]) for place in range(len(rows))]
    shape = _Shape.holding([NOTHING, *(_Shape.of(shard) for shard in shards)])
    most = max(map(len, dealt), default=1) or 1
    if spans_processes(mesh):
        found = all_peers().exchange([*map(int, shape), most])
        shape = _Shape.holding([_Shape(*each[:-1]) for each in found])
        most = max(each[-1] for each in found)
    with jax.ensure_compile_time_eval():  # also while a program is being built
        fitted = []
        for own in dealt:
            parts = [*own, *[None] * most][:most]
            fitted.append(join_shards([_fit(part, shape, attributes, labels) for part in parts]))
        return place_rows(fitted, mesh)


def _fit(shard: Shard | None, shape: _Shape, attributes: int, labels: int) -> Shard:
    """The shard in another shape, at least as large; None for one without a token."""
    if shard is not None and _Shape.of(shard) == shape:
        return shard
    if shard is None:
        empty = NOTHING._replace(
            edge_columns=shape.edge_columns, has_values=shape.has_values, has_allowed=False
        )
        shard = _empty(empty, attributes)
    rows, width = shard.segments.shape
    slots = shape.rows * shape.width

    def grow(array, fill, columns: int) -> np.ndarray:
        array = np.asarray(array)
        out = np.full((shape.rows, shape.width, columns), fill, array.dtype)
        out[:rows, :width, : array.shape[1]] = array.reshape(rows, width, array.shape[1])
        return out.reshape(slots, columns)

    def plane(array, fill) -> np.ndarray:
        out = np.full((shape.rows, shape.width), fill, np.asarray(array).dtype)
        out[:rows, :width] = np.asarray(array)
        return out

    def ends(found) -> np.ndarray:
        found = np.asarray(found)
        there = found[found < rows * width]
        out = np.full(shape.sequences, slots, np.int32)
        out[: len(there)] = there // width * shape.width + there % width
        return out

    values, pairs = shard.values, shard.edge_ids
    if values is None and shape.has_values:
        values = np.ones(shard.ids.shape, np.float32)
    if pairs is None and shape.edge_columns >= 0:
        pairs = np.zeros((rows * width, 0), np.int32)
    return Shard(
        ids=jnp.asarray(grow(shard.ids, attributes, shape.columns)),
        values=None if values is None else jnp.asarray(grow(values, 0, shape.columns)),
        edge_ids=None if pairs is None else jnp.asarray(grow(pairs, -1, shape.edge_columns)),
        segments=jnp.asarray(plane(shard.segments, -1)),
        gold=jnp.asarray(plane(shard.gold, UNKNOWN)),
        allowed=_allowed(shard, shape, labels),
        weights=jnp.asarray(plane(shard.weights, 0)),
        first=jnp.asarray(plane(shard.first, False)),
        starts=jnp.asarray(ends(shard.starts)),
        stops=jnp.asarray(ends(shard.stops)),
        num_sequences=shape.sequences,
    )


def _allowed(shard: Shard, shape: _Shape, labels: int):
    if not shape.has_allowed:
        return None
    rows, width = shard.segments.shape
    out = np.ones((shape.rows, shape.width, labels), bool)
    gold = np.asarray(shard.gold)[..., None]
    known = (gold == np.arange(labels)) | (gold == UNKNOWN)
    out[:rows, :width] = known if shard.allowed is None else np.asarray(shard.allowed)
    return jnp.asarray(out)


def _empty(shape: _Shape, attributes: int) -> Shard:
    """A shard of padding."""
    slots, plane = shape.rows * shape.width, (shape.rows, shape.width)
    ends = np.zeros(0, np.int32)
    edges = shape.edge_columns
    return Shard(
        ids=jnp.full((slots, shape.columns), attributes, jnp.int32),
        values=jnp.zeros((slots, shape.columns), jnp.float32) if shape.has_values else None,
        edge_ids=None if edges < 0 else jnp.full((slots, edges), -1, jnp.int32),
        segments=jnp.full(plane, -1, jnp.int32),
        gold=jnp.full(plane, UNKNOWN, jnp.int32),
        allowed=None,
        weights=jnp.zeros(plane, jnp.float32),
        first=jnp.zeros(plane, bool),
        starts=jnp.asarray(ends),
        stops=jnp.asarray(ends),
        num_sequences=0,
    )


def join_shards(shards: list[Shard]) -> Shard:
    """Shards of one shape below each other, as one."""
    if len(shards) == 1:
        return shards[0]
    slots = shards[0].segments.size
    sequences = shards[0].num_sequences

    def stack(name: str) -> Any:
        arrays = [getattr(shard, name) for shard in shards]
        return None if arrays[0] is None else jnp.concatenate(arrays)

    def ends(name: str):
        parts = []
        for number, shard in enumerate(shards):
            found = getattr(shard, name)
            parts.append(jnp.where(found < slots, found + number * slots, slots * len(shards)))
        return jnp.concatenate(parts)

    segments = jnp.concatenate(
        [
            jnp.where(shard.segments >= 0, shard.segments + number * sequences, -1)
            for number, shard in enumerate(shards)
        ]
    )
    names = ("ids", "values", "edge_ids", "gold", "allowed", "weights", "first")
    return Shard(
        **{name: stack(name) for name in names},
        segments=segments,
        starts=ends("starts"),
        stops=ends("stops"),
        num_sequences=sequences * len(shards),
    )


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
        mesh: with the axes of `jaxseq.parallel.make_mesh`. Where it spans several processes, all of
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
