"""Meshes of devices: the axis of the data, and that of the model's attributes.

Sentences are dealt out along ``"data"``: each device works on its own, and sums over the corpus are
all-reduced along the axis. Along ``"model"``, a device holds the weights of its own attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = TypeVar("Tree")

Device = Any
"""A `jax.Device`, which type checkers take for a variable."""

DATA, MODEL = "data", "model"
"""Names of the axes."""

EVERYWHERE = PartitionSpec()
BY_DATA = PartitionSpec(DATA)
BY_MODEL = PartitionSpec(MODEL)


def make_mesh(devices: Sequence[Device] | None = None, *, model: int = 1) -> Mesh:
    """A mesh for the functions that take one, with the axes ``"data"`` and ``"model"``.

    Args:
        devices: all of all processes by default; those of one process must be neighbours.
        model: devices that share the weights of a model out among them; by default each has all.

    Raises:
        ValueError: when the devices cannot be cut into rows of `model`.

    Example:
        >>> import jax
        >>> mesh = make_mesh(jax.devices()[:1])
        >>> mesh.axis_names, mesh.devices.shape
        (('data', 'model'), (1, 1))
    """
    found = list(jax.devices() if devices is None else devices)
    if model < 1 or not found or len(found) % model:
        raise ValueError(
            f"model: expected a number that {len(found)} devices can be divided by, got {model}"
        )
    return check_mesh(Mesh(np.array(found).reshape(-1, model), (DATA, MODEL)))


def check_mesh(mesh: Any) -> Mesh:
    """The mesh with both axes, as the functions here want it.

    Raises:
        ValueError: for what is no mesh, has no axis ``"data"`` or others than these two, leaves
            processes out, or has rows along ``"data"`` that several processes share.
    """
    if not isinstance(mesh, Mesh):
        raise ValueError(f"mesh: expected a jax.sharding.Mesh, got {mesh!r:.60}")
    names = tuple(mesh.axis_names)
    if DATA not in names or not set(names) <= {DATA, MODEL}:
        raise ValueError(
            f"mesh: expected the axis {DATA!r}, and {MODEL!r} or none beside it, got {names}"
        )
    devices = mesh.devices if MODEL in names else mesh.devices[:, None]
    if names[0] == MODEL:
        devices = devices.T
    owners = [{device.process_index for device in row} for row in devices]
    if any(len(owner) > 1 for owner in owners):
        raise ValueError(
            f"mesh: expected rows along {DATA!r} of one process each, got a shared one"
        )
    left_out = set(range(jax.process_count())) - set().union(*owners)
    if left_out:
        raise ValueError(f"mesh: expected devices of every process, got none of {sorted(left_out)}")
    return Mesh(devices, (DATA, MODEL))


def own_rows(mesh: Mesh) -> list[int]:
    """The places along ``"data"`` that are of this process."""
    here = jax.process_index()
    return [row for row, devices in enumerate(mesh.devices) if devices[0].process_index == here]


def own_mesh(mesh: Mesh) -> Mesh:
    """The rows of this process alone, for work that needs no other."""
    return Mesh(mesh.devices[own_rows(mesh)], mesh.axis_names)


def spans_processes(mesh: Mesh) -> bool:
    """Whether there are devices of other processes in it."""
    return len(own_rows(mesh)) < mesh.devices.shape[0]


def place_rows(parts: Sequence[Tree], mesh: Mesh) -> Tree:
    """One pytree for each own row, equal in structure and shapes, as one on the mesh.

    Its arrays have one more axis, the first, along ``"data"``.
    """
    rows, sharding = own_rows(mesh), NamedSharding(mesh, BY_DATA)

    def place(*leaves: Any) -> jax.Array:
        shape = (mesh.devices.shape[0], *np.shape(leaves[0]))
        pieces = [
            jax.device_put(leaf[None], device)
            for row, leaf in zip(rows, leaves)
            for device in mesh.devices[row]
        ]
        return jax.make_array_from_single_device_arrays(shape, sharding, pieces)

    return jax.tree.map(place, *parts)


def place(tree: Tree, mesh: Mesh, spec: PartitionSpec = EVERYWHERE) -> Tree:
    """Arrays that every process has whole, on the mesh; those that are there stay as they are."""
    sharding = NamedSharding(mesh, spec)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tracer) or _is_on(leaf, mesh):
            return leaf
        if sharding.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        whole = np.asarray(leaf)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    with jax.ensure_compile_time_eval():  # also while a program is being built
        return jax.tree.map(one, tree)


def _is_on(leaf: Any, mesh: Mesh) -> bool:
    sharding = getattr(leaf, "sharding", None)
    return isinstance(sharding, NamedSharding) and sharding.mesh == mesh


def off_mesh(tree: Tree) -> Tree:
    """Whole arrays on this process's default device; all processes must ask at the same time."""
    from jax.experimental.multihost_utils import process_allgather

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array):
            return leaf
        if not isinstance(leaf.sharding, NamedSharding):
            return leaf
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return jax.numpy.asarray(np.asarray(leaf))
        return jax.numpy.asarray(process_allgather(leaf, tiled=True))

    return jax.tree.map(one, tree)


def from_first(tree: Tree) -> Tree:
    """What process 0 has, bit by bit, on the host of each; all must call this together.

    Args:
        tree: a pytree of arrays whose shapes and dtypes, of 32 bits or 64, are those of process 0.
    """
    from jax.experimental.multihost_utils import broadcast_one_to_all

    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    # As whole numbers: what is sent is a sum, which would lose the sign of zeros.
    bits = [np.ascontiguousarray(leaf).reshape(-1).view(np.uint32) for leaf in leaves]
    found = [np.asarray(each) for each in broadcast_one_to_all(bits)]
    back = [each.view(leaf.dtype).reshape(leaf.shape) for each, leaf in zip(found, leaves)]
    return jax.tree.unflatten(jax.tree.structure(tree), back)


def own_parts(array: jax.Array) -> list[np.ndarray]:
    """The pieces along ``"data"`` of an array [rows, …] that are of this process, in order."""
    pieces = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return [np.asarray(pieces[row])[0] for row in sorted(pieces)]


@contextmanager
def in_host_memory(wanted: bool = True) -> Iterator[None]:
    """Inside, new arrays are in the memory of the host, whatever other devices there are.

    Args:
        wanted: False changes nothing.
    """
    try:
        host = jax.local_devices(backend="cpu")[0] if wanted else None
    except RuntimeError:  # JAX was told to do without
        host = None
    if host is None:
        yield
        return
    with jax.default_device(host):
        yield
