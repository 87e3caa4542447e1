"""Scores of labellings with their uncertainty, by resampling sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxseq.metrics import spans

RESAMPLES = 1000


class SentenceCounts(NamedTuple):
    """Of each sentence how many things are right, how many there are, and how many were predicted.

    Things are spans, or tokens: then the last two are equal. Scores of any sample of sentences
    follow from these.
    """

    right: np.ndarray
    there: np.ndarray
    predicted: np.ndarray

    @property
    def score(self) -> float:
        """F1 of the spans, or the accuracy of the tokens; 0 where there is nothing at all."""
        return float(_ratio(*(each.sum() for each in self)))


def count_by_sentence(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], by: str
) -> SentenceCounts:
    """What scores are made of.

    Args:
        gold: the labels of each sentence.
        predicted: those of a tagger.
        by: ``"span_f1"`` or ``"accuracy"``, as `jaxseq.crf.usual_scoring` has it.

    Example:
        >>> count_by_sentence([["B-X", "O"], ["O"]], [["B-X", "O"], ["B-X"]], "span_f1").score
        0.6666666666666666
    """
    counts = np.zeros((3, len(gold)), np.int64)
    for place, (true, guess) in enumerate(zip(gold, predicted)):
        if by == "accuracy":
            counts[:, place] = sum(a == b for a, b in zip(true, guess)), len(true), len(true)
        else:
            there, found = set(spans(true)), set(spans(guess))
            counts[:, place] = len(there & found), len(there), len(found)
    return SentenceCounts(*counts)


def resampled_scores(
    counts: Sequence[SentenceCounts], seed: int, resamples: int = RESAMPLES
) -> np.ndarray:
    """The scores of several labellings on samples of the sentences, drawn with replacement.

    Args:
        counts: of the same sentences by each labelling.
        seed: of the samples, which are the same for all labellings: differences are paired.
        resamples: number of samples.

    Returns:
        Scores ``[labellings, resamples]``, whose spread is that of the score.

    Example:
        >>> counts = SentenceCounts(*np.array([[1, 0, 2], [1, 1, 2], [1, 1, 2]]))
        >>> resampled_scores([counts], seed=0).shape
        (1, 1000)
    """
    number = len(counts[0].right)
    draws = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), resamples)
    return np.stack([_ratio(*(draws @ part for part in each)) for each in counts])


def _ratio(right: Any, there: Any, predicted: Any) -> Any:
    return 2 * right / np.maximum(there + predicted, 1)
