"""States of a hidden Markov model as features: what a token is, by its word and by its neighbours.

References:
    Huang & Yates 2009, Distributional representations for handling sparsity in supervised
    sequence-labeling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from jaxseq.representations._lexicon import Counted

UNIFORM = 0.01
"""Share of each state's emissions that is as in the corpus, so that no sentence is impossible."""
AT_ONCE = 512
"""Sentences of about one length that are gone through together."""


@dataclass(frozen=True)
class StateModel:
    """A hidden Markov model over the rows of a lexicon.

    Args:
        initial: float32 [s].
        transition: float32 [s, s].
        emission: float32 [rows, s]; above 0 everywhere.
    """

    initial: np.ndarray
    transition: np.ndarray
    emission: np.ndarray

    def states(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        r"""The state with the largest posterior probability at each token, int32.

        Args:
            rows: of the lexicon, of all tokens; −1 for a word of which nothing is known.
            lengths: tokens of each sentence.

        Cost: O(tokens · s²), in NumPy: a step for each place of a sentence, for many sentences at
        a time. It needs no compiling, which for few sentences would take longer than that.
        """
        states = np.zeros(len(rows), np.int32)
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        # A product on several cores may be rounded differently.
        with threadpool_limits(1):
            for first in range(0, len(order), AT_ONCE):
                chosen = order[first : first + AT_ONCE]
                chosen = chosen[lengths[chosen] > 0]
                if len(chosen):
                    self._decode(rows, starts[chosen], lengths[chosen], states)
        return states

    def _decode(
        self, rows: np.ndarray, starts: np.ndarray, lengths: np.ndarray, states: np.ndarray
    ) -> None:
        """States of some sentences, the longest first."""
        # Ordered by length, those that go on are always the first ones: no padding is computed.
        alive = [int((lengths > place).sum()) for place in range(int(lengths[0]))]
        scores = np.concatenate([self.emission, np.ones_like(self.emission[:1])])  # row −1
        forward: list[np.ndarray] = []
        for place, count in enumerate(alive):
            before = self.initial if not place else forward[-1][:count] @ self.transition
            now = before * scores[rows[starts[:count] + place]]
            forward.append(now / now.sum(1, keepdims=True))
        backward = np.ones_like(forward[-1])
        for place in reversed(range(len(alive))):
            count = alive[place]
            # Sentences that end here join, with nothing after them.
            ended = count - len(backward)
            backward = np.concatenate([backward, np.ones((ended, backward.shape[1]), np.float32)])
            where = starts[:count] + place
            states[where] = (forward[place] * backward).argmax(1)
            now = backward * scores[rows[where]]
            backward = now @ self.transition.T
            backward /= backward.sum(1, keepdims=True)


def learn_states(
    counted: Counted,
    rows: np.ndarray,
    first: np.ndarray,
    *,
    max_tokens: int,
    iterations: int,
    progress: bool | None,
) -> StateModel:
    """Train a model by EM, whose states begin as clusters.

    Args:
        counted: of `count_words`.
        rows: of the lexicon, of all tokens.
        first: the state that each row begins with, [rows of the lexicon]: it makes EM converge in
            few iterations, and to the same states each time.
        max_tokens: EM reads the first sentences up to so many tokens.
        iterations: of EM, at most.
        progress: show a progress bar; None shows it on a terminal.

    Cost: O(tokens · s²) an iteration.
    """
    # JAX takes a second to load, and is not needed for the other kinds.
    from jaxseq.hmm import HMM, EMOperator, em, word_corpus

    lengths = counted.lengths
    size = int(first.max(initial=0)) + 1
    known = rows >= 0
    # Words of which nothing is known are left out: sentences close up over them.
    sentence = np.repeat(np.arange(len(lengths)), lengths)[known]
    rows = rows[known]
    lengths = np.bincount(sentence, minlength=len(lengths))
    used = int(np.searchsorted(np.cumsum(lengths), max_tokens)) + 1
    lengths = lengths[:used][lengths[:used] > 0]
    rows = rows[: lengths.sum()]
    occurrences = np.bincount(rows, minlength=len(counted.lexicon)).astype(np.float64)
    share = (occurrences + 1) / (occurrences + 1).sum()
    clear = np.zeros((len(share), size))
    clear[np.arange(len(share)), first] = occurrences
    emission = clear + 0.1 * np.outer(share, clear.sum(0) + 1)
    starts = np.cumsum(lengths) - lengths
    state = first[rows]
    inside = np.ones(len(rows), bool)
    inside[starts] = False
    follows = np.flatnonzero(inside)
    pairs = np.bincount(state[follows - 1] * size + state[follows], minlength=size * size)
    transition = pairs.reshape(size, size) + 0.1
    initial = np.bincount(state[starts], minlength=size) + 0.1
    if len(rows) and iterations:
        families = (each.astype(np.float32) for each in (initial, transition, emission))
        start = HMM(*families, unknown=None)
        corpus = word_corpus(np.split(rows, starts[1:]), len(share))
        operator = EMOperator(None, corpus)
        learnt = em(start, operator, max_iterations=iterations, tolerance=1e-4, progress=progress)
        initial, transition, emission = (
            np.asarray(family, np.float64) for family in learnt.model.probabilities
        )
    initial, transition, emission = (
        _distributions(family, axis)
        for family, axis in ((initial, 0), (transition, 1), (emission, 0))
    )
    emission = _fill_classes((1 - UNIFORM) * emission + UNIFORM * share[:, None], counted)
    # Scaled by row, which posterior probabilities do not depend on, so that float32 holds them.
    emission = emission / emission.max(1, keepdims=True)
    transition = (1 - UNIFORM) * transition + UNIFORM / size
    initial = (1 - UNIFORM) * initial + UNIFORM / size
    return StateModel(*(each.astype(np.float32) for each in (initial, transition, emission)))


def _distributions(counts: np.ndarray, axis: int) -> np.ndarray:
    """Counts as probabilities along an axis; even ones where nothing was counted."""
    sums = counts.sum(axis, keepdims=True)
    return np.where(sums > 0, counts / np.where(sums > 0, sums, 1), 1 / counts.shape[axis])


def _fill_classes(emission: np.ndarray, counted: Counted) -> np.ndarray:
    """Classes emit what their words do, those in narrower classes included."""
    own = counted.own_rows
    rows, strings = counted.members
    chosen = (rows >= len(counted.lexicon.words)) & (own[strings] >= 0)
    rows, strings = rows[chosen], strings[chosen]
    occurrences = np.bincount(counted.column.codes, minlength=len(own)).astype(np.float64)
    filled = emission.copy()
    sums, totals = np.zeros_like(emission), np.zeros(len(emission))
    np.add.at(totals, rows, occurrences[strings])
    np.add.at(sums, rows, occurrences[strings, None] * emission[own[strings]])
    some = totals > 0
    filled[some] = sums[some] / totals[some, None]
    return filled
