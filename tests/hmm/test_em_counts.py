"""Counts of an HMM's events, against every labelling of every sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxseq.hmm import (
    Multinomials,
    _counts,
    expected_counts,
    known_counts,
    log_likelihoods,
    viterbi_counts,
    word_corpus,
)
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
)


@pytest.mark.parametrize(
    ("labelled", "dtype", "tolerance"),
    [
        ("", np.float64, 1e-9),
        ("partial", np.float64, 1e-9),
        ("complete", np.float64, 1e-9),
        ("", np.float32, 1e-4),
    ],
)
@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.3]))
@settings(max_examples=5)
def test_expected_counts(labelled, dtype, tolerance, seed, zeros):
    weights = draw_weights(seed, zeros=zeros, dtype=dtype)
    possible = draw_labels(seed, partial=labelled == "partial")[0] if labelled else None
    counts, value = brute_force(weights, draw_sequences(seed), possible)
    for method in ("auto", "scaled", "log"):
        found = expected_counts(weights, make_corpus(seed, labelled=labelled), method=method)
        assert found.log_likelihood.dtype == dtype
        np.testing.assert_allclose(found.log_likelihood, value, rtol=tolerance)
        assert_counts(found.counts, counts, tolerance)


@given(
    seed=SEEDS,
    labels=st.integers(1, 4),
    words=st.integers(1, 5),
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    cores=st.integers(1, 3),
)
@settings(max_examples=3)
def test_expected_counts_of_any_shape(seed, labels, words, lengths, cores):
    weights = draw_weights(seed, labels=labels, words=words)
    sequences = draw_sequences(seed, tuple(lengths), words)
    corpus = word_corpus(sequences, words, cores=cores, width=max(*lengths, 1, 6))
    counts, value = brute_force(weights, sequences)
    found = expected_counts(weights, corpus)
    np.testing.assert_allclose(found.log_likelihood, value, rtol=1e-9, atol=1e-12)
    assert_counts(found.counts, counts, 1e-9)
    tokens, number = sum(lengths), sum(n > 0 for n in lengths)
    sums = [float(family.sum()) for family in found.counts]
    np.testing.assert_allclose(sums, [number, tokens - number, tokens], rtol=1e-12, atol=1e-12)


@given(seed=SEEDS)
def test_counts_of_words_are_those_of_the_corpus(seed):
    counts = expected_counts(draw_weights(seed), make_corpus(seed)).counts
    words = np.bincount(np.concatenate(draw_sequences(seed)), minlength=WORDS)
    np.testing.assert_allclose(counts.emission.sum(1), words, rtol=1e-12, atol=1e-12)


@given(seed=SEEDS)
def test_layout_changes_nothing(seed):
    weights = draw_weights(seed)
    first, second = (
        expected_counts(weights, make_corpus(seed, labelled="partial", cores=cores, width=width))
        for cores, width in ((1, WIDTH), (2, WIDTH + 2))
    )
    assert_counts(first.counts, second.counts, 1e-12)
    np.testing.assert_allclose(first.log_likelihood, second.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("labelled", ["", "partial"])
@given(seed=SEEDS)
@settings(max_examples=8)
def test_viterbi_counts(labelled, seed):
    weights = draw_weights(seed)
    possible = draw_labels(seed, partial=True)[0] if labelled else None
    counts, value = brute_force(weights, draw_sequences(seed), possible, best=True)
    found = viterbi_counts(weights, make_corpus(seed, labelled=labelled))
    np.testing.assert_allclose(found.log_likelihood, value, rtol=1e-9)
    assert_counts(found.counts, counts, 1e-12)


@given(seed=SEEDS)
def test_counts_of_complete_labels_do_not_depend_on_the_model(seed):
    corpus = make_corpus(seed, labelled="complete")
    counts, _ = brute_force(draw_weights(seed), draw_sequences(seed), draw_labels(seed)[0])
    assert_counts(known_counts(corpus, LABELS), counts, 1e-12)


def test_impossible_sequences_are_not_counted():
    """The last word is, whatever the label."""
    weights = draw_weights(0)
    weights = weights._replace(emission=weights.emission.at[WORDS - 1].set(0))
    sequences = draw_sequences(0, words=WORDS - 1)
    sequences[3][2] = sequences[5][0] = WORDS - 1
    corpus = word_corpus(sequences, WORDS, cores=1, width=WIDTH)
    counts, value = brute_force(weights, sequences)
    assert value == -np.inf
    for method in ("auto", "scaled", "log"):
        found = expected_counts(weights, corpus, method=method)
        assert float(found.log_likelihood) == -np.inf
        assert_counts(found.counts, counts, 1e-9)
    found = log_likelihoods(weights, corpus)
    expected = [brute_force(weights, [words])[1] for words in sequences if len(words)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.isneginf(found).tolist() == [False, False, True, False, True, False]
    possible = sum(LENGTHS) - len(sequences[3]) - len(sequences[5])
    assert viterbi_counts(weights, corpus).counts.emission.sum() == possible


def test_log_space_takes_over_where_probabilities_underflow():
    """Two words of 1e-30 under the one label that the last word has: too much for float32."""
    emission = np.array([[1, 1, 1e-30], [1, 1, 0], [1, 1, 0], [0, 0, 1]], np.float32)
    weights = Multinomials(
        jnp.ones(LABELS, jnp.float32), jnp.eye(LABELS, dtype=jnp.float32), jnp.asarray(emission)
    )
    sequences = [np.zeros(n, int) for n in LENGTHS]
    sequences[0][2] = 3
    corpus = word_corpus(sequences, WORDS, cores=1, width=WIDTH)
    counts, value = brute_force(weights, sequences)
    found = expected_counts(weights, corpus)
    np.testing.assert_allclose(found.log_likelihood, value, rtol=1e-5)
    assert_counts(found.counts, counts, 1e-4)
    compiled = jax.jit(lambda p: expected_counts(p, corpus))(weights)
    assert_counts(compiled.counts, counts, 1e-4)
    scaled = expected_counts(weights, corpus, method="scaled")
    assert float(scaled.log_likelihood) == -np.inf, "no need of log space"


@pytest.mark.parametrize("count", [expected_counts, viterbi_counts])
@given(seed=SEEDS)
@settings(max_examples=3)
def test_every_token_and_every_step_between_two_counts_once(count, seed):
    counts = count(draw_weights(seed), make_corpus(seed)).counts
    lengths = np.array(LENGTHS)
    wanted = [(lengths > 0).sum(), np.maximum(lengths - 1, 0).sum(), lengths.sum()]
    for family, total in zip(counts, wanted):
        np.testing.assert_allclose(float(family.sum()), total, rtol=1e-12)


def _sizes(jaxpr):
    """Numbers of elements of all arrays that a program makes, those of its loops included."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(made.aval.shape)) for made in equation.outvars)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from _sizes(getattr(inner, "jaxpr", inner))


def test_the_e_step_makes_no_array_of_tokens_by_vocabulary():
    rng = np.random.default_rng(0)
    words, tokens = 3000, 400
    corpus = word_corpus([rng.integers(words, size=10) for _ in range(tokens // 10)], words)
    weights = draw_weights(0, words=words)
    programs = [jax.make_jaxpr(_counts.certified_tally)(weights, shard) for shard in corpus.shards]
    sizes = [size for program in programs for size in _sizes(program.jaxpr)]
    assert words * LABELS in sizes  # the counts of emissions: inner programs were looked at
    # A shard is a share of the tokens; none of its arrays is as large as a tenth of its table.
    assert max(sizes) < tokens / len(corpus.shards) * words / 10
