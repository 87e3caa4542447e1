"""Brown clustering against the definition: every merge is the one that loses least information."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.representations import BrownTree, brown_clusters, neighbour_counts


def information(counts: np.ndarray) -> float:
    """The mutual information of neighbouring classes, up to constants."""

    def h(x):
        return float((x * np.log(np.maximum(x, 1))).sum())

    return h(counts) - h(counts.sum(1)) - h(counts.sum(0))


class Replay:
    """Brown clustering as it is defined, with all losses computed anew at every step."""

    def __init__(self, words, lengths, num_words, classes):
        self.counts = neighbour_counts(words, lengths, num_words).toarray()
        self.tree = brown_clusters(neighbour_counts(words, lengths, num_words), classes)
        totals = self.counts.sum(1)[:num_words]
        order = [w for w in np.argsort(-totals, kind="stable").tolist() if totals[w]]
        self.groups, self.waiting = [[word] for word in order[:classes]], order[classes:]
        self.step = 0

    def between(self, groups) -> np.ndarray:
        """Counts between classes, the words that wait and the ends of sentences among them."""
        last = len(self.counts) - 1
        sets = [*groups, [*self.waiting, last - 1], [last]]
        members = np.zeros((len(sets), last + 1))
        for row, one in enumerate(sets):
            members[row, one] = 1
        return members @ self.counts @ members.T

    def loss(self, one: int, other: int) -> float:
        others = [g for place, g in enumerate(self.groups) if place not in (one, other)]
        merged = [*others, self.groups[one] + self.groups[other]]
        return information(self.between(self.groups)) - information(self.between(merged))

    def merge(self) -> None:
        pairs = itertools.combinations(range(len(self.groups)), 2)
        losses = {pair: self.loss(*pair) for pair in pairs}
        named = [min(group) for group in self.groups]
        chosen = tuple(sorted(named.index(word) for word in self.tree.merges[self.step].tolist()))
        assert self.tree.losses[self.step] == pytest.approx(losses[chosen], abs=1e-9)
        assert losses[chosen] <= min(losses.values()) + 1e-9
        gone = self.groups.pop(chosen[1])
        self.groups[chosen[0]] = self.groups[chosen[0]] + gone
        self.step += 1

    def run(self) -> BrownTree:
        while self.waiting:
            self.groups.append([self.waiting.pop(0)])
            self.merge()
        found = self.tree.classes
        classes = range(len(self.tree.paths))
        assert {frozenset(group) for group in self.groups} == {
            frozenset(np.flatnonzero(found == one).tolist()) for one in classes
        }
        while len(self.groups) > 1:
            self.merge()
        assert self.step == len(self.tree.merges)
        return self.tree


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 14), st.integers(1, 70))
def test_every_merge_loses_least(seed, classes, num_words, tokens):
    random = np.random.default_rng(seed)
    words = random.zipf(1.4, tokens) % (num_words + 1) - 1  # −1 is a word of no table
    lengths = np.bincount(random.integers(0, 6, tokens), minlength=6)  # some sentences are empty
    if (words < 0).all():
        words[0] = 0
    tree = Replay(words, lengths, num_words, classes).run()
    occurring = np.isin(np.arange(num_words), words)
    assert ((tree.classes >= 0) == occurring).all()
    # A path is the way from the root to a leaf: none goes through another's leaf.
    for one, other in itertools.permutations(tree.paths, 2):
        assert not other.startswith(one)


def test_classes_are_of_words_that_stand_in_the_same_places():
    random = np.random.default_rng(0)
    sentences = [
        [
            int(random.integers(0, 5)),
            5 + int(random.integers(0, 5)),
            10 + int(random.integers(0, 5)),
        ]
        for _ in range(400)
    ]
    words = np.array(sentences).ravel()
    tree = brown_clusters(neighbour_counts(words, np.full(400, 3), 15), 3)
    assert [set(tree.classes[first : first + 5].tolist()) for first in (0, 5, 10)] == [
        {tree.classes[0]}, {tree.classes[5]}, {tree.classes[10]},
    ]  # fmt: skip
    assert len(set(tree.classes.tolist())) == 3


def test_one_word_and_no_word():
    tree = brown_clusters(neighbour_counts(np.zeros(3, int), np.array([3]), 1), 5)
    assert (tree.classes.tolist(), tree.paths, len(tree.merges)) == ([0], ("",), 0)
    tree = brown_clusters(neighbour_counts(np.zeros(0, int), np.zeros(0, int), 2), 5)
    assert (tree.classes.tolist(), tree.paths) == ([-1, -1], ())
