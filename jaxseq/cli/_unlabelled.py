"""Unlabelled sentences to learn from: their files, in the format of the labelled ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

from jaxseq.cli._files import (
    STANDARD,
    Block,
    Corpus,
    Part,
    iter_blocks,
    require_columns,
    require_file,
    shown,
)
from jaxseq.cli._options import Names
from jaxseq.text import Sentence

# The label of tokens outside of any chunk, in all schemes.
OUTSIDE = "O"


class _Selection:
    """Every `step`-th of the sentences of all files, from the `first` on.

    Args:
        part: first and step.
    """

    def __init__(self, part: Part):
        self._first, self._step = part
        self.seen = 0
        self.kept: list[Sentence] = []

    def take(self, make: Callable[[], Sentence]) -> None:
        """One more, which is made only if it is kept."""
        if self.seen % self._step == self._first:
            self.kept.append(make())
        self.seen += 1


def read_unlabelled(
    options: argparse.Namespace, train: Corpus, needed: Sequence[str], part: Part = (0, 1)
) -> list[Sentence]:
    """The sentences of ``--unlabelled``, without labels.

    Args:
        options: of the command line.
        train: the labelled corpus, whose columns these are.
        needed: the columns that the model reads.
        part: which of all files' sentences to keep; the others are not held.

    Returns:
        The sentences; every file has at least one.
    """
    selection = _Selection(part)
    for path in options.unlabelled:
        before = selection.seen
        _read_columns(path, options, train, needed, selection)
        if selection.seen == before:
            raise ValueError(f"{shown(path)}: expected at least one sentence, found none")
    return selection.kept


def _read_columns(
    path: str,
    options: argparse.Namespace,
    train: Corpus,
    needed: Sequence[str],
    selection: _Selection,
) -> None:
    if path != STANDARD:
        require_file(path)
    names: Names = ()
    suspect = None
    for block in iter_blocks(path, options.delimiter):
        if block.is_docstart:
            continue
        if not names:  # the first sentence tells how many columns there are
            place = f"{shown(path)}:{block.first}"
            names = names_without_label(block.width, train.names, place)
            there = [name for name in names if name is not None]
            templates = options.templates
            reader = "the model" if templates is None else f"the template set {templates}"
            require_columns(needed, there, reader, place)
            if options.columns is None and len(names) > 1 and names[-1] in needed:
                suspect = _SuspectColumn(str(names[-1]), len(names) - 1, train, place)
        if suspect is not None:
            suspect.look_at(block)
        selection.take(partial(_sentence, block, names))
    if suspect is not None:
        suspect.require_features()


def _sentence(block: Block, names: Names) -> Sentence:
    """The sentence of a block; equal cells share one string, as there may be millions of tokens."""
    named = ((i, name) for i, name in enumerate(names) if name is not None)
    return Sentence.from_cells({name: tuple(map(sys.intern, block.column(i))) for i, name in named})


def names_without_label(width: int, names: Names, place: str) -> Names:
    """Names of the columns of an unlabelled file; None for one that is left out, as a label is.

    Args:
        width: how many columns the file has.
        names: of the columns of the labelled file, that of the label last.
        place: the file and the line, for messages.

    Example:
        >>> names_without_label(3, ("word", "pos", "label"), "more.txt:1")
        ('word', 'pos', None)
        >>> names_without_label(2, ("word", "pos", "label"), "more.txt:1")
        ('word', 'pos')
        >>> names_without_label(1, ("word", "pos", "label"), "more.txt:1")
        ('word',)
    """
    *features, label = names
    if width == len(names):
        return (*features, None)
    if width == len(features):
        return tuple(features)
    if width == 1:
        return tuple(name for name in features if name is not None)[:1]
    listed = ", ".join(name or "-" for name in features)
    raise ValueError(
        f"{place}: expected the columns of the labelled sentences ({listed}, {label}), with or "
        f"without the last, or words alone; found {width} columns"
    )


class _SuspectColumn:
    """A column that the model reads, and that may hold labels instead.

    A file of words and labels has as many columns as one of words and parts of speech. It is
    labels that the column holds if every cell is one; O alone proves nothing, as it is also the
    tag of tokens outside of chunks.

    Args:
        name: what the model calls the column.
        index: which column it is, from 0.
        train: the labelled corpus.
        place: the file and the line, for messages.
    """

    def __init__(self, name: str, index: int, train: Corpus, place: str):
        self._name, self._index, self._place = name, index, place
        self._labels = {label for labels in train.labels for label in labels}
        self._cells: dict[str, None] = {}  # in order, so that the message names the first
        self._cleared = False

    def look_at(self, block: Block) -> None:
        """A cell that is no label clears the column."""
        if not self._cleared:
            self._cells.update(dict.fromkeys(block.column(self._index)))
            self._cleared = not self._cells.keys() <= self._labels

    def require_features(self) -> None:
        """ValueError if all cells were labels."""
        if not self._cleared and self._cells.keys() != {OUTSIDE}:
            raise ValueError(
                f"{self._place}: expected the column {self._name!r} in the place of column "
                f"{self._index + 1}, found labels such as {next(iter(self._cells))!r} (--columns "
                "says what the columns are)"
            )
