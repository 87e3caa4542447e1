"""``jaxseq active annotate``: label in the terminal, one key a label."""

from __future__ import annotations

import argparse
from typing import Any

from jaxseq.cli._active_run import opened


def add_annotate(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active annotate``."""
    parser = subparsers.add_parser(
        "annotate",
        help="label in the terminal, one key a label",
        description="Show one token after another that the model asks about, with its guess, and "
        "take a key for its label: Enter accepts the guess, s skips, u undoes, q quits. Every "
        "answer is kept at once; at the end of a round the model is trained, and the next round "
        "begins. Where standard input is no terminal a line is read for a key.",
    )
    parser.add_argument("folder", metavar="DIR", help="of jaxseq active start")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from jaxseq.cli._annotate_loop import Annotator
    from jaxseq.cli._annotate_screen import Screen, keyboard
    from jaxseq.cli._annotate_state import assign_keys

    with opened(options.folder) as run:
        keys = assign_keys(run.classes)
        with keyboard(several=len(keys) < len(run.classes)) as read_key:
            annotator = Annotator(run, Screen(keys), read_key, keys)
            annotator.annotate()
    return 0
