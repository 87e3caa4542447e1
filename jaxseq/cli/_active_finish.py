"""``jaxseq active finish``: a model to be used, with other settings than the one that asks."""

from __future__ import annotations

import argparse
import json
from typing import Any

from jaxseq.cli._active_options import naming_options
from jaxseq.cli._active_run import add_folder_and_json, lines_on_dev, looked_at
from jaxseq.cli._files import require_model_place
from jaxseq.cli._model_options import WEIGHTS

CHANGES = ("l1", "l2", "max_iterations", "weights", "cores")
"""Options that are settings of the tagger; those of the run hold where they are not given."""


def add_finish(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active finish``."""
    parser = subparsers.add_parser(
        "finish",
        help="train a model to be used, with other settings than the one that asks",
        description="Train a model from zeros on all labels so far (of a strategy that takes some "
        "from the model, on those too), with other settings than the model that asks, and save it. "
        "The run stays as it is, and may go on; this command may run while another subcommand is "
        "at work on the folder.",
        epilog="Settings that are not given are those of jaxseq active start.",
    )
    add = parser.add_argument
    add("--out", required=True, metavar="MODEL", help="the folder to save the model in")
    add("--l1", type=float, metavar="X", help="strength of the l1 penalty")
    add("--l2", type=float, metavar="X", help="strength of the l2 penalty; a model that asks may "
        "want a larger one, which makes it less sure")  # fmt: skip
    add("--max-iterations", type=int, metavar="N", help="of L-BFGS")
    add("--weights", choices=WEIGHTS, help="which pairs of attribute and label have a weight")
    add("--cores", type=int, metavar="N", help="threads to train with")
    add_folder_and_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in CHANGES}
    changes = {name: value for name, value in given.items() if value is not None}
    run = looked_at(options.folder)
    require_model_place(options.out)
    with naming_options(changes):
        tagger = run.learner.refit(**changes)
    tagger.save(options.out)
    report = {
        "model": options.out,
        **run.label_counts(),
        "iterations": tagger.n_iter_,
        "objective": float(tagger.loss_),
        "outcome": tagger.outcome_,
        **run.scores(tagger),
    }
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report))
    return 0


def _as_text(report: dict[str, Any]) -> str:
    guessed = report["guessed_tokens"]
    by_model = f" and {guessed:,} tokens labelled by the model" if guessed else ""
    lines = [
        f"training  {report['iterations']} iterations on {report['labelled_tokens']:,} labelled "
        f"tokens{by_model}, objective {report['objective']:.6g}",
        f"          {report['outcome']}",
        *lines_on_dev(report),
        f"model     {report['model']}",
    ]
    return "\n".join(lines)
