"""``jaxseq active status`` and ``train``: where it stands, and the end of a round."""

from __future__ import annotations

import argparse
from typing import Any

from jaxseq.cli._active_run import ActiveRun, add_folder_and_json, looked_at, opened, tell


def add_status(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active status``."""
    parser = subparsers.add_parser(
        "status",
        help="rounds, labels, scores, and whether to stop",
        description="Say where active learning stands, and whether to stop; also while another "
        "subcommand is at work on the folder.",
    )
    add_folder_and_json(parser)
    parser.set_defaults(run=_run_status)


def add_active_train(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active train``."""
    parser = subparsers.add_parser(
        "train",
        help="end the round: train on the labels so far",
        description="End the round: train on all labels so far, as jaxseq active answer does "
        "unless it is told not to, but to the end also where --between makes trainings short: for "
        "a model to be used before it is time to stop.",
    )
    add_folder_and_json(parser)
    parser.set_defaults(run=_run_train)


def _run_status(options: argparse.Namespace) -> int:
    run = looked_at(options.folder)
    tell(run.report(), options.json, _sources(run))
    return 0


def _sources(run: ActiveRun) -> list[str]:
    named = [f"--{name} {path}" for name, path in run.corpora.sources.items() if path is not None]
    return [f"folder    {run.folder}, of {' '.join(named)}"]


def _run_train(options: argparse.Namespace) -> int:
    with opened(options.folder) as run:
        run.train(whole=True)
        tell(run.report(), options.json, [line_on_training(run)])
    return 0


def line_on_training(run: ActiveRun) -> str:
    """How the last training went."""
    last = run.learner.history_[-1]
    cut = ", cut short" if last["short"] else ""
    return (
        f"training  {last['iterations']} iterations{cut} on {last['sentences']:,} sentences, "
        f"objective {last['objective']:.6g} ({last['seconds']['all']:.1f} s)"
    )
