"""Self-training: a tagger that learns from its own labels."""

from __future__ import annotations

import hashlib
import json
import numbers
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome, progress_bar
from jaxseq.taggers._base import KeepsSearch, SequenceTagger
from jaxseq.taggers._labels import Label, check_number, check_unlabelled, warn_of_drift

# ----------------------------------------------------------- what long jobs of many trainings share


QUIET = {"progress": False, "checkpoint": None}
"""Parameters that do not bear on the result, and the values that show and keep nothing."""


def fresh(estimator: Any) -> Any:
    """An untrained copy that shows and keeps nothing of its own."""
    from sklearn.base import clone  # slow to import, and not needed to define models

    copy: Any = clone(estimator)
    names = copy.get_params(deep=False)
    return copy.set_params(**{name: value for name, value in QUIET.items() if name in names})


def settings_of(estimator: Any) -> dict[str, Any]:
    """The class and its parameters, without those that do not bear on the result."""
    settings = estimator.get_params(deep=False)
    settings = {name: value for name, value in settings.items() if name not in QUIET}
    return {"class": type(estimator).__name__, **settings}


Guess = list[str | None]


# ------------------------------------------------------------------------------------ self-training


class SelfTraining(KeepsSearch):
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
        tagger_: the tagger of the last round.
        labels_: those that it gives the unlabelled sentences, None where they are not sure enough
            to learn from.
        rounds_: trainings after the first.
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
            X: sentences, as for the estimator.
            y: their labels, as for the estimator.
            unlabelled: more sentences.

        Returns:
            Itself. After Ctrl-C it holds the tagger of the last complete round.
        """
        self._check()
        X, y, unlabelled = list(X), list(y), check_unlabelled(unlabelled)
        about = (settings_of(self.estimator), self.confidence, self.confidence_of)
        store = SearchStore(
            self.checkpoint, lambda: Fingerprint("self-training", about, X, y, unlabelled)
        )
        with store.alone():
            return self._fit(X, y, unlabelled, store)

    def _fit(
        self, X: list[Any], y: list[Any], unlabelled: list[Any], store: SearchStore
    ) -> SelfTraining:
        saved = store.load()
        # Of an earlier `fit`: what is here after Ctrl-C must be of this one.
        self.__dict__.pop("tagger_", None)
        if saved is not None:
            past = _Progress(**saved.notes)
        else:
            self.tagger_ = fresh(self.estimator).fit(X, y)
            if _interrupted(self.tagger_):
                return self._end(Outcome.INTERRUPTED, None, [])
            past = _Progress(self._guess(self.tagger_, unlabelled), [], [])
            if not _count_known(past.labels):
                outcome = Outcome.UNSURE if any(past.labels) else Outcome.FIXED_POINT
                return self._end(outcome, past.labels, [])
        with progress_bar("self-training", self.max_rounds, self.progress) as tick:
            while True:
                labels = past.labels
                # A sentence of which nothing is sure would only slow training down.
                used = [pair for pair in zip(unlabelled, labels) if _count_known([pair[1]])]
                guessed = ([x for x, _ in used], [guess for _, guess in used])
                tagger = fresh(self.estimator).fit(X + guessed[0], y + guessed[1])
                if _interrupted(tagger):
                    if not hasattr(self, "tagger_"):  # resumed, and no round is complete
                        raise KeyboardInterrupt
                    return self._end(Outcome.INTERRUPTED, labels, past.history)
                self.tagger_ = tagger
                new = self._guess(tagger, unlabelled)
                changed = sum(a != b for pair in zip(labels, new) for a, b in zip(*pair))
                past.seen.append(_digest(labels))
                past.history.append({"changed": changed, "learnt_from": _count_known(labels)})
                tick(len(past.history), changed)
                outcome = self._why_stop(changed, new, past)
                if outcome is not None:
                    if isinstance(tagger, SequenceTagger):
                        tagger._remove_when_saved(store)  # until then, to learn it again
                    else:
                        store.remove()
                    self._warn_of_drift(y, new)
                    return self._end(outcome, new, past.history)
                past = past._replace(labels=new)
                store.save(past._asdict())  # before the next round, which may be interrupted

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
            answers = tagger.predict_k_best(sentences, 1)
            for index, paths in enumerate(answers):
                if not paths:
                    raise ValueError(
                        f"unlabelled: sentence {index}: expected one that the scheme gives at "
                        "least one labelling, got one with none"
                    )
            best = (paths[0] for paths in answers)
            return [path if log_p >= least else [None] * len(path) for path, log_p in best]
        # Token by token, what is not sure enough becomes unknown: a partial labelling.
        place = {label: column for column, label in enumerate(tagger.classes_)}
        return [
            [label if p[place[label]] >= self.confidence else None for label, p in zip(*both)]
            for both in zip(tagger.predict(sentences), tagger.predict_proba(sentences))
        ]

    def _warn_of_drift(self, y: Sequence[Sequence[Label]], guesses: list[Guess]) -> None:
        if self.confidence is not None:
            return  # what is sure enough is of other labels than the rest, in any case
        known, now = (
            Counter(label for labels in each for label in labels if isinstance(label, str))
            for each in (y, guesses)
        )
        classes = sorted(known | now)
        before, after = (np.array([count[name] for name in classes]) for count in (known, now))
        warn_of_drift(classes, before, after)

    def _why_stop(self, changed: int, new: list[Guess], past: _Progress) -> Outcome | None:
        # In order of what says most about the result: a fixed point may also be a last round.
        if not changed:
            return Outcome.FIXED_POINT
        if not _count_known(new):
            return Outcome.UNSURE
        if _digest(new) in past.seen:  # training is deterministic: the same rounds would follow
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


def _count_known(labels: list[Guess]) -> int:
    """Labels that are sure enough to learn from."""
    return sum(label is not None for guess in labels for label in guess)


def _digest(labels: list[Guess]) -> str:
    """To recognise labels of an earlier round without keeping them all."""
    return hashlib.sha256(json.dumps(labels).encode()).hexdigest()
