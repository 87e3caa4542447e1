"""Tables of a file of constraints: keys with their values, and the lines that they stand in."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


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
