"""``jaxseq active``: active learning with people, or other programs, as annotators.

Each subcommand is a process of its own on one folder; whatever happens to it, what was answered
is in the folder.
"""

from __future__ import annotations

import argparse
from typing import Any

from jaxseq.cli._active_answer import add_answer
from jaxseq.cli._active_finish import add_finish
from jaxseq.cli._active_labels import add_labels
from jaxseq.cli._active_query import add_query
from jaxseq.cli._active_start import add_start
from jaxseq.cli._active_status import add_active_train, add_status
from jaxseq.cli._annotate import add_annotate

SUBCOMMANDS = (
    add_start, add_query, add_answer, add_annotate, add_labels, add_active_train, add_status,
    add_finish,
)  # fmt: skip

EXAMPLE = """\
example:
  jaxseq active start --train few.txt --pool many.txt --dev dev.txt --templates conll2000 \\
      --scheme IOB2 --count 200 --threshold 0.9 --out run
  jaxseq active query run        # writes run/round-001: tasks.json, labels.xml, queries.jsonl
  # Label Studio: a project with labels.xml as its labelling interface; import tasks.json; label;
  # export as JSON or JSON-MIN
  jaxseq active answer run export.json    # takes the labels in, trains, says where it stands
  jaxseq active status run                # whether to stop, and why
  jaxseq active annotate run              # or label here, in the terminal, one key a label
  jaxseq active labels run --add B-ADJP   # a label that was not thought of at the start
  jaxseq tag --model run/model new.txt    # the model of the last round is one like any other
  jaxseq active finish run --l2 0.1 --out final  # or one with other settings, of the same labels

answers of other programs, JSON lines (a list of labels: one of them is right):
  {"round": 1, "sentence": 17, "position": 4, "label": "B-NP"}
  {"round": 1, "sentence": 20, "start": 2, "labels": ["O", ["B-NP", "I-NP"], null]}
"""


def add_active(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active``."""
    parser = subparsers.add_parser(
        "active",
        help="active learning: have the labels asked for that the model learns most from",
        description="Active learning with partial labels: the model asks for the labels that it is "
        "least sure of, learns from the answers, and says when it is enough.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inner = parser.add_subparsers(title="subcommands", metavar="subcommand", required=True)
    for add_subcommand in SUBCOMMANDS:
        add_subcommand(inner)
