r"""A constraint: a small automaton that reads a labelling from left to right.

.. math::
    d_k(x, y) = \sum_t \phi_k(y_t \mid x, y_{<t}) + \phi_k^{\text{end}}(x, y)

It counts violations as soon as a prefix shows them, and at the end what only a complete labelling
can decide.
"""

from __future__ import annotations

import math
import numbers
import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

__all__ = [
    "PUNCTUATION",
    "Constraint",
    "Constraints",
    "Labels",
    "Penalised",
    "Rule",
    "Words",
    "bind_constraints",
]

Scheme = Literal["plain", "iob2", "iobes"]
OUTSIDE = "O"  # the label of tokens in no field, whatever the scheme


class Labels:
    """The labels of a model in their order, and which fields they stand for.

    In the scheme ``"plain"`` each label is a field of its own, and a field ends where the label
    changes. In ``"iob2"`` and ``"iobes"``, ``B-X``, ``I-X``, ``E-X`` and ``S-X`` are all of field
    X, and B and S begin a new one. `O` is outside of all fields in each scheme.

    Args:
        names: of the labels, all different.
        scheme: how they stand for fields.

    Example:
        >>> labels = Labels(["B-PER", "I-PER", "O"], "iob2")
        >>> labels.fields, labels.field_of.tolist(), labels.numbers(["PER"])
        (['PER', 'O'], [0, 0, 1], [0, 1])
    """

    def __init__(self, names: Sequence[str], scheme: Scheme = "plain"):
        self.names, self.scheme = [str(name) for name in names], scheme
        if scheme not in ("plain", "iob2", "iobes"):
            raise ValueError(f"scheme: expected 'plain', 'iob2' or 'iobes', got {scheme!r}")
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"labels: expected different names, got {', '.join(self.names)}")
        # Asked once per token of a labelled corpus: `list.index` would be slow.
        self._number = {name: number for number, name in enumerate(self.names)}
        tagged = scheme != "plain"
        own = [
            name[2:] if tagged and name[:2] in ("B-", "I-", "E-", "S-") else name
            for name in self.names
        ]
        self.fields = list(dict.fromkeys(own))
        self.field_of = np.array([self.fields.index(field) for field in own], np.int32)
        self.begins = np.array([tagged and name[:2] in ("B-", "S-") for name in self.names], bool)

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Numbers of the labels that are named, or whose field is; `*` stands for any text.

        Raises:
            ValueError: for a name that is neither.
        """
        if isinstance(names, str):
            raise ValueError(f"labels: expected a list of names, got the string {names!r}")
        chosen: set[int] = set()
        for name in names:
            if name in self._number:  # a label before a field of its name: `O` is both
                chosen.add(self._number[name])
            elif name in self.fields:
                chosen.update(np.flatnonzero(self.field_of == self.fields.index(name)).tolist())
            elif matching := self._matching(name):
                chosen.update(matching)
            else:
                known = ", ".join(dict.fromkeys([*self.fields, *self.names]))
                raise ValueError(f"labels: expected one of {known}, got {name!r}")
        return sorted(chosen)

    def _matching(self, name: str) -> list[int]:
        """Numbers of the labels that a name with wildcards is about; none without a `*`."""
        if "*" not in name:
            return []
        pattern = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
        return [number for own, number in self._number.items() if pattern.fullmatch(own)]

    def mask(self, names: Sequence[str]) -> np.ndarray:
        """Booleans [s], true for the labels that are named."""
        mask = np.zeros(len(self.names), bool)
        mask[self.numbers(names)] = True
        return mask

    def field_numbers(self, names: Sequence[str] | None) -> list[int]:
        """Numbers of fields in the order of their names; None for all but `O`."""
        if names is None:
            return [number for number, field in enumerate(self.fields) if field != OUTSIDE]
        labels = (label for name in names for label in self.numbers([name]))
        return list(dict.fromkeys(int(self.field_of[label]) for label in labels))

    def encode(self, labelling: Sequence[Any]) -> np.ndarray:
        """Numbers of a labelling, given by names or numbers."""
        chosen = []
        for position, label in enumerate(labelling):
            if isinstance(label, bool) or not isinstance(label, str | numbers.Integral):
                raise ValueError(f"y[{position}]: expected a label, got {label!r:.40}")
            # A label may be called "3": strings are always names, and integers always numbers.
            number = self._number.get(label, -1) if isinstance(label, str) else int(label)
            if not 0 <= number < len(self.names):
                known = ", ".join(self.names)
                raise ValueError(f"y[{position}]: expected one of {known}, got {label!r}")
            chosen.append(number)
        return np.array(chosen, np.int32)


State = Any
"""A pytree of arrays of fixed shapes: what a constraint remembers of a prefix."""

BEFORE_THE_FIRST = -1  # y_prev at position 0


class Constraint(eqx.Module):
    """Violations of a labelling, counted from left to right. Write your own with three functions.

    All three are pure functions of arrays and are vmapped over the hypotheses of a beam, the labels
    and the sequences; labels are numbers. `step` must not look at x beyond what belongs to the
    sequence: padding is all zeros.

    ``init(x)`` is the state before position 0. ``step(state, t, y_prev, y, x)`` gives how many
    violations label y at position t adds to those of the prefix, 0 or more, and the new state;
    y_prev is −1 at t = 0. ``final(state)`` gives the violations that only the end shows.

    ``observe(sentence)`` makes x from a sentence, on the host: NumPy arrays, one row per token.

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
        # Whoever has a state or an end overrides one of these.
        return type(self).init is Constraint.init and type(self).final is Constraint.final

    @property
    def is_unary(self) -> bool:
        """Whether y_prev is not looked at either."""
        return False


def as_violations(count: Any) -> Int[Array, ""]:
    """What a step or an end has returned, as a number of violations; ValueError for fractions.

    Example:
        >>> int(as_violations(True)), int(as_violations(2))
        (1, 2)
    """
    array = jnp.asarray(count)  # which may be traced: its type is looked at, not its value
    if not (jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool) or array.ndim:
        raise ValueError(
            "step, final: expected a whole number of violations, got dtype "
            f"{array.dtype.name} of shape {list(array.shape)}"
        )
    return array.astype(jnp.int32)


def find_column(sentence: Any, column: str) -> Sequence[str]:
    """The strings of a column: of a mapping or `jaxseq.text.Sentence`, or a list of words itself.

    Example:
        >>> find_column({"word": ["a", "b"]}, "word"), find_column(["a", "b"], "word")
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
            ) from error  # a string would be indexed by character, and is refused above
    if not all(isinstance(word, str) for word in words):
        position = next(i for i, word in enumerate(words) if not isinstance(word, str))
        raise ValueError(
            f"sentence: expected words, got {words[position]!r:.40} at position {position}"
        )
    return words


PUNCTUATION = r"[^\w\s]+"
"""A regular expression of the tokens that are punctuation marks."""


@dataclass(frozen=True)
class Words:
    """Tokens that are one of some words, or match a regular expression as a whole, or both.

    Args:
        words: a dictionary or seed list.
        pattern: a regular expression that the whole token must match.
        ignore_case: whether upper and lower case are the same.
        column: of the sentences that have several.

    Raises:
        ValueError: for a bad pattern, or neither words nor a pattern.

    Example:
        >>> Words(["pp", "pages"], r"[.,;]").marks(["Pages", "3", "."]).tolist()
        [True, False, True]
    """

    words: tuple[str, ...] | Sequence[str] = ()
    pattern: str | None = None
    ignore_case: bool = True
    column: str = "word"

    def __post_init__(self) -> None:
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in self.words):
            raise ValueError(f"words: expected a list of strings, got {self.words!r:.60}")
        object.__setattr__(self, "words", tuple(self.words))  # hashable: a static field of automata
        if not self.words and self.pattern is None:
            raise ValueError("words, pattern: expected at least one word or a pattern, got neither")
        _ = self._expression  # a bad pattern is refused here rather than at the first sentence

    @cached_property
    def _expression(self) -> re.Pattern[str] | None:
        if self.pattern is None:
            return None
        try:
            return re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)
        except (re.error, TypeError) as error:
            raise ValueError(
                f"pattern: expected a regular expression, got {self.pattern!r}: {error}"
            ) from None

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._fold(word) for word in self.words)

    def _fold(self, word: str) -> str:
        return word.casefold() if self.ignore_case else word

    @cached_property
    def _answers(self) -> dict[str, bool]:
        """The answers of `in` so far: a text has few words, often."""
        return {}

    def __contains__(self, word: str) -> bool:
        answer = self._answers.get(word)
        if answer is None:
            answer = self._fold(word) in self._known
            if not answer and self._expression is not None:
                answer = self._expression.fullmatch(word) is not None
            self._answers[word] = answer
        return answer

    def marks(self, sentence: Any) -> np.ndarray:
        """Booleans [n]: which tokens of a sentence these are."""
        return np.fromiter((word in self for word in find_column(sentence, self.column)), bool)


@dataclass(frozen=True)
class Rule:
    """A constraint as people write it, with names of labels; `bind` gives it their numbers.

    Example:
        >>> from jaxseq.constraints import Labels, Rule, StartsWith
        >>> isinstance(StartsWith(["A"]), Rule), StartsWith(["A"]).bind(Labels(["A", "B"])).is_local
        (True, True)
    """

    # A frozen dataclass prints itself, and is equal to another one with the same arguments.
    @abstractmethod
    def bind(self, labels: Labels) -> Constraint:
        """The automaton for a model with these labels.

        Raises:
            ValueError: for a label that the model does not have.
        """


class OnTokens(Constraint):
    """A constraint that looks at whether a token is one of some tokens: x is bool [n]."""

    tokens: Words = eqx.field(static=True)  # strings cannot be traced; only the marks are

    def observe(self, sentence: Any) -> np.ndarray:
        return self.tokens.marks(sentence)


MOST_PENALTY = 1e12  # the largest finite ρ: beside more, float32 would lose the scores


class Penalised(NamedTuple):
    """A rule (or a constraint of one's own) and what a violation costs.

    penalty: ρ ≥ 0; ``math.inf`` makes it hard. name: for reports; None for that of the rule.

    Example:
        >>> from jaxseq.constraints import MustAppear
        >>> Penalised(MustAppear(["TITLE"]), 2.5).penalty
        2.5
    """

    rule: Rule | Constraint
    penalty: float
    name: str | None = None


class Constraints(eqx.Module):
    r"""Constraints on the labellings of one model, :math:`-\sum_k \rho_k d_k(x, y)`.

    Made by `bind_constraints`. An `equinox.Module`: penalties are arrays, and may change without
    compiling anew.

    Attributes:
        parts: the automata.
        penalties: ρ, 0 for hard ones.
        hard: which are hard.
        names: for reports.
        num_labels: s.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, StartsWith
        >>> rules = bind_constraints([AtMostOnce(), StartsWith(["A"])], ["A", "B"], penalty=9.2)
        >>> rules.with_penalties([1.0, float("inf")]).hard
        (False, True)
    """

    parts: tuple[Constraint, ...]
    penalties: Float[Array, " c"]
    # Which are hard is part of the program: searches without any sort by one key instead of three.
    hard: tuple[bool, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    num_labels: int = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def any_hard(self) -> bool:
        """Whether some penalty is infinite."""
        return any(self.hard)

    @property
    def all_local(self) -> bool:
        """Whether Viterbi's search on a chain with other scores is exact."""
        return all(part.is_local for part in self.parts)

    def with_penalties(self, penalties: Sequence[float]) -> Constraints:
        """The same constraints with other penalties."""
        if len(penalties) != len(self.parts):
            raise ValueError(f"penalties: expected {len(self.parts)}, got {len(penalties)}")
        checked = [check_penalty(float(penalty)) for penalty in penalties]
        return Constraints(self.parts, *_split_penalties(checked), self.names, self.num_labels)

    @property
    def costly(self) -> tuple[int, ...]:
        """Numbers of those that cost something: with ρ = 0 a constraint changes nothing."""
        pairs = enumerate(zip(self.hard, np.asarray(self.penalties)))
        # A hard one has penalty 0 and still rules labellings out.
        return tuple(number for number, (hard, penalty) in pairs if hard or penalty > 0)

    def only(self, numbers: Sequence[int]) -> Constraints:
        """Some of the constraints, by their numbers."""
        # Not by `_split_penalties`, since hard ones have penalty 0 here already.
        return Constraints(
            tuple(self.parts[number] for number in numbers),
            self.penalties[np.asarray(numbers, np.int32)],
            tuple(self.hard[number] for number in numbers),
            tuple(self.names[number] for number in numbers),
            self.num_labels,
        )

    def observe(self, sentence: Any) -> tuple[Any, ...]:
        """What each constraint looks at of a sentence, on the host: arrays [n, …] or None."""
        return tuple(part.observe(sentence) for part in self.parts)

    def observe_all(self, sentences: Iterable[Any]) -> tuple[Any, ...]:
        """The same of many sentences, their tokens one after another: arrays [N, …] or None.

        Raises:
            ValueError: for something that is not a sentence, with its number.
        """
        looks, rows = [part.observe for part in self.parts], []  # bound once, called per sentence
        for number, sentence in enumerate(sentences):
            try:
                rows.append(tuple(look(sentence) for look in looks))
            except ValueError as error:
                raise ValueError(f"X[{number}]: {error}") from None
        if not rows:  # nothing to concatenate, and no shape to know
            return tuple(None for _ in self.parts)
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *rows)


def bind_constraints(
    rules: Iterable[Penalised | Rule | Constraint],
    labels: Sequence[str],
    *,
    penalty: float | None = None,
    scheme: Scheme = "plain",
) -> Constraints:
    """Constraints for a model with these labels.

    Args:
        rules: with penalties of their own, or without.
        labels: names of the labels in the model's order: a tagger's `classes_`.
        penalty: ρ of the rules that have none.
        scheme: how labels stand for fields.

    Raises:
        ValueError: for an unknown label or a bad penalty, with the number of the rule.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, StartsWith
        >>> bound = bind_constraints([AtMostOnce(), StartsWith(["A"])], ["A", "B"], penalty=9.2)
        >>> bound.names, bound.all_local
        (('AtMostOnce', 'StartsWith'), False)
    """
    known = Labels(labels, scheme)
    parts, penalties, names = [], [], []
    for number, item in enumerate(rules):
        try:
            if not isinstance(item, Penalised) and penalty is None:
                raise ValueError("penalty: expected one, of the rule or for all, got none")
            one = item if isinstance(item, Penalised) else Penalised(item, cast(float, penalty))
            penalties.append(check_penalty(one.penalty))
            if not isinstance(one.rule, Rule | Constraint):
                raise ValueError(f"rule: expected a rule or a Constraint, got {one.rule!r:.60}")
            # A constraint of one's own knows its labels already.
            parts.append(one.rule.bind(known) if isinstance(one.rule, Rule) else one.rule)
        except ValueError as error:
            raise ValueError(f"rules[{number}]: {error}") from None
        names.append(one.name or type(one.rule).__name__)
    return Constraints(tuple(parts), *_split_penalties(penalties), tuple(names), len(known))


def check_penalty(penalty: Any) -> float:
    """ρ as a number; ValueError unless it is one, 0 or more."""
    try:
        value = math.nan if isinstance(penalty, bool | str) else float(penalty)
    except (TypeError, ValueError):
        value = math.nan
    if MOST_PENALTY < value < math.inf:
        raise ValueError(
            f"penalty: expected at most {MOST_PENALTY:g}, or inf for a hard constraint, got {value}"
        )
    if not value >= 0:  # NaN is not, either
        raise ValueError(f"penalty: expected a number, 0 or more, got {penalty!r:.40}")
    return value


def _split_penalties(penalties: Sequence[float]) -> tuple[Array, tuple[bool, ...]]:
    """Soft penalties (0 for hard), and which are hard."""
    hard = tuple(math.isinf(penalty) for penalty in penalties)
    # Hard ones are counted apart: −∞ · 0 violations would be NaN.
    soft = np.array([0.0 if h else p for p, h in zip(penalties, hard)], np.float64)
    return jnp.asarray(soft, jnp.result_type(float)), hard
