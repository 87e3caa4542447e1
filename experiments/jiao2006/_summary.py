"""Results of many seeds brought together: scores by set and γ, and tests between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxseq.metrics import SpanCounts

Where = Literal["transductive", "held_out"]
Key = tuple[str, int, str]
"""Corpus, words of A, and unlabelled set."""

SIGNIFICANT = 0.05  # of two-sided tests, not corrected for how many there are


@dataclass(frozen=True)
class Scores:
    """How a tagger does, seed by seed: seed → what a cell says of it."""

    by_seed: Mapping[int, Mapping[str, Any]]

    def counts(self, where: Where, found: str = "exact") -> dict[int, SpanCounts]:
        """Seed → mentions found, predicted and gold; `found` may be ``with_alternatives``."""
        return {
            seed: SpanCounts(one[where][found], one[where]["predicted"], one[where]["gold"])
            for seed, one in self.by_seed.items()
        }

    def values(self, where: Where, ratio: str, found: str = "exact") -> list[float]:
        """``precision``, ``recall``, ``f1``, ``tp`` or ``predicted`` of each seed."""
        return [float(getattr(one, ratio)) for one in self.counts(where, found).values()]

    def mean(self, where: Where, ratio: str, found: str = "exact") -> float:
        """Mean over seeds."""
        return statistics.fmean(self.values(where, ratio, found))

    def mcnemar(self) -> tuple[int, int, int]:
        """Seeds in which the tagger gets significantly more sentences of E right than the
        supervised one, significantly fewer, and all that were tested."""
        tests = [one["mcnemar"] for one in self.by_seed.values() if "mcnemar" in one]
        clear = [test for test in tests if test["p_value"] < SIGNIFICANT]
        more = sum(test["only_ours"] > test["only_theirs"] for test in clear)
        return more, len(clear) - more, len(tests)


def by_weight(results: Sequence[Mapping[str, Any]]) -> dict[Key, dict[float, Scores]]:
    """Scores of the cells ``entropy``: by corpus, size and set, then by γ."""
    runs_by_key: dict[Key, dict[float, dict[int, Any]]] = {}
    for line in results:
        cell = line["cell"]
        if cell["part"] == "entropy":
            runs = runs_by_key.setdefault((cell["corpus"], cell["words"], cell["unlabelled"]), {})
            for run in line["result"]["runs"]:
                runs.setdefault(run["entropy_weight"], {})[cell["seed"]] = run
    return {
        key: {weight: Scores(by_seed) for weight, by_seed in sorted(runs.items())}
        for key, runs in runs_by_key.items()
    }


def self_trained(results: Sequence[Mapping[str, Any]]) -> dict[str, Scores]:
    """Scores of the cells ``self-training``, by set."""
    by_set: dict[str, dict[int, Any]] = {}
    for line in results:
        if line["cell"]["part"] == "self-training":
            cell, result = line["cell"], line["result"]
            by_set.setdefault(cell["unlabelled"], {})[cell["seed"]] = result["self_trained"]
    return {name: Scores(by_seed) for name, by_seed in by_set.items()}


def settings(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[float, Scores]]:
    """Scores of the cells ``settings``, by setting and γ."""
    by_setting: dict[str, dict[float, dict[int, Any]]] = {}
    for line in results:
        if line["cell"]["part"] == "settings":
            runs = by_setting.setdefault(line["cell"]["setting"], {})
            for run in line["result"]["runs"]:
                runs.setdefault(run["entropy_weight"], {})[line["cell"]["seed"]] = run
    return {
        name: {weight: Scores(by_seed) for weight, by_seed in sorted(runs.items())}
        for name, runs in by_setting.items()
    }


def best_weight(runs: Mapping[float, Scores], where: Where = "held_out") -> float | None:
    """γ > 0 with the best mean F, if there is any."""
    weights = [weight for weight in runs if weight > 0]
    return max(weights, key=lambda weight: runs[weight].mean(where, "f1"), default=None)


@dataclass(frozen=True)
class Paired:
    """A difference over seeds: mean, standard deviation, and two-sided p-values of the paired
    t-test (None for one seed, and where all differences are equal) and of the sign test."""

    mean: float
    spread: float
    t_test: float | None
    sign_test: float


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Paired:
    """The differences of paired values, and whether they could be chance.

    Example:
        >>> found = paired([3.0, 5.0, 4.0, 6.0], [1.0, 2.0, 3.0, 4.0])
        >>> found.mean, round(found.spread, 3), round(found.t_test, 4), found.sign_test
        (2.0, 0.816, 0.0163, 0.125)
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"ours, theirs: expected pairs, got {len(ours)} and {len(theirs)} values")
    gaps = [a - b for a, b in zip(ours, theirs)]
    spread = statistics.stdev(gaps) if len(gaps) > 1 else 0.0
    t_test = None
    if spread > 0:
        from scipy.stats import ttest_rel

        t_test = float(ttest_rel(ours, theirs).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    # The sign test: ties say nothing, and the others fall either way with probability 1/2.
    up, down = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    tail = sum(math.comb(up + down, k) for k in range(min(up, down) + 1)) / 2 ** (up + down)
    return Paired(statistics.fmean(gaps), spread, t_test, min(1.0, 2 * tail))


def against_supervised(runs: Mapping[float, Scores], weight: float) -> Paired:
    """The gain of γ in F on E over γ = 0, on the seeds that have both."""
    ours, theirs = (runs[one].counts("held_out") for one in (weight, 0.0))
    # Results may be incomplete: only what both have can be compared.
    seeds = [seed for seed in ours if seed in theirs]
    return paired([ours[seed].f1 for seed in seeds], [theirs[seed].f1 for seed in seeds])
