"""The command ``jaxseq``: arguments in, text out; the work is done by the other packages.

Each command is a module with a function that adds its options: ``_tag`` has ``add_tag``. They are
imported when the command is used, so that ``jaxseq --help`` is quick and needs no JAX.
Exit status: 0 if all is well, 1 if a check failed, 2 if the arguments or the input made no sense;
130 after Ctrl-C, also where the model so far was kept, and 141 when the reader of a pipe is gone,
as of a process that SIGINT or SIGPIPE ended.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jaxseq.cli._options import CommandParser, loaded_later, one_line

__all__ = ["main"]

# Each command, and what ``jaxseq --help`` says about it.
COMMANDS = {
    "train": "train a model on a labelled corpus, and on unlabelled sentences",
    "represent": "learn from unlabelled sentences which words are alike",
    "tag": "label new sentences with a trained model",
    "evaluate": "precision, recall and F1 of labels, as conlleval prints them",
    "inspect": "what a model has learnt: labels, weights, top features and transitions",
    "active": "active learning: label the sentences that help the model most",
    "constraints": "try a file of constraints on labelled sentences",
    "verify": "check every hand-derived quantity",
    "doctor": "versions, devices and folders that jaxseq uses on this machine",
    "shard": "write a corpus that is larger than memory as shards, to train from",
}

NO_MEMORY = "expected enough memory for the data and options, there is too little"
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 plus the number of the signal, as shells report it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the arguments of the process by default. Returns the exit status."""
    if sys.stdout is None:  # Python's way of saying that it was closed
        return _fail("standard output: expected to be open, it is closed")
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # a stand-in for standard output may lack it
        reconfigure(errors="surrogateescape")  # names of files need not be text
    parser = CommandParser(
        prog="jaxseq",
        description="Sequence labelling with few labels and much unlabelled data.",
    )
    parser.add_argument("--version", action="version", version=f"jaxseq {_version()}")
    commands = {n: (line, loaded_later(f"_{n}", f"add_{n}")) for n, line in COMMANDS.items()}
    parser.add_commands(commands, title="commands")
    try:
        with _interrupts_raised():
            options = parser.parse_args(argv)  # imports the command, which takes a while
            status = options.run(options)
            sys.stdout.flush()  # not at exit, so that a broken pipe is noticed in here
            return status
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("jaxseq: interrupted", file=sys.stderr)
        return INTERRUPTED
    except ValueError as error:
        return _fail(str(error))
    except MemoryError:  # its own message is empty
        return _fail(NO_MEMORY)
    except RuntimeError as error:  # of XLA, when it cannot have the memory that it needs
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _fail(NO_MEMORY)
    except OSError as error:  # a full disk, or a file that may not be read
        try:
            sys.stdout.flush()
        except OSError:  # it was that which could not be written
            _forget_output()
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _fail(f"{place}cannot be read or written: {error.strerror or error}")


@contextlib.contextmanager
def _interrupts_raised() -> Iterator[None]:
    """Inside, Ctrl-C is not lost where Python can only print it.

    That is in callbacks, of garbage collection and of JAX. The command would go on, and end as if
    nothing had been.
    """
    before = sys.unraisablehook

    def again(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(0.05, _thread.interrupt_main).start()  # after the callback
        else:
            before(unraisable)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _fail(message: str) -> int:
    print(f"jaxseq: error: {one_line(message)}", file=sys.stderr)
    return 2


def _forget_output() -> None:
    """Discard what is still to be written: the interpreter would complain when it ends."""
    with contextlib.suppress(OSError):  # standard output may be no real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    try:
        return version("jaxseq")
    except PackageNotFoundError:
        return "(not installed)"
