"""``jaxseq train self``: self-training of a CRF or of a hidden Markov model."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from jaxseq._runtime import Outcome
from jaxseq.cli._options import CommandParser, parse_probability, require_with
from jaxseq.cli._train_crf import add_crf_settings, untrained_crf
from jaxseq.cli._train_hmm import add_hmm_settings, untrained_hmm
from jaxseq.cli._training import (
    Trained,
    add_training_options,
    add_unlabelled_option,
    check_places,
    columns_read,
    finish,
    iterations_before_interrupt,
    read_data,
    read_training,
    run_in_processes,
)

if TYPE_CHECKING:
    from jaxseq.parallel import Peers


def add_self(parser: CommandParser) -> None:
    """Add the two kinds of models of ``jaxseq train self``."""
    parser.description = (
        "Train on the labelled sentences, label the unlabelled ones, train on everything, until "
        "no label changes. Ctrl-C keeps the best model so far."
    )
    parser.add_commands(
        {
            "crf": ("a conditional random field", _add_crf),
            "hmm": ("a hidden Markov model", _add_hmm),
        },
        title="models",
        default="crf",
    )


def _add_crf(parser: CommandParser) -> None:
    parser.description = "Self-training of a conditional random field."
    _add_options(parser, templates=True)
    add_crf_settings(parser)
    parser.set_defaults(method="self crf", untrained=untrained_crf)


def _add_hmm(parser: CommandParser) -> None:
    parser.description = "Self-training of a hidden Markov model."
    _add_options(parser, templates=False)
    add_hmm_settings(parser)
    parser.set_defaults(method="self hmm", untrained=untrained_hmm)


def _add_options(parser: CommandParser, templates: bool) -> None:
    add_training_options(parser, "the labels of the last round", templates)
    group = parser.add_argument_group("self-training")
    add_unlabelled_option(group, required=True)
    group.add_argument(
        "--confidence",
        type=parse_probability,
        metavar="P",
        help="learn only from labels that are at least so probable (from all)",
    )
    group.add_argument(
        "--confidence-of",
        choices=("sentence", "token"),
        help="whether a whole sentence's labels or a single one must be so probable (sentence)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require_with(options, ("confidence_of",), "--confidence")
    return run_in_processes(options, _train)


def _train(options: argparse.Namespace, peers: Peers) -> int:
    from jaxseq.taggers import SelfTraining

    check_places(options, peers)
    train, numbers = read_training(options.train, options, peers)
    tagger: Any = options.untrained(options, train)
    data = read_data(options, peers, train, numbers, columns_read(tagger))
    began = time.perf_counter()
    learner = SelfTraining(
        tagger,
        confidence=options.confidence,
        confidence_of=options.confidence_of or "sentence",
        progress=tagger.progress,
        checkpoint=options.checkpoint,
    ).fit(train.sentences, train.labels, unlabelled=data.unlabelled or [])
    interrupted = None
    if learner.outcome_ is Outcome.INTERRUPTED:
        # Either the training of a round was cut short, or the rounds were.
        rounds = f"{learner.rounds_} rounds of self-training"
        interrupted = iterations_before_interrupt(learner.tagger_) or rounds
    report = {
        "method": "self-training",
        "confidence": learner.confidence,
        "confidence_of": learner.confidence_of,
        "rounds": learner.rounds_,
        "history": learner.history_,
        "outcome": learner.outcome_,
    }
    seconds = time.perf_counter() - began
    lines = [
        f"rounds    {learner.rounds_} of self-training ({seconds:.1f} s)",
        f"          {learner.outcome_}",
    ]
    trained = Trained(learner.tagger_, interrupted, report, lines, {"self_training": seconds})
    return finish(options, peers, data.dev, trained, *data.counts(peers))
