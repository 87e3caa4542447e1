"""Exports of Label Studio as answers: JSON, and the short JSON-MIN.

Of the first, an entry has ``data`` and ``annotations``; of the second it is what stood in ``data``,
with the regions of one annotation under the name of the control. Regions are matched with tokens by
their place in the text: in code points, or in UTF-16 units, as older versions count.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from jaxseq.cli._active_rules import AnswerRules, Label, Refusals
from jaxseq.cli._label_studio import borders_of, text_of
from jaxseq.learn.active import Answer

NOT_REPEATED = re.compile(r"[BESLU](-.*)?")
"""Labels of chunk schemes that no two neighbours share: first, last and only tokens."""

Token = tuple[int, int]
"""Sentence and position."""


@dataclass(frozen=True)
class Region:
    """Characters ``start … end − 1`` of a text, the labels put on them, and what they read."""

    start: int
    end: int
    labels: list[str]
    text: str | None


def answers_of_export(
    tasks: Sequence[Any], path: str, rules: AnswerRules
) -> tuple[list[Answer], int]:
    """Read the tasks of an export.

    Args:
        tasks: entries of the export. path: what messages call it. rules: what answers must be.

    Returns:
        The answers, and how many tasks had none: not labelled, cancelled, or of a past round with
        the labels that are known since then, as a project of several rounds has them.

    Raises:
        ValueError: with the file and the tasks, for regions that do not fit the tokens, and for
            labels that contradict one another, or what is known from a past round.
    """
    found: dict[Token, Label] = {}
    skipped, refusals = 0, Refusals(path)
    for number, task in enumerate(tasks):
        with refusals.noted():
            place = _place(task, number, path)
            labels = _answered(task, place, rules)
            skipped += not labels
            for token, label in labels.items():
                _add(found, token, label, place, rules)
    refusals.tell()
    return [Answer(*token, label) for token, label in found.items()], skipped


def _answered(task: dict[str, Any], place: str, rules: AnswerRules) -> dict[Token, Label]:
    """The labels of one task of the round under way; none where it has no answer or is past."""
    data, annotations = _parts(task, place)
    if not any(annotations):
        return {}
    is_past = rules.is_past(data.get("round"), place)
    labels = _labels_of(data, annotations, place, rules)
    if is_past:
        _require_known(labels, data["round"], place, rules)
        return {}
    return labels


def _labels_of(
    data: dict[str, Any], annotations: list[list[Region]], place: str, rules: AnswerRules
) -> dict[Token, Label]:
    """The labels of one task, by sentence and position."""
    sentence = rules.sentence(data.get("sentence"), place)
    tokens = rules.corpora.words(sentence)
    if data.get("text") != text_of(tokens):
        raise ValueError(
            f"{place}: expected the text of sentence {sentence}, {text_of(tokens)!r:.80}, got "
            f"{data.get('text')!r:.80}"
        )
    found: dict[Token, Label] = {}
    for region in (r for regions in annotations for r in _in_code_points(regions, tokens)):
        label = rules.label(region.labels, place)
        label = label[0] if len(set(label)) == 1 else tuple(sorted(set(label)))
        for position in _positions(region, tokens, rules.classes, place):
            _add(found, (sentence, position), label, place, rules)
    return found


def _add(
    found: dict[Token, Label], token: Token, label: Label, place: str, rules: AnswerRules
) -> None:
    if found.setdefault(token, label) != label:
        raise ValueError(
            f"{place}: expected one label for {_in_words(token, rules)}, got {found[token]!r} and "
            f"{label!r}"
        )


def _require_known(labels: dict[Token, Label], number: int, place: str, rules: AnswerRules) -> None:
    """ValueError unless a task of a past round says what is known of its tokens already."""
    for token, label in labels.items():
        known = rules.known(*token)
        if label != known:
            before = "no label" if known is None else repr(known)
            raise ValueError(
                f"{place}: expected an answer of round {rules.round}, the one under way, or the "
                f"labels of a past one as they were taken in, got round {number} with {label!r} "
                f"for {_in_words(token, rules)}, which has {before}"
            )


def _in_words(token: Token, rules: AnswerRules) -> str:
    sentence, position = token
    return f"token {position + 1}, {rules.corpora.words(sentence)[position]!r}"


def _place(task: Any, number: int, path: str) -> str:
    if not isinstance(task, dict):
        raise ValueError(f"{path}, entry {number + 1}: expected a task, got {task!r:.60}")
    return f"{path}, task {task.get('id', number + 1)}"


# ------------------------------------------------------------------------------- two forms


def _parts(task: dict[str, Any], place: str) -> tuple[dict[str, Any], list[list[Region]]]:
    """What the task was about, and the regions of each annotation that counts."""
    data = task.get("data")
    if "annotations" not in task and data is None:  # JSON-MIN
        return task, [list(_regions(_shortened(task), place))]
    if not isinstance(data, dict) or not isinstance(task.get("annotations", []), list):
        raise ValueError(f"{place}: expected a task with 'data' and 'annotations'")
    done = []
    for annotation in task.get("annotations", []):
        if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
            raise ValueError(f"{place}: expected annotations with a 'result', a list")
        if not annotation.get("was_cancelled"):
            done.append(annotation)
    # An annotation that was declared the truth goes before the others.
    chosen = [annotation for annotation in done if annotation.get("ground_truth")] or done
    return data, [list(_regions(annotation["result"], place)) for annotation in chosen]


def _shortened(task: dict[str, Any]) -> list[Any]:
    """Regions of JSON-MIN, whatever the control is called."""
    return [
        {"type": "labels", "value": entry}
        for value in task.values()
        if isinstance(value, list)
        for entry in value
        if isinstance(entry, dict) and "labels" in entry
    ]


def _regions(results: list[Any], place: str) -> Iterator[Region]:
    for result in results:
        value = result.get("value") if isinstance(result, dict) else None
        if not isinstance(value, dict) or result.get("type", "labels") != "labels":
            continue  # of another control, which is nothing to us
        try:
            start, end, labels = int(value["start"]), int(value["end"]), list(value["labels"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError(
                f"{place}: expected a region with 'start', 'end' and 'labels', got {value!r:.80}"
            ) from None
        text = value.get("text")
        yield Region(start, end, labels, text if isinstance(text, str) else None)


# ---------------------------------------------------------------------------------- borders


def _positions(region: Region, tokens: Sequence[str], classes: Sequence[str], place: str) -> range:
    """The tokens of a region; ValueError unless it begins and ends where tokens do."""
    text = text_of(tokens)
    begin, end, borders = region.start, region.end, borders_of(tokens)
    first = bisect_right([e for _, e in borders], begin)
    last = bisect_left([b for b, _ in borders], end)  # the one after it
    inside = borders[first:last]
    within = inside and 0 <= begin <= inside[0][0] and inside[-1][1] <= end <= len(text)
    if not within or not _reads_right(region, text):
        raise ValueError(
            f"{place}: expected regions that begin and end where tokens do, got "
            f"{region.text or text[max(begin, 0) : end]!r:.60}, characters {region.start}–"
            f"{region.end} of {text!r:.120}"
        )
    for label in region.labels if len(inside) > 1 else []:
        typed = len(label) > 1 or "I" in classes
        if NOT_REPEATED.fullmatch(label) and typed:
            raise ValueError(
                f"{place}: expected a region of its own for each token labelled {label!r}, got one "
                f"for {len(inside)} tokens, {text[begin:end]!r:.80}"
            )
    return range(first, last)


def _reads_right(region: Region, text: str) -> bool:
    return region.text is None or region.text.strip() == text[region.start : region.end].strip()


def _in_code_points(regions: list[Region], tokens: Sequence[str]) -> list[Region]:
    """The regions of an annotation as they are, or, if they do not read right, from UTF-16."""
    text = text_of(tokens)
    if all(_reads_right(region, text) for region in regions):
        return regions
    units = list(accumulate((1 + (ord(c) > 0xFFFF) for c in text), initial=0))
    return [
        replace(r, start=bisect_left(units, r.start), end=bisect_left(units, r.end))
        for r in regions
    ]
