"""Files of constraints in TOML: values by the standard library, lines by a scan of the text."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from jaxseq.constraints._file_table import Located, Table

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

Path = tuple[str, ...]


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
    values: dict[str, Any], path: Path, line: int, lines: dict[Path, int], name: str
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


def _lines(text: str) -> dict[Path, int]:
    """Path of a key → its line; tables of a list are numbered, ``constraint``, ``0``, ``kind``."""
    lines: dict[Path, int] = {}
    counts: dict[str, int] = {}
    table: Path = ()
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
