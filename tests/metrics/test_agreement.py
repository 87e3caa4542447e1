"""Accuracy, kappa and McNemar's test against values worked out by hand and other programs."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.metrics import cohen_kappa, mcnemar, token_accuracy


def test_token_accuracy():
    assert token_accuracy([["a", "b"], [], ["c"]], [["a", "x"], [], ["c"]]) == 2 / 3
    assert token_accuracy([[1, 2, 3, 4]], [[1, 2, 3, 5]]) == 0.75


def test_kappa_of_a_table():
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: p = 0.7, q = 0.5 · 0.6 + 0.5 · 0.4 = 0.5."""
    a = ["yes"] * 25 + ["no"] * 25
    b = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa([a], [b]) == pytest.approx(0.4, abs=1e-15)
    assert cohen_kappa([a[:7], a[7:]], [b[:7], b[7:]]) == cohen_kappa([a], [b])


def test_kappa_at_the_ends():
    assert cohen_kappa([["x", "x"]], [["x", "x"]]) == 1.0  # 0/0, by definition
    assert cohen_kappa([["x", "y"]], [["x", "y"]]) == 1.0
    assert cohen_kappa([["x", "y"]], [["y", "x"]]) == -1.0
    assert cohen_kappa([["x", "x"]], [["y", "y"]]) == 0.0  # nothing shared, nothing expected


LABELS = st.sampled_from("abc")


@given(pairs=st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30))
def test_kappa_by_fractions(pairs):
    n = len(pairs)
    p = Fraction(sum(x == y for x, y in pairs), n)
    q = sum(
        Fraction(sum(x == label for x, _ in pairs), n)
        * Fraction(sum(y == label for _, y in pairs), n)
        for label in "abc"
    )
    expected = 1.0 if q == 1 else float((p - q) / (1 - q))
    assert cohen_kappa([[x for x, _ in pairs]], [[y for _, y in pairs]]) == pytest.approx(expected)


def _result(n10: int, n01: int, both: int = 3):
    """A test with these counts."""
    n = n10 + n01 + both
    first = ["right"] * n10 + ["wrong"] * n01 + ["right"] * both
    second = ["wrong"] * n10 + ["right"] * n01 + ["right"] * both
    result = mcnemar([["right"] * n], [first], [second])
    assert (result.n10, result.n01) == (n10, n01)
    return result


@pytest.mark.parametrize(
    ("n10", "n01", "statistic", "exact"),
    [
        (0, 0, 0.0, 1.0),
        (1, 0, 0.0, 1.0),
        (4, 4, 0.0, 1.0),
        (9, 1, 4.9, 2 * 11 / 1024),  # (8 − 1)² / 10; two tails of 1 + 10 in 2¹⁰
        (1, 9, 4.9, 2 * 11 / 1024),
        (0, 5, 3.2, 1 / 16),
        (25, 15, 81 / 40, None),
    ],
)
def test_mcnemar_by_hand(n10, n01, statistic, exact):
    result = _result(n10, n01)
    assert result.statistic == pytest.approx(statistic, abs=1e-15)
    if exact is not None:
        assert result.exact_p_value == pytest.approx(exact, rel=1e-14)


def test_mcnemar_at_a_quantile():
    """χ² with one degree of freedom passes 3.8415 with chance 0.05, and 3 with chance 0.0833."""
    low, high = _result(57, 39), _result(58, 38)  # 17²/96 = 3.01, 19²/96 = 3.76: both above 0.05
    assert 0.08 < low.p_value < 0.083
    assert 0.052 < high.p_value < 0.053
    assert _result(59, 38).p_value < 0.05  # 20²/97 = 4.12


def test_mcnemar_tokens_that_both_get_wrong_do_not_count():
    result = mcnemar([["a", "a", "b"]], [["x", "a", "b"]], [["y", "b", "b"]])
    assert (result.n10, result.n01) == (1, 0)


@pytest.mark.parametrize(("n10", "n01"), [(520, 481), (700, 400), (1000, 1000), (1100, 900)])
def test_exact_p_value_of_many(n10, n01):
    n, fewer = n10 + n01, min(n10, n01)
    expected = min(1.0, float(Fraction(2 * sum(math.comb(n, k) for k in range(fewer + 1)), 2**n)))
    assert _result(n10, n01).exact_p_value == pytest.approx(expected, rel=1e-9)


def test_exact_p_value_of_very_many():
    """Near the normal approximation with continuity correction, which is good there."""
    result = _result(50_300, 49_700)
    assert result.exact_p_value == pytest.approx(result.p_value, rel=1e-3)


@pytest.mark.parametrize(("n10", "n01"), [(9, 1), (30, 12), (200, 260)])
def test_mcnemar_against_statsmodels(n10, n01):
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    table = [[3, n10], [n01, 0]]
    approximate = tables.mcnemar(table, exact=False, correction=True)
    result = _result(n10, n01)
    assert result.statistic == pytest.approx(approximate.statistic)
    assert result.p_value == pytest.approx(approximate.pvalue)
    assert result.exact_p_value == pytest.approx(tables.mcnemar(table, exact=True).pvalue)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_accuracy([], []), "gold, predicted: expected at least one token, got none"),
        (lambda: cohen_kappa([[]], [[]]), "a, b: expected at least one token, got none"),
        (
            lambda: token_accuracy([["x"], ["x"]], [["x"], ["x", "y"]]),
            "sentence 1: expected equal lengths, got gold 1, predicted 2",
        ),
        (
            lambda: mcnemar([["x"]], [["x"]], [["x", "x"]]),
            "sentence 0: expected equal lengths, got gold 1, predicted_a 1, predicted_b 2",
        ),
        (
            lambda: mcnemar([["x"]], [["x"]], []),
            "gold, predicted_a, predicted_b: expected equally many sentences, "
            "got gold 1, predicted_a 1, predicted_b 0",
        ),
        (
            lambda: cohen_kappa(["x"], [["x"]]),
            "a, sentence 0: expected a sequence of labels, got 'x'",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert str(caught.value) == message
