"""``jaxseq inspect``: what a model has learnt."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger
    from jaxseq.hmm import HMMTagger

UNKNOWN = None  # stands for the unknown word in the report, where any string may be a word


def add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show what a model has learnt: its labels, how training ended, and the largest weights of "
        "features (or probabilities of words) and transitions."
    )
    add = parser.add_argument
    add("model", metavar="DIR", help="a model saved by jaxseq train")
    add(
        "--label", metavar="L", help="show only the features, or words, and transitions of this one"
    )
    add(
        "--top",
        type=int,
        default=20,
        metavar="N",
        help="how many features or words per label, and transitions (20)",
    )
    add("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.top < 0:
        raise ValueError(f"--top: expected 0 or more, got {options.top}")
    from jaxseq.hmm import HMMTagger
    from jaxseq.taggers import load

    tagger: Any = load(options.model)
    labels = tagger.classes_.tolist()
    if options.label not in (None, *labels):
        raise ValueError(f"--label: expected one of {', '.join(labels)}, got {options.label!r}")
    of_hmm = isinstance(tagger, HMMTagger)
    report = (describe_hmm if of_hmm else describe_crf)(tagger, options.label, options.top)
    as_text = _hmm_text if of_hmm else _crf_text
    print(json.dumps(report, allow_nan=False) if options.json else as_text(report))
    return 0


def describe_crf(tagger: CRFTagger, label: str | None, top: int) -> dict[str, Any]:
    """What there is to say about a trained tagger, ready for JSON; of one label, or of all (None).

    At most `top` features per label, and as many positive and negative transitions.
    """
    model, labels = tagger.model_, tagger.classes_.tolist()
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
            "l2": tagger.l2_,
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
    """Weights that are not zero, without those of what is forbidden (−inf)."""
    if array is None:  # a model without edge attributes has no edge weights
        return 0
    values = np.asarray(array)
    return int(np.count_nonzero(values) - np.isneginf(values).sum())


def describe_hmm(tagger: HMMTagger, label: str | None, top: int) -> dict[str, Any]:
    """What there is to say about a trained tagger, ready for JSON; of one label, or of all (None).

    At most `top` words per label, and as many transitions.
    """
    model, labels = tagger.model_.probabilities, tagger.classes_.tolist()
    emission, transition = np.asarray(model.emission), np.asarray(model.transition)
    words = [UNKNOWN, *tagger.vocabulary_.words]  # the unknown word is the first row
    order = np.argsort(-transition, axis=None, kind="stable").tolist()  # of the flat table
    ranked = [
        (labels[i], labels[j], float(transition[i, j]))
        for i, j in (divmod(place, len(labels)) for place in order)
        if label in (None, labels[i], labels[j]) and transition[i, j] > 0
    ]
    shown = labels if label is None else [label]

    def top_words(column: np.ndarray) -> list[tuple[str | None, float]]:
        best = np.argsort(-column, kind="stable")[:top].tolist()
        return [(words[place], float(column[place])) for place in best if column[place] > 0]

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
        "emission": {name: top_words(emission[:, labels.index(name)]) for name in shown},
        "transitions": ranked[:top],
    }


def _crf_text(report: dict[str, Any]) -> str:
    counts, transitions = report["non_zero_weights"], report["transitions"]
    lines = [
        _labels_line(report),
        f"attributes  {report['attributes']:,}, of pairs {report['edge_attributes']:,}",
        f"weights     {sum(counts.values()):,} not zero: attributes {counts['weights']:,}, "
        f"transitions {counts['transitions']:,}, start {counts['start']:,}, "
        f"stop {counts['stop']:,}, pairs {counts['edge_weights']:,}",
        _training_line(report),
    ]
    for label, features in report["features"].items():
        lines += _table(f"features of {label}", features)
    for sign in ("positive", "negative"):
        rows = ((f"{a} → {b}", weight) for a, b, weight in transitions[sign])
        lines += _table(f"{sign} transitions", rows)
    if transitions["forbidden"]:
        lines += ["", f"forbidden transitions: {transitions['forbidden']}"]
    return "\n".join(lines)


def _hmm_text(report: dict[str, Any]) -> str:
    lines = [
        _labels_line(report),
        f"words       {report['words']:,} of the column {report['column']}, and the unknown one",
        f"decoding    {report['decoding']}",
        _training_line(report),
    ]
    for label, words in report["emission"].items():
        title = f"words of {label}, which is first with {report['initial'][label]:.4f}"
        lines += _table(title, (("(unknown)" if w is UNKNOWN else w, p) for w, p in words))
    rows = ((f"{a} → {b}", p) for a, b, p in report["transitions"])
    return "\n".join([*lines, *_table("transitions", rows)])


def _labels_line(report: dict[str, Any]) -> str:
    return f"labels      {len(report['labels'])}: {' '.join(report['labels'])}"


def _training_line(report: dict[str, Any]) -> str:
    training = report["training"]
    loss = "" if training["loss"] is None else f", loss {training['loss']:.6g}"
    return f"training    {training['iterations']} iterations{loss}; {training['outcome']}"


def _table(title: str, rows: Iterable[tuple[str, float]]) -> list[str]:
    lines = [f"{number:12.4f}  {name}" for name, number in rows]
    return ["", title, *(lines or ["        none"])]
