"""Weights that are cut into blocks of attributes, one for each place along ``"model"``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from jaxseq.learn._parameters import Spread
from jaxseq.scale._mesh import BY_MODEL, DATA, EVERYWHERE, MODEL, in_host_memory

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
        for place, piece in pieces.items():
            first, stop = self.span(place // (self.rows + 1))
            table[first:stop] = np.asarray(piece)[: stop - first]
        with in_host_memory():
            return jnp.asarray(table)
