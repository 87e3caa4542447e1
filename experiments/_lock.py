"""One run at a time in a folder of results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing then keeps two runs apart
    fcntl = None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Make the folder and keep other runs out of it until the block, or the process, ends.

    The folder itself is locked, and the system unlocks it however the process ends: nothing
    stays behind that someone would have to remove.

    Raises:
        ValueError: if another run is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)  # a folder can be locked like a file
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # says no rather than wait
        except BlockingIOError:
            raise ValueError(f"{folder}: another run is at work here") from None
        yield
    finally:
        os.close(handle)  # which unlocks, too
