"""Constraints that labels are predicted under: their options, their file, and what they do."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxseq.cli._files import require_file

if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile


def add_constraint_options(add: Any) -> None:
    """Add ``--constraints`` and ``--beam``.

    Args:
        add: the method `add_argument` of a parser or group.
    """
    add(
        "--constraints",
        metavar="FILE",
        help="what labellings should obey, in TOML or YAML (see jaxseq.constraints."
        "read_constraints); the best one is that of the highest score less the penalties",
    )
    add(
        "--beam",
        type=parse_count,
        metavar="N",
        help="hypotheses kept while searching under constraints (50)",
    )


def parse_count(text: str) -> int:
    """A whole number, 1 or more, as an argument.

    Example:
        >>> parse_count("50")
        50
    """
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r:.60}")
    return int(text)


def check_constraint_options(options: argparse.Namespace, labellings: int | None = None) -> None:
    """ValueError for a beam without constraints, or too narrow for the labellings wanted."""
    if options.beam is None:
        return
    if options.constraints is None:
        raise ValueError("--beam: expected along with --constraints FILE only")
    if labellings is not None and options.beam < labellings:
        raise ValueError(
            f"--beam: expected at least as many as labellings are wanted, {labellings}, got "
            f"{options.beam}"
        )


def read_rules(path: str, labels: Iterable[str]) -> ConstraintFile:
    """The constraints of a file, for a model with these labels."""
    from jaxseq.constraints import read_constraints

    require_file(path)
    return read_constraints(path, list(labels))


def columns_of_rules(rules: ConstraintFile | None) -> tuple[str, ...]:
    """Names of the columns that constraints look at; none for no constraints.

    Example:
        >>> from jaxseq.constraints import ConstraintFile, OnlyOn, Penalised, Tokens
        >>> rule = OnlyOn(["A"], Tokens(["N"], column="pos"))
        >>> columns_of_rules(ConstraintFile([Penalised(rule, 1.0)])), columns_of_rules(None)
        (('pos',), ())
    """
    found = [] if rules is None else [getattr(rule.rule, "tokens", None) for rule in rules.rules]
    return tuple(dict.fromkeys(tokens.column for tokens in found if tokens is not None))


class ConstrainedTagger:
    """A trained tagger that predicts under constraints, and knows where they cannot be met.

    Args:
        tagger: the tagger. rules: the constraints. width: of the beam, or None.
    """

    def __init__(self, tagger: Any, rules: ConstraintFile, width: int | None):
        self.tagger, self.width = tagger, width
        self.classes_ = tagger.classes_
        self.constraints = rules.bind(tagger.classes_.tolist())
        self.seen = self.unmet = self.first_unmet = 0

    def predict(self, X: Sequence[Any]) -> list[list[str]]:
        """As the tagger's."""
        with _without_warnings() as caught:
            found = self.tagger.predict(X, constraints=self.constraints, width=self.width)
        self._note(X, found, bool(caught))
        return found

    def predict_k_best(self, X: Sequence[Any], k: int) -> list[list[tuple[list[str], float]]]:
        """As the tagger's."""
        width = None if self.width is None else max(k, self.width)
        with _without_warnings() as caught:
            found = self.tagger.predict_k_best(X, k, constraints=self.constraints, width=width)
        self._note(X, [paths[0][0] if paths else None for paths in found], bool(caught))
        return found

    def _note(self, X: Sequence[Any], found: Sequence[Any], any_unmet: bool) -> None:
        """Count the sentences whose best labelling violates hard constraints."""
        from jaxseq.constraints import corpus_violations

        if any_unmet:
            number = {label: place for place, label in enumerate(self.classes_.tolist())}
            kept = [place for place, labels in enumerate(found) if labels is not None]
            flat = np.array([number[label] for place in kept for label in found[place]], np.int32)
            lengths = np.array([len(found[place]) for place in kept], np.int64)
            x = self.constraints.observe_all([X[place] for place in kept])
            counts = corpus_violations(self.constraints, x, flat, lengths)
            bad = np.flatnonzero(counts @ np.array(self.constraints.hard))
            if len(bad) and not self.unmet:
                self.first_unmet = self.seen + kept[bad[0]] + 1
            self.unmet += len(bad)
        self.seen += len(X)

    def say_unmet(self) -> None:
        """One line on standard error, if hard constraints could not all be met."""
        if self.unmet:
            print(
                f"jaxseq: warning: no labelling that satisfies all hard constraints was found for "
                f"{self.unmet} of {self.seen} sentences, the first of them sentence "
                f"{self.first_unmet}; they get the fewest violations",
                file=sys.stderr,
            )


@contextmanager
def _without_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Catches what is said of constraints that cannot be met, so that it is said once."""
    from jaxseq.tagger import ConstraintWarning

    caught: list[warnings.WarningMessage] = []
    with warnings.catch_warnings(record=True) as everything:
        warnings.simplefilter("always", ConstraintWarning)
        yield caught
    for warning in everything:
        if issubclass(warning.category, ConstraintWarning):
            caught.append(warning)
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
