"""``jaxseq train``: the methods, and what they share: options, processes, reading, reporting."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jaxseq._runtime import Outcome
from jaxseq.cli._constraints import columns_of_rules
from jaxseq.cli._files import (
    STANDARD,
    Corpus,
    model_place,
    read_corpus,
    read_unlabelled,
    say_replaced,
    warn_mixed_schemes,
)
from jaxseq.cli._models import add_templates_option, columns_read
from jaxseq.cli._options import (
    AUTO,
    CommandParser,
    add_corpus_options,
    flag,
    loaded_later,
    one_line,
)
from jaxseq.metrics import usual_scores
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile
    from jaxseq.crf import CRFTagger, CrossValidation
    from jaxseq.expectations import Expectation
    from jaxseq.hmm import HMMTagger
    from jaxseq.parallel import Peers

FAILED, REFUSED, INTERRUPTED = 1, 2, 130  # exit statuses of one of several processes

# How long process 0 stays after an error: when it goes, JAX ends the others in mid-sentence.
FAREWELL_SECONDS = 2.0

# What the names of the files end with that are kept for ``--checkpoint``, after that name.
CHECKPOINT_PARTS = ("", ".cross-validation")


# The methods, each with a module and a line of help.
METHODS = {
    "crf": ("crf", "conditional random field, with entropy regularisation or from shards"),
    "hmm": ("hmm", "hidden Markov model, by counting or by EM"),
    "codl": ("own_labels", "constraint-driven learning of either of them"),
    "self": ("own_labels", "self-training of either of them"),
}


def add_train(parser: CommandParser) -> None:
    """Add the methods of ``jaxseq train``, each with its own options."""
    parser.description = (
        "Train a model on a labelled corpus and save it. Each method has options of its own: see "
        "jaxseq train METHOD --help. Without a method, jaxseq train means jaxseq train crf."
    )

    methods = {
        name: (line, loaded_later(f"_train_{module}", f"add_{name}"))
        for name, (module, line) in METHODS.items()
    }
    parser.add_commands(methods, title="methods", default="crf")


# Options of every method.


def add_training_options(
    parser: argparse.ArgumentParser, checkpoint: str, model: str
) -> list[argparse.Action]:
    """Add what all methods have, and return the options that say what to learn from.

    `checkpoint` says in words what is kept there; `model` is ``"crf"``, or ``"hmm"``, which has no
    templates.
    """
    add = parser.add_argument
    sources = [
        add(
            "--train",
            required=True,
            nargs="+",
            metavar="FILE",
            help="the labelled corpus, in one or more files; the last column is the label, unless "
            "--label-column says otherwise (- is standard input)",
        )
    ]
    add("--dev", metavar="FILE", help="another labelled corpus, to evaluate the model on")
    if model == "crf":
        sources.append(add_templates_option(add))
    add(
        "--out",
        required=True,
        metavar="DIR",
        help="where to save the model; an older one is replaced",
    )
    add_corpus_options(parser)
    add("--checkpoint", metavar="FILE", help=f"keep {checkpoint} here, and continue from it")
    add("--cores", type=int, metavar="N", help="threads to train with (all)")
    add("--quiet", action="store_true", help="no progress bar and no report")
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(
        templates=None, unlabelled=None, learn_representation=None
    )  # where a method lacks these options
    return sources


def add_unlabelled_options(group: Any, *, required: bool = False, vocabulary: bool = True) -> None:
    """Add ``--unlabelled`` and ``--vocabulary`` to a group of options."""
    group.add_argument(
        "--unlabelled",
        required=required,
        nargs="+",
        metavar="FILE",
        help="one or more files of sentences in the format of --train, whose labels are ignored; "
        "columns may also lack the label, or be words alone (- is standard input)",
    )
    if vocabulary:
        group.add_argument(
            "--vocabulary",
            choices=("all", "labelled"),
            help="the sentences that attributes or words are taken from (all)",
        )


def add_expectations_option(group: Any, usual: str) -> None:
    """Add ``--expectations``; `usual` says what it is without."""
    group.add_argument(
        "--expectations",
        metavar="FILE",
        help=f"what is expected of the labels of the unlabelled sentences, in TOML; {usual}",
    )


def expectations_from(options: argparse.Namespace) -> list[Expectation] | None:
    """Those of ``--expectations``; None where the option is not given."""
    from jaxseq.expectations import read_expectations

    if options.expectations is None:
        return None
    # A file of that name is reached as ``./none``.
    return [] if options.expectations == "none" else read_expectations(options.expectations)


# Runs of several processes: their options, and how each of them ends.


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a run one of several processes."""
    group = parser.add_argument_group(
        "several processes",
        "Start the same command once per process, with another --process-id each; every process "
        "reads its own part of the corpus (whole files, or every Nth sentence), and process 0 "
        "writes. Without these options, the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES "
        "and JAX_PROCESS_ID count, and those of SLURM. JAX_NUM_CPU_DEVICES=N makes each process "
        "use N cores. When one ends early, or is not heard of any more, the others end too.",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 can be reached")
    group.add_argument("--num-processes", type=int, metavar="N", help="how many there are")
    group.add_argument("--process-id", type=int, metavar="I", help="which one this is, 0 to N - 1")


# Methods for one process only.
ALONE = ("codl crf", "self crf", "self hmm")


def check_process_options(options: argparse.Namespace) -> None:
    """ValueError for what several processes cannot do together."""
    if getattr(options, "l2", None) == AUTO:
        raise ValueError("--l2: expected a number in a run of several processes, got auto")
    if options.method in ALONE:
        also = ", or train codl hmm" if options.method == "codl crf" else ""
        raise ValueError(f"train {options.method}: expected in a run of one process only{also}")
    if options.method != "crf":
        return
    for name in ("choose_entropy_weight", "learn_representation"):
        if getattr(options, name, None):
            raise ValueError(f"{flag(name)}: expected in a run of one process only")
    if options.algorithm != "lbfgs" and options.shards is None:
        raise ValueError(
            "--algorithm: expected lbfgs with several processes, unless they train from --shards, "
            f"got {options.algorithm}"
        )


def run_in_processes(
    options: argparse.Namespace, run: Callable[[argparse.Namespace, Peers], int]
) -> int:
    """Run a command in this process, and in those that it is to join.

    A process that fails, or that loses another, says why in one line and ends at once: one that
    waited for the others would keep them waiting.
    """
    from jaxseq.parallel import in_words, is_lost, join_processes, leave_processes, mesh_peers

    # Methods for one process have no such options, but the environment may still name others.
    names = ("coordinator", "num_processes", "process_id")
    peers = join_processes(*(getattr(options, name, None) for name in names))
    if peers is None or peers.count == 1:
        return run(options, mesh_peers(None))
    try:
        # Inside the guard, what one process refuses is refused by all of them.
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
        traceback.print_exc()  # nobody foresaw it, so someone has to look into it
        _leave(peers.index, FAILED, in_words(error))


# Options that may differ, as they change nothing that processes do together.
OF_EACH = ("process_id", "run", "untrained", "out", "dev", "quiet", "json", "cores", "shards")


def _shared_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that must be the same in all processes: else one would wait for ever."""
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
    print(f"jaxseq: error: process {index}: {one_line(message)}", file=sys.stderr, flush=True)
    if index == 0:
        time.sleep(FAREWELL_SECONDS)
    os._exit(status)  # sys.exit would wait for JAX's threads, which wait for the other processes


# What is read before training: a mistake in any file is reported before hours of work.


@dataclass(frozen=True)
class TrainingData:
    """The sentences of this process: all, unless there are several.

    `numbers` are their places in the whole corpus, None in a run of one process.
    """

    train: Corpus
    numbers: np.ndarray | None
    unlabelled: list[Sentence] | None
    rules: ConstraintFile | None = None

    def fit_arguments(self) -> dict[str, Any]:
        """What `fit` needs to know of a run of several processes; empty for one."""
        if self.numbers is None:
            return {}
        from jaxseq.parallel import make_mesh

        # By the places of their sentences, processes number attributes and words as one would.
        return {"mesh": make_mesh(), "sentence_numbers": self.numbers}


def _count(sentences: list[Sentence], peers: Peers) -> dict[str, int]:
    pairs = peers.exchange([len(sentences), sum(map(len, sentences))])
    return dict(zip(("sentences", "tokens"), map(sum, zip(*pairs))))


@contextmanager
def places(options: argparse.Namespace, peers: Peers) -> Iterator[None]:
    """The place of the model, for this command alone; ValueError unless it and the checkpoint can
    be written."""
    with ExitStack() as at_the_end:
        with peers.guard():
            if peers.is_first:  # the others write nothing, and may have no such disk
                at_the_end.enter_context(model_place(options.out))
            _check_checkpoint(options)
        yield


def _check_checkpoint(options: argparse.Namespace) -> None:
    checkpoint = options.checkpoint
    if checkpoint is None:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(checkpoint)  # an error for links that lead in a circle, and names that are too long
    if os.path.isdir(checkpoint):
        raise ValueError(f"{checkpoint}: expected a file, found a folder")
    # Saving replaces the folder as a whole, and the checkpoint would go with it.
    model = Path(os.path.realpath(options.out))
    for name in (checkpoint + part for part in CHECKPOINT_PARTS):
        place = Path(os.path.realpath(name))
        if model in (place, *place.parents):
            raise ValueError(f"{name}: expected a file outside of the model's folder {options.out}")


def check_same_files(files: Sequence[str], peers: Peers) -> None:
    """ValueError unless files of which each process reads a part have the same content in all."""
    digests = {}
    for path in files if peers.count > 1 else ():
        if path == STANDARD:
            raise ValueError(
                "standard input: expected files, which every one of several processes can read"
            )
        with open(path, "rb") as file:
            digests[path] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    peers.check_same("SHA-256 of the files", digests)


def read_training(
    files: Sequence[str], options: argparse.Namespace, peers: Peers
) -> tuple[Corpus, np.ndarray | None]:
    """The labelled sentences of this process, and their places in the whole corpus.

    With as many files as processes or more, each reads its own; with fewer, every Nth sentence of
    all. One process reads everything, and needs no places.
    """
    alone, apart = peers.count == 1, len(files) >= peers.count
    scheme = getattr(options, "scheme", None)  # which only a CRF has
    siblings = files if apart and not alone else ()  # one of which may have no sentences
    corpora: list[Corpus] = []
    before = 0  # sentences of earlier files, as turns go on across files
    with peers.guard():
        if not apart:
            check_same_files(files, peers)
        for path in files[peers.index :: peers.count] if apart else files:
            part = (0, 1) if apart else ((peers.index - before) % peers.count, peers.count)
            like = corpora[0] if corpora else None
            corpora.append(read_corpus(path, options, scheme, like, part, siblings))
            before += corpora[-1].sentences_in_file
        if len(corpora) > 1:
            warn_mixed_schemes([each.scheme() for each in corpora])
        corpus = _joined(corpora)
        if alone:
            return corpus, None
        if apart:
            numbers = _numbers_of_files(corpora, len(files), peers)
        else:
            # Process i has sentences i, i + N, …: what it reads does not depend on their lengths.
            count = len(corpus.sentences)
            numbers = peers.index + peers.count * np.arange(count, dtype=np.int64)
        # Templates count columns, so that another file's names would mean other features.
        columns = [corpus.layout.label, *corpus.layout.names]
        peers.check_same(f"{', '.join(files)}: columns", columns)
    return corpus, numbers


def _joined(corpora: list[Corpus]) -> Corpus:
    if len(corpora) == 1:
        return corpora[0]
    first = corpora[0]
    sentences = [sentence for corpus in corpora for sentence in corpus.sentences]
    labels = [each for corpus in corpora for each in corpus.labels]
    return Corpus(first.path, sentences, labels, first.layout)


def _numbers_of_files(own: list[Corpus], files: int, peers: Peers) -> np.ndarray:
    """Places of the sentences of files that the processes take in turns."""
    lengths = np.zeros(files, np.int64)
    lengths[peers.index :: peers.count] = [len(corpus.sentences) for corpus in own]
    # Every length is known to one process; the sum tells all of them to all.
    starts = np.cumsum(peers.sum(lengths))
    starts = np.concatenate([np.zeros(1, np.int64), starts])[peers.index : files : peers.count]
    parts = [start + np.arange(len(c.sentences)) for start, c in zip(starts.tolist(), own)]
    return np.concatenate(parts).astype(np.int64)


def read_own_unlabelled(
    options: argparse.Namespace, peers: Peers, train: Corpus, needed: Sequence[str]
) -> list[Sentence] | None:
    """Every Nth sentence of ``--unlabelled``, for the Nth process; None without the option."""
    if options.unlabelled is None:
        return None
    check_same_files(options.unlabelled, peers)
    part = peers.index, peers.count
    return read_unlabelled(options.unlabelled, options, train, needed, part)


def read_dev(options: argparse.Namespace, peers: Peers, train: Corpus | None) -> Corpus | None:
    """The corpus to evaluate on, by the process that reports; ValueError for unknown labels."""
    if options.dev is None or not peers.is_first:
        return None
    dev = read_corpus(options.dev, options, like=train)
    warn_mixed_schemes([each.scheme() for each in (train, dev) if each is not None])
    dev.known_labels()
    return dev


# What becomes of a trained tagger.


@dataclass(frozen=True)
class Trained:
    """A trained tagger, and what to report of it.

    `interrupted` says in words what was done before Ctrl-C, None without one; `method` how
    unlabelled sentences were used, and `lines` the same in words; `seconds` are those of more than
    the tagger's own training; `predict` labels sentences where the tagger's method does not;
    `needless` are files that nothing can go on from once the model is saved.
    """

    tagger: CRFTagger | HMMTagger
    interrupted: str | None = None
    method: dict[str, Any] | None = None
    lines: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    predict: Callable[[list[Sentence]], list[list[str]]] | None = None
    needless: Sequence[str] = ()


def iterations_before_interrupt(tagger: CRFTagger) -> str | None:
    """In words; None where there was no Ctrl-C."""
    if tagger.outcome_ is not Outcome.INTERRUPTED:
        return None
    if not tagger.n_iter_:
        raise KeyboardInterrupt  # a model that has learnt nothing is not worth keeping
    return f"{tagger.n_iter_} iterations"


Untrained = Callable[[argparse.Namespace, Corpus], Any]
Learn = Callable[[Any, TrainingData, argparse.Namespace, "Peers"], Trained]


def run_training(
    options: argparse.Namespace,
    untrained: Untrained,
    learn: Learn,
    read_rules: Callable[[argparse.Namespace, Peers, Corpus], ConstraintFile | None] | None = None,
) -> int:
    """Read all files, train, save, evaluate and report, in one process or in several.

    Args:
        options: of the command line.
        untrained: makes the tagger that is to be trained on a labelled corpus.
        learn: trains it.
        read_rules: reads the constraints to learn under for a labelled corpus.
    """

    def train(options: argparse.Namespace, peers: Peers) -> int:
        with places(options, peers):
            return train_there(options, peers)

    def train_there(options: argparse.Namespace, peers: Peers) -> int:
        with peers.guard():
            corpus, numbers = read_training(options.train, options, peers)
            tagger = untrained(options, corpus)
            rules = None if read_rules is None else read_rules(options, peers, corpus)
            needed = tuple(dict.fromkeys([*columns_read(tagger), *columns_of_rules(rules)]))
            dev = read_dev(options, peers, corpus)
            unlabelled = read_own_unlabelled(options, peers, corpus, needed)
            more = None
        if peers.is_first and not options.quiet:
            say_replaced(options.out)
        data = TrainingData(corpus, numbers, unlabelled, rules)
        taken = {}
        if options.learn_representation is not None:
            _learn_words(tagger, [*corpus.sentences, *(unlabelled or [])], options)
        if getattr(options, "l2", None) == AUTO:
            taken["choice_of_l2"] = _choose_l2(tagger, corpus, options)
        trained = learn(tagger, data, options, peers)
        trained = replace(trained, seconds={**trained.seconds, **taken})
        counts = _count(corpus.sentences, peers)
        if unlabelled is not None:
            more = _count(unlabelled, peers)
        return finish(options, peers, dev, trained, counts, more)

    return run_in_processes(options, train)


def _learn_words(tagger: Any, sentences: list[Sentence], options: argparse.Namespace) -> None:
    """Give the tagger what its sentences and the unlabelled ones say of words."""
    from jaxseq.representations import learn_representation

    tagger.representation = learn_representation(
        sentences,
        kinds=options.learn_representation,
        seed=options.seed,
        progress=tagger.progress,
    )


def _choose_l2(tagger: CRFTagger, train: Corpus, options: argparse.Namespace) -> float:
    """Set the tagger's l2 by cross-validation, say which it is, and return the seconds it took."""
    from jaxseq.crf import FOLDS, choose_l2, usual_scoring

    if len(train.sentences) < FOLDS:
        raise ValueError(
            f"{train.path}: expected at least {FOLDS} sentences to choose l2 on, found "
            f"{len(train.sentences)}"
        )
    began = time.perf_counter()
    labels = {label for labels in train.labels for label in labels}
    by_spans = None not in labels and usual_scoring(map(str, labels)) == "span_f1"
    choice = choose_l2(
        tagger, train.sentences, train.labels, seed=options.seed, progress=tagger.progress
    )
    tagger.set_params(l2=choice.best)
    seconds = time.perf_counter() - began
    if not (options.quiet or options.json):
        print(score_table("l2", "span F1" if by_spans else "accuracy", choice, seconds), flush=True)
    return seconds


def score_table(title: str, by: str, choice: CrossValidation, seconds: float) -> str:
    """The mean score of each value in cross-validation, the best one marked."""
    folds = choice.scores.shape[1]
    lines = [f"{title:8}  mean {by} in {folds}-fold cross-validation ({seconds:.1f} s)"]
    for value, mean in zip(choice.values, choice.means):
        mark = " *" if value == choice.best else ""
        lines.append(f"          {value:<6g}  {mean:.4f}{mark}")
    return "\n".join(lines)


def finish(
    options: argparse.Namespace,
    peers: Peers,
    dev: Corpus | None,
    trained: Trained,
    counts: dict[str, int],
    unlabelled: dict[str, Any] | None = None,
) -> int:
    """Save the model, evaluate and report, by the first process; returns the exit status."""
    from jaxseq.hmm import ImpossibleSentence

    # There is a model after Ctrl-C, but not the one that a script would go on with.
    status = 0 if trained.interrupted is None else INTERRUPTED
    if not peers.is_first:
        return status
    # From here on nothing is exchanged: the other processes are done.
    tagger = trained.tagger
    if trained.interrupted is not None:
        print(
            f"jaxseq: interrupted after {trained.interrupted}: the best model so far is kept",
            file=sys.stderr,
        )
    _save(tagger, options)
    for path in trained.needless if trained.interrupted is None else ():
        Path(path).unlink(missing_ok=True)
    if unlabelled is not None:
        unlabelled = {**unlabelled, **(trained.method or {})}
    report, table = _report(trained, counts, unlabelled, options.out), None
    if dev is not None:
        try:
            scores = usual_scores(
                dev.known_labels(), (trained.predict or tagger.predict)(dev.sentences)
            )
            table, report["dev"] = scores.table(), scores.as_dict()
        except ImpossibleSentence as error:  # the model is written, and is reported all the same
            print(f"jaxseq: {options.dev}: not evaluated: {error}", file=sys.stderr)
    if not options.quiet:
        lines = trained.lines
        print(json.dumps(report, allow_nan=False) if options.json else _text(report, lines, table))
    return status


def _save(tagger: CRFTagger | HMMTagger, options: argparse.Namespace) -> None:
    try:
        tagger.save(options.out)
    except OSError as error:
        if options.checkpoint is None or not os.path.exists(options.checkpoint):
            raise
        reason = f"{error.strerror}; {options.checkpoint} has what was learnt, for the same command"
        raise OSError(error.errno, reason, options.out) from error


def _report(
    trained: Trained, counts: dict[str, int], unlabelled: dict[str, Any] | None, out: str
) -> dict[str, Any]:
    tagger: Any = trained.tagger
    # A model that is mixed of others was not trained itself: only how long all of it took is known.
    taken = getattr(tagger, "seconds_", {})
    seconds = {"features": taken["features"]} if "features" in taken else {}
    if "all" in taken:
        seconds["training"] = taken["all"] - taken.get("features", 0.0)
    if hasattr(tagger, "extractor_"):  # a CRF
        size = {"attributes": tagger.extractor_.attribute_count}
        size |= {"evaluations": tagger.n_evaluations_, "l2": tagger.l2_}
    else:
        size = {"words": len(tagger.vocabulary_.words)}
    return {
        **counts,
        "unlabelled": unlabelled,
        **size,
        "labels": len(tagger.classes_),
        "iterations": tagger.n_iter_,
        "loss": tagger.loss_ if math.isfinite(tagger.loss_ or 0.0) else None,  # JSON has no inf
        "outcome": tagger.outcome_,
        "seconds": {**seconds, **trained.seconds},
        "model": out,
        "dev": None,
    }


def _text(report: dict[str, Any], lines_on_method: list[str], table: str | None) -> str:
    unlabelled = report["unlabelled"]
    features, training = (
        f" ({report['seconds'][name]:.1f} s)" if name in report["seconds"] else ""
        for name in ("features", "training")
    )
    loss = "" if report["loss"] is None else f", loss {report['loss']:.6g}"
    loss += f", l2 {report['l2']:.3g}" if "l2" in report else ""
    title, kind = ("words", "words") if "words" in report else ("features", "attributes")
    lines = [f"read      {report['sentences']:,} sentences, {report['tokens']:,} tokens"]
    if unlabelled is not None:
        counts = (
            f"{unlabelled['sentences']:,} unlabelled sentences, {unlabelled['tokens']:,} tokens"
        )
        lines += [f"          {counts}", *lines_on_method]
    lines += [
        f"{title:8}  {report[kind]:,} {kind}, {report['labels']} labels{features}",
        f"training  {report['iterations']} iterations{loss}{training}",
        f"          {report['outcome']}",
        f"model     {report['model']}",
    ]
    return "\n".join(lines if table is None else [*lines, "", table])
