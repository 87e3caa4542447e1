"""Queries as tasks for Label Studio, and the labelling interface that goes with them.

Label Studio labels stretches of text. Words are joined by single spaces, and each token has a
region of its own, so that any token label, B-NP and I-NP too, comes back as it was given. What
says which token a region is of stands in ``data``, since the short export keeps only that.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from jaxseq.cli._active_questions import Question

CONTROL, TEXT = "label", "text"
"""Names of the parts of the interface: the labels, and what they are put on."""

HOTKEYS = "123456789abcdefghijklmnopqrstuvwxyz"
GOLDEN = 0.618033988749895
"""Steps of this size around a circle never come close to where they have been."""


def text_of(tokens: Sequence[str]) -> str:
    """The sentence as Label Studio shows it."""
    return " ".join(tokens)


def borders_of(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where each token begins and ends in `text_of`, in characters (code points).

    Example:
        >>> borders_of(["the", "dog"])
        [(0, 3), (4, 7)]
    """
    borders, place = [], 0
    for token in tokens:
        borders.append((place, place + len(token)))
        place += len(token) + 1
    return borders


def task_of(question: Question) -> dict[str, Any]:
    """A task: the sentence, the tokens that are asked, and the model's guess for each.

    Example:
        >>> asked = Question(2, 7, 1, 2, 0.4, ("the", "dog"), ("N",), (0.6,))
        >>> task = task_of(asked)
        >>> task["data"]["text"], task["data"]["question"]
        ('the dog', 'token 2 of 2: dog')
        >>> task["predictions"][0]["result"][0]["value"]
        {'start': 4, 'end': 7, 'text': 'dog', 'labels': ['N']}
    """
    place = {name: getattr(question, name) for name in ("round", "sentence", "start", "stop")}
    data = {
        "text": text_of(question.tokens),
        "tokens": list(question.tokens),
        "question": _in_words(question),
        **place,
    }
    return {"data": data, "meta": place, "predictions": _predictions(question)}


def _in_words(question: Question) -> str:
    first, last = question.start + 1, question.stop
    which = f"token {first}" if first == last else f"tokens {first}–{last}"
    return f"{which} of {len(question.tokens)}: {' '.join(question.words)}"


def _predictions(question: Question) -> list[dict[str, Any]]:
    borders = borders_of(question.tokens)
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
    """The interface to paste into a project: one label a class, each with a colour.

    Example:
        >>> print(labelling_config(["N"]))
        <View>
          <Header value="$question"/>
          <Labels name="label" toName="text">
            <Label value="N" background="#e65c5c" hotkey="1"/>
          </Labels>
          <Text name="text" value="$text"/>
        </View>
        <BLANKLINE>
    """
    lines = ["<View>", '  <Header value="$question"/>']
    lines.append(f'  <Labels name="{CONTROL}" toName="{TEXT}">')
    for number, label in enumerate(labels):
        key = f' hotkey="{HOTKEYS[number]}"' if number < len(HOTKEYS) else ""
        value = quoteattr(label)
        lines.append(f'    <Label value={value} background="{_colour(number)}"{key}/>')
    lines += ["  </Labels>", f'  <Text name="{TEXT}" value="$text"/>', "</View>", ""]
    return "\n".join(lines)


def _colour(number: int) -> str:
    red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.6, 0.9)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
