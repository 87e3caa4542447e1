"""What templates ask of word representations, which are learnt and kept by another package."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxseq.text._vocabulary import Column

# By name, since it stands above this package: it is trained on corpora, and by EM.
_HOME = "jaxseq.representations"


@runtime_checkable
class WordRepresentation(Protocol):
    """Features of words that were learnt from text without labels."""

    @property
    def column(self) -> str:
        """The column of sentences that has the words."""
        ...

    @property
    def digest(self) -> str:
        """Differs between representations that give different features."""
        ...

    def function(self, name: str, argument: int | str | None) -> Callable[[str], str | None]:
        """The function ``cluster`` or ``brown``; ValueError where there is none with it."""
        ...

    def states(self, words: Column, lengths: np.ndarray) -> Column:
        """The state of each token of a corpus."""
        ...

    def templates(self) -> list[str]:
        """Templates that make good use of it."""
        ...

    def coverage(self, words: Any) -> float:
        """The share of words that it knows."""
        ...

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What JSON can hold, and arrays: all that makes it again."""
        ...


def find_representation(value: Any) -> WordRepresentation | None:
    """A representation, of itself or of the file it is in; None for None."""
    if value is None or isinstance(value, WordRepresentation):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ValueError(
            f"representation: expected a Representation, its file or None, got {value!r:.60}"
        )
    return importlib.import_module(_HOME).load_representation(value)


def representation_from_state(meta: Any, arrays: Mapping[str, Any]) -> WordRepresentation:
    """The representation that `WordRepresentation.to_state` described; ValueError on no such."""
    return importlib.import_module(_HOME).Representation.from_state(meta, arrays)
