"""Metrics of labelled sequences: accuracy, spans, agreement, and a test of difference.

All take one sequence of labels per sentence, and raise ValueError, naming the sentence, for
labellings that differ in length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence, Sized
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "McNemar",
    "SpanCounts",
    "SpanScores",
    "cohen_kappa",
    "mcnemar",
    "span_scores",
    "spans",
    "token_accuracy",
]

Labellings = Iterable[Sequence[Hashable]]
Span = tuple[int, int, str]


def _align_sentences(**labellings: Labellings) -> list[tuple[Any, ...]]:
    """The labels of each sentence under each labelling; ValueError unless lengths are equal."""
    columns = {name: list(labelling) for name, labelling in labellings.items()}
    for name, sentences in columns.items():
        for index, sentence in enumerate(sentences):
            # A flat list of strings would pass for sentences of characters.
            if isinstance(sentence, (str, bytes)) or not hasattr(sentence, "__len__"):
                raise ValueError(
                    f"{name}, sentence {index}: expected a sequence of labels, got {sentence!r}"
                )
    _check_equal(
        f"{', '.join(columns)}: expected equally many sentences", columns, columns.values()
    )
    rows = list(zip(*columns.values()))
    for index, row in enumerate(rows):
        _check_equal(f"sentence {index}: expected equal lengths", columns, row)
    return rows


def _check_equal(expected: str, names: Iterable[str], parts: Collection[Sized]) -> None:
    if len({len(part) for part in parts}) > 1:
        counts = ", ".join(f"{name} {len(part)}" for name, part in zip(names, parts))
        raise ValueError(f"{expected}, got {counts}")


def _align_tokens(**labellings: Labellings) -> list[tuple[Hashable, ...]]:
    """The labels of each token under each labelling, sentence after sentence; at least one."""
    tokens = [token for row in _align_sentences(**labellings) for token in zip(*row)]
    if not tokens:
        raise ValueError(f"{', '.join(labellings)}: expected at least one token, got none")
    return tokens


def token_accuracy(gold: Labellings, predicted: Labellings) -> float:
    """The share of tokens whose predicted label is right.

    Args:
        gold: the right labels, one sequence per sentence.
        predicted: as many labels.

    Returns:
        A number from 0 to 1.

    Raises:
        ValueError: also for labellings without a token.

    Example:
        >>> token_accuracy([["DT", "NN"], ["VB", "NN"]], [["DT", "NN"], ["NN", "NN"]])
        0.75
    """
    pairs = _align_tokens(gold=gold, predicted=predicted)
    return sum(right == guess for right, guess in pairs) / len(pairs)


def cohen_kappa(a: Labellings, b: Labellings) -> float:
    """Cohen's kappa: agreement of two labellings beyond chance, token by token.

    κ = (p − q) / (1 − q), where p is the share of tokens on which they agree and q the share
    expected of two labellings that are independent, with the label frequencies of these.

    Args:
        a: labels, one sequence per sentence.
        b: as many labels.

    Returns:
        At most 1, which is full agreement; 0 is that of chance. When both give one and the same
        label to all tokens q is 1 and the fraction 0/0: they agree fully, so the answer is 1.

    Raises:
        ValueError: also for labellings without a token.

    Example:
        >>> cohen_kappa([["x", "x", "y", "y"]], [["x", "x", "y", "x"]])
        0.5

    Reference:
        Cohen (1960), "A coefficient of agreement for nominal scales".
    """
    from sklearn.metrics import cohen_kappa_score

    # Pairs with their counts, by first occurrence: scikit-learn is quick on the few kinds of pairs,
    # and its sums round alike in every run.
    counts = Counter(_align_tokens(a=a, b=b))
    labels = dict.fromkeys(label for pair in counts for label in pair)
    if len(labels) == 1:
        return 1.0  # by our definition of 0/0, where scikit-learn gives NaN
    numbers = {label: number for number, label in enumerate(labels)}
    first, second = zip(*[(numbers[x], numbers[y]) for x, y in counts])
    return float(cohen_kappa_score(first, second, sample_weight=list(counts.values())))


@dataclass(frozen=True)
class McNemar:
    """The result of `mcnemar`.

    Args:
        n10: tokens that only the first labeller gets right.
        n01: tokens that only the second gets right.
        statistic: (|n10 − n01| − 1)² / (n10 + n01), with Edwards' correction for continuity; 0
            when the two counts are equal.
        p_value: of the statistic, χ² with one degree of freedom.
        exact_p_value: two-sided, of the binomial distribution with n10 + n01 draws of 1/2; to be
            preferred when those are few (below 25).

    Example:
        >>> McNemar(n10=9, n01=1, statistic=4.9, p_value=0.0269, exact_p_value=0.0215).n10
        9
    """

    n10: int
    n01: int
    statistic: float
    p_value: float
    exact_p_value: float


def mcnemar(gold: Labellings, predicted_a: Labellings, predicted_b: Labellings) -> McNemar:
    """McNemar's test on tokens: are two labellers equally often right?

    Only tokens that one of them gets right and the other wrong count. The test takes tokens for
    independent, which those of a sentence are not: small p-values come out too small.

    Args:
        gold: the right labels, one sequence per sentence.
        predicted_a: as many labels, from the first labeller.
        predicted_b: as many labels, from the second.

    Returns:
        Counts, statistic and p-values.

    Example:
        >>> gold = [["x"] * 12]
        >>> result = mcnemar(gold, [["x"] * 11 + ["y"]], [["y"] * 9 + ["x"] * 3])
        >>> result.n10, result.n01, result.statistic, round(result.exact_p_value, 4)
        (9, 1, 4.9, 0.0215)

    Reference:
        McNemar (1947), "Note on the sampling error of the difference between correlated
        proportions or percentages"; Edwards (1948), "Note on the 'correction for continuity'".
    """
    # Two functions of scipy.special, since importing scipy.stats takes a good part of a second.
    from scipy.special import bdtr, chdtrc

    n10 = n01 = 0
    for row in _align_sentences(gold=gold, predicted_a=predicted_a, predicted_b=predicted_b):
        for right, first, second in zip(*row):
            n10 += first == right and second != right
            n01 += first != right and second == right
    gap = max(abs(n10 - n01) - 1, 0)  # Edwards' correction must not overshoot
    statistic = gap**2 / (n10 + n01) if gap else 0.0
    tail = bdtr(min(n10, n01), n10 + n01, 0.5)  # P(at most that many heads in n tosses)
    return McNemar(n10, n01, statistic, float(chdtrc(1, statistic)), min(1.0, 2 * float(tail)))


_SAME_AS = {"L": "E", "U": "S"}  # BILOU's letters for what IOBES calls E and S
_OUTSIDE = ("O", ".")


def _pairs(*texts: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(pair) for text in texts for pair in text.split())


# Letters of two tags of one type, one after the other. In each table the first text is the script's
# own, the second is for IOBES, which the script does not know.
_END_BETWEEN = _pairs("BB IB EE EI", "EB BS IS ES SB SI SE SS")
_START_AT_SECOND = _pairs("BB IB OB OI EE EI OE", "EB OS BS IS ES SB SI SE SS")


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans in a sequence of tags, by the rules of conlleval.

    No tag is illegal: a span begins where the type changes, or where the letters say so (such as
    O and then I), and ends likewise, so that tags of IOB1 and IOB2 and the errors of a labeller
    are all read. The letters E and S of IOBES, and L and U of BILOU, which mean the same, are
    read too. For B, I, E and O the rules are those of the script, with one exception that IOBES
    needs: B after E of the same type begins a span. A tag is split at its first dash; without
    one its type is empty.

    Args:
        tags: one sequence. (`jaxseq.text.tag_spans` reads it strictly by one scheme.)

    Returns:
        (start, stop, type) of each span, in order; the last token is stop − 1.

    Example:
        >>> spans(["I-NP", "I-NP", "B-NP", "O", "I-VP", "I-PP"])
        [(0, 2, 'NP'), (2, 3, 'NP'), (4, 5, 'VP'), (5, 6, 'PP')]

    Reference:
        Tjong Kim Sang & Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking".
    """
    closed: list[Span] = []
    last_letter, last_kind, start = "O", "", -1
    for position, tag in enumerate([*tags, "O"]):  # the O ends a span that is open to the last
        letter, _, kind = tag.partition("-")
        letter = _SAME_AS.get(letter, letter)
        outside, same = letter in _OUTSIDE, kind == last_kind
        pair = (last_letter, letter)
        if start >= 0 and (outside or not same or pair in _END_BETWEEN):
            closed.append((start, position, last_kind))
            start = -1
        if not outside and (not same or pair in _START_AT_SECOND):
            start = position
        last_letter, last_kind = letter, kind
    return closed


@dataclass(frozen=True)
class SpanCounts:
    """How many spans are right, predicted and there to be found.

    Args:
        tp: spans that are predicted and gold: same start, same stop, same type.
        predicted: spans that are predicted.
        gold: spans that are gold.

    Example:
        >>> counts = SpanCounts(tp=3, predicted=4, gold=6)
        >>> counts.precision, counts.recall, counts.f1
        (0.75, 0.5, 0.6)
    """

    tp: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """tp / predicted; 0 when none is predicted."""
        return self.tp / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """tp / gold; 0 when there is none."""
        return self.tp / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 when both are."""
        # 2pr / (p + r) with p = tp / predicted and r = tp / gold.
        return 2 * self.tp / (self.predicted + self.gold) if self.tp else 0.0

    def as_dict(self) -> dict[str, float]:
        """Counts and ratios by name."""
        ratios = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return ratios | asdict(self)


@dataclass(frozen=True)
class SpanScores:
    """The result of `span_scores`.

    Args:
        overall: counts over all types.
        by_type: type → its counts, sorted by type.
        tokens: how many tokens there are.
        correct_tokens: how many of them have the right tag.

    Example:
        >>> scores = span_scores([["B-NP", "O"]], [["B-NP", "B-VP"]])
        >>> scores.by_type["VP"], scores.accuracy
        (SpanCounts(tp=0, predicted=1, gold=0), 0.5)
    """

    overall: SpanCounts
    by_type: dict[str, SpanCounts]
    tokens: int
    correct_tokens: int

    @property
    def accuracy(self) -> float:
        """The share of tokens with the right tag; 0 when there are no tokens."""
        return self.correct_tokens / self.tokens if self.tokens else 0.0

    def table(self) -> str:
        """The scores as conlleval prints them, in per cent, without the last line end."""
        all_types = self.overall
        lines = [
            f"processed {self.tokens} tokens with {all_types.gold} phrases; "
            f"found: {all_types.predicted} phrases; correct: {all_types.tp}."
        ]
        if self.tokens:
            accuracy = 100 * self.correct_tokens / self.tokens
            lines += [f"accuracy: {accuracy:6.2f}%; {_ratios(all_types)}"]
        for kind, counts in self.by_type.items():
            lines += [f"{kind:>17}: {_ratios(counts)}  {counts.predicted}"]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """All scores by name, in plain numbers and dicts, as for JSON."""
        return {
            "accuracy": self.accuracy,
            "tokens": self.tokens,
            "correct_tokens": self.correct_tokens,
            "overall": self.overall.as_dict(),
            "by_type": {kind: counts.as_dict() for kind, counts in self.by_type.items()},
        }


def span_scores(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> SpanScores:
    """Precision, recall and F1 of predicted spans, overall and by type.

    A span is right when start, stop and type all are. Tags are read by `spans`, so any scheme
    will do, also two different ones; token accuracy compares the tags as they stand.

    Args:
        gold: the right tags, one sequence per sentence.
        predicted: as many tags.

    Returns:
        The scores; `SpanScores.table` prints them like conlleval.

    Example:
        >>> gold = [["B-NP", "I-NP", "O", "B-NP"], ["B-VP", "O"]]
        >>> predicted = [["B-NP", "I-NP", "O", "O"], ["B-NP", "O"]]
        >>> print(span_scores(gold, predicted).table())
        processed 6 tokens with 3 phrases; found: 2 phrases; correct: 1.
        accuracy:  66.67%; precision:  50.00%; recall:  33.33%; FB1:  40.00
                       NP: precision:  50.00%; recall:  50.00%; FB1:  50.00  2
                       VP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0
    """
    right, guessed, wanted = Counter[str](), Counter[str](), Counter[str]()
    tokens = correct_tokens = 0
    for gold_tags, predicted_tags in _align_sentences(gold=gold, predicted=predicted):
        gold_spans, predicted_spans = spans(gold_tags), spans(predicted_tags)
        wanted.update(kind for _, _, kind in gold_spans)
        guessed.update(kind for _, _, kind in predicted_spans)
        # A span counts as right where start, stop and type are: sets of triples intersect.
        right.update(kind for _, _, kind in set(gold_spans) & set(predicted_spans))
        tokens += len(gold_tags)
        correct_tokens += sum(map(str.__eq__, gold_tags, predicted_tags))
    by_type = {
        kind: SpanCounts(right[kind], guessed[kind], wanted[kind])
        for kind in sorted(wanted | guessed)
    }
    overall = SpanCounts(right.total(), guessed.total(), wanted.total())
    return SpanScores(overall, by_type, tokens, correct_tokens)


def _ratios(counts: SpanCounts) -> str:
    # In the order of conlleval's own arithmetic: at ties it decides the last digit.
    precision = 100 * counts.tp / counts.predicted if counts.predicted else 0.0
    recall = 100 * counts.tp / counts.gold if counts.gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"
