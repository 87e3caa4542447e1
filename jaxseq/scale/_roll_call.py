"""A roll call of the processes of a run, before JAX connects them.

JAX ends a process where others are missing or were told another number of them, without a word on
what is wrong. So they first meet at the same address and compare what they were told. Their
connections stay, for `jaxseq.scale._watch`.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

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
