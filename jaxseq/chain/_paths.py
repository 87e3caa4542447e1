"""Scores and probabilities of given labellings, and chains restricted to some of them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jaxseq.chain._chain import Chain, check_path
from jaxseq.chain._engines import ChainMethod, check_chain_method
from jaxseq.chain._marginals import row_log_partition


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
    return _path_score(chain, check_path("path", path, (chain.num_positions,)))


@jax.jit
def _path_score(chain: Chain, path: Int[Array, " n"]) -> Float[Array, ""]:
    real, linked = chain.valid, chain.linked
    inside = (path >= 0) & (path < chain.num_labels)
    label = jnp.where(real & inside, path, 0)
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
    return _log_prob(chain, check_path("path", path, (chain.num_positions,)), method)


@partial(jax.jit, static_argnums=2)
def _log_prob(chain: Chain, path: Int[Array, " n"], method: ChainMethod) -> Float[Array, ""]:
    score = _path_score(chain, path)
    total = row_log_partition(chain.nodes, chain.edges, chain.linked, chain.valid, method)
    legal = score > -jnp.inf
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
