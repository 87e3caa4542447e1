"""Metrics of labelled sequences: accuracy, spans, agreement, and a test of difference.

All take one sequence of labels per sentence, and raise ValueError, naming the sentence, for
labellings that differ in length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

__all__ = [
    "LabelScores",
    "McNemar",
    "SpanCounts",
    "SpanScores",
    "cohen_kappa",
    "label_scores",
    "mcnemar",
    "span_scores",
    "spans",
    "spell_spans",
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
_ALONE = ("[", "]")  # each is a span of one token


def _pairs(*texts: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(pair) for text in texts for pair in text.split())


# Letters of two tags of one type, one after the other. In each table the first text is the script's
# own, the second is for IOBES, which the script does not know.
_END_BETWEEN = _pairs("BB BO IB IO EE EI EO", "EB BS IS ES SB SI SE SS SO")
_START_AT_SECOND = _pairs("BB IB OB OI EE EI OE", "EB OS BS IS ES SB SI SE SS")

Tag = tuple[str, str]  # letter and type


def _split_tag(tag: str) -> Tag:
    letter, _, kind = tag.partition("-")
    return _SAME_AS.get(letter, letter), kind


def _ends(last: Tag, tag: Tag) -> bool:
    """Whether the script sees a span end between two tags: what is open may go on over others."""
    (last_letter, last_kind), (letter, kind) = last, tag
    if last_letter in _ALONE or (last_letter, letter) in _END_BETWEEN:
        return True
    return last_letter not in _OUTSIDE and last_kind != kind


def _starts(last: Tag, tag: Tag) -> bool:
    """Whether the script sees a span start at the second of two tags."""
    (last_letter, last_kind), (letter, kind) = last, tag
    if letter in _ALONE or (last_letter, letter) in _START_AT_SECOND:
        return True
    return letter not in _OUTSIDE and last_kind != kind


_BREAK = _split_tag("O")  # stands between sentences


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans in a sequence of tags, by the rules of conlleval.

    No tag is illegal: a span begins where the type changes, or where the letters say so (such as
    O and then I), and ends likewise, so that tags of IOB1 and IOB2 and the errors of a labeller
    are all read. The letters E and S of IOBES, and L and U of BILOU, which mean the same, are
    read too, and ``[`` and ``]`` are spans of one token each. For B, I, E and O the rules are those
    of the script, with one exception that IOBES needs: B after E of the same type begins a span.
    A tag is split at its first dash; without one its type is empty. O and ``.`` are outside of
    spans, whatever their type.

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
    last, start = _BREAK, -1
    for position, tag in enumerate(map(_split_tag, [*tags, "O"])):  # the O ends what is still open
        starts, outside = _starts(last, tag), tag[0] in _OUTSIDE
        if start >= 0 and (starts or outside or _ends(last, tag)):
            closed.append((start, position, last[1]))
            start = -1
        if starts:
            start = position
        last = tag
    return closed


_SPAN_LETTERS = frozenset("BIESLU.[]")


def spell_spans(labels: Iterable[str]) -> bool:
    """Whether labels spell spans, as B-NP and I-NP do: else they are classes of tokens.

    They do where one of them is a letter of a scheme and a type, such as ``B-NP``, or where all
    are such letters or ``O``. Parts of speech, ``-LRB-`` and ``.`` among them, do not.

    Args:
        labels: all of them, or those of all tokens.

    Example:
        >>> spell_spans(["O", "B-NP", "I-NP"]), spell_spans(["NN", ".", "-LRB-"])
        (True, False)
    """
    split = [label.partition("-") for label in set(labels)]
    typed = any(letter in _SPAN_LETTERS and kind for letter, _, kind in split)
    return typed or all(letter in _SPAN_LETTERS or letter == "O" for letter, _, _ in split)


@dataclass(frozen=True)
class SpanCounts:
    """How many spans, or tokens of a label, are right, predicted and there to be found.

    Args:
        tp: those that are predicted and gold; of spans, with the same start, stop and type.
        predicted: those that are predicted.
        gold: those that are gold.

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
            # The script lists the empty type twice where both labellings have it.
            times = 2 if not kind and counts.gold and counts.predicted else 1
            lines += [f"{kind:>17}: {_ratios(counts)}  {counts.predicted}"] * times
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

    A span is right when start, stop and type all are. Tags are read as `spans` reads them, so any
    scheme will do, also two different ones; token accuracy compares the tags as they stand. The
    counts are those of conlleval, on the oddest tags too, but for the letters of IOBES.

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
    last_gold = last_predicted = _BREAK
    agreeing = False  # within a span that has been right since it began in both
    for gold_tags, predicted_tags in _align_sentences(gold=gold, predicted=predicted):
        tokens += len(gold_tags)
        correct_tokens += sum(map(str.__eq__, gold_tags, predicted_tags))
        pairs = zip(map(_split_tag, gold_tags), map(_split_tag, predicted_tags))
        # As the script does it, tag by tag and with a break between sentences. Odd tags need that:
        # a span that nothing ends is no span of the list that `spans` makes.
        for gold_tag, predicted_tag in chain(pairs, [(_BREAK, _BREAK)]):
            if agreeing:
                ends, also_ends = _ends(last_gold, gold_tag), _ends(last_predicted, predicted_tag)
                if ends and also_ends and last_gold[1] == last_predicted[1]:
                    right[last_gold[1]] += 1
                    agreeing = False
                elif ends != also_ends or gold_tag[1] != predicted_tag[1]:
                    agreeing = False
            starts = _starts(last_gold, gold_tag)
            also_starts = _starts(last_predicted, predicted_tag)
            wanted[gold_tag[1]] += starts
            guessed[predicted_tag[1]] += also_starts
            if starts and also_starts and gold_tag[1] == predicted_tag[1]:
                agreeing = True
            last_gold, last_predicted = gold_tag, predicted_tag
    right[last_gold[1]] += agreeing  # a span that nothing has ended
    by_type = {
        kind: SpanCounts(right[kind], guessed[kind], wanted[kind])
        for kind in sorted(kind for kind in wanted | guessed if wanted[kind] or guessed[kind])
    }
    overall = SpanCounts(right.total(), guessed.total(), wanted.total())
    return SpanScores(overall, by_type, tokens, correct_tokens)


def _ratios(counts: SpanCounts) -> str:
    # In the order of conlleval's own arithmetic: at ties it decides the last digit.
    precision = 100 * counts.tp / counts.predicted if counts.predicted else 0.0
    recall = 100 * counts.tp / counts.gold if counts.gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


MOST_IN_MATRIX = 20  # labels; of more, those that are confused most often


@dataclass(frozen=True)
class LabelScores:
    """The result of `label_scores`.

    Args:
        by_label: label → its counts, sorted by label.
        confusion: (gold, predicted) → how many tokens have the two labels.
        tokens: how many tokens there are.
        correct_tokens: how many of them have the right label.

    Example:
        >>> scores = label_scores([["DT", "NN", "NN"]], [["DT", "NN", "VB"]])
        >>> scores.by_label["NN"], scores.confusion["NN", "VB"]
        (SpanCounts(tp=1, predicted=1, gold=2), 1)
    """

    by_label: dict[str, SpanCounts]
    confusion: dict[tuple[str, str], int]
    tokens: int
    correct_tokens: int

    @property
    def accuracy(self) -> float:
        """The share of tokens with the right label; 0 when there are no tokens."""
        return self.correct_tokens / self.tokens if self.tokens else 0.0

    def table(self) -> str:
        """Accuracy, the scores of each label in per cent, and the confusion matrix."""
        lines = [
            f"processed {self.tokens} tokens with {len(self.by_label)} labels; "
            f"correct: {self.correct_tokens}.",
            f"accuracy: {100 * self.accuracy:6.2f}%",
        ]
        for label, counts in self.by_label.items():
            lines += [f"{label:>17}: {_ratios(counts)}  {counts.predicted}"]
        return "\n".join([*lines, "", *self._matrix()])

    def _matrix(self) -> list[str]:
        wrong = Counter[str]()
        for (gold, predicted), count in self.confusion.items():
            if gold != predicted:
                wrong.update({gold: count, predicted: count})
        shown, title = list(self.by_label), "gold labels in rows, predicted ones in columns"
        if len(shown) > MOST_IN_MATRIX:
            most = {label for label, _ in wrong.most_common(MOST_IN_MATRIX)}
            shown = [label for label in shown if label in most]
            title += f" (the {len(shown)} labels that are confused most often)"
        cells = [[self.confusion.get((gold, label), 0) for label in shown] for gold in shown]
        widths = [
            max(len(label), *(len(str(row[k])) for row in cells)) for k, label in enumerate(shown)
        ]
        first = max(map(len, shown), default=0)
        heads = "  ".join(f"{label:>{width}}" for label, width in zip(shown, widths))
        lines = [title, f"{'':{first}}  {heads}"] if shown else []
        for label, row in zip(shown, cells):
            numbers = "  ".join(f"{count:{width}}" for count, width in zip(row, widths))
            lines.append(f"{label:>{first}}  {numbers}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """All scores by name, in plain numbers and dicts, as for JSON."""
        confusion: dict[str, dict[str, int]] = {}
        for (gold, predicted), count in self.confusion.items():
            confusion.setdefault(gold, {})[predicted] = count
        return {
            "accuracy": self.accuracy,
            "tokens": self.tokens,
            "correct_tokens": self.correct_tokens,
            "by_label": {label: counts.as_dict() for label, counts in self.by_label.items()},
            "confusion": confusion,
        }


def label_scores(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> LabelScores:
    """Accuracy, scores of each label and the confusion matrix, of labels that spell no spans.

    Args:
        gold: the right labels, one sequence per sentence.
        predicted: as many labels.

    Returns:
        The scores; `LabelScores.table` prints them.

    Example:
        >>> print(label_scores([["DT", "NN", "NN"]], [["DT", "NN", "VB"]]).table())
        processed 3 tokens with 3 labels; correct: 2.
        accuracy:  66.67%
                       DT: precision: 100.00%; recall: 100.00%; FB1: 100.00  1
                       NN: precision: 100.00%; recall:  50.00%; FB1:  66.67  1
                       VB: precision:   0.00%; recall:   0.00%; FB1:   0.00  1
        <BLANKLINE>
        gold labels in rows, predicted ones in columns
            DT  NN  VB
        DT   1   0   0
        NN   0   1   1
        VB   0   0   0
    """
    pairs = Counter[tuple[str, str]]()
    for gold_labels, predicted_labels in _align_sentences(gold=gold, predicted=predicted):
        pairs.update(zip(gold_labels, predicted_labels))
    wanted, guessed = Counter[str](), Counter[str]()
    for (right, guess), count in pairs.items():
        wanted[right] += count
        guessed[guess] += count
    by_label = {
        label: SpanCounts(pairs[label, label], guessed[label], wanted[label])
        for label in sorted(wanted | guessed)
    }
    correct = sum(counts.tp for counts in by_label.values())
    return LabelScores(by_label, dict(sorted(pairs.items())), pairs.total(), correct)


def usual_scores(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> SpanScores | LabelScores:
    """`span_scores` where the labels of either side spell spans, else `label_scores`."""
    gold, predicted = list(gold), list(predicted)
    labels = {label for sentence in chain(gold, predicted) for label in sentence}
    return (span_scores if spell_spans(labels) else label_scores)(gold, predicted)
