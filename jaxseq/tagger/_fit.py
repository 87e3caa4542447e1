"""From features and labels to the parameters of a model.

With unlabelled sentences the search has several stages: first the supervised optimum, since the
entropy makes the objective non-concave and this is where Jiao et al. start; then the whole
objective, in as many pieces as γ takes values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from jaxseq.learn import _lbfgs as _lbfgs
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._mesh_blocks import Blocks
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._parameters import Parameters, Spread
from jaxseq.learn._progress import progress_bar
from jaxseq.tagger._fit_batches import _Batches as _Batches
from jaxseq.tagger._fit_batches import most_batches, search_by_batches
from jaxseq.tagger._fit_stages import Fitted as Fitted
from jaxseq.tagger._fit_stages import Watching as _Watching
from jaxseq.tagger._fit_whole import search_all_at_once
from jaxseq.tagger._plan import EntropyTerm, Plan
from jaxseq.tagger._problem import DENSE_WASTE, Problem
from jaxseq.tagger._resume import Keeper, fingerprint
from jaxseq.tagger._shared_fingerprint import shared_fingerprint


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
    peers = peers_of(plan.mesh)
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
def _bar(plan: Plan, total: int) -> Iterator[_Watching]:
    peers = peers_of(plan.mesh)
    with progress_bar("training", total, plan.progress) as tick, interrupts_deferred() as pressed:
        # If one process stops, all do: none can go on without the others.
        yield _Watching(tick, lambda: any(peers.exchange(bool(pressed()))))
