"""Queries as questions to annotators, and their answers: as JSON lines, and for Label Studio."""

from __future__ import annotations

import colorsys
import json
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

from jaxseq.active import Answer
from jaxseq.cli._active_run import ActiveRun, Corpora

if TYPE_CHECKING:
    from jaxseq.active import Query


@dataclass(frozen=True)
class Question:
    """A query in words: a guess and its confidence are None where there is none."""

    round: int
    sentence: int
    start: int
    stop: int
    score: float
    tokens: tuple[str, ...]
    guess: tuple[str | None, ...]
    confidence: tuple[float | None, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return self.tokens[self.start : self.stop]

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.place,
            "words": list(self.words),
            "guess": list(self.guess),
            "confidence": list(self.confidence),
            "score": self.score,
            "tokens": list(self.tokens),
        }

    @property
    def place(self) -> dict[str, int]:
        """Which tokens are asked about, and in which round."""
        return {name: getattr(self, name) for name in ("round", "sentence", "start", "stop")}


def ask_in_words(run: ActiveRun, queries: Sequence[Query]) -> list[Question]:
    """The queries in words, in the same order."""
    look = run.learner.look() if run.has_model else None
    lengths = run.state.pool.lengths
    starts = np.cumsum(lengths) - lengths
    questions = []
    for query in queries:
        guess = confidence = (None,) * (query.stop - query.start)
        if look is not None:
            begin = int(starts[query.sentence])
            inside = slice(begin + query.start, begin + query.stop)
            labels, sure = look.labels[inside].tolist(), look.confidence[inside].tolist()
            guess = tuple(None if k < 0 else run.classes[k] for k in labels)
            # Rounded: more digits differ from machine to machine.
            confidence = tuple(None if k < 0 else round(p, 6) for k, p in zip(labels, sure))
        words = run.corpora.words(query.sentence)
        questions.append(Question(run.round, *query, words, guess, confidence))
    return questions


Label = str | tuple[str, ...]
MOST_LISTED = 30  # labels that a message lists
MOST_REFUSED = 10  # entries of a file that a message lists


@dataclass
class Refusals:
    """What is wrong with the entries of a file, to be told at once."""

    path: str
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a ValueError, and go on with the next entry."""
        try:
            yield
        except ValueError as error:
            self.errors.append(str(error))

    def tell(self) -> None:
        """ValueError if there were any; of several, the first are written to standard error."""
        if len(self.errors) == 1:
            raise ValueError(self.errors[0])
        if self.errors:
            more = len(self.errors) - MOST_REFUSED
            listed = self.errors[:MOST_REFUSED] + ([f"and {more:,} more"] if more > 0 else [])
            print(*listed, sep="\n", file=sys.stderr)
            raise ValueError(
                f"{self.path}: expected legal answers, got {len(self.errors):,} entries that are "
                "not, as listed; none is taken in"
            )


@dataclass(frozen=True)
class AnswerRules:
    """Checks the parts of an answer; each check gives the part back, or a ValueError.

    `known` maps a sentence and a position to the label taken in already, None for none.
    """

    round: int
    corpora: Corpora
    classes: Sequence[str]
    known: Callable[[int, int], Label | None] = lambda sentence, position: None

    def check_round(self, value: Any, place: str) -> None:
        number = self._number("round", value, None, place)
        if number != self.round:
            raise ValueError(
                f"{place}: expected an answer of round {self.round}, the one under way, got "
                f"round {number}"
            )

    def is_past(self, value: Any, place: str) -> bool:
        """Whether it is a round that is over, and not the one under way."""
        if self._number("round", value, None, place) < self.round:
            return True
        self.check_round(value, place)
        return False

    def sentence(self, value: Any, place: str) -> int:
        return self._number("sentence", value, len(self.corpora.pool), place)

    def position(self, value: Any, sentence: int, place: str, name: str = "position") -> int:
        return self._number(name, value, len(self.corpora.words(sentence)), place)

    def token_in_words(self, token: tuple[int, int]) -> str:
        """A token as messages call it."""
        sentence, position = token
        return f"token {position + 1}, {self.corpora.words(sentence)[position]!r}"

    def label(self, value: Any, place: str) -> Label:
        """A label, or several possible ones."""
        if isinstance(value, str):
            return self._known(value, place)
        if not isinstance(value, list) or not value:
            raise ValueError(f"{place}: expected a label, or a list of some, got {value!r:.60}")
        return tuple(self._known(label, place) for label in value)

    def _known(self, label: Any, place: str) -> str:
        if label not in self.classes:
            listed = ", ".join(self.classes[:MOST_LISTED])
            more = ", …" if len(self.classes) > MOST_LISTED else ""
            raise ValueError(
                f"{place}: expected a label, one of {listed}{more}; got {label!r:.60} (jaxseq "
                "active labels --add adds labels)"
            )
        return label

    @staticmethod
    def _number(name: str, value: Any, below: int | None, place: str) -> int:
        sound = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not sound or (below is not None and value >= below):
            wanted = "0 or more" if below is None else f"0 … {below - 1}"
            raise ValueError(
                f"{place}: expected {name!r}, a whole number, {wanted}, got {value!r:.60}"
            )
        return value


def read_answers(lines: list[str], path: str, run: ActiveRun) -> tuple[list[Answer], int]:
    """The answers of a file in either form, at least one, and how many entries had none."""
    rules = AnswerRules(run.round, run.corpora, run.classes, run.label_at)
    text = "\n".join(lines)
    if text.lstrip().startswith("["):
        answers, skipped = read_export(_parsed(text, path), path, rules)
    else:
        answers, skipped = read_lines(lines, path, rules)
    if not answers:
        entries = f"{skipped} entries without one" if skipped else "nothing"
        raise ValueError(f"{path}: expected at least one answer, found {entries}")
    return answers, skipped


def _parsed(text: str, path: str) -> list[Any]:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: expected JSON, got {error.msg}") from error
    except RecursionError:
        raise ValueError(f"{path}: expected an export of Label Studio, got JSON too deep") from None


def read_lines(lines: Iterable[str], path: str, rules: AnswerRules) -> tuple[list[Answer], int]:
    """Read answers, one JSON object per line; and how many lines had none.

    Either one token, ``{"round", "sentence", "position", "label"}``, or neighbours, ``{"round",
    "sentence", "start", "labels"}``: a line of ``queries.jsonl`` with ``"labels"`` added is one.
    A label may be a list of possible ones, and None among the labels is no answer.
    """
    answers: list[Answer] = []
    skipped, refusals = 0, Refusals(path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        with refusals.noted():
            read = _read_line(line, f"{path}:{number}", rules)
            answers += read
            skipped += not read
    refusals.tell()  # all at once: who wrote the file mends it once
    return answers, skipped


def _read_line(line: str, place: str, rules: AnswerRules) -> list[Answer]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: expected a JSON object, got {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{place}: expected a JSON object, got {line!r:.60}")
    rules.check_round(row.get("round"), place)
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


# Label Studio labels stretches of text. Words are joined by single spaces, and each token has a
# region of its own, so that any token label, B-NP and I-NP too, comes back as it was given. What
# says which token a region is of stands in ``data``, since the short export keeps only that.
CONTROL, TEXT = "label", "text"  # the parts of the interface: the labels, and what they are put on
HOTKEYS = "123456789abcdefghijklmnopqrstuvwxyz"
GOLDEN = 0.618033988749895  # such steps around a circle never come close to where they have been


def token_borders(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where each token begins and ends in the joined text, in characters (code points).

    Example:
        >>> token_borders(["the", "dog"])
        [(0, 3), (4, 7)]
    """
    borders, place = [], 0
    for token in tokens:
        borders.append((place, place + len(token)))
        place += len(token) + 1
    return borders


def as_task(question: Question) -> dict[str, Any]:
    """A task: the sentence, the tokens that are asked, and the model's guess for each."""
    first, last, place = question.start + 1, question.stop, question.place
    which = f"token {first}" if first == last else f"tokens {first}–{last}"
    data = {
        "text": " ".join(question.tokens),
        "tokens": list(question.tokens),
        "question": f"{which} of {len(question.tokens)}: {' '.join(question.words)}",
        **place,
    }
    return {"data": data, "meta": place, "predictions": _predictions(question)}


def _predictions(question: Question) -> list[dict[str, Any]]:
    borders = token_borders(question.tokens)
    regions = []
    rows = zip(range(question.start, question.stop), question.guess, question.confidence)
    for position, guess, confidence in rows:
        if guess is None:
            continue
        begin, end = borders[position]
        value = {"start": begin, "end": end, "text": question.tokens[position], "labels": [guess]}
        regions.append(
            {
                "id": f"{question.round}-{question.sentence}-{position}",
                "from_name": CONTROL,
                "to_name": TEXT,
                "type": "labels",
                "value": value,
                "score": confidence,
            }
        )
    if not regions:
        return []
    least = min(region["score"] for region in regions)
    return [{"model_version": f"round-{question.round:03}", "score": least, "result": regions}]


def labelling_config(labels: Sequence[str]) -> str:
    """The interface to paste into a project: one label per class, each with a colour."""
    lines = ["<View>", '  <Header value="$question"/>']
    lines.append(f'  <Labels name="{CONTROL}" toName="{TEXT}">')
    for number, label in enumerate(labels):
        # Labels beyond the keys are chosen with the mouse.
        key = f' hotkey="{HOTKEYS[number]}"' if number < len(HOTKEYS) else ""
        value = quoteattr(label)
        lines.append(f'    <Label value={value} background="{_colour(number)}"{key}/>')
    lines += ["  </Labels>", f'  <Text name="{TEXT}" value="$text"/>', "</View>", ""]
    return "\n".join(lines)


def _colour(number: int) -> str:
    red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.6, 0.9)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


# Exports are JSON, of which an entry has ``data`` and ``annotations``, or the short JSON-MIN, which
# is what stood in ``data``, with the regions of one annotation under the name of the control.
# Labels of chunk schemes that no two neighbours share: first, last and only tokens.
NOT_REPEATED = re.compile(r"[BESLU](-.*)?")
Token = tuple[int, int]  # sentence and position


@dataclass(frozen=True)
class Region:
    """Characters ``start … end − 1`` of a text, the labels put on them, and what they read."""

    start: int
    end: int
    labels: list[str]
    text: str | None


def read_export(tasks: Sequence[Any], path: str, rules: AnswerRules) -> tuple[list[Answer], int]:
    """Read the tasks of an export; and how many had no answer.

    Those are not labelled, cancelled, or of a past round with the labels that are known since
    then, as a project of several rounds has them. ValueError, with all refused tasks, for regions
    that do not fit the tokens, and labels that contradict one another or what is known.
    """
    answers: dict[Token, Label] = {}
    skipped, refusals = 0, Refusals(path)
    for number, task in enumerate(tasks):
        with refusals.noted():
            if not isinstance(task, dict):
                raise ValueError(f"{path}, entry {number + 1}: expected a task, got {task!r:.60}")
            place = f"{path}, task {task.get('id', number + 1)}"
            labels = _read_task(task, place, rules)
            skipped += not labels
            for token, label in labels.items():
                _add(answers, token, label, place, rules)
    refusals.tell()
    return [Answer(*token, label) for token, label in answers.items()], skipped


def _read_task(task: dict[str, Any], place: str, rules: AnswerRules) -> dict[Token, Label]:
    """The labels of one task of the round under way; none where it has no answer or is past."""
    data, annotations = _parts(task, place)
    if not any(annotations):
        return {}
    is_past = rules.is_past(data.get("round"), place)
    sentence = rules.sentence(data.get("sentence"), place)
    tokens = rules.corpora.words(sentence)
    if data.get("text") != " ".join(tokens):
        raise ValueError(
            f"{place}: expected the text of sentence {sentence}, {' '.join(tokens)!r:.80}, got "
            f"{data.get('text')!r:.80}"
        )
    labels: dict[Token, Label] = {}
    for region in (r for regions in annotations for r in _in_code_points(regions, tokens)):
        label = rules.label(region.labels, place)
        label = label[0] if len(set(label)) == 1 else tuple(sorted(set(label)))
        for position in _positions(region, tokens, rules.classes, place):
            _add(labels, (sentence, position), label, place, rules)
    if is_past:  # of an export of several rounds
        _require_known(labels, data["round"], place, rules)
        return {}
    return labels


def _add(
    labels: dict[Token, Label], token: Token, label: Label, place: str, rules: AnswerRules
) -> None:
    if labels.setdefault(token, label) != label:
        raise ValueError(
            f"{place}: expected one label for {rules.token_in_words(token)}, got "
            f"{labels[token]!r} and {label!r}"
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
                f"for {rules.token_in_words(token)}, which has {before}"
            )


def _parts(task: dict[str, Any], place: str) -> tuple[dict[str, Any], list[list[Region]]]:
    """What the task was about, and the regions of each annotation that counts."""
    data = task.get("data")
    if "annotations" not in task and data is None:  # JSON-MIN
        # All regions, whatever the control is called.
        lists = (value for value in task.values() if isinstance(value, list))
        entries = [e for entries in lists for e in entries if isinstance(e, dict) and "labels" in e]
        return task, [list(_regions([{"value": entry} for entry in entries], place))]
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


def _positions(region: Region, tokens: Sequence[str], classes: Sequence[str], place: str) -> range:
    """The tokens of a region; ValueError unless it begins and ends where tokens do."""
    text = " ".join(tokens)
    begin, end, borders = region.start, region.end, token_borders(tokens)
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
    if region.text is None:
        return True
    # Beyond the end a slice would be cut short, and a place in UTF-16 could read right by that.
    inside = region.end <= len(text)
    return inside and region.text.strip() == text[region.start : region.end].strip()


def _in_code_points(regions: list[Region], tokens: Sequence[str]) -> list[Region]:
    """The regions of an annotation as they are, or, if they do not read right, from UTF-16."""
    text = " ".join(tokens)
    if all(_reads_right(region, text) for region in regions):
        return regions
    # Older versions count UTF-16 units, of which characters beyond the first plane have two.
    units = list(accumulate((1 + (ord(c) > 0xFFFF) for c in text), initial=0))
    return [
        replace(r, start=bisect_left(units, r.start), end=bisect_left(units, r.end))
        for r in regions
    ]
