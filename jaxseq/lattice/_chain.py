"""The chain: the one data structure that every algorithm here produces or consumes."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

# What a chain is made of, and a row of chains, for signatures.
Nodes = Float[Array, "n s"]
Pairs = Float[Array, "n-1 s s"]
Edges = Float[Array, "s s"] | Pairs
Linked = Bool[Array, " n-1"]
Valid = Bool[Array, " n"]

ACCEPTED_DTYPES = ("float32", "float64")  # half precision holds no normalised messages


class Chain(eqx.Module):
    r"""Scores of a linear chain: *the* index convention of this library.

    A sequence of ``n`` positions takes one of ``s`` labels at each. Its score is

    .. math::

        \mathrm{score}(y) = \sum_{t=0}^{n-1} \mathtt{nodes}[t, y_t]
                          + \sum_{t=0}^{n-2} \mathtt{edges}[t, y_t, y_{t+1}],
        \qquad p(y) = \exp(\mathrm{score}(y) - \log Z).

    Scores are finite or −inf; −inf forbids a label or a transition. Start and stop scores belong
    into ``nodes[0]`` and ``nodes[length - 1]``.

    A `Chain` is one sequence. For many, `jax.vmap` over a function that takes a chain, or use the
    batches of `jaxseq.lattice`, which are faster and need less memory.

    Args:
        nodes: score of label ``i`` at position ``t``, shape ``[n, s]``, float32 or float64.
        edges: score of label ``i`` at ``t`` followed by ``j`` at ``t + 1``: ``[s, s]`` when it is
            the same everywhere, else ``[n - 1, s, s]``.
        length: how many positions are real, 0 … n; the rest is padding and influences nothing.
            None means ``n``. May be a traced integer; then values above ``n`` mean ``n``, and
            negative ones 0.
            JAX does not differentiate integers: with a length, use `equinox.filter_grad`, or
            differentiate with respect to nodes and edges and build the chain inside.

    Raises:
        ValueError: when a shape, a dtype or a known length does not fit.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> float(jnp.exp(jaxseq.log_partition(chain)).round())  # 2 · 2 · 2 paths
        8.0
    """

    nodes: Float[Array, "n s"]
    edges: Float[Array, "s s"] | Float[Array, "n-1 s s"]
    length: Int[Array, ""] | None

    def __init__(self, nodes: ArrayLike, edges: ArrayLike, length: ArrayLike | None = None):
        nodes = as_scores("nodes", nodes)
        edges = as_scores("edges", edges)
        if nodes.ndim != 2 or 0 in nodes.shape:
            raise ValueError(
                f"nodes: expected shape [n, s] with n ≥ 1 and s ≥ 1, got {list(nodes.shape)}"
            )
        n, s = nodes.shape
        if edges.shape not in ((s, s), (n - 1, s, s)):
            raise ValueError(
                f"edges: expected shape [{s}, {s}] or [{n - 1}, {s}, {s}] "
                f"to go with nodes of shape [{n}, {s}], got {list(edges.shape)}"
            )
        # One dtype for all: JAX would otherwise promote anew in every operation of a recursion.
        dtype = jnp.promote_types(nodes.dtype, edges.dtype)
        self.nodes = nodes.astype(dtype)
        self.edges = edges.astype(dtype)
        self.length = None
        if length is not None:
            self.length, known = as_index("length", length)
            if known is not None and not 0 <= known <= n:
                raise ValueError(f"length: expected 0 … {n} (the positions of nodes), got {known}")

    @property
    def num_positions(self) -> int:
        """n, padding included."""
        return self.nodes.shape[0]

    @property
    def num_labels(self) -> int:
        """s."""
        return self.nodes.shape[1]

    @property
    def valid(self) -> Bool[Array, " n"]:
        """Which positions are real."""
        n = self.num_positions
        return jnp.ones(n, bool) if self.length is None else jnp.arange(n) < self.length

    @property
    def linked(self) -> Bool[Array, " m"]:
        """Whether positions t and t + 1 are both real, so that ``edges[t]`` counts."""
        return self.valid[1:]  # padding comes last: where t + 1 is real, so is t

    @property
    def last(self) -> Int[Array, ""]:
        """Index of the last real position (0 when there is none)."""
        return jnp.maximum(self.valid.sum() - 1, 0)


class ChainVector(eqx.Module):
    """One number for every score of a chain: a gradient, a tangent, or marginals.

    Args:
        nodes: ``[n, s]``.
        edges: ``[n - 1, s, s]``, or ``[s, s]`` where the chain's edges are shared by all positions.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> direction = jaxseq.ChainVector(jnp.ones((3, 2)), jnp.zeros((2, 2)))
        >>> direction.nodes.shape
        (3, 2)
    """

    nodes: Float[Array, "n s"]
    edges: Float[Array, "s s"] | Float[Array, "n-1 s s"]


def as_scores(name: str, values: ArrayLike) -> Array:
    """`values` as an array of scores; refuses dtypes in which the recursions are not verified."""
    array = jnp.asarray(values)
    if array.dtype.name not in ACCEPTED_DTYPES:
        raise ValueError(
            f"{name}: expected dtype {' or '.join(ACCEPTED_DTYPES)}, got {array.dtype.name}"
        )
    return array


def is_concrete(value: object) -> bool:
    """Whether `value` can be looked at now, that is, is not being traced."""
    return not isinstance(value, Tracer)


def check_integers(name: str, values: Any, shape: tuple[int, ...]) -> Int[Array, "..."]:
    """`values` as integers of the expected shape."""
    array = jnp.asarray(values)
    if array.shape != shape or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(
            f"{name}: expected integers of shape {list(shape)}, got dtype {array.dtype.name} "
            f"of shape {list(array.shape)}"
        )
    return array


def check_same_shapes(name: str, value: Any, like: Any, what: str) -> tuple[Array, Array]:
    """`value.nodes` and `value.edges`, which must be shaped like those of a chain or a batch."""
    arrays = []
    for field in ("nodes", "edges"):
        array = as_scores(f"{name}.{field}", getattr(value, field))
        expected = getattr(like, field).shape
        if array.shape != expected:
            raise ValueError(
                f"{name}.{field}: expected shape {list(expected)} like the {what}'s, "
                f"got {list(array.shape)}"
            )
        arrays.append(array)
    return arrays[0], arrays[1]


def as_index(name: str, value: ArrayLike) -> tuple[Int[Array, ""], int | None]:
    """`value` as an integer scalar, and as a Python integer (None while it is being traced)."""
    array = jnp.asarray(value)
    if array.shape != () or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(
            f"{name}: expected one integer, got dtype {array.dtype.name} of shape "
            f"{list(array.shape)}"
        )
    # Values are looked at only where there are any: under `jit` or `vmap` they are tracers.
    return array, int(np.asarray(array)) if is_concrete(array) else None


def as_count(name: str, value: SupportsIndex, least: int) -> int:
    """`value` as a Python integer that decides a shape."""
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1  # refused below, in the same words
    if count < least or isinstance(value, bool):
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")
    return count
