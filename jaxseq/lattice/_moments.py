"""Covariance of the indicator features: times a vector in O(n s²), or written out in full."""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxseq.lattice._chain import Chain, ChainVector, check_same_structure
from jaxseq.lattice._engines import ChainMethod, chain_function, check_chain_method
from jaxseq.lattice._marginals import chain_marginals, like_edges
from jaxseq.lattice._numerics import einsum, matmul
from jaxseq.lattice._propagate import conditionals, covariance_from_marginals


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
    return _covariance_product(chain, check_same_structure("tangent", tangent, chain), method)


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
