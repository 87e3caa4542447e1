"""Expectations in TOML, for people who do not want to write a program."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from jaxseq.expectations._expectation import Expectation

KEYS = ("targets", "when", "weight", "penalty", "per")


def read_expectations(path: str | os.PathLike[str]) -> list[Expectation]:
    """Read a file of expectations.

    Each is a table ``[[expectation]]`` with the fields of `Expectation`; a range is a list of two
    numbers::

        [[expectation]]
        when = "word[0]=pp"
        targets = { pages = 0.9 }

        [[expectation]]
        targets = { "title -> title" = [0.1, 0.2] }
        weight = 50
        penalty = "l2"

    Args:
        path: of the file.

    Raises:
        ValueError: for what is no such file, with the number of the expectation.
        OSError: for a file that cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        ...     _ = file.write('[[expectation]]\\ntargets = { pages = [0.1, 0.2] }')
        ...     file.flush()
        ...     read_expectations(file.name)[0].targets
        {'pages': (0.1, 0.2)}
    """
    name = os.fspath(path)
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{name}: expected TOML: {error}") from None
    tables = content.get("expectation")
    if set(content) != {"expectation"} or not isinstance(tables, list):
        raise ValueError(
            f"{name}: expected tables [[expectation]] and nothing else, got {', '.join(content)}"
        )
    return [_read(table, f"{name}: expectation {n}") for n, table in enumerate(tables, 1)]


def _read(table: Any, where: str) -> Expectation:
    unknown = [key for key in table if key not in KEYS] if isinstance(table, dict) else [table]
    if unknown or "targets" not in table:
        got = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"{where}: expected targets, and perhaps {', '.join(KEYS[1:])}, got {got}")
    try:
        return Expectation(**table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
