"""Mann & McCallum 2007: results → Markdown and figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import Figure, Section, markdown_table

NAMES = {"mann": "Mann & McCallum", "jiao": "Jiao et al.", "autodiff": "autodiff"}


def report(results: list[dict[str, Any]], expected: dict[str, Any], config: Any) -> Section:
    """The paper's number beside ours, the growth of the cost, and uncertain spans."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for line in results:
        parts.setdefault(line["cell"]["part"], []).append(line)
    texts, figures = [], []
    if "agreement" in parts or "real agreement" in parts:
        texts.append(_agreement(parts))
    if "ratio" in parts:
        texts.append(_ratio(parts["ratio"][0], expected))
    if "growth" in parts:
        text, figure = _growth(parts["growth"], expected, config)
        texts.append(text)
        figures.append(figure)
    if "spans" in parts:
        texts.append(_spans(parts["spans"][0]["result"]))
    return Section("\n".join(texts), tuple(figures))


def _agreement(parts: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for part, where in (("agreement", "random chains"), ("real agreement", "sentences")):
        lines = [line["result"] for line in parts.get(part, [])]
        if lines:
            names = list(lines[0]["relative_error_below"])
            worst = [max(line["relative_error_below"][name] for line in lines) for name in names]
            chains = sum(line["chains"] for line in lines)
            rows.append([f"{where} ({chains})", *(f"< {x:.0e}" for x in worst)])
            header = ["chains", *names]
    return (
        "### Three derivations, one gradient\n\n"
        "Largest difference from Mann & McCallum's closed form, relative to its largest entry, in "
        "float64: Jiao's covariance program, reverse-mode and forward-mode autodiff of a plain "
        "log-space recursion; and of the value.\n\n" + markdown_table(header, rows)
    )


def _ratio(line: dict[str, Any], expected: dict[str, Any]) -> str:
    result = line["result"]
    seconds = result["seconds"]
    ours = seconds["entropy"] / seconds["supervised"]
    paper = expected["section5"]["entropy_to_supervised"]
    stages = seconds["stages"]
    rows = [
        ["time of the entropy gradient / supervised gradient", f"{paper:g}", f"{ours:.2f}"],
        ["supervised gradient, seconds", "–", f"{seconds['supervised']:.3f}"],
        ["entropy gradient, seconds", "–", f"{seconds['entropy']:.3f}"],
    ]
    for name, shares in stages.items():
        text = ", ".join(f"{stage} {share:.0%}" for stage, share in shares.items())
        rows.append([f"{name}: where the time goes", "–", text])
    return (
        "### What it costs\n\n"
        f"One gradient of {result['sentences']} sentences ({result['tokens']} tokens), features "
        "to weights, both in the same run.\n\n" + markdown_table(["", "paper", "ours"], rows)
    )


def _growth(
    lines: list[dict[str, Any]], expected: dict[str, Any], config: Any
) -> tuple[str, Figure]:
    curves: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for line in lines:
        cell, result = line["cell"], line["result"]
        sizes, values = result["sizes"], result["seconds"]
        curves[cell["algorithm"], cell["axis"]] = sizes, [values[str(size)] for size in sizes]
    rows = []
    for algorithm, name in NAMES.items():
        row = [name]
        for axis in ("n", "s"):
            claimed = expected["section4"].get(algorithm, {}).get(axis, "–")
            curve = curves.get((algorithm, axis))
            row += [claimed, "–" if curve is None else f"{_last_slope(*curve):.2f}"]
        rows.append(row)

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(1, 2, sharey=True)
        for panel, axis in zip(panels, ("n", "s")):
            for index, (algorithm, name) in enumerate(NAMES.items()):
                if (algorithm, axis) in curves:
                    sizes, values = curves[algorithm, axis]
                    panel.plot(sizes, values, marker="osD"[index], color=f"C{index}", label=name)
            fixed = (
                f"s = {config.growth_fixed_labels}"
                if axis == "n"
                else f"n = {config.growth_fixed_positions}"
            )
            sizes = config.growth_positions if axis == "n" else config.growth_labels
            what = "positions n" if axis == "n" else "labels s"
            panel.set(xscale="log", yscale="log", xlabel=f"{what} ({fixed})")
            panel.set_xticks(sizes, [str(size) for size in sizes])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("seconds for one gradient")
        panels[0].legend()

    table = markdown_table(["", "n: claimed", "n: ours", "s: claimed", "s: ours"], rows)
    text = (
        "### How the cost grows\n\n"
        "One chain. Exponents are those of the last doubling measured; short chains with few "
        "labels are all overhead, and grow slower than the claim.\n\n" + table + "\n![](growth)\n"
    )
    caption = "Seconds of one entropy gradient by the number of positions and of labels."
    return text, Figure("growth", caption, draw, (8.0, 4.0))


def _last_slope(sizes: list[int], seconds: list[float]) -> float:
    return float(np.log(seconds[-1] / seconds[-2]) / np.log(sizes[-1] / sizes[-2]))


def _spans(result: dict[str, Any]) -> str:
    def share(pair: list[int]) -> str:
        return f"{100 * pair[0] / pair[1]:.1f} %" if pair[1] else "–"

    rows = []
    for one in result["shown"]:
        start, stop = one["span"]
        words = one["words"]
        before = " ".join(words[max(0, start - 4) : start])
        after = " ".join(words[stop : stop + 4])
        text = f"{before} **{' '.join(words[start:stop])}** {after}".strip()
        labels = f"{' '.join(one['predicted'])} (gold {' '.join(one['gold'])})"
        rows.append([text, f"{one['nats']:.2f} of {one['sentence_nats']:.2f}", labels])
    return (
        "### Where the model is unsure\n\n"
        "Subsequence entropies find the words worth asking a person about. In "
        f"{result['sentences']} test sentences, labels in the most uncertain span of a sentence "
        f"are wrong in {share(result['wrong_inside'])} of cases, elsewhere in "
        f"{share(result['wrong_outside'])}. The spans with most entropy:\n\n"
        + markdown_table(["span in its sentence", "nats, span of sentence", "labels"], rows)
    )
