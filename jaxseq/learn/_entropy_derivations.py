r"""The gradient of the entropy of one row of sentences, three ways.

:math:`H(Y) = -\sum_y p(y) \log p(y)` as a function of node and edge scores.

- ``"mann"``: Mann & McCallum's closed form, O(n s²). The one to use.
- ``"jiao"``: the nested covariance program of Jiao et al., O(n² s³), as published.
- ``"autodiff"``: reverse-mode differentiation through plain log-space recursions; O(n s²) with a
  constant several times that of the closed form, and O(n s²) memory.

Their gradients share no formula beyond the definition, so that a training run with one checks
those with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.chain._engines import log_forward_backward
from jaxseq.chain._entropy import gradient_from_marginals, label_entropies, step_entropies
from jaxseq.chain._jiao import row_gradient

EntropyGradient = Literal["mann", "jiao", "autodiff"]
"""Which derivation of the entropy's gradient to train by."""

Nodes = Float[Array, "w s"]
Pairs = Float[Array, "w-1 s s"]
Row = tuple[Float[Array, " w"], Nodes, Pairs]
"""What each slot adds to the entropy, and the gradients by nodes and pairs."""


def mann(nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]) -> Row:
    """Closed form, from the marginals."""
    _, by_node, by_pair = log_forward_backward(nodes, pairs, linked, valid)
    return _shares(by_node, by_pair, linked), *gradient_from_marginals(by_node, by_pair)


def jiao(nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]) -> Row:
    """Covariance program; the entropy itself is that of the marginals."""
    _, by_node, by_pair = log_forward_backward(nodes, pairs, linked, valid)
    return _shares(by_node, by_pair, linked), *row_gradient(nodes, pairs, linked, valid)


def autodiff(
    nodes: Nodes, pairs: Pairs, linked: Bool[Array, " w-1"], valid: Bool[Array, " w"]
) -> Row:
    """Differentiation of log Z − E[score]."""

    def total(nodes, pairs):
        shares = _entropy_in_logs(nodes, pairs, linked, valid)
        return shares.sum(), shares

    gradients, shares = jax.grad(total, (0, 1), has_aux=True)(nodes, pairs)
    return shares, *gradients


BY_ROW: dict[EntropyGradient, Callable[..., Row]] = {
    "mann": mann,
    "jiao": jiao,
    "autodiff": autodiff,
}


def _shares(nodes: Nodes, pairs: Pairs, linked: Array) -> Float[Array, " w"]:
    """Entropy by the chain rule: of a sentence's first label, and of each step given the last."""
    begins = jnp.concatenate([jnp.ones(1, bool), ~linked])
    return jnp.where(begins, label_entropies(nodes), 0).at[:-1].add(step_entropies(pairs))


def _entropy_in_logs(nodes: Nodes, pairs: Pairs, linked: Array, valid: Array) -> Array:
    """log Z − E[score] of each sentence, at the slot of its last token.

    The mean score of the paths that end in a label is carried along with log α. What is −inf is
    replaced before it enters a sum or a product, since autodiff multiplies infinities by zero.
    """

    def step(carry, slot):
        log_alpha, mean = carry
        scores, pair_scores, goes_on = slot
        joint = log_alpha[:, None] + pair_scores + scores
        log_next = _log_sum(joint, 0)
        share = _ratio(joint, log_next)
        known = jnp.where(jnp.isneginf(joint), 0, pair_scores + scores)
        mean_next = (share * (mean[:, None] + known)).sum(0)
        fresh = (scores, jnp.where(jnp.isneginf(scores), 0, scores))
        carry = jnp.where(goes_on, log_next, fresh[0]), jnp.where(goes_on, mean_next, fresh[1])
        return carry, _entropy_at_end(*carry)

    first = (nodes[0], jnp.where(jnp.isneginf(nodes[0]), 0, nodes[0]))
    _, rest = lax.scan(step, first, (nodes[1:], pairs, linked))
    ends = jnp.concatenate([_entropy_at_end(*first)[None], rest])
    last = valid & jnp.concatenate([~linked, jnp.ones(1, bool)])
    return jnp.where(last, ends, 0)


def _entropy_at_end(log_alpha: Array, mean: Array) -> Array:
    log_z = _log_sum(log_alpha, 0)
    value = log_z - (_ratio(log_alpha, log_z) * mean).sum()
    return jnp.where(jnp.isneginf(log_z), 0, value)


def _log_sum(logs: Array, axis: int) -> Array:
    """log Σ exp, with gradient 0 where nothing is above −inf."""
    possible = (~jnp.isneginf(logs)).any(axis)
    safe = jnp.where(jnp.expand_dims(possible, axis), logs, 0)
    return jnp.where(possible, jax.nn.logsumexp(safe, axis), -jnp.inf)


def _ratio(logs: Array, log_total: Array) -> Array:
    """exp(logs − log_total), 0 where either is −inf."""
    possible = ~jnp.isneginf(logs)
    difference = jnp.where(possible, logs, 0) - jnp.where(jnp.isneginf(log_total), 0, log_total)
    return jnp.where(possible, jnp.exp(jnp.where(possible, difference, 0)), 0)
