"""What the numbers say, in words that are made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.jiao2006._sets import UNLABELLED
from experiments.jiao2006._summary import (
    SIGNIFICANT,
    Paired,
    Scores,
    against_supervised,
    best_weight,
    by_weight,
    paired,
    self_trained,
    settings,
)

Runs = Mapping[float, Scores]


def analysis(results: Sequence[Mapping[str, Any]], expected: Any, config: Any) -> str:
    """Where unlabelled sentences help and where not, a sentence or two for each part."""
    every = by_weight(results)
    main = {name: runs for (corpus, _, name), runs in every.items() if corpus == "genetag"}
    points = [_on_held_out(name, main[name]) for name in UNLABELLED if name in main]
    points += [
        _sensitivity(main, expected),
        _largest_weight(main),
        _transductive(main),
        _why(results),
    ]
    points += [_self_training(results, main, self_trained(results)), _second(every)]
    points += [_settings(settings(results)), _cross_validation(results, main)]
    listed = "".join(f"- {point}\n" for point in points if point)
    paper = expected["table2"]["C"]
    return (
        "### What comes out\n\n"
        "The paper finds that unlabelled sentences raise recall and leave precision as it is: on "
        f"E, F rises from .45 to .50 with C and γ = 5 ({paper['found'][4]} found of "
        f"{paper['predicted'][4]} predicted, after {paper['found'][0]} of {paper['predicted'][0]})."
        f" Ours, on {_corpus(results)} with {config.words} labelled words:\n\n{listed}"
        "\nThe best γ is chosen by the scores it is judged by, which flatters it; p-values are not "
        "corrected for that.\n"
    )


def _corpus(results: Sequence[Mapping[str, Any]]) -> str:
    embedded = any("embedded" in line["corpora"].values() for line in results)
    return "generated sentences that stand in for GENETAG" if embedded else "GENETAG"


def _p(pairs: Paired) -> str:
    if pairs.t_test is None:
        return f"sign test p = {pairs.sign_test:.2g}"
    return f"paired t-test p = {pairs.t_test:.2g}, sign test p = {pairs.sign_test:.2g}"


def _on_held_out(name: str, runs: Runs) -> str:
    weight = best_weight(runs)
    if weight is None or 0.0 not in runs:
        return ""
    gain, none, best = against_supervised(runs, weight), runs[0.0], runs[weight]
    # Several draws that agree make a claim; one draw never does.
    verdict = "no clear difference" if len(best.by_seed) > 1 else "one seed only"
    if gain.t_test is not None and gain.t_test < SIGNIFICANT:
        verdict = "a clear gain" if gain.mean > 0 else "a clear loss"
    changes = [
        f"{ratio} {none.mean('held_out', ratio):.3f} → {best.mean('held_out', ratio):.3f}"
        for ratio in ("precision", "recall")
    ]
    return (
        f"**Unlabelled {name}, tested on E:** the best γ > 0 is {weight:g}, with F "
        f"{none.mean('held_out', 'f1'):.3f} → {best.mean('held_out', 'f1'):.3f} "
        f"({', '.join(changes)}): {verdict}, {gain.mean:+.4f} ± {gain.spread:.4f} over "
        f"{len(best.by_seed)} draws ({_p(gain)})."
    )


def _sensitivity(main: Mapping[str, Runs], expected: Any) -> str:
    """The paper: not overly sensitive to γ until it is large; 20 % better in the best case."""
    parts = []
    for name, runs in main.items():
        if 0.0 not in runs or len(runs) < 2:  # nothing to compare with, or nothing to compare
            continue
        none = runs[0.0].mean("held_out", "f1")
        changes = [
            f"{runs[weight].mean('held_out', 'f1') / none - 1:+.0%} at {weight:g}"
            for weight in sorted(runs)
            if weight > 0
        ]
        parts.append(f"{name} {', '.join(changes)}")
    if not parts:
        return ""
    paper = expected["table1"]["B"]["f1"]
    return (
        f"**How much γ matters:** F on E changes by {'; '.join(parts)}. (The paper, on its own B: "
        f"{max(paper) / paper[0] - 1:+.0%} at best, and little change up to γ = 1.)"
    )


def _largest_weight(main: Mapping[str, Runs]) -> str:
    parts = []
    for name, runs in main.items():
        top = max(runs)
        if top > 0 and 0.0 in runs:
            change = [
                f"{runs[0.0].mean('held_out', ratio):.2f} → {runs[top].mean('held_out', ratio):.2f}"
                for ratio in ("precision", "recall")
            ]
            parts.append(f"{name} precision {change[0]}, recall {change[1]}")
    if not parts:
        return ""
    top = max(max(runs) for runs in main.values())
    return f"**A large γ:** with γ = {top:g}, on E, {'; '.join(parts)}."


def _transductive(main: Mapping[str, Runs]) -> str:
    parts = []
    for name, runs in main.items():
        weight = best_weight(runs, "transductive")
        if weight is not None and 0.0 in runs:
            before, after = (runs[one].mean("transductive", "f1") for one in (0.0, weight))
            parts.append(f"{name} {before:.3f} → {after:.3f} (γ = {weight:g})")
    return (
        f"**On the unlabelled sets themselves**, best γ > 0: {'; '.join(parts)}." if parts else ""
    )


def _why(results: Sequence[Mapping[str, Any]]) -> str:
    """Which way the supervised tagger leans, summed over the cells of GENETAG."""
    cells = [
        line["result"]["leaning"]
        for line in results
        if line["cell"]["part"] == "entropy" and line["cell"]["corpus"] == "genetag"
    ]
    total = {name: sum(one[name] for one in cells) for name in (cells[0] if cells else ())}
    if not total or not total["in_mentions"] or not total["unsure"]:
        return ""
    lost = total["in_mentions_lean_outside"] / total["in_mentions"]
    outside = total["unsure_lean_outside"] / total["unsure"]
    wrongly = 1 - total["unsure_lean_outside_rightly"] / max(1, total["unsure_lean_outside"])
    return (
        f"**Why:** to make the entropy less is to be surer of the likelier label. To the "
        f"supervised tagger that is O for {lost:.0%} of the words in mentions, and for "
        f"{outside:.0%} of all words it is unsure of (no label has 0.9); {wrongly:.0%} of these "
        "are in mentions after all."
        + (" What unlabelled words teach most is therefore O." if outside > 0.5 else "")
    )


def _self_training(
    results: Sequence[Mapping[str, Any]], main: Mapping[str, Runs], trained: Mapping[str, Scores]
) -> str:
    ends = [line["result"] for line in results if line["cell"]["part"] == "self-training"]
    # Result files hold the text of the outcome, not the enum.
    fixed = sum(end["outcome"].startswith("converged") for end in ends)
    rounds = max((end["rounds"] for end in ends), default=0)
    parts = []
    for name, scores in trained.items():
        none = main.get(name, {}).get(0.0)
        if none is None:
            continue
        ours, theirs = scores.counts("held_out"), none.counts("held_out")
        seeds = [seed for seed in ours if seed in theirs]
        if seeds:
            gain = paired([ours[s].f1 for s in seeds], [theirs[s].f1 for s in seeds])
            parts.append(f"{name} {gain.mean:+.3f} ± {gain.spread:.3f}")
    if not parts:
        return ""
    return (
        f"**Self-training** changes F on E by {'; '.join(parts)}; {fixed} of {len(ends)} runs "
        f"reach a fixed point, in {rounds} rounds at most. The paper found no gain."
    )


def _second(every: Mapping[tuple[str, int, str], Runs]) -> str:
    parts = []
    for (corpus, words, name), runs in every.items():
        weight = best_weight(runs) if corpus == "bc2gm" else None
        if weight is not None and 0.0 in runs:
            gain = against_supervised(runs, weight)
            parts.append(f"{words} words, {name}: {gain.mean:+.4f} (γ = {weight:g})")
    return f"**BC2GM**, best γ > 0 against 0 in F on E: {'; '.join(parts)}." if parts else ""


def _settings(by_setting: Mapping[str, Runs]) -> str:
    gains = {
        name: (weight, against_supervised(runs, weight).mean)
        for name, runs in by_setting.items()
        if (weight := best_weight(runs)) is not None
    }
    if not gains:
        return ""
    best = max(gains, key=lambda name: gains[name][1])
    better = sum(gain > 0 for _, gain in gains.values())
    return (
        f"**Other settings:** in {better} of {len(gains)} ways to set the experiment up there is a "
        f"γ > 0 with a better F on E than γ = 0; the largest gain is {gains[best][1]:+.4f} "
        f"({best}, γ = {gains[best][0]:g})."
    )


def _cross_validation(results: Sequence[Mapping[str, Any]], main: Mapping[str, Runs]) -> str:
    chosen, gains = [], []
    for line in results:
        cell = line["cell"]
        runs = main.get(cell.get("unlabelled", ""), {})
        if cell["part"] != "cross-validation" or line["result"]["best"] not in runs:
            continue
        pair = [runs[one].counts("held_out") for one in (line["result"]["best"], 0.0)]
        if all(cell["seed"] in one for one in pair):
            chosen.append(f"{line['result']['best']:g}")
            gains.append(pair[0][cell["seed"]].f1 - pair[1][cell["seed"]].f1)
    if not gains:
        return ""
    return (
        f"**Cross-validation** on the labelled sentences chooses γ = {', '.join(chosen)}; F on E "
        f"changes by {sum(gains) / len(gains):+.4f} on average."
    )
