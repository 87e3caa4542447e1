"""The search of all sentences at once, by L-BFGS, on the cores of one device or on a mesh."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxseq.learn import _lbfgs
from jaxseq.learn._corpus import lay_out
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._mesh_objective import MeshObjective
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Parameters, Spread
from jaxseq.scale._mesh import own_rows
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


class Stage(NamedTuple):
    """A part of a search: γ (None: labelled sentences alone) and iterations at most."""

    entropy_weight: float | None
    iterations: int


def _stages(problem: Problem, plan: Plan, term: EntropyTerm, warm: bool) -> list[Stage]:
    """In the order that they run in."""
    iterations = plan.settings.max_iterations
    if problem.unlabelled is None:
        return [Stage(None, iterations)]
    first = [] if warm else [Stage(None, iterations)]
    return first + [Stage(*piece) for piece in term.pieces(iterations)]


def search_all_at_once(
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
    supervised, whole = _objectives(problem, plan, spread, term)
    if isinstance(supervised, MeshObjective):
        start = supervised.place_parameters(start)
    stages = _stages(problem, plan, term, warm)
    found = None
    total = sum(stage.iterations for stage in stages)
    with bar(total) as watching:
        for number in range(keeper.stage(len(stages)), len(stages)):
            weight, iterations = stages[number]
            objective = supervised if weight is None else whole
            objective.entropy_weight = weight or 0.0
            part = Part(number, number + 1 == len(stages), iterations)
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
    labelled = labelled_maker(problem, lay_out(problem.features.lengths, shards)).all()
    rest = None
    if problem.unlabelled is not None:
        rest = unlabelled_maker(problem, shards, term).all()
    settings = (spread, plan.l2, problem.legal)
    if plan.mesh is not None:
        on_mesh = MeshObjective(labelled, *settings, mesh=plan.mesh)
        return on_mesh, on_mesh if rest is None else on_mesh.with_unlabelled(rest, term.gradient)
    supervised = Objective(labelled, *settings)
    if rest is None:
        return supervised, supervised
    whole = Objective(labelled, *settings, rest, 0.0, entropy_gradient=term.gradient)
    return supervised, whole


def _descend_in(
    part: Part,
    objective: Objective | MeshObjective,
    start: Parameters | Fitted,
    plan: Plan,
    keeper: Keeper,
    watching: Watching,
) -> Fitted:
    """One stage of L-BFGS, from a point or from where the stage before it ended."""
    clock = time.perf_counter()
    settings = plan.settings._replace(max_iterations=part.iterations)
    earlier = start if isinstance(start, Fitted) else Fitted.at(start)
    begun = _lbfgs.begin(objective, earlier.parameters, settings)
    check_possible(begun.value)
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
