"""A run of active learning on disk.

The folder of a run holds ``run.sqlite``, a database of settings and events, and ``model``, the
tagger of the last round as `jaxseq.load` reads it. Settings are written once, events are only ever
added, and everything else is rebuilt from these. Kinds of events:

``initial``: the known labels of a sentence at the start. ``proposed``: the queries of a round, and
the labels that the model gives itself. ``answers``: all that came at once, so that they are taken
in together or not at all; the label None takes one back. ``labels``: that may be given from there
on. ``trained``: ends a round, and names its model by SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from jaxseq._io import sync_folder
from jaxseq.crf import CRFTagger
from jaxseq.taggers import ARRAYS, load

DATABASE, MODEL, NEXT = "run.sqlite", "model", ".next"
APPLICATION, VERSION = (
    0x6A737171,
    1,
)  # "jsqq", in the header of the file, which tells it from others
BUSY = 30.0  # seconds to wait for another process in the middle of a write

# All of it in the one transaction that creates the file: half a database is none.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE settings (text TEXT NOT NULL);
CREATE TABLE events (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
"""


class RunFolder:
    """The folder of one run.

    Every method opens the database anew: between two of them it is a single file, which may be
    copied, and nothing has to be closed.

    Args:
        path: where it is; see `create`.
        read_only: change nothing in it: another process may be at work there.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False):
        self.path, self._read_only = Path(path), read_only

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: dict[str, Any],
        events: Iterable[dict[str, Any]] = (),
    ) -> RunFolder:
        """A new one with these first events; ValueError where there is something already."""
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"folder: expected a path, got {path!r:.60}")
        folder = cls(path)
        if folder.path.exists() and not (folder.path.is_dir() and not os.listdir(folder.path)):
            raise ValueError(f"{path}: expected nothing or an empty folder there; see `resume`")
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder._transaction(create=True) as database:
            for statement in SCHEMA.strip().split(";\n"):
                database.execute(statement)
            database.execute("INSERT INTO settings VALUES (?)", [_text(settings)])
            _insert(database, events)
        sync_folder(folder.path)
        return folder

    @contextmanager
    def _transaction(
        self, *, create: bool = False, write: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """One transaction, committed at the end, or rolled back after an error."""
        where = self.path / DATABASE
        if not create and not where.is_file():  # SQLite would only say that it cannot open it
            raise ValueError(f"{where}: expected a run of active learning there, found no file")
        try:
            # Also a reader may write: it undoes the transaction of a process that was killed.
            uri = f"{where.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
            # With isolation_level None nothing begins or commits behind our back.
            with closing(sqlite3.connect(uri, BUSY, uri=True, isolation_level=None)) as database:
                # No write-ahead log: it needs shared memory, which network drives do not have, and
                # leaves two more files beside the first. Transactions are short, so that readers
                # hardly ever wait. EXTRA also waits for the folder: a commit survives a power cut.
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE" if create or write else "BEGIN")
                if not create:
                    self._check_header(database)
                yield database
                database.execute("COMMIT")  # not reached after an error: closing rolls back
        except sqlite3.DatabaseError as error:
            # A full disk, no permission, or a lock for too long say nothing against the file; a
            # missing table, of the generic code, does.
            operational = isinstance(error, sqlite3.OperationalError)
            if operational and error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise OSError(f"{where}: {error}") from error
            raise ValueError(f"{where}: expected a run of active learning, got {error}") from error

    def _check_header(self, database: sqlite3.Connection) -> None:
        names = ("application_id", "user_version")
        header = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        if header != [APPLICATION, VERSION]:
            raise ValueError(
                f"{self.path / DATABASE}: expected the format of a run of active learning, version "
                f"{VERSION}, got another database"
            )

    def settings(self) -> dict[str, Any]:
        """As they were passed to `create`."""
        with self._transaction() as database:
            rows = database.execute("SELECT text FROM settings").fetchall()
        if len(rows) != 1:
            raise ValueError(f"{self.path / DATABASE}: expected settings, got {len(rows)} of them")
        return self._parsed(rows[0][0], "settings")

    def append(self, events: Iterable[dict[str, Any]]) -> None:
        """Add events: all are on the disk when this returns, or none if it fails."""
        if self._read_only:
            raise ValueError(f"{self.path}: expected only to be read, got something to write")
        with self._transaction(write=True) as database:
            _insert(database, events)

    def events(self) -> list[dict[str, Any]]:
        """All events, in order."""
        with self._transaction() as database:
            rows = database.execute("SELECT number, text FROM events ORDER BY number").fetchall()
        return [self._parsed(text, f"event {number}") for number, text in rows]

    def _parsed(self, text: Any, name: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise ValueError(f"{self.path / DATABASE}, {name}: expected a JSON object")
        return value

    def keep_model(self, tagger: CRFTagger, event: dict[str, Any]) -> None:
        """Replace the model, and add the event that names it.

        The event decides: before it the old model is the last one, after it the new one, which
        `model` puts in place if this process did not live to do so.
        """
        new = self.path / NEXT
        _remove(new)  # of a training that was killed before its event
        tagger.save(new)
        self.append([{**event, "model": _digest(new)}])
        self._put_in_place()

    def _put_in_place(self) -> None:
        # Killed between the two, the new model is still in NEXT, and the last event names it.
        _remove(self.path / MODEL)
        os.replace(self.path / NEXT, self.path / MODEL)

    def model(self, digest: str) -> CRFTagger:
        """The model that the last event of a training names.

        Raises:
            FileNotFoundError: if it only reads, and the model was replaced meanwhile.
            ValueError: where there is no such model.
        """
        model, new = self.path / MODEL, self.path / NEXT
        if self._read_only:
            for folder in (new, model):  # in the order in which a model passes through them
                try:
                    if _digest(folder) == digest:
                        return load(folder)
                except (OSError, ValueError):  # moved away in the middle of it, or damaged
                    if _digest(folder) == digest:
                        raise
            raise FileNotFoundError(f"{self.path}: the model was replaced meanwhile")
        if _digest(new) == digest:
            self._put_in_place()
        if _digest(model) != digest:
            raise ValueError(
                f"{model}: expected the model that the journal names last (SHA-256 "
                f"{digest[:12]}…), found none"
            )
        return load(model)

    def drop_litter(self) -> None:
        """Remove what trainings and saves left behind when they were killed."""
        if not self._read_only:
            for folder in (self.path / NEXT, *self.path.glob(f".{NEXT}.*")):
                _remove(folder)


def holds_run(path: Path) -> bool:
    """Whether a folder is one of `RunFolder.create`."""
    try:
        return bool(RunFolder(path).settings())
    except (OSError, ValueError):
        return False


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=True)  # words may hold lone surrogates, SQLite's may not


def _insert(database: sqlite3.Connection, events: Iterable[dict[str, Any]]) -> None:
    rows = [[_text(event)] for event in events]
    database.executemany("INSERT INTO events (text) VALUES (?)", rows)


def _digest(model: Path) -> str:
    arrays = model / ARRAYS
    return hashlib.sha256(arrays.read_bytes()).hexdigest() if arrays.is_file() else ""


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
