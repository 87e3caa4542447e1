"""The ready rules, and the files in TOML that name them.

Rules are on a token and its label, on two neighbours, and on whole fields. A file of constraints is
for people who do not want to write a program.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import reprlib
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxseq.constraints._constraint import (
    BEFORE_THE_FIRST,
    PUNCTUATION,
    Constraint,
    Constraints,
    Labels,
    OnTokens,
    Penalised,
    Rule,
    Scheme,
    Words,
    bind_constraints,
)

__all__ = [
    "AtMostOnce",
    "ConstraintFile",
    "Count",
    "EndsWith",
    "FieldLength",
    "MustAppear",
    "OnlyOn",
    "Order",
    "StartsWith",
    "TransitionsOnlyOn",
    "WordsImply",
    "read_constraints",
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


# ----------------------------------------------------------------------------- files of constraints

WORDS = ("words", "words_from", "pattern", "punctuation")
"""Keys that say which tokens a rule is about; one or more of them."""

WORD_OPTIONS = ("ignore_case", "column")
BOUNDS = ("at_least", "at_most")
COMMON_KEYS = ("kind", "name", "penalty", "probability")  # of a constraint of any kind
FILE_KEYS = ("scheme", "penalty", "probability", "constraint")


LONG_KEY = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")
"""A key of more parts than any has. For each part, tomllib looks at all those before it."""


class Kind(NamedTuple):
    """A kind of constraint that a file can name: its rule and its keys, beside `COMMON_KEYS`."""

    rule: Callable[..., Rule]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()  # at least one of these must be there, if there are any
    optional: tuple[str, ...] = ()


KINDS = {
    "words_imply": Kind(WordsImply, ("labels",), WORDS, WORD_OPTIONS),
    "only_on": Kind(OnlyOn, ("labels",), WORDS, WORD_OPTIONS),
    "transitions_only_on": Kind(TransitionsOnlyOn, (), (), (*WORDS, *WORD_OPTIONS, "side")),
    "starts_with": Kind(StartsWith, ("labels",)),
    "ends_with": Kind(EndsWith, ("labels",)),
    "at_most_once": Kind(AtMostOnce, (), (), ("labels",)),
    "must_appear": Kind(MustAppear, ("labels",)),
    "order": Kind(Order, ("labels",)),
    "field_length": Kind(FieldLength, (), BOUNDS, ("labels",)),
    "count": Kind(Count, ("labels",), BOUNDS, ("unit",)),
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_list_of_text(value: Any) -> bool:
    # An empty list is refused, too: a rule about no label or no word is a mistake.
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("labels", "words"), ("a list of one or more strings", _is_list_of_text)),
    **dict.fromkeys(("name", "pattern", "words_from", "column"), ("a string", _is_text)),
    # `type`, since True is an int, too, and 1 is equal to True.
    **dict.fromkeys(BOUNDS, ("a whole number", lambda value: type(value) is int)),
    **dict.fromkeys(("ignore_case", "punctuation"), ("true or false", lambda v: type(v) is bool)),
    **{
        key: (f"one of {', '.join(choices)}", choices.__contains__)
        for key, choices in (("side", get_args(Side)), ("unit", get_args(Unit)))
    },
}
"""Key → what it must hold. Penalties and kinds are checked where they are read."""


class Table(NamedTuple):
    """A table of the file: its keys and values, and what messages call it."""

    where: str
    values: dict[str, Any]

    def error(self, problem: str) -> ValueError:
        """What to raise, with the file and the constraint in front."""
        return ValueError(f"{self.where}: {problem}")

    def check_keys(self, known: Sequence[str], what: str) -> None:
        """ValueError for a key that means nothing, or a value of another type."""
        for key, value in self.values.items():
            if key not in known:
                listed = ", ".join(known)
                raise self.error(f"{key}: expected one of the keys of {what} ({listed})")
            wanted, is_right = TYPES.get(key, ("", None))
            if is_right is not None and not is_right(value):
                raise self.error(f"{key}: expected {wanted}, got {reprlib.repr(value)}")


@dataclass(frozen=True)
class ConstraintFile:
    """The constraints of a file.

    Args:
        rules: with their penalties and names, all names different.
        scheme: how labels stand for fields.

    Example:
        >>> from jaxseq.constraints import StartsWith
        >>> file = ConstraintFile([Penalised(StartsWith(["A"]), 2.5, "start")], "plain")
        >>> file.bind(["A", "B"]).names
        ('start',)
    """

    rules: list[Penalised]
    scheme: Scheme = "plain"

    def bind(self, labels: Sequence[str]) -> Constraints:
        """The constraints for a model with these labels: a tagger's `classes_`."""
        return bind_constraints(self.rules, labels, scheme=self.scheme)


def read_constraints(
    path: str | os.PathLike[str], labels: Sequence[str] | None = None
) -> ConstraintFile:
    r"""Read a file of constraints in TOML::

        scheme = "plain"                  # or "iob2", "iobes"; how labels stand for fields
        penalty = 4.5                     # ρ of the constraints that have none of their own

        [[constraint]]
        kind = "words_imply"
        name = "pages"                    # for reports; by default its kind
        words = ["pp", "pages"]
        labels = ["PAGES"]
        probability = 1e-4                # instead of a penalty

        [[constraint]]
        kind = "transitions_only_on"
        punctuation = true

    Kinds and their keys, named like the arguments of the rules:

    - ``words_imply``, ``only_on``: labels, and words; ``transitions_only_on``: words (punctuation
      marks by default), side
    - ``starts_with``, ``ends_with``, ``must_appear``, ``order``: labels; ``at_most_once``: labels
      or all
    - ``field_length``: at_least, at_most, labels or all; ``count``: labels, at_least, at_most, unit

    Labels are names of labels or of their fields, in which ``*`` stands for any text: ``*-NP``.

    Words: ``words``, a list; ``words_from``, a file with one word per line, relative to this one;
    ``pattern``, a regular expression for the whole token; or ``punctuation = true``. Also
    ``ignore_case`` (true) and ``column`` (word).

    A penalty is a number, 0 or more, or ``inf`` for a hard constraint. A probability of violation p
    is the penalty :math:`\rho = -\log p`.

    Args:
        path: the file.
        labels: of the model, to notice a label that it does not have; None checks none.

    Raises:
        ValueError: for anything wrong, with the file and the constraint that is meant:
            ``FILE: constraint 3 (order): labels: …``.

    Example:
        >>> import os, tempfile
        >>> text = 'penalty = inf\n[[constraint]]\nkind = "starts_with"\nlabels = ["A"]\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "rules.toml")
        ...     with open(path, "w") as file:
        ...         _ = file.write(text)
        ...     read = read_constraints(path, ["A", "B"])
        >>> read.rules[0].penalty, read.scheme, read.bind(["A", "B"]).names
        (inf, 'plain', ('starts_with',))

    References:
        Chang, Ratinov & Roth 2007, table 1, for the constraints that such a file can express.
    """
    name = os.fspath(path)
    if Path(name).suffix.lower() != ".toml":
        raise ValueError(f"{name}: expected a file whose name ends with .toml")
    try:
        text = read_text(name)
        if LONG_KEY.search(text):
            raise ValueError(f"{name}: expected keys of at most 32 parts, got a longer one")
        file = Table(name, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:  # whose text ends with line and column
        raise ValueError(f"{name}: expected TOML, got a mistake: {error}") from None
    except RecursionError:  # tomllib descends once per bracket
        raise ValueError(f"{name}: expected TOML, got tables nested too deeply") from None
    file.check_keys(FILE_KEYS, "a file of constraints")
    scheme = file.values.get("scheme", "plain")
    if scheme not in get_args(Scheme):
        wanted = ", ".join(get_args(Scheme))
        raise file.error(f"scheme: expected one of {wanted}, got {reprlib.repr(scheme)}")
    known = None if labels is None else Labels(labels, cast(Scheme, scheme))
    default, tables = _penalty(file), _tables(file)
    chosen = [table.values.get("name") for table in tables]
    rules: list[Penalised] = []
    for table in tables:
        kind, rule = _read_rule(table, name)
        if known is not None:
            try:
                rule.bind(known)
            except ValueError as error:
                raise table.error(str(error)) from None
        own = _penalty(table)
        penalty = default if own is None else own
        if penalty is None:
            raise table.error(
                "expected the key penalty or probability, there or for all constraints, got none"
            )
        called, names = table.values.get("name"), [rule.name for rule in rules]
        if called is not None and called in names:
            raise table.error(f"name: expected one of its own, got {called!r} again")
        # A constraint without a name is called like its kind, numbered from the second one on.
        free = (f"{kind} {n}" if n > 1 else kind for n in itertools.count(1))
        called = called or next(one for one in free if one not in names and one not in chosen)
        rules.append(Penalised(rule, penalty, called))
    return ConstraintFile(rules, cast(Scheme, scheme))


def read_text(path: str) -> str:
    r"""The text of a file in UTF-8, with ``\n`` as the end of a line.

    Raises:
        ValueError: where there is no file, or one that is not UTF-8.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: expected a file, there is none") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: expected a file, got a folder") from None
    try:
        text = data.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, f"{data[error.start]:02x}"
        wanted = "expected text encoded as utf-8"
        raise ValueError(f"{path}:{line}: {wanted}, got byte {byte}") from None
    return text.replace("\r\n", "\n")


def _tables(file: Table) -> list[Table]:
    """The tables of the constraints; messages call them by number, and by name or kind."""
    tables = file.values.get("constraint", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        got = reprlib.repr(tables)
        raise file.error(f"constraint: expected a list of tables, [[constraint]], got {got}")
    if not tables:
        raise file.error("constraint: expected at least one, got none")
    located = []
    for number, values in enumerate(tables, start=1):
        called = next((values[key] for key in ("name", "kind") if _is_text(values.get(key))), None)
        suffix = "" if called is None else f" ({called:.40})"
        located.append(Table(f"{file.where}: constraint {number}{suffix}", values))
    return located


def _read_rule(table: Table, path: str) -> tuple[str, Rule]:
    """The kind and the rule that a table describes."""
    name = table.values.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        got = "none" if name is None else reprlib.repr(name)
        raise table.error(f"kind: expected one of {', '.join(KINDS)}, got {got}")
    kind = KINDS[name]
    what = f"a constraint of kind {name}"
    table.check_keys((*COMMON_KEYS, *kind.required, *kind.one_of, *kind.optional), what)
    for keys in (*((key,) for key in kind.required), kind.one_of):
        if keys and not any(key in table.values for key in keys):
            raise table.error(f"expected the key {' or '.join(keys)} in {what}")
    about_words = {key for key in (*WORDS, *WORD_OPTIONS) if key in table.values}
    arguments: dict[str, Any] = {
        # Rules are hashable, and so are their labels.
        key: tuple(value) if key == "labels" else value
        for key, value in table.values.items()
        if key not in about_words and key not in COMMON_KEYS
    }
    try:
        if about_words:
            arguments["tokens"] = _read_words(table, path)
        # A rule names the argument that is wrong first, and that is the name of the key here.
        return name, kind.rule(**arguments)
    except ValueError as error:
        raise table.error(str(error)) from None


def _read_words(table: Table, path: str) -> Words:
    """The words that a table is about; punctuation marks where it names none."""
    values = table.values
    words, pattern = tuple(values.get("words", ())), values.get("pattern")
    if "words_from" in values:
        words += _words_from(os.path.join(os.path.dirname(path), values["words_from"]))
    if values.get("punctuation"):
        if pattern is not None:
            raise ValueError("punctuation: expected no pattern along with it, got both")
        pattern = PUNCTUATION
    elif not any(key in values for key in WORDS):
        pattern = PUNCTUATION
    elif not words and pattern is None:
        raise ValueError("punctuation: expected true, or words or a pattern too, got false")
    return Words(words, pattern, **{key: values[key] for key in WORD_OPTIONS if key in values})


def _words_from(path: str) -> tuple[str, ...]:
    """The words of another file, one per line."""
    try:
        text = read_text(path)
    except ValueError as error:
        raise ValueError(f"words_from: {error}") from None
    except OSError as error:
        raise ValueError(f"words_from: {path}: cannot be read: {error.strerror}") from None
    words = tuple(word for word in map(str.strip, text.split("\n")) if word)
    if not words:
        raise ValueError(f"words_from: expected one word per line, got none in {path}")
    return words


def _penalty(table: Table) -> float | None:
    """ρ, by either key; None for neither."""
    if "penalty" in table.values and "probability" in table.values:
        raise table.error("probability: expected no penalty along with it, got both")
    for key, wanted in (
        ("penalty", "a number, 0 or more, or inf"),
        ("probability", "more than 0 and at most 1"),
    ):
        value = table.values.get(key)
        if value is None:
            continue
        try:  # a number in quotes will do, too
            number = math.nan if isinstance(value, bool) else float(value)
        except (ValueError, TypeError, OverflowError):
            number = math.nan
        # Comparisons with NaN are false, and so it is refused along with what is out of range.
        if not (number >= 0 if key == "penalty" else 0 < number <= 1):
            raise table.error(f"{key}: expected {wanted}, got {reprlib.repr(value)}")
        return number if key == "penalty" else 0.0 - math.log(number)  # never −0.0
    return None
