"""Whatever stops a run and whenever: going on gives the file of a run that was not stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from experiments import _files
from experiments.__main__ import main
from tests.experiments.toy import CONFIG, start, write_toy

PRESET = ("--preset", "paper")  # 12 cells


def _lines(path: Path) -> list[dict]:
    """The lines, each whole, but for their two timings."""
    text = path.read_text("utf-8")
    assert text.endswith("\n")
    lines = [json.loads(line) for line in text[:-1].split("\n")]
    for line in lines:
        del line["seconds"], line["result"]["seconds"]
    return lines


def _file(out: Path) -> Path:
    return out / "toy" / "paper" / "results.jsonl"


@pytest.fixture
def papers(tmp_path):
    write_toy(tmp_path / "papers")
    return tmp_path / "papers"


@pytest.fixture
def whole(tmp_path, papers):
    """Lines of a run that nothing stopped."""
    assert main(["run", "toy", *PRESET, "--out", str(tmp_path / "whole")], papers=papers) == 0
    lines = _lines(_file(tmp_path / "whole"))
    expected = [{"part": part, "seed": seed} for part in range(6) for seed in (5, 3)]
    assert [line["cell"] for line in lines] == expected
    return lines


class _Killed(BaseException):
    """Stands for SIGKILL where a real one cannot be timed: nothing may catch it."""


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("when", [0, 1, 2, 7, 12])
def test_killed_at_each_step_of_writing(tmp_path, papers, whole, monkeypatch, call, when):
    """The file is written 12 times after the provenance; death may come within any of them."""
    owner = _files if call == "open" else os
    real, calls = getattr(owner, call, open), 0

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > when:
            if call == "fsync":
                os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)  # half of it was written
            raise _Killed
        return real(*args, **kwargs)

    out = tmp_path / "out"
    arguments = ["run", "toy", *PRESET, "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, dying, raising=False)
        with pytest.raises(_Killed):
            main(arguments, papers=papers)
    done = len(_lines(_file(out))) if _file(out).exists() else 0
    assert done == max(when - 1, 0)
    assert main([*arguments, "--resume"], papers=papers) == 0
    assert _lines(_file(out)) == whole
    assert sorted(path.name for path in _file(out).parent.iterdir()) == [
        "provenance.json",
        "results.jsonl",
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_sigkill_of_a_process(tmp_path, whole, jobs):
    """Real kills, at moments that differ: each time the file is whole and the rest is done."""
    slow = CONFIG.replace("pause = 0.0", "pause = 0.03")
    papers = tmp_path / "slow"
    write_toy(papers, config=slow)
    out = tmp_path / "out"
    arguments = ["run", "toy", *PRESET, "--out", str(out), "--jobs", str(jobs)]
    moments = random.Random(jobs)
    done = 0
    for more in (2, 3):
        at_least = done + more  # by this process: else it is killed before it has begun
        process = start(papers, *arguments, "--resume")
        _wait_for_lines(process, _file(out), at_least)
        time.sleep(moments.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.communicate()  # would wait for workers that outlive it: they hold its output
        assert process.returncode == -signal.SIGKILL
        killed = _lines(_file(out))
        done = len(killed)
        assert at_least <= done < 12
        assert [line for line in whole if line in killed] == killed
    process = start(papers, *arguments, "--resume")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert output == f"results: {_file(out)}\n"
    assert _lines(_file(out)) == whole
    runs = json.loads((_file(out).parent / "provenance.json").read_text())["runs"]
    assert [run["finished_before"] == 0 for run in runs] == [True, False, False]


def _wait_for_lines(process, path: Path, count: int) -> None:
    while not path.exists() or len(_lines(path)) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def test_two_runs_are_equal(tmp_path, papers, whole):
    again = tmp_path / "again"
    assert main(["run", "toy", *PRESET, "--out", str(again)], papers=papers) == 0
    assert _lines(_file(again)) == whole


def test_several_processes_give_the_same_file(tmp_path, whole):
    """The first cell is done last; and there are as many processes as were asked for."""
    papers, out, marks = tmp_path / "uneven", tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    wait = "time.sleep(0.4 if (cell['part'], cell['seed']) == (0, 5) else 0)"
    write_toy(papers, body=f"{wait}; {_mark(marks)}")
    assert main(["run", "toy", *PRESET, "--out", str(out), "--jobs", "3"], papers=papers) == 0
    assert _lines(_file(out)) == whole
    workers = {path.name for path in marks.iterdir()}
    assert len(workers) == 3
    assert str(os.getpid()) not in workers


def _mark(folder: Path) -> str:
    """Code that leaves a file with the number of its process as name."""
    return f"import os, pathlib; pathlib.Path({str(folder)!r}, str(os.getpid())).touch()"


def test_no_process_outlives_a_kill(tmp_path):
    """Not even one in the midst of a long cell."""
    papers, marks = tmp_path / "papers", tmp_path / "marks"
    marks.mkdir()
    write_toy(papers, body=f"{_mark(marks)}; time.sleep(900)")
    process = start(papers, "run", "toy", "--out", str(tmp_path / "out"), "--jobs", "2")
    while len([*marks.iterdir()]) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=450)  # returns when all have gone that hold its output


def test_finished_results_are_left_alone(tmp_path, papers, whole):
    path = _file(tmp_path / "whole")
    before = path.read_bytes(), path.stat().st_mtime_ns
    arguments = ["run", "toy", *PRESET, "--out", str(tmp_path / "whole")]
    assert main(arguments, papers=papers) == 2
    assert main([*arguments, "--resume"], papers=papers) == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
