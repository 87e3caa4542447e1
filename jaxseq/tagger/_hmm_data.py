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
from jaxseq.tagger._together import Together
from jaxseq.tagger._unlabelled import check_unlabelled
from jaxseq.text._extractor_corpus import Column, read_corpus


@dataclass(frozen=True)
class HMMData:
    """What a model is estimated from; `unlabelled` is None where there is no unlabelled token.

    With several processes, the corpora are those of this one.
    """

    classes: list[str]
    vocabulary: WordVocabulary
    labelled: WordCorpus
    unlabelled: WordCorpus | None


def read_hmm_data(
    X: Iterable[Any],
    y: Sequence[Sequence[Label]],
    unlabelled: Iterable[Any] | None,
    plan: HMMPlan,
    together: Together | None = None,
) -> HMMData:
    """Vocabulary, classes and corpora; ValueError on what is no sentence or no label.

    With several processes (`together`) the sentences are those of this one, vocabulary and classes
    those of all; all call this together, inside their guard.
    """
    together = together or Together.alone()
    words, lengths = read_words(check_sentences(X), plan.column)
    if not together.total(len(lengths)):
        raise ValueError("X: expected at least one sentence, got none")
    flat = check_labels(y, lengths)
    classes = _with_unseen(find_classes(flat, lengths, together), plan.classes)
    labels = encode_labels(flat, classes, lengths)
    others = None if unlabelled is None else _read_unlabelled(unlabelled, plan.column)
    both = [(words, lengths)]
    if others is not None and plan.vocabulary == "all":
        both.append(others)
    vocabulary = _vocabulary_of(both, plan.unknown_below, together)
    known = labels.gold if labels.allowed is None else labels.allowed
    labelled = word_corpus(
        _by_sentence(numbers_of(words, vocabulary), lengths),
        len(vocabulary),
        labels=_by_sentence(known, lengths),
        num_labels=len(classes),
        cores=plan.cores,
    )
    if others is None or not together.total(int(others[1].sum())):
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


def _vocabulary_of(
    parts: list[tuple[Column, np.ndarray]], unknown_below: int, together: Together
) -> WordVocabulary:
    """Of the labelled sentences and perhaps others, in all processes; by first occurrence."""
    column, lengths = _one_column([column for column, _ in parts]), [part[1] for part in parts]
    shared = together.shared(*map(len, lengths))
    if shared is not None:
        shared.check(sum(map(len, lengths)))
        column = shared.share_column(column, np.concatenate(lengths))
    counts = together.peers.sum(np.bincount(column.codes, minlength=len(column.strings)))
    # A NumPy string becomes a plain one.
    found = zip(column.strings, counts.tolist())
    return WordVocabulary(
        [[str(word) for word, count in found if count >= unknown_below]], min_count=1
    )


def _one_column(columns: list[Column]) -> Column:
    """One after another."""
    if len(columns) == 1:
        return columns[0]
    strings = list(dict.fromkeys(word for column in columns for word in column.strings))
    number = {word: code for code, word in enumerate(strings)}
    codes = [
        np.array([number[word] for word in column.strings], np.int64)[column.codes]
        for column in columns
    ]
    return Column(strings, np.concatenate(codes))


def numbers_of(words: Column, vocabulary: WordVocabulary) -> np.ndarray:
    """The number of each token's word, int32 [N]; of the unknown word for one that is not known."""
    return vocabulary.encode([words.strings])[0][words.codes]


def _by_sentence(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths))[:-1]
