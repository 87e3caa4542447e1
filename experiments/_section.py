"""A paper's part of the report: Markdown, figures, and help with its tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    It is drawn several times: for the page in light and in dark colours, and as a file. `draw`
    therefore adds its axes to the empty figure that it is given and leaves the colours of text,
    axes and background alone; lines take the colours ``C0``, ``C1``, … of the theme.

    Args:
        name: of the file: letters, digits, ``-`` and ``_``.
        caption: one sentence below the figure, also for those who cannot see it.
        draw: draws on a matplotlib figure.
        size: width and height in inches.

    Example:
        >>> def draw(canvas):
        ...     axes = canvas.subplots()
        ...     axes.plot([1, 2, 4], [1, 2, 4])
        ...     axes.set(xlabel="positions", ylabel="seconds")
        >>> Figure("growth", "Seconds grow with the number of positions.", draw).size
        (7.0, 4.2)
    """

    name: str
    caption: str
    draw: Callable[[Canvas], None]
    size: tuple[float, float] = (7.0, 4.2)

    def __post_init__(self) -> None:
        # It becomes the name of a file on any system, and a part of an address.
        if not self.name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in self.name):
            raise ValueError(f"name: expected letters, digits, - and _, got {self.name!r}")


@dataclass(frozen=True)
class Section:
    """What ``report`` of a paper returns.

    Args:
        markdown: the text (CommonMark and tables; no HTML), its headings from ``###`` on. A line
            ``![](NAME)`` places the figure of that name; figures that are not placed come last.
        figures: the figures, with different names.

    Example:
        >>> Section("### Growth\\n\\nLinear, as the paper says.").figures
        ()
    """

    markdown: str
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        names = [figure.name for figure in self.figures]
        if len(set(names)) < len(names):
            raise ValueError(f"figures: expected different names, got {', '.join(names)}")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown: the first column to the left, the others to the right.

    Args:
        header: names of the columns.
        rows: the cells, as many as there are names; ``str`` makes text of them.

    Returns:
        Its lines, with a line end after each.

    Example:
        >>> print(markdown_table(["method", "F1"], [["CRF", 93.5]]), end="")
        | method | F1 |
        |:---|---:|
        | CRF | 93.5 |
    """
    lines = [list(header), [":---"] + ["---:"] * (len(header) - 1)]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise ValueError(f"row {number}: expected {len(header)} cells, got {len(row)}")
        # A bar or a line end would end the cell.
        lines.append([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row])
    text = [f"| {' | '.join(line)} |" for line in lines]
    text[1] = f"|{'|'.join(lines[1])}|"
    return "\n".join(text) + "\n"


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean with the standard deviation over seeds (of a sample), if there are two or more.

    Example:
        >>> mean_and_spread([90.0, 92.0]), mean_and_spread([90.0]), mean_and_spread([])
        ('91.0 ± 1.4', '90.0', '–')
    """
    if not values:
        return "–"
    if not all(map(math.isfinite, values)):
        raise ValueError(f"values: expected finite numbers, got {list(values)}")
    mean = f"{statistics.fmean(values):.{digits}f}"
    # The sample's, since seeds are a sample: divided by n − 1.
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
