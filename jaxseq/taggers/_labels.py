"""Sentences and labels as users give them, checked; labels as numbers, known or partly known."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxseq.parallel import Devices
from jaxseq.text import legal_transitions

UNKNOWN = -1
"""Stands for the label of a token that has none, or several possible ones."""

Label: TypeAlias = str | Set[str] | None
"""What is known of a token's label: itself, a set of possible ones, or nothing."""


LARGEST_DRIFT = 0.5
"""Of the way from the labelled distribution to nothing but its most frequent label."""

FEWEST_PREDICTED = 100
"""Tokens whose labels have a distribution to speak of."""


def warn_of_drift(
    classes: Sequence[str], labelled: np.ndarray, predicted: np.ndarray, what: str = "unlabelled"
) -> None:
    """Warn where predicted labels are distributed quite differently from the labelled ones.

    Args:
        classes: the labels.
        labelled: how often each is known.
        predicted: how often each is predicted for text that was learnt from without labels.
        what: the name of that text.
    """
    if not labelled.sum() or predicted.sum() < FEWEST_PREDICTED:
        return
    known, now = labelled / labelled.sum(), predicted / predicted.sum()
    # Total variation: what a model that has collapsed to the most frequent label has lost is all
    # but the share of that label, however large this is.
    moved, most = np.maximum(known - now, 0).sum(), 1 - known.max()
    if moved <= LARGEST_DRIFT * most or most == 0:
        return
    order = np.argsort(-np.abs(known - now), kind="stable")[:5]
    shares = ", ".join(f"{classes[i]} {now[i]:.1%} for {known[i]:.1%}" for i in order)
    warnings.warn(
        f"{what}: the model that was trained with these sentences labels them quite differently "
        f"from the labelled ones (predicted for labelled: {shares}); it may have learnt from its "
        "own mistakes: try a smaller weight, expectations, or none of them",
        stacklevel=3,
    )


class Legal(NamedTuple):
    """Which transitions, starts and stops a model may use."""

    transitions: Bool[Array, "s s"]
    start: Bool[Array, " s"]
    stop: Bool[Array, " s"]


@dataclass(frozen=True)
class EncodedLabels:
    """Labels of all tokens of a corpus, one after another.

    gold: int32 [N], −1 where not known. allowed: bool [N, s], or None when all are known.
    """

    gold: np.ndarray
    allowed: np.ndarray | None


def check_sentences(X: Iterable[Any]) -> Iterable[Any]:
    """The sentences; ValueError for something that cannot be iterated over."""
    if not isinstance(X, Iterable):
        raise ValueError(f"X: expected sentences, got {X!r:.60}")
    return X


def check_unlabelled(unlabelled: Any) -> list[Any]:
    """The sentences as a list; ValueError for something that does not hold sentences."""
    if isinstance(unlabelled, str | bytes) or not isinstance(unlabelled, Iterable):
        raise ValueError(f"unlabelled: expected sentences, got {unlabelled!r:.60}")
    return list(unlabelled)


MAX_CORES = 1024
"""Threads of one training. More would be a slip of the finger, and need memory for each."""


def check_number(name: str, value: Any, low: int, kind: type, high: float | int = np.inf) -> None:
    """ValueError unless a parameter is a finite number of a kind, from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, kind):  # True is an int, but no number
        wanted = "a whole number" if kind is numbers.Integral else "a number"
        raise ValueError(f"{name}: expected {wanted}, got {value!r:.60}")
    if not low <= value < np.inf:
        raise ValueError(f"{name}: expected a finite number, {low} or more, got {value}")
    if value > high:
        raise ValueError(f"{name}: expected at most {high}, got {value}")


def check_sentence_weights(weights: Sequence[float] | None, count: int) -> np.ndarray | None:
    """The weights as float64 [count]; ValueError unless all are ≥ 0 and some are > 0."""
    if weights is None:
        return None
    try:
        array = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight: expected numbers, got {weights!r:.60}") from error
    if array.shape != (count,):
        raise ValueError(
            f"sample_weight: expected {count} numbers, one per sentence, got shape "
            f"{list(array.shape)}"
        )
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise ValueError(
            f"sample_weight[{wrong[0]}]: expected a finite number, 0 or more, got {array[wrong[0]]}"
        )
    if not array.any():
        raise ValueError("sample_weight: expected at least one weight above 0, got none")
    return array


def check_labels(y: Sequence[Sequence[Label]], lengths: np.ndarray) -> list[Label]:
    """The labels of all tokens in one list; ValueError when they do not go with the sentences."""
    if not isinstance(y, Iterable):
        raise ValueError(f"y: expected labels for {len(lengths)} sentences, got {y!r:.80}")
    y = list(y)  # which may be a generator
    if len(y) != len(lengths):
        raise ValueError(f"y: expected labels for {len(lengths)} sentences, got {len(y)}")
    flat: list[Label] = []
    for index, (labels, length) in enumerate(zip(y, lengths)):
        # A string or a set would iterate, too, but is one label.
        is_list = isinstance(labels, Iterable) and not isinstance(labels, str | Set)
        labels = list(labels) if is_list else labels
        if not is_list or len(labels) != length:
            got = f"{len(labels)} labels" if is_list else f"{labels!r:.80}"
            raise ValueError(f"y[{index}]: expected {length} labels, one per token, got {got}")
        flat.extend(labels)
    return flat


def check_classes(classes: Any) -> None:
    """ValueError unless these are labels, or None."""
    # A string is a collection of strings, too.
    is_list = isinstance(classes, Collection) and not isinstance(classes, str)
    if classes is not None and not (is_list and all(isinstance(c, str) for c in classes)):
        raise ValueError(f"classes: expected a list of labels or None, got {classes!r:.60}")


def find_classes(
    flat: list[Label],
    lengths: np.ndarray,
    devices: Devices | None = None,
    classes: Collection[str] | None = None,
) -> list[str]:
    """The labels, sorted: every one that occurs, with several processes in any of them.

    Where `classes` says which there are, it is those, and another one is a ValueError.
    """
    labels: set[str] = set()
    for position, label in enumerate(flat):
        if isinstance(label, str):
            labels.add(str(label))  # a NumPy string becomes a plain one
        elif label is not None:
            labels |= _check_set(label, position, lengths)
    seen = sorted(labels) if devices is None else devices.union(labels)
    if not seen:
        raise ValueError("y: expected at least one token with a label, got none")
    if classes is None:
        return seen
    every = sorted({str(label) for label in classes})
    unexpected = sorted(set(seen) - set(every))
    if unexpected:
        raise ValueError(
            f"y: expected labels among classes, {', '.join(every)}, got {unexpected[0]!r}"
        )
    return every


def _place(position: int, lengths: np.ndarray) -> str:
    ends = np.cumsum(lengths)
    sentence = int(np.searchsorted(ends, position, side="right"))
    return f"y[{sentence}][{position - int(ends[sentence] - lengths[sentence])}]"


def _check_set(label: object, position: int, lengths: np.ndarray) -> set[str]:
    """A set of possible labels, NumPy's strings as plain ones."""
    sound = isinstance(label, Set) and label and all(isinstance(each, str) for each in label)
    if not sound:
        raise ValueError(
            f"{_place(position, lengths)}: expected a label (a string), a set of possible labels, "
            f"or None, got {label!r:.80}"
        )
    return {str(choice) for choice in label}  # pyright: ignore


def encode_labels(flat: list[Label], classes: list[str], lengths: np.ndarray) -> EncodedLabels:
    """Numbers for labels; a set of one is the label itself. ValueError on one not in `classes`."""
    number = {label: index for index, label in enumerate(classes)}
    gold = np.empty(len(flat), np.int32)
    partial: dict[int, list[int]] = {}  # choices of the tokens whose label is not a plain string
    for position, label in enumerate(flat):
        if isinstance(label, str):
            index = number.get(label)
            if index is None:
                raise ValueError(
                    f"{_place(position, lengths)}: expected one of the model's labels {classes}, "
                    f"got {label!r}"
                )
            gold[position] = index
        else:
            choices = classes if label is None else sorted(_check_set(label, position, lengths))
            strange = [choice for choice in choices if choice not in number]
            if strange:
                raise ValueError(
                    f"{_place(position, lengths)}: expected labels of the model {classes}, "
                    f"got {strange}"
                )
            indices = [number[choice] for choice in choices]
            gold[position] = indices[0] if len(indices) == 1 else UNKNOWN
            partial[position] = indices
    if not (gold == UNKNOWN).any():
        return EncodedLabels(gold, None)
    # Once one token is uncertain, every token has a row of what is allowed.
    allowed = np.zeros((len(flat), len(classes)), bool)
    known = np.flatnonzero(gold != UNKNOWN)
    allowed[known, gold[known]] = True
    for position, indices in partial.items():
        allowed[position, indices] = True
    return EncodedLabels(gold, allowed)


def legal_by_scheme(classes: list[str], scheme: str | None) -> Legal | None:
    """What a chunking scheme allows among the labels; None without a scheme."""
    if scheme is None:
        return None
    return Legal(*(jnp.asarray(array) for array in legal_transitions(classes, scheme)))


def check_paths_legal(
    labels: EncodedLabels, lengths: np.ndarray, legal: Legal | None, classes: list[str]
) -> None:
    """ValueError on a known pair of neighbours that the scheme forbids.

    Training on it would ask for what the model cannot give.
    """
    if legal is None or not len(labels.gold):
        return
    ends = np.cumsum(lengths)
    # Sentences without a token have neither a first nor a last one.
    first = np.zeros(len(labels.gold), bool)
    last = first.copy()
    first[(ends - lengths)[lengths > 0]] = True
    last[ends[lengths > 0] - 1] = True
    gold, known = labels.gold, labels.gold >= 0
    before = np.roll(gold, 1)
    pairs = known & np.roll(known, 1) & ~first  # the pair that ends at each token
    wrong = np.zeros(len(gold), bool)
    wrong[pairs] = ~np.asarray(legal.transitions)[before[pairs], gold[pairs]]
    # An unknown label, −1, is looked up as label 0, and left out by `known`.
    wrong |= known & first & ~np.asarray(legal.start)[np.maximum(gold, 0)]
    wrong |= known & last & ~np.asarray(legal.stop)[np.maximum(gold, 0)]
    if wrong.any():
        position = int(np.flatnonzero(wrong)[0])
        context = "at the start" if first[position] else f"after {classes[before[position]]!r}"
        raise ValueError(
            f"{_place(position, lengths)}: expected labels that the scheme allows, got "
            f"{classes[gold[position]]!r} {context}; convert the labels, or train without `scheme`"
        )
