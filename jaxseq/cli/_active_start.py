"""``jaxseq active start``: a folder for active learning, and its first model."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.cli._active_files import Corpora, write_corpora
from jaxseq.cli._active_options import (
    add_learner_options,
    check_learner_options,
    new_learner,
)
from jaxseq.cli._active_pool import read_pool, templates_for_pool
from jaxseq.cli._active_run import lines_of, opened
from jaxseq.cli._active_status import line_on_training
from jaxseq.cli._corpus import Corpus, add_corpus_options, read_corpus
from jaxseq.cli._files import require_model_place
from jaxseq.cli._template_choice import BUILT_IN, BY_COLUMNS

if TYPE_CHECKING:
    from jaxseq.tagger import ActiveLearner


def add_start(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active start``."""
    parser = subparsers.add_parser(
        "start",
        help="make the folder of a run, and train its first model",
        description="Make the folder that all other subcommands work on, with copies of the "
        "sentences, and train the first model if there are labels. Without --train the first "
        "queries are whole sentences.",
    )
    add = parser.add_argument
    add("--pool", required=True, metavar="FILE", help="sentences to choose from; labels in it are "
        "never looked at; columns may lack the label (- is standard input)")  # fmt: skip
    add("--pool-format", choices=("same", "plain"), default="same", help="of the pool: that of "
        "--format, or plain text, one sentence a line, tokens between spaces (same)")  # fmt: skip
    add("--train", metavar="FILE", help="sentences that have labels; the last column is the label")
    add("--labels", type=parse_labels, metavar="A,B,…", help="all labels that may be given; with "
        "--train those that it lacks")  # fmt: skip
    add("--dev", metavar="FILE", help="labelled sentences to score every model on")
    add("--out", required=True, metavar="DIR", help="the folder to make")
    add("--templates", metavar="T", help="a file of templates, jaxseq's or CRF++'s, or one of "
        f"{', '.join(BUILT_IN)} (of {', '.join(BY_COLUMNS)} the first that the columns "
        "allow)")  # fmt: skip
    add_corpus_options(parser)
    add_learner_options(parser)
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(run=_run)


def parse_labels(text: str) -> tuple[str, ...]:
    """Labels separated by commas, as an argument.

    Example:
        >>> parse_labels("B-NP, I-NP,O")
        ('B-NP', 'I-NP', 'O')
    """
    labels = tuple(label.strip() for label in text.split(","))
    if "" in labels or len(set(labels)) < len(labels):
        raise argparse.ArgumentTypeError(
            f"expected different labels separated by commas, such as B-NP,I-NP,O, got {text!r}"
        )
    return labels


def _run(options: argparse.Namespace) -> int:
    check_learner_options(options)
    out = Path(options.out)
    _require_place(out)
    if options.train is None and options.labels is None:
        raise ValueError("--labels: expected the labels that may be given, since --train is not")
    train = None
    if options.train is not None:
        train = read_corpus(options.train, options, scheme=options.scheme)
    templates, like = templates_for_pool(options, train)
    pool = read_pool(options, like, templates.columns)
    dev = None
    if options.dev is not None:
        dev = read_corpus(options.dev, options, like=like.names)
    learner = new_learner(options, templates)
    _write(out, learner, train, pool, dev, options)
    with opened(options.out) as run:
        told = []
        if run.has_labels():
            run.train()
            told.append(line_on_training(run))
        report = run.report()
    counts = (0 if train is None else len(train.sentences), len(pool))
    report |= {"given_sentences": counts[0], "pool_sentences": counts[1], "labels": run.classes}
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report, told))
    return 0


def _as_text(report: dict[str, Any], told: list[str]) -> str:
    lines = [
        f"read      {report['given_sentences']:,} sentences with labels, "
        f"{report['pool_sentences']:,} to choose from",
        f"labels    {' '.join(report['labels'])}; jaxseq active labels --add adds others",
        *told,
        *lines_of(report),
        f"then      jaxseq active query {report['folder']}, or annotate {report['folder']}",
    ]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------- folder


def _require_place(out: Path) -> None:
    """ValueError unless a new folder can be made there."""
    if Path.cwd().is_relative_to(out.resolve()):
        raise ValueError(f"--out: expected a folder to make, got {str(out)!r}, which is in use")
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out}: expected nothing or an empty folder there, found other files")
    require_model_place(str(out))


def _write(
    out: Path,
    learner: ActiveLearner,
    train: Corpus | None,
    pool: list[Any],
    dev: Corpus | None,
    options: argparse.Namespace,
) -> None:
    """Make the folder, which appears only when all of it is there."""
    given = [] if train is None else [s.without(str(train.names[-1])) for s in train.sentences]
    sources = {name: getattr(options, name) for name in ("train", "pool", "dev")}
    dev_sentences = [] if dev is None else [s.without(str(dev.names[-1])) for s in dev.sentences]
    dev_labels = [] if dev is None else dev.known_labels()
    corpora = Corpora([*given, *pool], dev_sentences, dev_labels, sources)
    labels: Any = None if train is None else [*train.labels, *[None] * len(pool)]
    classes = set(options.labels or ())
    if train is not None:
        classes |= {label for row in train.labels for label in row if label is not None}
    folder = out.absolute().with_name(f".{out.absolute().name}.{secrets.token_hex(6)}.tmp")
    try:
        learner.begin(corpora.pool, labels, sorted(classes), folder=folder)
        write_corpora(folder, corpora)
        os.replace(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
