"""Files that the user names: checks before work begins, standard input and output as files."""

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

from jaxseq.crf import CRFTagger
from jaxseq.hmm import HMMTagger
from jaxseq.text import (
    Sentence,
    TemplateExtractor,
    iter_conll,
    iter_lines,
    open_to_replace,
    split_cells,
)

STANDARD = "-"
"""Stands for standard input."""

_MARK = b"\xef\xbb\xbf"


def require_file(path: str) -> None:
    """ValueError unless there is something to read at the path."""
    if not os.path.exists(path):
        raise ValueError(f"{path}: expected a file, there is none")
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file, found a folder")


def require_rereadable(path: str, why: str) -> None:
    """ValueError for what can be read only once, as a pipe."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a regular file, found a pipe or a device; {why}")


def require_model_place(path: str) -> None:
    """ValueError unless a model can be saved there: training may take hours before it is.

    A run of active learning is lost without the model that it has trained last, so that no other
    may take its place.
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
    while not folder.exists():
        folder = folder.parent
    try:
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
    """A file to write UTF-8 text to, that appears only when complete; None is standard output."""
    if path is None:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file to write, found a folder")
    if os.path.exists(path) and not os.path.isfile(path):  # a device is not to be replaced
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"{path}: expected a file in a folder that exists, {folder} does not")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_to_replace(path))
        except OSError as error:  # it names a temporary file
            raise ValueError(f"{path}: cannot be written: {error.strerror}") from error
        yield file


# -------------------------------------------------------------------------------------------------
# Names of the columns of a file: those given, or those that its number of columns suggests.


FEATURES = ("word", "pos", "chunk")
"""What the columns before the label are called when nobody says otherwise."""

LABEL = "label"

Names = tuple[str | None, ...]
"""A name for each column; None for one that is left out."""


def add_column_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--columns`` and ``--delimiter``."""
    parser.add_argument(
        "--columns",
        type=parse_columns,
        metavar="word,pos,label",
        help="names of the columns, - for one to leave out; by default word,label or "
        "word,pos,label or word,pos,chunk,label, by their number",
    )
    parser.add_argument(
        "--delimiter",
        type=parse_delimiter,
        metavar="TEXT",
        help="what stands between columns (tab for a tab); by default spaces and tabs",
    )


def parse_columns(text: str) -> Names:
    """Names separated by commas, as an argument; ``-`` is None.

    Example:
        >>> parse_columns("word,-,label")
        ('word', None, 'label')
    """
    names = tuple(None if name.strip() == "-" else name.strip() for name in text.split(","))
    kept = [name for name in names if name is not None]
    if not kept or "" in kept or len(set(kept)) < len(kept):
        raise argparse.ArgumentTypeError(
            f"expected different names separated by commas, such as word,pos,label, got {text!r}"
        )
    return names


def parse_delimiter(text: str) -> str:
    r"""The text between columns, as an argument: ``tab`` and ``\t`` are the tab.

    Example:
        >>> parse_delimiter("tab"), parse_delimiter(";")
        ('\t', ';')
    """
    delimiter = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if not delimiter or set("\r\n") & set(delimiter):
        raise argparse.ArgumentTypeError(f"expected text within one line, got {text!r}")
    return delimiter


def labelled_columns(width: int, given: Names | None, place: str) -> Names:
    """Names of the columns of a labelled file; the last is that of the label.

    Args:
        width: how many columns the file has.
        given: what the user calls them, or None.
        place: the file, for messages.

    Example:
        >>> labelled_columns(3, None, "train.txt")
        ('word', 'pos', 'label')
    """
    if given is not None:
        if given[-1] is None:
            raise ValueError("--columns: expected a name for the last column, the label, got -")
        if len(given) < 2 or all(name is None for name in given[:-1]):
            raise ValueError("--columns: expected a name for the label and at least one before it")
        return given
    if not 2 <= width <= len(FEATURES) + 1:
        raise ValueError(
            f"{place}: expected 2 to {len(FEATURES) + 1} columns, the last one the label, or "
            f"--columns with their names; found {width}"
        )
    return (*FEATURES[: width - 1], LABEL)


def unlabelled_columns(
    width: int,
    given: Names | None,
    needed: Sequence[str],
    place: str,
    reader: str = "the model",
) -> Names:
    """Names of the columns of a file to be tagged, with or without labels in the last.

    A name more than there are columns is that of the label, which is then not there.

    Args:
        width: how many columns the file has.
        given: what the user calls them, or None.
        needed: what is read; ValueError where one of these is missing.
        place: the file, for messages. reader: who reads, for messages.

    Example:
        >>> unlabelled_columns(2, None, ["word", "pos"], "test.txt")
        ('word', 'pos')
        >>> unlabelled_columns(4, None, ["word"], "test.txt")
        ('word', 'pos', 'chunk', None)
    """
    names = given
    if names is None:
        names = tuple(FEATURES[i] if i < len(FEATURES) else None for i in range(width))
    elif len(names) == width + 1:
        names = names[:-1]
    if len(names) != width:
        listed = ", ".join(name or "-" for name in names)
        raise ValueError(f"{place}: expected {len(names)} columns ({listed}), found {width}")
    require_columns(needed, [name for name in names if name is not None], reader, place)
    return names


def require_columns(needed: Sequence[str], there: Sequence[str], reader: str, place: str) -> None:
    """ValueError when a column that `reader` reads is not among those that are there."""
    missing = [name for name in needed if name not in there]
    if missing:
        raise ValueError(
            f"{place}: expected a column {missing[0]!r}, since {reader} reads "
            f"{', '.join(needed)}; found {', '.join(there) or 'none'} (--columns names them)"
        )


# -------------------------------------------------------------------------------------------------
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
    """The blocks of a file (``-`` is standard input), in the memory of one.

    Raises:
        ValueError: with the file and the line, for a line with another number of columns than
            the first one of its kind, or an empty cell.
    """
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


def _wrong_cells(place: str, width: int, cells: list[str], line: str) -> str:
    if len(cells) == width:
        return f"{place}: expected no empty cell, found one: {line!r:.200}"
    return (
        f"{place}: expected {width} columns, as in the lines before, found {len(cells)}: "
        f"{line!r:.200}"
    )


# -------------------------------------------------------------------------------------------------
# Labelled corpora.


@dataclass(frozen=True)
class Corpus:
    """Sentences and their labels.

    Args:
        path: the file that they are from.
        sentences: the sentences.
        labels: a list a sentence; None for a token whose label is not known.
        names: of the columns, that of the label last; None for one that is left out.
        whole: sentences of the file, of which these may be a part.
    """

    path: str
    sentences: list[Sentence]
    labels: list[list[str | None]]
    names: Names
    whole: int = 0

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


def add_corpus_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how labelled files are to be read."""
    add_column_options(parser)
    parser.add_argument(
        "--unknown-label",
        metavar="TEXT",
        help="stands in the labelled files for a label that is not known (such as ?)",
    )
    parser.add_argument(
        "--scheme-to",
        metavar="IOB2",
        help="convert the labels, while reading, to IOB1, IOB2, IOBES or BILOU",
    )


Part = tuple[int, int]
"""(first, step): every step-th sentence of a file, from the first on."""


def read_corpus(
    path: str,
    options: argparse.Namespace,
    scheme: str | None = None,
    like: Names | None = None,
    part: Part | None = None,
) -> Corpus:
    """Read a labelled file.

    Args:
        path: the file.
        options: those of `add_corpus_options`.
        scheme: what the labels must obey, if they are not converted; None checks nothing.
        like: names of the columns of another file, label included, that this one must have too.
        part: which sentences to keep; None keeps all.

    Returns:
        The corpus, with at least one token in the file; none where the file is one of several
        processes' parts of a corpus, and another part has some.
    """
    require_file(path)
    corpus = _read_columns(path, options, scheme, like, part)
    if (
        not (corpus.tokens if part is None else corpus.whole)
        and _filled_part(path, options) is None
    ):
        raise ValueError(f"{path}: expected at least one sentence, found none")
    return corpus


def _filled_part(path: str, options: argparse.Namespace) -> str | None:
    """Another file with something in it, where each of several processes trains on its own."""
    files = getattr(options, "files", None) or []
    if path not in files or len(files) == 1:
        return None
    from jaxseq.parallel import all_peers

    if not 1 < all_peers().count <= len(files):
        return None
    for file in files:
        if os.path.isfile(file) and _first_width(file, options):
            return file
    return None


def _first_width(path: str, options: argparse.Namespace) -> int:
    """Columns of the first sentence of a file; 0 where there is none."""
    blocks = iter_blocks(path, options.delimiter)
    return next((block.width for block in blocks if not block.is_docstart), 0)


def _read_columns(
    path: str,
    options: argparse.Namespace,
    scheme: str | None,
    like: Names | None,
    part: Part | None,
) -> Corpus:
    given = options.columns or like
    if given is None:
        require_rereadable(path, "or else --columns with the names of its columns")
    if options.scheme_to is not None:
        require_rereadable(path, "to convert labels it is read more than once")
    width = 0
    if given is None:
        width = _first_width(path, options)
        if not width and (filled := _filled_part(path, options)) is not None:
            width = _first_width(filled, options)
        if not width:
            raise ValueError(f"{path}: expected at least one sentence, found none")
    names = labelled_columns(width, given, path)
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
    missing: str | None = None,
    part: Part | None = None,
) -> Corpus:
    label = str(names[-1])
    first, step = (0, 1) if part is None else part
    kept: list[Sentence] = []
    whole = 0
    for whole, sentence in enumerate(sentences, 1):
        if (whole - 1 - first) % step == 0:
            kept.append(sentence)
    labels = [[None if tag == missing else tag for tag in s[label]] for s in kept]
    return Corpus(path, kept, labels, names, whole)


# -------------------------------------------------------------------------------------------------
# The columns that a model reads.


def columns_of_model(tagger: CRFTagger | HMMTagger, path: str) -> tuple[str, ...]:
    """Names of the columns that a trained tagger reads: those of its templates, or its own.

    Args:
        tagger: a trained tagger.
        path: the folder it is from, for messages.

    Raises:
        ValueError: for a CRF without templates, which the command line cannot feed.
    """
    if isinstance(tagger, HMMTagger):
        return (tagger.column,)
    if not isinstance(tagger.extractor_, TemplateExtractor):
        raise ValueError(
            f"{path}: expected a model with templates, found one whose features are made by its "
            "user's program"
        )
    return tagger.extractor_.templates.columns


# -------------------------------------------------------------------------------------------------
# Options of a CRF that every command which trains one has.


WEIGHTS = ("mixed", "observed", "dense", "tied")
"""Choices of ``--weights``."""


def add_model_settings(add: Any, iterations: str) -> None:
    """Add penalties, iterations, and which weights there are.

    Args:
        add: of a parser or a group. iterations: of what there are so many at most.
    """
    add("--l1", type=float, default=0.0, metavar="X", help="strength of the l1 penalty (0)")
    add("--l2", type=float, default=1.0, metavar="X", help="strength of the l2 penalty (1)")
    add("--max-iterations", type=int, default=500, metavar="N", help=f"{iterations} (500)")
    add(
        "--weights",
        choices=WEIGHTS,
        default="mixed",
        help="which pairs of attribute and label have a weight (mixed)",
    )
    add("--cutoff", type=int, default=1, metavar="N", help="ignore attributes rarer than this (1)")
    add("--scheme", metavar="IOB2", help="forbid label sequences that this scheme does not allow")
