"""Unfinished searches on disk, to go on from later exactly where they stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

FORMAT = "jaxseq checkpoint 1"

Tree = TypeVar("Tree")


def save_checkpoint(path: str | os.PathLike[str], tree: Any, about: str, extra: Any = None) -> None:
    """Write the arrays of a pytree, with what they belong to, at once or not at all.

    Args:
        path: the file.
        tree: a pytree of arrays.
        about: says which search this is; `load_checkpoint` wants the same.
        extra: anything JSON can hold.
    """
    from safetensors.numpy import save_file

    path = Path(path)
    leaves = {f"{i:03d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    metadata = {"format": FORMAT, "about": about, "extra": json.dumps(extra)}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        save_file(leaves, temporary, metadata)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: str | os.PathLike[str], like: Tree, about: str) -> tuple[Tree, Any]:
    """The pytree and the extra of `save_checkpoint`; ValueError if the file is another's.

    Args:
        path: the file.
        like: a pytree of the same structure, shapes and dtypes.
        about: as when saved.
    """
    arrays, metadata = _read(path)
    extra = json.loads(metadata.get("extra", "null"))
    if metadata.get("about") != about:
        raise ValueError(
            f"{path}: expected a checkpoint of this very search (same data and settings), got one "
            "of another; delete it or name another file"
        )
    leaves, structure = jax.tree.flatten(like)
    names = [f"{i:03d}" for i in range(len(leaves))]
    if sorted(arrays) != sorted(names):
        raise ValueError(f"{path}: expected {len(names)} arrays, got {len(arrays)}")
    for name, leaf in zip(names, leaves):
        new, old = arrays[name], leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"{path}: array {name}: expected {old.dtype} of shape {list(old.shape)}, "
                f"got {new.dtype} of shape {list(new.shape)}"
            )
    placed = [_place_like(arrays[name], leaf) for name, leaf in zip(names, leaves)]
    return jax.tree.unflatten(structure, placed), extra


def _place_like(array: np.ndarray, leaf: Any) -> jax.Array:
    """On the devices of a mesh where the leaf is on one."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def read_about(path: str | os.PathLike[str]) -> str | None:
    """Which search a file of `save_checkpoint` is of; ValueError if it is no such file."""
    return _read(path)[1].get("about")


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        json.loads(metadata.get("extra", "null"))
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: expected a checkpoint of jaxseq, got {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: expected {FORMAT!r}, got {metadata.get('format')!r}")
    return arrays, metadata
