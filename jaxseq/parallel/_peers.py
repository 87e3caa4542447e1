"""Processes that work on one corpus together, and what they tell each other on the host."""

from __future__ import annotations

import contextlib
import errno
import inspect
import io
import json
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxseq.parallel._mesh import check_mesh, from_first, own_rows, spans_processes

OWN = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED", "OUT_OF_RANGE", "NOT_FOUND")
"""How JAX's messages about this process itself begin; all others are of broken connections."""

_FINE, _FAILED = b"\x00", b"\x01"
"""First byte of every message: whether its sender is well, or what follows is its error."""

_TOLD = "told_to_peers"
"""Attribute of an exception that the other processes know of, or cannot be told of any more."""


def in_words(error: BaseException) -> str:
    """What went wrong, in one line, for those who do not see where."""
    if isinstance(error, OSError) and error.filename is not None:
        place = os.fsdecode(error.filename)
        return f"{place}: cannot be read or written: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "expected enough memory for the data, there is too little"
    text = " ".join(str(error).split())  # JAX's messages have many lines
    if isinstance(error, jax.errors.JaxRuntimeError) and text.startswith("RESOURCE_EXHAUSTED"):
        return f"expected enough memory on the devices, there is too little ({text:.200})"
    if isinstance(error, ValueError | OSError):
        return text
    return f"unexpected {type(error).__name__}: {text}"


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process cannot be reached any more."""
    # A collective that was cut off comes as either type, by how far it had got.
    if isinstance(error, jax.errors.JaxRuntimeError):
        return not str(error).startswith(OWN)
    return isinstance(error, ValueError | OSError) and "Gloo" in str(error)


class OtherProcessError(ValueError):
    """Another process has failed, and has said why.

    Example:
        >>> str(OtherProcessError("process 1: train.txt: expected a file, there is none"))
        'process 1: train.txt: expected a file, there is none'
    """


@dataclass(frozen=True)
class Peers:
    """All processes of a run, of which this is one.

    Each has its own part of a corpus. What they have to agree on they exchange: every process calls
    the same methods in the same order, and each gets what all have sent. With one process, nothing
    is sent.

    Args:
        index: the number of this process.
        count: of processes.
        exchange_bytes: sends a message to all and returns what each has sent, by its number.

    Example:
        >>> Peers(0, 1, lambda message: [message]).exchange({"labels": ["N", "V"]})
        [{'labels': ['N', 'V']}]
    """

    index: int
    count: int
    exchange_bytes: Callable[[bytes], list[bytes]]

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and reports."""
        return self.index == 0

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all; OtherProcessError where another process has failed in `guard`."""
        try:
            messages = self.exchange_bytes(_FINE + message)
        except BaseException as error:
            setattr(error, _TOLD, True)  # out of step: another message would not be understood
            raise
        for number, each in enumerate(messages):
            if each[:1] == _FAILED:
                raise OtherProcessError(f"process {number}: {each[1:].decode()}")
        return [each[1:] for each in messages]

    def exchange(self, value: Any) -> list[Any]:
        """What all have sent, anything that JSON can hold."""
        return [json.loads(message) for message in self.gather(json.dumps(value).encode())]

    def exchange_arrays(self, *arrays: np.ndarray) -> list[list[np.ndarray]]:
        """The arrays of all, which may differ in shape."""
        file = io.BytesIO()  # NumPy's own format keeps shapes and dtypes
        np.savez(file, *arrays, allow_pickle=False)
        unpacked = []
        for message in self.gather(file.getvalue()):
            with np.load(io.BytesIO(message), allow_pickle=False) as each:
                unpacked.append([each[f"arr_{number}"] for number in range(len(each.files))])
        return unpacked

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of all processes' arrays of one shape."""
        if self.count == 1:
            return array
        # Always in the order of processes, so that all get the same to the bit.
        return np.sum([part for (part,) in self.exchange_arrays(array)], 0, dtype=array.dtype)

    def check_same(self, name: str, value: Any) -> None:
        """ValueError unless every process has the same, anything that JSON can hold.

        The error names the entries of dictionaries that differ.
        """
        first, *later = self.exchange(value)
        for number, other in enumerate(later, 1):
            if other == first:
                continue
            if isinstance(first, dict) and isinstance(other, dict):
                names = [key for key in {**first, **other} if first.get(key) != other.get(key)]
                first, other = ({key: each.get(key) for key in names} for each in (first, other))
            raise ValueError(
                f"{name}: expected the same in all processes, got {first!r:.200} in process "
                f"0 and {other!r:.200} in process {number}"
            )

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Inside, an error of one process, whatever it is, becomes one of all.

        Without it, the others would wait for an answer that never comes. All processes must be
        inside, and speak to each other by this object alone; none leaves before all are done.
        """
        try:
            yield
            if self.count > 1:  # none leaves before all are well: the last may still fail
                self.gather(b"")
        except OtherProcessError:
            raise
        except Exception as error:
            if self.count > 1 and not is_lost(error) and not getattr(error, _TOLD, False):
                setattr(error, _TOLD, True)  # for a guard around this
                self.exchange_bytes(_FAILED + in_words(error).encode())
            raise


def all_peers() -> Peers:
    """The processes of this run of JAX: one, unless `jax.distributed.initialize` was called.

    Example:
        >>> all_peers().count
        1
    """
    if jax.process_count() == 1:
        return Peers(0, 1, lambda message: [message])
    return Peers(jax.process_index(), jax.process_count(), _exchange_bytes)


def _exchange_bytes(message: bytes) -> list[bytes]:
    """By way of the devices, all messages padded to the longest."""
    from jax.experimental.multihost_utils import process_allgather

    lengths = np.asarray(process_allgather(np.array(len(message), np.int32)))
    width = 1 << max(6, int(lengths.max()) - 1).bit_length()  # few shapes, few compilations
    padded = np.zeros(width, np.uint8)  # gathered arrays must have one shape
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    rows = np.asarray(process_allgather(padded))
    return [row[:length].tobytes() for row, length in zip(rows, lengths.tolist())]


def mesh_peers(mesh: Mesh | None) -> Peers:
    """The processes of a mesh; this one alone without one."""
    # A mesh of this process's devices alone needs no others, whoever else takes part in the run.
    if mesh is None or not spans_processes(check_mesh(mesh)):
        return Peers(0, 1, lambda message: [message])
    return all_peers()


PER_PROCESS = ("cores", "progress", "checkpoint")
"""Settings that may differ between processes: a path may be spelt in several ways."""


@dataclass(frozen=True)
class Devices:
    """A mesh and the processes that it spans, each with its own part of a corpus.

    All processes call the same methods in the same order. With one, every method does what it says
    for a job that nobody shares.

    Args:
        mesh: of `make_mesh`, or None for the cores of this machine.
        peers: all processes.
        numbers: the place of each sentence of this process in the whole corpus, int64; None where
            sentences were dealt out by turns.

    Example:
        >>> devices = Devices.alone()
        >>> with devices.agreeing():
        ...     classes = devices.union({"V", "N"})
        >>> classes, devices.total(3), devices.is_first
        (['N', 'V'], 3, True)
    """

    mesh: Mesh | None
    peers: Peers
    numbers: np.ndarray | None = None

    @classmethod
    def from_mesh(cls, mesh: Mesh | None, sentence_numbers: Any = None) -> Devices:
        """The devices of a mesh; of this process alone without one."""
        peers = mesh_peers(mesh)
        if sentence_numbers is None:
            return cls(mesh, peers)
        numbers = np.asarray(sentence_numbers)
        # An error of all, as the others are about to wait for this process.
        with peers.guard():
            if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
                raise ValueError(
                    "sentence_numbers: expected whole numbers, one per sentence, got dtype "
                    f"{numbers.dtype} of shape {list(numbers.shape)}"
                )
        return cls(mesh, peers, numbers.astype(np.int64))

    @classmethod
    def alone(cls) -> Devices:
        """One process with everything."""
        return cls(None, mesh_peers(None))

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process to agree with."""
        return self.peers.count == 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and reports."""
        return self.peers.is_first

    @property
    def places(self) -> int:
        """Places along ``"data"`` that belong to this process; 1 without a mesh."""
        return 1 if self.mesh is None else len(own_rows(self.mesh))

    def agreeing(self) -> AbstractContextManager[None]:
        """Inside, an error of one process is one of all, which would else wait for it for ever."""
        return self.peers.guard()

    def check_same(self, name: str, value: Any) -> None:
        """ValueError unless every process has the same value, anything that JSON can hold."""
        self.peers.check_same(name, value)

    def check_settings(self, *settings: Mapping[str, Any], **optional: Any) -> None:
        """ValueError unless all processes were told to do the same.

        Of the settings, those of `PER_PROCESS` are not compared; of the optional arguments it
        matters only whether they are None.
        """
        if self.is_alone:
            return  # settings may be costly to write out, and there is nobody to compare them with
        together = {name: value for each in settings for name, value in each.items()}
        compared = {k: str(value) for k, value in together.items() if k not in PER_PROCESS}
        compared |= {k: "none" if value is None else "given" for k, value in optional.items()}
        compared["mesh"] = "none" if self.mesh is None else str(self.mesh.devices.shape)
        self.check_same("settings", compared)

    def any(self, flag: Any) -> bool:
        """Whether it is so in any process."""
        return any(self.peers.exchange(bool(flag)))

    def all(self, flag: Any) -> bool:
        """Whether it is so in every process."""
        return all(self.peers.exchange(bool(flag)))

    def total(self, number: int) -> int:
        """The sum of all processes' whole numbers, of any size."""
        # As text: a whole number of JSON may be cut to 64 bits by others who read it.
        return sum(int(each, 16) for each in self.peers.exchange(f"{number:x}"))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of all processes' arrays of one shape."""
        return self.peers.sum(array)

    def anywhere(self, array: np.ndarray) -> np.ndarray:
        """Where the array of any process is true."""
        if self.is_alone:
            return array
        return np.any([part for (part,) in self.peers.exchange_arrays(array)], 0)

    def union(self, names: set[str]) -> list[str]:
        """The names of all processes, sorted."""
        return sorted(set().union(*self.peers.exchange(sorted(names))))

    def merge(self, numbers: np.ndarray) -> np.ndarray:
        """The sorted numbers that any process has; this one's must be sorted."""
        if self.is_alone:
            return numbers
        return np.unique(np.concatenate([part for (part,) in self.peers.exchange_arrays(numbers)]))

    def share_first(
        self, notes: Any, arrays: dict[str, np.ndarray]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Notes (for JSON) and arrays of process 0, in every process."""
        if self.is_alone:
            return notes, arrays
        shapes = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        notes, shapes = self.peers.exchange([notes, shapes])[0]
        if not shapes:
            return notes, {}
        # In two steps: for the second, all must have arrays of the same shapes.
        if not self.is_first:
            arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}
        return notes, from_first(arrays)

    def numbers_by_turns(self, count: int) -> np.ndarray:
        """The places of so many sentences of this process that were dealt out by turns."""
        return self.peers.index + self.peers.count * np.arange(count, dtype=np.int64)

    def sentence_places(self, labelled: int, unlabelled: int = 0) -> np.ndarray:
        """The places of this process's sentences in the whole corpus, unlabelled ones last."""
        first = self.numbers_by_turns(labelled) if self.numbers is None else self.numbers
        # Beyond the last labelled sentence of all, whoever has it.
        after = max(self.peers.exchange(int(first.max(initial=-1)) + 1))
        return np.concatenate([first, after + self.numbers_by_turns(unlabelled)])


# ---------------------------------------------------------------------- joining, by jax.distributed

# JAX connects the processes and watches over them: each tells process 0 every few seconds that it
# is there, and when one has been silent for a minute, or process 0 is gone, JAX ends the others
# with exit status 134 and lines on standard error. Here is what surrounds that: what was asked for,
# and what is said when the processes do not meet.
#
# JAX asks nobody who they are: whoever reaches the port of process 0 can take the place of a
# process, send it numbers of their own, or keep the others waiting. The network between the
# processes must be trusted, and the port closed to all others; on one machine, by listening on
# 127.0.0.1.

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
