"""Files that the user names: checks before work begins, standard input and output as files."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from jaxseq.text._open import iter_lines, open_to_replace

STANDARD = "-"
"""Stands for standard input."""

_MARK = b"\xef\xbb\xbf"


def require_file(path: str) -> None:
    """ValueError unless there is something to read at the path."""
    if not os.path.exists(path):
        raise ValueError(f"{path}: expected a file, there is none")
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file, found a folder")


def require_rereadable(path: str, why: str) -> None:
    """ValueError for what can be read only once, as a pipe."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a regular file, found a pipe or a device; {why}")


def require_model_place(path: str) -> None:
    """ValueError unless a model can be saved there: training may take hours before it is.

    A run of active learning is lost without the model that it has trained last, so that no other
    may take its place.
    """
    from jaxseq.tagger._active_folder import holds_run
    from jaxseq.tagger._store import check_replaceable

    place = Path(path)
    for folder in place.resolve().parents:
        if holds_run(folder):
            raise ValueError(
                f"{path}: expected a place outside of {folder}, which is a run of jaxseq active"
            )
    check_replaceable(place)
    folder = place.absolute().parent
    while not folder.exists():
        folder = folder.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=f".{place.name}.", dir=folder))
    except OSError as error:
        raise ValueError(
            f"{path}: expected a folder that can be written: {error.strerror}"
        ) from error


def iter_input(path: str) -> Iterator[str]:
    r"""The lines of a file in UTF-8, or of standard input for ``-``, without their ends.

    Raises:
        ValueError: for bytes that are not UTF-8, with the file and the line.
    """
    if path != STANDARD:
        require_file(path)
        yield from iter_lines(path)
        return
    for number, data in enumerate(sys.stdin.buffer, 1):
        data = data.removeprefix(_MARK) if number == 1 else data
        try:
            yield data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"standard input:{number}: expected text encoded as utf-8, found byte "
                f"{data[error.start]:02x}"
            ) from None


def shown(path: str) -> str:
    """What messages call an input."""
    return "standard input" if path == STANDARD else path


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """A file to write UTF-8 text to, that appears only when complete; None is standard output."""
    if path is None:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file to write, found a folder")
    if os.path.exists(path) and not os.path.isfile(path):  # a device is not to be replaced
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"{path}: expected a file in a folder that exists, {folder} does not")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_to_replace(path))
        except OSError as error:  # it names a temporary file
            raise ValueError(f"{path}: cannot be written: {error.strerror}") from error
        yield file
