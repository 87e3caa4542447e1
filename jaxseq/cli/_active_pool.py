"""The pool of active learning: sentences in the format of the labelled ones, or plain text."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from jaxseq.cli._blocks import iter_blocks
from jaxseq.cli._columns import FEATURES, LABEL, Names, require_columns
from jaxseq.cli._corpus import Corpus
from jaxseq.cli._files import STANDARD, iter_input, require_file, require_rereadable, shown
from jaxseq.cli._template_choice import choose_templates, usual_templates
from jaxseq.cli._unlabelled import OUTSIDE, read_unlabelled
from jaxseq.text import Sentence, Templates


def templates_for_pool(
    options: argparse.Namespace, train: Corpus | None
) -> tuple[Templates, Corpus]:
    """The templates, and a corpus with the columns that the pool is to have.

    Args:
        options: those of ``jaxseq active start``.
        train: the labelled sentences, or None: then a corpus of none stands for them.
    """
    like, place = train, options.train
    if like is None:
        place = shown(options.pool)
        like = Corpus(place, [], [list(options.labels)], _names_of_pool(options))
    columns = like.names[:-1]
    name = usual_templates(columns) if options.templates is None else options.templates
    return choose_templates(name, columns, place), like


def _names_of_pool(options: argparse.Namespace) -> Names:
    """Names of the columns that sentences with labels would have, if there were any."""
    if options.columns is not None:
        if len(options.columns) < 2 or options.columns[-1] is None:
            raise ValueError("--columns: expected a name for the label, the last, and one before")
        return options.columns
    if options.format != "conll" or options.pool_format == "plain":
        return (FEATURES[0], LABEL)
    path: str = options.pool
    if path == STANDARD:
        raise ValueError("--pool: expected a file, or --columns with the names of its columns")
    require_file(path)
    require_rereadable(path, "or else --columns with the names of its columns")
    blocks = iter_blocks(path, options.delimiter)
    width = next((block.width for block in blocks if not block.is_docstart), 0)
    if not 1 <= width <= len(FEATURES) + 1:
        raise ValueError(
            f"{path}: expected sentences of 1 to {len(FEATURES) + 1} columns, or --columns with "
            f"their names; found {f'{width} columns' if width else 'no sentence'}"
        )
    return (*FEATURES[:width], LABEL)


def read_pool(options: argparse.Namespace, like: Corpus, needed: Sequence[str]) -> list[Sentence]:
    """The sentences of ``--pool``, without labels.

    Args:
        options: those of ``jaxseq active start``.
        like: of `templates_for_pool`. needed: the columns that the templates read.

    Returns:
        At least one sentence.
    """
    if options.pool_format == "plain":
        return _read_plain(options, needed)
    named = argparse.Namespace(**{**vars(options), "unlabelled": [options.pool]})
    sentences = read_unlabelled(named, like, needed)
    if options.train is None:
        _refuse_labels(sentences, like, set(options.labels), shown(options.pool))
    return sentences


def _refuse_labels(
    sentences: Sequence[Sentence], like: Corpus, labels: set[str], place: str
) -> None:
    """ValueError when a column holds some of the labels: without --train nothing says which it is.

    What also occurs in the first column, as punctuation does, and the O, prove nothing.
    """
    words, *others = sentences[0].columns
    cells = {name: {cell for s in sentences for cell in s[name]} for name in (words, *others)}
    for name in others:
        found = sorted((cells[name] & labels) - {OUTSIDE} - cells[words])
        if found:
            raise ValueError(
                f"{place}: expected no labels in column {like.names.index(name) + 1}, {name!r}, "
                f"found {found[0]!r} (--columns names the columns, the label last, and leaves one "
                "out with '-')"
            )


def _read_plain(options: argparse.Namespace, needed: Sequence[str]) -> list[Sentence]:
    place = shown(options.pool)
    require_columns(needed, [FEATURES[0]], f"the template set {options.templates}", place)
    lines = (line.split() for line in iter_input(options.pool))
    sentences = [Sentence({FEATURES[0]: words}) for words in lines if words]
    if not sentences:
        raise ValueError(f"{place}: expected at least one sentence, found none")
    return sentences
