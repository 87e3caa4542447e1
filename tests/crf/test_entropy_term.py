"""The entropy of a model on unlabelled sentences, in the objective, against every labelling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import Legal, Objective
from tests.crf import enumerated
from tests.crf.enumerated import draw_corpus
from tests.crf.test_objective import L2, draw_point, expected_gradient, make_spread

SEEDS = st.integers(0, 2**32 - 1)
GAMMAS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 10.0])


def entropy_and_gradient(corpus, theta, legal=None):
    """Σ w H(p), and its gradient −Cov[log p, features]."""
    value, gradient = 0.0, np.zeros_like(theta)
    for paths, weight in zip(enumerated.all_paths(corpus, legal), corpus.weights):
        features = paths.features[paths.legal]
        scores = features @ theta
        log_p = scores - np.log(np.exp(scores).sum())
        p = np.exp(log_p)
        value -= weight * (p * log_p).sum()
        gradient -= weight * (p * (log_p - (p * log_p).sum())) @ features
    return value, gradient


RICH = {"partial": True, "values": True}


def check(kind, seed, gamma, **options):
    labelled, unlabelled = draw_corpus(seed, **options), draw_corpus(seed + 1, **options)
    point, theta = draw_point(kind, labelled, seed)
    spread = make_spread(kind, labelled)
    objective = Objective(
        labelled.shards(2), spread, L2, unlabelled=unlabelled.shards(2), entropy_weight=gamma
    )
    value, gradient = objective(point)
    loss, by_theta = enumerated.loss_and_gradient(labelled, theta)
    entropy, entropy_by_theta = entropy_and_gradient(unlabelled, theta)
    squares = sum(float((np.asarray(leaf) ** 2).sum()) for leaf in jax.tree.leaves(point))
    wanted = loss + gamma * entropy + L2 / 2 * squares
    np.testing.assert_allclose(float(value), wanted, rtol=1e-10)
    by_hand = expected_gradient(kind, labelled, point, by_theta + gamma * entropy_by_theta, L2)
    for got, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(by_hand)):
        np.testing.assert_allclose(got, want, atol=1e-9 * max(1, np.abs(want).max(initial=0)))


@pytest.mark.parametrize("kind", ["dense", "tied"])
@given(seed=SEEDS, gamma=GAMMAS)
def test_the_objective_adds_the_entropy(kind, seed, gamma):
    check(kind, seed, gamma, **RICH)


def test_weights_of_observed_pairs_alone():
    check("observed", 9, 2.0, **RICH)


@given(seed=SEEDS)
def test_forbidden_transitions_carry_no_entropy(seed):
    legal = {
        "transitions": np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0]], bool),
        "start": np.array([1, 1, 0], bool),
        "stop": np.array([1, 1, 1], bool),
    }
    corpus = draw_corpus(seed, **RICH)
    point, theta = draw_point("dense", corpus, seed)
    spread = make_spread("dense", corpus)
    allowed = Legal(**{name: jnp.asarray(array) for name, array in legal.items()})
    objective = Objective([], spread, 0.0, allowed, corpus.shards(2), entropy_weight=1.0)
    value, gradient = objective(point)
    entropy, by_theta = entropy_and_gradient(corpus, theta, legal)
    np.testing.assert_allclose(float(value), entropy, rtol=1e-10)
    wanted = expected_gradient("dense", corpus, point, by_theta, 0.0)
    for got, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(wanted)):
        np.testing.assert_allclose(got, want, atol=1e-9)


def corpora(seed: int):
    """Labelled and unlabelled sentences, a point and the spread."""
    labelled, unlabelled = draw_corpus(seed, **RICH), draw_corpus(seed + 1, **RICH)
    point, theta = draw_point("dense", labelled, seed)
    return labelled, unlabelled, point, theta, make_spread("dense", labelled)


def same(left, right, tolerance=1e-12):
    for got, want in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_unlabelled_sentences_alone():
    """No labelled shard at all: the entropy and the penalty are left."""
    _, unlabelled, point, theta, spread = corpora(3)
    rest = unlabelled.shards(2)
    value, _ = Objective([], spread, 0.0, unlabelled=rest, entropy_weight=2.0)(point)
    wanted = 2 * entropy_and_gradient(unlabelled, theta)[0]
    np.testing.assert_allclose(float(value), wanted, rtol=1e-10)


def test_different_numbers_of_shards_give_the_same():
    labelled, unlabelled, point, _, spread = corpora(5)
    results = [
        Objective(
            labelled.shards(a), spread, L2, unlabelled=unlabelled.shards(b), entropy_weight=0.5
        )(point)
        for a, b in ((1, 2), (2, 1))
    ]
    same(results[0], results[1])


def test_the_weight_may_change_between_calls():
    labelled, unlabelled, point, theta, spread = corpora(7)
    objective = Objective(labelled.shards(2), spread, L2, unlabelled=unlabelled.shards(2))
    without = objective(point)
    same(without, Objective(labelled.shards(2), spread, L2)(point))
    objective.entropy_weight = 3.0
    entropy, _ = entropy_and_gradient(unlabelled, theta)
    np.testing.assert_allclose(objective(point)[0] - without[0], 3 * entropy, rtol=1e-9)
    objective.entropy_weight = 0.0
    same(objective(point), without)


def test_batches_taken_in_turn_add_up_to_the_whole():
    """And each is what an objective of its own says of it: nothing is left of the one before."""
    labelled, unlabelled, point, _, spread = corpora(8)
    shards, rest = labelled.shards(2), unlabelled.shards(2)
    in_turn = Objective([], spread, 0.0, entropy_weight=1.5)
    batches = [(shards[:1], rest[1:]), ([], rest[:1]), (shards[1:], [])]
    found = []
    for batch in batches:
        in_turn.take(*batch)
        found.append(jax.tree.map(np.array, in_turn(point)))
        alone = Objective(batch[0], spread, 0.0, unlabelled=batch[1], entropy_weight=1.5)
        same(found[-1], alone(point))
    whole = Objective(shards, spread, 0.0, unlabelled=rest, entropy_weight=1.5)(point)
    same(jax.tree.map(lambda *parts: sum(parts), *found), whole, 1e-11)
