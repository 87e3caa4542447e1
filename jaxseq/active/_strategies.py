"""What to ask next: settings, checked."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

# -------------------------------------------------------------------------------------------------
# What the steps of active learning hand to one another.


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


@dataclass(frozen=True)
class Tokens:
    """The tokens that the model is least sure of (Wanvarie et al. 2011).

    A token is *informative* when the marginal probability of its Viterbi label is below the
    threshold δ; of those without a known label the `count` least confident are asked.

    Args:
        count: q, tokens a round; None takes all (in one round: the paper's Partial).
        threshold: δ, above 0 and at most 1.
        per_sentence: tokens of one sentence a round, at most; None for any number. Neighbours are
            unsure together, and the label of one often settles the others.
        per_form: tokens of one word a round, at most, upper and lower case alike; None for any
            number. A model that does not know a word is unsure of it wherever it stands.

    Example:
        >>> Tokens(500, 0.9)
        Tokens(count=500, threshold=0.9, per_sentence=None, per_form=None)
    """

    count: int | None = 500
    threshold: float = 0.99
    per_sentence: int | None = None
    per_form: int | None = None

    def __post_init__(self) -> None:
        _check_count("count", self.count)
        _check_threshold(self.threshold)
        _check_count("per_sentence", self.per_sentence)
        _check_count("per_form", self.per_form)


@dataclass(frozen=True)
class Groups:
    r"""The tokens that stand for the most errors: many like them are open, few have a label.

    Tokens are *alike* where a template has the same value for them. A group g of them, with
    k_g labels so far, is worth the errors that the model expects to make in it, which a label has
    a smaller part in the more there are,

    .. math:: v_g = \frac{1}{1 + k_g} \sum_{t \in g,\ t\ \text{open}} (1 - p(\hat y_t | x)),

    where ŷ is the Viterbi labelling. A round asks one token of a group, the least confident, of
    the `count` most valuable groups. A single odd token, of which the model will never be sure, so
    comes after a pattern that many tokens share, also where the model is nearly sure of each.

    Args:
        alike: a template, as for a tagger; in the corpora with parts of speech
            ``"lower(word[0])|pos[-1]|pos[1]"`` is a word between two of them.
        count: q, tokens a round; None takes one of every group.
        threshold: δ; surer tokens are not asked, but count in the sum.
        per_sentence: tokens of one sentence a round, at most; None for any number.

    Example:
        >>> Groups("word[0]", 100, per_sentence=1)
        Groups(alike='word[0]', count=100, threshold=0.999, per_sentence=1)

    References:
        Settles & Craven 2008 for the weight of what is alike (information density).
    """

    alike: str = "lower(word[0])"
    count: int | None = 500
    threshold: float = 0.999
    per_sentence: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.alike, str) or not self.alike.strip():
            raise ValueError(f"alike: expected a template, got {self.alike!r:.60}")
        _check_count("count", self.count)
        _check_threshold(self.threshold)
        _check_count("per_sentence", self.per_sentence)


@dataclass(frozen=True)
class Spans:
    r"""The windows of up to `width` tokens that the model is least sure of.

    A window is scored by its entropy (Mann & McCallum's span entropy, the rest summed out) less a
    price for each of its labels,

    .. math:: H(Y_a, \ldots, Y_{b-1}) - (b - a)\, h(\delta),

    where h(δ) = `token_price`, the least entropy of a token whose best label has probability δ.
    That makes widths comparable: the entropy itself always grows with the window, and the entropy
    a token is never larger than that of the window's least sure token, so the one would always ask
    for the widest windows and the other for single tokens. A window is widened as long as the next
    label, given those before it, is worth more than its price. Windows of positive score are
    taken, best first, that overlap none taken before and hold no known label.

    Args:
        width: tokens in a window, at most.
        count: q, tokens (not windows) a round, at most; None takes all.
        threshold: δ.

    Example:
        >>> Spans(width=3, count=500, threshold=0.9)
        Spans(width=3, count=500, threshold=0.9)
    """

    width: int = 3
    count: int | None = 500
    threshold: float = 0.99

    def __post_init__(self) -> None:
        _check_count("width", self.width)
        _check_count("count", self.count)
        _check_threshold(self.threshold)
        if self.width is None:
            raise ValueError("width: expected a whole number, 1 or more, got None")


@dataclass(frozen=True)
class Sequences:
    """The sentences that the model is least sure of, and what to ask of them.

    ``Sequences()`` is FuSAL, fully supervised active learning; ``Sequences(ask="unsure",
    keep_sure="model")`` that of Tomanek & Hahn 2009; ``Sequences(ask="unsure")`` that of Wanvarie
    et al. 2010; ``Sequences(ask="none", keep_sure="model")`` is bootstrapping.

    Args:
        count: q, sentences a round; None takes all.
        by: ``"viterbi"``, the lowest log p of the best labelling first (long sentences tend to be
            first); ``"entropy"``, the highest entropy of all labellings; ``"n_best"``, the highest
            entropy of the `n_best` best ones.
        ask: ``"all"`` labels of a sentence, the ``"unsure"`` ones (confidence below `threshold`),
            or ``"none"``.
        threshold: δ.
        keep_sure: what becomes of the sure tokens that are not asked: they stay ``"open"``, or take
            the ``"model"``'s label for good.
        n_best: labellings in the list.
        again: whether a sentence may be chosen a second time.

    Example:
        >>> Sequences(100, by="entropy").ask
        'all'
    """

    count: int | None = 500
    by: Literal["viterbi", "entropy", "n_best"] = "viterbi"
    ask: Literal["all", "unsure", "none"] = "all"
    threshold: float = 0.99
    keep_sure: Literal["open", "model"] = "open"
    n_best: int = 15
    again: bool = False

    def __post_init__(self) -> None:
        _check_count("count", self.count)
        _check_count("n_best", self.n_best)
        _check_threshold(self.threshold)
        choices = {
            "by": ("viterbi", "entropy", "n_best"),
            "ask": ("all", "unsure", "none"),
            "keep_sure": ("open", "model"),
            "again": (True, False),
        }
        for name, among in choices.items():
            if getattr(self, name) not in among:
                raise ValueError(
                    f"{name}: expected one of {list(among)}, got {getattr(self, name)!r:.60}"
                )
        if self.n_best is None:
            raise ValueError("n_best: expected a whole number, 1 or more, got None")
        if self.ask == "none" and self.keep_sure == "open":
            raise ValueError(
                "ask, keep_sure: expected labels from the annotator or from the model, got 'none' "
                "and 'open', which would never add one"
            )


Strategy: TypeAlias = Tokens | Groups | Spans | Sequences


def _check_count(name: str, count: Any) -> None:
    whole = isinstance(count, numbers.Integral) and not isinstance(count, bool)
    if count is not None and not (whole and int(count) >= 1):
        raise ValueError(f"{name}: expected a whole number, 1 or more, got {count!r:.60}")


def _check_threshold(threshold: Any) -> None:
    number = isinstance(threshold, numbers.Real) and not isinstance(threshold, bool)
    if not (number and 0 < float(threshold) <= 1):
        raise ValueError(f"threshold: expected a number above 0, at most 1, got {threshold!r:.60}")


# -------------------------------------------------------------------------------------------------
# Limits on how many of a kind are taken.


def rank_among_equals(keys: np.ndarray) -> np.ndarray:
    """How many equal keys stand before each.

    Example:
        >>> rank_among_equals(np.array([7, 3, 7, 7, 3])).tolist()
        [0, 0, 1, 2, 1]
    """
    order = np.argsort(keys, kind="stable")
    together = keys[order]
    is_first = np.append(True, together[1:] != together[:-1])[: len(keys)]
    places = np.arange(len(keys))
    ranks = np.empty(len(keys), int)
    ranks[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return ranks


# -------------------------------------------------------------------------------------------------
# Windows of tokens by span entropy.


def token_price(threshold: float) -> float:
    r"""The least entropy, in nats, of a token whose best label has probability δ at most.

    With :math:`m = \lfloor 1/\delta \rfloor` labels of probability δ and the rest r on one more,
    :math:`h(\delta) = -m \delta \log \delta - r \log r`; for δ ≥ ½ the entropy of a coin. A token
    that is less sure than δ has more.

    Example:
        >>> round(token_price(0.9), 4), round(token_price(0.5), 4), abs(token_price(1.0))
        (0.3251, 0.6931, 0.0)
    """
    whole = math.floor(1 / threshold + 1e-12)
    rest = max(0.0, 1 - whole * threshold)
    return -whole * threshold * math.log(threshold) - (rest * math.log(rest) if rest else 0.0)


def window_scores(look: Look, known: np.ndarray, strategy: Spans) -> np.ndarray:
    """[width, N]: the score of the window of k + 1 tokens that begins at each token.

    −inf where it does not fit into its sentence, or holds a known label. Cost O(N width).
    """
    if look.label_entropy is None or look.step_entropy is None:
        raise ValueError("look: expected one with entropies of tokens and steps, got none")
    n, price = len(known), token_price(strategy.threshold)
    scores = np.full((strategy.width, n), -np.inf)
    open_to_ask = ~known & (look.labels >= 0)
    gains = np.where(open_to_ask, look.step_entropy - price, -np.inf)
    gains[look.position == 0] = -np.inf
    scores[0] = np.where(open_to_ask, look.label_entropy - price, -np.inf)
    for k in range(1, min(strategy.width, n)):
        scores[k, : n - k] = scores[k - 1, : n - k] + gains[k:]
    return scores


def propose_windows(look: Look, known: np.ndarray, strategy: Spans) -> list[Query]:
    """The best windows that do not overlap, best first.

    The loop is over windows taken and those in their way, not over tokens.
    """
    scores = window_scores(look, known, strategy)
    extra, start = np.nonzero(scores > 0)
    order = np.lexsort((extra, start, -scores[extra, start]))
    left = len(known) if strategy.count is None else strategy.count
    sentence, position = look.sentence, look.position
    taken = np.zeros(len(known), bool)
    found: list[Query] = []
    for begin, width in zip(start[order].tolist(), (extra[order] + 1).tolist()):
        if not left:
            break
        if width > left or taken[begin : begin + width].any():
            continue
        taken[begin : begin + width] = True
        left -= width
        first = int(position[begin])
        score = float(scores[width - 1, begin])
        found.append(Query(int(sentence[begin]), first, first + width, score))
    return found


def tokens_in_windows(look: Look, known: np.ndarray, strategy: Spans) -> int:
    """Tokens of windows that are worth their price."""
    inside = np.zeros(len(known), bool)
    for k, row in enumerate(window_scores(look, known, strategy) > 0):
        for shift in range(k + 1):
            inside[shift:] |= row[: len(row) - shift]
    return int(inside.sum())


# -------------------------------------------------------------------------------------------------
# Tokens to ask by what is expected to be wrong among tokens like them.


def propose_groups(look: Look, known: np.ndarray, strategy: Groups) -> list[Query]:
    """The least sure token of each group, those of the most valuable groups first.

    Args:
        look: with `groups`. known: bool [N]. strategy: `Groups`.

    Cost: O(N log N).
    """
    if look.groups is None:
        raise ValueError("look.groups: expected the groups of the tokens, got None")
    values = group_values(look, known)
    unsure = np.flatnonzero(~known & (look.confidence < strategy.threshold))
    chosen = unsure[np.argsort(look.confidence[unsure], kind="stable")]
    chosen = chosen[rank_among_equals(look.groups[chosen]) < 1]
    chosen = chosen[np.argsort(-values[look.groups[chosen]], kind="stable")]
    if strategy.per_sentence is not None:
        chosen = chosen[rank_among_equals(look.sentence[chosen]) < strategy.per_sentence]
    chosen = chosen[: strategy.count]
    columns = (look.sentence[chosen], look.position[chosen], values[look.groups[chosen]])
    return [Query(s, t, t + 1, score) for s, t, score in zip(*(c.tolist() for c in columns))]


def group_values(look: Look, known: np.ndarray) -> np.ndarray:
    """[groups]: labels expected to be wrong in each, by 1 and the labels that it has."""
    assert look.groups is not None
    size = int(look.groups.max(initial=-1)) + 1
    doubt = np.where(known, 0.0, 1 - look.confidence.astype(np.float64))
    wrong = np.bincount(look.groups, weights=doubt, minlength=size)
    return wrong / (1 + np.bincount(look.groups[known], minlength=size))


# -------------------------------------------------------------------------------------------------
# From what a model says of the pool to what to ask.


NONE = np.zeros(0, np.int64)


def propose(
    look: Look, known: np.ndarray, strategy: Strategy, *, sampled: np.ndarray | None = None
) -> Proposal:
    """What to ask next.

    Args:
        look: what the model says of the pool.
        known: bool [N], tokens that have a label, from the annotator or the model; they are never
            asked.
        strategy: `Tokens`, `Groups`, `Spans` or `Sequences`.
        sampled: bool [B], sentences that `Sequences` has chosen before; None for none.

    Returns:
        A `Proposal`: queries, the least sure first (by `Groups` the most valuable), equal ones in
        the order of the pool; and tokens that take the model's label.

    Example:
        >>> import numpy as np
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.95]), np.array([2, 1]))
        >>> propose(look, np.array([False, False, False]), Tokens(1, 0.9)).queries
        [Query(sentence=0, start=1, stop=2, score=0.4)]

    Cost: O(N log N); no loop over tokens in Python but for those that are asked.

    Reference:
        Wanvarie et al. 2011, sections 4.1 and 5.4.
    """
    known = _check_known(look, known)
    if isinstance(strategy, Tokens):
        return Proposal(_unsure_tokens(look, known, strategy), NONE, NONE, NONE)
    if isinstance(strategy, Groups):
        return Proposal(propose_groups(look, known, strategy), NONE, NONE, NONE)
    if isinstance(strategy, Sequences):
        return _whole_sentences(look, known, strategy, sampled)
    return Proposal(propose_windows(look, known, strategy), NONE, NONE, NONE)


def informative(
    look: Look, known: np.ndarray, strategy: Strategy, *, sampled: np.ndarray | None = None
) -> int:
    """How many units there are that the strategy could still ask: tokens, or sentences.

    Args: as of `propose`.

    Example:
        >>> import numpy as np
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.95]), np.array([2, 1]))
        >>> informative(look, np.array([True, False, False]), Tokens(1, 0.9))
        1
    """
    known = _check_known(look, known)
    if isinstance(strategy, Tokens | Groups):
        return int(_is_unsure(look, known, strategy.threshold).sum())
    if isinstance(strategy, Sequences):
        return int(_candidates(look, known, strategy, sampled).sum())
    return tokens_in_windows(look, known, strategy)


def _check_known(look: Look, known: np.ndarray) -> np.ndarray:
    known = np.asarray(known)
    if known.shape != look.labels.shape or known.dtype != bool:
        raise ValueError(
            f"known: expected bool of shape {list(look.labels.shape)}, got {known.dtype} of shape "
            f"{list(known.shape)}"
        )
    return known


# ------------------------------------------------------------------------------------ tokens


def _is_unsure(look: Look, known: np.ndarray, threshold: float) -> np.ndarray:
    return ~known & (look.confidence < threshold)


def _unsure_tokens(look: Look, known: np.ndarray, strategy: Tokens) -> list[Query]:
    places = np.flatnonzero(_is_unsure(look, known, strategy.threshold))
    chosen = places[np.argsort(look.confidence[places], kind="stable")]
    if strategy.per_sentence is not None:
        chosen = chosen[rank_among_equals(look.sentence[chosen]) < strategy.per_sentence]
    if strategy.per_form is not None:
        if look.forms is None:
            raise ValueError("look.forms: expected the word forms of the tokens, got None")
        chosen = chosen[rank_among_equals(look.forms[chosen]) < strategy.per_form]
    chosen = chosen[: strategy.count]
    columns = (look.sentence[chosen], look.position[chosen], 1 - look.confidence[chosen])
    return [Query(s, t, t + 1, score) for s, t, score in zip(*(c.tolist() for c in columns))]


# --------------------------------------------------------------------------------- sentences


def _candidates(
    look: Look, known: np.ndarray, strategy: Sequences, sampled: np.ndarray | None
) -> np.ndarray:
    """bool [B]: sentences with something to ask, that were not chosen before."""
    count = len(look.lengths)
    wanted = np.bincount(look.sentence[_wanted(look, known, strategy)], minlength=count) > 0
    if sampled is None or strategy.again:
        return wanted
    sampled = np.asarray(sampled)
    if sampled.shape != (count,) or sampled.dtype != bool:
        raise ValueError(
            f"sampled: expected bool of shape [{count}], got {sampled.dtype} of shape "
            f"{list(sampled.shape)}"
        )
    return wanted & ~sampled


def _wanted(look: Look, known: np.ndarray, strategy: Sequences) -> np.ndarray:
    """Tokens for whose sake a sentence may be chosen.

    Where each is chosen once, any without a label; where it may come again, only those that it
    would get one for, or it would come for ever. A sentence that no labelling is legal for has
    nothing to learn from.
    """
    open_to_ask = ~known & (look.labels >= 0)
    if not strategy.again or strategy.ask == "all":
        return open_to_ask
    asked = (look.confidence < strategy.threshold) & (strategy.ask == "unsure")
    return open_to_ask & (asked | _takes_guess(look, strategy))


def _takes_guess(look: Look, strategy: Sequences) -> np.ndarray:
    if strategy.keep_sure == "open" or strategy.ask == "all":
        return np.zeros(len(look.labels), bool)
    return look.confidence >= strategy.threshold


def _doubt(look: Look, strategy: Sequences) -> np.ndarray:
    """[B]: how unsure the model is of each sentence."""
    if strategy.by not in look.sequence:
        raise ValueError(
            f"look.sequence: expected {strategy.by!r}, got only {sorted(look.sequence)}"
        )
    score = look.sequence[strategy.by]
    return -score if strategy.by == "viterbi" else score


def _whole_sentences(
    look: Look, known: np.ndarray, strategy: Sequences, sampled: np.ndarray | None
) -> Proposal:
    doubt = _doubt(look, strategy)
    candidates = np.flatnonzero(_candidates(look, known, strategy, sampled))
    chosen = candidates[np.argsort(-doubt[candidates], kind="stable")][: strategy.count]
    rank = np.full(len(look.lengths), len(chosen))
    rank[chosen] = np.arange(len(chosen))
    inside = ~known & (rank[look.sentence] < len(chosen))
    asked = inside
    if strategy.ask != "all":
        asked = inside & (look.confidence < strategy.threshold) & (strategy.ask == "unsure")
    guesses = np.flatnonzero(inside & _takes_guess(look, strategy))
    queries = _runs(look, asked, rank, doubt)
    return Proposal(queries, guesses, look.labels[guesses].astype(np.int64), chosen)


def _runs(look: Look, asked: np.ndarray, rank: np.ndarray, doubt: np.ndarray) -> list[Query]:
    """Neighbours that are asked, as one query; by rank of sentence, then by place."""
    sentence, position = look.sentence, look.position
    goes_on = np.zeros(len(asked), bool)  # the token before it is asked, too
    goes_on[1:] = asked[1:] & asked[:-1] & (position[1:] > 0)
    ends = asked.copy()
    ends[:-1] &= ~goes_on[1:]
    starts, stops = np.flatnonzero(asked & ~goes_on), np.flatnonzero(ends)
    order = np.argsort(rank[sentence[starts]], kind="stable")
    starts, stops = starts[order], stops[order]
    of = sentence[starts]
    columns = (of, position[starts], position[stops] + 1, doubt[of])
    return [Query(*row) for row in zip(*(column.tolist() for column in columns))]
