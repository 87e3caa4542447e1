"""The terminal annotator without the terminal: where it is, and what a key does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from jaxseq.cli._active_questions import Question
from jaxseq.learn.active import Answer

KEYS = "123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SKIP, UNDO, QUIT = "s", "u", "q"


class Item(NamedTuple):
    """One token that is asked: which question it belongs to, and its place in the sentence."""

    question: Question
    position: int

    @property
    def guess(self) -> str | None:
        """The model's label of it."""
        return self.question.guess[self.position - self.question.start]

    @property
    def confidence(self) -> float | None:
        """The probability of the guess."""
        return self.question.confidence[self.position - self.question.start]


class Retraction(NamedTuple):
    """Of the label of a token: the opposite of an answer."""

    sentence: int
    position: int


class Event(NamedTuple):
    """What the annotator wants: to accept, choose a label, skip, undo, or quit."""

    kind: Literal["accept", "choose", "skip", "undo", "quit"]
    label: str | None = None


COMMANDS = {SKIP: Event("skip"), UNDO: Event("undo"), QUIT: Event("quit")}


@dataclass(frozen=True)
class Session:
    """Where the annotator is in a round.

    Args:
        items: tokens that are asked, in order.
        place: the one shown; the number of items when all are done.
        given: place → its label.
        trail: places that undo goes back to, the last one first to be gone to.

    Example:
        >>> asked = Question(0, 0, 0, 1, 0.4, ("dog",), ("N",), (0.6,))
        >>> session, answer, _ = step(Session.of([asked]), Event("accept"))
        >>> answer, session.is_done
        (Answer(sentence=0, position=0, label='N'), True)
    """

    items: tuple[Item, ...]
    place: int = 0
    given: dict[int, str] = field(default_factory=dict)
    trail: tuple[int, ...] = ()

    @classmethod
    def of(cls, questions: Sequence[Question]) -> Session:
        """All tokens of the questions, one after another."""
        return cls(tuple(Item(q, t) for q in questions for t in range(q.start, q.stop)))

    @property
    def is_done(self) -> bool:
        """Whether there is no token left to show."""
        return self.place >= len(self.items)

    @property
    def current(self) -> Item:
        """The token that is shown."""
        return self.items[self.place]

    def labels_of(self, question: Question) -> dict[int, str]:
        """Position → label that was given, for the tokens of a question."""
        return {
            self.items[place].position: label
            for place, label in self.given.items()
            if self.items[place].question == question
        }


def step(session: Session, event: Event) -> tuple[Session, Answer | Retraction | None, str]:
    """What an event does.

    Args:
        session: before. event: anything but "quit".

    Returns:
        The session after it, an answer to keep or to take back, or None, and what to tell, mostly
        nothing. Undo takes back the label of the token that it goes back to.
    """
    if event.kind == "undo":
        return _undo(session)
    if session.is_done:
        return session, None, "all tokens of this round are done"
    following = replace(session, place=session.place + 1, trail=(*session.trail, session.place))
    if event.kind == "skip":
        return following, None, ""
    item = session.current
    label = item.guess if event.kind == "accept" else event.label
    if label is None:
        return session, None, "there is no guess to accept yet: choose a label"
    following = replace(following, given={**session.given, session.place: label})
    return following, Answer(item.question.sentence, item.position, label), ""


def _undo(session: Session) -> tuple[Session, Retraction | None, str]:
    if not session.trail:
        return session, None, "there is nothing to undo in this round"
    *trail, place = session.trail
    given = {other: label for other, label in session.given.items() if other != place}
    before = replace(session, place=place, trail=tuple(trail), given=given)
    if place not in session.given:
        return before, None, ""
    item = before.current
    message = f"{session.given[place]} is taken back"
    return before, Retraction(item.question.sentence, item.position), message


def assign_keys(labels: Sequence[str]) -> dict[str, str]:
    """Key → label, for as many labels as there are keys.

    A label that is a key itself, and not a command, has that key; so no key ever stands for
    another label than the one of that name.

    Example:
        >>> assign_keys(["B-NP", "N", "O"])
        {'1': 'B-NP', 'N': 'N', 'O': 'O'}
    """
    own = {label for label in labels if label in KEYS and label and label not in COMMANDS}
    free = iter([key for key in KEYS if key not in COMMANDS and key not in own])
    keys: dict[str, str] = {}
    for label in labels:
        key = label if label in own else next(free, None)
        if key is not None:
            keys[key] = label
    return keys


def event_of(text: str, keys: dict[str, str], labels: Sequence[str]) -> Event | None:
    """What a key, or a line, means; None for nothing.

    Args:
        text: the key, or the line; empty for Enter. Lines may also be labels in full.
        keys: of `assign_keys`. labels: all labels.
    """
    if text == "":
        return Event("accept")
    if text in COMMANDS:
        return COMMANDS[text]
    if text in keys:
        return Event("choose", keys[text])
    return Event("choose", text) if text in labels else None
