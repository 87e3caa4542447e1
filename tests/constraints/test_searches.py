"""Beam and exact search give what enumeration by the plain definitions gives."""

import itertools
import math
from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxseq.constraints import (
    AtMostOnce,
    MustAppear,
    StartsWith,
    bind_constraints,
    exact_search,
    fold_local,
    penalised_score,
)
from jaxseq.constraints import beam_search as beam
from jaxseq.lattice import Chain, k_best, path_score
from tests.constraints import plain
from tests.constraints.cases import BOTH, LOCAL, NAMES, OF_FIELDS, SIZE, Case, problems

K, WIDE = 5, len(NAMES) ** SIZE
SEARCHES = {
    "beam": lambda chain, rules, x: beam(chain, rules, x, K, WIDE),
    "exact": lambda chain, rules, x: exact_search(chain, rules, x, K),
}
both_searches = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)

# Which rules are hard is not drawn: each such choice is another program.
SCORE, FOLD = jax.jit(penalised_score), eqx.filter_jit(fold_local)
HARD_AND_SOFT = (1.5, math.inf, 0.4, math.inf, 0.7, 2.0)


def check_against_enumeration(found, problem, chosen):
    """The k best of all labellings: in order, different, with the scores that they have."""
    expected = problem.best(chosen, K)
    count, length = len(expected), problem.length
    assert found.scores[:count].tolist() == pytest.approx([score for _, score, _ in expected])
    assert found.hard[:count].tolist() == [hard for hard, _, _ in expected]
    assert np.isneginf(found.scores[count:]).all()
    paths = [tuple(path[:length]) for path in found.paths.tolist()]
    assert paths[:count] == [path for _, _, path in expected]
    assert (np.asarray(found.paths)[:, length:] == -1).all()
    if count:
        assert paths[count:] == [paths[count - 1]] * (K - count)
    else:
        assert (np.asarray(found.paths) == -1).all()


@both_searches
@settings(max_examples=12)
@given(problem=problems(penalties=(0.3, 1.0, 4.0)))
def test_soft_constraints(search, problem):
    rules = problem.constraints(BOTH)
    found = search(problem.chain(), rules, problem.observed(rules))
    check_against_enumeration(found, problem, BOTH)


@both_searches
@settings(max_examples=15)
@given(problem=problems())
def test_a_mixture_of_hard_and_soft_ones(search, problem):
    problem = problem._replace(penalties=HARD_AND_SOFT)
    rules = problem.constraints(BOTH)
    found = search(problem.chain(), rules, problem.observed(rules))
    check_against_enumeration(found, problem, BOTH)


@both_searches
@settings(max_examples=15)
@given(problem=problems(forbid=True))
def test_labels_and_transitions_that_are_impossible(search, problem):
    problem = problem._replace(penalties=HARD_AND_SOFT)
    rules = problem.constraints(BOTH)
    found = search(problem.chain(), rules, problem.observed(rules))
    check_against_enumeration(found, problem, BOTH)
    assert not np.isnan(found.scores).any()


@both_searches
@settings(max_examples=15)
@given(problem=problems(shared=False))
def test_transitions_of_each_position(search, problem):
    problem = problem._replace(penalties=HARD_AND_SOFT)
    rules = problem.constraints(BOTH)
    found = search(problem.chain(), rules, problem.observed(rules))
    check_against_enumeration(found, problem, BOTH)


@settings(max_examples=15)
@given(problem=problems(penalties=(0.3, 1.0, 4.0), least=1))
def test_scores_are_those_of_the_paths(problem):
    rules = problem.constraints(BOTH)
    x = problem.observed(rules)
    found = beam(problem.chain(), rules, x, K, 8)  # too narrow to be exact
    assert all(one >= two for one, two in itertools.pairwise(found.scores.tolist()))
    paths = [tuple(path[: problem.length]) for path in found.paths.tolist()]
    legal = int((np.asarray(found.scores) > -np.inf).sum())
    assert len(set(paths[:legal])) == legal
    counters = problem.counters(BOTH)
    for path, score, whole in zip(paths[:legal], found.scores, found.paths):
        _, expected = plain.judge(problem.nodes, problem.edges, path, counters)
        assert float(score) == pytest.approx(expected)
        again, hard = SCORE(problem.chain(), rules, x, whole)
        assert (float(again), int(hard)) == (pytest.approx(expected), 0)


@settings(max_examples=10)
@given(problem=problems(penalties=(0.3, 1.0, 4.0), least=1))
def test_a_wide_beam_is_viterbi_where_constraints_are_local(problem):
    rules = problem.constraints(LOCAL)
    assert rules.all_local
    x = problem.observed(rules)
    found = beam(problem.chain(), rules, x, K, WIDE)
    folded = FOLD(problem.chain(), rules, x)
    paths, scores = k_best(folded.chain, K)
    count = int((np.asarray(scores) > -np.inf).sum())
    assert found.paths[:count].tolist() == paths[:count].tolist()
    assert found.scores.tolist() == pytest.approx(scores.tolist())
    assert (folded.stateful, folded.hard_nodes, folded.hard_edges) == ((), None, None)
    counters = problem.counters(LOCAL)
    for path in itertools.islice(itertools.product(range(3), repeat=problem.length), 10):
        _, expected = plain.judge(problem.nodes, problem.edges, path, counters)
        padded = jnp.asarray([*path, *[0] * (SIZE - problem.length)])
        assert float(path_score(folded.chain, padded)) == pytest.approx(expected)


@pytest.mark.parametrize("width", [2, WIDE])
@settings(max_examples=10)
@given(problem=problems(penalties=(0.0,)))
def test_penalties_of_0_change_no_bit(width, problem):
    found = [
        beam(problem.chain(), rules, problem.observed(rules), 2, width)
        for rules in (problem.constraints(BOTH), problem.constraints([]))
    ]
    for with_rules, without in zip(*found):
        assert np.asarray(with_rules).tobytes() == np.asarray(without).tobytes()


ALL_FIELDS = Case(MustAppear(["A", "C", "B"]), partial(plain.must_appear, names=["A", "C", "B"]))


@both_searches
@given(problem=problems(least=1))
def test_hard_constraints_that_nothing_satisfies(search, problem):
    """Three fields in one or two words: the least violation is found, and told."""
    problem = problem._replace(penalties=(math.inf, math.inf))
    chosen = [ALL_FIELDS, BOTH[2]]
    rules = problem.constraints(chosen)
    found = search(problem.chain(), rules, problem.observed(rules))
    check_against_enumeration(found, problem, chosen)
    assert int(found.hard[0]) == max(0, 3 - problem.length)


@both_searches
@settings(max_examples=15)
@given(problem=problems(least=1), seed=st.integers(0, 99))
def test_padding_is_not_there(search, problem, seed):
    problem = problem._replace(penalties=HARD_AND_SOFT)
    rules = problem.constraints(BOTH)
    x = problem.observed(rules)
    found = search(problem.chain(), rules, x)
    rng, length = np.random.default_rng(seed), problem.length
    inside = np.arange(SIZE) < length
    noise = np.where(rng.random(problem.nodes.shape) < 0.5, -np.inf, 1e6)
    other = problem._replace(nodes=np.where(inside[:, None], problem.nodes, noise))
    seen = tuple(None if a is None else np.where(inside, a, rng.random(SIZE) < 0.5) for a in x)
    again = search(other.chain(), rules, seen)
    for one, two in zip(found, again):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


@both_searches
def test_truncated_is_padded(search):
    rng = np.random.default_rng(3)
    nodes, edges = rng.normal(size=(SIZE, 3)), rng.normal(size=(3, 3))
    rules = bind_constraints([case.rule for case in OF_FIELDS], NAMES, penalty=0.8)
    x = (None,) * len(rules)
    for length in (1, 3):
        whole = search(Chain(nodes, edges, length), rules, x)
        short = search(Chain(nodes[:length], edges), rules, x)
        assert whole.paths[:, :length].tolist() == short.paths.tolist()
        assert whole.scores.tolist() == pytest.approx(short.scores.tolist())


@both_searches
def test_one_trace_for_all_lengths_and_penalties(search):
    chex.clear_trace_counter()
    rules = bind_constraints([AtMostOnce(), StartsWith(["B"])], NAMES, penalty=1.0)
    rng, edges = np.random.default_rng(0), jnp.eye(3)

    @chex.assert_max_traces(2)  # one by one, and together
    def run(nodes, length, penalties):
        mine = eqx.tree_at(lambda old: old.penalties, rules, penalties)
        return search(Chain(nodes, edges, length), mine, (None, None))

    rows = (
        jnp.asarray(rng.normal(size=(6, SIZE, 3))),
        jnp.array([4, 3, 2, 1, 4, 0]),
        jnp.asarray(rng.uniform(size=(6, 2))),
    )
    together, jitted = jax.jit(jax.vmap(run))(*rows), jax.jit(run)
    for number in range(6):
        alone = jitted(*(array[number] for array in rows))
        assert together.paths[number].tolist() == alone.paths.tolist()
        assert together.scores[number].tolist() == pytest.approx(alone.scores.tolist())
        assert together.hard[number].tolist() == alone.hard.tolist()
