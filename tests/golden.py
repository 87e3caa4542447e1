"""Compare the smoke experiments with recorded results: ``python -m tests.golden RESULTS``.

The recorded results are of the generated corpora. Times and iterations are left out: they belong
to the machine. Other numbers may differ by a few percent, since the last bits of a sum depend on
the vector units of the processor and a search carries them on. ``--write`` records anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden.json")
OF_THE_MACHINE = ("second", "iterations", "evaluations", "time", "memory", "bytes", "outcome")
RELATIVE, COUNT, FRACTION = 0.05, 3, 0.02


def read_results(folder: Path) -> dict[str, Any]:
    """Every cell of every paper, by its description."""
    cells = {}
    for path in sorted(folder.glob("*/smoke/results.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            key = f"{path.parts[-3]} {json.dumps(row['cell'], sort_keys=True)}"
            cells[key] = row["result"]
    return cells


def differences(expected: Any, actual: Any, place: str = "") -> Iterator[str]:
    """A line for everything that has changed."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted(expected.keys() | actual.keys()):
            if not any(word in name for word in OF_THE_MACHINE):
                yield from differences(expected.get(name), actual.get(name), f"{place}/{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, pair in enumerate(zip(expected, actual)):
            yield from differences(*pair, f"{place}/{number}")
    elif isinstance(expected, int | float) and isinstance(actual, int | float):
        absolute = COUNT if isinstance(expected, int) else FRACTION
        if abs(expected - actual) > absolute + RELATIVE * abs(expected):
            yield f"{place}: expected about {expected}, got {actual}"
    elif expected != actual:
        yield f"{place}: expected {expected!r:.80}, got {actual!r:.80}"


def main() -> int:
    """0 where the results are as recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    results = read_results(arguments.results)
    if arguments.write:
        GOLDEN.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        return 0
    lines = list(differences(json.loads(GOLDEN.read_text()), results))
    print("\n".join(lines) if lines else f"{len(results)} cells are as recorded")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
