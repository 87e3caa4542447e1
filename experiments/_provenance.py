"""Where results come from: the plan, and the code and machine of each run that worked on it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from experiments._files import write_whole

FILE = "provenance.json"
ROOT = Path(__file__).parents[1]
PACKAGES = ("jaxseq", "jax", "jaxlib", "numpy", "equinox", "optax", "scikit-learn")
SOURCES = ("jaxseq", "experiments", "pyproject.toml")


def this_run(device: dict[str, object], finished_before: int) -> dict[str, object]:
    """The code and the machine of the run that begins.

    Args:
        device: what JAX computes on.
        finished_before: number of cells that earlier runs have done.

    Returns:
        Values for JSON.
    """
    commit, dirty = _commit()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "versions": {"python": platform.python_version(), **_versions()},
        "device": device,
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
        "finished_before": finished_before,
    }


def record(folder: Path, plan: dict[str, Any], run: dict[str, object]) -> None:
    """Write the provenance of results: the plan, and this run after those before it."""
    runs = read_provenance(folder)["runs"] if run["finished_before"] else []
    text = json.dumps({"plan": plan, "runs": [*runs, run]}, ensure_ascii=False, indent=2)
    write_whole(folder / FILE, text + "\n")


def read_provenance(folder: Path) -> dict[str, Any]:
    """The provenance of the results of a folder.

    Raises:
        ValueError: for a file that is missing or not as `record` writes it.
    """
    path = folder / FILE
    try:
        provenance = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: expected this file beside the results, found none") from None
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON: {error}") from None
    if not isinstance(provenance, dict) or not {"plan", "runs"} <= provenance.keys():
        raise ValueError(f"{path}: expected the keys plan and runs")
    return provenance


def check_same_plan(folder: Path, plan: dict[str, Any]) -> None:
    """ValueError, with the first difference, if results were made by another plan."""
    old = read_provenance(folder)["plan"]
    new = json.loads(json.dumps(plan))  # tuples become lists, as in the file
    difference = _difference(old, new, "")
    if difference is not None:
        raise ValueError(f"{folder / FILE}: {difference}; use the same options, or another --out")


def _difference(old: Any, new: Any, place: str) -> str | None:
    """Where two values of JSON first differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            difference = _difference(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
            if difference is not None:
                return difference
        return None
    return None if old == new else f"results were made with {place} = {old!r}, this run has {new!r}"


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # an extra that is not installed
            versions[name] = None
    return versions


def _commit() -> tuple[str | None, bool | None]:
    """Commit of this repository and whether its sources differ from it; None without git."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", *SOURCES)
    return commit or None, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    # Without optional locks, since someone may be at work in the same tree.
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
