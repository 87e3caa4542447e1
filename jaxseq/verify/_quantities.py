"""What is checked: the one list to add to.

An entry says how the library computes a quantity, which plain function it is the derivative of
(if any), and how enumeration obtains it. Everything else — the columns, the chains, the table,
the mutants' verdicts — follows from the entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.verify._cases import EDGE_KINDS, Case, EdgeKind
from jaxseq.verify._oracle import Enumeration, Matrix

# -------------------------------------------------------------------------------------------------
# Every checked quantity of one case, by enumeration: NumPy and the oracle only.


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

    def marginals(self, which: Enumeration) -> Pair:
        """Node and edge marginals, the latter summed over positions where edges are shared."""
        edges = which.edge_marginals()
        return which.node_marginals(), edges.sum(0) if which.edges.ndim == 2 else edges

    def entropy_hessian_product(self) -> Pair:
        """∂/∂θ of ⟨∂H/∂θ, tangent⟩ = −(third cumulant of features, score and tangent) − Cov·v."""
        along = self.chain.centred_scores(*self.tangent)
        score = self.chain.centred_scores(*self.chain.finite_scores)
        return _minus(self.chain.covariance_with(along * score + along))

    def span_gradient(self) -> Pair:
        probability = self.chain.span_probabilities(int(self.case.start), int(self.case.stop))
        return _minus(self.chain.covariance_with(_log(probability)))

    def rest_gradient(self) -> Pair:
        labels = np.asarray(self.case.labels)
        positions = int(self.case.first) + np.arange(len(labels))
        return self._clamped(positions, labels, self.length).entropy_gradient()

    def lattices_gradient(self) -> Pair:
        """Gradient of the weighted sum of both lattices: clamped chains, one for each entry."""
        n, s = self.chain.nodes.shape
        total = np.zeros((n, s)), np.zeros(self.chain.edges.shape)
        possible = self.chain.node_marginals() > 0
        for t, i in zip(*np.nonzero(possible)):
            whole = self._clamped([t], [i], self.length).entropy_gradient()
            left = self._clamped([t], [i], int(t) + 1).entropy_gradient()
            to_left, to_right = np.asarray(self.case.weights)[:, t, i]
            for sum_, whole_part, left_part in zip(total, whole, left):
                sum_ += to_left * left_part + to_right * (whole_part - left_part)
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
        nodes, edges = (own - others for own, others in pairs)
        return self.chain.covariance_product(nodes, edges)

    def divergence_gradient_q(self) -> Pair:
        """∂/∂θ_q of cross_entropy(other, chain), and of kl_divergence(other, chain)."""
        if np.isinf(self.other.cross_entropy(self.chain)) or not self.other.legal:
            return self._nothing()
        pairs = zip(self.marginals(self.chain), self.marginals(self.other))
        nodes, edges = (own - others for own, others in pairs)
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


# -------------------------------------------------------------------------------------------------
# Plain log-space twins of the library's functions, for automatic differentiation to work on.
#
# The library replaces the derivatives of its functions by closed forms, so `jax.grad` of them checks
# nothing. Here is the same mathematics with no closed form in it and no code of `jaxseq.lattice`: one
# log-sum-exp recursion, everything else defined from it, every derivative left to JAX. What does not
# follow from log Z alone is in `jaxseq.verify._table`.


class PlainChain(NamedTuple):
    """Scores of one chain: nodes ``[n, s]``, edges ``[s, s]`` or ``[n - 1, s, s]``, and length."""

    nodes: Float[Array, "n s"]
    edges: Float[Array, "..."]
    length: Int[Array, ""]


def log_sum_exp(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """log Σ exp(x); −inf with derivatives 0 where every entry is −inf.

    An entry of −inf never enters the arithmetic, so no derivative of any order meets ∞ − ∞.
    """
    finite = x > -jnp.inf
    some = finite.any(axis)
    top = lax.stop_gradient(jnp.max(x, axis, keepdims=True))
    top = jnp.where(jnp.isneginf(top), 0, top)
    terms = jnp.where(finite, jnp.exp(jnp.where(finite, x, top) - top), 0)
    total = jnp.log(jnp.where(some, terms.sum(axis), 1)) + jnp.squeeze(top, axis)
    return jnp.where(some, total, -jnp.inf)


def log_partition(chain: PlainChain) -> Float[Array, ""]:
    """log Z by the forward recursion, α_{t+1}(j) = log Σ_i exp(α_t(i) + edge(i, j)) + node(j)."""
    n, s = chain.nodes.shape
    edges = jnp.broadcast_to(chain.edges, (n - 1, s, s))

    def step(alpha, inputs):
        t, node, edge = inputs
        extended = log_sum_exp(alpha[:, None] + edge, 0) + node
        return jnp.where(t < chain.length, extended, alpha), None

    alpha, _ = lax.scan(step, chain.nodes[0], (jnp.arange(1, n), chain.nodes[1:], edges))
    return jnp.where(chain.length > 0, log_sum_exp(alpha, 0), 0)


def marginals(chain: PlainChain) -> tuple[Float[Array, "n s"], Float[Array, "..."]]:
    """∂ log Z / ∂(nodes, edges); where the edges are shared theirs are summed over positions."""
    return jax.grad(_log_partition_of(chain), (0, 1))(chain.nodes, chain.edges)


def entropy(chain: PlainChain) -> Float[Array, ""]:
    """H = log Z − E[score], where E[score] is the derivative of log Z along the scores.

    0 when no path is legal.
    """
    direction = tuple(jnp.where(x > -jnp.inf, x, 0) for x in (chain.nodes, chain.edges))
    log_z, mean = jax.jvp(_log_partition_of(chain), (chain.nodes, chain.edges), direction)
    legal = log_z > -jnp.inf
    return jnp.where(legal, jnp.where(legal, log_z, 0) - mean, 0)


def entropy_along(chain: PlainChain, direction: tuple[Array, Array]) -> Float[Array, ""]:
    """The derivative of the entropy along a direction in the space of scores."""
    value = lambda nodes, edges: entropy(PlainChain(nodes, edges, chain.length))  # noqa: E731
    return jax.jvp(value, (chain.nodes, chain.edges), direction)[1]


def _log_partition_of(chain: PlainChain):
    return lambda nodes, edges: log_partition(PlainChain(nodes, edges, chain.length))


# -------------------------------------------------------------------------------------------------
# Plain functions of the whole distribution, written down path by path in JAX.
#
# The second half of the reference (see `jaxseq.verify._reference`): entropies of parts and
# divergences, as their definitions read, over a table of all labellings. Differentiable to any
# order by JAX; no recursion, no closed form, and no code shared with the library or the oracle.


MOST_PATHS = 1024
"""Chains with more labellings than this are checked without a table."""


@lru_cache
def all_paths(n: int, s: int) -> Int[np.ndarray, "m n"]:
    """Every labelling of n positions."""
    return np.array(list(product(range(s), repeat=n)))


def log_probabilities(
    chain: PlainChain, allowed: Bool[Array, " m"] | None = None
) -> Float[Array, " m"]:
    """log p of every labelling, −inf where illegal; among the `allowed` only, renormalised.

    Of the labellings that differ on padding only, the one with zeros there stands for all.
    """
    n, s = chain.nodes.shape
    paths, position = jnp.asarray(all_paths(n, s)), jnp.arange(n)
    real = position < chain.length
    edges = jnp.broadcast_to(chain.edges, (n - 1, s, s))
    node_scores = jnp.where(real, chain.nodes[position, paths], 0)
    edge_scores = jnp.where(real[1:], edges[position[:-1], paths[:, :-1], paths[:, 1:]], 0)
    scores = jnp.concatenate([node_scores, edge_scores], axis=1)
    finite = scores > -jnp.inf
    legal = finite.all(1) & ((paths == 0) | real).all(1)
    legal = legal if allowed is None else legal & allowed
    total = jnp.where(legal, jnp.where(finite, scores, 0).sum(1), -jnp.inf)
    log_z = log_sum_exp(total, 0)
    return total - jnp.where(jnp.isneginf(log_z), 0, log_z)


def entropy_of(
    log_probability: Float[Array, " m"], chain: PlainChain, kept: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Entropy of the labels at the `kept` positions, the others summed out."""
    n, s = chain.nodes.shape
    paths = jnp.asarray(all_paths(n, s))
    code = jnp.where(kept, paths * s ** np.arange(n), 0).sum(1)
    legal = log_probability > -jnp.inf
    probability = jnp.where(legal, jnp.exp(jnp.where(legal, log_probability, 0)), 0)
    grouped = jax.ops.segment_sum(probability, code, s**n)
    return -(grouped * jnp.log(jnp.where(grouped > 0, grouped, 1))).sum()


def span_entropy(
    chain: PlainChain, start: Int[Array, ""], stop: Int[Array, ""]
) -> Float[Array, ""]:
    """H(Y[start:stop])."""
    position = jnp.arange(chain.nodes.shape[0])
    return entropy_of(log_probabilities(chain), chain, (position >= start) & (position < stop))


def rest_entropy(
    chain: PlainChain, first: Int[Array, ""], labels: Int[Array, " w"]
) -> Float[Array, ""]:
    """Entropy of the labelling given `labels` at first, first + 1, …"""
    n, s = chain.nodes.shape
    offset = jnp.arange(n) - first
    given = (offset >= 0) & (offset < labels.shape[0]) & (jnp.arange(n) < chain.length)
    wanted = labels[jnp.clip(offset, 0, labels.shape[0] - 1)]
    allowed = ((jnp.asarray(all_paths(n, s)) == wanted) | ~given).all(1)
    return entropy_of(log_probabilities(chain, allowed), chain, jnp.ones(n, bool))


def entropy_lattices(chain: PlainChain) -> tuple[Float[Array, "n s"], Float[Array, "n s"]]:
    """Entropy of what lies left, and of what lies right, of t given y_t = i, at [t, i]."""
    n, s = chain.nodes.shape
    paths, position = jnp.asarray(all_paths(n, s)), jnp.arange(n)

    def given(t, i):
        log_probability = log_probabilities(chain, paths[:, t] == i)
        left, right = (
            entropy_of(log_probability, chain, side) for side in (position < t, position > t)
        )
        return jnp.where(t < chain.length, left, 0), jnp.where(t < chain.length, right, 0)

    return jax.vmap(jax.vmap(given, (None, 0)), (0, None))(position, jnp.arange(s))


def cross_entropy(p: PlainChain, q: PlainChain) -> Float[Array, ""]:
    """−Σ p log q; +inf when q forbids what p allows."""
    log_p, log_q = log_probabilities(p), log_probabilities(q)
    return _expected_difference(log_p, jnp.zeros_like(log_p), log_q)


def kl_divergence(p: PlainChain, q: PlainChain) -> Float[Array, ""]:
    """Σ p log (p / q); +inf when q forbids what p allows."""
    log_p, log_q = log_probabilities(p), log_probabilities(q)
    return _expected_difference(log_p, log_p, log_q)


def _expected_difference(log_p: Array, minuend: Array, log_q: Array) -> Array:
    """Σ p (minuend − log q) over the labellings that p allows."""
    allowed = log_p > -jnp.inf
    covered = (~allowed | (log_q > -jnp.inf)).all()
    usable = allowed & covered
    probability = jnp.where(usable, jnp.exp(jnp.where(usable, log_p, 0)), 0)
    difference = jnp.where(usable, minuend, 0) - jnp.where(usable, log_q, 0)
    return jnp.where(covered, (probability * difference).sum(), jnp.inf)


Library = Any
"""Something with the public names of jaxseq: the module itself, or a mutated copy of it."""

LibraryFunction = Callable[[Library, Case, str], Any]


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
    reference: Callable[[Case], Any]
    enumerated: Callable[[Enumerated], Any]
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


def chain_of(lib: Library, case: Case) -> Any:
    return lib.Chain(case.nodes, case.edges, case.length)


def other_of(lib: Library, case: Case) -> Any:
    return lib.Chain(case.other_nodes, case.other_edges, case.length)


def _plain(case: Case) -> PlainChain:
    return PlainChain(*map(jnp.asarray, (case.nodes, case.edges, case.length)))


def _plain_other(case: Case) -> PlainChain:
    return PlainChain(*map(jnp.asarray, (case.other_nodes, case.other_edges, case.length)))


def _of_chain(name: str) -> LibraryFunction:
    """A library function of the chain alone."""
    return lambda lib, case, method: getattr(lib, name)(chain_of(lib, case), method=method)


def _of_pair(name: str, swapped: bool = False) -> LibraryFunction:
    """A library function of the two chains, the case's own being the second when `swapped`."""

    def call(lib, case, method):
        pair = (chain_of(lib, case), other_of(lib, case))
        return getattr(lib, name)(*(reversed(pair) if swapped else pair), method=method)

    return call


def _marginals(lib: Library, case: Case, method: str):
    """Marginals as the derivative of log Z: summed over positions where edges are shared."""
    result = lib.marginals(chain_of(lib, case), method=method)
    edges = result.edges.sum(0) if case.edges.ndim == 2 else result.edges
    return Scores(result.nodes, edges)


def _tangent(case: Case):
    return jnp.asarray(case.node_tangent), jnp.asarray(case.edge_tangent)


def _along_tangent(pair: Any, case: Case):
    """⟨pair, tangent⟩: a number whose gradient is the derivative of `pair` along the tangent."""
    nodes, edges = pair
    return (nodes * case.node_tangent).sum() + (edges * case.edge_tangent).sum()


def _mann_along_tangent(lib: Library, case: Case, method: str):
    gradient = lib.mann_entropy_gradient(chain_of(lib, case), method=method)
    return _along_tangent((gradient.nodes, gradient.edges), case)


def _weighted_lattices(lattices: Any, case: Case):
    left, right = lattices
    return (case.weights[0] * left).sum() + (case.weights[1] * right).sum()


def _rest_entropy(lib: Library, case: Case, method: str):
    return lib.rest_entropy(chain_of(lib, case), case.first, case.labels, method=method)


def _span_entropy(lib: Library, case: Case, method: str):
    return lib.span_entropy(chain_of(lib, case), case.start, case.stop, method=method)


def _plain_rest(case: Case):
    return rest_entropy(_plain(case), jnp.asarray(case.first), jnp.asarray(case.labels))


def _plain_span(case: Case):
    return span_entropy(_plain(case), jnp.asarray(case.start), jnp.asarray(case.stop))


VALUES = (
    Quantity(
        "log_partition",
        hand=_of_chain("log_partition"),
        reference=lambda case: log_partition(_plain(case)),
        enumerated=lambda table: table.chain.log_partition,
    ),
    Quantity(
        "entropy",
        hand=_of_chain("entropy"),
        reference=lambda case: entropy(_plain(case)),
        enumerated=lambda table: table.chain.entropy(),
    ),
    Quantity(
        "entropy_lattices",
        hand=_of_chain("entropy_lattices"),
        reference=lambda case: Lattices(*entropy_lattices(_plain(case))),
        tabular=True,
        enumerated=lambda table: (table.chain.left_entropies(), table.chain.right_entropies()),
    ),
    Quantity(
        "span_entropy",
        hand=_span_entropy,
        reference=_plain_span,
        tabular=True,
        enumerated=lambda table: table.chain.span_entropy(
            int(table.case.start), int(table.case.stop)
        ),
    ),
    Quantity(
        "rest_entropy",
        hand=_rest_entropy,
        reference=_plain_rest,
        tabular=True,
        enumerated=lambda table: table.chain.rest_entropy(
            int(table.case.first), table.case.labels
        ),
    ),
    Quantity(
        "cross_entropy",
        hand=_of_pair("cross_entropy"),
        reference=lambda case: cross_entropy(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.chain.cross_entropy(table.other),
    ),
    Quantity(
        "kl_divergence",
        hand=_of_pair("kl_divergence"),
        reference=lambda case: kl_divergence(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.chain.kl_divergence(table.other),
    ),
)  # fmt: skip

DERIVATIVES = (
    Quantity(
        "marginals",
        hand=_marginals,
        value=_of_chain("log_partition"),
        reference=lambda case: log_partition(_plain(case)),
        enumerated=lambda table: table.marginals(table.chain),
    ),
    Quantity(
        "covariance_product",
        hand=lambda lib, case, method: lib.covariance_product(
            chain_of(lib, case), lib.ChainVector(*_tangent(case)), method=method
        ),
        value=lambda lib, case, method: _along_tangent(_marginals(lib, case, method), case),
        reference=lambda case: _along_tangent(marginals(_plain(case)), case),
        enumerated=lambda table: table.chain.covariance_product(*table.tangent),
    ),
    Quantity(
        "feature_covariance",
        hand=lambda lib, case, method: lib.feature_covariance(
            chain_of(lib, case), method=method
        ).matrix,
        value=_marginals,
        reference=lambda case: Scores(*marginals(_plain(case))),
        enumerated=lambda table: table.chain.covariance(),
    ),
    Quantity(
        "mann_entropy_gradient",
        hand=_of_chain("mann_entropy_gradient"),
        value=_of_chain("entropy"),
        reference=lambda case: entropy(_plain(case)),
        enumerated=lambda table: table.chain.entropy_gradient(),
    ),
    Quantity(
        "jiao_entropy_gradient",
        hand=lambda lib, case, method: lib.jiao_entropy_gradient(chain_of(lib, case)),
        value=_of_chain("entropy"),
        reference=lambda case: entropy(_plain(case)),
        enumerated=lambda table: table.chain.entropy_gradient(),
        methods=("log",),
    ),
    Quantity(
        "∂ mann_entropy_gradient",
        value=_mann_along_tangent,
        reference=lambda case: entropy_along(_plain(case), _tangent(case)),
        enumerated=lambda table: table.entropy_hessian_product(),
    ),
    Quantity(
        "∂ entropy_lattices",
        value=lambda lib, case, method: _weighted_lattices(
            lib.entropy_lattices(chain_of(lib, case), method=method), case
        ),
        reference=lambda case: _weighted_lattices(entropy_lattices(_plain(case)), case),
        tabular=True,
        enumerated=lambda table: table.lattices_gradient(),
    ),
    Quantity(
        "∂ span_entropy",
        value=_span_entropy,
        reference=_plain_span,
        tabular=True,
        enumerated=lambda table: table.span_gradient(),
    ),
    Quantity(
        "∂ rest_entropy",
        value=_rest_entropy,
        reference=_plain_rest,
        tabular=True,
        enumerated=lambda table: table.rest_gradient(),
    ),
    Quantity(
        "∂ cross_entropy / ∂p",
        value=_of_pair("cross_entropy"),
        reference=lambda case: cross_entropy(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.cross_entropy_gradient_p(),
    ),
    Quantity(
        "∂ cross_entropy / ∂q",
        value=_of_pair("cross_entropy", swapped=True),
        reference=lambda case: cross_entropy(_plain_other(case), _plain(case)),
        tabular=True,
        enumerated=lambda table: table.divergence_gradient_q(),
    ),
    Quantity(
        "∂ kl_divergence / ∂p",
        value=_of_pair("kl_divergence"),
        reference=lambda case: kl_divergence(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.kl_divergence_gradient_p(),
    ),
    Quantity(
        "∂ kl_divergence / ∂q",
        value=_of_pair("kl_divergence", swapped=True),
        reference=lambda case: kl_divergence(_plain_other(case), _plain(case)),
        tabular=True,
        enumerated=lambda table: table.divergence_gradient_q(),
    ),
)  # fmt: skip


def _batch_of(lib: Library, case: Case) -> Any:
    """The chain twice in one row of a packed batch: the second copy tests the restart."""
    valid = jnp.arange(case.nodes.shape[0]) < case.length
    segments = jnp.concatenate([jnp.where(valid, copy, -1) for copy in (0, 1)])
    row = jnp.concatenate([case.nodes, case.nodes])
    return lib.PackedBatch(row[None], case.edges, segments[None], 2)


def _second_of(case: Case, result: Any) -> Scores:
    """What a batch function says of the second copy; edges come summed over both."""
    return Scores(result.nodes[0, case.nodes.shape[0] :], result.edges / 2)


def _of_batch(name: str) -> LibraryFunction:
    return lambda lib, case, method: _second_of(
        case, getattr(lib, name)(_batch_of(lib, case), method=method)
    )


def _value_of_batch(name: str) -> LibraryFunction:
    return lambda lib, case, method: getattr(lib, name)(_batch_of(lib, case), method=method)[1]


def _batch_covariance(lib: Library, case: Case, method: str):
    nodes, edges = _tangent(case)
    tangent = lib.PaddedBatch(jnp.concatenate([nodes, nodes])[None], edges)
    return _second_of(
        case, lib.batch_covariance_product(_batch_of(lib, case), tangent, method=method)
    )


EVERY_ENGINE = ("scaled", "log", "native")


def _batched(single: str, name: str, hand: LibraryFunction) -> Quantity:
    """A batch function that must give what `single`, checked above, gives."""
    twin = next(quantity for quantity in VALUES + DERIVATIVES if quantity.name == single)
    methods = ("scaled", "log") if name == "batch_covariance_product" else EVERY_ENGINE
    return replace(twin, name=name, hand=hand, edges=("shared",), methods=methods)


BATCHES = (
    _batched("log_partition", "batch_log_partition", _value_of_batch("batch_log_partition")),
    _batched("entropy", "batch_entropy", _value_of_batch("batch_entropy")),
    _batched("marginals", "batch_marginals", _of_batch("batch_marginals")),
    _batched(
        "mann_entropy_gradient", "batch_entropy_gradient", _of_batch("batch_entropy_gradient")
    ),
    _batched("covariance_product", "batch_covariance_product", _batch_covariance),
)

QUANTITIES: tuple[Quantity, ...] = VALUES + DERIVATIVES + BATCHES
