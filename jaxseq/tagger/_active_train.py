"""One training of many on a growing part of a pool, in few compiled shapes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxseq.learn import _lbfgs
from jaxseq.learn._corpus import Layout, Shard, ShardMaker, lay_out
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome, Settings
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Parameters, Spread
from jaxseq.models._crf import CRF
from jaxseq.models._linear import padded_labels
from jaxseq.tagger._fit import Fitted, search
from jaxseq.tagger._plan import EntropyTerm, Plan
from jaxseq.tagger._problem import Problem, make_spread
from jaxseq.text import TokenFeatures

ROWS = 256
"""Rows of a shard, at most. Shards are all of one shape: more sentences make more shards, and not
other programs, which would take longer to compile than a round takes to run."""

LOOSER, PERIOD, MEMORY = 10, 5, 20
"""How a search from an older model differs from one from zeros: it ends when the value improves by
less than so many times the tolerance over so many iterations, and remembers at least so many steps.

Most of its iterations would otherwise go into digits that do not matter, or are rounding. At the
end of NP chunking (28 rounds of 500 tokens, l2 = .006) it takes 42 iterations where one from zeros
takes 252, and ends no higher. Five times looser, it ended 1.6e-3 above one from zeros there."""

FINE = 1 << 20
"""Numbers of weights up to this are rounded up to powers of two; larger ones less."""


def next_size(number: int) -> int:
    """A power of two, or above 2^20 a multiple of 2^19, that is not smaller.

    Example:
        >>> [next_size(n) for n in (1, 3, 100, 2**20 + 1)]
        [1, 4, 128, 1572864]
    """
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


class ManyShards(Objective):
    """The objective on any number of shards, shared out among so many cores."""

    def __init__(self, cores: int, shards: list[Shard], *others: Any):
        self._cores = cores
        super().__init__(shards, *others)

    def take(self, shards: Sequence[Shard], unlabelled: Sequence[Shard] = ()) -> None:
        """Several shards a core, one after another into one gradient."""
        assert not unlabelled
        cores = max(1, min(len(shards), self._cores))
        self._work = [[(shard, True) for shard in shards[core::cores]] for core in range(cores)]
        self._gradients += [None] * (cores - len(self._gradients))


def take_sentences(features: TokenFeatures, chosen: np.ndarray) -> TokenFeatures:
    """The features of the sentences with True in `chosen` [B]."""
    inside = np.repeat(chosen, features.lengths)
    arrays = {
        name: None if getattr(features, name) is None else getattr(features, name)[inside]
        for name in ("ids", "values", "edge_ids")
    }
    return replace(features, lengths=features.lengths[chosen], **arrays)


def train_on(
    problem: Problem,
    plan: Plan,
    older: CRF | None,
    shape: tuple[int, int],
    most: int | None = None,
) -> tuple[CRF, Fitted, bool]:
    """Train on the sentences of a problem.

    Args:
        problem: the data. plan: how to search.
        older: a model of the same attributes and labels, to begin with; None for zeros.
        shape: slots of a row and rows of a shard, the same in every round.
        most: iterations, or epochs of mini-batches, after which the search is cut short; None for
            those of the plan.

    Returns:
        The model, where the search ended, and whether it was cut short there.

    Raises:
        KeyboardInterrupt: after Ctrl-C; nothing is left behind.
    """
    clock = time.perf_counter()
    spread = make_spread(problem, plan.weights)
    if plan.weights in ("observed", "mixed"):
        spread = _in_few_sizes(spread, problem)
    start = None if older is None else spread.parameters(older)
    if older is not None:
        plan = replace(plan, settings=warm_settings(plan.settings))
    asked_for, plan = plan, plan if most is None else _shortened(plan, most)
    prepared = time.perf_counter() - clock
    if plan.algorithm == "lbfgs":
        found = _descend(problem, plan, spread, start, shape)
    else:
        found = search(problem, plan, start, spread, EntropyTerm.of(0.0, "mann"))
    if found.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    found = replace(found, seconds={"weights": prepared, **found.seconds})
    is_short = plan != asked_for and found.outcome is Outcome.MAX_ITERATIONS
    return spread.model(found.parameters, problem.legal), found, is_short


def _shortened(plan: Plan, most: int) -> Plan:
    """The same search, at most so long."""
    if plan.algorithm != "lbfgs":
        return replace(plan, epochs=min(most, plan.epochs))
    fewer = min(most, plan.settings.max_iterations)
    return replace(plan, settings=plan.settings._replace(max_iterations=fewer))


def warm_settings(settings: Settings) -> Settings:
    """Those of a search from an older model; see `LOOSER`.

    Example:
        >>> warm_settings(Settings(tolerance=1e-5)).tolerance
        0.0001
    """
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
    objective = ManyShards(plan.cores, maker.all(), spread, plan.l2, problem.legal)
    start = spread.zeros(problem.edge_attributes, plan.dtype) if start is None else start
    laid_out = time.perf_counter()
    with interrupts_deferred() as pressed:
        begun = _lbfgs.begin(objective, start, plan.settings)
        if not np.isfinite(begun.value):
            raise ValueError(
                "labels: expected some that leave every sentence at least one legal labelling, got "
                f"a sentence with none (loss {begun.value})"
            )
        first = time.perf_counter()
        objective.seconds = dict.fromkeys(objective.seconds, 0.0)
        state, outcome = _lbfgs.minimise(objective, begun, plan.settings, lambda _: pressed())
    seconds = {
        "rows": laid_out - clock,
        "first evaluation, compiling": first - laid_out,
        **objective.seconds,
        "optimiser": time.perf_counter() - first - objective.seconds["evaluations"],
    }
    value = state.values[-1]
    return Fitted(state.parameters, outcome, state.iteration, state.evaluations, value, seconds)


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
    places = np.sort(np.concatenate([places, spare]))
    return Spread(
        attributes=spread.attributes,
        labels=spread.labels,
        places=jnp.asarray(places, jnp.int32),
        transitions=spread.transitions,
    )
