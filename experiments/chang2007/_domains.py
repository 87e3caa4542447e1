"""The two corpora: their rules, and which sentences are trained on and tested."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxseq.constraints import Penalised, read_constraints
from jaxseq.text import Sentence

Domain = Literal["citations", "ads"]
DOMAINS: tuple[Domain, ...] = ("citations", "ads")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Sets:
    """Sentences of one training: with labels, without, and those to test on; and all fields that
    there are, of which few labelled sentences do not show every one."""

    labelled: list[Sentence]
    unlabelled: list[Sentence]
    test: list[Sentence]
    fields: tuple[str, ...]


@lru_cache(maxsize=len(DOMAINS))
def read_rules(domain: Domain) -> tuple[Penalised, ...]:
    """Table 1 of the paper, from the file of that name.

    Example:
        >>> len(read_rules("citations")), len(read_rules("ads"))
        (11, 13)
    """
    return tuple(read_constraints(HERE / f"{domain}.toml").rules)


def rules_about(rules: Sequence[Penalised], labels: Collection[str]) -> list[Penalised]:
    """The rules for a model that has these labels only.

    Generated corpora do not have all fields. A rule loses those that the model cannot give; one
    that is left without any would be broken by all labellings alike, and is left out.

    Example:
        >>> from jaxseq.constraints import Penalised, StartsWith
        >>> rules = [Penalised(StartsWith(["a", "b"]), 1.0), Penalised(StartsWith(["c"]), 1.0)]
        >>> [one.rule.labels for one in rules_about(rules, {"a"})]
        [('a',)]
    """
    kept = []
    for one in rules:
        named = getattr(one.rule, "labels", None)  # None where a rule is about all fields
        if named is None:
            kept.append(one)
            continue
        known = tuple(label for label in named if label in labels)
        if known:
            rule: Any = one.rule
            kept.append(one._replace(rule=dataclasses.replace(rule, labels=known)))
    return kept


class Parts:
    """The parts of a corpus, of which one is kept apart to choose settings by.

    Advertisements have files of their own for training, settings (dev) and testing. Citations have
    one: the same `apart` of them are always kept apart, and the others are drawn anew for each
    seed, first to test on and then to train on.

    Args:
        data: of the frame.
        domain: which corpus.
        apart: sentences to choose settings by.
        test: sentences to test on.

    Example:
        >>> from experiments.data import Data, Source
        >>> parts = Parts(Data({"citations": Source("citations")}), "citations", 100, 100)
        >>> sets = parts.draw(0, 20, 3)
        >>> len(sets.labelled), len(sets.unlabelled), len(sets.test), len(parts.apart)
        (20, 3, 100, 100)
    """

    def __init__(self, data: Any, domain: Domain, apart: int, test: int):
        self._data, self._domain, self._test = data, domain, test
        if domain == "citations":
            every = data.corpus(domain, "labelled")
            # A seed of its own: which ones are kept apart must not depend on the draw.
            order = np.random.default_rng([2007]).permutation(len(every))
            self.apart = [every[index] for index in order[:apart]]
            self.pool = [every[index] for index in order[apart:]]
        else:
            self.apart = data.corpus(domain, "dev", apart)
            self.pool = data.corpus(domain, "train")

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, which are part of the task."""
        return tuple(sorted({name for one in self.pool + self.apart for name in one["label"]}))

    @property
    def evidence(self) -> list[Sentence]:
        """Labelled sentences that no model is tested on: by these, rules are judged."""
        return self.apart if self._domain == "citations" else self.pool

    def draw(self, seed: int, labelled: int, unlabelled: int) -> Sets:
        """The sets of one seed; those of fewer labelled sentences are parts of those of more.

        Raises:
            ValueError: for more sentences than there are.
        """
        # Test sentences first, so that those of more labelled sentences contain those of fewer.
        shuffled = self._shuffled(seed)
        if self._domain == "citations":
            test, train = shuffled[: self._test], shuffled[self._test :]
        else:
            test, train = self._data.corpus(self._domain, "test", self._test), shuffled
        return Sets(_first(train, labelled), self._unlabelled(seed, unlabelled), test, self.fields)

    def draw_for_settings(self, seed: int, labelled: int, unlabelled: int) -> Sets:
        """As `draw`, but tested on the sentences that are kept apart."""
        train = self._shuffled(seed)
        return Sets(
            _first(train, labelled), self._unlabelled(seed, unlabelled), self.apart, self.fields
        )

    def _shuffled(self, seed: int) -> list[Sentence]:
        order = np.random.default_rng([2007, 1, seed]).permutation(len(self.pool))
        return [self.pool[index] for index in order]

    def _unlabelled(self, seed: int, count: int) -> list[Sentence]:
        """The first citations, which are nearest to computer science; any advertisements."""
        if self._domain == "citations" or self._data.source(self._domain) != "real":
            return self._data.corpus(self._domain, "unlabelled", count)
        # Advertisements stand in no order that means anything: any of them will do.
        every = self._data.corpus(self._domain, "unlabelled")
        order = np.random.default_rng([2007, 2, seed]).permutation(len(every))
        return _first([every[index] for index in order[:count]], count)


def _first(sentences: list[Sentence], count: int) -> list[Sentence]:
    if count > len(sentences):
        raise ValueError(f"count: expected at most {len(sentences)} sentences, got {count}")
    return sentences[:count]
