"""``jaxseq train self``: self-training of a CRF or of a hidden Markov model."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from jaxseq._runtime import Outcome
from jaxseq.cli._models import add_models
from jaxseq.cli._options import CommandParser, parse_probability, require_with
from jaxseq.cli._training import (
    Trained,
    add_training_options,
    add_unlabelled_option,
    finish,
    iterations_before_interrupt,
    prepare,
    run_in_processes,
)

if TYPE_CHECKING:
    from jaxseq.parallel import Peers


def add_self(parser: CommandParser) -> None:
    """Add the models of ``jaxseq train self``."""
    parser.description = (
        "Train on the labelled sentences, label the unlabelled ones, train on everything, until "
        "no label changes. Ctrl-C keeps the best model so far."
    )
    add_models(parser, "self", "Self-training", _add_options)


def _add_options(parser: CommandParser, model: str) -> None:
    add_training_options(parser, "the labels of the last round", model)
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

    tagger, data = prepare(options, peers, options.untrained)
    began = time.perf_counter()
    learner = SelfTraining(
        tagger,
        confidence=options.confidence,
        confidence_of=options.confidence_of or "sentence",
        progress=tagger.progress,
        checkpoint=options.checkpoint,
    ).fit(data.train.sentences, data.train.labels, unlabelled=data.unlabelled or [])
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
