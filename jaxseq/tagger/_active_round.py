"""What an active learner does in a round: choose queries, and train."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxseq.learn._corpus import EncodedLabels
from jaxseq.learn.active import (
    Look,
    Proposal,
    Query,
    Sequences,
    agreement,
    first_sentences,
    propose,
)
from jaxseq.models._crf import CRF
from jaxseq.tagger._active_replay import Run
from jaxseq.tagger._active_train import train_on
from jaxseq.tagger._fit import Fitted
from jaxseq.tagger._notes import fresh
from jaxseq.tagger._plan import plan_of
from jaxseq.tagger._tagger import CRFTagger

if TYPE_CHECKING:
    from jaxseq.tagger._active import ActiveLearner


def look_at_pool(learner: ActiveLearner, run: Run) -> Look:
    """What the model of the last round says; taken once a round."""
    if run.tagger is None:
        raise ValueError("look: expected a trained model, got none; call `train` first")
    if run.look is None:
        run.look = run.pool.view.look(run.tagger.model_, learner.strategy)
    return run.look


def choose_queries(learner: ActiveLearner, run: Run) -> Proposal:
    """What to ask in this round, within the budget."""
    none = np.zeros(0, np.int64)
    if run.tagger is not None:
        look, known = look_at_pool(learner, run), run.known
        found = propose(look, known.known, learner.strategy, sampled=known.sampled)
    elif run.known.answered.any():
        found = Proposal([], none, none, none)
    else:
        lengths = run.pool.lengths
        first = first_sentences(lengths, learner.initial, learner.initial_how, learner.seed)
        queries = [Query(sentence, 0, int(lengths[sentence]), 0.0) for sentence in first.tolist()]
        found = Proposal(queries, none, none, none)
    if learner.budget is None:
        return found
    left = learner.budget - int(run.known.answered.sum())
    return dataclasses.replace(found, queries=_first_tokens(found.queries, left))


def _first_tokens(queries: list[Query], left: int) -> list[Query]:
    """Queries, the last one perhaps cut short, for so many tokens at most."""
    kept = []
    for query in queries:
        stop = min(query.stop, query.start + left)
        if stop > query.start:
            kept.append(query._replace(stop=stop))
            left -= stop - query.start
    return kept


class Trained(NamedTuple):
    """A tagger for what is known, its look at the pool, and what is to be said of its training."""

    tagger: CRFTagger
    look: Look
    record: dict[str, Any]

    def after(self, first: Trained) -> Trained:
        """The same as the end of a training whose first part was cut short."""
        parts = first.record, self.record
        seconds = [part["seconds"] for part in parts]
        names = dict.fromkeys(name for part in seconds for name in part)
        together = {
            "start": first.record["start"],
            **{name: sum(part[name] for part in parts) for name in ("iterations", "evaluations")},
            "seconds": {name: sum(part.get(name, 0.0) for part in seconds) for name in names},
        }
        return self._replace(record={**self.record, **together})


def train_round(
    learner: ActiveLearner, run: Run, older: CRF | None, most: int | None = None
) -> Trained:
    """Train on the sentences that have a label, and look at the pool.

    Args:
        learner: its settings. run: what is known. older: the model to begin with; None for zeros.
        most: as of `train_on`.
    """
    began = time.perf_counter()
    before = None if run.tagger is None else look_at_pool(learner, run)
    tagger, clock = fresh(learner.estimator), time.perf_counter()
    found, is_short, sentences = fit_known(tagger, run, older, most, _always_whole(learner))
    seconds = {**found.seconds, "training": time.perf_counter() - clock}
    clock = time.perf_counter()
    look = run.pool.view.look(tagger.model_, learner.strategy)
    now = time.perf_counter()
    record = {
        "start": "cold" if older is None else "warm",
        "sentences": sentences,
        "objective": float(found.loss),
        "iterations": found.iterations,
        "evaluations": found.evaluations,
        "outcome": found.outcome.value,
        "short": is_short,
        "new_labels": run.has_news,
        "kappa": None if before is None else agreement(before.labels, look.labels),
        "seconds": {**seconds, "look": now - clock, "all": now - began},
    }
    return Trained(tagger, look, record)


def fit_known(
    tagger: CRFTagger, run: Run, older: CRF | None, most: int | None = None, whole: bool = False
) -> tuple[Fitted, bool, int]:
    """Train a new tagger on the sentences of a pool that have a label.

    Args:
        tagger: to be trained. run: what is known. older, most: as of `train_on`.
        whole: whether all labels of these sentences are known as a rule, or no program for sets of
            them is needed later.

    Returns:
        Where the search ended, whether it was cut short, and the number of sentences.
    """
    trained, labels = run.known.to_train_on()
    if not trained.any():
        raise ValueError("labels: expected at least one, got none; answer some queries first")
    if not whole:
        labels = _as_sets(labels, len(run.pool.classes))
    problem = run.pool.problem(trained, labels)
    model, found, is_short = train_on(problem, plan_of(tagger), older, run.pool.shape, most)
    tagger._take(model, run.pool.classes, run.pool.extractor)
    tagger.loss_, tagger.outcome_ = found.loss, found.outcome.value
    tagger.n_iter_, tagger.n_evaluations_ = found.iterations, found.evaluations
    return found, is_short, int(trained.sum())


def rounding_of(learner: ActiveLearner, run: Run) -> float:
    """How much of a difference of objectives may be rounding: a unit in the last place a token.

    A search ends where no step improves the objective within its precision, sooner or later.
    """
    trained, _ = run.known.to_train_on()
    return float(np.finfo(learner.estimator.dtype).eps) * int(run.pool.lengths[trained].sum())


def _always_whole(learner: ActiveLearner) -> bool:
    """Whether every sentence that is trained on has all its labels, as a rule."""
    return isinstance(learner.strategy, Sequences) and learner.strategy.ask == "all"


def _as_sets(labels: EncodedLabels, classes: int) -> EncodedLabels:
    """With possible labels of every token also where each is known: the program that later rounds
    need, and no other to compile for the first one."""
    if labels.allowed is not None:
        return labels
    return EncodedLabels(labels.gold, labels.gold[:, None] == np.arange(classes))
