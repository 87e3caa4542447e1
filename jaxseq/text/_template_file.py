"""Template files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jaxseq.text._template_set import Templates


def read_templates(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Templates:
    """Read a file of templates, one a line, in jaxseq's notation or in that of CRF++.

    Which of the two it is shows in the lines themselves; see `Templates.parse`. A CRF++ file is
    read as it is. Its plain ``B`` line becomes ``transitions``: without one, there are none.

    Args:
        path: the file, in UTF-8.
        columns: names of the columns 0, 1, … of a CRF++ file; None calls them "0", "1", ….

    Returns:
        The templates.

    Raises:
        ValueError: ``path:line: …`` on a line that is no template.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "template"
        ...     _ = path.write_text("# words\\nU00:%x[-1,0]\\nU01:%x[0,0]\\n\\nB\\n")
        ...     read_templates(path, columns=["word"])
        Templates(['U00:%x[-1,word]', 'U01:%x[0,word]'], bigram=[], transitions=True)
    """
    data = Path(path).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ValueError(f"{path}:{line}: expected UTF-8, found the byte 0x{byte:02x}") from None
    return Templates.parse(text, columns, str(path))
