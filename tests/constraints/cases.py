"""Rules beside their plain definitions, and chains that all have one shape."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from jaxseq.constraints import (
    AtMostOnce,
    Count,
    EndsWith,
    FieldLength,
    MustAppear,
    OnlyOn,
    Order,
    Penalised,
    StartsWith,
    TransitionsOnlyOn,
    Words,
    WordsImply,
    bind_constraints,
)
from jaxseq.lattice import Chain
from tests.constraints import plain

WORDS = ("Pages", "3", ".", "and")
MARKED = Words(["pages"], r"[.,]")
MARKS = {"Pages": True, "3": False, ".": True, "and": False}

LABELS = {"plain": ["A", "B", "C", "O"], "iob2": ["B-X", "I-X", "B-Y", "I-Y", "O"]}


class Case(NamedTuple):
    """A rule, and the plain count of its violations: (marks, labels, scheme) → number."""

    rule: Any
    count: Any


def cases(scheme):
    """Every rule with several arguments, for the labels of a scheme."""
    a, b = ("A", "B") if scheme == "plain" else ("X", "Y")
    one = "C" if scheme == "plain" else "I-Y"
    sides = ("before", "after", "either")
    names = [[a], [b, one], [one, "O"], [a, b]]
    bounds = [(1, 1), (2, None), (2, 3), (1, 4)]
    found = [
        *(Case(WordsImply(MARKED, n), partial(plain.words_imply, names=n)) for n in names),
        *(Case(OnlyOn(n, MARKED), partial(plain.only_on, names=n)) for n in names),
        *(
            Case(TransitionsOnlyOn(MARKED, side), partial(plain.transitions_only_on, side=side))
            for side in sides
        ),
        *(Case(StartsWith(n), partial(plain.starts_with, names=n)) for n in names),
        *(Case(EndsWith(n), partial(plain.ends_with, names=n)) for n in names),
        *(Case(AtMostOnce(n), partial(plain.at_most_once, names=n)) for n in (None, [a], ["O"])),
        *(Case(MustAppear(n), partial(plain.must_appear, names=n)) for n in names),
        *(
            Case(Order(n), partial(plain.order, names=n))
            for n in ([a, b], [b, a], ["O", a, b], [b, "O"])
        ),
        *(
            Case(
                FieldLength(low, high, n),
                partial(plain.field_length, at_least=low, at_most=high, names=n),
            )
            for n, (low, high) in zip((None, None, [b], [a, "O"]), bounds)
        ),
        *(
            Case(
                Count(n, low, high, unit),
                partial(plain.count, names=n, at_least=low, at_most=high, unit=unit),
            )
            for n, unit in (([a], "words"), ([one], "fields"), ([a, b], "fields"), (["O"], "words"))
            for low, high in ((0, 1), (2, None), (1, 2), (0, 0))
        ),
    ]
    return found


# ------------------------------------------------------------------------------- small searches

SIZE, NAMES = 4, ["A", "B", "C"]
"""Positions, and labels, of every chain that is searched: one program each."""

LOCAL = [
    Case(WordsImply(MARKED, ["A"]), partial(plain.words_imply, names=["A"])),
    Case(TransitionsOnlyOn(MARKED), partial(plain.transitions_only_on, side="before")),
    Case(StartsWith(["B"]), partial(plain.starts_with, names=["B"])),
]
OF_FIELDS = [
    Case(AtMostOnce(), plain.at_most_once),
    Case(EndsWith(["C"]), partial(plain.ends_with, names=["C"])),
    Case(
        Count(["A"], 1, 1),
        partial(plain.count, names=["A"], at_least=1, at_most=1, unit="words"),
    ),
]
BOTH = [*LOCAL, *OF_FIELDS]


class Problem(NamedTuple):
    """Scores of a padded chain, its words, and what each rule costs."""

    nodes: np.ndarray
    edges: np.ndarray
    length: int
    words: tuple[str, ...]
    penalties: tuple[float, ...]

    def chain(self, dtype=np.float64):
        """The padded chain."""
        return Chain(self.nodes.astype(dtype), self.edges.astype(dtype), self.length)

    def constraints(self, chosen):
        """Those of some cases, bound."""
        rules = [Penalised(case.rule, rho) for case, rho in zip(chosen, self.penalties)]
        return bind_constraints(rules, NAMES)

    def observed(self, constraints):
        """What the constraints look at: zeros on padding, as the library pads."""
        seen = constraints.observe(self.words[: self.length])
        return tuple(None if a is None else np.pad(a, (0, SIZE - len(a))) for a in seen)

    def counters(self, chosen):
        """(path of numbers → plain count, ρ) of some cases."""
        marks = [MARKS[word] for word in self.words]

        def counter(case):
            return lambda path: case.count(marks, [NAMES[y] for y in path], "plain")

        return [(counter(case), rho) for case, rho in zip(chosen, self.penalties)]

    def best(self, chosen, k):
        """The k best of all labellings, by the plain definitions."""
        nodes = self.nodes[: self.length]
        edges = self.edges if self.edges.ndim == 2 else self.edges[: max(self.length - 1, 0)]
        if self.length == 0:
            nodes = np.zeros((1, len(NAMES)))
        return plain.best(nodes, edges, self.length, self.counters(chosen), k)


@st.composite
def problems(draw, penalties=(0.0, 0.3, 2.5, math.inf), least=0, shared=True, forbid=False):
    """Random scores without ties, of any length; with `forbid` some of them −inf."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    s = len(NAMES)
    nodes = rng.normal(size=(SIZE, s))
    edges = rng.normal(size=(s, s) if shared else (SIZE - 1, s, s))
    if forbid:
        nodes = np.where(rng.random(nodes.shape) < 0.15, -np.inf, nodes)
        edges = np.where(rng.random(edges.shape) < 0.3, -np.inf, edges)
    length = draw(st.integers(least, SIZE))
    words = draw(st.tuples(*[st.sampled_from(WORDS)] * SIZE))
    costs = draw(st.tuples(*[st.sampled_from(penalties)] * len(BOTH)))
    return Problem(nodes, edges, length, words, costs)
