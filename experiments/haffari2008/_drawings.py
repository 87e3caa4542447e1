"""The figures: error by λ, λ and accuracy by size, and what is seen along a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import Figure
from experiments.haffari2008._summary import NAMES, RULES, Line, Scores

DECODINGS = {"viterbi": "Viterbi", "sms": "SMS"}
SHOWN = ("supervised", "em", *RULES)


def sweep_figure(lines: Sequence[Line]) -> Figure:
    """Figure 2 of the paper: error by λ, cold and warm starts."""
    starts = [s for s in ("cold", "warm") if any(line["cell"]["start"] == s for line in lines)]

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(1, len(starts), sharey=True, squeeze=False)[0]
        for panel, start in zip(panels, starts):
            here = [line["result"] for line in lines if line["cell"]["start"] == start]
            for color, (decoding, name) in enumerate(DECODINGS.items()):
                errors = [
                    [100 - 100 * run[decoding]["accuracy"] for run in result["runs"]]
                    for result in here
                ]
                at = [run["balance"] for run in here[0]["runs"]]
                panel.plot(
                    at, np.mean(errors, 0), marker="o", ms=2.5, color=f"C{color}", label=name
                )
            panel.axvline(here[0]["balance"], color="C2", ls=":", label="λ of maximum likelihood")
            panel.set(xlabel="λ", title=f"{start} starts")
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("wrong tokens, %")
        panels[0].legend(fontsize=8)

    caption = (
        "Figure 2 of the paper: wrong tokens of the test part by λ, EM from the supervised model "
        "(cold) or from the model of the λ before (warm)."
    )
    return Figure("sweep", caption, draw, (8.0, 3.8))


def small_figures(sizes: Mapping[int, Mapping[str, Scores]]) -> list[Figure]:
    """Figures 3 and 4 of the paper: λ chosen, and accuracy and F, by unlabelled citations."""

    def line(panel: Any, name: str, values: Sequence[Sequence[float]], color: int) -> None:
        means = [float(np.mean(some)) for some in values]
        spreads = [float(np.std(some, ddof=1)) if len(some) > 1 else 0.0 for some in values]
        panel.errorbar(
            list(sizes), means, yerr=spreads, marker="o", ms=3, capsize=2, color=f"C{color}",
            label=NAMES[name],
        )  # fmt: skip

    def draw_balances(canvas: Any) -> None:
        panel = canvas.subplots()
        for color, name in enumerate(SHOWN):
            if name != "supervised":
                line(panel, name, [methods[name].balances() for methods in sizes.values()], color)
        panel.set(xlabel="unlabelled citations", ylabel="λ")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)

    def draw_scores(canvas: Any) -> None:
        panels = canvas.subplots(2, 2, sharex=True)
        for row, (decoding, title) in zip(panels, DECODINGS.items()):
            for panel, measure in zip(row, ("f1", "accuracy")):
                for color, name in enumerate(SHOWN):
                    values = [m[name].values(decoding, measure) for m in sizes.values()]
                    line(panel, name, values, color)
                what = {"f1": "F of segments", "accuracy": "right tokens, %"}[measure]
                panel.set(title=f"{title}, {what}")
                panel.grid(alpha=0.3)
        for panel in panels[1]:
            panel.set_xlabel("unlabelled citations")
        panels[0, 0].legend(fontsize=7)

    return [
        Figure("small_balances", "Figure 3 of the paper: λ chosen with few labels; bars are "
               "standard deviations over repeats.", draw_balances),
        Figure("small_scores", "Figure 4 of the paper: F of segments and accuracy of tokens with "
               "few labels, by Viterbi and SMS decoding.", draw_scores, (9.0, 6.0)),
    ]  # fmt: skip


PANELS = {
    "lam": "λ",
    "norm": "‖Θ̃‖",
    "residual": "relative residual",
    "eigenvalue": "λ × largest eigenvalue",
    "entropy": "entropy, nats a citation",
}
"""Series along a path, and their axes."""


def path_figure(line: Line) -> Figure:
    """λ, ‖Θ̃‖, residual, leading eigenvalue, entropy and accuracy against arc length."""
    cell, result = line["cell"], line["result"]
    name = f"path_{cell['transitions']}_{cell['seed']}"

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(3, 2, sharex=True).ravel()
        arc = result["series"]["arc"]
        for panel, (series, label) in zip(panels, PANELS.items()):
            values = np.array(result["series"][series])
            panel.plot(arc, np.maximum(values, 1e-17) if series == "residual" else values, lw=1)
            panel.set_ylabel(label)
        panels[2].set_yscale("log")
        panels[3].axhline(1, color="C2", ls=":", lw=1)
        for color, (decoding, label) in enumerate(DECODINGS.items()):
            at = [one["arc"] for one in result["scored"]]
            right = [100 * one[decoding]["accuracy"] for one in result["scored"]]
            panels[5].plot(at, right, marker="o", ms=2, lw=1, color=f"C{color}", label=label)
        panels[5].set_ylabel("right tokens, %")
        panels[5].legend(fontsize=7)
        for panel in panels:
            panel.grid(alpha=0.3)
            for one in result["critical"]:
                color = "C3" if one["kind"] == "fold" else "C4"
                panel.axvline(one["arc"], color=color, lw=0.5, alpha=0.6)
        for panel in panels[4:]:
            panel.set_xlabel("arc length")

    caption = (
        f"A path with {cell['transitions']} transitions against arc length in scaled parameters: "
        "λ, length of Θ̃, residual, λ times the largest eigenvalue of ∇EM₁ (1 is singular), entropy "
        "of the unlabelled citations' labels, accuracy. Vertical lines are folds (red) and "
        "bifurcations."
    )
    return Figure(name, caption, draw, (9.0, 7.5))
