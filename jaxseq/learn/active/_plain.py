"""What the steps of active learning hand to one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Query(NamedTuple):
    """Tokens ``start … stop − 1`` of a sentence, whose labels are wanted.

    Args:
        sentence: its number in the pool.
        start, stop: the tokens.
        score: how unsure the model is of them, larger for less sure. Of tokens: 1 − confidence; of
            groups: their value; of spans: their entropy less its price; of sequences: −log p of
            the best labelling, or the entropy.

    Example:
        >>> Query(sentence=3, start=1, stop=2, score=0.25)
        Query(sentence=3, start=1, stop=2, score=0.25)
    """

    sentence: int
    start: int
    stop: int
    score: float


class Answer(NamedTuple):
    """What an annotator says of one token.

    Args:
        sentence: its number in the pool.
        position: of the token in the sentence.
        label: its label, or a tuple of possible ones.

    Example:
        >>> Answer(3, 1, "B-NP").label
        'B-NP'
    """

    sentence: int
    position: int
    label: str | tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Look:
    """What a model says of the whole pool: N tokens of B sentences, one after another.

    Args:
        labels: int [N], the Viterbi labels; −1 in a sentence that has no legal labelling.
        confidence: [N], the marginal probability of each Viterbi label; 1 where there is none.
        lengths: int [B].
        sequence: name → [B], as far as wanted: ``"viterbi"``, log p of the best labelling;
            ``"entropy"`` of all labellings; ``"n_best"``, entropy of the best few, as if there
            were no others.
        label_entropy, step_entropy: [N], H(Y_t) and H(Y_t | Y_{t−1}) in nats, for spans; the
            second is not looked at where a sentence begins.
        forms: int [N], equal for tokens of one word form; None where there are no words.
        groups: int [N], 0 or more, equal for tokens that are alike, for `Groups`.

    Example:
        >>> import numpy as np
        >>> look = Look(np.array([0, 1, 1]), np.array([0.9, 0.6, 1.0]), np.array([2, 1]))
        >>> look.sentence.tolist(), look.position.tolist()
        ([0, 0, 1], [0, 1, 0])
    """

    labels: np.ndarray
    confidence: np.ndarray
    lengths: np.ndarray
    sequence: dict[str, np.ndarray] = field(default_factory=dict)
    label_entropy: np.ndarray | None = None
    step_entropy: np.ndarray | None = None
    forms: np.ndarray | None = None
    groups: np.ndarray | None = None

    def __post_init__(self) -> None:
        tokens, sentences = int(self.lengths.sum()), len(self.lengths)
        by_token = ("labels", "confidence", "label_entropy", "step_entropy", "forms", "groups")
        sizes = {name: (getattr(self, name), tokens) for name in by_token}
        sizes |= {f"sequence[{name!r}]": (a, sentences) for name, a in self.sequence.items()}
        for name, (array, size) in sizes.items():
            if array is not None and array.shape != (size,):
                raise ValueError(f"{name}: expected shape [{size}], got {list(array.shape)}")

    @property
    def sentence(self) -> np.ndarray:
        """[N], the sentence of each token."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def position(self) -> np.ndarray:
        """[N], the place of each token in its sentence."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.arange(len(self.labels)) - np.repeat(starts, self.lengths)


@dataclass(frozen=True, eq=False)
class Proposal:
    """What a strategy wants.

    Args:
        queries: for the annotator, the least sure first, equal ones in the order of the pool.
        guesses: int [G], tokens of the pool that take the model's label.
        labels: int [G], these labels.
        sampled: int, the sentences that were chosen whole (by `Sequences`), least sure first.

    Example:
        >>> import numpy as np
        >>> none = np.zeros(0, np.int64)
        >>> Proposal([Query(0, 1, 3, 0.5)], none, none, none).tokens
        2
    """

    queries: list[Query]
    guesses: np.ndarray
    labels: np.ndarray
    sampled: np.ndarray

    @property
    def tokens(self) -> int:
        """How many labels are asked for."""
        return sum(query.stop - query.start for query in self.queries)
