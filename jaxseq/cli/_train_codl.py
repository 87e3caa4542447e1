"""``jaxseq train codl``: constraint-driven learning of a CRF or of a hidden Markov model."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from jaxseq._runtime import Outcome
from jaxseq.cli._files import Corpus, require_columns
from jaxseq.cli._models import add_models
from jaxseq.cli._options import (
    CommandParser,
    add_constraint_options,
    check_constraint_options,
    parse_count,
    parse_probability,
)
from jaxseq.cli._rules import ConstrainedTagger, columns_of_rules, read_rules
from jaxseq.cli._training import (
    Trained,
    TrainingData,
    add_process_options,
    add_training_options,
    add_unlabelled_option,
    add_vocabulary_option,
    finish,
    fit_arguments,
    iterations_before_interrupt,
    prepare,
    run_in_processes,
)

if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile
    from jaxseq.parallel import Peers

LABELLINGS = 50  # what --top-k is unless the user sets it


def add_codl(parser: CommandParser) -> None:
    """Add the models of ``jaxseq train codl``."""
    parser.description = (
        "Constraint-driven learning: label the unlabelled sentences under constraints, learn from "
        "that, and again. Ctrl-C keeps the best model so far."
    )
    add_models(parser, "codl", "Constraint-driven learning", _add_options)


def _add_options(parser: CommandParser, model: str) -> None:
    add_training_options(parser, "the labellings of the last cycle", model)
    group = parser.add_argument_group("constraint-driven learning")
    add_unlabelled_option(group, required=True)
    add = group.add_argument
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
        help="what each of them counts: all the same, or by its score (uniform)",
    )
    mixing = group.add_mutually_exclusive_group()
    mixing.add_argument(
        "--keep",
        type=parse_probability,
        metavar="G",
        help="share of the supervised model in each new one (0.1)",
    )
    mixing.add_argument(
        "--pool",
        action="store_true",
        default=None,
        help="instead, learn from labelled sentences and labellings together",
    )
    add("--cycles", type=parse_count, metavar="N", help="how often at most (5)")
    if model == "hmm":
        add_vocabulary_option(group)
        add_process_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.pool and getattr(options, "vocabulary", None) is not None:
        raise ValueError("--pool: expected no --vocabulary along with it")
    # A beam cannot hold more labellings than it is wide.
    check_constraint_options(options, options.top_k or LABELLINGS)
    return run_in_processes(options, _train)


def _train(options: argparse.Namespace, peers: Peers) -> int:
    tagger, data = prepare(
        options, peers, options.untrained, partial(_read_rules_for, options, peers)
    )
    trained = _learn(tagger, data, options, peers)
    predict = None
    if data.rules is not None:  # a model that learnt under constraints is used under them
        predict = ConstrainedTagger(trained.tagger, data.rules, options.beam).predict
    return finish(options, peers, data.dev, trained, *data.counts(peers), predict=predict)


def _read_rules_for(
    options: argparse.Namespace, peers: Peers, train: Corpus
) -> ConstraintFile | None:
    """The constraints of the file, for the labels of all processes' corpora."""
    if options.constraints is None:
        return None
    own = {label for labels in train.labels for label in labels if label is not None}
    # A process's part may lack labels, and every process must read the same constraints.
    labels = sorted(set().union(*peers.exchange(sorted(own))))
    rules = read_rules(options.constraints, labels)
    require_columns(columns_of_rules(rules), train.columns, options.constraints, train.path)
    return rules


def _learn(tagger: Any, data: TrainingData, options: argparse.Namespace, peers: Peers) -> Trained:
    from jaxseq.constraints import CoDL, ConstraintWarning

    began = time.perf_counter()
    learner: Any = CoDL(
        tagger,
        () if data.rules is None else data.rules,
        k=options.top_k or LABELLINGS,
        width=options.beam,
        weights=options.labelling_weights or "uniform",
        keep=0.1 if options.keep is None else options.keep,
        cycles=options.cycles or 5,
        pool=bool(options.pool),
        progress=tagger.progress,
        checkpoint=options.checkpoint,
    )
    train, arguments = data.train, fit_arguments(data, peers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstraintWarning)  # told once, by `_say_unmet`
        learner.fit(train.sentences, train.labels, unlabelled=data.unlabelled, **arguments)
    interrupted = None
    if learner.outcome_ is Outcome.INTERRUPTED:
        # Either the supervised training was cut short, or the cycles were.
        cycles = f"{len(learner.history_)} cycles of constraint-driven learning"
        interrupted = iterations_before_interrupt(learner.tagger_) or cycles
    # The history counts the sentences of all processes.
    sentences = sum(peers.exchange(len(data.unlabelled or ())))
    if peers.is_first:
        _say_unmet(learner.history_, sentences)
    report = {
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
    seconds = time.perf_counter() - began
    lines = _lines(report, seconds)
    return Trained(learner.tagger_, interrupted, report, lines, {"codl": seconds})


def _say_unmet(history: list[dict[str, Any]], sentences: int) -> None:
    unmet = history[-1]["unmet"] if history else 0
    if unmet:
        print(
            "jaxseq: warning: no labelling that satisfies all hard constraints was found for "
            f"{unmet} of {sentences} unlabelled sentences; they get the fewest violations",
            file=sys.stderr,
        )


def _lines(report: dict[str, Any], seconds: float) -> list[str]:
    mixing = "pooled" if report["pool"] else f"{report['keep']:g} kept"
    chosen = f"top {report['top_k']}, weights {report['labelling_weights']}, {mixing}"
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
