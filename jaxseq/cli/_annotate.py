"""``jaxseq active annotate``: label in the terminal, one key a label."""

from __future__ import annotations

import argparse
import codecs
import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from jaxseq.active import Answer
from jaxseq.cli._active_run import ActiveRun, line_on_training, opened, report_lines
from jaxseq.cli._questions import Question, ask_in_words

# The terminal annotator without the terminal: where it is, and what a key does.


KEYS = "123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SKIP, UNDO, QUIT = "s", "u", "q"


class Item(NamedTuple):
    """One token that is asked: which question it belongs to, and its place in the sentence."""

    question: Question
    position: int

    @property
    def guess(self) -> str | None:
        return self.question.guess[self.position - self.question.start]

    @property
    def confidence(self) -> float | None:
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
    """Where the annotator is in a round: at one of the tokens that are asked.

    `chosen` maps places to labels, and `trail` has the places that undo goes back to, the last one
    first to be gone to.
    """

    items: tuple[Item, ...]
    place: int = 0
    chosen: dict[int, str] = field(default_factory=dict)
    trail: tuple[int, ...] = ()

    @classmethod
    def of(cls, questions: Sequence[Question]) -> Session:
        """All tokens of the questions, one after another."""
        return cls(tuple(Item(q, t) for q in questions for t in range(q.start, q.stop)))

    @property
    def is_done(self) -> bool:
        return self.place >= len(self.items)

    @property
    def current(self) -> Item:
        return self.items[self.place]

    def chosen_in(self, question: Question) -> dict[int, str]:
        """Position → label that was chosen, for the tokens of a question."""
        return {
            self.items[place].position: label
            for place, label in self.chosen.items()
            if self.items[place].question == question
        }


def step(session: Session, event: Event) -> tuple[Session, Answer | Retraction | None, str]:
    """What an event other than "quit" does: the session after it, what to keep, what to tell.

    Undo takes back the label of the token that it goes back to.
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
    following = replace(following, chosen={**session.chosen, session.place: label})
    return following, Answer(item.question.sentence, item.position, label), ""


def _undo(session: Session) -> tuple[Session, Retraction | None, str]:
    if not session.trail:
        return session, None, "there is nothing to undo in this round"
    *trail, place = session.trail
    chosen = {p: label for p, label in session.chosen.items() if p != place}
    before = replace(session, place=place, trail=tuple(trail), chosen=chosen)
    if place not in session.chosen:
        return before, None, ""
    item = before.current
    message = f"{session.chosen[place]} is taken back"
    return before, Retraction(item.question.sentence, item.position), message


def assign_keys(labels: Sequence[str]) -> dict[str, str]:
    """Key → label, for as many labels as there are keys.

    A label that is a key itself, and not a command, has that key; so no key ever stands for
    another label than the one of that name.
    """
    # A label that is one letter keeps that key, whatever comes before it.
    own = {label for label in labels if label in KEYS and label and label not in COMMANDS}
    free = iter([key for key in KEYS if key not in COMMANDS and key not in own])
    keys: dict[str, str] = {}
    for label in labels:
        key = label if label in own else next(free, None)
        if key is not None:
            keys[key] = label
    return keys


def read_event(text: str, keys: dict[str, str], labels: Sequence[str]) -> Event | None:
    """What a key, or a line (empty for Enter), means; None for nothing."""
    if text == "":
        return Event("accept")
    if text in COMMANDS:
        return COMMANDS[text]
    if text in keys:
        return Event("choose", keys[text])
    return Event("choose", text) if text in labels else None


# The terminal of the annotator: keys in, text out.


try:
    import termios
    import tty
except ImportError:  # not on every system; there lines are read
    termios = tty = None

CONTEXT = 15  # words shown before and after those that are asked
END = "\x04"  # Ctrl-D

# What a terminal sends for an arrow, a function key and the like: its letters are no keys.
ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.)", re.DOTALL)
# The beginning of one, of which the rest is still to come.
ESCAPE_BEGUN = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")


@contextmanager
def keyboard(several: bool) -> Iterator[Keys | Lines]:
    """Keys of the terminal, without Enter; lines where it is none, or labels need several keys."""
    if termios is None or tty is None or several or not sys.stdin.isatty():
        yield Lines()
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # keys come without Enter, and Ctrl-C still interrupts
        yield Keys(descriptor)
    finally:
        # Also after an error, or the shell would echo nothing afterwards.
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Lines:
    """Reads lines of standard input in the place of keys."""

    def __call__(self) -> str | None:
        line = sys.stdin.readline()
        return line.strip() if line else None

    def forget(self) -> None:
        """Nothing: lines were written on purpose, whenever they came."""


class Keys:
    """Reads single keys from a terminal in cbreak mode."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._waiting: deque[str] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def __call__(self) -> str | None:
        """The next key, empty for Enter; None for Ctrl-D."""
        while not self._waiting:
            data = os.read(self._descriptor, 64)
            if not data:
                return None
            self._waiting.extend(self._without_escapes(self._decoder.decode(data)))
        key = self._waiting.popleft()
        return None if key == END else key.strip("\r\n")

    def _without_escapes(self, text: str) -> str:
        """The keys in what was read; an escape sequence may come in several pieces."""
        text = ESCAPE.sub("", self._begun + text)
        begun = ESCAPE_BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        return text[: len(text) - len(self._begun)].replace("\x1b", "")

    def forget(self) -> None:
        """Drop what was typed before anything was asked: it would accept what nobody has seen."""
        self._waiting.clear()
        self._decoder.reset()
        self._begun = ""
        if termios is not None:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)


def make_console(**settings: Any) -> Console:
    """Where the annotator writes: lines are broken between words on a terminal, not in files."""
    console = Console(highlight=False, markup=False, **settings)
    console.soft_wrap = not console.is_terminal
    return console


class Screen:
    def __init__(self, keys: dict[str, str], console: Console | None = None):
        self._keys = {label: key for key, label in keys.items()}
        self._console = console or make_console()

    def say(self, message: str) -> None:
        self._console.print(Text(message))

    def show(self, session: Session, labels: list[str]) -> None:
        """Show the token that is asked, in its sentence, and what may be said of it."""
        item = session.current
        question = item.question
        where = f"{session.place + 1} of {len(session.items)}, sentence {question.sentence}"
        self._console.print()
        self._console.print(Text(f"round {question.round}, token {where}", "dim"))
        self._console.print(sentence_line(session))
        if item.guess is not None and item.confidence is not None:
            self.say(f"guess {item.guess}, {item.confidence:.1%} sure; Enter accepts it")
        self._console.print(self._key_line(labels, item.guess))

    def _key_line(self, labels: list[str], offered: str | None) -> Text:
        line = Text()
        for label in labels:
            key = self._keys.get(label)
            shown = label if key in (None, label) else f"{key} {label}"
            line.append(shown, "bold reverse" if label == offered else "")
            line.append("   ")
        return line.append("s skips   u undoes   q quits", "dim")


def sentence_line(session: Session) -> Text:
    """The words around the token that is asked, which stands in brackets.

    Words of the same query are underlined, and those that have a label show it.
    """
    item = session.current
    question, chosen = item.question, session.chosen_in(item.question)
    first = max(0, min(question.start, item.position) - CONTEXT)
    last = min(len(question.tokens), item.position + 1 + CONTEXT)
    first = max(first, item.position - 2 * CONTEXT)
    line = Text("… " if first else "")
    for position in range(first, last):
        word = question.tokens[position]
        if position == item.position:
            line.append(f"[{word}]", "bold reverse")
        elif question.start <= position < question.stop:
            line.append(word, "underline")
            if position in chosen:
                line.append(f"/{chosen[position]}", "green")
        else:
            line.append(word)
        line.append(" ")
    line.append("…" if last < len(question.tokens) else "")
    line.rstrip()
    return line


# The loop of the terminal annotator: show a token, take a key, keep the answer.


@dataclass(eq=False)
class Annotator:
    """A person at a terminal.

    `kept` holds the sentence and the position of every token that was labelled, and is.
    """

    run: ActiveRun
    screen: Screen
    read_key: Keys | Lines
    keys: dict[str, str]
    kept: set[tuple[int, int]] = field(default_factory=set)

    def annotate(self) -> None:
        """Rounds, until the annotator quits or nothing is left to ask."""
        while True:
            self.run.learner.propose()
            # A round that is answered is not trained unasked: its last answer may be a slip.
            if not self.run.asked() and not self.run.next_queries(self.screen.say):
                self.screen.say(f"nothing to ask: {self.run.learner.status().why}")
                return
            if not self._label(self._open_session()):
                break
            self.screen.say("training")
            self.run.train()
            self.read_key.forget()  # keys typed during the training answer nothing
            self.screen.say(
                "\n".join([line_on_training(self.run), *report_lines(self.run.report())])
            )
        folder = self.run.folder
        self.screen.say(
            f"{len(self.kept)} answers kept; go on with jaxseq active annotate {folder}"
        )

    def _open_session(self) -> Session:
        """Of the round: tokens that were answered, so that undo reaches them, and the others."""
        run, session = self.run, Session.of(ask_in_words(self.run, self.run.asked()))
        items = {(item.question.sentence, item.position): item for item in session.items}
        done = [token for token in run.answered_now() if token in items]
        still = [token for token in items if run.label_at(*token) is None]
        labels = (run.label_at(*token) for token in done)
        return Session(
            tuple(items[token] for token in [*done, *still]),
            place=len(done),
            chosen={
                place: label if isinstance(label, str) else " or ".join(label or ())
                for place, label in enumerate(labels)
            },
            trail=tuple(range(len(done))),
        )

    def _label(self, session: Session) -> bool:
        """A round: whether to train at its end."""
        while True:
            if session.is_done:
                self.screen.say(f"\nthe round is done: {self._choices()}")
            else:
                self.screen.show(session, self.run.classes)
            text = self.read_key()
            event = None if text is None else read_event(text, self.keys, self.run.classes)
            if text is None or (event is not None and event.kind == "quit"):
                return False
            if event is None:
                self.screen.say(f"{text!r}: expected one of the keys or labels shown")
            elif session.is_done and event.kind == "accept":
                return self._has_new_labels()
            else:
                session = self._take(session, event)

    def _take(self, session: Session, event: Event) -> Session:
        following, answer, message = step(session, event)
        if isinstance(answer, Retraction):
            self.run.learner.retract([answer])
            self.kept.discard((answer.sentence, answer.position))
        elif answer is not None:
            try:
                self.run.learner.answer([answer])
            except ValueError as error:  # a label that the scheme does not allow there
                self.screen.say(str(error))
                return session
            self.kept.add((answer.sentence, answer.position))  # it is on the disk
        if message:
            self.screen.say(message)
        return following

    def _choices(self) -> str:
        if self._has_new_labels():
            return "Enter trains and goes on, u undoes, q quits"
        return "every token was skipped, there is nothing to learn; u undoes, Enter or q quits"

    def _has_new_labels(self) -> bool:
        return any(
            self.run.label_at(query.sentence, position) is not None
            for query in self.run.asked()
            for position in range(query.start, query.stop)
        )


def add_annotate(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "annotate",
        help="label in the terminal, one key a label",
        description="Show one token after another that the model asks about, with its guess, and "
        "take a key for its label: Enter accepts the guess, s skips, u undoes, q quits. Every "
        "answer is kept at once; at the end of a round the model is trained, and the next round "
        "begins. Where standard input is no terminal a line is read for a key.",
    )
    parser.add_argument("folder", metavar="DIR", help="of jaxseq active start")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with opened(options.folder) as run:
        keys = assign_keys(run.classes)
        with keyboard(several=len(keys) < len(run.classes)) as read_key:
            annotator = Annotator(run, Screen(keys), read_key, keys)
            annotator.annotate()
    return 0
