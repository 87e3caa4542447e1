"""The rows of the paper's tables by name, each as a strategy of active learning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from jaxseq.active import GroupQueries, SequenceQueries, SpanQueries, Strategy, TokenQueries

TASKS = ("np", "conll2000", "conll2003")
SUPERVISED = ("Sup", "Pointwise")
"""Rows that are trained once, on all labels."""
SEQUENCES: dict[str, dict[str, Any]] = {
    "FuSAL": {"ask": "all"},
    "Bootstrap": {"ask": "none", "keep_sure": "model"},
    "Tomanek09": {"ask": "unsure", "keep_sure": "model"},
    "Wanvarie10": {"ask": "unsure", "keep_sure": "open"},
}
"""Rows that choose sentences, and what they ask of them (section 5.4)."""
KINDS = (*SUPERVISED, "Partial", *SEQUENCES, "Proposed", "Groups", "Spans")
ALIKE = "lower(word[0])|pos[-1]|pos[1]"
"""Tokens that are alike for rows Groups: of one word, between the same parts of speech."""
STARTS = ("longest", "random", "shortest")
Start = Literal["longest", "random", "shortest"]
MAKERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "δ": ("threshold", float),
    "q": ("query_size", int),
    "each": ("per_sentence", int),
    "forms": ("per_form", int),
    "width": ("span_width", int),
    "initial": ("initial", int),
    "l2": ("l2", float),
    "most": ("most_percent", float),
    "between": ("between", int),
    "last": ("last_l2", float),
    "start": ("start", str),
}
"""A setting in the name of a row → the field of `Row`, and what makes its value of a text."""


@dataclass(frozen=True)
class Usual:
    """What a row has where its name does not say otherwise.

    Args:
        threshold: δ.
        query_size: q.
        per_sentence: tokens of a sentence per round, at most; 0 for any number.
        span_width: tokens of a span, at most.
        start: of which sentences the initial set is.
        initial: how many these are.
    """

    threshold: float
    query_size: int
    per_sentence: int
    span_width: int
    start: Start
    initial: int


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        kind: one of `KINDS`.
        threshold: as of `Usual`, and the next five too.
        query_size: q.
        per_sentence: 0 for any number.
        span_width: in tokens.
        start: of which sentences the initial set is.
        initial: how many these are.
        per_form: tokens of a word form per round, at most; 0 for any number.
        l2: of its tagger; None for that of the task.
        most_percent: of the tokens are labelled, then it stops; None for its own stop.
        between: iterations of a training, at most, after which more is asked; 0 for any number.
        last_l2: of one more tagger, of all labels when it has stopped, which is scored in place of
            the one that asks; None for no other.
    """

    kind: str
    threshold: float
    query_size: int
    per_sentence: int
    span_width: int
    start: Start
    initial: int
    per_form: int = 0
    l2: float | None = None
    most_percent: float | None = None
    between: int = 0
    last_l2: float | None = None

    def __post_init__(self) -> None:
        if self.initial < 1:
            raise ValueError(f"initial: expected 1 or more, got {self.initial}")
        for name, l2 in (("l2", self.l2), ("last", self.last_l2)):
            if l2 is not None and not 0 <= l2 < math.inf:
                raise ValueError(f"{name}: expected a finite number, 0 or more, got {l2}")
        if self.between < 0:
            raise ValueError(f"between: expected 0 or more, got {self.between}")
        if self.most_percent is not None and not 0 < self.most_percent <= 100:
            raise ValueError(f"most: expected above 0, at most 100, got {self.most_percent}")

    @property
    def is_supervised(self) -> bool:
        """Whether it is trained on all labels, once."""
        return self.kind in SUPERVISED

    @property
    def sup_l2(self) -> float | None:
        """Of the Sup that it is compared with, that of its last tagger; None for the task's."""
        return self.l2 if self.last_l2 is None else self.last_l2

    @property
    def is_drawn(self) -> bool:
        """Whether chance has a part in it."""
        return self.start == "random" and not self.is_supervised

    @property
    def rounds(self) -> int | None:
        """Rounds after the initial one, at most; None where the row stops by itself."""
        return 1 if self.kind == "Partial" else None

    @property
    def strategy(self) -> Strategy:
        """What it asks.

        Raises:
            ValueError: for a supervised row, which asks nothing.
        """
        if self.kind == "Partial":
            return TokenQueries(None, self.threshold)
        if self.kind == "Proposed":
            limits = (self.per_sentence or None, self.per_form or None)
            return TokenQueries(self.query_size, self.threshold, *limits)
        if self.kind == "Groups":
            return GroupQueries(ALIKE, self.query_size, self.threshold, self.per_sentence or None)
        if self.kind == "Spans":
            return SpanQueries(self.span_width, self.query_size, self.threshold)
        if self.kind in SEQUENCES:
            changes = SEQUENCES[self.kind]
            return SequenceQueries(self.query_size, threshold=self.threshold, **changes)
        raise ValueError(f"strategy: expected a row that asks, got {self.kind}")


def row_named(text: str, usual: Usual) -> Row:
    """A row from its name: a kind, then ``δ=``, ``q=``, ``each=`` (per_sentence), ``forms=``
    (per_form), ``width=``, ``start=``, ``initial=``, ``l2=``, ``most=`` (most_percent),
    ``between=`` and ``last=`` (last_l2) as needed.

    Args:
        text: the name.
        usual: for what the name leaves out.

    Raises:
        ValueError: for a kind, a setting or a value that is not known, or that the row does not
            heed.

    Example:
        >>> usual = Usual(0.99, 500, per_sentence=0, span_width=3, start="longest", initial=50)
        >>> row_named("Proposed δ=.90", usual).strategy
        TokenQueries(count=500, threshold=0.9, per_sentence=None, per_form=None)
        >>> row_named("Proposed δ=.90 each=1 forms=2", usual).strategy
        TokenQueries(count=500, threshold=0.9, per_sentence=1, per_form=2)
        >>> row_named("Wanvarie10", usual).strategy.ask
        'unsure'
    """
    kind, *settings = text.split() or [""]
    if kind not in KINDS:
        raise ValueError(f"row {text!r}: expected one of {', '.join(KINDS)}, got {kind!r}")
    values: dict[str, Any] = dict(vars(usual))
    seen: set[str] = set()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (equals and name in MAKERS) or (name == "start" and value not in STARTS):
            known = f"{', '.join(f'{one}=…' for one in MAKERS)} with {', '.join(STARTS)}"
            raise ValueError(f"row {text!r}: expected {known}, got {setting!r}")
        if name in seen:
            raise ValueError(f"row {text!r}: expected {name}=… once, got it again")
        seen.add(name)
        key, make = MAKERS[name]
        try:
            values[key] = make(value)
        except ValueError:
            wanted = "a whole number" if make is int else "a number"
            raise ValueError(f"row {text!r}: expected {wanted}, got {setting!r}") from None
    if unused := seen - _heeded(kind):
        names = ", ".join(f"{name}=…" for name in MAKERS if name in unused)
        raise ValueError(f"row {text!r}: expected only what {kind} heeds, got {names}")
    try:
        row = Row(kind, **values)
        if not row.is_supervised:
            _ = row.strategy
    except ValueError as error:
        raise ValueError(f"row {text!r}: {error}") from None
    return row


def _heeded(kind: str) -> set[str]:
    """Settings that make a difference to a row of a kind."""
    if kind in SUPERVISED:
        return {"l2"}
    own = {
        "Partial": {"δ"},
        "Proposed": {"δ", "q", "each", "forms"},
        "Groups": {"δ", "q", "each"},
        "Spans": {"δ", "q", "width"},
    }
    return {"start", "initial", "l2", "most", "between", "last"} | own.get(kind, {"δ", "q"})


def task_and_row(text: str) -> tuple[str, str]:
    """``"np: Sup"`` → its task and its row.

    Example:
        >>> task_and_row("np: Proposed δ=.90")
        ('np', 'Proposed δ=.90')
    """
    task, colon, row = (part.strip() for part in text.partition(":"))
    if not colon or task not in TASKS or not row:
        raise ValueError(f"rows: expected TASK: ROW with one of {', '.join(TASKS)}, got {text!r}")
    return task, row
