"""What the numbers say, in words that are made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments._results import parts
from experiments.chang2007._methods import HW, INFERENCE, PLAIN, SUP, TOP_1, TOP_K, H
from experiments.chang2007._summary import (
    Gain,
    Line,
    Methods,
    by_size,
    gain,
    list_domains,
)

Sizes = Mapping[int, Methods]
NAMES = {"citations": "citations", "ads": "advertisements"}
COMPARISONS = {
    "in learning (top-1), decoded without them": ((TOP_1, PLAIN), (HW, PLAIN)),
    "in learning (top-K), decoded without them": ((TOP_K, PLAIN), (HW, PLAIN)),
    "in learning (top-1), decoded with them": ((TOP_1, INFERENCE), (HW, INFERENCE)),
    "in learning (top-K), decoded with them": ((TOP_K, INFERENCE), (HW, INFERENCE)),
    "in inference, of the supervised model": ((SUP, INFERENCE), (SUP, PLAIN)),
    "in inference, of the model learnt with them": ((TOP_K, INFERENCE), (TOP_K, PLAIN)),
}
"""Where constraints may help → what is compared with what."""


def analysis(results: Sequence[Line], expected: Mapping[str, Any]) -> str:
    """Whether constraints help, by domain and number of labelled sentences."""
    lines = parts(results, "table")
    if not lines:
        return ""
    points = []
    for domain in list_domains(lines):
        sizes = by_size([line for line in lines if line["cell"]["domain"] == domain])
        points += _help(domain, sizes, expected["goals"]["few"])
        points += [_top_k(domain, sizes), _hard_em(domain, sizes)]
        if domain == "citations":
            points.append(_few_against_many(sizes, *expected["goals"]["competitor"]))
    listed = "".join(f"- {point}\n" for point in points if point)
    return f"### What comes out\n\n{listed}\n{_differences(results)}"


def difference(methods: Methods, ours: tuple[str, str], theirs: tuple[str, str]) -> Gain | None:
    """The gain of a method and decoding over another."""
    if ours[0] not in methods or theirs[0] not in methods:
        return None
    return gain(methods[ours[0]], ours[1], methods[theirs[0]], theirs[1])


def _help(domain: str, sizes: Sizes, few: int) -> list[str]:
    points = []
    for where, (ours, theirs) in COMPARISONS.items():
        gains = {size: difference(methods, ours, theirs) for size, methods in sizes.items()}
        few_sizes = {size: one for size, one in gains.items() if one is not None and size <= few}
        if not few_sizes:
            continue
        # "Clear" is a statement about the draws, "help" about their mean alone.
        helped = [size for size, one in few_sizes.items() if one.mean > 0]
        clear = [size for size in helped if few_sizes[size].is_clear]
        verdict = (
            f"help at every N ≤ {few}" if len(helped) == len(few_sizes)
            else f"help at {len(helped)} of {len(few_sizes)} N ≤ {few}"
        )  # fmt: skip
        listed = "; ".join(f"{size}: {one}" for size, one in gains.items() if one is not None)
        points.append(
            f"**{NAMES[domain]}, constraints {where}:** they {verdict} "
            f"(at {len(clear)} clearly, paired t-test). Points by N: {listed}."
        )
    return points


def _top_k(domain: str, sizes: Sizes) -> str:
    gains = {
        size: difference(methods, (TOP_K, INFERENCE), (TOP_1, INFERENCE))
        for size, methods in sizes.items()
    }
    listed = "; ".join(f"{size}: {one}" for size, one in gains.items() if one is not None)
    return f"**{NAMES[domain]}, top-K over top-1**, both + I: {listed}." if listed else ""


def _hard_em(domain: str, sizes: Sizes) -> str:
    """H against sup where there are most labels: the paper finds that it hurts citations."""
    size, methods = max(sizes.items())  # keys first: the most labelled sentences
    plain = difference(methods, (H, PLAIN), (SUP, PLAIN))
    weighted = difference(methods, (HW, PLAIN), (SUP, PLAIN))
    if plain is None or weighted is None:
        return ""
    verdict = "hurts" if plain.mean < 0 else "does not hurt"
    return (
        f"**{NAMES[domain]}, hard EM with {size} labelled:** it {verdict}, {plain} points over "
        f"sup; with γ it is {weighted}."
    )


def _few_against_many(sizes: Sizes, few: int, many: int) -> str:
    if few not in sizes or many not in sizes:
        return ""
    if SUP not in sizes[many]:
        return ""
    theirs = sizes[many][SUP].mean(PLAIN)
    verdicts = []
    for method in (TOP_1, TOP_K):
        if method in sizes[few]:
            ours = sizes[few][method].mean(INFERENCE)
            verdict = "reaches" if ours >= theirs else "does not reach"
            verdicts.append(f"{method} + I, {ours:.1f}, {verdict} it ({ours - theirs:+.1f})")
    return (
        f"**Figure 4:** the supervised model without constraints has {theirs:.1f} with {many} "
        f"labelled citations; with {few}, {' and '.join(verdicts)}."
    )


def _differences(results: Sequence[Line]) -> str:
    stand_in = any("embedded" in line.get("corpora", {}).values() for line in results)
    if stand_in:
        return (
            "Sentences are generated, in place of the corpora; the paper's numbers are others'.\n"
        )
    return (
        "What differs from the paper: its unlabelled citations are Grenager's, ours come from "
        "other collections and are less like Cora's. We split every punctuation mark off as a "
        "token. The advertisements have no newlines and no *MONEY* here, so that fields change "
        "without any mark more often, and rules 1 and 5 say less.\n"
    )
