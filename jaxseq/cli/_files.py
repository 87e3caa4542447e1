"""Files that the user names: checks before work begins, standard streams, columns and corpora."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from jaxseq.cli._options import Names
from jaxseq.text import (
    Block,
    Sentence,
    TemplateExtractor,
    iter_blocks,
    iter_conll,
    iter_lines,
    open_to_replace,
)

STANDARD = "-"  # stands for standard input
OUTSIDE = "O"  # the label of tokens outside of any chunk, in all schemes

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

    The folder of a run of active learning is refused: the run is lost without its last model.
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
    """The lines of a file in UTF-8, or of standard input for ``-``, without their ends."""
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


def iter_words(path: str, split: Callable[[str], list[str]] = str.split) -> Iterator[list[str]]:
    """The tokens of each line of a file, or of standard input, that has some."""
    return filter(None, map(split, iter_input(path)))


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

FEATURES = ("word", "pos", "chunk")  # the columns before the label, unless the user names them
LABEL = "label"


def labelled_columns(width: int, names: Names | None, place: str) -> Names:
    """Names of the columns of a labelled file; the last is that of the label."""
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
    width: int, names: Names | None, needed: Sequence[str], place: str, reader: str = "the model"
) -> Names:
    """Names of the columns of a file to be tagged, with or without labels in the last."""
    if names is None:  # columns beyond those with usual names hold nothing that a model reads
        names = tuple(FEATURES[i] if i < len(FEATURES) else None for i in range(width))
    elif len(names) == width + 1:  # the last is that of the label, which is missing
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


def name_reader(templates: str | None) -> str:
    """What messages call what reads the columns: the templates, where the user has named some."""
    return "the model" if templates is None else f"the template set {templates}"


def refuse_labels(cells: Iterable[str], labels: set[str], names: Names, place: str) -> None:
    """ValueError where the cells of the last column, which a model reads, are labels, all of them.

    A file of words and labels has as many columns as one of words and parts of speech. O alone
    proves nothing: a column of chunks to learn from has it as well.
    """
    different = dict.fromkeys(cells)  # in order, so that the message names the first
    if different.keys() <= labels and different.keys() != {OUTSIDE}:
        raise ValueError(
            f"{place}: expected the column {names[-1]!r} in the place of column {len(names)}, "
            f"found labels such as {next(iter(different))!r} (--columns says what the columns are)"
        )


def column_blocks(path: str, delimiter: str | None) -> Iterator[Block]:
    """The sentences of a file (``-`` is standard input) with their lines, in the memory of one."""
    return iter_blocks(iter_input(path), shown(path), delimiter)


def first_width(path: str, delimiter: str | None) -> int:
    """How many columns the first sentence of a file has; 0 where there is none."""
    blocks = column_blocks(path, delimiter)
    return next((len(block.columns) for block in blocks if not block.is_docstart), 0)


# Labelled corpora.


@dataclass(frozen=True)
class Corpus:
    """Sentences of a file, and their labels: None for a token whose label is not known.

    `names` are those of the columns, that of the label last and None for one that is left out;
    `sentences_in_file` may be more than are kept.
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

    def known_labels(self) -> list[list[str]]:
        """The labels; ValueError when one is not known."""
        for index, labels in enumerate(self.labels, 1):
            if None in labels:
                raise ValueError(
                    f"{self.path}: sentence {index}: expected a label on every token to evaluate "
                    "with, got one that is not known"
                )
        return [[label for label in labels if label is not None] for labels in self.labels]


Part = tuple[int, int]  # (first, step): every step-th sentence of a file, from the first on


def read_corpus(
    path: str,
    options: argparse.Namespace,
    scheme: str | None = None,
    like: Names | None = None,
    part: Part = (0, 1),
    siblings: Sequence[str] = (),
) -> Corpus:
    """Read a labelled file.

    Args:
        path: the file.
        options: those of `add_corpus_options`.
        scheme: what the labels must obey, if they are not converted; None checks nothing.
        like: names of the columns of another file, label included, that this one must have too.
        part: which sentences to keep; the others are counted, and not held.
        siblings: all files of the corpus, where each of several processes trains on its own, which
            may be without sentences.
    """
    require_file(path)
    names = options.columns or like
    if options.scheme_to is not None:
        require_rereadable(path, "to convert labels it is read more than once")
    width = 0
    if names is None:
        require_rereadable(path, "or else --columns with the names of its columns")
        width = first_width(path, options.delimiter) or _width_of_any(siblings, options)
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
    first, step = part
    kept: list[Sentence] = []
    count = 0
    for count, sentence in enumerate(sentences, 1):
        if (count - 1 - first) % step == 0:
            kept.append(sentence)
    if not count and not _width_of_any(siblings, options):
        raise ValueError(f"{path}: expected at least one sentence, found none")
    label, unknown = str(names[-1]), options.unknown_label
    labels = [[None if tag == unknown else tag for tag in s[label]] for s in kept]
    return Corpus(path, kept, labels, names, count)


def _width_of_any(files: Sequence[str], options: argparse.Namespace) -> int:
    """How many columns the first of the files with something in it has: all need the same."""
    widths = (first_width(path, options.delimiter) for path in files if os.path.isfile(path))
    return next(filter(None, widths), 0)


def columns_of_model(tagger: Any, path: str) -> tuple[str, ...]:
    """Names of the columns that a trained tagger reads: those of its templates, or its own.

    ValueError for a CRF without templates, which the command line cannot feed.
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


# Unlabelled sentences to learn from, in the format of the labelled ones.


def read_unlabelled(
    options: argparse.Namespace, train: Corpus, needed: Sequence[str], part: Part = (0, 1)
) -> list[Sentence]:
    """The sentences of ``--unlabelled``, without labels; every file has at least one.

    They have the columns of the labelled corpus, of which the model needs some.
    """
    first, step = part
    kept: list[Sentence] = []
    seen = 0
    for path in options.unlabelled:
        before = seen
        for block, names in _unlabelled_blocks(path, options, train, needed):
            if seen % step == first:
                cells = zip(names, block.columns)
                # Equal cells share one string, as there may be millions of tokens.
                kept.append(
                    Sentence.from_cells(
                        {name: tuple(map(sys.intern, column)) for name, column in cells if name}
                    )
                )
            seen += 1
        if seen == before:
            raise ValueError(f"{shown(path)}: expected at least one sentence, found none")
    return kept


def _unlabelled_blocks(
    path: str, options: argparse.Namespace, train: Corpus, needed: Sequence[str]
) -> Iterator[tuple[Block, Names]]:
    """The sentences of a file, and names of its columns; ValueError for labels among features."""
    if path != STANDARD:
        require_file(path)
    names: Names = ()
    place = ""
    labels = {label for labels in train.labels for label in labels if label is not None}
    suspects: dict[str, None] | None = None  # cells of a column that may hold labels, so far
    for block in column_blocks(path, options.delimiter):
        if block.is_docstart:
            continue
        if not names:  # the first sentence tells how many columns there are
            place = f"{shown(path)}:{block.first}"
            names = names_without_label(len(block.columns), train.names, place)
            there = [name for name in names if name is not None]
            require_columns(needed, there, name_reader(options.templates), place)
            if options.columns is None and len(names) > 1 and names[-1] in needed:
                suspects = {}
        if suspects is not None:
            suspects.update(dict.fromkeys(block.columns[-1]))
            if not suspects.keys() <= labels:  # one that is no label clears the column
                suspects = None
        yield block, names
    if suspects is not None:
        refuse_labels(suspects, labels, names, place)


def names_without_label(width: int, names: Names, place: str) -> Names:
    """Names of the columns of an unlabelled file; None for one that is left out, as a label is."""
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
