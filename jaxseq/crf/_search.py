"""The search by mini-batches, of which one at a time is on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq._runtime import Outcome, interrupts_deferred, progress_bar
from jaxseq.crf import _lbfgs, _stochastic
from jaxseq.crf._data import Layout, Shard, ShardMaker, lay_out, lay_out_by_length, without_gaps
from jaxseq.crf._mesh_objective import Blocks, MeshObjective
from jaxseq.crf._objective import Objective
from jaxseq.crf._parameters import Parameters, Spread
from jaxseq.crf._problem import DENSE_WASTE, EntropyTerm, Plan, Problem
from jaxseq.crf._resume import Before, Keeper, fingerprint, shared_fingerprint
from jaxseq.crf._stochastic import Algorithm, StochasticSettings
from jaxseq.parallel import mesh_peers, own_rows

# -------------------------------------------------------------------------------------------------
# What the searches of a tagger have in common: stages, their data, and where they end.


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


class Part(NamedTuple):
    """Which stage is running, whether it is the last, and its iterations at most."""

    stage: int
    last: bool
    iterations: int


class Watching(NamedTuple):
    """Progress to tell of, and whether Ctrl-C was pressed."""

    tick: Callable[[int, float], None]
    pressed: Callable[[], bool]


Bar = Callable[[int], AbstractContextManager[Watching]]
"""From the number of iterations at most to a context in which they are watched."""


def labelled_maker(problem: Problem, layout: Layout) -> ShardMaker:
    """Shards of the labelled sentences."""
    features = without_gaps(problem.features)
    return ShardMaker(
        layout, features, problem.attributes, problem.labels, problem.sentence_weights
    )


def unlabelled_maker(problem: Problem, shards: int, term: EntropyTerm) -> ShardMaker:
    """So many shards of the others."""
    features = problem.unlabelled
    assert features is not None
    # Jiao's cost grows with the square of a row's length, whatever is in it.
    place = lay_out_by_length if term.gradient == "jiao" else lay_out
    layout = place(features.lengths, shards)
    return ShardMaker(layout, without_gaps(features), problem.attributes)


def check_possible(loss: float) -> None:
    """ValueError on the loss of labels that cannot be."""
    if not np.isfinite(loss):
        raise ValueError(
            "y: expected partial labels that leave every sentence at least one legal labelling, "
            f"got a sentence with none (loss {loss})"
        )


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
    begun = _stochastic.begin_descent(earlier.parameters, settings)
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


# -------------------------------------------------------------------------------------------------
# The search of all sentences at once, by L-BFGS, on the cores of one device or on a mesh.


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
    begun = _lbfgs.begin_search(objective, earlier.parameters, settings)
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


# -------------------------------------------------------------------------------------------------
# From features and labels to the parameters of a model.
#
# With unlabelled sentences the search has several stages: first the supervised optimum, since the
# entropy makes the objective non-concave and this is where Jiao et al. start; then the whole
# objective, in as many pieces as γ takes values.


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
    warm, blocks = start is not None, Blocks.of(spread, plan.mesh)
    if blocks.count > 1:
        table = None if start is None else np.asarray(start.weights).astype(plan.dtype, copy=False)
        begin = _start_in_blocks(problem, plan, start, spread, table, blocks)
        named = begin._replace(weights=cast(Any, _in_pieces(table, plan.dtype, blocks)))
    elif start is None:
        begin = named = spread.zeros(problem.edge_attributes, plan.dtype)
    else:
        begin = named = _as_type(start, plan.dtype)
    keeper = _keeper(problem, plan, named, term, warm, blocks)
    run = search_all_at_once if plan.algorithm == "lbfgs" else search_by_batches
    return run(problem, plan, begin, spread, term, warm, keeper, partial(_bar, plan))


def _keeper(
    problem: Problem, plan: Plan, begin: Any, term: EntropyTerm, warm: bool, blocks: Blocks
) -> Keeper:
    """Where states are kept, under a name that says which search they are of.

    It says nothing of cores, and that of L-BFGS nothing of devices and processes: stopped on some,
    a search goes on with others. A file that is named after the cores of one process as well is
    found where this process has all sentences.
    """
    if plan.checkpoint is None:
        return Keeper(None, "")

    def by_cores(cores: int = plan.cores) -> str:
        steps = plan.epochs * most_batches(problem, plan)
        return fingerprint(problem, replace(plan, cores=cores), begin, term, warm, steps)

    if plan.algorithm != "lbfgs":
        return Keeper(plan.checkpoint, by_cores(0), by_cores, blocks=blocks)
    shared = shared_fingerprint(problem, plan, begin, term, warm)
    if plan.mesh is None:
        return Keeper(plan.checkpoint, shared, by_cores, blocks=blocks)
    peers = mesh_peers(plan.mesh)
    also = by_cores if peers.count == 1 else None
    return Keeper(plan.checkpoint, shared, also, peers, blocks)


def _as_type(parameters: Parameters, dtype: str) -> Parameters:
    leaves = (None if leaf is None else jnp.asarray(leaf, dtype) for leaf in parameters)
    return Parameters(*cast(Any, leaves))


def _start_in_blocks(
    problem: Problem,
    plan: Plan,
    start: Parameters | None,
    spread: Spread,
    table: np.ndarray | None,
    blocks: Blocks,
) -> Parameters:
    """Where the search begins; the table of weights is never whole on a device."""
    assert plan.mesh is not None
    if start is None or table is None:
        small = replace(spread, attributes=0).zeros(problem.edge_attributes, plan.dtype)
        return small._replace(weights=blocks.zeros(plan.dtype, plan.mesh))
    small = _as_type(start._replace(weights=cast(Any, None)), plan.dtype)
    return small._replace(weights=blocks.cut(table, plan.mesh))


def _in_pieces(table: np.ndarray | None, dtype: str, blocks: Blocks) -> list[np.ndarray]:
    """The numbers of a table (None: of zeros) in the order that they have without blocks.

    A hash takes the pieces as it takes the whole, which is thus never put together.
    """
    flat = blocks.width > DENSE_WASTE * blocks.labels
    columns = blocks.labels if flat else blocks.width
    spans = [blocks.span(block) for block in range(blocks.count)]
    if not flat:
        spans.append((blocks.attributes, blocks.attributes + 1))
    if table is None:
        nothing = np.zeros((max(blocks.rows, 1), columns), dtype)
        return [nothing[: stop - first] for first, stop in spans]
    return [table[first:stop, :columns] for first, stop in spans]


@contextmanager
def _bar(plan: Plan, total: int) -> Iterator[Watching]:
    peers = mesh_peers(plan.mesh)
    with progress_bar("training", total, plan.progress) as tick, interrupts_deferred() as pressed:
        # If one process stops, all do: none can go on without the others.
        yield Watching(tick, lambda: any(peers.exchange(bool(pressed()))))
