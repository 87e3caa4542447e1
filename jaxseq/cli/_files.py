"""Files that the user names: checks before work begins, standard streams, columns and corpora."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from jaxseq.cli._options import Names
from jaxseq.text import (
    CONLLU,
    Block,
    NamedFile,
    Sentence,
    TemplateExtractor,
    corpus_scheme,
    decode_lines,
    iter_blocks,
    iter_conll,
    iter_lines,
    open_to_replace,
)

STANDARD = "-"  # stands for standard input
OUTSIDE = "O"  # the label of tokens outside of any chunk, in all schemes
Source = str | NamedFile  # a path, ``-``, or a copy of standard input


def require_file(path: Source) -> None:
    """ValueError unless there is something to read at the path."""
    if isinstance(path, NamedFile):
        return
    if not os.path.exists(path):
        raise ValueError(f"{path}: expected a file, there is none")
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file, found a folder")
    mode = os.stat(path).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # which may have no end
        raise ValueError(f"{path}: expected a file or a pipe, found a device")


def say_replaced(path: str) -> None:
    """Say so where a model will take the place of an older one, before hours of training."""
    if os.path.isdir(path) and os.listdir(path):
        print(f"jaxseq: note: {path}: the model there will be replaced", file=sys.stderr)


def is_rereadable(path: Source) -> bool:
    """Whether this is a file, and not what can be read only once, such as a pipe."""
    return isinstance(path, NamedFile) or stat.S_ISREG(os.stat(path).st_mode)


def require_rereadable(path: Source, why: str) -> None:
    """ValueError for what can be read only once."""
    if not is_rereadable(path):
        raise ValueError(f"{path}: expected a regular file, found a pipe or a device; {why}")


def require_outside_of_runs(path: str) -> None:
    """ValueError for a place in a run of active learning, which is lost without its last model."""
    from jaxseq.active import holds_run

    # Not by `Path.resolve`, for which links that lead in a circle are a RuntimeError.
    for folder in Path(os.path.realpath(path)).parents:
        if holds_run(folder):
            raise ValueError(
                f"{path}: expected a place outside of {folder}, which is a run of jaxseq active"
            )


@contextmanager
def model_place(path: str) -> Iterator[None]:
    """The place of a model, which no other command is to write to meanwhile.

    ValueError unless a model can be saved there: training may take hours before it is.
    """
    from jaxseq._io import locked
    from jaxseq.taggers import check_replaceable

    require_outside_of_runs(path)
    check_replaceable(Path(path))
    with ExitStack() as at_the_end:
        try:  # permissions do not say what a full or a read-only disk does
            at_the_end.enter_context(locked(path))
        except OSError as error:
            raise ValueError(
                f"{path}: expected a folder that can be written: {error.strerror}"
            ) from error
        check_replaceable(Path(path))  # again, as another command may just have ended
        yield


def iter_input(path: Source, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file, or of standard input for ``-``, without their ends."""
    if path == STANDARD:
        # By bytes, as the locale may decode standard input by another encoding.
        return decode_lines(sys.stdin.buffer, shown(path), encoding)
    require_file(path)
    return iter_lines(path, encoding)


def iter_words(
    path: Source, encoding: str, split: Callable[[str], list[str]] = str.split
) -> Iterator[list[str]]:
    """The tokens of each line of a file, or of standard input, that has some."""
    return filter(None, map(split, iter_input(path, encoding)))


def shown(path: Source) -> str:
    """What messages call an input."""
    if isinstance(path, NamedFile):
        return path.name
    return "standard input" if path == STANDARD else path


@contextmanager
def rereadable(path: Source) -> Iterator[Source]:
    """The file; of standard input a copy, for what is to be read more than once."""
    if path != STANDARD:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="jaxseq.") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield NamedFile(copy.name, shown(path))


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


@dataclass(frozen=True)
class Layout:
    """Names of a labelled file's columns, None for one that is left out, and which is the label."""

    names: Names
    label: int = -1

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label % len(self.names))

    @property
    def label_name(self) -> str:
        """The name of the label's column."""
        return str(self.names[self.label])

    @property
    def features(self) -> Names:
        """Names of the columns to learn from, in their places, without the label."""
        names = (None if i == self.label else name for i, name in enumerate(self.names))
        return tuple(names) if self.label < len(self.names) - 1 else self.names[:-1]

    @property
    def columns(self) -> list[str]:
        """Names of the columns to learn from: not the label, and not those left out."""
        return [name for name in self.features if name is not None]


def labelled_layout(
    width: int, options: argparse.Namespace, place: str, conllu: bool = False
) -> Layout:
    """The columns of a labelled file, as the options name them; the label is the last by default.

    Args:
        width: how many columns there are; 0 where the options are to say.
        options: those of `add_column_options`, and ``label_column``.
        place: of the first sentence, for messages.
        conllu: whether the file is CoNLL-U.
    """
    names, chosen = options.columns, options.label_column
    if names is None and conllu:
        if chosen is None:
            raise ValueError(
                f"{place}: expected --label-column with the name or the number of the labels' "
                f"column in CoNLL-U, one of {', '.join(CONLLU)}"
            )
        names = (*CONLLU, *[None] * (width - len(CONLLU)))
    elif names is None and 2 <= width <= len(FEATURES) + 1:
        names = [*FEATURES[: width - 1], LABEL]
        if isinstance(chosen, int) and chosen <= width:  # the others are called as without it
            names.insert(chosen - 1, names.pop())
        names = tuple(names)
    elif names is None:
        raise ValueError(
            f"{place}: expected 2 to {len(FEATURES) + 1} columns, the last one the label, or "
            f"--columns with their names; found {width}"
        )
    if chosen is not None:
        layout = Layout(names, column_place(names, chosen))
        if names[layout.label] is None:
            raise ValueError(
                f"--label-column: expected a column with a name, got {chosen}, which is left out"
            )
    elif names[-1] is None:
        raise ValueError("--columns: expected a name for the last column, the label, got -")
    else:
        layout = Layout(names)
    if not layout.columns:
        raise ValueError("--columns: expected a name for the label and at least one for the rest")
    return layout


def column_place(names: Names, chosen: str | int) -> int:
    """The place of the column that ``--label-column`` names, or whose number from 1 on it is."""
    if isinstance(chosen, int) and chosen <= len(names):
        return chosen - 1
    if chosen in names:
        return names.index(chosen)
    listed = ", ".join(name or "-" for name in names)
    raise ValueError(
        f"--label-column: expected one of {listed}, or a number, 1 to {len(names)}, got {chosen}"
    )


def unlabelled_columns(
    width: int,
    names: Names | None,
    needed: Sequence[str],
    place: str,
    reader: str = "the model",
    conllu: bool = False,
) -> Names:
    """Names of the columns of a file to be tagged, with or without labels in the last."""
    if names is None:  # columns beyond those with usual names hold nothing that a model reads
        usual = CONLLU if conllu else FEATURES
        names = (*usual[:width], *[None] * (width - len(usual)))
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


def column_blocks(path: Source, options: argparse.Namespace) -> Iterator[Block]:
    """The sentences of a file (``-`` is standard input) with their lines, in the memory of one.

    The options are those of `add_column_options`.
    """
    lines = iter_input(path, options.encoding)
    return iter_blocks(lines, shown(path), options.delimiter, conllu=None)


def first_sentence(path: Source, options: argparse.Namespace) -> Block | None:
    """The first sentence of a file, which says how many columns there are; None for no sentence."""
    return next((b for b in column_blocks(path, options) if not b.is_docstart), None)


# Labelled corpora.


@dataclass(frozen=True)
class Corpus:
    """Sentences of a file, and their labels: None for a token whose label is not known.

    `sentences_in_file` may be more than are kept.
    """

    path: str
    sentences: list[Sentence]
    labels: list[list[str | None]]
    layout: Layout
    sentences_in_file: int = 0

    @property
    def columns(self) -> list[str]:
        """Names of the columns to learn from: not the label, and not those left out."""
        return self.layout.columns

    def scheme(self) -> tuple[str, str | None]:
        """The path, and the scheme of the sentences all of whose labels are known."""
        rows = (labels for labels in self.labels if None not in labels)
        return self.path, corpus_scheme(cast(Iterable[list[str]], rows))

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
    like: Corpus | None = None,
    part: Part = (0, 1),
    siblings: Sequence[str] = (),
) -> Corpus:
    """Read a labelled file.

    Args:
        path: the file; ``-`` is standard input.
        options: those of `add_corpus_options`.
        scheme: what the labels must obey, if they are not converted; None checks nothing.
        like: another corpus, whose columns this one must have too.
        part: which sentences to keep; the others are counted, and not held.
        siblings: all files of the corpus, where each of several processes trains on its own, which
            may be without sentences.
    """
    first, step = part
    kept: list[Sentence] = []
    count = 0
    with rereadable(path) as source:
        require_file(source)
        if options.scheme_to is not None:
            require_rereadable(source, "to convert labels it is read more than once")
        layout, conllu = _layout(source, options, like, siblings)
        sentences = iter_conll(
            source,
            layout.names,
            delimiter=options.delimiter,
            encoding=options.encoding,
            conllu=conllu,
            # What stands for an unknown label is no tag of any scheme.
            scheme_from=None if options.scheme_to or options.unknown_label is not None else scheme,
            scheme_to=options.scheme_to,
            scheme_column=layout.label_name,
        )
        for count, sentence in enumerate(sentences, 1):
            if (count - 1 - first) % step == 0:
                kept.append(sentence)
    if not count and _first_of_any(siblings, options) is None:
        raise ValueError(f"{shown(path)}: expected at least one sentence, found none")
    label, unknown = layout.label_name, options.unknown_label
    labels = [[None if tag == unknown else tag for tag in s[label]] for s in kept]
    return Corpus(shown(path), kept, labels, layout, count)


def warn_mixed_schemes(schemes: Iterable[tuple[str, str | None]]) -> None:
    """Say so where files that go together spell spans in different schemes; None is none."""
    first, *others = [pair for pair in schemes if pair[1] is not None] or [("", None)]
    for path, scheme in others:
        if scheme != first[1]:
            print(
                f"jaxseq: warning: {path}: expected labels of the scheme {first[1]}, as in "
                f"{first[0]}, found {scheme} (--scheme-to {first[1]} converts while reading)",
                file=sys.stderr,
            )


def _layout(
    source: Source, options: argparse.Namespace, like: Corpus | None, siblings: Sequence[str]
) -> tuple[Layout, bool]:
    """The columns of a labelled file, and whether it is CoNLL-U."""
    if not is_rereadable(source):
        # A pipe has to be columns whose names are known, and is no CoNLL-U.
        layout = like.layout if like is not None else None
        if layout is None and options.columns is None:
            require_rereadable(source, "or else --columns with the names of its columns")
        return layout or labelled_layout(0, options, shown(source)), False
    block = first_sentence(source, options)
    conllu = block is not None and block.is_conllu
    if like is not None:
        return like.layout, conllu
    block = block or _first_of_any(siblings, options)
    if block is None and options.columns is None:
        raise ValueError(f"{shown(source)}: expected at least one sentence, found none")
    width = 0 if block is None else len(block.columns)
    return labelled_layout(width, options, shown(source), conllu), conllu


def _first_of_any(files: Sequence[str], options: argparse.Namespace) -> Block | None:
    """The first sentence of the first of the files that has one: all need the same columns."""
    blocks = (first_sentence(path, options) for path in files if os.path.isfile(path))
    return next((block for block in blocks if block is not None), None)


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
    files: Sequence[Source],
    options: argparse.Namespace,
    train: Corpus,
    needed: Sequence[str],
    part: Part = (0, 1),
) -> list[Sentence]:
    """The sentences of files, without labels; every file has at least one.

    They have the columns of the labelled corpus, of which the model needs some.
    """
    first, step = part
    kept: list[Sentence] = []
    seen = 0
    for path in files:
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
    path: Source, options: argparse.Namespace, train: Corpus, needed: Sequence[str]
) -> Iterator[tuple[Block, Names]]:
    """The sentences of a file, and names of its columns; ValueError for labels among features."""
    names: Names = ()
    place = ""
    labels = {label for labels in train.labels for label in labels if label is not None}
    suspects: dict[str, None] | None = None  # cells of a column that may hold labels, so far
    for block in column_blocks(path, options):
        if block.is_docstart:
            continue
        if not names:  # the first sentence tells how many columns there are
            place = f"{shown(path)}:{block.line_number(0)}"
            names = names_without_label(len(block.columns), train.layout, place)
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


def names_without_label(width: int, layout: Layout, place: str) -> Names:
    """Names of the columns of an unlabelled file; None for one that is left out, as a label is."""
    names = layout.names
    if width == len(names):
        return tuple(None if i == layout.label else name for i, name in enumerate(names))
    features = names[: layout.label] + names[layout.label + 1 :]
    if width == len(features):
        return features
    if width == 1:
        return tuple(layout.columns[:1])
    listed = ", ".join(name or "-" for name in features)
    raise ValueError(
        f"{place}: expected the columns of the labelled sentences ({listed}, with or without "
        f"{layout.label_name}), or words alone; found {width} columns"
    )
