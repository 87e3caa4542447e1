"""How far two arrays are apart, derivatives by differences, and rows that pass or fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxseq.verify._oracle import Matrix


class Error(NamedTuple):
    """The worst disagreement between two arrays."""

    absolute: float  # infinite when a NaN is involved
    relative: float  # that, over the largest magnitude of what was expected (over 1 when that is 0)
    allowance: float  # what the tolerance is multiplied by, the larger of 1 and that magnitude
    index: tuple[int, ...] | None  # where; None when nothing was compared

    def within(self, tolerance: float) -> bool:
        """Whether the error is at most `tolerance`, absolutely or relatively."""
        return self.absolute <= tolerance * self.allowance

    @property
    def severity(self) -> float:
        """To choose the worst of several."""
        return self.absolute / self.allowance


def worst_error(actual: Matrix, expected: Matrix, compare: Matrix | None = None) -> Error:
    """The worst entry of `actual` against `expected`, where `compare` is True.

    Equal infinities agree; a NaN agrees with nothing.
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"expected shape {list(expected.shape)}, got {list(actual.shape)}")
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is answered by the comparison before it
        difference = np.where(actual == expected, 0, np.abs(actual - expected))
    difference = np.where(np.isnan(difference), np.inf, difference)  # worse than any number
    if compare is not None:
        difference = np.where(compare, difference, -1)  # never the largest
    if difference.size == 0 or difference.max() < 0:
        return Error(0.0, 0.0, 1.0, None)
    magnitudes = np.abs(expected[np.isfinite(expected)])
    # Relative to the largest entry: the small ones of a gradient are differences of large numbers.
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    index = np.unravel_index(int(difference.argmax()), difference.shape)
    absolute = float(difference[index])
    return Error(absolute, absolute / (scale or 1.0), max(scale, 1.0), tuple(int(i) for i in index))


# Central differences, extrapolated: derivatives from values alone. With
#
#     D(h) = (f(x + h) − f(x − h)) / 2h = f'(x) + a₂h² + a₄h⁴ + …,
#
# Neville's tableau removes one power after the other from D(h), D(h/2), D(h/4), …, and the entry
# that changed least against its neighbours is the answer (Ridders 1982; Press et al., Numerical
# Recipes, `dfridr`). Large steps may then be used, which is what keeps rounding small: about 1e-11
# in float64 and 1e-4 in float32 for functions of size 1.

LEVELS = 7  # of step sizes; the smallest is a 64th of the largest


def steps(x: Matrix, first: float | None = None) -> Matrix:
    """Step sizes ``[LEVELS, *x.shape]``, halved each time from `first`, or max(1, |x|) / 10."""
    x = np.where(np.isfinite(x), x, 0)
    largest = 0.1 * np.maximum(1, np.abs(x)) if first is None else np.full(x.shape, first)
    return largest * 0.5 ** np.arange(LEVELS).reshape(-1, *[1] * x.ndim)


def extrapolate(above: Matrix, below: Matrix, step: Matrix) -> Matrix:
    """The derivative from f(x + step) and f(x − step), ``[LEVELS, ...]`` each."""
    # A value that is −inf throughout moves nowhere.
    with np.errstate(invalid="ignore"):
        change = np.where(above == below, 0, above - below)
    column = list(change / (2 * step))
    best, least = column[0], np.full(column[0].shape, np.inf)
    power = 1.0  # of the ratio of two steps, 2, that is removed next: h², h⁴, …
    while len(column) > 1:
        power *= 4.0
        refined = [(power * fine - coarse) / (power - 1) for coarse, fine in pairwise(column)]
        for new, (coarse, fine) in zip(refined, pairwise(column)):
            error = np.maximum(np.abs(new - coarse), np.abs(new - fine))
            better = error < least
            best, least = np.where(better, new, best), np.where(better, error, least)
        column = refined
    return best


# Names for the entries of a pytree: ``nodes[2, 1]``, ``args[0]['w'][3]``.


def leaf_names(tree: Any, prefix: str = "") -> list[str]:
    """A readable name for each leaf, in flattening order."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    names = [prefix + jax.tree_util.keystr(path) for path in paths]
    return [name.removeprefix(".") for name in names]


def entry_names(tree: Any, prefix: str = "") -> list[str]:
    """A name for every entry of every leaf, in flattening order."""
    return [
        entry_name(name, index)
        for name, leaf in zip(leaf_names(tree, prefix), jax.tree.leaves(tree))
        for index in np.ndindex(*np.shape(leaf))
    ]


def entry_name(leaf: str, index: tuple[int, ...]) -> str:
    """One entry of a leaf, such as ``nodes[2, 1]``."""
    return f"{leaf}[{', '.join(map(str, index))}]" if index else leaf


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        quantity: what was checked.
        check: what it was compared with.
        setting: under which circumstances (dtype, method, shape, …), names to values.
        error: the worst error.
        coordinate: where the worst error is.
        tolerance: the error allowed, absolute or relative.
    """

    quantity: str
    check: str
    setting: dict[str, str]
    error: Error
    coordinate: str
    tolerance: float

    @property
    def absolute(self) -> float:
        """The worst absolute error; infinite where a NaN was involved."""
        return self.error.absolute

    @property
    def relative(self) -> float:
        """That, over the largest entry of what was expected."""
        return self.error.relative

    @property
    def passed(self) -> bool:
        """Whether the tolerance was met."""
        return self.error.within(self.tolerance)

    def gravity(self) -> tuple[bool, float]:
        """By which to choose the worst of several rows: failures first."""
        return not self.passed, self.error.severity

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an error that is not finite becomes None, for JSON has no infinity."""
        absolute, relative = (
            value if math.isfinite(value) else None for value in (self.absolute, self.relative)
        )
        return {
            "quantity": self.quantity, "check": self.check, **self.setting, "absolute": absolute,
            "relative": relative, "coordinate": self.coordinate, "tolerance": self.tolerance,
            "passed": self.passed,
        }  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        """The row in the table of a report, after what it is of."""
        setting = " ".join(value for name, value in self.setting.items() if name != "dtype")
        return (
            f"{self.absolute:.1e}", f"{self.relative:.1e}", f"{self.tolerance:.0e}",
            "pass" if self.passed else "FAIL",
            ", ".join(part for part in (setting, self.coordinate) if part),
        )  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Rows of a verification.

    ``str(report)`` is a table with one line for each quantity, check and dtype, which shows the
    worst of the rows it stands for; `rows` has them all, `to_dict` too.
    """

    rows: tuple[Row, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def passed(self) -> bool:
        """Whether there are rows and all of them pass."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that do not pass."""
        return tuple(row for row in self.rows if not row.passed)

    @property
    def worst(self) -> Row | None:
        """The row of the greatest error, failures first."""
        return max(self.rows, key=Row.gravity, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The whole report in plain values, ready for `json.dumps`."""
        return {
            "passed": self.passed,
            "checks": len(self.rows),
            "failures": len(self.failures),
            "seconds": round(self.seconds, 2),
            "rows": [row.to_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            key = (row.quantity, row.check, row.setting.get("dtype", ""))
            groups.setdefault(key, []).append(row)
        # Shapes, methods and kinds of edges share a line, that of the worst among them.
        header = ("quantity", "check", "dtype", "absolute", "relative", "allowed", "", "worst at")
        lines = [(*key, *max(rows, key=Row.gravity).cells()) for key, rows in groups.items()]
        verdict = f"{len(self.failures)} failed" if self.failures else "all passed"
        if not self.rows:  # which is no success either: see `passed`
            verdict = "none applies here"
        summary = f"{len(self.rows)} checks, {verdict} ({self.seconds:.1f} s)"
        return f"{format_table(header, lines)}\n{summary}"


def format_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns aligned on the left, two spaces apart, a rule under the header."""
    widths = [max(map(len, column)) for column in zip(header, *lines)]
    rule = ["─" * width for width in widths]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
        for line in (header, rule, *lines)
    )
