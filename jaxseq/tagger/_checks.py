"""What the estimator refuses, and how it says so."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def check_possible(possible: np.ndarray, lengths: np.ndarray) -> None:
    """ValueError for the first sentence with a token that can have no label at all."""
    if not possible.all():
        token = int(np.flatnonzero(~possible)[0])
        sentence = int(np.searchsorted(np.cumsum(lengths), token, side="right"))
        raise ValueError(
            f"X[{sentence}]: expected a sentence that the scheme gives at least one labelling, "
            f"got one of {int(lengths[sentence])} tokens with none"
        )


def check_sentences(X: Iterable[Any]) -> Iterable[Any]:
    if not isinstance(X, Iterable):
        raise ValueError(f"X: expected sentences, got {X!r:.60}")
    return X


def check_number(name: str, value: Any, low: int, kind: type) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        wanted = "a whole number" if kind is numbers.Integral else "a number"
        raise ValueError(f"{name}: expected {wanted}, got {value!r:.60}")
    if not low <= value < np.inf:
        raise ValueError(f"{name}: expected a finite number, {low} or more, got {value}")


def check_sentence_weights(weights: Sequence[float] | None, count: int) -> np.ndarray | None:
    if weights is None:
        return None
    try:
        array = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight: expected numbers, got {weights!r:.60}") from error
    if array.shape != (count,):
        raise ValueError(
            f"sample_weight: expected {count} numbers, one a sentence, got shape "
            f"{list(array.shape)}"
        )
    if not (np.isfinite(array) & (array >= 0)).all():
        bad = int(np.flatnonzero(~(np.isfinite(array) & (array >= 0)))[0])
        raise ValueError(
            f"sample_weight[{bad}]: expected a finite number, 0 or more, got {array[bad]}"
        )
    if not array.any():
        raise ValueError("sample_weight: expected at least one weight above 0, got none")
    return array
