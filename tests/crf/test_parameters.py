"""How learnt weights spread into the table of a model, and back."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import Legal, Spread, mask_forbidden, observed_places

ATTRIBUTES, LABELS = 4, 3
PAIRS = [(0, 1), (0, 2), (2, 0), (3, 2)]
SPREADS = {
    "dense": Spread(ATTRIBUTES, LABELS),
    "observed": Spread(ATTRIBUTES, LABELS, places=jnp.array([8 * a + s for a, s in PAIRS])),
    "tied": Spread(ATTRIBUTES, LABELS, groups=jnp.array([0, 1, 0]), num_groups=2),
}
SEEDS = st.integers(0, 2**32 - 1)


def draw(kind: str, seed: int):
    """Random parameters; where the model has none, 0."""
    rng = np.random.default_rng(seed)
    point = SPREADS[kind].zeros(2, jnp.float64)
    weights = rng.normal(size=point.weights.shape)
    if kind == "dense":
        weights[:, LABELS:] = 0
    if kind != "observed":
        weights[-1] = 0
    others = (jnp.asarray(rng.normal(size=leaf.shape)) for leaf in point[1:])
    return type(point)(jnp.asarray(weights), *others)


def test_tables_hold_the_weights_in_their_places():
    point = draw("observed", 0)
    wanted = np.zeros((ATTRIBUTES + 1, 8))
    for pair, weight in zip(PAIRS, np.asarray(point.weights)):
        wanted[pair] = weight
    np.testing.assert_array_equal(SPREADS["observed"].to_table(point.weights), wanted)
    point = draw("tied", 0)
    wanted = np.zeros((ATTRIBUTES + 1, 8))
    wanted[:, :LABELS] = np.asarray(point.weights)[:, [0, 1, 0]]
    np.testing.assert_array_equal(SPREADS["tied"].to_table(point.weights), wanted)


@pytest.mark.parametrize("kind", SPREADS)
@given(seed=SEEDS)
def test_gradients_come_back_by_the_transpose(kind, seed):
    spread, weights = SPREADS[kind], draw(kind, seed).weights
    gradient = jnp.asarray(np.random.default_rng([seed, 1]).normal(size=spread.shape))
    forth = jnp.vdot(spread.to_table(weights), gradient)
    np.testing.assert_allclose(forth, jnp.vdot(weights, spread.from_table(gradient)), atol=1e-10)


@pytest.mark.parametrize("kind", SPREADS)
@pytest.mark.parametrize("seed", range(2))
def test_models_give_their_parameters_back(kind, seed):
    spread, point = SPREADS[kind], draw(kind, seed)
    model = spread.model(point)
    assert model.weights.shape == (ATTRIBUTES, LABELS)
    for name, got, want in zip(point._fields, spread.parameters(model), point):
        np.testing.assert_array_equal(got, want, err_msg=name)


def test_forbidden_scores_are_minus_infinity_and_come_back_as_zero():
    spread, point = SPREADS["dense"], draw("dense", 1)
    legal = Legal(
        jnp.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], bool), jnp.array([0, 1, 1], bool),
        jnp.array([1, 1, 0], bool),
    )  # fmt: skip
    model = spread.model(point, legal)
    masked = (model.transitions, model.start, model.stop)
    for array, allowed, score in zip(masked, legal, point[1:]):
        np.testing.assert_array_equal(array, np.where(allowed, score, -np.inf))
    back = spread.parameters(model)
    np.testing.assert_array_equal(back.start, [0, *np.asarray(point.start)[1:]])
    assert float(back.transitions[0, 2]) == 0
    assert all(a is b for a, b in zip(mask_forbidden(point, None), point[1:4]))


@given(SEEDS, st.booleans())
def test_observed_places_are_pairs_that_occur_together(seed, partial):
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, ATTRIBUTES, (5, 3)).astype(np.int32)
    known = [{int(label)} for label in rng.integers(LABELS, size=5)]
    if partial:
        known[1], known[3] = {0, 2}, {0, 1, 2}
    gold = np.array([min(k) if len(k) == 1 else -1 for k in known], np.int32)
    allowed = np.array([[s in k for s in range(LABELS)] for k in known]) if partial else None
    wanted = {
        int(a) * 8 + label
        for row, k in zip(ids, known)
        for a in row
        for label in k
        if a >= 0 and len(k) < LABELS
    }
    found = observed_places(ids, gold, allowed, ATTRIBUTES, LABELS)
    assert found.tolist() == sorted(wanted)


def test_frequent_attributes_have_all_labels():
    ids = np.array([[0, 1], [0, -1], [0, 2]], np.int32)
    gold = np.array([0, 1, 2], np.int32)
    found = observed_places(ids, gold, None, ATTRIBUTES, LABELS, dense_from=3)
    assert found.tolist() == [0, 1, 2, 8 + 0, 16 + 2]
    found = observed_places(ids, gold, None, ATTRIBUTES, LABELS, dense_from=0)
    assert found.tolist() == [8 * a + s for a in range(ATTRIBUTES) for s in range(LABELS)]


def test_transitions_that_are_not_learnt_are_zero():
    learnt = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 1]], bool)
    spread = Spread(ATTRIBUTES, LABELS, transitions=jnp.asarray(learnt))
    point = draw("dense", 2)
    back = spread.parameters(spread.model(point))
    np.testing.assert_array_equal(back.transitions, np.where(learnt, point.transitions, 0))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_zeros_have_the_dtype_asked_for(dtype):
    for spread in SPREADS.values():
        point = spread.zeros(2, dtype)
        assert {leaf.dtype for leaf in point} == {np.dtype(dtype)}
        assert not any(leaf.any() for leaf in point)
    assert SPREADS["dense"].zeros().edge_weights is None
