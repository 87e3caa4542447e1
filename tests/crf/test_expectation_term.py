"""Expected shares of labels in the objective, against every labelling of every sentence."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import (
    ExpectationTerm,
    LabelCounts,
    Objective,
    SharePenalty,
    lay_out,
    make_shards,
    share_penalty,
)
from jaxseq.expectations import Expectation, encode_expectations
from tests.crf import enumerated
from tests.crf.enumerated import LENGTHS, WIDTH, draw_corpus
from tests.crf.test_objective import L2, draw_point, expected_gradient, make_spread

SEEDS = st.integers(0, 2**32 - 1)
CLASSES = ["A", "B", "C"]
# A sentence is its own number, and a token its place: enough for a condition to look at.
SENTENCES = [[(number, t) for t in range(n)] for number, n in enumerate(LENGTHS)]


def odd(sentence):
    return [(number + t) % 2 == 1 for number, t in sentence]


def late(sentence):
    return [t > 0 for _, t in sentence]


EXACT = [
    Expectation({"A": 0.5, "B": 0.2, "C": 0.3}, weight=3.0),
    Expectation({"B": 0.9}, odd, 7.0),
    Expectation({"C": 0.1, "A": 0.6}, late, 2.0, "l2"),
    Expectation({"A -> B": 0.3, "C -> *": 0.1}, weight=1.5),
]
RANGES = [
    Expectation({"A": (0.4, 0.5), "B": (0.0, 0.02)}, odd, 5.0),
    Expectation({"B": (0.1, 0.2)}, weight=4.0, penalty="l2"),
    Expectation({"begin A": (0.0, 0.2)}, weight=2.0, penalty="l2", per="sentence"),
    Expectation({"change": (0.0, 0.1)}, weight=2.0),
]
CONDITIONAL = [*EXACT[:1], Expectation({"change": (0.0, 0.2)}, late, 3.0)]
ALL = {"exact": EXACT, "ranges": RANGES, "pairs by condition": CONDITIONAL}


def happens(event: str, path: tuple[str, ...], t: int) -> bool:
    """Whether an event is at token t of a labelling, in so many words."""
    before, label = (path[t - 1] if t else None), path[t]
    if event == "change":
        return before is not None and before != label
    if event.startswith("begin "):
        return label == event[6:] and before != label
    if "->" in event:
        first, second = event.split(" -> ")
        return before is not None and first in ("*", before) and second in ("*", label)
    return label == event


def of_pairs(expectation) -> bool:
    return any(event == "change" or "->" in event for event in expectation.targets)


def counted(expectations):
    """For each sentence, how often each event is in each path; and what to divide by."""
    totals = []
    for each in expectations:
        holds = [
            [True] * n if each.when is None else each.when(s) for s, n in zip(SENTENCES, LENGTHS)
        ]
        tokens = sum(h for row in holds for t, h in enumerate(row) if t or not of_pairs(each))
        totals.append(sum(n > 0 for n in LENGTHS) if each.per == "sentence" else tokens)
    by_sentence = []
    for sentence, n in zip(SENTENCES, LENGTHS):
        rows = []
        for path in product(CLASSES, repeat=n):
            row = []
            for each, total in zip(expectations, totals):
                holds = [True] * n if each.when is None else each.when(sentence)
                for event in each.targets:
                    row.append(sum(happens(event, path, t) for t in range(n) if holds[t]) / total)
            rows.append(row)
        by_sentence.append(np.array(rows))
    return by_sentence


def nearest(v, low, high):
    """The allowed distribution nearest to v in divergence, by bisection in plain Python."""
    a, b = 1e-9, 1e9
    for _ in range(200):
        r = np.sqrt(a * b)
        a, b = (r, b) if np.clip(r * v, low, high).sum() < 1 else (a, r)
    return np.clip(np.sqrt(a * b) * v, low, high)


def penalty_of(expectations, shares):
    """The penalty, and its slopes by the shares."""
    value, slopes, start = 0.0, [], 0
    for each in expectations:
        v = shares[start : start + len(each.targets)]
        low, high = np.array(list(each.targets.values())).T
        start += len(v)
        if each.penalty == "l2":
            gap = v - np.clip(v, low, high)
            value += each.weight * (gap**2).sum()
            slopes.extend(2 * each.weight * gap)
            continue
        if each.targets.keys() != set(CLASSES):
            v, left = np.append(v, 1 - v.sum()), (1 - high.sum(), 1 - low.sum())
            low, high = np.append(low, max(0, left[0])), np.append(high, max(0, left[1]))
        t = nearest(v, low, high)
        value += each.weight * (t[t > 0] * np.log(t[t > 0] / v[t > 0])).sum()
        by_share = -each.weight * t / v
        # A share that rises takes from all others together.
        slopes.extend(by_share[: len(each.targets)] - (len(v) > len(each.targets)) * by_share[-1])
    return value, np.array(slopes)


def enumerated_penalty(corpus, theta, expectations):
    counts, paths = counted(expectations), enumerated.all_paths(corpus)
    shares, probabilities = 0.0, []
    for each, count, weight in zip(paths, counts, corpus.weights):
        scores = each.features @ theta
        p = np.exp(scores - scores.max())
        probabilities.append(p / p.sum())
        shares = shares + weight * probabilities[-1] @ count
    value, slopes = penalty_of(expectations, shares)
    gradient = np.zeros_like(theta)
    for each, count, weight, p in zip(paths, counts, corpus.weights, probabilities):
        worth = count @ slopes
        gradient += weight * (p * (worth - p @ worth)) @ each.features
    return value, gradient


def term(corpus, expectations, shards):
    encoded = encode_expectations(expectations, SENTENCES, corpus.features.lengths, CLASSES)
    assert encoded is not None
    layout = lay_out(corpus.features.lengths, shards, width=WIDTH)
    marks = make_shards(layout, encoded.predicates, encoded.sizes[0])
    return ExpectationTerm(SharePenalty.from_encoded(encoded, "float64"), marks)


def check(seed, kind, expectations, *, gamma=0.0, shards=2, **options):
    labelled = draw_corpus(seed, **options)
    unlabelled = draw_corpus(seed + 1, weighted=False, **options)
    point, theta = draw_point(kind, labelled, seed)
    objective = Objective(
        labelled.shards(2), make_spread(kind, labelled), L2, unlabelled=unlabelled.shards(shards),
        entropy_weight=gamma, expectations=term(unlabelled, expectations, shards),
    )  # fmt: skip
    value, gradient = objective(point)
    without = Objective(
        labelled.shards(2), make_spread(kind, labelled), L2, unlabelled=unlabelled.shards(shards),
        entropy_weight=gamma,
    )(point)  # fmt: skip
    penalty, by_theta = enumerated_penalty(unlabelled, theta, expectations)
    np.testing.assert_allclose(float(value - without[0]), penalty, rtol=1e-9, atol=1e-10)
    wanted = expected_gradient(kind, labelled, point, by_theta, 0.0)
    for got, other, want in zip(*map(jax.tree.leaves, (gradient, without[1], wanted))):
        scale = max(1, np.abs(want).max(initial=0))
        np.testing.assert_allclose(got - other, want, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("name", ALL)
@given(seed=SEEDS)
def test_the_objective_adds_the_penalty(name, seed):
    check(seed, "dense", ALL[name])


@pytest.mark.parametrize("kind", ["observed", "tied"])
def test_learnt_weights_that_are_not_the_table(kind):
    check(9, kind, EXACT, gamma=0.7, values=True)


@pytest.mark.parametrize("name", ALL)
def test_attributes_of_pairs(name):
    check(4, "dense", ALL[name], pairs=True)


def test_any_number_of_shards_and_the_entropy_too():
    for shards in (1, 3):
        check(5, "dense", EXACT, gamma=1.5, shards=shards)


@given(seed=SEEDS, name=st.sampled_from(list(ALL)))
def test_slopes_are_those_of_the_value(seed, name):
    """Central differences, in which the nearest shares move as well."""
    corpus, rng = draw_corpus(0, weighted=False), np.random.default_rng(seed)
    penalty, _ = term(corpus, ALL[name], 1)
    p, q, s = penalty.sizes
    point = rng.uniform(0.5, 3, p * s + q * s * s)
    direction = rng.normal(size=point.shape)

    def value(step):
        return share_penalty(
            penalty, LabelCounts.from_flat(jnp.asarray(point + step * direction), penalty.sizes)
        )

    slope = float(np.vdot(value(0.0)[1].flat(), direction))
    change = (value(1e-5)[0] - value(-1e-5)[0]) / 2e-5
    np.testing.assert_allclose(slope, float(change), rtol=1e-6, atol=1e-6)


def test_what_cannot_be_is_infinite_and_no_nan():
    penalty, _ = term(draw_corpus(0, weighted=False), EXACT, 1)
    p, q, s = penalty.sizes
    value, slopes = share_penalty(
        penalty, LabelCounts.from_flat(jnp.zeros(p * s + q * s * s), penalty.sizes)
    )
    assert np.isposinf(value)
    assert np.isfinite(slopes.flat()).all()


def test_padding_changes_nothing():
    """Wider rows, more of them: the same value, and the same gradient to the bit of padding."""
    corpus = draw_corpus(3, weighted=False)
    point, _ = draw_point("dense", corpus, 3)
    results = []
    for width in (WIDTH, 3 * WIDTH):
        encoded = encode_expectations(EXACT, SENTENCES, corpus.features.lengths, CLASSES)
        assert encoded is not None
        layout = lay_out(corpus.features.lengths, 1, width=width)
        shards = make_shards(layout, corpus.features, enumerated.ATTRIBUTES)
        marks = make_shards(layout, encoded.predicates, encoded.sizes[0])
        expected = ExpectationTerm(SharePenalty.from_encoded(encoded, "float64"), marks)
        how = {"unlabelled": shards, "entropy_weight": 0.0, "expectations": expected}
        results.append(Objective([], make_spread("dense", corpus), 0.0, **how)(point))
    for a, b in zip(*map(jax.tree.leaves, results)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
