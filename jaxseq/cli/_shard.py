"""``jaxseq shard``: a labelled corpus of any size as featurised shards, to train from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

from jaxseq.cli._files import (
    Layout,
    Source,
    first_sentence,
    labelled_layout,
    require_file,
    require_rereadable,
    rereadable,
    shown,
    warn_mixed_schemes,
)
from jaxseq.cli._models import add_templates_option, choose_templates
from jaxseq.cli._options import add_classes_option, add_column_options, add_label_column_option
from jaxseq.text import Sentence, corpus_scheme, iter_conll


def add_shard(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compute the features of a labelled corpus of columns part by part, and write them to a "
        "folder of shards for train --shards. Files are read several times, and never held whole."
    )
    add = parser.add_argument
    add("--train", required=True, nargs="+", metavar="FILE", help="one or more files of columns")
    add_templates_option(add)
    add("--out", required=True, metavar="DIR", help="a new or an empty folder")
    add("--shard-tokens", type=int, metavar="N", help="tokens per shard (a million)")
    add("--cutoff", type=int, default=1, metavar="N", help="ignore attributes rarer than this (1)")
    add_column_options(parser)
    add_label_column_option(parser)
    add_classes_option(add)
    add("--scheme-to", metavar="IOB2", help="convert the labels to IOB1, IOB2, IOBES or BILOU")
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from jaxseq.shards import SHARD_TOKENS, read_index, write_shards

    tokens = SHARD_TOKENS if options.shard_tokens is None else options.shard_tokens
    with ExitStack() as copies:
        sources = [copies.enter_context(rereadable(path)) for path in options.train]
        for path in sources:  # a pipe would be empty in the second reading
            require_file(path)
            require_rereadable(path, "it is read several times")
        layout, conllu = _layout(sources, options)
        templates = choose_templates(options.templates, layout.features, shown(sources[0]))

        def read_file(path: Source) -> Iterator[tuple[Sentence, list[str]]]:
            for sentence in iter_conll(
                path,
                layout.names,
                delimiter=options.delimiter,
                encoding=options.encoding,
                conllu=conllu,
                scheme_to=options.scheme_to,
                scheme_column=layout.label_name,
            ):
                yield sentence, list(sentence[layout.label_name])

        if len(sources) > 1:  # each alone, before they are mixed
            labels = ((shown(path), (row for _, row in read_file(path))) for path in sources)
            warn_mixed_schemes([(name, corpus_scheme(rows)) for name, rows in labels])
        folder = write_shards(
            lambda: chain.from_iterable(map(read_file, sources)),
            options.out,
            templates=templates,
            cutoff=options.cutoff,
            shard_tokens=tokens,
            classes=options.classes,
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


def _layout(files: Sequence[Source], options: argparse.Namespace) -> tuple[Layout, bool]:
    """The columns, which all files must have, and whether they are CoNLL-U."""
    for path in files:  # the first ones may have no sentences
        block = first_sentence(path, options)
        if block is not None:
            conllu = block.is_conllu
            return labelled_layout(len(block.columns), options, shown(path), conllu), conllu
    if options.columns is not None:
        return labelled_layout(0, options, shown(files[0])), False
    listed = ", ".join(map(shown, files))
    raise ValueError(f"{listed}: expected at least one sentence, found none")
