"""Names of the columns of a file: those given, or those that its number of columns suggests."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

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
