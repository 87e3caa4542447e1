"""``jaxseq inspect``: what a model has learnt."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import numpy as np

# -------------------------------------------------------------------------------------------------
# What a hidden Markov model has learnt.


if TYPE_CHECKING:
    from jaxseq.hmm import HMMTagger

UNKNOWN = None
"""Stands for the unknown word in the report, where any string may be a word."""


def describe_hmm(tagger: HMMTagger, label: str | None, top: int) -> dict[str, Any]:
    """What there is to say about a trained tagger, ready for JSON.

    Args:
        tagger: a trained tagger.
        label: say only what concerns this label; None for all.
        top: words of a label, and transitions, at most so many.
    """
    model, labels = tagger.model_.probabilities, tagger.classes_.tolist()
    if label is not None and label not in labels:
        raise ValueError(f"--label: expected one of {', '.join(labels)}, got {label!r}")
    emission, transition = np.asarray(model.emission), np.asarray(model.transition)
    words = [UNKNOWN, *tagger.vocabulary_.words]
    order = np.argsort(-transition, axis=None, kind="stable").tolist()
    ranked = [
        (labels[i], labels[j], float(transition[i, j]))
        for i, j in (divmod(place, len(labels)) for place in order)
        if label in (None, labels[i], labels[j]) and transition[i, j] > 0
    ]
    shown = labels if label is None else [label]
    return {
        "model": "hmm",
        "labels": labels,
        "words": len(tagger.vocabulary_.words),
        "column": tagger.column,
        "decoding": tagger.decoding,
        "training": {
            "outcome": tagger.outcome_,
            "iterations": tagger.n_iter_,
            "loss": tagger.loss_,
            "log_likelihood": tagger.log_likelihood_,
        },
        "initial": {name: float(model.initial[labels.index(name)]) for name in shown},
        "emission": {
            name: _top_words(emission[:, labels.index(name)], words, top) for name in shown
        },
        "transitions": ranked[:top],
    }


def _top_words(column: np.ndarray, words: list[str | None], top: int) -> list[tuple]:
    order = np.argsort(-column, kind="stable")[:top].tolist()
    return [(words[place], float(column[place])) for place in order if column[place] > 0]


def hmm_as_text(report: dict[str, Any]) -> str:
    """A report of `describe_hmm`, to be read."""
    training = report["training"]
    loss = "" if training["loss"] is None else f", loss {training['loss']:.6g}"
    lines = [
        f"labels      {len(report['labels'])}: {' '.join(report['labels'])}",
        f"words       {report['words']:,} of the column {report['column']}, and the unknown one",
        f"decoding    {report['decoding']}",
        f"training    {training['iterations']} iterations{loss}; {training['outcome']}",
    ]
    for label, found in report["emission"].items():
        lines += ["", f"words of {label}, which is first with {report['initial'][label]:.4f}"]
        lines += [
            f"{p:12.4f}  {'(unknown)' if word is UNKNOWN else word}" for word, p in found
        ] or ["        none"]
    lines += ["", "transitions"]
    lines += [f"{p:12.4f}  {a} → {b}" for a, b, p in report["transitions"]] or ["        none"]
    return "\n".join(lines)


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``jaxseq inspect``."""
    parser.description = "Show what a model has learnt."
    add = parser.add_argument
    add("model", metavar="DIR", help="of jaxseq train")
    add("--label", metavar="L", help="only this one's features (words, of an HMM) and transitions")
    add(
        "--top",
        type=int,
        default=20,
        metavar="N",
        help="features or words a label, and transitions (20)",
    )
    add("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.top < 0:
        raise ValueError(f"--top: expected 0 or more, got {options.top}")
    from jaxseq.hmm import HMMTagger
    from jaxseq.taggers import load

    tagger = load(options.model)
    of_hmm = isinstance(tagger, HMMTagger)
    report = (describe_hmm if of_hmm else describe)(tagger, options.label, options.top)
    as_text = hmm_as_text if of_hmm else _as_text
    print(json.dumps(report, allow_nan=False) if options.json else as_text(report))
    return 0


def describe(tagger: Any, label: str | None, top: int) -> dict[str, Any]:
    """What there is to say about a trained tagger, ready for JSON.

    Args:
        tagger: a trained `CRFTagger`.
        label: say only what concerns this label; None for all.
        top: features of a label, positive and negative transitions, each at most so many.
    """
    model, labels = tagger.model_, tagger.classes_.tolist()
    if label is not None and label not in labels:
        raise ValueError(f"--label: expected one of {', '.join(labels)}, got {label!r}")
    ranked = [
        (source, target, weight)
        for source, target, weight in tagger.top_transitions(len(labels) ** 2)
        if label in (None, source, target)
    ]
    return {
        "labels": labels,
        "attributes": tagger.extractor_.attribute_count,
        "edge_attributes": tagger.extractor_.edge_attribute_count,
        "non_zero_weights": {
            name: _count_learnt(getattr(model, name))
            for name in ("weights", "transitions", "start", "stop", "edge_weights")
        },
        "training": {
            "outcome": tagger.outcome_,
            "iterations": tagger.n_iter_,
            "evaluations": tagger.n_evaluations_,
            "loss": tagger.loss_,
        },
        "features": {
            name: [pair for pair in tagger.top_features(name, top) if pair[1] > 0]
            for name in (labels if label is None else [label])
        },
        "transitions": {
            "positive": [triple for triple in ranked if triple[2] > 0][:top],
            "negative": [triple for triple in ranked[::-1] if -np.inf < triple[2] < 0][:top],
            "forbidden": sum(triple[2] == -np.inf for triple in ranked),
        },
    }


def _count_learnt(array: Any) -> int:
    """Weights that are not zero, those of what is forbidden (−inf) left out."""
    if array is None:
        return 0
    values = np.asarray(array)
    return int(np.count_nonzero(values) - np.isneginf(values).sum())


def _as_text(report: dict[str, Any]) -> str:
    counts, training = report["non_zero_weights"], report["training"]
    loss = "" if training["loss"] is None else f", loss {training['loss']:.6g}"
    lines = [
        f"labels      {len(report['labels'])}: {' '.join(report['labels'])}",
        f"attributes  {report['attributes']:,}, of pairs {report['edge_attributes']:,}",
        f"weights     {sum(counts.values()):,} not zero: attributes {counts['weights']:,}, "
        f"transitions {counts['transitions']:,}, start {counts['start']:,}, "
        f"stop {counts['stop']:,}, pairs {counts['edge_weights']:,}",
        f"training    {training['iterations']} iterations{loss}; {training['outcome']}",
    ]
    for label, features in report["features"].items():
        lines += ["", f"features of {label}"]
        lines += [f"{weight:12.4f}  {name}" for name, weight in features] or ["        none"]
    for sign in ("positive", "negative"):
        lines += ["", f"{sign} transitions"]
        rows = report["transitions"][sign]
        lines += [f"{weight:12.4f}  {a} → {b}" for a, b, weight in rows] or ["        none"]
    if report["transitions"]["forbidden"]:
        lines += ["", f"forbidden transitions: {report['transitions']['forbidden']}"]
    return "\n".join(lines)
