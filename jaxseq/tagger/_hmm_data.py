"""Sentences and labels as the numbers that a hidden Markov model is estimated from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxseq.learn._em_corpus import WordCorpus, word_corpus
from jaxseq.learn._em_vocabulary import WordVocabulary
from jaxseq.tagger._checks import check_sentences
from jaxseq.tagger._hmm_plan import HMMPlan
from jaxseq.tagger._labels import Label, check_labels, encode_labels, find_classes
from jaxseq.tagger._unlabelled import check_unlabelled
from jaxseq.text._extractor_corpus import Column, read_corpus


@dataclass(frozen=True)
class HMMData:
    """What a model is estimated from; `unlabelled` is None where there is no unlabelled token."""

    classes: list[str]
    vocabulary: WordVocabulary
    labelled: WordCorpus
    unlabelled: WordCorpus | None


def read_hmm_data(
    X: Iterable[Any],
    y: Sequence[Sequence[Label]],
    unlabelled: Iterable[Any] | None,
    plan: HMMPlan,
) -> HMMData:
    """Vocabulary, classes and corpora; ValueError on what is no sentence or no label."""
    words, lengths = read_words(check_sentences(X), plan.column)
    if not len(lengths):
        raise ValueError("X: expected at least one sentence, got none")
    flat = check_labels(y, lengths)
    classes = _with_unseen(find_classes(flat, lengths), plan.classes)
    labels = encode_labels(flat, classes, lengths)
    columns, others = [words], None
    if unlabelled is not None:
        others = _read_unlabelled(unlabelled, plan.column)
        columns += [others[0]] if plan.vocabulary == "all" else []
    vocabulary = _vocabulary_of(columns, plan.unknown_below)
    known = labels.gold if labels.allowed is None else labels.allowed
    labelled = word_corpus(
        _by_sentence(numbers_of(words, vocabulary), lengths),
        len(vocabulary),
        labels=_by_sentence(known, lengths),
        num_labels=len(classes),
        cores=plan.cores,
    )
    if others is None or not others[1].sum():
        return HMMData(classes, vocabulary, labelled, None)
    numbers = _by_sentence(numbers_of(others[0], vocabulary), others[1])
    rest = word_corpus(numbers, len(vocabulary), cores=plan.cores)
    return HMMData(classes, vocabulary, labelled, rest)


def _with_unseen(seen: list[str], every: tuple[str, ...] | None) -> list[str]:
    """All labels, sorted."""
    if every is None:
        return seen
    unexpected = sorted(set(seen) - set(every))
    if unexpected:
        raise ValueError(
            f"y: expected labels among classes, {', '.join(sorted(every))}, got {unexpected[0]!r}"
        )
    return sorted({str(label) for label in every})


def read_words(sentences: Iterable[Any], column: str) -> tuple[Column, np.ndarray]:
    """The words of all sentences, and how many each has."""
    columns, lengths = read_corpus(sentences, [column])
    return columns[column], lengths


def _read_unlabelled(sentences: Any, column: str) -> tuple[Column, np.ndarray]:
    try:
        return read_words(check_unlabelled(sentences), column)
    except ValueError as error:
        told = str(error)
        raise ValueError(told if told.startswith("unlabelled") else f"unlabelled: {told}") from None


def _vocabulary_of(columns: list[Column], unknown_below: int) -> WordVocabulary:
    counts: dict[str, int] = {}
    for column in columns:
        found = np.bincount(column.codes, minlength=len(column.strings)).tolist()
        for word, count in zip(column.strings, found):
            counts[word] = counts.get(word, 0) + count
    # A NumPy string becomes a plain one.
    kept = [str(word) for word, count in counts.items() if count >= unknown_below]
    return WordVocabulary([kept], min_count=1)


def numbers_of(words: Column, vocabulary: WordVocabulary) -> np.ndarray:
    """The number of each token's word, int32 [N]; of the unknown word for one that is not known."""
    return vocabulary.encode([words.strings])[0][words.codes]


def _by_sentence(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths)[:-1])
