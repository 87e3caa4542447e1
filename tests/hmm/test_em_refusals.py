"""What is refused, and what words and sequences become before they are counted."""

from __future__ import annotations

import numpy as np
import pytest

from jaxseq.hmm import (
    HMM,
    EMOperator,
    Smoothing,
    WordVocabulary,
    em,
    expected_counts,
    mean_counts,
    word_corpus,
)
from jaxseq.hmm._counts import check_corpus, check_families
from jaxseq.hmm._em import check_smoothing
from tests.hmm.enumerated import draw_weights, make_corpus


def test_vocabulary():
    sentences = [["a", "b", "a"], ["b", "c"], []]
    vocabulary = WordVocabulary(sentences, min_count=2)
    assert len(vocabulary) == 3
    assert [ids.tolist() for ids in vocabulary.encode([["b", "z", "a", "c"]])] == [[2, 0, 1, 0]]
    assert len(WordVocabulary(sentences)) == 1  # 5 times, by default
    with pytest.raises(ValueError, match="min_count: expected 1 or more, got 0"):
        WordVocabulary(sentences, min_count=0)


def test_unknown_words():
    found = word_corpus([[0, 9, -1]], 3, unknown=2)
    assert found.words.tolist() == [0, 2, 2]
    with pytest.raises(ValueError, match=r"sequences\[1\]\[2\]: expected a word, 0 … 2.*got 3"):
        word_corpus([[], [0, 1, 3]], 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [[0]]}, "labels: expected 2, one per sequence, got 1"),
        ({"labels": [[0], [0]], "num_labels": None}, "num_labels: expected 1 or more"),
        ({"labels": [[0], [2, 0]]}, r"labels\[1\]\[0\]: expected −1.*0 … 1, got 2"),
        ({"labels": [[0], [0]]}, r"labels\[1\]: expected integers of shape \[2\]"),
        ({"labels": [[0], np.zeros((2, 2), bool)]}, r"labels\[1\]\[0\]: expected a possible"),
        ({"sequences": [[0.5], [1, 1]]}, r"sequences\[0\]: expected integers"),
        ({"num_words": 0}, "num_words: expected 1 or more, got 0"),
        ({"unknown": 3}, "unknown: expected a word"),
        ({"cores": 0}, "cores: expected 1 or more, got 0"),
        ({"width": 1}, "width: expected at least 2, got 1"),
    ],
)
def test_refused_corpora(change, message):
    given_ = {"sequences": [[0], [1, 1]], "num_words": 3, "labels": None, "num_labels": 2}
    with pytest.raises(ValueError, match=message):
        word_corpus(**(given_ | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"balance": 1.5}, "balance: expected 0 … 1, got 1.5"),
        ({"frozen": ("emissions",)}, "frozen: expected some of initial.*got 'emissions'"),
        ({"smoothing": Smoothing(-1)}, "smoothing.initial: expected a number ≥ 0"),
        ({"unlabelled": None, "balance": 0.5}, "unlabelled: expected at least one sequence"),
        ({"labelled": None, "balance": 0.5}, "labelled: expected at least one sequence"),
        ({"labelled": None, "unlabelled": None}, "corpora: expected at least one sequence"),
        ({"weights": lambda x: (-1, 1)}, "weights: expected numbers ≥ 0, got -1.0"),
        ({"weights": lambda x: 0.5}, "weights: expected two numbers of λ, got 0.5"),
    ],
)
def test_refused_operators(change, message):
    given_ = {"labelled": make_corpus(0, labelled="complete"), "unlabelled": make_corpus(1)}
    with pytest.raises(ValueError, match=message):
        EMOperator(**(given_ | change))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_families("frozen", "emission"), "frozen: expected a tuple of some of init"),
        (lambda: check_smoothing(0.1), "smoothing: expected a Smoothing, got 0.1"),
        (lambda: check_smoothing((0.1, 0.2)), "smoothing: expected a Smoothing, got"),
        (lambda: check_smoothing(("a", 0.2, 0.1)), "smoothing.initial: expected a number ≥ 0"),
        (lambda: check_corpus("labelled", [[0]]), "labelled: expected sequences of word_corpus"),
        (lambda: check_corpus("unlabelled", None), "unlabelled: expected .*, got None"),
    ],
)
def test_refused_types(check, message):
    """By themselves, as annotations are run in the tests, and would refuse them first."""
    with pytest.raises(ValueError, match=message):
        check()


def test_what_does_not_fit_the_model():
    weights = draw_weights(0)
    operator = EMOperator(make_corpus(0, labelled="complete"), word_corpus([[0]], 5))
    with pytest.raises(ValueError, match=r"unlabelled: expected 4 words.*got 5"):
        operator(weights)
    with pytest.raises(ValueError, match=r"expected 4 words.*got 5"):
        expected_counts(weights, word_corpus([[0]], 5))
    with pytest.raises(ValueError, match=r"expected 3 labels.*got 2"):
        expected_counts(weights, word_corpus([[0]], 4, labels=[[0]], num_labels=2))
    with pytest.raises(ValueError, match="at least one sequence with a token"):
        mean_counts(weights, word_corpus([[], []], 4))
    assert float(expected_counts(weights, word_corpus([[]], 4)).log_likelihood) == 0
    with pytest.raises(ValueError, match="tolerance: expected"):
        em(HMM(*weights), EMOperator(None, make_corpus(0)), tolerance=-1.0)
    with pytest.raises(ValueError, match="max_iterations: expected"):
        em(HMM(*weights), EMOperator(None, make_corpus(0)), max_iterations=-1)
