"""Names for the entries of a pytree: ``nodes[2, 1]``, ``args[0]['w'][3]``."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def leaf_names(tree: Any, prefix: str = "") -> list[str]:
    """A readable name for each leaf, in flattening order; attributes are written without a dot."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    names = [prefix + jax.tree_util.keystr(path) for path in paths]
    return [name.removeprefix(".") for name in names]


def entry_names(tree: Any, prefix: str = "") -> list[str]:
    """A name for every entry of every leaf (anything with a shape), in flattening order."""
    return [
        entry_name(name, index)
        for name, leaf in zip(leaf_names(tree, prefix), jax.tree.leaves(tree))
        for index in np.ndindex(*np.shape(leaf))
    ]


def entry_name(leaf: str, index: tuple[int, ...]) -> str:
    """One entry of a leaf, such as ``nodes[2, 1]``."""
    return f"{leaf}[{', '.join(map(str, index))}]" if index else leaf
