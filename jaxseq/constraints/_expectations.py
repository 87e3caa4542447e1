"""Rules as expectations: how often they are kept, for taggers to learn by.

A rule about single tokens or pairs of them, or about numbers of fields, has an expected count that
is linear in the marginals. Of orders and lengths of fields there is none.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxseq.constraints._constraint import Labels, Penalised, Scheme, Words
from jaxseq.constraints._rules import (
    AtMostOnce,
    Count,
    EndsWith,
    MustAppear,
    OnlyOn,
    StartsWith,
    TransitionsOnlyOn,
    WordsImply,
)
from jaxseq.expectations import Expectation
from jaxseq.taggers import check_number

__all__ = ["rule_expectations"]


def rule_expectations(
    rules: Iterable[Any],
    labels: Sequence[str],
    *,
    broken: float = 0.05,
    weight: float | int = 100.0,
    scheme: Scheme = "plain",
) -> list[Expectation]:
    """What keeping some rules lets expect of the labels of a text.

    Args:
        rules: of `jaxseq.constraints`, with or without penalties, which are not looked at. Rules
            on the order and the length of fields, and constraints of one's own, are left out with
            a warning.
        labels: of the tagger.
        broken: the share of cases that may break a rule.
        weight: of every `Expectation`.
        scheme: of the labels. Rules that count fields, or where they meet, are for ``"plain"``.

    Example:
        >>> from jaxseq.constraints import WordsImply
        >>> rules = [WordsImply(Words(["pp"]), ["PAGES"])]
        >>> rule_expectations(rules, ["DATE", "PAGES"])[0].targets
        {'PAGES': (0.95, 1.0)}
    """
    check_number("broken", broken, 0, numbers.Real)
    turning = _Turning(Labels(labels, scheme), float(broken), float(weight))
    expectations, left_out = [], []
    for each in rules:
        rule = each.rule if isinstance(each, Penalised) else each
        turned = turning(rule)
        if turned is None:
            left_out.append(type(rule).__name__)
        else:
            expectations.extend(turned)
    if left_out:
        warnings.warn(
            f"rules: no expectations follow from {', '.join(dict.fromkeys(left_out))}, which are "
            "left out",
            stacklevel=2,
        )
    return expectations


class _Turning:
    """From a rule to expectations; None where there are none."""

    def __init__(self, labels: Labels, broken: float, weight: float):
        self._labels, self._broken, self._weight = labels, broken, weight
        self._kept = (1 - broken, 1.0)

    def __call__(self, rule: Any) -> list[Expectation] | None:
        if isinstance(rule, WordsImply):
            return self._share(rule.labels, self._kept, _marked(rule.tokens))
        if isinstance(rule, OnlyOn):
            return self._share(rule.labels, (0.0, self._broken), _unmarked(rule.tokens))
        if isinstance(rule, StartsWith):
            return self._share(rule.labels, self._kept, _is_first)
        if isinstance(rule, EndsWith):
            return self._share(rule.labels, self._kept, _is_last)
        if isinstance(rule, Count) and rule.unit == "words":
            most = np.inf if rule.at_most is None else float(rule.at_most)
            return self._count(self._any(rule.labels), float(rule.at_least), most)
        if self._labels.scheme != "plain":
            return None
        if isinstance(rule, TransitionsOnlyOn):
            when = _meets_elsewhere(rule)
            return [self._expect({"change": (0.0, self._broken)}, when)]
        names = self._labels.names
        if isinstance(rule, AtMostOnce):
            chosen = names if rule.labels is None else rule.labels
            return [e for label in chosen for e in self._count(f"begin {label}", 0.0, 1.0)]
        if isinstance(rule, MustAppear):
            least = self._kept[0]
            return [
                e for label in rule.labels for e in self._count(f"begin {label}", least, np.inf)
            ]
        return None

    def _expect(self, targets: dict[str, Any], when: Any) -> Expectation:
        return Expectation(targets, when, self._weight)

    def _share(self, labels: Sequence[str], share: Any, when: Any) -> list[Expectation]:
        return [self._expect({self._any(labels): share}, when)]

    def _count(self, event: str, least: float, most: float) -> list[Expectation]:
        bounds = {event: (least, most)}
        return [Expectation(bounds, None, self._weight, "l2", "sentence")]

    def _any(self, labels: Sequence[str]) -> str:
        """One of some labels, as an event."""
        return " | ".join(self._labels.names[number] for number in self._labels.numbers(labels))


Condition = Callable[[Any], np.ndarray]


def _marked(words: Words) -> Condition:
    return words.marks


def _unmarked(words: Words) -> Condition:
    return lambda sentence: ~words.marks(sentence)


def _is_first(sentence: Any) -> np.ndarray:
    return np.arange(len(sentence)) == 0


def _is_last(sentence: Any) -> np.ndarray:
    return np.arange(len(sentence)) == len(sentence) - 1


def _meets_elsewhere(rule: TransitionsOnlyOn) -> Condition:
    """Tokens at which no field may begin after another one."""

    def where(sentence: Any) -> np.ndarray:
        after = rule.tokens.marks(sentence)
        before = np.concatenate([np.zeros(1, bool), after[:-1]])[: len(after)]
        return ~{"before": before, "after": after, "either": before | after}[rule.side]

    return where
