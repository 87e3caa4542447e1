"""What is checked: the one list to add to.

An entry says how the library computes a quantity, which plain function it is the derivative of
(if any), and how enumeration obtains it. Everything else — the columns, the chains, the table,
the mutants' verdicts — follows from the entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxseq.verify import _reference as plain
from jaxseq.verify import _table as by_path
from jaxseq.verify._cases import EDGE_KINDS, Case, EdgeKind
from jaxseq.verify._enumerated import Enumerated

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


def _plain(case: Case) -> plain.PlainChain:
    return plain.PlainChain(*map(jnp.asarray, (case.nodes, case.edges, case.length)))


def _plain_other(case: Case) -> plain.PlainChain:
    return plain.PlainChain(*map(jnp.asarray, (case.other_nodes, case.other_edges, case.length)))


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
    return by_path.rest_entropy(_plain(case), jnp.asarray(case.first), jnp.asarray(case.labels))


def _plain_span(case: Case):
    return by_path.span_entropy(_plain(case), jnp.asarray(case.start), jnp.asarray(case.stop))


VALUES = (
    Quantity(
        "log_partition",
        hand=_of_chain("log_partition"),
        reference=lambda case: plain.log_partition(_plain(case)),
        enumerated=lambda table: table.chain.log_partition,
    ),
    Quantity(
        "entropy",
        hand=_of_chain("entropy"),
        reference=lambda case: plain.entropy(_plain(case)),
        enumerated=lambda table: table.chain.entropy(),
    ),
    Quantity(
        "entropy_lattices",
        hand=_of_chain("entropy_lattices"),
        reference=lambda case: Lattices(*by_path.entropy_lattices(_plain(case))),
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
        reference=lambda case: by_path.cross_entropy(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.chain.cross_entropy(table.other),
    ),
    Quantity(
        "kl_divergence",
        hand=_of_pair("kl_divergence"),
        reference=lambda case: by_path.kl_divergence(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.chain.kl_divergence(table.other),
    ),
)  # fmt: skip

DERIVATIVES = (
    Quantity(
        "marginals",
        hand=_marginals,
        value=_of_chain("log_partition"),
        reference=lambda case: plain.log_partition(_plain(case)),
        enumerated=lambda table: table.marginals(table.chain),
    ),
    Quantity(
        "covariance_product",
        hand=lambda lib, case, method: lib.covariance_product(
            chain_of(lib, case), lib.ChainVector(*_tangent(case)), method=method
        ),
        value=lambda lib, case, method: _along_tangent(_marginals(lib, case, method), case),
        reference=lambda case: _along_tangent(plain.marginals(_plain(case)), case),
        enumerated=lambda table: table.chain.covariance_product(*table.tangent),
    ),
    Quantity(
        "feature_covariance",
        hand=lambda lib, case, method: lib.feature_covariance(
            chain_of(lib, case), method=method
        ).matrix,
        value=_marginals,
        reference=lambda case: Scores(*plain.marginals(_plain(case))),
        enumerated=lambda table: table.chain.covariance(),
    ),
    Quantity(
        "mann_entropy_gradient",
        hand=_of_chain("mann_entropy_gradient"),
        value=_of_chain("entropy"),
        reference=lambda case: plain.entropy(_plain(case)),
        enumerated=lambda table: table.chain.entropy_gradient(),
    ),
    Quantity(
        "jiao_entropy_gradient",
        hand=lambda lib, case, method: lib.jiao_entropy_gradient(chain_of(lib, case)),
        value=_of_chain("entropy"),
        reference=lambda case: plain.entropy(_plain(case)),
        enumerated=lambda table: table.chain.entropy_gradient(),
        methods=("log",),
    ),
    Quantity(
        "∂ mann_entropy_gradient",
        value=_mann_along_tangent,
        reference=lambda case: plain.entropy_along(_plain(case), _tangent(case)),
        enumerated=lambda table: table.entropy_hessian_product(),
    ),
    Quantity(
        "∂ entropy_lattices",
        value=lambda lib, case, method: _weighted_lattices(
            lib.entropy_lattices(chain_of(lib, case), method=method), case
        ),
        reference=lambda case: _weighted_lattices(by_path.entropy_lattices(_plain(case)), case),
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
        reference=lambda case: by_path.cross_entropy(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.cross_entropy_gradient_p(),
    ),
    Quantity(
        "∂ cross_entropy / ∂q",
        value=_of_pair("cross_entropy", swapped=True),
        reference=lambda case: by_path.cross_entropy(_plain_other(case), _plain(case)),
        tabular=True,
        enumerated=lambda table: table.divergence_gradient_q(),
    ),
    Quantity(
        "∂ kl_divergence / ∂p",
        value=_of_pair("kl_divergence"),
        reference=lambda case: by_path.kl_divergence(_plain(case), _plain_other(case)),
        tabular=True,
        enumerated=lambda table: table.kl_divergence_gradient_p(),
    ),
    Quantity(
        "∂ kl_divergence / ∂q",
        value=_of_pair("kl_divergence", swapped=True),
        reference=lambda case: by_path.kl_divergence(_plain_other(case), _plain(case)),
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
