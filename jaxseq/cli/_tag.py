"""``jaxseq tag``: labels for new sentences, in a stream."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jaxseq.cli._constraints import ConstrainedTagger, columns_of_rules, read_rules
from jaxseq.cli._files import (
    OUTSIDE,
    STANDARD,
    column_blocks,
    columns_of_model,
    iter_words,
    open_output,
    refuse_labels,
    require_columns,
    require_file,
    shown,
    unlabelled_columns,
)
from jaxseq.cli._options import (
    Names,
    add_column_options,
    add_constraint_options,
    add_format_options,
    check_constraint_options,
    check_format_options,
    tokenizer,
)

# Sentences that are tagged together; no more of a file than that is in memory at a time.
CHUNK = 2000


def add_tag(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Label new sentences: write their lines with the label as one more column. Files of any "
        "size are read and written as a stream."
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="a model saved by jaxseq train")
    add(
        "file",
        nargs="?",
        default=STANDARD,
        metavar="FILE",
        help="the sentences; - or nothing for standard input",
    )
    add("--out", metavar="FILE", help="where to write; standard output by default")
    add_format_options(parser)
    add_column_options(parser)
    add(
        "--marginals",
        action="store_true",
        help="after the label, write all labels with their probabilities as LABEL:P, largest first",
    )
    add(
        "--k-best",
        type=int,
        metavar="K",
        help="write the K most probable labellings of each sentence, each after a line "
        "'#rank=0,P=0.5' without a space, which no line of a token is; with --constraints, P is "
        "the probability times exp(−penalties)",
    )
    add_constraint_options(add)
    parser.set_defaults(run=_run)


@dataclass(frozen=True)
class _Item:
    """What is to be written for one sentence: `lines`, with a label added to each token.

    `places` are those of the tokens, None where all lines are; the others are of CoNLL-U.
    """

    lines: Sequence[str]
    sentence: dict[str, Sequence[str]] | None  # None for -DOCSTART-, whose line gets O
    between: str  # what separates the line from the label
    places: Sequence[int] | None = None


def _run(options: argparse.Namespace) -> int:
    if options.k_best is not None and options.k_best < 1:
        raise ValueError(f"--k-best: expected 1 or more, got {options.k_best}")
    if options.k_best is not None and options.marginals:
        raise ValueError("--k-best: expected no --marginals along with it")
    check_format_options(options)
    if options.constraints is not None and options.marginals:
        raise ValueError("--marginals: expected no --constraints along with it")
    check_constraint_options(options, options.k_best)
    if options.file != STANDARD:
        require_file(options.file)
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
    # A file appears when all is written, so that an error on the way leaves nothing behind.
    with open_output(options.out) as file:
        while chunk := list(islice(items, CHUNK)):
            _write(file.write, chunk, annotate)
            file.flush()  # whoever reads from a pipe sees labels as soon as they are there
    if constrained is not None:
        constrained.say_unmet()
    return 0


def _plain_items(
    options: argparse.Namespace, needed: Sequence[str], labels: Sequence[str]
) -> Iterator[_Item]:
    require_columns(needed, ["word"], _reader(options), shown(options.file))
    split = tokenizer(options)
    for words in iter_words(options.file, options.encoding, split):
        yield _Item(words, {"word": words}, options.delimiter or " ")


def _column_items(
    options: argparse.Namespace, needed: Sequence[str], labels: Sequence[str]
) -> Iterator[_Item]:
    names: Names | None = None
    between = options.delimiter
    for block in column_blocks(options.file, options):
        if between is None:  # the new column is separated as the others are
            tabs = block.is_conllu or "\t" in block.lines[0].strip(" \t")
            between = "\t" if tabs else " "
        lines = block.lines
        if options.delimiter is None:  # with --delimiter, a blank at the end belongs to a cell
            lines = [line.rstrip(" \t") for line in lines]
        if block.is_docstart:
            yield _Item(lines, None, between)
            continue
        if names is None:
            place = f"{shown(options.file)}:{block.line_number(0)}"
            width, reader = len(block.columns), _reader(options)
            names = unlabelled_columns(
                width, options.columns, needed, place, reader, block.is_conllu
            )
            if options.columns is None and len(names) > 1 and names[-1] in needed:
                refuse_labels(block.columns[-1], set(labels), names, place)
        cells = {name: column for name, column in zip(names, block.columns) if name is not None}
        yield _Item(lines, cells, between, block.places)


def _reader(options: argparse.Namespace) -> str:
    """Who reads the columns, for messages."""
    return "the model" if options.constraints is None else "the model with its constraints"


# For each sentence its versions: a title line or "", and the cells added to each line.
Annotation = Callable[[list[dict[str, Sequence[str]]]], list[list[tuple[str, list[list[str]]]]]]


def _annotation(tagger: Any, marginals: bool, k_best: int | None) -> Annotation:
    if k_best is not None:
        return lambda sentences: [
            [
                (f"#rank={rank},P={math.exp(log_prob):.6f}\n", [[label] for label in labels])
                for rank, (labels, log_prob) in enumerate(paths)
            ]
            for paths in tagger.predict_k_best(sentences, k_best)
        ]
    if not marginals:
        return lambda sentences: [
            [("", [[label] for label in labels])] for labels in tagger.predict(sentences)
        ]
    names = tagger.classes_.tolist()

    def row(label: str, probabilities: list[float]) -> list[str]:
        order = sorted(range(len(names)), key=lambda i: -probabilities[i])
        return [label, *(f"{names[i]}:{probabilities[i]:.6f}" for i in order)]

    def with_probabilities(sentences):
        pairs = zip(tagger.predict(sentences), tagger.predict_proba(sentences))
        return [[("", list(map(row, labels, table.tolist())))] for labels, table in pairs]

    return with_probabilities


# Sentences are labelled together, as one batch, but written in their places between the marks.
def _write(write: Callable[[str], Any], items: Sequence[_Item], annotate: Annotation) -> None:
    sentences = [item.sentence for item in items if item.sentence is not None]
    annotated = iter(annotate(sentences) if sentences else [])
    for item in items:
        versions = [("", [[OUTSIDE]] * len(item.lines))]
        if item.sentence is not None:
            versions = next(annotated)
        for title, added in versions:
            write(title)
            if item.places is not None:
                added = _among_all_lines(item, added)
            for line, cells in zip(item.lines, added):
                write(item.between.join([line, *cells]) + "\n")
            write("\n")


def _among_all_lines(item: _Item, added: list[list[str]]) -> list[list[str]]:
    """The cells for every line of CoNLL-U: of comments none, and ``_`` where there is no token."""
    cells = [[] if line.startswith("#") else ["_"] * len(added[0]) for line in item.lines]
    for place, own in zip(item.places or (), added):
        cells[place] = own
    return cells
