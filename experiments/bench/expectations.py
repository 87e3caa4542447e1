"""Expectations of labels: what one costs, and what they are worth beside constraints.

MALLET's trainer by generalised expectation took 7.2 s, with two threads, for a value and its
gradient on as many tokens of the same advertisements, with as many labels and expectations. It is
a library in Java and not measured here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxseq
from experiments.bench._report import Report
from experiments.bench._timing import best_seconds
from experiments.chang2007._domains import DOMAINS, Parts, read_rules, rules_about
from experiments.chang2007._methods import INFERENCE, TOP_K, Search, Task, quietly
from experiments.chang2007._settings import FORM, find_setting
from experiments.data import Data, choose_sources
from jaxseq.constraints import rule_expectations
from jaxseq.crf import (
    ExpectationTerm,
    Objective,
    SharePenalty,
    Spread,
    lay_out,
    make_shards,
)
from jaxseq.expectations import attribute_shares, encode_expectations, label_shares
from jaxseq.text import Sentence, TemplateExtractor, Templates

TOKENS, EXPECTATIONS = 57_307, 137
"""Of the advertisements that MALLET was measured on."""
MALLET_SECONDS = 7.2
FASTER_BAR = 50.0
ROUNDS = 10

SEEDS = 3
LABELLED = (5, 20)
UNLABELLED = 300
TEST, APART = 100, 100
GAIN_BAR = 3.0
"""Points above CoDL with the constraints at decoding."""
SEARCH = Search(top_k=50, width=50, keep=0.1, cycles=5)

TEMPLATES = Templates(
    [
        f"{FORM}[0]",
        *(f"lower(word[{offset}])" for offset in (-2, -1, 0, 1, 2)),
        "shape(word[0])",
        "prefix(word[0], 3)",
        "suffix(word[0], 3)",
    ]
)
"""Of the conditional random field with expectations."""
RULE_WEIGHT = 10.0
"""Of each rule, in labelled tokens; better than 100 on sentences kept apart."""
L2 = 1.0
ITERATIONS = 100


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench expectations``."""
    folder = Path(os.environ.get("JAXSEQ_DATA", ""))
    if not all((folder / name).is_dir() for name in DOMAINS):
        needs = "corpora, by JAXSEQ_DATA"
        report.figure("MALLET / value and gradient", None, at_least=FASTER_BAR, needs=needs)
        return
    data = Data(choose_sources(list(DOMAINS), folder, may_stand_in=False))
    _evaluation(report, data)
    for domain in DOMAINS:
        parts = Parts(data, domain, APART, TEST)
        for labelled in LABELLED:
            _against_constraints(report, parts, domain, labelled)


def _first_tokens(sentences: Sequence[Sentence], tokens: int) -> list[Sentence]:
    """Sentences that have so many tokens together, the long ones skipped in the end."""
    chosen, count = [], 0
    for sentence in sentences:
        if len(sentence) and count + len(sentence) <= tokens:
            chosen.append(sentence)
            count += len(sentence)
    return chosen


def _evaluation(report: Report, data: Data) -> None:
    """Value and gradient of the penalties of many expectations."""
    known = data.corpus("ads", "train")
    labels = [list(sentence["label"]) for sentence in known]
    classes = sorted({label for each in labels for label in each})
    pool = _first_tokens(data.corpus("ads", "unlabelled"), TOKENS)
    templates = [f"word[{o}]" for o in (-2, -1, 0, 1, 2)]
    templates += ["shape(word[0])", "prefix(word[0], 3)", "suffix(word[0], 3)"]
    extractor = TemplateExtractor(Templates(templates))
    features = extractor.fit_transform(pool)
    words = {word for sentence in pool for word in sentence["word"]}
    expected = [
        each
        for each in attribute_shares(known, labels, ["word[0]"])
        if str(each.when).removeprefix("word[0]=") in words
    ]
    lengths, spread = features.lengths, Spread(extractor.attribute_count, len(classes))
    encoded = encode_expectations(expected[:EXPECTATIONS], pool, lengths, classes)
    assert encoded is not None
    layout = lay_out(lengths, os.cpu_count() or 1)
    shards = make_shards(layout, features, extractor.attribute_count)
    marks = make_shards(layout, encoded.predicates, encoded.sizes[0])
    term = ExpectationTerm(SharePenalty.from_encoded(encoded, "float32"), marks)
    objective = Objective([], spread, 1.0, None, shards, 0.0, expectations=term)
    rng = np.random.default_rng(0)
    point = spread.zeros()._replace(
        weights=jnp.asarray(rng.normal(size=spread.shape) * 0.1, jnp.float32)
    )
    seconds = best_seconds({"evaluation": partial(objective, point)}, rounds=ROUNDS)
    report.figure(
        "MALLET's 7.2 s (measured elsewhere) / value and gradient with expectations",
        MALLET_SECONDS / seconds["evaluation"],
        at_least=FASTER_BAR,
        tokens=int(lengths.sum()),
        labels=len(classes),
        expectations=len(encoded.weights),
        attributes=extractor.attribute_count,
        seconds=seconds,
    )


def _against_constraints(report: Report, parts: Parts, domain: Any, labelled: int) -> None:
    """Token accuracy, in points, on the same draws."""
    scores: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        sets = parts.draw(seed, labelled, UNLABELLED)
        task = Task(sets, find_setting(domain), read_rules(domain), SEARCH)
        codl = task.scores(task.train(TOP_K))[INFERENCE]
        scores.setdefault("CoDL + I", []).append(100 * codl)
        for name, tagger in _trained(task).items():
            rules = rules_about(task.rules, tagger.classes_.tolist())
            for how, score in task.scores(tagger, rules).items():
                scores.setdefault(f"{name}, {how}", []).append(100 * score)
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    errors = {
        name: round(float(np.std(values, ddof=1) / np.sqrt(len(values))), 2)
        for name, values in scores.items()
    }
    # Which one is named beforehand: none is chosen by the test part.
    report.figure(
        f"{domain}, {labelled} labelled: expectations with I less CoDL with I, points",
        means[f"GE, {INFERENCE}"] - means["CoDL + I"],
        at_least=GAIN_BAR,
        seeds=SEEDS,
        unlabelled=UNLABELLED,
        means={name: round(value, 2) for name, value in means.items()},
        standard_errors=errors,
    )


def _trained(task: Task) -> dict[str, jaxseq.CRFTagger]:
    """Conditional random fields: supervised, and with expectations by both methods."""
    with quietly(), warnings.catch_warnings():
        expected = [
            *rule_expectations([one.rule for one in task.rules], task.classes, weight=RULE_WEIGHT),
            label_shares(task.labels, slack=1.5, weight=float(sum(map(len, task.labels)))),
        ]
        seen = {label for labels in task.labels for label in labels}
        expected = [each for each in expected if _names(each.targets) <= seen]
        start = _tagger().fit(task.labelled, task.labels)
        how: dict[str, Any] = {"unlabelled": task.unlabelled, "expectations": expected}
        how["warm_start_from"] = start
        trained = {"CRF": start, "GE": _tagger().fit(task.labelled, task.labels, **how)}
        how["expectation_method"] = "projection"
        return {**trained, "PR": _tagger().fit(task.labelled, task.labels, **how)}


def _names(targets: Any) -> set[str]:
    """Labels that events name; few labelled sentences do not show every one of them."""
    events = (event.removeprefix("begin ").split(" | ") for event in targets)
    return {name for event in events for name in event} - {"change"}


def _tagger() -> jaxseq.CRFTagger:
    return jaxseq.CRFTagger(TEMPLATES, l2=L2, max_iterations=ITERATIONS, progress=False)
