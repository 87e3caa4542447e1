"""A progress bar for long searches; silent when nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Tick(Protocol):
    """Called once an iteration, with the value there."""

    def __call__(self, done: int, value: float) -> None: ...


@contextmanager
def progress_bar(
    name: str, total: int, wanted: bool | None = None, value_name: str = "loss"
) -> Iterator[Tick]:
    """A bar with a value, such as the loss, and the time that is left, on standard error.

    Args:
        name: what is going on.
        total: iterations at most.
        wanted: None shows it when standard error is a terminal.
        value_name: what the value is.

    Example:
        >>> with progress_bar("training", 10, wanted=False) as tick:
        ...     tick(1, 0.5)
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda done, value: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[value_name]} {task.fields[value]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, value_name=value_name, value="…")
        yield lambda done, value: bar.update(task, completed=done, value=f"{value:.6g}")
