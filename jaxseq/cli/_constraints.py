"""``jaxseq constraints``: how often labelled sentences violate the constraints of a file."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np

from jaxseq.cli._files import Corpus, read_corpus, require_columns
from jaxseq.cli._options import add_corpus_options
from jaxseq.cli._rules import columns_of_rules, read_rules


def add_constraints(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``jaxseq constraints``."""
    parser.description = (
        "How often labelled sentences violate each constraint of a file, and the "
        "penalties that they speak for: the log-odds of a violation not happening."
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="of constraints, in TOML")
    add("data", nargs="+", metavar="DATA", help="labelled corpora, as for jaxseq train")
    add("--model", metavar="DIR", help="whose labels the constraints are for; by default DATA's")
    add(
        "--smoothing",
        type=_smoothing,
        default=1.0,
        metavar="X",
        help="added to both counts of an estimated penalty, more than 0 (1)",
    )
    add_corpus_options(parser)
    add("--json", action="store_true", help="print one JSON object, not a table")
    parser.set_defaults(run=_run)


def _smoothing(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan  # refused below, like NaN itself
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number, more than 0, got {text!r}")
    return value


def _run(options: argparse.Namespace) -> int:
    corpora = [read_corpus(path, options) for path in options.data]
    gold = [labels for corpus in corpora for labels in corpus.known_labels()]
    labels = _labels(options.model, gold)
    rules = read_rules(options.file, labels)
    _check_columns(corpora, columns_of_rules(rules), options.file)
    # Without a model the labels are those of the corpora, and none is unknown.
    unknown = {label for labels_ in gold for label in labels_} - set(labels)
    if unknown:
        raise ValueError(
            f"{options.data[0]}: expected the labels of {options.model}, {', '.join(labels)}; "
            f"found {min(unknown)!r}"
        )
    sentences = [sentence for corpus in corpora for sentence in corpus.sentences]
    report = describe(rules, sentences, gold, labels, options.smoothing)
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report))
    return 0


def _labels(model: str | None, gold: list[list[str]]) -> list[str]:
    if model is None:
        return sorted({label for labels in gold for label in labels})
    from jaxseq.taggers import load

    return load(model).classes_.tolist()


def _check_columns(corpora: list[Corpus], needed: tuple[str, ...], reader: str) -> None:
    for corpus in corpora:
        # The last column is the label, which no rule may look at.
        there = [name for name in corpus.names[:-1] if name is not None]
        require_columns(needed, there, reader, corpus.path)


def describe(
    rules: Any, sentences: list[Any], gold: list[list[str]], labels: list[str], smoothing: float
) -> dict[str, Any]:
    """How often a corpus violates constraints, ready for JSON.

    Args:
        rules: from `jaxseq.constraints.read_constraints`.
        sentences: as the rules look at them.
        gold: their labels.
        labels: all labels, in the order of the model.
        smoothing: of the estimated penalties.
    """
    from jaxseq.constraints import corpus_violations, estimate_penalties

    bound = rules.bind(labels)
    number = {label: place for place, label in enumerate(labels)}
    # Labels by number, all sentences in a row.
    flat = np.array([number[label] for labels_ in gold for label in labels_], np.int32)
    lengths = np.array([len(labels_) for labels_ in gold], np.int64)
    counts = corpus_violations(bound, bound.observe_all(sentences), flat, lengths)
    estimated = estimate_penalties(rules, sentences, gold, smoothing, labels=labels)
    return {
        "sentences": len(gold),
        "tokens": len(flat),
        "scheme": rules.scheme,
        "constraints": [
            {
                "name": rule.name,
                # JSON has no infinity.
                "penalty": "inf" if math.isinf(rule.penalty) else rule.penalty,
                "violations": int(column.sum()),
                "sentences_violating": int((column > 0).sum()),
                "share_of_sentences": float((column > 0).mean()),
                "estimated_penalty": penalty,
            }
            for rule, column, penalty in zip(rules.rules, counts.T, estimated)
        ],
    }


def _as_text(report: dict[str, Any]) -> str:
    rows = report["constraints"]
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"{len(rows)} constraints, {report['sentences']:,} sentences, {report['tokens']:,} tokens",
        "",
        f"{'':{width}}  violations  sentences    share  penalty  estimated",
    ]
    for row in rows:
        penalty = float(row["penalty"])
        lines.append(
            f"{row['name']:{width}}  {row['violations']:10,}  {row['sentences_violating']:9,}  "
            f"{row['share_of_sentences']:7.2%}  {penalty:7.3f}  {row['estimated_penalty']:9.3f}"
        )
    return "\n".join(lines)
