"""Figures 3 to 9: learning curves, and what they cost; spans, and groups, against tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments import Figure
from experiments.wanvarie2011._summary import Curve, Result, mean_result
from experiments.wanvarie2011._task import TITLES

Rows = Mapping[str, Sequence[Result]]
MARKERS = "osD^v"


@dataclass(frozen=True)
class Drawing:
    """A figure of the paper.

    Args:
        name: of the figure. task: whose rows it shows. rows: those with a curve.
        level: a row whose last F1 is a line, since its labelled tokens do not change.
        most_tokens: where the left panel ends; None for all.
        text: what it shows.
        needs_all: whether it is drawn only where all its rows are there.
        called: row → what it is called in the figure, where its name is long.
    """

    name: str
    task: str
    rows: tuple[str, ...]
    text: str
    level: str | None = None
    most_tokens: int | None = None
    needs_all: bool = False
    called: Mapping[str, str] = field(default_factory=dict)


PROPOSED = ("Proposed δ=.90", "Proposed δ=.99")
SPANS = ("Proposed δ=.90", "Spans δ=.90")
GROUPS = {
    "np": "Groups δ=.90 q=100 each=1 initial=10 between=20 l2=.3 most=4.73",
    "conll2000": "Groups δ=.90 q=100 each=1 initial=10 between=20 l2=.1 most=6.98",
    "conll2003": "Groups δ=.90 q=100 each=1 initial=10 start=random between=20 l2=1 last=.1 "
    "most=7.01",
}
"""Task → its row of groups."""
DRAWINGS = (
    Drawing(
        "figure-3", "np",
        ("Proposed δ=.99", "Proposed δ=.99 start=random", "Proposed δ=.99 start=shortest"),
        "Figure 3 of the paper: initial sets of the longest (unnamed), of random and of the "
        "shortest sentences",
    ),
    Drawing(
        "figure-4", "np", ("FuSAL", "Tomanek09", "Wanvarie10"),
        "Figure 4 of the paper: baselines that choose sentences; the tokens of Bootstrap do not "
        "change, its line is its last F1",
        level="Bootstrap", most_tokens=15_000,
    ),
    Drawing(
        "figure-5", "np", ("Proposed δ=.99 q=50", "Proposed δ=.99", "Proposed δ=.99 q=1000"),
        "Figure 5 of the paper: q = 50, 500 (unnamed) and 1000",
    ),
    Drawing(
        "figure-6", "np", ("Proposed δ=.60", *PROPOSED), "Figure 6 of the paper: thresholds δ"
    ),
    Drawing(
        "figure-7", "np", ("Wanvarie10", *PROPOSED),
        "Figure 7 of the paper: tokens against sentences",
    ),
    Drawing(
        "figure-8", "conll2000", ("FuSAL", "Wanvarie10", *PROPOSED),
        "Figure 8 of the paper: chunking", most_tokens=40_000,
    ),
    Drawing(
        "figure-9", "conll2003", ("FuSAL", "Wanvarie10", *PROPOSED),
        "Figure 9 of the paper: named entities", most_tokens=40_000,
    ),
    *(
        Drawing(
            f"spans-{task}", task, SPANS,
            "Not in the paper: queries of spans by their entropy against queries of tokens",
            needs_all=True,
        )
        for task in TITLES
    ),
    *(
        Drawing(
            f"groups-{task}", task, ("Proposed δ=.90", row),
            "Not in the paper: tokens that stand for many like them against the least sure ones",
            needs_all=True, called={row: "Groups δ=.90"},
        )
        for task, row in GROUPS.items()
    ),
)  # fmt: skip
"""Every figure, in the order of the report."""


def draw_figures(task: str, rows: Rows, expected: Mapping[str, Any]) -> list[Figure]:
    """The figures of a task that can be drawn: those of the paper need one of their rows.

    Args:
        task: one of `TITLES`. rows: its results. expected: the paper's numbers of the task.
    """
    figures = []
    for drawing in DRAWINGS:
        rows_present = [row for row in drawing.rows if row in rows]
        wanted = len(drawing.rows) if drawing.needs_all else 1
        if drawing.task == task and len(rows_present) >= wanted:
            figures.append(_figure(drawing, rows_present, rows, expected))
    return figures


def _figure(
    drawing: Drawing, there: Sequence[str], rows: Rows, expected: Mapping[str, Any]
) -> Figure:
    def draw(canvas: Any) -> None:
        left, right = canvas.subplots(1, 2)
        for index, row in enumerate(there):
            color, label = f"C{index}", drawing.called.get(row, row)
            for result in rows[row]:
                curve = Curve.of(result)
                how: dict[str, Any] = {"color": color, "marker": MARKERS[index], "ms": 3, "lw": 1.3}
                left.plot(curve.tokens, curve.f1, label=label, **how)
                right.plot(curve.tokens, curve.seconds, **how)
                label = None
                if "asking" in result:  # a last tagger, of the same labels
                    left.plot(curve.tokens[-1:], [result["rounds"][-1]["f1"]], f"*{color}", ms=9)
            tokens = rows[row][0]["tokens"]
            _paper_point(left, right, expected.get(row), tokens, color)
        for row, style in (("Sup", ":"), (drawing.level, "-.")):
            if row is not None and row in rows:
                level = mean_result(rows[row], "f1")
                left.axhline(level, color="C6", ls=style, lw=1.2, label=row)
        left.set(xlabel="labelled tokens", ylabel="F1, %")
        right.set(xlabel="labelled tokens", ylabel="seconds of training")
        if drawing.most_tokens is not None:
            left.set_xlim(right=drawing.most_tokens)
        left.legend(fontsize=8)

    caption = (
        f"{drawing.text}; {TITLES[drawing.task]}: F1 on the test sentences, and seconds since the "
        "beginning, by labelled tokens; crosses are where the paper ended."
        f"{_lacking(drawing, rows)}"
    )
    return Figure(drawing.name, caption, draw, (9.0, 4.0))


def _lacking(drawing: Drawing, rows: Rows) -> str:
    """Which rows the paper's figure has that these results have not."""
    wanted = [*drawing.rows, *([drawing.level] if drawing.level else []), "Sup"]
    lacking = [row for row in wanted if row not in rows]
    return f" Rows that are lacking here: {', '.join(lacking)}." if lacking else ""


def _paper_point(
    left: Any, right: Any, paper: Mapping[str, float] | None, tokens: int, color: str
) -> None:
    if paper is not None and paper["tokens"] < 100:
        at = paper["tokens"] / 100 * tokens
        left.plot([at], [paper["f1"]], marker="x", color=color, ls="none", ms=8)
        right.plot([at], [paper["seconds"]], marker="x", color=color, ls="none", ms=8)
