"""``python -m tests.fuzz.full_disk``: a disk on which one call that writes after another fails.

Trains over an older model, takes in answers, and writes shards, while the first, the second, … call
that writes fails for lack of room: alone, or with all that follow; or while the process is killed
before it (``--how kill``, with a process for each). Afterwards the older model or the new one must
be there, and the same command must give what it would have given at once. Prints one JSON object
for each command. Needs a C compiler, and Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxseq.cli import main
from tests.fuzz.cases import prepare

HOW = {"once": 0, "on": 1, "kill": 2}
SOURCE = Path(__file__).with_name("full_disk.c")


def compile_shim(folder: Path) -> Path:
    """The library to be loaded before the others."""
    library = folder / "full_disk.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


def run_quietly(argv: list[str]) -> tuple[int, str]:
    """Exit status and standard error of a command."""
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            status = main(argv)
        except SystemExit as stop:
            status = int(stop.code or 0)
        except Exception:
            status, _ = 1, err.write(traceback.format_exc())
    return status, err.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# The commands, and what must hold of the folder after they have failed. Each check gives what is
# wrong, or None.

Check = Callable[[Path, dict[str, bytes]], str | None]


def train(place: Path) -> list[str]:
    files = ["--train", str(place / "train"), "--templates", str(place / "templates")]
    more = ["--l2", "0.3", "--cores", "1", "--quiet", "--checkpoint", str(place / "kept")]
    return ["train", "crf", *files, *more, "--out", str(place / "model")]


def check_train(place: Path, whole: dict[str, bytes]) -> str | None:
    status, err = run_quietly(["inspect", str(place / "model")])
    return None if status == 0 else f"the older model is lost: {err}"


def shard(place: Path) -> list[str]:
    files = ["--train", str(place / "train"), "--templates", str(place / "templates")]
    return ["shard", *files, "--shard-tokens", "8", "--out", str(place / "new")]


def check_shard(place: Path, whole: dict[str, bytes]) -> str | None:
    if not (place / "new").exists():
        return None
    same = contents(place / "new") == {
        name.removeprefix("new/"): data for name, data in whole.items() if name.startswith("new/")
    }
    if not same:
        return "half of a folder of shards is there"
    shutil.rmtree(place / "new")  # all is there, and the same command would refuse to replace it
    return None


def answer(place: Path) -> list[str]:
    return ["active", "answer", str(place / "active" / "run"), str(place / "answers")]


def check_answer(place: Path, whole: dict[str, bytes]) -> str | None:
    run = str(place / "active" / "run")
    status, err = run_quietly(["active", "status", run])
    if status:
        return f"the run is lost: {err}"
    status, err = run_quietly(answer(place))
    if status and "the one under way" not in err:  # they were taken in, and the round has ended
        return f"answers are not taken any more: {err}"
    status, err = run_quietly(["tag", "--model", f"{run}/model", str(place / "more")])
    return None if status == 0 else f"the model of the run is lost: {err}"


COMMANDS: dict[str, tuple[Callable[[Path], list[str]], Check]] = {
    "train": (train, check_train),
    "shard": (shard, check_shard),
    "answer": (answer, check_answer),
}


def fail_at(number: int, how: str, sound: Path, name: str) -> tuple[Path, int, str, int]:
    """A copy of the folder after a command that failed: status, standard error and calls."""
    place = sound.with_name("place")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sound, place)
    shim = ctypes.CDLL(None)
    shim.full_disk_begin(os.fsencode(place), ctypes.c_long(number), HOW[how])
    try:
        status, err = run_quietly(COMMANDS[name][0](place))
    finally:
        calls = int(shim.full_disk_end())
    return place, status, err, calls


def fail_in_a_process(number: int, how: str, sound: Path, name: str) -> tuple[Path, int, str, int]:
    """The same in a process of its own, which may be killed."""
    argv = [sys.executable, "-m", "tests.fuzz.full_disk", "--inside", str(sound), "--how", how]
    argv += ["--commands", name, "--at", str(number)]
    done = subprocess.run(argv, capture_output=True, text=True)
    return sound.with_name("place"), done.returncode, done.stderr, 0


def wrong_after(place: Path, name: str, whole: dict[str, bytes], status: int, err: str) -> str:
    """What is wrong after a command that failed; empty if nothing is."""
    if status not in (0, 2, -9) or "Traceback" in err:
        return f"status {status}: {err}"
    if status == 2 and err.count("\n") != 1:
        return f"expected one line, got {err!r}"
    argv, check = COMMANDS[name]
    problem = check(place, whole)
    if problem is not None or name == "answer":
        return problem or ""
    again, err = run_quietly(argv(place))  # there is room again
    if again:
        return f"the same command fails: {err}"
    names = ("model", "new") if name == "train" else ("new",)
    now = contents(place)
    for path in whole:
        if path.split("/")[0] in names and now.get(path) != whole[path]:
            return f"the same command gives another {path}"
    left = sorted(now.keys() - whole.keys())
    return f"left behind: {left}" if left else ""


def run_inside(sound: Path, name: str, how: str, every: int) -> dict[str, Any]:
    """One command, failing at each call in turn."""
    began = time.perf_counter()
    place, status, err, calls = fail_at(0, "once", sound, name)
    if status:
        raise RuntimeError(f"{name}: expected to end well on a sound disk, got {err}")
    whole = contents(place)
    fail = fail_in_a_process if how == "kill" else fail_at
    failures, statuses = [], []
    for number in range(1, calls + 1, every):
        place, status, err, _ = fail(number, how, sound, name)
        statuses.append(status)
        if wrong := wrong_after(place, name, whole, status, err):
            failures.append({"call": number, "said": err[-300:], "wrong": wrong[-1500:]})
    return {
        "command": name,
        "how": how,
        "calls": calls,
        "tried": len(statuses),
        "statuses": {str(one): statuses.count(one) for one in sorted(set(statuses))},
        "failures": failures,
        "seconds": round(time.perf_counter() - began, 1),
    }


def run_from_command_line(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.full_disk", description=__doc__)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--how", nargs="+", choices=HOW, default=["once", "on"])
    parser.add_argument("--every", type=int, default=1, help="try every Nth call (1)")
    parser.add_argument("--inside", metavar="DIR", help=argparse.SUPPRESS)  # with the shim loaded
    parser.add_argument("--at", type=int, help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args(argv)
    if options.inside is None:
        with tempfile.TemporaryDirectory(prefix="jaxseq-disk-") as folder:
            library = compile_shim(Path(folder))
            given = sys.argv[1:] if argv is None else argv
            command = [sys.executable, "-m", "tests.fuzz.full_disk", "--inside", folder, *given]
            environment = {**os.environ, "LD_PRELOAD": str(library)}
            return subprocess.run(command, env=environment).returncode
    if options.at is not None:
        sound, name = Path(options.inside), options.commands[0]
        _, status, err, _ = fail_at(options.at, options.how[0], sound, name)
        sys.stderr.write(err)
        return status
    sound = Path(options.inside) / "sound"
    prepare(sound)
    reports = [
        run_inside(sound, name, how, options.every)
        for how in options.how
        for name in options.commands
    ]
    print(json.dumps(reports, indent=1))
    return 1 if any(report["failures"] for report in reports) else 0


if __name__ == "__main__":
    sys.exit(run_from_command_line())
