r"""The Jacobian of the E-step as published: a covariance of counts, from a table of all pairs.

With π, A, B the probabilities of an HMM and c_t = P(x_t | x_1 … x_{t−1}), one sequence's table is

    Z_{i,j}(s_i, s_j) = Σ_{s_{i+1} … s_{j−1}} Π_{k=i+1}^{j} A(s_{k−1}, s_k) B(x_k, s_k) / c_k,

so that P(y_i = s, y_j = s' | x) = α_i(s) Z_{i,j}(s, s') β_j(s') with scaled messages α and β. The
paper's table has no c_k in it, and underflows after some hundred words.

An event's covariance with another is wanted only as a share of the other's probability, which the
paper divides by afterwards. Here that probability is left out of the products in the first place:
it is the same number, and exists where the probability is 0 as well.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq.hmm import EVENT_AXES, Multinomials, WordCorpus, check_fits, count_sequences
from jaxseq.lattice import einsum, matmul, safe_divide

LENGTH_STEP = 8
"""Sequences are padded to multiples of this, so that few lengths have to be compiled."""


def published_jacobian(parameters: Multinomials, corpus: WordCorpus) -> Float[Array, "m m"]:
    r"""The matrix :math:`\nabla_{\tilde\Theta} \mathrm{EM}_1`, by the algorithm of the paper.

    .. math::
        \nabla_{\tilde\Theta} \mathrm{EM}_1 = \frac{1}{|U|} \sum_{x \in U}
            \mathrm{Cov}_{P(y \mid x, \Theta)}[\mathrm{Count}] \cdot H
        \qquad H_m = \mathrm{diag}(1 / \tilde\Theta_m)
            - \frac{1 1^\top}{\sum_\omega \tilde\Theta_m(\omega)}

    with the covariance of every pair of events, from a table
    :math:`Z_{i,j}(s_i, s_j)` of all pairs of positions :math:`i \le j`. For comparison, and for
    models so small that a dense matrix is handy: `linearise_mean_counts` multiplies with the same
    matrix at the cost of a few E-steps, however many events there are.

    Args:
        parameters: :math:`\tilde\Theta`, non-negative, not necessarily normalised. Where one is 0,
            its column is the limit, which is finite; where a whole multinomial is 0, its columns
            are 0.
        corpus: of `word_corpus`, with as many words and labels; labels that are known are kept.

    Returns:
        [m, m] with m = s + s² + v s: the change of the row's mean expected count by the column's
        parameter. Both are in the order of ``jax.flatten_util.ravel_pytree``: initial i at i,
        transition (i, j) at s + i s + j, emission (a, i) at s + s² + a s + i. A sequence of
        probability 0 adds nothing.

    Raises:
        ValueError: for a corpus that does not fit, or without a single token.

    Cost: O(n² s³ + n s⁴) time for a sequence of n words and O(n² s²) memory, and O(m²) of both for
    the matrix. The paper's O(n² s⁵) is that of adding to the s⁴ entries of pairs of transitions
    for one pair of positions after another; here the sums over positions are matrix products. The
    sequences are gone through one by one; a program is compiled for every eighth length.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import word_corpus
        >>> from jaxseq.hmm import Multinomials
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> matrix = published_jacobian(point, word_corpus([[0, 1], [1]], 2))
        >>> matrix.shape
        (10, 10)
        >>> matrix[:2, 0].tolist()  # the initial label's counts, by its first parameter
        [0.1875, -0.1875]

    References:
        Haffari & Sarkar 2008, equation 8 and section 4 (where the diagonal of H is misprinted).
    """
    check_fits(parameters, corpus)
    number = count_sequences(corpus)
    theta = parameters.normalised()
    side = sum(family.size for family in theta)
    total = jnp.zeros((side, side), theta.emission.dtype)
    legal = _legal_labels(corpus, theta.initial.shape[0])
    ends = np.cumsum(corpus.lengths)
    for length, end in zip(corpus.lengths.tolist(), ends.tolist()):
        tokens, padding = slice(end - length, end), -length % LENGTH_STEP
        words = np.pad(corpus.words[tokens], (0, padding))
        allowed = np.pad(legal[tokens], ((0, padding), (0, 0)))
        total = _add_sequence(total, theta, jnp.asarray(words), jnp.asarray(allowed))
    return _times_normalisation(total, parameters) / number


def _legal_labels(corpus: WordCorpus, num_labels: int) -> np.ndarray:
    """Which labels each token may have, [N, s]."""
    if corpus.allowed is not None:
        return corpus.allowed
    known = corpus.labels[:, None]
    return (known < 0) | (known == np.arange(num_labels))


@partial(jax.jit, donate_argnums=0)
def _add_sequence(
    total: Float[Array, "m m"],
    theta: Multinomials,
    words: Int[Array, " n"],
    legal: Bool[Array, "n s"],
) -> Float[Array, "m m"]:
    """The matrix with one sequence's covariances added, each over its column's probability."""
    s = theta.initial.shape[0]
    links = jnp.arange(s + s * s)
    nodes = s + s * s + words[:, None] * s + jnp.arange(s)
    places = jnp.concatenate([links, nodes.reshape(-1)])
    return total.at[places[:, None], places].add(_covariance(theta, words, legal))


@jax.jit
def _times_normalisation(
    covariance: Float[Array, "m m"], parameters: Multinomials
) -> Float[Array, "m m"]:
    """From derivatives by independent probabilities to those by Θ̃: the chain rule of Θ̃ / ΣΘ̃."""
    side, start, columns = len(covariance), 0, []
    for family, share, axis in zip(parameters, parameters.normalised(), EVENT_AXES):
        block = covariance[:, start : start + family.size].reshape(side, *family.shape)
        mean = (block * share).sum(axis + 1, keepdims=True)
        size = jnp.broadcast_to(family.sum(axis, keepdims=True), block.shape)
        columns.append(safe_divide(block - mean, size).reshape(side, -1))
        start += family.size
    return jnp.concatenate(columns, axis=1)


class _Sequence(NamedTuple):
    """Messages and table of one sequence of n words, padding included.

    ahead, foretold: α, and α before its word is looked at. back: β. word: B(x_t, s) / c_t.
    bare_word: the same without the probability. upto: Z_{i,j} at [j, i]. before: Z_{i,j−1} there.
    On padding ahead, back, word and bare_word are 0, so that what else stands there counts for
    nothing.
    """

    ahead: Float[Array, "n s"]
    foretold: Float[Array, "n s"]
    back: Float[Array, "n s"]
    word: Float[Array, "n s"]
    bare_word: Float[Array, "n s"]
    upto: Float[Array, "n n s s"]
    before: Float[Array, "n n s s"]


def _lay_table(
    theta: Multinomials, words: Int[Array, " n"], legal: Bool[Array, "n s"]
) -> _Sequence:
    n, s = legal.shape
    factors = jnp.where(legal, theta.emission[words], 0)

    def forward(alpha, position):
        factor, first = position
        foretold = jnp.where(first, theta.initial, matmul(alpha, theta.transition))
        raw = foretold * factor
        inverse = safe_divide(jnp.ones_like(raw[0]), raw.sum())
        return raw * inverse, (raw * inverse, foretold, inverse)

    first = jnp.arange(n) == 0
    _, (ahead, foretold, inverse) = lax.scan(forward, jnp.zeros_like(factors[0]), (factors, first))
    word, bare_word = factors * inverse[:, None], legal * inverse[:, None]
    real, identity = legal.any(1), jnp.eye(s, dtype=factors.dtype)

    def extend(table, position):
        j, factor, inside = position
        step = jnp.where(inside, theta.transition * factor, identity)
        table = matmul(table, step).at[j].set(identity)
        return table, table

    empty = jnp.zeros((n, s, s), factors.dtype)
    _, upto = lax.scan(extend, empty, (jnp.arange(n), word, real))
    back = jnp.where(real[:, None], upto[-1].sum(-1), 0)
    before = jnp.concatenate([empty[None], upto[:-1]])
    return _Sequence(ahead, foretold, back, word, bare_word, upto, before)


def _covariance(
    theta: Multinomials, words: Int[Array, " n"], legal: Bool[Array, "n s"]
) -> Float[Array, "d d"]:
    """Cov[row, column] / P(column), for the events of one sequence.

    Events are the s initial labels, the s² transitions, and the labels of each position.
    """
    x = _lay_table(theta, words, legal)
    (n, s), edges = legal.shape, theta.transition
    previous = jnp.pad(x.ahead[:-1], ((1, 0), (0, 0)))
    arriving = (x.word * x.back).at[0].set(0)
    steps = edges * x.word[:, None]
    links = _Links(previous[:, :, None] * steps, (steps * x.back[:, None]).at[0].set(0))
    by_node = [
        einsum("b,iba,ia->iab", x.word[0], x.upto[:, 0], x.back),
        _nodes_by_transitions(x, previous, arriving),
        _nodes_by_nodes(x, edges),
    ]
    by_transition = [
        einsum("b,iba,iac->acb", x.word[0], x.before[:, 0], links.entered),
        _transitions_by_transitions(x, links, previous, arriving),
        _transitions_by_nodes(x, links, previous, edges),
    ]
    node_rows = jnp.concatenate([part.reshape(n * s, -1) for part in by_node], axis=1)
    pair_rows = jnp.concatenate([part.reshape(s * s, -1) for part in by_transition], axis=1)
    # The first label is the label of the first position.
    together = jnp.concatenate([node_rows[:s], pair_rows, node_rows])
    return together - jnp.outer(*_means(x, links, previous, arriving))


class _Links(NamedTuple):
    """Of the transition to each position: α before it times its factors; these times β after."""

    left: Float[Array, "n s s"]
    entered: Float[Array, "n s s"]


def _means(x: _Sequence, links: _Links, previous: Array, arriving: Array) -> tuple[Array, Array]:
    """Expected counts of the events; and these over their probabilities."""
    nodes = x.ahead * x.back
    pairs = einsum("iac,ic->ac", links.left, x.back)
    counts = [nodes[0], pairs, nodes]
    shares = [
        x.word[0] * x.back[0],
        einsum("jb,jd->bd", previous, arriving),
        x.foretold * x.bare_word * x.back,
    ]
    flat = [jnp.concatenate([part.reshape(-1) for part in parts]) for parts in (counts, shares)]
    return flat[0], flat[1]


def _nodes_by_nodes(x: _Sequence, edges: Float[Array, "s s"]) -> Float[Array, "n s n s"]:
    """Label a at position i, by the word at position j under label b."""
    arrived = matmul(x.before, edges)
    earlier = einsum("ia,jiab,jb->iajb", x.ahead, arrived, x.bare_word * x.back)
    later = einsum("jb,ijba,ia->iajb", x.foretold * x.bare_word, x.upto, x.back)
    return earlier + later


def _nodes_by_transitions(x: _Sequence, previous: Array, arriving: Array) -> Array:
    """[n, s, s, s]: label a at position i, by the transition from b to d anywhere."""
    earlier = x.ahead[:, :, None, None] * einsum("jiab,jd->iabd", x.before, arriving)
    later = einsum("jb,ijda->iabd", previous, x.upto * x.word[:, :, None])
    return earlier + later * x.back[:, :, None, None]


def _transitions_by_nodes(
    x: _Sequence, links: _Links, previous: Array, edges: Float[Array, "s s"]
) -> Float[Array, "s s n s"]:
    """The transition from a to c anywhere, by the word at position j under label b."""
    ending = x.bare_word * x.back
    earlier = einsum("iac,jicb->acjb", links.left, matmul(x.before, edges)) * ending
    into = einsum("ja,ab,jb->ajb", previous, edges, ending)
    same = into[:, None] * jnp.eye(len(edges), dtype=edges.dtype)[None, :, None]
    later = einsum("ijba,iac->acjb", x.before, links.entered) * (x.foretold * x.bare_word)
    return earlier + same + later


def _transitions_by_transitions(
    x: _Sequence, links: _Links, previous: Array, arriving: Array
) -> Float[Array, "s s s s"]:
    """The transition from a to c anywhere, by that from b to d anywhere."""
    s = previous.shape[1]
    met = einsum("iac,jicb->jacb", links.left, x.before)
    earlier = einsum("jacb,jd->acbd", met, arriving)
    left = einsum("ijda,iac->jdac", x.before, links.entered) * x.word[:, :, None, None]
    later = einsum("jb,jdac->acbd", previous, left)
    same = jnp.diag(einsum("jb,jd->bd", previous, arriving).reshape(-1)).reshape(s, s, s, s)
    return earlier + same + later
