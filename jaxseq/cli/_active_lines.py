"""Answers in JSON lines, as programs write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jaxseq.cli._active_rules import AnswerRules, Refusals
from jaxseq.learn.active import Answer


def answers_of_lines(
    lines: Iterable[str], path: str, rules: AnswerRules
) -> tuple[list[Answer], int]:
    """Read answers, a JSON object a line.

    Either one token, ``{"round", "sentence", "position", "label"}``, or neighbours, ``{"round",
    "sentence", "start", "labels"}``: a line of ``queries.jsonl`` with ``"labels"`` added is one.
    A label may be a list of possible ones, and None among the labels is no answer.

    Args:
        lines: of the file. path: what messages call it. rules: what answers must be.

    Returns:
        The answers, and how many lines had none: those of ``queries.jsonl`` as they are.

    Raises:
        ValueError: with the file and the line, for all lines that are something else.

    Example:
        >>> from jaxseq.cli._active_files import Corpora
        >>> from jaxseq.text import Sentence
        >>> rules = AnswerRules(2, Corpora([Sentence({"word": ["a", "b"]})], [], [], {}), ["N"])
        >>> answers_of_lines(['{"round": 2, "sentence": 0, "position": 1, "label": "N"}'], "f", rules)
        ([Answer(sentence=0, position=1, label='N')], 0)
    """  # noqa: E501 - a line of the example
    answers: list[Answer] = []
    skipped, refusals = 0, Refusals(path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        with refusals.noted():
            found = _answers_of(line, f"{path}:{number}", rules)
            answers += found
            skipped += not found
    refusals.tell()
    return answers, skipped


def _answers_of(line: str, place: str, rules: AnswerRules) -> list[Answer]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: expected a JSON object, got {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{place}: expected a JSON object, got {line!r:.60}")
    rules.round_of(row.get("round"), place)
    sentence = rules.sentence(row.get("sentence"), place)
    if "label" in row and "labels" in row:
        raise ValueError(f"{place}: expected 'label' or 'labels', got both")
    if "label" in row:
        position = rules.position(row.get("position"), sentence, place)
        return [Answer(sentence, position, rules.label(row["label"], place))]
    if "labels" in row:
        return _neighbours(row, sentence, place, rules)
    if "guess" in row:  # a query that nobody has answered
        return []
    raise ValueError(f"{place}: expected 'label' with 'position', or 'labels' with 'start'")


def _neighbours(row: dict[str, Any], sentence: int, place: str, rules: AnswerRules) -> list[Answer]:
    start, labels = rules.position(row.get("start"), sentence, place, "start"), row["labels"]
    if not isinstance(labels, list):
        raise ValueError(f"{place}: expected 'labels', a list, got {labels!r:.60}")
    words = rules.corpora.words(sentence)
    most = row.get("stop", len(words))
    if start + len(labels) > len(words) or ("stop" in row and start + len(labels) != most):
        raise ValueError(
            f"{place}: expected labels for tokens {start} … {most} − 1 of sentence {sentence}, got "
            f"{len(labels)}"
        )
    if "words" in row and row["words"] != list(words[start : start + len(labels)]):
        raise ValueError(
            f"{place}: expected the words of sentence {sentence} from {start} on, "
            f"{' '.join(words[start : start + len(labels)])!r}, got {row['words']!r:.80}"
        )
    return [
        Answer(sentence, start + offset, rules.label(label, place))
        for offset, label in enumerate(labels)
        if label is not None
    ]
