"""The objective and its gradient against every labelling of every sentence."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import Legal, Objective, Parameters, Spread, observed_places
from tests.crf import enumerated
from tests.crf.enumerated import ATTRIBUTES, LABELS, draw_corpus

SEEDS = st.integers(0, 2**32 - 1)
GROUPS = [0, 1, 0]
L2 = 0.75


def seen_pairs(corpus) -> list[tuple[int, int]]:
    """Pairs (attribute, label) that occur together, token by token."""
    found = set()
    for ids, known in zip(corpus.features.ids, corpus.known):
        if len(known) < LABELS:
            found |= {(int(a), label) for a in ids if a >= 0 for label in known}
    return sorted(found)


def make_spread(kind: str, corpus) -> Spread:
    if kind == "observed":
        labels = corpus.labels()
        places = observed_places(
            corpus.features.ids, labels.gold, labels.allowed, ATTRIBUTES, LABELS
        )
        learnt = np.ones((LABELS, LABELS), bool)
        learnt[2, 1] = False
        return Spread(
            ATTRIBUTES, LABELS, places=jnp.asarray(places), transitions=jnp.asarray(learnt)
        )
    if kind == "tied":
        return Spread(ATTRIBUTES, LABELS, groups=jnp.array(GROUPS), num_groups=2)
    return Spread(ATTRIBUTES, LABELS)


def draw_point(kind: str, corpus, seed: int, dtype=np.float64):
    """Random `Parameters`, and the same as the vector of the brute-force model."""
    rng = np.random.default_rng([seed, 1])
    arrays = {name: rng.normal(size=shape) for name, shape in enumerated.SHAPES.items()}
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    if corpus.features.edge_ids is None:
        arrays["edge_weights"][:] = 0
    full = arrays["weights"]
    if kind == "observed":
        arrays["transitions"][2, 1] = 0
        pairs = seen_pairs(corpus)
        learnt = np.array([full[pair] for pair in pairs], dtype)
        full = np.zeros_like(full)
        for pair, weight in zip(pairs, learnt):
            full[pair] = weight
    elif kind == "tied":
        learnt = np.zeros((ATTRIBUTES + 1, 2), dtype)
        learnt[:-1] = full[:, :2]
        full = full[:, GROUPS]
    else:
        learnt = np.zeros((ATTRIBUTES + 1, 8), dtype)
        learnt[:-1, :LABELS] = full
    pairs = None if corpus.features.edge_ids is None else jnp.asarray(arrays["edge_weights"])
    point = Parameters(
        jnp.asarray(learnt), *(jnp.asarray(arrays[n]) for n in ("transitions", "start", "stop")),
        pairs,
    )  # fmt: skip
    return point, enumerated.flatten({**arrays, "weights": full})


def expected_gradient(kind: str, corpus, point: Parameters, by_theta: np.ndarray, l2: float):
    """The brute-force gradient in the places of `Parameters`, with the penalty's."""
    arrays = enumerated.unflatten(by_theta)
    full = arrays["weights"]
    if kind == "observed":
        weights = np.array([full[pair] for pair in seen_pairs(corpus)])
    elif kind == "tied":
        weights = np.zeros((ATTRIBUTES + 1, 2))
        for label, group in enumerate(GROUPS):
            weights[:-1, group] += full[:, label]
    else:
        weights = np.zeros((ATTRIBUTES + 1, 8))
        weights[:-1, :LABELS] = full
    gradient = Parameters(
        weights, *(arrays[name] for name in ("transitions", "start", "stop", "edge_weights"))
    )
    if point.edge_weights is None:
        gradient = gradient._replace(edge_weights=None)
    gradient = jax.tree.map(lambda g, p: g + l2 * np.asarray(p), gradient, point)
    if kind == "observed":
        gradient.transitions[2, 1] = 0
    return gradient


def check(kind, corpus, seed, *, shards=2, legal=None, tolerance=1e-10, dtype=np.float64):
    point, theta = draw_point(kind, corpus, seed, dtype)
    spread = make_spread(kind, corpus)
    given_legal = None if legal is None else Legal(**{k: jnp.asarray(v) for k, v in legal.items()})
    value, gradient = Objective(corpus.shards(shards), spread, L2, given_legal)(point)
    by_hand, by_theta = enumerated.loss_and_gradient(corpus, theta, legal)
    squares = sum(float((np.asarray(leaf) ** 2).sum()) for leaf in jax.tree.leaves(point))
    np.testing.assert_allclose(float(value), by_hand + L2 / 2 * squares, rtol=tolerance)
    wanted = expected_gradient(kind, corpus, point, by_theta, L2)
    assert jax.tree.structure(gradient) == jax.tree.structure(point)
    for name, got, want in zip(Parameters._fields, gradient, wanted):
        if want is not None:
            scale = max(1, np.abs(want).max(initial=0))
            np.testing.assert_allclose(got, want, atol=tolerance * scale, err_msg=name)
    return point, gradient


CASES = {
    "known": {},
    "values": {"values": True},
    "partial": {"partial": True},
    "partial values": {"partial": True, "values": True},
    "pairs": {"pairs": True},
    "pairs partial values": {"pairs": True, "partial": True, "values": True},
}


@pytest.mark.parametrize("case", CASES)
@given(seed=SEEDS)
def test_dense_objective_is_that_of_all_labellings(case, seed):
    check("dense", draw_corpus(seed, **CASES[case]), seed)


@pytest.mark.parametrize("case", ["known", "partial values"])
@pytest.mark.parametrize("kind", ["observed", "tied"])
def test_other_weight_sets_learn_the_same_model(kind, case):
    check(kind, draw_corpus(2, **CASES[case]), 2)


@pytest.mark.parametrize("kind", ["observed", "tied"])
def test_other_weight_sets_with_pairs(kind):
    check(kind, draw_corpus(3, pairs=True), 3)


LEGAL = {
    "transitions": np.array([[1, 1, 1], [1, 1, 0], [1, 0, 1]], bool),
    "start": np.array([1, 1, 0], bool),
    "stop": np.array([1, 0, 1], bool),
}


def possible(corpus) -> bool:
    paths = enumerated.all_paths(corpus, LEGAL)
    return all((p.legal & p.agrees).any() for p in paths)


@cache
def possible_seeds(pairs: bool) -> list[int]:
    """Corpora of partial labels, each sentence of which some legal labelling agrees with."""
    drawn = range(4000)
    found = (s for s in drawn if possible(draw_corpus(s, partial=True, pairs=pairs)))
    return [next(found) for _ in range(3)]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_forbidden_transitions_starts_and_stops_have_no_mass(which, pairs):
    seed = possible_seeds(pairs)[which]
    corpus = draw_corpus(seed, partial=True, pairs=pairs)
    point, gradient = check("dense", corpus, seed, legal=LEGAL)
    np.testing.assert_allclose(gradient.transitions[1, 2], L2 * point.transitions[1, 2])
    np.testing.assert_allclose(gradient.start[2], L2 * point.start[2])


def test_labels_that_no_legal_labelling_agrees_with_have_an_infinite_loss():
    corpus = draw_corpus(0)
    corpus.known[0] = {2}  # forbidden at a start
    point, _ = draw_point("dense", corpus, 0)
    legal = Legal(**{name: jnp.asarray(array) for name, array in LEGAL.items()})
    value, _ = Objective(corpus.shards(2), make_spread("dense", corpus), L2, legal)(point)
    assert float(value) == np.inf


@pytest.mark.parametrize("case", ["partial values", "pairs"])
def test_number_of_shards_does_not_matter(case):
    corpus = draw_corpus(7, **CASES[case])
    point, _ = draw_point("dense", corpus, 7)
    spread = make_spread("dense", corpus)
    results = [Objective(corpus.shards(number), spread, L2)(point) for number in (1, 2)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), *results)


def test_weights_of_sentences_are_counts_of_copies():
    corpus = draw_corpus(5, weighted=False)
    point, _ = draw_point("dense", corpus, 5)
    spread = make_spread("dense", corpus)
    doubled = enumerated.Corpus(corpus.features, corpus.known, corpus.weights * 2)
    once, twice = (Objective(c.shards(2), spread, 0.0)(point) for c in (corpus, doubled))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(2 * a, b, atol=1e-12), once, twice)


@pytest.mark.parametrize("case", ["known", "partial values", "pairs"])
def test_single_precision_loses_digits_and_no_more(case):
    point, gradient = check(
        "dense", draw_corpus(11, **CASES[case]), 11, tolerance=3e-5, dtype=np.float32
    )
    for name, before, after in zip(Parameters._fields, point, gradient):
        if before is not None:
            assert after.dtype == before.dtype, name


@pytest.mark.parametrize("case", ["partial values", "pairs partial values"])
def test_gradient_is_the_slope_along_any_direction(case):
    corpus = draw_corpus(13, **CASES[case])
    point, _ = draw_point("dense", corpus, 13)
    direction, _ = draw_point("dense", corpus, 14)
    objective = Objective(corpus.shards(2), make_spread("dense", corpus), L2)
    slope = sum(jnp.vdot(g, d) for g, d in zip(objective(point)[1], direction) if d is not None)
    step = 1e-5

    def at(size):
        return objective(jax.tree.map(lambda p, d: p + size * d, point, direction))[0]

    np.testing.assert_allclose((at(step) - at(-step)) / (2 * step), slope, rtol=1e-7)


def test_gradient_is_that_of_automatic_differentiation():
    corpus = draw_corpus(17, **CASES["pairs partial values"])
    point, _ = draw_point("dense", corpus, 17)
    paths = enumerated.all_paths(corpus)
    features = np.concatenate([sentence.features for sentence in paths])
    agrees = np.concatenate([sentence.agrees for sentence in paths])
    sentence = np.repeat(np.arange(len(paths)), [len(one.agrees) for one in paths])

    @jax.jit
    def loss(point):
        arrays = (point.weights[:ATTRIBUTES, :LABELS], *point[1:])
        theta = jnp.concatenate([array.ravel() for array in arrays])
        total = L2 / 2 * sum((leaf**2).sum() for leaf in jax.tree.leaves(point))
        mass = jnp.exp(features @ theta)
        every, known = (
            jnp.log(jnp.zeros(len(paths)).at[sentence].add(part)) for part in (mass, mass * agrees)
        )
        return total + (corpus.weights * (every - known)).sum()

    wanted = jax.value_and_grad(loss)(point)
    got = Objective(corpus.shards(2), make_spread("dense", corpus), L2)(point)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10), got, wanted)


def test_corpus_of_empty_sentences_has_no_loss():
    features = enumerated.TokenFeatures(
        np.zeros((0, 4), np.int32), None, np.zeros(3, np.int64), None
    )
    corpus = enumerated.Corpus(features, [], np.ones(3))
    point, _ = draw_point("dense", draw_corpus(0), 0)
    value, gradient = Objective(corpus.shards(2), make_spread("dense", corpus), 0.0)(point)
    assert float(value) == 0
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))
