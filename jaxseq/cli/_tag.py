"""``jaxseq tag``: labels for new sentences, in a stream."""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxseq.cli._files import (
    STANDARD,
    Block,
    Names,
    add_column_options,
    iter_blocks,
    iter_input,
    open_output,
    require_columns,
    require_file,
    shown,
    unlabelled_columns,
)
from jaxseq.text import tokenize

# -------------------------------------------------------------------------------------------------
# Constraints that labels are predicted under: their options, their file, and what they do.


if TYPE_CHECKING:
    from jaxseq.constraints import ConstraintFile


def add_constraint_options(add: Any) -> None:
    """Add ``--constraints`` and ``--beam``.

    Args:
        add: the method `add_argument` of a parser or group.
    """
    add(
        "--constraints",
        metavar="FILE",
        help="what labellings should obey, in TOML (see jaxseq.constraints."
        "read_constraints); the best one is that of the highest score less the penalties",
    )
    add(
        "--beam",
        type=parse_count,
        metavar="N",
        help="hypotheses kept while searching under constraints (50)",
    )


def parse_count(text: str) -> int:
    """A whole number, 1 or more, as an argument.

    Example:
        >>> parse_count("50")
        50
    """
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r:.60}")
    return int(text)


def check_constraint_options(options: argparse.Namespace, labellings: int | None = None) -> None:
    """ValueError for a beam without constraints, or too narrow for the labellings wanted."""
    if options.beam is None:
        return
    if options.constraints is None:
        raise ValueError("--beam: expected along with --constraints FILE only")
    if labellings is not None and options.beam < labellings:
        raise ValueError(
            f"--beam: expected at least as many as labellings are wanted, {labellings}, got "
            f"{options.beam}"
        )


def read_rules(path: str, labels: Iterable[str]) -> ConstraintFile:
    """The constraints of a file, for a model with these labels."""
    from jaxseq.constraints import read_constraints

    require_file(path)
    return read_constraints(path, list(labels))


def columns_of_rules(rules: ConstraintFile | None) -> tuple[str, ...]:
    """Names of the columns that constraints look at; none for no constraints.

    Example:
        >>> from jaxseq.constraints import ConstraintFile, OnlyOn, Penalised, Words
        >>> rule = OnlyOn(["A"], Words(["N"], column="pos"))
        >>> columns_of_rules(ConstraintFile([Penalised(rule, 1.0)])), columns_of_rules(None)
        (('pos',), ())
    """
    found = [] if rules is None else [getattr(rule.rule, "tokens", None) for rule in rules.rules]
    return tuple(dict.fromkeys(tokens.column for tokens in found if tokens is not None))


class ConstrainedTagger:
    """A trained tagger that predicts under constraints, and knows where they cannot be met.

    Args:
        tagger: the tagger. rules: the constraints. width: of the beam, or None.
    """

    def __init__(self, tagger: Any, rules: ConstraintFile, width: int | None):
        self.tagger, self.width = tagger, width
        self.classes_ = tagger.classes_
        self.constraints = rules.bind(tagger.classes_.tolist())
        self.seen = self.unmet = self.first_unmet = 0

    def predict(self, X: Sequence[Any]) -> list[list[str]]:
        """As the tagger's."""
        with _without_warnings() as caught:
            found = self.tagger.predict(X, constraints=self.constraints, width=self.width)
        self._note(X, found, bool(caught))
        return found

    def predict_k_best(self, X: Sequence[Any], k: int) -> list[list[tuple[list[str], float]]]:
        """As the tagger's."""
        width = None if self.width is None else max(k, self.width)
        with _without_warnings() as caught:
            found = self.tagger.predict_k_best(X, k, constraints=self.constraints, width=width)
        self._note(X, [paths[0][0] if paths else None for paths in found], bool(caught))
        return found

    def _note(self, X: Sequence[Any], found: Sequence[Any], any_unmet: bool) -> None:
        """Count the sentences whose best labelling violates hard constraints."""
        from jaxseq.constraints import corpus_violations

        if any_unmet:
            number = {label: place for place, label in enumerate(self.classes_.tolist())}
            kept = [place for place, labels in enumerate(found) if labels is not None]
            flat = np.array([number[label] for place in kept for label in found[place]], np.int32)
            lengths = np.array([len(found[place]) for place in kept], np.int64)
            x = self.constraints.observe_all([X[place] for place in kept])
            counts = corpus_violations(self.constraints, x, flat, lengths)
            bad = np.flatnonzero(counts @ np.array(self.constraints.hard))
            if len(bad) and not self.unmet:
                self.first_unmet = self.seen + kept[bad[0]] + 1
            self.unmet += len(bad)
        self.seen += len(X)

    def say_unmet(self) -> None:
        """One line on standard error, if hard constraints could not all be met."""
        if self.unmet:
            print(
                f"jaxseq: warning: no labelling that satisfies all hard constraints was found for "
                f"{self.unmet} of {self.seen} sentences, the first of them sentence "
                f"{self.first_unmet}; they get the fewest violations",
                file=sys.stderr,
            )


@contextmanager
def _without_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Catches what is said of constraints that cannot be met, so that it is said once."""
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


CHUNK = 2000
"""Sentences that are tagged together; no more of a file is in memory at a time."""

OUTSIDE = "O"


def add_tag(subparsers: Any) -> None:
    """Add the parser of ``jaxseq tag``."""
    parser = subparsers.add_parser(
        "tag",
        help="label new sentences with a trained model",
        description="Label new sentences: their lines, with the label as one more column. Files "
        "of any size are read and written in a stream.",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="of jaxseq train")
    add("file", nargs="?", default=STANDARD, metavar="FILE", help="to label; - (default): stdin")
    add("--out", metavar="FILE", help="where to write; by default stdout")
    add(
        "--format",
        choices=("conll", "plain"),
        default="conll",
        help="of the input: columns, with or without labels, or one sentence a line",
    )
    add(
        "--tokenize",
        choices=("spaces", "punctuation"),
        default="spaces",
        help="of plain text: at spaces, or with each punctuation mark a token of its own",
    )
    add_column_options(parser)
    add(
        "--marginals",
        action="store_true",
        help="after the label, all labels with their probabilities, LABEL:P, largest first",
    )
    add(
        "--k-best",
        type=int,
        metavar="K",
        help="the K most probable labellings of each sentence, each after a line '# rank P'; with "
        "--constraints P is the probability times exp(−penalties)",
    )
    add_constraint_options(add)
    parser.set_defaults(run=_run)


@dataclass(frozen=True)
class _Item:
    """What is to be written for one sentence: `lines`, each with a label added."""

    lines: Sequence[str]
    sentence: dict[str, list[str]] | None  # None: not a sentence, every line gets O
    between: str  # the lines and the labels


def _run(options: argparse.Namespace) -> int:
    if options.k_best is not None and options.k_best < 1:
        raise ValueError(f"--k-best: expected 1 or more, got {options.k_best}")
    if options.k_best is not None and options.marginals:
        raise ValueError("--k-best: expected no --marginals along with it")
    if options.format == "plain" and options.columns is not None:
        raise ValueError("--columns: expected with --format conll only")
    if options.format == "conll" and options.tokenize != "spaces":
        raise ValueError("--tokenize: expected with --format plain only")
    if options.constraints is not None and options.marginals:
        raise ValueError("--marginals: expected no --constraints along with it")
    check_constraint_options(options, options.k_best)
    if options.file != STANDARD:
        require_file(options.file)
    from jaxseq.cli._files import columns_of_model
    from jaxseq.taggers import load

    tagger = load(options.model)
    needed = columns_of_model(tagger, options.model)
    labels = tagger.classes_.tolist()
    constrained = None
    if options.constraints is not None:
        rules = read_rules(options.constraints, labels)
        needed = tuple(dict.fromkeys([*needed, *columns_of_rules(rules)]))
        tagger = constrained = ConstrainedTagger(tagger, rules, options.beam)
    read = _plain_items if options.format == "plain" else _column_items
    items = read(options, needed, labels)
    annotate = _annotation(tagger, options.marginals, options.k_best)
    with open_output(options.out) as file:
        while chunk := list(islice(items, CHUNK)):
            _write(file.write, chunk, annotate)
            file.flush()
    if constrained is not None:
        constrained.say_unmet()
    return 0


# -------------------------------------------------------------------------------------- input


def _plain_items(
    options: argparse.Namespace, needed: Sequence[str], labels: Sequence[str]
) -> Iterator[_Item]:
    require_columns(needed, ["word"], _reader(options), shown(options.file))
    split = tokenize if options.tokenize == "punctuation" else str.split
    for line in iter_input(options.file):
        words = split(line)
        if words:
            yield _Item(words, {"word": words}, options.delimiter or " ")


def _column_items(
    options: argparse.Namespace, needed: Sequence[str], labels: Sequence[str]
) -> Iterator[_Item]:
    names: Names | None = None
    between = options.delimiter
    for block in iter_blocks(options.file, options.delimiter):
        if between is None:
            between = "\t" if "\t" in block.lines[0].strip(" \t") else " "
        lines = block.lines
        if options.delimiter is None:
            lines = [line.rstrip(" \t") for line in lines]
        if block.is_docstart:
            yield _Item(lines, None, between)
            continue
        if names is None:
            place = f"{shown(options.file)}:{block.first}"
            names = unlabelled_columns(
                block.width, options.columns, needed, place, _reader(options)
            )
            if options.columns is None:
                _check_no_labels(block, names, needed, labels, place)
        cells = {name: block.column(i) for i, name in enumerate(names) if name is not None}
        yield _Item(lines, cells, between)


def _reader(options: argparse.Namespace) -> str:
    """Who reads the columns, for messages."""
    return "the model" if options.constraints is None else "the model with its constraints"


def _check_no_labels(
    block: Block, names: Names, needed: Sequence[str], labels: Sequence[str], place: str
) -> None:
    """ValueError when the last column, which the model reads, holds what it is to predict.

    A file of words and labels has as many columns as one of words and parts of speech. The O
    alone proves nothing: chunks and entities share it.
    """
    last, cells = names[-1], set(block.column(-1))
    if len(names) > 1 and last in needed and cells <= set(labels) and cells != {OUTSIDE}:
        raise ValueError(
            f"{place}: expected the column {last!r} in the place of column {len(names)}, found "
            f"labels such as {block.rows[0][-1]!r} (--columns says what the columns are)"
        )


# ------------------------------------------------------------------------------------- output

Annotation = Callable[[list[dict[str, list[str]]]], list[list[tuple[str, list[list[str]]]]]]
"""For each sentence its versions: a line before it or none, and what each token's line gets."""


def _annotation(tagger: Any, marginals: bool, k_best: int | None) -> Annotation:
    if k_best is not None:
        return lambda sentences: [
            [
                (f"# {rank} {math.exp(log_prob):.6f}\n", [[label] for label in labels])
                for rank, (labels, log_prob) in enumerate(paths)
            ]
            for paths in tagger.predict_k_best(sentences, k_best)
        ]
    if not marginals:
        return lambda sentences: [
            [("", [[label] for label in labels])] for labels in tagger.predict(sentences)
        ]
    names = tagger.classes_.tolist()

    def with_probabilities(sentences):
        found = zip(tagger.predict(sentences), tagger.predict_proba(sentences))
        return [[("", list(map(row, best, table.tolist())))] for best, table in found]

    def row(label: str, probabilities: list[float]) -> list[str]:
        order = sorted(range(len(names)), key=lambda i: -probabilities[i])
        return [label, *(f"{names[i]}:{probabilities[i]:.6f}" for i in order)]

    return with_probabilities


def _write(write: Callable[[str], Any], items: Sequence[_Item], annotate: Annotation) -> None:
    sentences = [item.sentence for item in items if item.sentence is not None]
    annotated = iter(annotate(sentences) if sentences else [])
    for item in items:
        versions = [("", [[OUTSIDE]] * len(item.lines))]
        if item.sentence is not None:
            versions = next(annotated)
        for title, added in versions:
            write(title)
            for line, cells in zip(item.lines, added):
                write(item.between.join([line, *cells]) + "\n")
            write("\n")
