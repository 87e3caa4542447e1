"""From features and labels to the parameters of a model.

With unlabelled sentences the search has several stages: first the supervised optimum, since the
entropy makes the objective non-concave and this is where Jiao et al. start; then the whole
objective, in as many pieces as γ takes values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq.learn import _lbfgs, _stochastic
from jaxseq.learn._corpus import (
    Layout,
    Shard,
    ShardMaker,
    lay_out,
    lay_out_by_length,
    without_gaps,
)
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._mesh_objective import MeshObjective
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Parameters, Spread
from jaxseq.learn._progress import progress_bar
from jaxseq.learn._stochastic import Algorithm, StochasticSettings
from jaxseq.scale._mesh import own_rows
from jaxseq.tagger._plan import EntropyTerm, Plan
from jaxseq.tagger._problem import Problem
from jaxseq.tagger._resume import Before, Keeper, fingerprint
from jaxseq.tagger._shared_fingerprint import shared_fingerprint


@dataclass(frozen=True)
class Fitted:
    """Where a search ended."""

    parameters: Parameters
    outcome: Outcome
    iterations: int
    evaluations: int
    loss: float
    seconds: dict[str, float]

    @classmethod
    def at(cls, start: Parameters) -> Fitted:
        """Where one begins."""
        return cls(start, Outcome.MAX_ITERATIONS, 0, 0, float("nan"), {})


class Stage(NamedTuple):
    """A part of a search: γ (None: labelled sentences alone) and iterations at most."""

    entropy_weight: float | None
    iterations: int


def search(
    problem: Problem, plan: Plan, start: Parameters | None, spread: Spread, term: EntropyTerm
) -> Fitted:
    """Find the parameters.

    Args:
        problem: the data. plan: how to search. spread: which weights are learnt.
        start: where; None for zeros and, with unlabelled sentences, by way of the supervised
            optimum.
        term: of the unlabelled sentences, if there are any.
    """
    zeros = spread.zeros(problem.edge_attributes, plan.dtype)
    warm = start is not None
    begin = zeros if start is None else _as_type(start, plan.dtype)
    keeper = _keeper(problem, plan, begin, term, warm)
    run = _search_all_at_once if plan.algorithm == "lbfgs" else _search_by_batches
    return run(problem, plan, begin, spread, term, warm, keeper)


def _keeper(
    problem: Problem, plan: Plan, begin: Parameters, term: EntropyTerm, warm: bool
) -> Keeper:
    """Where states are kept, under a name that says which search they are of."""
    if plan.checkpoint is None:
        return Keeper(None, "")
    if plan.mesh is not None:
        about = shared_fingerprint(problem, plan, begin, term, warm)
        return Keeper(plan.checkpoint, about, peers=peers_of(plan.mesh))
    steps = plan.epochs * _most_batches(problem, plan)
    about = fingerprint(problem, plan, begin, term, warm, steps)
    if plan.algorithm != "lbfgs":
        return Keeper(plan.checkpoint, about)

    def on_a_mesh() -> str:
        return shared_fingerprint(problem, plan, begin, term, warm)

    return Keeper(plan.checkpoint, about, on_a_mesh)


def _as_type(parameters: Parameters, dtype: str) -> Parameters:
    leaves = (None if leaf is None else jnp.asarray(leaf, dtype) for leaf in parameters)
    return Parameters(*cast(Any, leaves))


# ------------------------------------------------------------------------- the whole corpus


def _stages(problem: Problem, plan: Plan, term: EntropyTerm, warm: bool) -> list[Stage]:
    """In the order that they run in."""
    iterations = plan.settings.max_iterations
    if problem.unlabelled is None:
        return [Stage(None, iterations)]
    first = [] if warm else [Stage(None, iterations)]
    return first + [Stage(*piece) for piece in term.pieces(iterations)]


def _search_all_at_once(
    problem: Problem,
    plan: Plan,
    start: Parameters,
    spread: Spread,
    term: EntropyTerm,
    warm: bool,
    keeper: Keeper,
) -> Fitted:
    supervised, whole = _objectives(problem, plan, spread, term)
    if isinstance(supervised, MeshObjective):
        start = supervised.place_parameters(start)
    stages = _stages(problem, plan, term, warm)
    found = None
    total = sum(stage.iterations for stage in stages)
    with _bar(plan, total) as watching:
        for number in range(keeper.stage(len(stages)), len(stages)):
            weight, iterations = stages[number]
            objective = supervised if weight is None else whole
            objective.entropy_weight = weight or 0.0
            part = _Part(number, number + 1 == len(stages), iterations)
            found = _descend_in(part, objective, found or start, plan, keeper, watching)
            if found.outcome is Outcome.INTERRUPTED:
                break
    assert found is not None
    if isinstance(supervised, MeshObjective):
        found = replace(found, parameters=supervised.collect_parameters(found.parameters))
    return found


def _objectives(
    problem: Problem, plan: Plan, spread: Spread, term: EntropyTerm
) -> tuple[Objective, Objective] | tuple[MeshObjective, MeshObjective]:
    """Of the labelled sentences, and of all; the same where there are no others."""
    shards = plan.cores if plan.mesh is None else len(own_rows(plan.mesh))
    labelled = _labelled_maker(problem, lay_out(problem.features.lengths, shards)).all()
    rest = None
    if problem.unlabelled is not None:
        rest = _unlabelled_maker(problem, shards, term).all()
    settings = (spread, plan.l2, problem.legal)
    if plan.mesh is not None:
        on_mesh = MeshObjective(labelled, *settings, mesh=plan.mesh)
        return on_mesh, on_mesh if rest is None else on_mesh.with_unlabelled(rest, term.gradient)
    supervised = Objective(labelled, *settings)
    if rest is None:
        return supervised, supervised
    whole = Objective(labelled, *settings, rest, 0.0, entropy_gradient=term.gradient)
    return supervised, whole


class _Part(NamedTuple):
    """Which stage is running, whether it is the last, and its iterations at most."""

    stage: int
    last: bool
    iterations: int


def _descend_in(
    part: _Part,
    objective: Objective | MeshObjective,
    start: Parameters | Fitted,
    plan: Plan,
    keeper: Keeper,
    watching: _Watching,
) -> Fitted:
    """One stage of L-BFGS, from a point or from where the stage before it ended."""
    clock = time.perf_counter()
    settings = plan.settings._replace(max_iterations=part.iterations)
    earlier = start if isinstance(start, Fitted) else Fitted.at(start)
    begun = _lbfgs.begin(objective, earlier.parameters, settings)
    _check_possible(begun.value)
    first = time.perf_counter() - clock
    objective.seconds = dict.fromkeys(objective.seconds, 0.0)
    begun, before = keeper.resumed(begun, part.stage)
    before = Before(earlier.iterations, earlier.evaluations) if before is None else before

    def watch(state: _lbfgs.State) -> bool:
        watching.tick(before.iterations + state.iteration, state.values[-1])
        if (before.iterations + state.iteration) % plan.checkpoint_every == 0:
            keeper.keep(state, part.stage, before)
        return watching.pressed()

    state, outcome = _lbfgs.minimise(objective, begun, settings, watch)
    # Without its memory a state cannot be gone on from exactly: better an earlier one on disk.
    intact = bool(np.asarray(state.memory.count) > 0)
    keeper.finish(outcome, state if intact else None, part.stage, before, part.last)
    seconds = {"first evaluation, compiling": first, **objective.seconds}
    seconds["optimiser"] = time.perf_counter() - clock - first - seconds["evaluations"]
    return Fitted(
        state.parameters,
        outcome,
        before.iterations + state.iteration,
        before.evaluations + state.evaluations,
        state.values[-1],
        {name: earlier.seconds.get(name, 0.0) + value for name, value in seconds.items()},
    )


# ------------------------------------------------------------------------------ mini-batches


class _Batches:
    """The batches of one epoch: labelled, or labelled and unlabelled side by side.

    Where there are more of the one kind than of the other, the fewer come round again, and count
    for less each time, so that an epoch adds up to the whole objective.
    """

    def __init__(self, labelled: ShardMaker, unlabelled: ShardMaker | None):
        self._labelled, self._unlabelled = labelled, unlabelled
        others = 0 if unlabelled is None else unlabelled.num_shards
        self.number = max(labelled.num_shards, others)

    def _part(self, maker: ShardMaker, batch: int) -> Shard:
        index = batch % maker.num_shards
        times = len(range(index, self.number, maker.num_shards))
        shard = maker(index)
        if times == 1:
            return shard
        return eqx.tree_at(lambda shard: shard.weights, shard, shard.weights / times)

    def __call__(self, batch: int) -> tuple[list[Shard], list[Shard]]:
        others = [] if self._unlabelled is None else [self._part(self._unlabelled, batch)]
        return [self._part(self._labelled, batch)], others


def _rows_of_batches(lengths: np.ndarray, batch_size: int) -> int:
    """Into how many shards to cut, for about so many sentences in each."""
    rows = lay_out(lengths, 1).rows
    rows_of_batch = max(1, round(rows * batch_size / max(1, len(lengths))))
    return -(-rows // rows_of_batch)


def _most_batches(problem: Problem, plan: Plan) -> int:
    """Of an epoch; 0 where the whole corpus is one."""
    if plan.algorithm == "lbfgs":
        return 0
    both = [problem.features] + ([] if problem.unlabelled is None else [problem.unlabelled])
    return max(_rows_of_batches(features.lengths, plan.batch_size) for features in both)


def _search_by_batches(
    problem: Problem,
    plan: Plan,
    start: Parameters,
    spread: Spread,
    term: EntropyTerm,
    warm: bool,
    keeper: Keeper,
) -> Fitted:
    lengths = problem.features.lengths
    shards = _rows_of_batches(lengths, plan.batch_size)
    labelled = _labelled_maker(problem, lay_out(lengths, shards))
    stages = [_Batches(labelled, None)]
    if problem.unlabelled is not None:
        shards = _rows_of_batches(problem.unlabelled.lengths, plan.batch_size)
        whole = _Batches(labelled, _unlabelled_maker(problem, shards, term))
        stages = [whole] if warm else [*stages, whole]
    found: Parameters | Fitted = start
    with _bar(plan, plan.epochs * len(stages)) as watching:
        for number in range(keeper.stage(len(stages)), len(stages)):
            part = _Part(number, number + 1 == len(stages), plan.epochs)
            run = _epochs_of(stages[number], problem, plan, spread, term)
            found = _descend_by_batches(part, run, found, problem, plan, keeper, watching)
            if found.outcome is Outcome.INTERRUPTED:
                break
    assert isinstance(found, Fitted)
    return found


class _Epochs(NamedTuple):
    """The loss of a batch, and how many there are."""

    objective: Callable[[Parameters, int, int], tuple[Any, Any]]
    batches: int


def _epochs_of(
    batches: _Batches, problem: Problem, plan: Plan, spread: Spread, term: EntropyTerm
) -> _Epochs:
    in_place = Objective([], spread, 0.0, problem.legal, entropy_gradient=term.gradient)

    def objective(parameters: Parameters, batch: int, step: int):
        in_place.take(*batches(batch))
        in_place.entropy_weight = term.at(step)
        return in_place(parameters)

    return _Epochs(objective, batches.number)


def _descend_by_batches(
    part: _Part,
    run: _Epochs,
    start: Parameters | Fitted,
    problem: Problem,
    plan: Plan,
    keeper: Keeper,
    watching: _Watching,
) -> Fitted:
    earlier = start if isinstance(start, Fitted) else Fitted.at(start)
    weights, count = problem.sentence_weights, len(problem.features.lengths)
    settings = StochasticSettings(
        algorithm=cast(Algorithm, plan.algorithm),
        epochs=part.iterations,
        batches=run.batches,
        learning_rate=plan.learning_rate,
        seed=plan.seed,
        l1=plan.settings.l1,
        l2=plan.l2,
        sentences=float(count if weights is None else weights.sum()),
    )
    begun = _stochastic.begin(earlier.parameters, settings)
    begun, before = keeper.resumed(begun, part.stage)
    before = Before(earlier.iterations, earlier.evaluations) if before is None else before

    def watch(state: _stochastic.StochasticState) -> bool:
        _check_finite(state.values[-1], problem)
        watching.tick(before.iterations + state.iteration, state.values[-1])
        if state.iteration < part.iterations:
            keeper.keep(state, part.stage, before)
        return watching.pressed() and state.iteration < part.iterations

    state, outcome = _stochastic.descend(run.objective, begun, settings, watch)
    finished = state.iteration >= part.iterations
    over = Outcome.CONVERGED_VALUE if finished else outcome
    keeper.finish(over, state, part.stage, before, part.last)
    return Fitted(
        state.parameters,
        outcome,
        before.iterations + state.iteration,
        before.evaluations + state.iteration * run.batches,
        state.values[-1] if state.values else float("nan"),
        {},
    )


# ----------------------------------------------------------------------------------- shared


class _Watching(NamedTuple):
    """Progress to tell of, and whether Ctrl-C was pressed."""

    tick: Callable[[int, float], None]
    pressed: Callable[[], bool]


@contextmanager
def _bar(plan: Plan, total: int) -> Iterator[_Watching]:
    peers = peers_of(plan.mesh)
    with progress_bar("training", total, plan.progress) as tick, interrupts_deferred() as pressed:
        # If one process stops, all do: none can go on without the others.
        yield _Watching(tick, lambda: any(peers.exchange(bool(pressed()))))


def _labelled_maker(problem: Problem, layout: Layout) -> ShardMaker:
    features = without_gaps(problem.features)
    return ShardMaker(
        layout, features, problem.attributes, problem.labels, problem.sentence_weights
    )


def _unlabelled_maker(problem: Problem, shards: int, term: EntropyTerm) -> ShardMaker:
    features = problem.unlabelled
    assert features is not None
    # Jiao's cost grows with the square of a row's length, whatever is in it.
    place = lay_out_by_length if term.gradient == "jiao" else lay_out
    layout = place(features.lengths, shards)
    return ShardMaker(layout, without_gaps(features), problem.attributes)


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
