"""Cells in several processes, none of which outlives the process that started it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from experiments._device import use_device
from experiments._paper import Cell, Paper, PaperError
from experiments._plan import Plan
from experiments._results import cell_key
from experiments._run import Line, run_one
from experiments.data import Data, Source


@dataclass
class _Worker:
    """A process, the pipe to it, and the cell that it is running."""

    process: SpawnProcess
    pipe: Connection
    cell: Cell | None = None

    def give(self, cell: Cell) -> None:
        self.cell = cell
        with contextlib.suppress(OSError):  # a process that has died is noticed when it is read
            self.pipe.send_bytes(json.dumps(cell).encode())

    def take(self, name: str) -> Line:
        """The line of its cell."""
        try:
            answer = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            raise PaperError(
                f"{name}: the process of cell {cell_key(self.cell or '')} has died with status "
                f"{self.process.exitcode} (too little memory?)"
            ) from None
        if "error" in answer:
            raise PaperError(answer["error"])
        return answer["line"]


def run_in_processes(
    plan: Plan, cells: Sequence[Cell], jobs: int, device: str | None
) -> Iterator[tuple[Cell, Line]]:
    """Cells with their lines, as they are done.

    Each process is a fresh interpreter: JAX does not survive a fork. Only this process writes.

    Args:
        plan: whose cells they are.
        cells: those to run.
        jobs: number of processes.
        device: see `use_device`.

    Raises:
        PaperError: when a cell fails or its process dies; the others are stopped.
    """
    waiting = list(reversed(cells))  # taken from the end, in the order of the plan
    workers: dict[Connection, _Worker] = {}
    try:
        for _ in range(min(jobs, len(cells))):
            worker = _start(plan, device)
            workers[worker.pipe] = worker
            worker.give(waiting.pop())
        while workers:
            for pipe in wait(list(workers)):
                worker = workers[pipe]  # pyright: ignore[reportArgumentType]
                cell, line = worker.cell, worker.take(plan.paper.name)
                if waiting:
                    worker.give(waiting.pop())
                else:
                    del workers[worker.pipe]
                    worker.pipe.close()
                if cell is not None:
                    yield cell, line
    finally:
        for worker in workers.values():  # also after an error or Ctrl-C in this process
            worker.process.terminate()


def _start(plan: Plan, device: str | None) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_work,
        args=(theirs, plan.paper, plan.config_values, plan.sources, device),
        daemon=True,  # the interpreter's end is theirs, too
    )
    process.start()
    theirs.close()  # or the end of the process would go unnoticed
    return _Worker(process, ours)


def _work(
    pipe: Connection,
    paper: Paper,
    config_values: dict[str, Any],
    sources: dict[str, Source],
    device: str | None,
) -> None:
    """What a process does: cells in, lines out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if device is not None:  # else JAX is left to the paper, which may not need it
        use_device(device)
    config, data = paper.load_run().Config(**config_values), Data(sources)
    while True:
        try:
            cell = json.loads(pipe.recv_bytes())
        except EOFError:  # nothing more to do
            return
        try:
            answer = {"line": run_one(paper, config, cell, data)}
        except PaperError as error:
            answer = {"error": f"{error}\n{traceback.format_exc()}"}
        pipe.send_bytes(json.dumps(answer).encode())


def _end_with_parent() -> None:
    """Stop at once when the parent is killed, also in the midst of a cell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # no clean-up: the main thread may be inside XLA
