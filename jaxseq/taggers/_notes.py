"""Progress of a long job made of many trainings, kept in a small JSON file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxseq._io import replacing

FORMAT = "jaxseq notes 1"


class Notes:
    """JSON values that are written at once or not at all; nothing is kept without a path.

    Args:
        path: the file, or None.
        job: everything that the results depend on; `load` refuses the notes of another job.

    Raises:
        ValueError: for a path that is a folder, or something that is not a path.
    """

    def __init__(self, path: str | os.PathLike[str] | None, job: Iterable[Any]):
        if not isinstance(path, str | os.PathLike | None):
            raise ValueError(f"checkpoint: expected a path or None, got {path!r:.60}")
        if path is not None and Path(path).is_dir():
            raise ValueError(f"{path}: expected a file to keep notes in, got a folder")
        self._path = None if path is None else Path(path)
        digest = hashlib.sha256()
        if path is not None:
            for part in job:
                # Words may hold lone surrogates, as from a file in another encoding.
                digest.update(text_of(part).encode("utf-8", "surrogatepass") + b"\0")
        self._about = digest.hexdigest()

    def load(self) -> Any:
        """The value of the last `save`; None where there is none."""
        if self._path is None or not self._path.exists():
            return None
        try:
            notes = json.loads(self._path.read_bytes())
            complete = notes["format"] == FORMAT and "about" in notes and "value" in notes
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{self._path}: expected {FORMAT}, got {error!r:.80}") from error
        if not complete:
            raise ValueError(f"{self._path}: expected {FORMAT}, got another kind of file")
        if notes["about"] != self._about:
            raise ValueError(
                f"{self._path}: expected notes of this very job (same data and settings), got "
                "those of another; delete the file or name another"
            )
        return notes["value"]

    def save(self, value: Any) -> None:
        """Replace the notes."""
        if self._path is None:
            return
        notes = {"format": FORMAT, "about": self._about, "value": value}
        with replacing(self._path) as temporary:
            temporary.write_text(json.dumps(notes))

    def remove(self) -> None:
        """The job is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def text_of(part: Any) -> str:
    """Data and settings as text, the same in every process."""
    if isinstance(part, set | frozenset):  # whose order depends on PYTHONHASHSEED
        return repr(sorted(map(text_of, part)))
    if isinstance(part, list | tuple):
        return "[" + ",".join(map(text_of, part)) + "]"
    if isinstance(part, dict):
        return "{" + ",".join(f"{key!r}:{text_of(part[key])}" for key in part) + "}"
    return repr(part)


QUIET = {"progress": False, "checkpoint": None}
"""Parameters that do not bear on the result, and the values that show and keep nothing."""


def fresh(estimator: Any) -> Any:
    """An untrained copy that shows and keeps nothing of its own."""
    from sklearn.base import clone  # slow to import, and not needed to define models

    copy: Any = clone(estimator)
    names = copy.get_params(deep=False)
    return copy.set_params(**{name: value for name, value in QUIET.items() if name in names})


def settings_of(estimator: Any) -> dict[str, Any]:
    """The class and its parameters, without those that do not bear on the result."""
    settings = estimator.get_params(deep=False)
    settings = {name: value for name, value in settings.items() if name not in QUIET}
    return {"class": type(estimator).__name__, **settings}
