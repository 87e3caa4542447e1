"""Products with the Jacobian of the E-step as covariances, against enumeration and autodiff."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jaxseq.hmm import Multinomials, linearise_counts, mean_counts
from jaxseq.hmm import _corpus as _em_corpus
from jaxseq.hmm import _jacobian as _em_products
from jaxseq.hmm._jacobian import _linearise
from tests.hmm.enumerated import SEEDS, draw_weights, make_corpus

FREE = [
    names for number in (1, 2, 3) for names in itertools.combinations(Multinomials._fields, number)
]
FROZEN = ("initial", "emission")
"""Those that move where transitions do not."""


def moves_of(seed: int, weights: Multinomials, free: tuple[str, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, 9])
    return {name: rng.normal(size=getattr(weights, name).shape) for name in free}


def by_autodiff(weights: Multinomials, corpus, moves: dict[str, np.ndarray]) -> dict:
    tangent = jax.tree.map(jnp.zeros_like, weights)._replace(
        **{name: jnp.asarray(move) for name, move in moves.items()}
    )
    change = jax.jvp(lambda p: mean_counts(p, corpus, method="log"), (weights,), (tangent,))[1]
    number = corpus.num_sequences
    return {name: number * np.asarray(getattr(change, name)) for name in moves}


@pytest.mark.parametrize("free", FREE, ids="+".join)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_every_choice_of_families(free, seed):
    """Packed rows with padding, against autodiff in log space."""
    weights, corpus = draw_weights(seed), make_corpus(seed)
    moves = moves_of(seed, weights, free)
    (shard,) = corpus.shards
    _, multiply = linearise_counts(weights, shard, free)
    found, expected = multiply(moves), by_autodiff(weights, corpus, moves)
    assert set(found) == set(free)
    for name in free:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-9)


def test_several_blocks_and_partial_labels(monkeypatch):
    monkeypatch.setattr(_em_corpus, "MOST_ROWS", 2)
    weights, corpus = draw_weights(3), make_corpus(3, labelled="partial")
    (shard,) = corpus.shards
    assert shard.words.shape[0] > 1
    moves = moves_of(3, weights, FROZEN)
    counts, multiply = linearise_counts(weights, shard, FROZEN)
    found, expected = multiply(moves), by_autodiff(weights, corpus, moves)
    for name, family in mean_counts(weights, corpus)._asdict().items():
        mean = np.asarray(getattr(counts, name)) / corpus.num_sequences
        np.testing.assert_allclose(mean, family, rtol=1e-12, atol=1e-12)
    for name in FROZEN:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-9)


def test_is_the_route_that_is_taken(monkeypatch):
    """Nothing is differentiated, unless a free parameter is 0, or transitions move."""
    weights, corpus = draw_weights(0), make_corpus(0)
    taken = []
    monkeypatch.setattr(
        "jaxseq.hmm._jacobian._linearise",
        lambda *given: taken.append(given) or _linearise(*given),
    )
    linearise_counts(weights, corpus.shards[0], ("emission",))
    assert not taken
    zero = weights._replace(emission=weights.emission.at[0, 0].set(0))
    linearise_counts(zero, corpus.shards[0], ("emission",))
    assert len(taken) == 1
    linearise_counts(zero, corpus.shards[0], ("initial",))  # what does not move may be 0
    assert len(taken) == 1
    linearise_counts(weights, corpus.shards[0], ("transition",))
    assert len(taken) == 2


@pytest.mark.parametrize("free", [("emission",), ("transition", "emission")], ids="+".join)
def test_narrow_products_of_wide_counts(free):
    weights, corpus = draw_weights(5), make_corpus(5)
    moves = moves_of(5, weights, free)
    (shard,) = corpus.shards
    counts, multiply = linearise_counts(weights, shard, free, dtype=jnp.float32)
    assert counts.emission.dtype == jnp.float64
    found, expected = multiply(moves)["emission"], by_autodiff(weights, corpus, moves)["emission"]
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(np.asarray(found) - expected).max() > 0  # in float32 indeed


def test_what_underflows_in_float32_is_multiplied_in_float64():
    weights, corpus = draw_weights(6), make_corpus(6)
    far = weights._replace(transition=weights.transition.at[0].multiply(1e-30).at[0, 0].set(1.0))
    far = far._replace(emission=far.emission.at[:, 1].multiply(1e-25).at[0, 1].set(1.0))
    moves = {"emission": moves_of(6, far, ("emission",))["emission"] * np.asarray(far.emission)}
    _, multiply = linearise_counts(far, corpus.shards[0], ("emission",), dtype=jnp.float32)
    found, expected = multiply(moves)["emission"], by_autodiff(far, corpus, moves)["emission"]
    assert np.isfinite(np.asarray(found)).all()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_scale_cancels():
    weights, corpus = draw_weights(8), make_corpus(8)
    _, multiply = linearise_counts(weights, corpus.shards[0], FROZEN)
    for change in multiply({name: getattr(weights, name) for name in FROZEN}).values():
        np.testing.assert_allclose(change, 0, atol=1e-12)


def test_programs_are_compiled_once_a_shape():
    programs = (_em_products.linearise_shard, _em_products.multiply_shard)

    def run(seed):
        weights = draw_weights(seed)
        _, multiply = linearise_counts(weights, make_corpus(seed).shards[0], ("emission",))
        multiply(moves_of(seed, weights, ("emission",)))
        return [program._cache_size() for program in programs]

    sizes = run(0)
    assert min(sizes) > 0
    assert run(1) == run(2) == sizes
