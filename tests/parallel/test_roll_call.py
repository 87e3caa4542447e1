"""The roll call among other programs, and what is said of mistakes in it."""

import socket
import threading
import time

import pytest

from jaxseq.parallel import _launch as _start
from jaxseq.parallel._launch import HERE, call_roll
from tests.parallel.test_processes import free_port, in_threads, roll


def test_an_unknown_host_is_named_at_once():
    began = time.monotonic()
    for host in ("nobody.invalid", "nobody..invalid"):
        with pytest.raises(ValueError, match=f"process 0's host, got '{host}': "):
            call_roll(host, 1234, 2, 1, 60.0)
    assert time.monotonic() - began < 30


def test_a_process_number_that_two_have():
    for told in roll((3, 0), (3, 1), (3, 1)):
        assert told.endswith("got 1 twice; is another process 1 running?")


def test_the_roll_call_takes_no_notice_of_other_programs():
    port, found = free_port(), {}

    def hold():
        found.update(call_roll("127.0.0.1", port, 2, 0, 20.0))

    thread = threading.Thread(target=hold)
    thread.start()
    odd = [b'{"index": "one", "count": 2}', b'{"index": 1}', b'{"index": null, "count": 2}', b"GET"]
    for line in odd:
        while True:
            try:
                stranger = socket.create_connection(("127.0.0.1", port), timeout=20)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        with stranger:
            stranger.sendall(line + b"\n")
            assert stranger.recv(1) == b""
    call_roll("127.0.0.1", port, 2, 1, 20.0)[0].close()
    thread.join()
    assert list(found) == [1]
    found[1].close()


def test_words_that_follow_the_roll_call_are_not_taken_for_its_end():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            caller, _ = server.accept()
            caller.sendall(b'{"problem": null}\n' + HERE)
            box.append(caller)

        box = []
        thread = threading.Thread(target=answer)
        thread.start()
        connection = call_roll("127.0.0.1", server.getsockname()[1], 2, 1, 5.0)[0]
        thread.join()
        with connection, box[0]:
            assert connection.recv(10) == HERE


def test_processes_that_jax_has_brought_together_meet_for_the_watch(monkeypatch):
    """As SLURM tells only JAX where process 0 is."""
    monkeypatch.setattr("socket.gethostname", lambda: "127.0.0.1")
    found = in_threads(3, _start._meet_again)
    assert [sorted(connections) for connections in found] == [[1, 2], [0], [0]]
    for connection in (each for connections in found for each in connections.values()):
        connection.close()
    monkeypatch.setattr("socket.gethostname", lambda: "nobody.invalid")
    monkeypatch.setattr(_start, "AGAIN_SECONDS", 1.0)
    assert in_threads(2, _start._meet_again) == [{}, {}]
