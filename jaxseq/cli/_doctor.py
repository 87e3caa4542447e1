"""``jaxseq doctor``: what this machine has, what jaxseq will use of it, and whether that works."""

from __future__ import annotations

import argparse
import json
from typing import Any

SECONDS = 10.0
"""Past this, no further check is begun."""


def add_doctor(subparsers: Any) -> None:
    """Add the parser of ``jaxseq doctor``."""
    parser = subparsers.add_parser(
        "doctor",
        help="devices, versions, caches and settings, and a quick self-check",
        description="Print what this machine has and what jaxseq will use of it, and run a "
        f"self-check of about {SECONDS:.0f} seconds. Exit status 1 when something is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, not text")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    report = examine()
    print(json.dumps(report, allow_nan=False) if options.json else as_text(report))
    return 0 if report["well"] else 1


def examine(seconds: float | None = None) -> dict[str, Any]:
    """Everything there is to say, ready for JSON; ``"well"`` says whether nothing is wrong.

    Args:
        seconds: no further check is begun after so many; None for `SECONDS`.
    """
    from jaxseq.cli._doctor_checks import run_checks
    from jaxseq.cli._doctor_facts import collect_facts, default_devices

    facts, notes, problems = collect_facts()
    findings = run_checks(default_devices(), SECONDS if seconds is None else seconds)
    for finding in findings:
        where = f"{finding.name} on {finding.device}: {finding.said}"
        if finding.passed is None:
            notes.append(f"not checked, for want of time: {finding.name} on {finding.device}")
        elif not finding.passed:
            problems.append(where)
    if not findings:
        problems.append("no device: nothing could be checked")
    checks = [finding._asdict() for finding in findings]
    well = {"notes": notes, "problems": problems, "well": not problems}
    return {**facts, "checks": checks, **well}


# ------------------------------------------------------------------------------------- text


def as_text(report: dict[str, Any]) -> str:
    """A report of `examine`, to be read."""
    lines: list[str] = []
    for title in ("versions", "devices", "machine", "compilation_cache", "numbers", "jaxseq"):
        lines += _section(title.replace("_", " "), report[title])
    lines += _section("environment", report["environment"] or {"(no variable that matters)": ""})
    lines += _section("distributed", report["distributed"])
    lines += ["", "self-check"]
    for check in report["checks"]:
        verdict = {True: "ok", False: "FAILED", None: "skipped"}[check["passed"]]
        seconds = f"{check['seconds']:.1f} s"
        lines.append(f"  {check['device']:<5} {check['name']:<22} {verdict:<8} {seconds:>7}  "
                     f"{check['said']}".rstrip())  # fmt: skip
    lines += [""] + [f"note: {note}" for note in report["notes"]]
    if report["well"]:
        whole = all(check["passed"] for check in report["checks"])
        return "\n".join([*lines, "all well" if whole else "nothing wrong in what was checked"])
    count = len(report["problems"])
    head = f"{count} problem{'s' if count > 1 else ''}:"
    return "\n".join([*lines, head, *(f"  {problem}" for problem in report["problems"])])


def _section(title: str, entries: Any) -> list[str]:
    rows = [entry for entry in entries] if isinstance(entries, list) else [entries]
    lines = ["", title]
    for row in rows:
        if isinstance(entries, list):
            lines.append("  " + "  ".join(f"{name} {_shown(row[name])}" for name in row))
        else:
            width = max(map(len, row), default=0)
            lines += [f"  {name:<{width}}  {_shown(row[name])}".rstrip() for name in row]
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
