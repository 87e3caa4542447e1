"""Problems with known paths, and small EM problems, for the tests of homotopy; and that they are
what they claim."""

from __future__ import annotations

import itertools
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.homotopy import Problem, Structure, freeze

# --------------------------------------------------------------------------- closed forms

S_SCALE = 0.3
S_FOLDS = ((0.75, 1.0), (0.6, 2.0))
"""(λ, first coordinate) at the folds of the S-curve."""


def s_lambda(x):
    """λ of the S-curve as a cubic of its coordinate: slope 0.9 (x − 1)(x − 2)."""
    return S_SCALE * (x**3 - 4.5 * x**2 + 6 * x)


def s_end() -> float:
    """The coordinate at which the S-curve reaches λ = 1."""
    roots = np.roots([S_SCALE, -4.5 * S_SCALE, 6 * S_SCALE, -1])
    return float(roots[np.abs(roots.imag) < 1e-9].real[0])


def s_map(x):
    """x = λ·E(x) is solved by `s_lambda`."""
    return 1 / (S_SCALE * (x**2 - 4.5 * x + 6))


def s_curve(dtype=jnp.float64) -> Problem:
    """The S-curve in one dimension."""
    return Problem(s_map, jnp.zeros(1, dtype), structure=Structure.SYMMETRIC)


def rotation(size: int, seed: int = 0) -> np.ndarray:
    """A fixed orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


@cache  # so that equal problems share compiled programs
def rotated_s_curve(size: int = 5) -> tuple[Problem, np.ndarray]:
    """The S-curve along one axis, with coordinates that it drives along others, all rotated."""
    turn = rotation(size)
    slopes = np.linspace(0.2, 0.7, size - 1)
    rest = np.linspace(1.0, -1.0, size - 1)

    def expect(theta):
        x = turn.T @ theta
        return turn @ jnp.concatenate([s_map(x[:1]), slopes * x[1:] + jnp.sin(x[0])])

    constant = turn @ np.concatenate([[0.0], rest])
    return Problem(expect, jnp.asarray(constant), structure=Structure.GENERAL), turn


def rotated_s_solution(size: int, lam, first) -> np.ndarray:
    """Coordinates of `rotated_s_curve` before rotation, from λ and the first of them."""
    slopes = np.linspace(0.2, 0.7, size - 1)
    rest = np.linspace(1.0, -1.0, size - 1)
    others = ((1 - lam) * rest + lam * np.sin(first)) / (1 - lam * slopes)
    return np.concatenate([[first], others])


@cache
def pitchfork() -> Problem:
    """x = λ tanh(2x) beside y = (1 − λ) + λ(y/4 + 1): another branch leaves x = 0 at λ = 1/2."""

    def expect(theta):
        x, y = theta
        return jnp.stack([jnp.tanh(2 * x), y / 4 + 1])

    return Problem(expect, jnp.array([0.0, 1.0]), structure=Structure.SYMMETRIC)


@cache
def transcritical() -> Problem:
    """x = λ(2.5x − x²): the branches x = 0 and x = 2.5 − 1/λ cross at λ = 0.4."""

    def expect(theta):
        x, y = theta
        return jnp.stack([2.5 * x - x**2, y / 4 + 1])

    return Problem(expect, jnp.array([0.0, 1.0]), structure=Structure.SYMMETRIC)


# --------------------------------------------------------------------------- EM


class MixtureStep(eqx.Module):
    """Mean expected counts of a mixture of multinomials, {prior [k], words [k, v]}."""

    documents: jax.Array

    def __call__(self, tilde):
        prior = tilde["prior"] / tilde["prior"].sum()
        words = tilde["words"] / tilde["words"].sum(-1, keepdims=True)
        scores = jnp.log(prior) + self.documents @ jnp.log(words).T
        posterior = jax.nn.softmax(scores, axis=-1)
        number = len(self.documents)
        return {"prior": posterior.mean(0), "words": posterior.T @ self.documents / number}


def mixture(seed: int, classes: int = 2, vocabulary: int = 4, length: int = 6) -> Problem:
    """Labelled counts and unlabelled documents, at random."""
    random = np.random.default_rng(seed)
    true = random.dirichlet(np.ones(vocabulary), classes)
    labels = random.integers(classes, size=30)
    documents = np.stack([random.multinomial(length, true[label]) for label in labels])
    given = random.integers(classes, size=4)
    words = np.stack([random.multinomial(length, true[label]) for label in given])
    constant = {
        "prior": np.bincount(given, minlength=classes) / 4 + 0.2,
        "words": np.stack([words[given == k].sum(0) for k in range(classes)]) / 4 + 0.05,
    }
    step = MixtureStep(jnp.asarray(documents, float))
    return Problem(step, jax.tree.map(jnp.asarray, constant))


def even_mixture() -> Problem:
    """Two classes of which the labelled data say the same: a branch without symmetry leaves."""
    documents = jnp.asarray([[5.0, 1, 1], [4, 2, 1], [1, 5, 1], [0, 4, 3], [6, 0, 1], [1, 6, 0]])
    words = jnp.full((2, 3), 1 / 3) * documents.sum(1).mean() / 2
    return Problem(MixtureStep(documents), {"prior": jnp.array([0.5, 0.5]), "words": words})


class HMMStep(eqx.Module):
    """Mean expected counts of an HMM by the chain rule: gradients of log P(x) in log parameters.

    {initial [s], transition [s, s], emission [v, s]}: emissions are multinomials along axis 0.
    """

    sequences: jax.Array

    def __call__(self, tilde):
        parameters = {
            "initial": tilde["initial"] / tilde["initial"].sum(),
            "transition": tilde["transition"] / tilde["transition"].sum(1, keepdims=True),
            "emission": tilde["emission"] / tilde["emission"].sum(0, keepdims=True),
        }
        logs = jax.tree.map(jnp.log, parameters)
        return jax.grad(
            lambda tree: jax.vmap(self._log_likelihood, (None, 0))(tree, self.sequences).mean()
        )(logs)

    @staticmethod
    def _log_likelihood(logs, words):
        def forward(alpha, word):
            reached = jax.nn.logsumexp(alpha[:, None] + logs["transition"], axis=0)
            return reached + logs["emission"][word], None

        alpha = logs["initial"] + logs["emission"][words[0]]
        alpha, _ = jax.lax.scan(forward, alpha, words[1:])
        return jax.nn.logsumexp(alpha)


def hmm(
    seed: int, states: int = 2, vocabulary: int = 3, length: int = 5, number: int = 12
) -> Problem:
    """Counts at random, and sequences drawn from another HMM."""
    random = np.random.default_rng(seed)
    transition = random.dirichlet(np.ones(states), states)
    emission = random.dirichlet(np.full(vocabulary, 0.5), states)
    sequences = np.zeros((number, length), int)
    for words in sequences:
        state = random.integers(states)
        for place in range(length):
            words[place] = random.choice(vocabulary, p=emission[state])
            state = random.choice(states, p=transition[state])
    constant = {
        "initial": random.dirichlet(np.ones(states)) + 0.1,
        "transition": random.dirichlet(np.ones(states), states) * (length - 1) / states + 0.1,
        "emission": random.dirichlet(np.ones(vocabulary), states).T * length / states + 0.1,
    }
    step = HMMStep(jnp.asarray(sequences))
    # Leaves in the order of jax.tree.leaves: emission, initial, transition.
    return Problem(step, jax.tree.map(jnp.asarray, constant), axes=(0, -1, -1))


EM_PROBLEMS = {
    "mixture 0": lambda: mixture(0),
    "mixture 2": lambda: mixture(2),
    "hmm 0": lambda: hmm(0),
    "hmm 2": lambda: hmm(2),
}


# --------------------------------------------------------------------------- they are right


def test_the_s_curve_solves_its_problem():
    x = np.linspace(0.0, 2.7, 9)
    np.testing.assert_allclose(s_lambda(x) * s_map(x), x, atol=1e-12)
    for lam, place in S_FOLDS:
        assert s_lambda(place) == pytest.approx(lam)
        assert abs(s_lambda(place + 1e-5) - s_lambda(place - 1e-5)) < 1e-9
    assert s_lambda(s_end()) == pytest.approx(1.0)


def test_the_rotated_s_curve_solves_its_problem():
    problem, turn = rotated_s_curve(5)
    for first in (0.0, 0.5, 1.5, 2.5):
        lam = s_lambda(first)
        theta = turn @ rotated_s_solution(5, lam, first)
        there = (1 - lam) * problem.constant + lam * problem.expect(jnp.asarray(theta))
        np.testing.assert_allclose(there, theta, atol=1e-12)


def _enumerated_counts(tilde, words):
    """Expected counts of an HMM on one sequence, from all paths of labels."""
    share = {
        "initial": tilde["initial"] / tilde["initial"].sum(),
        "transition": tilde["transition"] / tilde["transition"].sum(1, keepdims=True),
        "emission": tilde["emission"] / tilde["emission"].sum(0, keepdims=True),
    }
    total, counts = 0.0, {name: np.zeros_like(leaf) for name, leaf in share.items()}
    for labels in np.ndindex(*[len(share["initial"])] * len(words)):
        steps = list(itertools.pairwise(labels))
        emitted = list(zip(words, labels))
        weight = share["initial"][labels[0]]
        weight *= np.prod([share["transition"][step] for step in steps])
        weight *= np.prod([share["emission"][pair] for pair in emitted])
        total += weight
        counts["initial"][labels[0]] += weight
        for step in steps:
            counts["transition"][step] += weight
        for pair in emitted:
            counts["emission"][pair] += weight
    return {name: leaf / total for name, leaf in counts.items()}


def test_the_e_step_of_the_hmm_is_right():
    problem = hmm(0)
    tilde = jax.tree.map(np.asarray, problem.constant)
    each = [_enumerated_counts(tilde, words) for words in np.asarray(problem.expect.sequences)]
    want = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *each)
    got = problem.expect(problem.constant)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), got, want)


# --------------------------------------------------------------------------- what is refused


def test_frozen_leaves_are_not_among_the_unknowns():
    whole = hmm(0)
    is_free = {"initial": True, "transition": False, "emission": True}
    expect, constant = freeze(whole.expect, whole.constant, whole.constant, is_free)
    problem = Problem(expect, constant, axes=(0, -1))
    assert problem.size == whole.size - whole.constant["transition"].size
    got, want = problem.expect(problem.constant), whole.expect(whole.constant)
    assert got["transition"] is None
    for name in ("initial", "emission"):
        np.testing.assert_array_equal(got[name], want[name])


@pytest.mark.parametrize(
    ("expect", "constant", "others", "message"),
    [
        (lambda x: x, {}, {}, "constant: expected at least one number, got none"),
        (lambda x: x, jnp.array([1, 2]), {}, "expected floating arrays of one dtype, got int"),
        (lambda x: x, jnp.array([1.0, jnp.nan]), {}, "expected finite numbers, got others in leaf"),
        (lambda x: x, jnp.array([1.0, -1.0]), {}, "expected no negative count, got -1.0 in leaf 0"),
        (lambda x: x[:1], jnp.ones(2), {}, "expected it to give .*2.* got .*1"),
        (
            lambda x: x,
            jnp.ones(2),
            {"weights": lambda lam: (lam, lam)},
            r"expected \(1.0, 0.0\) at",
        ),
        (lambda x: x, jnp.ones(2), {"axes": (0, 0)}, r"axes: expected one per leaf \(1\), got 2"),
    ],
)
def test_problems_that_are_none_are_refused(expect, constant, others, message):
    with pytest.raises(ValueError, match=message):
        Problem(expect, constant, **others)
