"""References of the citations corpus as HMMs see them, for benchmarks."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.data import Data, choose_sources
from jaxseq.hmm import HMM, Multinomials, WordCorpus, WordVocabulary, estimate_hmm, word_corpus

LABELLED, UNLABELLED = 300, 1000
"""References with their fields, and without."""


class Citations:
    """The first labelled and unlabelled references, and the model of the labelled ones."""

    def __init__(self, folder: Path):
        data = Data(choose_sources(["citations"], folder, may_stand_in=False))
        known = data.corpus("citations", "labelled", LABELLED)
        unknown = data.corpus("citations", "unlabelled", UNLABELLED)
        vocabulary = WordVocabulary([sentence["word"] for sentence in known + unknown])
        names = sorted({label for sentence in known for label in sentence["label"]})
        labels = [[names.index(label) for label in sentence["label"]] for sentence in known]
        self.labels, self.num_words = len(names), len(vocabulary)
        self.sequences = vocabulary.encode([sentence["word"] for sentence in unknown])
        words = vocabulary.encode([sentence["word"] for sentence in known])
        self.labelled = word_corpus(words, self.num_words, labels=labels, num_labels=self.labels)
        self.model: HMM = estimate_hmm(self.labelled, self.labels)

    @property
    def point(self) -> Multinomials:
        """Probabilities of the labelled references."""
        return self.model.probabilities

    @cached_property
    def unlabelled(self) -> WordCorpus:
        """All of them, a shard a core."""
        return word_corpus(self.sequences, self.num_words)

    def first(self, number: int) -> WordCorpus:
        """So many unlabelled ones."""
        return word_corpus(self.sequences[:number], self.num_words)

    def in_one_shard(self) -> WordCorpus:
        """All unlabelled ones, for a program that counts on one core."""
        return word_corpus(self.sequences, self.num_words, cores=1)

    def measured_on(self, corpus: WordCorpus | None = None) -> dict[str, Any]:
        """For the report."""
        corpus = corpus or self.unlabelled
        return {
            "corpus": "citations", "unlabelled": corpus.num_sequences, "tokens": corpus.num_tokens,
            "words": self.num_words, "labels": self.labels, "dtype": "float64",
        }  # fmt: skip
