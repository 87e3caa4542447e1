"""The published Jacobian of the E-step, against enumeration, autodiff and matrix-free products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from experiments.haffari2008 import _jacobian
from experiments.haffari2008._jacobian import published_jacobian
from jaxseq.hmm import (
    HMM,
    EMOperator,
    Multinomials,
    em,
    linearise_mean_counts,
    mean_counts,
    word_corpus,
)
from tests.hmm.enumerated import (
    LABELS,
    LENGTHS,
    SEEDS,
    WORDS,
    all_labellings,
    draw_labels,
    draw_sequences,
    draw_weights,
    flat,
    make_corpus,
    normalised,
)

NUMBER = sum(n > 0 for n in LENGTHS)
ROWS = {"initial": slice(0, 3), "transition": slice(3, 12), "emission": slice(12, 24)}


def enumerated_covariance(weights, sequences, possible=None) -> np.ndarray:
    """The mean over sequences of Cov[counts], from every labelling."""
    total = 0.0
    for q, words in enumerate(sequences):
        if len(words):
            mass, events = all_labellings(weights, words, None if possible is None else possible[q])
            if mass.sum() > 0:
                share = mass / mass.sum()
                mean = share @ events
                total = total + (events * share[:, None]).T @ events - np.outer(mean, mean)
    return np.asarray(total) / sum(len(words) > 0 for words in sequences)


def normalisation(weights) -> np.ndarray:
    """H, entry by entry: the derivatives of log Θ by Θ̃."""
    sizes = [np.size(family) for family in weights]
    matrix, start = np.zeros((sum(sizes), sum(sizes))), 0
    for family, axis, size in zip(map(np.asarray, weights), (0, 1, 0), sizes):
        owner = np.indices(family.shape)[1 - axis].ravel() if family.ndim == 2 else np.zeros(size)
        for one in range(size):
            of_one = owner == owner[one]
            matrix[start + one, start : start + size] -= of_one / family.ravel()[of_one].sum()
            matrix[start + one, start + one] += 1 / family.ravel()[one]
        start += size
    return matrix


@pytest.mark.parametrize("labelled", ["", "partial"])
@given(seed=SEEDS)
@settings(max_examples=5)
def test_is_the_covariance_of_the_counts_times_h(labelled, seed):
    weights = draw_weights(seed)
    possible = draw_labels(seed, partial=True)[0] if labelled else None
    covariance = enumerated_covariance(weights, draw_sequences(seed), possible)
    found = published_jacobian(weights, make_corpus(seed, labelled=labelled))
    expected = covariance @ normalisation(weights)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.3, 0.6]))
@settings(max_examples=8)
def test_three_ways_to_the_jacobian(seed, zeros):
    """Also where parameters, whole multinomials, or the probability of a sequence are 0."""
    weights, corpus = draw_weights(seed, zeros=zeros), make_corpus(seed)
    found = published_jacobian(weights, corpus)
    point, unravel = ravel_pytree(weights)
    mean = lambda x: ravel_pytree(mean_counts(unravel(x), corpus, method="scaled"))[0]  # noqa: E731
    by_autodiff = jax.jacfwd(mean)(point)
    size = max(1.0, float(jnp.abs(by_autodiff).max()))
    np.testing.assert_allclose(found, by_autodiff, rtol=1e-9, atol=1e-9 * size)
    _, product = linearise_mean_counts(weights, corpus, method="scaled")
    columns = [flat(product(unravel(unit))) for unit in np.eye(point.size)]
    np.testing.assert_allclose(found, np.array(columns).T, rtol=1e-9, atol=1e-9 * size)


@given(
    seed=SEEDS,
    labels=st.integers(1, 4),
    words=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
@settings(max_examples=2)
def test_any_shape(seed, labels, words, lengths):
    weights = draw_weights(seed, labels=labels, words=words)
    sequences = draw_sequences(seed, tuple(lengths), words)
    found = published_jacobian(weights, word_corpus(sequences, words, cores=1))
    expected = enumerated_covariance(weights, sequences) @ normalisation(weights)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(seed=SEEDS)
def test_single_words(seed):
    """Nothing to link: what is known is only the first label, which is that of the word."""
    weights, words = draw_weights(seed), np.random.default_rng(seed).integers(WORDS, size=6)
    found = np.asarray(published_jacobian(weights, word_corpus([[word] for word in words], WORDS)))
    assert (found[ROWS["transition"]] == 0).all()
    assert (found[:, ROWS["transition"]] == 0).all()
    per_word = found[ROWS["emission"]].reshape(WORDS, LABELS, -1)
    np.testing.assert_allclose(per_word.sum(0), found[ROWS["initial"]], atol=1e-12)
    initial, _, emission = normalised(weights)
    joint = initial * emission[words]
    share = joint / joint.sum(1, keepdims=True)
    # ∂ share_i / ∂ log π_j = share_i (δ_ij − share_j), and π = Θ̃ / ΣΘ̃.
    by_log = np.mean([np.diag(p) - np.outer(p, p) for p in share], axis=0)
    expected = by_log / np.asarray(weights.initial)
    np.testing.assert_allclose(found[:LABELS, :LABELS], expected, rtol=1e-9, atol=1e-12)


@given(seed=SEEDS)
def test_what_cannot_change(seed):
    """The scale of a multinomial changes nothing; how often a word occurs, nothing can change."""
    weights = draw_weights(seed)
    found = np.asarray(published_jacobian(weights, make_corpus(seed)))
    for name, family in zip(Multinomials._fields, weights):
        parts = found[:, ROWS[name]].reshape(-1, *family.shape) * np.asarray(family)
        axis = {"initial": 1, "transition": 2, "emission": 1}[name]
        np.testing.assert_allclose(parts.sum(axis), 0, atol=1e-12)
    np.testing.assert_allclose(found[ROWS["initial"]].sum(0), 0, atol=1e-12)
    np.testing.assert_allclose(found[ROWS["transition"]].sum(0), 0, atol=1e-12)
    of_words = found[ROWS["emission"]].reshape(WORDS, LABELS, -1)
    np.testing.assert_allclose(of_words.sum(1), 0, atol=1e-12)


@given(seed=SEEDS)
def test_spectrum_is_real_and_not_negative(seed):
    """It is similar to a symmetric matrix: Cov and H are, and have no negative eigenvalue."""
    values = np.linalg.eigvals(published_jacobian(draw_weights(seed), make_corpus(seed)))
    largest = np.abs(values).max()
    assert np.abs(values.imag).max() <= 1e-7 * largest
    assert values.real.min() >= -1e-7 * largest


@given(seed=SEEDS)
@settings(max_examples=2)
def test_no_eigenvalue_exceeds_1_where_em_has_converged(seed):
    """EM would leave a fixed point along such a direction; 1 itself is a ridge."""
    corpus, start = make_corpus(seed), HMM(*draw_weights(seed))
    found = em(start, EMOperator(None, corpus), tolerance=0.0, max_iterations=400)
    here = mean_counts(found.parameters, corpus)
    assume(np.abs(flat(mean_counts(here, corpus)) - flat(here)).max() < 1e-5)
    assert np.linalg.eigvals(published_jacobian(here, corpus)).real.max() <= 1 + 1e-3


def test_impossible_sequences_add_nothing():
    weights = draw_weights(0)
    weights = weights._replace(emission=weights.emission.at[WORDS - 1].set(0))
    possible, impossible = [0, 1, 2, 0], [1, WORDS - 1, 0]
    both = published_jacobian(weights, word_corpus([possible, impossible], WORDS))
    alone = published_jacobian(weights, word_corpus([possible], WORDS))
    np.testing.assert_allclose(2 * both, alone, rtol=1e-12, atol=1e-12)
    assert float(jnp.abs(alone).max()) > 0.01


def test_long_sequences_do_not_underflow():
    """400 words have a probability of about 1e-240, far below what float32 holds."""
    weights = draw_weights(1)
    corpus = word_corpus(draw_sequences(1, (400,)), WORDS, cores=1)
    found = published_jacobian(weights, corpus)
    move = draw_weights(2)
    _, product = linearise_mean_counts(weights, corpus)
    np.testing.assert_allclose(found @ flat(move), flat(product(move)), rtol=1e-9, atol=1e-8)
    single = jax.tree.map(lambda family: family.astype(jnp.float32), weights)
    rough = published_jacobian(single, corpus)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, found, rtol=1e-3, atol=1e-3 * float(jnp.abs(found).max()))


def test_one_program_a_padded_length():
    step, program = _jacobian.LENGTH_STEP, _jacobian._add_sequence
    weights = draw_weights(0)
    published_jacobian(weights, word_corpus([[0] * step, [0] * (step + 1)], WORDS))
    size = program._cache_size()
    lengths = (1, 2, step - 1, step, step + 1, 2 * step)
    published_jacobian(weights, word_corpus(draw_sequences(0, lengths), WORDS))
    assert program._cache_size() == size


def test_refusals():
    weights = draw_weights(0)
    with pytest.raises(ValueError, match="at least one sequence with a token, got none"):
        published_jacobian(weights, word_corpus([[]], WORDS))
    with pytest.raises(ValueError, match=r"expected 4 words.*got 5"):
        published_jacobian(weights, word_corpus([[0]], 5))
