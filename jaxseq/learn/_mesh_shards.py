"""Shards of a corpus on the devices of a mesh, padded to the one shape that all of them need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq.learn._corpus import UNKNOWN, Shard
from jaxseq.scale._mesh import own_rows, place_rows, spans_processes
from jaxseq.scale._peers import all_peers


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
