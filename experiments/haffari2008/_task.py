"""A split of the citations as HMMs see it, and how well a model labels its test part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.haffari2008._settings import NORMALISED, Setting
from jaxseq.hmm import (
    HMM,
    WordCorpus,
    WordVocabulary,
    estimate_hmm,
    log_likelihoods,
    shard_batch,
    word_corpus,
)
from jaxseq.lattice import batch_marginals, batch_viterbi
from jaxseq.metrics import span_scores, token_accuracy
from jaxseq.text import Sentence

DECODINGS = ("viterbi", "sms")
"""The most probable labelling, and the most probable label of each token."""


@dataclass(frozen=True)
class Split:
    """Labelled citations in three disjoint parts."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]


def draw_split(sentences: Sequence[Sentence], seed: int, sizes: tuple[int, int, int]) -> Split:
    """Training, development and test parts of given sizes, in an order drawn by seed.

    The test part does not depend on the sizes of the others.

    Raises:
        ValueError: for more sentences than there are.

    Example:
        >>> corpus = [Sentence({"word": [str(i)]}) for i in range(6)]
        >>> split = draw_split(corpus, 0, (3, 1, 2))
        >>> [len(part) for part in (split.train, split.dev, split.test)]
        [3, 1, 2]
    """
    train, dev, test = sizes
    if sum(sizes) > len(sentences):
        raise ValueError(f"sizes: expected at most {len(sentences)} together, got {sum(sizes)}")
    order = np.random.default_rng([2008, seed]).permutation(len(sentences))
    shuffled = [sentences[index] for index in order[::-1]]
    return Split(
        shuffled[test + dev : test + dev + train], shuffled[test : test + dev], shuffled[:test]
    )


class Task:
    """Corpora of one training: labelled and unlabelled citations, and those to test on.

    Args:
        setting: how words become numbers.
        labelled: with labels.
        unlabelled: without.
        test: with labels.
        classes: all labels.
    """

    def __init__(
        self,
        setting: Setting,
        labelled: Sequence[Sentence],
        unlabelled: Sequence[Sentence],
        test: Sequence[Sentence],
        classes: Sequence[str],
    ):
        self.setting, self.classes, self.test = setting, list(classes), list(test)
        known, others = self._words(labelled), self._words(unlabelled)
        counted = known + others if setting.vocabulary == "all" else known
        self.vocabulary = WordVocabulary(counted, min_count=setting.unknown_below)
        self.labelled = self.encode(labelled)
        self.unlabelled = self.encode(unlabelled, labels=False)

    def _words(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        change = NORMALISED[self.setting.normalise]
        return [[change(word) for word in sentence["word"]] for sentence in sentences]

    def encode(self, sentences: Sequence[Sentence], labels: bool = True) -> WordCorpus:
        """Sentences as numbers, with their labels or without."""
        words = self.vocabulary.encode(self._words(sentences))
        if not labels:
            return word_corpus(words, len(self.vocabulary))
        number = {label: index for index, label in enumerate(self.classes)}
        gold = [[number[label] for label in sentence["label"]] for sentence in sentences]
        return word_corpus(words, len(self.vocabulary), labels=gold, num_labels=len(number))

    @property
    def balance(self) -> float:
        """λ of maximum likelihood, |U| / (|L| + |U|)."""
        known, unknown = self.labelled.num_sequences, self.unlabelled.num_sequences
        return unknown / (known + unknown)

    @cached_property
    def supervised(self) -> HMM:
        """Relative frequencies of the labelled part, smoothed."""
        return estimate_hmm(
            self.labelled,
            len(self.classes),
            smoothing=self.setting.smoothing,
            unknown=self.vocabulary.unknown,
        )

    def log_likelihood(self, model: HMM, corpus: WordCorpus) -> float:
        """log P(x, y) of labelled sentences, in nats a token; −inf if one is impossible."""
        return float(log_likelihoods(model.probabilities, corpus).sum()) / corpus.num_tokens

    @cached_property
    def _test_words(self) -> WordCorpus:
        return self.encode(self.test, labels=False)

    def score(self, model: HMM) -> dict[str, Any]:
        """Accuracy of tokens, and precision, recall and F of segments, by both decodings."""
        gold = [list(sentence["label"]) for sentence in self.test]
        found: dict[str, Any] = {}
        for decoding in DECODINGS:
            numbers = decode(model, self._test_words, decoding)
            labels = [[self.classes[number] for number in sentence] for sentence in numbers]
            spans = span_scores(_as_tags(gold), _as_tags(labels)).overall
            found[decoding] = {
                "accuracy": token_accuracy(gold, labels),
                "precision": spans.precision,
                "recall": spans.recall,
                "f1": spans.f1,
            }
        return found


def _as_tags(labellings: Sequence[Sequence[str]]) -> list[list[str]]:
    """A segment is as many equal labels as stand side by side."""
    return [[f"I-{label}" for label in labels] for labels in labellings]


def decode(model: HMM, corpus: WordCorpus, decoding: str) -> list[list[int]]:
    """Labels of each sentence: by the best labelling (``"viterbi"``), or token by token
    (``"sms"``).

    Words that the model holds impossible, as at λ = 1 those that no unlabelled sentence has, tell
    nothing of their labels.

    Raises:
        ValueError: for another decoding.

    Example:
        >>> import jax.numpy as jnp
        >>> hmm = HMM(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> decode(hmm, word_corpus([[0, 1], [1]], 2), "viterbi")
        [[0, 1], [1]]
    """
    if decoding not in DECODINGS:
        raise ValueError(f"decoding: expected one of {', '.join(DECODINGS)}, got {decoding!r}")
    theta = model.probabilities
    nothing = theta.emission.sum(1, keepdims=True) == 0
    theta = theta._replace(emission=theta.emission + nothing)
    found: list[list[int]] = [[] for _ in range(corpus.num_sequences)]
    for shard, owners in zip(corpus.shards, corpus.owners):
        batch = shard_batch(theta, shard)
        if decoding == "viterbi":
            labels = np.asarray(batch_viterbi(batch)[0])
        else:
            labels = np.asarray(batch_marginals(batch).nodes).argmax(-1)
        segments = np.asarray(batch.segments)
        for owner, label in zip(segments[segments >= 0], labels[segments >= 0]):
            found[owners[owner]].append(int(label))
    return found
