"""Chains to test on: drawn by Hypothesis, from a seed, and at the extremes.

Few shapes and many values: every new shape costs a compilation of each function.
"""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from jaxseq.lattice import Chain, ChainVector
from jaxseq.verify import Enumeration

INF = np.inf


class Shape(NamedTuple):
    """n positions, s labels, and whether each step has edges of its own."""

    n: int
    s: int
    per_position: bool

    @property
    def edges(self) -> tuple[int, ...]:
        return (self.n - 1, self.s, self.s) if self.per_position else (self.s, self.s)

    @property
    def width(self) -> int:
        """How many labels `rest_entropy` is given."""
        return min(2, self.n)

    def __str__(self):
        return f"n{self.n}s{self.s}{'each' if self.per_position else 'shared'}"


PER_POSITION = Shape(5, 3, True)
SHARED = Shape(5, 3, False)
TRUNCATED = Shape(3, 3, True)  # what PER_POSITION is a padding of
ONE_POSITION = Shape(1, 3, False)
ONE_LABEL = Shape(4, 1, True)
FURTHER_SHAPES = [Shape(6, 4, True), Shape(1, 1, True)]


class Case(NamedTuple):
    """A chain and every other argument that a function of the registry may want."""

    chain: Chain
    other: Chain  # for divergences
    path: jax.Array  # labels [n], also impossible ones
    tangent: ChainVector
    allowed: jax.Array  # booleans [n, s]
    start: jax.Array  # of a span
    stop: jax.Array
    given: jax.Array  # first position of the given labels
    labels: jax.Array  # given labels

    def __repr__(self):  # a failing example has to be readable, and to be pasted
        leaves = jax.tree.leaves_with_path(self)
        lines = [f"{jax.tree_util.keystr(path)} = {np.asarray(x).tolist()}" for path, x in leaves]
        return "\n".join(["Case:", *lines])


class Scores(NamedTuple):
    """What derivatives are taken with respect to."""

    nodes: jax.Array
    edges: jax.Array
    other_nodes: jax.Array
    other_edges: jax.Array


def scores_of(case: Case) -> Scores:
    return Scores(case.chain.nodes, case.chain.edges, case.other.nodes, case.other.edges)


def with_scores(case: Case, scores: Scores) -> Case:
    return case._replace(
        chain=Chain(scores.nodes, scores.edges, case.chain.length),
        other=Chain(scores.other_nodes, scores.other_edges, case.other.length),
    )


def enumerate_chain(chain: Chain) -> Enumeration:
    """The oracle's table, in float64, of the very scores that the chain holds."""
    return Enumeration(np.asarray(chain.nodes), np.asarray(chain.edges), length_of(chain))


def length_of(chain: Chain) -> int:
    return chain.num_positions if chain.length is None else int(chain.length)


def make_case(nodes, edges, length, *, other=None, seed=0, dtype=np.float64, **changes) -> Case:
    """A case around given scores; the arguments not given are drawn from the seed."""
    random = np.random.default_rng(seed)
    nodes, edges = np.asarray(nodes), np.asarray(edges)
    n, s = nodes.shape
    shape = Shape(n, s, edges.ndim == 3)
    if other is None:
        other = random.normal(size=nodes.shape), random.normal(size=edges.shape)
    start, stop = np.sort(random.integers(0, n + 1, 2))
    values = {
        "path": random.integers(0, s, n),
        "tangent": (random.normal(size=nodes.shape), random.normal(size=edges.shape)),
        "allowed": random.random((n, s)) < 0.7,
        "start": start,
        "stop": stop,
        "given": random.integers(0, n - shape.width + 1),
        "labels": random.integers(0, s, shape.width),
    } | changes
    count = None if length is None else jnp.asarray(length, jnp.int32)
    as_scores = lambda pair: [jnp.asarray(x, dtype) for x in pair]  # noqa: E731
    integer = lambda x: jnp.asarray(x, jnp.int32)  # noqa: E731
    return Case(
        chain=Chain(*as_scores((nodes, edges)), count),
        other=Chain(*as_scores(other), count),
        path=integer(values["path"]),
        tangent=ChainVector(*as_scores(values["tangent"])),
        allowed=jnp.asarray(values["allowed"], bool),
        start=integer(values["start"]),
        stop=integer(values["stop"]),
        given=integer(values["given"]),
        labels=integer(values["labels"]),
    )


def random_case(shape: Shape, seed: int, *, length=None, dtype=np.float64, forbid=0.0) -> Case:
    """Normal scores, a share `forbid` of them −inf; `length` n unless told."""
    random = np.random.default_rng([seed, 1])
    nodes, edges = (random.normal(size=size) * 2 for size in ((shape.n, shape.s), shape.edges))
    nodes, edges = (np.where(random.random(x.shape) < forbid, -INF, x) for x in (nodes, edges))
    length = shape.n if length is None else length
    return make_case(nodes, edges, length, seed=seed, dtype=dtype)


def direction_for(case: Case, seed: int = 0) -> Scores:
    """A unit vector in the space of scores."""
    random = np.random.default_rng([seed, 2])
    parts = [random.normal(size=x.shape) for x in scores_of(case)]
    norm = np.sqrt(sum((x**2).sum() for x in parts))
    return Scores(*(jnp.asarray(x / norm, case.chain.nodes.dtype) for x in parts))


# ------------------------------------------------------------------------ drawn by Hypothesis

# Representable in float32 too, so that both precisions see the same chain.
continuous = st.floats(-4, 4, width=32, allow_subnormal=False)
ties = st.integers(-2, 2).map(float)
forbidden = st.just(-INF)


@st.composite
def score_arrays(draw, shape: tuple[int, ...], finite=None):
    """Scores of one style: continuous or with many ties; some forbidden or none."""
    if finite is None:
        finite = draw(st.sampled_from([continuous, ties]))
    elements = draw(st.sampled_from([finite, st.one_of(finite, finite, finite, forbidden)]))
    return draw(hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing()))


@st.composite
def cases(draw, shape: Shape, dtype=np.float64, finite=None):
    """Cases of one shape: any length, any scores, labels that need not exist."""
    n, s = shape.n, shape.s
    arrays = lambda size: draw(score_arrays(size, finite))  # noqa: E731
    labels = st.integers(-1, s)
    start = draw(st.integers(0, n))
    return make_case(
        arrays((n, s)),
        arrays(shape.edges),
        draw(st.integers(0, n)),
        other=(arrays((n, s)), arrays(shape.edges)),
        seed=draw(st.integers(0, 2**16)),
        dtype=dtype,
        path=draw(hnp.arrays(np.int32, n, elements=labels)),
        allowed=draw(hnp.arrays(bool, (n, s))),
        start=start,
        stop=draw(st.integers(start, n)),
        given=draw(st.integers(0, n - shape.width)),
        labels=draw(hnp.arrays(np.int32, shape.width, elements=labels)),
    )


# ------------------------------------------------------------------------------ at the extremes


def _normal(shape, seed, scale=1.0):
    return np.random.default_rng([seed, 3]).normal(size=shape) * scale


def _only(nodes: np.ndarray, path) -> np.ndarray:
    """Nodes with every label but the path's forbidden."""
    keep = np.zeros(nodes.shape, bool)
    keep[np.arange(len(path)), path] = True
    return np.where(keep, nodes, -INF)


def _shared_extremes() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    n, s = SHARED.n, SHARED.s
    nodes, edges = _normal((n, s), 1), _normal((s, s), 2)
    signs = np.sign(_normal((n, s), 3)), np.sign(_normal((s, s), 4))
    cycle = np.where(np.roll(np.eye(s), 1, 1) > 0, edges, -INF)
    forward_only = np.where(np.triu(np.ones((s, s))) > 0, edges, -INF)
    starts_low, ends_high = np.zeros((n, s)), np.zeros((n, s))
    starts_low[0, 1:] = -INF
    ends_high[-1, :-1] = -INF
    no_position = nodes.copy()
    no_position[2] = -INF
    conflict = nodes.copy()
    conflict[0, :2] = conflict[4, 1:] = -INF  # from 2 down to 0, but edges only go up
    far = np.array([[0.0, 0, 0], [0, -150, -300], [0, -300, 0], [-150, 0, 0], [0, 0, -150]])
    return {
        "scores of +1e4 and -1e4": (1e4 * signs[0], 1e4 * signs[1]),
        "scores around 1e4": (_normal((n, s), 5, 1e4), _normal((s, s), 6, 1e4)),
        "one legal path by nodes": (_only(nodes, [0, 2, 1, 1, 0]), edges),
        "one legal path by edges": (nodes + starts_low, cycle),
        "one legal path of 1e4": (_only(_normal((n, s), 7, 1e4), [2, 2, 0, 1, 0]), edges),
        "no legal label at one position": (no_position, edges),
        "no legal transition": (nodes, np.full((s, s), -INF)),
        "no legal path by conflict": (conflict, forward_only),
        "nothing legal": (np.full((n, s), -INF), np.full((s, s), -INF)),
        "left to right": (nodes + starts_low + ends_high, forward_only),
        "left to right, far apart": (far + starts_low + ends_high, forward_only),
        "left to right, 1e4 apart": (far * 60 + starts_low + ends_high, forward_only),
    }


def underflows(gap: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per-position chains that the scaled engine cannot do when exp(−gap) is 0 (or 2 gaps are)."""
    n, s = PER_POSITION.n, PER_POSITION.s
    nodes, edges = _normal((n, s), 11), _normal((n - 1, s, s), 12)

    def changed(node_changes=(), edge_changes=()):
        new_nodes, new_edges = nodes.copy(), edges.copy()
        for index, value in node_changes:
            new_nodes[index] = value
        for index, value in edge_changes:
            new_edges[index] = value
        return new_nodes, new_edges

    low_way_on = np.array([[-INF, -INF, -INF], [0, 1, 0], [0, 0, 0]])
    keep_label = np.where(np.eye(s) > 0, 0, -INF)
    return {
        "a low label is the only way on": changed(
            [(2, [0, -gap, -INF])],
            [(2, low_way_on)],
        ),
        "a low label is the only way back": changed(
            [(0, [0, -INF, -INF]), (1, [-gap, 0, 0])],
            [(0, [[0, -INF, -INF], [0, 0, 0], [0, 0, 0]])],
        ),
        "a low transition is the only one": changed(
            [(0, [0, -INF, -INF])],
            [(0, [[-gap, -gap - 1, -gap], [0, 0, 0], [0, 0, 0]])],
        ),
        "low, and low again": changed(
            [(1, [0, -gap / 2, -INF])],
            [(1, [[-INF] * 3, [-gap / 2] * 3, [0, 0, 0]])],
        ),
        "low behind and low ahead": changed(
            [(0, [0, -gap / 2, -INF])],
            [
                (0, [[-INF] * 3, [-INF, 0, -INF], [-INF, -INF, 0]]),
                (1, [[-INF] * 3, [-gap / 2] * 3, [0, 0, 0]]),
            ],
        ),
        "low behind and low far ahead": changed(
            [(0, [0, -gap / 2, -INF])],
            [
                (0, keep_label + np.array([[-INF], [0], [0]])),
                (1, keep_label),
                (2, keep_label),
                (3, np.array([[-INF] * 3, [-gap / 2] * 3, [0, 0, 0]])),
            ],
        ),
    }


SHARED_EXTREMES = _shared_extremes()
EXTREMES = {
    **{
        name: (nodes, np.broadcast_to(edges, PER_POSITION.edges))
        for name, (nodes, edges) in SHARED_EXTREMES.items()
    },
    **{f"{name} (f32)": chain for name, chain in underflows(120).items()},
    **{f"{name} (f64)": chain for name, chain in underflows(1200).items()},
}


def stack(trees):
    """One tree of arrays with a leading axis over the trees given."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def unstack(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)
