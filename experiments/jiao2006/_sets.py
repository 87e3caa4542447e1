"""The sets of the paper: A labelled, B, C and D unlabelled, E held out, drawn by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from jaxseq.text import Sentence

UNLABELLED = ("B", "C", "D")
"""Names of the unlabelled sets, from the smallest on."""


@dataclass(frozen=True)
class Sets:
    """Disjoint parts of a corpus, which together are all of it.

    Args:
        labelled: A.
        unlabelled: B, C and D by name.
        held_out: E.
    """

    labelled: list[Sentence]
    unlabelled: dict[str, list[Sentence]]
    held_out: list[Sentence]

    def words(self, name: str) -> int:
        """Number of words of the set of that name, A to E."""
        return sum(map(len, {"A": self.labelled, "E": self.held_out, **self.unlabelled}[name]))


def draw_sets(
    sentences: Sequence[Sentence], seed: int, words: int, multiples: Sequence[int]
) -> Sets:
    """Draw the sets: sentences in a random order, A until it has enough words, then B, C, D, E.

    Args:
        sentences: the corpus.
        seed: of the order.
        words: A ends with the sentence by which it has so many.
        multiples: of the number of A's sentences, for each of `UNLABELLED`.

    Raises:
        ValueError: for a corpus that leaves nothing for E.

    Example:
        >>> corpus = [Sentence({"word": ["a", "b"]}, str(i)) for i in range(30)]
        >>> sets = draw_sets(corpus, 0, 5, (1, 2, 5))
        >>> len(sets.labelled), [len(some) for some in sets.unlabelled.values()]
        (3, [3, 6, 15])
        >>> len(sets.held_out)
        3
    """
    if len(multiples) != len(UNLABELLED):
        raise ValueError(f"multiples: expected {len(UNLABELLED)} numbers, got {list(multiples)}")
    # Of its own stream: no other experiment draws the same order by the same seed.
    order = np.random.default_rng([2006, seed]).permutation(len(sentences))
    shuffled = [sentences[index] for index in order]
    so_far = np.cumsum([len(sentence) for sentence in shuffled])
    count = int(np.searchsorted(so_far, words)) + 1  # the sentence that reaches it is whole
    ends = np.cumsum([count, *(multiple * count for multiple in multiples)]).tolist()
    if ends[-1] >= len(shuffled):
        raise ValueError(
            f"words: expected so few that sentences are left to test on, got {words}, for which "
            f"{ends[-1]} of {len(shuffled)} are needed"
        )
    parts = [shuffled[start:end] for start, end in pairwise(ends)]
    return Sets(shuffled[:count], dict(zip(UNLABELLED, parts)), shuffled[ends[-1] :])
