"""Unfinished searches on disk, to go on from later exactly where they stopped.

One file has all arrays; where weights are in blocks of a mesh, see `jaxseq.crf`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

# -------------------------------------------------------------------------------------------------
# Files that are on the disk, whole, before they take the place of others.


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path`, to be written inside, which then takes its place.

    Whenever a process is killed or the power fails, the old file is there or the new one is, and
    whole. On an error the old one stays. Folders that are missing are made.

    Raises:
        OSError: where that cannot be, with the path that was asked for.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/new/file") as temporary:
        ...         _ = temporary.write_text("text")
        ...     Path(folder, "new", "file").read_text()
        'text'
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        sync_file(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):  # what went wrong before matters more
            temporary.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Return when what was written to a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on the disk; at once where that cannot be asked for."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some file systems refuse
            os.fsync(number)
    finally:
        os.close(number)


def as_os_error(error: Exception, path: str | os.PathLike[str]) -> OSError:
    """What a library that writes files by itself says went wrong, with the path.

    Example:
        >>> as_os_error(Exception("I/O error: No space left on device (os error 28)"), "state")
        OSError(28, 'No space left on device')
    """
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is None:
        return OSError(f"{os.fspath(path)}: cannot be written: {error}")
    return OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path))


FORMAT = "jaxseq checkpoint 1"
FORMAT_OF_INDEX = "jaxseq checkpoint 2"
"""Of a file with the small arrays alone, and the names of those that have the large ones."""

Tree = TypeVar("Tree")


def save_checkpoint(path: str | os.PathLike[str], tree: Any, about: str, extra: Any = None) -> None:
    """Write the arrays of a pytree, with what they belong to, at once or not at all.

    Args:
        path: the file.
        tree: a pytree of arrays.
        about: says which search this is; `load_checkpoint` wants the same.
        extra: anything JSON can hold.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}
    metadata = {"format": FORMAT, "about": about, "extra": json.dumps(extra)}
    write_arrays(path, arrays, metadata)


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree under the names that they have in files."""
    return {f"{i:03d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree))}


def write_arrays(
    path: str | os.PathLike[str], arrays: dict[str, np.ndarray], metadata: dict[str, str]
) -> None:
    """Write a file of safetensors at once or not at all; OSError where that cannot be."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        try:
            save_file(arrays, temporary, metadata)
        except SafetensorError as error:
            raise as_os_error(error, path) from error


def load_checkpoint(path: str | os.PathLike[str], like: Tree, about: str) -> tuple[Tree, Any]:
    """The pytree and the extra of `save_checkpoint`; ValueError if the file is another's.

    Args:
        path: the file.
        like: a pytree of the same structure, shapes and dtypes.
        about: as when saved.
    """
    with open_arrays(path, FORMAT) as (file, metadata):
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    check_about(path, metadata, about)
    leaves = named_leaves(like)
    check_names(path, arrays, leaves)
    for name, leaf in leaves.items():
        check_like(path, name, arrays[name], leaf)
    placed = [place_like(arrays[name], leaf) for name, leaf in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(like), placed), json.loads(metadata["extra"])


def check_about(path: str | os.PathLike[str], metadata: Mapping[str, str], about: str) -> None:
    """ValueError unless the file is of that search."""
    if metadata.get("about") != about:
        raise ValueError(
            f"{path}: expected a checkpoint of this very search (same data and settings), got one "
            "of another; delete it or name another file"
        )


def check_names(
    path: str | os.PathLike[str], found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """ValueError unless a file has the arrays that are wanted."""
    if sorted(found) != sorted(wanted):
        raise ValueError(f"{path}: expected {len(wanted)} arrays, got {len(found)}")


def check_like(path: str | os.PathLike[str], name: str, new: np.ndarray, leaf: Any) -> None:
    """ValueError unless an array of a file has the shape and the dtype of a leaf."""
    old = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if new.shape != old.shape or new.dtype != old.dtype:
        raise ValueError(
            f"{path}: array {name}: expected {old.dtype} of shape {list(old.shape)}, "
            f"got {new.dtype} of shape {list(new.shape)}"
        )


def place_like(array: np.ndarray, leaf: Any) -> jax.Array:
    """On the devices of a mesh where the leaf is on one."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def read_about(path: str | os.PathLike[str]) -> str | None:
    """Which search a checkpoint is of; ValueError if the file is none."""
    return read_metadata(path).get("about")


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """What a checkpoint says of itself; ValueError if the file is none."""
    with open_arrays(path, FORMAT, FORMAT_OF_INDEX) as (_, metadata):
        return metadata


@contextmanager
def open_arrays(
    path: str | os.PathLike[str], *formats: str
) -> Iterator[tuple[Any, dict[str, str]]]:
    """A file of one of these formats, and its metadata, in which ``"extra"`` is JSON.

    ValueError for any other, and for one that is not whole.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = {"extra": "null", **(file.metadata() or {})}
            json.loads(metadata["extra"])
            if metadata.get("format") not in formats:
                raise ValueError(f"{path}: expected {formats[0]!r}, got {metadata.get('format')!r}")
            yield file, metadata
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: expected a checkpoint of jaxseq, got {error}") from error
