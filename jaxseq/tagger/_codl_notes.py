"""What is kept of constraint-driven learning: the labellings of all processes, in one order.

Whoever has which of the sentences, the file is the same: what some processes left, others can go
on from.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any, NamedTuple

import numpy as np

from jaxseq.tagger._codl_labelling import Labelling
from jaxseq.tagger._notes import Notes, text_of
from jaxseq.tagger._shared_fingerprint import MODULUS
from jaxseq.tagger._together import Together

KINDS = {"lengths": "<i4", "labels": "<i4", "scores": "<f8", "hard": "<i4"}


class Kept(NamedTuple):
    """Of this process's sentences: labels [N, k], scores [B, k], hard violations [B]; the history
    of all."""

    labels: np.ndarray
    scores: np.ndarray
    hard: np.ndarray
    history: list[dict[str, Any]]


class CoDLNotes:
    """Notes of the labellings that the last cycle learnt from; nothing without a path.

    Args:
        path: the file, which all processes see, or None.
        about: the settings. X, y, others: the sentences of this process.
        together: all processes, which must do everything here together.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        about: Any,
        X: list[Any],
        y: list[Any],
        others: list[Any],
        together: Together,
    ):
        self._peers, self._kept = together.peers, path is not None
        if not self._kept:
            self._notes = Notes(None, ())
            return
        numbers = together.by_turns(len(others))
        parts = [found[0] for found in self._peers.exchange_arrays(numbers)]
        self._order = np.argsort(np.concatenate(parts), kind="stable")
        first = sum(map(len, parts[: self._peers.index]))
        self._own = np.argsort(self._order)[first : first + len(others)]
        self._notes = Notes(path, (about, self._hash_pairs(X, y), self._hash_others(others)))

    def _hash_pairs(self, X: list[Any], y: list[Any]) -> str:
        """Of the labelled sentences, whose order does not matter."""
        own = sum(int.from_bytes(_digest(pair), "big") for pair in zip(X, y, strict=True))
        found = self._peers.exchange(f"{own % MODULUS:x}")
        return f"{sum(int(each, 16) for each in found) % MODULUS:x}"

    def _hash_others(self, others: list[Any]) -> str:
        """Of the unlabelled sentences, in the order in which their labellings are kept."""
        own = np.frombuffer(b"".join(map(_digest, others)), np.uint8).reshape(-1, 32)
        found = np.concatenate([each[0] for each in self._peers.exchange_arrays(own)])
        return hashlib.sha256(found[self._order].tobytes()).hexdigest()

    def load(self) -> Kept | None:
        """What the last `save` wrote, of this process's sentences; None where there is nothing."""
        with self._peers.guard():
            kept = self._notes.load()
            self._peers.check_same("checkpoint: is there", kept is not None)
        if kept is None:
            return None
        lengths, labels, scores, hard = (
            np.frombuffer(base64.b64decode(kept["labelling"][name]), kind)
            for name, kind in KINDS.items()
        )
        scores = scores.reshape(len(lengths), -1)
        labels = labels.reshape(-1, scores.shape[1])[_tokens_of(lengths, self._own)]
        return Kept(labels, scores[self._own], hard[self._own], kept["history"])

    def save(self, found: Labelling, lengths: np.ndarray, history: list[dict[str, Any]]) -> None:
        """Replace the notes by the labellings of all, of sentences of these lengths."""
        if not self._kept:
            return
        own = (lengths, found.labels, found.scores, found.hard)
        named = zip(own, KINDS.values())
        arrays = self._peers.exchange_arrays(*(np.asarray(array, kind) for array, kind in named))
        lengths, labels, scores, hard = (np.concatenate(parts) for parts in zip(*arrays))
        labels = labels[_tokens_of(lengths, self._order)]
        whole = (lengths[self._order], labels, scores[self._order], hard[self._order])
        packed = {
            name: base64.b64encode(array.tobytes()).decode() for name, array in zip(KINDS, whole)
        }
        with self._peers.guard():
            if self._peers.is_first:
                self._notes.save({"labelling": packed, "history": history})

    def remove(self) -> None:
        """The job is done."""
        with self._peers.guard():
            if self._peers.is_first:
                self._notes.remove()


def _digest(part: Any) -> bytes:
    return hashlib.sha256(text_of(part).encode("utf-8", "surrogatepass")).digest()


def _tokens_of(lengths: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The places of the tokens of some sentences, of all sentences one after another.

    Example:
        >>> _tokens_of(np.array([2, 3, 1]), np.array([2, 0])).tolist()
        [5, 0, 1]
    """
    lengths = lengths.astype(np.int64)
    starts, counts = (np.cumsum(lengths) - lengths)[chosen], lengths[chosen]
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())
