"""Joining the other processes of a run."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import jax

from jaxseq.scale._peers import Peers, all_peers
from jaxseq.scale._roll_call import call_roll, hold_roll_call, listen
from jaxseq.scale._watch import begin_watch, end_process, end_watch, within

WAIT_SECONDS = 60.0
"""How long processes wait for each other at the start."""

AGAIN_SECONDS = 20.0
"""How long, where JAX has brought them together, for what they have to say without it."""

LAST_SECONDS = 1.0
"""How much longer than the others process 0 stays."""

HEARTBEAT_SECONDS = 150
"""A process that JAX has not heard of for so long is dead. It ends the others without a word on
why: `jaxseq.scale._watch` finds out long before."""

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
        >>> from jaxseq.scale import all_peers
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
