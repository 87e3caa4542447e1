"""Training on a part of a pool that grows from round to round, in few compiled shapes."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from jaxseq._runtime import Outcome
from jaxseq.crf import (
    CRF,
    Fitted,
    Layout,
    LBFGSStage,
    Objective,
    Parameters,
    Plan,
    Problem,
    Settings,
    ShardMaker,
    Spread,
    lay_out,
    make_spread,
    padded_labels,
    run_stages,
    search,
    spread_from_places,
)

# Shards are all of one shape: more sentences make more shards, and not other programs, which would
# take longer to compile than a round takes to run.
ROWS = 256  # of a shard, at most

# Most iterations of a search from an older model would go into digits that do not matter, or are
# rounding. At the end of NP chunking (28 rounds of 500 tokens, l2 = .006) it takes 42 iterations so
# where one from zeros takes 252, and ends no higher. Five times looser, it ended 1.6e-3 above.
LOOSER = 10  # times the tolerance by which the value must improve
PERIOD = 5  # iterations over which it must
MEMORY = 20  # steps that are remembered, at least

FINE = 1 << 20  # numbers of weights up to this are rounded up to powers of two, larger ones less


def next_size(number: int) -> int:
    """A power of two, or above 2^20 a multiple of 2^19, that is not smaller."""
    if number <= FINE:
        return 1 << max(number - 1, 0).bit_length()
    return -(-number // (FINE // 2)) * (FINE // 2)


def lay_out_alike(lengths: np.ndarray, cores: int, width: int, rows: int) -> Layout:
    """Pack sentences into shards of so many rows, as many for each core as for any other.

    Rows that are left over are empty, and add exactly 0.
    """
    needed = lay_out(lengths, 1, width=width).rows
    shards = cores * -(-needed // (rows * cores))
    return replace(lay_out(lengths, shards, width=width), rows=rows, sequences=rows * width)


def train_on(
    problem: Problem,
    plan: Plan,
    older: CRF | None,
    shape: tuple[int, int],
    most: int | None = None,
) -> tuple[CRF, Fitted, bool]:
    """Train: the model, where the search ended, and whether it was cut short there.

    It begins with an older model, or zeros, and ends after `most` iterations (or epochs of
    mini-batches). KeyboardInterrupt after Ctrl-C; nothing is left behind.
    """
    clock = time.perf_counter()
    spread = make_spread(problem, plan.weights)
    if plan.weights in ("observed", "mixed"):
        spread = _in_few_sizes(spread, problem)
    start = None if older is None else spread.parameters(older)
    if older is not None:
        plan = replace(plan, settings=warm_settings(plan.settings))
    full = plan
    if most is not None and plan.algorithm == "lbfgs":
        fewer = plan.settings._replace(max_iterations=min(most, plan.settings.max_iterations))
        plan = replace(plan, settings=fewer)
    elif most is not None:
        plan = replace(plan, epochs=min(most, plan.epochs))
    prepared = time.perf_counter() - clock
    if plan.algorithm == "lbfgs":
        fitted = _descend(problem, plan, spread, start, shape)
    else:
        fitted = search(problem, plan, start, spread)
    if fitted.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    fitted = replace(fitted, seconds={"weights": prepared, **fitted.seconds})
    # Stopped by its own number of iterations it is no shorter than it was meant to be.
    is_short = plan != full and fitted.outcome is Outcome.MAX_ITERATIONS
    return spread.model(fitted.parameters, problem.legal), fitted, is_short


def warm_settings(settings: Settings) -> Settings:
    """Those of a search from an older model, which ends sooner than one from zeros."""
    return settings._replace(
        tolerance=LOOSER * settings.tolerance,
        period=PERIOD,
        memory_size=max(MEMORY, settings.memory_size),
    )


def _descend(
    problem: Problem, plan: Plan, spread: Spread, start: Parameters | None, shape: tuple[int, int]
) -> Fitted:
    """L-BFGS on shards that all have one shape."""
    clock = time.perf_counter()
    layout = lay_out_alike(problem.features.lengths, plan.cores, *shape)
    weights = problem.sentence_weights
    maker = ShardMaker(layout, problem.features, problem.attributes, problem.labels, weights)
    shards = maker.all()
    objective = Objective(shards, spread, plan.l2, problem.legal, cores=plan.cores)
    start = spread.zeros(problem.edge_attributes, plan.dtype) if start is None else start
    laid_out = time.perf_counter() - clock
    fitted = run_stages([LBFGSStage(objective, plan.settings, check=_check_possible)], start)
    return replace(fitted, seconds={"rows": laid_out, **fitted.seconds})


def _check_possible(loss: float) -> None:
    if not np.isfinite(loss):
        raise ValueError(
            "labels: expected some that leave every sentence at least one legal labelling, got "
            f"a sentence with none (loss {loss})"
        )


def _in_few_sizes(spread: Spread, problem: Problem) -> Spread:
    """The same weights and some that stay 0, so that their number is one of few.

    Those are places of the table that no score comes from: the columns that pad the labels, then
    attributes that the sentences do not have.
    """
    assert spread.places is not None
    places = np.asarray(spread.places)
    missing = next_size(len(places)) - len(places)
    s, width = len(problem.classes), padded_labels(len(problem.classes))
    spare = np.arange(problem.attributes + 1)[:, None] * width + np.arange(s, width)
    spare = spare.ravel()[:missing]
    if len(spare) < missing:
        present = np.zeros(problem.attributes, bool)
        present[problem.features.ids[problem.features.ids >= 0]] = True
        absent = np.flatnonzero(~present)[:, None] * width + np.arange(s)
        absent = np.setdiff1d(absent.ravel(), places, assume_unique=True)
        spare = np.concatenate([spare, absent[: missing - len(spare)]])
    places = np.sort(np.concatenate([places, spare]))  # ascending, as those of `make_spread` are
    return spread_from_places(spread.attributes, spread.labels, places, spread.transitions)
