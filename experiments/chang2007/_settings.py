"""What the paper leaves open: how words become numbers, smoothing, where punctuation stands.

Changes of them are compared on sentences that are kept apart, see `Parts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jaxseq
from experiments.words import NORMALISED
from jaxseq.constraints import Penalised, TransitionsOnlyOn
from jaxseq.text import Sentence

FORM = "form"
"""The column that models read; rules read "word"."""


@dataclass(frozen=True)
class Setting:
    """How models read words, and how rules read transitions.

    Args:
        normalise: what the model sees of a word; see `NORMALISED`.
        unknown_below: words seen fewer times are the unknown word.
        vocabulary: where they are counted: in ``"all"`` sentences or the ``"labelled"`` ones.
        initial, transition, emission: smoothing, added to each count.
        side: of the punctuation mark that a field may change on; None as the file says.
    """

    normalise: str = "none"
    unknown_below: int = 5
    vocabulary: Literal["all", "labelled"] = "all"
    initial: float = 0.2
    transition: float = 0.2
    emission: float = 0.01
    side: Literal["before", "after", "either"] | None = None

    def tagger(self, classes: Sequence[str]) -> jaxseq.HMMTagger:
        """An untrained hidden Markov model."""
        return jaxseq.HMMTagger(
            FORM,
            unknown_below=self.unknown_below,
            vocabulary=self.vocabulary,
            initial_smoothing=self.initial,
            transition_smoothing=self.transition,
            emission_smoothing=self.emission,
            classes=list(classes),
            progress=False,
        )

    def read(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        """The sentences with the column that models read.

        Example:
            >>> read = Setting(normalise="lower case and digits").read
            >>> read([Sentence({"word": ["Vol", "12"]})])[0]["form"]
            ('vol', '00')
        """
        change = NORMALISED[self.normalise]
        read = []
        for sentence in sentences:
            # The column of words stays as it is: rules are about words as they are written.
            columns: dict[str, Any] = {name: sentence[name] for name in sentence.columns}
            read.append(Sentence({**columns, FORM: [change(w) for w in sentence["word"]]}))
        return read

    def rules(self, rules: Sequence[Penalised]) -> list[Penalised]:
        """The rules, with transitions on the side of this setting."""
        changed = []
        for one in rules:
            if self.side is not None and isinstance(one.rule, TransitionsOnlyOn):
                one = one._replace(rule=dataclasses.replace(one.rule, side=self.side))
            changed.append(one)
        return changed


BASES: dict[str, Setting] = {
    "citations": Setting(normalise="lower case", unknown_below=2, emission=0.01),
    "ads": Setting(emission=0.05),
}
"""What the tables are made with, by domain. Advertisements are in lower case as they come; of
citations the paper says no more than that words are tokens, so that digits are left as they are."""


@dataclass(frozen=True)
class Change:
    """A change of a domain's base, to see what it matters.

    Args:
        what: it is, for the report.
        values: of `Setting`, by name.
    """

    what: str
    values: Mapping[str, Any] = field(default_factory=dict)


CHANGES: dict[str, Change] = {
    "base": Change("as in the tables"),
    "as written": Change("words as they are", {"normalise": "none"}),
    "lower case": Change("words in lower case", {"normalise": "lower case"}),
    "digits": Change("every digit is 0", {"normalise": "digits"}),
    "lower case, digits": Change("both", {"normalise": "lower case and digits"}),
    "cut-off 1": Change("every word is known", {"unknown_below": 1}),
    "cut-off 5": Change("unknown below 5 occurrences", {"unknown_below": 5}),
    "cut-off 2": Change("unknown below 2 occurrences", {"unknown_below": 2}),
    "cut-off 10": Change("unknown below 10 occurrences", {"unknown_below": 10}),
    "labelled words": Change(
        "words counted in the labelled sentences", {"vocabulary": "labelled", "unknown_below": 2}
    ),
    "ε = .002": Change("smoothing of words", {"emission": 0.002}),
    "ε = .01": Change("smoothing of words", {"emission": 0.01}),
    "ε = .05": Change("smoothing of words", {"emission": 0.05}),
    "ε = .2": Change("smoothing of words", {"emission": 0.2}),
    "either side": Change("fields may begin with a punctuation mark", {"side": "either"}),
}
"""Name → change."""


def find_setting(domain: str, change: str = "base") -> Setting:
    """A domain's base with a change.

    Example:
        >>> find_setting("ads", "cut-off 1").unknown_below
        1
    """
    return dataclasses.replace(BASES[domain], **CHANGES[change].values)
