"""Derivatives of an HMM's expected counts, against differences and each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jaxseq.hmm import expected_counts, linearise_mean_counts, mean_counts
from tests.hmm.enumerated import (
    LENGTHS,
    SEEDS,
    assert_counts,
    brute_force,
    draw_sequences,
    draw_weights,
    flat,
    make_corpus,
    normalised,
    unflatten,
)


@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.3]))
@settings(max_examples=4)
def test_jvp_of_the_e_step(seed, zeros):
    """Also where parameters are 0: differences are then taken on one side."""
    weights, sequences = draw_weights(seed, zeros=zeros), draw_sequences(seed)
    assume(np.isfinite(brute_force(weights, sequences)[1]))
    # It is not differentiable where a whole multinomial is 0.
    assume(all((family.sum(axis) > 0).all() for family, axis in zip(weights, (0, 1, 0))))
    rng = np.random.default_rng([seed, 4])
    move = jax.tree.map(
        lambda w: jnp.where(w > 0, rng.normal(size=w.shape), rng.random(w.shape)), weights
    )
    corpus, here, step, size = make_corpus(seed), flat(weights), flat(move), 1e-4
    number = sum(n > 0 for n in LENGTHS)

    def at(times):
        counts, _ = brute_force(unflatten(here + times * size * step, weights), sequences)
        return flat(counts) / number

    if zeros:
        expected = (-11 * at(0) + 18 * at(1) - 9 * at(2) + 2 * at(3)) / (6 * size)
    else:
        expected = (8 * (at(1) - at(-1)) - at(2) + at(-2)) / (12 * size)
    mean, change = jax.jvp(lambda p: mean_counts(p, corpus, method="scaled"), (weights,), (move,))
    np.testing.assert_allclose(flat(mean), at(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(flat(change), expected, rtol=1e-4, atol=1e-4)
    linear_mean, apply = linearise_mean_counts(weights, corpus)
    np.testing.assert_allclose(flat(linear_mean), at(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(flat(apply(move)), flat(change), rtol=1e-9, atol=1e-9)


@given(seed=SEEDS)
@settings(max_examples=3)
def test_both_spaces_have_the_same_derivatives(seed):
    weights, corpus = draw_weights(seed), make_corpus(seed)
    move = draw_weights(seed + 1)
    scaled, log = (
        jax.jvp(lambda p: expected_counts(p, corpus, method=method), (weights,), (move,))[1]
        for method in ("scaled", "log")
    )
    np.testing.assert_allclose(flat(log.counts), flat(scaled.counts), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log.log_likelihood, scaled.log_likelihood, rtol=1e-9)


@given(seed=SEEDS)
@settings(max_examples=3)
def test_gradient_of_the_log_likelihood_is_the_expected_counts(seed):
    """∂ log P(x) / ∂ log θ, by reverse mode, on the simplex: counts less n times θ."""
    weights, corpus = draw_weights(seed), make_corpus(seed)
    gradient = jax.grad(lambda p: expected_counts(p, corpus).log_likelihood)(weights)
    counts, _ = brute_force(weights, draw_sequences(seed))
    theta = normalised(weights)
    for family, axis in zip(range(3), (0, 1, 0)):
        total = counts[family].sum(axis, keepdims=True)
        found = np.asarray(gradient[family] * weights[family])
        np.testing.assert_allclose(found, counts[family] - total * theta[family], atol=1e-9)


def test_frozen_families_do_not_move():
    weights, corpus, move = draw_weights(0), make_corpus(0), draw_weights(1)
    still = move._replace(transition=jnp.zeros_like(move.transition))
    _, whole = linearise_mean_counts(weights, corpus)
    _, frozen = linearise_mean_counts(weights, corpus, frozen=("transition",))
    found, expected = frozen(move), whole(still)
    assert (np.asarray(found.transition) == 0).all()
    assert_counts(found, expected._replace(transition=jnp.zeros_like(move.transition)), 1e-12)
