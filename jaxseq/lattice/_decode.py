"""Best labellings: Viterbi, the k best, and the most probable label at each position."""

from __future__ import annotations

from functools import partial
from typing import SupportsIndex

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key, UInt32

from jaxseq.lattice._chain import Chain, Edges, Linked, Nodes, Valid, as_count
from jaxseq.lattice._engines import ChainMethod, chain_function, check_chain_method, scan_edges
from jaxseq.lattice._marginals import chain_marginals, path_score
from jaxseq.lattice._numerics import argmax, finite_top
from jaxseq.lattice._parallel import follow, parallel_best_path
from jaxseq.lattice._propagate import conditionals

NO_LABEL = -1
"""What a path holds on padding, and everywhere when there is no legal path."""


def viterbi(
    chain: Chain, *, method: ChainMethod = "auto"
) -> tuple[Int[Array, " n"], Float[Array, ""]]:
    r"""The best labelling, :math:`\arg\max_y \mathrm{score}(y)`, and its score.

    Ties go to the smaller label, decided from the last position backwards. The score is
    differentiable: its gradient is the indicator of the path. With no legal path the score is
    −inf and the path −1.

    Args:
        chain: the scores.
        method: ``"parallel"`` takes O(log n) steps, for accelerators; the other methods of
            `log_partition` are one and the same here, as a maximum cannot underflow.

    Returns:
        (path [n], score); positions past the length hold −1.

    Cost: O(n s²) time, O(n s) memory: back-pointers are found again on the way back.
    ``"parallel"``: O(n s³) time, O(n s²) memory.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[1.0, 2.0], [3.0, 2.5]]), jnp.eye(2))
        >>> path, score = jaxseq.viterbi(chain)
        >>> path.tolist(), float(score)
        ([1, 1], 5.5)

    References:
        Viterbi 1967. Certified against enumeration.
    """
    check_chain_method(method)
    return _viterbi(chain, method == "parallel")


@partial(jax.jit, static_argnums=1)
def _viterbi(chain: Chain, parallel: bool) -> tuple[Array, Array]:
    search = parallel_best_path if parallel else best_path
    # The path is found without derivatives; those are of its score, computed anew below.
    path = search(chain.nodes, chain.edges, chain.linked, chain.valid)
    path = jnp.where(chain.valid, path, NO_LABEL)
    score = path_score(chain, path)
    return jnp.where(score > -jnp.inf, path, NO_LABEL), score


def best_path(nodes: Nodes, edges: Edges, linked: Linked, valid: Valid) -> Int[Array, " n"]:
    """Best labels; arbitrary where no path is legal."""
    nodes, edges = lax.stop_gradient((nodes, edges))

    def advance(best, edge, node, link):
        return _shifted(jnp.where(link, (best[:, None] + edge).max(0), 0) + node), best

    first = _shifted(nodes[0])
    last, bests = scan_edges(advance, first, edges, nodes[1:], linked)

    def step_back(label, edge, best, link):
        # No back-pointers are kept: for s labels they would take as much memory as the scores.
        label = argmax(best + jnp.where(link, edge[:, label], 0))
        return label, label

    final = argmax(last)
    _, path = scan_edges(step_back, final, edges, bests, linked, reverse=True)
    return jnp.where(valid, jnp.concatenate([path, final[None]]), NO_LABEL)


def _shifted(best: Array) -> Array:
    # Only differences matter; without the shift, long chains would lose digits to large sums.
    return best - finite_top(best)


def k_best(chain: Chain, k: SupportsIndex) -> tuple[Int[Array, "k n"], Float[Array, " k"]]:
    """The k best labellings, best first, all different.

    When there are fewer than k legal paths the missing scores are −inf and their paths repeat the
    last legal one (−1 throughout when there is none). Scores are differentiable like Viterbi's.

    Args:
        chain: the scores.
        k: how many, at least 1; a Python integer (it decides shapes).

    Returns:
        (paths [k, n], scores [k]).

    Cost: O(n s² k log(s k)) time, O(n s k) memory.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[1.0, 2.0], [3.0, 2.5]]), jnp.eye(2))
        >>> paths, scores = jaxseq.k_best(chain, 3)
        >>> paths.tolist(), scores.tolist()
        ([[1, 1], [0, 0], [1, 0]], [5.5, 5.0, 5.0])

    References:
        Seshadri & Sundberg 1994 (parallel list Viterbi). Certified against enumeration.
    """
    return _k_best(chain, as_count("k", k, 1))


@partial(jax.jit, static_argnums=1)
def _k_best(chain: Chain, k: int) -> tuple[Array, Array]:
    nodes, edges = lax.stop_gradient((chain.nodes, chain.edges))
    s = chain.num_labels

    def advance(best, edge, node, link):  # best [s, k]: of prefixes that end in each label
        # Place i·k + r of the candidates is the r-th best prefix that ends in label i.
        candidates = best.reshape(s * k)[:, None] + jnp.repeat(edge, k, axis=0)
        kept, origin = lax.top_k(candidates.T, k)
        kept = _shifted(kept + node[:, None])
        stay = jnp.arange(s * k, dtype=jnp.int32).reshape(s, k)
        return jnp.where(link, kept, best), jnp.where(link, origin, stay)

    first = jnp.full((s, k), -jnp.inf, nodes.dtype).at[:, 0].set(nodes[0])
    # A chain without a position has one labelling, the empty one, of score 0.
    empty = jnp.full((s, k), -jnp.inf, nodes.dtype).at[0, 0].set(0)
    start = jnp.where(chain.valid[0], first, empty)
    best, origins = scan_edges(advance, start, edges, nodes[1:], chain.linked)
    ends, where = lax.top_k(best.reshape(s * k), k)

    def step_back(places, origin):
        before = origin.reshape(s * k)[places]
        return before, before

    _, visited = lax.scan(step_back, where, origins, reverse=True)
    paths = jnp.concatenate([visited, where[None]]).T // k
    paths = jnp.where(chain.valid, paths, NO_LABEL)

    scores = jax.vmap(path_score, (None, 0))(chain, paths)
    scores = jnp.where(ends > -jnp.inf, scores, -jnp.inf)
    # Recomputed scores may differ in the last bit from the ones that ranked the paths.
    order = jnp.argsort(-scores, stable=True)
    legal = (ends > -jnp.inf).sum()
    repeated = order[jnp.minimum(jnp.arange(k), jnp.maximum(legal - 1, 0))]
    return jnp.where(legal > 0, paths[repeated], NO_LABEL), scores[order]


@chain_function
def max_marginal(chain: Chain, *, method: ChainMethod = "auto") -> Int[Array, " n"]:
    r"""The most probable label at each position, :math:`\arg\max_i p(y_t = i)`.

    Expects the most correct tokens, where `viterbi` has the best chance of a correct whole; its
    path need not be legal. Haffari & Sarkar's SMS decoding. Ties go to the smaller label.

    Args:
        chain: the scores.
        method: as in `log_partition`.

    Returns:
        path [n]; −1 on padding, and throughout when no path is legal.

    Cost: O(n s²).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[1.0, 2.0], [3.0, 2.5]]), jnp.eye(2))
        >>> jaxseq.max_marginal(chain).tolist()
        [1, 0]
    """
    nodes, _ = chain_marginals(chain, method)
    return jnp.where((nodes > 0).any(1), argmax(nodes), NO_LABEL)


# -------------------------------------------------------------------------------------------------
# Exact samples of labellings.


def sample(
    chain: Chain,
    *,
    key: Key[Array, ""] | UInt32[Array, "2"],
    num: SupportsIndex,
    method: ChainMethod = "auto",
) -> Int[Array, "num n"]:
    r"""Independent labellings drawn from :math:`p(y)`.

    The first label comes from its marginal, each further one from
    :math:`p(y_{t+1} \mid y_t)`. The randomness of position t in sample r depends on the key, t
    and r alone: padding a chain, or asking for more samples, changes none of the others. All
    methods draw with the same randomness: a key gives the same labels by each, but for the rare
    draw that hangs on the last bits of a probability.

    Args:
        chain: the scores.
        key: a JAX random key.
        num: how many samples, a Python integer.
        method: as in `log_partition`.

    Returns:
        labels [num, n]; −1 on padding, and throughout when no path is legal.

    Cost: O(n s²) once, O(n s) per sample; ``"parallel"`` in O(log n) steps, O(n s³) once, O(n s²) a
    sample.

    Example:
        >>> import jax, jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[0.0, -jnp.inf], [0.0, 0.0]]), jnp.zeros((2, 2)))
        >>> jaxseq.sample(chain, key=jax.random.key(0), num=100)[:, 0].max().item()
        0
    """
    check_chain_method(method)
    return _sample(chain, key, as_count("num", num, 0), method)


@partial(jax.jit, static_argnums=(2, 3))
def _sample(chain: Chain, key: Array, num: int, method: ChainMethod) -> Array:
    node_marginals, edge_marginals = lax.stop_gradient(chain_marginals(chain, method))
    _, forward = conditionals(edge_marginals)
    log_first, log_next = jnp.log(node_marginals[0]), jnp.log(forward)
    walk = _walk_in_parallel if method == "parallel" else _walk
    positions = jnp.arange(chain.num_positions)

    def noise(position, sample_key):
        # By position, not by splitting: padding and further samples change none of the others.
        position_key = jax.random.fold_in(sample_key, position)
        return jax.random.gumbel(position_key, (chain.num_labels,), chain.nodes.dtype)

    def draw(index):
        gumbel = jax.vmap(noise, (0, None))(positions, jax.random.fold_in(key, index))
        # Gumbel noise: argmax(log p + noise) is a draw from p.
        return walk(argmax(log_first + gumbel[0]), log_next, gumbel[1:])

    paths = jax.vmap(draw)(jnp.arange(num))
    return jnp.where((node_marginals > 0).any(1), paths, NO_LABEL)


def _walk(
    first: Int[Array, ""], log_next: Float[Array, "m s s"], noise: Float[Array, "m s"]
) -> Int[Array, " m+1"]:
    """One label after the other, each given the one before it."""

    def step(label, inputs):
        log_row, perturbation = inputs
        label = argmax(log_row[label] + perturbation)
        return label, label

    _, labels = lax.scan(step, first, (log_next, noise))
    return jnp.concatenate([first[None], labels])


def _walk_in_parallel(
    first: Int[Array, ""], log_next: Float[Array, "m s s"], noise: Float[Array, "m s"]
) -> Int[Array, " m+1"]:
    """With the noise drawn, each step is a function of the label before it: these are composed."""
    return follow(first, argmax(log_next + noise[:, None, :]))
