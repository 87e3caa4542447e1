"""The figures: F by γ, and precision and recall on E."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import Figure
from experiments.jiao2006._summary import Scores, Where
from jaxseq.metrics import SpanCounts

Runs = Mapping[float, Scores]
MARKERS = "osD"


def held_out_figure(main: Mapping[str, Runs], expected: Mapping[str, Any]) -> Figure:
    """Figure 2 of the paper: precision, recall and F on E by γ and unlabelled set."""

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(2, 3, sharex=True, sharey=True)  # ours above the paper's
        places = _places(main, expected)
        for column, ratio in enumerate(("precision", "recall", "f1")):
            for index, (name, runs) in enumerate(main.items()):
                style = {"marker": MARKERS[index], "color": f"C{index}", "markersize": 4}
                ours = [runs[weight].values("held_out", ratio) for weight in runs]
                _line_with_spread(panels[0, column], [places[w] for w in runs], ours, name, style)
                theirs = _paper_ratios(expected, name, ratio)
                at = [places[float(weight)] for weight in expected["entropy_weights"]]
                panels[1, column].plot(at, theirs, label=name, **style)
            panels[0, column].set_title({"f1": "F"}.get(ratio, ratio))
            panels[1, column].set_xlabel("γ")
        for panel in panels.flat:
            _mark_weights(panel, places)
            panel.set_ylim(0, 0.9)
        panels[0, 0].set_ylabel("ours")
        panels[1, 0].set_ylabel("paper")
        panels[0, 0].legend(title="unlabelled", fontsize=8, title_fontsize=8)

    caption = (
        "Figure 2 of the paper with ours above it: precision, recall and F on E by γ, for each "
        "unlabelled set; bars are standard deviations over seeds. γ = 0 is the supervised tagger."
    )
    return Figure("held_out", caption, draw, (9.0, 5.2))


def f1_figure(main: Mapping[str, Runs], expected: Mapping[str, Any]) -> Figure:
    """F against γ with its spread, on the unlabelled set and on E."""

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(1, 2, sharey=True)
        places = _places(main, expected)
        titles: dict[Where, str] = {"transductive": "on the unlabelled set", "held_out": "on E"}
        for panel, (where, title) in zip(panels, titles.items()):
            for index, (name, runs) in enumerate(main.items()):
                style = {"marker": MARKERS[index], "color": f"C{index}", "markersize": 4}
                values = [runs[weight].values(where, "f1") for weight in runs]
                _line_with_spread(panel, [places[weight] for weight in runs], values, name, style)
                style.update(linestyle="--", alpha=0.6, linewidth=1, markersize=2.5)
                paper = (
                    expected["table1"][name]["f1"]
                    if where == "transductive"
                    else _paper_ratios(expected, name, "f1")
                )
                at = [places[float(weight)] for weight in expected["entropy_weights"]]
                panel.plot(at, paper, label=f"{name}, paper", **style)
            panel.set(title=title, xlabel="γ")
            _mark_weights(panel, places)
        panels[0].set_ylabel("F")
        panels[0].set_ylim(0, 0.7)
        panels[1].legend(ncols=2, fontsize=8)

    caption = (
        "F by γ on the unlabelled set itself and on E, with standard deviations over seeds; "
        "broken lines are the paper's, on another corpus."
    )
    return Figure("f1_by_weight", caption, draw, (8.5, 4.0))


def _places(main: Mapping[str, Runs], expected: Mapping[str, Any]) -> dict[float, int]:
    """γ → where it stands on the axis: side by side, as in the paper, for 0 has no logarithm."""
    weights = {weight for runs in main.values() for weight in runs}
    # The paper's weights have places, too, also where ours were not run.
    weights |= {float(weight) for weight in expected["entropy_weights"]}
    return {weight: place for place, weight in enumerate(sorted(weights))}


def _mark_weights(panel: Any, places: Mapping[float, int]) -> None:
    panel.set_xticks(list(places.values()), [f"{weight:g}" for weight in places])
    panel.grid(alpha=0.3)


def _line_with_spread(
    panel: Any, at: Sequence[int], values: Sequence[Sequence[float]], name: str, style: dict
) -> None:
    means = [float(np.mean(some)) for some in values]
    spreads = [float(np.std(some, ddof=1)) if len(some) > 1 else 0.0 for some in values]
    panel.errorbar(at, means, yerr=spreads, capsize=2, label=name, **style)


def _paper_ratios(expected: Mapping[str, Any], name: str, ratio: str) -> list[float]:
    table = expected["table2"]
    pairs = zip(table[name]["found"], table[name]["predicted"])
    counts = [SpanCounts(found, predicted, table["gold"]) for found, predicted in pairs]
    return [getattr(one, ratio) for one in counts]
