"""What an answer from a file must be, and what is said of one that is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxseq.cli._active_files import Corpora

Label = str | tuple[str, ...]

MOST_LISTED = 30
"""Labels that a message lists at most."""

MOST_REFUSED = 10
"""Entries of a file that a message lists at most."""


@dataclass
class Refusals:
    """What is wrong with the entries of a file, to be told at once.

    Args:
        path: what messages call the file. errors: so far.

    Example:
        >>> refusals = Refusals("file")
        >>> for line in ("x", "1", "y"):
        ...     with refusals.noted():
        ...         _ = int(line)
        >>> len(refusals.errors)
        2
    """

    path: str
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a ValueError, and go on with the next entry."""
        try:
            yield
        except ValueError as error:
            self.errors.append(str(error))

    def tell(self) -> None:
        """ValueError if there were any; of several, the first are written to standard error."""
        if len(self.errors) == 1:
            raise ValueError(self.errors[0])
        if self.errors:
            more = len(self.errors) - MOST_REFUSED
            listed = self.errors[:MOST_REFUSED] + ([f"and {more:,} more"] if more > 0 else [])
            print(*listed, sep="\n", file=sys.stderr)
            raise ValueError(
                f"{self.path}: expected legal answers, got {len(self.errors):,} entries that are "
                "not, as listed; none is taken in"
            )


@dataclass(frozen=True)
class AnswerRules:
    """Checks the parts of an answer; each check gives the part back, or a ValueError.

    Args:
        round: the one under way. corpora: whose pool is asked about. classes: all labels.
        known: from a sentence and a position to the label taken in already, None for none.

    Example:
        >>> from jaxseq.text import Sentence
        >>> rules = AnswerRules(2, Corpora([Sentence({"word": ["a", "b"]})], [], [], {}), ["N"])
        >>> rules.position(1, 0, "file:1"), rules.label("N", "file:1")
        (1, 'N')
        >>> rules.round_of(1, "file:1")
        Traceback (most recent call last):
        ValueError: file:1: expected an answer of round 2, the one under way, got round 1
    """

    round: int
    corpora: Corpora
    classes: Sequence[str]
    known: Callable[[int, int], Label | None] = lambda sentence, position: None

    def round_of(self, value: Any, place: str) -> None:
        """Whether it is the round under way."""
        number = self._whole("round", value, None, place)
        if number != self.round:
            raise ValueError(
                f"{place}: expected an answer of round {self.round}, the one under way, got "
                f"round {number}"
            )

    def is_past(self, value: Any, place: str) -> bool:
        """Whether it is a round that is over, and not the one under way."""
        if self._whole("round", value, None, place) < self.round:
            return True
        self.round_of(value, place)
        return False

    def sentence(self, value: Any, place: str) -> int:
        """The number of a sentence of the pool."""
        return self._whole("sentence", value, len(self.corpora.pool), place)

    def position(self, value: Any, sentence: int, place: str, name: str = "position") -> int:
        """The place of a token in its sentence."""
        return self._whole(name, value, len(self.corpora.words(sentence)), place)

    def label(self, value: Any, place: str) -> Label:
        """A label, or several possible ones."""
        if isinstance(value, str):
            return self._known(value, place)
        if not isinstance(value, list) or not value:
            raise ValueError(f"{place}: expected a label, or a list of some, got {value!r:.60}")
        return tuple(self._known(label, place) for label in value)

    def _known(self, label: Any, place: str) -> str:
        if label not in self.classes:
            listed = ", ".join(self.classes[:MOST_LISTED])
            more = ", …" if len(self.classes) > MOST_LISTED else ""
            raise ValueError(
                f"{place}: expected a label, one of {listed}{more}; got {label!r:.60} (jaxseq "
                "active labels --add adds labels)"
            )
        return label

    @staticmethod
    def _whole(name: str, value: Any, below: int | None, place: str) -> int:
        sound = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not sound or (below is not None and value >= below):
            wanted = "0 or more" if below is None else f"0 … {below - 1}"
            raise ValueError(
                f"{place}: expected {name!r}, a whole number, {wanted}, got {value!r:.60}"
            )
        return value
