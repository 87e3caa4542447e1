"""Files of constraints that people write without a program: TOML or YAML."""

from __future__ import annotations

import math
import os
import re
import reprlib
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from jaxseq.constraints._constraint import (
    PUNCTUATION,
    Constraints,
    Labels,
    Penalised,
    Rule,
    Scheme,
    Tokens,
    bind_constraints,
)
from jaxseq.constraints._rules import (
    AtMostOnce,
    Count,
    EndsWith,
    FieldLength,
    MustAppear,
    OnlyOn,
    Order,
    Side,
    StartsWith,
    TransitionsOnlyOn,
    WordsImply,
)

# -------------------------------------------------------------------------------------------------
# Tables of a file of constraints: keys with their values, and the lines that they stand in.


class Located(NamedTuple):
    """A value, and the line of its key, counted from 1."""

    value: Any
    line: int


@dataclass
class Table:
    """Keys and values of one table, of a file of any format.

    A list of tables is a list of `Table`; everything else is as the format's reader gives it.

    Args:
        path: the file. line: where the table begins. items: key → value and line.

    Example:
        >>> table = Table("rules.toml", 2, {"kind": Located("order", 3)})
        >>> str(table.wrong("kind", "expected another")), str(table.wrong(None, "expected more"))
        ('rules.toml:3: kind: expected another', 'rules.toml:2: expected more')
    """

    path: str
    line: int
    items: dict[str, Located] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.items

    def get(self, key: str) -> Any:
        """The value of a key; None for one that is not there."""
        return self.items[key].value if key in self.items else None

    def line_of(self, key: str | None) -> int:
        """The line of a key; that of the table for None or one that is not there."""
        return self.items[key].line if key in self.items else self.line

    def wrong(self, key: str | None, problem: str) -> ValueError:
        """What to raise: the file, the line, the key and the problem."""
        what = "" if key is None else f"{key}: "
        return ValueError(f"{self.path}:{self.line_of(key)}: {what}{problem}")


def shown(value: Any) -> str:
    """A value for a message, never long.

    Example:
        >>> shown(["a", 1]), shown(Table("rules.toml", 1))
        ("['a', 1]", 'a table')
    """
    if isinstance(value, Table | dict):
        return "a table"
    if isinstance(value, list) and any(isinstance(item, Table) for item in value):
        return "a list of tables"
    return reprlib.repr(value)


def read_text(path: Path, name: str) -> str:
    r"""The text of a file in UTF-8, with ``\n`` as the end of a line.

    Args:
        path: the file. name: what messages call it.

    Raises:
        ValueError: where there is no file, or no such text in it.
    """
    if path.is_dir():
        raise ValueError(f"{name}: expected a file, found a folder")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{name}: expected a file, there is none") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"found byte {data[error.start]:02x}"
        raise ValueError(f"{name}:{line}: expected text encoded as utf-8, {found}") from None
    return text.replace("\r\n", "\n")


# -------------------------------------------------------------------------------------------------
# Files of constraints in TOML: values by the standard library, lines by a scan of the text.


PIECES = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|#[^\n]*"
    r"|[\[\]{}\n]"
    r"|[^\[\]{}\n#\"']+",
    re.DOTALL,
)
"""What must not be taken apart to see where statements end: strings and comments."""

KeyPath = tuple[str, ...]


def parse_toml(text: str, name: str) -> Table:
    """The tables of a TOML text.

    Args:
        text: the text. name: the file, for messages.

    Raises:
        ValueError: for what is not TOML, with the file and the line.

    Example:
        >>> table = parse_toml('penalty = 2\\n[[constraint]]\\nkind = "order"', "rules.toml")
        >>> table.get("penalty"), table.get("constraint")[0].items
        (2, {'kind': Located(value='order', line=3)})
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"^(.*) \(at line (\d+), column \d+\)$", str(error), re.DOTALL)
        problem, line = (found[1], int(found[2])) if found else (str(error), text.count("\n") + 1)
        raise ValueError(f"{name}:{line}: expected TOML, got a mistake: {problem}") from None
    except RecursionError:
        raise ValueError(f"{name}:1: expected TOML, got tables too deep in each other") from None
    return _table(values, (), 1, _lines(text), name)


def _table(
    values: dict[str, Any], path: KeyPath, line: int, lines: dict[KeyPath, int], name: str
) -> Table:
    """A table with its lines; where a key's line is not known, it is that of the table."""
    table = Table(name, line)
    for key, value in values.items():
        here = (*path, key)
        at = lines.get(here, line)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            numbered = [(*here, str(number)) for number in range(len(value))]
            value = [
                _table(item, place, lines.get(place, at), lines, name)
                for item, place in zip(value, numbered)
            ]
        table.items[key] = Located(value, at)
    return table


def _lines(text: str) -> dict[KeyPath, int]:
    """Path of a key → its line; tables of a list are numbered, ``constraint``, ``0``, ``kind``."""
    lines: dict[KeyPath, int] = {}
    counts: dict[str, int] = {}
    table: KeyPath = ()
    for line, statement in _statements(text):
        # One statement alone is a file, too: what its key is the standard library knows best.
        key, value = next(iter(tomllib.loads(statement).items()))
        if not statement.startswith("["):
            lines.setdefault((*table, key), line)
            continue
        if isinstance(value, list):
            table = (key, str(counts.get(key, 0)))
            counts[key] = counts.get(key, 0) + 1
        elif value and key in counts:  # a table in the last one of a list
            table = (key, str(counts[key] - 1), next(iter(value)))
        else:
            table = (key,)
        lines.setdefault(table, line)
        lines.setdefault((key,), line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Headers of tables and keys with their values, each with its line, of a correct text."""
    line, first, depth, pieces = 1, 1, 0, []
    for match in PIECES.finditer(text + "\n"):
        piece = match[0]
        depth += (piece in "[{") - (piece in "]}") if len(piece) == 1 else 0
        if piece == "\n" and depth == 0:
            if pieces:
                yield first, "".join(pieces).strip()
            pieces = []
        elif not piece.startswith("#") and (pieces or piece.strip()):
            first = first if pieces else line
            pieces.append(piece)
        line += piece.count("\n")


# -------------------------------------------------------------------------------------------------
# Files of constraints in YAML: a composed document, whose nodes know their lines.


def parse_yaml(text: str, name: str) -> Table:
    """The tables of a YAML text, which may hold data alone: nothing is executed.

    Args:
        text: the text. name: the file, for messages.

    Raises:
        ValueError: for what is not YAML or no mapping, with the file and the line.

    Example:
        >>> table = parse_yaml("penalty: 2\\nconstraint:\\n- kind: order\\n", "rules.yaml")
        >>> table.get("penalty"), table.get("constraint")[0].items
        (2, {'kind': Located(value='order', line=3)})
    """
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Table(name, 1)
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            raise ValueError(f"{name}:{line}: expected keys and values, got {shown(node.value)}")
        return _yaml_table(loader, node, name)
    except yaml.YAMLError as error:
        line, problem = _line(error, text), _problem(error)
        raise ValueError(f"{name}:{line}: expected YAML, got a mistake: {problem}") from None
    except RecursionError:
        raise ValueError(f"{name}:1: expected YAML, got lists too deep in each other") from None


def _yaml_table(loader: Any, node: Any, name: str) -> Table:
    """The mapping of a node; a list of mappings in it becomes a list of tables."""
    import yaml

    table = Table(name, node.start_mark.line + 1)
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise ValueError(f"{name}:{line}: expected the name of a key, got a list or mapping")
        if key in table:
            raise ValueError(
                f"{name}:{line}: {key}: expected once, got it again after line {table.line_of(key)}"
            )
        table.items[key] = Located(_value(loader, value_node, name), line)
    return table


def _value(loader: Any, node: Any, name: str) -> Any:
    import yaml

    mappings = isinstance(node, yaml.SequenceNode) and [
        isinstance(item, yaml.MappingNode) for item in node.value
    ]
    if mappings and all(mappings):
        return [_yaml_table(loader, item, name) for item in node.value]
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, TypeError, LookupError, AttributeError):  # of a date or number that is none
        line = node.start_mark.line + 1
        raise ValueError(
            f"{name}:{line}: expected a value that YAML can read, got {shown(node.value)}"
        ) from None


def _line(error: Any, text: str) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return mark.line + 1
    return text.count("\n", 0, getattr(error, "position", 0)) + 1


def _problem(error: Any) -> str:
    return getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)


# -------------------------------------------------------------------------------------------------
# Rules of a file of constraints: each kind with its keys.


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
        >>> from jaxseq.constraints._file import Located
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


PARSERS = {".toml": parse_toml, ".yaml": parse_yaml, ".yml": parse_yaml}
SCHEMES = ("plain", "iob2", "iobes")
OF_THE_FILE = ("scheme", "penalty", "probability", "constraint")


@dataclass(frozen=True)
class ConstraintFile:
    """The constraints of a file.

    Args:
        rules: with their penalties and names, all names different.
        scheme: how labels stand for fields.

    Example:
        >>> from jaxseq.constraints import StartsWith
        >>> found = ConstraintFile([Penalised(StartsWith(["A"]), 2.5, "start")], "plain")
        >>> found.bind(["A", "B"]).names
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
    r"""Read a file of constraints, in TOML (``.toml``) or YAML (``.yaml``, ``.yml``).

    In TOML::

        scheme = "plain"                  # or "iob2", "iobes"; how labels stand for fields
        penalty = 4.5                     # ρ of the constraints that do not say

        [[constraint]]
        kind = "words_imply"
        name = "pages"                    # for reports; by default its kind
        words = ["pp", "pages"]
        labels = ["PAGES"]
        probability = 1e-4                # instead of a penalty

        [[constraint]]
        kind = "transitions_only_on"
        punctuation = true

    In YAML the same keys, with a list of mappings under ``constraint``.

    Kinds and their keys, named as the arguments of the rules:

    - ``words_imply``, ``only_on``: labels, and tokens; ``transitions_only_on``: tokens
      (punctuation marks by default), side
    - ``starts_with``, ``ends_with``, ``must_appear``, ``order``: labels; ``at_most_once``: labels
      or all
    - ``field_length``: at_least, at_most, labels or all; ``count``: labels, at_least, at_most, unit

    Tokens: ``words``, a list; ``words_from``, a file with a word a line, relative to this one;
    ``pattern``, a regular expression for the whole token; or ``punctuation = true``. Also
    ``ignore_case`` (true) and ``column`` (word).

    A penalty is a number, 0 or more, or ``inf`` for a hard constraint. A probability of violation p
    is the penalty :math:`\rho = -\log p`.

    Args:
        path: the file.
        labels: of the model, to find a label that it does not have; None checks none.

    Raises:
        ValueError: for whatever is wrong, with the file and the line: ``FILE:LINE: …``.

    Example:
        >>> import os, tempfile
        >>> text = 'penalty = inf\n[[constraint]]\nkind = "starts_with"\nlabels = ["A"]\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "rules.toml")
        ...     with open(path, "w") as file:
        ...         _ = file.write(text)
        ...     found = read_constraints(path, ["A", "B"])
        >>> found.rules[0].penalty, found.scheme, found.bind(["A", "B"]).names
        (inf, 'plain', ('starts_with',))

    References:
        Chang, Ratinov & Roth 2007, table 1, for the constraints that such a file can say.
    """
    name = os.fspath(path)
    parse = PARSERS.get(Path(name).suffix.lower())
    if parse is None:
        raise ValueError(f"{name}: expected a file whose name ends with {', '.join(PARSERS)}")
    top = parse(read_text(Path(name), name), name)
    check_keys(top, OF_THE_FILE, "a file of constraints")
    scheme = _scheme(top)
    known = None if labels is None else Labels(labels, scheme)
    usual = _penalty(top)
    kinds, rules, names = [], [], []
    for table in _tables(top):
        kind, rule = rule_of(table)
        if known is not None:
            _check_labels(table, rule, known)
        penalty = _penalty(table)
        penalty = usual if penalty is None else penalty
        if penalty is None:
            wanted = "expected the key penalty or probability, here or for all constraints"
            raise table.wrong(None, f"{wanted}, got none")
        kinds.append(kind)
        rules.append(Penalised(rule, penalty))
        names.append(_name(table, names))
    whole = [rule._replace(name=n) for rule, n in zip(rules, _all_named(kinds, names))]
    return ConstraintFile(whole, scheme)


def _scheme(top: Table) -> Scheme:
    scheme = top.get("scheme") if "scheme" in top else "plain"
    if scheme not in SCHEMES:
        raise top.wrong("scheme", f"expected one of {', '.join(SCHEMES)}, got {shown(scheme)}")
    return cast(Scheme, scheme)


def _tables(top: Table) -> list[Table]:
    found = top.get("constraint")
    if found is None or found == []:
        raise top.wrong("constraint" if found == [] else None, "expected a constraint, found none")
    if not isinstance(found, list) or not all(isinstance(item, Table) for item in found):
        wanted = "expected a list of tables ([[constraint]] in TOML, - in YAML)"
        raise top.wrong("constraint", f"{wanted}, got {shown(found)}")
    return found


def _check_labels(table: Table, rule: Any, labels: Labels) -> None:
    try:
        rule.bind(labels)
    except ValueError as error:
        raise table.wrong("labels", str(error).removeprefix("labels: ")) from None


# ------------------------------------------------------------------------------------ penalties


def _penalty(table: Table) -> float | None:
    """ρ, by either key; None for neither."""
    if "penalty" in table and "probability" in table:
        raise table.wrong("probability", "expected no penalty along with it, got both")
    if "penalty" in table:
        penalty = _number(table, "penalty")
        if not penalty >= 0:
            got = shown(table.get("penalty"))
            raise table.wrong("penalty", f"expected a number, 0 or more, or inf, got {got}")
        return penalty
    if "probability" not in table:
        return None
    probability = _number(table, "probability")
    if not 0 < probability <= 1:
        got = shown(table.get("probability"))
        raise table.wrong("probability", f"expected more than 0 and at most 1, got {got}")
    return 0.0 - math.log(probability)


def _number(table: Table, key: str) -> float:
    """A number, or a string that is one (as 1e-4 is in YAML); NaN for what is neither."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


# ---------------------------------------------------------------------------------------- names


def _name(table: Table, before: Sequence[str | None]) -> str | None:
    if "name" not in table:
        return None
    name = string_of(table, "name")
    if name in before:
        raise table.wrong("name", f"expected one that no other constraint has, got {name!r} again")
    return name


def _all_named(kinds: Sequence[str], names: Sequence[str | None]) -> list[str]:
    """Names for those without: their kinds, numbered from the second one on."""
    taken = {name for name in names if name is not None}
    whole = []
    for kind, name in zip(kinds, names):
        number = 1
        while name is None:
            name = kind if number == 1 else f"{kind} {number}"
            name = None if name in taken else name
            number += 1
        taken.add(name)
        whole.append(name)
    return whole
