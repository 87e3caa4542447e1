"""The result of a verification: rows that pass or fail, as a table or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxseq.verify._errors import Error


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        quantity: what was checked.
        check: what it was compared with.
        setting: under which circumstances (dtype, method, shape, …), names to values.
        absolute, relative: the worst error, as defined in `jaxseq.verify._errors.Error`.
        coordinate: where the worst error is.
        tolerance: the error allowed, absolute or relative.
        passed: whether it was met.
        severity: by which to choose the worst of several rows.
    """

    quantity: str
    check: str
    setting: dict[str, str]
    absolute: float
    relative: float
    coordinate: str
    tolerance: float
    passed: bool
    severity: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an error that is not finite becomes None, for JSON has no infinity."""
        return {
            "quantity": self.quantity, "check": self.check, **self.setting,
            "absolute": _finite(self.absolute), "relative": _finite(self.relative),
            "coordinate": self.coordinate, "tolerance": self.tolerance, "passed": self.passed,
        }  # fmt: skip


def make_row(
    quantity: str,
    check: str,
    setting: dict[str, str],
    error: Error,
    coordinate: str,
    tolerance: float,
) -> Row:
    """A row from an error and the tolerance it is held to."""
    return Row(
        quantity, check, setting, error.absolute, error.relative, coordinate, tolerance,
        error.within(tolerance), error.severity,
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
        return max(self.rows, key=_gravity, default=None)

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
        header = ("quantity", "check", "dtype", "absolute", "relative", "allowed", "", "worst at")
        lines = [(*key, *_cells(max(rows, key=_gravity))) for key, rows in groups.items()]
        verdict = f"{len(self.failures)} failed" if self.failures else "all passed"
        if not self.rows:
            verdict = "none applies here"
        summary = f"{len(self.rows)} checks, {verdict} ({self.seconds:.1f} s)"
        return f"{format_table(header, lines)}\n{summary}"


def _cells(row: Row) -> tuple[str, ...]:
    setting = " ".join(value for name, value in row.setting.items() if name != "dtype")
    place = ", ".join(part for part in (setting, row.coordinate) if part)
    return (
        f"{row.absolute:.1e}", f"{row.relative:.1e}", f"{row.tolerance:.0e}",
        "pass" if row.passed else "FAIL", place,
    )  # fmt: skip


def _gravity(row: Row) -> tuple[bool, float]:
    return not row.passed, row.severity


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def format_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns aligned on the left, two spaces apart, a rule under the header."""
    widths = [max(map(len, column)) for column in zip(header, *lines)]
    rule = ["─" * width for width in widths]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
        for line in (header, rule, *lines)
    )
