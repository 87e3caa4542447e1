"""Meshes of devices along one axis, ``"data"``.

Sentences are dealt out along it: each device works on its own, and sums over the corpus are
all-reduced. Every device holds all weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = TypeVar("Tree")

Device = Any
"""A `jax.Device`, which type checkers take for a variable."""

DATA = "data"
"""The name of the axis."""

EVERYWHERE = PartitionSpec()
BY_DATA = PartitionSpec(DATA)


def make_mesh(devices: Sequence[Device] | None = None) -> Mesh:
    """A mesh for the functions that take one, with the axis ``"data"``.

    Args:
        devices: by default all devices of all processes.

    Raises:
        ValueError: without a device, or where a process has none of them.

    Example:
        >>> import jax
        >>> mesh = make_mesh(jax.devices()[:1])
        >>> mesh.axis_names, mesh.devices.shape
        (('data',), (1,))
    """
    chosen = list(jax.devices() if devices is None else devices)
    if not chosen:
        raise ValueError("devices: expected at least one, got none")
    return check_mesh(Mesh(np.array(chosen), (DATA,)))


def check_mesh(mesh: Any) -> Mesh:
    """The mesh; ValueError unless its one axis is ``"data"``, with devices of all processes."""
    if not isinstance(mesh, Mesh):
        raise ValueError(f"mesh: expected a jax.sharding.Mesh, got {mesh!r:.60}")
    if tuple(mesh.axis_names) != (DATA,):
        raise ValueError(f"mesh: expected the axis {DATA!r} alone, got {tuple(mesh.axis_names)}")
    owners = {device.process_index for device in mesh.devices}
    left_out = sorted(set(range(jax.process_count())) - owners)
    if left_out:  # it would wait for sums that it has no part in
        raise ValueError(f"mesh: expected devices of every process, got none of {left_out}")
    return mesh


def own_rows(mesh: Mesh) -> list[int]:
    """The places along ``"data"`` that belong to this process."""
    index = jax.process_index()
    return [row for row, device in enumerate(mesh.devices) if device.process_index == index]


def own_mesh(mesh: Mesh) -> Mesh:
    """The devices of this process alone, for work that needs no other."""
    return Mesh(mesh.devices[own_rows(mesh)], mesh.axis_names)


def spans_processes(mesh: Mesh) -> bool:
    """Whether other processes have devices in it."""
    return len(own_rows(mesh)) < mesh.size


def place_rows(parts: Sequence[Tree], mesh: Mesh) -> Tree:
    """One pytree per place of this process, of equal shapes, as one on the mesh with one more axis,
    the first, along ``"data"``."""
    # Each process hands over its own pieces; nothing is sent between them.
    devices, sharding = own_mesh(mesh).devices, NamedSharding(mesh, BY_DATA)

    def place(*leaves: Any) -> jax.Array:
        pieces = [jax.device_put(leaf[None], device) for leaf, device in zip(leaves, devices)]
        shape = (mesh.size, *np.shape(leaves[0]))
        return jax.make_array_from_single_device_arrays(shape, sharding, pieces)

    return jax.tree.map(place, *parts)


def place(tree: Tree, mesh: Mesh) -> Tree:
    """Arrays that every process has, on every device; those that are there stay as they are."""
    sharding = NamedSharding(mesh, EVERYWHERE)

    def one(leaf: Any) -> Any:
        there = getattr(leaf, "sharding", None)
        if isinstance(leaf, Tracer) or (isinstance(there, NamedSharding) and there.mesh == mesh):
            return leaf
        if sharding.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        array = np.asarray(leaf)  # device_put would compare it with that of all processes
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    with jax.ensure_compile_time_eval():  # also while a program is being traced
        return jax.tree.map(one, tree)


def off_mesh(tree: Tree) -> Tree:
    """Arrays on this process's default device; all processes must ask at the same time."""
    from jax.experimental.multihost_utils import process_allgather

    def one(leaf: Any) -> Any:
        is_array = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
        if not is_array or not isinstance(leaf.sharding, NamedSharding):
            return leaf
        # A copy that is on a device of this process will do, where all are alike.
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return jax.numpy.asarray(np.asarray(leaf))
        return jax.numpy.asarray(process_allgather(leaf, tiled=True))

    return jax.tree.map(one, tree)


def from_first(tree: Tree) -> Tree:
    """What process 0 has, bit by bit, on the host of each; all must call this together, with arrays
    of its shapes and dtypes, of 32 bits or 64."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    # As whole numbers: what is sent is a sum, which would lose the sign of zeros.
    bits = [np.ascontiguousarray(leaf).reshape(-1).view(np.uint32) for leaf in leaves]
    sent = [np.asarray(each) for each in broadcast_one_to_all(bits)]
    back = [each.view(leaf.dtype).reshape(leaf.shape) for each, leaf in zip(sent, leaves)]
    return jax.tree.unflatten(jax.tree.structure(tree), back)


def own_parts(array: jax.Array) -> list[np.ndarray]:
    """The pieces along ``"data"`` of an array [rows, …] that belong to this process, in order."""
    # By their rows, since JAX promises no order of the shards.
    pieces = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return [np.asarray(pieces[row])[0] for row in sorted(pieces)]
