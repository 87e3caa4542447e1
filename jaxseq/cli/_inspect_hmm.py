"""What a hidden Markov model has learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxseq.tagger import HMMTagger

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
