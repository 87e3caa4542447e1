"""Benchmarks: ratios measured within one run, each against its bar."""

from __future__ import annotations

import importlib
from pathlib import Path

BENCHES = (
    "lattice", "crf", "entropy", "expectations", "homotopy", "codl", "active", "scale", "defaults",
    "pays",
)  # fmt: skip
"""Names of the benchmarks; each is a module of this package with ``run(report, out)``."""


def run_benches(names: list[str], out: Path) -> int:
    """Run benchmarks by name, print their lines, and return the exit status."""
    from experiments.bench._report import Report

    held = True
    for name in names:
        report = Report(name)
        importlib.import_module(f"experiments.bench.{name}").run(report, out)
        held = held and report.held
    return 0 if held else 1
