"""What is expected of the labels of unlabelled text."""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from jaxseq.taggers import check_labels, check_number, check_sentences
from jaxseq.text import TemplateExtractor, Templates

Share: TypeAlias = Any
"""A number from 0 to 1, or the least and the most that it may be."""

When = str | Callable[[Any], Sequence[bool]] | None

PENALTIES = ("kl", "l2")

ROUNDING = 1e-6
"""By how much shares that people write down may miss a sum of 1."""


@dataclass(frozen=True)
class Expectation:
    """How often labels are expected where something holds of the text.

    Args:
        targets: for each event the share of it that is expected, or the least and the most. An
            event is a label, ``"NAME"``; one of several, ``"A | B"``; a transition, ``"A -> B"``,
            where ``*`` is any label; the beginning of a run of labels, ``"begin A"``; or any change
            of label, ``"change"``.
        when: the tokens that it is about (of transitions, the second token): an attribute such as
            ``"word[0]=pp"``, with any template on the left; for sentences that come with their
            attributes, the name of one, such as ``"word:pp"``; a function from a sentence to a
            truth value per token; or None for all tokens.
        weight: how much it counts: like so many labelled tokens. ``inf`` is for projection alone.
        penalty: of the distance between the shares of the model and the nearest ones that are
            allowed: ``"kl"``, their Kullback–Leibler divergence, with one more share for all
            events that have no target; or ``"l2"``, the sum of the squared differences.
        per: what it is a share of: ``"token"``, the tokens (or transitions) where `when` holds;
            or ``"sentence"``, so that it is a mean count per sentence, with the penalty ``"l2"``.

    Raises:
        ValueError: for targets that no distribution has.

    Example:
        >>> Expectation({"pages": 0.9}, when="word[0]=pp").targets
        {'pages': (0.9, 0.9)}
        >>> Expectation({"A": 0.7, "B": 0.6})
        Traceback (most recent call last):
        ValueError: targets: expected shares that sum to at most 1, got at least 1.3

    References:
        Mann & McCallum 2010, generalized expectation criteria.
    """

    targets: Mapping[str, Share]
    when: When = None
    weight: float | int = 10.0
    penalty: Literal["kl", "l2"] = "kl"
    per: Literal["token", "sentence"] = "token"

    def __post_init__(self):
        if not isinstance(self.targets, Mapping) or not self.targets:
            raise ValueError(f"targets: expected shares by label, got {self.targets!r:.60}")
        if not (self.when is None or isinstance(self.when, str) or callable(self.when)):
            raise ValueError(f"when: expected an attribute, a function or None, got {self.when!r}")
        for name, among in (("penalty", PENALTIES), ("per", ("token", "sentence"))):
            if getattr(self, name) not in among:
                raise ValueError(
                    f"{name}: expected one of {list(among)}, got {getattr(self, name)!r:.60}"
                )
        if self.weight != np.inf:
            check_number("weight", self.weight, 0, numbers.Real)
        most = 1.0 if self.per == "token" else np.inf
        ranges = {event: _as_range(event, share, most) for event, share in self.targets.items()}
        object.__setattr__(self, "targets", ranges)
        least = sum(low for low, _ in ranges.values())
        if self.penalty == "kl" and self.per == "sentence":
            raise ValueError("penalty: expected 'l2' for counts per sentence, got 'kl'")
        if self.penalty == "kl" and least > 1 + ROUNDING:
            raise ValueError(
                f"targets: expected shares that sum to at most 1, got at least {least:g}"
            )

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the most of each target."""
        return cast(dict[str, tuple[float, float]], self.targets)

    def describe(self) -> str:
        """In a few words."""
        where = "all tokens" if self.when is None else self.when
        return getattr(where, "__qualname__", str(where))


def _as_range(event: Any, share: Any, largest: float) -> tuple[float, float]:
    """(least, most); ValueError unless it is a share or a range of them."""
    if not isinstance(event, str):
        raise ValueError(f"targets: expected events in words, got {event!r:.60}")
    ends = share if isinstance(share, Sequence) else (share, share)
    real = [isinstance(end, numbers.Real) and not isinstance(end, bool) for end in ends]
    if (
        len(ends) != 2
        or not all(real)
        or not 0 <= ends[0] <= ends[1] <= largest
        or ends[0] == np.inf
    ):
        what = "a share from 0 to 1" if largest == 1 else "a count of 0 or more"
        raise ValueError(
            f"targets[{event!r}]: expected {what}, or the least and the most, got {share!r:.60}"
        )
    return float(ends[0]), float(ends[1])


# ------------------------------------------------------------- targets from labelled sentences

LABELLED_SMOOTHING = 1.0


def label_shares(
    y: Iterable[Sequence[Any]],
    *,
    smoothing: float | int = LABELLED_SMOOTHING,
    slack: float | int = 1.0,
    weight: float | int = 10.0,
    penalty: Literal["kl", "l2"] = "kl",
) -> Expectation:
    """That labels are as frequent among all tokens as they are in labelled sentences.

    Label regularisation: what keeps a model that learns from its own certainty from growing sure
    of the most frequent label alone.

    Args:
        y: labels of sentences; those that are not known are left out.
        smoothing: added to the count of every label.
        slack: the factor by which a share may be larger, or smaller, at no cost, 1 or more. The
            labelled sentences may be few, and of somewhat other text.
        weight: of the `Expectation`.
        penalty: of the `Expectation`.

    Example:
        >>> label_shares([["A", "A", "B"]]).targets
        {'A': (0.6, 0.6), 'B': (0.4, 0.4)}

    References:
        Mann & McCallum 2007, expectation regularization.
    """
    counts = Counter(label for labels in y for label in labels if isinstance(label, str))
    if not counts:
        raise ValueError("y: expected at least one known label, got none")
    check_number("smoothing", smoothing, 0, numbers.Real)
    check_number("slack", slack, 1, numbers.Real)
    total = sum(counts.values()) + smoothing * len(counts)
    shares = {label: (counts[label] + smoothing) / total for label in sorted(counts)}
    ranges = {label: (p / slack, min(1.0, p * slack)) for label, p in shares.items()}
    return Expectation(ranges, None, weight, penalty)


def attribute_shares(
    X: Iterable[Any],
    y: Sequence[Sequence[Any]],
    templates: Sequence[str] = ("lower(word[0])",),
    *,
    least_count: int = 5,
    smoothing: float | int = LABELLED_SMOOTHING,
    weight: float | int = 10.0,
    penalty: Literal["kl", "l2"] = "kl",
) -> list[Expectation]:
    """The shares of labels where labelled sentences have an attribute, for each frequent one.

    Args:
        X: labelled sentences.
        y: their labels; those that are not known are left out.
        templates: of the attributes.
        least_count: attributes that occur with fewer known labels are left out.
        smoothing: added, in all, to the counts of an attribute's labels, in the proportions that
            labels have everywhere.
        weight: of every `Expectation`.
        penalty: of every `Expectation`.

    Example:
        >>> first, *_ = attribute_shares([["pp", "3"]], [["P", "N"]], least_count=1)
        >>> first.when, first.targets["P"]
        ('lower(word[0])=pp', (0.75, 0.75))
    """
    check_number("least_count", least_count, 1, numbers.Integral)
    X = list(check_sentences(X))
    extractor = TemplateExtractor(Templates(list(templates)))
    features = extractor.fit_transform(X)
    flat = check_labels(y, features.lengths)
    labels = sorted({label for label in flat if isinstance(label, str)})
    number = {label: index for index, label in enumerate(labels)}
    gold = np.array([number.get(each, -1) if isinstance(each, str) else -1 for each in flat])
    counts = np.zeros((extractor.attribute_count, len(labels)))
    known = (features.ids >= 0) & (gold[:, None] >= 0)
    rows, _ = np.nonzero(known)
    np.add.at(counts, (features.ids[known], gold[rows]), 1)
    everywhere = np.bincount(gold[gold >= 0], minlength=len(labels))
    expectations = []
    for name, row in zip(extractor.attribute_names(), counts):
        if row.sum() >= least_count:
            smoothed = row + smoothing * everywhere / everywhere.sum()
            shares = dict(zip(labels, (smoothed / smoothed.sum()).tolist()))
            expectations.append(Expectation(shares, name, weight, penalty))
    return expectations
