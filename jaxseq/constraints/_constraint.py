r"""A constraint: a small automaton that reads a labelling from left to right.

.. math::
    d_k(x, y) = \sum_t \phi_k(y_t \mid x, y_{<t}) + \phi_k^{\text{end}}(x, y)

It counts violations as soon as a prefix shows them, and at the end what only a complete labelling
can decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

State = Any
"""A pytree of arrays of fixed shapes: what a constraint remembers of a prefix."""

BEFORE_THE_FIRST = -1
"""The label before position 0."""


class Constraint(eqx.Module):
    """Violations of a labelling, counted from left to right. Write your own with three functions.

    All three are pure functions of arrays and are vmapped over the hypotheses of a beam, the labels
    and the sequences; labels are numbers. `step` must not look at x beyond what belongs to the
    sequence: padding is all zeros.

    ``init(x)`` is the state before position 0. ``step(state, t, y_prev, y, x)`` gives how many
    violations label y at position t adds to those of the prefix, 0 or more, and the new state;
    y_prev is −1 at t = 0. ``final(state)`` gives the violations that only the end shows.

    ``observe(sentence)`` makes x from a sentence, on the host: NumPy arrays, one row a token.

    A constraint whose state is one integer may say how many states there are (`num_states`); then
    labellings can be searched exactly where these are few.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.constraints import violations
        >>> class NoTwice(Constraint):
        ...     "No label twice in a row."
        ...     def step(self, state, t, y_prev, y, x):
        ...         return (y == y_prev) * 1, state
        >>> violations(NoTwice(), ["a", "b", "c"], [0, 0, 0])
        2
    """

    def observe(self, sentence: Any) -> Any:
        """What the constraint looks at of a sentence; arrays [n, …], or None for nothing."""
        return None

    def init(self, x: Any) -> State:
        """The state before the first position."""
        return ()

    def step(
        self, state: State, t: Int[Array, ""], y_prev: Int[Array, ""], y: Int[Array, ""], x: Any
    ) -> tuple[Array, State]:
        """Violations that label y at position t adds, and the state after it."""
        raise TypeError(f"{type(self).__name__}: expected a method step, got none")

    def final(self, state: State) -> Array:
        """Violations that only the end of the sequence shows."""
        return jnp.zeros((), jnp.int32)

    @property
    def num_states(self) -> int | None:
        """How many states there are, 0 … num_states − 1, if they are integers; None if not."""
        return None

    def as_number(self, state: State) -> Int[Array, ""]:
        """The number of a state, 0 … num_states − 1."""
        return jnp.asarray(state, jnp.int32)

    def as_state(self, number: Int[Array, ""]) -> State:
        """The state of a number: what `as_number` is the inverse of."""
        return number

    @property
    def is_local(self) -> bool:
        """Whether there is no state at all: what is violated depends on y_prev, y, t and x only.

        Local constraints are part of the scores of a chain, and so Viterbi's search is exact.
        """
        return type(self).init is Constraint.init and type(self).final is Constraint.final

    @property
    def is_unary(self) -> bool:
        """Whether y_prev is not looked at either."""
        return False


def as_violations(found: Any) -> Int[Array, ""]:
    """What a step or an end gave, as a number of violations; ValueError for fractions.

    Example:
        >>> int(as_violations(True)), int(as_violations(2))
        (1, 2)
    """
    array = jnp.asarray(found)
    if not (jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool) or array.ndim:
        raise ValueError(
            "step, final: expected a whole number of violations, got dtype "
            f"{array.dtype.name} of shape {list(array.shape)}"
        )
    return array.astype(jnp.int32)


def column_of(sentence: Any, column: str) -> Sequence[str]:
    """The strings of a column: of a mapping or `jaxseq.text.Sentence`, or a list of words itself.

    Example:
        >>> column_of({"word": ["a", "b"]}, "word"), column_of(["a", "b"], "word")
        (['a', 'b'], ['a', 'b'])
    """
    if isinstance(sentence, str):
        raise ValueError(f"sentence: expected a list of words, got the string {sentence!r:.40}")
    if isinstance(sentence, Sequence):
        words = sentence
    else:
        try:
            words = sentence[column]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"sentence: expected a column {column!r}, got {type(sentence).__name__} without"
            ) from error
    if not all(isinstance(word, str) for word in words):
        position = next(i for i, word in enumerate(words) if not isinstance(word, str))
        raise ValueError(
            f"sentence: expected words, got {words[position]!r:.40} at position {position}"
        )
    return words
