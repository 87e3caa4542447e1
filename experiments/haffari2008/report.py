"""Haffari & Sarkar 2008: results → Markdown and figures."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Figure, Section, markdown_table, mean_and_spread
from experiments._results import parts
from experiments.haffari2008._drawings import path_figure, small_figures, sweep_figure
from experiments.haffari2008._settings import SETTINGS
from experiments.haffari2008._summary import (
    NAMES,
    RULES,
    Line,
    Scores,
    by_method,
    by_size,
    gains,
)

NONE = "–"
DECODINGS = {"viterbi": "Viterbi", "sms": "SMS"}


def report(results: list[dict[str, Any]], expected: dict[str, Any], config: Any) -> Section:
    """Table 1 and figures 2 to 4 beside ours, paths, and what the paper leaves open."""
    texts, figures = [_claims(results, expected["goals"], config.table_settings)], []
    for setting, transitions in itertools.product(config.table_settings, ("frozen", "free")):
        lines = parts(results, "table", setting=setting, transitions=transitions)
        if lines:
            texts.append(_table(by_size(lines), expected, setting, transitions))
            texts.append(_paths_of_table(lines))
    sweeps = parts(results, "sweep")
    if sweeps:
        figures.append(sweep_figure(sweeps))
        texts.append("### Figure 2: EM by λ\n\n![](sweep)\n")
    small = parts(results, "small")
    if small:
        drawn = small_figures(by_size(small, "repeat"))
        figures += drawn
        places = "\n".join(f"![]({figure.name})\n" for figure in drawn)
        texts.append(f"### Figures 3 and 4: {config.small_labelled} labelled citations\n\n{places}")
    paths = parts(results, "path")
    if paths:
        drawn = [path_figure(line) for line in paths]
        figures += drawn
        texts.append(_paths(paths, drawn))
    texts.append(_settings(parts(results, "settings")))
    return Section("\n".join(filter(None, texts)), tuple[Figure, ...](figures))


# ------------------------------------------------------------------------------------ claims


def _claims(results: Sequence[Line], goals: Mapping[str, Any], settings: Sequence[str]) -> str:
    """What is to be shown, on the largest number of unlabelled citations."""
    rows, sizes, seeds = [], set(), set()
    for setting, transitions in itertools.product(settings, ("frozen", "free")):
        lines = parts(results, "table", setting=setting, transitions=transitions)
        if not lines:
            continue
        size, methods = list(by_size(lines).items())[-1]
        sizes.add(size)
        seeds |= set(methods["supervised"].by_seed)
        rows += [
            [setting, transitions, DECODINGS[decoding], *_claimed(methods, decoding, goals)]
            for decoding in DECODINGS
        ]
    if not rows:
        return ""
    header = ["words", "transitions", "decoding", "supervised"]
    header += [f"{NAMES[rule]}, less {other}" for rule in RULES for other in ("supervised", "EM")]
    return (
        "### What is claimed\n\nAccuracy of tokens in percent, and differences in points with the "
        f"standard error of their mean, {' or '.join(map(str, sorted(sizes)))} unlabelled "
        f"citations, mean over {len(seeds)} split{'s' if len(seeds) > 1 else ''}. Bold where it is "
        f"as claimed: at least {goals['supervised']:g} supervised, and with a λ of homotopy at "
        f"least {goals['over_supervised']:g} more than that and {goals['over_em']:g} more than EM "
        "at λ of maximum likelihood.\n\n" + markdown_table(header, rows)
    )


def _claimed(methods: Mapping[str, Scores], decoding: str, goals: Mapping[str, Any]) -> list[str]:
    supervised, em = methods["supervised"], methods["em"]
    mean = supervised.mean(decoding, "accuracy")
    found = [_bold(f"{mean:.2f}", mean >= goals["supervised"])]
    for rule in RULES:
        for other, goal in ((supervised, "over_supervised"), (em, "over_em")):
            points = gains(methods[rule], other, decoding)
            text = f"{statistics.fmean(points):+.2f}"
            if len(points) > 1:
                text += f" ± {statistics.stdev(points) / math.sqrt(len(points)):.2f}"
            found.append(_bold(text, statistics.fmean(points) >= goals[goal]))
    return found


def _bold(text: str, holds: bool) -> str:
    return f"**{text}**" if holds else text


def _described(setting: str) -> str:
    what = SETTINGS[setting].what
    return f"setting “{setting}” ({what})"


# ----------------------------------------------------------------------------------- table 1


def _table(
    sizes: Mapping[int, Mapping[str, Scores]],
    expected: Mapping[str, Any],
    setting: str,
    transitions: str,
) -> str:
    rows = []
    for size, methods in sizes.items():
        for name, scores in methods.items():
            paper = _of_paper(expected, name, size) if transitions == "frozen" else None
            rows.append([f"{NAMES[name]}, {size}", *_row(scores, paper)])
    header = ["method, unlabelled", "λ", "λ, paper"]
    for decoding in DECODINGS.values():
        header += [f"{decoding} accuracy", "paper", "P / R / F", "F, paper"]
    return (
        f"### Table 1, {_described(setting)}, transitions {transitions}\n\n"
        "Accuracy of tokens in percent; precision, recall and F of segments, which count when "
        "label and both limits are right. Means over splits. The paper's homotopy row stands with "
        "maxEnt, which it found best; its unlabelled citations are others.\n\n"
        + markdown_table(header, rows)
    )


def _of_paper(expected: Mapping[str, Any], name: str, size: int) -> Mapping[str, Any] | None:
    row, key = ("homotopy", size) if name == "max_entropy" else (name, size)
    table = expected["table1"].get(row, {})
    return table.get("0" if name == "supervised" else str(key))


def _row(scores: Scores, paper: Mapping[str, Any] | None) -> list[str]:
    row = [mean_and_spread(scores.balances(), 3), f"{paper['balance']:.3f}" if paper else NONE]
    for decoding in DECODINGS:
        ratios = [f"{scores.mean(decoding, ratio):.3f}" for ratio in ("precision", "recall", "f1")]
        row += [
            mean_and_spread(scores.values(decoding, "accuracy")),
            f"{paper[decoding]['accuracy']:.1f}" if paper else NONE,
            " / ".join(ratios),
            f"{paper[decoding]['f1']:.3f}" if paper else NONE,
        ]
    return row


def _paths_of_table(lines: Sequence[Line]) -> str:
    found = [line["result"]["path"] for line in lines]
    last = [path["last"] for path in found]
    residual = max(path["residual"] for path in found)
    seconds = statistics.median(path["seconds"] for path in found)
    return (
        f"Paths of this table are followed until λ first turns, which it does at {min(last):.3f} "
        f"to {max(last):.3f} (or nowhere up to 1): {min(p['points'] for p in found)} to "
        f"{max(p['points'] for p in found)} points, {seconds:.0f} s by the median, "
        f"‖EM_λ(Θ̃) − Θ̃‖ ≤ {residual:.0e} ‖Θ̃‖. So minEig and maxEnt, for which the paper "
        "looks at all of a path, choose before the first turn here; see “Whole paths”. maxEnt "
        "leaves λ = 0 out, where no step has been made.\n"
    )


# ------------------------------------------------------------------------------------- paths


def _paths(lines: Sequence[Line], figures: Sequence[Figure]) -> str:
    rows = []
    for line in lines:
        cell, result = line["cell"], line["result"]
        summary = result["summary"]
        folds = sum(one["kind"] == "fold" for one in result["critical"])
        rows.append(
            [
                f"{cell['transitions']}, seed {cell['seed']}",
                summary["outcome"],
                f"{summary['last']:.3f}",
                summary["points"],
                summary["turns"],
                f"{folds} / {len(result['critical']) - folds}",
                f"{summary['residual']:.0e}",
                f"{summary['seconds']:.0f}",
            ]
        )
    header = ["transitions", "ended", "λ", "points", "turns", "folds / bifurcations"]
    chosen = [
        [
            f"{NAMES[name]}, {line['cell']['transitions']}, seed {line['cell']['seed']}",
            *_row(one, None),
        ]
        for line in lines
        for name, one in by_method([line]).items()
    ]
    names = ["chosen on the whole path", "λ", "", "Viterbi", "", "P / R / F", ""]
    return (
        "### Whole paths\n\n"
        + markdown_table([*header, "largest residual", "seconds"], rows)
        + "\n"
        + markdown_table([*names, "SMS", "", "P / R / F", ""], chosen)
        + "".join(f"\n![]({figure.name})\n" for figure in figures)
    )


# ---------------------------------------------------------------------------------- settings


def _settings(lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    rows, names = [], list(dict.fromkeys(line["cell"]["setting"] for line in lines))
    balances = [run["balance"] for run in lines[0]["result"]["runs"]]
    for name in names:
        here = [line["result"] for line in lines if line["cell"]["setting"] == name]
        row = [
            f"{name}: {SETTINGS[name].what}",
            f"{statistics.fmean(r['words'] for r in here):.0f}",
        ]
        for index in range(len(balances)):
            row.append(_both([result["runs"][index] for result in here]))
        turn = mean_and_spread([result["monotone"]["balance"] for result in here], 3)
        rows.append([*row, turn, _both([result["monotone"] for result in here])])
    header = ["setting", "words", *(f"λ = {balance:.3g}" for balance in balances)]
    seeds = ", ".join(map(str, sorted({line["cell"]["seed"] for line in lines})))
    return (
        "### What the paper leaves open\n\n"
        f"Accuracy on development parts, which their splits use for nothing else (other splits may "
        f"train or test on these citations), Viterbi / SMS, of EM at "
        f"some λ and of the last model before λ turns; splits {seeds}.\n\n"
        + markdown_table([*header, "λ turns at", "homotopy there"], rows)
    )


def _both(runs: Sequence[Line]) -> str:
    means = [100 * statistics.fmean(run[d]["accuracy"] for run in runs) for d in DECODINGS]
    return f"{means[0]:.2f} / {means[1]:.2f}"
