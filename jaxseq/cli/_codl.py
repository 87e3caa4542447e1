"""``jaxseq train --codl``: constraint-driven learning, its options and its report."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from jaxseq.cli._columns import require_columns
from jaxseq.cli._constrain import (
    add_constraint_options,
    check_constraint_options,
    columns_of_rules,
    parse_count,
    read_rules,
)
from jaxseq.cli._corpus import Corpus
from jaxseq.cli._methods import Trained, iterations_before_interrupt
from jaxseq.cli._unlabelled import parse_probability
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile
    from jaxseq.scale import Peers

OPTIONS = ("constraints", "top_k", "keep", "cycles", "pool", "labelling_weights", "beam")
"""Options of constraint-driven learning; none of them is set unless the user gives it."""

EXCLUDED = (
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
    given = [name for name in OPTIONS if getattr(options, name) is not None]
    if options.codl is None:
        if given:
            raise ValueError(f"{_flag(given[0])}: expected along with --codl only")
        return
    if options.unlabelled is None:
        raise ValueError("--codl: expected along with --unlabelled FILE only")
    of_an_hmm = ("vocabulary",) if options.model == "hmm" and not options.pool else ()
    for name in EXCLUDED:
        if name not in of_an_hmm and getattr(options, name) is not None:
            raise ValueError(f"--codl: expected no {_flag(name)} along with it")
    if options.pool and options.keep is not None:
        raise ValueError("--pool: expected no --keep along with it")
    check_constraint_options(options, options.top_k or LABELLINGS)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
    from jaxseq.tagger import CoDL, ConstraintWarning

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
    if learner.outcome_.startswith("interrupted"):
        cycles = f"{len(learner.history_)} cycles of constraint-driven learning"
        interrupted = iterations_before_interrupt(learner.tagger_) or cycles
    sentences = sum([len(others)] if peers is None else peers.exchange(len(others)))
    if peers is None or peers.is_first:
        _say_unmet(learner.history_, sentences)
    seconds = {"codl": time.perf_counter() - began}
    return Trained(learner.tagger_, interrupted, _report(learner, others), seconds)


def _report(learner: Any, others: list[Sentence]) -> dict[str, Any]:
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
