"""Rules of a file of constraints: each kind with its keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from jaxseq.constraints._fields import AtMostOnce, Count, EndsWith, FieldLength, MustAppear, Order
from jaxseq.constraints._file_table import Table, read_text, shown
from jaxseq.constraints._local import OnlyOn, Side, StartsWith, TransitionsOnlyOn, WordsImply
from jaxseq.constraints._rules import Rule
from jaxseq.constraints._tokens import PUNCTUATION, Tokens

TOKENS = ("words", "words_from", "pattern", "punctuation")
"""Keys that say which tokens; one or more of them."""

MORE_ON_TOKENS = ("ignore_case", "column")
BOUNDS = ("at_least", "at_most")
OF_ALL = ("kind", "name", "penalty", "probability")


class Kind(NamedTuple):
    """A kind of constraint.

    build: the rule of its arguments. required: keys that must be there. one_of: keys of which one
    must be. optional: other keys.
    """

    build: Callable[..., Rule]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that a constraint of this kind may have."""
        return (*OF_ALL, *self.required, *self.one_of, *self.optional)

    @property
    def has_tokens(self) -> bool:
        """Whether the rule is about certain tokens."""
        return "column" in self.keys


KINDS = {
    "words_imply": Kind(WordsImply, ("labels",), TOKENS, MORE_ON_TOKENS),
    "only_on": Kind(OnlyOn, ("labels",), TOKENS, MORE_ON_TOKENS),
    "transitions_only_on": Kind(TransitionsOnlyOn, (), (), (*TOKENS, *MORE_ON_TOKENS, "side")),
    "starts_with": Kind(StartsWith, ("labels",)),
    "ends_with": Kind(EndsWith, ("labels",)),
    "at_most_once": Kind(AtMostOnce, (), (), ("labels",)),
    "must_appear": Kind(MustAppear, ("labels",)),
    "order": Kind(Order, ("labels",)),
    "field_length": Kind(FieldLength, (), BOUNDS, ("labels",)),
    "count": Kind(Count, ("labels",), BOUNDS, ("unit",)),
}
"""Every kind of constraint that a file can name."""


def rule_of(table: Table) -> tuple[str, Rule]:
    """The kind and the rule that a table of a file describes.

    Raises:
        ValueError: with the file and the line, for whatever is wrong.

    Example:
        >>> from jaxseq.constraints._file_table import Located
        >>> items = {"kind": Located("starts_with", 2), "labels": Located(["A"], 3)}
        >>> rule_of(Table("rules.toml", 1, items))
        ('starts_with', StartsWith(labels=('A',)))
    """
    if "kind" not in table:
        raise table.wrong("kind", f"expected one of {', '.join(KINDS)}, got none")
    name = table.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        raise table.wrong("kind", f"expected one of {', '.join(KINDS)}, got {shown(name)}")
    kind = KINDS[name]
    check_keys(table, kind.keys, f"a constraint of kind {name}")
    for key in kind.required:
        if key not in table:
            raise table.wrong(None, f"expected the key {key} in a constraint of kind {name}")
    if kind.one_of and not any(key in table for key in kind.one_of):
        listed = " or ".join(kind.one_of)
        raise table.wrong(None, f"expected the key {listed} in a constraint of kind {name}")
    arguments = {key: CHECKS[key](table, key) for key in CHECKS if key in table}
    if kind.has_tokens and any(key in table for key in (*TOKENS, *MORE_ON_TOKENS)):
        arguments["tokens"] = _tokens(table)
    try:
        return name, kind.build(**arguments)
    except ValueError as error:
        raise _at_its_key(table, error) from None


def check_keys(table: Table, known: tuple[str, ...], where: str) -> None:
    """ValueError for a key that means nothing."""
    for key in table.items:
        if key not in known:
            listed = ", ".join(known)
            raise table.wrong(key, f"expected one of the keys of {where} ({listed}), got another")


def _at_its_key(table: Table, error: ValueError) -> ValueError:
    """The error of a rule, which begins with the name of its argument, at the line of that."""
    key, _, problem = str(error).partition(": ")
    return table.wrong(key, problem) if key in table else table.wrong(None, str(error))


# ------------------------------------------------------------------------------------ arguments


def _labels(table: Table, key: str) -> tuple[str, ...]:
    found = _strings(table, key)
    if table.get("kind") == "order" and len(set(found)) < 2:
        raise table.wrong(key, f"expected two or more in their order, got {shown(list(found))}")
    return found


def _strings(table: Table, key: str) -> tuple[str, ...]:
    value = table.get(key)
    if not isinstance(value, list) or not value or isinstance(value[0], Table):
        raise table.wrong(key, f"expected a list of one or more strings, got {shown(value)}")
    for item in value:
        if not isinstance(item, str):
            raise table.wrong(key, f"expected strings, got {shown(item)} (quotes make it one)")
    return tuple(value)


def string_of(table: Table, key: str) -> str:
    """The value of a key that must be a string with something in it."""
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise table.wrong(key, f"expected a string, got {shown(value)}")
    return value


def _boolean(table: Table, key: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise table.wrong(key, f"expected true or false, got {shown(value)}")
    return value


def _whole(table: Table, key: str) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise table.wrong(key, f"expected a whole number, got {shown(value)}")
    return value


def _one_of(table: Table, key: str, choices: tuple[str, ...]) -> str:
    value = table.get(key)
    if value not in choices:
        raise table.wrong(key, f"expected one of {', '.join(choices)}, got {shown(value)}")
    return value


CHECKS: dict[str, Callable[[Table, str], Any]] = {
    "labels": _labels,
    "side": partial(_one_of, choices=get_args(Side)),
    "at_least": _whole,
    "at_most": _whole,
    "unit": partial(_one_of, choices=("words", "fields")),
}
"""Key → its value as the rule's argument of the same name; those about tokens are apart."""


# --------------------------------------------------------------------------------------- tokens


def _tokens(table: Table) -> Tokens:
    """The tokens that a table is about; punctuation marks where it does not say."""
    words = _strings(table, "words") if "words" in table else ()
    if "words_from" in table:
        words += _words_from(table)
    pattern = string_of(table, "pattern") if "pattern" in table else None
    punctuation = "punctuation" in table and _boolean(table, "punctuation")
    if punctuation and pattern is not None:
        raise table.wrong("punctuation", "expected no pattern along with it, got both")
    if punctuation or not any(key in table for key in TOKENS):
        pattern = PUNCTUATION
    if not words and pattern is None:
        raise table.wrong("punctuation", "expected true, or words or a pattern too, got false")
    more: dict[str, Any] = {}
    if "ignore_case" in table:
        more["ignore_case"] = _boolean(table, "ignore_case")
    if "column" in table:
        more["column"] = string_of(table, "column")
    try:
        return Tokens(words, pattern, **more)
    except ValueError as error:
        raise _at_its_key(table, error) from None


def _words_from(table: Table) -> tuple[str, ...]:
    """The words of another file, one a line; its name is relative to that of the constraints."""
    name = os.path.join(os.path.dirname(table.path), string_of(table, "words_from"))
    try:
        text = read_text(Path(name), name)
    except ValueError as error:
        raise table.wrong("words_from", str(error)) from None
    except OSError as error:
        raise table.wrong("words_from", f"{name}: cannot be read: {error.strerror}") from None
    words = tuple(word for word in map(str.strip, text.split("\n")) if word)
    if not words:
        raise table.wrong("words_from", f"expected a word a line, found none in {name}")
    return words
