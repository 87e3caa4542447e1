"""The corpora can be learnt, and not trivially: a supervised HMM, and EM on top of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest

from experiments.corpora import ads, chunks, citations, gene_mentions
from jaxseq.text import Sentence

SMOOTHING = 0.1
Counts = tuple[np.ndarray, np.ndarray, np.ndarray]  # of first labels, of pairs, of words by label


class HMM:
    """A first-order HMM over the cells of one column; the last label of a pair may be the end."""

    def __init__(self, labelled: Sequence[Sentence], more: Sequence[Sentence] = (), column="word"):
        self.column = column
        self.labels = sorted({label for s in labelled for label in s["label"]})
        words = dict.fromkeys(cell for s in [*labelled, *more] for cell in s[column])
        self.words = {word: at for at, word in enumerate(words)}
        self.supervised = self._count(labelled)
        self.estimate(self.supervised)

    def _groups(self, sentences: Sequence[Sentence]) -> Iterator[tuple[list[int], np.ndarray]]:
        """Sentences of equal length at once: their places, and the ids of their words."""
        by_length = defaultdict(list)
        for at, sentence in enumerate(sentences):
            by_length[len(sentence)].append(at)
        unknown = len(self.words)
        for places in by_length.values():
            cells = [sentences[at][self.column] for at in places]
            yield places, np.array([[self.words.get(c, unknown) for c in row] for row in cells])

    def _zeros(self) -> Counts:
        k = len(self.labels)
        return np.zeros(k), np.zeros((k, k + 1)), np.zeros((k, len(self.words) + 1))

    def _count(self, labelled: Sequence[Sentence]) -> Counts:
        first, pairs, emitted = self._zeros()
        index = {label: at for at, label in enumerate(self.labels)}
        for places, ids in self._groups(labelled):
            path = np.array([[index[label] for label in labelled[at]["label"]] for at in places])
            np.add.at(first, path[:, 0], 1)
            np.add.at(pairs, (path[:, :-1], path[:, 1:]), 1)
            pairs[:, -1] += np.bincount(path[:, -1], minlength=len(self.labels))
            np.add.at(emitted, (path, ids), 1)
        return first, pairs, emitted

    def estimate(self, counts: Counts) -> None:
        """Smoothed relative frequencies."""
        smoothed = [count + SMOOTHING for count in counts]
        self.first, self.pairs, self.emitted = (c / c.sum(-1, keepdims=True) for c in smoothed)

    def expect(self, sentences: Sequence[Sentence]) -> Counts:
        """Expected counts, by forward and backward probabilities scaled to sum to one."""
        first, pairs, emitted = self._zeros()
        steps, end = self.pairs[:, :-1], self.pairs[:, -1]
        for _, ids in self._groups(sentences):
            seen = self.emitted.T[ids]  # [sentences, length, labels]
            alpha, scale = np.zeros_like(seen), np.ones(seen.shape[:2])
            beta = np.broadcast_to(end, seen.shape).copy()
            for t in range(ids.shape[1]):
                ahead = alpha[:, t - 1] @ steps if t else self.first
                alpha[:, t] = ahead * seen[:, t]
                scale[:, t] = alpha[:, t].sum(-1)
                alpha[:, t] /= scale[:, t, None]
            for t in range(ids.shape[1] - 2, -1, -1):
                beta[:, t] = (seen[:, t + 1] * beta[:, t + 1]) @ steps.T / scale[:, t + 1, None]
            total = (alpha[:, -1] @ end)[:, None, None]
            here = alpha * beta / total
            ahead = seen * beta / scale[..., None] / total
            first += here[:, 0].sum(0)
            pairs[:, :-1] += steps * np.einsum("bti,btj->ij", alpha[:, :-1], ahead[:, 1:])
            pairs[:, -1] += here[:, -1].sum(0)
            np.add.at(emitted.T, ids, here)
        return first, pairs, emitted

    def learn_from(self, unlabelled: Sequence[Sentence], share: float) -> None:
        """A step of EM, of whose parameters only a share enters (Chang et al. 2007, fig. 2)."""
        counts = self.expect(unlabelled)
        self.estimate(self.supervised)
        known = self.first, self.pairs, self.emitted
        self.estimate(counts)
        guessed = self.first, self.pairs, self.emitted
        self.first, self.pairs, self.emitted = (
            (1 - share) * old + share * new for old, new in zip(known, guessed, strict=True)
        )

    def label(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        """The best labels of each sentence (Viterbi)."""
        out: list[list[str]] = [[] for _ in sentences]
        steps, end = np.log(self.pairs[:, :-1]), np.log(self.pairs[:, -1])
        for places, ids in self._groups(sentences):
            seen = np.log(self.emitted).T[ids]
            best, back = np.log(self.first) + seen[:, 0], []
            for t in range(1, ids.shape[1]):
                joint = best[:, :, None] + steps
                back.append(joint.argmax(1))
                best = joint.max(1) + seen[:, t]
            path = [(best + end).argmax(1)]
            for pointers in reversed(back):
                path.append(np.take_along_axis(pointers, path[-1][:, None], 1)[:, 0])
            for place, row in zip(places, np.stack(path[::-1], 1), strict=True):
                out[place] = [self.labels[at] for at in row]
        return out

    def accuracy(self, sentences: Sequence[Sentence]) -> float:
        """Tokens labelled rightly, of a hundred."""
        pairs = zip(sentences, self.label(sentences), strict=True)
        right = [a == b for s, found in pairs for a, b in zip(s["label"], found, strict=True)]
        return 100 * float(np.mean(right))


def test_expected_counts_are_those_of_enumeration():
    """The yardstick itself: on a small model, against the sum over all labellings."""
    rows = [("aba", "XYX"), ("ab", "XX"), ("c", "Y")]
    text = [Sentence({"word": list(words), "label": list(labels)}) for words, labels in rows]
    hmm = HMM(text)
    first, pairs, emitted = hmm.expect(text[:1])
    expected, total = np.zeros((2, 3)), 0.0
    ids = [hmm.words[word] for word in text[0]["word"]]
    for path in np.ndindex(2, 2, 2):
        p = hmm.first[path[0]] * hmm.pairs[path[-1], -1]
        p *= np.prod([hmm.emitted[y, w] for y, w in zip(path, ids, strict=True)])
        p *= np.prod([hmm.pairs[a, b] for a, b in pairwise(path)])
        total += p
        for a, b in zip(path, [*path[1:], 2], strict=True):
            expected[a, b] += p
    np.testing.assert_allclose(pairs, expected / total, rtol=1e-10)
    assert first.sum() == pytest.approx(1)
    np.testing.assert_allclose(emitted.sum(0)[:2], [2, 1], rtol=1e-10)


def _citation_figures(seed: int, labelled: int) -> tuple[float, float]:
    """Accuracy on 100 references of a supervised HMM, then with EM on 1,000 unlabelled ones."""
    text, unlabelled = citations(400, seed), citations(1000, 1000 + seed, labelled=False)
    hmm = HMM(text[:labelled], unlabelled)
    supervised = hmm.accuracy(text[300:])
    for _ in range(3):
        hmm.learn_from(unlabelled, share=0.1)
    return supervised, hmm.accuracy(text[300:])


def test_citations_are_learnable_and_unlabelled_ones_do_no_harm():
    figures = np.array([_citation_figures(seed, labelled=300) for seed in range(3)])
    assert (figures[:, 0] > 80).all(), figures
    assert (figures[:, 0] < 92).all(), figures
    # Of 300 labelled ones the gain is within the noise of three seeds, so no sign is asserted.
    assert figures[:, 1].mean() > figures[:, 0].mean() - 0.5, figures


def test_unlabelled_citations_help_where_labelled_ones_are_few():
    figures = np.array([_citation_figures(seed, labelled=20) for seed in range(3)])
    assert (figures[:, 0] < 80).all(), figures
    assert figures[:, 1].mean() > figures[:, 0].mean() + 2, figures


def test_ads_are_learnable():
    text = ads(202, 1)
    accuracy = HMM(text[:102]).accuracy(text[102:])
    assert 72 < accuracy < 88


def test_tags_alone_do_not_give_the_chunks():
    text = chunks(1200, 1)
    by_tag = HMM(text[:1000], column="pos").accuracy(text[1000:])
    by_word = HMM(text[:1000]).accuracy(text[1000:])
    assert 85 < by_tag < 97
    assert 70 < by_word < 95


def test_words_alone_do_not_give_the_genes():
    text = gene_mentions(1200, 1)
    found = HMM(text[:1000]).label(text[1000:])
    pairs = [p for s, f in zip(text[1000:], found, strict=True) for p in zip(s["label"], f)]
    recall = np.mean([guess != "O" for gold, guess in pairs if gold != "O"])
    precision = np.mean([gold != "O" for gold, guess in pairs if guess != "O"])
    assert 0.3 < recall < 0.9
    assert 0.3 < precision < 0.95
