"""A run of active learning: its state, its folder on disk, and how that is read again.

The folder of a run holds ``run.sqlite``, a database of settings and events, and ``model``, the
tagger of the last round as `jaxseq.load` reads it; and ``words``, the word representation of the
tagger, if it has one. Settings are written once, events are only ever
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxseq._io import exchange, sync_folder
from jaxseq.active._labels import KnownLabels, new_label_names, with_labels
from jaxseq.active._pool import Pool
from jaxseq.active._query import STRATEGIES, Answer, Look, Proposal, Query
from jaxseq.crf import CRFTagger
from jaxseq.representations import load_representation
from jaxseq.taggers import ARRAYS, is_finite_number, legal_by_scheme, load
from jaxseq.text import Templates

DATABASE, MODEL, NEXT, WORDS = "run.sqlite", "model", ".next", "words"
APPLICATION, VERSION = 0x6A737171, 1  # "jsqq", in the header that tells the file from others
BUSY = 30.0  # seconds to wait for another process in the middle of a write

# All of it in the one transaction that creates the file: half a database is none.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE settings (text TEXT NOT NULL);
CREATE TABLE events (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
"""


class RunFolder:
    """The folder of one run; if `read_only`, nothing in it is changed.

    Every method opens the database anew: between two of them it is a single file, which may be
    copied, and nothing has to be closed.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False):
        self.path, self._read_only = Path(path), read_only

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: dict[str, Any],
        events: Iterable[dict[str, Any]] = (),
        representation: Any = None,
    ) -> RunFolder:
        """A new one with these first events; ValueError where there is something already."""
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"folder: expected a path, got {path!r:.60}")
        folder = cls(path)
        if folder.path.exists() and not (folder.path.is_dir() and not os.listdir(folder.path)):
            raise ValueError(f"{path}: expected nothing or an empty folder there; see `resume`")
        folder.path.mkdir(parents=True, exist_ok=True)
        if representation is not None:
            representation.save(folder.path / WORDS)
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
            # missing table, of the generic code, does, and so does text that is none, without one.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
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
        model, new = self.path / MODEL, self.path / NEXT
        if not (model.exists() and exchange(new, model)):
            # Killed between the two, the new model is still in NEXT, and the last event names it.
            _remove(model)
            os.replace(new, model)
        _remove(new)  # the old one

    def model(self, digest: str) -> CRFTagger:
        """The model that the last event of a training names; FileNotFoundError if it only reads,
        and the model was replaced meanwhile."""
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
    # Of the weights alone: the description beside them has a checksum of its own.
    return hashlib.sha256(arrays.read_bytes()).hexdigest() if arrays.is_file() else ""


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


PLAIN = ("initial", "initial_how", "kappa", "max_rounds", "budget", "seed", "check_warm_start",
         "between")  # fmt: skip
"""Settings of a learner that JSON holds as they are."""


@dataclass(eq=False)
class Run:
    """Everything that changes from step to step."""

    pool: Pool
    known: KnownLabels
    folder: RunFolder | None = None
    round: int = 0  # trainings done
    queries: list[Query] | None = None  # of this round; None before they are proposed
    tagger: CRFTagger | None = None  # of the last round
    look: Look | None = None  # by the tagger; None where it has to be taken (anew)
    history: list[dict[str, Any]] = field(default_factory=list)
    has_news: bool = False  # a label was given, changed or taken back since the last training
    # Sentence and position of the tokens that were answered since then, the last one last.
    answered: dict[tuple[int, int], None] = field(default_factory=dict)

    def note(self, tokens: Iterable[tuple[int, int]], *, answered: bool) -> None:
        """Note that tokens were answered, or that their answers were taken back."""
        for token in tokens:
            self.answered.pop(token, None)  # a second answer counts as the last one
            if answered:
                self.answered[token] = None

    def end_round(self, number: int) -> None:
        """Note that the model of a round was trained."""
        self.round, self.queries, self.has_news = number + 1, None, False
        self.answered.clear()

    def take(self, proposal: Proposal) -> None:
        """Take the queries of a round, and the labels that the model gives itself."""
        self.queries = proposal.queries
        self.known.guess(proposal.guesses, proposal.labels)
        self.known.sampled[proposal.sampled] = True
        self.has_news |= len(proposal.guesses) > 0

    def waiting(self) -> list[Query]:
        """Queries of this round with a token that has no answer."""
        starts, answered = np.cumsum(self.pool.lengths) - self.pool.lengths, self.known.answered
        begins = [int(starts[query.sentence]) for query in self.queries or []]
        return [
            query
            for query, begin in zip(self.queries or [], begins)
            if not answered[begin + query.start : begin + query.stop].all()
        ]

    def add_labels(self, names: Any, estimator: CRFTagger) -> None:
        """Allow more labels: what is known of the tokens stays as it is, and the model does too."""
        classes = sorted([*self.pool.classes, *new_label_names(names, self.pool.classes)])
        legal = legal_by_scheme(classes, estimator.scheme)
        self.pool = replace(self.pool, classes=classes, legal=legal)
        self.known = self.known.with_classes(classes, legal)
        self.look = None  # its labels are numbers of the old classes
        if self.tagger is not None:
            self.tagger = with_labels(self.tagger, classes)

    def write(self, kind: str, **event: Any) -> None:
        """Add an event to the folder, if there is one."""
        if self.folder is not None:
            self.folder.append([{"kind": kind, "round": self.round, **event}])


def learner_settings(learner: Any, pool: Pool) -> dict[str, Any]:
    """The settings of a learner and its pool, for JSON."""

    def plain(value: Any) -> Any:  # also where it is a number of NumPy
        return value.item() if isinstance(value, np.generic) else value

    name = learner.strategy.name
    if name not in STRATEGIES:  # nobody could go on with it
        raise ValueError(f"strategy: expected a registered one to be kept, got {learner.strategy}")
    strategy = {name: plain(value) for name, value in asdict(learner.strategy).items()}
    return {
        "estimator": learner.estimator.settings_to_json(),
        "strategy": {"kind": name, **strategy},
        **{name: plain(getattr(learner, name)) for name in PLAIN},
        "classes": pool.classes,
        "sentences": len(pool.lengths),
        "tokens": int(pool.lengths.sum()),
        "pool": pool.digest(),
    }


def settings_from_json(kept: dict[str, Any], path: Path) -> dict[str, Any]:
    """The arguments of the learner; ValueError with the path where they are not sound."""
    try:
        tagger, strategy = dict(kept["estimator"]), dict(kept["strategy"])
        if tagger["templates"] is not None:
            tagger["templates"] = Templates.from_json(tagger["templates"])
        if (digest := tagger.get("representation")) is not None:
            tagger["representation"] = load_representation(path / WORDS)
            if tagger["representation"].digest != digest:
                raise ValueError(f"{WORDS}: expected the representation of the run, got another")
        chosen = STRATEGIES[strategy.pop("kind")](**strategy)
        plain = {name: kept[name] for name in PLAIN}
        return {"estimator": CRFTagger(**tagger), "strategy": chosen, **plain}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected settings of active learning, got {error!r:.200}"
        ) from error


def initial_events(y: Sequence[Any]) -> list[dict[str, Any]]:
    """One for every sentence of which something is known from the start."""

    def plain(label: Any) -> Any:
        return label if label is None or isinstance(label, str) else sorted(label)

    return [
        {"kind": "initial", "sentence": sentence, "labels": [plain(label) for label in labels]}
        for sentence, labels in enumerate(y)
        if labels is not None and any(label is not None for label in labels)
    ]


def proposal_as_json(proposal: Proposal) -> dict[str, Any]:
    """The queries, and the labels that the model gives itself."""
    return {
        "queries": [list(query) for query in proposal.queries],
        "guesses": proposal.guesses.tolist(),
        "labels": proposal.labels.tolist(),
        "sampled": proposal.sampled.tolist(),
    }


def read_run(folder: RunFolder, learner: Any, settings: Mapping[str, Any], X: Iterable[Any]) -> Run:
    """The run of a folder: its events done again on its pool; ValueError for another pool, and for
    a folder that is not sound."""
    pool = Pool.read(learner.estimator, X, None, settings.get("classes"), learner.strategy)
    # Answers are by number of sentence and token: in another pool they would mean other words.
    if pool.digest() != settings.get("pool"):
        raise ValueError(
            f"X: expected the pool of {folder.path} ({settings.get('sentences')} sentences, "
            f"{settings.get('tokens')} tokens), got another ({len(pool.lengths)} sentences, "
            f"{int(pool.lengths.sum())} tokens)"
        )
    run = Run(pool, KnownLabels(pool.lengths, pool.classes, pool.legal), folder)
    try:
        digest = _replay(run, folder.events(), learner.estimator)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{folder.path}: expected the events of this run: {what}") from error
    if digest is not None:
        tagger = folder.model(digest)
        if not set(tagger.classes_) <= set(run.pool.classes):
            raise ValueError(f"{folder.path}: expected a model with the labels of the settings")
        run.tagger = with_labels(tagger, run.pool.classes)  # those added since it was trained
    folder.drop_litter()  # after the model, which may be waiting among it
    return run


def _replay(run: Run, events: list[dict[str, Any]], estimator: CRFTagger) -> str | None:
    """Do the events again; the digest of the last model, if there is one."""
    initial = {e["sentence"]: e["labels"] for e in events if e["kind"] == "initial"}
    if initial:
        sets = {
            sentence: [set(label) if isinstance(label, list) else label for label in labels]
            for sentence, labels in initial.items()
        }
        run.known.take_initial([sets.get(number) for number in range(len(run.pool.lengths))])
        run.has_news = True
    last: dict[tuple[int, int], Any] = {}
    digest = None
    for event in events:
        kind = event["kind"]
        if kind == "proposed":
            # As it was: another proposal of the same model could differ by rounding.
            run.take(_read_proposal(event, run.pool))
        elif kind == "answers":
            answers = {
                (sentence, position): tuple(label) if isinstance(label, list) else label
                for sentence, position, label in event["answers"]
            }
            run.has_news |= any(_is_news(run.known, last, *one) for one in answers.items())
            last |= answers
            for token, label in answers.items():
                run.note([token], answered=label is not None)
        elif kind == "labels":
            run.add_labels(event["labels"], estimator)
        elif kind == "trained":  # also of a round that was rechecked, which has two
            _check_record(event, run.round)
            run.end_round(event["round"])
            digest = event["model"]
            run.history.append({n: v for n, v in event.items() if n not in ("kind", "model")})
        elif kind != "initial":
            raise ValueError(f"journal: expected an event of active learning, got {kind!r:.60}")
    # Only the last word on a token counts, a retraction or an answer. All answers are checked
    # together: half of a correction could be illegal.
    run.known.retract(run.known.check_places(token for token in last if last[token] is None))
    answers = [Answer(*token, label) for token, label in last.items() if label is not None]
    run.known.answer(run.known.check(answers))
    return digest


def _read_proposal(event: dict[str, Any], pool: Pool) -> Proposal:
    """What `proposal_as_json` wrote; ValueError for places that are not in the pool."""
    queries = [Query(*query) for query in event["queries"]]
    for query in queries:
        plain = all(type(number) is int for number in query[:3]) and is_finite_number(query.score)
        if not (plain and 0 <= query.sentence < len(pool.lengths)):
            raise ValueError(f"queries: expected a sentence of the pool, got {query!r:.100}")
        if not 0 <= query.start < query.stop <= pool.lengths[query.sentence]:
            raise ValueError(f"queries: expected tokens of the sentence, got {query!r:.100}")
    tokens = int(pool.lengths.sum())
    most = {"guesses": tokens, "labels": len(pool.classes), "sampled": len(pool.lengths)}
    for name, end in most.items():
        if not all(type(number) is int and 0 <= number < end for number in event[name]):
            raise ValueError(f"{name}: expected whole numbers from 0 to {end - 1}")
    return Proposal(queries, *(np.array(event[name], np.int64) for name in most))


def _check_record(event: dict[str, Any], number: int) -> None:
    """ValueError unless a training tells what is to be read of it later."""
    kappa = event["kappa"]
    if not (type(event["round"]) is int and number - 1 <= event["round"] <= number):
        raise ValueError(f"round: expected {number}, got {event['round']!r:.60}")
    if not (is_finite_number(event["objective"]) and (kappa is None or is_finite_number(kappa))):
        raise ValueError("trained: expected a number as objective and κ")
    if not (isinstance(event["new_labels"], bool) and isinstance(event["model"], str)):
        raise ValueError("trained: expected whether there were new labels, and a model")


def _is_news(known: KnownLabels, last: dict[Any, Any], token: Any, label: Any) -> bool:
    """Whether an answer differs from the last one to the token, or from its initial label."""
    (plain,) = known.check_places([token])
    return label != (last[token] if token in last else known.label_at(*plain))
