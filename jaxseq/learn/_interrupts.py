"""Ctrl-C that waits for a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or before is not signal.default_int_handler:
        yield lambda: False
        return
    noted = False

    def note(number, frame) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)
