"""Violations by the automata are those of the plain definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxseq.constraints import (
    AtMostOnce,
    Constraint,
    Count,
    EndsWith,
    FieldLength,
    Labels,
    MustAppear,
    OnlyOn,
    Order,
    Penalised,
    StartsWith,
    TransitionsOnlyOn,
    Words,
    WordsImply,
    bind_constraints,
    count_violations,
    violations,
)
from tests.constraints.cases import LABELS, MARKED, MARKS, WORDS, cases

LONGEST = 9
COUNT = jax.jit(count_violations)


def pad(array, length, value=0):
    return jnp.asarray(np.pad(np.asarray(array), (0, length - len(array)), constant_values=value))


def counts(constraints, words, path, padding=0):
    """Violations of each constraint, by one program for all lengths."""
    x = tuple(None if a is None else pad(a, LONGEST) for a in constraints.observe(words))
    path = pad(np.asarray(path, np.int32), LONGEST, padding)
    return COUNT(constraints, x, path, jnp.int32(len(words))).tolist()


SCHEMES = {
    scheme: (found, bind_constraints([case.rule for case in found], LABELS[scheme], scheme=scheme,
                                     penalty=1.0))
    for scheme in LABELS
    for found in [cases(scheme)]
}  # fmt: skip


@pytest.mark.parametrize("scheme", LABELS)
@settings(max_examples=50)
@given(data=st.data())
def test_every_rule_counts_as_its_definition(scheme, data):
    found, constraints = SCHEMES[scheme]
    labels = LABELS[scheme]
    words = data.draw(st.lists(st.sampled_from(WORDS), max_size=LONGEST))
    path = data.draw(
        st.lists(
            st.integers(0, len(labels) - 1), min_size=len(words), max_size=len(words)
        )
    )  # fmt: skip
    padding = data.draw(st.sampled_from([-1, 0, 1]))
    marks, names = [MARKS[word] for word in words], [labels[y] for y in path]
    expected = [case.count(marks, names, scheme) for case in found]
    assert counts(constraints, words, path, padding) == expected


@pytest.mark.parametrize("scheme", LABELS)
def test_one_rule_alone(scheme):
    labels = LABELS[scheme]
    words = ["3", "Pages", ".", "and", "3"]
    names = [labels[y] for y in (0, 1, 2, 0, 3)]
    marks = [MARKS[word] for word in words]
    found = cases(scheme)
    for case in found[:: len(found) // 6]:
        got = violations(case.rule, words, names, labels=labels, scheme=scheme)
        assert got == case.count(marks, names, scheme)
        got = violations(case.rule, {"word": words}, [labels.index(n) for n in names],
                         labels=labels, scheme=scheme)  # fmt: skip
        assert got == case.count(marks, names, scheme)


@pytest.mark.parametrize("scheme", LABELS)
def test_without_a_token_and_with_one(scheme):
    labels = LABELS[scheme]
    found, constraints = SCHEMES[scheme]
    expected = [case.count([], [], scheme) for case in found]
    assert counts(constraints, [], []) == expected
    assert sum(expected) > 4  # must_appear and count have something to say of nothing
    for y, label in enumerate(labels):
        expected = [case.count([True], [label], scheme) for case in found]
        assert counts(constraints, ["Pages"], [y]) == expected
    assert violations(MustAppear(labels[:1]), [], [], labels=labels) == 1
    assert violations(EndsWith(labels[:1]), [], [], labels=labels) == 0


def test_iobes_has_the_same_fields():
    labels = ["B-X", "I-X", "E-X", "S-X", "O"]
    y = ["B-X", "E-X", "S-X", "S-X", "O", "I-X"]  # four fields: S and B always begin one
    words = ["w"] * len(y)
    once = violations(AtMostOnce(), words, y, labels=labels, scheme="iobes")
    most = Count(["X"], at_most=1, unit="fields")
    assert once == violations(most, words, y, labels=labels, scheme="iobes") == 3
    assert violations(AtMostOnce(), words, y, labels=labels) == 0  # plain: each its own field


class EveryThird(Constraint):
    """Position 2, 5, … must not have label 0: a state of two arrays, and an end of its own."""

    def init(self, x):
        return {"since": jnp.int32(0), "any": jnp.zeros((), bool)}

    def step(self, state, t, y_prev, y, x):
        due = state["since"] == 2
        bad = due & (y == 0)
        following = {"since": jnp.where(due, 0, state["since"] + 1), "any": state["any"] | bad}
        return bad.astype(jnp.int32), following

    def final(self, state):
        return state["any"].astype(jnp.int32) * 10


@given(path=st.lists(st.integers(0, 2), max_size=6))
def test_a_constraint_of_ones_own(path):
    bad = sum(y == 0 for y in path[2::3])
    expected = bad + 10 * (bad > 0)
    constraints = bind_constraints([Penalised(EveryThird(), 1.0)], ["A", "B", "C"])
    assert counts(constraints, ["w"] * len(path), path) == [expected]


def test_tokens():
    words = ["PAGES", "p.", "3", ".", ",,", "page"]
    assert MARKED.marks(words).tolist() == [True, False, False, True, False, False]
    assert [word in Words(["Pages"], ignore_case=False) for word in words] == [False] * 6
    assert Words(pattern="[a-z]+").marks(["AB", "a1"]).tolist() == [True, False]
    column = Words(["N"], column="pos")
    assert column.marks({"word": ["a", "b"], "pos": ["N", "V"]}).tolist() == [True, False]
    assert column.marks([]).shape == (0,)
    default = TransitionsOnlyOn().tokens
    assert default.marks([".", "...", "a", "_", "§", "3.5"]).tolist() == [True, True, False, False,
                                                                         True, False]  # fmt: skip


REFUSED = {
    "tokens": (lambda: Words(), "expected at least one word or a pattern, got neither"),
    "pattern": (lambda: Words(pattern="("), r"pattern: expected a regular expression, got '\('"),
    "low": (lambda: FieldLength(at_least=0), "at_least: expected a whole number, 1 or more, got 0"),
    "high": (lambda: Count(["A"], 2, 1), "at_most: expected 2 or more, as at_least says, got 1"),
    "label": (lambda: bound(StartsWith(["D"])), r"rules\[0\]: labels: expected one of A, B, got"),
    "labels": (lambda: Labels(["A", "A"]), "labels: expected different names, got A, A"),
    "order": (lambda: bound(Order(["A"])), "labels: expected two fields or more in order"),
    "penalty": (lambda: bound(Penalised(AtMostOnce(), -1.0)), r"rules\[0\]: penalty: expected a"),
    "NaN": (lambda: bound(Penalised(AtMostOnce(), float("nan"))), "penalty: expected a number"),
    "none": (lambda: bind_constraints([AtMostOnce()], ["A"]), "penalty: expected one, of the rule"),
    "length": (
        lambda: alone(WordsImply(MARKED, ["A"]), "A"),
        "y: expected 2 labels, one per token",
    ),
    "unknown": (lambda: alone(AtMostOnce(), "AD"), r"y\[1\]: expected one of A, B, got 'D'"),
    "sentence": (
        lambda: violations(OnlyOn(["A"], MARKED), "Pages", "A"),
        "sentence: expected a list of words, got the string 'Pages'",
    ),
    "empty": (lambda: violations(AtMostOnce(), [], []), "labels: expected the names"),
    "column": (
        lambda: OnlyOn(["A"], MARKED).bind(Labels(["A"])).observe({"pos": ["a"]}),
        "sentence: expected a column 'word'",
    ),
    "sentence number": (
        lambda: bound(OnlyOn(["A"], MARKED)).observe_all([["a"], "b"]),
        r"X\[1\]: sentence: expected a list of words",
    ),
    "penalties": (
        lambda: bound(AtMostOnce()).with_penalties([1.0, 2.0]),
        "penalties: expected 1, got 2",
    ),
}


def bound(rule):
    return bind_constraints([rule], ["A", "B"], penalty=1.0)


def alone(rule, y):
    return violations(rule, ["a", "b"], list(y), labels=["A", "B"])


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_other_penalties():
    rules = bound(AtMostOnce())
    again = rules.with_penalties([float("inf")])
    assert (rules.hard, again.hard, again.penalties.tolist()) == ((False,), (True,), [0.0])
    assert again.with_penalties([2.5]).penalties.tolist() == [2.5]


def test_a_star_stands_for_any_text_in_the_names_of_labels():
    labels = Labels(["B-NP", "I-NP", "B-VP", "O", "*"], "iob2")
    assert labels.numbers(["*-NP"]) == [0, 1]
    assert labels.numbers(["B-*", "O"]) == [0, 2, 3]
    assert labels.numbers(["*"]) == [4]  # a label of that name is meant before all others
    assert Labels(["a.b", "axb"]).numbers(["a.*"]) == [0]
    with pytest.raises(ValueError, match=r"expected one of NP, VP, .*, got '\*-PP'"):
        labels.numbers(["*-PP"])


def test_stars_in_rules_are_the_labels_that_they_match():
    labels = ["B-NP", "I-NP", "B-VP", "O"]
    words, path = ["a", "b", "c"], ["O", "B-NP", "B-VP"]
    for starred, plain in ((["*-NP"], ["B-NP", "I-NP"]), (["B-*"], ["B-NP", "B-VP"])):
        for rule in (StartsWith, EndsWith, MustAppear):
            expected = violations(rule(plain), words, path, labels=labels)
            assert violations(rule(starred), words, path, labels=labels) == expected
