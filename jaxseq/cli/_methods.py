"""The ways of training: labelled sentences alone, with the entropy of others, self-training."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxseq.cli._corpus import Corpus
from jaxseq.cli._entropy_choice import choose_weight
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.tagger import CRFTagger


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
    from jaxseq.tagger import SelfTraining

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
    if trained.outcome_.startswith("interrupted"):
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
    if not tagger.outcome_.startswith("interrupted"):
        return None
    if not tagger.n_iter_:
        raise KeyboardInterrupt  # a model that has learnt nothing is not worth keeping
    return f"{tagger.n_iter_} iterations"
