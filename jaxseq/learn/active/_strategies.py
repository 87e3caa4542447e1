"""What to ask next: settings, checked."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias


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
