"""The self-test: break the library on purpose, and see that the checks notice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import jaxseq
from jaxseq.native import why_not
from jaxseq.verify._cases import EDGE_KINDS
from jaxseq.verify._check import choose_quantities
from jaxseq.verify._copies import library_copy, replace_in_cpp, replace_in_function
from jaxseq.verify._mutants import MUTANTS, Mutant
from jaxseq.verify._oracle import Matrix
from jaxseq.verify._precision import wide
from jaxseq.verify._programs import matrix_of, stacked
from jaxseq.verify._quantities import Library, Quantity
from jaxseq.verify._report import Row, format_table
from jaxseq.verify._truth import Column, Truth

SHAPE = (4, 3)
EXAMINED = (0, 1, 3)
"""Which of a stack's cases a mutant is run on, in this order, until one of them gives it away."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: which.
        failed: the comparisons that the original passes and the mutant does not.
        error: the name of the exception that it raised, if any.
    """

    mutant: Mutant
    failed: tuple[Row, ...] = ()
    error: str = ""

    @property
    def caught(self) -> bool:
        """Whether anything noticed."""
        return bool(self.failed or self.error)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        mutant = self.mutant
        return {
            "module": mutant.module if mutant.is_in_cpp else f"jaxseq.{mutant.module}",
            "function": mutant.function,
            "before": mutant.before, "after": mutant.after, "kind": mutant.kind,
            "quantity": mutant.quantity, "caught": self.caught, "error": self.error,
            "failed": [row.to_dict() for row in self.failed],
        }  # fmt: skip


@dataclass(frozen=True)
class MutationReport:
    """Verdicts on all mutants, and how the unchanged library fares under the same checks."""

    verdicts: tuple[Verdict, ...]
    originals: tuple[Row, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def survivors(self) -> tuple[Verdict, ...]:
        """Mutants that no check noticed."""
        return tuple(verdict for verdict in self.verdicts if not verdict.caught)

    @property
    def passed(self) -> bool:
        """Whether every mutant is caught, and everything unchanged passes."""
        return bool(self.verdicts) and not self.survivors and all(r.passed for r in self.originals)

    def to_dict(self) -> dict[str, Any]:
        """The whole report in plain values, ready for `json.dumps`."""
        return {
            "passed": self.passed,
            "mutants": len(self.verdicts),
            "survivors": len(self.survivors),
            "originals_passed": all(row.passed for row in self.originals),
            "seconds": round(self.seconds, 2),
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "originals": [row.to_dict() for row in self.originals],
        }

    def __str__(self) -> str:
        lines = [_line(number, verdict) for number, verdict in enumerate(self.verdicts, 1)]
        header = ("", "kind", "mutant", "verdict", "by", "error", "in")
        failed = [row for row in self.originals if not row.passed]
        unchanged = f"{len(self.originals)} checks of the unchanged library, " + (
            f"{len(failed)} FAILED" if failed else "all passed"
        )
        for row in failed:
            unchanged += f"\n  FAIL {row.quantity}, {row.check}: {row.absolute:.1e}"
        return (
            f"{format_table(header, lines)}\n{unchanged}\n"
            f"{len(self.verdicts)} mutants, {len(self.verdicts) - len(self.survivors)} caught, "
            f"{len(self.survivors)} survived ({self.seconds:.1f} s)"
        )


def _line(number: int, verdict: Verdict) -> tuple[str, ...]:
    mutant, failed = verdict.mutant, list(verdict.failed)
    word = "caught" if verdict.caught else "SURVIVED"
    by = f"raised {verdict.error}" if verdict.error else ""
    error, place = "", mutant.quantity
    if failed:
        by = failed[0].check + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
        error, place = f"{failed[0].absolute:.1e}", f"{mutant.quantity} {failed[0].coordinate}"
    return (str(number), mutant.kind, str(mutant), word, by, error, place)


def mutate(mutants: Iterable[Mutant] = MUTANTS, *, seed: int = 0) -> MutationReport:
    """Run every mutant of the library against the checks.

    Each mutant is a copy of the library with one snippet of one hand-derived formula replaced:
    a sign, a dropped term, a position off by one, two axes swapped. It is caught when a check of
    `jaxseq.verify.check` that the original passes fails on it.

    Args:
        mutants: which; all of the table by default. Those in C++ are left out where there is no
            compiler.
        seed: of the random chains.

    Raises:
        ValueError: when the table does not fit the library's source any more.

    Example:
        >>> from jaxseq.verify import MUTANTS, mutate
        >>> mutate(MUTANTS[:1]).passed
        True
    """
    started = time.perf_counter()
    mutants = tuple(m for m in mutants if m.method != "native" or why_not("float64") is None)
    sources = [_mutated_source(mutant) for mutant in mutants]  # all, before anything slow
    court = _Court(mutants, seed)
    with library_copy() as library:
        originals = court.examine_originals(library)
    verdicts = []
    for mutant, source in zip(mutants, sources):
        name = mutant.module if mutant.is_in_cpp else f"jaxseq.{mutant.module}"
        with library_copy({name: source}) as library:
            verdicts.append(court.judge(mutant, library))
    return MutationReport(tuple(verdicts), tuple(originals), time.perf_counter() - started)


def _mutated_source(mutant: Mutant) -> str:
    where = (mutant.function, mutant.before, mutant.after)
    if mutant.is_in_cpp:
        return replace_in_cpp(mutant.module, *where)
    return replace_in_function(f"jaxseq.{mutant.module}", *where)


class _Court:
    """The truth about the chains that mutants are run on.

    Libraries are run operation by operation, not compiled: a mutant then costs milliseconds,
    since all mutants are made of the same few operations.
    """

    def __init__(self, mutants: Sequence[Mutant], seed: int):
        names = dict.fromkeys(mutant.quantity for mutant in mutants)
        self.quantities = {quantity.name: quantity for quantity in choose_quantities(names)}
        self.truths = {
            kind: Truth(
                [q for q in self.quantities.values() if q.edges[-1] == kind],
                *SHAPE, kind, seed, False,
            )
            for kind in EDGE_KINDS
        }  # fmt: skip
        self.trials = list(dict.fromkeys((m.quantity, m.by, m.method) for m in mutants))
        self.columns: dict[tuple[str, str], list[Column]] = {
            (name, method): self._truth(name).columns(self.quantities[name], jaxseq, method)
            for name, _, method in self.trials
        }

    def _truth(self, name: str) -> Truth:
        """Chains with edges by position tell more; a quantity that cannot take them has others."""
        return self.truths[self.quantities[name].edges[-1]]

    def examine_originals(self, library: Library) -> list[Row]:
        """The unchanged library on everything that mutants will be asked."""
        rows = []
        for name, by, method in self.trials:
            for case in EXAMINED:
                rows += self._rows(library, name, by, method, case)
        return rows

    def judge(self, mutant: Mutant, library: Library) -> Verdict:
        """Whether the checks tell this library from the original."""
        for case in EXAMINED:
            try:
                rows = self._rows(library, mutant.quantity, mutant.by, mutant.method, case)
            except Exception as error:  # a mutant may break in any way
                return Verdict(mutant, error=type(error).__name__)
            if failed := tuple(row for row in rows if not row.passed):
                return Verdict(mutant, failed)
        return Verdict(mutant)

    def _rows(self, library: Library, name: str, by: str, method: str, case: int) -> list[Row]:
        quantity = self.quantities[name]
        result = self._run(library, quantity, by, method, case)[None]
        return [
            self._truth(name).judge(quantity, result, column, "float64", method, (case,))
            for column in self.columns[name, method]
        ]

    def _run(
        self, library: Library, quantity: Quantity, by: str, method: str, index: int
    ) -> Matrix:
        with wide(True), jax.disable_jit():
            case = self._truth(quantity.name).cases.pick(index).cast("float64")
            hand, value = quantity.hand, quantity.value
            if value is None or (by == "hand" and hand is not None):
                result = hand and hand(library, case, method)
                return np.asarray(matrix_of(result, quantity, case.theta.size))
            function = lambda case: value(library, case, method)  # noqa: E731
            return np.asarray(jax.jacrev(stacked([function], case))(case.theta)[0])
