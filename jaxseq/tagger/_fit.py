"""From features and labels to a trained model."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.learn import _lbfgs, _stochastic
from jaxseq.learn._checkpoint import load_checkpoint, save_checkpoint
from jaxseq.learn._corpus import EncodedLabels, ShardMaker, lay_out
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome, Settings
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Legal, Parameters, Spread, WeightSet, observed_places
from jaxseq.learn._progress import progress_bar
from jaxseq.learn._stochastic import Algorithm, StochasticSettings
from jaxseq.text import TokenFeatures

DENSE_FROM = 10
"""Tokens that an attribute must be on to have a weight for every label, among mixed weights."""


@dataclass(frozen=True)
class Problem:
    """What is to be learnt from."""

    features: TokenFeatures
    labels: EncodedLabels
    classes: list[str]
    attributes: int
    edge_attributes: int
    transitions: bool
    legal: Legal | None
    sentence_weights: np.ndarray | None


@dataclass(frozen=True)
class Plan:
    """How to search: the estimator's parameters, checked."""

    weights: WeightSet
    algorithm: str
    settings: Settings
    l2: float
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    cores: int
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int


@dataclass(frozen=True)
class Fitted:
    """Where a search ended."""

    parameters: Parameters
    outcome: Outcome
    iterations: int
    evaluations: int
    loss: float
    seconds: dict[str, float]


def make_spread(problem: Problem, weights: WeightSet) -> Spread:
    """Which weights are learnt."""
    s, gold = len(problem.classes), problem.labels.gold
    learnt = None if problem.transitions else np.zeros((s, s), bool)
    places = groups = None
    num_groups = 0
    if weights in ("observed", "mixed"):
        dense_from = DENSE_FROM if weights == "mixed" else None
        places = observed_places(
            problem.features.ids, gold, problem.labels.allowed, problem.attributes, s, dense_from
        )
        if problem.transitions and weights == "observed":
            learnt = _observed_transitions(problem)
    elif weights == "tied":
        types = [label.split("-", 1)[-1] for label in problem.classes]
        names = sorted(set(types))
        groups, num_groups = np.array([names.index(t) for t in types], np.int32), len(names)
    return Spread(
        attributes=problem.attributes,
        labels=s,
        places=None if places is None else jnp.asarray(places, jnp.int32),
        groups=None if groups is None else jnp.asarray(groups),
        num_groups=num_groups,
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


def _observed_transitions(problem: Problem) -> np.ndarray:
    """Transitions between labels that neighbours in the data have, or may have."""
    s, labels, lengths = len(problem.classes), problem.labels, problem.features.lengths
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    linked = np.ones(len(labels.gold), bool)
    linked[starts] = False
    seen = np.zeros((s, s), bool)
    second = np.flatnonzero(linked)
    gold = labels.gold
    known = second[(gold[second] >= 0) & (gold[second - 1] >= 0)]
    seen[gold[known - 1], gold[known]] = True
    if labels.allowed is not None:
        allowed = labels.allowed.astype(np.float32)
        partial = second[(gold[second] < 0) | (gold[second - 1] < 0)]
        seen |= allowed[partial - 1].T @ allowed[partial] > 0
    return seen


def search(problem: Problem, plan: Plan, start: Parameters | None, spread: Spread) -> Fitted:
    """Find the parameters."""
    if start is None:
        start = spread.zeros(problem.edge_attributes)
    if plan.algorithm == "lbfgs":
        return _search_all_at_once(problem, plan, start, spread)
    return _search_by_batches(problem, plan, start, spread)


def _search_all_at_once(problem: Problem, plan: Plan, start: Parameters, spread: Spread) -> Fitted:
    layout = lay_out(problem.features.lengths, plan.cores)
    maker = _shard_maker(problem, layout)
    shards = [maker(index) for index in range(maker.num_shards)]
    objective = Objective(shards, spread, plan.l2, problem.legal)
    about = _fingerprint(problem, plan, start)
    clock = time.perf_counter()
    begun = _lbfgs.begin(objective, start, plan.settings)
    _check_possible(begun.value)
    first = time.perf_counter() - clock
    objective.seconds = dict.fromkeys(objective.seconds, 0.0)
    begun = _resumed(plan, begun, about)
    bar = progress_bar("training", plan.settings.max_iterations, plan.progress)
    with bar as tick, interrupts_deferred() as pressed:

        def watch(state: _lbfgs.State) -> bool:
            tick(state.iteration, state.values[-1])
            if state.iteration % plan.checkpoint_every == 0:
                _keep(plan, state, about)
            return pressed()

        state, outcome = _lbfgs.minimise(objective, begun, plan.settings, watch)
    # Without its memory a state cannot be gone on from exactly: better an earlier one on disk.
    intact = bool(np.asarray(state.memory.count) > 0)
    _finish_checkpoint(plan, outcome, state if intact else None, about)
    seconds = {"first evaluation, compiling": first, **objective.seconds}
    seconds["optimiser"] = time.perf_counter() - clock - first - seconds["evaluations"]
    loss = state.values[-1]
    return Fitted(state.parameters, outcome, state.iteration, state.evaluations, loss, seconds)


def _search_by_batches(problem: Problem, plan: Plan, start: Parameters, spread: Spread) -> Fitted:
    lengths = problem.features.lengths
    rows = lay_out(lengths, 1).rows
    rows_of_batch = max(1, round(rows * plan.batch_size / max(1, len(lengths))))
    layout = lay_out(lengths, -(-rows // rows_of_batch))
    maker = _shard_maker(problem, layout)

    def objective(parameters: Parameters, batch: int):
        return Objective([maker(batch)], spread, 0.0, problem.legal)(parameters)

    weights = problem.sentence_weights
    settings = StochasticSettings(
        algorithm=cast(Algorithm, plan.algorithm),
        epochs=plan.epochs,
        batches=maker.num_shards,
        learning_rate=plan.learning_rate,
        seed=plan.seed,
        l1=plan.settings.l1,
        l2=plan.l2,
        sentences=float(len(lengths) if weights is None else weights.sum()),
    )
    about = _fingerprint(problem, plan, start)
    begun = _resumed(plan, _stochastic.begin(start, settings), about)
    bar = progress_bar("training", plan.epochs, plan.progress)
    with bar as tick, interrupts_deferred() as pressed:

        def watch(state: _stochastic.StochasticState) -> bool:
            _check_finite(state.values[-1], problem)
            tick(state.iteration, state.values[-1])
            if state.iteration < plan.epochs:
                _keep(plan, state, about)
            return pressed() and state.iteration < plan.epochs

        state, outcome = _stochastic.descend(objective, begun, settings, watch)
    finished = state.iteration >= plan.epochs
    _finish_checkpoint(plan, Outcome.CONVERGED_VALUE if finished else outcome, state, about)
    loss = state.values[-1] if state.values else float("nan")
    evaluations = state.iteration * maker.num_shards
    return Fitted(state.parameters, outcome, state.iteration, evaluations, loss, {})


def _shard_maker(problem: Problem, layout) -> ShardMaker:
    return ShardMaker(
        layout, problem.features, problem.attributes, problem.labels, problem.sentence_weights
    )


def _check_finite(loss: float, problem: Problem) -> None:
    """Of mini-batches: the steps may be too long as well."""
    if problem.labels.allowed is not None or problem.legal is not None:
        _check_possible(loss)
    if not np.isfinite(loss):
        raise ValueError(
            f"learning_rate: expected one at which the loss falls, got a loss of {loss}; try less"
        )


def _check_possible(loss: float) -> None:
    if not np.isfinite(loss):
        raise ValueError(
            "y: expected partial labels that leave every sentence at least one legal labelling, "
            f"got a sentence with none (loss {loss})"
        )


# ------------------------------------------------------------------------------- checkpoints


def _fingerprint(problem: Problem, plan: Plan, start: Parameters) -> str:
    """Says which search this is: a hash of the data, the settings and the starting point."""
    settings = plan.settings._replace(max_iterations=0)
    parts: list[Any] = [problem.classes, problem.attributes, problem.transitions]
    parts += [plan.weights, plan.algorithm, settings, plan.l2, plan.batch_size, plan.cores]
    if plan.algorithm != "lbfgs":
        parts += [plan.epochs, plan.learning_rate, plan.seed]
    digest = hashlib.sha256(repr(parts).encode())
    arrays = [problem.features.ids, problem.features.values, problem.features.lengths]
    arrays += [problem.features.edge_ids, problem.labels.gold, problem.labels.allowed]
    arrays += [problem.sentence_weights, *(problem.legal or ()), *jax.tree.leaves(start)]
    for array in arrays:
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _resumed(plan: Plan, begun: Any, about: str) -> Any:
    """The state on disk if there is one, else the one given."""
    if plan.checkpoint is None or not Path(plan.checkpoint).exists():
        return begun
    if Path(plan.checkpoint).is_dir():
        raise ValueError(f"{plan.checkpoint}: expected a file to keep the search in, got a folder")
    tree, extra = load_checkpoint(plan.checkpoint, _arrays_of(begun), about)
    return begun._replace(**tree, **{**extra, "values": tuple(extra["values"])})


def _arrays_of(state: Any) -> dict[str, Any]:
    names = ("parameters", "gradient", "memory")
    return {name: getattr(state, name) for name in names if hasattr(state, name)}


def _keep(plan: Plan, state: Any, about: str) -> None:
    if plan.checkpoint is None:
        return
    names = ("value", "iteration", "values", "evaluations")
    extra = {name: getattr(state, name) for name in names if hasattr(state, name)}
    save_checkpoint(plan.checkpoint, _arrays_of(state), about, extra)


def _finish_checkpoint(plan: Plan, outcome: Outcome, state: Any | None, about: str) -> None:
    """A search that is over leaves none; one that was interrupted or cut short does."""
    if plan.checkpoint is None:
        return
    if outcome not in (Outcome.INTERRUPTED, Outcome.MAX_ITERATIONS):
        Path(plan.checkpoint).unlink(missing_ok=True)
    elif state is not None:
        _keep(plan, state, about)
