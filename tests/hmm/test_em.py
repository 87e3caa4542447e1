"""EM for HMMs: it never goes down, and its limits are exact."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings

from jaxseq import Outcome
from jaxseq.hmm import (
    HMM,
    EMOperator,
    Smoothing,
    _counts,
    em,
    estimate_hmm,
    linearise_mean_counts,
    mean_counts,
    word_corpus,
)
from jaxseq.hmm import _jacobian as _em_jacobian
from tests.hmm.enumerated import (
    LABELS,
    LENGTHS,
    SEEDS,
    WIDTH,
    WORDS,
    assert_counts,
    brute_force,
    draw_labels,
    draw_sequences,
    draw_weights,
    make_corpus,
    normalised,
)


def objective_by_brute_force(operator, weights, seeds, partial):
    """As `EMOperator` documents it, nothing frozen."""
    theta = normalised(weights)
    first, second = operator.shares
    value = 0.0
    if first:
        possible = draw_labels(seeds[0], partial=partial)[0]
        sequences = draw_sequences(seeds[0])
        fit = brute_force(weights, sequences, possible, best=operator.hard)[1]
        prior = sum(e * np.log(family).sum() for e, family in zip(operator.smoothing, theta))
        value += first / sum(len(x) > 0 for x in sequences) * (fit + prior)
    if second:
        sequences = draw_sequences(seeds[1])
        fit = brute_force(weights, sequences, best=operator.hard)[1]
        value += second / sum(len(x) > 0 for x in sequences) * fit
    return value


VARIANTS = {
    "soft": {},
    "hard": {"hard": True},
    "supervised": {"balance": 0.0},
    "unsupervised": {"balance": 1.0},
    "hard unsupervised": {"balance": 1.0, "hard": True},
    "between": {"balance": 0.3},
    "general weights": {"balance": 0.3, "weights": lambda x: ((1 - x) ** 2, 3 * x)},
    "frozen": {"balance": 0.6, "frozen": ("transition",)},
    "frozen hard": {"balance": 0.6, "frozen": ("initial", "emission"), "hard": True},
}


@pytest.mark.parametrize("labelled", ["partial", "complete"])
@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_em_never_goes_down(variant, labelled, seed):
    known, unknown = make_corpus(seed, labelled=labelled), make_corpus(seed + 1)
    operator = EMOperator(known, unknown, **VARIANTS[variant])
    start = HMM(*draw_weights(seed))
    point, values = start.probabilities, []
    for _ in range(7):  # not by `em`, which ends before it would record a fall
        step = operator(point)
        values.append(float(step.objective))
        point = step.following
    values = np.array(values)
    assert (np.diff(values) >= -1e-9 * np.abs(values[1:])).all()
    assert values[-1] > values[0]
    found = em(start, operator, max_iterations=6, tolerance=0.0)
    recorded = np.array(found.objectives)
    np.testing.assert_allclose(recorded, values[: len(recorded)], rtol=1e-9)
    values = recorded
    for name in operator.frozen:
        kept, given_ = (getattr(m.probabilities, name) for m in (found.model, start))
        np.testing.assert_allclose(kept, given_, rtol=1e-15)
    if not operator.frozen:
        weights, seeds, partial = start.probabilities, (seed, seed + 1), labelled == "partial"
        for value, point in ((values[0], weights), (values[-1], found.model.probabilities)):
            expected = objective_by_brute_force(operator, point, seeds, partial)
            np.testing.assert_allclose(value, expected, rtol=1e-9)


@given(seed=SEEDS)
@settings(max_examples=5)
def test_ends_of_the_path_and_what_lies_between(seed):
    known, unknown = make_corpus(seed, labelled="complete"), make_corpus(seed + 1)
    weights, smoothing = draw_weights(seed), Smoothing(0.5, 0.25, 0.125)
    at = {
        balance: EMOperator(known, unknown, balance, smoothing)(weights).following
        for balance in (0.0, 0.25, 1.0)
    }
    number = sum(n > 0 for n in LENGTHS)
    counts, _ = brute_force(weights, draw_sequences(seed), draw_labels(seed)[0])
    supervised = [(count + e) / number for count, e in zip(counts, smoothing)]
    assert_counts(at[0.0], supervised, 1e-12)
    assert_counts(at[1.0], mean_counts(weights, unknown), 0)
    mixed = [0.75 * a + 0.25 * b for a, b in zip(at[0.0], at[1.0])]
    assert_counts(at[0.25], mixed, 1e-12)


@given(seed=SEEDS)
@settings(max_examples=5)
def test_supervised_em_is_relative_frequency(seed):
    known = make_corpus(seed, labelled="complete")
    model = estimate_hmm(known, LABELS)
    counts, _ = brute_force(draw_weights(seed), draw_sequences(seed), draw_labels(seed)[0])
    smoothed = [count + e for count, e in zip(counts, (0.2, 0.2, 0.05))]
    assert_counts(model.probabilities, normalised(smoothed), 1e-12)
    found = em(HMM(*draw_weights(seed)), EMOperator(known, None))
    assert_counts(found.model.probabilities, model.probabilities, 1e-12)
    assert found.iterations <= 2


def test_default_balance_counts_every_sequence_the_same():
    known, unknown = make_corpus(0, labelled="complete"), make_corpus(1)
    assert EMOperator(known, unknown).shares == (0.5, 0.5)
    assert EMOperator(None, unknown).shares == (0, 1)
    assert EMOperator(known, None).shares == (1, 0)


def test_estimate_from_partial_labels_is_a_fixed_point():
    corpus = make_corpus(5, labelled="partial")
    model = estimate_hmm(corpus, LABELS)
    possible = draw_labels(5, partial=True)[0]
    counts, _ = brute_force(model.probabilities, draw_sequences(5), possible)
    smoothed = [count + e for count, e in zip(counts, Smoothing())]
    assert_counts(model.probabilities, normalised(smoothed), 1e-2)


def test_words_and_labels_that_never_meet():
    """Without smoothing they are impossible, with it they are not."""
    sequences, labels = draw_sequences(0, words=WORDS - 1), draw_labels(0)[1]
    known = word_corpus(sequences, WORDS, labels=labels, num_labels=LABELS, cores=1, width=WIDTH)
    sequences[0][0] = sequences[4][1] = WORDS - 1
    unknown = word_corpus(sequences, WORDS, cores=1, width=WIDTH)
    bare = estimate_hmm(known, LABELS, smoothing=Smoothing(0, 0, 0))
    with pytest.raises(ValueError, match=r"unlabelled\[0\]: expected.*probability 0 \(2 of 6"):
        em(bare, EMOperator(known, unknown))
    found = em(estimate_hmm(known, LABELS), EMOperator(known, unknown, 0.5))
    assert np.isfinite(found.objectives).all()
    assert (np.asarray(found.model.probabilities.emission[WORDS - 1]) > 0).all()


def test_outcomes():
    start, operator = HMM(*draw_weights(0)), EMOperator(None, make_corpus(1))
    assert em(start, operator, max_iterations=2).outcome is Outcome.MAX_ITERATIONS
    found = em(start, operator, tolerance=1e-3)
    assert found.outcome is Outcome.CONVERGED_VALUE
    assert len(found.log_likelihoods) == len(found.objectives) == found.iterations + 1
    nothing = em(start, operator, max_iterations=0)
    assert_counts(nothing.model.probabilities, start.probabilities, 1e-15)


def test_shards_share_one_program():
    one, other = (
        (jax.tree.structure(shard), [leaf.shape for leaf in jax.tree.leaves(shard)])
        for shard in make_corpus(7, cores=2).shards
    )
    assert one == other


def test_programs_are_compiled_once_a_shape():
    programs = (_counts._certified_tally, _em_jacobian._linearise, _em_jacobian._apply)

    def run(seed):
        weights, corpus = draw_weights(seed), make_corpus(seed)
        em(HMM(*weights), EMOperator(None, corpus), max_iterations=2)
        linearise_mean_counts(weights, corpus)[1](weights)
        return [program._cache_size() for program in programs]

    sizes = run(0)
    assert min(sizes) > 0
    for seed in range(1, 4):
        assert run(seed) == sizes


def test_what_has_no_probability_is_no_nan():
    operator = EMOperator(make_corpus(0, labelled="complete"), None)
    model = HMM(*draw_weights(0)).probabilities
    for least in (0.0, -0.1):
        theta = model._replace(emission=model.emission.at[0].set(least))
        assert operator(theta).objective == -np.inf
