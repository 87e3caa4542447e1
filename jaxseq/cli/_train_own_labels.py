"""``jaxseq train codl`` and ``self``: to learn from labels that the model gives by itself.

Both train a CRF or a hidden Markov model on the labelled sentences, label the unlabelled ones,
learn from that, and again: constraint-driven learning under rules, self-training without.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxseq._runtime import Outcome
from jaxseq.cli._constraints import ConstrainedTagger, columns_of_rules, read_rules
from jaxseq.cli._files import Corpus, require_columns
from jaxseq.cli._models import (
    add_crf_settings,
    add_hmm_settings,
    untrained_crf,
    untrained_hmm,
)
from jaxseq.cli._options import (
    CommandParser,
    add_constraint_options,
    check_constraint_options,
    parse_count,
    parse_probability,
    require_with,
)
from jaxseq.cli._train import (
    Trained,
    TrainingData,
    add_process_options,
    add_training_options,
    add_unlabelled_options,
    iterations_before_interrupt,
    run_training,
)

if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile
    from jaxseq.parallel import Peers

LABELLINGS = 50  # what --top-k is unless the user sets it


def _add_models(
    parser: CommandParser,
    method: str,
    title: str,
    add_options: Callable[[CommandParser, str], None],
) -> None:
    """Add the models that a method may train as sub-commands; the first is the default."""
    models = {
        "crf": ("a conditional random field", add_crf_settings, untrained_crf),
        "hmm": ("a hidden Markov model", add_hmm_settings, untrained_hmm),
    }

    def adds(model: str) -> Callable[[CommandParser], None]:
        name, add_settings, untrained = models[model]

        def add(inner: CommandParser) -> None:
            inner.description = f"{title} of {name}."
            add_options(inner, model)
            add_settings(inner)
            inner.set_defaults(method=f"{method} {model}", untrained=untrained)

        return add

    lines = {"crf": f"{models['crf'][0]} (the default)", "hmm": models["hmm"][0]}
    parser.add_commands({m: (lines[m], adds(m)) for m in models}, title="models", default="crf")


def _words_on_interrupt(learner: Any, rounds: str) -> str | None:
    """What was done before Ctrl-C: a training was cut short, or the rounds were; None without."""
    if learner.outcome_ is not Outcome.INTERRUPTED:
        return None
    return iterations_before_interrupt(learner.tagger_) or rounds


# Self-training.


def add_self(parser: CommandParser) -> None:
    parser.description = (
        "Train on the labelled sentences, label the unlabelled ones, train on everything, until "
        "no label changes. Ctrl-C keeps the best model so far."
    )
    _add_models(parser, "self", "Self-training", _add_self_options)


def _add_self_options(parser: CommandParser, model: str) -> None:
    add_training_options(parser, "the labels of the last round", model)
    group = parser.add_argument_group("self-training")
    add_unlabelled_options(group, required=True, vocabulary=False)
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
    parser.set_defaults(run=_run_self)


def _run_self(options: argparse.Namespace) -> int:
    require_with(options, ("confidence_of",), "--confidence")
    return run_training(options, options.untrained, _learn_self)


def _learn_self(
    tagger: Any, data: TrainingData, options: argparse.Namespace, _peers: Peers
) -> Trained:
    from jaxseq.taggers import SelfTraining

    began = time.perf_counter()
    learner = SelfTraining(
        tagger,
        confidence=options.confidence,
        confidence_of=options.confidence_of or "sentence",
        progress=tagger.progress,
        checkpoint=options.checkpoint,
    ).fit(data.train.sentences, data.train.labels, unlabelled=data.unlabelled or [])
    interrupted = _words_on_interrupt(learner, f"{learner.rounds_} rounds of self-training")
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
    return Trained(learner.tagger_, interrupted, report, lines, {"self_training": seconds})


# Constraint-driven learning.


def add_codl(parser: CommandParser) -> None:
    parser.description = (
        "Constraint-driven learning: label the unlabelled sentences under constraints, learn from "
        "that, and again. Ctrl-C keeps the best model so far."
    )
    _add_models(parser, "codl", "Constraint-driven learning", _add_codl_options)


def _add_codl_options(parser: CommandParser, model: str) -> None:
    add_training_options(parser, "the labellings of the last cycle", model)
    group = parser.add_argument_group("constraint-driven learning")
    add_unlabelled_options(group, required=True, vocabulary=model == "hmm")
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
        add_process_options(parser)
    parser.set_defaults(run=_run_codl)


def _run_codl(options: argparse.Namespace) -> int:
    if options.pool and getattr(options, "vocabulary", None) is not None:
        raise ValueError("--pool: expected no --vocabulary along with it")
    # A beam cannot hold more labellings than it is wide.
    check_constraint_options(options, options.top_k or LABELLINGS)
    return run_training(options, options.untrained, _learn_codl, _read_rules)


def _read_rules(options: argparse.Namespace, peers: Peers, train: Corpus) -> ConstraintFile | None:
    if options.constraints is None:
        return None
    own = {label for labels in train.labels for label in labels if label is not None}
    own |= set(options.classes or ())
    # A process's part may lack labels, and every process must read the same constraints.
    labels = sorted(set().union(*peers.exchange(sorted(own))))
    rules = read_rules(options.constraints, labels)
    require_columns(columns_of_rules(rules), train.columns, options.constraints, train.path)
    return rules


def _learn_codl(
    tagger: Any, data: TrainingData, options: argparse.Namespace, peers: Peers
) -> Trained:
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
    train, arguments = data.train, data.fit_arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstraintWarning)  # it is told once, below
        learner.fit(train.sentences, train.labels, unlabelled=data.unlabelled, **arguments)
    cycles, history = len(learner.history_), learner.history_
    interrupted = _words_on_interrupt(learner, f"{cycles} cycles of constraint-driven learning")
    # The history counts the sentences of all processes.
    sentences = sum(peers.exchange(len(data.unlabelled or ())))
    unmet = history[-1]["unmet"] if history else 0
    if unmet and peers.is_first:
        print(
            "jaxseq: warning: no labelling that satisfies all hard constraints was found for "
            f"{unmet} of {sentences} unlabelled sentences; they get the fewest violations",
            file=sys.stderr,
        )
    names = list(learner.constraints_.names)
    report = {
        "method": "codl",
        "constraints": names,
        "top_k": learner.k,
        "labelling_weights": learner.weights,
        "keep": None if learner.pool else learner.keep,
        "pool": learner.pool,
        "cycles": cycles,
        "history": history,
        "outcome": learner.outcome_,
    }
    seconds = time.perf_counter() - began
    mixing = "pooled" if learner.pool else f"{learner.keep:g} kept"
    lines = [
        f"CoDL      {len(names)} constraints, top {learner.k}, weights {learner.weights}, {mixing}",
        f"cycles    {cycles} ({seconds:.1f} s)",
        f"          {learner.outcome_}",
    ]
    if history and names:
        lines.append("violated  in the last cycle, share of sentences")
        violated = history[-1]["violated"]
        lines += [f"          {share:7.2%}  {name}" for name, share in violated.items()]
    predict = None
    if data.rules is not None:  # a model that learnt under constraints is used under them
        predict = ConstrainedTagger(learner.tagger_, data.rules, options.beam).predict
    return Trained(learner.tagger_, interrupted, report, lines, {"codl": seconds}, predict)
