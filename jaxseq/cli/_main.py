"""The parser of the command line, and what becomes of errors.

Each subcommand is one function that adds its parser and names what runs it; `COMMANDS` lists
them. What a subcommand needs it imports when it runs, so that ``jaxseq --help`` is quick.
Exit status: 0 all well, 1 a check failed, 2 the arguments or the input made no sense; 130 and 141,
as of a process that SIGINT or SIGPIPE ended, after Ctrl-C and when the reader of a pipe is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from jaxseq.cli._active import add_active
from jaxseq.cli._constraints import add_constraints
from jaxseq.cli._doctor import add_doctor
from jaxseq.cli._evaluate import add_evaluate
from jaxseq.cli._inspect import add_inspect
from jaxseq.cli._shard import add_shard
from jaxseq.cli._tag import add_tag
from jaxseq.cli._train import add_train
from jaxseq.cli._verify import add_verify

COMMANDS = (
    add_train,
    add_tag,
    add_evaluate,
    add_inspect,
    add_active,
    add_constraints,
    add_verify,
    add_doctor,
    add_shard,
)
"""Every subcommand. Each entry takes the subparsers and adds one, with `run` among its defaults."""

INTERRUPTED, BROKEN_PIPE = 130, 141
LONGEST_MESSAGE = 1000


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_one_line(message)}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the arguments of the process by default. Returns the exit status."""
    parser = _Parser(
        prog="jaxseq",
        description="Sequence labelling with few labels and much unlabelled data.",
    )
    parser.add_argument("--version", action="version", version=f"jaxseq {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="command", required=True)
    for add_command in COMMANDS:
        add_command(subparsers)
    options = parser.parse_args(argv)
    try:
        status = options.run(options)
        sys.stdout.flush()  # here, so that a broken pipe is noticed inside
        return status
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("jaxseq: interrupted", file=sys.stderr)
        return INTERRUPTED
    except ValueError as error:
        return _fail(str(error))
    except MemoryError:
        return _fail("expected enough memory for the data, there is too little")
    except OSError as error:
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _fail(f"{place}cannot be read or written: {error.strerror or error}")


def _fail(message: str) -> int:
    print(f"jaxseq: error: {_one_line(message)}", file=sys.stderr)
    return 2


def _one_line(message: str) -> str:
    """The message without line ends, and not longer than one can read."""
    line = " ".join(message.split("\n"))
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]} …"


def _forget_output() -> None:
    """What is still to be written goes nowhere: the interpreter would complain at its end."""
    with contextlib.suppress(OSError):  # of an output that is no real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    try:
        return version("jaxseq")
    except PackageNotFoundError:
        return "(not installed)"
