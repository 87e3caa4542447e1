"""Lattices of batches in C++, as functions that XLA calls on the CPU."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxseq.native._build import CannotBuild, load_library

REALS = {"float32": "float", "float64": "double"}
LANES_BYTES = 64
"""Of a vector, in which every number is of another row."""
SCRATCH_BYTES = 2**26
"""For the messages of a group of rows; where there are too few long rows to fill a group, and it
would take more, they are left to XLA."""
MANY_LABELS = 64
"""From which on a group must be half full at least: XLA's products of large matrices are good."""
BUFFERS = {"forward": 2, "marginals": 3, "entropy": 5}
"""Numbers kept for every label of every slot of a group."""


def _load(dtype: str, watched: bool) -> ctypes.CDLL:
    return load_library("lattice", f"REAL={REALS[dtype]}", *([] if watched else ["UNWATCHED"]))


_REGISTERED: set[str] = set()


@cache
def _register(quantity: str, dtype: str, watched: bool) -> str:
    """The name by which XLA knows a function; CannotBuild where it cannot be had."""
    library = _load(dtype, watched)
    function = getattr(library, f"jaxseq_{quantity}")
    # Under one name XLA knows one function for good, and the same in every process, as compiled
    # programs are kept by it: the checksum of all that a library was made of.
    target = f"jaxseq_{quantity}_{Path(library._name).stem.replace('-', '_')}"
    if target not in _REGISTERED:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(function), platform="cpu")
        _REGISTERED.add(target)
    return target


def why_not(dtype: str = "float32") -> str | None:
    """Why there are no native lattices; None if there are.

    Example:
        >>> why_not() is None or isinstance(why_not(), str)
        True
    """
    if jax.default_backend() != "cpu":
        return "for CPUs alone"
    try:
        _load(dtype, True)
    except CannotBuild as error:
        return str(error)
    return None


def has_native(quantity: str, nodes: Float[Array, "r t s"], watched: bool = True) -> bool:
    """Whether a quantity of a batch can be had in C++.

    Args:
        quantity: a key of `BUFFERS`.
        nodes: the scores.
        watched: whether underflow is looked for.
    """
    dtype = str(nodes.dtype)
    if dtype not in REALS or jax.default_backend() != "cpu":
        return False
    _, slots, labels = nodes.shape
    scratch = (slots * BUFFERS[quantity] + 2 * labels) * labels * LANES_BYTES
    if scratch > SCRATCH_BYTES and _filled(nodes) < 1:
        return False
    try:
        _register(quantity, dtype, watched)
    except CannotBuild:
        return False
    return True


def is_worthwhile(nodes: Float[Array, "r t s"]) -> bool:
    """Whether there are rows enough for C++ to be quicker than XLA."""
    rows, _, labels = nodes.shape
    return rows > 1 and (labels < MANY_LABELS or _filled(nodes) >= 0.5)


def _filled(nodes: Float[Array, "r t s"]) -> float:
    """Groups that the rows fill."""
    return len(nodes) * nodes.dtype.itemsize / LANES_BYTES


def call_native(
    quantity: str,
    edges: Float[Array, "s s"],
    segments: Int[Array, "r t"],
    weights: Float[Array, "r t"],
    nodes: Float[Array, "r t s"],
    size: int,
    watched: bool = True,
) -> tuple[Array, ...]:
    """A quantity of all rows, as the first pass of ``run_blocks`` has it.

    Args:
        quantity: a key of `BUFFERS`; `has_native` for these nodes.
        edges, segments, weights, nodes: as there.
        size: rows of a block, a multiple of 16 or at least all rows.
        watched: whether to look for underflow; if not, all blocks count as certified.

    Returns:
        (by slot [r, t]; by node [r, t, s], empty for ``"forward"``; the sum of each block
        [blocks, s, s], or [blocks, 0]; whether each is certified [blocks]).
    """
    rows, slots, labels = nodes.shape
    blocks, dtype = -(-rows // size), nodes.dtype
    only_forward = quantity == "forward"
    results = (
        jax.ShapeDtypeStruct((rows, slots), dtype),
        jax.ShapeDtypeStruct((rows, slots, 0 if only_forward else labels), dtype),
        jax.ShapeDtypeStruct((blocks, 0) if only_forward else (blocks, labels, labels), dtype),
        jax.ShapeDtypeStruct((blocks,), jnp.bool_),
    )
    target = _register(quantity, str(dtype), watched)
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    arguments = (nodes, edges.astype(dtype), segments.astype(jnp.int32), weights.astype(dtype))
    return tuple(call(*arguments, size=np.int64(size)))
