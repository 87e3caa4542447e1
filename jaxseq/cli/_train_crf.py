"""``jaxseq train crf``: supervised, with entropy regularisation, or from shards."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.cli._files import Corpus, say_replaced
from jaxseq.cli._models import add_crf_settings, untrained_crf
from jaxseq.cli._options import AUTO, flag, parse_kinds, parse_weight, require_with
from jaxseq.cli._train import (
    CHECKPOINT_PARTS,
    Trained,
    TrainingData,
    add_expectations_option,
    add_process_options,
    add_training_options,
    add_unlabelled_options,
    expectations_from,
    finish,
    iterations_before_interrupt,
    places,
    read_dev,
    run_in_processes,
    run_training,
    score_table,
)
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger, CrossValidation
    from jaxseq.expectations import Expectation
    from jaxseq.parallel import Peers

FOLDS = 5
UNLABELLED_OPTIONS = (
    "entropy_weight",
    "entropy_gradient",
    "vocabulary",
    "choose_entropy_weight",
    "expectations",
    "expectation_method",
)


def add_crf(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train a conditional random field on a labelled corpus, with or without unlabelled "
        "sentences. Ctrl-C keeps the best model so far."
    )
    sources = add_training_options(
        parser,
        "the unfinished search (and the scores of --choose-entropy-weight, in "
        "FILE.cross-validation)",
        "crf",
    )
    add_crf_settings(parser)
    parser.add_argument("--warm-start", metavar="DIR", help="start from the weights of this model")
    _add_shards_options(parser, sources)
    group = parser.add_argument_group(
        "unlabelled sentences",
        "Learn from sentences without labels, too: labels are to be about as frequent in them as "
        "in --train, or as --expectations says. With a weight the entropy of the model on them is "
        "added to the loss, so that the model is to be sure of them.",
    )
    add_unlabelled_options(group)
    weights = group.add_mutually_exclusive_group()
    weights.add_argument(
        "--entropy-weight",
        type=parse_weight,
        metavar="X",
        help="how much the mean entropy of an unlabelled token counts, per labelled token, 0 or "
        "more (0)",
    )
    weights.add_argument(
        "--choose-entropy-weight",
        action="store_true",
        default=None,
        help="take the best of 0, 0.0001, 0.001, 0.01, 0.1, 1 in 5-fold cross-validation on "
        "--train: by span F1 if the labels are of a chunk scheme, else by accuracy",
    )
    group.add_argument(
        "--entropy-gradient",
        choices=("mann", "jiao", "autodiff"),
        help="how its gradient is computed; all give the same model (mann)",
    )
    add_expectations_option(
        group, "none is for none at all (that labels are about as frequent as in --train)"
    )
    group.add_argument(
        "--expectation-method",
        choices=("gradient", "projection"),
        help="how expectations are met: by their penalty's gradient, or by learning from the "
        "nearest distribution that meets them (gradient)",
    )
    group.add_argument(
        "--learn-representation",
        type=parse_kinds,
        metavar="KINDS",
        help="learn from all sentences which words are alike, in place of --representation: some "
        "of clusters, brown, states, separated by commas",
    )
    add_process_options(parser)
    parser.set_defaults(run=_run, method="crf")


def _run(options: argparse.Namespace) -> int:
    require_with(options, UNLABELLED_OPTIONS, "--unlabelled FILE")
    require_with(options, ("learn_representation",), "--unlabelled FILE")
    if options.learn_representation is not None and options.representation is not None:
        raise ValueError("--learn-representation: expected no --representation along with it")
    if options.expectation_method == "projection":
        # By the options' own names: the tagger would speak of its arguments.
        for name in ("entropy_weight", "choose_entropy_weight", "checkpoint"):
            if getattr(options, name):
                option = name.replace("_", "-")
                raise ValueError(f"--{option}: expected none with --expectation-method projection")
    if options.shards is not None:
        _check_shards_options(options)
        return run_in_processes(options, _train_from_shards)
    require_with(options, ("streams",), "--shards")
    return run_training(options, untrained_crf, _learn)


def _learn(
    tagger: CRFTagger, data: TrainingData, options: argparse.Namespace, peers: Peers
) -> Trained:
    from jaxseq.taggers import load

    with peers.guard():  # before hours of cross-validation or training
        if options.choose_entropy_weight:
            data.train.known_labels()
            if len(data.train.sentences) < FOLDS:
                raise ValueError(
                    f"{data.train.path}: expected at least {FOLDS} sentences to choose the weight "
                    f"of the entropy on, found {len(data.train.sentences)}"
                )
        older = None if options.warm_start is None else load(options.warm_start)
    arguments = {"warm_start_from": older, **data.fit_arguments()}
    if data.unlabelled is not None:
        return _train_with_entropy(tagger, data, data.unlabelled, options, arguments)
    tagger.fit(data.train.sentences, data.train.labels, **arguments)
    return Trained(tagger, iterations_before_interrupt(tagger))


# Entropy regularisation. Cross-validation may take hours, so that its scores are kept until the
# model that was trained with the chosen weight is saved, too.


@dataclass(frozen=True)
class EntropyChoice:
    """What cross-validation has found, and the files that keep it from being made again."""

    result: CrossValidation
    scoring: str
    seconds: float
    files: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "scoring": self.scoring,
            "folds": FOLDS,
            "weights": list(self.result.values),
            "means": self.result.means.tolist(),
        }

    def table(self) -> str:
        """The mean score of each weight, the best one marked."""
        by = {"span_f1": "span F1"}.get(self.scoring, self.scoring)
        return score_table("weights", by, self.result, self.seconds)


def _choose_weight(
    tagger: CRFTagger,
    train: Corpus,
    unlabelled: list[Sentence],
    options: argparse.Namespace,
    expectations: list[Expectation] | None,
) -> EntropyChoice:
    """Cross-validate, or continue that, or recall its scores if it was over."""
    from jaxseq.crf import choose_entropy_weight, usual_scoring

    began = time.perf_counter()
    scoring = usual_scoring(
        label for labels in train.labels for label in labels if label is not None
    )
    file = None if options.checkpoint is None else options.checkpoint + CHECKPOINT_PARTS[1]
    result = choose_entropy_weight(
        tagger,
        train.sentences,
        train.labels,
        unlabelled=unlabelled,
        expectations=expectations,
        folds=FOLDS,
        scoring=scoring,
        seed=options.seed,
        entropy_gradient=options.entropy_gradient or "mann",
        vocabulary=options.vocabulary or "all",
        progress=tagger.progress,
        checkpoint=file,
    )
    return EntropyChoice(result, scoring, time.perf_counter() - began, [file] if file else [])


def _train_with_entropy(
    tagger: CRFTagger,
    data: TrainingData,
    unlabelled: list[Sentence],
    options: argparse.Namespace,
    arguments: dict[str, Any],
) -> Trained:
    weight = 0.0 if options.entropy_weight is None else options.entropy_weight
    choice, expectations = None, expectations_from(options)
    if options.choose_entropy_weight:
        choice = _choose_weight(tagger, data.train, unlabelled, options, expectations)
        weight = choice.result.best
        if not (options.quiet or options.json):
            print(choice.table(), flush=True)  # before the training, which may take long
    settings = {
        "entropy_weight": weight,
        "entropy_gradient": options.entropy_gradient or "mann",
        "vocabulary": options.vocabulary or "all",
    }
    more = {"expectations": expectations, "unlabelled": unlabelled}
    method = options.expectation_method or "gradient"
    more["expectation_method"] = method
    tagger.fit(data.train.sentences, data.train.labels, **more, **settings, **arguments)
    interrupted = iterations_before_interrupt(tagger)
    number = None if expectations is None else len(expectations)
    report: dict[str, Any] = {"method": "entropy", **settings, "expectations": number}
    report["expectation_method"], seconds = method, {}
    if choice is not None:
        report["cross_validation"] = choice.as_dict()
        seconds["cross_validation"] = choice.seconds
    line = (
        "entropy   weight {entropy_weight:g}, gradient {entropy_gradient}, vocabulary {vocabulary}"
    )
    met = "labels about as frequent as in --train" if number is None else f"{number}"
    lines = [line.format(**settings), f"expected  {met}, by {method}"]
    needless = () if choice is None else choice.files
    return Trained(tagger, interrupted, report, lines, seconds, needless=needless)


# Shards: training from a folder of ``jaxseq shard``, which may be larger than memory.

# Options of trainings that hold the corpus.
NOT_WITH_SHARDS = ("unlabelled", "warm_start", "representation")


def _add_shards_options(
    parser: argparse.ArgumentParser, needless: Sequence[argparse.Action]
) -> None:
    """Add ``--shards``, which makes the needless options needless, and ``--streams``."""

    class Instead(argparse.Action):
        def __call__(self, _parser: Any, namespace: Any, values: Any, _name: Any = None) -> None:
            namespace.shards = values
            for option in needless:  # argparse looks for missing options at the very end
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


# A folder of shards has its features, with templates and cutoff applied, and its labels.
def _check_shards_options(options: argparse.Namespace) -> None:
    """ValueError for options that do not go with shards."""
    if options.train is not None:
        raise ValueError("--shards: expected alone, got --train too")
    if options.templates is not None:
        raise ValueError("--templates: expected nothing along with --shards, which have features")
    for name in NOT_WITH_SHARDS:
        if getattr(options, name) is not None:
            raise ValueError(f"{flag(name)}: expected nothing along with --shards")
    if options.l2 == AUTO:
        raise ValueError("--l2: expected a number along with --shards, got auto")
    if options.classes is not None:
        raise ValueError("--classes: expected with jaxseq shard, not along with --shards")
    if options.cutoff != 1:  # it was applied when the shards were written
        raise ValueError("--cutoff: expected with jaxseq shard, not along with --shards")
    if options.algorithm == "lbfgs":
        raise ValueError(
            "--algorithm: expected adamw or sgd along with --shards, as L-BFGS needs the whole "
            "corpus at once"
        )


def _train_from_shards(options: argparse.Namespace, peers: Peers) -> int:
    with places(options, peers):
        return _train_there(options, peers)


def _train_there(options: argparse.Namespace, peers: Peers) -> int:
    from jaxseq.parallel import make_mesh
    from jaxseq.shards import read_index, train_from_shards

    with peers.guard():
        dev = read_dev(options, peers, None)
    if peers.is_first and not options.quiet:
        say_replaced(options.out)
    tagger = train_from_shards(
        options.shards,
        untrained_crf(options, None),
        streams=1 if options.streams is None else options.streams,
        mesh=make_mesh() if peers.count > 1 else None,
    )
    # Each process may have a folder with its own files, but every index is of all of them.
    index = read_index(Path(options.shards))
    counts = {"sentences": index.sentences, "tokens": index.tokens}
    return finish(options, peers, dev, Trained(tagger), counts)
