"""What a quantity ought to be, in several independent ways, and the verdict on what it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxseq.verify._cases import EdgeKind, draw_cases
from jaxseq.verify._enumerated import Enumerated
from jaxseq.verify._errors import Error, worst_error
from jaxseq.verify._labels import entry_names
from jaxseq.verify._oracle import Matrix
from jaxseq.verify._programs import Derivatives, run_differences, run_reference, thetas
from jaxseq.verify._quantities import Library, Quantity, Scores
from jaxseq.verify._report import Row, make_row
from jaxseq.verify._table import MOST_PATHS

DIRECTIONS = 2
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
DIFFERENCE_TOLERANCES = {"float32": 1e-4, "float64": 1e-7}


class Column(NamedTuple):
    """One independent computation of a quantity.

    check: its name in the table.
    expected: ``[b, k]`` for a value, ``[b, k, d]`` for a derivative, ``[b, k, r]`` along
        directions.
    along: whether a derivative is to be multiplied by the directions before comparing.
    compare: ``[b, d]``, which scores count; None for all.
    """

    check: str
    expected: Matrix
    along: bool = False
    compare: Matrix | None = None


class Truth:
    """Reference, enumeration and differences for a stack of cases of one shape.

    Args:
        quantities: what will be asked about.
        n, s: the shape.
        edges: whether they are shared by all positions.
        seed: of the random cases.
        forward: whether to compute forward-mode derivatives as well as reverse-mode ones.
    """

    def __init__(
        self,
        quantities: Sequence[Quantity],
        n: int,
        s: int,
        edges: EdgeKind,
        seed: int,
        forward: bool = True,
    ):
        self.shape, self.edges, self.forward = (n, s), edges, forward
        self.quantities = {quantity.name: quantity for quantity in quantities}
        self.cases, self.kinds = draw_cases(n, s, edges, seed)
        self.theta = thetas(self.cases)
        batch, size = self.theta.shape
        self.directions = np.random.default_rng(seed).normal(size=(batch, DIRECTIONS, size))
        self._differences: dict[str, dict[str, Matrix]] = {}
        self._output_names: dict[str, list[str]] = {}

    @property
    def small(self) -> bool:
        """Whether all labellings can be listed."""
        n, s = self.shape
        return s**n <= MOST_PATHS

    @cached_property
    def reference(self) -> dict[str, Any]:
        chosen = [q for q in self.quantities.values() if self.small or not q.tabular]
        return run_reference(chosen, self.cases, self.directions, self.forward)

    @cached_property
    def tables(self) -> list[Enumerated]:
        return [Enumerated(self.cases.pick(b)) for b in range(len(self.kinds))]

    def differences(self, library: Library, method: str) -> dict[str, Matrix]:
        """Central differences of the library's values, by derivative."""
        if method not in self._differences:
            chosen = [q for q in self.quantities.values() if method in q.methods]
            self._differences[method] = run_differences(chosen, library, self.cases, method)
        return self._differences[method]

    def enumerated(self, quantity: Quantity) -> Matrix:
        """The quantity by enumeration, stacked over the cases."""
        rows = []
        for table in self.tables:
            leaves = jax.tree.leaves(quantity.enumerated(table))
            flat = np.concatenate([np.ravel(leaf) for leaf in leaves])
            rows.append(flat if quantity.value is None else flat.reshape(-1, self.theta.shape[1]))
        return np.stack(rows)

    def columns(self, quantity: Quantity, library: Library, method: str) -> list[Column]:
        """Every independent computation that applies, the library's own autodiff excepted."""
        columns = []
        if self.small or not quantity.tabular:
            columns += reference_columns(self.reference[quantity.name], "reference")
        if quantity.value is not None:
            slopes = self.differences(library, method)[quantity.name]
            columns.append(Column("central differences", slopes, compare=np.isfinite(self.theta)))
        if self.small:
            columns.append(Column("enumeration", self.enumerated(quantity)))
        return columns

    def judge(
        self,
        quantity: Quantity,
        hand: Matrix,
        column: Column,
        dtype: str,
        method: str,
        only: Sequence[int] | None = None,
    ) -> Row:
        """Hold what the library computed, ``[b, k]`` or ``[b, k, d]``, against one column.

        `only` says which cases of the stack were computed, when not all.
        """
        errors: dict[int, Error] = {}
        for case, result in zip(range(len(self.kinds)) if only is None else only, hand):
            if column.along:
                result = np.asarray(result, np.float64) @ self.directions[case].T
            mask = None if column.compare is None else column.compare[case]
            errors[case] = worst_error(result, column.expected[case], mask)
        worst = max(errors, key=lambda case: errors[case].severity)
        by_differences = column.check == "central differences"
        tolerance = (DIFFERENCE_TOLERANCES if by_differences else TOLERANCES)[dtype]
        n, s = self.shape
        setting = {"dtype": dtype, "method": method, "shape": f"{n}x{s}", "edges": self.edges}
        place = f"{self.kinds[worst]}: {self._name(quantity, column, errors[worst])}"
        return make_row(quantity.name, column.check, setting, errors[worst], place, tolerance)

    def _name(self, quantity: Quantity, column: Column, error: Error) -> str:
        if error.index is None:
            return "nothing to compare"
        output = self._output_name(quantity, error.index[0])
        if quantity.value is None:
            return output or "value"
        where = error.index[1]
        score = f"direction {where}" if column.along else self._score_names[where]
        return f"{output} × {score}" if output else score

    @cached_property
    def _score_names(self) -> list[str]:
        case = self.cases.pick(0)
        return entry_names(Scores(case.nodes, case.edges))

    def _output_name(self, quantity: Quantity, index: int) -> str:
        """The name of one of the numbers that a quantity (or what it is derived from) returns."""
        if quantity.tabular and not self.small:
            return f"entry {index}"
        if quantity.name not in self._output_names:
            case = self.cases.pick(0).cast("float32")
            self._output_names[quantity.name] = entry_names(
                jax.eval_shape(quantity.reference, case)
            )
        return self._output_names[quantity.name][index]


def reference_columns(result: Any, source: str) -> list[Column]:
    """Columns of a value, or of the derivatives that autodiff made of it."""
    if not isinstance(result, Derivatives):
        return [Column(f"plain value ({source})", result)]
    columns = [Column(f"jax.grad ({source})", np.asarray(result.grad))]
    if result.jacfwd is not None:
        columns.append(Column(f"jax.jacfwd ({source})", np.asarray(result.jacfwd)))
    if result.jvp is not None:
        columns.append(Column(f"jax.jvp ({source})", np.asarray(result.jvp), along=True))
    return columns
