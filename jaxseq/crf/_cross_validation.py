"""Choosing l2, or the weight of unlabelled sentences, by cross-validation on labelled ones."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome, progress_bar
from jaxseq.crf._problem import Vocabulary, check_vocabulary
from jaxseq.crf._score_gradient import EntropyGradient
from jaxseq.crf._settings import EntropyTerm
from jaxseq.crf._tagger import CRFTagger
from jaxseq.expectations import Expectation
from jaxseq.metrics import span_scores, token_accuracy
from jaxseq.taggers import check_number, check_unlabelled, fresh, settings_of, token_score
from jaxseq.text import SCHEMES, parse_tag

Scoring = Callable[[list[Any], list[list[str]]], float]

SCORINGS: dict[str, Scoring] = {
    "span_f1": lambda gold, predicted: span_scores(gold, predicted).overall.f1,
    "accuracy": token_accuracy,
}


L2_VALUES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""What `choose_l2` chooses from, where nothing else is asked for."""

FOLDS = 5


@dataclass(frozen=True)
class CrossValidation:
    """The result of cross-validation: `scores` [values, folds], a row for each of `values`.

    Example:
        >>> chosen = CrossValidation((0.0, 1.0), np.array([[0.5, 0.7], [0.8, 0.6]]))
        >>> chosen.best, chosen.means.round(3).tolist()
        (1.0, [0.6, 0.7])
    """

    values: tuple[float, ...]
    scores: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """Of each value, over the folds."""
        return self.scores.mean(1)

    @property
    def best(self) -> float:
        """The value with the best mean; the smallest, where several have it."""
        # In ascending order, as `argmax` takes the first of several.
        order = np.argsort(self.values, kind="stable")
        means = np.where(np.isnan(self.means), -np.inf, self.means)
        return self.values[int(order[np.argmax(means[order])])]


ScoreOfValue = Callable[[float], float]
OnFold = Callable[[np.ndarray, np.ndarray], ScoreOfValue]
"""From the sentences to train on and those held out to the score of each value."""


def cross_validate(
    values: tuple[float, ...],
    sentences: int,
    on_fold: OnFold,
    *,
    folds: int,
    seed: int,
    progress: bool | None = None,
    store: SearchStore | None = None,
) -> CrossValidation:
    """Score every value on every fold.

    Args:
        values: to choose from.
        sentences: how many there are.
        on_fold: called for each fold; what it returns is called for each value in turn.
        folds: parts of the sentences, each held out once.
        seed: of the folds.
        progress: show a progress bar; None shows it on a terminal.
        store: keeps the scores, to go on from after an interrupt.
    """
    from sklearn.model_selection import KFold  # which takes a while to import

    if folds > sentences:
        raise ValueError(f"folds: expected at most one per sentence, {sentences}, got {folds}")
    store = SearchStore(None, "") if store is None else store
    splits = KFold(folds, shuffle=True, random_state=seed).split(np.zeros(sentences))
    scores = np.zeros((len(values), folds))
    with store.alone(), progress_bar("cross-validation", folds * len(values), progress) as tick:
        saved = store.load()
        known: dict[str, float] = {} if saved is None else saved.notes
        for fold, (train, held_out) in enumerate(splits):
            score = on_fold(train, held_out)
            for row, value in enumerate(values):
                name = f"{fold} {value!r}"
                if name not in known:  # of an earlier run that was interrupted
                    known[name] = score(value)
                    store.save(known)
                scores[row, fold] = known[name]
                tick(fold * len(values) + row + 1, scores[row, fold])
    return CrossValidation(values, scores)


def choose_l2(
    tagger: CRFTagger,
    X: Iterable[Any],
    y: Sequence[Sequence[Any]],
    *,
    values: Sequence[float] = L2_VALUES,
    folds: int = FOLDS,
    scoring: str | Scoring | None = None,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> CrossValidation:
    """Cross-validate the l2 of a tagger: worth its time where there are few labelled sentences.

    Args:
        tagger: the other settings; it is cloned, not changed.
        X: labelled sentences.
        y: their labels, as for `CRFTagger.fit`.
        values: the l2 to try.
        folds: parts of the sentences, each held out once.
        scoring: as in `choose_entropy_weight`. Where some labels are not known, None takes the
            accuracy of the others.
        seed: of the folds.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep scores in, to go on from after an interrupt. It stays, and gives
            the same choice again at once.

    Returns:
        `CrossValidation`, whose `best` is for ``tagger.set_params(l2=…)``.

    Cost: `folds` times as many trainings as there are values.

    Example:
        >>> import jaxseq
        >>> X = [["the", "dog"], ["a", "cat"], ["the", "cat"], ["a", "dog"]]
        >>> y = [["D", "N"]] * 4
        >>> jaxseq.choose_l2(jaxseq.CRFTagger(), X, y, values=(0.1, 1), folds=2).best
        0.1
    """
    X, y, strengths = list(X), list(y), _check_values("values", values)
    _check_folds(folds, seed, X, y)
    is_known = all(isinstance(label, str) for labels in y for label in labels)
    if scoring is None and not is_known:
        scoring, score = "known tokens", _known_accuracy
    else:
        scoring, score = _choose_scoring(scoring, y)
    about = (settings_of(tagger), strengths, int(folds), _scoring_name(scoring), int(seed))
    store = SearchStore(checkpoint, lambda: Fingerprint("l2", about, X, y))

    def on_fold(train: np.ndarray, held_out: np.ndarray) -> ScoreOfValue:
        def score_of(l2: float) -> float:
            one = fresh(tagger).set_params(l2=l2).fit(_pick(X, train), _pick(y, train))
            predicted = _uninterrupted(one).predict(_pick(X, held_out))
            return float(score(_pick(y, held_out), predicted))

        return score_of

    return cross_validate(
        strengths, len(X), on_fold, folds=folds, seed=seed, progress=progress, store=store
    )


def _known_accuracy(gold: list[Any], predicted: list[list[str]]) -> float:
    """Of the tokens with a known label; NaN, which no choice falls on, where there are none."""
    if not any(isinstance(label, str) for labels in gold for label in labels):
        return float("nan")
    return token_score(predicted, gold)


def choose_entropy_weight(
    tagger: CRFTagger,
    X: Iterable[Any],
    y: Sequence[Sequence[Any]],
    *,
    unlabelled: Iterable[Any],
    weights: Sequence[float] = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
    expectations: Sequence[Expectation] | None = None,
    normalise_entropy: bool = True,
    folds: int = 5,
    scoring: str | Scoring | None = None,
    seed: int = 0,
    entropy_gradient: EntropyGradient = "mann",
    vocabulary: Vocabulary = "all",
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> CrossValidation:
    """Cross-validate γ on the labelled sentences: no label is spent on the choice.

    For each fold the supervised model is trained once on the other folds, and each γ from there,
    with all the unlabelled sentences.

    Args:
        tagger: settings; it is cloned, not changed.
        X: labelled sentences.
        y: their labels, which must all be known.
        unlabelled: further sentences.
        weights: the γ to try.
        expectations: as in `CRFTagger.fit`.
        normalise_entropy: as in `CRFTagger.fit`.
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
        `CrossValidation`, whose `best` is for ``CRFTagger.fit(..., entropy_weight=…)``.

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
    gammas = _check_values("weights", weights)
    EntropyTerm.from_arguments(0.0, entropy_gradient)
    check_vocabulary(vocabulary)
    _check_folds(folds, seed, X, y)
    scoring, score = _choose_scoring(scoring, y)
    about: tuple[Any, ...] = (settings_of(tagger), gammas, int(folds), _scoring_name(scoring))
    about += (int(seed), vocabulary, normalise_entropy, repr(expectations))
    store = SearchStore(checkpoint, lambda: Fingerprint("entropy weight", about, X, y, pool))
    how: dict[str, Any] = {"entropy_gradient": entropy_gradient, "vocabulary": vocabulary}
    how |= {"expectations": expectations, "normalise_entropy": normalise_entropy}

    def on_fold(train: np.ndarray, held_out: np.ndarray) -> ScoreOfValue:
        # The unlabelled sentences are the same in all folds.
        fit = _trainer(tagger, _pick(X, train), _pick(y, train), pool, how)
        tests, gold = _pick(X, held_out), _pick(y, held_out)
        return lambda gamma: float(score(gold, fit(gamma).predict(tests)))

    return cross_validate(
        gammas, len(X), on_fold, folds=folds, seed=seed, progress=progress, store=store
    )


def _trainer(
    tagger: CRFTagger, X: list[Any], y: list[Any], unlabelled: list[Any], how: dict[str, Any]
) -> Callable[[float], CRFTagger]:
    """Trainings on one fold, by γ, all from one supervised model."""

    @cache  # not before a score of this fold is missing, and then once
    def supervised() -> CRFTagger:
        return _uninterrupted(fresh(tagger).fit(X, y))

    def train(gamma: float) -> CRFTagger:
        # An empty list says that there are no expectations, None that there are the usual ones.
        if not unlabelled or (gamma == 0 and how["expectations"] == []):
            return supervised()
        options = {"entropy_weight": gamma, "warm_start_from": supervised(), **how}
        return _uninterrupted(fresh(tagger).fit(X, y, unlabelled=unlabelled, **options))

    return train


def _uninterrupted(tagger: CRFTagger) -> CRFTagger:
    """The tagger; Ctrl-C ends a training early, whose score would not count."""
    if tagger.outcome_ is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return tagger


def _check_values(name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ValueError(f"{name}: expected numbers to choose from, got {values!r:.60}")
    listed = list(values)
    for value in listed:
        check_number(name, value, 0, numbers.Real)
    if not listed:
        raise ValueError(f"{name}: expected at least one, got none")
    return tuple(float(value) for value in listed)


def _check_folds(folds: Any, seed: Any, X: list[Any], y: list[Any]) -> None:
    check_number("folds", folds, 2, numbers.Integral)
    check_number("seed", seed, 0, numbers.Integral)
    if len(X) != len(y):
        raise ValueError(f"y: expected labels for {len(X)} sentences, got {len(y)}")


def _choose_scoring(scoring: Any, y: list[Any]) -> tuple[Any, Scoring]:
    """How to score, and the function that does; ValueError for labels that cannot be scored by."""
    if callable(scoring):
        return scoring, cast(Scoring, scoring)
    labels = _check_known(y)
    scoring = usual_scoring(labels) if scoring is None else scoring
    if not isinstance(scoring, str) or scoring not in SCORINGS:
        raise ValueError(
            f"scoring: expected one of {list(SCORINGS)} or a function, got {scoring!r}"
        )
    return scoring, SCORINGS[scoring]


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
