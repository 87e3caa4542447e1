"""Cross-entropy and Kullback–Leibler divergence between two chains."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxseq.chain._chain import Chain, is_concrete
from jaxseq.chain._engines import ChainMethod, check_chain_method
from jaxseq.chain._entropy import row_entropy
from jaxseq.chain._marginals import chain_marginals, row_log_partition


def cross_entropy(p: Chain, q: Chain, *, method: ChainMethod = "auto") -> Float[Array, ""]:
    r"""Expected surprise of q at a labelling drawn from p, :math:`-\sum_y p(y) \log q(y)`.

    :math:`\log Z_q - \langle \mathrm{scores}_q, \mathrm{marginals}_p \rangle`. +inf, with gradient
    0, when q forbids what p allows; 0 when p has no legal path.

    Args:
        p, q: chains of equal shape and length (edges may be shared in one and not in the other).
        method: as in `log_partition`.

    Cost: O(n s²).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> p = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> bool(jnp.isclose(jaxseq.cross_entropy(p, p), jaxseq.entropy(p)))
        True
    """
    check_chain_method(method)
    _check_pair(p, q)
    return _cross_entropy(p, q, method)


def kl_divergence(p: Chain, q: Chain, *, method: ChainMethod = "auto") -> Float[Array, ""]:
    r"""Kullback–Leibler divergence, :math:`\sum_y p(y) \log (p(y) / q(y)) \ge 0`.

    `cross_entropy(p, q)` less `entropy(p)`, with the same conventions for −inf scores. Of two
    nearly equal chains it is a small difference of sums of scores: expect an absolute error, on
    either side of 0, of some units in the last place of log Z.

    Args:
        p, q: chains of equal shape and length.
        method: as in `log_partition`.

    Cost: O(n s²).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> p = jaxseq.Chain(jnp.log(jnp.array([[0.5, 0.5]])), jnp.zeros((2, 2)))
        >>> q = jaxseq.Chain(jnp.log(jnp.array([[0.25, 0.75]])), jnp.zeros((2, 2)))
        >>> round(float(jaxseq.kl_divergence(p, q)), 4)
        0.1438
    """
    check_chain_method(method)
    _check_pair(p, q)
    return _kl_divergence(p, q, method)


def _check_pair(p: Chain, q: Chain) -> None:
    if p.nodes.shape != q.nodes.shape:
        raise ValueError(
            f"p, q: expected nodes of one shape, got {list(p.nodes.shape)} and "
            f"{list(q.nodes.shape)}"
        )
    lengths = [chain.num_positions if chain.length is None else chain.length for chain in (p, q)]
    if all(map(is_concrete, lengths)) and int(lengths[0]) != int(lengths[1]):
        raise ValueError(f"p, q: expected equal lengths, got {lengths[0]} and {lengths[1]}")


@partial(jax.jit, static_argnums=2)
def _cross_entropy(p: Chain, q: Chain, method: ChainMethod) -> Array:
    node_weights, edge_weights = chain_marginals(p, method)
    node_terms, nodes_covered = _expected(node_weights, q.nodes)
    edge_terms, edges_covered = _expected(edge_weights, q.edges)
    log_z = row_log_partition(q.nodes, q.edges, q.linked, q.valid, method)
    possible = (node_weights > 0).any() & (log_z > -jnp.inf)
    total = jnp.where(possible, log_z, 0) - node_terms - edge_terms
    covered = nodes_covered & edges_covered
    # Where the value is infinite the finite part is cut off, and with it the gradient.
    return jnp.where(covered, jnp.where(covered & possible, total, 0), jnp.inf)


def _expected(weights: Array, scores: Array) -> tuple[Array, Array]:
    """Σ weights · scores over what has weight, and whether all of that is legal."""
    counts = weights > 0
    legal = scores > -jnp.inf
    return (weights * jnp.where(counts & legal, scores, 0)).sum(), (legal | ~counts).all()


@partial(jax.jit, static_argnums=2)
def _kl_divergence(p: Chain, q: Chain, method: ChainMethod) -> Array:
    crossed = _cross_entropy(p, q, method)
    own = row_entropy(p.nodes, p.edges, p.linked, p.valid, method)
    finite = crossed < jnp.inf
    return jnp.where(finite, crossed - jnp.where(finite, own, 0), jnp.inf)
