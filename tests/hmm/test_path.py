"""Paths of HMMs: fixed points of EM by the operator itself, dense answers, enumerated entropies."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.hmm import (
    HMM_SETTINGS,
    EMOperator,
    Multinomials,
    Smoothing,
    estimate_hmm,
    has_turned,
    hmm_path,
    homotopy_problem,
    label_entropy,
    word_corpus,
)
from jaxseq.homotopy import (
    Jacobian,
    PathOutcome,
    Problem,
    Structure,
    follow_path,
    leading_eigenvalues,
)
from jaxseq.homotopy._follow import Solver
from jaxseq.homotopy._linear import gmres, linearise_flat
from jaxseq.homotopy._problem import check_settings, flat_map
from jaxseq.homotopy._spectrum import lanczos

LABELS, WORDS = 2, 4
FROZEN = ("initial", "transition")


@cache
def _corpora():
    """Labels that words nearly tell, and unlabelled sequences with other habits."""
    rng = np.random.default_rng(0)
    known = [rng.integers(0, LABELS, 5).tolist() for _ in range(4)]
    words = [[2 * y + int(rng.integers(2)) for y in labels] for labels in known]
    others = [rng.integers(0, WORDS, int(n)).tolist() for n in (1, 3, 5, 4, 6, 2)]
    labelled = word_corpus(words, WORDS, labels=known, num_labels=LABELS, cores=2)
    return labelled, word_corpus(others, WORDS, cores=2)


@cache
def _path(frozen):
    return hmm_path(*_corpora(), frozen=frozen)


@pytest.mark.parametrize("frozen", [FROZEN, ()])
def test_every_point_is_a_fixed_point_of_em(frozen):
    found = _path(frozen)
    assert found.path.outcome is PathOutcome.REACHED_ONE
    for index, lam in enumerate(found.path.lam):
        step = EMOperator(*_corpora(), float(lam), frozen=frozen)
        point = found.parameters(index)
        following = step(point).following
        gap = sum(float(((a - b) ** 2).sum()) for a, b in zip(point, following))
        size = sum(
            float((family**2).sum())
            for family in found.path.parameters(index)
            if family is not None
        )
        assert np.sqrt(gap / size) < 1e-8


def test_the_default_settings_reach_the_end_in_single_precision():
    with jax.enable_x64(False):
        found = hmm_path(*_corpora(), frozen=FROZEN)
        assert found.path.points.dtype == np.float32
        assert found.path.outcome is PathOutcome.REACHED_ONE
        assert found.path.residual.max() <= 1e-5
        last = np.asarray(found.parameters(-1).emission)
    np.testing.assert_allclose(last, _path(FROZEN).parameters(-1).emission, atol=2e-4)


@pytest.mark.parametrize("name", ["tolerance", "tangent_tolerance"])
def test_a_tolerance_that_the_precision_cannot_reach_is_refused(name):
    settings = HMM_SETTINGS._replace(**{name: 9e-9})
    with pytest.raises(
        ValueError, match=f"^{name}: expected None, or at least.*float32, got 9e-09"
    ):
        hmm_path(*_corpora(), settings=settings, dtype=np.float32)


def test_it_begins_with_the_supervised_model():
    labelled, _ = _corpora()
    wanted = estimate_hmm(labelled, LABELS)
    for one, other in zip(_path(FROZEN).model(0).probabilities, wanted.probabilities):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    first, last = (_path(FROZEN).model(index).probabilities for index in (0, -1))
    np.testing.assert_array_equal(first.transition, last.transition)
    assert abs(first.emission - last.emission).max() > 1e-3


@pytest.mark.parametrize("frozen", [FROZEN, ()])
def test_the_dense_route_ends_at_the_same_place(frozen):
    problem = homotopy_problem(*_corpora(), frozen=frozen)
    dense = Problem(
        problem.expect, problem.constant, structure=problem.structure, axes=problem.axes
    )
    found = follow_path(dense, HMM_SETTINGS._replace(jacobian=Jacobian.DENSE))
    ours = _path(frozen).path
    ends = [jax.tree.leaves(path.parameters(-1)) for path in (ours, found)]
    for one, other in zip(*ends):
        np.testing.assert_allclose(one, other, atol=1e-7)
    wanted = leading_eigenvalues(dense, jnp.asarray(found.points[-1, :-1]), 2, dense=True).values
    np.testing.assert_allclose(ours.eigenvalues[-1], wanted, atol=1e-5)


@pytest.mark.parametrize("frozen", [FROZEN, ()])
def test_points_on_the_way_are_those_of_dense_matrices(frozen):
    """Newton's method with the matrix itself, from each λ of the path to the next."""
    settings = HMM_SETTINGS._replace(tolerance=1e-12, tangent_tolerance=1e-8)
    found = hmm_path(*_corpora(), frozen=frozen, settings=settings)
    path = found.path
    assert path.outcome is PathOutcome.REACHED_ONE
    assert (np.diff(path.lam) > 0).all()
    dense = Solver(
        found.problem,
        settings._replace(jacobian=Jacobian.DENSE, stretch=None, deflated=0, max_corrections=50),
    )
    point = path.points[0]
    for want in path.points[1:]:
        steps = np.linspace(point[-1], want[-1], 9)[1:]
        for lam in steps:  # short ones, as these are not foretold
            got = dense.land(point, float(lam), dense.base(point), np.inf)
            assert got.converged
            point = got.point
        np.testing.assert_allclose(point, want, atol=1e-7)


def test_linearising_is_differentiating():
    problem = homotopy_problem(*_corpora(), frozen=FROZEN)
    constant, expect = flat_map(problem)
    rng = np.random.default_rng(1)
    theta = np.asarray(constant) * rng.uniform(0.5, 2, problem.size)
    move = rng.normal(size=problem.size)
    value, slope = jax.jvp(expect, (jnp.asarray(theta),), (jnp.asarray(move),))
    linear = linearise_flat(problem, theta)
    np.testing.assert_allclose(linear.expected, value, rtol=1e-10)
    # Products are made in float32: the residual, which is not, says what a solution is worth.
    np.testing.assert_allclose(linear.product(move), slope, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 99), st.integers(1, 8), st.integers(1, 8))
def test_gmres_solves(seed, size, kept):
    rng = np.random.default_rng(seed)
    matrix = np.eye(size) + 0.2 * rng.normal(size=(size, size)) / size
    right = rng.normal(size=size)
    found, _ = gmres(lambda x: matrix @ x, right, 1e-11, kept, 50)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), atol=1e-8)


@given(st.integers(0, 99), st.integers(2, 8), st.integers(1, 9), st.integers(1, 3))
def test_what_gmres_leaves_is_told_without_a_product(seed, size, kept, restarts):
    rng = np.random.default_rng(seed)
    matrix = np.eye(size) + 0.5 * rng.normal(size=(size, size)) / size
    half, right = np.diag(rng.uniform(0.5, 2, size)), rng.normal(size=size)
    found, rest = gmres(
        lambda x: matrix @ x, right, 1e-3, kept, restarts, lambda x: half @ x
    )  # fmt: skip
    np.testing.assert_allclose(rest, right - matrix @ found, atol=1e-10)


@given(st.integers(0, 99), st.integers(2, 9))
def test_lanczos_finds_the_largest(seed, size):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(size, size))
    matrix = half @ half.T
    values, errors = lanczos(lambda x: matrix @ x, rng.normal(size=size), size, 2, 0.0)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1][:2], rtol=1e-8)
    assert (errors < 1e-6 * values[0]).all()


def test_a_scale_changes_nothing_but_lengths():
    def expect(x):
        return jnp.sin(x)[::-1] / 2

    constant, scale = jnp.array([1.0, 0.5]), jnp.array([1e-2, 10.0])
    plain = Problem(expect, constant, structure=Structure.GENERAL)
    scaled = Problem(expect, constant, structure=Structure.GENERAL, scale=scale)
    ends = [follow_path(problem).parameters(-1) for problem in (plain, scaled)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)
    for wrong in (jnp.array([1.0, 0.0]), jnp.ones(3)):
        with pytest.raises(ValueError, match="scale: expected"):
            Problem(expect, constant, structure=Structure.GENERAL, scale=wrong)


@given(st.integers(0, 99))
def test_entropy_is_that_of_all_labellings(seed):
    rng = np.random.default_rng(seed)
    theta = Multinomials(
        *(jnp.asarray(rng.random(shape)) for shape in ((2,), (2, 2), (3, 2)))
    ).normalised()
    pi, a, b = (np.asarray(family) for family in theta)
    sequences = [[0, 2, 1], [1], [2, 2]]
    wanted = 0.0
    for words in sequences:
        chances = []
        for labels in product(range(2), repeat=len(words)):
            chance = pi[labels[0]] * np.prod([a[i, j] for i, j in pairwise(labels)])
            chances.append(chance * np.prod([b[x, y] for x, y in zip(words, labels)]))
        share = np.array(chances) / sum(chances)
        wanted -= float((share * np.log(share)).sum())
    assert label_entropy(theta, word_corpus(sequences, 3, cores=2)) == pytest.approx(wanted)


def test_rules_choose_points():
    found = _path(())
    lam = found.path.lam
    monotone = found.select("monotone")
    assert (np.diff(lam[: monotone.index + 1]) > 0).all()
    best = found.select("max_entropy")
    assert found.entropies[best.index] == max(found.entropies[1:])
    assert best.index > 0
    assert len(found.entropies) == len(lam)
    near = abs(found.path.second_weight[:, None] * found.path.eigenvalues - 1).min(1)
    assert near[found.select("min_eigenvalue").index] == near.min()
    with pytest.raises(ValueError, match="rule: expected one of monotone"):
        found.select("oracle")


def test_it_can_stop_where_lambda_turns():
    stopped = hmm_path(*_corpora(), frozen=FROZEN, until=lambda path: len(path.lam) > 2)
    assert stopped.path.outcome is PathOutcome.INTERRUPTED
    assert not has_turned(stopped.path._replace(slope=np.array([0.5])))
    assert has_turned(stopped.path._replace(slope=np.array([0.5, -0.1])))


def test_bad_input_is_refused():
    labelled, unlabelled = _corpora()
    with pytest.raises(ValueError, match="a family to be left out"):
        homotopy_problem(labelled, unlabelled, frozen=("initial", "transition", "emission"))
    with pytest.raises(ValueError, match="settings: expected PathSettings, got 'euler'"):
        check_settings("euler", np.dtype(float))
    with pytest.raises(ValueError, match="frozen: expected some of"):
        homotopy_problem(labelled, unlabelled, frozen=("emissions",))
    with pytest.raises(ValueError, match="labelled: expected a label for each"):
        homotopy_problem(unlabelled, unlabelled)
    with pytest.raises(ValueError, match="at least one sequence"):
        homotopy_problem(labelled, word_corpus([], WORDS))
    with pytest.raises(ValueError, match=r"smoothing\.emission"):
        homotopy_problem(labelled, unlabelled, smoothing=Smoothing(emission=-1.0))
