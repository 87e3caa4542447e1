"""Figures 3 and 4: learning with constraints against inference with them, by labelled sentences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Figure
from experiments.chang2007._methods import HW, INFERENCE, PLAIN, SUP, TOP_K
from experiments.chang2007._summary import Methods

Sizes = Mapping[int, Methods]


def figure_3(sizes: Sizes, expected: Mapping[str, Any]) -> Figure:
    """H&W+I and H&W&C+I on advertisements."""

    def draw(canvas: Any) -> None:
        panel = canvas.subplots()
        for color, method in enumerate((HW, TOP_K)):
            _line(panel, sizes, method, INFERENCE, f"{method} + I", color)
            _paper_line(panel, expected, "ads", method, INFERENCE, color)
        _finish(panel, sizes, "labelled advertisements")

    caption = (
        "Figure 3 of the paper: advertisements, decoded with constraints, learnt without them "
        "(H&W) and with them; bars are standard deviations over draws, dashed lines the paper's."
    )
    return Figure("advertisements", caption, draw)


def figure_4(sizes: Sizes, expected: Mapping[str, Any], reference: int) -> Figure:
    """H&W&C+I on few citations, beside the supervised model of many."""

    def draw(canvas: Any) -> None:
        panel = canvas.subplots()
        few = {size: methods for size, methods in sizes.items() if size != reference}
        for color, (method, how) in enumerate(((SUP, PLAIN), (HW, INFERENCE), (TOP_K, INFERENCE))):
            name = f"{method} + I" if how == INFERENCE else method
            _line(panel, few, method, how, name, color)
            _paper_line(panel, expected, "citations", method, how, color, leave_out=reference)
        if reference in sizes and SUP in sizes[reference]:
            level = sizes[reference][SUP].mean(PLAIN)
            panel.axhline(level, color="C3", ls=":", label=f"sup, {reference} labelled")
        _finish(panel, few, "labelled citations")

    caption = (
        f"Figure 4 of the paper: citations; the dotted line is the supervised model of {reference} "
        "labelled citations decoded without constraints, dashed lines are the paper's."
    )
    return Figure("citations", caption, draw)


def _line(panel: Any, sizes: Sizes, method: str, how: str, name: str, color: int) -> None:
    at = [size for size, methods in sizes.items() if method in methods]
    values = [sizes[size][method].values(how) for size in at]
    # A single draw has no spread, and a bar of no length.
    spreads = [statistics.stdev(some) if len(some) > 1 else 0.0 for some in values]
    means = [statistics.fmean(some) for some in values]
    panel.errorbar(
        at, means, yerr=spreads, marker="o", ms=4, capsize=2, color=f"C{color}", label=name
    )


def _paper_line(
    panel: Any,
    expected: Mapping[str, Any],
    domain: str,
    method: str,
    how: str,
    color: int,
    leave_out: int | None = None,
) -> None:
    column = expected["methods"].index(method)
    rows = {int(size): row for size, row in expected[domain].items() if int(size) != leave_out}
    values = [row[how][column] for row in rows.values()]
    panel.plot(list(rows), values, ls="--", lw=1, alpha=0.7, color=f"C{color}")


def _finish(panel: Any, sizes: Sequence[int] | Sizes, label: str) -> None:
    panel.set(xlabel=label, ylabel="right tokens, %")
    if max(sizes, default=1) > 30:  # 5, 10, 20, …, 300: small sizes would crowd at the left
        panel.set_xscale("log")
    panel.set_xticks(list(sizes), [str(size) for size in sizes])
    panel.minorticks_off()  # a logarithmic axis would put its own between the sizes
    panel.legend(fontsize=8)
