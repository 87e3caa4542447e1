r"""Jiao et al.'s entropy gradient: the nested dynamic program, as published.

With :math:`\theta` the scores, :math:`\nabla H = -\mathrm{Cov}[F]\,\theta`, and the covariance
needs the joint probability of every pair of local events,

.. math:: p(y_a{=}i, y_b{=}j) = \alpha_a(i)\, Z_{a,b}(i, j)\, \beta_b(j) / Z,
          \qquad Z_{a,b} = M_a M_{a+1} \cdots M_{b-1}.

For every first position a the program extends the s × s segment product over all b > a, O(s³)
each, and adds what each pair contributes to the two double sums (events at a against scores at b,
and events at b against scores at a). Only the product with θ is accumulated, never the covariance.

The segment products are kept normalised: :math:`Z_{a,b}(i,j)\,\beta_b(j) / \beta_a(i)` is
:math:`p(y_b{=}j \mid y_a{=}i)`, a stochastic matrix, extended by a stochastic matrix. It neither
overflows nor underflows, for any n. The scores of each position are centred before they are
summed, which changes no covariance and keeps E[θ·F] at zero.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxseq.lattice._chain import Chain, ChainVector, Edges, Linked, Nodes, Valid
from jaxseq.lattice._engines import log_backward, log_forward
from jaxseq.lattice._entropy import gradient_from_marginals
from jaxseq.lattice._marginals import row_marginals
from jaxseq.lattice._numerics import matmul, normalise


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
