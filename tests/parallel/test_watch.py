"""Processes that stand still or are gone are missed, and no others."""

import socket
import threading
import time

from jaxseq.parallel import _launch as _watch
from jaxseq.parallel._launch import HERE, MISSING, Watch


class Watched:
    """Two watches of each other, with little patience; what they were told in the end."""

    def __init__(self, silence=1.0, grace=0.4):
        self.ends, self.told = socket.socketpair(), {0: [], 1: []}
        self.quick = {"silence": silence, "grace": grace, "beat": 0.05}

    def watch(self, index):
        return Watch({1 - index: self.ends[index]}, self.told[index].append, **self.quick)

    def wait_for(self, index, seconds=20.0):
        until = time.monotonic() + seconds
        while not self.told[index] and time.monotonic() < until:
            time.sleep(0.02)
        return self.told[index]


def test_processes_that_speak_are_not_missed():
    both = Watched()
    watches = [both.watch(index) for index in (0, 1)]
    time.sleep(2.0)
    watches[1].end()
    time.sleep(1.5)  # gone in peace
    watches[0].end()
    assert both.told == {0: [], 1: []}


def test_a_silent_process_is_missed():
    both = Watched()
    watch = both.watch(0)
    assert both.wait_for(0) == ["process 1 has given no sign of life for 1 s"]
    assert both.ends[1].recv(1000).endswith(MISSING)
    watch.end()
    both.ends[1].close()


def test_a_closed_connection_is_missed_after_a_while():
    both = Watched(silence=60.0, grace=2.0)
    watch = both.watch(0)
    both.ends[1].close()
    time.sleep(0.1)
    assert both.told[0] == []
    assert both.wait_for(0) == ["process 1 has closed its connection"]
    watch.end()


def test_what_process_0_misses_the_others_miss_as_well():
    both = Watched(silence=60.0)
    watch = both.watch(1)
    both.ends[0].send(HERE + MISSING)
    assert both.wait_for(1) == ["process 0 misses one"]
    watch.end()
    both.ends[0].close()


def test_nobody_is_missed_by_a_process_that_needs_none(monkeypatch):
    both = Watched(grace=0.1)
    watch = both.watch(0)
    monkeypatch.setattr(_watch, "_WATCHES", [watch])
    with _watch.others_not_needed():
        both.ends[1].close()
        time.sleep(1.0)
        assert both.told[0] == []
    assert both.wait_for(0) == ["process 1 has closed its connection"]
    watch.end()


def test_time_in_which_a_process_stood_still_does_not_count(monkeypatch):
    """All processes of a job may be stopped and gone on with."""
    both, clock = Watched(silence=60.0), iter([0.0, *range(100, 100_000, 100)])
    monkeypatch.setattr(_watch.time, "monotonic", lambda: float(next(clock)))
    watch = both.watch(0)
    watch._over.wait(0.3)
    assert both.told[0] == []
    watch.end()
    both.ends[1].close()


def test_what_takes_too_long_is_told_of_while_it_lasts():
    late, ended = threading.Event(), threading.Event()
    with _watch.within(0.05, late.set):
        assert late.wait(20.0)
    with _watch.within(0.3, ended.set):
        pass
    assert not ended.wait(1.0)
