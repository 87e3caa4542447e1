"""McNemar's test: does one labeller make fewer errors than another?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxseq.metrics._aligned import Labellings, aligned_labels

_EXACT_IN_INTEGERS = 1000  # up to here 2^n is a float


@dataclass(frozen=True)
class McNemar:
    """The result of `mcnemar`.

    Args:
        n10: tokens that only the first labeller gets right.
        n01: tokens that only the second gets right.
        statistic: (|n10 − n01| − 1)² / (n10 + n01), with Edwards' correction for continuity; 0
            when the two counts are equal.
        p_value: of the statistic, χ² with one degree of freedom.
        exact_p_value: two-sided, of the binomial distribution with n10 + n01 draws of 1/2; to be
            preferred when those are few (below 25).

    Example:
        >>> McNemar(n10=9, n01=1, statistic=4.9, p_value=0.0269, exact_p_value=0.0215).n10
        9
    """

    n10: int
    n01: int
    statistic: float
    p_value: float
    exact_p_value: float


def mcnemar(gold: Labellings, predicted_a: Labellings, predicted_b: Labellings) -> McNemar:
    """McNemar's test on tokens: are two labellers equally often right?

    Only tokens that one of them gets right and the other wrong count. The test takes tokens for
    independent, which those of a sentence are not: small p-values come out too small.

    Args:
        gold: the right labels, a sequence a sentence.
        predicted_a: as many labels, from the first labeller.
        predicted_b: as many labels, from the second.

    Returns:
        Counts, statistic and p-values.

    Raises:
        ValueError: for labellings that differ in length.

    Example:
        >>> gold = [["x"] * 12]
        >>> result = mcnemar(gold, [["x"] * 11 + ["y"]], [["y"] * 9 + ["x"] * 3])
        >>> result.n10, result.n01, result.statistic, round(result.exact_p_value, 4)
        (9, 1, 4.9, 0.0215)

    Reference:
        McNemar (1947), "Note on the sampling error of the difference between correlated
        proportions or percentages"; Edwards (1948), "Note on the 'correction for continuity'".
    """
    n10 = n01 = 0
    triples = aligned_labels(gold=gold, predicted_a=predicted_a, predicted_b=predicted_b)
    for right, first, second in triples:
        n10 += first == right and second != right
        n01 += first != right and second == right
    gap = max(abs(n10 - n01) - 1, 0)
    statistic = gap**2 / (n10 + n01) if gap else 0.0
    p_value = math.erfc(math.sqrt(statistic / 2))
    return McNemar(n10, n01, statistic, p_value, _exact_p_value(n10, n01))


def _exact_p_value(n10: int, n01: int) -> float:
    """Twice the chance of at most min(n10, n01) heads in n10 + n01 tosses, at most 1."""
    fewer, n = min(n10, n01), n10 + n01
    if n <= _EXACT_IN_INTEGERS:
        return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)
    # The largest term by logarithms, and the others, going down, by their ratios to it.
    terms, ratio, k = 0.0, 1.0, fewer
    while k >= 0 and ratio > terms * 1e-17:
        terms += ratio
        ratio *= k / (n - k + 1)
        k -= 1
    largest = math.lgamma(n + 1) - math.lgamma(fewer + 1) - math.lgamma(n - fewer + 1)
    return min(1.0, math.exp(largest + math.log(2 * terms) - n * math.log(2)))
