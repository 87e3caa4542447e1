"""Rows brought together: learning curves, the round at a share of labels, and comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Line = Mapping[str, Any]
Result = Mapping[str, Any]
SIGNIFICANT = 0.05


def by_row(results: Sequence[Line], task: str) -> dict[str, list[Result]]:
    """Row → its results, one for every seed, in the order of the lines."""
    rows: dict[str, list[Result]] = {}
    for line in results:
        if line["cell"]["task"] == task:
            rows.setdefault(line["cell"]["row"], []).append(line["result"])
    return rows


def task_names(results: Sequence[Line]) -> list[str]:
    """Tasks in the order of the lines, each once."""
    return list(dict.fromkeys(line["cell"]["task"] for line in results))


def mean_result(results: Sequence[Result], name: str) -> float:
    """Over seeds."""
    return statistics.fmean(float(result[name]) for result in results)


def share(result: Result, of: str = "tokens", what: str = "labelled") -> float:
    """Labelled tokens, or sentences that are labelled or sampled, in percent of the pool.

    Example:
        >>> share({"labelled_tokens": 5, "tokens": 200})
        2.5
    """
    return 100 * result[f"{what}_{of}"] / result[of]


def is_worse(scores: Mapping[str, Any]) -> bool:
    """Whether it labels significantly fewer test tokens right than Sup (McNemar, p < .05).

    Example:
        >>> is_worse({"p_value": 0.01, "only_sup": 9, "only_ours": 30})
        False
    """
    return scores["p_value"] < SIGNIFICANT and scores["only_sup"] > scores["only_ours"]


# --------------------------------------------------------------------------------------- rounds


def at_share(result: Result, percent: float) -> Mapping[str, Any] | None:
    """The last round with at most so many percent of the tokens labelled; None without any.

    Example:
        >>> rounds = [{"labelled_tokens": n} for n in (1, 4, 6)]
        >>> at_share({"tokens": 100, "rounds": rounds}, 5.0)
        {'labelled_tokens': 4}
    """
    most = percent / 100 * result["tokens"]
    within = [one for one in result.get("rounds", ()) if one["labelled_tokens"] <= most]
    return within[-1] if within else None


def first_not_worse(result: Result) -> Mapping[str, Any] | None:
    """The round from which on no round is significantly worse than Sup; None without any.

    One good round between bad ones is luck: there are many rounds to have it in.
    """
    first = None
    for one in reversed(result.get("rounds", ())):
        if is_worse(one):
            break
        first = one
    return first


# --------------------------------------------------------------------------------------- curves


@dataclass(frozen=True, eq=False)
class Curve:
    """A row's rounds: labelled tokens, F1 in percent of the tagger that asks, and seconds since the
    beginning."""

    tokens: np.ndarray
    f1: np.ndarray
    seconds: np.ndarray

    @classmethod
    def of(cls, result: Result) -> Curve:
        """Of a row that has rounds."""
        rounds = result["rounds"]
        columns = (
            [one["labelled_tokens"] for one in rounds],
            [one.get("asking", one)["f1"] for one in rounds],
            np.cumsum([one["seconds"]["all"] for one in rounds]),
        )
        return cls(*(np.asarray(column, float) for column in columns))


class Gap(NamedTuple):
    """How two curves differ at equal numbers of labelled tokens.

    Args:
        mean: of F1, first less second, over the tokens that both have. lowest, highest: of it.
        above: share of these tokens where the first is above. begin, end: of these tokens.
    """

    mean: float
    lowest: float
    highest: float
    above: float
    begin: int
    end: int


def mean_gap(pairs: Sequence[tuple[Result, Result]]) -> Gap | None:
    """The gap between two rows: means over seeds, extremes of all; None without any stretch.

    Args:
        pairs: the results of the first and of the second row, by seed.
    """
    gaps = [gap(Curve.of(first), Curve.of(second)) for first, second in pairs]
    there = [one for one in gaps if one is not None]
    if not there:
        return None
    means = (statistics.fmean(getattr(one, name) for one in there) for name in ("mean", "above"))
    mean, above = means
    return Gap(
        mean,
        min(one.lowest for one in there),
        max(one.highest for one in there),
        above,
        min(one.begin for one in there),
        max(one.end for one in there),
    )


def gap(first: Curve, second: Curve, points: int = 200) -> Gap | None:
    """The gap between two learning curves, straight between rounds.

    The initial set is left out where both begin with as many tokens: nothing was asked yet.

    Returns:
        None where the curves have no stretch in common.

    Example:
        >>> a = Curve(np.array([10.0, 20.0]), np.array([80.0, 90.0]), np.zeros(2))
        >>> b = Curve(np.array([10.0, 30.0]), np.array([80.0, 88.0]), np.zeros(2))
        >>> round(gap(a, b).highest, 6), gap(a, b).end
        (6.0, 20)
    """
    begin = max(first.tokens[0], second.tokens[0])
    end = min(first.tokens[-1], second.tokens[-1])
    if end <= begin:
        return None
    at = np.linspace(begin, end, points + 1)[1:]
    gaps = np.interp(at, first.tokens, first.f1) - np.interp(at, second.tokens, second.f1)
    return Gap(
        float(gaps.mean()),
        float(gaps.min()),
        float(gaps.max()),
        float((gaps > 0).mean()),
        int(begin),
        int(end),
    )
