"""Joining the other processes of a run."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from jaxseq.parallel._peers import Peers, all_peers

# -------------------------------------------------------------------------------------------------
# A roll call of the processes of a run, before JAX connects them.
#
# JAX ends a process where others are missing or were told another number of them, without a word on
# what is wrong. So they first meet at the same address and compare what they were told. Their
# connections stay, for `jaxseq.parallel._watch`.


LONGEST_ANSWER = 1 << 16


def call_roll(
    host: str, port: int, count: int, index: int, seconds: float
) -> dict[int, socket.socket]:
    """Return when all processes are there and agree on their number.

    Args:
        host, port: where process 0 listens.
        count: how many processes there are. index: which of them this is.
        seconds: how long to wait for the others.

    Returns:
        The open connections, by the number of the process at the other end: of process 0 to all
        others, of these to process 0.

    Raises:
        ValueError: when the port is in use, the host is unknown, some do not come in time, two have
            one number, or they were told different numbers of processes.

    Example:
        >>> call_roll("127.0.0.1", 0, 1, 0, 1.0)
        {}
    """
    if index == 0:
        return hold_roll_call(listen(port), count, seconds)
    return {0: _answer(host, port, count, index, time.monotonic() + seconds)}


def hold_roll_call(
    listening: socket.socket, count: int, seconds: float
) -> dict[int, socket.socket]:
    """Of process 0: hear the others, and tell them all what came of it. As `call_roll`."""
    deadline = time.monotonic() + seconds
    heard: dict[int, socket.socket] = {}
    problem = None
    with listening as listener:
        while len(heard) < count - 1 and problem is None:
            caller = _accept(listener, deadline)
            if caller is None:
                missing = sorted(set(range(1, count)) - set(heard))
                problem = (
                    f"--num-processes: expected {count} processes within "
                    f"{seconds:.0f} s, missing those with --process-id {missing}"
                )
                break
            told = _read(caller)
            if told is None or not all(type(told.get(name)) is int for name in ("index", "count")):
                caller.close()  # another program's call
                continue
            problem = _wrong(told, count, heard)
            heard[-len(heard) - 1 if problem else told["index"]] = caller
    for caller in heard.values():
        _write(caller, {"problem": problem})
    if problem is not None:
        for caller in heard.values():
            caller.close()
        raise ValueError(problem)
    return heard


def _wrong(told: dict[str, Any], count: int, heard: dict[int, socket.socket]) -> str | None:
    index = told["index"]
    if told["count"] != count:
        return (
            f"--num-processes: expected the same in all processes, got {count} in process 0 and "
            f"{told['count']} in process {index}"
        )
    if index in heard:
        return (
            f"--process-id: expected a different one in each process, got {index} twice; is "
            f"another process {index} running?"
        )
    if not 0 < index < count:
        return f"--process-id: expected 1 … {count - 1} in processes that call, got {index}"
    return None


def listen(port: int) -> socket.socket:
    """On all addresses, as JAX's own service does."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise ValueError(
            f"--coordinator: expected a port that is free on this machine, got {port}: "
            f"{error.strerror or error}; is another process 0 running?"
        ) from None


def _accept(listener: socket.socket, deadline: float) -> socket.socket | None:
    listener.settimeout(max(0.01, deadline - time.monotonic()))
    try:
        caller, _ = listener.accept()
    except TimeoutError:
        return None
    caller.settimeout(10)
    return caller


def _answer(host: str, port: int, count: int, index: int, deadline: float) -> socket.socket:
    """Of the others: say who this is, and hear what came of it."""
    place = f"{host}:{port}"
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ValueError(
                f"--coordinator: expected process 0 at {place}, which does not answer; is it "
                "started, with the same --coordinator?"
            )
        try:
            caller = socket.create_connection((host, port), timeout=min(left, 5))
        except (socket.gaierror, UnicodeError) as error:
            raise ValueError(
                f"--coordinator: expected the name or address of process 0's host, got {host!r}: "
                f"{getattr(error, 'strerror', None) or error}"
            ) from None
        except OSError:
            time.sleep(0.2)
            continue
        caller.settimeout(left + 10)  # process 0 gives up first, and says why
        _write(caller, {"index": index, "count": count})
        heard = _read(caller)
        if heard is not None and "problem" in heard and heard["problem"] is None:
            return caller
        caller.close()
        if heard is not None and "problem" in heard:
            raise ValueError(str(heard["problem"]))
        time.sleep(0.2)  # the one before process 0 on this port, its end, or another program


def _write(caller: socket.socket, message: Any) -> None:
    try:
        caller.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return  # it is gone, and will be missed


def _read(caller: socket.socket) -> dict[str, Any] | None:
    """One line of JSON, and nothing of what comes after it; None for anything else."""
    data = b""
    try:
        while not data.endswith(b"\n") and len(data) < LONGEST_ANSWER:
            more = caller.recv(1)
            if not more:
                return None
            data += more
        found = json.loads(data)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


# -------------------------------------------------------------------------------------------------
# Whether the other processes of a run are alive, for as long as it lasts.
#
# A process that is killed breaks its connections, and those that wait for it hear of that. One that
# stands still, since it was stopped or its host has lost power, breaks nothing: the others would wait
# for ever. So each says every second that it is there, from a thread that needs the interpreter
# for an instant only: process 0 to all, and all to process 0, which tells the others whom it misses.


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


WAIT_SECONDS = 60.0
"""How long processes wait for each other at the start."""

AGAIN_SECONDS = 20.0
"""How long, where JAX has brought them together, for what they have to say without it."""

LAST_SECONDS = 1.0
"""How much longer than the others process 0 stays."""

HEARTBEAT_SECONDS = 150
"""A process that JAX has not heard of for so long is dead. It ends the others without a word on
why: `jaxseq.parallel._launch` finds out long before."""

END_SECONDS = 24 * 3600
"""How long processes that are done wait for the others, which may still evaluate or write."""


@dataclass(frozen=True)
class Meeting:
    """Where processes meet, how many, and which of them this is; None for what JAX finds out."""

    coordinator: str | None
    count: int | None
    index: int | None


def find_meeting(
    coordinator: str | None,
    count: int | None,
    index: int | None,
    environment: Mapping[str, str] = os.environ,
) -> Meeting | None:
    """What was asked for, or what the environment says; None for a run of a single process.

    Args:
        coordinator: ``HOST:PORT`` of process 0, or None.
        count: number of processes, or None.
        index: number of this one, or None.
        environment: ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID`` stand
            for those that are None; a job step of SLURM with several tasks for all three, or for
            the number of processes and this one's where there is a coordinator.

    Raises:
        ValueError: when some are given and others missing, or they make no sense.

    Example:
        >>> find_meeting("10.0.0.1:1234", 2, 0, {})
        Meeting(coordinator='10.0.0.1:1234', count=2, index=0)
        >>> find_meeting(None, None, None, {}) is None
        True
    """
    coordinator = coordinator or environment.get("JAX_COORDINATOR_ADDRESS") or None
    count = _whole("JAX_NUM_PROCESSES", environment) if count is None else count
    index = _whole("JAX_PROCESS_ID", environment) if index is None else index
    tasks, task = _step_of_slurm(environment)
    if coordinator is None and count is None and index is None:
        return Meeting(None, None, None) if task is not None and (tasks or 1) > 1 else None
    if coordinator is not None:
        count = tasks if count is None else count
        index = task if index is None else index
    if coordinator is None or count is None or index is None:
        raise ValueError(
            "--coordinator, --num-processes, --process-id: expected all three (or JAX_* variables "
            f"or a job step of SLURM in their place), got {coordinator}, {count} and {index}"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"--coordinator: expected HOST:PORT, got {coordinator!r}")
    if count < 1:
        raise ValueError(f"--num-processes: expected 1 or more, got {count}")
    if not 0 <= index < count:
        raise ValueError(f"--process-id: expected 0 … {count - 1}, got {index}")
    return Meeting(coordinator, count, index)


def _step_of_slurm(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Tasks of the job step, and which this is; a batch script is in none, whatever it may ask for.

    Example:
        >>> step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}
        >>> _step_of_slurm({**step, "SLURM_NTASKS": "2"})
        (2, 1)
    """
    in_step = "SLURM_STEP_NUM_TASKS" in environment or "SLURM_STEP_ID" in environment
    if "SLURM_JOB_ID" not in environment or not in_step:
        return None, None
    tasks = _whole("SLURM_STEP_NUM_TASKS", environment)
    tasks = _whole("SLURM_NTASKS", environment) if tasks is None else tasks
    return tasks, _whole("SLURM_PROCID", environment)


def _whole(name: str, environment: Mapping[str, str]) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(f"{name}: expected a whole number, got {text!r}")
    return int(text)


def join_processes(
    coordinator: str | None = None,
    count: int | None = None,
    index: int | None = None,
    *,
    wait_seconds: float = WAIT_SECONDS,
    when_lost: Callable[[int, str], None] = end_process,
) -> Peers | None:
    """Join the other processes of a run; before anything else is done with JAX.

    From then on a thread in each process tells the others every second that it is there. A
    process of which nothing was heard for 45 seconds, as it was stopped or its host is gone, or
    whose connection has ended 15 seconds ago, is lost, and the others end: what they wait for will
    never come.

    Args:
        coordinator, count, index: as in `find_meeting`, whose environment stands for those that
            are None.
        wait_seconds: how long to wait for the others.
        when_lost: is told the number of this process and why another is given up, in a thread of
            its own; must end this process, as the default does, with exit status 1 and a line on
            standard error.

    Returns:
        The processes, or None where nothing says that there are others.

    Raises:
        ValueError: when they cannot meet: the port in use, too few in time, or told different
            numbers.

    Example:
        >>> join_processes() is None
        True
    """
    meeting = find_meeting(coordinator, count, index)
    if meeting is None:
        return None
    number = _step_of_slurm(os.environ)[1] if meeting.index is None else meeting.index
    lost = partial(when_lost, number or 0)
    watched = False
    if meeting.coordinator is not None and meeting.count is not None and meeting.index is not None:
        host, _, port = meeting.coordinator.rpartition(":")
        if meeting.count > 1 or meeting.index == 0:
            host = host.strip("[]")
            found = call_roll(host, int(port), meeting.count, meeting.index, wait_seconds)
            if found:
                begin_watch(found, lost)
                watched = True
    try:
        peers = _connect(meeting, wait_seconds, lost)
        if not watched and peers.count > 1:
            begin_watch(_meet_again(peers), lost)
    except BaseException:
        end_watch()
        raise
    return peers


def _connect(meeting: Meeting, wait_seconds: float, lost: Callable[[str], None]) -> Peers:
    """Have JAX connect the processes and their devices."""
    # JAX would take SIGTERM for news that its scheduler has for training code, and go on; and it
    # would end this process in mid-sentence when process 0 is gone.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_enable_recoverability", True)
    late = partial(lost, f"not all processes have met within {wait_seconds:g} s")
    with _chatter_to_stderr():
        try:
            with within(wait_seconds, late):
                jax.distributed.initialize(
                    meeting.coordinator,
                    meeting.count,
                    meeting.index,
                    # When that is over, JAX aborts the process: never before `late`.
                    initialization_timeout=int(wait_seconds) + 60,
                    heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
                    shutdown_timeout_seconds=END_SECONDS,
                )
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"processes: expected all to meet within {wait_seconds:g} s, got {reason:.300}"
            ) from error
        peers = all_peers()
        peers.exchange(None)  # connects the devices, which is when gloo speaks
    return peers


def _meet_again(peers: Peers) -> dict[int, socket.socket]:
    """Connections as of `call_roll`, for processes that JAX has brought together by itself.

    None, with a note, where process 0 cannot be reached by the name that its host has: then a
    process that stands still is not noticed.
    """
    listening = listen(0) if peers.is_first else None
    own = None if listening is None else [socket.gethostname(), listening.getsockname()[1]]
    host, port = peers.exchange(own)[0]
    try:
        if listening is not None:
            return hold_roll_call(listening, peers.count, AGAIN_SECONDS)
        return call_roll(host, port, peers.count, peers.index, AGAIN_SECONDS)
    except ValueError as error:
        print(f"jaxseq: note: processes that stand still go unnoticed: {error}", file=sys.stderr)
        return {}


def leave_processes(peers: Peers) -> None:
    """End what `join_processes` began; all processes must do so, and none before all are here.

    Process 0, by which the others are connected, goes last: without it they would take their own
    end for a failure.

    Example:
        >>> from jaxseq.parallel import all_peers
        >>> leave_processes(all_peers())
    """
    if peers.count == 1:
        return
    peers.exchange(None)
    end_watch()
    if peers.is_first:
        time.sleep(LAST_SECONDS)
    jax.distributed.shutdown()


@contextlib.contextmanager
def _chatter_to_stderr() -> Iterator[None]:
    """What libraries print on standard output is not what a report's reader wants there."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
