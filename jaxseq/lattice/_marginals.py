"""log Z, the marginals and the covariances, with derivatives of every order.

The key fact: with v a direction in the space of scores,

    d log Z = ⟨marginals, v⟩          d marginals = Cov[features] · v,

and the covariance product is itself a function of the marginals alone. So one custom rule, in
terms of its own outputs, closes the tower: every derivative of every order, forward or reverse,
is available whichever engine computed the values, and no engine is ever differentiated through.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jaxseq.lattice._blocked import blocked_forward_backward
from jaxseq.lattice._chain import (
    Chain,
    ChainVector,
    Edges,
    Linked,
    Nodes,
    Pairs,
    Valid,
    check_integers,
    check_same_shapes,
)
from jaxseq.lattice._engines import (
    ChainMethod,
    chain_function,
    check_chain_method,
    run_forward,
    run_forward_backward,
)
from jaxseq.lattice._numerics import einsum, matmul
from jaxseq.lattice._parallel import parallel_log_partition, parallel_marginals
from jaxseq.lattice._propagate import conditionals, covariance_from_marginals


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def row_marginals(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid, method: ChainMethod
) -> tuple[Nodes, Pairs]:
    """Node and edge marginals of a row (see `jaxseq.lattice._engines` for what a row is)."""
    if method == "parallel":
        return parallel_marginals(nodes, edges, linked, valid)
    if method == "blocked":
        blocked = blocked_forward_backward(nodes, edges, linked, valid, summed=False)
        return blocked.nodes, blocked.edges
    lattice = run_forward_backward(nodes, edges, linked, valid, method)
    return lattice.nodes, lattice.edges


@row_marginals.defjvp
def _(method, primals, tangents):
    node_marginals, edge_marginals = row_marginals(*primals, method)
    node_tangent, edge_tangent, *_ = tangents
    # A function of the outputs, which JAX differentiates through this very rule once more: hence
    # derivatives of every order.
    change = covariance_from_marginals(
        node_marginals, edge_marginals, node_tangent, edge_tangent, parallel=method == "parallel"
    )
    return (node_marginals, edge_marginals), change


@jax.custom_jvp
def row_totals(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid
) -> tuple[Float[Array, ""], Nodes, Edges]:
    """log Z and its gradient, in blocks: of shared edges nothing of size n s² is ever formed."""
    lattice = blocked_forward_backward(nodes, edges, linked, valid, summed=edges.ndim == 2)
    return lattice.log_z, lattice.nodes, lattice.edges


@row_totals.defjvp
def _(primals, tangents):
    node_tangent, edge_tangent, *_ = tangents
    log_z, by_node, by_edge = row_totals(*primals)
    slope = jnp.sum(by_node * node_tangent) + jnp.sum(by_edge * edge_tangent)
    node_marginals, edge_marginals = row_marginals(*primals, "blocked")
    node_change, edge_change = covariance_from_marginals(
        node_marginals, edge_marginals, node_tangent, edge_tangent
    )
    if by_edge.ndim == 2:  # edges are shared, and their gradient is a sum over positions
        edge_change = edge_change.sum(0)
    return (log_z, by_node, by_edge), (slope, node_change, edge_change)


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def row_log_partition(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid, method: ChainMethod
) -> Float[Array, ""]:
    """Sum of the log Z of a row's sequences."""
    if method == "parallel":
        return parallel_log_partition(nodes, edges, linked, valid)
    if method == "blocked":
        return row_totals(nodes, edges, linked, valid)[0]
    return run_forward(nodes, edges, linked, valid, method).sum()


@row_log_partition.defjvp
def _(method, primals, tangents):
    node_tangent, edge_tangent, *_ = tangents
    if method == "blocked":
        value, by_node, by_edge = row_totals(*primals)
    else:
        value, (by_node, by_edge) = (
            f(*primals, method) for f in (row_log_partition, row_marginals)
        )
    # A dead row has zero marginals, so its −inf moves nowhere: derivative 0.
    change = jnp.sum(by_node * node_tangent) + jnp.sum(by_edge * edge_tangent)
    return value, change


@chain_function
def log_partition(chain: Chain, *, method: ChainMethod = "auto") -> Float[Array, ""]:
    r"""Log of the partition function, :math:`\log Z = \log \sum_y \exp \mathrm{score}(y)`.

    −inf when no path is legal; 0 for a chain of length 0. Its gradient is `marginals`, its Hessian
    `feature_covariance`, both by closed form, and further derivatives exist in forward and reverse
    mode.

    Args:
        chain: the scores.
        method: ``"scaled"`` runs the fast engine, which underflows when scores spread by more than
            about 67 (float32) or 668 (float64) within a step; ``"log"`` the one for any range;
            ``"auto"`` the fast one, replaced by the other for a batch in which it was not safe.
            For long chains: ``"blocked"`` cuts the chain into blocks that are done side by side,
            in bounded memory and some four times faster on a CPU than position by position;
            ``"parallel"`` takes O(log n) steps, for accelerators. Both are right for any range.

    Cost: O(n s²) time, O(n s) memory; the gradient O(n s²) in both. ``"blocked"``: of shared edges
    O(n s) memory in the gradient too; O(n s³) time where a chain does not forget (deterministic
    transitions) or underflows. ``"parallel"``: O(n s³) time, O(n s²) memory.

    Accuracy: relative 1e-9 and better in float64, 1e-5 in float32.

    Example:
        >>> import jax, jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> jax.grad(jaxseq.log_partition)(chain).nodes[0].tolist()
        [0.5, 0.5]

    References:
        Rabiner 1989, section V (scaling); Lafferty, McCallum & Pereira 2001;
        Särkkä & García-Fernández 2021 (in parallel).
        Certified by ``jaxseq verify``: enumeration, jax.grad, jax.jvp, central differences.
    """
    return row_log_partition(chain.nodes, chain.edges, chain.linked, chain.valid, method)


@chain_function
def marginals(chain: Chain, *, method: ChainMethod = "auto") -> ChainVector:
    r"""Probability of each label at each position, and of each pair at neighbouring positions.

    ``.nodes[t, i]`` is :math:`p(y_t = i)`, shape [n, s]; ``.edges[t, i, j]`` is
    :math:`p(y_t = i, y_{t+1} = j)`, shape [n − 1, s, s] also when the chain's edges are shared.
    All zero on padding, and everywhere when no path is legal.

    Args:
        chain: the scores.
        method: as in `log_partition`.

    Cost: O(n s²) time and memory.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.log(jnp.array([[0.25, 0.75]])), jnp.zeros((2, 2)))
        >>> jaxseq.marginals(chain).nodes.round(2).tolist()
        [[0.25, 0.75]]

    References:
        Lafferty, McCallum & Pereira 2001. Certified by ``jaxseq verify``: enumeration, and
        jax.grad and jax.jvp of `log_partition` in log space.
    """
    return ChainVector(*chain_marginals(chain, method))


def chain_marginals(chain: Chain, method: ChainMethod) -> tuple[Array, Array]:
    """Node and edge marginals of a chain, as the pair that the formulas on them take."""
    return row_marginals(chain.nodes, chain.edges, chain.linked, chain.valid, method)


def like_edges(chain: Chain, edges: Float[Array, "m s s"]) -> Float[Array, "..."]:
    """Per-position edge values shaped like the chain's edges: summed where those are shared."""
    return edges.sum(0) if chain.edges.ndim == 2 else edges


# -------------------------------------------------------------------------------------------------
# Covariance of the indicator features: times a vector in O(n s²), or written out in full.


@runtime_checkable
class HasScores(Protocol):
    """Anything with ``.nodes`` and ``.edges``: a `Chain`, a `ChainVector`, a gradient."""

    @property
    def nodes(self) -> Array: ...
    @property
    def edges(self) -> Array: ...


def covariance_product(
    chain: Chain, tangent: HasScores, *, method: ChainMethod = "auto"
) -> ChainVector:
    r"""Cov[features] · tangent, which is the Hessian of log Z times the tangent.

    .. math:: \mathrm{Cov}[1\{e\}, g] = p(e)\,(E[g \mid e] - E[g]),
              \qquad g(y) = \langle \mathrm{tangent}, \mathrm{features}(y) \rangle

    Args:
        chain: the scores.
        tangent: ``.nodes`` and ``.edges`` shaped like the chain's; finite, but for what the chain
            forbids, where it does not matter.
        method: as in `log_partition`.

    Returns:
        ``.nodes`` and ``.edges`` shaped like the chain's.

    Cost: O(n s²), about twice that of `marginals`.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((1, 2)), jnp.zeros((2, 2)))
        >>> tangent = jaxseq.ChainVector(jnp.array([[1.0, 0.0]]), jnp.zeros((2, 2)))
        >>> jaxseq.covariance_product(chain, tangent).nodes.tolist()
        [[0.25, -0.25]]

    References:
        Certified by ``jaxseq verify``: enumeration, `feature_covariance`, jax.jvp of jax.grad.
    """
    check_chain_method(method)
    tangent = ChainVector(*check_same_shapes("tangent", tangent, chain, "chain"))
    return _covariance_product(chain, tangent, method)


@partial(jax.jit, static_argnums=2)
def _covariance_product(chain: Chain, tangent: ChainVector, method: ChainMethod) -> ChainVector:
    # What is forbidden never varies: a chain may serve as its own tangent, −inf and all.
    nodes = jnp.where(chain.nodes > -jnp.inf, tangent.nodes, 0)
    edges = jnp.where(chain.edges > -jnp.inf, tangent.edges, 0)
    by_node, by_edge = covariance_from_marginals(
        *chain_marginals(chain, method), nodes, edges, parallel=method == "parallel"
    )
    return ChainVector(by_node, like_edges(chain, by_edge))


class FeatureCovariance(eqx.Module):
    """The covariance matrix of all indicators, in blocks.

    ``nodes_nodes`` [n, s, n, s], ``nodes_edges`` [n, s, *edges], ``edges_edges`` [*edges, *edges],
    where *edges* is the shape of the chain's edges.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((1, 2)), jnp.zeros((2, 2)))
        >>> jaxseq.feature_covariance(chain).matrix[:2, :2].tolist()
        [[0.25, -0.25], [-0.25, 0.25]]
    """

    nodes_nodes: Float[Array, "n s n s"]
    nodes_edges: Float[Array, "n s ..."]
    edges_edges: Float[Array, "..."]

    @property
    def matrix(self) -> Float[Array, "d d"]:
        """One symmetric matrix: node indicators first, then edge indicators."""
        size = self.nodes_nodes.shape[0] * self.nodes_nodes.shape[1]
        top = self.nodes_edges.reshape(size, -1)
        return jnp.block(
            [
                [self.nodes_nodes.reshape(size, size), top],
                [top.T, self.edges_edges.reshape(top.shape[1], top.shape[1])],
            ]
        )


@chain_function
def feature_covariance(chain: Chain, *, method: ChainMethod = "auto") -> FeatureCovariance:
    r"""Covariance of every pair of node and edge indicators: the Hessian of log Z.

    From p(y_a = i, y_b = j) = m_a(i) · p(y_b = j | y_a = i), with the conditional a product of
    transition matrices. For small chains: the result has (n s + n s²)² entries (or (n s + s²)²
    with shared edges, in which case the sum over positions is still formed first).

    Args:
        chain: the scores.
        method: as in `log_partition`.

    Cost: O(n² s⁴) time and memory.

    Example:
        >>> import jax, jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> hessian = jax.hessian(jaxseq.log_partition)(chain)
        >>> covariance = jaxseq.feature_covariance(chain)
        >>> bool(jnp.allclose(hessian.nodes.edges, covariance.nodes_edges, atol=1e-6))
        True
    """
    node, edge = chain_marginals(chain, method)
    _, forward = conditionals(edge)
    n, s = node.shape
    eye = jnp.eye(s, dtype=node.dtype)
    order = jnp.arange(n)

    def extend(segment, step):  # segment [a, i, j] = p(y_t = j | y_a = i), zero for a > t
        transition, t = step
        segment = matmul(segment, transition)
        segment = jnp.where((order == t)[:, None, None], eye, segment)
        return segment, segment

    first = jnp.where((order == 0)[:, None, None], eye, jnp.zeros((n, s, s), node.dtype))
    _, following = lax.scan(extend, first, (forward, order[1:]))
    segments = jnp.concatenate([first[None], following])  # [b, a, i, j]

    # Each pair of events is met from its left member; a segment is 0 in the other direction.
    joint = einsum("ai,baij->aibj", node, segments)
    same = einsum("ai,ij,ab->aibj", node, eye, jnp.eye(n, dtype=node.dtype))
    nodes_nodes = joint + joint.transpose(2, 3, 0, 1) - same

    # Edge t sits at positions t and t + 1. A node before it or at t reaches it through y_t,
    # a node at t + 1 or after it through y_{t+1}.
    from_left = einsum("ai,taik,tkl->aitkl", node, segments[:-1], forward)
    from_right = einsum("tkl,atli->aitkl", edge, segments[:, 1:])
    nodes_edges = from_left + from_right

    # Two edges, t before u: from the right end of one to the left end of the other.
    ahead = einsum("tij,utjk,ukl->tijukl", edge, segments[:-1, 1:], forward)
    same = einsum("tij,ik,jl,tu->tijukl", edge, eye, eye, jnp.eye(n - 1, dtype=node.dtype))
    edges_edges = ahead + ahead.transpose(3, 4, 5, 0, 1, 2) + same

    if chain.edges.ndim == 2:
        edge, nodes_edges, edges_edges = edge.sum(0), nodes_edges.sum(2), edges_edges.sum((0, 3))
    return FeatureCovariance(
        nodes_nodes - jnp.multiply.outer(node, node),
        nodes_edges - jnp.multiply.outer(node, edge),
        edges_edges - jnp.multiply.outer(edge, edge),
    )


# -------------------------------------------------------------------------------------------------
# Scores and probabilities of given labellings, and chains restricted to some of them.


def path_score(chain: Chain, path: ArrayLike) -> Float[Array, ""]:
    r"""Score of one labelling: the sum of its node and edge scores (see `Chain`).

    −inf, with gradient 0, when the path uses a forbidden label or transition, or a label outside
    0 … s − 1. What the path holds on padding does not matter.

    Args:
        chain: the scores.
        path: integers [n].

    Cost: O(n).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.eye(2))
        >>> float(jaxseq.path_score(chain, jnp.array([1, 1])))
        7.0
    """
    return _path_score(chain, check_integers("path", path, (chain.num_positions,)))


@jax.jit
def _path_score(chain: Chain, path: Int[Array, " n"]) -> Float[Array, ""]:
    real, linked = chain.valid, chain.linked
    inside = (path >= 0) & (path < chain.num_labels)
    label = jnp.where(real & inside, path, 0)  # any label will do where none may be looked up
    position = jnp.arange(chain.num_positions)
    nodes = chain.nodes[position, label]
    if chain.edges.ndim == 3:
        edges = chain.edges[position[:-1], label[:-1], label[1:]]
    else:
        edges = chain.edges[label[:-1], label[1:]]
    # The finite part and legality are kept apart so that an illegal path has gradient 0.
    legal = ((inside & (nodes > -jnp.inf)) | ~real).all() & ((edges > -jnp.inf) | ~linked).all()
    total = jnp.where(real & legal, nodes, 0).sum() + jnp.where(linked & legal, edges, 0).sum()
    return jnp.where(legal, total, -jnp.inf)


def log_prob(chain: Chain, path: ArrayLike, *, method: ChainMethod = "auto") -> Float[Array, ""]:
    r"""Log-probability of one labelling, score(y) − log Z.

    −inf, with gradient 0, for an illegal path (and so for any path of a chain that has none).

    Args:
        chain: the scores.
        path: integers [n]; what it holds on padding does not matter.
        method: as in `log_partition`.

    Cost: O(n s²); gradient: indicators of the path less marginals.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> bool(jnp.isclose(jnp.exp(jaxseq.log_prob(chain, jnp.array([0, 1, 1]))), 1 / 8))
        True
    """
    check_chain_method(method)
    return _log_prob(chain, check_integers("path", path, (chain.num_positions,)), method)


@partial(jax.jit, static_argnums=2)
def _log_prob(chain: Chain, path: Int[Array, " n"], method: ChainMethod) -> Float[Array, ""]:
    score = _path_score(chain, path)
    total = row_log_partition(chain.nodes, chain.edges, chain.linked, chain.valid, method)
    legal = score > -jnp.inf
    # The inner `where` keeps −inf − (−inf) out of values and gradients of an illegal path.
    return jnp.where(legal, score - jnp.where(legal, total, 0), -jnp.inf)


def constrain(chain: Chain, allowed: ArrayLike) -> Chain:
    r"""The chain with every label outside `allowed` forbidden: partial labels.

    With Y_L the labellings that pass, :math:`\log P(Y_L) = \log Z_{Y_L} - \log Z` is
    ``log_partition(constrain(chain, allowed)) - log_partition(chain)``, and its gradient is
    clamped less free marginals.

    Args:
        chain: the scores.
        allowed: booleans [n, s]; one True in a row is a known label, several a set of candidates,
            all an unlabelled position. Rows on padding do not matter.

    Cost: O(n s).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> known = jnp.array([[True, False], [True, True]])
        >>> jaxseq.marginals(jaxseq.constrain(chain, known)).nodes.tolist()
        [[1.0, 0.0], [0.5, 0.5]]

    References:
        Tsuboi et al. 2008; Bellare & McCallum 2007; Wanvarie, Takamura & Okumura 2011.
    """
    allowed = jnp.asarray(allowed)
    if allowed.shape != chain.nodes.shape or allowed.dtype != bool:
        raise ValueError(
            f"allowed: expected booleans of shape {list(chain.nodes.shape)}, "
            f"got dtype {allowed.dtype.name} of shape {list(allowed.shape)}"
        )
    return _constrain(chain, allowed)


@jax.jit
def _constrain(chain: Chain, allowed: Bool[Array, "n s"]) -> Chain:
    nodes = jnp.where(allowed, chain.nodes, -jnp.inf)
    return Chain(nodes, chain.edges, chain.length)
