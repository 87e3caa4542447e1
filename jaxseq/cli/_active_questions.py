"""Queries with what an annotator needs to see: words, guesses and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxseq.cli._active_run import ActiveRun
    from jaxseq.learn.active import Query


@dataclass(frozen=True)
class Question:
    """A query in words.

    Args:
        round: that it belongs to. sentence, start, stop, score: as of `Query`.
        tokens: all words of the sentence.
        guess: the model's label of each token that is asked; None where it has none.
        confidence: the probability of each guess; None where there is none.

    Example:
        >>> asked = Question(2, 7, 1, 2, 0.4, ("the", "dog"), ("N",), (0.6,))
        >>> asked.words
        ('dog',)
    """

    round: int
    sentence: int
    start: int
    stop: int
    score: float
    tokens: tuple[str, ...]
    guess: tuple[str | None, ...]
    confidence: tuple[float | None, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Those that are asked about."""
        return self.tokens[self.start : self.stop]

    def as_dict(self) -> dict[str, Any]:
        """For a line of ``queries.jsonl``."""
        return {
            "round": self.round,
            "sentence": self.sentence,
            "start": self.start,
            "stop": self.stop,
            "words": list(self.words),
            "guess": list(self.guess),
            "confidence": list(self.confidence),
            "score": self.score,
            "tokens": list(self.tokens),
        }


def questions_of(run: ActiveRun, queries: Sequence[Query]) -> list[Question]:
    """The queries in words, in the same order."""
    if not run.has_model:
        return [_without_model(run, query) for query in queries]
    look, classes = run.learner.look(), run.classes
    starts = np.cumsum(look.lengths) - look.lengths
    questions = []
    for query in queries:
        begin = int(starts[query.sentence])
        inside = slice(begin + query.start, begin + query.stop)
        labels, sure = look.labels[inside].tolist(), look.confidence[inside].tolist()
        guess = tuple(None if k < 0 else classes[k] for k in labels)
        confidence = tuple(None if k < 0 else round(p, 6) for k, p in zip(labels, sure))
        words = run.corpora.words(query.sentence)
        questions.append(Question(run.round, *query, words, guess, confidence))
    return questions


def _without_model(run: ActiveRun, query: Query) -> Question:
    none = (None,) * (query.stop - query.start)
    return Question(run.round, *query, run.corpora.words(query.sentence), none, none)
