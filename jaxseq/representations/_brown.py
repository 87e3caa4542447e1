r"""Brown clustering: classes of words that keep most of what neighbours say about each other.

With :math:`n_{ab}` the number of times that a word of class a comes right before one of class b,
and :math:`h(x) = x \log x`, the mutual information of neighbouring classes is up to constants

.. math:: F = \sum_{ab} h(n_{ab}) - \sum_a h(n_{a\cdot}) - \sum_a h(n_{\cdot a}).

The classes of a window are the most frequent words at first. The other words join one after the
other, most frequent first, each as a class of its own, whereupon the two classes are merged whose
merging costs F least. In the end the window's classes are merged to one, and the tree of these
merges gives each class its string of bits. Words that have not joined yet count as one class that
is never merged, and so do the ends of sentences: the information is that of the complete corpus.

**The table of losses** is what makes it quick. Merging a and b loses

.. math::
    \sum_{c \ne a, b} g(n_{ac}, n_{bc}) + g(n_{ca}, n_{cb}) + \ldots,
    \qquad g(x, y) = h(x) + h(y) - h(x + y),

where the dots are for what a and b have with each other. As g(x, 0) = 0, merging class t into s
changes only pairs with a neighbour of t. A word that comes late is rare, and has few: a step costs
O(C · neighbours of the rarer class) and a look at the table, O(C²), instead of the O(C³) of
computing all losses anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Tick = Callable[[int, float], None]


@dataclass(frozen=True)
class BrownTree:
    """What Brown clustering finds.

    Args:
        classes: int32 [words], the class of each word, −1 for one that never occurs.
        paths: the bits of each class, from the root of the tree.
        merges: int32 [merges, 2], in order, each class named by its lowest word.
        losses: float64 [merges], what each cost F.
    """

    classes: np.ndarray
    paths: tuple[str, ...]
    merges: np.ndarray
    losses: np.ndarray


def neighbour_counts(words: np.ndarray, lengths: np.ndarray, num_words: int) -> sp.csr_matrix:
    """How often each word comes right before each other one.

    Args:
        words: int64 [tokens], −1 for what is no word of the table.
        lengths: tokens of each sentence.
        num_words: v.

    Returns:
        [v + 2, v + 2]: v stands for all other words, v + 1 for both ends of a sentence.

    Example:
        >>> counts = neighbour_counts(np.array([0, 1, 0]), np.array([2, 1]), 2)
        >>> counts.toarray().astype(int).tolist()
        [[0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [2, 0, 0, 0]]
    """
    known = np.where(words < 0, num_words, words)
    # One end between every two sentences, and one on either side of all.
    kept = lengths[lengths > 0]
    text = np.full(len(known) + len(kept) + 1, num_words + 1)
    text[np.arange(len(known)) + np.repeat(np.arange(len(kept)), kept) + 1] = known
    size = num_words + 2
    return sp.csr_matrix((np.ones(len(text) - 1), (text[:-1], text[1:])), (size, size))


def brown_clusters(counts: Any, classes: int, tick: Tick | None = None) -> BrownTree:
    """Cluster words by who their neighbours are.

    Args:
        counts: of `neighbour_counts`.
        classes: of the window, C; no more than there are words.
        tick: called after each word with how many have joined, and the loss of the last merge.

    Returns:
        A `BrownTree`. There is nothing random in it; of equal losses, the first in the table wins.

    Cost: O(v C (k + C) + C³) with k neighbours per word, most of it O(v C²) comparisons: a hundred
    thousand words and a thousand classes take minutes. Memory: 16 C² bytes.

    References:
        Brown, Della Pietra, deSouza, Lai & Mercer 1992; Liang 2005.

    Example:
        >>> words = np.array([0, 2, 1, 2, 0, 3, 1, 3])
        >>> tree = brown_clusters(neighbour_counts(words, np.full(4, 2), 4), 2)
        >>> tree.classes.tolist(), sorted(tree.paths)
        ([0, 0, 1, 1], ['0', '1'])
    """
    num_words = counts.shape[0] - 2
    right = counts.tocsr()
    right.sum_duplicates()
    left = right.T.tocsr()
    totals = np.asarray(right.sum(1)).ravel()[:num_words]
    order = np.argsort(-totals, kind="stable")
    order = order[totals[order] > 0]
    window = _Window(min(classes, len(order)), num_words, right, left)
    joined = window.begin(order)
    for place, word in enumerate(order[joined:].tolist(), start=joined + 1):
        window.join(word)
        loss = window.merge_cheapest()
        if tick is not None:
            tick(place, loss)
    return window.finish()


def _h(x: Any) -> Any:
    return x * np.log(np.maximum(x, 1.0))  # of whole numbers: h(0) = h(1) = 0


def _g(x: Any, y: Any) -> Any:
    return _h(x) + _h(y) - _h(x + y)


class _Window:
    """C + 1 slots for classes, the counts between them, and what merging any two would lose.

    The slots after them are of the words that have not joined yet, and of the ends of sentences.
    """

    def __init__(self, classes: int, num_words: int, right: Any, left: Any):
        self.size = classes + 1
        self.rest, self.end = self.size, self.size + 1
        self.right, self.left = right, left
        self.slot = np.full(num_words + 2, self.rest)
        self.slot[num_words + 1] = self.end
        self.active = np.zeros(self.size, bool)
        self.lowest = np.zeros(self.size, np.int64)
        self.merges: list[tuple[int, int]] = []
        self.lost: list[float] = []

    def begin(self, order: np.ndarray) -> int:
        """Let the most frequent words join, all at once; how many they are."""
        number = self.size - 1
        self.slot[order[:number]] = np.arange(number)
        self.lowest[:number] = order[:number]
        self.active[:number] = True
        slots, entries = self.size + 2, self.right.tocoo()
        keys = self.slot[entries.row] * slots + self.slot[entries.col]
        self.pairs = np.bincount(keys, entries.data, minlength=slots * slots).reshape(slots, slots)
        self.before, self.after = self.pairs.sum(1)[: self.size], self.pairs.sum(0)[: self.size]
        self.losses = np.full((self.size, self.size), np.inf)
        everywhere = np.arange(slots)
        for one in range(number):
            self._set_row(one, self._shared(one, everywhere, everywhere))
        return number

    def join(self, word: int) -> None:
        """Make a class of a word that was among the rest."""
        new = int(np.flatnonzero(~self.active)[0])
        self.slot[word] = new
        self.active[new] = True
        self.lowest[new] = word
        before = self._around(self.right, word)
        after = self._around(self.left, word)
        # What was counted for the rest is now the word's. Its pairs with itself were pairs of the
        # rest with the rest, and must be taken away once only.
        both = before[new]
        old = self.pairs[: self.size, self.rest].copy(), self.pairs[self.rest, : self.size].copy()
        self.pairs[self.rest] -= np.where(np.arange(len(before)) == new, 0, before)
        self.pairs[:, self.rest] -= np.where(np.arange(len(after)) == new, 0, after)
        self.pairs[self.rest, self.rest] -= both
        self.pairs[new], self.pairs[:, new] = before, after
        self.before[new], self.after[new] = before.sum(), after.sum()
        size = self.size
        for was, now, own in (
            (old[0], self.pairs[:size, self.rest], self.pairs[:size, new]),
            (old[1], self.pairs[self.rest, :size], self.pairs[new, :size]),
        ):
            near = np.flatnonzero((own > 0) & self.active)
            change = _g(now[near, None], now) - _g(was[near, None], was) + _g(own[near, None], own)
            self._add(near, change)
        self._set_row(new, self._shared(new, np.flatnonzero(before), np.flatnonzero(after)))

    def merge_cheapest(self) -> float:
        """Merge the two classes that lose least; what they lose."""
        one, other = divmod(int(self.losses.argmin()), self.size)
        loss = float(self.losses[one, other])
        self._merge(min(one, other), max(one, other))
        self.lost.append(loss)
        return loss

    def finish(self) -> BrownTree:
        """Number the classes, and merge them to a tree."""
        known = self.slot[:-2]
        slots = np.flatnonzero(self.active)
        number = np.full(self.size + 2, -1)
        number[slots] = np.arange(len(slots))
        classes = number[known].astype(np.int32)
        members = {slot: [place] for place, slot in enumerate(slots.tolist())}
        bits = [""] * len(slots)
        while len(members) > 1:
            self.merge_cheapest()
            kept, gone = self.last
            for bit, slot in (("0", kept), ("1", gone)):
                for place in members[slot]:
                    bits[place] = bit + bits[place]
            members[kept] += members.pop(gone)
        merges = np.array(self.merges, np.int32).reshape(-1, 2)
        return BrownTree(classes, tuple(bits), merges, np.array(self.lost))

    def _merge(self, kept: int, gone: int) -> None:
        """Merge two classes, into the slot of the first."""
        pairs, size = self.pairs, self.size
        self.merges.append((int(self.lowest[kept]), int(self.lowest[gone])))
        self.lowest[kept] = min(self.lowest[kept], self.lowest[gone])
        self.last = kept, gone
        # The class with fewer neighbours changes fewer pairs; which of the two slots is kept does
        # not matter for the losses.
        shared = self.losses[kept] - self._corrections(kept)
        few, many = gone, kept
        if (pairs[gone] > 0).sum() + (pairs[:, gone] > 0).sum() > (
            (pairs[kept] > 0).sum() + (pairs[:, kept] > 0).sum()
        ):
            few, many = kept, gone
            shared = self.losses[gone] - self._corrections(gone)
        active = self.active.copy()
        active[[kept, gone]] = False
        for table in (pairs, pairs.T):
            # As a neighbour of others.
            own, other = table[:size, few], table[:size, many]
            near = np.flatnonzero((own > 0) & active)
            both = own + other
            change = (
                _g(both[near, None], both) - _g(own[near, None], own) - _g(other[near, None], other)
            )
            self._add(near, change)
            # By the neighbours it has, of which it now has those of both.
            near = np.flatnonzero(table[few] > 0)
            near = near[(near != few) & (near != many)]
            theirs = table[:size, near]
            shared = shared + (
                _g(table[few, near] + table[many, near], theirs) - _g(table[many, near], theirs)
            ).sum(1)
            block = table[np.ix_([few, many], [few, many])].sum()
            shared = shared + (
                _g(block, both) - _g(table[many, many], other) - _g(table[many, few], own)
            )
        pairs[kept] += pairs[gone]
        pairs[:, kept] += pairs[:, gone]
        pairs[gone] = 0
        pairs[:, gone] = 0
        for total in (self.before, self.after):
            total[kept] += total[gone]
            total[gone] = 0
        self.active[gone] = False
        self.slot[self.slot == gone] = kept
        self.losses[gone] = self.losses[:, gone] = np.inf
        self._set_row(kept, shared)

    def _around(self, counts: sp.csr_matrix, word: int) -> np.ndarray:
        """How often a word has which class as its neighbour, [slots]."""
        part = slice(counts.indptr[word], counts.indptr[word + 1])
        slots = self.slot[counts.indices[part]]
        return np.bincount(slots, counts.data[part], minlength=self.size + 2)

    def _shared(self, one: int, followers: np.ndarray, leaders: np.ndarray) -> np.ndarray:
        """What a class shares with every other by its neighbours, its own and theirs included."""
        pairs, size = self.pairs, self.size
        return _g(pairs[one, followers], pairs[:size, followers]).sum(1) + _g(
            pairs[leaders, one], pairs[leaders, :size].T
        ).sum(1)

    def _corrections(self, one: int) -> np.ndarray:
        """What is to be added to what is shared, so that it is the loss of merging.

        The pairs of two classes with each other and themselves are four numbers that become one;
        and the class's own counts change.
        """
        pairs, size = self.pairs, self.size
        to, back = pairs[one, :size], pairs[:size, one]
        own, theirs = pairs[one, one], pairs.diagonal()[:size]
        before, after = self.before, self.after
        block = _h(own) + _h(theirs) + _h(to) + _h(back) - _h(own + theirs + to + back)
        twice = _g(own, back) + _g(to, theirs) + _g(own, to) + _g(back, theirs)
        return block - twice - _g(before[one], before) - _g(after[one], after)

    def _set_row(self, one: int, shared: np.ndarray) -> None:
        losses = np.where(self.active, shared + self._corrections(one), np.inf)
        losses[one] = np.inf
        self.losses[one] = self.losses[:, one] = losses

    def _add(self, near: np.ndarray, change: np.ndarray) -> None:
        """Add to the losses of some classes with all, and of all with them, each pair once."""
        self.losses[near] += change
        within = np.zeros(self.size, bool)
        within[near] = True
        self.losses[:, near] += np.where(within[:, None], 0, change.T)
