"""Labelled corpora in the formats that the command line reads."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import dataclass

from jaxseq.cli._blocks import iter_blocks
from jaxseq.cli._columns import LABEL, Names, add_column_options, labelled_columns
from jaxseq.cli._files import require_file, require_rereadable
from jaxseq.text import (
    Sentence,
    convert_tags,
    iter_conll,
    read_ads,
    read_citations,
    read_genetag,
)

FORMATS = ("conll", "citations", "genetag", "ads")
UNLABELLED = "?"
"""What the ads corpus has for a token without a label."""


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
                    f"with, found {UNLABELLED!r}"
                )
            known.append([label for label in labels if label is not None])
        return known


def add_corpus_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how labelled files are to be read."""
    parser.add_argument(
        "--format", choices=FORMATS, default="conll", help="of the labelled files (default: conll)"
    )
    add_column_options(parser)
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
    if options.format == "conll":
        corpus = _read_columns(path, options, scheme, like, part)
    else:
        for name in ("columns", "delimiter"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name}: expected with --format conll only")
        sentences = read_other_format(path, options.format, options.scheme_to)
        # The parts of speech of GENETAG are missing just where a gene is: they give labels away.
        missing = UNLABELLED if options.format == "ads" else None
        corpus = _split(path, sentences, ("word", LABEL), missing, part)
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
    from jaxseq.scale import all_peers

    if not 1 < all_peers().count <= len(files):
        return None
    for file in files:
        columns = options.format == "conll"
        if os.path.isfile(file) and (
            _first_width(file, options) if columns else os.stat(file).st_size
        ):
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
        scheme_from=None if options.scheme_to else scheme,
        scheme_to=options.scheme_to,
    )
    return _split(path, sentences, names, None, part)


def read_other_format(path: str, form: str, scheme_to: str | None) -> list[Sentence]:
    """Sentences with the columns word and label of a file that is not one of columns.

    Args:
        path: the file.
        form: one of `FORMATS`, except conll.
        scheme_to: the scheme to convert labels to; None leaves them as they are.
    """
    if form == "citations":
        return read_citations(path, scheme=scheme_to)
    if form == "genetag":
        sentences = read_genetag(path)
        return sentences if scheme_to is None else [_converted(s, scheme_to) for s in sentences]
    if scheme_to is not None:
        raise ValueError("--scheme-to: expected labels of a scheme; those of ads have no B and I")
    return read_ads(path)


def _converted(sentence: Sentence, scheme_to: str) -> Sentence:
    labels = convert_tags(sentence[LABEL], "IOB2", scheme_to)
    return Sentence({"word": sentence["word"], LABEL: labels}, sentence.name)


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
