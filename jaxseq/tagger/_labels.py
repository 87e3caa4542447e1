"""Labels as numbers, known, partly known or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxseq.learn._corpus import UNKNOWN, EncodedLabels
from jaxseq.learn._parameters import Legal
from jaxseq.tagger._together import Together
from jaxseq.text import legal_transitions

Label: TypeAlias = str | Set[str] | None
"""What is known of a token's label: itself, a set of possible ones, or nothing."""


def check_labels(y: Sequence[Sequence[Label]], lengths: np.ndarray) -> list[Label]:
    """The labels of all tokens in one list; ValueError when they do not go with the sentences."""
    if not isinstance(y, Iterable):
        raise ValueError(f"y: expected labels for {len(lengths)} sentences, got {y!r:.80}")
    y = list(y)
    if len(y) != len(lengths):
        raise ValueError(f"y: expected labels for {len(lengths)} sentences, got {len(y)}")
    flat: list[Label] = []
    for index, (labels, length) in enumerate(zip(y, lengths)):
        plain = isinstance(labels, Iterable) and not isinstance(labels, str | Set)
        labels = list(labels) if plain else labels
        if not plain or len(labels) != length:
            got = f"{len(labels)} labels" if plain else f"{labels!r:.80}"
            raise ValueError(f"y[{index}]: expected {length} labels, one a token, got {got}")
        flat.extend(labels)
    return flat


def find_classes(
    flat: list[Label], lengths: np.ndarray, together: Together | None = None
) -> list[str]:
    """Every label that occurs, sorted; with several processes, in any of them."""
    found: set[str] = set()
    for position, label in enumerate(flat):
        if isinstance(label, str):
            found.add(str(label))  # a NumPy string becomes a plain one
        elif label is not None:
            found |= _check_set(label, position, lengths)
    classes = sorted(found) if together is None else together.union(found)
    if not classes:
        raise ValueError("y: expected at least one token with a label, got none")
    return classes


def _place(position: int, lengths: np.ndarray) -> str:
    ends = np.cumsum(lengths)
    sentence = int(np.searchsorted(ends, position, side="right"))
    return f"y[{sentence}][{position - int(ends[sentence] - lengths[sentence])}]"


def _check_set(label: object, position: int, lengths: np.ndarray) -> set[str]:
    if (
        not isinstance(label, Set)
        or not label
        or not all(isinstance(choice, str) for choice in label)
    ):
        raise ValueError(
            f"{_place(position, lengths)}: expected a label (a string), a set of possible labels, "
            f"or None, got {label!r:.80}"
        )
    return {str(choice) for choice in label}


def encode_labels(flat: list[Label], classes: list[str], lengths: np.ndarray) -> EncodedLabels:
    """Numbers for labels; a set of one is the label itself. ValueError on one not in `classes`."""
    number = {label: index for index, label in enumerate(classes)}
    gold = np.empty(len(flat), np.int32)
    partial: dict[int, list[int]] = {}
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
            numbers = [number[choice] for choice in choices]
            gold[position] = numbers[0] if len(numbers) == 1 else UNKNOWN
            partial[position] = numbers
    if not (gold == UNKNOWN).any():
        return EncodedLabels(gold, None)
    allowed = np.zeros((len(flat), len(classes)), bool)
    known = np.flatnonzero(gold != UNKNOWN)
    allowed[known, gold[known]] = True
    for position, numbers in partial.items():
        allowed[position, numbers] = True
    return EncodedLabels(gold, allowed)


def legal_by_scheme(classes: list[str], scheme: str | None) -> Legal | None:
    """What a chunking scheme allows among the labels; None without a scheme."""
    if scheme is None:
        return None
    found = legal_transitions(classes, scheme)
    return Legal(*(jnp.asarray(array) for array in found))


def check_paths_legal(
    labels: EncodedLabels, lengths: np.ndarray, legal: Legal | None, classes: list[str]
) -> None:
    """ValueError on a known pair of neighbours that the scheme forbids.

    Training on it would ask for what the model cannot give.
    """
    if legal is None or not len(labels.gold):
        return
    ends = np.cumsum(lengths)
    first = np.zeros(len(labels.gold), bool)
    last = first.copy()
    first[(ends - lengths)[lengths > 0]] = True
    last[ends[lengths > 0] - 1] = True
    gold, known = labels.gold, labels.gold >= 0
    before = np.roll(gold, 1)
    pairs = known & np.roll(known, 1) & ~first
    wrong = np.zeros(len(gold), bool)
    wrong[pairs] = ~np.asarray(legal.transitions)[before[pairs], gold[pairs]]
    wrong |= known & first & ~np.asarray(legal.start)[np.maximum(gold, 0)]
    wrong |= known & last & ~np.asarray(legal.stop)[np.maximum(gold, 0)]
    if wrong.any():
        position = int(np.flatnonzero(wrong)[0])
        context = "at the start" if first[position] else f"after {classes[before[position]]!r}"
        raise ValueError(
            f"{_place(position, lengths)}: expected labels that the scheme allows, got "
            f"{classes[gold[position]]!r} {context}; convert the labels, or train without `scheme`"
        )
