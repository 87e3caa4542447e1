"""Random chains to check on: ordinary, padded, with forbidden scores, wide, and without a path."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

DTYPES = ("float32", "float64")


def wide(enabled: bool) -> AbstractContextManager:
    """Allow (or forbid) float64 inside the block; the setting outside is left as it was."""
    # The setting counts when a function is traced, so whole programs run inside the block.
    return jax.enable_x64(enabled)


def check_dtypes(dtypes: tuple[str, ...]) -> None:
    """Refuse dtypes in which nothing is promised."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ValueError(f"dtypes: expected {' or '.join(DTYPES)}, got {dtype!r}")


EdgeKind = Literal["shared", "per position"]
EDGE_KINDS: tuple[EdgeKind, ...] = ("shared", "per position")

# NumPy before a case enters JAX, JAX inside.
Floats = Float[Array, "..."] | Float[np.ndarray, "..."]
Ints = Int[Array, "..."] | Int[np.ndarray, "..."]


class Case(NamedTuple):
    """One chain to check on, with everything a quantity may need besides; or a stack of them."""

    nodes: Floats
    edges: Floats
    length: Ints
    other_nodes: Floats  # of a second chain of the same shape and length
    other_edges: Floats
    node_tangent: Floats  # a direction in the space of scores
    edge_tangent: Floats
    weights: Floats  # [2, n, s], to turn many numbers into one whose gradient is taken
    start: Ints  # of a span
    stop: Ints
    first: Ints  # the position of the first of these labels
    labels: Ints

    def at(self, theta: Float[Array, " d"]) -> Case:
        """The same case with other scores, given as one vector (see `theta`)."""
        n, s = self.nodes.shape
        nodes, edges = theta[: n * s], theta[n * s :]
        return self._replace(nodes=nodes.reshape(n, s), edges=edges.reshape(self.edges.shape))

    @property
    def theta(self) -> Float[Array, " d"]:
        """All scores in one vector: nodes, then edges, in C order."""
        return flatten((self.nodes, self.edges))

    def cast(self, dtype: str) -> Case:
        """Its numbers as JAX arrays of the dtype. Integers stay as they are."""
        return Case(
            *(jnp.asarray(x, dtype if np.issubdtype(x.dtype, np.floating) else None) for x in self)
        )

    def pick(self, index: int) -> Case:
        """One case of a stack."""
        return jax.tree.map(lambda x: x[index], self)


def flatten(tree: Any) -> Float[Array, " d"]:
    """All leaves of a pytree in one vector."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class Stack(NamedTuple):
    """Several cases of one shape, stacked along a leading axis, and what each of them is."""

    cases: Case
    kinds: tuple[str, ...]


def draw_cases(n: int, s: int, edges: EdgeKind, seed: int) -> Stack:
    """Cases of every kind, as NumPy arrays in float64.

    The numbers are representable in float32, so that float32 and float64 are asked about the very
    same chain and share one truth.
    """
    # Each shape has cases of its own, which do not change when other shapes are asked for.
    rng = np.random.default_rng([seed, n, s, EDGE_KINDS.index(edges)])
    edge_shape = (s, s) if edges == "shared" else (n - 1, s, s)
    drawn = {kind: _draw(rng, n, s, edge_shape, kind) for kind in KINDS}
    cases = jax.tree.map(lambda *x: np.stack(x), *drawn.values())
    return Stack(cases, tuple(f"{kind}, length {case.length}" for kind, case in drawn.items()))


KINDS = ("dense", "dense padded", "forbidding", "forbidding padded", "wide", "no legal path")


def _draw(rng: np.random.Generator, n: int, s: int, edge_shape: tuple[int, ...], kind: str) -> Case:
    def scores(shape, spread=1.5):
        return rng.normal(0, spread, shape).astype(np.float32).astype(np.float64)

    length = n - 1 - int(rng.integers(0, max(n // 2, 1))) if "padded" in kind else n
    spread = 5.0 if kind == "wide" else 1.5
    nodes, edges = scores((n, s), spread), scores(edge_shape, spread)
    other_nodes, other_edges = scores((n, s)), scores(edge_shape)
    path = rng.integers(0, s, n)
    if "forbidding" in kind:
        forbidden = _forbid(rng, path, (n, s), edge_shape)
        _apply(forbidden, nodes, edges)
        if "padded" not in kind:
            # Two chains that forbid the same have a finite divergence either way; where only
            # this one forbids, one direction is infinite.
            _apply(forbidden, other_nodes, other_edges)
    if kind == "no legal path":
        nodes[int(rng.integers(0, n))] = -np.inf  # one position without a label is enough
    width = min(2, n)
    start, first = int(rng.integers(0, n)), int(rng.integers(0, n - width + 1))
    stop = int(rng.integers(start, n)) + 1
    return Case(
        nodes, edges, np.asarray(length), other_nodes, other_edges,
        scores((n, s)), scores(edge_shape), scores((2, n, s)),
        np.asarray(start), np.asarray(stop), np.asarray(first), path[first : first + width],
    )  # fmt: skip


def _forbid(rng, path, node_shape, edge_shape) -> tuple[np.ndarray, np.ndarray]:
    """Which scores to forbid: about a quarter, none of them on `path`."""
    nodes, edges = rng.random(node_shape) < 0.25, rng.random(edge_shape) < 0.25
    nodes[np.arange(len(path)), path] = False  # so that there is a legal labelling
    steps = (path[:-1], path[1:])
    edges[steps if len(edge_shape) == 2 else (np.arange(len(path) - 1), *steps)] = False
    return nodes, edges


def _apply(forbidden: tuple[np.ndarray, np.ndarray], *scores: np.ndarray) -> None:
    for array, mask in zip(scores, forbidden):
        array[mask] = -np.inf
