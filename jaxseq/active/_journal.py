"""The state of active learning, and how it is rebuilt from settings and journal."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxseq._io import replacing
from jaxseq.active._pool import KnownLabels, Pool
from jaxseq.active._strategies import (
    Answer,
    Groups,
    Look,
    Proposal,
    Query,
    Sequences,
    Spans,
    Strategy,
    Tokens,
)
from jaxseq.crf import CRF, CRFTagger
from jaxseq.taggers import ARRAYS, legal_by_scheme, load
from jaxseq.text import Templates

# -------------------------------------------------------------------------------------------------
# Active learning on disk: settings, a journal of queries and answers, and the last model.
#
# ``settings.json`` is written once. ``journal.jsonl`` only grows, a JSON object a line, of these
# kinds: ``given`` (labels of a sentence that were known from the start), ``query`` and ``proposed``
# (which ends the queries of a round), ``answers`` (all that came at once, so that they are taken in
# whole or not at all; the label null takes one back), ``labels`` (that may be given from there on, in
# addition to those of the settings), and ``trained``, which names the model by its SHA-256. A line
# ``answer`` holds a single one. ``model`` is a tagger as `jaxseq.load` reads it. All else is rebuilt
# from these.


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


STRATEGIES: dict[str, type[Strategy]] = {
    "tokens": Tokens,
    "groups": Groups,
    "spans": Spans,
    "sequences": Sequences,
}
PLAIN = ("initial", "initial_how", "kappa", "max_rounds", "budget", "seed", "check_warm_start")
LATER = ("between",)
"""Settings that folders from before they were there do not have: None."""


@dataclass(eq=False)
class Run:
    """Everything that changes from step to step.

    round: trainings done. queries: of this round; None before they are proposed. look: of the
    last model; None where it has to be taken (anew). has_news: whether a label was given, changed
    or taken back since the last training. answered: sentence and position of the tokens that were
    answered since then, the last one last.
    """

    pool: Pool
    known: KnownLabels
    folder: StateFolder | None = None
    round: int = 0
    queries: list[Query] | None = None
    tagger: CRFTagger | None = None
    look: Look | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    has_news: bool = False
    answered: dict[tuple[int, int], None] = field(default_factory=dict)

    def note(self, tokens: Iterable[tuple[int, int]], *, answered: bool) -> None:
        """That tokens were answered, or that their answers were taken back."""
        for token in tokens:
            self.answered.pop(token, None)
            if answered:
                self.answered[token] = None

    def end_round(self, number: int) -> None:
        """That the model of a round was trained."""
        self.round, self.queries, self.has_news = number + 1, None, False
        self.answered.clear()

    def take(self, proposal: Proposal) -> None:
        """The queries of a round, and the labels that the model gives itself."""
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

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Add to the journal, if there is one."""
        if self.folder is not None and lines:
            self.folder.append(lines)


# ---------------------------------------------------------------------------------- settings


def learner_settings(learner: Any, pool: Pool) -> dict[str, Any]:
    """What `settings.json` holds."""
    strategy = learner.strategy
    kind = next(name for name, of in STRATEGIES.items() if isinstance(strategy, of))
    plain = {name: getattr(learner, name) for name in (*PLAIN, *LATER)}
    return {
        "estimator": learner.estimator.settings_to_json(),
        "strategy": {"kind": kind, **asdict(strategy)},
        **{name: getattr(value, "item", lambda v=value: v)() for name, value in plain.items()},
        "classes": pool.classes,
        "sentences": len(pool.lengths),
        "tokens": int(pool.lengths.sum()),
        "pool": pool.digest(),
    }


def settings_from(found: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the learner; ValueError where they are not sound."""
    try:
        tagger = dict(found["estimator"])
        if tagger["templates"] is not None:
            tagger["templates"] = Templates.from_json(tagger["templates"])
        strategy = dict(found["strategy"])
        chosen = STRATEGIES[strategy.pop("kind")](**strategy)
        plain = {name: found[name] for name in PLAIN}
        plain |= {name: found.get(name) for name in LATER}
        return {"estimator": CRFTagger(**tagger), "strategy": chosen, **plain}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"settings: expected those of active learning, got {error!r}") from error


# ----------------------------------------------------------------------------------- journal


def given_lines(y: Sequence[Any]) -> list[dict[str, Any]]:
    """A line for every sentence of which something is known from the start."""

    def plain(label: Any) -> Any:
        return label if label is None or isinstance(label, str) else sorted(label)

    return [
        {"kind": "given", "sentence": sentence, "labels": [plain(label) for label in labels]}
        for sentence, labels in enumerate(y)
        if labels is not None and any(label is not None for label in labels)
    ]


def proposal_lines(number: int, proposal: Proposal) -> list[dict[str, Any]]:
    """A line for every query, and one that ends them."""
    queries = [{"kind": "query", "round": number, **q._asdict()} for q in proposal.queries]
    end = {
        "kind": "proposed",
        "round": number,
        "queries": len(queries),
        "guesses": proposal.guesses.tolist(),
        "labels": proposal.labels.tolist(),
        "sampled": proposal.sampled.tolist(),
    }
    return [*queries, end]


def answer_lines(number: int, answers: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """One line for sentences, positions and labels that came at once, None to take one back."""
    rows = [list(answer) for answer in answers]
    return [{"kind": "answers", "round": number, "answers": rows}] if rows else []


def replay(run: Run, lines: list[dict[str, Any]], add_labels: Callable[[Any], None]) -> None:
    """Do again what the journal says; ValueError where that is not possible.

    Args:
        run: as it began. lines: of the journal. add_labels: gives the run more labels.
    """
    try:
        _replay(run, lines, add_labels)
    except (KeyError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"journal: expected the lines of this run, got {error!r}") from error


def _replay(run: Run, lines: list[dict[str, Any]], add_labels: Callable[[Any], None]) -> None:
    given = {line["sentence"]: line["labels"] for line in lines if line["kind"] == "given"}
    if given:
        known = [given.get(sentence) for sentence in range(len(run.pool.lengths))]
        run.known.given([None if labels is None else _sets(labels) for labels in known])
        run.has_news = True
    queries: list[Query] = []
    last: dict[tuple[Any, Any], Any] = {}
    for line in lines:
        kind = line["kind"]
        if kind == "query":
            queries.append(Query(*(line[name] for name in Query._fields)))
        elif kind == "proposed":
            # Queries that were cut off before their end are not asked: another proposal follows.
            of_round = queries[len(queries) - line["queries"] :]
            numbers = (np.array(line[n], np.int64) for n in ("guesses", "labels", "sampled"))
            run.take(Proposal(of_round, *numbers))
            queries = []
        elif kind in ("answer", "answers"):
            single = [[line[name] for name in Answer._fields]] if kind == "answer" else None
            said = {(s, t): _plain(label) for s, t, label in single or line["answers"]}
            run.has_news |= any(_is_news(run.known, last, *one) for one in said.items())
            last |= said
            for token, label in said.items():
                run.note([token], answered=label is not None)
        elif kind == "labels":
            add_labels(line["labels"])
        elif kind == "trained":
            run.end_round(line["round"])
            queries = []
            record = {n: v for n, v in line.items() if n not in ("kind", "model")}
            run.history.append({"short": False, **record})  # as all were before it was noted
    _take_last(run.known, last)
    _load_model(run, lines)


def _is_news(known: KnownLabels, last: dict[Any, Any], token: Any, label: Any) -> bool:
    """Whether an answer differs from the last one to the token, or from what was given of it."""
    (plain,) = known.check_places([token])
    before = last[token] if token in last else known.label_of(*plain)
    return before != label


def _take_last(known: KnownLabels, last: dict[tuple[Any, Any], Any]) -> None:
    """Only the last word on a token counts: a retraction, or an answer."""
    known.retract(known.check_places(token for token, label in last.items() if label is None))
    answers = [Answer(*token, label) for token, label in last.items() if label is not None]
    known.answer(known.check(answers))


def _plain(label: Any) -> Any:
    return tuple(label) if isinstance(label, list) else label


def _sets(labels: list[Any]) -> list[Any]:
    return [set(label) if isinstance(label, list) else label for label in labels]


def _load_model(run: Run, lines: list[dict[str, Any]]) -> None:
    named = [line["model"] for line in lines if line["kind"] == "trained"]
    assert run.folder is not None
    run.folder.drop_litter()
    if not named:
        run.folder.drop_unfinished()
        return
    run.tagger = run.folder.model(named[-1])
    if not set(run.tagger.classes_) <= set(run.pool.classes):
        raise ValueError("model: expected one with the labels of the settings, got another")


# -------------------------------------------------------------------------------------------------
# More labels for active learning that is under way.


def check_new_labels(names: Any, classes: list[str]) -> list[str]:
    """The names in order, each once; ValueError unless they are labels that are not there yet."""
    plain = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    found = list(names) if plain else []
    if not found or not all(isinstance(name, str) and name for name in found):
        raise ValueError(f"names: expected labels, strings, at least one, got {names!r:.80}")
    there = [name for name in found if name in classes]
    if there:
        raise ValueError(f"names: expected labels that are not known yet, got {there[0]!r:.60}")
    return sorted({str(name) for name in found})


def add_to_run(run: Run, names: list[str], estimator: CRFTagger) -> None:
    """Give a run more labels: what is known of its tokens stays, and so does its model.

    Args:
        run: to change. names: of `check_new_labels`. estimator: whose scheme and weights it has.
    """
    classes = sorted([*run.pool.classes, *names])
    run.pool = replace(run.pool, classes=classes, legal=legal_by_scheme(classes, estimator.scheme))
    run.known = run.known.with_classes(classes, run.pool.legal)
    run.look = None  # its labels are numbers
    if run.tagger is not None:
        run.tagger = with_labels(run.tagger, classes)


def with_labels(tagger: CRFTagger, classes: list[str]) -> CRFTagger:
    """A tagger of more labels that says the same: the new ones are forbidden, and weigh nothing.

    A search that starts from it starts with all of them allowed.

    Args:
        tagger: trained. classes: all labels, sorted, with those of the tagger among them.
    """
    known = tagger.classes_.tolist()
    if classes == known:
        return tagger
    old = np.array([classes.index(name) for name in known])
    model, s = tagger.model_, len(classes)

    def spread(array: Any, axes: tuple[int, ...], rest: float) -> np.ndarray:
        array = np.asarray(array)
        shape = [s if axis in axes else size for axis, size in enumerate(array.shape)]
        wide = np.full(shape, rest, array.dtype)
        wide[np.ix_(*(old if a in axes else np.arange(n) for a, n in enumerate(array.shape)))] = (
            array
        )
        return wide

    weights = spread(model.weights, (1,), 0.0)
    if tagger.weights == "tied":
        for column, name in enumerate(classes):
            like = [k for k in known if _type(k) == _type(name)]
            if name not in known and like:  # the weights of the type that it shares
                weights[:, column] = weights[:, classes.index(like[0])]
    pairs = model.edge_weights
    wide = copy.copy(tagger)
    wide._take(
        CRF(
            weights,
            spread(model.transitions, (0, 1), -jnp.inf),
            spread(model.start, (0,), -jnp.inf),
            spread(model.stop, (0,), -jnp.inf),
            None if pairs is None else spread(pairs, (1, 2), 0.0),
        ),
        classes,
        tagger.extractor_,
    )
    return wide


def _type(label: str) -> str:
    return label.partition("-")[2] or label
