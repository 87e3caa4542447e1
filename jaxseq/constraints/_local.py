"""Constraints on a token's label and the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxseq.constraints._constraint import BEFORE_THE_FIRST, Constraint
from jaxseq.constraints._labels import Labels
from jaxseq.constraints._rules import OnTokens, Rule
from jaxseq.constraints._tokens import PUNCTUATION, Tokens

Side = Literal["before", "after", "either"]


@dataclass(frozen=True)
class WordsImply(Rule):
    """Tokens of a dictionary, seed list or pattern have one of some labels.

    Args:
        tokens: which tokens. labels: that they may have, or fields.

    Example:
        >>> from jaxseq.constraints import violations
        >>> rule = WordsImply(Tokens(["pp", "pages"]), ["PAGES"])
        >>> violations(rule, ["pages", "3"], ["DATE", "DATE"], labels=["DATE", "PAGES"])
        1
    """

    tokens: Tokens
    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        return _MarkedTokens(self.tokens, jnp.asarray(~labels.is_one_of(self.labels)), True)


@dataclass(frozen=True)
class OnlyOn(Rule):
    """Some labels are for certain tokens alone.

    Args:
        labels: that other tokens must not have, or fields. tokens: that may have them.

    Example:
        >>> from jaxseq.constraints import violations
        >>> rule = OnlyOn(["NUMBER"], Tokens(pattern=r"[0-9]+"))
        >>> violations(rule, ["pages", "3"], ["NUMBER", "NUMBER"])
        1
    """

    labels: Sequence[str]
    tokens: Tokens

    def bind(self, labels: Labels) -> Constraint:
        return _MarkedTokens(self.tokens, jnp.asarray(labels.is_one_of(self.labels)), False)


class _MarkedTokens(OnTokens):
    """Labels that tokens must not have, if they are marked (or if they are not)."""

    forbidden: Bool[Array, " s"]
    if_marked: bool = eqx.field(static=True)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Any]:
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

    tokens: Tokens = field(default_factory=lambda: Tokens(pattern=PUNCTUATION))
    side: Side = "before"

    def __post_init__(self) -> None:
        if self.side not in ("before", "after", "either"):
            raise ValueError(f"side: expected 'before', 'after' or 'either', got {self.side!r}")

    def bind(self, labels: Labels) -> Constraint:
        field_of, begins = jnp.asarray(labels.field_of), jnp.asarray(labels.begins)
        return _Meeting(self.tokens, field_of, begins, self.side)


class _Meeting(OnTokens):
    """Fields that meet where they must not."""

    field_of: Int[Array, " s"]
    begins: Bool[Array, " s"]
    side: Side = eqx.field(static=True)

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Any]:
        before, after = x[jnp.maximum(t - 1, 0)], x[t]
        fine = {"before": before, "after": after, "either": before | after}[self.side]
        meet = begins_field(self.field_of, self.begins, y_prev, y) & (y_prev != BEFORE_THE_FIRST)
        return (meet & ~fine).astype(jnp.int32), state


def begins_field(field_of: Array, begins: Array, y_prev: Array, y: Array) -> Array:
    """Whether label y after label y_prev begins a field."""
    changed = field_of[y] != field_of[jnp.maximum(y_prev, 0)]
    return changed | begins[y] | (y_prev == BEFORE_THE_FIRST)


@dataclass(frozen=True)
class StartsWith(Rule):
    """The first token of a sequence has one of some labels.

    Args:
        labels: that it may have, or fields.

    Example:
        >>> from jaxseq.constraints import violations
        >>> violations(StartsWith(["AUTHOR", "EDITOR"]), ["A", "B"], ["DATE", "DATE"],
        ...            labels=["AUTHOR", "DATE", "EDITOR"])
        1
    """

    labels: Sequence[str]

    def bind(self, labels: Labels) -> Constraint:
        return _First(jnp.asarray(~labels.is_one_of(self.labels)))


class _First(Constraint):
    forbidden: Bool[Array, " s"]

    def step(self, state, t, y_prev, y, x) -> tuple[Array, Any]:
        return ((t == 0) & self.forbidden[y]).astype(jnp.int32), state

    @property
    def is_unary(self) -> bool:
        return True
