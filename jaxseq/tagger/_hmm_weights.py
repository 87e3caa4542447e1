"""EM between labelled and unlabelled sentences for many values of the balance λ between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._progress import progress_bar
from jaxseq.models._hmm import HMM
from jaxseq.tagger._hmm_data import HMMData, read_hmm_data
from jaxseq.tagger._hmm_plan import HMMPlan, check_balance, hmm_plan_of
from jaxseq.tagger._hmm_search import HMMFitted, search_hmm
from jaxseq.tagger._hmm_tagger import HMMTagger, ImpossibleSentence
from jaxseq.tagger._labels import Label
from jaxseq.tagger._notes import fresh

STEP = 0.025
"""Between two values of λ, as in figure 2 of Haffari & Sarkar."""


@dataclass(frozen=True)
class WeightSweep:
    """What a sweep over λ found: for each of `weights` the trained tagger and its score.

    A score is NaN where the tagger holds a sentence impossible that it was to be scored on: at
    λ = 1 nothing is smoothed. Such a λ is never the best.

    Example:
        >>> sweep = WeightSweep((0.0, 0.5, 1.0), (), np.array([0.7, 0.9, 0.9]))
        >>> sweep.best
        0.5
    """

    weights: tuple[float, ...]
    taggers: tuple[HMMTagger, ...]
    scores: np.ndarray

    @property
    def best_index(self) -> int:
        """Where the best score is; the first place, where several have it."""
        if np.isnan(self.scores).all():
            raise ValueError(f"scores: expected a number at some λ, got NaN at {self.weights}")
        return int(np.nanargmax(self.scores))

    @property
    def best(self) -> float:
        """λ of the best score."""
        return self.weights[self.best_index]


def sweep_weights(
    tagger: HMMTagger,
    X: Iterable[Any],
    y: Sequence[Sequence[Label]],
    *,
    unlabelled: Iterable[Any],
    scoring: Callable[[HMMTagger], float],
    weights: Sequence[float] | None = None,
    warm_start: bool = False,
    progress: bool | None = None,
) -> WeightSweep:
    r"""Train by EM at each λ, and score what comes out.

    The baselines of the choice of λ: with sentences that are held out for `scoring`, the held-out
    λ; with the test sentences, the oracle's, which no method that chooses λ alone can beat.

    Args:
        tagger: settings; it is cloned, not changed. Its own weight and checkpoint are not used.
        X, y, unlabelled: as in `HMMTagger.fit`.
        scoring: of a trained tagger; higher is better. Where it meets a sentence of probability
            0, as λ = 1 has it of words that are not in `unlabelled`, the score is NaN.
        weights: λ, in the order in which to train; 0, .025, …, 1 if None.
        warm_start: start EM at each λ from the model of the one before; otherwise all start from
            the supervised model. The vocabulary is the same for all.
        progress: show a progress bar; None shows it on a terminal.

    Returns:
        A `WeightSweep`.

    Raises:
        ValueError: as `HMMTagger.fit`; for weights outside 0 … 1; without an unlabelled token.
        KeyboardInterrupt: after Ctrl-C.

    Cost: that of `HMMTagger.fit` once for every weight.

    Example:
        >>> X, y = [["the", "dog", "barks"]], [["D", "N", "V"]]
        >>> more = [["the", "cow", "barks"], ["the", "cow"]]
        >>> found = sweep_weights(
        ...     HMMTagger(unknown_below=1), X, y, unlabelled=more, weights=(0, 0.5),
        ...     scoring=lambda trained: trained.score([["the", "cow"]], [["D", "N"]]),
        ... )
        >>> found.weights, found.scores.tolist()
        ((0.0, 0.5), [1.0, 1.0])

    References:
        Haffari & Sarkar 2008, section 5.1 and figure 2: (a) cold, (b) warm starts.
    """
    lambdas = _check_weights(weights)
    plan = replace(hmm_plan_of(fresh(tagger)), progress=False)
    data = read_hmm_data(X, y, unlabelled, plan)
    if data.unlabelled is None:
        raise ValueError("unlabelled: expected at least one token, got none")
    supervised = _uninterrupted(search_hmm(replace(data, unlabelled=None), plan))
    begin, taggers, scores = supervised.model, [], []
    with progress_bar("sweep over λ", len(lambdas), progress) as tick:
        for balance in lambdas:
            found = supervised if balance == 0 else _train(data, plan, begin, balance)
            taggers.append(_trained(tagger, data, found, balance))
            scores.append(_score(scoring, taggers[-1]))
            begin = found.model if warm_start else begin
            tick(len(scores), scores[-1])
    return WeightSweep(lambdas, tuple(taggers), np.array(scores))


def _score(scoring: Callable[[HMMTagger], float], trained: HMMTagger) -> float:
    try:
        return float(scoring(trained))
    except ImpossibleSentence:
        return math.nan


def _check_weights(weights: Sequence[float] | None) -> tuple[float, ...]:
    if weights is None:
        return tuple(np.linspace(0, 1, round(1 / STEP) + 1).tolist())
    if not len(weights):
        raise ValueError("weights: expected at least one, got none")
    for index, weight in enumerate(weights):
        if weight is None:
            raise ValueError(f"weights[{index}]: expected a number from 0 to 1, got None")
        check_balance(f"weights[{index}]", weight)
    return tuple(float(weight) for weight in weights)


def _train(data: HMMData, plan: HMMPlan, begin: HMM, balance: float) -> HMMFitted:
    return _uninterrupted(search_hmm(data, replace(plan, weight=balance), begin))


def _uninterrupted(found: HMMFitted) -> HMMFitted:
    """Ctrl-C ends a training early, whose score would not count."""
    if found.outcome == Outcome.INTERRUPTED.value:
        raise KeyboardInterrupt
    return found


def _trained(tagger: HMMTagger, data: HMMData, found: HMMFitted, balance: float) -> HMMTagger:
    trained = fresh(tagger).set_params(weight=balance)
    trained._take_fitted(data, found)
    return trained
