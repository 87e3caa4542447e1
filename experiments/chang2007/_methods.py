"""The ways to a model: supervised, hard EM with and without γ, and with constraints."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jaxseq
from experiments.chang2007._domains import Sets, rules_about
from experiments.chang2007._settings import Setting
from jaxseq.constraints import Penalised
from jaxseq.metrics import mcnemar, token_accuracy

SUP, H, HW, TOP_1, TOP_K = "sup", "H", "H&W", "H&W&C top-1", "H&W&C top-K"
METHODS = (SUP, H, HW, TOP_1, TOP_K)
"""The columns of table 2."""
PLAIN, INFERENCE = "no I", "I"
"""Decoded without the constraints, and with them."""


class Search(NamedTuple):
    """K, the width of the beam, γ and the number of cycles."""

    top_k: int
    width: int
    keep: float
    cycles: int


class Task:
    """One training: its sentences as a setting reads them, and its rules.

    Args:
        sets: the sentences.
        setting: how they are read.
        rules: of the domain.
        search: numbers of the method.
    """

    def __init__(self, sets: Sets, setting: Setting, rules: Sequence[Penalised], search: Search):
        self.setting, self.search = setting, search
        self.labelled, self.test = setting.read(sets.labelled), setting.read(sets.test)
        self.unlabelled = setting.read(sets.unlabelled)
        self.labels = [list(sentence["label"]) for sentence in self.labelled]
        self.gold = [list(sentence["label"]) for sentence in self.test]
        self.classes = list(sets.fields)
        self.rules = rules_about(setting.rules(rules), self.classes)

    def codl(self, estimator: Any = None, rules: Any = None, **changes: Any) -> jaxseq.CoDL:
        """Trained by constraint-driven learning, with the settings of the paper but for changes."""
        chosen = {
            "k": self.search.top_k,
            # A beam cannot give more labellings than it keeps.
            "width": max(self.search.width, changes.get("k", self.search.top_k)),
            "keep": self.search.keep,
            "cycles": self.search.cycles,
            "progress": False,
            **changes,
        }
        start = self.setting.tagger(self.classes) if estimator is None else estimator
        learner = jaxseq.CoDL(start, self.rules if rules is None else rules, **chosen)
        return learner.fit(self.labelled, self.labels, unlabelled=self.unlabelled)

    def train(self, method: str) -> Any:
        """The tagger of a column of table 2.

        The supervised model is the one that the others start from, with the same words: all of γ
        stays with it.
        """
        changes: dict[str, dict[str, Any]] = {
            # γ = 1 keeps θ0 as it is, whatever the one cycle learns.
            SUP: {"k": 1, "keep": 1.0, "cycles": 1, "learn_with_constraints": False},
            H: {"k": 1, "pool": True, "learn_with_constraints": False},
            HW: {"k": 1, "learn_with_constraints": False},
            TOP_1: {"k": 1},
            TOP_K: {},
        }
        return self.codl(**changes[method]).tagger_

    def labellings(self, tagger: Any, rules: Sequence[Penalised] | None = None) -> dict[str, Any]:
        """Labels of the test sentences, without and with constraints."""
        rules = self.rules if rules is None else rules
        with quietly():
            return {
                PLAIN: tagger.predict(self.test),
                INFERENCE: tagger.predict(self.test, constraints=rules, width=self.search.width),
            }

    def accuracy(self, labels: Sequence[Sequence[str]]) -> float:
        """The share of tokens with the right label."""
        return token_accuracy(self.gold, labels)

    def scores(self, tagger: Any, rules: Sequence[Penalised] | None = None) -> dict[str, float]:
        """Accuracy without and with constraints."""
        return {how: self.accuracy(y) for how, y in self.labellings(tagger, rules).items()}

    def compare(self, ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]]) -> Any:
        """McNemar's test on the tokens of the test sentences."""
        test = mcnemar(self.gold, ours, theirs)
        return {
            "only_ours": test.n10, "only_theirs": test.n01, "p_value": test.exact_p_value
        }  # fmt: skip


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warning that a sentence cannot satisfy all hard constraints."""
    with warnings.catch_warnings():
        # Hard constraints that cannot be met are part of section 7, and expected there.
        warnings.simplefilter("ignore", UserWarning)
        yield
