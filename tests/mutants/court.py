"""Whether the checks of `jaxseq.verify` tell a mutant from the original."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

import jaxseq
from jaxseq.verify import Row
from jaxseq.verify._cases import EDGE_KINDS, wide
from jaxseq.verify._check import Truth, choose_quantities, result_matrix, stacked
from tests.mutants.library_copy import (
    library_copy,
    recorded_kernels,
    replace_in_cpp,
    replace_in_function,
)
from tests.mutants.table import Mutant

SHAPE = (4, 3)
EXAMINED = (0, 1, 3)
"""Which of a stack's cases a mutant is run on, in this order, until one of them gives it away."""


class KernelNotRun(Exception):
    """A mutant in C++ was never put to the test: its kernel did not run."""


def mutated_source(mutant: Mutant) -> dict[str, str]:
    """What `library_copy` must change."""
    change = (mutant.function, mutant.before, mutant.after)
    if mutant.is_in_cpp:
        return {mutant.module: replace_in_cpp(mutant.module, *change)}
    module = f"jaxseq.{mutant.module}"
    return {module: replace_in_function(module, *change)}


class Court:
    """The truth about the chains that mutants are run on.

    Libraries are run operation by operation, not compiled: a mutant then costs milliseconds,
    since all mutants are made of the same few operations.
    """

    def __init__(self, mutants: Sequence[Mutant], seed: int = 0):
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
        self.columns = {
            (name, method): self._truth(name).columns(self.quantities[name], jaxseq, method)
            for name, _, method in self.trials
        }

    def _truth(self, name: str) -> Truth:
        # Edges by position tell more; a quantity that cannot take them has shared ones.
        return self.truths[self.quantities[name].edges[-1]]

    @cached_property
    def original(self) -> tuple[list[Row], set[str]]:
        """An unchanged copy on everything that mutants will be asked, and the kernels it runs."""
        with library_copy() as library, recorded_kernels() as targets:
            rows = [
                row
                for trial in self.trials
                for case in EXAMINED
                for row in self._rows(library, *trial, case)
            ]
        return rows, targets

    def judge(self, mutant: Mutant) -> list[Row]:
        """The comparisons that the original passes and the mutant does not; empty if it survives.

        Raises:
            KernelNotRun: when the mutant is in C++, and its own kernel was not what answered.
        """
        unchanged = self.original[1]  # now: there can be one copy at a time
        with library_copy(mutated_source(mutant)) as library, recorded_kernels() as targets:
            for case in EXAMINED:
                targets.clear()
                rows = self._rows(library, mutant.quantity, mutant.by, mutant.method, case)
                if mutant.is_in_cpp and not targets - unchanged:
                    raise KernelNotRun(f"{mutant}: ran {targets or 'no kernel at all'}")
                if failed := [row for row in rows if not row.passed]:
                    return failed
        return []

    def _rows(self, library: Any, name: str, by: str, method: str, case: int) -> list[Row]:
        quantity = self.quantities[name]
        result = self._run(library, name, by, method, case)[None]
        return [
            self._truth(name).judge(quantity, result, column, "float64", method, (case,))
            for column in self.columns[name, method]
        ]

    def _run(self, library: Any, name: str, by: str, method: str, index: int) -> np.ndarray:
        quantity = self.quantities[name]
        with wide(True), jax.disable_jit():
            case = self._truth(name).cases.pick(index).cast("float64")
            hand, value = quantity.hand, quantity.value
            if value is None or (by == "hand" and hand is not None):
                result = hand and hand(library, case, method)
                return np.asarray(result_matrix(result, quantity, case.theta.size))
            function = lambda case: value(library, case, method)  # noqa: E731
            return np.asarray(jax.jacrev(stacked([function], case))(case.theta)[0])
