"""Chang, Ratinov & Roth 2007: results → Markdown and figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Figure, Section, markdown_table, mean_and_spread
from experiments._results import parts
from experiments.chang2007._analysis import NAMES, analysis
from experiments.chang2007._drawings import figure_3, figure_4
from experiments.chang2007._methods import INFERENCE, METHODS, PLAIN
from experiments.chang2007._settings import CHANGES
from experiments.chang2007._summary import (
    Line,
    Methods,
    by_method,
    by_size,
    list_domains,
    mcnemar_counts,
)

NONE = "–"


def report(results: list[dict[str, Any]], expected: dict[str, Any], config: Any) -> Section:
    """Table 2, figures 3 and 4 and section 7 beside ours, and what is not in the paper."""
    texts, figures = [analysis(results, expected)], []
    table = parts(results, "table")
    for domain in list_domains(table):
        lines = [line for line in table if line["cell"]["domain"] == domain]
        texts.append(_table(domain, lines, expected[domain], config))
        sizes = by_size(lines)
        reference = expected["goals"]["competitor"][1]
        drawn = (
            figure_4(sizes, expected, reference)
            if domain == "citations"
            else figure_3(sizes, expected)
        )
        figures.append(drawn)
        texts.append(f"![]({drawn.name})\n")
    texts += [
        _soft(parts(results, "soft"), expected["soft"], config),
        _beyond(results, config),
        _rules(parts(results, "rules")),
        _settings(parts(results, "settings")),
    ]
    return Section("\n".join(filter(None, texts)), tuple[Figure, ...](figures))


# ----------------------------------------------------------------------------------- table 2


def _table(domain: str, lines: Sequence[Line], paper: Mapping[str, Any], config: Any) -> str:
    rows = []
    sizes = by_size(lines)
    for size, methods in sizes.items():
        for how in (PLAIN, INFERENCE):
            published = paper.get(str(size), {}).get(how)
            rows.append([f"{size}, {how}", *_cells(methods, how, published)])
    draws = max(len(one.by_seed) for methods in sizes.values() for one in methods.values())
    return (
        f"### Table 2: {NAMES[domain]}\n\n"
        f"Accuracy of tokens in percent, mean ± standard deviation over {draws} draws, the paper's "
        f"in brackets. {config.unlabelled} unlabelled sentences, K = {config.top_k}, "
        f"γ = {config.keep:g}, {config.cycles} cycles; I: decoded with constraints.\n\n"
        + markdown_table(["N", *METHODS], rows)
        + f"\n{_tests(lines)}"
    )


def _cells(methods: Methods, how: str, published: Sequence[float] | None) -> list[str]:
    cells = []
    for column, name in enumerate(METHODS):
        ours = mean_and_spread(methods[name].values(how)) if name in methods else NONE
        cells.append(ours if published is None else f"{ours} ({published[column]:.1f})")
    return cells


def _tests(lines: Sequence[Line]) -> str:
    """McNemar's test of each draw."""
    names = {"learning": "H&W&C top-K + I against H&W + I", "inference": "sup + I against sup"}
    said = []
    for comparison, name in names.items():
        better, worse, tests = mcnemar_counts(lines, comparison)
        said.append(f"{name}: better in {better} and worse in {worse} of {tests} draws")
    return f"McNemar's exact test on the test tokens of each draw, p < .05: {'; '.join(said)}.\n"


# ------------------------------------------------------------------------- section 7, beyond


def _soft(lines: Sequence[Line], paper: Mapping[str, float], config: Any) -> str:
    if not lines:
        return ""
    titles = {
        "none": "no constraints",
        "C1, soft": "transitions alone, soft",
        "C1, hard": "transitions alone, hard",
        "all, soft": "all, soft",
        "all, hard": "all, hard",
    }
    rows = [
        [
            title,
            mean_and_spread([100 * line["result"]["accuracy"][name] for line in lines]),
            f"{paper[name]:.1f}" if name in paper else NONE,
        ]
        for name, title in titles.items()
    ]
    return (
        "### Section 7: hard and soft constraints\n\n"
        f"Advertisements, the supervised model of {config.soft_labelled}; soft is "
        f"ρ = −log {config.soft_probability:g}, hard ρ = ∞.\n\n"
        + markdown_table(["constraints", "accuracy", "paper"], rows)
    )


def _beyond(results: Sequence[Line], config: Any) -> str:
    rows = []
    lines = [*parts(results, "beyond"), *parts(results, "crf")]
    for domain in list_domains(lines):
        for part in ("beyond", "crf"):
            methods = by_method([one for one in parts(lines, part, domain=domain)])
            rows += [
                [
                    f"{NAMES[domain]}, {name}",
                    *(mean_and_spread(one.values(h)) for h in (PLAIN, INFERENCE)),
                ]
                for name, one in methods.items()
            ]
    if not rows:
        return ""
    return (
        "### Beyond the paper\n\n"
        f"{config.beyond_labelled} labelled sentences. Labellings of the beam by their posterior "
        "weight in place of 1/K; ρ by the log-odds of a violation in the labelled sentences; and "
        f"a conditional random field of words and their neighbours (K = {config.crf_top_k}, "
        f"{config.crf_unlabelled} unlabelled).\n\n"
        + markdown_table(["", "no I", "I"], rows)
        + f"\n{_penalties(parts(results, 'beyond'))}"
    )


def _penalties(lines: Sequence[Line]) -> str:
    said = []
    for domain in list_domains(lines):
        first = parts(lines, "beyond", domain=domain)[0]
        listed = ", ".join(f"{n} {rho:.1f}" for n, rho in first["result"]["penalties"].items())
        said.append(f"{NAMES[domain]}, first draw: {listed}")
    return f"Estimated ρ; {'; '.join(said)}.\n" if said else ""


# ------------------------------------------------------------------------ rules and settings


def _rules(lines: Sequence[Line]) -> str:
    texts = []
    for line in lines:
        result, domain = line["result"], line["cell"]["domain"]
        rows = [
            [
                one["name"],
                one["violations"],
                NONE if one["occasions"] is None else one["occasions"],
                f"{100 * one['sentences'] / result['sentences']:.0f} %",
            ]
            for one in result["rules"]
        ]
        meet = result["meetings"]
        total = max(1, sum(meet.values()))
        shares = ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in meet.items())
        texts.append(
            f"{NAMES[domain].capitalize()}, {result['sentences']} sentences that are not tested "
            f"on, {result['without_any']} without any violation. Where fields meet, punctuation "
            f"stands: {shares}.\n\n"
            + markdown_table(["rule", "violations", "of words", "sentences with some"], rows)
        )
    return (
        "### Table 1: how often right labels break the rules\n\n" + "\n".join(texts)
        if texts
        else ""
    )


def _settings(lines: Sequence[Line]) -> str:
    rows, methods = [], list(dict.fromkeys(n for line in lines for n in line["result"]["methods"]))
    for domain in list_domains(lines):
        own = parts(lines, "settings", domain=domain)
        for name in dict.fromkeys(line["cell"]["setting"] for line in own):
            for size in sorted({line["cell"]["labelled"] for line in own}):
                scores = by_method(parts(own, "settings", setting=name, labelled=size))
                row = [f"{NAMES[domain]}, {size}, {name}: {CHANGES[name].what}"]
                rows.append([*row, *(_both(scores, method) for method in methods)])
    if not rows:
        return ""
    return (
        "### What the paper leaves open\n\n"
        "Accuracy without / with constraints, on sentences that are kept apart for this.\n\n"
        + markdown_table(["setting", *methods], rows)
    )


def _both(scores: Methods, method: str) -> str:
    if method not in scores:
        return NONE
    means = [statistics.fmean(scores[method].values(how)) for how in (PLAIN, INFERENCE)]
    return f"{means[0]:.1f} / {means[1]:.1f}"
