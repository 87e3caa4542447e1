"""Labels as numbers, known, partly known or unknown."""

from __future__ import annotations

import hashlib
import json
import numbers
import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

from jaxseq._io import replacing
from jaxseq.crf import UNKNOWN, EncodedLabels, Legal
from jaxseq.parallel import Devices
from jaxseq.text import legal_transitions

# -------------------------------------------------------------------------------------------------
# What the estimator refuses, and how it says so.


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
    flat: list[Label], lengths: np.ndarray, devices: Devices | None = None
) -> list[str]:
    """Every label that occurs, sorted; with several processes, in any of them."""
    found: set[str] = set()
    for position, label in enumerate(flat):
        if isinstance(label, str):
            found.add(str(label))  # a NumPy string becomes a plain one
        elif label is not None:
            found |= _check_set(label, position, lengths)
    classes = sorted(found) if devices is None else devices.union(found)
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


# -------------------------------------------------------------------------------------------------
# What is done so far of a long job made of many trainings, in a small JSON file.


FORMAT = "jaxseq notes 1"


class Notes:
    """JSON values that are written at once or not at all; nothing is kept without a path.

    Args:
        path: the file, or None.
        job: everything that the results depend on; `load` refuses the notes of another job.
    """

    def __init__(self, path: str | os.PathLike[str] | None, job: Iterable[Any]):
        if not isinstance(path, str | os.PathLike | None):
            raise ValueError(f"checkpoint: expected a path or None, got {path!r:.60}")
        if path is not None and Path(path).is_dir():
            raise ValueError(f"{path}: expected a file to keep notes in, got a folder")
        self._path = None if path is None else Path(path)
        digest = hashlib.sha256()
        if path is not None:
            for part in job:
                digest.update(text_of(part).encode("utf-8", "surrogatepass") + b"\0")
        self._about = digest.hexdigest()

    def load(self) -> Any:
        """The value of the last `save`; None where there is none."""
        if self._path is None or not self._path.exists():
            return None
        try:
            found = json.loads(self._path.read_bytes())
            whole = found["format"] == FORMAT and "about" in found and "value" in found
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{self._path}: expected {FORMAT}, got {error!r:.80}") from error
        if not whole:
            raise ValueError(f"{self._path}: expected {FORMAT}, got another kind of file")
        if found["about"] != self._about:
            raise ValueError(
                f"{self._path}: expected notes of this very job (same data and settings), got "
                "those of another; delete the file or name another"
            )
        return found["value"]

    def save(self, value: Any) -> None:
        """Replace the notes."""
        if self._path is None:
            return
        whole = {"format": FORMAT, "about": self._about, "value": value}
        with replacing(self._path) as temporary:
            temporary.write_text(json.dumps(whole))

    def remove(self) -> None:
        """The job is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def text_of(part: Any) -> str:
    """Of data and settings, the same in every process."""
    if isinstance(part, set | frozenset):
        return repr(sorted(map(text_of, part)))
    if isinstance(part, list | tuple):
        return "[" + ",".join(map(text_of, part)) + "]"
    if isinstance(part, dict):
        return "{" + ",".join(f"{key!r}:{text_of(part[key])}" for key in part) + "}"
    return repr(part)


QUIET = {"progress": False, "checkpoint": None}


def fresh(estimator: Any) -> Any:
    """An untrained copy that shows and keeps nothing of its own."""
    copy: Any = clone(estimator)
    its_own = copy.get_params(deep=False)
    return copy.set_params(**{name: value for name, value in QUIET.items() if name in its_own})


def settings_of(estimator: Any) -> dict[str, Any]:
    """Class and parameters, without what does not bear on the result."""
    settings = estimator.get_params(deep=False)
    settings = {name: value for name, value in settings.items() if name not in QUIET}
    return {"class": type(estimator).__name__, **settings}
