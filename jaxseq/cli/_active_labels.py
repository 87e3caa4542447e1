"""``jaxseq active labels``: the labels that may be given, and more of them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from jaxseq.cli._active_run import add_folder_and_json, looked_at, opened


def add_labels(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active labels``."""
    parser = subparsers.add_parser(
        "labels",
        help="list the labels that may be given, or add some",
        description="List the labels that may be given, or add some that were not thought of at "
        "the start. What was answered stays; the next training starts from the weights that are "
        "known. Queries that were written before do not offer new labels: write them again.",
    )
    add_folder_and_json(parser)
    parser.add_argument("--add", nargs="+", metavar="NAME", help="labels that are not known yet")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.add:
        with opened(options.folder) as run:
            run.learner.add_labels(options.add)
            labels = run.classes
    else:
        labels = looked_at(options.folder).classes
    print(json.dumps({"labels": labels}) if options.json else "\n".join(labels))
    return 0
