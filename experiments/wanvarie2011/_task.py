"""The three tasks: sentences with their labels, features, and taggers trained on all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jaxseq
from jaxseq.metrics import mcnemar, span_scores
from jaxseq.text import CONLL2000, CONLL2003, Sentence, Templates

TITLES = {
    "np": "NP chunking",
    "conll2000": "CoNLL-2000 chunking",
    "conll2003": "CoNLL-2003 named entities",
}
"""Name of a task → what to call it."""
CORPUS = {"np": "conll2000", "conll2000": "conll2000", "conll2003": "conll2003"}
TEMPLATES = {"np": CONLL2000, "conll2000": CONLL2000, "conll2003": CONLL2003}
Labels = list[list[str]]


@dataclass(frozen=True, eq=False)
class Part:
    """Sentences without their labels, and these."""

    sentences: list[Sentence]
    labels: Labels

    @property
    def tokens(self) -> int:
        """In all sentences."""
        return sum(map(len, self.labels))


@dataclass(frozen=True, eq=False)
class Task:
    """What a row is trained on and tested on.

    Args:
        name: one of `TITLES`.
        pool: to ask labels of.
        test: to score on.
        l2: of every tagger.
        max_iterations: of every training.
    """

    name: str
    pool: Part
    test: Part
    l2: float
    max_iterations: int

    def tagger(self, *, transitions: bool = True) -> jaxseq.CRFTagger:
        """A new tagger; without transitions each label depends on the words alone."""
        templates = TEMPLATES[self.name]
        if not transitions:
            templates = Templates(templates.unigram, transitions=False)
        return jaxseq.CRFTagger(
            templates=templates, l2=self.l2, max_iterations=self.max_iterations, progress=False
        )

    def supervised(self, *, transitions: bool = True) -> jaxseq.CRFTagger:
        """A tagger trained on all labels of the pool."""
        tagger = self.tagger(transitions=transitions)
        return tagger.fit(self.pool.sentences, self.pool.labels)


def read_part(data: Any, task: str, split: str, count: int | None) -> Part:
    """A part of a task's corpus.

    Args:
        data: `experiments.data.Data`.
        task: one of `TITLES`.
        split: ``"train"`` or ``"test"``.
        count: the first sentences; None for all.
    """
    # Only as the files have them are there as many sentences and tokens as in table 1.
    sentences = data.corpus(CORPUS[task], split, count, raw=task == "conll2003")
    labels = [list(sentence["label"]) for sentence in sentences]
    if task == "np":
        labels = [[only_np(label) for label in one] for one in labels]
    return Part([sentence.without("label") for sentence in sentences], labels)


def only_np(label: str) -> str:
    """The label of a noun phrase, else O (section 5.1).

    Example:
        >>> only_np("I-NP"), only_np("B-VP")
        ('I-NP', 'O')
    """
    return label if label.endswith("-NP") else "O"


class Judge:
    """Scores labellings of the test sentences, and compares them with those of Sup.

    Args:
        task: with the test sentences.
        sup: the labels that Sup gives them.
        other_sup: those of another Sup to compare with; None for none.
    """

    def __init__(
        self,
        task: Task,
        sup: Sequence[Sequence[str]],
        other_sup: Sequence[Sequence[str]] | None = None,
    ):
        self._task, self._sup, self._other = task, sup, other_sup

    def __call__(self, tagger: jaxseq.CRFTagger) -> dict[str, Any]:
        """F1 and accuracy in percent; McNemar's test on tokens: right only by Sup, only by this.

        The same test with the other Sup is in ``"other_sup"``, where there is one.
        """
        test = self._task.test
        predicted = tagger.predict(test.sentences)
        scores = span_scores(test.labels, predicted)
        report: dict[str, Any] = {"f1": 100 * scores.overall.f1, "accuracy": 100 * scores.accuracy}
        report |= self._against(self._sup, predicted)
        if self._other is not None:
            report["other_sup"] = self._against(self._other, predicted)
        return report

    def _against(self, sup: Sequence[Sequence[str]], predicted: Labels) -> dict[str, Any]:
        test = mcnemar(self._task.test.labels, sup, predicted)
        return {"only_sup": test.n10, "only_ours": test.n01, "p_value": test.p_value}
