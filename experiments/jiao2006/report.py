"""Jiao et al. 2006: results → Markdown and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments import Figure, Section, markdown_table, mean_and_spread
from experiments.jiao2006._analysis import analysis
from experiments.jiao2006._drawings import f1_figure, held_out_figure
from experiments.jiao2006._sets import UNLABELLED
from experiments.jiao2006._settings import SETTINGS
from experiments.jiao2006._summary import (
    Scores,
    against_supervised,
    by_weight,
    self_trained,
    settings,
)
from jaxseq.metrics import SpanCounts

Runs = Mapping[float, Scores]
NONE = "–"


def report(results: list[dict[str, Any]], expected: dict[str, Any], config: Any) -> Section:
    """The paper's two tables and its figure beside ours, and what they say."""
    every = by_weight(results)
    main = {
        name: runs
        for (corpus, _, name), runs in every.items()
        if corpus == "genetag" and name in UNLABELLED
    }
    second = {key: runs for key, runs in every.items() if key[0] == "bc2gm"}
    trained = self_trained(results)
    texts, figures = [analysis(results, expected, config)], []
    if main:
        texts += [_table1(main, trained, expected), _table2(main, trained, expected)]
        figures = [held_out_figure(main, expected), f1_figure(main, expected)]
        texts[-1] += "".join(f"\n![]({figure.name})\n" for figure in figures)
    texts += [_cross_validation(results, main), _second(second), _gradients(results)]
    texts.append(_settings(settings(results), every.values()))
    return Section("\n".join(filter(None, texts)), tuple[Figure, ...](figures))


def _rows_of_set(name: str, runs: Runs, trained: Mapping[str, Scores]) -> list[tuple[str, Scores]]:
    rows = [(f"{name}, γ = {weight:g}", scores) for weight, scores in runs.items()]
    return [*rows, (f"{name}, self-training", trained[name])] if name in trained else rows


def _paper_index(expected: Mapping[str, Any], label: str) -> int | None:
    """Place of a row's γ in the paper's lists."""
    weights = [f"γ = {weight:g}" for weight in expected["entropy_weights"]]
    tail = label.split(", ", 1)[1]
    return weights.index(tail) if tail in weights else None


def _table1(main: Mapping[str, Runs], trained: Mapping[str, Scores], expected: Any) -> str:
    rows = []
    for name, runs in main.items():
        for label, scores in _rows_of_set(name, runs, trained):
            index, paper = _paper_index(expected, label), expected["table1"][name]
            ratios = ("precision", "recall", "f1")
            theirs = [NONE if index is None else f"{paper[ratio][index]:.2f}" for ratio in ratios]
            ours = [
                f"{scores.mean('transductive', 'precision'):.3f}",
                f"{scores.mean('transductive', 'recall'):.3f}",
                mean_and_spread(scores.values("transductive", "f1"), 3),
                mean_and_spread(scores.values("transductive", "f1", "with_alternatives"), 3),
            ]
            rows.append([label, *theirs, *ours])
    header = ["tested on", "P, paper", "R, paper", "F, paper", "P", "R", "F"]
    return (
        "### Table 1: tested on the unlabelled set itself\n\n"
        "Mentions count when both limits are right; in the last column also by one of GENETAG's "
        "accepted alternatives. Means over seeds, F with the standard deviation.\n\n"
        + markdown_table([*header, "F, alternatives"], rows)
    )


def _table2(main: Mapping[str, Runs], trained: Mapping[str, Scores], expected: Any) -> str:
    rows = []
    for name, runs in main.items():
        for label, scores in _rows_of_set(name, runs, trained):
            rows.append([label, *_paper_counts(expected, name, label), *_held_out(scores)])
            more, fewer, tests = scores.mcnemar()
            rows[-1].append(f"{more} / {fewer} of {tests}" if tests else NONE)
    header = ["unlabelled", "predicted/found, paper", "F, paper", "predicted", "found", "P", "R"]
    return (
        "### Table 2: tested on E, which no training has seen\n\n"
        "The last column counts the seeds in which significantly more / fewer sentences of E are "
        "wholly right than with the supervised tagger (McNemar's exact test, p < 0.05).\n\n"
        + markdown_table([*header, "F", "F, alternatives", "better / worse"], rows)
    )


def _paper_counts(expected: Mapping[str, Any], name: str, label: str) -> list[str]:
    index, table = _paper_index(expected, label), expected["table2"]
    if index is None:
        return [NONE, NONE]
    right, predicted = table[name]["found"][index], table[name]["predicted"][index]
    counts = SpanCounts(right, predicted, table["gold"])
    return [f"{predicted}/{right}", f"{counts.f1:.3f}"]


def _held_out(scores: Scores) -> list[str]:
    return [
        f"{scores.mean('held_out', 'predicted'):.0f}",
        f"{scores.mean('held_out', 'tp'):.0f}",
        f"{scores.mean('held_out', 'precision'):.3f}",
        f"{scores.mean('held_out', 'recall'):.3f}",
        mean_and_spread(scores.values("held_out", "f1"), 3),
        mean_and_spread(scores.values("held_out", "f1", "with_alternatives"), 3),
    ]


def _cross_validation(results: list[dict[str, Any]], main: Mapping[str, Runs]) -> str:
    rows = []
    for line in results:
        cell, result = line["cell"], line["result"]
        if cell["part"] != "cross-validation" or cell["unlabelled"] not in main:
            continue
        f1 = {
            weight: scores.counts("held_out")[cell["seed"]].f1
            for weight, scores in main[cell["unlabelled"]].items()
            if cell["seed"] in scores.by_seed
        }
        if result["best"] not in f1:
            continue
        best = max(f1, key=lambda weight: f1[weight])
        rows.append(
            [
                f"{cell['unlabelled']}, seed {cell['seed']}",
                f"{result['best']:g}",
                f"{f1[result['best']]:.3f}",
                f"{f1[0]:.3f}",
                f"{best:g}: {f1[best]:.3f}",
            ]
        )
    if not rows:
        return ""
    header = ["unlabelled", "γ chosen", "F on E with it", "F with γ = 0", "best γ on E"]
    return (
        "### γ by cross-validation\n\n"
        "Chosen by the labelled sentences alone. The best γ on E is chosen by E's own labels: "
        "a bound, not a result.\n\n" + markdown_table(header, rows)
    )


def _second(second: Mapping[tuple[str, int, str], Runs]) -> str:
    if not second:
        return ""
    weights = sorted({weight for runs in second.values() for weight in runs})
    seeds = max(len(scores.by_seed) for runs in second.values() for scores in runs.values())
    rows = [
        [
            f"{words} words, {name}",
            *(
                mean_and_spread(runs[weight].values("held_out", "f1"), 3)
                if weight in runs
                else NONE
                for weight in weights
            ),
        ]
        for (_, words, name), runs in second.items()
    ]
    return (
        "### A second corpus: BC2GM\n\nThe same draws and trainings by the size of A, "
        f"{seeds} seeds a row at most; F on E by γ.\n\n"
        + markdown_table(["A, unlabelled", *(f"γ = {weight:g}" for weight in weights)], rows)
    )


def _gradients(results: list[dict[str, Any]]) -> str:
    lines = [line["result"] for line in results if line["cell"]["part"] == "gradients"]
    if not lines:
        return ""
    result, names = lines[0], {"mann": "Mann & McCallum", "jiao": "Jiao et al."}
    reference = result["runs"]["mann"]["seconds"]
    rows = [
        [
            names.get(name, name),
            f"{1000 * run['seconds']:.1f}",
            f"{run['seconds'] / reference:.2f}",
            run["iterations"],
            f"< {run['weights_differ_below']:.0e}",
            "yes" if run["same_labels"] else "no",
        ]
        for name, run in result["runs"].items()
    ]
    header = ["gradient", "ms an evaluation", "ratio", "iterations", "weights differ by", "labels"]
    return (
        "### Jiao's gradient and Mann's\n\n"
        f"The same training in float64 on one core, {result['labelled_words']} labelled and "
        f"{result['unlabelled_words']} unlabelled words, sentences of up to {result['longest']}. "
        "Times are of whole evaluations, features to weights.\n\n"
        + markdown_table([*header[:-1], "same labels"], rows)
    )


def _settings(found: Mapping[str, Runs], reported: Iterable[Runs]) -> str:
    if not found:
        return ""
    weights = sorted({weight for runs in found.values() for weight in runs if weight > 0})
    rows = []
    for name, runs in found.items():
        none = runs[0.0]
        row = [f"{name}: {SETTINGS[name].what}"]
        row += [f"{none.mean('held_out', ratio):.3f}" for ratio in ("precision", "recall", "f1")]
        row += [
            f"{against_supervised(runs, weight).mean:+.3f}" if weight in runs else NONE
            for weight in weights
        ]
        rows.append(row)
    seeds = sorted({seed for runs in found.values() for seed in runs[0.0].by_seed})
    elsewhere = {seed for runs in reported for scores in runs.values() for seed in scores.by_seed}
    apart = "" if elsewhere & set(seeds) else ", which are used for nothing else"
    header = ["setting", "P, γ = 0", "R", "F", *(f"ΔF, γ = {weight:g}" for weight in weights)]
    return (
        "### What the paper leaves open\n\n"
        f"A and B of seeds {', '.join(map(str, seeds))}{apart}, tested on E: F without "
        "unlabelled sentences, and how it changes with them. "
        "The preset `paper` has all rows.\n\n" + markdown_table(header, rows)
    )
