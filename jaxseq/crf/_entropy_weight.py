"""Choosing the weight of unlabelled sentences by cross-validation on the labelled ones."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from sklearn.model_selection import KFold

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome, progress_bar
from jaxseq.crf._problem import Vocabulary, check_vocabulary
from jaxseq.crf._score_gradient import EntropyGradient
from jaxseq.crf._settings import EntropyTerm
from jaxseq.crf._tagger import CRFTagger
from jaxseq.metrics import span_scores, token_accuracy
from jaxseq.taggers import check_number, check_unlabelled, fresh, settings_of
from jaxseq.text import SCHEMES, parse_tag

Scoring = Callable[[list[Any], list[list[str]]], float]

SCORINGS: dict[str, Scoring] = {
    "span_f1": lambda gold, predicted: span_scores(gold, predicted).overall.f1,
    "accuracy": token_accuracy,
}


@dataclass(frozen=True)
class EntropyWeights:
    """The result of cross-validation: `scores` [weights, folds], a row for each of `weights`.

    Example:
        >>> chosen = EntropyWeights((0.0, 1.0), np.array([[0.5, 0.7], [0.8, 0.6]]))
        >>> chosen.best, chosen.means.round(3).tolist()
        (1.0, [0.6, 0.7])
    """

    weights: tuple[float, ...]
    scores: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """Of each weight, over the folds."""
        return self.scores.mean(1)

    @property
    def best(self) -> float:
        """The weight with the best mean; the smallest, where several have it."""
        # In ascending order, as `argmax` takes the first of several.
        order = np.argsort(self.weights, kind="stable")
        means = np.where(np.isnan(self.means), -np.inf, self.means)
        return self.weights[int(order[np.argmax(means[order])])]


def choose_entropy_weight(
    tagger: CRFTagger,
    X: Iterable[Any],
    y: Sequence[Sequence[Any]],
    *,
    unlabelled: Iterable[Any],
    weights: Sequence[float] = (0.0, 0.1, 0.5, 1.0, 5.0, 10.0),
    folds: int = 5,
    scoring: str | Scoring | None = None,
    seed: int = 0,
    entropy_gradient: EntropyGradient = "mann",
    vocabulary: Vocabulary = "all",
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> EntropyWeights:
    """Cross-validate γ on the labelled sentences: no label is spent on the choice.

    For each fold the supervised model is trained once on the other folds, and each γ from there,
    with all the unlabelled sentences.

    Args:
        tagger: settings; it is cloned, not changed.
        X: labelled sentences.
        y: their labels, which must all be known.
        unlabelled: further sentences.
        weights: the γ to try.
        folds: parts of the labelled sentences, each held out once.
        scoring: ``"span_f1"``, ``"accuracy"``, or a function of gold and predicted labels; higher
            is better. None takes the first for labels of a chunk scheme, else the second.
        seed: of the folds.
        entropy_gradient: as in `CRFTagger.fit`.
        vocabulary: as in `CRFTagger.fit`.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep scores in, to go on from after an interrupt. It stays, and gives
            the same choice again at once.

    Returns:
        `EntropyWeights`, whose `best` is for ``CRFTagger.fit(..., entropy_weight=…)``.

    Example:
        >>> import jaxseq
        >>> X = [["the", "dog"], ["a", "cat"], ["the", "cat"], ["a", "dog"]]
        >>> y = [["O", "B-X"]] * 4
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
        >>> chosen = jaxseq.choose_entropy_weight(
        ...     tagger, X, y, unlabelled=[["the", "cow"]], weights=(0, 1), folds=2
        ... )
        >>> chosen.scores.shape
        (2, 2)
    """
    X, y, pool = list(X), list(y), check_unlabelled(unlabelled)
    gammas = _check_weights(weights)
    EntropyTerm.from_arguments(0.0, entropy_gradient)
    check_vocabulary(vocabulary)
    check_number("folds", folds, 2, numbers.Integral)
    check_number("seed", seed, 0, numbers.Integral)
    if len(X) != len(y):
        raise ValueError(f"y: expected labels for {len(X)} sentences, got {len(y)}")
    labels = set() if callable(scoring) else _check_known(y)
    scoring = usual_scoring(labels) if scoring is None else scoring
    score = _scoring(scoring)
    if folds > len(X):
        raise ValueError(f"folds: expected at most one per sentence, {len(X)}, got {folds}")
    about = (settings_of(tagger), gammas, int(folds), _scoring_name(scoring), int(seed), vocabulary)
    store = SearchStore(checkpoint, lambda: Fingerprint("entropy weight", about, X, y, pool))
    how = {"entropy_gradient": entropy_gradient, "vocabulary": vocabulary}
    # Folds of sentences; the unlabelled ones are the same in all.
    splits = KFold(folds, shuffle=True, random_state=seed).split(X)
    scores = np.zeros((len(gammas), folds))
    total = folds * len(gammas)
    with store.alone(), progress_bar("cross-validation", total, progress) as tick:
        saved = store.load()
        known: dict[str, float] = {} if saved is None else saved.notes
        for fold, (train, held_out) in enumerate(splits):
            fit = _trainer(tagger, _pick(X, train), _pick(y, train), pool, how)
            tests, gold = _pick(X, held_out), _pick(y, held_out)
            for row, gamma in enumerate(gammas):
                name = f"{fold} {gamma!r}"
                if name not in known:  # of an earlier run that was interrupted
                    known[name] = float(score(gold, fit(gamma).predict(tests)))
                    store.save(known)
                scores[row, fold] = known[name]
                tick(fold * len(gammas) + row + 1, scores[row, fold])
    return EntropyWeights(gammas, scores)


def _trainer(
    tagger: CRFTagger, X: list[Any], y: list[Any], unlabelled: list[Any], how: dict[str, Any]
) -> Callable[[float], CRFTagger]:
    """Trainings on one fold, by γ, all from one supervised model."""

    @cache  # not before a score of this fold is missing, and then once
    def supervised() -> CRFTagger:
        return _uninterrupted(fresh(tagger).fit(X, y))

    def train(gamma: float) -> CRFTagger:
        if gamma == 0 or not unlabelled:
            return supervised()
        options = {"entropy_weight": gamma, "warm_start_from": supervised(), **how}
        return _uninterrupted(fresh(tagger).fit(X, y, unlabelled=unlabelled, **options))

    return train


def _uninterrupted(tagger: CRFTagger) -> CRFTagger:
    """The tagger; Ctrl-C ends a training early, whose score would not count."""
    if tagger.outcome_ is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return tagger


def _check_weights(weights: Any) -> tuple[float, ...]:
    if not isinstance(weights, Iterable) or isinstance(weights, str | bytes):
        raise ValueError(f"weights: expected numbers to choose from, got {weights!r:.60}")
    listed = list(weights)
    for weight in listed:
        check_number("weights", weight, 0, numbers.Real)
    if not listed:
        raise ValueError("weights: expected at least one, got none")
    return tuple(float(weight) for weight in listed)


def _scoring(scoring: Any) -> Scoring:
    if callable(scoring):
        return cast(Scoring, scoring)
    if not isinstance(scoring, str) or scoring not in SCORINGS:
        raise ValueError(
            f"scoring: expected one of {list(SCORINGS)} or a function, got {scoring!r}"
        )
    return SCORINGS[scoring]


def _check_known(y: list[Any]) -> set[str]:
    """The labels; ValueError on a token that has none to be scored by."""
    for sentence, labels in enumerate(y):
        for token, label in enumerate(labels):
            if not isinstance(label, str):
                raise ValueError(
                    f"y[{sentence}][{token}]: expected a known label to score by, got {label!r:.60}"
                )
    return {label for labels in y for label in labels}


def usual_scoring(labels: Iterable[str]) -> str:
    """How to score: by spans if the labels are of a chunk scheme, by tokens if not.

    Example:
        >>> usual_scoring(["O", "B-NP", "I-NP"]), usual_scoring(["DT", "NN"])
        ('span_f1', 'accuracy')
    """
    labels = set(labels)
    # Any scheme will do: "O" alone is a label of all of them, and says nothing.
    chunks = any(all(parse_tag(scheme, tag) for tag in labels) for scheme in SCHEMES)
    return "span_f1" if chunks and labels != {"O"} else "accuracy"


def _scoring_name(scoring: Any) -> str:
    """The same in every process."""
    # The text of a function has its address in it, which is another in every process.
    name = getattr(scoring, "__qualname__", None)
    return repr(scoring) if name is None else f"{scoring.__module__}.{name}"


def _pick(items: list[Any], chosen: np.ndarray) -> list[Any]:
    return [items[index] for index in chosen.tolist()]
