"""What every long computation needs: a reason for its end, cores, memory, Ctrl-C and a progress
bar."""

from __future__ import annotations

import enum
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Outcome(enum.StrEnum):
    """Why a search or a training ended; as a string, in words.

    Programs compare members; nobody matches on the text, which is for people and may change.

    Example:
        >>> Outcome.INTERRUPTED is Outcome("interrupted: the best result so far is kept")
        True
    """

    CONVERGED_VALUE = "converged: the value hardly improves any more"
    CONVERGED_GRADIENT = "converged: the gradient is close to zero"
    FIXED_POINT = "converged: no label of the unlabelled sentences changes any more"
    COUNTED = "converged: relative frequencies, which need no search"
    MAX_ITERATIONS = "stopped: the number of iterations asked for is reached"
    MAX_ROUNDS = "stopped: the number of rounds asked for is reached"
    PRECISION = "converged: no step improves the value within the precision of its arithmetic"
    CYCLE = "stopped: the labels return to those of an earlier round, and would go on in a circle"
    UNSURE = "stopped: no label is sure enough to learn from"
    INTERRUPTED = "interrupted: the best result so far is kept"
    IMPORTED = "imported: the model was trained by another program"

    @classmethod
    def _missing_(cls, value: object) -> Outcome | None:
        # Models keep the text, and those of jaxseq 0.1 have this one.
        old = "stopped: no step improves the value within the precision of its arithmetic"
        return cls.PRECISION if value == old else None


def usable_cores() -> int:
    """Cores that this process may run on, of those that the machine has.

    Example:
        >>> 1 <= usable_cores() <= os.cpu_count()
        True
    """
    if hasattr(os, "sched_getaffinity"):  # containers and batch systems give a part of a machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_on_cores(fn: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[fn(item) for item in items]``, all at the same time, one thread per item.

    XLA runs one compiled loop on one core of a CPU, and programs started from one thread one
    after another; programs started from different threads run side by side. So a corpus cut into
    as many batches as there are cores is done in a fraction of the time. On an accelerator, whose
    one program fills the device, the items are only handed over in order.

    Args:
        fn: a function of one item that calls jitted functions; must be safe to call from
            several threads, as pure functions are.
        items: as many as there are cores to use; the same shapes mean one compilation.

    Returns:
        The results in the order of the items, ready (not pending).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> halves = [jaxseq.PaddedBatch(jnp.zeros((2, 3, 4)), jnp.zeros((4, 4))) for _ in range(2)]
        >>> results = jaxseq.map_on_cores(jaxseq.batch_marginals, halves)
        >>> [marginals.nodes.shape for marginals in results]
        [(2, 3, 4), (2, 3, 4)]
    """
    import jax  # not before it is needed: the command line imports this module

    items = list(items)
    double = jax.dtypes.canonicalize_dtype("float64") == "float64"

    def finish(item: Item) -> Result:
        # Settings made by a `with` block hold for the thread that made them.
        with jax.enable_x64(double):
            return jax.block_until_ready(fn(item))

    if len(items) < 2 or jax.default_backend() != "cpu":
        return jax.block_until_ready([fn(item) for item in items])
    # The first item is for this thread, which has nothing else to do.
    with ThreadPoolExecutor(len(items) - 1, thread_name_prefix="jaxseq") as pool:
        results = pool.map(finish, items[1:])
        return [finish(items[0]), *results]


@contextmanager
def interrupts_deferred() -> Iterator[Callable[[], bool]]:
    """Within it, the first Ctrl-C is only noted, and the second one interrupts at once.

    So that a search can finish its iteration, and be gone on from exactly. Does nothing in other
    threads than the main one, nor where a program handles Ctrl-C in a way of its own.

    Yields:
        A function that says whether Ctrl-C was pressed.

    Example:
        >>> with interrupts_deferred() as pressed:
        ...     signal.raise_signal(signal.SIGINT)
        ...     pressed()
        True
    """
    before = signal.getsignal(signal.SIGINT)
    # Python delivers signals to the main thread alone, and only there can handlers be set.
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or before is not signal.default_int_handler:
        yield lambda: False
        return
    noted = False

    def note(number, frame) -> None:
        nonlocal noted
        if noted:  # whoever presses twice means now
            raise KeyboardInterrupt
        noted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)


MAPS = Path("/proc/self/maps")
MAX_MAPS = Path("/proc/sys/vm/max_map_count")
SECONDS_BETWEEN_LOOKS = 1.0  # in which the compiler is far from making too many

_last_look = -SECONDS_BETWEEN_LOOKS
_others = 0  # mappings that were left when programs were last forgotten


def forget_programs(most: int | None = None) -> bool:
    """Forget what JAX has compiled, if there is much of it; says whether it did.

    Each program holds some fifty mappings of memory, of which Linux gives a process 65,530; past
    that the compiler ends the process. Data of other sizes are other programs, so that a process
    which trains again and again comes there. Taggers call this before they train and predict.

    Args:
        most: mappings that are left alone; None for half of those that may still be made, to be
            looked at once a second. Where they cannot be counted, nothing is forgotten.

    Example:
        >>> forget_programs(most=10**9)
        False
    """
    global _last_look, _others
    if most is None and time.monotonic() - _last_look < SECONDS_BETWEEN_LOOKS:
        return False
    _last_look = time.monotonic()
    try:
        if most is None:
            # To forget programs again and again for mappings that are not theirs is of no use.
            most = (_others + int(MAX_MAPS.read_text())) // 2
        if _count_maps() <= most:
            return False
    except OSError:
        return False
    import jax  # not before it is needed: the command line imports this module

    jax.clear_caches()
    gc.collect()  # programs are in reference cycles, and would stay mapped
    _others = _count_maps()
    return True


def _count_maps() -> int:
    return MAPS.read_bytes().count(b"\n")


class Tick(Protocol):
    """Called once per iteration, with the value there."""

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
    # rich takes a tenth of a second to import, and is not needed where nobody watches.
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
