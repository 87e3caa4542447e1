"""Beam search in plain Python: lists, dicts and tuples, one hypothesis after another.

What a person would write from the paper: each rule is a function of the words, the labels so far
and the next label. Nothing of jaxseq is used.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

Words = Sequence[str]
Labels = tuple[int, ...]
Rule = Callable[[Words, Labels, int], int]
"""(words in lower case, labels so far, next label) → violations that the next label adds."""


class Model(NamedTuple):
    """Logarithms of a hidden Markov model's probabilities; words that are not known have one."""

    initial: list[float]
    transition: list[list[float]]
    emission: dict[str, list[float]]
    unknown: list[float]


def search(
    model: Model, rules: Sequence[Rule], penalty: float, words: Words, width: int
) -> list[tuple[float, Labels]]:
    """The best labellings of a sentence with their scores, best first.

    Args:
        model: the scores.
        rules: each costs `penalty` for every violation.
        penalty: ρ.
        words: the sentence.
        width: hypotheses kept.

    Example:
        >>> model = Model([-1.0, -2.0], [[0.0, -1.0], [-1.0, 0.0]], {}, [0.0, 0.0])
        >>> search(model, [starts_with({1})], 5.0, ["a", "b"], 2)
        [(-2.0, (1, 1)), (-3.0, (1, 0))]
    """
    lowered = [word.lower() for word in words]
    numbers = range(len(model.initial))
    beam: list[tuple[float, Labels]] = [(0.0, ())]
    for word in words:
        emission = model.emission.get(word, model.unknown)
        grown = []
        for score, labels in beam:
            arriving = model.transition[labels[-1]] if labels else model.initial
            for label in numbers:
                broken = 0
                for rule in rules:
                    broken += rule(lowered, labels, label)
                total = score + arriving[label] + emission[label] - penalty * broken
                grown.append((total, labels, label))
        best = heapq.nlargest(width, grown, key=_score)
        beam = [(total, (*labels, label)) for total, labels, label in best]
    return beam


def _score(candidate: tuple[float, Labels, int]) -> float:
    return candidate[0]


# ------------------------------------------------------------------------------------- rules


def at_most_once(words: Words, labels: Labels, label: int) -> int:
    """No label comes back after another."""
    return int(label in labels and labels[-1] != label)


def transitions_after(pattern: str) -> Rule:
    """A label changes only after a word that matches a regular expression."""
    matches = re.compile(pattern).fullmatch

    def broken(words: Words, labels: Labels, label: int) -> int:
        if not labels or labels[-1] == label:
            return 0
        return int(matches(words[len(labels) - 1]) is None)

    return broken


def starts_with(allowed: set[int]) -> Rule:
    """The first label is one of some."""

    def broken(words: Words, labels: Labels, label: int) -> int:
        return int(not labels and label not in allowed)

    return broken


def words_imply(dictionary: set[str], allowed: set[int]) -> Rule:
    """Words of a dictionary have one of some labels."""

    def broken(words: Words, labels: Labels, label: int) -> int:
        return int(words[len(labels)] in dictionary and label not in allowed)

    return broken


def pattern_implies(pattern: str, allowed: set[int]) -> Rule:
    """Words that match a regular expression have one of some labels."""
    matches = re.compile(pattern).fullmatch

    def broken(words: Words, labels: Labels, label: int) -> int:
        return int(label not in allowed and matches(words[len(labels)]) is not None)

    return broken


def citation_rules(labels: Sequence[str]) -> list[Rule]:
    """Table 1 (a) of Chang, Ratinov & Roth 2007."""

    def of(*names: str) -> set[int]:
        return {labels.index(name) for name in names}

    return [
        at_most_once,
        transitions_after(r"[^\w\s]+"),
        starts_with(of("author", "editor")),
        words_imply({"pp", "pages"}, of("pages")),
        pattern_implies(r"(19|20)\d\d", of("date")),
        words_imply({'"', "“", "”", "`"}, of("title")),
        words_imply({"note", "submitted", "appear"}, of("note")),
        words_imply({"ca", "australia", "ny"}, of("location")),
        words_imply({"tech", "technical"}, of("tech")),
        words_imply({"proc", "journal", "proceedings", "acm"}, of("journal", "booktitle")),
        words_imply({"ed", "editors"}, of("editor")),
    ]
