"""Whether the other processes of a run are alive, for as long as it lasts.

A process that is killed breaks its connections, and those that wait for it hear of that. One that
stands still, since it was stopped or its host has lost power, breaks nothing: the others would wait
for ever. So each says every second that it is there, from a thread that needs the interpreter
for an instant only: process 0 to all, and all to process 0, which tells the others whom it misses.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

BEAT_SECONDS = 1.0
"""How often a process says that it is there."""

SILENCE_SECONDS = 45.0
"""Without a word from another process for so long, it is given up. While it compiles, reads or
computes, its thread goes on speaking: a loaded machine delays a word by seconds, not by so many."""

GRACE_SECONDS = 15.0
"""How long a process stays whose connection to another has ended: what it waits for will fail as
well, and say more on why."""

HERE, MISSING, BYE = b".", b"!", b"b"
"""All that is said: that one is there, that a process is missed, that one is done."""

WhenLost = Callable[[str], None]
"""Is told, in a thread of its own, why another process is given up; must end this one."""


class Watch:
    """Listens to other processes, and speaks to them, until it is ended.

    Args:
        connections: by the number of the process at the other end.
        when_lost: is called once, with a reason.
        silence, grace, beat: seconds, as above.
    """

    def __init__(
        self,
        connections: Mapping[int, socket.socket],
        when_lost: WhenLost,
        *,
        silence: float = SILENCE_SECONDS,
        grace: float = GRACE_SECONDS,
        beat: float = BEAT_SECONDS,
    ):
        self._connections, self._when_lost = dict(connections), when_lost
        self._silence, self._grace, self._beat = silence, grace, beat
        self._patience = dict.fromkeys(connections, silence)
        self._closed: set[int] = set()
        self._over = threading.Event()
        self.others_needed = True
        for connection in connections.values():
            connection.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="jaxseq watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Say goodbye: from now on nobody misses this process."""
        self._over.set()
        self._thread.join(self._beat)
        self._tell(BYE)
        for number in list(self._connections):
            self._drop(number)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._over.is_set():
            self._tell(HERE)
            self._over.wait(self._beat)
            now = time.monotonic()
            # While this very process stood still it heard nothing, whoever spoke.
            elapsed, before = min(now - before, 2 * self._beat), now
            reason = self._listen(elapsed)
            if reason is not None and self.others_needed and not self._over.is_set():
                self._tell(MISSING)
                self._when_lost(reason)
                return

    def _listen(self, elapsed: float) -> str | None:
        """Hear everyone; why one is given up, if so."""
        for number in list(self._connections):
            if number not in self._closed:
                said = _hear(self._connections[number])
                if said is None:
                    self._closed.add(number)
                    self._patience[number] = min(self._patience[number], self._grace)
                    continue
                if BYE in said:
                    self._drop(number)
                    continue
                if MISSING in said:
                    return f"process {number} misses one"
                if said:
                    self._patience[number] = self._silence
                    continue
            self._patience[number] -= elapsed
            if self._patience[number] <= 0 and number in self._closed:
                return f"process {number} has closed its connection"
            if self._patience[number] <= 0:
                return f"process {number} has given no sign of life for {self._silence:.0f} s"
        return None

    def _tell(self, word: bytes) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):  # it is gone or full, and will be missed
                connection.send(word)

    def _drop(self, number: int) -> None:
        connection = self._connections.pop(number)
        _hear(connection)  # what was not read would be an error at the other end
        connection.close()


def _hear(connection: socket.socket) -> bytes | None:
    """What was said since the last time; None where the connection has ended."""
    said = b""
    try:
        while found := connection.recv(4096):
            said += found
    except BlockingIOError:
        return said
    except OSError:
        pass
    return said or None


_WATCHES: list[Watch] = []
"""That of this process, where it has joined others."""


def begin_watch(connections: Mapping[int, socket.socket], when_lost: WhenLost) -> None:
    """Watch the other processes, until `end_watch` or the end of this one."""
    if not _WATCHES:
        atexit.register(end_watch)
    _WATCHES.append(Watch(connections, when_lost))


def end_watch() -> None:
    """Miss nobody any more, and be missed by nobody."""
    while _WATCHES:
        _WATCHES.pop().end()


@contextlib.contextmanager
def others_not_needed() -> Iterator[None]:
    """Inside, this process does what it can do alone, whatever becomes of the others.

    Example:
        >>> with others_not_needed():
        ...     model = "written"
    """
    for watch in _WATCHES:
        watch.others_needed = False
    try:
        yield
    finally:
        for watch in _WATCHES:
            watch.others_needed = True


@contextlib.contextmanager
def within(seconds: float, when_late: Callable[[], None]) -> Iterator[None]:
    """Call a function, in another thread, if what is inside takes longer.

    Example:
        >>> with within(60.0, lambda: print("late")):
        ...     print("in time")
        in time
    """
    timer = threading.Timer(seconds, when_late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


LOST = "another process of this run has ended or cannot be reached"


def end_process(index: int, reason: str) -> None:
    """End this process: it would wait for ever for another that is lost.

    Process 0 stays for a moment, in which the others hear of it: when it goes, so do they.
    """
    line = f"jaxseq: error: process {index}: {LOST} ({reason})"
    print(line, file=sys.stderr, flush=True)
    if index == 0:
        time.sleep(2 * BEAT_SECONDS)
    os._exit(1)
