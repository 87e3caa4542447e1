"""Entropy of a chain and of its parts, divergences, and the entropy's gradient."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from jaxseq.lattice._blocked import EntropyTotals, blocked_entropy
from jaxseq.lattice._chain import (
    Chain,
    ChainVector,
    Edges,
    Linked,
    Nodes,
    Pairs,
    Valid,
    as_index,
    check_integers,
    is_concrete,
)
from jaxseq.lattice._engines import (
    ChainMethod,
    chain_function,
    check_chain_method,
    log_backward,
    log_forward,
)
from jaxseq.lattice._marginals import chain_marginals, like_edges, row_log_partition, row_marginals
from jaxseq.lattice._numerics import matmul, normalise, safe_log
from jaxseq.lattice._propagate import conditionals, lattice_functions, weigh_centred


def lattices_from_marginals(
    node_marginals: Nodes, edge_marginals: Pairs, *, parallel: bool = False
) -> tuple[Nodes, Nodes]:
    """Hα and Hβ (math in `entropy_lattices`), one position per step or in O(log n) steps."""
    backward, forward = conditionals(edge_marginals)
    # An additive functional like any other: nothing at nodes, the surprise of each step at edges.
    nothing = jnp.zeros_like(node_marginals)
    to_left, to_right = lattice_functions(parallel)
    return (
        to_left(backward, nothing, -safe_log(backward)),
        to_right(forward, nothing, -safe_log(forward)),
    )


def gradient_from_marginals(
    node_marginals: Nodes, edge_marginals: Pairs, *, parallel: bool = False
) -> tuple[Nodes, Pairs]:
    """∂H/∂nodes and ∂H/∂edges (math in `mann_entropy_gradient`)."""
    left, right = lattices_from_marginals(node_marginals, edge_marginals, parallel=parallel)
    # Surprise of the whole labelling, on average, given the label or the pair: as the labelling is
    # a Markov chain, that of the part itself and of what lies on either side.
    node_surprise = -safe_log(node_marginals) + left + right
    edge_surprise = -safe_log(edge_marginals) + left[:-1, :, None] + right[1:, None, :]
    return (
        weigh_centred(node_marginals, node_surprise, axis=1),
        weigh_centred(edge_marginals, edge_surprise, axis=(1, 2)),
    )


def step_entropies(edge_marginals: Float[Array, "m s s"]) -> Float[Array, " m"]:
    """H(Y_{t+1} | Y_t), by the forward conditionals."""
    _, forward = conditionals(edge_marginals)
    return -(edge_marginals * safe_log(forward)).sum((1, 2))


def label_entropies(node_marginals: Float[Array, "n s"]) -> Float[Array, " n"]:
    """H(Y_t)."""
    return -(node_marginals * safe_log(node_marginals)).sum(1)


@jax.custom_jvp
def row_entropy_totals(
    nodes: Nodes, edges: Float[Array, "s s"], linked: Linked, valid: Valid
) -> EntropyTotals:
    """The entropy and its gradient, in blocks: nothing of size n s² is ever formed."""
    return blocked_entropy(nodes, edges, linked, valid)


@row_entropy_totals.defjvp
def _(primals, tangents):
    nodes, edges, *row = primals
    node_tangent, edge_tangent, *_ = tangents
    totals = row_entropy_totals(*primals)
    slope = jnp.sum(totals.nodes * node_tangent) + jnp.sum(totals.edges * edge_tangent)

    def gradient(nodes, edges):
        by_node, by_edge = gradient_from_marginals(*row_marginals(nodes, edges, *row, "blocked"))
        return by_node, by_edge.sum(0)

    # Second derivatives by the marginals in full, [n, s, s]: rarely wanted, and linear in memory.
    _, change = jax.jvp(gradient, (nodes, edges), (node_tangent, edge_tangent))
    return totals, EntropyTotals(slope, *change)


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def row_entropy(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid, method: ChainMethod
) -> Float[Array, ""]:
    """Sum of the entropies of a row's sequences: H(Y_0) + Σ_t H(Y_{t+1} | Y_t) for each."""
    if method == "blocked" and edges.ndim == 2:
        return row_entropy_totals(nodes, edges, linked, valid).entropy
    node_marginals, edge_marginals = row_marginals(nodes, edges, linked, valid, method)
    # A row may hold several sequences; each begins with an entropy of its own.
    starts = jnp.concatenate([jnp.ones(1, bool), ~linked])
    first = jnp.where(starts, label_entropies(node_marginals), 0)
    return first.sum() + step_entropies(edge_marginals).sum()


@row_entropy.defjvp
def _(method, primals, tangents):
    node_tangent, edge_tangent, *_ = tangents
    if method == "blocked" and primals[1].ndim == 2:
        value, by_node, by_edge = row_entropy_totals(*primals)
    else:
        value = row_entropy(*primals, method)
        by_node, by_edge = gradient_from_marginals(
            *row_marginals(*primals, method), parallel=method == "parallel"
        )
    return value, jnp.sum(by_node * node_tangent) + jnp.sum(by_edge * edge_tangent)


@chain_function
def entropy(chain: Chain, *, method: ChainMethod = "auto") -> Float[Array, ""]:
    r"""Entropy of the distribution over whole labellings, :math:`H = -\sum_y p(y) \log p(y)`.

    Computed by the chain rule, :math:`H(Y_0) + \sum_t H(Y_{t+1} \mid Y_t)`: a sum of non-negative
    terms, where log Z − E[score] would subtract two large numbers. In nats; 0 when no path, or
    one only, is legal. Its gradient is `mann_entropy_gradient`.

    Args:
        chain: the scores.
        method: as in `log_partition`.

    Cost: O(n s²), in the gradient too; of the memory, O(n s) with the method ``"blocked"`` and
    shared edges.

    Accuracy: absolute 1e-9 · n in float64, 1e-5 · n in float32.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> bool(jnp.isclose(jaxseq.entropy(chain), 3 * jnp.log(2)))
        True

    References:
        Mann & McCallum 2007. Certified by ``jaxseq verify``: enumeration, log Z − E[score].
    """
    return row_entropy(chain.nodes, chain.edges, chain.linked, chain.valid, method)


@chain_function
def entropy_lattices(chain: Chain, *, method: ChainMethod = "auto") -> tuple[Nodes, Nodes]:
    r"""Entropy of everything to the left, and to the right, of a position given its label.

    .. math::

        H^\alpha_{t+1}(j) &= \sum_i p(y_t{=}i \mid y_{t+1}{=}j)
                             [H^\alpha_t(i) - \log p(y_t{=}i \mid y_{t+1}{=}j)],
                             & H^\alpha_0 &= 0 \\
        H^\beta_t(i)      &= \sum_j p(y_{t+1}{=}j \mid y_t{=}i)
                             [H^\beta_{t+1}(j) - \log p(y_{t+1}{=}j \mid y_t{=}i)],
                             & H^\beta_{n-1} &= 0

    From any position t, :math:`H = \sum_i m_t(i) [-\log m_t(i) + H^\alpha_t(i) + H^\beta_t(i)]`.
    Labels of probability 0 and padding hold 0.

    Args:
        chain: the scores.
        method: as in `log_partition`.

    Returns:
        (left, right), each [n, s].

    Cost: O(n s²).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> left, right = jaxseq.entropy_lattices(chain)
        >>> [round(x, 3) for x in left[:, 0].tolist()]
        [0.0, 0.693]

    References:
        Mann & McCallum 2007, the H^α and H^β recursions (the paper's base case
        p log p belongs to another definition; with conditional entropies it is 0).
    """
    parallel = method == "parallel"
    return lattices_from_marginals(*chain_marginals(chain, method), parallel=parallel)


@chain_function
def mann_entropy_gradient(chain: Chain, *, method: ChainMethod = "auto") -> ChainVector:
    r"""Gradient of the entropy with respect to every score, in closed form.

    .. math::

        \partial H / \partial \mathtt{nodes}[t, i] &= -m_t(i)
            (\log m_t(i) - H^\alpha_t(i) - H^\beta_t(i) + H) \\
        \partial H / \partial \mathtt{edges}[t, i, j] &= -m_t(i, j)
            (\log m_t(i, j) - H^\alpha_t(i) - H^\beta_{t+1}(j) + H)

    Args:
        chain: the scores.
        method: as in `log_partition`.

    Returns:
        ``.nodes`` and ``.edges`` shaped like the chain's.

    Cost: O(n s²) time and memory. For many sequences `jaxseq.batch_entropy_gradient` is faster.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.log(jnp.array([[0.2, 0.8]])), jnp.zeros((2, 2)))
        >>> [round(x, 3) for x in jaxseq.mann_entropy_gradient(chain).nodes[0].tolist()]
        [0.222, -0.222]

    References:
        Mann & McCallum 2007. Certified by ``jaxseq verify``: enumeration, Jiao's covariance,
        −jvp(grad log Z), autodiff of the log-space entropy, central differences.
    """
    by_node, by_edge = gradient_from_marginals(
        *chain_marginals(chain, method), parallel=method == "parallel"
    )
    return ChainVector(by_node, like_edges(chain, by_edge))


def span_entropy(
    chain: Chain, start: ArrayLike, stop: ArrayLike, *, method: ChainMethod = "auto"
) -> Float[Array, ""]:
    r"""Entropy of the labels ``Y[start:stop]``, the rest summed out.

    :math:`H(Y_a) + \sum_{t=a}^{b-2} H(Y_{t+1} \mid Y_t)`: equal to Mann & McCallum's
    H − E[Hα_a + Hβ_{b−1}], and without its cancellation.

    Args:
        chain: the scores.
        start: first position, an integer, may be traced.
        stop: one past the last position, likewise; 0 ≤ start ≤ stop ≤ n. Positions past the
            chain's length do not count; an empty span has entropy 0.
        method: as in `log_partition`.

    Cost: O(n s²). Under `jax.vmap` over spans of one chain the lattice is computed once, so all
    n · w windows up to width w cost O(n s² + n² w).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> bool(jnp.isclose(jaxseq.span_entropy(chain, 1, 3), 2 * jnp.log(2)))
        True
    """
    check_chain_method(method)
    n = chain.num_positions
    # The values of traced bounds are unknown (None), and are not checked.
    (start, low), (stop, high) = as_index("start", start), as_index("stop", stop)
    if not 0 <= (low or 0) <= (n if high is None else high) <= n:
        raise ValueError(
            f"start, stop: expected 0 ≤ start ≤ stop ≤ {n}, got start {low}, stop {high}"
        )
    return _span_entropy(chain, start, stop, method)


@partial(jax.jit, static_argnums=3)
def _span_entropy(chain: Chain, start: Array, stop: Array, method: ChainMethod) -> Array:
    node_marginals, edge_marginals = chain_marginals(chain, method)
    position = jnp.arange(chain.num_positions)
    first = jnp.where((position == start) & (position < stop), label_entropies(node_marginals), 0)
    inside = (position[:-1] >= start) & (position[1:] < stop)  # both ends of the step
    return first.sum() + jnp.where(inside, step_entropies(edge_marginals), 0).sum()


def rest_entropy(
    chain: Chain, start: ArrayLike, labels: ArrayLike, *, method: ChainMethod = "auto"
) -> Float[Array, ""]:
    r"""Entropy of all other positions, given ``labels`` at start, start + 1, …

    Subsequence-constrained entropy, :math:`H^\alpha_a(y_a) + H^\beta_b(y_b)`. 0 when these labels
    are impossible.

    Args:
        chain: the scores.
        start: first position of the given labels, 0 … n − w; may be traced, and is then not
            checked.
        labels: integers [w], w ≥ 1, with start + w ≤ n. Those past the chain's length are ignored.
        method: as in `log_partition`.

    Cost: O(n s²), O(w) for each further query on the same lattice (`jax.vmap` over queries).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.zeros((3, 2)), jnp.zeros((2, 2)))
        >>> bool(jnp.isclose(jaxseq.rest_entropy(chain, 1, jnp.array([0])), 2 * jnp.log(2)))
        True

    References:
        Mann & McCallum 2007, "subsequence constrained entropy".
    """
    check_chain_method(method)
    labels = jnp.asarray(labels)
    if labels.ndim != 1 or labels.shape[0] == 0:
        raise ValueError(f"labels: expected shape [w] with w ≥ 1, got {list(labels.shape)}")
    labels = check_integers("labels", labels, labels.shape)  # of any length, but integers
    (start, low), n, width = as_index("start", start), chain.num_positions, labels.shape[0]
    if width > n:
        raise ValueError(f"labels: expected at most {n} (the positions of the chain), got {width}")
    if not 0 <= (low or 0) <= n - width:
        raise ValueError(f"start: expected 0 … {n - width} for {width} labels, got {low}")
    return _rest_entropy(chain, start, labels, method)


@partial(jax.jit, static_argnums=3)
def _rest_entropy(chain: Chain, start: Array, labels: Array, method: ChainMethod) -> Array:
    node_marginals, edge_marginals = chain_marginals(chain, method)
    left, right = lattices_from_marginals(
        node_marginals, edge_marginals, parallel=method == "parallel"
    )
    positions = start + jnp.arange(labels.shape[0])
    real = chain.valid[positions]
    in_range = (labels >= 0) & (labels < chain.num_labels)
    safe = jnp.where(in_range, labels, 0)

    # Of impossible labels there is no distribution to speak of; 0, and a gradient of 0.
    possible = in_range & (node_marginals[positions, safe] > 0)
    if labels.shape[0] > 1:
        pairs = edge_marginals[positions[:-1], safe[:-1], safe[1:]] > 0
        possible &= jnp.concatenate([jnp.ones(1, bool), pairs])
    last = jnp.maximum(real.sum() - 1, 0)  # of the labels that are not on padding
    # Between neighbouring known labels nothing is left to be uncertain of.
    total = left[positions[0], safe[0]] + right[positions[last], safe[last]]
    # Where all the given labels are on padding, nothing is given.
    free = label_entropies(node_marginals)[0] + step_entropies(edge_marginals).sum()
    return jnp.where(real[0], jnp.where((possible | ~real).all(), total, 0), free)


# -------------------------------------------------------------------------------------------------
# Cross-entropy and Kullback–Leibler divergence between two chains.


def cross_entropy(p: Chain, q: Chain, *, method: ChainMethod = "auto") -> Float[Array, ""]:
    r"""Expected surprise of q at a labelling drawn from p, :math:`-\sum_y p(y) \log q(y)`.

    :math:`\log Z_q - \langle \mathrm{scores}_q, \mathrm{marginals}_p \rangle`. +inf, with gradient
    0, when q forbids what p allows; 0 when p has no legal path.

    Args:
        p: the chain that labellings are drawn from.
        q: a chain of equal shape and length (edges may be shared in one and not in the other).
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
        p: the chain that labellings are drawn from.
        q: a chain of equal shape and length.
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


# -------------------------------------------------------------------------------------------------
# Jiao et al.'s entropy gradient: the nested dynamic program, as published.
#
# With θ the scores, ∇H = −Cov[F] θ, and the covariance needs the joint probability of every pair of
# local events,
#
#     p(y_a = i, y_b = j) = α_a(i) Z_{a,b}(i, j) β_b(j) / Z,        Z_{a,b} = M_a M_{a+1} … M_{b−1}.
#
# For every first position a the program extends the s × s segment product over all b > a, O(s³)
# each, and adds what each pair contributes to the two double sums (events at a against scores at
# b, and events at b against scores at a). Only the product with θ is accumulated, never the
# covariance.
#
# The segment products are kept normalised: Z_{a,b}(i, j) β_b(j) / β_a(i) is p(y_b = j | y_a = i),
# a stochastic matrix, extended by a stochastic matrix. It neither overflows nor underflows, for
# any n. The scores of each position are centred before they are summed, which changes no
# covariance and keeps E[θ·F] at zero.


def jiao_entropy_gradient(chain: Chain) -> ChainVector:
    r"""Gradient of the entropy by the covariance of Jiao et al. 2006.

    .. math:: \nabla H = -\mathrm{Cov}_{p(y)}[F(y)]\, \theta,
              \qquad \mathrm{Cov}[F_k, F_l] = E[F_k F_l] - E[F_k] E[F_l]

    The same vector as `mann_entropy_gradient`, which is the one to use: this is the published
    algorithm it replaced, here as a reference, an independent check, and to measure against.

    Args:
        chain: the scores.

    Returns:
        ``.nodes`` and ``.edges`` shaped like the chain's.

    Cost: O(n² s³) time; O(n s + s²) memory besides the result. Runs in log space.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.log(jnp.array([[0.2, 0.8]])), jnp.zeros((2, 2)))
        >>> [round(x, 3) for x in jaxseq.jiao_entropy_gradient(chain).nodes[0].tolist()]
        [0.222, -0.222]

    References:
        Jiao et al. 2006, section 3. Certified by ``jaxseq verify``: enumeration, jax.grad,
        `mann_entropy_gradient`, central differences.
    """
    return ChainVector(*_compiled_gradient(chain.nodes, chain.edges, chain.linked, chain.valid))


@jax.custom_jvp
def row_gradient(nodes: Nodes, edges: Edges, linked: Linked, valid: Valid) -> tuple[Nodes, Edges]:
    log_alphas, _ = log_forward(nodes, edges, linked, valid)
    log_betas = log_backward(nodes, edges, linked)
    node_marginals = normalise(log_alphas + log_betas, 1)
    length = valid.sum()

    def edge_at(t):
        return edges if edges.ndim == 2 else edges[t]

    def transition(t):  # p(y_{t+1} = j | y_t = i)
        forward = normalise(edge_at(t) + nodes[t + 1] + log_betas[t + 1], 1)
        return jnp.where(linked[t], forward, 0)

    def centred(scores, weights):
        finite = jnp.where(weights > 0, scores, 0)
        return finite - (weights * finite).sum()

    node_scores = jax.vmap(centred)(nodes, node_marginals)
    if nodes.shape[0] == 1:  # no edge, hence no pair of events, and nothing to loop over
        return -node_marginals * node_scores, jnp.zeros_like(edges)

    def edge_step(t):
        """Edge marginals, centred edge scores, and their means given either end."""
        forward = transition(t)
        joint = node_marginals[t][:, None] * forward
        scores = centred(edge_at(t), joint)
        # Labels that cannot occur have all-−inf columns, for which `normalise` gives zeros.
        backward = normalise(log_alphas[t][:, None] + edge_at(t), 0)
        backward = jnp.where(linked[t] & (node_marginals[t + 1] > 0), backward, 0)
        return joint, scores, (forward * scores).sum(1), (backward * scores).sum(0)

    n, s = nodes.shape
    nothing = jnp.zeros((1, s), nodes.dtype)
    _, (outgoing, incoming) = lax.scan(
        lambda _, t: (None, edge_step(t)[2:]), None, jnp.arange(n - 1)
    )
    outgoing, incoming = jnp.concatenate([outgoing, nothing]), jnp.concatenate([nothing, incoming])
    # A score is charged to one end: seen from the left, an edge belongs to its first position,
    # seen from the right to its second.
    seen_from_left, seen_from_right = node_scores + outgoing, node_scores + incoming

    def first_position(a, sums):
        def second_position(b, carry):
            segment, right_of_a, left_mass = carry
            segment = matmul(segment, transition(b - 1))
            right_of_a = right_of_a + matmul(segment, seen_from_left[b])
            arriving = matmul(node_marginals[a] * seen_from_right[a], segment)
            return segment, right_of_a, left_mass.at[b].add(arriving)

        right, left_mass = sums
        start = (jnp.eye(s, dtype=nodes.dtype), jnp.zeros(s, nodes.dtype), left_mass)
        _, right_of_a, left_mass = lax.fori_loop(a + 1, length, second_position, start)
        return right.at[a].set(right_of_a), left_mass

    empty = jnp.zeros((n, s), nodes.dtype)
    right, left_mass = lax.fori_loop(0, length, first_position, (empty, empty))
    left = left_mass / jnp.where(node_marginals > 0, node_marginals, 1)

    to_left, to_right = left + incoming + node_scores, right + outgoing + node_scores
    by_node = -node_marginals * (to_left + right + outgoing)

    def by_edge_at(t):
        joint, scores, _, _ = edge_step(t)
        return -joint * (to_left[t][:, None] + scores + to_right[t + 1][None, :])

    if edges.ndim == 3:
        return by_node, lax.map(by_edge_at, jnp.arange(n - 1))
    add = lambda total, t: (total + by_edge_at(t), None)  # noqa: E731
    return by_node, lax.scan(add, jnp.zeros_like(edges), jnp.arange(n - 1))[0]


@row_gradient.defjvp
def _(primals, tangents):
    # The loops above have run-time bounds, which reverse mode cannot cross; the closed form of
    # the same function can be differentiated at will.
    nodes, edges, linked, valid = primals

    def closed_form(nodes, edges):
        marginals = row_marginals(nodes, edges, linked, valid, "log")
        by_node, by_edge = gradient_from_marginals(*marginals)
        return by_node, by_edge.sum(0) if edges.ndim == 2 else by_edge

    change = jax.jvp(closed_form, (nodes, edges), tangents[:2])[1]
    return row_gradient(*primals), change


_compiled_gradient = jax.jit(row_gradient)
