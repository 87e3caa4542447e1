"""What users get who choose nothing: templates, l2 and queries, on parts of training data."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
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
POOL, LABELS, FIRST, ROUND = 2000, 1500, 10, 100
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
    folder = Path(os.environ.get("JAXSEQ_DATA", ""))
    if not all((folder / name).is_dir() for name in COLUMNS):
        needs = f"{', '.join(COLUMNS)}, by JAXSEQ_DATA"
        report.figure(ALL_TEMPLATES, None, at_least=TEMPLATES_BAR, needs=needs)
        return
    data = Data(choose_sources(list(COLUMNS), folder, may_stand_in=False))
    parts = {name: read_parts(data, name) for name in COLUMNS}
    _templates(report, parts)
    _l2(report, parts)
    _queries(report, *parts["conll2000"])


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


def _train(
    templates: Templates, l2: float | None, train: Part, held_out: Part
) -> tuple[jaxseq.CRFTagger, float]:
    tagger = jaxseq.CRFTagger(templates, l2=l2, progress=False).fit(*train)
    return tagger, f1(tagger, held_out)


# -------------------------------------------------------------------------------- templates

ALL_TEMPLATES = "F1, general templates − CRFsuite's tutorial, mean of all"


def _templates(report: Report, parts: dict[str, tuple[Part, Part]]) -> None:
    every: list[float] = []
    for name, (pool, held_out) in parts.items():
        sets = {
            "general": general_templates(COLUMNS[name]),
            "tutorial": tutorial_templates(COLUMNS[name]),
        }
        for size in SIZES:
            scores: dict[str, list[float]] = {
                kind: [_train(one, TEMPLATES_L2, some, held_out)[1] for some in draws(pool, size)]
                for kind, one in sets.items()
            }
            ahead = [a - b for a, b in zip(scores["general"], scores["tutorial"])]
            every += ahead
            report.figure(
                f"F1, general templates − CRFsuite's tutorial, {name}, {size} sentences",
                statistics.mean(ahead),
                l2=TEMPLATES_L2,
                **_rounded(scores),
            )
    report.figure(
        ALL_TEMPLATES, statistics.mean(every), at_least=TEMPLATES_BAR, comparisons=len(every)
    )


def _rounded(scores: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {f"f1_{kind}": [round(score, 2) for score in each] for kind, each in scores.items()}


# --------------------------------------------------------------------------------------- l2


def _l2(report: Report, parts: dict[str, tuple[Part, Part]]) -> None:
    """The default against l2 = 1, and against cross-validation."""
    every: list[float] = []
    against_chosen: list[float] = []
    for name, (pool, held_out) in parts.items():
        templates = general_templates(COLUMNS[name])
        for size in SIZES:
            scores: dict[str, list[float]] = {"default": [], "1": [], "chosen": []}
            used: list[float] = []
            chosen: list[float] = []
            for number, some in enumerate(draws(pool, size)):
                tagger, score = _train(templates, None, some, held_out)
                used.append(tagger.l2_)
                scores["default"].append(score)
                scores["1"].append(_train(templates, 1.0, some, held_out)[1])
                if number == 0:  # it takes as long as 35 trainings
                    chosen.append(jaxseq.choose_l2(tagger, *some, progress=False).best)
                    scores["chosen"].append(_train(templates, chosen[0], some, held_out)[1])
            ahead = [a - b for a, b in zip(scores["default"], scores["1"])]
            every += ahead
            against_chosen.append(scores["default"][0] - scores["chosen"][0])
            report.figure(
                f"F1, default l2 − l2 = 1, {name}, {size} sentences",
                statistics.mean(ahead),
                default_l2=used,
                chosen_l2=chosen,
                **_rounded(scores),
            )
    report.figure(
        "F1, default l2 − l2 = 1, mean of all",
        statistics.mean(every),
        at_least=L2_BAR,
        comparisons=len(every),
        wins=sum(one > 0 for one in every),
    )
    report.figure(
        "F1, default l2 − l2 by cross-validation, mean of all",
        statistics.mean(against_chosen),
        at_least=CHOSEN_BAR,
        comparisons=len(against_chosen),
    )


# ---------------------------------------------------------------------------------- queries


def _queries(report: Report, pool: Part, held_out: Part) -> None:
    """Strategies on chunking, with the same number of labels, by the model of all of them."""
    some = next(draws(pool, POOL))
    strategies: dict[str, Strategy] = {
        "groups": GroupQueries(count=ROUND),
        "tokens": TokenQueries(ROUND),
        "random tokens": RandomQueries(ROUND, units="tokens"),
        "random sentences": RandomQueries(4),
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
