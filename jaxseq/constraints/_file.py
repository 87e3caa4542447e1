"""Constraint files: rules and penalties in TOML, for people who do not want to write a program."""

from __future__ import annotations

import itertools
import math
import os
import re
import reprlib
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from jaxseq.constraints import _rules
from jaxseq.constraints._constraint import (
    PUNCTUATION,
    Constraints,
    Labels,
    Penalised,
    Rule,
    Scheme,
    Words,
    bind_constraints,
)

__all__ = ["ConstraintFile", "read_constraints"]

WORDS = ("words", "words_from", "pattern", "punctuation")
"""Keys that say which tokens a rule is about; one or more of them."""

WORD_OPTIONS = ("ignore_case", "column")
BOUNDS = ("at_least", "at_most")
COMMON_KEYS = ("kind", "name", "penalty", "probability")  # of a constraint of any kind
FILE_KEYS = ("scheme", "penalty", "probability", "constraint")


LONG_KEY = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")
"""A key of more parts than any has. For each part, tomllib looks at all those before it."""


class Kind(NamedTuple):
    """A kind of constraint that a file can name: its rule and its keys, beside `COMMON_KEYS`."""

    rule: Callable[..., Rule]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()  # at least one of these must be there, if there are any
    optional: tuple[str, ...] = ()


KINDS = {
    "words_imply": Kind(_rules.WordsImply, ("labels",), WORDS, WORD_OPTIONS),
    "only_on": Kind(_rules.OnlyOn, ("labels",), WORDS, WORD_OPTIONS),
    "transitions_only_on": Kind(_rules.TransitionsOnlyOn, (), (), (*WORDS, *WORD_OPTIONS, "side")),
    "starts_with": Kind(_rules.StartsWith, ("labels",)),
    "ends_with": Kind(_rules.EndsWith, ("labels",)),
    "at_most_once": Kind(_rules.AtMostOnce, (), (), ("labels",)),
    "must_appear": Kind(_rules.MustAppear, ("labels",)),
    "order": Kind(_rules.Order, ("labels",)),
    "field_length": Kind(_rules.FieldLength, (), BOUNDS, ("labels",)),
    "count": Kind(_rules.Count, ("labels",), BOUNDS, ("unit",)),
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_list_of_text(value: Any) -> bool:
    # An empty list is refused, too: a rule about no label or no word is a mistake.
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("labels", "words"), ("a list of one or more strings", _is_list_of_text)),
    **dict.fromkeys(("name", "pattern", "words_from", "column"), ("a string", _is_text)),
    # `type`, since True is an int, too, and 1 is equal to True.
    **dict.fromkeys(BOUNDS, ("a whole number", lambda value: type(value) is int)),
    **dict.fromkeys(("ignore_case", "punctuation"), ("true or false", lambda v: type(v) is bool)),
    **{
        key: (f"one of {', '.join(choices)}", choices.__contains__)
        for key, choices in (("side", get_args(_rules.Side)), ("unit", get_args(_rules.Unit)))
    },
}
"""Key → what it must hold. Penalties and kinds are checked where they are read."""


class Table(NamedTuple):
    """A table of the file: its keys and values, and what messages call it."""

    where: str
    values: dict[str, Any]

    def error(self, problem: str) -> ValueError:
        """What to raise, with the file and the constraint in front."""
        return ValueError(f"{self.where}: {problem}")

    def check_keys(self, known: Sequence[str], what: str) -> None:
        """ValueError for a key that means nothing, or a value of another type."""
        for key, value in self.values.items():
            if key not in known:
                listed = ", ".join(known)
                raise self.error(f"{key}: expected one of the keys of {what} ({listed})")
            wanted, is_right = TYPES.get(key, ("", None))
            if is_right is not None and not is_right(value):
                raise self.error(f"{key}: expected {wanted}, got {reprlib.repr(value)}")


@dataclass(frozen=True)
class ConstraintFile:
    """The constraints of a file.

    Args:
        rules: with their penalties and names, all names different.
        scheme: how labels stand for fields.

    Example:
        >>> from jaxseq.constraints import StartsWith
        >>> file = ConstraintFile([Penalised(StartsWith(["A"]), 2.5, "start")], "plain")
        >>> file.bind(["A", "B"]).names
        ('start',)
    """

    rules: list[Penalised]
    scheme: Scheme = "plain"

    def bind(self, labels: Sequence[str]) -> Constraints:
        """The constraints for a model with these labels: a tagger's `classes_`."""
        return bind_constraints(self.rules, labels, scheme=self.scheme)


def read_constraints(
    path: str | os.PathLike[str], labels: Sequence[str] | None = None
) -> ConstraintFile:
    r"""Read a file of constraints in TOML::

        scheme = "plain"                  # or "iob2", "iobes"; how labels stand for fields
        penalty = 4.5                     # ρ of the constraints that have none of their own

        [[constraint]]
        kind = "words_imply"
        name = "pages"                    # for reports; by default its kind
        words = ["pp", "pages"]
        labels = ["PAGES"]
        probability = 1e-4                # instead of a penalty

        [[constraint]]
        kind = "transitions_only_on"
        punctuation = true

    Kinds and their keys, named like the arguments of the rules:

    - ``words_imply``, ``only_on``: labels, and words; ``transitions_only_on``: words (punctuation
      marks by default), side
    - ``starts_with``, ``ends_with``, ``must_appear``, ``order``: labels; ``at_most_once``: labels
      or all
    - ``field_length``: at_least, at_most, labels or all; ``count``: labels, at_least, at_most, unit

    Words: ``words``, a list; ``words_from``, a file with one word per line, relative to this one;
    ``pattern``, a regular expression for the whole token; or ``punctuation = true``. Also
    ``ignore_case`` (true) and ``column`` (word).

    A penalty is a number, 0 or more, or ``inf`` for a hard constraint. A probability of violation p
    is the penalty :math:`\rho = -\log p`.

    Args:
        path: the file.
        labels: of the model, to notice a label that it does not have; None checks none.

    Raises:
        ValueError: for anything wrong, with the file and the constraint that is meant:
            ``FILE: constraint 3 (order): labels: …``.

    Example:
        >>> import os, tempfile
        >>> text = 'penalty = inf\n[[constraint]]\nkind = "starts_with"\nlabels = ["A"]\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "rules.toml")
        ...     with open(path, "w") as file:
        ...         _ = file.write(text)
        ...     read = read_constraints(path, ["A", "B"])
        >>> read.rules[0].penalty, read.scheme, read.bind(["A", "B"]).names
        (inf, 'plain', ('starts_with',))

    References:
        Chang, Ratinov & Roth 2007, table 1, for the constraints that such a file can express.
    """
    name = os.fspath(path)
    if Path(name).suffix.lower() != ".toml":
        raise ValueError(f"{name}: expected a file whose name ends with .toml")
    try:
        text = read_text(name)
        if LONG_KEY.search(text):
            raise ValueError(f"{name}: expected keys of at most 32 parts, got a longer one")
        file = Table(name, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:  # whose text ends with line and column
        raise ValueError(f"{name}: expected TOML, got a mistake: {error}") from None
    except RecursionError:  # tomllib descends once per bracket
        raise ValueError(f"{name}: expected TOML, got tables nested too deeply") from None
    file.check_keys(FILE_KEYS, "a file of constraints")
    scheme = file.values.get("scheme", "plain")
    if scheme not in get_args(Scheme):
        wanted = ", ".join(get_args(Scheme))
        raise file.error(f"scheme: expected one of {wanted}, got {reprlib.repr(scheme)}")
    known = None if labels is None else Labels(labels, cast(Scheme, scheme))
    default, tables = _penalty(file), _tables(file)
    chosen = [table.values.get("name") for table in tables]
    rules: list[Penalised] = []
    for table in tables:
        kind, rule = _read_rule(table, name)
        if known is not None:
            try:
                rule.bind(known)
            except ValueError as error:
                raise table.error(str(error)) from None
        own = _penalty(table)
        penalty = default if own is None else own
        if penalty is None:
            raise table.error(
                "expected the key penalty or probability, there or for all constraints, got none"
            )
        called, names = table.values.get("name"), [rule.name for rule in rules]
        if called is not None and called in names:
            raise table.error(f"name: expected one of its own, got {called!r} again")
        # A constraint without a name is called like its kind, numbered from the second one on.
        free = (f"{kind} {n}" if n > 1 else kind for n in itertools.count(1))
        called = called or next(one for one in free if one not in names and one not in chosen)
        rules.append(Penalised(rule, penalty, called))
    return ConstraintFile(rules, cast(Scheme, scheme))


def read_text(path: str) -> str:
    r"""The text of a file in UTF-8, with ``\n`` as the end of a line.

    Raises:
        ValueError: where there is no file, or one that is not UTF-8.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: expected a file, there is none") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: expected a file, got a folder") from None
    try:
        text = data.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, f"{data[error.start]:02x}"
        wanted = "expected text encoded as utf-8"
        raise ValueError(f"{path}:{line}: {wanted}, got byte {byte}") from None
    return text.replace("\r\n", "\n")


def _tables(file: Table) -> list[Table]:
    """The tables of the constraints; messages call them by number, and by name or kind."""
    tables = file.values.get("constraint", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        got = reprlib.repr(tables)
        raise file.error(f"constraint: expected a list of tables, [[constraint]], got {got}")
    if not tables:
        raise file.error("constraint: expected at least one, got none")
    located = []
    for number, values in enumerate(tables, start=1):
        called = next((values[key] for key in ("name", "kind") if _is_text(values.get(key))), None)
        suffix = "" if called is None else f" ({called:.40})"
        located.append(Table(f"{file.where}: constraint {number}{suffix}", values))
    return located


def _read_rule(table: Table, path: str) -> tuple[str, Rule]:
    """The kind and the rule that a table describes."""
    name = table.values.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        got = "none" if name is None else reprlib.repr(name)
        raise table.error(f"kind: expected one of {', '.join(KINDS)}, got {got}")
    kind = KINDS[name]
    what = f"a constraint of kind {name}"
    table.check_keys((*COMMON_KEYS, *kind.required, *kind.one_of, *kind.optional), what)
    for keys in (*((key,) for key in kind.required), kind.one_of):
        if keys and not any(key in table.values for key in keys):
            raise table.error(f"expected the key {' or '.join(keys)} in {what}")
    about_words = {key for key in (*WORDS, *WORD_OPTIONS) if key in table.values}
    arguments: dict[str, Any] = {
        # Rules are hashable, and so are their labels.
        key: tuple(value) if key == "labels" else value
        for key, value in table.values.items()
        if key not in about_words and key not in COMMON_KEYS
    }
    try:
        if about_words:
            arguments["tokens"] = _read_words(table, path)
        # A rule names the argument that is wrong first, and that is the name of the key here.
        return name, kind.rule(**arguments)
    except ValueError as error:
        raise table.error(str(error)) from None


def _read_words(table: Table, path: str) -> Words:
    """The words that a table is about; punctuation marks where it names none."""
    values = table.values
    words, pattern = tuple(values.get("words", ())), values.get("pattern")
    if "words_from" in values:
        words += _words_from(os.path.join(os.path.dirname(path), values["words_from"]))
    if values.get("punctuation"):
        if pattern is not None:
            raise ValueError("punctuation: expected no pattern along with it, got both")
        pattern = PUNCTUATION
    elif not any(key in values for key in WORDS):
        pattern = PUNCTUATION
    elif not words and pattern is None:
        raise ValueError("punctuation: expected true, or words or a pattern too, got false")
    return Words(words, pattern, **{key: values[key] for key in WORD_OPTIONS if key in values})


def _words_from(path: str) -> tuple[str, ...]:
    """The words of another file, one per line."""
    try:
        text = read_text(path)
    except ValueError as error:
        raise ValueError(f"words_from: {error}") from None
    except OSError as error:
        raise ValueError(f"words_from: {path}: cannot be read: {error.strerror}") from None
    words = tuple(word for word in map(str.strip, text.split("\n")) if word)
    if not words:
        raise ValueError(f"words_from: expected one word per line, got none in {path}")
    return words


def _penalty(table: Table) -> float | None:
    """ρ, by either key; None for neither."""
    if "penalty" in table.values and "probability" in table.values:
        raise table.error("probability: expected no penalty along with it, got both")
    for key, wanted in (
        ("penalty", "a number, 0 or more, or inf"),
        ("probability", "more than 0 and at most 1"),
    ):
        value = table.values.get(key)
        if value is None:
            continue
        try:  # a number in quotes will do, too
            number = math.nan if isinstance(value, bool) else float(value)
        except (ValueError, TypeError, OverflowError):
            number = math.nan
        # Comparisons with NaN are false, and so it is refused along with what is out of range.
        if not (number >= 0 if key == "penalty" else 0 < number <= 1):
            raise table.error(f"{key}: expected {wanted}, got {reprlib.repr(value)}")
        return number if key == "penalty" else 0.0 - math.log(number)  # never −0.0
    return None
