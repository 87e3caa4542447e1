"""The hidden Markov model: a product of multinomials over labels and words."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from jaxseq.lattice import Chain, as_scores, is_concrete, safe_divide, safe_log


class Multinomials(NamedTuple):
    r"""One number for every event of an HMM: probabilities, counts, or unnormalised parameters.

    Three families of multinomials over s labels and v words:

    Args:
        initial: [s], the first label: :math:`P(y_1 = i \mid \text{begin})`, one multinomial.
        transition: [s, s], :math:`P(y_{t+1} = j \mid y_t = i)` at (i, j), one per row.
        emission: [v, s], :math:`P(x_t = a \mid y_t = i)` at (a, i), one per *column*: so the
            numbers of a word lie side by side, and looking a word up reads one piece of memory.

    A pytree: ``jax.tree.map`` does arithmetic on it, ``jax.jvp`` differentiates by it.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.hmm import Multinomials
        >>> counts = Multinomials(jnp.array([3.0, 1.0]), jnp.eye(2), jnp.array([[1.0, 0.0]]))
        >>> [family.tolist() for family in counts.normalised()]
        [[0.75, 0.25], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]]]

    References:
        Haffari & Sarkar 2008, section 3.1.
    """

    initial: Float[Array, " s"]
    transition: Float[Array, "s s"]
    emission: Float[Array, "v s"]

    def normalised(self) -> Multinomials:
        r"""Each multinomial divided by its sum, :math:`\Theta_m = \tilde\Theta_m / \sum_\omega
        \tilde\Theta_m(\omega)`; one that is all zeros stays so: its events are impossible.

        Differentiable everywhere; cost O(v s + s²).
        """
        return Multinomials(
            *(
                safe_divide(family, jnp.broadcast_to(family.sum(axis, keepdims=True), family.shape))
                for family, axis in zip(self, EVENT_AXES)
            )
        )

    def log(self) -> Multinomials:
        """Logarithms; −inf, with derivative 0, where an entry is 0 (or below the smallest normal
        number)."""
        return Multinomials(*map(log_or_minus_infinity, self))


EVENT_AXES = (0, 1, 0)
"""The axis that the events of one multinomial lie along: initial, transition, emission."""


def log_or_minus_infinity(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log x; −inf, with derivative 0, where x is 0."""
    # Below the smallest normal number XLA may flush to 0, on some devices: 0 on all of them.
    return jnp.where(x >= jnp.finfo(x.dtype).tiny, safe_log(x), -jnp.inf)


class HMM(eqx.Module):
    r"""A first-order hidden Markov model over words numbered 0 … v − 1.

    .. math::
        P(x, y) = P(y_1 \mid \text{begin}) \prod_{t>1} P(y_t \mid y_{t-1})
                  \prod_t P(x_t \mid y_t)

    Probabilities are stored, not logarithms: estimation works on probabilities, and a table of
    logarithms is only made where a chain is wanted. An event of probability 0 has score −inf.

    Args:
        initial: as in `Multinomials`, non-negative; normalised here, so counts will do. A
            multinomial that is all zeros stays so.
        transition: likewise.
        emission: likewise.
        unknown: the word that stands for every number outside 0 … v − 1; None if there is none:
            such a word is then refused, and has probability 0 where it cannot be looked at, under
            ``jax.jit``.

    Raises:
        ValueError: when shapes do not fit, or an entry is negative or not finite.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.hmm import HMM
        >>> hmm = HMM(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> chain = hmm.chain(jnp.array([0, 1, 1]))
        >>> jaxseq.viterbi(chain)[0].tolist()
        [0, 1, 1]
        >>> round(float(jnp.exp(jaxseq.log_partition(chain))), 6)  # P(x): every word is P = 1/2
        0.125

    References:
        Rabiner 1989; Haffari & Sarkar 2008, section 3.1.
    """

    probabilities: Multinomials
    unknown: int | None = eqx.field(static=True)

    def __init__(
        self,
        initial: ArrayLike,
        transition: ArrayLike,
        emission: ArrayLike,
        unknown: int | None = None,
    ):
        initial, transition, emission = (
            as_scores(name, values)
            for name, values in zip(Multinomials._fields, (initial, transition, emission))
        )
        if emission.ndim != 2 or 0 in emission.shape:
            raise ValueError(
                "emission: expected shape [words, labels] with at least one of each, "
                f"got {list(emission.shape)}"
            )
        v, s = emission.shape
        for name, array, shape in (("initial", initial, (s,)), ("transition", transition, (s, s))):
            if array.shape != shape:
                raise ValueError(
                    f"{name}: expected shape {list(shape)} to go with emission of shape "
                    f"{list(emission.shape)}, got {list(array.shape)}"
                )
        if unknown is not None and not 0 <= unknown < v:
            raise ValueError(f"unknown: expected a word, 0 … {v - 1}, or None, got {unknown}")
        dtype = jnp.result_type(initial, transition, emission)
        weights = Multinomials(*(a.astype(dtype) for a in (initial, transition, emission)))
        for name, array in zip(Multinomials._fields, weights):
            _check_weights(name, array)
        self.probabilities = weights.normalised()
        self.unknown = unknown

    @property
    def num_labels(self) -> int:
        """s."""
        return self.probabilities.initial.shape[0]

    @property
    def num_words(self) -> int:
        """v."""
        return self.probabilities.emission.shape[0]

    def chain(self, words: ArrayLike, length: ArrayLike | None = None) -> Chain:
        """The `jaxseq.Chain` of one sequence: give it to `viterbi`, `max_marginal`, `entropy`, ….

        Its log Z is log P(x), its path scores are log P(x, y).

        Args:
            words: integers [n], n ≥ 1.
            length: how many of them are real, if fewer than n; may be traced. What stands on
                padding does not matter.

        Cost: O(n s + s² + s) and the logarithms of the words that occur.

        Raises:
            ValueError: for a word outside 0 … v − 1, when the model has no unknown word.
        """
        words = jnp.asarray(words)
        if words.ndim != 1 or words.size == 0 or not jnp.issubdtype(words.dtype, jnp.integer):
            raise ValueError(
                f"words: expected integers of shape [n], n ≥ 1, got dtype {words.dtype.name} "
                f"of shape {list(words.shape)}"
            )
        inside = (words >= 0) & (words < self.num_words)
        if self.unknown is None and is_concrete(words) and (length is None or is_concrete(length)):
            _check_words(words, length, self.num_words)
        known = jnp.where(inside, words, 0 if self.unknown is None else self.unknown)
        theta = self.probabilities
        nodes = log_or_minus_infinity(theta.emission[known])
        if self.unknown is None:  # traced, so that nobody could be told: the words are impossible
            nodes = jnp.where(inside[:, None], nodes, -jnp.inf)
        nodes = nodes.at[0].add(log_or_minus_infinity(theta.initial))
        return Chain(nodes, log_or_minus_infinity(theta.transition), length)


def _check_weights(name: str, array: Array) -> None:
    if not is_concrete(array):
        return
    known = np.asarray(array)
    wrong = np.argwhere(~((known >= 0) & (known < np.inf)))
    if len(wrong):
        where = tuple(int(index) for index in wrong[0])
        raise ValueError(
            f"{name}{list(where)}: expected a finite number ≥ 0, got {float(known[where])}"
        )


def _check_words(words: Int[Array, " n"], length: ArrayLike | None, num_words: int) -> None:
    known = np.asarray(words)[: None if length is None else int(np.asarray(length))]
    wrong = np.flatnonzero((known < 0) | (known >= num_words))
    if len(wrong):
        raise ValueError(
            f"words[{wrong[0]}]: expected 0 … {num_words - 1}, since this model has no unknown "
            f"word, got {known[wrong[0]]}"
        )
