"""The hidden Markov model: its probabilities, its chains, and what it refuses."""

from __future__ import annotations

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxseq
from jaxseq.hmm import HMM, Multinomials

LABELS, WORDS, TOKENS = 3, 5, 4
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int, zeros: float = 0.0, dtype=np.float64) -> list[np.ndarray]:
    """Weights of the three families, some of them 0."""
    rng = np.random.default_rng(seed)
    shapes = [(LABELS,), (LABELS, LABELS), (WORDS, LABELS)]
    weights = [rng.gamma(1.0, size=shape) * (rng.random(shape) >= zeros) for shape in shapes]
    return [array.astype(dtype) for array in weights]


def joint(weights: list[np.ndarray], words, path) -> float:
    """P(x, y), factor by factor."""
    initial, transition, emission = weights
    probability = initial[path[0]] / initial.sum()
    for t, (word, label) in enumerate(zip(words, path)):
        column = emission[:, label]
        probability *= column[word] / column.sum() if column.sum() else 0
        if t:
            row = transition[path[t - 1]]
            probability *= row[label] / row.sum() if row.sum() else 0
    return float(probability)


@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.4]))
def test_path_scores_are_log_joint_probabilities(seed, zeros):
    weights = draw(seed, zeros)
    weights[0][0] = 1.0  # a multinomial of zeros has its own test
    words = np.random.default_rng([seed, 1]).integers(WORDS, size=TOKENS)
    chain = HMM(*weights).chain(words)
    paths = list(product(range(LABELS), repeat=TOKENS))
    expected = np.array([joint(weights, words, path) for path in paths])
    scores = jax.vmap(lambda path: jaxseq.path_score(chain, path))(jnp.array(paths))
    np.testing.assert_allclose(np.exp(scores), expected, rtol=1e-12)
    assert (np.isneginf(scores) == (expected == 0)).all()
    total = np.exp(float(jaxseq.log_partition(chain)))
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-12, atol=1e-300)


@given(seed=SEEDS)
def test_float32_is_kept_and_close(seed):
    words = np.random.default_rng([seed, 2]).integers(WORDS, size=TOKENS)
    single, double = (HMM(*draw(seed, dtype=dtype)) for dtype in (np.float32, np.float64))
    assert single.chain(words).nodes.dtype == jnp.float32
    values = [float(jaxseq.log_partition(hmm.chain(words))) for hmm in (single, double)]
    np.testing.assert_allclose(*values, rtol=1e-5)


def test_probabilities_of_all_sequences_add_up_to_one():
    hmm = HMM(*draw(3))
    words = jnp.array(list(product(range(WORDS), repeat=3)))
    values = jax.vmap(lambda w: jaxseq.log_partition(hmm.chain(w)))(words)
    np.testing.assert_allclose(np.exp(values).sum(), 1, rtol=1e-12)


@pytest.mark.parametrize("length", [1, TOKENS - 1])
@given(seed=SEEDS)
@settings(max_examples=3)
def test_padding_changes_nothing(length, seed):
    """Neither values nor gradients, whatever stands there, even no word at all."""
    words = np.random.default_rng([seed, 3]).integers(WORDS, size=TOKENS)
    weights = Multinomials(*map(jnp.asarray, draw(seed)))
    padded = words.copy()
    padded[length:] = [99, -7, WORDS][: TOKENS - length]

    def value(weights, words, length=None):
        return jaxseq.log_partition(HMM(*weights).chain(words, length))

    padded_value, padded_gradient = jax.value_and_grad(value)(weights, padded, length)
    cut_value, cut_gradient = jax.value_and_grad(value)(weights, words[:length])
    np.testing.assert_allclose(padded_value, cut_value, rtol=1e-9)
    for here, there in zip(padded_gradient, cut_gradient):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)


def test_impossible_sequence_has_minus_infinity_and_no_gradient():
    weights = [np.ones(2), np.ones((2, 2)), np.array([[1.0, 1.0], [0.0, 0.0]])]

    def value(emission):
        return jaxseq.log_partition(HMM(weights[0], weights[1], emission).chain(np.array([0, 1])))

    assert float(value(jnp.asarray(weights[2]))) == -np.inf
    assert (np.asarray(jax.grad(value)(jnp.asarray(weights[2]))) == 0).all()


def test_a_multinomial_of_zeros_stays_so():
    counts = Multinomials(jnp.zeros(2), jnp.array([[1.0, 3.0], [0.0, 0.0]]), jnp.eye(2))
    found = counts.normalised()
    assert found.initial.tolist() == [0, 0]
    assert found.transition.tolist() == [[0.25, 0.75], [0, 0]]
    tangent = jax.jvp(Multinomials.normalised, (counts,), (counts,))[1]
    assert all(np.isfinite(family).all() for family in tangent)


def test_emission_is_normalised_over_words():
    emission = HMM(*draw(0)).probabilities.emission
    np.testing.assert_allclose(emission.sum(0), 1, rtol=1e-12)
    assert emission.shape == (WORDS, LABELS)


def test_words_outside_the_vocabulary_are_the_unknown_word():
    hmm = HMM(*draw(0), unknown=2)
    found = hmm.chain(np.array([1, -1, 77])).nodes
    np.testing.assert_array_equal(found, hmm.chain(np.array([1, 2, 2])).nodes)


def test_words_outside_the_vocabulary_without_an_unknown_word():
    hmm = HMM(*draw(0))
    with pytest.raises(ValueError, match=r"words\[1\]: expected 0 … 4.*got 5"):
        hmm.chain(np.array([0, 5]))
    value = eqx.filter_jit(lambda words: jaxseq.log_partition(hmm.chain(words)))
    assert float(value(jnp.array([0, 5]))) == -np.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial": np.ones(2)}, r"initial: expected shape \[3\].*got \[2\]"),
        ({"transition": np.ones((3, 2))}, r"transition: expected shape \[3, 3\].*got \[3, 2\]"),
        ({"emission": np.ones(3)}, r"emission: expected shape \[words, labels\]"),
        ({"emission": np.ones((5, 3), int)}, "emission: expected dtype float32 or float64"),
        ({"initial": np.array([1, -1, 1.0])}, r"initial\[1\]: expected a finite number ≥ 0"),
        ({"emission": np.full((5, 3), np.nan)}, r"emission\[0, 0\]: expected a finite number"),
        ({"unknown": 5}, "unknown: expected a word, 0 … 4"),
    ],
)
def test_refusals(change, message):
    given = dict(zip(Multinomials._fields, draw(0))) | change
    with pytest.raises(ValueError, match=message):
        HMM(**given)


@pytest.mark.parametrize("words", [np.zeros(0, int), np.zeros((2, 2), int), np.zeros(3)])
def test_refuses_what_are_no_words(words):
    with pytest.raises(ValueError, match=r"words: expected integers of shape \[n\]"):
        HMM(*draw(0)).chain(words)
