"""From labelled and unlabelled words to the probabilities of a hidden Markov model.

Where every label is known, the supervised model is a matter of counting. Where labels are known in
part, EM on the labelled sentences finds it: the first stage. With unlabelled sentences, EM between
the two goes on from there: the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxseq.learn._counts import known_counts, log_likelihoods
from jaxseq.learn._em import agree, estimate_hmm, why_stop
from jaxseq.learn._em_corpus import WordCorpus
from jaxseq.learn._em_operator import EMOperator
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._progress import progress_bar
from jaxseq.models._hmm import HMM, Multinomials
from jaxseq.tagger._hmm_data import HMMData
from jaxseq.tagger._hmm_fingerprint import hmm_fingerprint
from jaxseq.tagger._hmm_plan import HMMPlan
from jaxseq.tagger._resume import Before, Keeper

COUNTED = "converged: relative frequencies, which need no search"


class HMMFitted(NamedTuple):
    """Where a search ended: the model, and its unnormalised parameters Θ̃.

    objectives: what EM increases, of the last stage, before its first step and after each.
    log_likelihood: Σ log P(x) of the unlabelled sentences (of words and best labels, in hard EM);
    None without them. outcome: why it ended, in words.
    """

    model: HMM
    parameters: Multinomials
    objectives: tuple[float, ...]
    log_likelihood: float | None
    iterations: int
    outcome: str


class Climb(NamedTuple):
    """Everything that EM needs to go on: Θ̃, iterations done, and the objective at each."""

    parameters: Multinomials
    iteration: int
    values: tuple[float, ...]


class _Stage(NamedTuple):
    """A part of a search: what it iterates, and the corpora that have to be possible."""

    operator: EMOperator
    corpora: dict[str, WordCorpus]


def search_hmm(data: HMMData, plan: HMMPlan, start: HMM | None = None) -> HMMFitted:
    """Estimate the model.

    Args:
        data: sentences. plan: how.
        start: a model to begin EM between labelled and unlabelled sentences with; None for the
            supervised one, which is estimated first.

    On a mesh of several processes, the data are those of this one, and all call this together.
    """
    known = all(peers_of(plan.mesh).exchange(data.labelled.is_labelled))
    stages = _stages(data, plan, known or start is not None)
    begun = _supervised_start(data, plan, known) if start is None else start
    if not stages:
        return _counted(begun, data, plan)
    keeper = _keeper(data, plan, start)
    total = plan.max_iterations * len(stages)
    found = None
    with progress_bar("EM", total, plan.progress) as tick, interrupts_deferred() as pressed:
        for number in range(keeper.stage(len(stages)), len(stages)):
            run = _Run(plan, keeper, tick, pressed, number, number + 1 == len(stages))
            found = _climb(stages[number], begun if found is None else found, run)
            if found.outcome == Outcome.INTERRUPTED.value:
                break
    assert found is not None
    return found


def _keeper(data: HMMData, plan: HMMPlan, start: HMM | None) -> Keeper:
    """Where states are kept, under a name that says which search they are of."""
    if plan.checkpoint is None:
        return Keeper(None, "")
    peers = peers_of(plan.mesh)
    with peers.guard():
        return Keeper(plan.checkpoint, hmm_fingerprint(data, plan, start), peers=peers)


def _stages(data: HMMData, plan: HMMPlan, supervised: bool) -> list[_Stage]:
    """In the order that they run in; without the first, where there is a supervised model."""
    found = []
    if not supervised:
        first = EMOperator(data.labelled, None, 0.0, plan.smoothing, hard=plan.hard, mesh=plan.mesh)
        found.append(_Stage(first, {"X": data.labelled}))
    if data.unlabelled is not None:
        operator = EMOperator(
            data.labelled,
            data.unlabelled,
            plan.weight,
            plan.smoothing,
            frozen=plan.frozen,
            hard=plan.hard,
            mesh=plan.mesh,
        )
        found.append(_Stage(operator, {"X": data.labelled, "unlabelled": data.unlabelled}))
    return found


def _supervised_start(data: HMMData, plan: HMMPlan, all_known: bool) -> HMM:
    """Relative frequencies of what is known for sure, smoothed."""
    labels, unknown, given = len(data.classes), data.vocabulary.unknown, plan.smoothing
    shared = {"dtype": plan.dtype, "mesh": plan.mesh}
    if all_known:
        return estimate_hmm(data.labelled, labels, smoothing=given, unknown=unknown, **shared)
    known = known_counts(data.labelled, labels, **shared)
    return HMM(*(family + amount for family, amount in zip(known, given)), unknown=unknown)


def _counted(model: HMM, data: HMMData, plan: HMMPlan) -> HMMFitted:
    operator = EMOperator(data.labelled, None, 0.0, plan.smoothing, mesh=plan.mesh)
    found = operator(model.probabilities)
    return HMMFitted(model, model.probabilities, (found.objective,), None, 0, COUNTED)


# ------------------------------------------------------------------------------------- climbing


class _Run(NamedTuple):
    """How to climb: settings, where states are kept, whom to tell, and which stage this is."""

    plan: HMMPlan
    keeper: Keeper
    tick: Callable[[int, float], None]
    pressed: Callable[[], bool]
    stage: int
    last: bool


def _climb(stage: _Stage, start: HMM | HMMFitted, run: _Run) -> HMMFitted:
    """EM, from a model or from where the stage before it ended."""
    plan, operator = run.plan, stage.operator
    peers = peers_of(plan.mesh)
    earlier = 0 if isinstance(start, HMM) else start.iterations
    model = start if isinstance(start, HMM) else start.model
    state, before = run.keeper.resumed(Climb(model.probabilities, 0, ()), run.stage)
    if not state.iteration:
        with peers.guard():
            _check_possible(stage, model)
    before = Before(earlier) if before is None else before
    now = operator(state.parameters)
    state = state if state.values else state._replace(values=(now.objective,))
    outcome = Outcome.MAX_ITERATIONS
    while state.iteration < plan.max_iterations:
        following = operator(now.following)
        ended = agree(peers, why_stop(now, following, plan.tolerance))
        if ended is not Outcome.PRECISION:
            values = (*state.values, following.objective)
            state, now = Climb(now.following, state.iteration + 1, values), following
            run.tick(before.iterations + state.iteration, -now.objective)
            if ended is None and state.iteration % plan.checkpoint_every == 0:
                run.keeper.keep(state, run.stage, before)
        if ended is None and any(peers.exchange(bool(run.pressed()))):
            ended = Outcome.INTERRUPTED
        if ended is not None:
            outcome = ended
            break
    run.keeper.finish(outcome, state, run.stage, before, run.last)
    return HMMFitted(
        HMM(*state.parameters, unknown=model.unknown),
        state.parameters,
        state.values,
        now.log_likelihood if "unlabelled" in stage.corpora else None,
        before.iterations + state.iteration,
        outcome.value,
    )


def _check_possible(stage: _Stage, model: HMM) -> None:
    """ValueError on a sentence that EM could learn nothing from: what is impossible stays so."""
    for name, corpus in stage.corpora.items():
        if name == "X" and stage.operator.all_known:
            continue  # its counts do not depend on the model
        impossible = np.isneginf(log_likelihoods(model.probabilities, corpus))
        if impossible.any():
            raise ValueError(
                f"{name}[{corpus.index[int(impossible.argmax())]}]: expected sentences that the "
                f"supervised model holds possible, got one of probability 0 ({impossible.sum()} of "
                f"{corpus.num_sequences} are); smoothing above 0 makes all possible"
            )
