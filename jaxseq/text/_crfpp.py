"""Templates in the notation of CRF++."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jaxseq.text._template import LARGEST_OFFSET, Atom, Template

_MACRO = re.compile(r"%x\[([+-]?[0-9]+),([^\]]+)\]")
_WITHOUT_MACRO = re.compile(r"[UB][0-9]*(:.*)?")


def is_crfpp_line(line: str) -> bool:
    """Whether a line is a template of CRF++ and cannot be one in jaxseq's notation.

    Example:
        >>> is_crfpp_line("U01:%x[-1,0]"), is_crfpp_line("B"), is_crfpp_line("Upper[0]")
        (True, True, False)
    """
    if not line.startswith(("U", "B")):
        return False
    return "%x[" in line or _WITHOUT_MACRO.fullmatch(line) is not None


def parse_crfpp_template(line: str, columns: Sequence[str] | None = None) -> Template:
    """Read one line of a CRF++ template file.

    ``%x[row,column]`` stands for the cell so many rows below the token's; all other text stands
    for itself and is part of the attribute's name, as in CRF++. The first letter says what the
    attribute goes with: ``U`` a label, ``B`` a pair of labels.

    Args:
        line: the line, e.g. ``U01:%x[-1,0]/%x[0,1]``.
        columns: names of the columns 0, 1, …; None takes what stands in the macro as the name.

    Returns:
        The template; in its text, the columns are named.

    Raises:
        ValueError: on another first letter, a ``%`` that begins no macro, an offset or a column
            out of range.

    Example:
        >>> template = parse_crfpp_template("U01:%x[-1,0]/%x[0,1]", ("word", "pos"))
        >>> template.text, template.name(["the", "NN"])
        ('U01:%x[-1,word]/%x[0,pos]', 'U01:the/NN')
    """
    if not line.startswith(("U", "B")):
        raise ValueError(f"CRF++ template {line!r}: expected U or B as the first letter")
    pieces: list[str | Atom] = []
    place = 0
    while (percent := line.find("%", place)) >= 0:
        macro = _MACRO.match(line, percent)
        if macro is None:
            raise ValueError(
                f"CRF++ template {line!r}, character {percent + 1}: expected %x[row,column], "
                f"found {line[percent : percent + 10]!r}"
            )
        pieces += [line[place:percent], _cell(line, macro, columns)]
        place = macro.end()
    pieces.append(line[place:])
    kept = tuple(piece for piece in pieces if piece != "")
    return Template("".join(map(_as_written, kept)), kept, crfpp=True)


def _cell(line: str, macro: re.Match[str], columns: Sequence[str] | None) -> Atom:
    where = f"CRF++ template {line!r}, character {macro.start() + 1}"
    row, column = macro.groups()
    if len(row) > 10 or abs(int(row)) > LARGEST_OFFSET:
        raise ValueError(
            f"{where}: expected a row from -{LARGEST_OFFSET} to {LARGEST_OFFSET}, found {row}"
        )
    if columns is None:
        return Atom(column, int(row))
    if not column.isascii() or not column.isdecimal() or len(column) > 10:
        raise ValueError(f"{where}: expected the number of a column, found {column!r}")
    if int(column) >= len(columns):
        named = ", ".join(columns)
        raise ValueError(
            f"{where}: expected a column from 0 to {len(columns) - 1} ({named}), found {column}"
        )
    name = columns[int(column)]
    if not name or "]" in name:
        raise ValueError(f"columns: expected names without ']', found {name!r}")
    return Atom(name, int(row))


def _as_written(piece: str | Atom) -> str:
    return piece if isinstance(piece, str) else f"%x[{piece.offset},{piece.column}]"
