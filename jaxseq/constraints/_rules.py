"""The ready rules: on a token and its label, on two neighbours, and on whole fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxseq.constraints._constraint import (
    BEFORE_THE_FIRST,
    PUNCTUATION,
    Constraint,
    Labels,
    OnTokens,
    Rule,
    Words,
)

__all__ = [
    "AtMostOnce",
    "Count",
    "EndsWith",
    "FieldLength",
    "MustAppear",
    "OnlyOn",
    "Order",
    "StartsWith",
    "TransitionsOnlyOn",
    "WordsImply",
]

Side = Literal["before", "after", "either"]
Unit = Literal["words", "fields"]


@dataclass(frozen=True)
class WordsImply(Rule):
    """Tokens of a dictionary, seed list or pattern have one of some labels.

    Args:
        tokens: which tokens.
        labels: those that they may have, or fields.

    Example:
        >>> from jaxseq.constraints import violations
        >>> rule = WordsImply(Words(["pp", "pages"]), ["PAGES"])
        >>> violations(rule, ["pages", "3"], ["DATE", "DATE"], labels=["DATE", "PAGES"])
        1
    """

    tokens: Words
    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        return _MarkedTokens(self.tokens, jnp.asarray(~labels.mask(self.labels)), True)


@dataclass(frozen=True)
class OnlyOn(Rule):
    """Some labels are for certain tokens alone.

    Args:
        labels: those that other tokens must not have, or fields.
        tokens: which tokens may have them.

    Example:
        >>> from jaxseq.constraints import violations
        >>> rule = OnlyOn(["NUMBER"], Words(pattern=r"[0-9]+"))
        >>> violations(rule, ["pages", "3"], ["NUMBER", "NUMBER"])
        1
    """

    labels: Sequence[str]
    tokens: Words

    def bind(self, labels: Labels) -> Constraint:
        return _MarkedTokens(self.tokens, jnp.asarray(labels.mask(self.labels)), False)


class _MarkedTokens(OnTokens):
    """Labels that tokens must not have, if they are marked (or if they are not)."""

    forbidden: Bool[Array, " s"]
    if_marked: bool = eqx.field(static=True)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Any]:
        # One automaton for both rules: `WordsImply` looks at marked tokens, `OnlyOn` at all others.
        return ((x[t] == self.if_marked) & self.forbidden[y]).astype(jnp.int32), state

    @property
    def is_unary(self) -> bool:
        return True


@dataclass(frozen=True)
class TransitionsOnlyOn(Rule):
    """A new field begins only next to certain tokens, such as punctuation marks.

    Args:
        tokens: where fields may meet; punctuation marks by default.
        side: the field *before* must end with such a token, the one *after* must begin with it,
            or either.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(TransitionsOnlyOn(), ["A", ".", "B", "C"], ["X", "X", "Y", "Z"])
        1
    """

    tokens: Words = field(default_factory=lambda: Words(pattern=PUNCTUATION))
    side: Side = "before"

    def __post_init__(self) -> None:
        if self.side not in ("before", "after", "either"):
            raise ValueError(f"side: expected 'before', 'after' or 'either', got {self.side!r:.60}")

    def bind(self, labels: Labels) -> Constraint:
        return _Meeting(self.tokens, *_fields(labels), self.side)


class _Meeting(OnTokens):
    """Fields that meet where they must not."""

    field_of: Int[Array, " s"]
    begins: Bool[Array, " s"]
    side: Side = eqx.field(static=True)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Any]:
        before, after = x[jnp.maximum(t - 1, 0)], x[t]  # at t = 0 nothing meets, see below
        fine = {"before": before, "after": after, "either": before | after}[self.side]
        meet = begins_field(self.field_of, self.begins, y_prev, y) & (y_prev != BEFORE_THE_FIRST)
        return (meet & ~fine).astype(jnp.int32), state


def begins_field(field_of: Array, begins: Array, y_prev: Array, y: Array) -> Array:
    """Whether label y after label y_prev begins a field."""
    changed = field_of[y] != field_of[jnp.maximum(y_prev, 0)]  # −1 would read the last label
    return changed | begins[y] | (y_prev == BEFORE_THE_FIRST)


@dataclass(frozen=True)
class StartsWith(Rule):
    """The first token of a sequence has one of some labels.

    Args:
        labels: those that it may have, or fields.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(StartsWith(["AUTHOR", "EDITOR"]), ["A", "B"], ["DATE", "DATE"],
        ...            labels=["AUTHOR", "DATE", "EDITOR"])
        1
    """

    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        return _First(jnp.asarray(~labels.mask(self.labels)))


class _First(Constraint):
    forbidden: Bool[Array, " s"]

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Any]:
        # By t and not by a state: the constraint stays local, and Viterbi's search exact.
        return ((t == 0) & self.forbidden[y]).astype(jnp.int32), state

    @property
    def is_unary(self) -> bool:
        return True


MOST = 1_000_000  # the largest bound of lengths and counts: more would leave int32 in sums
BITS = 32  # fields remembered in one integer


class OfFields(Constraint):
    """A constraint that knows fields: of which each label is, and which labels begin one.

    Its state is one integer, 0 at the start, unless it says otherwise.
    """

    field_of: Int[Array, " s"]
    begins: Bool[Array, " s"]

    def init(self, x: Any) -> Array:
        return jnp.zeros((), jnp.int32)

    def is_new(self, y_prev: Array, y: Array) -> Array:
        """Whether y begins a field."""
        return begins_field(self.field_of, self.begins, y_prev, y)


def _fields(labels: Labels) -> tuple[Array, Array]:
    return jnp.asarray(labels.field_of), jnp.asarray(labels.begins)


class SetOfFields(OfFields):
    """A constraint that remembers which of some fields have been there.

    The state is a set, in the bits of one or more integers; `place` is the bit of each label's
    field, −1 for fields that do not matter.
    """

    place: Int[Array, " s"]
    size: int = eqx.field(static=True)

    def init(self, x: Any) -> Array:
        return jnp.zeros(self._words(), jnp.uint32)

    def _words(self) -> int:
        return max(1, -(-self.size // BITS))

    def bit(self, y: Array) -> Array:
        """The set of y's field alone; empty for one that does not matter."""
        place = self.place[y]
        words = jnp.arange(self._words())
        # −1 for "does not matter" is a shift by 31 here, and masked below.
        bit = jnp.left_shift(jnp.uint32(1), (place % BITS).astype(jnp.uint32))
        return jnp.where((words == place // BITS) & (place >= 0), bit, jnp.uint32(0))

    @property
    def num_states(self) -> int | None:
        return 1 << self.size if self.size < BITS - 1 else None  # a state must fit in an int32

    def as_number(self, state: Array) -> Array:
        return state[0].astype(jnp.int32)  # one word alone, see `num_states`

    def as_state(self, number: Array) -> Array:
        return jnp.asarray(number).astype(jnp.uint32)[None]


def _places(labels: Labels, chosen: Sequence[int]) -> Array:
    """For each label the place of its field among the chosen, −1 for the other fields."""
    place = {number: index for index, number in enumerate(chosen)}
    return jnp.asarray([place.get(int(f), -1) for f in labels.field_of], jnp.int32)


@dataclass(frozen=True)
class AtMostOnce(Rule):
    """Each field is one consecutive list of words: none comes back after another.

    A violation is each new beginning of a field that has been there.

    Args:
        labels: the fields; None for all (but O).

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(AtMostOnce(), list("abcd"), ["X", "Y", "X", "Y"])
        2
    """

    labels: Sequence[str] | None = None

    def bind(self, labels: Labels) -> Constraint:
        chosen = labels.field_numbers(self.labels)
        return _Once(*_fields(labels), _places(labels, chosen), len(chosen))


class _Once(SetOfFields):
    def step(self, state, t, y_prev, y, x) -> tuple[Array, Array]:
        bit = self.bit(y)
        # A field that goes on is in the set, too: only a new beginning is a violation.
        again = ((state & bit) != 0).any() & self.is_new(y_prev, y)
        return again.astype(jnp.int32), state | bit


@dataclass(frozen=True)
class MustAppear(Rule):
    """Some fields must be there; decided at the end, a violation for each that is missing.

    Args:
        labels: the fields.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(MustAppear(["TITLE"]), ["a"], ["DATE"], labels=["DATE", "TITLE"])
        1
    """

    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        chosen = labels.field_numbers(self.labels)
        return _Appear(*_fields(labels), _places(labels, chosen), len(chosen))


class _Appear(SetOfFields):
    def step(self, state, t, y_prev, y, x) -> tuple[Array, Array]:
        return jnp.zeros((), jnp.int32), state | self.bit(y)

    def final(self, state) -> Array:
        return self.size - jnp.bitwise_count(state).sum().astype(jnp.int32)


@dataclass(frozen=True)
class EndsWith(Rule):
    """The last token of a sequence has one of some labels.

    Args:
        labels: those that it may have, or fields.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(EndsWith(["DATE"]), ["A", "B"], ["DATE", "TITLE"])
        1
    """

    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        return _Last(jnp.asarray(~labels.mask(self.labels)))


class _Last(Constraint):
    """The state is whether the label so far must not be the last."""

    forbidden: Bool[Array, " s"]

    def init(self, x: Any) -> Array:
        return jnp.zeros((), jnp.int32)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Array]:
        return jnp.zeros((), jnp.int32), self.forbidden[y].astype(jnp.int32)

    def final(self, state) -> Array:
        return state

    @property
    def num_states(self) -> int:
        return 2


@dataclass(frozen=True)
class Order(Rule):
    """Fields come in an order, those that there are: none begins after a later one.

    Args:
        labels: the fields, first to last.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(Order(["A", "B", "C"]), list("xyz"), ["B", "C", "A"])
        1
    """

    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        chosen = labels.field_numbers(self.labels)
        if len(chosen) < 2:
            raise ValueError(f"labels: expected two fields or more in order, got {self.labels}")
        return _Ordered(*_fields(labels), _places(labels, chosen), len(chosen))


class _Ordered(OfFields):
    """The state is the rank of the last field so far, from 1 on; 0 before the first."""

    place: Int[Array, " s"]
    size: int = eqx.field(static=True)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Array]:
        rank = self.place[y] + 1
        late = (rank > 0) & (rank < state) & self.is_new(y_prev, y)
        # A field that is late does not take the others back with it: each is one violation.
        return late.astype(jnp.int32), jnp.maximum(state, rank)

    @property
    def num_states(self) -> int:
        return self.size + 1


@dataclass(frozen=True)
class FieldLength(Rule):
    """Each field has at least and at most so many words.

    A field that is too short is one violation, where the next one begins or at the end; of one that
    is too long, each word past the limit is one.

    Args:
        at_least: the smallest number of words.
        at_most: the largest; None for no limit.
        labels: the fields; None for all (but O).

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(FieldLength(at_least=2), list("abc"), ["X", "Y", "Y"])
        1
        >>> violations(FieldLength(at_most=1), list("abc"), ["X", "X", "X"])
        2
    """

    at_least: int = 1
    at_most: int | None = None
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _check_bounds(self.at_least, self.at_most, 1)

    def bind(self, labels: Labels) -> Constraint:
        mask = np.isin(labels.field_of, labels.field_numbers(self.labels))
        return _Length(*_fields(labels), jnp.asarray(mask), self.at_least, self.at_most)


class _Bounded(OfFields):
    """The state is a number of words or fields, counted no further than it matters."""

    counted: Bool[Array, " s"]
    at_least: int = eqx.field(static=True)
    at_most: int | None = eqx.field(static=True)

    @property
    def num_states(self) -> int:
        # Past the bounds all numbers are alike: the first one that is too many stands for them.
        most = self.at_least if self.at_most is None else max(self.at_least, self.at_most + 1)
        return most + 1


class _Length(_Bounded):
    """The state is the length of the field so far; 0 for fields that do not matter."""

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Array]:
        new = self.is_new(y_prev, y)  # ends the field before, which may be too short
        before = jnp.where(new, 0, state)
        length = jnp.where(self.counted[y], jnp.minimum(before + 1, self.num_states - 1), 0)
        broken = (new & self._too_short(state)).astype(jnp.int32)
        if self.at_most is not None:
            broken = broken + (length > self.at_most)
        return broken, length

    def _too_short(self, length: Array) -> Array:
        return (length > 0) & (length < self.at_least)  # 0 is no field, or one that is not counted

    def final(self, state) -> Array:
        return self._too_short(state).astype(jnp.int32)  # the last field ends here


@dataclass(frozen=True)
class Count(Rule):
    """So many words, or fields, of some labels in a sequence.

    Each one past the upper bound is a violation, and falling short of the lower one is one at the
    end.

    Args:
        labels: which, or fields.
        at_least: the lower bound.
        at_most: the upper one; None for no limit.
        unit: ``"words"`` or ``"fields"``.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(Count(["X"], at_most=1), list("abc"), ["X", "X", "Y"])
        1
        >>> violations(Count(["X"], at_most=1, unit="fields"), list("abc"), ["X", "X", "Y"])
        0
    """

    labels: Sequence[str]
    at_least: int = 0
    at_most: int | None = None
    unit: Unit = "words"

    def __post_init__(self) -> None:
        _check_bounds(self.at_least, self.at_most, 0)
        if self.unit not in ("words", "fields"):
            raise ValueError(f"unit: expected 'words' or 'fields', got {self.unit!r:.60}")

    def bind(self, labels: Labels) -> Constraint:
        mask = jnp.asarray(labels.mask(self.labels))
        by_field = self.unit == "fields"
        return _Counted(*_fields(labels), mask, self.at_least, self.at_most, by_field)


class _Counted(_Bounded):
    by_field: bool = eqx.field(static=True)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Array]:
        one = self.counted[y] & (self.is_new(y_prev, y) if self.by_field else True)
        number = jnp.minimum(state + one, self.num_states - 1)  # saturates: few states
        over = one & (number > self.at_most) if self.at_most is not None else jnp.zeros((), bool)
        return over.astype(jnp.int32), number.astype(jnp.int32)

    def final(self, state) -> Array:
        return (state < self.at_least).astype(jnp.int32)


def _check_bounds(at_least: int, at_most: int | None, lowest: int) -> None:
    for name, value in (("at_least", at_least), ("at_most", at_most)):
        if value is None and name == "at_most":
            continue
        if type(value) is not int or value < lowest:  # True is an int, too
            raise ValueError(f"{name}: expected a whole number, {lowest} or more, got {value!r}")
        if value > MOST:
            raise ValueError(f"{name}: expected a whole number, {lowest} … {MOST}, got {value}")
    if at_most is not None and at_most < at_least:  # would be violated by every labelling
        raise ValueError(f"at_most: expected {at_least} or more, as at_least says, got {at_most}")
