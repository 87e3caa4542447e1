"""A slice of the fuzzer, and of the disk that is full, at every run of the tests."""

import shutil
import sys

import pytest

from tests.fuzz import full_disk
from tests.fuzz.__main__ import run_cases
from tests.fuzz.cases import KINDS


def test_a_hundred_odd_inputs():
    report = run_cases(seed=1, numbers=range(100), seconds=120.0)
    assert report["failures"] == []
    assert report["kinds"].keys() == KINDS.keys()
    assert report["statuses"].keys() == {"0", "2"}  # some are sound after all


@pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform != "linux", reason="needs Linux and a C compiler"
)
def test_a_disk_that_is_full_loses_nothing(capfd):
    every = ["--how", "on", "--every", "7"]
    assert full_disk.run_from_command_line(every) == 0, capfd.readouterr().out
