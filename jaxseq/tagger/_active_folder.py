"""Active learning on disk: settings, a journal of queries and answers, and the last model.

``settings.json`` is written once. ``journal.jsonl`` only grows, a JSON object a line, of these
kinds: ``given`` (labels of a sentence that were known from the start), ``query`` and ``proposed``
(which ends the queries of a round), ``answers`` (all that came at once, so that they are taken in
whole or not at all; the label null takes one back), ``labels`` (that may be given from there on, in
addition to those of the settings), and ``trained``, which names the model by its SHA-256. A line
``answer`` holds a single one. ``model`` is a tagger as `jaxseq.load` reads it. All else is rebuilt
from these.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxseq.learn._durable import replacing
from jaxseq.tagger._store import ARRAYS, load
from jaxseq.tagger._tagger import CRFTagger

FORMAT = "jaxseq active 1"
SETTINGS, JOURNAL, MODEL, NEXT, OLD = "settings.json", "journal.jsonl", "model", ".next", ".old"
KINDS = ("given", "query", "proposed", "answer", "answers", "labels", "trained")


class StateFolder:
    """The folder of one run of active learning.

    Args:
        path: where; see `create`.
        read_only: change nothing in it: another process may be at work there.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False):
        self._path, self._read_only = Path(path), read_only

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: dict[str, Any],
        lines: Iterable[dict[str, Any]] = (),
    ) -> StateFolder:
        """A new one whose journal begins so; ValueError where there is something already."""
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"folder: expected a path, got {path!r:.60}")
        folder = cls(path)
        there = folder._path
        if there.exists() and (not there.is_dir() or any(there.iterdir())):
            raise ValueError(f"{there}: expected nothing or an empty folder there; see `resume`")
        there.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, **settings}, indent=1, sort_keys=True)
        folder.append(lines)
        # Last, since a folder with settings is one to go on with.
        with replacing(there / SETTINGS) as temporary:
            temporary.write_bytes(f"{text}\n".encode())
        return folder

    def settings(self) -> dict[str, Any]:
        """As they were given to `create`."""
        where = self._path / SETTINGS
        if not where.is_file():
            raise ValueError(f"{where}: expected settings of active learning there, found no file")
        try:
            found = json.loads(where.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: expected JSON, got {error}") from error
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"{where}: expected the format {FORMAT!r}, got another")
        return found

    # ------------------------------------------------------------------------------- journal

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        """Add to the journal: all lines, on the disk when this returns, or none if it fails."""
        if self._read_only:
            raise ValueError(f"{self._path}: expected only to be read, got something to write")
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        rest = memoryview(text.encode("utf-8", "surrogatepass"))
        # Without a buffer, which closing the file would write once more.
        with (self._path / JOURNAL).open("ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except BaseException:
                os.ftruncate(file.fileno(), size)
                raise

    def journal(self) -> list[dict[str, Any]]:
        """All lines. A last one that was cut off while it was written is dropped for good, or
        where all is only read, left to who is writing it."""
        where = self._path / JOURNAL
        if not where.is_file():
            raise ValueError(f"{where}: expected the journal of the run, found no file")
        data = where.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data) and not self._read_only:
            os.truncate(where, len(whole))
        lines = []
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            try:
                found = json.loads(line.decode("utf-8", "surrogatepass"))
                sound = found["kind"] in KINDS
            except (ValueError, KeyError, TypeError, RecursionError):
                sound = False
            if not sound:
                raise ValueError(f"{where}, line {number}: expected a JSON object of the journal")
            lines.append(found)
        return lines

    # --------------------------------------------------------------------------------- model

    def keep_model(self, tagger: CRFTagger, line: dict[str, Any]) -> None:
        """Replace the model, and add the line that says so to the journal.

        The line decides: a model that it names is the last one, whatever else is there.
        """
        following = self._path / NEXT
        _remove(following)
        tagger.save(following)
        self.append([{**line, "model": _digest(following)}])
        self._put_in_place(following)

    def _put_in_place(self, following: Path) -> None:
        model, old = self._path / MODEL, self._path / OLD
        _remove(old)
        if model.exists():
            os.replace(model, old)
        os.replace(following, model)
        _remove(old)

    def model(self, digest: str) -> CRFTagger:
        """The model that the journal names last."""
        model, following = self._path / MODEL, self._path / NEXT
        if self._read_only:
            return self._model_as_it_is(digest)
        if _digest(following) == digest:  # it was named, and not yet put in place
            self._put_in_place(following)
        if _digest(model) != digest:
            raise ValueError(
                f"{model}: expected the model that the journal names last (SHA-256 "
                f"{digest[:12]}…), found none"
            )
        _remove(following)
        _remove(self._path / OLD)
        return load(model)

    def _model_as_it_is(self, digest: str) -> CRFTagger:
        for folder in (self._path / NEXT, self._path / MODEL):
            if _digest(folder) == digest:
                return load(folder)
        raise FileNotFoundError(f"{self._path}: the model was replaced meanwhile")

    def drop_litter(self) -> None:
        """Remove what saving a model left behind when it was killed."""
        if self._read_only:
            return
        for folder in self._path.glob(f".{NEXT}.*"):  # the temporary names of `_store`
            _remove(folder)

    def drop_unfinished(self) -> None:
        """What a training left behind that the journal does not know of."""
        if not self._read_only:
            _remove(self._path / NEXT)


def holds_run(path: Path) -> bool:
    """Whether a folder is one of `StateFolder.create`."""
    try:
        return bool(StateFolder(path).settings())
    except (OSError, ValueError):
        return False


def _digest(model: Path) -> str:
    arrays = model / ARRAYS
    return hashlib.sha256(arrays.read_bytes()).hexdigest() if arrays.is_file() else ""


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
