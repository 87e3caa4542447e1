"""``jaxseq constraints``: how often labelled sentences violate the constraints of a file."""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxseq.cli._files import read_corpus, require_columns, require_file, warn_mixed_schemes
from jaxseq.cli._options import add_classes_option, add_corpus_options, parse_smoothing

if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile


def add_constraints(parser: argparse.ArgumentParser) -> None:
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
        type=parse_smoothing,
        default=1.0,
        metavar="X",
        help="added to both counts of an estimated penalty, more than 0 (1)",
    )
    add_corpus_options(parser)
    add_classes_option(add)
    add("--json", action="store_true", help="print one JSON object, not a table")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    corpora = [read_corpus(path, options) for path in options.data]
    warn_mixed_schemes([corpus.scheme() for corpus in corpora])
    gold = [labels for corpus in corpora for labels in corpus.known_labels()]
    if options.model is None:
        labels = sorted({label for labels in gold for label in labels} | set(options.classes or ()))
    else:
        from jaxseq.taggers import load

        labels = load(options.model).classes_.tolist()
    rules = read_rules(options.file, labels)
    for corpus in corpora:
        require_columns(columns_of_rules(rules), corpus.columns, options.file, corpus.path)
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


def describe(
    rules: Any, sentences: list[Any], gold: list[list[str]], labels: list[str], smoothing: float
) -> dict[str, Any]:
    """How often a corpus violates constraints, ready for JSON; labels are in the model's order."""
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


# Labels under constraints, for the commands that predict and train.


def read_rules(path: str, labels: Iterable[str]) -> ConstraintFile:
    from jaxseq.constraints import read_constraints

    require_file(path)
    return read_constraints(path, list(labels))


def columns_of_rules(rules: ConstraintFile | None) -> tuple[str, ...]:
    """Names of the columns that constraints look at; empty where there are no constraints."""
    # Rules about labels alone have no `tokens`.
    # In order and without repetition, for messages that list them.
    all_tokens = (getattr(rule.rule, "tokens", None) for rule in rules.rules) if rules else ()
    return tuple(dict.fromkeys(tokens.column for tokens in all_tokens if tokens is not None))


class ConstrainedTagger:
    """A trained tagger that predicts under constraints, and counts where they cannot be met."""

    def __init__(self, tagger: Any, rules: ConstraintFile, width: int | None):
        self.tagger, self.width = tagger, width
        self.classes_ = tagger.classes_
        self.constraints = rules.bind(tagger.classes_.tolist())
        self.seen = self.unmet = self.first_unmet = 0

    def predict(self, X: Sequence[Any]) -> list[list[str]]:
        with _constraint_warnings_held() as caught:
            labels = self.tagger.predict(X, constraints=self.constraints, width=self.width)
        self._count_unmet(X, labels, bool(caught))
        return labels

    def predict_k_best(self, X: Sequence[Any], k: int) -> list[list[tuple[list[str], float]]]:
        # A beam narrower than k cannot hold k labellings.
        width = None if self.width is None else max(k, self.width)
        with _constraint_warnings_held() as caught:
            paths = self.tagger.predict_k_best(X, k, constraints=self.constraints, width=width)
        self._count_unmet(X, [best[0][0] if best else None for best in paths], bool(caught))
        return paths

    def _count_unmet(
        self, X: Sequence[Any], labels: Sequence[list[str] | None], any_unmet: bool
    ) -> None:
        """Count the sentences whose best labelling violates hard constraints."""
        from jaxseq.constraints import corpus_violations

        if any_unmet:  # counting costs a pass over the sentences, so only when it was warned of
            number = {label: place for place, label in enumerate(self.classes_.tolist())}
            kept = [(place, path) for place, path in enumerate(labels) if path is not None]
            flat = np.array([number[label] for _, path in kept for label in path], np.int32)
            lengths = np.array([len(path) for _, path in kept], np.int64)
            x = self.constraints.observe_all([X[place] for place, _ in kept])
            counts = corpus_violations(self.constraints, x, flat, lengths)
            bad = np.flatnonzero(counts @ np.array(self.constraints.hard))
            if len(bad) and not self.unmet:
                self.first_unmet = self.seen + kept[bad[0]][0] + 1  # people count from 1
            self.unmet += len(bad)
        self.seen += len(X)

    def say_unmet(self) -> None:
        """Print one line on standard error, if hard constraints could not all be met."""
        if self.unmet:
            print(
                f"jaxseq: warning: no labelling that satisfies all hard constraints was found for "
                f"{self.unmet} of {self.seen} sentences, the first of them sentence "
                f"{self.first_unmet}; they get the fewest violations",
                file=sys.stderr,
            )


@contextmanager
def _constraint_warnings_held() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings of constraints that cannot be met, which are reported once at the end.

    Tagging in chunks would otherwise print one for each. All other warnings go through.
    """
    from jaxseq.constraints import ConstraintWarning

    caught: list[warnings.WarningMessage] = []
    with warnings.catch_warnings(record=True) as everything:
        warnings.simplefilter("always", ConstraintWarning)
        yield caught
    for warning in everything:
        if issubclass(warning.category, ConstraintWarning):
            caught.append(warning)
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
