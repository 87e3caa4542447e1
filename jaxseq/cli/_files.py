"""Files that the user names: checks before work begins, standard streams, columns and corpora."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from jaxseq.cli._options import Names
from jaxseq.text import (
    Sentence,
    TemplateExtractor,
    iter_conll,
    iter_lines,
    open_to_replace,
    split_cells,
)

# Stands for standard input.
STANDARD = "-"

_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8, which Windows writes


def require_file(path: str) -> None:
    """ValueError unless there is something to read at the path."""
    if not os.path.exists(path):
        raise ValueError(f"{path}: expected a file, there is none")
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file, found a folder")


def require_rereadable(path: str, why: str) -> None:
    """ValueError for what can be read only once, such as a pipe."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a regular file, found a pipe or a device; {why}")


def require_model_place(path: str) -> None:
    """ValueError unless a model can be saved there: training may take hours before it is.

    The folder of a run of active learning is refused: the run is lost without the model that it
    has trained last.
    """
    from jaxseq.active import holds_run
    from jaxseq.taggers import check_replaceable

    place = Path(path)
    for folder in place.resolve().parents:
        if holds_run(folder):
            raise ValueError(
                f"{path}: expected a place outside of {folder}, which is a run of jaxseq active"
            )
    check_replaceable(place)
    folder = place.absolute().parent
    while not folder.exists():  # saving makes the folders that are missing
        folder = folder.parent
    try:  # permissions do not say what a full or a read-only disk does
        os.rmdir(tempfile.mkdtemp(prefix=f".{place.name}.", dir=folder))
    except OSError as error:
        raise ValueError(
            f"{path}: expected a folder that can be written: {error.strerror}"
        ) from error


def iter_input(path: str) -> Iterator[str]:
    r"""The lines of a file in UTF-8, or of standard input for ``-``, without their ends.

    Raises:
        ValueError: for bytes that are not UTF-8, with the file and the line.
    """
    if path != STANDARD:
        require_file(path)
        yield from iter_lines(path)
        return
    # By bytes, as the locale may decode standard input by another encoding than UTF-8.
    for number, data in enumerate(sys.stdin.buffer, 1):
        data = data.removeprefix(_MARK) if number == 1 else data
        try:
            yield data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"standard input:{number}: expected text encoded as utf-8, found byte "
                f"{data[error.start]:02x}"
            ) from None


def shown(path: str) -> str:
    """What messages call an input."""
    return "standard input" if path == STANDARD else path


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """A file to write UTF-8 text to that appears only when complete; None is standard output."""
    if path is None:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:  # a stand-in for standard output may lack it
            reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file to write, found a folder")
    if os.path.exists(path) and not os.path.isfile(path):  # /dev/null must not become a file
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"{path}: expected a file in a folder that exists, {folder} does not")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_to_replace(path))
        except OSError as error:  # its own message names a temporary file
            raise ValueError(f"{path}: cannot be written: {error.strerror}") from error
        yield file


# Columns have names: those that the user gives, or those that their number suggests.

# What the columns before the label are called unless the user names them.
FEATURES = ("word", "pos", "chunk")

LABEL = "label"


def labelled_columns(width: int, names: Names | None, place: str) -> Names:
    """Names of the columns of a labelled file; the last is that of the label.

    Args:
        width: how many columns the file has.
        names: what the user calls them, or None.
        place: the file, for messages.

    Example:
        >>> labelled_columns(3, None, "train.txt")
        ('word', 'pos', 'label')
    """
    if names is not None:
        if names[-1] is None:
            raise ValueError("--columns: expected a name for the last column, the label, got -")
        if not any(names[:-1]):
            raise ValueError("--columns: expected a name for the label and at least one before it")
        return names
    if not 2 <= width <= len(FEATURES) + 1:
        raise ValueError(
            f"{place}: expected 2 to {len(FEATURES) + 1} columns, the last one the label, or "
            f"--columns with their names; found {width}"
        )
    return (*FEATURES[: width - 1], LABEL)


def unlabelled_columns(
    width: int,
    names: Names | None,
    needed: Sequence[str],
    place: str,
    reader: str = "the model",
) -> Names:
    """Names of the columns of a file to be tagged, with or without labels in the last.

    If there is one name more than there are columns, it is that of the label, which is missing.

    Args:
        width: how many columns the file has.
        names: what the user calls them, or None.
        needed: the columns that are read; ValueError where one of them is missing.
        place: the file, for messages.
        reader: who reads them, for messages.

    Example:
        >>> unlabelled_columns(2, None, ["word", "pos"], "test.txt")
        ('word', 'pos')
        >>> unlabelled_columns(4, None, ["word"], "test.txt")
        ('word', 'pos', 'chunk', None)
    """
    if names is None:  # columns beyond those with usual names hold nothing that a model reads
        names = tuple(FEATURES[i] if i < len(FEATURES) else None for i in range(width))
    elif len(names) == width + 1:
        names = names[:-1]
    if len(names) != width:
        listed = ", ".join(name or "-" for name in names)
        raise ValueError(f"{place}: expected {len(names)} columns ({listed}), found {width}")
    require_columns(needed, [name for name in names if name is not None], reader, place)
    return names


def require_columns(needed: Sequence[str], there: Sequence[str], reader: str, place: str) -> None:
    """ValueError where a column that `reader` reads is not among those that are there."""
    missing = [name for name in needed if name not in there]
    if missing:
        raise ValueError(
            f"{place}: expected a column {missing[0]!r}, since {reader} reads "
            f"{', '.join(needed)}; found {', '.join(there) or 'none'} (--columns names them)"
        )


# Sentences of a file of columns one by one, with their lines as they came.

DOCSTART = "-DOCSTART-"


@dataclass(frozen=True)
class Block:
    """A sentence: its lines without their ends, their cells, and the number of the first line.

    A line that begins with ``-DOCSTART-`` is a block of its own.
    """

    first: int
    lines: list[str]
    rows: list[list[str]]

    @property
    def is_docstart(self) -> bool:
        """Whether this is not a sentence, but the mark between documents."""
        return self.rows[0][0] == DOCSTART

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.rows[0])

    def column(self, index: int) -> list[str]:
        """The cells of a column."""
        return [row[index] for row in self.rows]


def iter_blocks(path: str, delimiter: str | None) -> Iterator[Block]:
    """The blocks of a file (``-`` is standard input), of which one is in memory at a time.

    Raises:
        ValueError: with the file and the line, for a line with another number of columns than
            the first one of its kind, or an empty cell.
    """
    # Columns are counted once in a file: -DOCSTART- lines have a number of their own.
    width, block, rows, first = 0, [], [], 1
    for number, line in enumerate(iter_input(path), 1):
        blank = not line.strip(" \t")
        cells = [] if blank else split_cells(line, delimiter)
        if not blank and cells[0] != DOCSTART:
            width = width or len(cells)
            if len(cells) != width or "" in cells:
                raise ValueError(_wrong_cells(f"{shown(path)}:{number}", width, cells, line))
            first = first if block else number
            block.append(line)
            rows.append(cells)
            continue
        if block:
            yield Block(first, block, rows)
            block, rows = [], []
        if not blank:
            yield Block(number, [line], [cells])
    if block:
        yield Block(first, block, rows)


def first_width(path: str, delimiter: str | None) -> int:
    """How many columns the first sentence of a file has; 0 where there is none."""
    blocks = iter_blocks(path, delimiter)
    return next((block.width for block in blocks if not block.is_docstart), 0)


def _wrong_cells(place: str, width: int, cells: list[str], line: str) -> str:
    if len(cells) == width:
        return f"{place}: expected no empty cell, found one: {line!r:.200}"
    return (
        f"{place}: expected {width} columns, as in the lines before, found {len(cells)}: "
        f"{line!r:.200}"
    )


# Labelled corpora.


@dataclass(frozen=True)
class Corpus:
    """Sentences and their labels.

    Args:
        path: the file that they are from.
        sentences: the sentences.
        labels: one list per sentence, with None for a token whose label is not known.
        names: of the columns, that of the label last; None for one that is left out.
        sentences_in_file: how many the file has, of which these may be a part.
    """

    path: str
    sentences: list[Sentence]
    labels: list[list[str | None]]
    names: Names
    sentences_in_file: int = 0

    @property
    def columns(self) -> list[str]:
        """Names of the columns to learn from: not the label, and not those left out."""
        return [name for name in self.names[:-1] if name is not None]

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return sum(map(len, self.labels))

    def known_labels(self) -> list[list[str]]:
        """The labels; ValueError when one is not known."""
        known = []
        for index, labels in enumerate(self.labels, 1):
            if None in labels:
                raise ValueError(
                    f"{self.path}: sentence {index}: expected a label on every token to evaluate "
                    "with, got one that is not known"
                )
            known.append([label for label in labels if label is not None])
        return known


# (first, step): every step-th sentence of a file, from the first on.
Part = tuple[int, int]


def read_corpus(
    path: str,
    options: argparse.Namespace,
    scheme: str | None = None,
    like: Names | None = None,
    part: Part | None = None,
    siblings: Sequence[str] = (),
) -> Corpus:
    """Read a labelled file.

    Args:
        path: the file.
        options: those of `add_corpus_options`.
        scheme: what the labels must obey, if they are not converted; None checks nothing.
        like: names of the columns of another file, label included, that this one must have too.
        part: which sentences to keep; None keeps all.
        siblings: all files of the corpus, where each of several processes trains on its own.

    Raises:
        ValueError: for a file without sentences, unless others of several processes have some.
    """
    require_file(path)
    corpus = _read_columns(path, options, scheme, like, part, siblings)
    tokens = corpus.tokens if part is None else corpus.sentences_in_file
    if not tokens and _filled(siblings, options) is None:
        raise ValueError(f"{path}: expected at least one sentence, found none")
    return corpus


def _filled(files: Sequence[str], options: argparse.Namespace) -> str | None:
    """The first of the files that has something in it."""
    there = filter(os.path.isfile, files)
    return next((file for file in there if first_width(file, options.delimiter)), None)


def _read_columns(
    path: str,
    options: argparse.Namespace,
    scheme: str | None,
    like: Names | None,
    part: Part | None,
    siblings: Sequence[str],
) -> Corpus:
    names = options.columns or like
    if options.scheme_to is not None:
        require_rereadable(path, "to convert labels it is read more than once")
    width = 0
    if names is None:
        require_rereadable(path, "or else --columns with the names of its columns")
        width = first_width(path, options.delimiter)
        if not width and (filled := _filled(siblings, options)) is not None:
            width = first_width(filled, options.delimiter)  # all processes need the same columns
        if not width:
            raise ValueError(f"{path}: expected at least one sentence, found none")
    names = labelled_columns(width, names, path)
    sentences = iter_conll(
        path,
        names,
        delimiter=options.delimiter,
        # What stands for an unknown label is no tag of any scheme.
        scheme_from=None if options.scheme_to or options.unknown_label is not None else scheme,
        scheme_to=options.scheme_to,
    )
    return _split(path, sentences, names, options.unknown_label, part)


def _split(
    path: str,
    sentences: Iterable[Sentence],
    names: Names,
    unknown: str | None,
    part: Part | None,
) -> Corpus:
    label = str(names[-1])
    first, step = (0, 1) if part is None else part
    kept: list[Sentence] = []  # the others are counted, and not held
    count = 0
    for count, sentence in enumerate(sentences, 1):
        if (count - 1 - first) % step == 0:
            kept.append(sentence)
    labels = [[None if tag == unknown else tag for tag in s[label]] for s in kept]
    return Corpus(path, kept, labels, names, count)


def columns_of_model(tagger: Any, path: str) -> tuple[str, ...]:
    """Names of the columns that a trained tagger reads: those of its templates, or its own.

    Args:
        tagger: a trained `CRFTagger` or `HMMTagger`.
        path: the folder it is from, for messages.

    Raises:
        ValueError: for a CRF without templates, which the command line cannot feed.
    """
    from jaxseq.hmm import HMMTagger

    if isinstance(tagger, HMMTagger):
        return (tagger.column,)
    if not isinstance(tagger.extractor_, TemplateExtractor):
        raise ValueError(
            f"{path}: expected a model with templates, found one whose features are made by its "
            "user's program"
        )
    return tagger.extractor_.templates.columns
