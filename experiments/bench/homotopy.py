"""Homotopy for HMMs on citations: E-step, Jacobian and whole path, against their neighbours."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq
from experiments._precision import double_precision
from experiments.bench._citations import LABELLED, UNLABELLED, Citations
from experiments.bench._homotopy_accuracy import accuracies
from experiments.bench._report import Report
from experiments.bench._timing import best_seconds
from experiments.data import Data, choose_sources
from experiments.haffari2008._jacobian import published_jacobian
from experiments.haffari2008._settings import SETTINGS
from experiments.haffari2008._task import Task
from jaxseq.hmm import (
    HMMPath,
    Linearisation,
    Multinomials,
    WordCorpus,
    WordShard,
    expected_counts,
    find_kernels,
    hmm_path,
    linearise_counts,
    linearise_mean_counts,
    mean_counts,
    shard_tally,
    smoothed_means,
)
from jaxseq.homotopy import Path as HomotopyPath
from jaxseq.homotopy import StepOutcome
from jaxseq.lattice import Method

ROUNDS = 15
PRODUCTS = 30
"""With the Jacobian, that one tangent of the path takes at most, as a rule."""

DENSE_SIZES = (10, 20, 40, 80, 160, 320, UNLABELLED)
DENSE_SECONDS = 90.0
"""The published route is not tried on a larger size after so long, compiling included."""

KERNEL_SIDES = (500, 1000, 2000)
"""Of matrices whose kernels are found, from which that of the model's is extrapolated."""

PATH_SECONDS = 400.0
"""A path that has not ended by then is given up."""

LOG_EVERY = 20
"""One in so many points of the path is looked at in log space too."""

ALL_UNLABELLED = 5000
"""As many as the paper had; what is measured is extrapolated to them."""


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench homotopy``."""
    if not (Path(os.environ.get("JAXSEQ_DATA", "")) / "citations").is_dir():
        needs = "corpora, by JAXSEQ_DATA"
        report.figure("Jacobian–vector product / E-step", None, at_most=4, needs=needs)
        return
    with double_precision():
        citations = Citations(Path(os.environ["JAXSEQ_DATA"]))
        _products(report, citations)
        _kernels(report, citations)
        _against_hmmlearn(report, citations)
        _against_dynamax(report, citations)
        _whole_path(report, citations)
        _against_the_published_route(report, citations)
    accuracies(report, Path(os.environ["JAXSEQ_DATA"]))


def _direction(like: Multinomials) -> Multinomials:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda family: jnp.asarray(rng.normal(size=family.shape)) * family, like)


# ------------------------------------------------------------------------- E-step, product


@jax.jit
def _shard_jvp(point: Multinomials, move: Multinomials, shard: WordShard) -> Any:
    return jax.jvp(lambda p: shard_tally(p, shard, "scaled").counts, (point,), (move,))


def _products(report: Report, citations: Citations) -> None:
    """A product with the Jacobian, by itself and of those that share a linearisation."""
    point, corpus = citations.point, citations.unlabelled
    move = _direction(point)
    product = linearise_mean_counts(point, corpus)[1]
    of_words = linearise_mean_counts(point, corpus, frozen=PAPER.frozen)[1]
    one_shard = partial(_shard_jvp, point, move)
    runs: dict[str, Callable[[], Any]] = {
        "E-step": lambda: expected_counts(point, corpus),
        "jvp": lambda: jaxseq.map_on_cores(one_shard, corpus.shards),
        "linearise": lambda: linearise_mean_counts(point, corpus)[0],
        "product": lambda: product(move),
        "product of words": lambda: of_words(move),
    }
    seconds = best_seconds(runs, rounds=ROUNDS)
    measured_on = {**citations.measured_on(), "engine": "XLA", "seconds": seconds}
    for name, title in {
        "jvp": "Jacobian–vector product with the expected counts (jvp) / E-step",
        "product": "Jacobian–vector product after linearising / E-step",
        "product of words": "the same where emissions alone are free, as on the path / E-step",
    }.items():
        report.figure(title, seconds[name] / seconds["E-step"], at_most=4, **measured_on)
    ratio = seconds["linearise"] / seconds["E-step"]
    report.figure("linearising the E-step / E-step", ratio, **measured_on)


def _kernels(report: Report, citations: Citations) -> None:
    """The same by kernels in C++, in the precisions that a path has them in, against programs."""
    metric = "product on the path: XLA / C++, both float32"
    point, corpus, free = citations.point, citations.unlabelled, ("emission",)
    kernels = find_kernels(corpus, citations.labels)
    found = None if kernels is None else kernels.linearise(point, np.float32)
    if kernels is None or found is None:
        report.figure(metric, None, needs="a C++ compiler")
        return
    moves = {"emission": np.asarray(_direction(point).emission)}
    linearise = partial(linearise_counts, point, free=free, dtype=jnp.float32)
    products = [product for _, product in jaxseq.map_on_cores(linearise, corpus.shards)]
    runs: dict[str, Callable[[], Any]] = {
        "product, XLA": lambda: jaxseq.map_on_cores(lambda product: product(moves), products),
        "product, C++": lambda: found[1](moves),
        "linearise, XLA": lambda: jaxseq.map_on_cores(lambda s: linearise(s)[0], corpus.shards),
        "linearise, C++": lambda: kernels.linearise(point, np.float32, with_transitions=False),
        "E-step, XLA": lambda: expected_counts(point, corpus),
    }
    seconds = best_seconds(runs, rounds=ROUNDS)
    measured_on = {**citations.measured_on(), "seconds": seconds}
    report.figure(metric, seconds["product, XLA"] / seconds["product, C++"], **measured_on)
    ratio = seconds["linearise, XLA"] / seconds["linearise, C++"]
    report.figure("linearising on the path: XLA / C++", ratio, **measured_on)


# ------------------------------------------------------------------------------ neighbours


def _against_hmmlearn(report: Report, citations: Citations) -> None:
    """One iteration of its ``fit``, an E-step and next to nothing else, by both its lattices."""
    metric = "E-step: hmmlearn / jaxseq"
    try:  # by name: the extra is for these figures, and no type checker should ask for it
        CategoricalHMM = importlib.import_module("hmmlearn.hmm").CategoricalHMM
    except ImportError:
        report.figure(metric, None, at_least=10, needs="the extra jaxseq[bench]")
        return
    corpus, point = citations.unlabelled, citations.point
    column, (initial, transition, emission) = corpus.words[:, None], map(np.asarray, point)
    found: dict[str, float] = {}

    def fit(implementation: str) -> None:
        model = CategoricalHMM(
            citations.labels, n_features=citations.num_words, n_iter=1, init_params="",
            implementation=implementation,
        )  # fmt: skip
        model.startprob_, model.transmat_, model.emissionprob_ = initial, transition, emission.T
        model.fit(column, corpus.lengths)
        found[implementation] = model.monitor_.history[-1]

    runs: dict[str, Callable[[], Any]] = {
        "jaxseq": lambda: expected_counts(point, corpus),
        "log": partial(fit, "log"),
        "scaling": partial(fit, "scaling"),
    }
    seconds = best_seconds(runs, rounds=3)
    measured_on = {**citations.measured_on(), "seconds": seconds}
    _check_likelihood(found, expected_counts(point, corpus).log_likelihood)
    ours = seconds["jaxseq"]
    report.figure(metric, seconds["log"] / ours, at_least=10, lattice="log, default", **measured_on)
    report.figure(f"{metric}, scaling", seconds["scaling"] / ours, **measured_on)


def _check_likelihood(found: dict[str, float], expected: Any) -> None:
    """A neighbour that computes something else is no neighbour."""
    for name, value in found.items():
        if not np.isclose(value, float(expected), rtol=1e-6):
            raise ValueError(f"{name}: expected log-likelihood {float(expected)}, got {value}")


def _against_dynamax(report: Report, citations: Citations) -> None:
    """Its ``e_step`` on sequences of one length at a time, as it knows no padding."""
    metric = "E-step: dynamax / jaxseq"
    try:
        hmms = importlib.import_module("dynamax.hidden_markov_model")
    except ImportError:
        report.figure(metric, None, at_least=1, needs="the extra jaxseq[bench]")
        return
    corpus, (initial, transition, emission) = citations.unlabelled, citations.point
    model = hmms.CategoricalHMM(citations.labels, 1, citations.num_words)
    parameters, _ = model.initialize(
        initial_probs=initial, transition_matrix=transition, emission_probs=emission.T[:, None]
    )
    step = jax.jit(jax.vmap(model.e_step, (None, 0)))
    smooth = jax.jit(jax.vmap(hmms.hmm_two_filter_smoother, (None, None, 0)))
    by_length: dict[int, list[np.ndarray]] = {}
    for words in citations.sequences:
        by_length.setdefault(len(words), []).append(words)
    groups = [jnp.asarray(np.stack(group)) for group in by_length.values()]
    longest = max(by_length)
    padded = np.stack([np.pad(x, (0, longest - len(x))) for x in citations.sequences])
    scores = jnp.log(emission)[padded]
    runs: dict[str, Callable[[], Any]] = {
        "jaxseq": lambda: expected_counts(citations.point, corpus),
        "dynamax": lambda: [step(parameters, group[..., None]) for group in groups],
        "dynamax, padded": lambda: step(parameters, jnp.asarray(padded)[..., None]),
        "dynamax, padded, without counts": lambda: smooth(initial, transition, scores),
    }
    total = sum(float(value.sum()) for _, value in runs["dynamax"]())
    _check_likelihood({"dynamax": total}, expected_counts(citations.point, corpus).log_likelihood)
    seconds = best_seconds(runs, rounds=3)
    measured_on = {**citations.measured_on(), "seconds": dict(seconds)}
    ours = seconds.pop("jaxseq")
    bare = seconds.pop("dynamax, padded, without counts")
    best = min(seconds, key=lambda name: seconds[name])
    report.figure(metric, seconds[best] / ours, at_least=1, best_of=best, **measured_on)
    report.figure(f"{metric}, its smoother alone", bare / ours, **measured_on)


# ------------------------------------------------------------------------------ whole path


PAPER = SETTINGS["paper"]
"""How words become numbers, and which families are frozen."""


def _as_the_paper_has_them() -> tuple[WordCorpus, WordCorpus]:
    """Labelled and unlabelled references, with rare words unknown."""
    folder = Path(os.environ["JAXSEQ_DATA"])
    data = Data(choose_sources(["citations"], folder, may_stand_in=False))
    known = data.corpus("citations", "labelled", LABELLED)
    unknown = data.corpus("citations", "unlabelled", UNLABELLED)
    names = sorted({label for sentence in known for label in sentence["label"]})
    task = Task(PAPER, known, unknown, known[:1], names)
    return task.labelled, task.unlabelled


def _whole_path(report: Report, citations: Citations) -> None:
    """From λ = 0 to 1 with the emissions free: compiling included, as it is needed once a path."""
    labelled, unlabelled = _as_the_paper_has_them()
    started = time.perf_counter()
    found = hmm_path(
        labelled,
        unlabelled,
        smoothing=PAPER.smoothing,
        frozen=PAPER.frozen,
        until=_time_is_up(started),
    )
    seconds = time.perf_counter() - started
    path, linear = found.path, found.problem.linearise
    assert path.outcome is not None
    assert isinstance(linear, Linearisation)
    measured_on = {
        **citations.measured_on(unlabelled), "words": unlabelled.num_words, "labelled": LABELLED,
        "free": "emissions", "unknown_below": PAPER.unknown_below,
    }  # fmt: skip
    report.figure(
        "whole path, seconds",
        seconds if path.lam[-1] == 1 else None,
        at_most=180,
        **measured_on,
        engine=linear.engine,
        outcome=path.outcome.value,
        reached=float(path.lam[-1]),
        followed_for=seconds,
        tried=len(path.events),
        accepted=len(path.lam) - 1,
        turns=int((np.diff(path.direction) != 0).sum()),
        linearisations=linear.points,
        products=linear.products,
        turned_back=sum(e.outcome is StepOutcome.SHORTENED_REVERSED for e in path.events),
    )
    methods: tuple[tuple[Method, int], ...] = (("auto", 1), ("log", LOG_EVERY))
    for method, every in methods:
        points = range(0, len(path.lam), every)
        worst = max(_residuals(found, labelled, unlabelled, points, method))
        report.figure(
            f"largest relative residual on the path, E-step of XLA ({method}), in units of 1e-8",
            worst / 1e-8,
            at_most=1,
            **measured_on,
            points=len(points),
        )


def _time_is_up(started: float) -> Callable[[HomotopyPath], bool]:
    return lambda path: time.perf_counter() - started > PATH_SECONDS


def _residuals(
    found: HMMPath,
    labelled: WordCorpus,
    unlabelled: WordCorpus,
    points: range,
    method: Method,
) -> Iterator[float]:
    """‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖ of points anew, by an E-step that is not the path's own, and in the
    unknowns' scale, by which the path's bound is meant."""
    constant = smoothed_means(labelled, PAPER.smoothing).emission
    scale = found.problem.scale.emission
    for index in points:
        point, lam = found.parameters(index), found.path.lam[index]
        expected = mean_counts(point, unlabelled, method=method).emission
        gap = (1 - lam) * constant + lam * expected - point.emission
        yield float(jnp.linalg.norm(gap / scale) / jnp.linalg.norm(point.emission / scale))


# ------------------------------------------------------------------------- published route


def _against_the_published_route(report: Report, citations: Citations) -> None:
    """The dense matrix, against as many products as a tangent takes, at growing sizes.

    What the paper does with the matrix next, to find its kernel, is a figure of its own.
    """
    point = citations.point
    move = _direction(point)
    sizes: list[int] = []
    dense: list[float] = []
    free = 0.0
    began = time.perf_counter()
    for number in DENSE_SIZES:
        if len(sizes) > 1 and time.perf_counter() - began > DENSE_SECONDS:
            break
        corpus = citations.first(number)
        published_jacobian(point, corpus)  # compiles every length: no part of the algorithm
        sizes.append(number)
        started = time.perf_counter()
        published_jacobian(point, corpus).block_until_ready()
        dense.append(time.perf_counter() - started)
        products = partial(_tangent_products, point, corpus, move)
        free = best_seconds({"free": products}, rounds=2)["free"]
    side = sum(family.size for family in point)
    measured_on = {
        **citations.measured_on(citations.first(sizes[-1])), "seconds": dict(zip(sizes, dense)),
        "matrix_free_seconds": free, "side": side, "gigabytes": side**2 * 8 / 1e9,
    }  # fmt: skip
    what = f"published matrix / linearising and {PRODUCTS} products"
    report.figure(f"{what}, largest size measured", dense[-1] / free, **measured_on)
    far = _foreseen(sizes, dense, ALL_UNLABELLED) / (free * ALL_UNLABELLED / sizes[-1])
    what = f"{what}, extrapolated to {ALL_UNLABELLED} references with the same words"
    report.figure(what, far, **measured_on)
    kernel = {number: _kernel_seconds(number) for number in KERNEL_SIDES}
    power, start = np.polyfit(np.log(list(kernel)), np.log(list(kernel.values())), 1)
    whole = dense[-1] + float(np.exp(start + power * np.log(side)))
    report.figure(
        "published tangent (matrix, and its kernel by the SVD, extrapolated) / ours, largest size",
        whole / free,
        power=float(power),
        kernel_seconds=kernel,
        **measured_on,
    )


def _kernel_seconds(side: int) -> float:
    """The kernel of a matrix with a column more than rows."""
    matrix = np.random.default_rng(0).normal(size=(side, side + 1))
    started = time.perf_counter()
    np.linalg.svd(matrix)
    return time.perf_counter() - started


def _tangent_products(point: Multinomials, corpus: WordCorpus, move: Multinomials) -> Any:
    _, product = linearise_mean_counts(point, corpus)
    for _ in range(PRODUCTS):
        move = product(move)
    return move


def _foreseen(sizes: list[int], seconds: list[float], number: int) -> float:
    """By a line through what was measured: the matrix costs so much, and each sequence so much."""
    slope, start = np.polyfit(sizes, seconds, 1)
    return float(start + slope * number)
