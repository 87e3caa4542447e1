"""Running papers: every cell that is not done, in this process or in several."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from experiments._device import use_device
from experiments._lock import only_one
from experiments._paper import Cell, Paper, PaperError
from experiments._plan import Plan
from experiments._provenance import record, this_run
from experiments._results import as_json, cell_key
from experiments.data import Data

Line = dict[str, Any]


def run_plans(plans: Sequence[Plan], *, jobs: int = 1, device: str | None = None) -> None:
    """Run papers one after the other, and write each cell's results when it is done.

    Args:
        plans: what to do; see `make_plan`.
        jobs: number of processes that run cells; the results are the same for any number.
        device: one of `experiments._device.DEVICES`; None leaves JAX its choice.

    Raises:
        ValueError: for a device that is not there, or that several processes cannot share.
        PaperError: when a cell fails; what was done before is kept.
    """
    described = use_device(device)
    if jobs > 1 and described["platform"] != "cpu":
        raise ValueError(
            f"--jobs: expected 1, since processes cannot share a {described['platform']}, "
            f"got {jobs}; --device cpu can have more"
        )
    for plan in plans:
        if plan.results.missing:
            with only_one(plan.folder):
                plan.results.load()  # another run may have ended since the plan was made
                _run_plan(plan, jobs, device, described)


def run_one(paper: Paper, config: Any, cell: Cell, data: Data) -> Line:
    """The line of one cell: its results, the corpora that it used, and its time.

    Raises:
        PaperError: with the cell, when the paper's code fails or returns what JSON has not.
    """
    run_cell = paper.load_run().run_cell
    data.take_used()  # what an earlier cell used is no business of this one
    began = time.perf_counter()
    place = f"{paper.name}: cell {cell_key(cell)}"
    try:
        result = run_cell(config, cell, data)
    except Exception as error:
        raise PaperError(f"{place} failed: {type(error).__name__}: {error}") from error
    seconds = round(time.perf_counter() - began, 3)
    if not isinstance(result, dict):
        raise PaperError(f"{place}: expected a dict of results, got {type(result).__name__}")
    line = {"corpora": data.take_used(), "result": result, "seconds": seconds}
    try:
        as_json(line, place)
    except ValueError as error:
        raise PaperError(str(error)) from None
    return line


def _run_plan(plan: Plan, jobs: int, device: str | None, described: dict[str, object]) -> None:
    missing = plan.results.missing
    done_before = plan.results.planned - len(missing)
    record(plan.folder, plan.as_json(), this_run(described, done_before))
    with _progress(plan.paper.name, plan.results.planned, done_before) as advance:
        for cell, line in _run_cells(plan, missing, jobs, device):
            plan.results.add(cell, line)  # at once: what is done survives a crash of the next
            advance()


def _run_cells(
    plan: Plan, cells: Sequence[Cell], jobs: int, device: str | None
) -> Iterator[tuple[Cell, Line]]:
    """Cells with their lines, as they are done."""
    if min(jobs, len(cells)) > 1:  # a process for a single cell would only start slowly
        from experiments._workers import run_in_processes

        yield from run_in_processes(plan, cells, jobs, device)
        return
    data = Data(plan.sources)
    for cell in cells:
        yield cell, run_one(plan.paper, plan.config, cell, data)


@contextmanager
def _progress(name: str, planned: int, done: int) -> Iterator[Any]:
    """A bar with the time that is left, on a terminal; elsewhere nothing. Yields the step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=planned, completed=done)
        yield lambda: progress.advance(task)
