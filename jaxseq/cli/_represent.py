"""``jaxseq represent``: what words have in common, learnt from text without labels."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jaxseq.cli._files import (
    STANDARD,
    column_blocks,
    iter_words,
    require_file,
    shown,
    unlabelled_columns,
)
from jaxseq.cli._options import (
    Names,
    add_column_options,
    add_format_options,
    check_format_options,
    parse_count,
    parse_kinds,
    parse_sizes,
    tokenizer,
)

if TYPE_CHECKING:
    from jaxseq.representations import Representation

EXAMPLES, WORDS_EACH = 5, 8
"""Clusters that the report shows, and how many words of each."""


def add_represent(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Learn from sentences without labels which words are alike, and write it to a file for "
        "jaxseq train --representation. With --vectors, take word vectors that others have learnt."
    )
    add = parser.add_argument
    add("file", nargs="*", metavar="FILE", help="the sentences; - is standard input")
    add("--out", required=True, metavar="WORDS", help="the file to write")
    add_format_options(parser)
    add_column_options(parser)
    add("--column", default="word", metavar="NAME", help="the column of the words (word)")
    add(
        "--kinds",
        type=parse_kinds,
        metavar="KINDS",
        help="what to learn, separated by commas: clusters, brown (Brown clusters), states (of a "
        "hidden Markov model) (clusters)",
    )
    add(
        "--sizes",
        type=parse_sizes,
        metavar="N,N",
        help="numbers of clusters (16,64,256,1024)",
    )
    add("--brown-classes", type=parse_count, metavar="N", help="Brown clusters (256)")
    add(
        "--states",
        dest="num_states",
        type=parse_count,
        metavar="N",
        help="states of the hidden Markov model (64)",
    )
    add(
        "--min-count",
        type=parse_count,
        metavar="N",
        help="words seen fewer times are known by their spelling alone (2)",
    )
    add(
        "--vectors",
        metavar="FILE",
        help="cluster these word vectors instead of learning from sentences: word2vec (text or "
        "binary), GloVe or fastText, or .npy along with --words",
    )
    add("--words", metavar="FILE", help="the words of a .npy file of --vectors, one per line")
    add("--max-words", type=parse_count, metavar="N", help="the most frequent N words only")
    add("--seed", type=int, default=0, metavar="N", help="of the vectors and clusters (0)")
    add("--quiet", action="store_true", help="no progress bar and no report")
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    if os.path.isdir(options.out):  # before minutes of work
        raise ValueError(f"--out: expected a file, found the folder {options.out}")
    began = time.perf_counter()
    learn = _learn if options.vectors is None else _take_vectors
    representation = learn(options)
    representation.save(options.out)
    report = {
        **representation.about,
        "words": len(representation.lexicon.words),
        "seconds": time.perf_counter() - began,
        "representation": options.out,
    }
    if options.json:
        print(json.dumps(report))
    elif not options.quiet:
        print(_text(representation, report))
    return 0


def _check(options: argparse.Namespace) -> None:
    """ValueError for options that do not go together, and for files that are not there."""
    if (options.vectors is None) != bool(options.file):
        raise ValueError("FILE: expected files of sentences, or --vectors, and not both")
    if options.words is not None and options.vectors is None:
        raise ValueError("--words: expected along with --vectors FILE.npy only")
    if options.vectors is not None:
        for name in ("kinds", "brown_classes", "num_states", "min_count", "columns", "delimiter"):
            if getattr(options, name) is not None:
                shown_name = "states" if name == "num_states" else name.replace("_", "-")
                raise ValueError(f"--{shown_name}: expected along with sentences only")
    check_format_options(options)
    for path in (*options.file, options.vectors, options.words):
        if path not in (None, STANDARD):
            require_file(path)


def _learn(options: argparse.Namespace) -> Representation:
    from jaxseq.representations import learn_representation

    names = ("kinds", "sizes", "brown_classes", "num_states", "min_count", "max_words")
    settings = {name: getattr(options, name) for name in names}
    return learn_representation(
        list(_sentences(options)),
        **{name: value for name, value in settings.items() if value is not None},
        column=options.column,
        seed=options.seed,
        progress=False if options.quiet else None,
    )


def _take_vectors(options: argparse.Namespace) -> Representation:
    from jaxseq.representations import read_vectors, representation_from_vectors

    words, vectors = read_vectors(options.vectors, options.words, max_words=options.max_words)
    sizes = {} if options.sizes is None else {"sizes": options.sizes}
    return representation_from_vectors(
        words, vectors, **sizes, column=options.column, seed=options.seed
    )


def _sentences(options: argparse.Namespace) -> Iterator[dict[str, list[str]]]:
    """The words of each sentence, as the only column."""
    for path in options.file:
        if options.format == "plain":
            split = tokenizer(options)
            for words in iter_words(path, options.encoding, split):
                yield {options.column: words}
            continue
        names: Names = ()
        for block in column_blocks(path, options):
            if block.is_docstart:
                continue
            if not names:  # the first sentence tells how many columns there are
                place = f"{shown(path)}:{block.line_number(0)}"
                wanted, width = [options.column], len(block.columns)
                names = unlabelled_columns(
                    width, options.columns, wanted, place, "--column", block.is_conllu
                )
            yield {options.column: list(block.columns[names.index(options.column)])}


def _text(representation: Representation, report: dict[str, Any]) -> str:
    """What was learnt, with some clusters to look at."""
    lines = [f"words     {len(representation.lexicon.words):,}"]
    if "tokens" in report:
        lines.insert(0, f"read      {report['sentences']:,} sentences, {report['tokens']:,} tokens")
    lines.append(f"learnt    {representation} ({report['seconds']:.1f} s)")
    if representation.clusters:
        size = sorted(representation.clusters)[len(representation.clusters) // 2]
        lines += [f"          some of the {size} clusters:"]
        lines += [f"          {' '.join(words)}" for words in _examples(representation, size)]
    return "\n".join([*lines, f"written   {report['representation']}"])


def _examples(representation: Representation, size: int) -> list[list[str]]:
    """The most frequent words of some clusters."""
    known = representation.lexicon.words.strings  # the most frequent first
    members: dict[int, list[str]] = {}
    for word, cluster in zip(known, representation.clusters[size].tolist()):
        members.setdefault(cluster, []).append(word)
    enough = [words[:WORDS_EACH] for words in members.values() if len(words) >= WORDS_EACH]
    return enough[:: max(1, len(enough) // EXAMPLES)][:EXAMPLES]
