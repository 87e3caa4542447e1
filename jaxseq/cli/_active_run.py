"""A run of active learning as the subcommands see it: its sentences, opened, trained, described.

The folder of a run is all that it needs: the sentences are copied into it. ``pool.jsonl`` and
``dev.jsonl`` hold one sentence per line, ``{"columns": {name: cells}}``, those of the second with
``"labels"``. ``corpora.json`` says where they are from, and their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.metrics import SpanScores, usual_scores
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.active import ActiveLearner, Query, Run
    from jaxseq.crf import CRFTagger

FORMAT = "jaxseq active corpora 1"
ABOUT, POOL, DEV = "corpora.json", "pool.jsonl", "dev.jsonl"
WORD = "word"


@dataclass(frozen=True)
class Corpora:
    """What active learning works on.

    The pool begins with the sentences that had labels from the start; `dev` may be empty; `sources`
    are the files that all was read from, by the name of the option.
    """

    pool: list[Sentence]
    dev: list[Sentence]
    dev_labels: list[list[str]]
    sources: dict[str, str | None]

    def words(self, sentence: int) -> tuple[str, ...]:
        """What people see of a sentence: its column ``word``, or its first."""
        columns = self.pool[sentence]
        return columns[WORD if WORD in columns else columns.columns[0]]


def write_corpora(folder: Path, corpora: Corpora) -> None:
    """Write them into a folder that nobody reads yet."""
    texts = {POOL: _lines(corpora.pool, None)}
    if corpora.dev:
        texts[DEV] = _lines(corpora.dev, corpora.dev_labels)
    about = {
        "format": FORMAT,
        "sources": corpora.sources,
        "sha256": {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
    }
    # Last: without it the folder is no run.
    texts[ABOUT] = f"{json.dumps(about, indent=1)}\n".encode()
    for name, text in texts.items():
        (folder / name).write_bytes(text)


def _lines(sentences: Sequence[Sentence], labels: Sequence[list[str]] | None) -> bytes:
    rows: list[dict[str, Any]] = [{"columns": {n: s[n] for n in s.columns}} for s in sentences]
    for row, own in zip(rows, labels or []):
        row["labels"] = own
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def read_corpora(folder: Path) -> Corpora:
    """What `write_corpora` wrote; ValueError where that is not there, or not what it was."""
    where = folder / ABOUT
    if not where.is_file():
        raise ValueError(f"{folder}: expected a folder of jaxseq active start, found no {ABOUT}")
    try:
        about = json.loads(where.read_bytes())
        sound = about["format"] == FORMAT and set(about["sha256"]) <= {POOL, DEV}
        sources = dict(about["sources"])
    except (ValueError, KeyError, TypeError, RecursionError):
        sound, about, sources = False, {}, {}
    if not sound:
        raise ValueError(f"{where}: expected JSON of the format {FORMAT!r}, got something else")
    rows: dict[str, list[dict[str, Any]]] = {POOL: [], DEV: []}
    for name, digest in about["sha256"].items():
        rows[name] = _read(folder / name, digest)
    dev_labels = [row["labels"] for row in rows[DEV]]
    return Corpora(_sentences(rows[POOL]), _sentences(rows[DEV]), dev_labels, sources)


def _read(path: Path, digest: str) -> list[dict[str, Any]]:
    data = path.read_bytes() if path.is_file() else b""
    # Answers are by number: in a file that was edited they would stand at other words.
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path}: expected the file that jaxseq active start wrote, found another")
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def _sentences(rows: list[dict[str, Any]]) -> list[Sentence]:
    # One string for all its occurrences: there may be millions of tokens.
    return [
        Sentence.from_cells(
            {n: tuple(map(sys.intern, cells)) for n, cells in row["columns"].items()}
        )
        for row in rows
    ]


Say = Callable[[str], object]
TRIES, PAUSE = 4, 0.1  # looks at a folder that changes meanwhile, and seconds between them

NOTHING_ASKED = "there is nothing to ask in round {}"


@dataclass(frozen=True, eq=False)
class ActiveRun:
    """An opened folder of ``jaxseq active start``."""

    folder: Path
    corpora: Corpora
    learner: ActiveLearner

    @property
    def state(self) -> Run:
        return self.learner._begun()

    @property
    def round(self) -> int:
        """The number of the round under way: trainings done."""
        return self.state.round

    @property
    def classes(self) -> list[str]:
        return self.state.pool.classes

    @property
    def has_model(self) -> bool:
        return self.state.tagger is not None

    def asked(self) -> list[Query]:
        """The queries of this round, answered or not; none before they are proposed."""
        return self.state.queries or []

    def answered_now(self) -> list[tuple[int, int]]:
        """Sentence and position of the tokens answered in this round, the last one last."""
        return list(self.state.answered)

    def label_at(self, sentence: int, position: int) -> str | tuple[str, ...] | None:
        """The annotator's label of a token, or several possible ones; None for no answer."""
        return self.state.known.label_at(sentence, position)

    def label_counts(self) -> dict[str, int]:
        """How many tokens the annotator has labelled, and how many more the model."""
        known = self.state.known
        return {
            "labelled_tokens": int(known.answered.sum()),
            "guessed_tokens": int(known.guessed.sum()),
        }

    def train(self, *, full: bool = False) -> None:
        """End the round; a model that would be the last is compared with one from zeros."""
        learner = self.learner.train(full=full)
        # A model from zeros needs no comparison with one from zeros.
        warm = learner.history_[-1]["start"] == "warm"
        if warm and learner.check_warm_start and learner.status().stop:
            learner.recheck()

    def next_queries(self, say: Say) -> list[Query]:
        """What to ask now; none when nothing is left.

        A round of which all is answered, or in which there was nothing to ask, ends by training,
        which `say` is told before it begins.
        """
        queries = self.learner.propose()
        # A strategy may take labels from the model and ask nothing: then training goes on.
        while not queries and (self.asked() or not self.learner.status().stop):
            done = "all queries of round {} are answered" if self.asked() else NOTHING_ASKED
            say(f"{done.format(self.round)}: training")
            self.train()
            queries = self.learner.propose()
        return queries

    def report(self) -> dict[str, Any]:
        """Where it stands, with scores on the sentences of ``--dev``, ready for JSON."""
        report = {"folder": str(self.folder), **self.learner.status().as_dict()}
        return report | self.scores(self.learner.tagger_ if self.has_model else None)

    def scores(self, tagger: CRFTagger | None) -> dict[str, float | None]:
        """F1 and accuracy of a tagger on the sentences of ``--dev``, None where there are none."""
        scores: dict[str, float | None] = {"dev_f1": None, "dev_accuracy": None}
        if self.corpora.dev and tagger is not None:
            measured = usual_scores(self.corpora.dev_labels, tagger.predict(self.corpora.dev))
            scores["dev_accuracy"] = measured.accuracy
            # An F1 of 0 beside an accuracy of 1 would be taken for a failure.
            spans = measured.overall if isinstance(measured, SpanScores) else None
            if spans is not None and (spans.gold or spans.predicted):
                scores["dev_f1"] = spans.f1
        return scores


@contextmanager
def opened(folder: str) -> Iterator[ActiveRun]:
    """Open a folder of ``jaxseq active start``, and keep other processes out of it meanwhile.

    ValueError when it is no such folder, is not sound, or another process is at work on it.
    """
    from jaxseq._io import holding
    from jaxseq.active import ActiveLearner

    path = _folder(folder)
    with holding(path) as is_alone:
        if not is_alone:
            raise ValueError(
                f"{path}: expected to be alone, another jaxseq active command is at work on it"
            )
        corpora = read_corpora(path)
        yield ActiveRun(path, corpora, ActiveLearner.resume(path, corpora.pool))


def looked_at(folder: str) -> ActiveRun:
    """A folder of ``jaxseq active start`` as it is now, to read only: others may be at work."""
    from jaxseq.active import ActiveLearner

    path = _folder(folder)
    corpora = read_corpora(path)
    for _ in range(TRIES):
        # A model may be replaced between a look at the journal and one at the model.
        with suppress(FileNotFoundError):
            learner = ActiveLearner.resume(path, corpora.pool, read_only=True)
            return ActiveRun(path, corpora, learner)
        time.sleep(PAUSE)
    raise ValueError(
        f"{path / 'model'}: expected the model that the journal names last, found none"
    )


def _folder(name: str) -> Path:
    path = Path(name)
    if not path.is_dir():  # a misspelt name must not make a folder
        raise ValueError(f"{name}: expected a folder of jaxseq active start, there is none")
    return path


def tell(report: dict[str, Any], as_json: bool, first: list[str]) -> None:
    """Print a report of `ActiveRun.report`, `first` before its lines."""
    if as_json:
        print(json.dumps(report, allow_nan=False))
    else:
        print("\n".join([*first, *report_lines(report)]))


def report_lines(report: dict[str, Any]) -> list[str]:
    """A report in words."""
    lines = [
        f"round     {report['round']}",
        f"labelled  {report['labelled_tokens']:,} of {report['tokens']:,} tokens "
        f"({report['labelled_share']:.2%}), in {report['labelled_sentences']:,} of "
        f"{report['sentences']:,} sentences ({report['sentence_share']:.2%})",
    ]
    if report["guessed_tokens"]:
        lines.append(f"          and {report['guessed_tokens']:,} tokens by the model")
    if report["kappa"] is not None:
        lines.append(f"kappa     {report['kappa']:.6f}, agreement of the last two models")
    if report["informative"] is not None:
        lines.append(f"left      {report['informative']:,} informative units to ask")
    if report["waiting"]:
        lines.append(f"waiting   {report['waiting']:,} queries of this round have no answer yet")
    lines += lines_on_dev(report)
    return [*lines, f"stop      {'yes' if report['stop'] else 'no'}: {report['why']}"]


def lines_on_dev(report: dict[str, Any]) -> list[str]:
    """The scores on the sentences of ``--dev`` in words, a line; none where there are none."""
    if report["dev_accuracy"] is None:
        return []
    phrases = "" if report["dev_f1"] is None else f"F1 {report['dev_f1']:.2%}, "
    return [f"dev       {phrases}accuracy {report['dev_accuracy']:.2%}"]


def line_on_training(run: ActiveRun) -> str:
    """How the last training went."""
    last = run.learner.history_[-1]
    cut = ", cut short" if last["short"] else ""
    return (
        f"training  {last['iterations']} iterations{cut} on {last['sentences']:,} sentences, "
        f"objective {last['objective']:.6g} ({last['seconds']['all']:.1f} s)"
    )
