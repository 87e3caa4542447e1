"""The search for the parameters: one driver of stages, under every kind of training.

A stage is a search by L-BFGS on one objective, or a descent by mini-batches. With unlabelled
sentences there are several: first the supervised optimum, since the entropy makes the objective
non-concave and this is where Jiao et al. start; then the whole objective, in as many pieces as γ
takes values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxseq._io import Before, Fingerprint, SearchStore, Stages
from jaxseq._runtime import Outcome, forget_programs, interrupts_deferred, progress_bar
from jaxseq.crf import _lbfgs
from jaxseq.crf._expectation_gradient import SharePenalty
from jaxseq.crf._objective import ExpectationTerm, Objective
from jaxseq.crf._parameters import Parameters, Spread
from jaxseq.crf._problem import Problem
from jaxseq.crf._projection import Projection
from jaxseq.crf._settings import EntropyTerm, Plan
from jaxseq.crf._shards import (
    Layout,
    Shard,
    ShardMaker,
    lay_out,
    lay_out_by_length,
    without_gaps,
)
from jaxseq.parallel import Devices, off_mesh

Algorithm = Literal["adamw", "sgd"]

# -------------------------------------------------------------------------- descent by mini-batches

MOMENTUM = 0.9
"""Of SGD: the share of the last step that goes into the next."""


class StochasticSettings(NamedTuple):
    """`epochs` passes over the batches in an order drawn from `seed`; the learning rate falls to 0
    along a cosine. Penalties are for the whole corpus; each of `batches` takes its part."""

    algorithm: Algorithm
    epochs: int
    batches: int
    learning_rate: float
    seed: int
    l1: float = 0.0
    l2: float = 0.0
    sentences: float = 1.0


class StochasticState(NamedTuple):
    """Parameters, what the optimiser remembers, epochs done, and the mean loss of the last one."""

    parameters: Any
    memory: Any
    iteration: int
    values: tuple[float, ...]


def _schedule(settings: StochasticSettings) -> optax.Schedule:
    return optax.cosine_decay_schedule(
        settings.learning_rate, max(1, settings.epochs * settings.batches)
    )


def _optimiser(settings: StochasticSettings) -> optax.GradientTransformation:
    # Decoupled from the gradient for AdamW (Loshchilov & Hutter 2019), a part of it for SGD.
    decay = settings.l2 / settings.sentences  # the loss below is that of an average sentence
    schedule = _schedule(settings)
    if settings.algorithm == "adamw":
        return optax.adamw(schedule, weight_decay=decay)
    return optax.chain(optax.add_decayed_weights(decay), optax.sgd(schedule, momentum=MOMENTUM))


def begin_descent(start: Any, settings: StochasticSettings) -> StochasticState:
    """The state before the first epoch."""
    return StochasticState(start, _optimiser(settings).init(start), 0, ())


def descend(
    objective: Callable[[Any, int, int], tuple[Array, Any]],
    start: Any,
    settings: StochasticSettings,
    watch: Callable[[StochasticState], bool | None] = lambda state: None,
) -> tuple[StochasticState, Outcome]:
    """Minimise the mean of ``objective(parameters, batch, step)`` over batches, plus penalties.

    l1 is taken by a proximal step after each update: weights within reach of 0 become 0. With SGD
    this is the minimum of the penalised loss; AdamW scales its gradients but not the penalties,
    as its authors want it, and so ends elsewhere.

    Args:
        objective: summed loss of one batch, and its gradient; it is told how many steps were done.
        start: parameters, or the `StochasticState` after some epoch to go on from.
        settings: see there.
        watch: called after every epoch; ends the descent by returning True.
    """
    optimiser, schedule = _optimiser(settings), _schedule(settings)
    share = settings.batches / settings.sentences
    # Momentum sums a steady gradient up to 1 / (1 - momentum) times itself; l1 must keep up.
    pull = settings.l1 / settings.sentences
    pull = pull / (1 - MOMENTUM) if settings.algorithm == "sgd" else pull

    # Compiled once per search: the settings are constants of the program.
    @jax.jit
    def update(parameters, memory, gradient, step):
        gradient = jax.tree.map(lambda g: g * share, gradient)
        updates, memory = optimiser.update(gradient, memory, parameters)
        parameters = optax.apply_updates(parameters, updates)
        reach = schedule(step) * pull  # soft thresholding, the proximal operator of the l1 term
        shrunk = jax.tree.map(
            lambda p: jnp.sign(p) * jnp.maximum(jnp.abs(p) - reach, 0), parameters
        )
        return (shrunk if settings.l1 > 0 else parameters), memory

    state = start if isinstance(start, StochasticState) else begin_descent(start, settings)
    try:
        while state.iteration < settings.epochs:
            epoch = state.iteration
            # By epoch, so that a search that is taken up again draws the same orders.
            order = np.random.default_rng([settings.seed, epoch]).permutation(settings.batches)
            parameters, memory, total = state.parameters, state.memory, 0.0
            for place, batch in enumerate(order.tolist()):
                step = epoch * settings.batches + place
                loss, gradient = objective(parameters, batch, step)
                parameters, memory = update(parameters, memory, gradient, step)
                total += float(loss)
            state = StochasticState(parameters, memory, epoch + 1, (total,))
            if watch(state):
                return state, Outcome.INTERRUPTED
    except KeyboardInterrupt:
        return state, Outcome.INTERRUPTED
    return state, Outcome.MAX_ITERATIONS


# ------------------------------------------------------------------------------- stages of a search


@dataclass(frozen=True)
class Fitted:
    """Where a search ended."""

    parameters: Parameters
    outcome: Outcome
    iterations: int
    evaluations: int
    loss: float
    seconds: dict[str, float]
    unsaved: SearchStore | None = None  # of a search that is over: to be removed with a model saved


Watch = Callable[[Any], bool]
"""Called with the state after every iteration; ends the stage by returning True."""


@runtime_checkable
class Stage(Protocol):
    """A part of a search, from a point to another."""

    iterations: int
    """At most."""
    seconds: dict[str, float]
    """Where the time went."""

    def begin(self, point: Parameters) -> Any:
        """The state before the first iteration, with `parameters`, `iteration` and `values`."""
        ...

    def run(self, state: Any, watch: Watch) -> tuple[Any, Outcome]:
        """Iterate from a state."""
        ...

    def evaluations(self, state: Any) -> int:
        """Passes over the data until a state."""
        ...

    def can_go_on(self, state: Any, outcome: Outcome) -> bool:
        """Whether more could be done, now or with other settings."""
        ...

    def is_exact(self, state: Any) -> bool:
        """Whether to go on from the state is to go on as if it had never stopped."""
        ...


def run_stages(
    stages: Sequence[Stage],
    start: Parameters,
    store: SearchStore | None = None,
    *,
    keep_every: int = 1,
    title: str = "training",
    progress: bool | None = False,
    devices: Devices | None = None,
    ask_every: int = 1,
    stop_at: int | None = None,
) -> Fitted:
    """Run stages one after another, each from where the one before it ended.

    The first Ctrl-C ends the search after the iteration that is under way, so that it can be gone
    on from exactly; a second one does not wait for that.

    Args:
        stages: at least one.
        start: the point to begin with.
        store: where the state is kept; if it has one, the search goes on from there.
        keep_every: iterations, over all stages, between two times that it is kept.
        title: of the progress bar.
        progress: whether to show it; None on a terminal alone.
        devices: the processes; if one stops, all do, since none can go on without the others.
        ask_every: iterations between two times that these ask each other whether to stop.
        stop_at: iterations after which to end, as by Ctrl-C; None for all.
    """
    forget_programs()
    devices = devices or Devices.alone()
    store = SearchStore(None, "") if store is None else store
    point, before, seconds = start, Before(), {}
    state, outcome, unsaved = None, Outcome.MAX_ITERATIONS, None
    total = sum(stage.iterations for stage in stages)
    progress = progress if devices.is_first else False  # one bar, not one per process
    with (
        store.alone(),
        progress_bar(title, total, progress) as tick,
        interrupts_deferred() as pressed,
    ):
        kept = Stages(store)
        for number in range(kept.first, len(stages)):
            stage = stages[number]
            # Begun in any case: it compiles what is needed, and the state on disk is put in the
            # place of one of its structure.
            state, before = kept.resume(number, stage.begin(point), before)
            asked_to_stop = False  # by Ctrl-C in any process, or by `stop_at`

            def watch(state: Any, number=number, stage=stage, before=before) -> bool:
                nonlocal asked_to_stop
                done = before.iterations + state.iteration
                tick(done, state.values[-1])
                # Kept before anybody is asked: a process that dies then loses no iteration.
                if done % keep_every == 0 and stage.can_go_on(state, Outcome.INTERRUPTED):
                    kept.keep(number, state, before)
                if done == stop_at:
                    asked_to_stop = True
                elif devices.is_alone or done % ask_every == 0:
                    asked_to_stop = devices.any(pressed())
                return asked_to_stop

            if kept.outcome is not None:
                outcome = Outcome(kept.outcome)  # an earlier call has come to the end
            elif stop_at is None or before.iterations + state.iteration < stop_at:
                state, outcome = stage.run(state, watch)
                if outcome is Outcome.INTERRUPTED and not (asked_to_stop or devices.is_alone):
                    # In the middle of an iteration, and of this process alone: the others wait for
                    # sums that will not come, and must be told by the end of this one.
                    raise KeyboardInterrupt
            else:
                outcome = Outcome.INTERRUPTED  # an earlier call has come as far
            seconds = {k: seconds.get(k, 0.0) + v for k, v in stage.seconds.items()}
            goes_on = number + 1 < len(stages) or stage.can_go_on(state, outcome)
            over = None if goes_on else outcome
            unsaved = kept.finish(number, state, before, over, exact=stage.is_exact(state))
            # The next stage begins where this one ended, with counts that go on.
            evaluations = before.evaluations + stage.evaluations(state)
            point = state.parameters
            before = Before(before.iterations + state.iteration, evaluations)
            if outcome is Outcome.INTERRUPTED:
                break
    assert state is not None, "expected at least one stage"
    loss = state.values[-1] if state.values else float("nan")
    return Fitted(point, outcome, before.iterations, before.evaluations, loss, seconds, unsaved)


def check_possible(loss: float) -> None:
    """ValueError for the loss of labels that cannot be."""
    if not np.isfinite(loss):
        raise ValueError(
            "y: expected partial labels that leave every sentence at least one legal labelling, "
            f"got a sentence with none (loss {loss})"
        )


def check_reachable(loss: float) -> None:
    """ValueError for the penalty of shares that no labelling has."""
    if not np.isfinite(loss):
        raise ValueError(
            "expectations: expected shares that legal labellings can have, got one above 0 of what "
            "is forbidden"
        )


class LBFGSStage:
    """L-BFGS on all sentences at once.

    Args:
        objective: which stages may share.
        settings: when to stop.
        entropy_weight: γ; None leaves unlabelled sentences out.
        check: what the value at the start has to pass.
    """

    def __init__(
        self,
        objective: Objective,
        settings: _lbfgs.Settings,
        entropy_weight: float | None = None,
        check: Callable[[float], None] = check_possible,
    ):
        self._objective, self._settings = objective, settings
        self._entropy_weight, self._check = entropy_weight, check
        self.iterations, self.seconds = settings.max_iterations, {}

    def begin(self, point: Parameters) -> _lbfgs.State:
        began = time.perf_counter()
        self._objective.entropy_weight = self._entropy_weight
        state = _lbfgs.begin_search(self._objective, point, self._settings)
        self._check(state.value)
        self.seconds = {"first evaluation, compiling": time.perf_counter() - began}
        # Compiling would hide how the time is shared out between the programs.
        self._objective.seconds = dict.fromkeys(self._objective.seconds, 0.0)
        return state

    def run(self, state: _lbfgs.State, watch: Watch) -> tuple[_lbfgs.State, Outcome]:
        began = time.perf_counter()
        state, outcome = _lbfgs.minimise(self._objective, state, self._settings, watch)
        spent = self._objective.seconds
        self.seconds |= spent
        self.seconds["optimiser"] = time.perf_counter() - began - spent["evaluations"]
        return state, outcome

    def evaluations(self, state: _lbfgs.State) -> int:
        return state.evaluations

    def can_go_on(self, state: _lbfgs.State, outcome: Outcome) -> bool:
        return outcome in (Outcome.INTERRUPTED, Outcome.MAX_ITERATIONS)

    def is_exact(self, state: _lbfgs.State) -> bool:
        # A step that was cut short leaves no memory of the curvature.
        return bool(np.asarray(state.memory.count) > 0)


class ProjectionStage(LBFGSStage):
    """L-BFGS to what was projected, at the point where it begins, onto expectations.

    Args:
        objective: which stages may share.
        settings: when to stop.
        projection: from which each stage goes on.
    """

    def __init__(self, objective: Objective, settings: _lbfgs.Settings, projection: Projection):
        super().__init__(objective, settings, projection.scale)
        self._projection = projection

    def begin(self, point: Parameters) -> _lbfgs.State:
        objective = self._objective
        objective.projected = None  # of an earlier point
        tilt = self._projection(lambda tilt: objective.expect(point, tilt))
        objective.projected = objective.expected_features(point, tilt)
        return super().begin(point)


class DescentStage:
    """Descent by mini-batches.

    Args:
        objective: the summed loss of a batch and its gradient, from the parameters, the number of
            the batch and that of the step.
        settings: how to descend.
        check: what the value after every epoch has to pass.
    """

    def __init__(
        self,
        objective: Callable[[Parameters, int, int], tuple[Any, Any]],
        settings: StochasticSettings,
        check: Callable[[float], None],
    ):
        self._objective, self._settings, self._check = objective, settings, check
        self.iterations, self.seconds = settings.epochs, {}

    def begin(self, point: Parameters) -> StochasticState:
        return begin_descent(point, self._settings)

    def run(self, state: StochasticState, watch: Watch) -> tuple[StochasticState, Outcome]:
        def checked(state: StochasticState) -> bool:
            self._check(state.values[-1])
            stop = watch(state)
            return stop and state.iteration < self.iterations  # else it has ended by itself

        return descend(self._objective, state, self._settings, checked)

    def evaluations(self, state: StochasticState) -> int:
        return state.iteration * self._settings.batches

    def can_go_on(self, state: StochasticState, outcome: Outcome) -> bool:
        # The learning rate has fallen to 0 after the last epoch: nothing could follow.
        return state.iteration < self.iterations

    def is_exact(self, state: StochasticState) -> bool:
        return True


# ------------------------------------------------------------------- searches of a tagger


def search(
    problem: Problem,
    plan: Plan,
    start: Parameters | None,
    spread: Spread,
    term: EntropyTerm | None = None,
    devices: Devices | None = None,
) -> Fitted:
    """Find the parameters.

    Args:
        problem: the data; with several processes, of this one.
        plan: how to search.
        start: where; None for zeros and, with unlabelled sentences, by way of the supervised
            optimum.
        spread: which weights are learnt.
        term: of the unlabelled sentences, if there are any.
        devices: to share the sentences out to; None for `plan.cores` of this machine.
    """
    devices, term = devices or Devices.alone(), term or EntropyTerm()
    warm = start is not None
    if start is None:
        begin = spread.zeros(problem.edge_attributes, plan.dtype)
    else:
        begin: Parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf, plan.dtype), start)
    store = SearchStore(
        plan.checkpoint,
        lambda: search_fingerprint(problem, plan, begin, term, warm, devices),
        devices,
    )
    by_lbfgs = plan.algorithm == "lbfgs"
    # The fingerprint is of the parameters as they are without a mesh; on it they go only now.
    if by_lbfgs:
        objective = _whole_objective(problem, plan, spread, term, devices)
        stages: list[Stage] = _lbfgs_stages(objective, problem, plan, term, warm)
        placed = objective.place(begin)
    else:
        stages, placed = _descent_stages(problem, plan, spread, term, warm), begin
    fitted = run_stages(
        stages,
        placed,
        store,
        keep_every=plan.checkpoint_every if by_lbfgs else 1,
        progress=plan.progress,
        devices=devices,
    )
    return replace(fitted, parameters=off_mesh(fitted.parameters))


def _labelled_maker(problem: Problem, shards: int) -> ShardMaker:
    """So many shards of the labelled sentences."""
    features = without_gaps(problem.features)
    layout = lay_out(features.lengths, shards)
    return ShardMaker(
        layout, features, problem.attributes, problem.labels, problem.sentence_weights
    )


def _unlabelled_maker(problem: Problem, shards: int, term: EntropyTerm) -> ShardMaker:
    """So many shards of the others."""
    assert problem.unlabelled is not None
    features = without_gaps(problem.unlabelled)
    return ShardMaker(_unlabelled_layout(problem, shards, term), features, problem.attributes)


def _unlabelled_layout(problem: Problem, shards: int, term: EntropyTerm) -> Layout:
    assert problem.unlabelled is not None
    # Jiao's cost grows with the square of a row's length, whatever is in it.
    place = lay_out_by_length if term.gradient == "jiao" else lay_out
    return place(problem.unlabelled.lengths, shards)


def _expectation_term(
    problem: Problem, plan: Plan, shards: int, term: EntropyTerm
) -> ExpectationTerm | None:
    """What is expected of so many shards of the unlabelled sentences."""
    encoded = problem.expectations
    if encoded is None:
        return None
    layout = _unlabelled_layout(problem, shards, term)
    marks = ShardMaker(layout, encoded.predicates, encoded.sizes[0]).all()
    return ExpectationTerm(SharePenalty.from_encoded(encoded, plan.dtype), marks)


def _whole_objective(
    problem: Problem, plan: Plan, spread: Spread, term: EntropyTerm, devices: Devices
) -> Objective:
    """Of all sentences, a shard for each core or place of this process."""
    shards = plan.cores if devices.mesh is None else devices.places
    labelled, unlabelled = _labelled_maker(problem, shards).all(), None
    if problem.unlabelled is not None:
        unlabelled = _unlabelled_maker(problem, shards, term).all()
    expected = _expectation_term(problem, plan, shards, term)
    how = {"entropy_gradient": term.gradient, "expectations": expected, "mesh": devices.mesh}
    return Objective(labelled, spread, plan.l2, problem.legal, unlabelled, None, **how)


PROJECTIONS = 10
"""Of a training with expectations by projection: the model moves little from then on."""


def _lbfgs_stages(
    objective: Objective, problem: Problem, plan: Plan, term: EntropyTerm, warm: bool
) -> list[Stage]:
    iterations = plan.settings.max_iterations
    if problem.expectations is not None and term.projection is not None:
        first = [] if warm else [LBFGSStage(objective, plan.settings)]
        penalty = SharePenalty.from_encoded(problem.expectations, plan.dtype)
        projection = Projection(penalty, term.projection)
        each = plan.settings._replace(max_iterations=-(-iterations // PROJECTIONS))
        return [
            *first,
            *(ProjectionStage(objective, each, projection) for _ in range(PROJECTIONS)),
        ]
    pieces: list[tuple[float | None, int]] = []
    if problem.unlabelled is None or not warm:
        pieces.append((None, iterations))  # the supervised optimum
    if problem.unlabelled is not None:
        pieces += term.pieces(iterations)
    return [
        LBFGSStage(
            objective,
            plan.settings._replace(max_iterations=count),
            weight,
            check_possible if weight is None or problem.expectations is None else check_reachable,
        )
        for weight, count in pieces
    ]


class _Batches:
    """The batches of one epoch: labelled, or labelled and unlabelled side by side.

    Where there are more of the one kind than of the other, the fewer come round again, and count
    for less each time, so that an epoch adds up to the whole objective.
    """

    def __init__(self, labelled: ShardMaker, unlabelled: ShardMaker | None):
        self._labelled, self._unlabelled = labelled, unlabelled
        more = 0 if unlabelled is None else unlabelled.num_shards
        self.number = max(labelled.num_shards, more)

    def _part(self, maker: ShardMaker, batch: int) -> Shard:
        index = batch % maker.num_shards
        times = len(range(index, self.number, maker.num_shards))
        shard = maker(index)
        if times == 1:  # the usual case, without another array
            return shard
        return eqx.tree_at(lambda shard: shard.weights, shard, shard.weights / times)

    def __call__(self, batch: int) -> tuple[list[Shard], list[Shard]]:
        unlabelled = [] if self._unlabelled is None else [self._part(self._unlabelled, batch)]
        return [self._part(self._labelled, batch)], unlabelled


def batches_per_epoch(lengths: np.ndarray, batch_size: int) -> int:
    """Into how many shards to cut, for about so many sentences in each."""
    # By rows, which are of one length, rather than by sentences: batches must have one shape.
    rows = lay_out(lengths, 1).rows
    rows_per_batch = max(1, round(rows * batch_size / max(1, len(lengths))))
    return -(-rows // rows_per_batch)


def _descent_stages(
    problem: Problem, plan: Plan, spread: Spread, term: EntropyTerm, warm: bool
) -> list[Stage]:
    shards = batches_per_epoch(problem.features.lengths, plan.batch_size)
    labelled = _labelled_maker(problem, shards)
    kinds = [_Batches(labelled, None)]
    if problem.unlabelled is not None:
        shards = batches_per_epoch(problem.unlabelled.lengths, plan.batch_size)
        both = _Batches(labelled, _unlabelled_maker(problem, shards, term))
        kinds = [both] if warm else [*kinds, both]
    # Penalties are steps of the descent's own: each batch would add the whole of them.
    objective = Objective([], spread, 0.0, problem.legal, entropy_gradient=term.gradient)
    weights, count = problem.sentence_weights, len(problem.features.lengths)

    def stage(batches: _Batches) -> DescentStage:
        def loss(parameters: Parameters, batch: int, step: int) -> tuple[Any, Any]:
            objective.take(*batches(batch))  # only this batch is on the device
            objective.entropy_weight = term.at(step)
            return objective(parameters)

        settings = StochasticSettings(
            algorithm=cast(Algorithm, plan.algorithm),
            epochs=plan.epochs,
            batches=batches.number,
            learning_rate=plan.learning_rate,
            seed=plan.seed,
            l1=plan.settings.l1,
            l2=plan.l2,
            sentences=float(count if weights is None else weights.sum()),
        )
        return DescentStage(loss, settings, check)

    def check(loss: float) -> None:
        if problem.labels.allowed is not None or problem.legal is not None:
            check_possible(loss)
        if not np.isfinite(loss):  # of mini-batches: the steps may be too long as well
            raise ValueError(
                "learning_rate: expected one at which the loss falls, got a loss of "
                f"{loss}; try less"
            )

    return [stage(batches) for batches in kinds]


def search_fingerprint(
    problem: Problem,
    plan: Plan,
    start: Parameters,
    term: EntropyTerm,
    warm: bool,
    devices: Devices,
) -> Fingerprint:
    """Says which search this is: the data, the settings and the starting point.

    The number of cores, devices and processes is not in it: stopped on some, a search goes on with
    others, up to rounding. Nor is, by L-BFGS, the order of the sentences. A search in one stage may
    be taken further by more iterations; with several, that would be another search from the first
    of them on.
    """
    settings = plan.settings._replace(max_iterations=0)  # see above: it may be taken further
    digest = Fingerprint("crf", problem.classes, problem.attributes, problem.transitions)
    digest.add(plan.weights, plan.algorithm, settings, plan.l2)
    by_batches = plan.algorithm != "lbfgs"
    labels, corpora = problem.labels, [problem.features]
    # One label that is known and a set of one are the same, as is a sentence that counts once.
    possible = labels.allowed
    if possible is None:
        possible = labels.gold[:, None] == np.arange(len(problem.classes))
    known: list[np.ndarray | None] = [np.packbits(possible, axis=1)]
    weights: list[Any] = [problem.sentence_weights]
    if by_batches:
        digest.add(plan.batch_size, plan.epochs, plan.learning_rate, plan.seed)
    if problem.unlabelled is not None:
        corpora, known, weights = [*corpora, problem.unlabelled], [*known, None], [*weights, None]
        digest.add(term.gradient, warm)
        if by_batches:
            # A schedule is known by its values alone: no text says what a function does.
            sizes = (batches_per_epoch(each.lengths, plan.batch_size) for each in corpora)
            steps = plan.epochs * max(sizes) if callable(term.weight) else 1
            digest.add([term.at(step) for step in range(steps)])
        elif warm and not callable(term.weight):
            digest.add(term.weight)
        else:
            iterations = plan.settings.max_iterations
            digest.add(term.pieces(iterations), iterations)
    if problem.expectations is not None:
        digest.add(*problem.expectations.arrays(), term.projection is None)
    for features, bits, each in zip(corpora, known, weights):
        columns = (features.ids, features.values, features.edge_ids, bits)
        if by_batches:  # which sentences are in a batch depends on their order
            digest.add(features.lengths, *columns, each)
        else:
            digest.add_unordered(features.lengths, *columns, weights=each, devices=devices)
    return digest.add(*(problem.legal or ()), *jax.tree.leaves(start))
