"""``jaxseq active query``: what to label next, in files."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from jaxseq.cli._active_questions import Question, questions_of
from jaxseq.cli._active_run import ActiveRun, add_folder_and_json, opened
from jaxseq.cli._label_studio import labelling_config, task_of
from jaxseq.text._open import open_to_replace

TASKS, CONFIG, LINES = "tasks.json", "labels.xml", "queries.jsonl"


def add_query(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active query``."""
    parser = subparsers.add_parser(
        "query",
        help="write what to label next, for Label Studio and as JSON lines",
        description="Write the queries of this round that have no answer yet to DIR/round-NNN: "
        f"{TASKS} to import into Label Studio, {CONFIG}, the labelling interface of its project, "
        f"and {LINES}, the same for other programs. The queries stay the same until the next "
        "training.",
    )
    add_folder_and_json(parser)
    parser.add_argument(
        "--count", type=int, metavar="N", help="only the N least sure ones (all of the round)"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.count is not None and options.count < 1:
        raise ValueError(f"--count: expected 1 or more, got {options.count}")
    say = (lambda _: None) if options.json else print
    with opened(options.folder) as run:
        queries = run.next_queries(say)[: options.count]
        status = run.learner.status()
        where = None
        if queries:
            where = run.folder / f"round-{run.round:03}"
            write_questions(where, questions_of(run, queries), run)
    tokens = sum(query.stop - query.start for query in queries)
    report = {
        "round": status.round,
        "queries": len(queries),
        "tokens": tokens,
        "folder": None if where is None else str(where),
        "stop": status.stop,
        "why": status.why,
    }
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report))
    return 0


def _as_text(report: dict[str, Any]) -> str:
    if report["folder"] is None:
        return f"nothing to ask: {report['why']}"
    where = Path(report["folder"])
    lines = [
        f"round     {report['round']}: {report['queries']:,} queries, {report['tokens']:,} tokens",
        f"tasks     {where / TASKS}",
        f"          {where / CONFIG} is the labelling interface",
        f"lines     {where / LINES}",
        f"then      jaxseq active answer {where.parent} EXPORT.json",
    ]
    return "\n".join([*lines, f"stop      yes: {report['why']}"] if report["stop"] else lines)


def write_questions(where: Path, questions: list[Question], run: ActiveRun) -> None:
    """Write the three files of a round; each appears only when complete."""
    os.makedirs(where, exist_ok=True)
    tasks = json.dumps([task_of(question) for question in questions], indent=1, ensure_ascii=False)
    lines = [json.dumps(question.as_dict(), ensure_ascii=False) for question in questions]
    texts = {
        CONFIG: labelling_config(run.classes),
        LINES: "".join(f"{line}\n" for line in lines),
        TASKS: f"{tasks}\n",
    }
    for name, text in texts.items():
        with open_to_replace(where / name) as file:
            file.write(text)
