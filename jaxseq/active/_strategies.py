"""The strategies: which tokens, groups of tokens, spans or sentences to ask next.

One more strategy is one more class in this file; see `Strategy`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxseq.active._query import (
    Look,
    Proposal,
    Query,
    Strategy,
    Wanted,
    register,
    setting,
)

__all__ = [
    "GroupQueries",
    "RandomQueries",
    "SequenceQueries",
    "SpanQueries",
    "TokenQueries",
    "token_price",
]

BY_FORM = "tokens of one word a round, at most (any number)"
PER_SENTENCE = "tokens of one sentence a round, at most (any number)"
PER_ROUND = "tokens, or sentences, a round (500)"
SURE = "ask for no label that is at least so probable (0.99; of groups 0.999)"
"""Help of settings; one that several strategies have reads the same in each."""


@register("tokens", "single tokens")
@dataclass(frozen=True)
class TokenQueries(Strategy):
    """The tokens that the model is least sure of (Wanvarie et al. 2011).

    A token is *informative* when the marginal probability of its Viterbi label is below the
    threshold δ; of those without a known label the `count` least confident are asked.

    Args:
        count: q, tokens per round; None takes all (in one round: the paper's Partial).
        threshold: δ, above 0 and at most 1.
        per_sentence: tokens of one sentence per round, at most; None for any number. Neighbours
            are unsure together, and the label of one often settles the others.
        per_form: tokens of one word per round, at most, upper and lower case alike; None for any
            number. A model that does not know a word is unsure of it wherever it stands.

    Example:
        >>> TokenQueries(500, 0.9)
        TokenQueries(count=500, threshold=0.9, per_sentence=None, per_form=None)
    """

    count: int | None = setting(500, "count or None", PER_ROUND)
    threshold: float = setting(0.99, "probability", SURE)
    per_sentence: int | None = setting(None, "count or None", PER_SENTENCE)
    per_form: int | None = setting(None, "count or None", BY_FORM)

    @property
    def wanted(self) -> Wanted:
        """Word forms, where their number is limited."""
        return Wanted(forms=self.per_form is not None)

    def propose(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> Proposal:
        """The least sure tokens first."""
        chosen = _least_sure_first(look, known, self.threshold)
        chosen = _at_most(self.per_sentence, chosen, look.sentence)
        if self.per_form is not None:
            if look.forms is None:
                raise ValueError("look.forms: expected the word forms of the tokens, got None")
            chosen = _at_most(self.per_form, chosen, look.forms)
        return _ask_tokens(look, chosen[: self.count], 1 - look.confidence)

    def informative(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> int:
        """Tokens below the threshold."""
        return len(_least_sure_first(look, known, self.threshold))


@register("groups", "tokens that stand for many like them")
@dataclass(frozen=True)
class GroupQueries(Strategy):
    r"""The tokens that stand for the most errors: many like them are open, few have a label.

    Tokens are *alike* where a template has the same value for them. A group g of them, with
    k_g labels so far, is worth the errors that the model expects to make in it; the more labels
    it has, the less one more of them adds,

    .. math:: v_g = \frac{1}{1 + k_g} \sum_{t \in g,\ t\ \text{open}} (1 - p(\hat y_t | x)),

    where ŷ is the Viterbi labelling. A round asks one token, the least confident, of each of the
    `count` most valuable groups. A single odd token, of which the model will never be sure, so
    comes after a pattern that many tokens share, even if the model is nearly sure of each.

    Args:
        alike: a template, as for a tagger; in corpora with parts of speech
            ``"lower(word[0])|pos[-1]|pos[1]"`` is a word between two of them. None takes the words,
            upper and lower case alike; tokens that have no words, but attributes, are groups of
            one.
        count: q, tokens per round; None takes one of every group.
        threshold: δ; surer tokens are not asked, but count in the sum.
        per_sentence: tokens of one sentence per round, at most; None for any number.

    Example:
        >>> GroupQueries("word[0]", 100, per_sentence=1)
        GroupQueries(alike='word[0]', count=100, threshold=0.999, per_sentence=1)

    References:
        Settles & Craven 2008 for the weight of what is alike (information density).
    """

    alike: str | None = setting(
        None,
        "template or None",
        "tokens are alike where this template has one value (the word; with parts of speech "
        "lower(word[0])|pos[-1]|pos[1] is better)",
    )
    count: int | None = setting(500, "count or None", PER_ROUND)
    threshold: float = setting(0.999, "probability", SURE)
    per_sentence: int | None = setting(None, "count or None", PER_SENTENCE)

    @property
    def wanted(self) -> Wanted:
        """The groups."""
        return Wanted(groups=True, alike=self.alike)

    def propose(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> Proposal:
        """The least sure token of each group, those of the most valuable groups first."""
        if look.groups is None:
            raise ValueError("look.groups: expected the groups of the tokens, got None")
        size = int(look.groups.max(initial=-1)) + 1  # of a pool without tokens, none
        doubt = np.where(known, 0.0, 1 - look.confidence.astype(np.float64))
        wrong = np.bincount(look.groups, weights=doubt, minlength=size)
        # v_g, on each token of the group
        values = (wrong / (1 + np.bincount(look.groups[known], minlength=size)))[look.groups]
        chosen = _at_most(1, _least_sure_first(look, known, self.threshold), look.groups)
        # The stable sort leaves groups of one value in order of their confidence.
        chosen = chosen[np.argsort(-values[chosen], kind="stable")]
        chosen = _at_most(self.per_sentence, chosen, look.sentence)
        return _ask_tokens(look, chosen[: self.count], values)

    def informative(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> int:
        """Tokens below the threshold."""
        return len(_least_sure_first(look, known, self.threshold))


@register("spans", "stretches of tokens")
@dataclass(frozen=True)
class SpanQueries(Strategy):
    r"""The windows of up to `width` tokens that the model is least sure of.

    A window is scored by its entropy (Mann & McCallum's span entropy, all other labels summed out)
    less a price for each of its labels,

    .. math:: H(Y_a, \ldots, Y_{b-1}) - (b - a)\, h(\delta),

    where h(δ) = `token_price`, the least entropy of a token whose best label has probability δ.
    That makes widths comparable: the entropy itself always grows with the window, and the entropy
    per token is never larger than that of the window's least sure token, so the one would always
    ask for the widest windows and the other for single tokens. A window is widened as long as the
    next label, given those before it, is worth more than its price. Windows of positive score are
    taken, best first, that overlap none taken before and hold no known label.

    Args:
        width: tokens in a window, at most.
        count: q, tokens (not windows) per round, at most; None takes all.
        threshold: δ.

    Example:
        >>> SpanQueries(width=3, count=500, threshold=0.9)
        SpanQueries(width=3, count=500, threshold=0.9)
    """

    width: int = setting(3, "count", "tokens, at most (3)")
    count: int | None = setting(500, "count or None", PER_ROUND)
    threshold: float = setting(0.99, "probability", SURE)

    @property
    def wanted(self) -> Wanted:
        """The entropies of labels and steps."""
        return Wanted(steps=True)

    def propose(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> Proposal:
        """The best windows that do not overlap, best first."""
        scores = self._scores(look, known)
        extra, start = np.nonzero(scores > 0)
        # The last key counts first: by score, then by place, then narrow before wide.
        order = np.lexsort((extra, start, -scores[extra, start]))
        left = len(known) if self.count is None else self.count
        sentence, position = look.sentence, look.position
        taken = np.zeros(len(known), bool)
        queries: list[Query] = []
        # The loop is over windows taken and those in their way, not over tokens.
        for begin, width in zip(start[order].tolist(), (extra[order] + 1).tolist()):
            if not left:
                break
            # A narrower one further down may still fit into what is left of the round.
            if width > left or taken[begin : begin + width].any():
                continue
            taken[begin : begin + width] = True
            left -= width
            first, score = int(position[begin]), float(scores[width - 1, begin])
            queries.append(Query(int(sentence[begin]), first, first + width, score))
        return Proposal.only(queries)

    def informative(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> int:
        """Tokens of windows that are worth their price."""
        inside = np.zeros(len(known), bool)
        for k, row in enumerate(self._scores(look, known) > 0):
            for shift in range(k + 1):  # the tokens of a window of k + 1 that begins there
                inside[shift:] |= row[: len(row) - shift]
        return int(inside.sum())

    def _scores(self, look: Look, known: np.ndarray) -> np.ndarray:
        """[width, N]: the score of the window of k + 1 tokens that begins at each token.

        −inf where it does not fit into its sentence, or holds a known label. Cost O(N width).
        """
        if look.label_entropy is None or look.step_entropy is None:
            raise ValueError("look: expected one with entropies of tokens and steps, got none")
        n, price = len(known), token_price(self.threshold)
        scores = np.full((self.width, n), -np.inf)
        open_to_ask = _open(look, known)
        # Chain rule: H(Y_a … Y_b) = H(Y_a) + Σ H(Y_t | Y_{t−1}), so a window grows by one gain.
        gains = np.where(open_to_ask, look.step_entropy - price, -np.inf)
        gains[look.position == 0] = -np.inf  # no window goes on into the next sentence
        scores[0] = np.where(open_to_ask, look.label_entropy - price, -np.inf)
        for k in range(1, min(self.width, n)):
            scores[k, : n - k] = scores[k - 1, : n - k] + gains[k:]
        return scores


@register("sequences", "whole sentences")
@dataclass(frozen=True)
class SequenceQueries(Strategy):
    """The sentences that the model is least sure of, and what to ask of them.

    ``SequenceQueries()`` is FuSAL, fully supervised active learning; with ``ask="unsure",
    keep_sure="model"`` it is that of Tomanek & Hahn 2009; with ``ask="unsure"`` that of Wanvarie
    et al. 2010; with ``ask="none", keep_sure="model"`` it is bootstrapping.

    Args:
        count: q, sentences per round; None takes all.
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
        >>> SequenceQueries(100, by="entropy").ask
        'all'
    """

    count: int | None = setting(500, "count or None", PER_ROUND)
    by: Literal["viterbi", "entropy", "n_best"] = setting(
        "viterbi",
        ("viterbi", "entropy", "n_best"),
        "what tells how unsure the model is of a sentence (viterbi)",
    )
    ask: Literal["all", "unsure", "none"] = setting(
        "all", ("all", "unsure", "none"), "which of their tokens (all)"
    )
    threshold: float = setting(0.99, "probability", SURE)
    keep_sure: Literal["open", "model"] = setting(
        "open",
        ("open", "model"),
        "whether the other tokens stay open or take the model's label (open)",
    )
    n_best: int = setting(15, "count", "labellings that --by n_best looks at (15)")
    again: bool = setting(False, (True, False), "a sentence may be chosen a second time")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ask == "none" and self.keep_sure == "open":
            raise ValueError(
                "ask, keep_sure: expected labels from the annotator or from the model, got 'none' "
                "and 'open', which would never add one"
            )

    @property
    def wanted(self) -> Wanted:
        """What tells how unsure the model is of a sentence."""
        n_best = self.n_best if self.by == "n_best" else None
        return Wanted(entropy=self.by == "entropy", n_best=n_best)

    @property
    def completes_sentences(self) -> bool:
        """Whether every label of a sentence is asked."""
        return self.ask == "all"

    def propose(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> Proposal:
        """The least sure sentences first, neighbours that are asked as one query."""
        if self.by not in look.sequence:
            raise ValueError(
                f"look.sequence: expected {self.by!r}, got only {sorted(look.sequence)}"
            )
        doubt = look.sequence[self.by] * (-1 if self.by == "viterbi" else 1)
        candidates = np.flatnonzero(self._candidates(look, known, sampled))
        # A stable sort of the negated scores keeps ties in the order of the pool.
        chosen = candidates[np.argsort(-doubt[candidates], kind="stable")][: self.count]
        rank = np.full(len(look.lengths), len(chosen))
        rank[chosen] = np.arange(len(chosen))
        inside = ~known & (rank[look.sentence] < len(chosen))  # open tokens of chosen sentences
        asked = inside if self.ask == "all" else inside & self._is_asked(look)
        guesses = np.flatnonzero(inside & self._takes_guess(look))
        queries = _runs(look, asked, rank, doubt)
        return Proposal(queries, guesses, look.labels[guesses].astype(np.int64), chosen)

    def informative(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> int:
        """Sentences that may still be chosen."""
        return int(self._candidates(look, known, sampled).sum())

    def _candidates(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> np.ndarray:
        """bool [B]: sentences with something to ask, that were not chosen before.

        If each is chosen once, any token without a label is reason enough. If a sentence may come
        again, only a token that would get a label is one, or the sentence would come for ever. A
        sentence without a legal labelling has nothing to learn from.
        """
        reason = _open(look, known)
        if self.again and self.ask != "all":
            reason &= self._is_asked(look) | self._takes_guess(look)
        wanted = np.bincount(look.sentence[reason], minlength=len(look.lengths)) > 0
        return wanted if sampled is None or self.again else wanted & ~sampled

    def _is_asked(self, look: Look) -> np.ndarray:
        return (look.confidence < self.threshold) & (self.ask == "unsure")

    def _takes_guess(self, look: Look) -> np.ndarray:
        takes = self.keep_sure == "model" and self.ask != "all"
        return (look.confidence >= self.threshold) & takes


@register("random", "tokens or sentences at random, to compare with")
@dataclass(frozen=True)
class RandomQueries(Strategy):
    """Any tokens, or sentences, without a look at what the model says of them.

    What a strategy is worth shows beside this one. It never finds that nothing informative is left:
    set `budget` or `max_rounds`.

    Args:
        count: units per round; None takes all.
        units: ``"sentences"``, of which all open tokens are asked, or ``"tokens"``.
        draw: another number draws others.

    Example:
        >>> RandomQueries(100, units="tokens")
        RandomQueries(count=100, units='tokens', draw=0)
    """

    count: int | None = setting(500, "count or None", PER_ROUND)
    units: Literal["sentences", "tokens"] = setting(
        "sentences", ("sentences", "tokens"), "what is drawn (sentences)"
    )
    draw: int = setting(0, "number", "another number draws others (0)")

    @property
    def completes_sentences(self) -> bool:
        """Whether sentences are drawn."""
        return self.units == "sentences"

    def propose(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> Proposal:
        """Units with something to ask, in a random order."""
        # By what is known already, so that a run that is resumed draws the same.
        random = np.random.default_rng([self.draw, int(known.sum())])
        chosen = random.permutation(self._candidates(look, known))[: self.count]
        if self.units == "tokens":
            return _ask_tokens(look, chosen, np.zeros(len(known)))
        rank = np.full(len(look.lengths), len(chosen))
        rank[chosen] = np.arange(len(chosen))
        asked = _open(look, known) & (rank[look.sentence] < len(chosen))
        return Proposal.only(_runs(look, asked, rank, np.zeros(len(look.lengths))))

    def informative(self, look: Look, known: np.ndarray, sampled: np.ndarray | None) -> int:
        """All units with something to ask."""
        return len(self._candidates(look, known))

    def _candidates(self, look: Look, known: np.ndarray) -> np.ndarray:
        tokens = np.flatnonzero(_open(look, known))
        return tokens if self.units == "tokens" else np.unique(look.sentence[tokens])


def token_price(threshold: float) -> float:
    r"""The least entropy, in nats, of a token whose best label has probability δ at most.

    With :math:`m = \lfloor 1/\delta \rfloor` labels of probability δ and the remainder r on one
    more, :math:`h(\delta) = -m \delta \log \delta - r \log r`; for δ ≥ ½ the entropy of a coin. A
    token that is less sure than δ has more.

    Example:
        >>> round(token_price(0.9), 4), round(token_price(0.5), 4), abs(token_price(1.0))
        (0.3251, 0.6931, 0.0)
    """
    labels = math.floor(1 / threshold + 1e-12)  # 1/δ may be rounded to just below a whole number
    left = max(0.0, 1 - labels * threshold)
    return -labels * threshold * math.log(threshold) - (left * math.log(left) if left else 0.0)


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
    # The running maximum of the first places is where the keys equal to this one begin.
    ranks[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return ranks


def _least_sure_first(look: Look, known: np.ndarray, threshold: float) -> np.ndarray:
    """Tokens below the threshold without a label; ties in the order of the pool."""
    places = np.flatnonzero(~known & (look.confidence < threshold))
    return places[np.argsort(look.confidence[places], kind="stable")]


def _open(look: Look, known: np.ndarray) -> np.ndarray:
    """Tokens without a label, of sentences that have a legal labelling."""
    return ~known & (look.labels >= 0)


def _at_most(limit: int | None, chosen: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The first few tokens of each key, by default any number of them."""
    return chosen if limit is None else chosen[rank_among_equals(keys[chosen]) < limit]


def _ask_tokens(look: Look, chosen: np.ndarray, scores: np.ndarray) -> Proposal:
    columns = (look.sentence[chosen], look.position[chosen], scores[chosen])
    rows = zip(*(column.tolist() for column in columns))
    return Proposal.only([Query(s, t, t + 1, score) for s, t, score in rows])


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
