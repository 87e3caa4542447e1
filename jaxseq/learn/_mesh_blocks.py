"""Weights that are cut into blocks of attributes, one for each place along ``"model"``."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from jaxseq.learn._parameters import Spread
from jaxseq.scale._mesh import BY_MODEL, DATA, EVERYWHERE, MODEL


@dataclass(frozen=True)
class Blocks:
    """How the table of weights is cut.

    Each of `count` blocks has the weights of `rows` attributes, and a row of zeros for what is not
    in it. With one block it is the table of `Spread` itself.
    """

    count: int
    rows: int
    attributes: int
    width: int
    places: int

    @classmethod
    def of(cls, spread: Spread, mesh: Mesh) -> Blocks:
        """ValueError where the weights are not a table that can be cut."""
        places, count = mesh.devices.shape
        if count > 1 and spread.sparse:
            raise ValueError(
                f"mesh: expected the axis {MODEL!r} with dense weights only (a weight for every "
                "attribute and label), got others"
            )
        attributes, width = spread.attributes, spread.shape[1]
        return cls(count, -(-attributes // count), attributes, width, places)

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

    def empty_tables(self, dtype, mesh: Mesh) -> Array:
        """Zeros for `tables_spec`."""
        sharding = NamedSharding(mesh, self.tables_spec)
        shape = (self.places, *self.shape)

        def part(index) -> np.ndarray:
            return np.zeros([len(range(*i.indices(n))) for i, n in zip(index, shape)], dtype)

        return jax.make_array_from_callback(shape, sharding, part)

    def cut(self, table: Array) -> Array:
        """A table of `Spread` as blocks."""
        weights = jnp.asarray(table)[: self.attributes]
        missing = self.count * self.rows - self.attributes
        weights = jnp.pad(weights, ((0, missing), (0, 0)))
        blocks = weights.reshape(self.count, self.rows, self.width)
        return jnp.pad(blocks, ((0, 0), (0, 1), (0, 0))).reshape(self.shape)

    def join(self, blocks: Array) -> Array:
        """Blocks as a table of `Spread`."""
        cut = blocks.reshape(self.count, self.rows + 1, self.width)[:, : self.rows]
        weights = cut.reshape(-1, self.width)[: self.attributes]
        return jnp.pad(weights, ((0, 1), (0, 0)))
