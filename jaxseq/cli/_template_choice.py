"""The templates that the user names: a file, or those of a paper."""

from __future__ import annotations

import os

from jaxseq.cli._columns import Names, require_columns
from jaxseq.cli._files import require_file
from jaxseq.text import (
    CONLL2000,
    CONLL2003,
    GENE_MENTION,
    TOKEN_IDENTITY,
    Templates,
    read_templates,
)

BUILT_IN = {
    "conll2000": CONLL2000,
    "conll2003": CONLL2003,
    "gene": GENE_MENTION,
    "token": TOKEN_IDENTITY,
}
"""Names that need no file; a file of such a name is reached as ``./name``."""
BY_COLUMNS = ("conll2003", "conll2000", "gene", "token")
"""What stands for templates that are not named: the first whose columns are there."""


def usual_templates(columns: Names) -> str:
    """The name of built-in templates that make the most of the columns, without the label.

    Example:
        >>> usual_templates(("word", "pos"))
        'conll2000'
    """
    fits = (name for name in BY_COLUMNS if set(BUILT_IN[name].columns) <= set(columns))
    return next(fits, BY_COLUMNS[-1])


def choose_templates(name: str, columns: Names, place: str) -> Templates:
    """The templates called so, or those in the file of that name.

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
        templates = read_templates(name, [column or "-" for column in columns])
    there = [column for column in columns if column is not None]
    require_columns(templates.columns, there, f"the template set {name}", place)
    return templates
