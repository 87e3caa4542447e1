"""``python -m tests.fuzz --cases 10000 --seed 0``: odd input, and what the commands make of it.

Each case is a command in a folder of sound files, one of which is damaged. It may end well or be
refused; a traceback, more than so many seconds, or a file that a refused command has changed is a
failure. Prints one JSON object. A case is repeated by its seed and number: ``--seed 0 --only 123``.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxseq.cli import main
from tests.fuzz.cases import KINDS, prepare

REFUSED, STATUSES = 2, (0, 1, 2)


class Hung(BaseException):
    """A command that takes too long; no `except Exception` holds it up."""


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise `Hung` after so many seconds; end the process where compiled code is what hangs."""

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(4 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder, with a digest of what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
    return found


def run_case(sound: Path, seed: int, number: int, seconds: float) -> dict[str, Any]:
    """What became of one case; ``"failure"`` says what must not be, None if all is well."""
    rng = random.Random(f"{seed} {number}")
    kind = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    with tempfile.TemporaryDirectory(prefix="jaxseq-fuzz-") as scratch:
        place = Path(scratch) / "place"
        shutil.copytree(sound, place, symlinks=True)
        argv = KINDS[kind][0](place, rng)
        before, failure, status = contents(place), None, None
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")  # as Python's own
        began, stdin, here = time.perf_counter(), sys.stdin, os.getcwd()
        os.chdir(place)
        sys.stdin = io.TextIOWrapper(io.BytesIO(b"the DT B-NP\n\n"), "utf-8")
        try:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                warnings.catch_warnings(),
                alarm(seconds),
            ):
                warnings.simplefilter("ignore")
                status = main(argv)
        except SystemExit as stop:  # argparse's own way
            status = stop.code
        except Hung:
            failure = f"more than {seconds} s"
        except BaseException:
            failure = traceback.format_exc()
        finally:
            sys.stdin = stdin
            os.chdir(here)
        err.flush()
        said = err.buffer.getvalue().decode("utf-8", "replace")
        if failure is None and (status not in STATUSES or "Traceback" in said):
            failure = f"status {status}: {said}"
        if failure is None and status == REFUSED:
            if not said.strip():
                failure = "refused without a word"
            after = contents(place)
            changed = [name for name in before | after if before.get(name) != after.get(name)]
            if changed:
                failure = f"refused, and changed {changed}: {said}"
        return {
            "number": number,
            "kind": kind,
            "argv": [part.replace(scratch, "")[:200] for part in argv],
            "status": status,
            "said": said.strip().replace(scratch, "")[:300],
            "seconds": time.perf_counter() - began,
            "failure": failure,
        }


def run_cases(seed: int, numbers: Iterable[int], seconds: float) -> dict[str, Any]:
    """All cases: how they ended, and those that failed."""
    began = time.perf_counter()
    kinds: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    failures, slowest, ended = [], 0.0, []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))  # with what there is by then
    with tempfile.TemporaryDirectory(prefix="jaxseq-fuzz-") as folder:
        sound = Path(folder) / "sound"
        prepare(sound)
        for number in numbers:
            if ended:
                break
            case = run_case(sound, seed, number, seconds)
            kinds[case["kind"]] += 1
            ends[str(case["status"])] += 1
            slowest = max(slowest, case["seconds"])
            if case["failure"] is not None:
                failures.append(case)
                print(json.dumps(case), file=sys.stderr, flush=True)
    return {
        "seed": seed,
        "cases": sum(kinds.values()),
        "kinds": dict(kinds),
        "statuses": dict(ends),
        "failures": failures,
        "slowest_seconds": round(slowest, 2),
        "seconds": round(time.perf_counter() - began, 1),
    }


def run_from_command_line() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the one to be repeated")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each at most (60)")
    options = parser.parse_args()
    numbers = range(options.cases) if options.only is None else [options.only]
    report = run_cases(options.seed, numbers, options.seconds)
    print(json.dumps(report, indent=1))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(run_from_command_line())
