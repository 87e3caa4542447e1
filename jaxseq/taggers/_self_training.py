"""Self-training: a tagger that learns from its own labels."""

from __future__ import annotations

import hashlib
import json
import numbers
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from jaxseq._runtime import Outcome, progress_bar
from jaxseq.taggers._labels import Label, check_number, check_unlabelled
from jaxseq.taggers._notes import Notes, fresh, settings_of

Guess = list[str | None]


class SelfTraining(BaseEstimator):
    """Train, label the unlabelled sentences, train on everything, until no label changes.

    The baseline of Jiao et al. 2006: each round trains anew on the labelled sentences and on the
    labels that the tagger of the round before gave to the others. A fixed point need not be
    reached: labels that return to an earlier state end the search, too.

    Args:
        estimator: a tagger, such as `jaxseq.CRFTagger`; it is cloned, not changed.
        confidence: learn from labels only that are at least so probable; None takes all.
        confidence_of: ``"sentence"``, whole labellings by their probability; or ``"token"``,
            labels by their marginal probability, the others staying unknown (partial labels).
        max_rounds: at most so many trainings after the first.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep the labels of the last round in. If it is there when `fit`
            starts, self-training goes on from it, with the same result as if it had never stopped.

    Attributes:
        tagger_: the tagger of the last round. labels_: that it gives the unlabelled sentences,
        None where they are not sure enough to learn from. rounds_: trainings after the first.
        history_: for every round the number of labels that changed, and of those learnt from.
        outcome_: why it ended.

    Example:
        >>> import jaxseq
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
        >>> X, y = [["the", "dog", "barks"]], [["D", "N", "V"]]
        >>> trained = jaxseq.SelfTraining(tagger).fit(X, y, unlabelled=[["the", "cat", "barks"]])
        >>> trained.labels_, trained.outcome_.split(":")[0]
        ([['D', 'N', 'V']], 'converged')

    References:
        Jiao et al. 2006, section 5.3; Celeux & Govaert 1992.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        confidence: float | None = None,
        confidence_of: Literal["sentence", "token"] = "sentence",
        max_rounds: int = 30,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ):
        self.estimator = estimator
        self.confidence = confidence
        self.confidence_of = confidence_of
        self.max_rounds = max_rounds
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(
        self, X: Iterable[Any], y: Sequence[Sequence[Label]], *, unlabelled: Iterable[Any]
    ) -> SelfTraining:
        """Train.

        Args:
            X, y: sentences and labels, as for the estimator.
            unlabelled: more sentences.

        Returns:
            Itself. After Ctrl-C it holds the tagger of the last complete round.
        """
        self._check()
        X, y, others = list(X), list(y), check_unlabelled(unlabelled)
        about = (settings_of(self.estimator), self.confidence, self.confidence_of)
        notes = Notes(self.checkpoint, (about, X, y, others))
        kept = notes.load()
        progress = None if kept is None else _Progress(**kept)
        self.__dict__.pop("tagger_", None)
        if progress is None:
            self.tagger_ = fresh(self.estimator).fit(X, y)
            if _interrupted(self.tagger_):
                return self._end(Outcome.INTERRUPTED, None, [])
            progress = _Progress(self._guess(self.tagger_, others), [], [])
            if not _any_known(progress.labels):
                empty = not any(progress.labels)
                outcome = Outcome.FIXED_POINT if empty else Outcome.UNSURE
                return self._end(outcome, progress.labels, [])
        with progress_bar("self-training", self.max_rounds, self.progress) as tick:
            return self._go_on(X, y, others, progress, notes, tick)

    def _go_on(
        self, X: list[Any], y: list[Any], others: list[Any], past: _Progress, notes: Notes, tick
    ) -> SelfTraining:
        """Rounds until one of the ends."""
        while True:
            labels = past.labels
            used = [(x, guess) for x, guess in zip(others, labels) if any(map(_is_known, guess))]
            everything = (X + [x for x, _ in used], y + [guess for _, guess in used])
            tagger = fresh(self.estimator).fit(*everything)
            if _interrupted(tagger):
                if not hasattr(self, "tagger_"):  # resumed, and no round is complete
                    raise KeyboardInterrupt
                return self._end(Outcome.INTERRUPTED, labels, past.history)
            self.tagger_ = tagger
            new = self._guess(tagger, others)
            changed = sum(a != b for pair in zip(labels, new) for a, b in zip(*pair))
            learnt = sum(_is_known(label) for guess in labels for label in guess)
            past.seen.append(_digest(labels))
            past.history.append({"changed": changed, "learnt_from": learnt})
            tick(len(past.history), changed)
            outcome = self._why_stop(changed, new, past)
            if outcome is not None:
                notes.remove()
                return self._end(outcome, new, past.history)
            past = past._replace(labels=new)
            notes.save(past._asdict())

    def _check(self) -> None:
        check_number("max_rounds", self.max_rounds, 1, numbers.Integral)
        if self.confidence is not None:
            check_number("confidence", self.confidence, 0, numbers.Real)
            if self.confidence > 1:
                raise ValueError(
                    f"confidence: expected a probability, 0 to 1, got {self.confidence}"
                )
        if self.confidence_of not in ("sentence", "token"):
            raise ValueError(
                f"confidence_of: expected 'sentence' or 'token', got {self.confidence_of!r}"
            )

    def _guess(self, tagger: Any, sentences: list[Any]) -> list[Guess]:
        """Labels to learn from; None where they are not sure enough."""
        if self.confidence is None:
            return tagger.predict(sentences)
        if self.confidence_of == "sentence":
            least = np.log(self.confidence) if self.confidence > 0 else -np.inf
            found = tagger.predict_k_best(sentences, 1)
            _check_possible(found)
            best = (paths[0] for paths in found)
            return [path if log_p >= least else [None] * len(path) for path, log_p in best]
        place = {label: column for column, label in enumerate(tagger.classes_)}
        return [
            [label if p[place[label]] >= self.confidence else None for label, p in zip(*both)]
            for both in zip(tagger.predict(sentences), tagger.predict_proba(sentences))
        ]

    def _why_stop(self, changed: int, new: list[Guess], past: _Progress) -> Outcome | None:
        if not changed:
            return Outcome.FIXED_POINT
        if not any(_is_known(label) for guess in new for label in guess):
            return Outcome.UNSURE
        if _digest(new) in past.seen:
            return Outcome.CYCLE
        return Outcome.MAX_ROUNDS if len(past.history) >= self.max_rounds else None

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended `fit`."""
        return self.outcome_ is Outcome.INTERRUPTED

    def _end(self, outcome: Outcome, labels: list[Guess] | None, history: list) -> SelfTraining:
        self.labels_, self.history_, self.rounds_ = labels, history, len(history)
        self.outcome_ = outcome
        return self

    # ---------------------------------------------------------- as the tagger of the last round

    def predict(self, X: Iterable[Any]) -> list[list[str]]:
        """The most probable labelling of each sentence, by the last tagger."""
        check_is_fitted(self, "tagger_")
        return self.tagger_.predict(X)

    def score(self, X: Iterable[Any], y: Sequence[Sequence[Label]], sample_weight=None) -> float:
        """Share of tokens that get their label, by the last tagger."""
        check_is_fitted(self, "tagger_")
        return self.tagger_.score(X, y, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the last tagger; `jaxseq.load` reads it."""
        check_is_fitted(self, "tagger_")
        self.tagger_.save(path)


class _Progress(NamedTuple):
    """Labels for the next round, digests of those of earlier rounds, and the history."""

    labels: list[Guess]
    seen: list[str]
    history: list[dict[str, int]]


def _interrupted(tagger: Any) -> bool:
    return getattr(tagger, "outcome_", None) is Outcome.INTERRUPTED


def _check_possible(found: list[list[Any]]) -> None:
    """ValueError for the first sentence that has no labelling."""
    for index, paths in enumerate(found):
        if not paths:
            raise ValueError(
                f"unlabelled: sentence {index}: expected one that the scheme gives at least one "
                "labelling, got one with none"
            )


def _is_known(label: str | None) -> bool:
    return label is not None


def _any_known(labels: list[Guess]) -> bool:
    return any(_is_known(label) for guess in labels for label in guess)


def _digest(labels: list[Guess]) -> str:
    return hashlib.sha256(json.dumps(labels).encode()).hexdigest()
