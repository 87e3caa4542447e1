"""The search by mini-batches, of which one at a time is on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import equinox as eqx
import numpy as np

from jaxseq.learn import _stochastic
from jaxseq.learn._corpus import Shard, ShardMaker, lay_out
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Parameters, Spread
from jaxseq.learn._stochastic import Algorithm, StochasticSettings
from jaxseq.tagger._fit_stages import (
    Bar,
    Fitted,
    Part,
    Watching,
    check_possible,
    labelled_maker,
    unlabelled_maker,
)
from jaxseq.tagger._plan import EntropyTerm, Plan
from jaxseq.tagger._problem import Problem
from jaxseq.tagger._resume import Before, Keeper


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


def most_batches(problem: Problem, plan: Plan) -> int:
    """Of an epoch; 0 where the whole corpus is one."""
    if plan.algorithm == "lbfgs":
        return 0
    both = [problem.features] + ([] if problem.unlabelled is None else [problem.unlabelled])
    return max(_rows_of_batches(features.lengths, plan.batch_size) for features in both)


def search_by_batches(
    problem: Problem,
    plan: Plan,
    start: Parameters,
    spread: Spread,
    term: EntropyTerm,
    warm: bool,
    keeper: Keeper,
    bar: Bar,
) -> Fitted:
    """Stage after stage, from `start`; states go to `keeper`, and progress to a bar of `bar`."""
    lengths = problem.features.lengths
    shards = _rows_of_batches(lengths, plan.batch_size)
    labelled = labelled_maker(problem, lay_out(lengths, shards))
    stages = [_Batches(labelled, None)]
    if problem.unlabelled is not None:
        shards = _rows_of_batches(problem.unlabelled.lengths, plan.batch_size)
        whole = _Batches(labelled, unlabelled_maker(problem, shards, term))
        stages = [whole] if warm else [*stages, whole]
    found: Parameters | Fitted = start
    with bar(plan.epochs * len(stages)) as watching:
        for number in range(keeper.stage(len(stages)), len(stages)):
            part = Part(number, number + 1 == len(stages), plan.epochs)
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
    part: Part,
    run: _Epochs,
    start: Parameters | Fitted,
    problem: Problem,
    plan: Plan,
    keeper: Keeper,
    watching: Watching,
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


def _check_finite(loss: float, problem: Problem) -> None:
    """Of mini-batches: the steps may be too long as well."""
    if problem.labels.allowed is not None or problem.legal is not None:
        check_possible(loss)
    if not np.isfinite(loss):
        raise ValueError(
            f"learning_rate: expected one at which the loss falls, got a loss of {loss}; try less"
        )
