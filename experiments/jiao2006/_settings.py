"""Ways to set up the experiment that the paper leaves open, to see whether they change its result.

They are tried on seeds of their own, so that what is chosen by them is tested on other sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import optax
from sklearn.base import clone

import jaxseq
from jaxseq.text import GENE_MENTION, Sentence, Templates

AS_PUBLISHED: dict[str, Any] = {"expectations": [], "normalise_entropy": False}
"""Of `CRFTagger.fit`: the entropy summed over all unlabelled sentences, and nothing else."""


def _templates(keep: Callable[[str], bool]) -> Templates:
    """Those of `GENE_MENTION` that a condition lets pass."""
    return Templates([text for text in map(str, GENE_MENTION.unigram) if keep(text)])


def _is_of_the_word_alone(template: str) -> bool:
    return not any(f"[{offset}]" in template for offset in (-2, -1, 1, 2))


def _is_spelling(template: str) -> bool:
    return template == "bias" or any(name in template for name in ("match", "shape", "fix"))


@dataclass(frozen=True)
class Setting:
    """A change of the settings.

    Args:
        what: it is, for the report.
        tagger: parameters of the tagger that differ.
        vocabulary: sentences that attributes are taken from.
        steps: iterations over which γ rises from a hundredth of its value; 0 for γ at once.
        supervised_iterations: of the model that the search starts from; None for the optimum.
        mention_weight: how much a labelled sentence with mentions counts.
        words: factor of the number of labelled words.
    """

    what: str
    tagger: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Literal["all", "labelled"] = "all"
    steps: int = 0
    supervised_iterations: int | None = None
    mention_weight: float = 1.0
    words: float = 1.0

    def schedule(self, weight: float) -> Any:
        """γ, or how it rises."""
        if not self.steps:  # a plain number takes the path without a schedule
            return weight
        return optax.exponential_decay(
            init_value=weight / 100, transition_steps=self.steps, decay_rate=100, end_value=weight
        )

    def start(
        self,
        supervised: jaxseq.CRFTagger,
        sentences: Sequence[Sentence],
        labels: Sequence[Sequence[str]],
    ) -> jaxseq.CRFTagger:
        """The tagger that the search starts from."""
        if self.supervised_iterations is None:
            return supervised
        early: Any = clone(supervised)
        return early.set_params(max_iterations=self.supervised_iterations).fit(sentences, labels)

    def sentence_weights(self, sentences: Sequence[Sentence]) -> list[float] | None:
        """How much each labelled sentence counts."""
        if self.mention_weight == 1:
            return None  # not a list of ones: the objective is then that of no weights, to the bit
        return [
            self.mention_weight if set(sentence["label"]) != {"O"} else 1.0
            for sentence in sentences
        ]


SETTINGS = {
    "paper": Setting("as in the tables: dense weights, l2 = 1, γ at once"),
    "l2 0.01": Setting("a very wide prior", {"l2": 0.01}),
    "l2 0.1": Setting("a wider prior", {"l2": 0.1}),
    "l2 10": Setting("a narrow prior", {"l2": 10.0}),
    "cut-off 2": Setting(
        "attributes that occur twice or more in A", {"cutoff": 2}, vocabulary="labelled"
    ),
    "spelling": Setting(
        "affixes, shapes and spellings without words", {"templates": _templates(_is_spelling)}
    ),
    "word alone": Setting(
        "templates without neighbours", {"templates": _templates(_is_of_the_word_alone)}
    ),
    "observed": Setting(
        "weights only of pairs seen in A, as other CRF programs have them", {"weights": "observed"}
    ),
    "tied": Setting("B and I share their weights", {"weights": "tied"}),
    "vocabulary of A": Setting("attributes of A alone", vocabulary="labelled"),
    "IOB2": Setting("labellings that IOB2 forbids are impossible", {"scheme": "IOB2"}),
    "annealed": Setting("γ rises from a hundredth of itself over 60 iterations", steps=60),
    "early start": Setting("search from ten supervised iterations", supervised_iterations=10),
    "mentions × 3": Setting("labelled sentences with mentions count three times", mention_weight=3),
    "labels × 3": Setting("three times the labelled and the unlabelled words", words=3),
}
"""Name → setting."""
