"""Files that are on the disk, whole, before they take the place of others."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path`, to be written inside, which then takes its place.

    Whenever a process is killed or the power fails, the old file is there or the new one is, and
    whole. On an error the old one stays. Folders that are missing are made.

    Raises:
        OSError: where that cannot be, with the path that was asked for.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/new/file") as temporary:
        ...         _ = temporary.write_text("text")
        ...     Path(folder, "new", "file").read_text()
        'text'
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        sync_file(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):  # what went wrong before matters more
            temporary.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Return when what was written to a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on the disk; at once where that cannot be asked for."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some file systems refuse
            os.fsync(number)
    finally:
        os.close(number)


def as_os_error(error: Exception, path: str | os.PathLike[str]) -> OSError:
    """What a library that writes files by itself says went wrong, with the path.

    Example:
        >>> as_os_error(Exception("I/O error: No space left on device (os error 28)"), "state")
        OSError(28, 'No space left on device')
    """
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is None:
        return OSError(f"{os.fspath(path)}: cannot be written: {error}")
    return OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path))
