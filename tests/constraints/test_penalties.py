"""Violations in a corpus against plain Python, and penalties by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.constraints import (
    AtMostOnce,
    Constraint,
    Count,
    EndsWith,
    MustAppear,
    Penalised,
    StartsWith,
    Words,
    WordsImply,
    bind_constraints,
    corpus_violations,
    estimate_penalties,
)

LABELS = ["A", "B"]
RULES = [
    AtMostOnce(),
    StartsWith(["A"]),
    MustAppear(["B"]),
    WordsImply(Words(["u"]), ["A"]),
    EndsWith(["B"]),
]


def plain_violations(words: str, labels: str) -> list[int]:
    """Of `RULES`, one after another."""
    fields = [label for i, label in enumerate(labels) if not i or labels[i - 1] != label]
    return [
        len(fields) - len(set(fields)),
        int(labels[:1] == "B"),
        int("B" not in labels),
        sum(word == "u" and label == "B" for word, label in zip(words, labels)),
        int(labels[-1:] == "A"),
    ]


CORPUS = st.lists(
    st.integers(0, 8).flatmap(
        lambda n: st.tuples(
            st.text("uv", min_size=n, max_size=n), st.text("AB", min_size=n, max_size=n)
        )
    ),
    max_size=5,
)


@given(corpus=CORPUS)
def test_violations_are_those_of_plain_python(corpus):
    bound = bind_constraints(RULES, LABELS, penalty=1.0)
    x = bound.observe_all([list(words) for words, _ in corpus])
    labels = np.array([LABELS.index(label) for _, path in corpus for label in path], int)
    lengths = np.array([len(words) for words, _ in corpus], int)
    found = corpus_violations(bound, x, labels, lengths)
    wanted = [plain_violations(*pair) if pair[0] else [0] * len(RULES) for pair in corpus]
    assert found.tolist() == wanted


@given(corpus=CORPUS, smoothing=st.sampled_from([0.5, 1.0, 3.0]))
def test_penalties_are_log_odds(corpus, smoothing):
    X, y = [list(words) for words, _ in corpus], [list(path) for _, path in corpus]
    found = estimate_penalties(RULES, X, y, smoothing, labels=LABELS)
    real = [pair for pair in corpus if pair[0]]
    again = sum(len(set(path[:t])) == 2 for _, path in real for t in range(len(path)))
    marked = sum(words.count("u") for words, _ in real)
    at = [again, len(real), len(real), marked, len(real)]
    for number, opportunities in enumerate(at):
        broken = sum(plain_violations(*pair)[number] for pair in real)
        odds = (max(opportunities - broken, 0) + smoothing) / (broken + smoothing)
        assert found[number] == pytest.approx(max(0.0, math.log(odds)))
        assert 0 <= found[number] < math.inf


def test_more_violations_make_a_rule_worth_less():
    X, rule = [["a"]] * 10, [StartsWith(["A"])]
    labels = [[["A"]] * (10 - broken) + [["B"]] * broken for broken in range(11)]
    found = [estimate_penalties(rule, X, y, labels=LABELS)[0] for y in labels]
    assert all(more >= fewer for more, fewer in pairwise(found))
    assert found[0] == pytest.approx(math.log(11))
    assert found[5:] == [0.0] * 6


def test_without_smoothing_a_rule_that_is_never_broken_is_hard():
    X, y = [["a", "b", "c"]], [["A", "B", "B"]]
    assert estimate_penalties([AtMostOnce()], X, y, 0.0) == [math.inf]
    assert estimate_penalties([StartsWith(["B"])], X, y, 0.0) == [0.0]


def test_without_an_opportunity_nothing_is_known():
    X = [["a", "b", "c"]]
    assert estimate_penalties([AtMostOnce()], X, [["A", "A", "A"]], 0.0, labels=LABELS) == [0.0]
    assert estimate_penalties([AtMostOnce()], [], [], 0.0, labels=LABELS) == [0.0]


def test_a_lower_bound_is_decided_at_the_end_and_an_upper_one_where_it_is_reached():
    X, y = [["a"] * 5] * 4, [["A"] * 3 + ["B"] * 2] * 4
    rules = [Count(["A"], at_least=1), Count(["A"], at_most=3)]  # 4 ends, and 8 B that are no A
    found = estimate_penalties(rules, X, y)
    assert found == [pytest.approx(math.log(5)), pytest.approx(math.log(9))]


def test_all_forms_of_constraints_are_the_same():
    class File(NamedTuple):
        rules: list
        scheme: str

    X, y = [["u", "v"], ["v"]], [["B", "A"], ["B"]]
    wanted = estimate_penalties(RULES, X, y)
    penalised = [Penalised(rule, 7.0, "name") for rule in RULES]
    bound = bind_constraints(penalised, LABELS)
    for form in (penalised, bound, File(penalised, "plain")):
        assert estimate_penalties(form, X, y) == wanted
    assert estimate_penalties(bound, X, [[1, 0], [1]]) == wanted
    assert bound.with_penalties(wanted).penalties.tolist() == pytest.approx(wanted)


def test_the_scheme_of_a_file_counts():
    class File(NamedTuple):
        rules: list
        scheme: str

    X, y = [["a", "b", "c", "d"]], [["B-X", "O", "I-X", "I-X"]]
    in_iob = estimate_penalties(File([AtMostOnce()], "iob2"), X, y)
    assert in_iob == estimate_penalties([AtMostOnce()], X, y, scheme="iob2")
    assert in_iob[0] < estimate_penalties([AtMostOnce()], X, y)[0]


def test_constraints_of_ones_own():
    class NoTwice(Constraint):
        def step(self, state, t, y_prev, y, x):
            return (y == y_prev) * 1, state

    found = estimate_penalties([NoTwice()], [["a", "b", "c", "d"]], [["A", "A", "B", "A"]])
    assert found == [pytest.approx(math.log(3 / 2))]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((RULES, [["u"]], [["A"], ["B"]]), "y: expected labels for 1 sentences, got 2"),
        ((RULES, [["u", "v"]], [["A"]]), r"y\[0\]: expected 2 labels, one per token, got 1"),
        ((RULES, [["u"]], [[None]]), r"y\[0\]\[0\]: expected a label, got None"),
        ((RULES, [["u"]], ["A"]), r"y\[0\]: expected a list of labels, got 'A'"),
        ((RULES, [["u"], ["v"]], [["A"], ["C"]]), r"y\[1\]\[0\]: expected one of A, B, got 'C'"),
        ((RULES, [["u"]], [["A"]], -1.0), "smoothing: expected a finite number, 0 or more"),
        ((RULES, [["u"]], [["A"]], math.nan), "smoothing"),
        (([StartsWith(["Z"])], [["u"]], [["A"]]), r"rules\[0\]: labels: expected one of"),
    ],
)
def test_bad_input_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        estimate_penalties(*arguments, labels=LABELS)


def test_bound_constraints_want_as_many_labels():
    bound = bind_constraints(RULES, LABELS, penalty=1.0)
    with pytest.raises(ValueError, match="labels: expected 2, as the constraints have, got 3"):
        estimate_penalties(bound, [["u"]], [["A"]], labels=["A", "B", "C"])
    with pytest.raises(ValueError, match="labels: expected 1 tokens"):
        corpus_violations(bound, (None,) * 5, np.zeros(2, int), np.array([1]))
