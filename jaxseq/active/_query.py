"""What a strategy of active learning is: what it sees of a pool, and what it asks."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

__all__ = [
    "STRATEGIES",
    "Answer",
    "Look",
    "Proposal",
    "Query",
    "Strategy",
    "Wanted",
    "informative",
    "propose",
    "register",
    "setting",
]


class Query(NamedTuple):
    """Tokens ``start … stop − 1`` of a sentence, whose labels are wanted.

    Args:
        sentence: its number in the pool.
        start: its first token.
        stop: the one after its last.
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
            ``"entropy"`` of all labellings; ``"n_best"``, entropy of the best few, renormalised.
        label_entropy: [N], H(Y_t) in nats, for spans.
        step_entropy: [N], H(Y_t | Y_{t−1}) in nats, for spans; not read where a sentence begins.
        forms: int [N], equal for tokens of one word form; None where there are no words.
        groups: int [N], 0 or more, equal for tokens that are alike, for `GroupQueries`.

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
        # Checked here once: strategies index by token and by sentence without looking again.
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
        sampled: int, the sentences that were chosen whole (by `SequenceQueries`), least sure first.

    Example:
        >>> Proposal.only([Query(0, 1, 3, 0.5)]).tokens
        2
    """

    queries: list[Query]
    guesses: np.ndarray
    labels: np.ndarray
    sampled: np.ndarray

    @classmethod
    def only(cls, queries: list[Query]) -> Proposal:
        """Queries for the annotator, and no labels from the model."""
        none = np.zeros(0, np.int64)
        return cls(queries, none, none, none)

    @property
    def tokens(self) -> int:
        """How many labels are asked for."""
        return sum(query.stop - query.start for query in self.queries)


# What a strategy is, and how its settings reach the command line and the journal.


class Wanted(NamedTuple):
    """What a strategy reads of a `Look` besides labels, confidence and ``"viterbi"``.

    Args:
        forms: the word forms of the tokens.
        groups: the groups of the tokens.
        alike: the template whose value groups them; None for the words, upper and lower case alike.
        steps: the entropies of labels and of steps.
        entropy: the entropy of every sentence.
        n_best: the entropy of that many best labellings; None for none.
    """

    forms: bool = False
    groups: bool = False
    alike: str | None = None
    steps: bool = False
    entropy: bool = False
    n_best: int | None = None


class Setting(NamedTuple):
    """What a setting of a strategy may be; made by `setting`."""

    help: str
    expected: str  # the legal values in words
    is_legal: Callable[[Any], bool]
    parse: Callable[[str], Any] | None  # makes a value of a text; None for a flag
    choices: tuple[Any, ...] = ()  # the only values; empty where there are more than a few


def _is_count(value: Any) -> bool:
    # NumPy's whole numbers are fine; True is one, too, and a mistake.
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_seed(value: Any) -> bool:
    return (value == 0 and not isinstance(value, bool)) or _is_count(value)


def _is_probability(value: Any) -> bool:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number and 0 < float(value) <= 1


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


WHOLE = "a whole number, 1 or more"
KINDS: dict[str, tuple[str, Callable[[Any], bool], Callable[[str], Any]]] = {
    "count": (WHOLE, _is_count, int),
    "count or None": (WHOLE, lambda value: value is None or _is_count(value), int),
    "probability": ("a number above 0, at most 1", _is_probability, float),
    "template or None": ("a template or None", lambda v: v is None or _is_template(v), str),
    "number": ("a whole number, 0 or more", _is_seed, int),
}


def setting(default: Any, kind: str | tuple[Any, ...], help: str) -> Any:
    """A field of a strategy: checked, kept in the journal, and an option of the command line.

    Args:
        default: its value unless another one is passed.
        kind: ``"count"``, ``"count or None"``, ``"probability"``, ``"number"``,
            ``"template or None"``, or a tuple of choices.
        help: for ``jaxseq active start --help``; ends in the default in brackets.
    """
    if isinstance(kind, str):
        about = Setting(help, *KINDS[kind])
    else:
        parse = None if kind == (True, False) else str  # a flag has no text to parse
        about = Setting(help, f"one of {list(kind)}", lambda value: value in kind, parse, kind)
    return field(default=default, metadata={"setting": about})


class Strategy(abc.ABC):
    """What to ask next: the base of all strategies.

    One more strategy is one frozen dataclass under `register`. Its fields are made by `setting`,
    and everything else follows from them: they are checked, written to the journal and read from
    it, and are options of ``jaxseq active start``.

    Example:
        >>> from dataclasses import dataclass
        >>> from jaxseq.active import Proposal, Query, Strategy
        >>> @dataclass(frozen=True)
        ... class InOrder(Strategy):
        ...     count: int | None = 10
        ...
        ...     def propose(self, look, known, sampled):
        ...         chosen = np.flatnonzero(~known)[: self.count]
        ...         columns = look.sentence[chosen].tolist(), look.position[chosen].tolist()
        ...         return Proposal.only([Query(s, t, t + 1, 0.0) for s, t in zip(*columns)])
        ...
        ...     def informative(self, look, known, sampled):
        ...         return int((~known).sum())
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.9]), np.array([2, 1]))
        >>> InOrder(1).propose(look, np.array([True, False, False]), None).queries
        [Query(sentence=0, start=1, stop=2, score=0.0)]
    """

    name: ClassVar[str] = ""
    """On the command line and in the journal; set by `register`."""

    summary: ClassVar[str] = ""
    """What it asks for, for the help of the command line; set by `register`."""

    count: int | None
    """Units asked per round, tokens or sentences; None for all."""

    def __post_init__(self) -> None:
        # Also when a journal is read: settings that somebody has edited are refused.
        for one in fields(self):  # pyright: ignore[reportArgumentType] - a dataclass
            about, value = one.metadata.get("setting"), getattr(self, one.name)
            if about is not None and not about.is_legal(value):
                raise ValueError(f"{one.name}: expected {about.expected}, got {value!r:.60}")

    @property
    def wanted(self) -> Wanted:
        """What it reads of a look; nothing but the labels and their confidence by default."""
        return Wanted()

    @property
    def completes_sentences(self) -> bool:
        """Whether the sentences that it asks about get all their labels."""
        return False

    @abc.abstractmethod
    def propose(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> Proposal:
        """What to ask next, of arguments that `jaxseq.active.propose` has checked."""

    @abc.abstractmethod
    def informative(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> int:
        """How many units could still be asked; see `jaxseq.active.informative`."""


STRATEGIES: dict[str, type[Strategy]] = {}
"""All that are registered, by name."""

Kind = TypeVar("Kind", bound=type[Strategy])


def register(name: str, summary: str) -> Callable[[Kind], Kind]:
    """Give a strategy a name on the command line and in the journal.

    Args:
        name: no other strategy may have it.
        summary: what it asks for, for the help of the command line.
    """

    def keep(kind: Kind) -> Kind:
        if name in STRATEGIES:
            raise ValueError(f"name: expected one that no strategy has yet, got {name!r}")
        kind.name, kind.summary = name, summary  # on the class: an instance knows what it is called
        STRATEGIES[name] = kind
        return kind

    return keep


def propose(
    look: Look, known: np.ndarray, strategy: Strategy, *, sampled: np.ndarray | None = None
) -> Proposal:
    """What to ask next.

    Args:
        look: what the model says of the pool.
        known: bool [N], tokens that have a label, from the annotator or the model; they are never
            asked.
        strategy: that chooses.
        sampled: bool [B], sentences that were chosen whole before; None for none.

    Returns:
        A `Proposal`: queries, the least sure first (by `GroupQueries` the most valuable), equal
        ones in the order of the pool; and tokens that take the model's label.

    Example:
        >>> import numpy as np
        >>> from jaxseq.active import TokenQueries
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.95]), np.array([2, 1]))
        >>> propose(look, np.array([False, False, False]), TokenQueries(1, 0.9)).queries
        [Query(sentence=0, start=1, stop=2, score=0.4)]

    Cost: O(N log N); no loop over tokens in Python but for those that are asked.

    Reference:
        Wanvarie et al. 2011, sections 4.1 and 5.4.
    """
    return strategy.propose(look, *_checked(look, known, sampled))


def informative(
    look: Look, known: np.ndarray, strategy: Strategy, *, sampled: np.ndarray | None = None
) -> int:
    """How many units, tokens or sentences, the strategy could still ask.

    The arguments are those of `propose`.

    Example:
        >>> import numpy as np
        >>> from jaxseq.active import TokenQueries
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.95]), np.array([2, 1]))
        >>> informative(look, np.array([True, False, False]), TokenQueries(1, 0.9))
        1
    """
    return strategy.informative(look, *_checked(look, known, sampled))


def _checked(look: Look, known: Any, sampled: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The two masks; ValueError unless they are bool and of the size of the pool."""
    masks = [np.asarray(known), None if sampled is None else np.asarray(sampled)]
    for name, mask, like in zip(("known", "sampled"), masks, (look.labels, look.lengths)):
        if mask is not None and (mask.shape != like.shape or mask.dtype != bool):
            raise ValueError(
                f"{name}: expected bool of shape {list(like.shape)}, got {mask.dtype} of shape "
                f"{list(mask.shape)}"
            )
    return masks[0], masks[1]  # pyright: ignore[reportReturnType] - the first is an array
