"""Counts of an HMM against every labelling of every sequence, and the laws of EM."""

from __future__ import annotations

from itertools import pairwise, product

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxseq.learn import (
    EMOperator,
    Outcome,
    Smoothing,
    WordVocabulary,
    _counts,
    _em_jacobian,
    em,
    estimate_hmm,
    expected_counts,
    known_counts,
    linearise_mean_counts,
    log_likelihoods,
    mean_counts,
    shard_tally,
    viterbi_counts,
    word_corpus,
)
from jaxseq.models import HMM, Multinomials

LABELS, WORDS, WIDTH = 3, 4, 5
LENGTHS = [3, 0, 1, 5, 2, 1, 0, 4]
SEEDS = st.integers(0, 2**32 - 1)


# ------------------------------------------------------------------------- by brute force


def normalised(weights):
    """Multinomials divided by their sums, those of zeros left alone."""
    initial, transition, emission = (np.asarray(array, float) for array in weights)
    scale = lambda sums: np.where(sums > 0, 1 / np.where(sums > 0, sums, 1), 0)  # noqa: E731
    return (
        initial * scale(initial.sum()),
        transition * scale(transition.sum(1))[:, None],
        emission * scale(emission.sum(0)),
    )


def all_labellings(weights, words, possible=None):
    """Of one sequence: P(x, y) and the counts of every labelling that is possible."""
    initial, transition, emission = normalised(weights)
    for path in product(range(len(initial)), repeat=len(words)):
        if possible is not None and not all(label in p for label, p in zip(path, possible)):
            continue
        counts = [np.zeros_like(array) for array in (initial, transition, emission)]
        counts[0][path[0]] += 1
        for label, word in zip(path, words):
            counts[2][word, label] += 1
        for pair in pairwise(path):
            counts[1][pair] += 1
        tables = (initial, transition, emission)
        probability = np.prod([np.prod(p**c) for p, c in zip(tables, counts)])
        yield probability, counts


def brute_force(weights, sequences, possible=None, *, best=False):
    """Sums of counts, expected or of the best labelling, and of log-likelihoods."""
    totals, log_likelihood = [np.zeros(np.shape(array)) for array in weights], 0.0
    for q, words in enumerate(sequences):
        if len(words) == 0:
            continue
        found = list(all_labellings(weights, words, None if possible is None else possible[q]))
        mass = np.array([probability for probability, _ in found])
        if best:
            mass = np.where(np.arange(len(mass)) == mass.argmax(), mass, 0)
        with np.errstate(divide="ignore"):
            log_likelihood += np.log(mass.sum())
        if mass.sum() == 0:
            continue
        for share, (_, counts) in zip(mass / mass.sum(), found):
            for total, count in zip(totals, counts):
                total += share * count
    return totals, log_likelihood


def draw_weights(seed: int, *, labels=LABELS, words=WORDS, zeros=0.0, dtype=np.float64):
    rng = np.random.default_rng([seed, 1])
    shapes = [(labels,), (labels, labels), (words, labels)]
    weights = [rng.gamma(1.0, size=shape) + 1e-3 for shape in shapes]
    weights = [array * (rng.random(array.shape) >= zeros) for array in weights]
    return Multinomials(*(jnp.asarray(array, dtype) for array in weights))


def draw_sequences(seed: int, lengths=tuple(LENGTHS), words=WORDS) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, 2])
    return [rng.integers(words, size=n) for n in lengths]


def draw_labels(seed: int, *, partial=False):
    """For each token a set of possible labels; and the same as `word_corpus` wants it."""
    rng = np.random.default_rng([seed, 3])
    everything = set(range(LABELS))
    possible, given_labels = [], []
    for n in LENGTHS:
        gold = rng.integers(LABELS, size=n)
        kinds = rng.integers(3, size=n) if partial else np.zeros(n, int)
        sets = [
            [{int(label)}, everything - {int(label)}, everything][kind]
            for label, kind in zip(gold, kinds)
        ]
        mask = np.array([[label in p for label in range(LABELS)] for p in sets], bool)
        possible.append(sets)
        given_labels.append(mask.reshape(n, LABELS) if partial else gold)
    return possible, given_labels


def make_corpus(seed: int, *, labelled: str = "", cores=1, width=WIDTH):
    labels = draw_labels(seed, partial=labelled == "partial")[1] if labelled else None
    return word_corpus(
        draw_sequences(seed), WORDS, labels=labels, num_labels=LABELS, cores=cores, width=width
    )


def assert_counts(found, expected, tolerance):
    for name, here, there in zip(Multinomials._fields, found, expected):
        assert np.shape(here) == np.shape(there), name
        np.testing.assert_allclose(here, there, rtol=tolerance, atol=tolerance, err_msg=name)


# ------------------------------------------------------------------------------- counting


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-4)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("labelled", ["", "partial", "complete"])
@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.3]))
@settings(max_examples=5)
def test_expected_counts(labelled, dtype, tolerance, seed, zeros):
    weights = draw_weights(seed, zeros=zeros, dtype=dtype)
    possible = draw_labels(seed, partial=labelled == "partial")[0] if labelled else None
    counts, value = brute_force(weights, draw_sequences(seed), possible)
    for method in ("auto", "scaled", "log"):
        found = expected_counts(weights, make_corpus(seed, labelled=labelled), method=method)
        assert found.log_likelihood.dtype == dtype
        np.testing.assert_allclose(found.log_likelihood, value, rtol=tolerance)
        assert_counts(found.counts, counts, tolerance)


@given(
    seed=SEEDS,
    labels=st.integers(1, 4),
    words=st.integers(1, 5),
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    cores=st.integers(1, 3),
)
@settings(max_examples=3)
def test_expected_counts_of_any_shape(seed, labels, words, lengths, cores):
    weights = draw_weights(seed, labels=labels, words=words)
    sequences = draw_sequences(seed, tuple(lengths), words)
    corpus = word_corpus(sequences, words, cores=cores, width=max(*lengths, 1, 6))
    counts, value = brute_force(weights, sequences)
    found = expected_counts(weights, corpus)
    np.testing.assert_allclose(found.log_likelihood, value, rtol=1e-9, atol=1e-12)
    assert_counts(found.counts, counts, 1e-9)
    tokens, number = sum(lengths), sum(n > 0 for n in lengths)
    sums = [float(family.sum()) for family in found.counts]
    np.testing.assert_allclose(sums, [number, tokens - number, tokens], rtol=1e-12, atol=1e-12)


@given(seed=SEEDS)
def test_counts_of_words_are_those_of_the_corpus(seed):
    counts = expected_counts(draw_weights(seed), make_corpus(seed)).counts
    words = np.bincount(np.concatenate(draw_sequences(seed)), minlength=WORDS)
    np.testing.assert_allclose(counts.emission.sum(1), words, rtol=1e-12, atol=1e-12)


@given(seed=SEEDS)
def test_layout_changes_nothing(seed):
    weights = draw_weights(seed)
    first, second = (
        expected_counts(weights, make_corpus(seed, labelled="partial", cores=cores, width=width))
        for cores, width in ((2, WIDTH), (1, WIDTH + 2))
    )
    assert_counts(jax.tree.leaves(first), jax.tree.leaves(second), 1e-12)


@pytest.mark.parametrize("labelled", ["", "partial"])
@given(seed=SEEDS)
@settings(max_examples=8)
def test_viterbi_counts(labelled, seed):
    weights = draw_weights(seed)
    possible = draw_labels(seed, partial=True)[0] if labelled else None
    counts, value = brute_force(weights, draw_sequences(seed), possible, best=True)
    found = viterbi_counts(weights, make_corpus(seed, labelled=labelled))
    np.testing.assert_allclose(found.log_likelihood, value, rtol=1e-9)
    assert_counts(found.counts, counts, 1e-12)


@given(seed=SEEDS)
def test_counts_of_complete_labels_do_not_depend_on_the_model(seed):
    corpus = make_corpus(seed, labelled="complete")
    counts, _ = brute_force(draw_weights(seed), draw_sequences(seed), draw_labels(seed)[0])
    assert_counts(known_counts(corpus, LABELS), counts, 1e-12)


def test_impossible_sequences_are_not_counted():
    weights = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[1.0, 1.0], [0.0, 0.0]]))
    for method in ("auto", "scaled", "log"):
        sequences = [[0, 0], [0, 1, 0], [0]]
        found = expected_counts(weights, word_corpus(sequences, 2, cores=1), method=method)
        assert float(found.log_likelihood) == -np.inf
        assert found.counts.initial.tolist() == [1, 1]
        assert found.counts.emission.tolist() == [[1.5, 1.5], [0, 0]]
    corpus = word_corpus(sequences, 2, cores=1)
    assert log_likelihoods(weights, corpus).tolist() == [0, -np.inf, 0]
    assert viterbi_counts(weights, corpus).counts.emission.sum() == 3


def test_log_space_takes_over_where_probabilities_underflow():
    """Messages of 1e-30 a step, which the last word needs: too much for float32."""
    emission = np.array([[1, 1e-30], [0, 1]], np.float32)
    weights = Multinomials(
        *map(jnp.asarray, (np.ones(2, np.float32), np.eye(2, dtype=np.float32), emission))
    )
    sequences = [[0, 0, 1], [0, 0, 0], [1, 1]]
    corpus = word_corpus(sequences, 2, cores=1)
    counts, value = brute_force(weights, sequences)
    found = expected_counts(weights, corpus)
    np.testing.assert_allclose(found.log_likelihood, value, rtol=1e-5)
    assert_counts(found.counts, counts, 1e-4)
    compiled = jax.jit(lambda p: expected_counts(p, corpus))(weights)
    assert_counts(compiled.counts, counts, 1e-4)
    scaled = expected_counts(weights, corpus, method="scaled")
    assert float(scaled.log_likelihood) == -np.inf, "no need of log space"


# ---------------------------------------------------------------------------- derivatives


def mean_by_brute_force(flat, shapes, sequences):
    parts = np.split(flat, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    weights = [part.reshape(shape) for part, shape in zip(parts, shapes)]
    counts, _ = brute_force(weights, sequences)
    return np.concatenate([c.ravel() for c in counts]) / sum(len(x) > 0 for x in sequences)


def flat(tree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in tree])


@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.3]))
@settings(max_examples=4)
def test_jvp_of_the_e_step(seed, zeros):
    """Also where parameters are 0: differences are then taken on one side."""
    weights, sequences = draw_weights(seed, zeros=zeros), draw_sequences(seed)
    if not np.isfinite(brute_force(weights, sequences)[1]):
        return
    rng = np.random.default_rng([seed, 4])
    move = jax.tree.map(
        lambda w: jnp.where(w > 0, rng.normal(size=w.shape), rng.random(w.shape)), weights
    )
    if any(bool((family.sum(axis) == 0).any()) for family, axis in zip(weights, (0, 1, 0))):
        return  # not differentiable where a whole multinomial is 0
    corpus, shapes = make_corpus(seed), [w.shape for w in weights]
    here, step, size = flat(weights), flat(move), 1e-4

    def at(times):
        return mean_by_brute_force(here + times * size * step, shapes, sequences)

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
    np.testing.assert_allclose(found.emission, expected.emission, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.initial, expected.initial, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------- EM


def objective_by_brute_force(operator, weights, seeds, partial):
    """As `EMOperator` documents it, nothing frozen."""
    theta = normalised(weights)
    first, second = operator.shares
    value = 0.0
    if first:
        possible = draw_labels(seeds[0], partial=partial)[0]
        sequences = draw_sequences(seeds[0])
        fit = brute_force(weights, sequences, possible, best=operator.hard)[1]
        prior = sum(e * np.log(family).sum() for e, family in zip(operator.smoothing, theta))
        value += first / sum(len(x) > 0 for x in sequences) * (fit + prior)
    if second:
        sequences = draw_sequences(seeds[1])
        fit = brute_force(weights, sequences, best=operator.hard)[1]
        value += second / sum(len(x) > 0 for x in sequences) * fit
    return value


VARIANTS = {
    "soft": {},
    "hard": {"hard": True},
    "supervised": {"balance": 0.0},
    "unsupervised": {"balance": 1.0},
    "hard unsupervised": {"balance": 1.0, "hard": True},
    "between": {"balance": 0.3},
    "general weights": {"balance": 0.3, "weights": lambda x: ((1 - x) ** 2, 3 * x)},
    "frozen": {"balance": 0.6, "frozen": ("transition",)},
    "frozen hard": {"balance": 0.6, "frozen": ("initial", "emission"), "hard": True},
}


@pytest.mark.parametrize("labelled", ["partial", "complete"])
@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_em_never_goes_down(variant, labelled, seed):
    known, unknown = make_corpus(seed, labelled=labelled), make_corpus(seed + 1)
    operator = EMOperator(known, unknown, **VARIANTS[variant])
    start = HMM(*draw_weights(seed))
    found = em(start, operator, max_iterations=12, tolerance=0.0)
    values = np.array(found.objectives)
    assert (np.diff(values) >= -1e-9 * np.abs(values[1:])).all()
    assert len(values) > 1
    for name in operator.frozen:
        kept, given_ = (getattr(m.probabilities, name) for m in (found.model, start))
        np.testing.assert_allclose(kept, given_, rtol=1e-15)
    if not operator.frozen:
        weights, seeds, partial = start.probabilities, (seed, seed + 1), labelled == "partial"
        for value, point in ((values[0], weights), (values[-1], found.model.probabilities)):
            expected = objective_by_brute_force(operator, point, seeds, partial)
            np.testing.assert_allclose(value, expected, rtol=1e-9)


@given(seed=SEEDS)
@settings(max_examples=5)
def test_ends_of_the_path_and_what_lies_between(seed):
    known, unknown = make_corpus(seed, labelled="complete"), make_corpus(seed + 1)
    weights, smoothing = draw_weights(seed), Smoothing(0.5, 0.25, 0.125)
    at = {
        balance: EMOperator(known, unknown, balance, smoothing)(weights).following
        for balance in (0.0, 0.25, 1.0)
    }
    number = sum(n > 0 for n in LENGTHS)
    counts, _ = brute_force(weights, draw_sequences(seed), draw_labels(seed)[0])
    supervised = [(count + e) / number for count, e in zip(counts, smoothing)]
    assert_counts(at[0.0], supervised, 1e-12)
    assert_counts(at[1.0], mean_counts(weights, unknown), 0)
    mixed = [0.75 * a + 0.25 * b for a, b in zip(at[0.0], at[1.0])]
    assert_counts(at[0.25], mixed, 1e-12)


@given(seed=SEEDS)
@settings(max_examples=5)
def test_supervised_em_is_relative_frequency(seed):
    known = make_corpus(seed, labelled="complete")
    model = estimate_hmm(known, LABELS)
    counts, _ = brute_force(draw_weights(seed), draw_sequences(seed), draw_labels(seed)[0])
    smoothed = [count + e for count, e in zip(counts, (0.2, 0.2, 0.05))]
    assert_counts(model.probabilities, normalised(smoothed), 1e-12)
    found = em(HMM(*draw_weights(seed)), EMOperator(known, None))
    assert_counts(found.model.probabilities, model.probabilities, 1e-12)
    assert found.iterations <= 2


def test_default_balance_counts_every_sequence_the_same():
    known, unknown = make_corpus(0, labelled="complete"), make_corpus(1)
    assert EMOperator(known, unknown).shares == (0.5, 0.5)
    assert EMOperator(None, unknown).shares == (0, 1)
    assert EMOperator(known, None).shares == (1, 0)


def test_estimate_from_partial_labels_is_a_fixed_point():
    corpus = make_corpus(5, labelled="partial")
    model = estimate_hmm(corpus, LABELS)
    possible = draw_labels(5, partial=True)[0]
    counts, _ = brute_force(model.probabilities, draw_sequences(5), possible)
    smoothed = [count + e for count, e in zip(counts, Smoothing())]
    assert_counts(model.probabilities, normalised(smoothed), 1e-2)


def test_words_and_labels_that_never_meet():
    """Without smoothing they are impossible, with it they are not."""
    known = word_corpus([[0, 1]], 3, labels=[[0, 1]], num_labels=2, cores=1)
    unknown = word_corpus([[2], [0, 2]], 3, cores=1)
    bare = estimate_hmm(known, 2, smoothing=Smoothing(0, 0, 0))
    with pytest.raises(ValueError, match=r"unlabelled\[0\]: expected.*probability 0 \(2 of 2"):
        em(bare, EMOperator(known, unknown))
    found = em(estimate_hmm(known, 2), EMOperator(known, unknown, 0.5))
    assert np.isfinite(found.objectives).all()
    assert (np.asarray(found.model.probabilities.emission[2]) > 0).all()


def test_outcomes():
    start, operator = HMM(*draw_weights(0)), EMOperator(None, make_corpus(1))
    assert em(start, operator, max_iterations=2).outcome is Outcome.MAX_ITERATIONS
    found = em(start, operator, tolerance=1e-3)
    assert found.outcome is Outcome.CONVERGED_VALUE
    assert len(found.log_likelihoods) == len(found.objectives) == found.iterations + 1
    nothing = em(start, operator, max_iterations=0)
    assert_counts(nothing.model.probabilities, start.probabilities, 1e-15)


def test_programs_are_compiled_once_a_shape():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def tally(weights, shard):
        return shard_tally(weights, shard)

    corpus = make_corpus(7, cores=2)
    for seed in range(2):
        for shard in corpus.shards:
            tally(draw_weights(seed), shard)
    linearise_mean_counts(draw_weights(0), corpus)[1](draw_weights(1))
    em(HMM(*draw_weights(0)), EMOperator(None, corpus), max_iterations=1)
    programs = (_counts._certified_tally, _em_jacobian._linearise, _em_jacobian._apply)
    sizes = [program._cache_size() for program in programs]
    for seed in range(3):
        weights = draw_weights(seed)
        em(HMM(*weights), EMOperator(None, corpus), max_iterations=3)
        linearise_mean_counts(weights, corpus)[1](weights)
    assert [program._cache_size() for program in programs] == sizes


# ------------------------------------------------------------------------------- refusals


def test_vocabulary():
    sentences = [["a", "b", "a"], ["b", "c"], []]
    vocabulary = WordVocabulary(sentences, min_count=2)
    assert len(vocabulary) == 3
    assert [ids.tolist() for ids in vocabulary.encode([["b", "z", "a", "c"]])] == [[2, 0, 1, 0]]
    assert len(WordVocabulary(sentences)) == 1  # 5 times, by default
    with pytest.raises(ValueError, match="min_count: expected 1 or more, got 0"):
        WordVocabulary(sentences, min_count=0)


def test_unknown_words():
    found = word_corpus([[0, 9, -1]], 3, unknown=2)
    assert found.words.tolist() == [0, 2, 2]
    with pytest.raises(ValueError, match=r"sequences\[1\]\[2\]: expected a word, 0 … 2.*got 3"):
        word_corpus([[], [0, 1, 3]], 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [[0]]}, "labels: expected 2, one a sequence, got 1"),
        ({"labels": [[0], [0]], "num_labels": None}, "num_labels: expected 1 or more"),
        ({"labels": [[0], [2, 0]]}, r"labels\[1\]\[0\]: expected −1.*0 … 1, got 2"),
        ({"labels": [[0], [0]]}, r"labels\[1\]: expected integers of shape \[2\]"),
        ({"labels": [[0], np.zeros((2, 2), bool)]}, r"labels\[1\]\[0\]: expected a possible"),
        ({"sequences": [[0.5], [1, 1]]}, r"sequences\[0\]: expected integers"),
        ({"num_words": 0}, "num_words: expected 1 or more, got 0"),
        ({"unknown": 3}, "unknown: expected a word"),
        ({"cores": 0}, "cores: expected 1 or more, got 0"),
        ({"width": 1}, "width: expected at least 2, got 1"),
    ],
)
def test_refused_corpora(change, message):
    given_ = {"sequences": [[0], [1, 1]], "num_words": 3, "labels": None, "num_labels": 2}
    with pytest.raises(ValueError, match=message):
        word_corpus(**(given_ | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"balance": 1.5}, "balance: expected 0 … 1, got 1.5"),
        ({"frozen": ("emissions",)}, "frozen: expected some of initial.*got 'emissions'"),
        ({"smoothing": Smoothing(-1)}, "smoothing.initial: expected a number ≥ 0"),
        ({"unlabelled": None, "balance": 0.5}, "unlabelled: expected at least one sequence"),
        ({"labelled": None, "balance": 0.5}, "labelled: expected at least one sequence"),
        ({"labelled": None, "unlabelled": None}, "corpora: expected at least one sequence"),
        ({"weights": lambda x: (-1, 1)}, "weights: expected numbers ≥ 0, got -1.0"),
    ],
)
def test_refused_operators(change, message):
    given_ = {"labelled": make_corpus(0, labelled="complete"), "unlabelled": make_corpus(1)}
    with pytest.raises(ValueError, match=message):
        EMOperator(**(given_ | change))


def test_what_does_not_fit_the_model():
    weights = draw_weights(0)
    with pytest.raises(ValueError, match=r"expected 4 words.*got 5"):
        expected_counts(weights, word_corpus([[0]], 5))
    with pytest.raises(ValueError, match=r"expected 3 labels.*got 2"):
        expected_counts(weights, word_corpus([[0]], 4, labels=[[0]], num_labels=2))
    with pytest.raises(ValueError, match="at least one sequence with a token"):
        mean_counts(weights, word_corpus([[], []], 4))
    assert float(expected_counts(weights, word_corpus([[]], 4)).log_likelihood) == 0
    with pytest.raises(ValueError, match="tolerance: expected"):
        em(HMM(*weights), EMOperator(None, make_corpus(0)), tolerance=-1.0)
    with pytest.raises(ValueError, match="max_iterations: expected"):
        em(HMM(*weights), EMOperator(None, make_corpus(0)), max_iterations=-1)
