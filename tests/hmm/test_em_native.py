"""The kernels in C++: against brute force, autodiff, compiled programs and the published matrix."""

from __future__ import annotations

import gc
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.haffari2008._jacobian import published_jacobian
from jaxseq.hmm import (
    Multinomials,
    find_kernels,
    hmm_path,
    homotopy_problem,
    linearise_mean_counts,
    mean_counts,
    word_corpus,
)
from jaxseq.hmm import _path as problems
from jaxseq.hmm._native import WordKernels, make_groups
from jaxseq.homotopy import PathOutcome
from jaxseq.homotopy._linear import linearise_flat
from jaxseq.native import CannotBuild
from jaxseq.native import _loader as _build
from tests.hmm.enumerated import (
    LABELS,
    SEEDS,
    WORDS,
    assert_counts,
    brute_force,
    draw_labels,
    draw_sequences,
    draw_weights,
    make_corpus,
)

try:
    _build.load_library("hmm")
    REASON = ""
except CannotBuild as error:
    REASON = str(error)
needs_kernels = pytest.mark.skipif(bool(REASON), reason=f"no kernels: {REASON}")
FREE = [("emission",), ("initial",), ("initial", "emission")]


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


def linearise(weights: Multinomials, corpus, dtype=np.float64):
    found = WordKernels(corpus, weights.initial.shape[0]).linearise(weights, dtype)
    assert found is not None
    return found


@needs_kernels
@pytest.mark.parametrize("labelled", ["", "all", "partial"])
@given(seed=SEEDS)
@settings(max_examples=5)
def test_counts_are_those_of_all_labellings(labelled, seed):
    weights, corpus = draw_weights(seed), make_corpus(seed, labelled=labelled, cores=2)
    possible = draw_labels(seed, partial=labelled == "partial")[0] if labelled else None
    expected, _ = brute_force(weights, draw_sequences(seed), possible)
    assert_counts(linearise(weights, corpus)[0], expected, 1e-12)


@needs_kernels
@given(seed=SEEDS)
@settings(max_examples=20)
def test_what_is_impossible_is_not_counted(seed):
    """Zeros among all families; sequences of probability 0, and with words that no label has."""
    weights, corpus = draw_weights(seed, zeros=0.4), make_corpus(seed)
    expected, _ = brute_force(weights, draw_sequences(seed))
    assert_counts(linearise(weights, corpus)[0], expected, 1e-12)


@needs_kernels
@pytest.mark.parametrize("labelled", ["", "partial"])
@pytest.mark.parametrize("free", FREE, ids="+".join)
@given(seed=SEEDS)
@settings(max_examples=3)
def test_products_are_derivatives(free, labelled, seed):
    weights, corpus = draw_weights(seed), make_corpus(seed, labelled=labelled)
    moves = moves_of(seed, weights, free)
    found, expected = linearise(weights, corpus)[1](moves), by_autodiff(weights, corpus, moves)
    assert set(found) == set(free)
    for name in free:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-9)


@needs_kernels
@given(seed=SEEDS, labels=st.sampled_from([1, 2, 7, 8, 13, 16, 17, 33]), cores=st.integers(1, 3))
@settings(max_examples=10)
def test_any_number_of_labels_words_and_groups(seed, labels, cores):
    """More labels than a vector has lanes, more sequences than a group, one token among them."""
    rng = np.random.default_rng(seed)
    words = int(rng.integers(1, 20))
    sequences = [rng.integers(words, size=n) for n in (*rng.integers(1, 9, size=37), 1, 23)]
    corpus = word_corpus(sequences, words, cores=cores)
    weights = draw_weights(seed, labels=labels, words=words)
    moves = moves_of(seed, weights, ("initial", "emission"))
    mean, by_programs = linearise_mean_counts(weights, corpus, frozen=("transition",))
    still = jnp.zeros_like(weights.transition)
    expected = by_programs(Multinomials(**moves, transition=still))
    counts, product = linearise(weights, corpus)
    number = len(sequences)
    assert_counts([family / number for family in counts], mean, 1e-12)
    for name, change in product(moves).items():
        wanted = np.asarray(getattr(expected, name))
        scale = max(1.0, float(abs(wanted).max()))
        np.testing.assert_allclose(change / number, wanted, rtol=1e-9, atol=1e-9 * scale)


@needs_kernels
@pytest.mark.parametrize("labelled", ["", "partial"])
def test_products_are_with_the_published_matrix(labelled):
    weights, corpus = draw_weights(4), make_corpus(4, labelled=labelled)
    matrix = np.asarray(published_jacobian(weights, corpus))
    moves = moves_of(4, weights, ("initial", "emission"))
    still = np.zeros(LABELS**2)
    flat = np.concatenate([moves["initial"], still, moves["emission"].ravel()])
    expected = corpus.num_sequences * (matrix @ flat)
    found = linearise(weights, corpus)[1](moves)
    np.testing.assert_allclose(found["initial"], expected[:LABELS], rtol=1e-9, atol=1e-9)
    emission = expected[-WORDS * LABELS :].reshape(WORDS, LABELS)
    np.testing.assert_allclose(found["emission"], emission, rtol=1e-9, atol=1e-9)


@needs_kernels
@given(seed=SEEDS)
@settings(max_examples=10)
def test_single_precision_is_that_and_no_less(seed):
    weights, corpus = draw_weights(seed), make_corpus(seed)
    moves = moves_of(seed, weights, ("initial", "emission"))
    counts, product = linearise(weights, corpus, np.float32)
    wide_counts, wide = linearise(weights, corpus)
    assert_counts(counts, wide_counts, 1e-15)
    found, expected = product(moves), wide(moves)
    slope = max(abs(move / getattr(weights, n)).max() for n, move in moves.items())
    for name, change in found.items():
        np.testing.assert_allclose(change, expected[name], atol=2e-5 * float(slope))
    assert any((found[name] != expected[name]).any() for name in found)


@needs_kernels
def test_one_token_alone():
    weights = draw_weights(0)
    counts, product = linearise(weights, word_corpus([[2]], WORDS))
    assert_counts(counts, brute_force(weights, [np.array([2])])[0], 1e-14)
    moves = moves_of(0, weights, ("initial", "emission"))
    expected = by_autodiff(weights, word_corpus([[2]], WORDS), moves)
    for name, change in product(moves).items():
        np.testing.assert_allclose(change, expected[name], rtol=1e-12, atol=1e-12)


@needs_kernels
def test_a_scale_cancels():
    weights, corpus = draw_weights(8), make_corpus(8)
    moves = {name: np.asarray(getattr(weights, name)) for name in ("initial", "emission")}
    for change in linearise(weights, corpus)[1](moves).values():
        np.testing.assert_allclose(change, 0, atol=1e-12)


@needs_kernels
def test_transitions_are_counted_if_they_are_wanted():
    weights, corpus = draw_weights(1), make_corpus(1)
    found = WordKernels(corpus, LABELS).linearise(weights, np.float64, with_transitions=False)
    assert found is not None
    assert found[0].transition is None
    both = linearise(weights, corpus)[0]
    np.testing.assert_array_equal(found[0].emission, both.emission)
    assert both.transition.sum() == pytest.approx(corpus.num_tokens - corpus.num_sequences)


@needs_kernels
def test_a_product_holds_while_others_are_made():
    """Memory goes from a product that is no more to the next, and from no other."""
    weights, others, corpus = draw_weights(1), draw_weights(2), make_corpus(1)
    kernels = WordKernels(corpus, LABELS)
    moves = moves_of(1, weights, ("emission",))
    _, product = kernels.linearise(weights, np.float64)
    before = product(moves)["emission"]
    for _ in range(3):
        kernels.linearise(others, np.float64)
    np.testing.assert_array_equal(product(moves)["emission"], before)
    del product
    gc.collect()
    made = len(kernels._spare[np.dtype(np.float64)])
    for _ in range(3):
        kernels.linearise(weights, np.float64)
    assert len(kernels._spare[np.dtype(np.float64)]) == made == 2


@needs_kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cores", [1, 2])
def test_products_of_flat_vectors_are_the_same(dtype, cores):
    rng = np.random.default_rng(5)
    sequences = [rng.integers(7, size=n) for n in rng.integers(1, 9, size=40)]
    corpus, weights = word_corpus(sequences, 7, cores=cores), draw_weights(5, words=7, labels=5)
    _, product = linearise(weights, corpus, dtype)
    scale, vector = rng.uniform(0.5, 2, 35), rng.normal(size=35).astype(dtype)
    found = product.on_flat(scale, 40)(vector)
    assert found.dtype == dtype
    expected = product({"emission": (scale * vector).reshape(7, 5)})["emission"].ravel()
    accuracy = 1e-12 if dtype is np.float64 else 1e-5
    wanted = expected / scale / 40
    np.testing.assert_allclose(found, wanted, atol=accuracy * float(abs(wanted).max()))


@needs_kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_any_number_of_cores_the_bits_are_the_same(dtype):
    """More threads than parts, fewer, and as many."""
    rng = np.random.default_rng(7)
    sequences = [rng.integers(9, size=n) for n in rng.integers(1, 30, size=300)]
    weights, found = draw_weights(7, words=9, labels=5), []
    assert len(make_groups(word_corpus(sequences, 9), 5)) == 4
    for cores in (1, 2, 3, 4, 7):
        counts, product = linearise(weights, word_corpus(sequences, 9, cores=cores), dtype)
        moves = moves_of(7, weights, ("initial", "emission"))
        changes = [product(moves) for _ in range(20)]  # threads that race would differ sometimes
        flat = product.on_flat(np.ones(45), 300)(moves["emission"].ravel().astype(dtype))
        found.append([*counts, *(c[name] for c in changes for name in moves), flat])
    for others in found[1:]:
        for ours, theirs in zip(found[0], others):
            np.testing.assert_array_equal(ours, theirs)


@needs_kernels
def test_a_flat_product_holds_while_others_are_made():
    """Also when the product that it is of is no more."""
    weights, others, corpus = draw_weights(1), draw_weights(2), make_corpus(1)
    kernels = WordKernels(corpus, LABELS)
    flat = kernels.linearise(weights, np.float64)[1].on_flat(np.ones(WORDS * LABELS), 1)
    vector = moves_of(1, weights, ("emission",))["emission"].ravel()
    before = flat(vector)
    gc.collect()
    for _ in range(3):
        kernels.linearise(others, np.float64)
    np.testing.assert_array_equal(flat(vector), before)


@needs_kernels
def test_products_of_several_threads_do_not_mix():
    rng = np.random.default_rng(11)
    sequences = [rng.integers(WORDS, size=n) for n in rng.integers(1, 20, size=200)]
    kernels = WordKernels(word_corpus(sequences, WORDS, cores=2), LABELS)
    calls, wanted = [], []
    for seed in (1, 2):
        weights = draw_weights(seed)
        product = kernels.linearise(weights, np.float64)[1]
        flat = product.on_flat(np.ones(WORDS * LABELS), 1)
        moves = moves_of(seed, weights, ("emission",))
        calls += [lambda p=product, m=moves: p(m)["emission"].ravel()]
        calls += [lambda f=flat, m=moves: f(m["emission"].ravel())]
    wanted = [call() for call in calls]
    with ThreadPoolExecutor(len(calls)) as threads:
        found = list(threads.map(lambda call: [call() for _ in range(200)], calls))
    for expected, all_of_one in zip(wanted, found):
        for one in all_of_one:
            np.testing.assert_array_equal(one, expected)


@needs_kernels
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_works_alone():
    """It has none of its parent's threads, and must not wait for them."""
    rng = np.random.default_rng(3)
    sequences = [rng.integers(WORDS, size=4) for _ in range(200)]
    weights = draw_weights(3)
    _, product = linearise(weights, word_corpus(sequences, WORDS, cores=2))
    moves = moves_of(3, weights, ("emission",))
    expected = product(moves)["emission"]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(product(moves)["emission"], expected) else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
    assert ended == (child, 0)


# ----------------------------------------------------------------------- on the way of a path


def _corpora():
    rng = np.random.default_rng(0)
    known = [rng.integers(0, LABELS, 5).tolist() for _ in range(6)]
    words = [[min(y + int(rng.integers(2)), WORDS - 1) for y in labels] for labels in known]
    labelled = word_corpus(words, WORDS, labels=known, num_labels=LABELS, cores=2)
    return labelled, make_corpus(0, cores=2)


def _problem(frozen=("initial", "transition")):
    problem = homotopy_problem(*_corpora(), frozen=frozen)
    assert isinstance(problem.linearise, problems.Linearisation)
    return problem, problem.linearise


@needs_kernels
def test_a_path_is_followed_by_the_kernels_and_ends_where_programs_lead(monkeypatch):
    frozen = ("initial", "transition")
    ours = hmm_path(*_corpora(), frozen=frozen)
    assert ours.problem.linearise.engine == "C++"
    monkeypatch.setenv(_build.SWITCH, "0")
    theirs = hmm_path(*_corpora(), frozen=frozen)
    assert theirs.problem.linearise.engine == "XLA"
    for found in (ours, theirs):
        assert found.path.outcome is PathOutcome.REACHED_ONE
        assert found.path.residual.max() <= 1e-8
    np.testing.assert_allclose(
        ours.parameters(-1).emission, theirs.parameters(-1).emission, atol=1e-7
    )


@pytest.mark.parametrize("frozen", [("initial",), ()], ids=["initial", "none"])
def test_free_transitions_are_left_to_programs(frozen):
    problem, linear = _problem(frozen)
    theta = np.full(problem.size, 0.5)
    linearise_flat(problem, theta).product(theta)
    assert linear.engine == "XLA"


def test_without_a_compiler_nothing_changes(monkeypatch):
    monkeypatch.setenv(_build.SWITCH, "0")
    assert find_kernels(make_corpus(0), LABELS) is None
    problem, linear = _problem()
    linearise_flat(problem, np.full(problem.size, 0.5))
    assert linear.engine == "XLA"


@needs_kernels
def test_a_parameter_that_is_zero_is_left_to_programs():
    problem, linear = _problem()
    theta = np.full(problem.size, 0.5)
    linearise_flat(problem, theta)
    assert linear.engine == "C++"
    theta[0] = 0
    linearise_flat(problem, theta)
    assert linear.engine == "C++, XLA at 1"


def _far(small: float) -> Multinomials:
    """Labels that follow only on themselves but for a small chance, and words likewise."""
    weights = draw_weights(6)
    one = jnp.eye(LABELS)
    emission = jnp.full((WORDS, LABELS), small).at[:LABELS].add(one).at[-1].add(1)
    return weights._replace(transition=one + small, emission=emission)


@needs_kernels
@pytest.mark.parametrize(
    ("small", "single", "wide"),
    [(1e-3, True, True), (1e-14, False, True), (1e-150, False, False)],
)
def test_what_underflows_is_refused(small, single, wide):
    corpus = word_corpus([[0, 1, 2, 1, 0], [2], [0, 3, 2]], WORDS)
    kernels, weights = WordKernels(corpus, LABELS), _far(small)
    assert (kernels.linearise(weights, np.float32) is not None) == single
    found = kernels.linearise(weights, np.float64)
    assert (found is not None) == wide
    if found is not None:
        moves = {"emission": moves_of(6, weights, ("emission",))["emission"]}
        moves["emission"] *= np.asarray(weights.emission)
        expected = by_autodiff(weights, corpus, moves)["emission"]
        np.testing.assert_allclose(found[1](moves)["emission"], expected, rtol=1e-9, atol=1e-9)


@needs_kernels
@pytest.mark.parametrize(("small", "engine"), [(1e-14, "C++"), (1e-150, "XLA")])
def test_a_path_goes_on_where_kernels_refuse(small, engine):
    """In float64 first, then by programs; with the same answers."""
    corpus = word_corpus([[0, 1, 2, 1, 0], [2], [0, 3, 2]], WORDS)
    weights = _far(small)
    linear = problems.Linearisation(weights, corpus, ("initial", "transition"))
    here = weights._replace(initial=None, transition=None)
    mean, product = linear(here)
    assert linear.engine == engine
    move = moves_of(6, weights, ("emission",))["emission"] * np.asarray(weights.emission)
    expected = by_autodiff(weights, corpus, {"emission": move})["emission"]
    found = product(here._replace(emission=move)).emission * corpus.num_sequences
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    wanted = mean_counts(weights, corpus, method="log").emission
    np.testing.assert_allclose(mean.emission, wanted, rtol=1e-9, atol=1e-12)
