"""Lattices of batches in C++, as functions that XLA calls on the CPU."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxseq.native._compiler import CannotBuild
from jaxseq.native._loader import load_library, warn_of_loss

REALS = {"float32": "float", "float64": "double"}
LANES_BYTES = 64  # of a vector register, in which every number belongs to another row
# For the messages of a group of rows. Where there are too few long rows to fill a group, and it
# would take more than this, they are left to XLA.
SCRATCH_BYTES = 2**26
# With this many labels or more a group must be at least half full: XLA's products of large
# matrices are good.
MANY_LABELS = 64
BUFFERS = {"forward": 2, "marginals": 3, "entropy": 5}  # numbers kept per label and slot of a group

_registered: set[str] = set()


@cache
def _register(quantity: str, dtype: str, watched: bool) -> str:
    """The name by which XLA knows a function.

    Raises:
        CannotBuild: where it cannot be had.
    """
    library = load_library(f"lattice-{REALS[dtype]}{'' if watched else '-unwatched'}")
    function = getattr(library.functions, f"jaxseq_{quantity}_xla")
    # Under one name XLA knows one function for good, and it must be the same in every process, as
    # compiled programs are kept by it.
    target = f"jaxseq_{quantity}_{library.identity.replace('-', '_')}"
    if target not in _registered:
        # XLA refuses here what it does not understand, if it has begun; else it would refuse to.
        jax.local_devices(backend="cpu")
        try:
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(function), platform="cpu")
        except (RuntimeError, ValueError) as error:
            raise CannotBuild(f"XLA refuses them: {str(error).splitlines()[0]}") from None
        _registered.add(target)
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
        _register("forward", dtype, True)
    except CannotBuild as error:
        return str(error)
    return None


def why_not_native(quantity: str, nodes: Float[Array, "r t s"], watched: bool) -> str | None:
    """Why a quantity of a batch cannot be had in C++; None if it can.

    Args:
        quantity: a key of `BUFFERS`.
        nodes: the scores.
        watched: whether underflow is to be looked for. These are two libraries, and either may
            fail to build without the other.
    """
    if reason := _why_unsuited(quantity, nodes):
        return reason
    try:
        _register(quantity, str(nodes.dtype), watched)
    except CannotBuild as error:
        return str(error)
    return None


def _why_unsuited(quantity: str, nodes: Float[Array, "r t s"]) -> str | None:
    if str(nodes.dtype) not in REALS:
        return f"for {' and '.join(REALS)} alone"
    if jax.default_backend() != "cpu":
        return "for CPUs alone"
    _, slots, labels = nodes.shape
    scratch = (slots * BUFFERS[quantity] + 2 * labels) * labels * LANES_BYTES
    if scratch > SCRATCH_BYTES and _filled_groups(nodes) < 1:
        return "for rows that fit the CPU's cache"
    return None


def has_native(quantity: str, nodes: Float[Array, "r t s"], watched: bool = True) -> bool:
    """Whether a quantity of a batch can be had in C++; arguments as in `why_not_native`.

    Warns, once per process, where it can be had in principle and not on this machine.
    """
    if _why_unsuited(quantity, nodes):
        return False
    try:
        _register(quantity, str(nodes.dtype), watched)
    except CannotBuild as error:
        warn_of_loss(error)
        return False
    return True


def is_worthwhile(nodes: Float[Array, "r t s"]) -> bool:
    """Whether there are rows enough for C++ to be quicker than XLA."""
    rows, _, labels = nodes.shape
    return rows > 1 and (labels < MANY_LABELS or _filled_groups(nodes) >= 0.5)


def _filled_groups(nodes: Float[Array, "r t s"]) -> float:
    """How many groups the rows fill."""
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
        edges: as there.
        segments: as there.
        weights: as there.
        nodes: as there.
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
    # The order and the types that `read_job` in lattice.cc takes for granted.
    arguments = (nodes, edges.astype(dtype), segments.astype(jnp.int32), weights.astype(dtype))
    return tuple(call(*arguments, size=np.int64(size)))
