"""Constraints that users write, and what is refused of them."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import jaxseq
from jaxseq.constraints import (
    AtMostOnce,
    Constraint,
    Count,
    Labels,
    Penalised,
    StartsWith,
    beam_search,
    bind_constraints,
    exact_search,
    search_corpus,
    violations,
)

CHAIN = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))


class Never(Constraint):
    """A plain Python number: no label is ever a violation."""

    def step(self, state, t, y_prev, y, x):
        return 0, state


class AtEnd(Constraint):
    """Without a state, and one violation at the end."""

    def step(self, state, t, y_prev, y, x):
        return 0, state

    def final(self, state):
        return 1


class Half(Constraint):
    def step(self, state, t, y_prev, y, x):
        return 0.5, state


class Less(Constraint):
    def step(self, state, t, y_prev, y, x):
        return -jnp.ones((), jnp.int32), state


class Scalar(Constraint):
    def observe(self, sentence):
        return np.float32(1)

    def step(self, state, t, y_prev, y, x):
        return 0, state


@pytest.mark.parametrize(("own", "score"), [(Never(), 0.0), (AtEnd(), -1.5)])
def test_plain_numbers_do_everywhere(own, score):
    bound = bind_constraints([Penalised(own, 1.5)], ["A", "B"])
    assert violations(own, ["a", "b"], [0, 1]) == -score / 1.5
    assert beam_search(CHAIN, bound, (None,)).scores.tolist() == [score]
    if own.is_local:
        assert exact_search(CHAIN, bound, (None,)).scores.tolist() == [score]


def test_fractions_are_refused_everywhere():
    bound = bind_constraints([Penalised(Half(), 1.5)], ["A", "B"])
    for run in (
        lambda: violations(Half(), ["a"], [0]),
        lambda: beam_search(CHAIN, bound, (None,)),
        lambda: exact_search(CHAIN, bound, (None,)),
    ):
        with pytest.raises(ValueError, match="expected a whole number of violations, got dtype fl"):
            run()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((Less(), ["a"], [0]), "constraint: expected 0 violations or more, got -1"),
        ((Scalar(), ["a"], [0]), "observe: expected arrays with a row for each token"),
        ((AtMostOnce(), ["a", "b"], ["X"]), "y: expected 2 labels, one per token, got 1"),
        ((Never(), ["a"], [-3]), "y: expected numbers of labels, 0 or more, got -3"),
        ((AtMostOnce(), ["a", "b"], [3, 7]), "labels: expected the names of the labels"),
    ],
)
def test_violations_refuses(arguments, said):
    with pytest.raises(ValueError, match=said):
        violations(*arguments)


@pytest.mark.parametrize("penalty", [1e13, 1e39, 1e300])
def test_a_penalty_that_single_precision_cannot_hold_is_refused(penalty):
    with pytest.raises(ValueError, match=r"rules\[0\]: penalty: expected at most 1e\+12, or inf"):
        bind_constraints([Penalised(AtMostOnce(), penalty)], ["A"])
    assert bind_constraints([Penalised(AtMostOnce(), math.inf)], ["A"]).hard == (True,)


def test_bounds_and_names_that_are_none():
    with pytest.raises(ValueError, match="at_most: expected a whole number, 0 … 1000000, got 9999"):
        Count(["A"], at_most=99999999999)
    with pytest.raises(ValueError, match="labels: expected a list of names, got the string 'AB'"):
        StartsWith("AB").bind(Labels(["A", "B"]))


def test_a_narrow_beam_does_not_run_into_a_dead_end():
    """A is best at first, but nothing may follow it."""
    nodes = np.array([[5.0, 0.0], [0.0, 0.0]], np.float32)
    edges = np.array([[-np.inf, -np.inf], [-np.inf, 0.0]], np.float32)
    rules = bind_constraints([Penalised(AtMostOnce(), 1.0)], ["A", "B"])
    found = search_corpus(nodes, edges, np.array([2]), rules, (None,), 1, 1, "beam")
    assert found.labels[:, 0].tolist() == [1, 1]
    padded = jaxseq.Chain(jnp.pad(jnp.asarray(nodes), ((0, 2), (0, 0))), jnp.asarray(edges), 2)
    assert beam_search(padded, rules, (None,), 1, 1).paths.tolist() == [[1, 1, -1, -1]]
    alone = jaxseq.Chain(jnp.asarray(nodes), jnp.asarray(edges), 1)
    assert beam_search(alone, rules, (None,), 1, 1).paths.tolist() == [[0, -1]]


def test_names_are_no_reason_to_compile_anew():
    from jaxseq.constraints import _corpus

    nodes, edges = np.zeros((5, 2), np.float32), np.zeros((2, 2), np.float32)
    for name in ("one", "other"):
        rules = bind_constraints([Penalised(AtMostOnce(), 1.0, name)], ["A", "B"])
        search_corpus(nodes, edges, np.array([5]), rules, (None,), 2, 3, "beam")
        count = _corpus._search_block._cache_size()
        if name == "one":
            before = count
    assert count == before


@pytest.mark.parametrize(
    ("lengths", "width", "said"),
    [([6, -1], None, "lengths: expected numbers of tokens, got -1"), ([5], 0, "width: expected")],
)
def test_search_corpus_refuses(lengths, width, said):
    rules = bind_constraints([Penalised(StartsWith(["A"]), 1.0)], ["A", "B"])
    nodes, edges = np.zeros((5, 2), np.float32), np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=said):
        search_corpus(nodes, edges, np.array(lengths), rules, (None,), 1, width)
