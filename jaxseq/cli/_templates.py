"""The templates that the user names: a file, or those of a paper."""

from __future__ import annotations

import os
from typing import Any

from jaxseq.cli._files import require_columns, require_file
from jaxseq.cli._options import Names
from jaxseq.text import (
    CONLL2000,
    CONLL2003,
    GENE_MENTION,
    TOKEN_IDENTITY,
    Templates,
    read_templates,
)

# Names that need no file; a file of such a name is reached as ``./name``.
BUILT_IN = {
    "conll2000": CONLL2000,
    "conll2003": CONLL2003,
    "gene": GENE_MENTION,
    "token": TOKEN_IDENTITY,
}

# The built-in templates in the order in which they are tried, the most demanding first.
BY_COLUMNS = ("conll2003", "conll2000", "gene", "token")


def add_templates_option(add: Any, required: bool = True) -> Any:
    """Add ``--templates`` by the method `add_argument` of a parser or of a group."""
    return add(
        "--templates",
        required=required,
        metavar="T",
        help=f"a file of templates, jaxseq's or CRF++'s, or one of {', '.join(BUILT_IN)}",
    )


def usual_templates(columns: Names) -> str:
    """The name of built-in templates that make the most of the columns, without the label.

    Example:
        >>> usual_templates(("word", "pos"))
        'conll2000'
    """
    fits = (name for name in BY_COLUMNS if set(BUILT_IN[name].columns) <= set(columns))
    return next(fits, BY_COLUMNS[-1])


def choose_templates(name: str, columns: Names, place: str) -> Templates:
    """The templates of this name, or those in the file of this name.

    Args:
        name: a built-in name, or a path.
        columns: of the training data, without the label; a CRF++ file counts them from 0.
        place: the training data, for messages.

    Raises:
        ValueError: for a name that is neither, a line that is no template, and a column that
            the data do not have.
    """
    if name in BUILT_IN:
        templates = BUILT_IN[name]
    else:
        if not os.path.exists(name):
            raise ValueError(
                f"--templates: expected a file or one of {', '.join(BUILT_IN)}, got {name!r}"
            )
        require_file(name)
        # A column that is left out keeps its number, for CRF++, but cannot be read.
        templates = read_templates(name, [column or "-" for column in columns])
    there = [column for column in columns if column is not None]
    require_columns(templates.columns, there, f"the template set {name}", place)
    return templates
