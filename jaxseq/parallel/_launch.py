"""Joining the other processes of a run, by `jax.distributed`.

JAX connects the processes and watches over them: each tells process 0 every few seconds that it is
there, and when one has been silent for a minute, or process 0 is gone, JAX ends the others with
exit status 134 and lines on standard error. Here is what surrounds that: what was asked for, and
what is said when the processes do not meet.

JAX asks nobody who they are: whoever reaches the port of process 0 can take the place of a process,
send it numbers of his own, or keep the others waiting. The network between the processes must be
trusted, and the port closed to all others; on one machine, by listening on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import platform
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax

from jaxseq.parallel._peers import Peers, all_peers

LOST = "another process of this run has ended or cannot be reached"

WAIT_SECONDS = 60.0
"""How long processes wait for each other at the start."""

COMPARED = ("jaxseq", "jax", "jaxlib", "numpy")
"""Packages of which all processes must have the same version, for they send each other arrays."""

TIMEOUTS = {
    # A stopped process or a lost host closes no connection: only its silence tells. The heartbeat
    # comes from a thread outside Python, which neither compiling nor reading delays.
    "heartbeat_timeout_seconds": 60,
    # A script that fails in one process waits so long for the others at its end, while they wait
    # for what it was to send; then JAX ends them all.
    "shutdown_timeout_seconds": 30,
}
"""For `jax.distributed.initialize`; an older JAX has its own, 100 s and 300 s."""


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

    ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID`` stand for arguments
    that are None; a job step of SLURM with several tasks for all three, or, where there is a
    coordinator, for the two numbers.
    """
    # Our arguments first, then JAX's own variables, then the scheduler's.
    coordinator = coordinator or environment.get("JAX_COORDINATOR_ADDRESS") or None
    count = _whole_number("JAX_NUM_PROCESSES", environment) if count is None else count
    index = _whole_number("JAX_PROCESS_ID", environment) if index is None else index
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
    """Tasks of the job step, and which of them this is; None outside any, as in a batch script."""
    in_step = "SLURM_STEP_NUM_TASKS" in environment or "SLURM_STEP_ID" in environment
    if "SLURM_JOB_ID" not in environment or not in_step:
        return None, None
    names = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID")
    in_step, in_job, task = (_whole_number(name, environment) for name in names)
    return in_step or in_job, task


def _whole_number(name: str, environment: Mapping[str, str]) -> int | None:
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
) -> Peers | None:
    """Join the other processes of a run; before anything else is done with JAX.

    From then on JAX watches over the processes, and ends them when one is lost: see this module.
    The network between them must be trusted: whoever reaches the coordinator's port can take part.
    Process 0 listens on the coordinator's address alone, or where ``JAX_COORDINATOR_BIND_ADDRESS``
    says, such as ``[::]:1234`` for a port on every address of the machine.

    Args:
        coordinator: as in `find_meeting`, like the next two.
        count: number of processes.
        index: number of this one.
        wait_seconds: how long to wait for the others; after that this process ends, with exit
            status 1 and a line on standard error.

    Returns:
        The processes, or None where nothing says that there are others.

    Raises:
        ValueError: when the port is in use, the host unknown, or the number of processes or the
            versions of jaxseq, JAX, NumPy and Python are not the same in all.

    Example:
        >>> join_processes() is None
        True
    """
    meeting = find_meeting(coordinator, count, index)
    if meeting is None:
        return None
    bind_address = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or meeting.coordinator
    _check_address(meeting, bind_address)
    # JAX would take SIGTERM for news that its scheduler has for training code, and go on.
    with contextlib.suppress(AttributeError):  # an older JAX has no such option
        jax.config.update("jax_enable_preemption_service", False)
    known = inspect.signature(jax.distributed.initialize).parameters
    timeouts: dict[str, Any] = {name: TIMEOUTS[name] for name in TIMEOUTS if name in known}
    with _chatter_to_stderr(), _ending_after(wait_seconds, meeting):
        try:
            jax.distributed.initialize(
                meeting.coordinator,
                meeting.count,
                meeting.index,
                # When that is over JAX aborts with a stack trace: never before `_ending_after`.
                initialization_timeout=int(wait_seconds) + 60,
                # JAX's own choice is every address of the machine, for all the world to reach.
                coordinator_bind_address=bind_address,
                **timeouts,
            )
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"processes: expected all to meet within {wait_seconds:g} s, got {reason:.300}"
            ) from error
        peers = all_peers()
        # This also connects the devices, which is when gloo speaks.
        check_alike(peers, meeting.count)
        return peers


def check_alike(peers: Peers, count: int | None) -> None:
    """ValueError unless all were told of as many processes and run the same versions.

    JAX compares neither, and the second may show only in numbers.
    """
    peers.check_same("--num-processes", count)
    versions = {name: version(name) for name in COMPARED}
    peers.check_same("versions", versions | {"python": platform.python_version()})


def _check_address(meeting: Meeting, bind_address: str | None) -> None:
    """ValueError where process 0 cannot listen, or its host has no address.

    JAX would say the one in words of its own, and wait for the other until its time is over.
    """
    if meeting.coordinator is None or bind_address is None:
        return
    address = bind_address if meeting.index == 0 else meeting.coordinator
    host, _, port = address.rpartition(":")
    try:
        family, *_, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        if meeting.index == 0:
            socket.create_server(place[:2], family=family).close()
    except (socket.gaierror, UnicodeError) as error:  # before OSError, which the first is
        raise ValueError(
            f"--coordinator: expected the name or address of process 0's host, got {host!r}: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from None
    except OSError as error:
        hint = "is another process 0 running?"
        if error.errno == errno.EADDRNOTAVAIL:
            hint = "JAX_COORDINATOR_BIND_ADDRESS can name another address to listen on"
        raise ValueError(
            f"--coordinator: expected an address and a port that are free on this machine, got "
            f"{address}: {error.strerror or error}; {hint}"
        ) from None


@contextlib.contextmanager
def _ending_after(seconds: float, meeting: Meeting) -> Iterator[None]:
    """End this process if what is inside takes longer; the others may never come."""

    def end() -> None:
        count = "" if meeting.count is None else f"{meeting.count} "
        line = f"not all {count}processes have met within {seconds:g} s; are all of them started?"
        index = os.environ.get("SLURM_PROCID", 0) if meeting.index is None else meeting.index
        print(f"jaxseq: error: process {index}: {line}", file=sys.stderr, flush=True)
        os._exit(1)  # the main thread is inside JAX, where no exception reaches it

    timer = threading.Timer(seconds, end)
    timer.daemon = True  # an error inside must not wait for it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave_processes(peers: Peers) -> None:
    """End what `join_processes` began, once all processes have called this.

    Example:
        >>> leave_processes(all_peers())
    """
    if peers.count > 1:
        peers.exchange(None)  # as long as it takes: others may still evaluate or write
        jax.distributed.shutdown()


@contextlib.contextmanager
def _chatter_to_stderr() -> Iterator[None]:
    """Send what libraries print on standard output to standard error: a report may be expected."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    try:
        os.dup2(2, 1)  # of the process, not of Python: gloo prints from C++
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
