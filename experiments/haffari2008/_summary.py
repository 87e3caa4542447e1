"""Results of many seeds brought together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]
NAMES = {
    "supervised": "supervised",
    "em": "EM, λ of maximum likelihood",
    "held-out": "held-out λ",
    "oracle": "oracle's λ",
    "monotone": "homotopy, monotone",
    "min_eigenvalue": "homotopy, minEig",
    "max_entropy": "homotopy, maxEnt",
}
"""Methods in the order of the tables, and what to call them."""
RULES = ("monotone", "min_eigenvalue", "max_entropy")


@dataclass(frozen=True)
class Scores:
    """One method's measurements, by seed (or repeat)."""

    by_seed: Mapping[int, Line]

    def balances(self) -> list[float]:
        """λ of each seed."""
        return [float(one["balance"]) for one in self.by_seed.values()]

    def values(self, decoding: str, measure: str) -> list[float]:
        """``accuracy`` (in percent), ``precision``, ``recall`` or ``f1`` of each seed."""
        factor = 100 if measure == "accuracy" else 1
        return [factor * float(one[decoding][measure]) for one in self.by_seed.values()]

    def mean(self, decoding: str, measure: str) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.values(decoding, measure))


def by_method(lines: Sequence[Line], seed: str = "seed") -> dict[str, Scores]:
    """Method → its scores, from lines with ``methods``."""
    found: dict[str, dict[int, Line]] = {}
    for line in lines:
        for name, one in line["result"]["methods"].items():
            found.setdefault(name, {})[line["cell"][seed]] = one
    return {name: Scores(found[name]) for name in NAMES if name in found}


def by_size(lines: Sequence[Line], seed: str = "seed") -> dict[int, dict[str, Scores]]:
    """Number of unlabelled citations → method → scores."""
    sizes = sorted({line["cell"]["unlabelled"] for line in lines})
    return {
        size: by_method([line for line in lines if line["cell"]["unlabelled"] == size], seed)
        for size in sizes
    }


def gains(ours: Scores, theirs: Scores, decoding: str) -> list[float]:
    """Points of accuracy that a method is above another, on the seeds that have both."""
    seeds = [seed for seed in ours.by_seed if seed in theirs.by_seed]
    pairs = [(ours.by_seed[seed], theirs.by_seed[seed]) for seed in seeds]
    return [100 * (a[decoding]["accuracy"] - b[decoding]["accuracy"]) for a, b in pairs]
