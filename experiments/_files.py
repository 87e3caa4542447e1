"""Files that are whole at every moment."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by one with this content, so that a reader sees the old or the new.

    A process that is killed, or a machine that stops, at any moment leaves one of the two and
    perhaps a temporary file, whose name is always the same: the next writing replaces it.

    Args:
        path: the file; its folder is there.
        content: text is written as UTF-8 with the line ends that it has.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "note.txt"
        >>> write_whole(path, "first")
        >>> write_whole(path, "second")
        >>> path.read_text(), [entry.name for entry in Path(folder.name).iterdir()]
        ('second', ['note.txt'])
        >>> folder.cleanup()
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())  # or the rename may reach the disk before the content
    os.replace(temporary, path)
