"""``jaxseq train``: from a labelled corpus to a model."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import numpy as np

from jaxseq._runtime import Outcome
from jaxseq.cli._files import (
    STANDARD,
    Block,
    Corpus,
    Names,
    Part,
    add_corpus_options,
    add_model_settings,
    iter_blocks,
    read_corpus,
    require_columns,
    require_file,
    require_model_place,
    shown,
)
from jaxseq.cli._tag import (
    ConstrainedTagger,
    add_constraint_options,
    check_constraint_options,
    columns_of_rules,
    parse_count,
    read_rules,
)
from jaxseq.metrics import span_scores
from jaxseq.text import (
    CONLL2000,
    CONLL2003,
    GENE_MENTION,
    TOKEN_IDENTITY,
    Sentence,
    Templates,
    read_templates,
)

# -------------------------------------------------------------------------------------------------
# Runs of several processes: options, the part of the corpus that each reads, and their end.


if TYPE_CHECKING:
    from jaxseq.parallel import Peers

FAILED, REFUSED, INTERRUPTED = 1, 2, 130

FAREWELL_SECONDS = 2.0
"""How long process 0 stays after an error: when it goes, JAX ends the others in mid-sentence."""

ALONE = ("codl", "self_training", "choose_entropy_weight")
"""Ways of training a CRF that one process does alone."""


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a run one of several processes."""
    group = parser.add_argument_group(
        "several processes and devices",
        "Started once for each, with the same options but --process-id; each reads its own part of "
        "the corpus (whole files, or every Nth sentence), and process 0 writes. Without these "
        "options, the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID are "
        "looked at, and those of SLURM. JAX_NUM_CPU_DEVICES=N makes each use N cores. When a "
        "process ends early, or is not heard of for a minute, the others end as well.",
    )
    add = group.add_argument
    add("--coordinator", metavar="HOST:PORT", help="where process 0 can be reached")
    add("--num-processes", type=int, metavar="N", help="how many there are")
    add("--process-id", type=int, metavar="I", help="which this is, 0 to N - 1")


def check_process_options(options: argparse.Namespace) -> None:
    """ValueError for what several processes cannot do together."""
    for name in ALONE:
        by_counting = name == "codl" and options.model == "hmm"
        if getattr(options, name, None) and not by_counting:
            flag = f"--{name.replace('_', '-')}"
            also = ", or with --model hmm" if name == "codl" else ""
            raise ValueError(f"{flag}: expected in a run of one process only{also}")
    if options.algorithm != "lbfgs" and options.shards is None:
        raise ValueError(
            "--algorithm: expected lbfgs with several processes, unless they train from --shards, "
            f"got {options.algorithm}"
        )


def run_in_processes(
    options: argparse.Namespace, run: Callable[[argparse.Namespace, Peers | None], int]
) -> int:
    """Run a command in this process, and in those that it is told to join.

    A process that fails, or that loses another, says why in one line and ends at once: one that
    waited for the others would keep them waiting.
    """
    from jaxseq.parallel import in_words, is_lost, join_processes, leave_processes

    peers = join_processes(options.coordinator, options.num_processes, options.process_id)
    if peers is None or peers.count == 1:
        return run(options, peers)
    try:
        with peers.guard():
            check_process_options(options)
            peers.check_same("options", _shared_options(options))
        status = run(options, peers)
        sys.stdout.flush()
        leave_processes(peers)
        return status
    except KeyboardInterrupt:
        _leave(peers.index, INTERRUPTED, "interrupted")
    except Exception as error:
        if is_lost(error):
            _leave(peers.index, FAILED, _lost(options, str(error)))
        if isinstance(error, ValueError | OSError):
            _leave(peers.index, REFUSED, in_words(error))
        traceback.print_exc()  # nobody has thought of it, so that it has to be looked into
        _leave(peers.index, FAILED, in_words(error))


OF_EACH = ("process_id", "run", "usual", "out", "dev", "quiet", "json", "cores", "shards")
"""Options that may differ, as they change nothing that processes do together."""


def _shared_options(options: argparse.Namespace) -> dict[str, Any]:
    """What all processes must have been told alike: else one would wait for ever for the rest."""
    kept = {name: value for name, value in vars(options).items() if name not in OF_EACH}
    return {name: str(kept[name]) for name in sorted(kept)}


def _lost(options: argparse.Namespace, error: str) -> str:
    from jaxseq.parallel import LOST

    kept = ""
    if options.checkpoint is not None and os.path.exists(options.checkpoint):
        kept = f"; the search up to its last checkpoint is in {options.checkpoint}"
    reason = " ".join(error.split())
    return f"{LOST}{kept} ({reason:.200})"


def _leave(index: int, status: int, message: str) -> NoReturn:
    """End this process without waiting for any other."""
    line = " ".join(message.split("\n"))
    print(f"jaxseq: error: process {index}: {line}", file=sys.stderr, flush=True)
    if index == 0:
        time.sleep(FAREWELL_SECONDS)
    os._exit(status)


def read_training(
    files: Sequence[str], options: argparse.Namespace, peers: Peers | None
) -> tuple[Corpus, np.ndarray | None]:
    """The labelled sentences of this process, and their places in the whole corpus.

    With as many files as processes or more, each reads its own; with fewer, every Nth sentence of
    all. One process reads everything, and needs no places.
    """
    if peers is None or peers.count == 1:
        return _joined(_read_each(files, options)), None
    with peers.guard():
        if len(files) >= peers.count:
            own = _read_each(files[peers.index :: peers.count], options)
            corpus, numbers = _joined(own), _numbers_of_files(own, len(files), peers)
        else:
            corpus = _joined(_read_each(files, options, peers))
            count = len(corpus.sentences)
            numbers = peers.index + peers.count * np.arange(count, dtype=np.int64)
        peers.check_same(f"{', '.join(files)}: columns", list(corpus.names))
    return corpus, numbers


def _read_each(
    files: Sequence[str], options: argparse.Namespace, peers: Peers | None = None
) -> list[Corpus]:
    """The sentences of every file; with processes, those that are this one's turn."""
    found: list[Corpus] = []
    before = 0
    for path in files:
        part = None if peers is None else ((peers.index - before) % peers.count, peers.count)
        like = found[0].names if found else None
        corpus = read_corpus(path, options, scheme=options.scheme, like=like, part=part)
        found.append(corpus)
        before += corpus.whole
    return found


def _joined(corpora: list[Corpus]) -> Corpus:
    if len(corpora) == 1:
        return corpora[0]
    first = corpora[0]
    sentences = [sentence for corpus in corpora for sentence in corpus.sentences]
    labels = [each for corpus in corpora for each in corpus.labels]
    return Corpus(first.path, sentences, labels, first.names)


def _numbers_of_files(own: list[Corpus], files: int, peers: Peers) -> np.ndarray:
    """Places of the sentences of files that were dealt out by turns."""
    lengths = np.zeros(files, np.int64)
    lengths[peers.index :: peers.count] = [len(corpus.sentences) for corpus in own]
    starts = np.cumsum(peers.sum(lengths))
    starts = np.concatenate([np.zeros(1, np.int64), starts])[peers.index : files : peers.count]
    parts = [start + np.arange(len(c.sentences)) for start, c in zip(starts.tolist(), own)]
    return np.concatenate(parts).astype(np.int64)


def on_all_devices(
    options: argparse.Namespace, peers: Peers | None, numbers: np.ndarray | None
) -> dict[str, Any]:
    """What `fit` is to be told of a run of several processes."""
    if peers is None or peers.count == 1:
        return {}
    from jaxseq.parallel import make_mesh

    return {"mesh": make_mesh(), "sentence_numbers": numbers}


# -------------------------------------------------------------------------------------------------
# The templates that the user names: a file, or those of a paper.


BUILT_IN = {
    "conll2000": CONLL2000,
    "conll2003": CONLL2003,
    "gene": GENE_MENTION,
    "token": TOKEN_IDENTITY,
}
"""Names that need no file; a file of such a name is reached as ``./name``."""
BY_COLUMNS = ("conll2003", "conll2000", "gene", "token")
"""What stands for templates that are not named: the first whose columns are there."""


def usual_templates(columns: Names) -> str:
    """The name of built-in templates that make the most of the columns, without the label.

    Example:
        >>> usual_templates(("word", "pos"))
        'conll2000'
    """
    fits = (name for name in BY_COLUMNS if set(BUILT_IN[name].columns) <= set(columns))
    return next(fits, BY_COLUMNS[-1])


def choose_templates(name: str, columns: Names, place: str) -> Templates:
    """The templates called so, or those in the file of that name.

    Args:
        name: a built-in name, or a path.
        columns: of the training data, without the label; a CRF++ file counts them from 0.
        place: the training data, for messages.

    Raises:
        ValueError: for a name that is neither, a line that is no template, and a column that
            the data do not have.
    """
    if name in BUILT_IN:
        templates = BUILT_IN[name]
    else:
        if not os.path.exists(name):
            raise ValueError(
                f"--templates: expected a file or one of {', '.join(BUILT_IN)}, got {name!r}"
            )
        require_file(name)
        templates = read_templates(name, [column or "-" for column in columns])
    there = [column for column in columns if column is not None]
    require_columns(templates.columns, there, f"the template set {name}", place)
    return templates


# -------------------------------------------------------------------------------------------------
# The weight of the entropy that cross-validation chooses, kept until the training is over.


if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger, EntropyWeights
    from jaxseq.taggers import Notes

FOLDS = 5
SCORES, CHOICE = ".cross-validation", ".entropy-weight"
"""What the names of the files that are kept end with, after that of ``--checkpoint``."""


@dataclass(frozen=True)
class EntropyChoice:
    """What cross-validation found.

    Args:
        found: the scores. scoring: by what, as `jaxseq.choose_entropy_weight` calls it.
        seconds: that it took. notes: of the choice, so that it is not made again.
    """

    found: EntropyWeights
    scoring: str
    seconds: float
    notes: Notes

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {
            "scoring": self.scoring,
            "folds": FOLDS,
            "weights": list(self.found.weights),
            "means": self.found.means.tolist(),
        }

    def table(self) -> str:
        """The mean score of each weight, the best one marked."""
        by = {"span_f1": "span F1"}.get(self.scoring, self.scoring)
        lines = [f"weights   mean {by} in {FOLDS}-fold cross-validation ({self.seconds:.1f} s)"]
        for weight, mean in zip(self.found.weights, self.found.means):
            mark = " *" if weight == self.found.best else ""
            lines.append(f"          {weight:<6g}  {mean:.4f}{mark}")
        return "\n".join(lines)


def checkpoint_files(checkpoint: str) -> tuple[str, ...]:
    """All files that may be kept under the name of a checkpoint.

    Example:
        >>> checkpoint_files("kept")
        ('kept', 'kept.cross-validation', 'kept.entropy-weight')
    """
    return checkpoint, checkpoint + SCORES, checkpoint + CHOICE


def check_choosable(train: Corpus) -> None:
    """ValueError for a corpus that cannot be cross-validated on."""
    train.known_labels()
    if len(train.sentences) < FOLDS:
        raise ValueError(
            f"{train.path}: expected at least {FOLDS} sentences to choose the weight of the "
            f"entropy on, found {len(train.sentences)}"
        )


def choose_weight(
    tagger: CRFTagger, train: Corpus, others: list[Sentence], options: argparse.Namespace
) -> EntropyChoice:
    """Cross-validate, or go on with that, or remember what it found when it was over.

    Args:
        tagger: the settings. train: a corpus that passes `check_choosable`.
        others: the unlabelled sentences.
        options: of the command line.
    """
    from jaxseq.crf import EntropyWeights, choose_entropy_weight, usual_scoring
    from jaxseq.taggers import Notes, settings_of

    began = time.perf_counter()
    scoring = usual_scoring(
        label for labels in train.labels for label in labels if label is not None
    )
    _, scores, choice = checkpoint_files(options.checkpoint or "")
    vocabulary = options.vocabulary or "all"
    job = (settings_of(tagger), scoring, FOLDS, vocabulary, train.sentences, train.labels, others)
    notes = Notes(options.checkpoint and choice, job)
    kept = notes.load()
    if kept is not None:
        found = EntropyWeights(tuple(kept["weights"]), np.array(kept["scores"]))
    else:
        found = choose_entropy_weight(
            tagger,
            train.sentences,
            train.labels,
            unlabelled=others,
            folds=FOLDS,
            scoring=scoring,
            seed=options.seed,
            entropy_gradient=options.entropy_gradient or "mann",
            vocabulary=vocabulary,
            progress=tagger.progress,
            checkpoint=options.checkpoint and scores,
        )
        notes.save({"weights": list(found.weights), "scores": found.scores.tolist()})
    return EntropyChoice(found, scoring, time.perf_counter() - began, notes)


# -------------------------------------------------------------------------------------------------
# The ways of training: labelled sentences alone, with the entropy of others, self-training.


if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger


@dataclass(frozen=True)
class Trained:
    """A trained tagger.

    Args:
        tagger: the tagger.
        interrupted: what was done before Ctrl-C, in words; None without one.
        unlabelled: what to report of the unlabelled sentences; None where there are none.
        seconds: of more than the tagger's own training.
    """

    tagger: CRFTagger
    interrupted: str | None = None
    unlabelled: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def train_with(
    tagger: CRFTagger,
    train: Corpus,
    others: list[Sentence] | None,
    older: CRFTagger | None,
    options: argparse.Namespace,
    together: dict[str, Any] | None = None,
) -> Trained:
    """Train in the way that the options ask for.

    Args:
        tagger: the settings; except in self-training, it is the one that is trained.
        train: the labelled sentences. others: the unlabelled ones, or None.
        older: a tagger to begin with, or None.
        options: of the command line.
        together: arguments of `CRFTagger.fit` for a run of several processes.

    Raises:
        KeyboardInterrupt: when nothing was learnt yet.
    """
    if others is None:
        tagger.fit(train.sentences, train.labels, warm_start_from=older, **(together or {}))
        return Trained(tagger, iterations_before_interrupt(tagger))
    if options.self_training:
        return _train_on_own_labels(tagger, train, others, options)
    return _train_with_entropy(tagger, train, others, older, options, together or {})


def _train_with_entropy(
    tagger: CRFTagger,
    train: Corpus,
    others: list[Sentence],
    older: CRFTagger | None,
    options: argparse.Namespace,
    together: dict[str, Any],
) -> Trained:
    weight = 1.0 if options.entropy_weight is None else options.entropy_weight
    choice = None
    if options.choose_entropy_weight:
        choice = choose_weight(tagger, train, others, options)
        weight = choice.found.best
        if not (options.quiet or options.json):
            print(choice.table(), flush=True)  # before the training, which may take long
    report = {
        "method": "entropy",
        "entropy_weight": weight,
        "entropy_gradient": options.entropy_gradient or "mann",
        "vocabulary": options.vocabulary or "all",
    }
    tagger.fit(
        train.sentences,
        train.labels,
        unlabelled=others,
        warm_start_from=older,
        **{name: report[name] for name in ("entropy_weight", "entropy_gradient", "vocabulary")},
        **together,
    )
    interrupted = iterations_before_interrupt(tagger)
    if choice is None:
        return Trained(tagger, interrupted, _counted(others, report))
    if interrupted is None:
        choice.notes.remove()
    report["cross_validation"] = choice.as_dict()
    seconds = {"cross_validation": choice.seconds}
    return Trained(tagger, interrupted, _counted(others, report), seconds)


def _train_on_own_labels(
    tagger: CRFTagger, train: Corpus, others: list[Sentence], options: argparse.Namespace
) -> Trained:
    from jaxseq.taggers import SelfTraining

    began = time.perf_counter()
    trained = SelfTraining(
        tagger,
        confidence=options.confidence,
        confidence_of=options.confidence_of or "sentence",
        progress=tagger.progress,
        checkpoint=options.checkpoint,
    ).fit(train.sentences, train.labels, unlabelled=others)
    last: CRFTagger = trained.tagger_
    interrupted = None
    if trained.outcome_ is Outcome.INTERRUPTED:
        rounds = f"{trained.rounds_} rounds of self-training"
        interrupted = iterations_before_interrupt(last) or rounds
    report = {
        "method": "self-training",
        "confidence": trained.confidence,
        "confidence_of": trained.confidence_of,
        "rounds": trained.rounds_,
        "history": trained.history_,
        "outcome": trained.outcome_,
    }
    seconds = {"self_training": time.perf_counter() - began}
    return Trained(last, interrupted, _counted(others, report), seconds)


def _counted(others: list[Sentence], report: dict[str, Any]) -> dict[str, Any]:
    return {"sentences": len(others), "tokens": sum(map(len, others)), **report}


def iterations_before_interrupt(tagger: CRFTagger) -> str | None:
    """In words; None where there was no Ctrl-C."""
    if tagger.outcome_ is not Outcome.INTERRUPTED:
        return None
    if not tagger.n_iter_:
        raise KeyboardInterrupt  # a model that has learnt nothing is not worth keeping
    return f"{tagger.n_iter_} iterations"


# -------------------------------------------------------------------------------------------------
# Unlabelled sentences to learn from: the options that are about them, and their file.


OUTSIDE = "O"

UNLABELLED_OPTIONS = (
    "entropy_weight",
    "entropy_gradient",
    "vocabulary",
    "self_training",
    "confidence",
    "confidence_of",
    "choose_entropy_weight",
)
"""Options that need unlabelled sentences; none of them is set unless the user gives it."""

UNLABELLED_EXCLUDED = {
    "self_training": (
        "entropy_weight",
        "entropy_gradient",
        "vocabulary",
        "choose_entropy_weight",
        "warm_start",
    ),
    "choose_entropy_weight": ("entropy_weight",),
}
"""Option → those that make no sense along with it."""


def add_unlabelled_options(parser: argparse.ArgumentParser) -> None:
    """Add the group of options about unlabelled sentences."""
    group = parser.add_argument_group(
        "unlabelled sentences",
        "Learn from sentences without labels, too: the model is to be sure of them (entropy "
        "regularisation), or is trained on the labels that it gives them (self-training).",
    )
    add = group.add_argument
    add(
        "--unlabelled",
        nargs="+",
        metavar="FILE",
        help="one file or several: sentences in the format of --train, whose labels are ignored; "
        "columns may also lack the label, or be words alone (- is standard input)",
    )
    add(
        "--entropy-weight",
        type=parse_entropy_weight,
        metavar="X",
        help="how much the entropy of an unlabelled sentence counts, 0 or more (1)",
    )
    add(
        "--entropy-gradient",
        choices=("mann", "jiao", "autodiff"),
        help="how its gradient is worked out; all give the same model (mann)",
    )
    add(
        "--vocabulary",
        choices=("all", "labelled"),
        help="the sentences that attributes are taken from (all)",
    )
    add(
        "--choose-entropy-weight",
        action="store_true",
        default=None,
        help="take the best of 0, 0.1, 0.5, 1, 5, 10 in 5-fold cross-validation on --train: by "
        "span F1 if the labels are of a chunk scheme, by accuracy if not",
    )
    add(
        "--self-training",
        action="store_true",
        default=None,
        help="in place of the entropy: train, label, train on everything, until no label changes",
    )
    add(
        "--confidence",
        type=parse_probability,
        metavar="P",
        help="of self-training: learn only from labels at least so probable (from all)",
    )
    add(
        "--confidence-of",
        choices=("sentence", "token"),
        help="what has to be so probable (sentence)",
    )


def parse_entropy_weight(text: str) -> float:
    """A finite number, 0 or more, as an argument.

    Example:
        >>> parse_entropy_weight("0.5")
        0.5
    """
    return _number(text, math.inf, "a finite number, 0 or more")


def parse_probability(text: str) -> float:
    """A number from 0 to 1, as an argument.

    Example:
        >>> parse_probability("0.9")
        0.9
    """
    return _number(text, 1.0, "a probability, 0 to 1")


def _number(text: str, most: float, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= most and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
    return value


def check_unlabelled_options(options: argparse.Namespace) -> None:
    """ValueError for options that do not go together."""
    given = {
        name for name in (*UNLABELLED_OPTIONS, "warm_start") if getattr(options, name) is not None
    }
    for name in UNLABELLED_OPTIONS:
        if name in given and options.unlabelled is None:
            raise ValueError(f"{_flag(name)}: expected along with --unlabelled FILE only")
    for name, others in UNLABELLED_EXCLUDED.items():
        for other in others:
            if {name, other} <= given:
                raise ValueError(f"{_flag(name)}: expected no {_flag(other)} along with it")
    for name, needed in (("confidence", "self_training"), ("confidence_of", "confidence")):
        if name in given and needed not in given:
            raise ValueError(f"{_flag(name)}: expected along with {_flag(needed)} only")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --------------------------------------------------------------------------------------- file


class _Dealt:
    """Sentences that come one by one, of which every `step`-th from the `first` on is kept."""

    def __init__(self, part: Part):
        self._first, self._step = part
        self.seen = 0
        self.kept: list[Sentence] = []

    def take(self, make: Callable[[], Sentence]) -> None:
        """One more, which is made only if it is kept."""
        if self.seen % self._step == self._first:
            self.kept.append(make())
        self.seen += 1


def read_unlabelled(
    options: argparse.Namespace, train: Corpus, needed: Sequence[str], part: Part = (0, 1)
) -> list[Sentence]:
    """The sentences of ``--unlabelled``, without labels.

    Args:
        options: those of `add_unlabelled_options` and `add_corpus_options`.
        train: the labelled corpus, whose columns these are.
        needed: the columns that the templates read.
        part: which of all files' sentences to keep; the others are not held.

    Returns:
        The sentences; every file has at least one.
    """
    dealt = _Dealt(part)
    for path in options.unlabelled:
        before = dealt.seen
        _read_columns(path, options, train, needed, dealt)
        if dealt.seen == before:
            raise ValueError(f"{shown(path)}: expected at least one sentence, found none")
    return dealt.kept


def _read_columns(
    path: str, options: argparse.Namespace, train: Corpus, needed: Sequence[str], dealt: _Dealt
) -> None:
    if path != STANDARD:
        require_file(path)
    names: Names = ()
    doubt = None
    for block in iter_blocks(path, options.delimiter):
        if block.is_docstart:
            continue
        if not names:
            place = f"{shown(path)}:{block.first}"
            names = names_without_label(block.width, train.names, place)
            there = [name for name in names if name is not None]
            chosen = options.templates
            reader = "the model" if chosen is None else f"the template set {chosen}"
            require_columns(needed, there, reader, place)
            if options.columns is None:
                doubt = _Doubt(names, train, needed, place)
        if doubt is not None:
            doubt.look_at(block)
        dealt.take(partial(_sentence, block, names))
    if doubt is not None:
        doubt.resolve()


def _sentence(block: Block, names: Names) -> Sentence:
    """One string for all its occurrences: there may be millions of tokens."""
    named = ((i, name) for i, name in enumerate(names) if name is not None)
    return Sentence.from_cells({name: tuple(map(sys.intern, block.column(i))) for i, name in named})


def names_without_label(width: int, names: Names, place: str) -> Names:
    """Names of the columns of an unlabelled file; None for one that is left out, as a label is.

    Args:
        width: how many columns the file has.
        names: of the columns of the labelled file, that of the label last.
        place: the file and the line, for messages.

    Example:
        >>> names_without_label(3, ("word", "pos", "label"), "more.txt:1")
        ('word', 'pos', None)
        >>> names_without_label(2, ("word", "pos", "label"), "more.txt:1")
        ('word', 'pos')
        >>> names_without_label(1, ("word", "pos", "label"), "more.txt:1")
        ('word',)
    """
    *features, label = names
    if width == len(names):
        return (*features, None)
    if width == len(features):
        return tuple(features)
    if width == 1:
        return tuple(name for name in features if name is not None)[:1]
    listed = ", ".join(name or "-" for name in features)
    raise ValueError(
        f"{place}: expected the columns of the labelled sentences ({listed}, {label}), with or "
        f"without the last, or words alone; found {width} columns"
    )


class _Doubt:
    """Whether a column that the templates read holds labels instead.

    Words and labels are as many columns as words and parts of speech. The O alone proves nothing.

    Args:
        names: of the file's columns. train: the labelled corpus. needed: what templates read.
        place: the file and the line, for messages.
    """

    def __init__(self, names: Names, train: Corpus, needed: Sequence[str], place: str):
        self._name = names[-1] if len(names) > 1 else None
        self._column, self._place = len(names) - 1, place
        self._labels = {label for labels in train.labels for label in labels}
        self._open = self._name is not None and self._name in needed
        self._cells: dict[str, None] = {}

    def look_at(self, block: Block) -> None:
        """A cell that is no label ends the doubt."""
        if self._open:
            self._cells.update(dict.fromkeys(block.column(self._column)))
            self._open = self._cells.keys() <= self._labels

    def resolve(self) -> None:
        """ValueError when all were labels."""
        if self._open and self._cells.keys() != {OUTSIDE}:
            raise ValueError(
                f"{self._place}: expected the column {self._name!r} in the place of column "
                f"{self._column + 1}, found labels such as {next(iter(self._cells))!r} (--columns "
                "says what the columns are)"
            )


# -------------------------------------------------------------------------------------------------
# ``jaxseq train --model hmm``: its options, its training and its report.


if TYPE_CHECKING:
    from jaxseq.hmm import HMMTagger

WITH_UNLABELLED = ("em_weight", "freeze")
HMM_OPTIONS = (
    "column",
    "unknown_below",
    "initial_smoothing",
    "transition_smoothing",
    "emission_smoothing",
    "em",
    "decoding",
    "classes",
    *WITH_UNLABELLED,
)
"""Of hidden Markov models alone; none of them is set unless the user gives it."""

OF_A_CRF = (
    "templates",
    "l1",
    "l2",
    "weights",
    "cutoff",
    "scheme",
    "algorithm",
    "seed",
    "epochs",
    "batch_size",
    "learning_rate",
    "warm_start",
    "entropy_weight",
    "entropy_gradient",
    "choose_entropy_weight",
)
"""Options that a hidden Markov model has no use for."""

FAMILIES = ("initial", "transition", "emission")


def add_model_options(parser: argparse.ArgumentParser, templates: argparse.Action) -> None:
    """Add ``--model`` and the group of options about hidden Markov models.

    Args:
        parser: of ``jaxseq train``.
        templates: what reads ``--templates``; only a CRF needs them.
    """

    class Choose(argparse.Action):
        """Which arguments are missing is looked at when all have been read."""

        def __call__(self, parser, namespace, values, option_string=None):
            setattr(namespace, self.dest, values)
            templates.required = values == "crf"

    parser.add_argument(
        "--model",
        action=Choose,
        choices=("crf", "hmm"),
        default="crf",
        help="conditional random field, or hidden Markov model, which reads one column and has no "
        "templates (crf)",
    )
    group = parser.add_argument_group(
        "hidden Markov models",
        "Relative frequencies of the labelled sentences; with --unlabelled, EM from there.",
    )
    _add_hmm_options(group.add_argument)


def _add_hmm_options(add: Any) -> None:
    add("--column", metavar="NAME", help="that the model is of (word)")
    add(
        "--unknown-below",
        type=int,
        metavar="N",
        help="words seen fewer times are one unknown word (5)",
    )
    for name, usual in zip(FAMILIES, ("0.2", "0.2", "0.05")):
        what = {"initial": "first label", "transition": "transition", "emission": "word"}[name]
        add(
            f"--{name}-smoothing",
            type=float,
            metavar="X",
            help=f"added to the count of every {what} ({usual})",
        )
    add("--em", choices=("soft", "hard"), help="count all labellings, or the best (soft)")
    add(
        "--em-weight",
        type=parse_probability,
        metavar="X",
        help="of the unlabelled sentences, 0 to 1 (their share of all sentences)",
    )
    add(
        "--freeze",
        type=parse_families,
        metavar="FAMILIES",
        help=f"what EM leaves as it is: some of {', '.join(FAMILIES)}, separated by commas",
    )
    add(
        "--classes",
        type=parse_labels,
        metavar="LABELS",
        help="all labels, separated by commas, where the labelled sentences may lack some",
    )
    add(
        "--decoding",
        choices=("viterbi", "max_marginal"),
        help="predict the best labelling, or the best label of each token (viterbi)",
    )


def parse_labels(text: str) -> tuple[str, ...]:
    """Labels separated by commas, as an argument.

    Example:
        >>> parse_labels("author, title")
        ('author', 'title')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected labels separated by commas, got {text!r}")
    return names


def parse_families(text: str) -> tuple[str, ...]:
    """Names of families separated by commas, as an argument.

    Example:
        >>> parse_families("initial,transition")
        ('initial', 'transition')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(FAMILIES) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(FAMILIES)}, separated by commas, got {text!r}"
        )
    return names


def check_model_options(options: argparse.Namespace, usual: dict[str, Any]) -> None:
    """ValueError for options of the other kind of model, or that do not go together.

    Args:
        options: of the command line.
        usual: the values of the options of a CRF that the user has not given.
    """
    given = [name for name in HMM_OPTIONS if getattr(options, name) is not None]
    if options.model == "crf":
        if given:
            raise ValueError(f"{_flag(given[0])}: expected with --model hmm only")
        return
    for name in OF_A_CRF:
        if getattr(options, name) != usual[name]:
            raise ValueError(f"{_flag(name)}: expected with --model crf only")
    for name in WITH_UNLABELLED:
        if name in given and options.unlabelled is None:
            raise ValueError(f"{_flag(name)}: expected along with --unlabelled FILE only")
        if name in given and options.self_training:
            raise ValueError(f"--self-training: expected no {_flag(name)} along with it")


def untrained_hmm(options: argparse.Namespace, train: Corpus) -> HMMTagger:
    """The tagger that the options describe; ValueError when its column is not in the corpus."""
    from jaxseq.hmm import HMMTagger

    named = {"em_weight": "weight", "freeze": "frozen"}
    given = {named.get(name, name): getattr(options, name) for name in (*HMM_OPTIONS, "vocabulary")}
    tagger = HMMTagger(
        max_iterations=options.max_iterations,
        cores=options.cores,
        progress=False if options.quiet else None,
        checkpoint=options.checkpoint,
        **{name: value for name, value in given.items() if value is not None},
    )
    there = [name for name in train.names[:-1] if name is not None]
    require_columns([tagger.column], there, "the model", options.train)
    return tagger


def train_hmm(
    tagger: HMMTagger,
    train: Corpus,
    others: list[Sentence] | None,
    options: argparse.Namespace,
    together: dict[str, Any],
) -> Trained:
    """Train in the way that the options ask for; self-training raises KeyboardInterrupt when no
    round was complete yet.

    Args:
        tagger: the settings. train, others: labelled and unlabelled sentences.
        options: of the command line. together: what `fit` is told of a run of several processes.
    """
    if options.self_training:
        return train_with(cast(Any, tagger), train, others, None, options)
    tagger.fit(train.sentences, train.labels, unlabelled=others, **together)
    interrupted = None
    if tagger.outcome_ is Outcome.INTERRUPTED:
        interrupted = f"{tagger.n_iter_} iterations"
    report = None
    if others is not None:
        report = {
            "sentences": len(others),
            "tokens": sum(map(len, others)),
            "method": "em",
            "em": tagger.em,
            "em_weight": tagger.weight,
            "frozen": list(tagger.frozen),
            "vocabulary": tagger.vocabulary,
            "log_likelihood": tagger.log_likelihood_,
        }
    return Trained(cast(Any, tagger), interrupted, report)


def line_on_em(report: dict[str, Any]) -> str:
    """How unlabelled sentences were learnt from, for the report."""
    weight = "their share" if report["em_weight"] is None else f"{report['em_weight']:g}"
    frozen = ", ".join(report["frozen"]) or "nothing"
    return f"EM        {report['em']}, weight {weight}, frozen {frozen}"


# -------------------------------------------------------------------------------------------------
# ``jaxseq train --codl``: constraint-driven learning, its options and its report.


if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile
    from jaxseq.parallel import Peers

CODL_OPTIONS = ("constraints", "top_k", "keep", "cycles", "pool", "labelling_weights", "beam")
"""Options of constraint-driven learning; none of them is set unless the user gives it."""

CODL_EXCLUDED = (
    "self_training",
    "entropy_weight",
    "entropy_gradient",
    "choose_entropy_weight",
    "vocabulary",
    "warm_start",
    "em",
    "em_weight",
    "freeze",
)
"""Options that make no sense along with it."""

LABELLINGS = 50


def add_codl_options(parser: argparse.ArgumentParser) -> None:
    """Add the group of options about constraint-driven learning."""
    group = parser.add_argument_group(
        "constraint-driven learning",
        "Label the unlabelled sentences under constraints, learn from that, and again.",
    )
    add = group.add_argument
    add(
        "--codl",
        action="store_true",
        default=None,
        help="learn so from --unlabelled, in place of the entropy or EM",
    )
    add_constraint_options(add)
    add(
        "--top-k",
        type=parse_count,
        metavar="K",
        help=f"labellings of each sentence to learn from ({LABELLINGS})",
    )
    add(
        "--labelling-weights",
        choices=("uniform", "score"),
        help="what each of them counts: the same, or by its score (uniform)",
    )
    add(
        "--keep",
        type=parse_probability,
        metavar="G",
        help="share of the supervised model in each new one (0.1)",
    )
    add(
        "--pool",
        action="store_true",
        default=None,
        help="instead, learn from labelled sentences and labellings together",
    )
    add("--cycles", type=parse_count, metavar="N", help="at most so many (5)")


def check_codl_options(options: argparse.Namespace) -> None:
    """ValueError for options that do not go together."""
    given = [name for name in CODL_OPTIONS if getattr(options, name) is not None]
    if options.codl is None:
        if given:
            raise ValueError(f"{_flag(given[0])}: expected along with --codl only")
        return
    if options.unlabelled is None:
        raise ValueError("--codl: expected along with --unlabelled FILE only")
    of_an_hmm = ("vocabulary",) if options.model == "hmm" and not options.pool else ()
    for name in CODL_EXCLUDED:
        if name not in of_an_hmm and getattr(options, name) is not None:
            raise ValueError(f"--codl: expected no {_flag(name)} along with it")
    if options.pool and options.keep is not None:
        raise ValueError("--pool: expected no --keep along with it")
    check_constraint_options(options, options.top_k or LABELLINGS)


def rules_to_train_under(
    options: argparse.Namespace, train: Corpus, peers: Peers | None
) -> ConstraintFile | None:
    """The constraints of the file, for the labels of the corpus in all processes; None for no
    file."""
    if options.constraints is None:
        return None
    labels = {label for labels in train.labels for label in labels if label is not None}
    if peers is not None:
        labels = labels.union(*peers.exchange(sorted(labels)))
    rules = read_rules(options.constraints, sorted(labels))
    there = [name for name in train.names[:-1] if name is not None]
    require_columns(columns_of_rules(rules), there, options.constraints, train.path)
    return rules


def train_codl(
    tagger: Any,
    train: Corpus,
    others: list[Sentence],
    rules: ConstraintFile | None,
    options: argparse.Namespace,
    peers: Peers | None,
    together: dict[str, Any],
) -> Trained:
    """Train by constraint-driven learning.

    Args:
        tagger: the settings. train, others: labelled and unlabelled sentences.
        rules: the constraints, or None. options: of the command line.
        peers: all processes, or None. together: what `fit` is told of them.

    Raises:
        KeyboardInterrupt: when nothing was learnt yet.
    """
    from jaxseq.constraints import CoDL, ConstraintWarning

    began = time.perf_counter()
    learner: Any = CoDL(
        tagger,
        () if rules is None else rules,
        k=options.top_k or LABELLINGS,
        width=options.beam,
        weights=options.labelling_weights or "uniform",
        keep=0.1 if options.keep is None else options.keep,
        cycles=options.cycles or 5,
        pool=bool(options.pool),
        progress=tagger.progress,
        checkpoint=options.checkpoint,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstraintWarning)
        learner.fit(train.sentences, train.labels, unlabelled=others, **together)
    interrupted = None
    if learner.outcome_ is Outcome.INTERRUPTED:
        cycles = f"{len(learner.history_)} cycles of constraint-driven learning"
        interrupted = iterations_before_interrupt(learner.tagger_) or cycles
    sentences = sum([len(others)] if peers is None else peers.exchange(len(others)))
    if peers is None or peers.is_first:
        _say_unmet(learner.history_, sentences)
    seconds = {"codl": time.perf_counter() - began}
    return Trained(learner.tagger_, interrupted, _report_codl(learner, others), seconds)


def _report_codl(learner: Any, others: list[Sentence]) -> dict[str, Any]:
    return {
        "sentences": len(others),
        "tokens": sum(map(len, others)),
        "method": "codl",
        "constraints": list(learner.constraints_.names),
        "top_k": learner.k,
        "labelling_weights": learner.weights,
        "keep": None if learner.pool else learner.keep,
        "pool": learner.pool,
        "cycles": len(learner.history_),
        "history": learner.history_,
        "outcome": learner.outcome_,
    }


def _say_unmet(history: list[dict[str, Any]], sentences: int) -> None:
    unmet = history[-1]["unmet"] if history else 0
    if unmet:
        print(
            "jaxseq: warning: no labelling that satisfies all hard constraints was found for "
            f"{unmet} of {sentences} unlabelled sentences; they get the fewest violations",
            file=sys.stderr,
        )


def lines_on_codl(report: dict[str, Any], seconds: float) -> list[str]:
    """How unlabelled sentences were learnt from, for the report."""
    how = "pooled" if report["pool"] else f"{report['keep']:g} kept"
    chosen = f"top {report['top_k']}, weights {report['labelling_weights']}, {how}"
    lines = [
        f"CoDL      {len(report['constraints'])} constraints, {chosen}",
        f"cycles    {report['cycles']} ({seconds:.1f} s)",
        f"          {report['outcome']}",
    ]
    if report["history"] and report["constraints"]:
        lines.append("violated  in the last cycle, share of sentences")
        violated = report["history"][-1]["violated"]
        lines += [f"          {share:7.2%}  {name}" for name, share in violated.items()]
    return lines


# -------------------------------------------------------------------------------------------------
# ``jaxseq train --shards``: training from a folder of ``jaxseq shard``, larger than memory.


if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger
    from jaxseq.parallel import Peers

AT_ONCE = ("unlabelled", "warm_start")
"""Options of trainings that hold the corpus."""
DECIDED = ("cutoff",)
"""Options that were decided when the shards were written."""


def add_shards_option(parser: argparse.ArgumentParser, needless: Sequence[argparse.Action]) -> None:
    """Add ``--shards`` and ``--streams``.

    Args:
        parser: of ``jaxseq train``.
        needless: options that are needed without shards, and not with them.
    """

    class Instead(argparse.Action):
        def __call__(self, _parser: Any, namespace: Any, values: Any, _name: Any = None) -> None:
            namespace.shards = values
            for option in needless:
                option.required = False

    parser.add_argument(
        "--shards",
        action=Instead,
        metavar="DIR",
        help="instead of --train and --templates: a folder of jaxseq shard, of which one part at a "
        "time is in memory; with --algorithm adamw or sgd",
    )
    parser.add_argument(
        "--streams",
        type=int,
        metavar="N",
        help="with --shards: parts that every batch has sentences of (1). With as many as "
        "processes, each process reads and needs files of its own only; with fewer, they share "
        "the sentences of a file",
    )


def check_shards_alone(options: argparse.Namespace) -> None:
    """ValueError for options that do not go with shards."""
    if options.train is not None:
        raise ValueError("--shards: expected alone, got --train too")
    if options.templates is not None:
        raise ValueError("--templates: expected nothing along with --shards, which have features")
    if options.model != "crf":
        raise ValueError(f"--model: expected crf along with --shards, got {options.model}")
    for name in AT_ONCE:
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: expected nothing along with --shards")
    for name in DECIDED:
        if getattr(options, name) != options.usual[name]:
            raise ValueError(f"--{name}: expected with jaxseq shard, not along with --shards")
    check_model_options(options, options.usual)
    check_unlabelled_options(options)
    check_codl_options(options)
    if options.algorithm == "lbfgs":
        raise ValueError(
            "--algorithm: expected adamw or sgd along with --shards, as L-BFGS needs the whole "
            "corpus at once"
        )


def train_on_shards(
    options: argparse.Namespace,
    untrained: Callable[[Any, argparse.Namespace], CRFTagger],
    peers: Peers | None,
) -> tuple[CRFTagger, dict[str, int]]:
    """Train as the options say; the tagger, and the sentences and tokens that it has seen.

    Args:
        options: of ``jaxseq train``.
        untrained: templates and options → the tagger that they describe.
        peers: the processes of this run, if it is one of several.
    """
    from jaxseq.parallel import make_mesh
    from jaxseq.shards import read_index, train_from_shards

    several = peers is not None and peers.count > 1
    tagger = train_from_shards(
        options.shards,
        untrained(None, options),
        streams=1 if options.streams is None else options.streams,
        mesh=make_mesh() if several else None,
    )
    index = read_index(Path(options.shards))
    return tagger, {"sentences": index.sentences, "tokens": index.tokens}


if TYPE_CHECKING:
    import numpy as np

    from jaxseq.crf import CRFTagger
    from jaxseq.hmm import HMMTagger
    from jaxseq.parallel import Peers


def add_train(subparsers: Any) -> None:
    """Add the parser of ``jaxseq train``."""
    parser = subparsers.add_parser(
        "train",
        help="train a CRF, or an HMM, on a labelled corpus",
        description="Train a CRF, or an HMM, on a labelled corpus and save it. Ctrl-C keeps the "
        "best model so far.",
    )
    add = parser.add_argument
    train = add(
        "--train",
        required=True,
        nargs="+",
        metavar="FILE",
        help="the corpus, in one file or several; the last column is the label",
    )
    add("--dev", metavar="FILE", help="another, to evaluate the model on")
    templates = add(
        "--templates",
        required=True,
        metavar="T",
        help=f"a file of templates, jaxseq's or CRF++'s, or one of {', '.join(BUILT_IN)}",
    )
    add("--out", required=True, metavar="DIR", help="where to save the model")
    add_shards_option(parser, (train, templates))
    add_model_options(parser, templates)
    add_corpus_options(parser)
    search = parser.add_argument_group("search")
    _add_search_options(search.add_argument)
    add_unlabelled_options(parser)
    add_codl_options(parser)
    add_process_options(parser)
    add("--quiet", action="store_true", help="no progress bar and no report")
    add("--json", action="store_true", help="report as one JSON object")
    usual = {name: parser.get_default(name) for name in OF_A_CRF}
    parser.set_defaults(run=_run, usual=usual)


def _add_search_options(add: Any) -> None:
    add_model_settings(add, "of L-BFGS or EM")
    add("--algorithm", choices=("lbfgs", "adamw", "sgd"), default="lbfgs", help="(lbfgs)")
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the order of mini-batches, and of folds (0)",
    )
    add("--epochs", type=int, default=20, metavar="N", help="of adamw and sgd (20)")
    add("--batch-size", type=int, default=64, metavar="N", help="sentences, adamw and sgd (64)")
    add("--learning-rate", type=float, metavar="X", help="of adamw and sgd")
    add(
        "--checkpoint",
        metavar="FILE",
        help="keep the unfinished search here, and go on from it; self-training and CoDL keep "
        "their labels here instead, --choose-entropy-weight its scores and its choice beside it, "
        "in FILE.cross-validation and FILE.entropy-weight",
    )
    add("--warm-start", metavar="DIR", help="begin with the weights of this model")
    add("--cores", type=int, metavar="N", help="threads to train with (all)")


def _run(options: argparse.Namespace) -> int:
    if options.shards is not None:
        return run_in_processes(options, _train_from_shards)
    if options.streams is not None:
        raise ValueError("--streams: expected along with --shards only")
    options.files, options.train = options.train, options.train[0]
    return run_in_processes(options, _train)


def _train_from_shards(options: argparse.Namespace, peers: Peers | None) -> int:
    writes = peers is None or peers.is_first
    dev = dev_labels = None
    with contextlib.nullcontext() if peers is None else peers.guard():
        check_shards_alone(options)
        if options.checkpoint is not None:
            _check_checkpoint(options.checkpoint, options.out)
        if writes:
            require_model_place(options.out)
        if options.dev is not None and writes:
            dev = read_corpus(options.dev, options)
            dev_labels = dev.known_labels()
    tagger, counted = train_on_shards(options, _untrained_crf, peers)
    if not writes:
        return 0
    tagger.save(options.out)
    report, table = _report(Trained(tagger), counted, options.out), None
    if dev is not None and dev_labels is not None:
        scores = span_scores(dev_labels, tagger.predict(dev.sentences))
        table, report["dev"] = scores.table(), scores.as_dict()
    if not options.quiet:
        print(json.dumps(report, allow_nan=False) if options.json else _as_text(report, table))
    return 0


class _Input(NamedTuple):
    """All that is read before training; with several processes, the part of this one."""

    tagger: CRFTagger | HMMTagger
    train: Corpus
    numbers: np.ndarray | None
    others: list[Sentence] | None
    older: CRFTagger | None
    rules: Any
    dev: Corpus | None
    dev_labels: list[list[str]] | None


def _read(options: argparse.Namespace, peers: Peers | None) -> _Input:
    """Check the options, and read all files: a mistake in one is found before training."""
    from jaxseq.taggers import load

    writes = peers is None or peers.is_first
    check_model_options(options, options.usual)
    check_unlabelled_options(options)
    check_codl_options(options)
    if writes:
        require_model_place(options.out)
    if options.checkpoint is not None:
        _check_checkpoint(options.checkpoint, options.out)
    train, numbers = read_training(options.files, options, peers)
    tagger, needed = _untrained(options, train)
    rules = rules_to_train_under(options, train, peers)
    needed = tuple(dict.fromkeys([*needed, *columns_of_rules(rules)]))
    dev = dev_labels = others = None
    if options.dev is not None and writes:
        dev = read_corpus(options.dev, options, like=train.names)
        dev_labels = dev.known_labels()
    if options.choose_entropy_weight:
        check_choosable(train)
    if options.unlabelled is not None:
        part = (0, 1) if peers is None else (peers.index, peers.count)
        others = read_unlabelled(options, train, needed, part)
    older = None if options.warm_start is None else load(options.warm_start)
    return _Input(tagger, train, numbers, others, older, rules, dev, dev_labels)


def _train(options: argparse.Namespace, peers: Peers | None) -> int:
    from jaxseq.crf import CRFTagger
    from jaxseq.hmm import ImpossibleSentence

    writes = peers is None or peers.is_first
    with contextlib.nullcontext() if peers is None else peers.guard():
        tagger, train, numbers, others, older, rules, dev, dev_labels = _read(options, peers)
    together = on_all_devices(options, peers, numbers)
    if options.codl and others is not None:
        trained = train_codl(tagger, train, others, rules, options, peers, together)
    elif isinstance(tagger, CRFTagger):
        trained = train_with(tagger, train, others, older, options, together)
    else:
        trained = train_hmm(tagger, train, others, options, together)
    counted = _count(train, trained, peers)
    if not writes:
        return 0
    if trained.interrupted is not None:
        print(
            f"jaxseq: interrupted after {trained.interrupted}: the best model so far is kept",
            file=sys.stderr,
        )
    trained.tagger.save(options.out)
    report = _report(trained, counted, options.out)
    table = None
    if dev is not None and dev_labels is not None:
        predictor = trained.tagger
        if rules is not None:
            predictor = ConstrainedTagger(trained.tagger, rules, options.beam)
        try:
            scores = span_scores(dev_labels, predictor.predict(dev.sentences))
            table, report["dev"] = scores.table(), scores.as_dict()
        except ImpossibleSentence as error:  # the model is written: what it did is told still
            print(f"jaxseq: {options.dev}: not evaluated: {error}", file=sys.stderr)
    if options.quiet:
        return 0
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report, table))
    return 0


def _check_checkpoint(checkpoint: str, out: str) -> None:
    """ValueError unless a search can be kept there."""
    if os.path.isdir(checkpoint):
        raise ValueError(f"{checkpoint}: expected a file, found a folder")
    model = Path(out).resolve()
    for name in checkpoint_files(checkpoint):
        if model in (Path(name).resolve(), *Path(name).resolve().parents):
            raise ValueError(f"{name}: expected a file outside of the model's folder {out}")


def _untrained(
    options: argparse.Namespace, train: Corpus
) -> tuple[CRFTagger | HMMTagger, Sequence[str]]:
    """The tagger that the options describe, and the columns that it reads."""
    if options.model == "hmm":
        hmm = untrained_hmm(options, train)
        return hmm, (hmm.column,)
    templates = choose_templates(options.templates, train.names[:-1], options.train)
    return _untrained_crf(templates, options), templates.columns


def _untrained_crf(templates: Templates | None, options: argparse.Namespace) -> CRFTagger:
    from jaxseq.crf import CRFTagger

    return CRFTagger(
        templates,
        l1=options.l1,
        l2=options.l2,
        max_iterations=options.max_iterations,
        seed=options.seed,
        weights=options.weights,
        cutoff=options.cutoff,
        scheme=options.scheme,
        algorithm=options.algorithm,
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        cores=options.cores,
        progress=False if options.quiet else None,
        checkpoint=options.checkpoint,
    )


def _count(train: Corpus, trained: Trained, peers: Peers | None) -> dict[str, int]:
    """Sentences and tokens, those of all processes together."""
    own = [len(train.sentences), train.tokens]
    both = [own] if peers is None else peers.exchange(own)
    sentences, tokens = (sum(numbers) for numbers in zip(*both))
    if trained.unlabelled is not None and peers is not None and peers.count > 1:
        for name in ("sentences", "tokens"):
            trained.unlabelled[name] = sum(peers.exchange(trained.unlabelled[name]))
    return {"sentences": sentences, "tokens": tokens}


def _report(trained: Trained, counted: dict[str, int], out: str) -> dict[str, Any]:
    from jaxseq.crf import CRFTagger

    tagger: CRFTagger | HMMTagger = trained.tagger
    # A model that is mixed of others was not trained itself; how long CoDL took is told apart.
    taken = getattr(tagger, "seconds_", {})
    features, everything = (taken.get(name, 0.0) for name in ("features", "all"))
    if isinstance(tagger, CRFTagger):
        counts = {"attributes": tagger.extractor_.attribute_count}
        counts["evaluations"] = tagger.n_evaluations_
    else:
        counts = {"words": len(tagger.vocabulary_.words)}
    return {
        **counted,
        "unlabelled": trained.unlabelled,
        **counts,
        "labels": len(tagger.classes_),
        "iterations": tagger.n_iter_,
        "loss": tagger.loss_ if math.isfinite(tagger.loss_ or 0.0) else None,
        "outcome": tagger.outcome_,
        "seconds": {"features": features, "training": everything - features, **trained.seconds},
        "model": out,
        "dev": None,
    }


def _as_text(report: dict[str, Any], table: str | None) -> str:
    seconds = report["seconds"]
    loss = "" if report["loss"] is None else f", loss {report['loss']:.6g}"
    title, kind = ("words", "words") if "words" in report else ("features", "attributes")
    lines = [
        f"read      {report['sentences']:,} sentences, {report['tokens']:,} tokens",
        *_lines_on_unlabelled(report["unlabelled"], seconds),
        f"{title:8}  {report[kind]:,} {kind}, {report['labels']} labels "
        f"({seconds['features']:.1f} s)",
        f"training  {report['iterations']} iterations{loss} ({seconds['training']:.1f} s)",
        f"          {report['outcome']}",
        f"model     {report['model']}",
    ]
    return "\n".join(lines if table is None else [*lines, "", table])


def _lines_on_unlabelled(report: dict[str, Any] | None, seconds: dict[str, float]) -> list[str]:
    if report is None:
        return []
    counts = f"          {report['sentences']:,} unlabelled sentences, {report['tokens']:,} tokens"
    if report["method"] == "entropy":
        names = ("entropy_weight", "entropy_gradient", "vocabulary")
        weight, gradient, vocabulary = (report[name] for name in names)
        chosen = f"weight {weight:g}, gradient {gradient}, vocabulary {vocabulary}"
        return [counts, f"entropy   {chosen}"]
    if report["method"] == "codl":
        return [counts, *lines_on_codl(report, seconds["codl"])]
    if report["method"] == "em":
        return [counts, line_on_em(report)]
    rounds = f"rounds    {report['rounds']} of self-training ({seconds['self_training']:.1f} s)"
    return [counts, rounds, f"          {report['outcome']}"]
