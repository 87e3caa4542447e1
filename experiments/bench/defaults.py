"""What users get who choose nothing: templates, l2 and queries, on parts of training data."""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxseq
from experiments.bench._report import Report
from experiments.data import Data, choose_sources
from jaxseq.active import GroupQueries, RandomQueries, Strategy, TokenQueries
from jaxseq.metrics import span_scores
from jaxseq.text import Sentence, Templates, general_templates

COLUMNS = {
    "conll2000": ("word", "pos"),
    "conll2003": ("word", "pos", "chunk"),
    "genetag": ("word",),
}
SIZES = (50, 200)
"""Labelled sentences."""
DRAWS = 3
HELD_OUT = 800
"""Sentences that models are scored on: of the development part, or of the training part where there
is no other. Test parts are never looked at."""
TEMPLATES_L2 = 0.01
"""For the comparison of templates, whatever the default is."""
TEMPLATES_BAR, L2_BAR, CHOSEN_BAR, QUERIES_BAR = -0.3, 0.0, -0.5, 0.0
POOL, LABELS, FIRST, ROUND = 2000, 1500, 10, 200
"""Of active learning: sentences of the pool, labels in all, sentences labelled first, and labels of
a round."""

TITLE = '"[^A-Za-z]*([A-Z][a-z]*[^A-Za-z]+)*[A-Z][a-z]*[^A-Za-z]*"'
"""What Python's `str.istitle` accepts, but for letters beyond A to Z."""


def tutorial_templates(columns: Sequence[str]) -> Templates:
    """The features of the tutorial of CRFsuite for Python on CoNLL-2002, as templates.

    Example:
        >>> len(tutorial_templates(("word", "pos")).unigram)
        19
    """
    templates = ["bias", "suffix(word[0], 3)", "suffix(word[0], 2)", "is_digits(word[0])"]
    for offset in (-1, 0, 1):
        word = f"word[{offset}]"
        templates += [f"lower({word})", f"is_upper({word})", f"match({word}, {TITLE})"]
        for column in columns[1:]:
            templates += [f"{column}[{offset}]", f"prefix({column}[{offset}], 2)"]
    return Templates(templates)


class Part(NamedTuple):
    """Sentences with the columns to learn from, and their labels."""

    sentences: list[Sentence]
    labels: list[list[str]]

    def take(self, numbers: Sequence[int]) -> Part:
        return Part([self.sentences[i] for i in numbers], [self.labels[i] for i in numbers])


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench defaults``."""
    folder = os.environ.get("JAXSEQ_DATA")
    if not folder or not all((Path(folder) / name).is_dir() for name in COLUMNS):
        needs = f"{', '.join(COLUMNS)}, by JAXSEQ_DATA"
        report.figure(ALL_TEMPLATES, None, at_least=TEMPLATES_BAR, needs=needs)
        return
    data = Data(choose_sources(list(COLUMNS), Path(folder), may_stand_in=False))
    parts = {name: read_parts(data, name) for name in COLUMNS}
    _templates_and_l2(report, parts)
    _queries(report, *parts["conll2000"])
    _chosen_l2(report, parts)


def read_parts(data: Data, name: str) -> tuple[Part, Part]:
    """What labelled sentences are drawn from, and what models are scored on."""
    pool = data.corpus(name, "train")
    order = np.random.default_rng(2000).permutation(len(pool)).tolist()
    pool = [pool[number] for number in order]
    if name == "conll2003":
        others = data.corpus(name, "dev")
        order = np.random.default_rng(2003).permutation(len(others)).tolist()[:HELD_OUT]
        held_out = [others[number] for number in order]
    else:
        held_out, pool = pool[:HELD_OUT], pool[HELD_OUT:]

    def part(sentences: list[Sentence]) -> Part:
        columns = COLUMNS[name]
        return Part(
            [Sentence({column: one[column] for column in columns}) for one in sentences],
            [list(one["label"]) for one in sentences],
        )

    return part(pool), part(held_out)


def draws(pool: Part, size: int) -> Iterator[Part]:
    """Some of the sentences, several times."""
    for seed in range(DRAWS):
        order = np.random.default_rng([size, seed]).permutation(len(pool.sentences))
        yield pool.take(order[:size].tolist())


def f1(tagger: jaxseq.CRFTagger, held_out: Part) -> float:
    """Span F1 in percent."""
    predicted = tagger.predict(held_out.sentences)
    return 100 * span_scores(held_out.labels, predicted).overall.f1


def _score(templates: Templates, l2: float | None, train: Part, held_out: Part) -> float:
    return f1(jaxseq.CRFTagger(templates, l2=l2, progress=False).fit(*train), held_out)


# ------------------------------------------------------------------------- templates and l2

ALL_TEMPLATES = "F1, general templates − CRFsuite's tutorial, mean of all"


def _templates_and_l2(report: Report, parts: dict[str, tuple[Part, Part]]) -> None:
    by_templates: list[float] = []
    by_l2: list[float] = []
    for size, name in itertools.product(SIZES, COLUMNS):
        pool, held_out = parts[name]
        general, tutorial = general_templates(COLUMNS[name]), tutorial_templates(COLUMNS[name])
        scores: dict[str, list[float]] = {"tutorial": [], "general": [], "default": [], "one": []}
        for some in draws(pool, size):
            scores["tutorial"].append(_score(tutorial, TEMPLATES_L2, some, held_out))
            scores["general"].append(_score(general, TEMPLATES_L2, some, held_out))
            scores["default"].append(_score(general, None, some, held_out))
            scores["one"].append(_score(general, 1.0, some, held_out))
        f1s = {kind: [round(one, 2) for one in each] for kind, each in scores.items()}
        where = f"{name}, {size} sentences"
        ahead = [a - b for a, b in zip(scores["general"], scores["tutorial"])]
        report.figure(
            f"F1, general templates − CRFsuite's tutorial, {where}",
            statistics.mean(ahead),
            l2=TEMPLATES_L2,
            general=f1s["general"],
            tutorial=f1s["tutorial"],
        )
        by_templates += ahead
        ahead = [a - b for a, b in zip(scores["default"], scores["one"])]
        report.figure(
            f"F1, default l2 − l2 = 1, {where}",
            statistics.mean(ahead),
            default=f1s["default"],
            one=f1s["one"],
        )
        by_l2 += ahead
    count = len(by_l2)
    report.figure(
        ALL_TEMPLATES, statistics.mean(by_templates), at_least=TEMPLATES_BAR, comparisons=count
    )
    wins = sum(one > 0 for one in by_l2)
    report.figure(
        "F1, default l2 − l2 = 1, mean of all",
        statistics.mean(by_l2),
        at_least=L2_BAR,
        comparisons=count,
        wins=wins,
    )


def _chosen_l2(report: Report, parts: dict[str, tuple[Part, Part]]) -> None:
    """The default against cross-validation, which takes as long as 35 trainings."""
    size, every = SIZES[0], []
    for name, (pool, held_out) in parts.items():
        templates, some = general_templates(COLUMNS[name]), next(draws(pool, size))
        tagger = jaxseq.CRFTagger(templates, progress=False)
        chosen = jaxseq.choose_l2(tagger, *some, progress=False).best
        scores = [_score(templates, l2, some, held_out) for l2 in (None, chosen)]
        every.append(scores[0] - scores[1])
        report.figure(
            f"F1, default l2 − l2 by cross-validation, {name}, {size} sentences",
            every[-1],
            chosen=chosen,
            default=round(scores[0], 2),
        )
    report.figure(
        "F1, default l2 − l2 by cross-validation, mean of all",
        statistics.mean(every),
        at_least=CHOSEN_BAR,
    )


# ---------------------------------------------------------------------------------- queries


def _queries(report: Report, pool: Part, held_out: Part) -> None:
    """Strategies on chunking, with the same number of labels, by the model of all of them."""
    some = next(draws(pool, POOL))
    strategies: dict[str, Strategy] = {
        "groups": GroupQueries(count=ROUND),
        "tokens": TokenQueries(ROUND),
        "random tokens": RandomQueries(ROUND, units="tokens"),
        "random sentences": RandomQueries(8),
    }
    scores: dict[str, dict[str, float]] = {}
    for name, strategy in strategies.items():
        learner = jaxseq.ActiveLearner(
            jaxseq.CRFTagger(general_templates(COLUMNS["conll2000"]), progress=False),
            strategy,
            initial=FIRST,
            initial_how="random",
            budget=LABELS,
            kappa=1,
            progress=False,
        )
        learner.simulate(*some)
        scores[name] = {
            "labels": learner.status().labelled_tokens,
            "f1": f1(learner.refit(), held_out),
            "f1_by_auto": f1(learner.refit(l2="auto"), held_out),
        }
    for name in strategies:
        if name != "groups":
            measured: dict[str, Any] = {kind: scores[kind] for kind in ("groups", name)}
            report.figure(
                f"F1, groups − {name}, conll2000, {LABELS:,} labels",
                scores["groups"]["f1"] - scores[name]["f1"],
                at_least=QUERIES_BAR,
                **measured,
            )
