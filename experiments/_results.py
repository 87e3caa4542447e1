"""The results file: one JSON line for each finished cell, in the order of the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._files import write_whole
from experiments._paper import Cell

TIMINGS = "seconds"


class Results:
    """The lines of the cells that are done, on disk after each.

    The file is written anew for each cell and renamed into place: at any moment it holds whole
    lines, in the order of the plan, whichever cell was done first.

    Args:
        path: the file; its folder is there when a line is added.
        cells: the plan.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> results = Results(Path(folder.name) / "results.jsonl", ["a", "b"])
        >>> results.add("b", {"corpora": {}, "result": {"f1": 90.5}, "seconds": 0.1})
        >>> results.add("a", {"corpora": {}, "result": {"f1": 91.5}, "seconds": 0.2})
        >>> [line["cell"] for line in read_results(results.path)]
        ['a', 'b']
        >>> folder.cleanup()
    """

    def __init__(self, path: Path, cells: Sequence[Cell]):
        self.path = path
        self._order: dict[str, Cell] = {}
        self._lines: dict[str, str] = {}
        for cell in cells:
            key = cell_key(cell)
            if key in self._order:
                raise ValueError(f"cells: expected different cells, got {key} twice")
            self._order[key] = cell

    def load(self) -> None:
        """Take over the lines that are there, if there is a file.

        Raises:
            ValueError: with the file and the line, for one that is not JSON or not of the plan.
        """
        lines = _numbered(self.path) if self.path.exists() else []
        for number, (text, line) in enumerate(lines, 1):
            key = cell_key(line["cell"])
            if key not in self._order:
                raise ValueError(
                    f"{self.path}:{number}: expected a cell of this run, found {key}; "
                    "use the same options, or another --out"
                )
            self._lines[key] = text  # as it stands there, to the byte

    def add(self, cell: Cell, line: dict[str, Any]) -> None:
        """Write the line of a cell.

        Raises:
            ValueError: for values that JSON does not have.
        """
        key = cell_key(cell)
        self._lines[key] = as_json({"cell": cell, **line}, f"result of cell {key}")
        # In the order of the plan, whatever the order in which processes end.
        text = "".join(f"{self._lines[key]}\n" for key in self._order if key in self._lines)
        write_whole(self.path, text)

    @property
    def planned(self) -> int:
        """Number of cells of the plan."""
        return len(self._order)

    @property
    def missing(self) -> list[Cell]:
        """Cells that are not done, in the order of the plan."""
        return [cell for key, cell in self._order.items() if key not in self._lines]


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file, which may be of an unfinished run."""
    return [line for _, line in _numbered(path)]


def cell_key(cell: Cell) -> str:
    """What tells a cell from the others, whatever the order of its keys.

    Example:
        >>> cell_key({"seed": 0, "method": "em"}) == cell_key({"method": "em", "seed": 0})
        True
    """
    if not isinstance(cell, (str, dict)):
        raise ValueError(f"cells: expected strings or dicts, got {cell!r}")
    return as_json(cell, "cells", sort_keys=True)  # hashable, which a dict is not


def as_json(value: object, place: str, *, sort_keys: bool = False) -> str:
    """One line of JSON; NaN and what JSON does not know are refused."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: expected JSON values without NaN: {error}") from None


def without_seconds(value: Any) -> Any:
    """The value less all that stands under a key ``seconds``, at any depth.

    Two runs of the same plan are equal in this.

    Example:
        >>> without_seconds({"f1": 90, "fit": [{"seconds": 3, "steps": 7}], "seconds": 4})
        {'f1': 90, 'fit': [{'steps': 7}]}
    """
    if isinstance(value, dict):
        return {key: without_seconds(one) for key, one in value.items() if key != TIMINGS}
    return [without_seconds(one) for one in value] if isinstance(value, list) else value


def _numbered(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Text and value of each line."""
    lines = []
    # Not splitlines: a string of JSON may hold signs that it takes for line ends.
    for number, text in enumerate(path.read_text("utf-8").removesuffix("\n").split("\n"), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or not isinstance(line.get("cell"), (str, dict)):
            raise ValueError(f"{path}:{number}: expected a JSON line with a cell, found {text!r}")
        lines.append((text, line))
    return lines


def parts(
    results: Sequence[Mapping[str, Any]], part: str, **wanted: Any
) -> list[Mapping[str, Any]]:
    """The lines of a part whose cells have these values.

    Example:
        >>> lines = [{"cell": {"part": "table", "seed": seed}} for seed in (0, 1)]
        >>> parts(lines, "table", seed=1)
        [{'cell': {'part': 'table', 'seed': 1}}]
    """
    return [
        line
        for line in results
        if line["cell"]["part"] == part
        and all(line["cell"].get(key) == value for key, value in wanted.items())
    ]
