"""Sequences of words in groups, one a lane, as kernels of ``jaxseq/native/hmm.cc`` take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxseq.learn._em_corpus import WordCorpus

WIDTH = 16
"""Sequences of a group: the kernels' own."""
FEWEST, PARTS = 4, 64
"""Groups of a part, at least, and parts at most."""
ALIGNED = 64
"""Bytes of a vector: where arrays begin."""


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """As `numpy.zeros`, beginning where vectors may.

    Example:
        >>> aligned_zeros((3, 5), np.float32).ctypes.data % ALIGNED
        0
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    return room[start : start + size].view(dtype).reshape(shape)


class Groups(NamedTuple):
    """The sequences of a part of a corpus.

    first [g + 1]: the slot with which each group begins, and the end. words [slots, WIDTH]: with v,
    which no word is, before a sequence's beginning. begins [slots]: a bit for each lane whose
    sequence begins there. allowed [slots, s, WIDTH]: whether a label may be, or None when any may.
    """

    first: np.ndarray
    words: np.ndarray
    begins: np.ndarray
    allowed: np.ndarray | None

    @property
    def longest(self) -> int:
        """Slots of the longest group."""
        return int(np.diff(self.first).max())


def make_groups(corpus: WordCorpus, num_labels: int) -> list[Groups]:
    """All sequences, in groups of about one length, shared out to parts that take about as long.

    Sequences of a group end in one slot. Where the longest is much longer than the rest of its
    group, lanes stand empty; by falling length, that is where there are few. How many parts there
    are depends on the number of groups alone: sums over parts have the same rounding on any number
    of cores, and so a path, which may turn on it, is the same.

    Args:
        corpus: of `word_corpus`, with at least one sequence.
        num_labels: s.

    Cost: O(N s) on the host, once a corpus.

    Example:
        >>> from jaxseq.learn import word_corpus
        >>> (groups,) = make_groups(word_corpus([[0, 1], [1]], 2), 3)
        >>> groups.words[:, :3].tolist()  # 2 is no word
        [[0, 2, 2], [1, 1, 2]]
        >>> [f"{bits:b}" for bits in groups.begins]
        ['1', '10']
    """
    order = np.argsort(-corpus.lengths, kind="stable")
    members = [order[i : i + WIDTH] for i in range(0, len(order), WIDTH)]
    slots = [int(corpus.lengths[group[0]]) for group in members]
    parts = number_of_parts(len(members))
    shares, loads = [[] for _ in range(parts)], [0] * parts
    for group, number in zip(members, slots):  # the longest first: so loads end nearly equal
        part = loads.index(min(loads))
        shares[part].append(group)
        loads[part] += number
    return [_place(corpus, share, num_labels) for share in shares]


def number_of_parts(groups: int) -> int:
    """A power of two, which most numbers of cores can share out evenly.

    Example:
        >>> [number_of_parts(groups) for groups in (1, 9, 63, 10_000)]
        [1, 2, 8, 64]
    """
    return min(PARTS, 1 << max(groups // FEWEST, 1).bit_length() - 1)


def _place(corpus: WordCorpus, members: list[np.ndarray], num_labels: int) -> Groups:
    lengths = [corpus.lengths[group] for group in members]
    first = np.cumsum([0, *(int(one[0]) for one in lengths)]).astype(np.int64)
    total = int(first[-1])
    words = aligned_zeros((total, WIDTH), np.int32)
    words[:] = corpus.num_words
    begins = np.zeros(total, np.uint16)
    possible = _possible(corpus)
    allowed = None
    if possible is not None:
        allowed = aligned_zeros((total, num_labels, WIDTH), np.uint8)
    starts = np.cumsum(corpus.lengths) - corpus.lengths
    for end, group in zip(first[1:], members):
        for lane, sequence in enumerate(group):
            start, length = int(starts[sequence]), int(corpus.lengths[sequence])
            here = slice(end - length, end)
            words[here, lane] = corpus.words[start : start + length]
            begins[end - length] |= 1 << lane
            if allowed is not None and possible is not None:
                allowed[here, :, lane] = possible[start : start + length]
    return Groups(first, words, begins, allowed)


def _possible(corpus: WordCorpus) -> np.ndarray | None:
    """Which labels a token may have [N, s], or None when any."""
    if corpus.allowed is not None or corpus.num_labels is None or not (corpus.labels >= 0).any():
        return corpus.allowed
    return corpus.labels[:, None] == np.arange(corpus.num_labels)
