"""What estimators of label sequences make of their predictions, whatever the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxseq.tagger._checks import check_sentence_weights
from jaxseq.tagger._labels import Label, check_labels


def split_by_sentence(values: Any, lengths: np.ndarray) -> list[Any]:
    """Values of all tokens, as one piece a sentence.

    Example:
        >>> split_by_sentence(["a", "b", "c"], np.array([2, 0, 1]))
        [['a', 'b'], [], ['c']]
    """
    ends = np.cumsum(lengths)
    return [values[end - n : end] for end, n in zip(ends.tolist(), lengths.tolist())]


def token_score(
    predicted: Sequence[Sequence[str]], y: Sequence[Sequence[Label]], sample_weight: Any = None
) -> float:
    """Share of tokens that get their label; those without a known label do not count.

    Args:
        predicted: labels of each sentence. y: what is known of the right ones.
        sample_weight: how much each sentence counts, or None.

    Example:
        >>> token_score([["A", "B"], ["A"]], [["A", "A"], [None]])
        0.5
    """
    lengths = np.array([len(sentence) for sentence in predicted], np.int64)
    flat = check_labels(y, lengths)
    weights = check_sentence_weights(sample_weight, len(lengths))
    by_token = np.repeat(np.ones(len(lengths)) if weights is None else weights, lengths)
    guesses = (label for sentence in predicted for label in sentence)
    right = np.array([guess == gold for guess, gold in zip(guesses, flat)], bool)
    known = np.array([isinstance(gold, str) for gold in flat], bool)
    total = by_token[known].sum()
    if not total > 0:
        raise ValueError("y: expected at least one token with a known label, got none")
    return float(by_token[known & right].sum() / total)
