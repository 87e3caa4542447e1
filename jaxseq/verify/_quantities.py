"""What is checked: the one list to add to.

An entry says how the library computes a quantity, which plain function it is the derivative of
(if any), and how enumeration obtains it. Everything else — the columns, the chains, the table,
the verdicts on mutants — follows from the entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxseq.verify import _plain as plain
from jaxseq.verify._cases import EDGE_KINDS, Case, EdgeKind
from jaxseq.verify._oracle import Enumeration, Matrix
from jaxseq.verify._plain import PlainChain

Pair = tuple[Matrix, Matrix]


class Enumerated:
    """The enumerations of a case's two chains, and what follows from them.

    Gradients are covariances with the right function of the labelling: for any g(y) that does not
    itself depend on the scores, ∂E[g]/∂θ = Cov[features, g], and
    ∂(−Σ P log P)/∂θ = −Cov[features, log P].
    """

    def __init__(self, case: Case):
        self.case = case
        self.length = int(case.length)

    @cached_property
    def chain(self) -> Enumeration:
        return Enumeration(self.case.nodes, self.case.edges, self.length)

    @cached_property
    def other(self) -> Enumeration:
        return Enumeration(self.case.other_nodes, self.case.other_edges, self.length)

    @property
    def tangent(self) -> Pair:
        return np.asarray(self.case.node_tangent), np.asarray(self.case.edge_tangent)

    # Enumerating is what takes long: both chains are enumerated once, and only if asked about.
    def marginals(self, which: Enumeration) -> Pair:
        """Node and edge marginals, the latter summed over positions where edges are shared."""
        edges = which.edge_marginals()
        return which.node_marginals(), edges.sum(0) if which.edges.ndim == 2 else edges

    def entropy_hessian_product(self) -> Pair:
        """∂/∂θ of ⟨∂H/∂θ, tangent⟩ = −(third cumulant of features, score and tangent) − Cov·v."""
        # With v the tangent, f features and u the score: −E[f° v° u°] − E[f° v°], ° for centred.
        along = self.chain.centred_scores(*self.tangent)
        score = self.chain.centred_scores(*self.chain.finite_scores)
        return _minus(self.chain.covariance_with(along * score + along))

    def span_gradient(self) -> Pair:
        probability = self.chain.span_probabilities(int(self.case.start), int(self.case.stop))
        # log P of the span as a function of the labelling: the class docstring's g.
        return _minus(self.chain.covariance_with(_log(probability)))

    def rest_gradient(self) -> Pair:
        labels = np.asarray(self.case.labels)
        positions = int(self.case.first) + np.arange(len(labels))
        return self._clamped(positions, labels, self.length).entropy_gradient()

    def lattices_gradient(self) -> Pair:
        """Gradient of the weighted sum of both lattices: clamped chains, one for each entry."""
        n, s = self.chain.nodes.shape
        total = np.zeros((n, s)), np.zeros(self.chain.edges.shape)
        possible = self.chain.node_marginals() > 0  # elsewhere a lattice holds 0, which never moves
        for t, i in zip(*np.nonzero(possible)):
            both = self._clamped([t], [i], self.length).entropy_gradient()
            left = self._clamped([t], [i], int(t) + 1).entropy_gradient()  # cut off after t
            to_left, to_right = np.asarray(self.case.weights)[:, t, i]
            for sum_, both_part, left_part in zip(total, both, left):
                sum_ += to_left * left_part + to_right * (both_part - left_part)
        return total

    def cross_entropy_gradient_p(self) -> Pair:
        """∂/∂θ_p of cross_entropy(chain, other)."""
        if np.isinf(self.chain.cross_entropy(self.other)):
            return self._nothing()
        return _minus(self.chain.covariance_product(*self.other.finite_scores))

    def kl_divergence_gradient_p(self) -> Pair:
        """∂/∂θ_p of kl_divergence(chain, other)."""
        if np.isinf(self.chain.kl_divergence(self.other)):
            return self._nothing()
        pairs = zip(self.chain.finite_scores, self.other.finite_scores)
        return self.chain.covariance_product(*(own - other for own, other in pairs))

    def divergence_gradient_q(self) -> Pair:
        """∂/∂θ_q of cross_entropy(other, chain), and of kl_divergence(other, chain)."""
        if np.isinf(self.other.cross_entropy(self.chain)) or not self.other.legal:
            return self._nothing()
        pairs = zip(self.marginals(self.chain), self.marginals(self.other))
        nodes, edges = (own - other for own, other in pairs)
        return nodes, edges

    def _nothing(self) -> Pair:
        """What an infinite value, which does not move, has for a gradient."""
        return np.zeros(self.chain.nodes.shape), np.zeros(self.chain.edges.shape)

    def _clamped(self, positions, labels, length: int) -> Enumeration:
        """The chain in which only `labels` are allowed at `positions`."""
        nodes = self.chain.nodes.copy()
        for t, label in zip(positions, labels):
            keep = nodes[t, label]
            nodes[t] = -np.inf
            nodes[t, label] = keep
        return Enumeration(nodes, self.chain.edges, length)


def _minus(pair: Pair) -> Pair:
    return -pair[0], -pair[1]


def _log(probability: Matrix) -> Matrix:
    return np.log(np.where(probability > 0, probability, 1))


Library = Any
"""Something with the public names of jaxseq: the module itself, or a mutated copy of it."""

LibraryFunction = Callable[[Library, Case, str], Any]
CaseFunction = Callable[[Case], Any]
TableFunction = Callable[[Enumerated], Any]


@dataclass(frozen=True)
class Quantity:
    """One quantity under test.

    A *value* is compared as it is. A *derivative* is the Jacobian of `value` with respect to all
    scores, as a matrix with one row for each number that `value` returns.

    Attributes:
        name: as it appears in the table.
        reference: plain twin; of the quantity itself, or of `value` for a derivative.
        enumerated: the quantity by enumeration, in the same order of entries.
        hand: the quantity by the library. None for a derivative that the library offers only
            through `jax.grad` of `value`.
        value: for a derivative, the library's function that it is the derivative of.
        methods: the engines the library offers for it.
        tabular: whether the reference goes through a table of all paths (small chains only).
        edges: the kinds of edges the library offers it for.
    """

    name: str
    reference: CaseFunction
    enumerated: TableFunction
    hand: LibraryFunction | None = None
    value: LibraryFunction | None = None
    methods: tuple[str, ...] = ("scaled", "log")
    tabular: bool = False
    edges: tuple[EdgeKind, ...] = EDGE_KINDS

    def __post_init__(self):
        if self.hand is None and self.value is None:
            raise ValueError(f"{self.name}: expected `hand` or `value`, got neither")


class Scores(NamedTuple):
    """One number for every score, named so that a coordinate can be."""

    nodes: Float[Array, "n s"] | Float[np.ndarray, "n s"]
    edges: Float[Array, "..."] | Float[np.ndarray, "..."]


class Lattices(NamedTuple):
    """Entropies to the left and to the right, named likewise."""

    left: Float[Array, "n s"]
    right: Float[Array, "n s"]


@dataclass(frozen=True)
class Twin:
    """A function of the library and the plain function that it must agree with."""

    library: LibraryFunction
    plain: CaseFunction
    tabular: bool = False

    def as_value(self, name: str, enumerated: TableFunction) -> Quantity:
        """The function itself as a quantity."""
        return Quantity(name, self.plain, enumerated, hand=self.library, tabular=self.tabular)

    def derivative(
        self, name: str, enumerated: TableFunction, hand: LibraryFunction | None = None
    ) -> Quantity:
        """Its derivative, by the library's closed form `hand` or else by `jax.grad`."""
        return Quantity(name, self.plain, enumerated, hand, self.library, tabular=self.tabular)


def _chain(lib: Library, case: Case) -> Any:
    return lib.Chain(case.nodes, case.edges, case.length)


def _other_chain(lib: Library, case: Case) -> Any:
    return lib.Chain(case.other_nodes, case.other_edges, case.length)


def _plain(case: Case) -> PlainChain:
    return PlainChain(*map(jnp.asarray, (case.nodes, case.edges, case.length)))


def _plain_other(case: Case) -> PlainChain:
    return PlainChain(*map(jnp.asarray, (case.other_nodes, case.other_edges, case.length)))


def _by_chain(name: str) -> LibraryFunction:
    """A library function of the chain alone."""
    return lambda lib, case, method: getattr(lib, name)(_chain(lib, case), method=method)


def _pair_twin(name: str, swapped: bool = False) -> Twin:
    """A function of the two chains, the case's own being the second when `swapped`."""

    def by_library(lib, case, method):
        pair = (_chain(lib, case), _other_chain(lib, case))
        return getattr(lib, name)(*(reversed(pair) if swapped else pair), method=method)

    def by_plain(case):
        pair = (_plain(case), _plain_other(case))
        return getattr(plain, name)(*(reversed(pair) if swapped else pair))

    return Twin(by_library, by_plain, tabular=True)


def _marginals(lib: Library, case: Case, method: str):
    """Marginals as the derivative of log Z: summed over positions where edges are shared."""
    result = lib.marginals(_chain(lib, case), method=method)
    edges = result.edges.sum(0) if case.edges.ndim == 2 else result.edges
    return Scores(result.nodes, edges)


def _covariance_product(lib: Library, case: Case, method: str):
    tangent = lib.ChainVector(*_tangent(case))
    return lib.covariance_product(_chain(lib, case), tangent, method=method)


def _tangent(case: Case):
    return jnp.asarray(case.node_tangent), jnp.asarray(case.edge_tangent)


def _along_tangent(pair: Any, case: Case):
    """⟨pair, tangent⟩: a number whose gradient is the derivative of `pair` along the tangent."""
    nodes, edges = pair
    return (nodes * case.node_tangent).sum() + (edges * case.edge_tangent).sum()


def _mann_along_tangent(lib: Library, case: Case, method: str):
    gradient = lib.mann_entropy_gradient(_chain(lib, case), method=method)
    return _along_tangent((gradient.nodes, gradient.edges), case)


def _weigh_lattices(lattices: Any, case: Case):
    left, right = lattices
    return (case.weights[0] * left).sum() + (case.weights[1] * right).sum()


# What values and derivatives have in common.
LOG_PARTITION = Twin(_by_chain("log_partition"), lambda case: plain.log_partition(_plain(case)))
MARGINALS = Twin(_marginals, lambda case: Scores(*plain.marginals(_plain(case))))
ENTROPY = Twin(_by_chain("entropy"), lambda case: plain.entropy(_plain(case)))
LATTICES = Twin(
    _by_chain("entropy_lattices"),
    lambda case: Lattices(*plain.entropy_lattices(_plain(case))),
    tabular=True,
)
SPAN = Twin(
    lambda lib, case, method: lib.span_entropy(
        _chain(lib, case), case.start, case.stop, method=method
    ),
    lambda case: plain.span_entropy(_plain(case), *map(jnp.asarray, (case.start, case.stop))),
    tabular=True,
)
REST = Twin(
    lambda lib, case, method: lib.rest_entropy(
        _chain(lib, case), case.first, case.labels, method=method
    ),
    lambda case: plain.rest_entropy(_plain(case), *map(jnp.asarray, (case.first, case.labels))),
    tabular=True,
)
CROSS_ENTROPY, KL_DIVERGENCE = _pair_twin("cross_entropy"), _pair_twin("kl_divergence")

VALUES = (
    LOG_PARTITION.as_value("log_partition", lambda table: table.chain.log_partition),
    ENTROPY.as_value("entropy", lambda table: table.chain.entropy()),
    LATTICES.as_value(
        "entropy_lattices",
        lambda table: (table.chain.left_entropies(), table.chain.right_entropies()),
    ),
    SPAN.as_value(
        "span_entropy",
        lambda table: table.chain.span_entropy(int(table.case.start), int(table.case.stop)),
    ),
    REST.as_value(
        "rest_entropy",
        lambda table: table.chain.rest_entropy(int(table.case.first), table.case.labels),
    ),
    CROSS_ENTROPY.as_value("cross_entropy", lambda table: table.chain.cross_entropy(table.other)),
    KL_DIVERGENCE.as_value("kl_divergence", lambda table: table.chain.kl_divergence(table.other)),
)

DERIVATIVES = (
    LOG_PARTITION.derivative("marginals", lambda table: table.marginals(table.chain), _marginals),
    # Second derivatives are the first ones of a number: what the gradient is along a direction.
    Twin(
        lambda lib, case, method: _along_tangent(_marginals(lib, case, method), case),
        lambda case: _along_tangent(plain.marginals(_plain(case)), case),
    ).derivative(
        "covariance_product",
        lambda table: table.chain.covariance_product(*table.tangent),
        _covariance_product,
    ),
    MARGINALS.derivative(
        "feature_covariance",
        lambda table: table.chain.covariance(),
        lambda lib, case, method: lib.feature_covariance(_chain(lib, case), method=method).matrix,
    ),
    # Two published algorithms for one gradient: the same twin, and the same truth.
    ENTROPY.derivative(
        "mann_entropy_gradient",
        lambda table: table.chain.entropy_gradient(),
        _by_chain("mann_entropy_gradient"),
    ),
    replace(
        ENTROPY.derivative(
            "jiao_entropy_gradient",
            lambda table: table.chain.entropy_gradient(),
            lambda lib, case, method: lib.jiao_entropy_gradient(_chain(lib, case)),
        ),
        methods=("log",),
    ),
    Twin(
        _mann_along_tangent,
        lambda case: plain.entropy_along(_plain(case), _tangent(case)),
    ).derivative("∂ mann_entropy_gradient", lambda table: table.entropy_hessian_product()),
    Twin(
        lambda lib, case, method: _weigh_lattices(LATTICES.library(lib, case, method), case),
        lambda case: _weigh_lattices(plain.entropy_lattices(_plain(case)), case),
        tabular=True,
    ).derivative("∂ entropy_lattices", lambda table: table.lattices_gradient()),
    SPAN.derivative("∂ span_entropy", lambda table: table.span_gradient()),
    REST.derivative("∂ rest_entropy", lambda table: table.rest_gradient()),
    CROSS_ENTROPY.derivative(
        "∂ cross_entropy / ∂p", lambda table: table.cross_entropy_gradient_p()
    ),
    KL_DIVERGENCE.derivative(
        "∂ kl_divergence / ∂p", lambda table: table.kl_divergence_gradient_p()
    ),
    # In q both have the same derivative: the entropy of p does not depend on it.
    *(
        _pair_twin(name, swapped=True).derivative(
            f"∂ {name} / ∂q", lambda table: table.divergence_gradient_q()
        )
        for name in ("cross_entropy", "kl_divergence")
    ),
)


def _batch(lib: Library, case: Case) -> Any:
    """The chain twice in one row of a packed batch: the second copy tests the restart."""
    valid = jnp.arange(case.nodes.shape[0]) < case.length
    segments = jnp.concatenate([jnp.where(valid, copy, -1) for copy in (0, 1)])
    row = jnp.concatenate([case.nodes, case.nodes])
    return lib.PackedBatch(row[None], case.edges, segments[None], 2)


def _second_copy(case: Case, result: Any) -> Scores:
    """What a batch function says of the second copy; edges come summed over both."""
    return Scores(result.nodes[0, case.nodes.shape[0] :], result.edges / 2)


def _by_batch(name: str) -> LibraryFunction:
    def run(lib, case, method):
        result = getattr(lib, name)(_batch(lib, case), method=method)
        # Values come one per sequence, gradients as scores.
        return _second_copy(case, result) if hasattr(result, "nodes") else result[1]

    return run


def _batch_covariance(lib: Library, case: Case, method: str):
    nodes, edges = _tangent(case)
    tangent = lib.PaddedBatch(jnp.concatenate([nodes, nodes])[None], edges)
    product = lib.batch_covariance_product(_batch(lib, case), tangent, method=method)
    return _second_copy(case, product)


def _batched(
    single: str, name: str, hand: LibraryFunction, methods: tuple[str, ...] = ("scaled", "log")
) -> Quantity:
    """A batch function that must give what `single`, checked above, gives."""
    twin = next(quantity for quantity in VALUES + DERIVATIVES if quantity.name == single)
    return replace(twin, name=name, hand=hand, edges=("shared",), methods=methods)


# Shares of labels and of pairs: of all labels by divergence, of label 0 at even places and of the
# pair (0, s − 1) by squares. The targets are of what is possible, which does not move.


def _share_targets(shares: Any, lib: Any) -> Any:
    """Of all labels, in the proportions 1 : 2 : 3 : …"""
    wanted = lib.where(shares > 0, lib.arange(1.0, len(shares) + 1), 0)
    return wanted / lib.where(wanted.sum() > 0, wanted.sum(), 1)


WANTED_LABEL, WANTED_PAIR = 0.9, 0.3
SHARE_WEIGHTS = (1.0, 2.0, 3.0)


def _plain_shares(pair: Any, length: Any, lib: Any) -> tuple[Any, Any, Any]:
    nodes, edges = pair
    even = nodes[::2, 0].sum() / lib.maximum((length + 1) // 2, 1)
    return nodes.sum(0) / lib.maximum(length, 1), even, edges[0, -1] / lib.maximum(length - 1, 1)


def _plain_share_penalty(case: Case) -> Array:
    labels, even, pair = _plain_shares(plain.marginals(_plain(case)), case.length, jnp)
    targets = _share_targets(labels, jnp)
    ratio = jnp.where(targets > 0, targets, 1) / jnp.where(targets > 0, labels, 1)
    gaps = (even - WANTED_LABEL) ** 2, (pair - WANTED_PAIR) ** 2
    terms = ((targets * jnp.log(ratio)).sum(), *gaps)
    return sum((w * t for w, t in zip(SHARE_WEIGHTS, terms)), jnp.zeros(()))


def _enumerated_share_gradient(table: Enumerated) -> Pair:
    """The covariance with the functional of the slopes by the shares."""
    pair, length = table.marginals(table.chain), table.length
    labels, even, both = _plain_shares(pair, length, np)
    targets, (n, s) = _share_targets(labels, np), pair[0].shape
    by_label = -targets / np.where(targets > 0, labels, 1) / max(length, 1)
    node_values = np.tile(SHARE_WEIGHTS[0] * by_label, (n, 1))
    by_even = 2 * SHARE_WEIGHTS[1] * (even - WANTED_LABEL)
    node_values[::2, 0] += by_even / max((length + 1) // 2, 1)
    edge_values = np.zeros((s, s))
    edge_values[0, -1] = 2 * SHARE_WEIGHTS[2] * (both - WANTED_PAIR) / max(length - 1, 1)
    return table.chain.covariance_product(node_values, edge_values)


class _SharePenalty:
    """The same by the CRF's two passes over a batch, as `_batch` has it."""

    def __init__(self, lib: Library, case: Case, method: str):
        crf = import_module(f"{lib.__name__}.crf")
        batch, (n, s) = _batch(lib, case), case.nodes.shape
        self.case, self.crf, self.method = case, crf, method
        self.nodes, self.edges = batch.nodes, batch.edges
        position = jnp.tile(jnp.arange(n), 2)
        ones = jnp.ones((1, 2 * n), batch.nodes.dtype)
        ends = jnp.stack([jnp.zeros_like(case.length), jnp.maximum(case.length - 1, 0)])
        shard = {"values": None, "edge_ids": None, "allowed": None, "segments": batch.segments}
        shard |= {"gold": batch.segments * 0 - 1, "weights": ones, "num_sequences": 2}
        shard |= {"first": (position == 0)[None], "starts": ends[:1] + jnp.array([0, n])}
        shard |= {"stops": ends[1:] + jnp.array([0, n])}
        self.shard = crf.Shard(ids=jnp.zeros((2 * n, 1), jnp.int32), **shard)
        real = position < case.length
        holds = jnp.stack([real, real & (position % 2 == 0)], 1)
        marks = jnp.where(holds, jnp.arange(2), 2)
        self.marks = crf.Shard(ids=marks.astype(jnp.int32), **shard)
        # The shares of two copies are those of one; rows and columns as in `EncodedExpectations`.
        totals = jnp.stack([case.length, (case.length + 1) // 2, case.length - 1])
        totals = 2 * jnp.maximum(totals, 1)[jnp.array([0] * s + [1, 2])]
        self.sizes = (2, 1, s)
        present = jnp.zeros((3, s), bool).at[0].set(True).at[1:, 0].set(True)
        targets = jnp.zeros((3, s)).at[1, 0].set(WANTED_LABEL).at[2, 0].set(WANTED_PAIR)
        self.penalty = crf.SharePenalty(
            rows=jnp.array([*range(s), s, 2 * s]),
            columns=jnp.array([*range(s), s, 2 * s + s - 1]),
            coefficients=1 / totals.astype(batch.nodes.dtype),
            least=targets.astype(batch.nodes.dtype),
            most=targets.astype(batch.nodes.dtype),
            present=present,
            weights=jnp.array(SHARE_WEIGHTS, batch.nodes.dtype),
            squared=jnp.array([False, True, True]),
            sizes=self.sizes,
            exact=True,
        )

    def value_and_slopes(self) -> tuple[Array, Any]:
        where = (self.nodes, self.edges, None, self.shard, self.marks)
        _, counts = self.crf.expected_counts(*where, self.sizes, method=self.method)
        shares = lax.stop_gradient(self.penalty.shares(counts)[0])
        targets = self.penalty.least.at[0].set(_share_targets(shares, jnp))
        fields = {f.name: getattr(self.penalty, f.name) for f in dataclasses.fields(self.penalty)}
        penalty = self.crf.SharePenalty(**{**fields, "least": targets, "most": targets})
        return self.crf.share_penalty(penalty, counts)

    def gradient(self) -> Scores:
        _, slopes = self.value_and_slopes()
        where = (self.nodes, self.edges, None, self.shard, self.marks, slopes)
        result = self.crf.expectation_gradient(*where, method=self.method)
        n, s = self.case.nodes.shape
        return Scores(2 * result.nodes[n:, :s], result.transitions)


SHARES = replace(
    Twin(
        lambda lib, case, method: _SharePenalty(lib, case, method).value_and_slopes()[0],
        _plain_share_penalty,
    ).derivative(
        "∂ share_penalty",
        _enumerated_share_gradient,
        lambda lib, case, method: _SharePenalty(lib, case, method).gradient(),
    ),
    edges=("shared",),
)

BATCHES = (
    *(
        _batched(single, name, _by_batch(name), ("scaled", "log", "native"))
        for single, name in (
            ("log_partition", "batch_log_partition"),
            ("entropy", "batch_entropy"),
            ("marginals", "batch_marginals"),
            ("mann_entropy_gradient", "batch_entropy_gradient"),
        )
    ),
    _batched("covariance_product", "batch_covariance_product", _batch_covariance),
)

QUANTITIES: tuple[Quantity, ...] = (*VALUES, *DERIVATIVES, *BATCHES, SHARES)
