"""Random chains to check on: ordinary, padded, with forbidden scores, wide, and without a path."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxseq.verify._oracle import Matrix

# -------------------------------------------------------------------------------------------------
# float64 for the length of a `with` block, whatever the process has set.


DTYPES = ("float32", "float64")


def wide(enabled: bool) -> AbstractContextManager:
    """Allow (or forbid) float64 inside the block; the setting outside is left as it was."""
    home = jax if hasattr(jax, "enable_x64") else jax.experimental  # older releases have it there
    return getattr(home, "enable_x64")(enabled)  # noqa: B009 (which of the two, types cannot know)


def check_dtypes(dtypes: tuple[str, ...]) -> None:
    """Refuse dtypes in which nothing is promised."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ValueError(f"dtypes: expected {' or '.join(DTYPES)}, got {dtype!r}")


# -------------------------------------------------------------------------------------------------
# How far two arrays are apart, where, and whether that is close enough.


class Error(NamedTuple):
    """The worst disagreement between two arrays.

    absolute: the largest difference; infinite when a NaN is involved.
    relative: that, over the largest magnitude of what was expected (over 1 when that is 0).
    allowance: what the tolerance is multiplied by, the larger of 1 and that magnitude.
    index: where, or None when nothing was compared.
    """

    absolute: float
    relative: float
    allowance: float
    index: tuple[int, ...] | None

    def within(self, tolerance: float) -> bool:
        """Whether the error is at most `tolerance`, absolutely or relatively."""
        return self.absolute <= tolerance * self.allowance

    @property
    def severity(self) -> float:
        """To choose the worst of several."""
        return self.absolute / self.allowance


def worst_error(actual: Matrix, expected: Matrix, compare: Matrix | None = None) -> Error:
    """The worst entry of `actual` against `expected`, where `compare` is True.

    Equal infinities agree; a NaN agrees with nothing.

    Raises:
        ValueError: when the shapes differ; nothing is broadcast.

    Example:
        >>> import numpy as np
        >>> worst_error(np.array([1.0, 2.5]), np.array([1.0, 2.0])).index
        (1,)
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"expected shape {list(expected.shape)}, got {list(actual.shape)}")
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is answered by the comparison before it
        difference = np.where(actual == expected, 0, np.abs(actual - expected))
    difference = np.where(np.isnan(difference), np.inf, difference)
    if compare is not None:
        difference = np.where(compare, difference, -1)
    if difference.size == 0 or difference.max() < 0:
        return Error(0.0, 0.0, 1.0, None)
    magnitudes = np.abs(expected[np.isfinite(expected)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    index = np.unravel_index(int(difference.argmax()), difference.shape)
    absolute = float(difference[index])
    return Error(absolute, absolute / (scale or 1.0), max(scale, 1.0), tuple(int(i) for i in index))


# -------------------------------------------------------------------------------------------------
# Names for the entries of a pytree: ``nodes[2, 1]``, ``args[0]['w'][3]``.


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


EdgeKind = Literal["shared", "per position"]
EDGE_KINDS: tuple[EdgeKind, ...] = ("shared", "per position")

# NumPy before a case enters JAX, JAX inside.
Floats = Float[Array, "..."] | Float[np.ndarray, "..."]
Ints = Int[Array, "..."] | Int[np.ndarray, "..."]


class Case(NamedTuple):
    """One chain to check on, with everything a quantity may need besides; or a stack of them.

    nodes, edges, length: the chain; derivatives are taken in its nodes and edges.
    other_nodes, other_edges: a second chain of the same shape and length.
    node_tangent, edge_tangent: a direction in the space of scores.
    weights: ``[2, n, s]``, to turn many numbers into one whose gradient is taken.
    start, stop: a span.
    first, labels: labels at positions first, first + 1, …
    """

    nodes: Floats
    edges: Floats
    length: Ints
    other_nodes: Floats
    other_edges: Floats
    node_tangent: Floats
    edge_tangent: Floats
    weights: Floats
    start: Ints
    stop: Ints
    first: Ints
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
        nodes[int(rng.integers(0, n))] = -np.inf
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
    nodes[np.arange(len(path)), path] = False
    steps = (path[:-1], path[1:])
    edges[steps if len(edge_shape) == 2 else (np.arange(len(path) - 1), *steps)] = False
    return nodes, edges


def _apply(forbidden: tuple[np.ndarray, np.ndarray], *scores: np.ndarray) -> None:
    for array, mask in zip(scores, forbidden):
        array[mask] = -np.inf
