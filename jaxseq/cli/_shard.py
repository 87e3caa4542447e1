"""``jaxseq shard``: a labelled corpus of any size as featurised shards, to train from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from jaxseq.cli._files import first_width, labelled_columns, require_file, require_rereadable
from jaxseq.cli._models import add_templates_option, choose_templates
from jaxseq.cli._options import Names, add_column_options
from jaxseq.text import Sentence, iter_conll


def add_shard(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compute the features of a labelled corpus of columns part by part, and write them to a "
        "folder of shards for train --shards. Each file is read three times, and never held whole."
    )
    add = parser.add_argument
    add("--train", required=True, nargs="+", metavar="FILE", help="one or more files of columns")
    add_templates_option(add)
    add("--out", required=True, metavar="DIR", help="a new or an empty folder")
    add("--shard-tokens", type=int, metavar="N", help="tokens per shard (a million)")
    add("--cutoff", type=int, default=1, metavar="N", help="ignore attributes rarer than this (1)")
    add_column_options(parser)
    add("--scheme-to", metavar="IOB2", help="convert the labels to IOB1, IOB2, IOBES or BILOU")
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from jaxseq.shards import SHARD_TOKENS, read_index, write_shards

    for path in options.train:  # a pipe would be empty in the second reading
        require_file(path)
        require_rereadable(path, "it is read three times")
    names = _names(options)
    templates = choose_templates(options.templates, names[:-1], options.train[0])
    label = str(names[-1])  # `labelled_columns` refuses a label without a name

    def read() -> Iterator[tuple[Sentence, list[str]]]:
        for path in options.train:
            for sentence in iter_conll(
                path, names, delimiter=options.delimiter, scheme_to=options.scheme_to
            ):
                yield sentence, list(sentence[label])

    tokens = SHARD_TOKENS if options.shard_tokens is None else options.shard_tokens
    folder = write_shards(
        read, options.out, templates=templates, cutoff=options.cutoff, shard_tokens=tokens
    )
    index = read_index(folder)
    report = {
        "folder": options.out,
        "shards": len(index.shards),
        "sentences": index.sentences,
        "tokens": index.tokens,
        "attributes": index.attributes,
        "labels": len(index.classes),
        "bytes": sum(shard.bytes for shard in index.shards),
    }
    if options.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{name:<10} {value}" for name, value in report.items()))
    return 0


def _names(options: argparse.Namespace) -> Names:
    """Names of the columns, which all files must have."""
    if options.columns is not None:
        return labelled_columns(0, options.columns, options.train[0])
    for path in options.train:  # the first ones may have no sentences
        if width := first_width(path, options.delimiter):
            return labelled_columns(width, None, path)
    raise ValueError(f"{', '.join(options.train)}: expected at least one sentence, found none")
