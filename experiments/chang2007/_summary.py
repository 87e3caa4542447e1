"""Results of many draws brought together, and tests between methods."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]
SIGNIFICANT = 0.05  # of two-sided tests, not corrected for how many there are


@dataclass(frozen=True)
class Scores:
    """One method's accuracies: seed → decoding → share of tokens."""

    by_seed: Mapping[int, Mapping[str, float]]

    def values(self, how: str) -> list[float]:
        """Accuracy of each draw in percent."""
        return [100 * float(one[how]) for one in self.by_seed.values()]

    def mean(self, how: str) -> float:
        """Mean over draws in percent."""
        return statistics.fmean(self.values(how))


Methods = Mapping[str, Scores]


def list_domains(lines: Sequence[Line]) -> list[str]:
    """Domains in the order of the lines, each once."""
    return list(dict.fromkeys(line["cell"]["domain"] for line in lines))


def by_method(lines: Sequence[Line]) -> dict[str, Scores]:
    """Method → its scores."""
    by_name: dict[str, dict[int, Any]] = {}
    for line in lines:
        for name, one in line["result"]["methods"].items():
            by_name.setdefault(name, {})[line["cell"]["seed"]] = one
    return {name: Scores(by_seed) for name, by_seed in by_name.items()}


def by_size(lines: Sequence[Line]) -> dict[int, dict[str, Scores]]:
    """Number of labelled sentences → method → scores."""
    sizes = sorted({line["cell"]["labelled"] for line in lines})
    return {
        size: by_method([line for line in lines if line["cell"]["labelled"] == size])
        for size in sizes
    }


@dataclass(frozen=True)
class Gain:
    """A difference over draws in points: mean, and two-sided p of the paired t-test.

    p is None for one draw, and where all differences are equal.
    """

    mean: float
    p_value: float | None
    draws: int

    @property
    def is_clear(self) -> bool:
        """Whether chance is an unlikely explanation."""
        return self.p_value is not None and self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        p = "" if self.p_value is None else f" (p = {self.p_value:.2g})"
        return f"{self.mean:+.1f}{p}"


def gain(ours: Scores, how: str, theirs: Scores, their_how: str) -> Gain | None:
    """The gain of one method over another on the draws that have both; None without any.

    Example:
        >>> a = Scores({0: {"I": 0.8}, 1: {"I": 0.9}, 2: {"I": 0.9}})
        >>> b = Scores({0: {"I": 0.7}, 1: {"I": 0.7}, 2: {"I": 0.6}})
        >>> str(gain(a, "I", b, "I"))
        '+20.0 (p = 0.074)'
    """
    seeds = [seed for seed in ours.by_seed if seed in theirs.by_seed]
    if not seeds:
        return None
    left = [100 * ours.by_seed[seed][how] for seed in seeds]
    right = [100 * theirs.by_seed[seed][their_how] for seed in seeds]
    gaps = [a - b for a, b in zip(left, right)]
    p_value = None
    if len(gaps) > 1 and statistics.stdev(gaps) > 0:
        from scipy.stats import ttest_rel

        p_value = float(ttest_rel(left, right).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    return Gain(statistics.fmean(gaps), p_value, len(gaps))


def mcnemar_counts(lines: Sequence[Line], comparison: str) -> tuple[int, int, int]:
    """Draws in which the first is significantly better on the test tokens, worse, and all."""
    tests = [line["result"]["mcnemar"][comparison] for line in lines]
    clear = [test for test in tests if test["p_value"] < SIGNIFICANT]
    better = sum(test["only_ours"] > test["only_theirs"] for test in clear)
    return better, len(clear) - better, len(tests)
