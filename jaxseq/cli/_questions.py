"""A run of active learning as the subcommands see it: opened, trained, described."""

from __future__ import annotations

import argparse
import colorsys
import hashlib
import json
import os
import re
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

from jaxseq.active import Answer
from jaxseq.cli._options import add_model_settings
from jaxseq.metrics import span_scores
from jaxseq.text import Sentence, Templates, sentence_of

# -------------------------------------------------------------------------------------------------
# Options of an active learner and of the tagger inside, and the learner that they describe.


if TYPE_CHECKING:
    from jaxseq.active import ActiveLearner, Strategy

OF_A_STRATEGY = {
    "per_sentence": ("tokens", "groups"),
    "per_form": ("tokens",),
    "alike": ("groups",),
    "width": ("spans",),
    "by": ("sequences",),
    "ask": ("sequences",),
    "keep_sure": ("sequences",),
}
"""Option → the only strategies that have it; none is set unless the user gives it."""


def add_learner_options(parser: argparse.ArgumentParser) -> None:
    """Add the groups of options about what to ask, when to stop, and how to train."""
    add = parser.add_argument_group("what to ask, and when to stop").add_argument
    add(
        "--strategy",
        choices=("tokens", "groups", "spans", "sequences"),
        default="tokens",
        help="ask for single tokens, for those that stand for many like them, for stretches of "
        "tokens, or for whole sentences (tokens)",
    )
    add("--count", type=int, default=500, metavar="N", help="tokens, or sentences, a round (500)")
    add(
        "--threshold",
        type=float,
        metavar="P",
        help="ask for no label that is at least so probable (0.99; of groups 0.999)",
    )
    add("--per-sentence", type=int, metavar="N", help="of tokens and groups: of one sentence a "
        "round, at most (any number)")  # fmt: skip
    add("--per-form", type=int, metavar="N", help="of tokens: of one word a round, at most (any "
        "number)")  # fmt: skip
    add(
        "--alike",
        metavar="TEMPLATE",
        help="of groups: tokens are alike where it has one value (lower(word[0]); with parts of "
        "speech lower(word[0])|pos[-1]|pos[1] is better)",
    )
    add("--width", type=int, metavar="N", help="of spans: tokens, at most (3)")
    add(
        "--by",
        choices=("viterbi", "entropy", "n_best"),
        help="of sequences: what tells how unsure the model is of a sentence (viterbi)",
    )
    add("--ask", choices=("all", "unsure"), help="of sequences: which of their tokens (all)")
    add(
        "--keep-sure",
        choices=("open", "model"),
        help="of sequences: whether the other tokens stay open or take the model's label (open)",
    )
    add("--initial", type=int, default=50, metavar="N", help="sentences of the first round, if no "
        "label is known (50)")  # fmt: skip
    add(
        "--initial-how",
        choices=("longest", "random", "shortest"),
        default="longest",
        help="which ones (longest)",
    )
    add("--kappa", type=float, default=0.9999, metavar="K", help="stop when the last two models "
        "agree by more, and little is left to ask (0.9999)")  # fmt: skip
    add("--budget", type=int, metavar="N", help="stop after so many labelled tokens")
    add("--max-rounds", type=int, metavar="N", help="stop after so many rounds")
    _add_training_options(parser.add_argument_group("training").add_argument)


def _add_training_options(add: Any) -> None:
    add_model_settings(add, "of L-BFGS, a round")
    add("--between", type=int, metavar="N", help="iterations of a round after which more is asked, "
        "at most; the last round, and jaxseq active train, have all (all)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="of random first sentences (0)")
    add("--cores", type=int, metavar="N", help="threads to train with (all)")


def check_learner_options(options: argparse.Namespace) -> None:
    """ValueError for options that do not go together, or a strategy that makes no sense."""
    for name, strategies in OF_A_STRATEGY.items():
        if getattr(options, name) is not None and options.strategy not in strategies:
            flag = f"--{name.replace('_', '-')}"
            wanted = " or ".join(strategies)
            raise ValueError(f"{flag}: expected along with --strategy {wanted} only")
    for name in ("budget", "between"):
        given = getattr(options, name)
        if given is not None and given < 1:
            raise ValueError(f"--{name}: expected 1 or more, got {given}")
    _strategy(options)


def _strategy(options: argparse.Namespace) -> Strategy:
    from jaxseq.active import Groups, Sequences, Spans, Tokens

    given = {
        name: getattr(options, name) for name in OF_A_STRATEGY if getattr(options, name) is not None
    }
    if options.threshold is not None:
        given["threshold"] = options.threshold
    kinds = {"tokens": Tokens, "groups": Groups, "spans": Spans, "sequences": Sequences}
    with naming_options({"count", *given}):
        return kinds[options.strategy](count=options.count, **given)


@contextmanager
def naming_options(settings: Collection[str]) -> Iterator[None]:
    """Errors on one of these settings, which begin with its name, begin with the option's."""
    try:
        yield
    except ValueError as error:
        name, colon, rest = str(error).partition(":")
        if name not in settings:
            raise
        raise ValueError(f"--{name.replace('_', '-')}{colon}{rest}") from None


def new_learner(options: argparse.Namespace, templates: Templates) -> ActiveLearner:
    """The learner that the options describe."""
    from jaxseq.active import ActiveLearner
    from jaxseq.crf import CRFTagger

    tagger = CRFTagger(
        templates,
        l1=options.l1,
        l2=options.l2,
        max_iterations=options.max_iterations,
        weights=options.weights,
        cutoff=options.cutoff,
        scheme=options.scheme,
        cores=options.cores,
        seed=options.seed,
    )
    return ActiveLearner(
        tagger,
        _strategy(options),
        initial=options.initial,
        initial_how=options.initial_how,
        kappa=options.kappa,
        max_rounds=options.max_rounds,
        budget=options.budget,
        seed=options.seed,
        between=options.between,
    )


# -------------------------------------------------------------------------------------------------
# Sentences of active learning, copied into its folder: the folder is all that it needs.
#
# ``pool.jsonl`` and ``dev.jsonl`` hold a sentence a line, ``{"columns": {name: cells}}``, those of
# the second with ``"labels"``. ``corpora.json`` says where they are from, and their SHA-256.


FORMAT = "jaxseq active corpora 1"
ABOUT, POOL, DEV = "corpora.json", "pool.jsonl", "dev.jsonl"
WORD = "word"


@dataclass(frozen=True)
class Corpora:
    """What active learning works on.

    Args:
        pool: sentences to ask about, those with labels from the start first.
        dev: others, to score the model on; empty for none. dev_labels: their labels.
        sources: the files that they were read from, by the name of the option; None for none.

    Example:
        >>> corpora = Corpora([Sentence({"word": ["a"]})], [], [], {"train": None, "pool": "p"})
        >>> corpora.words(0)
        ('a',)
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
    texts[ABOUT] = f"{json.dumps(about, indent=1)}\n".encode()
    for name, text in texts.items():
        (folder / name).write_bytes(text)


def _lines(sentences: Sequence[Sentence], labels: Sequence[list[str]] | None) -> bytes:
    rows: list[dict[str, Any]] = [{"columns": {n: s[n] for n in s.columns}} for s in sentences]
    for row, given in zip(rows, labels or []):
        row["labels"] = given
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
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path}: expected the file that jaxseq active start wrote, found another")
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def _sentences(rows: list[dict[str, Any]]) -> list[Sentence]:
    # One string for all its occurrences: there may be millions of tokens.
    return [
        sentence_of({n: tuple(map(sys.intern, cells)) for n, cells in row["columns"].items()})
        for row in rows
    ]


# -------------------------------------------------------------------------------------------------
# What an answer from a file must be, and what is said of one that is not.


Label = str | tuple[str, ...]

MOST_LISTED = 30
"""Labels that a message lists at most."""

MOST_REFUSED = 10
"""Entries of a file that a message lists at most."""


@dataclass
class Refusals:
    """What is wrong with the entries of a file, to be told at once.

    Args:
        path: what messages call the file. errors: so far.

    Example:
        >>> refusals = Refusals("file")
        >>> for line in ("x", "1", "y"):
        ...     with refusals.noted():
        ...         _ = int(line)
        >>> len(refusals.errors)
        2
    """

    path: str
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a ValueError, and go on with the next entry."""
        try:
            yield
        except ValueError as error:
            self.errors.append(str(error))

    def tell(self) -> None:
        """ValueError if there were any; of several, the first are written to standard error."""
        if len(self.errors) == 1:
            raise ValueError(self.errors[0])
        if self.errors:
            more = len(self.errors) - MOST_REFUSED
            listed = self.errors[:MOST_REFUSED] + ([f"and {more:,} more"] if more > 0 else [])
            print(*listed, sep="\n", file=sys.stderr)
            raise ValueError(
                f"{self.path}: expected legal answers, got {len(self.errors):,} entries that are "
                "not, as listed; none is taken in"
            )


@dataclass(frozen=True)
class AnswerRules:
    """Checks the parts of an answer; each check gives the part back, or a ValueError.

    Args:
        round: the one under way. corpora: whose pool is asked about. classes: all labels.
        known: from a sentence and a position to the label taken in already, None for none.

    Example:
        >>> from jaxseq.text import Sentence
        >>> rules = AnswerRules(2, Corpora([Sentence({"word": ["a", "b"]})], [], [], {}), ["N"])
        >>> rules.position(1, 0, "file:1"), rules.label("N", "file:1")
        (1, 'N')
        >>> rules.round_of(1, "file:1")
        Traceback (most recent call last):
        ValueError: file:1: expected an answer of round 2, the one under way, got round 1
    """

    round: int
    corpora: Corpora
    classes: Sequence[str]
    known: Callable[[int, int], Label | None] = lambda sentence, position: None

    def round_of(self, value: Any, place: str) -> None:
        """Whether it is the round under way."""
        number = self._whole("round", value, None, place)
        if number != self.round:
            raise ValueError(
                f"{place}: expected an answer of round {self.round}, the one under way, got "
                f"round {number}"
            )

    def is_past(self, value: Any, place: str) -> bool:
        """Whether it is a round that is over, and not the one under way."""
        if self._whole("round", value, None, place) < self.round:
            return True
        self.round_of(value, place)
        return False

    def sentence(self, value: Any, place: str) -> int:
        """The number of a sentence of the pool."""
        return self._whole("sentence", value, len(self.corpora.pool), place)

    def position(self, value: Any, sentence: int, place: str, name: str = "position") -> int:
        """The place of a token in its sentence."""
        return self._whole(name, value, len(self.corpora.words(sentence)), place)

    def label(self, value: Any, place: str) -> Label:
        """A label, or several possible ones."""
        if isinstance(value, str):
            return self._known(value, place)
        if not isinstance(value, list) or not value:
            raise ValueError(f"{place}: expected a label, or a list of some, got {value!r:.60}")
        return tuple(self._known(label, place) for label in value)

    def _known(self, label: Any, place: str) -> str:
        if label not in self.classes:
            listed = ", ".join(self.classes[:MOST_LISTED])
            more = ", …" if len(self.classes) > MOST_LISTED else ""
            raise ValueError(
                f"{place}: expected a label, one of {listed}{more}; got {label!r:.60} (jaxseq "
                "active labels --add adds labels)"
            )
        return label

    @staticmethod
    def _whole(name: str, value: Any, below: int | None, place: str) -> int:
        sound = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not sound or (below is not None and value >= below):
            wanted = "0 or more" if below is None else f"0 … {below - 1}"
            raise ValueError(
                f"{place}: expected {name!r}, a whole number, {wanted}, got {value!r:.60}"
            )
        return value


try:
    import fcntl
except ImportError:  # not on every system; there nobody is kept out
    fcntl = None

if TYPE_CHECKING:
    from jaxseq.active import ActiveLearner, Query
    from jaxseq.crf import CRFTagger

Say = Callable[[str], object]
TRIES, PAUSE = 4, 0.1
"""How often a folder is looked at that changes meanwhile, and seconds between."""
NOTHING_ASKED = "there is nothing to ask in round {}"


@dataclass(frozen=True, eq=False)
class ActiveRun:
    """An opened folder of ``jaxseq active start``.

    Args:
        folder: where. corpora: its sentences. learner: resumed.
    """

    folder: Path
    corpora: Corpora
    learner: ActiveLearner

    @property
    def round(self) -> int:
        """The number of the round under way: trainings done."""
        return self.learner._begun().round

    @property
    def classes(self) -> list[str]:
        """All labels."""
        return self.learner._begun().pool.classes

    @property
    def has_model(self) -> bool:
        """Whether something was trained already."""
        return self.learner._begun().tagger is not None

    def asked(self) -> list[Query]:
        """The queries of this round, answered or not; none before they are proposed."""
        return self.learner._begun().queries or []

    def answered_now(self) -> list[tuple[int, int]]:
        """Sentence and position of the tokens answered in this round, the last one last."""
        return list(self.learner._begun().answered)

    def is_answered(self, sentence: int, position: int) -> bool:
        """Whether the annotator has labelled a token."""
        state = self.learner._begun()
        begin = int(state.pool.lengths[:sentence].sum())
        return bool(state.known.answered[begin + position])

    def label_of(self, sentence: int, position: int) -> str | tuple[str, ...] | None:
        """The annotator's label of a token, or several possible ones; None for no answer."""
        return self.learner._begun().known.label_of(sentence, position)

    def has_labels(self) -> bool:
        """Whether the annotator has labelled any token."""
        return bool(self.learner._begun().known.answered.any())

    def label_counts(self) -> dict[str, int]:
        """How many tokens the annotator has labelled, and how many others the model."""
        known = self.learner._begun().known
        return {
            "labelled_tokens": int(known.answered.sum()),
            "guessed_tokens": int(known.guessed.sum()),
        }

    def train(self, *, whole: bool = False) -> None:
        """End the round; a model that would be the last is compared with one from zeros.

        Args:
            whole: as of `ActiveLearner.train`.
        """
        learner = self.learner.train(whole=whole)
        warm = learner.history_[-1]["start"] == "warm"
        if warm and learner.check_warm_start and learner.status().stop:
            learner.recheck()

    def next_queries(self, say: Say) -> list[Query]:
        """What to ask now; none when nothing is left.

        A round of which all is answered, or in which there was nothing to ask, ends by training.

        Args:
            say: told before each training, which may take a while.
        """
        queries = self.learner.propose()
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
            measured = span_scores(self.corpora.dev_labels, tagger.predict(self.corpora.dev))
            scores["dev_accuracy"] = measured.accuracy
            if measured.overall.gold or measured.overall.predicted:  # labels of phrases
                scores["dev_f1"] = measured.overall.f1
        return scores


@contextmanager
def opened(folder: str) -> Iterator[ActiveRun]:
    """Open a folder of ``jaxseq active start``, and keep others out of it meanwhile.

    Raises:
        ValueError: when it is no such folder, is not sound, or another process is at work on it.
    """
    from jaxseq.active import ActiveLearner

    path = _folder(folder)
    with _locked(path):
        corpora = read_corpora(path)
        yield ActiveRun(path, corpora, ActiveLearner.resume(path, corpora.pool))


def looked_at(folder: str) -> ActiveRun:
    """A folder of ``jaxseq active start`` as it is now, to read only: others may be at work on it.

    Raises:
        ValueError: when it is no such folder, or is not sound.
    """
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
    if not path.is_dir():
        raise ValueError(f"{name}: expected a folder of jaxseq active start, there is none")
    return path


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The operating system gives the lock back when the process ends, however it ends."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{folder}: expected to be alone, another jaxseq active command is at work on it"
            ) from None
        yield
    finally:
        os.close(descriptor)


# -------------------------------------------------------------------------------------- words


def add_folder_and_json(parser: argparse.ArgumentParser) -> None:
    """Add the folder, which every subcommand but ``start`` takes, and ``--json``."""
    parser.add_argument("folder", metavar="DIR", help="of jaxseq active start")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def tell(report: dict[str, Any], as_json: bool, first: list[str]) -> None:
    """Print a report of `ActiveRun.report`, `first` before its lines."""
    if as_json:
        print(json.dumps(report, allow_nan=False))
    else:
        print("\n".join([*first, *lines_of(report)]))


def lines_of(report: dict[str, Any]) -> list[str]:
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


# -------------------------------------------------------------------------------------------------
# Queries with what an annotator needs to see: words, guesses and how sure they are.


if TYPE_CHECKING:
    from jaxseq.active import Query


@dataclass(frozen=True)
class Question:
    """A query in words.

    Args:
        round: that it belongs to. sentence, start, stop, score: as of `Query`.
        tokens: all words of the sentence.
        guess: the model's label of each token that is asked; None where it has none.
        confidence: the probability of each guess; None where there is none.

    Example:
        >>> asked = Question(2, 7, 1, 2, 0.4, ("the", "dog"), ("N",), (0.6,))
        >>> asked.words
        ('dog',)
    """

    round: int
    sentence: int
    start: int
    stop: int
    score: float
    tokens: tuple[str, ...]
    guess: tuple[str | None, ...]
    confidence: tuple[float | None, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Those that are asked about."""
        return self.tokens[self.start : self.stop]

    def as_dict(self) -> dict[str, Any]:
        """For a line of ``queries.jsonl``."""
        return {
            "round": self.round,
            "sentence": self.sentence,
            "start": self.start,
            "stop": self.stop,
            "words": list(self.words),
            "guess": list(self.guess),
            "confidence": list(self.confidence),
            "score": self.score,
            "tokens": list(self.tokens),
        }


def questions_of(run: ActiveRun, queries: Sequence[Query]) -> list[Question]:
    """The queries in words, in the same order."""
    if not run.has_model:
        return [_without_model(run, query) for query in queries]
    look, classes = run.learner.look(), run.classes
    starts = np.cumsum(look.lengths) - look.lengths
    questions = []
    for query in queries:
        begin = int(starts[query.sentence])
        inside = slice(begin + query.start, begin + query.stop)
        labels, sure = look.labels[inside].tolist(), look.confidence[inside].tolist()
        guess = tuple(None if k < 0 else classes[k] for k in labels)
        confidence = tuple(None if k < 0 else round(p, 6) for k, p in zip(labels, sure))
        words = run.corpora.words(query.sentence)
        questions.append(Question(run.round, *query, words, guess, confidence))
    return questions


def _without_model(run: ActiveRun, query: Query) -> Question:
    none = (None,) * (query.stop - query.start)
    return Question(run.round, *query, run.corpora.words(query.sentence), none, none)


# -------------------------------------------------------------------------------------------------
# ``jaxseq active status`` and ``train``: where it stands, and the end of a round.


def add_status(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active status``."""
    parser = subparsers.add_parser(
        "status",
        help="rounds, labels, scores, and whether to stop",
        description="Say where active learning stands, and whether to stop; also while another "
        "subcommand is at work on the folder.",
    )
    add_folder_and_json(parser)
    parser.set_defaults(run=_run_status)


def add_active_train(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active train``."""
    parser = subparsers.add_parser(
        "train",
        help="end the round: train on the labels so far",
        description="End the round: train on all labels so far, as jaxseq active answer does "
        "unless it is told not to, but to the end also where --between makes trainings short: for "
        "a model to be used before it is time to stop.",
    )
    add_folder_and_json(parser)
    parser.set_defaults(run=_run_train)


def _run_status(options: argparse.Namespace) -> int:
    run = looked_at(options.folder)
    tell(run.report(), options.json, _sources(run))
    return 0


def _sources(run: ActiveRun) -> list[str]:
    named = [f"--{name} {path}" for name, path in run.corpora.sources.items() if path is not None]
    return [f"folder    {run.folder}, of {' '.join(named)}"]


def _run_train(options: argparse.Namespace) -> int:
    with opened(options.folder) as run:
        run.train(whole=True)
        tell(run.report(), options.json, [line_on_training(run)])
    return 0


def line_on_training(run: ActiveRun) -> str:
    """How the last training went."""
    last = run.learner.history_[-1]
    cut = ", cut short" if last["short"] else ""
    return (
        f"training  {last['iterations']} iterations{cut} on {last['sentences']:,} sentences, "
        f"objective {last['objective']:.6g} ({last['seconds']['all']:.1f} s)"
    )


# -------------------------------------------------------------------------------------------------
# Queries as tasks for Label Studio, and the labelling interface that goes with them.
#
# Label Studio labels stretches of text. Words are joined by single spaces, and each token has a
# region of its own, so that any token label, B-NP and I-NP too, comes back as it was given. What
# says which token a region is of stands in ``data``, since the short export keeps only that.


CONTROL, TEXT = "label", "text"
"""Names of the parts of the interface: the labels, and what they are put on."""

HOTKEYS = "123456789abcdefghijklmnopqrstuvwxyz"
GOLDEN = 0.618033988749895
"""Steps of this size around a circle never come close to where they have been."""


def text_of(tokens: Sequence[str]) -> str:
    """The sentence as Label Studio shows it."""
    return " ".join(tokens)


def borders_of(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where each token begins and ends in `text_of`, in characters (code points).

    Example:
        >>> borders_of(["the", "dog"])
        [(0, 3), (4, 7)]
    """
    borders, place = [], 0
    for token in tokens:
        borders.append((place, place + len(token)))
        place += len(token) + 1
    return borders


def task_of(question: Question) -> dict[str, Any]:
    """A task: the sentence, the tokens that are asked, and the model's guess for each.

    Example:
        >>> asked = Question(2, 7, 1, 2, 0.4, ("the", "dog"), ("N",), (0.6,))
        >>> task = task_of(asked)
        >>> task["data"]["text"], task["data"]["question"]
        ('the dog', 'token 2 of 2: dog')
        >>> task["predictions"][0]["result"][0]["value"]
        {'start': 4, 'end': 7, 'text': 'dog', 'labels': ['N']}
    """
    place = {name: getattr(question, name) for name in ("round", "sentence", "start", "stop")}
    data = {
        "text": text_of(question.tokens),
        "tokens": list(question.tokens),
        "question": _in_words(question),
        **place,
    }
    return {"data": data, "meta": place, "predictions": _predictions(question)}


def _in_words(question: Question) -> str:
    first, last = question.start + 1, question.stop
    which = f"token {first}" if first == last else f"tokens {first}–{last}"
    return f"{which} of {len(question.tokens)}: {' '.join(question.words)}"


def _predictions(question: Question) -> list[dict[str, Any]]:
    borders = borders_of(question.tokens)
    regions = []
    rows = zip(range(question.start, question.stop), question.guess, question.confidence)
    for position, guess, confidence in rows:
        if guess is None:
            continue
        begin, end = borders[position]
        value = {"start": begin, "end": end, "text": question.tokens[position], "labels": [guess]}
        regions.append(
            {
                "id": f"{question.round}-{question.sentence}-{position}",
                "from_name": CONTROL,
                "to_name": TEXT,
                "type": "labels",
                "value": value,
                "score": confidence,
            }
        )
    if not regions:
        return []
    least = min(region["score"] for region in regions)
    return [{"model_version": f"round-{question.round:03}", "score": least, "result": regions}]


def labelling_config(labels: Sequence[str]) -> str:
    """The interface to paste into a project: one label a class, each with a colour.

    Example:
        >>> print(labelling_config(["N"]))
        <View>
          <Header value="$question"/>
          <Labels name="label" toName="text">
            <Label value="N" background="#e65c5c" hotkey="1"/>
          </Labels>
          <Text name="text" value="$text"/>
        </View>
        <BLANKLINE>
    """
    lines = ["<View>", '  <Header value="$question"/>']
    lines.append(f'  <Labels name="{CONTROL}" toName="{TEXT}">')
    for number, label in enumerate(labels):
        key = f' hotkey="{HOTKEYS[number]}"' if number < len(HOTKEYS) else ""
        value = quoteattr(label)
        lines.append(f'    <Label value={value} background="{_colour(number)}"{key}/>')
    lines += ["  </Labels>", f'  <Text name="{TEXT}" value="$text"/>', "</View>", ""]
    return "\n".join(lines)


def _colour(number: int) -> str:
    red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.6, 0.9)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


# -------------------------------------------------------------------------------------------------
# Exports of Label Studio as answers: JSON, and the short JSON-MIN.
#
# Of the first, an entry has ``data`` and ``annotations``; of the second it is what stood in ``data``,
# with the regions of one annotation under the name of the control. Regions are matched with tokens by
# their place in the text: in code points, or in UTF-16 units, as older versions count.


NOT_REPEATED = re.compile(r"[BESLU](-.*)?")
"""Labels of chunk schemes that no two neighbours share: first, last and only tokens."""

Token = tuple[int, int]
"""Sentence and position."""


@dataclass(frozen=True)
class Region:
    """Characters ``start … end − 1`` of a text, the labels put on them, and what they read."""

    start: int
    end: int
    labels: list[str]
    text: str | None


def answers_of_export(
    tasks: Sequence[Any], path: str, rules: AnswerRules
) -> tuple[list[Answer], int]:
    """Read the tasks of an export.

    Args:
        tasks: entries of the export. path: what messages call it. rules: what answers must be.

    Returns:
        The answers, and how many tasks had none: not labelled, cancelled, or of a past round with
        the labels that are known since then, as a project of several rounds has them.

    Raises:
        ValueError: with the file and the tasks, for regions that do not fit the tokens, and for
            labels that contradict one another, or what is known from a past round.
    """
    found: dict[Token, Label] = {}
    skipped, refusals = 0, Refusals(path)
    for number, task in enumerate(tasks):
        with refusals.noted():
            place = _place(task, number, path)
            labels = _answered(task, place, rules)
            skipped += not labels
            for token, label in labels.items():
                _add(found, token, label, place, rules)
    refusals.tell()
    return [Answer(*token, label) for token, label in found.items()], skipped


def _answered(task: dict[str, Any], place: str, rules: AnswerRules) -> dict[Token, Label]:
    """The labels of one task of the round under way; none where it has no answer or is past."""
    data, annotations = _parts(task, place)
    if not any(annotations):
        return {}
    is_past = rules.is_past(data.get("round"), place)
    labels = _labels_of(data, annotations, place, rules)
    if is_past:
        _require_known(labels, data["round"], place, rules)
        return {}
    return labels


def _labels_of(
    data: dict[str, Any], annotations: list[list[Region]], place: str, rules: AnswerRules
) -> dict[Token, Label]:
    """The labels of one task, by sentence and position."""
    sentence = rules.sentence(data.get("sentence"), place)
    tokens = rules.corpora.words(sentence)
    if data.get("text") != text_of(tokens):
        raise ValueError(
            f"{place}: expected the text of sentence {sentence}, {text_of(tokens)!r:.80}, got "
            f"{data.get('text')!r:.80}"
        )
    found: dict[Token, Label] = {}
    for region in (r for regions in annotations for r in _in_code_points(regions, tokens)):
        label = rules.label(region.labels, place)
        label = label[0] if len(set(label)) == 1 else tuple(sorted(set(label)))
        for position in _positions(region, tokens, rules.classes, place):
            _add(found, (sentence, position), label, place, rules)
    return found


def _add(
    found: dict[Token, Label], token: Token, label: Label, place: str, rules: AnswerRules
) -> None:
    if found.setdefault(token, label) != label:
        raise ValueError(
            f"{place}: expected one label for {_export_in_words(token, rules)}, got {found[token]!r} and "
            f"{label!r}"
        )


def _require_known(labels: dict[Token, Label], number: int, place: str, rules: AnswerRules) -> None:
    """ValueError unless a task of a past round says what is known of its tokens already."""
    for token, label in labels.items():
        known = rules.known(*token)
        if label != known:
            before = "no label" if known is None else repr(known)
            raise ValueError(
                f"{place}: expected an answer of round {rules.round}, the one under way, or the "
                f"labels of a past one as they were taken in, got round {number} with {label!r} "
                f"for {_export_in_words(token, rules)}, which has {before}"
            )


def _export_in_words(token: Token, rules: AnswerRules) -> str:
    sentence, position = token
    return f"token {position + 1}, {rules.corpora.words(sentence)[position]!r}"


def _place(task: Any, number: int, path: str) -> str:
    if not isinstance(task, dict):
        raise ValueError(f"{path}, entry {number + 1}: expected a task, got {task!r:.60}")
    return f"{path}, task {task.get('id', number + 1)}"


# ------------------------------------------------------------------------------- two forms


def _parts(task: dict[str, Any], place: str) -> tuple[dict[str, Any], list[list[Region]]]:
    """What the task was about, and the regions of each annotation that counts."""
    data = task.get("data")
    if "annotations" not in task and data is None:  # JSON-MIN
        return task, [list(_regions(_shortened(task), place))]
    if not isinstance(data, dict) or not isinstance(task.get("annotations", []), list):
        raise ValueError(f"{place}: expected a task with 'data' and 'annotations'")
    done = []
    for annotation in task.get("annotations", []):
        if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
            raise ValueError(f"{place}: expected annotations with a 'result', a list")
        if not annotation.get("was_cancelled"):
            done.append(annotation)
    # An annotation that was declared the truth goes before the others.
    chosen = [annotation for annotation in done if annotation.get("ground_truth")] or done
    return data, [list(_regions(annotation["result"], place)) for annotation in chosen]


def _shortened(task: dict[str, Any]) -> list[Any]:
    """Regions of JSON-MIN, whatever the control is called."""
    return [
        {"type": "labels", "value": entry}
        for value in task.values()
        if isinstance(value, list)
        for entry in value
        if isinstance(entry, dict) and "labels" in entry
    ]


def _regions(results: list[Any], place: str) -> Iterator[Region]:
    for result in results:
        value = result.get("value") if isinstance(result, dict) else None
        if not isinstance(value, dict) or result.get("type", "labels") != "labels":
            continue  # of another control, which is nothing to us
        try:
            start, end, labels = int(value["start"]), int(value["end"]), list(value["labels"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError(
                f"{place}: expected a region with 'start', 'end' and 'labels', got {value!r:.80}"
            ) from None
        text = value.get("text")
        yield Region(start, end, labels, text if isinstance(text, str) else None)


# ---------------------------------------------------------------------------------- borders


def _positions(region: Region, tokens: Sequence[str], classes: Sequence[str], place: str) -> range:
    """The tokens of a region; ValueError unless it begins and ends where tokens do."""
    text = text_of(tokens)
    begin, end, borders = region.start, region.end, borders_of(tokens)
    first = bisect_right([e for _, e in borders], begin)
    last = bisect_left([b for b, _ in borders], end)  # the one after it
    inside = borders[first:last]
    within = inside and 0 <= begin <= inside[0][0] and inside[-1][1] <= end <= len(text)
    if not within or not _reads_right(region, text):
        raise ValueError(
            f"{place}: expected regions that begin and end where tokens do, got "
            f"{region.text or text[max(begin, 0) : end]!r:.60}, characters {region.start}–"
            f"{region.end} of {text!r:.120}"
        )
    for label in region.labels if len(inside) > 1 else []:
        typed = len(label) > 1 or "I" in classes
        if NOT_REPEATED.fullmatch(label) and typed:
            raise ValueError(
                f"{place}: expected a region of its own for each token labelled {label!r}, got one "
                f"for {len(inside)} tokens, {text[begin:end]!r:.80}"
            )
    return range(first, last)


def _reads_right(region: Region, text: str) -> bool:
    return region.text is None or region.text.strip() == text[region.start : region.end].strip()


def _in_code_points(regions: list[Region], tokens: Sequence[str]) -> list[Region]:
    """The regions of an annotation as they are, or, if they do not read right, from UTF-16."""
    text = text_of(tokens)
    if all(_reads_right(region, text) for region in regions):
        return regions
    units = list(accumulate((1 + (ord(c) > 0xFFFF) for c in text), initial=0))
    return [
        replace(r, start=bisect_left(units, r.start), end=bisect_left(units, r.end))
        for r in regions
    ]
