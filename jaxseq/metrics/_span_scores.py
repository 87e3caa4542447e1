"""Precision, recall and F1 of spans, as the script conlleval reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jaxseq.metrics._aligned import aligned_sentences
from jaxseq.metrics._spans import spans


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
        return 2 * self.tp / (self.predicted + self.gold) if self.tp else 0.0

    def as_dict(self) -> dict[str, float]:
        """Counts and ratios by name."""
        ratios = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {**ratios, "tp": self.tp, "predicted": self.predicted, "gold": self.gold}


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
        gold: the right tags, a sequence a sentence.
        predicted: as many tags.

    Returns:
        The scores; `SpanScores.table` prints them like conlleval.

    Raises:
        ValueError: for labellings that differ in length.

    Example:
        >>> gold = [["B-NP", "I-NP", "O", "B-NP"], ["B-VP", "O"]]
        >>> predicted = [["B-NP", "I-NP", "O", "O"], ["B-NP", "O"]]
        >>> print(span_scores(gold, predicted).table())
        processed 6 tokens with 3 phrases; found: 2 phrases; correct: 1.
        accuracy:  66.67%; precision:  50.00%; recall:  33.33%; FB1:  40.00
                       NP: precision:  50.00%; recall:  50.00%; FB1:  50.00  2
                       VP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0

    Reference:
        Tjong Kim Sang & Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking".
    """
    rows = cast(
        "list[tuple[Sequence[str], Sequence[str]]]",
        aligned_sentences(gold=gold, predicted=predicted),
    )
    right, guessed, wanted = Counter[str](), Counter[str](), Counter[str]()
    tokens = correct_tokens = 0
    for gold_tags, predicted_tags in rows:
        gold_spans, predicted_spans = spans(gold_tags), spans(predicted_tags)
        wanted.update(kind for _, _, kind in gold_spans)
        guessed.update(kind for _, _, kind in predicted_spans)
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
