"""The terminal of the annotator: keys in, text out."""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from jaxseq.cli._annotate_state import Session

try:
    import termios
    import tty
except ImportError:  # not on every system; there lines are read
    termios = tty = None

CONTEXT = 15
"""Words shown before and after those that are asked."""

END = "\x04"
"""Ctrl-D."""

ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.)", re.DOTALL)
"""What a terminal sends for an arrow, a function key and the like: its letters are no keys."""

ESCAPE_BEGUN = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")
"""The beginning of one, of which the rest is still to come."""


@contextmanager
def keyboard(several: bool) -> Iterator[Keys | Lines]:
    """Keys of the terminal, without Enter; lines where standard input is none.

    Args:
        several: whether a label may need more than one key; then lines are read.
    """
    if termios is None or tty is None or several or not sys.stdin.isatty():
        yield Lines()
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Lines:
    """Reads lines of standard input in the place of keys."""

    def __call__(self) -> str | None:
        """The next line, empty for Enter; None at the end of the input."""
        line = sys.stdin.readline()
        return line.strip() if line else None

    def forget(self) -> None:
        """Nothing: lines were written on purpose, whenever they came."""


class Keys:
    """Reads single keys from a terminal in cbreak mode.

    Args:
        descriptor: of the terminal.
    """

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
    """Where the annotator writes: lines are broken between words on a terminal, and not in files.

    Args:
        settings: of `rich.console.Console`; standard output by default.
    """
    console = Console(highlight=False, markup=False, **settings)
    console.soft_wrap = not console.is_terminal
    return console


class Screen:
    """Shows tokens and messages.

    Args:
        keys: of `assign_keys`. console: of `make_console`; standard output by default.
    """

    def __init__(self, keys: dict[str, str], console: Console | None = None):
        self._keys = {label: key for key, label in keys.items()}
        self._console = console or make_console()

    def say(self, message: str) -> None:
        """Show a message."""
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

    Example:
        >>> from jaxseq.cli._active_questions import Question
        >>> asked = Question(0, 0, 1, 2, 0.4, ("the", "dog", "barks"), ("N",), (0.6,))
        >>> print(sentence_line(Session.of([asked])))
        the [dog] barks
    """
    item = session.current
    question, given = item.question, session.labels_of(item.question)
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
            if position in given:
                line.append(f"/{given[position]}", "green")
        else:
            line.append(word)
        line.append(" ")
    line.append("…" if last < len(question.tokens) else "")
    line.rstrip()
    return line
