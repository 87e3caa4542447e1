"""The semi-supervised objective as pure functions: against every labelling, central differences
and automatic differentiation; and its derivations row by row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import Legal, Objective, entropy_regularised_gradient, entropy_regularised_loss
from jaxseq.crf._score_gradient import BY_ROW
from tests.crf import enumerated
from tests.crf.enumerated import ATTRIBUTES, LABELS, draw_corpus
from tests.crf.test_entropy_term import RICH, entropy_and_gradient
from tests.crf.test_objective import (
    L2,
    LEGAL,
    draw_point,
    expected_gradient,
    make_spread,
    possible,
)

SEEDS = st.integers(0, 2**32 - 1)
GAMMAS = st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0, 5.0, 10.0]), st.floats(0, 10))
DERIVATIONS = list(BY_ROW)
PAIRS = {"pairs": True, "values": True, "partial": True}

# An answer that forbids nothing, so that one program serves with and without a scheme.
ALL_LEGAL = {name: np.ones_like(array) for name, array in LEGAL.items()}


def as_legal(legal):
    return Legal(**{name: jnp.asarray(array) for name, array in legal.items()})


def by_formulas(point, labelled, unlabelled, spread, legal, gamma, derivation):
    return entropy_regularised_gradient(
        point, labelled, unlabelled, spread,
        l2=L2, entropy_weight=gamma, legal=legal, entropy_gradient=derivation,
    )  # fmt: skip


def loss(point, labelled, unlabelled, spread, legal, gamma):
    return entropy_regularised_loss(
        point, labelled, unlabelled, spread, l2=L2, entropy_weight=gamma, legal=legal
    )


by_autodiff = jax.jit(jax.value_and_grad(loss))


class Problem:
    """A drawn problem: the arguments of the functions, and the answer by enumeration."""

    def __init__(self, seed, gamma, *, legal=ALL_LEGAL, dtype: Any = np.float64, **options):
        labelled, unlabelled = draw_corpus(seed, **options), draw_corpus(seed + 1, **options)
        self.point, theta = draw_point("dense", labelled, seed, dtype)
        spread = make_spread("dense", labelled)
        shards = (labelled.shards(1), unlabelled.shards(1))
        self.arguments = (*shards, spread, as_legal(legal), gamma)
        likelihood, by_theta = enumerated.loss_and_gradient(labelled, theta, legal)
        entropy, entropy_by_theta = entropy_and_gradient(unlabelled, theta, legal)
        squares = sum(float((np.asarray(leaf) ** 2).sum()) for leaf in jax.tree.leaves(self.point))
        self.value = likelihood + gamma * entropy + L2 / 2 * squares
        total = by_theta + gamma * entropy_by_theta
        self.gradient = expected_gradient("dense", labelled, self.point, total, L2)

    def check(self, found, tolerance=1e-9):
        value, gradient = found
        np.testing.assert_allclose(float(value), self.value, rtol=tolerance)
        assert jax.tree.structure(gradient) == jax.tree.structure(self.point)
        for got, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(self.gradient)):
            scale = max(1, np.abs(want).max(initial=0))
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


# ------------------------------------------------------------------------- the whole objective


@pytest.mark.parametrize("derivation", DERIVATIONS)
@given(seed=SEEDS, gamma=GAMMAS)
def test_the_gradient_is_that_of_all_labellings(derivation, seed, gamma):
    problem = Problem(seed, gamma, **RICH)
    problem.check(by_formulas(problem.point, *problem.arguments, derivation))


@given(seed=SEEDS, gamma=GAMMAS)
def test_autodiff_of_the_loss_is_that_of_all_labellings(seed, gamma):
    problem = Problem(seed, gamma, **RICH)
    problem.check(by_autodiff(problem.point, *problem.arguments))


@pytest.mark.parametrize("derivation", DERIVATIONS)
@given(seed=SEEDS, gamma=GAMMAS)
def test_attributes_of_pairs(derivation, seed, gamma):
    problem = Problem(seed, gamma, **PAIRS)
    problem.check(by_formulas(problem.point, *problem.arguments, derivation))


def test_the_loss_refuses_attributes_of_pairs():
    problem = Problem(0, 1.0, **PAIRS)
    with pytest.raises(ValueError, match="expected none with attributes of pairs"):
        loss(problem.point, *problem.arguments)


def test_forbidden_transitions_starts_and_stops():
    seed = next(seed for seed in range(4000) if possible(draw_corpus(seed, **RICH)))
    problem = Problem(seed, 2.5, legal=LEGAL, **RICH)
    found = [by_formulas(problem.point, *problem.arguments, kind) for kind in DERIVATIONS]
    for each in (*found, by_autodiff(problem.point, *problem.arguments)):
        problem.check(each)
        assert float(each[1].start[2]) == pytest.approx(L2 * float(problem.point.start[2]))


@pytest.mark.parametrize("options", [RICH, PAIRS], ids=["nodes", "pairs"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 10.0])
def test_the_gradient_is_the_slope_by_every_parameter(options, gamma):
    problem = Problem(21, gamma, **options)
    leaves, structure = jax.tree.flatten(problem.point)
    gradient = by_formulas(problem.point, *problem.arguments, "mann")[1]
    step = 1e-5
    for number, leaf in enumerate(leaves):
        slopes = np.zeros(leaf.shape)
        for place in np.ndindex(leaf.shape):
            ends = [
                by_formulas(
                    structure.unflatten(
                        [*leaves[:number], leaf.at[place].add(move), *leaves[number + 1 :]]
                    ),
                    *problem.arguments,
                    "mann",
                )[0]
                for move in (step, -step)
            ]
            slopes[place] = float(ends[0] - ends[1]) / (2 * step)
        got = np.asarray(jax.tree.leaves(gradient)[number])
        np.testing.assert_allclose(got, slopes, atol=1e-6 * max(1, np.abs(got).max()))


def test_single_precision_loses_digits_and_no_more():
    problem = Problem(22, 3.0, dtype=np.float32, **RICH)
    found = by_formulas(problem.point, *problem.arguments, "mann")
    problem.check(found, tolerance=2e-4)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float32)}


def test_weights_of_the_entropy_can_be_mapped_over():
    """vmap within jit, of which each member is the function by itself; with all labels known."""
    problems = Problem(23, 0.5, values=True), Problem(23, 4.0, values=True)
    fixed = (problems[0].point, *problems[0].arguments[:-1])
    gammas = jnp.array([0.5, 4.0])
    values = jax.jit(jax.vmap(lambda gamma: loss(*fixed, gamma)))(gammas)
    np.testing.assert_allclose(values, [problem.value for problem in problems], rtol=1e-9)
    problem = Problem(23, 0.0, **RICH)
    _, rest, spread, legal, _ = problem.arguments

    def by_weight(gamma):
        return by_formulas(problem.point, [], rest, spread, legal, gamma, "autodiff")

    found = jax.jit(jax.vmap(by_weight))(gammas)
    for place, gamma in enumerate((0.5, 4.0)):
        for many, one in zip(jax.tree.leaves(found), jax.tree.leaves(by_weight(gamma))):
            np.testing.assert_allclose(many[place], one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [RICH, PAIRS], ids=["nodes", "pairs"])
@pytest.mark.parametrize("derivation", DERIVATIONS)
def test_the_objective_of_training_is_the_same_function(derivation, options):
    problem = Problem(24, 2.0, **options)
    labelled, unlabelled, spread, legal, gamma = problem.arguments
    objective = Objective(
        labelled, spread, L2, legal, unlabelled, gamma, entropy_gradient=derivation
    )
    pure = by_formulas(problem.point, *problem.arguments, derivation)
    for got, want in zip(jax.tree.leaves(objective(problem.point)), jax.tree.leaves(pure)):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_without_sentences_the_penalty_is_left():
    problem = Problem(25, 1.0)
    value, gradient = entropy_regularised_gradient(
        problem.point, [], [], make_spread("dense", None), l2=L2, entropy_weight=1.0
    )
    squares = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(problem.point))
    assert float(value) == pytest.approx(L2 / 2 * squares)
    for got, at in zip(jax.tree.leaves(gradient), jax.tree.leaves(problem.point)):
        np.testing.assert_allclose(got, L2 * at)


def test_absent_attributes_have_no_weight_to_learn():
    """The row of the table that they point at counts for nothing, nor do labels that pad it."""
    problem = Problem(26, 10.0, **RICH)
    filled = problem.point.weights.at[ATTRIBUTES].set(5.0).at[:, LABELS:].set(-3.0)
    extra = L2 / 2 * float((filled**2).sum() - (problem.point.weights**2).sum())
    found = [
        by_formulas(problem.point._replace(weights=filled), *problem.arguments, kind)
        for kind in DERIVATIONS
    ]
    for value, gradient in (
        *found,
        by_autodiff(problem.point._replace(weights=filled), *problem.arguments),
    ):
        assert float(value) == pytest.approx(problem.value + extra)
        np.testing.assert_allclose(gradient.weights[ATTRIBUTES], L2 * filled[ATTRIBUTES])
        np.testing.assert_allclose(gradient.weights[:, LABELS:], L2 * filled[:, LABELS:])


# ------------------------------------------------------------------------------- one row

WIDTH = 7
ROW = {name: jax.jit(function) for name, function in BY_ROW.items()}


def draw_row(seed: int, forbidden: bool):
    """Scores, and links of sentences of 3, 1 and 2 tokens with a slot of padding at the end."""
    rng = np.random.default_rng(seed)
    nodes, pairs = rng.normal(size=(WIDTH, LABELS)), rng.normal(size=(WIDTH - 1, LABELS, LABELS))
    if forbidden:
        pairs[:, 1, 2], nodes[0, 0], nodes[3, 1] = -np.inf, -np.inf, -np.inf
    linked = np.array([1, 1, 0, 0, 1, 0], bool)
    valid = np.array([1, 1, 1, 1, 1, 1, 0], bool)
    return nodes, pairs, linked, valid


def entropy_of_sentence(nodes, pairs) -> float:
    scores = [
        sum(nodes[t, label] for t, label in enumerate(path))
        + sum(pairs[t, path[t], path[t + 1]] for t in range(len(path) - 1))
        for path in np.ndindex((LABELS,) * len(nodes))
    ]
    scores = np.array([score for score in scores if score > -np.inf])
    if not len(scores):
        return 0.0
    p = np.exp(scores - scores.max())
    p /= p.sum()
    return float(-(p * np.log(p)).sum())


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("derivation", DERIVATIONS)
@given(seed=SEEDS)
def test_a_row_adds_up_the_entropies_of_its_sentences(derivation, forbidden, seed):
    nodes, pairs, linked, valid = draw_row(seed, forbidden)
    shares, _, _ = ROW[derivation](nodes, pairs, linked, valid)
    wanted = [
        entropy_of_sentence(nodes[first:last], pairs[first : last - 1])
        for first, last in ((0, 3), (3, 4), (4, 6))
    ]
    got = [float(shares[first:last].sum()) for first, last in ((0, 3), (3, 4), (4, 7))]
    np.testing.assert_allclose(got, wanted, atol=1e-10)


@pytest.mark.parametrize("derivation", DERIVATIONS)
@given(seed=SEEDS, garbage=st.sampled_from([-1e3, -3.0, 8.0, 1e3]))
def test_scores_of_padding_and_between_sentences_do_not_matter(derivation, seed, garbage):
    nodes, pairs, linked, valid = draw_row(seed, True)
    plain = ROW[derivation](nodes, pairs, linked, valid)
    nodes[~valid], pairs[~linked] = garbage, -garbage
    shares, by_node, by_pair = ROW[derivation](nodes, pairs, linked, valid)
    for got, want in zip((shares, by_node, by_pair), plain):
        np.testing.assert_allclose(got, want, atol=1e-12)
    assert not np.asarray(shares)[~valid].any()
    assert not np.asarray(by_node)[~valid].any()
    assert not np.asarray(by_pair)[~linked].any()


@pytest.mark.parametrize("derivation", DERIVATIONS)
def test_a_sentence_without_a_legal_labelling_has_no_entropy_and_no_gradient(derivation):
    nodes, pairs, linked, valid = draw_row(32, False)
    nodes[1] = -np.inf
    shares, by_node, by_pair = ROW[derivation](nodes, pairs, linked, valid)
    assert not np.asarray(shares)[:3].any()
    assert not np.asarray(by_node)[:3].any()
    assert not np.asarray(by_pair)[:2].any()
    assert float(shares[3:].sum()) == pytest.approx(
        entropy_of_sentence(nodes[3:4], pairs[3:3]) + entropy_of_sentence(nodes[4:6], pairs[4:5])
    )


@pytest.mark.parametrize("derivation", DERIVATIONS)
def test_equal_scores_have_the_greatest_entropy_and_certain_ones_none(derivation):
    _, _, linked, valid = draw_row(0, False)
    flat = np.zeros((WIDTH, LABELS)), np.zeros((WIDTH - 1, LABELS, LABELS))
    shares, by_node, by_pair = ROW[derivation](*flat, linked, valid)
    assert float(shares.sum()) == pytest.approx(6 * np.log(LABELS))
    np.testing.assert_allclose(by_node, 0, atol=1e-12)
    np.testing.assert_allclose(by_pair, 0, atol=1e-12)
    sure = np.where(np.arange(LABELS) == 1, 400.0, -400.0) * np.ones((WIDTH, 1))
    for found in ROW[derivation](sure, flat[1], linked, valid):
        np.testing.assert_allclose(found, 0, atol=1e-9)
