"""What unlabelled text is worth: each way to use it, and the choice between them, on test parts.

The protocol: labelled sentences are drawn at random from the training part, five times; the rest of
it, without its labels, and the unlabelled part where there is one are the unlabelled text. Every
choice (of l2, of a way) is made by cross-validation on the labelled sentences. Test parts are
scored at the end, once for every way.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxseq
from experiments.bench._report import Report
from experiments.data import Data, choose_sources
from jaxseq.study import count_by_sentence, fit_semi_supervised
from jaxseq.text import Sentence, general_templates

COLUMNS = {
    "conll2003": ("word", "pos"),
    "genetag": ("word",),
    "bc2gm": ("word",),
    "conll2000": ("word", "pos"),
    "citations": ("word",),
    "ads": ("word",),
}
SIZES = {name: (50, 200) for name in COLUMNS} | dict.fromkeys(("citations", "ads"), (5, 20, 100))
DRAWS = 5
POOL = 5000
"""Unlabelled sentences at most; those of the training part come first."""
CITATIONS_TEST = 100
"""Of the 500 labelled citations, which are in one part."""
GAINS = {50: 3.0, 200: 1.5}
"""Labelled sentences → points that the choice gains on average over the corpora."""
WORST = -0.5
PLAIN, CHOICE = "plain CRF", "choice"


class Unit(NamedTuple):
    """One draw."""

    corpus: str
    size: int
    draw: int


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench pays``.

    What has been measured is kept in ``pays.jsonl`` of the folder for results, and not measured
    again; `JAXSEQ_DRAWS` sets another number of draws.
    """
    folder = os.environ.get("JAXSEQ_DATA")
    if not folder or not all((Path(folder) / name).is_dir() for name in COLUMNS):
        report.figure(
            "gain of the choice, mean at 50", None, at_least=GAINS[50], needs="JAXSEQ_DATA"
        )
        return
    draws = int(os.environ.get("JAXSEQ_DRAWS", DRAWS))
    units = [
        Unit(name, size, draw)
        for draw, name in itertools.product(range(draws), COLUMNS)
        for size in SIZES[name]
    ]
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "pays.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    there = {Unit(row["corpus"], row["size"], row["draw"]): row for row in rows}
    missing = [unit for unit in units if unit not in there]
    # A process for each draw: a program that is compiled for one serves no other.
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(os.cpu_count(), context, max_tasks_per_child=1) as pool,
        open(kept, "a", encoding="utf-8") as file,
    ):
        for done in as_completed([pool.submit(measure, unit, folder) for unit in missing]):
            row = done.result()
            there[Unit(row["corpus"], row["size"], row["draw"])] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
    _report(report, [there[unit] for unit in units])


def measure(unit: Unit, folder: str) -> dict[str, Any]:
    """The scores on the test part, in percent, of every way and of the choice."""
    train, pool, test = read_parts(unit, folder)
    columns = COLUMNS[unit.corpus]
    labels = [list(one["label"]) for one in train]
    gold = [list(one["label"]) for one in test]
    began = time.perf_counter()
    chosen = fit_semi_supervised(
        _without_labels(train, columns),
        labels,
        _without_labels(pool, columns),
        tagger=jaxseq.CRFTagger(general_templates(columns), cores=1, progress=False),
        seed=unit.draw,
        progress=False,
    )
    seconds = time.perf_counter() - began
    sentences = _without_labels(test, columns)

    def score(tagger: Any) -> float:
        counts = count_by_sentence(gold, tagger.predict(sentences), chosen.scoring)
        return 100 * counts.score

    scores = {CHOICE: score(chosen.tagger)}
    for each in chosen.contenders:
        if each.counts is not None:
            best = each is chosen.best
            scores[each.name] = scores[CHOICE] if best else score(chosen.train(each))
    return {
        **unit._asdict(),
        "scoring": chosen.scoring,
        "unlabelled": len(pool),
        "chosen": chosen.best.name,
        "settings": chosen.best.settings,
        "scores": scores,
        "seconds": seconds,
    }


def read_parts(unit: Unit, folder: str) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Labelled sentences, unlabelled ones, and those of the test part."""
    data = Data(choose_sources([unit.corpus], Path(folder), may_stand_in=False))
    rng = np.random.default_rng([2026, unit.draw])
    whole = data.corpus(unit.corpus, "labelled" if unit.corpus == "citations" else "train")
    order = rng.permutation(len(whole)).tolist()
    if unit.corpus == "citations":
        test = [whole[place] for place in order[:CITATIONS_TEST]]
        order = order[CITATIONS_TEST:]
    else:
        test = data.corpus(unit.corpus, "test")
    train = [whole[place] for place in order[: unit.size]]
    pool = [whole[place] for place in order[unit.size :]]
    if unit.corpus in ("citations", "ads"):
        pool += data.corpus(unit.corpus, "unlabelled", POOL)
    return train, pool[:POOL], test


def _without_labels(sentences: list[Sentence], columns: tuple[str, ...]) -> list[Sentence]:
    return [Sentence({name: one[name] for name in columns if name in one}) for one in sentences]


def _report(report: Report, rows: list[dict[str, Any]]) -> None:
    gains: dict[int, list[float]] = {size: [] for size in GAINS}
    worst = float("inf")
    for corpus, size in dict.fromkeys((row["corpus"], row["size"]) for row in rows):
        some = [row for row in rows if (row["corpus"], row["size"]) == (corpus, size)]
        for name in dict.fromkeys(name for row in some for name in row["scores"]):
            scores = [row["scores"][name] for row in some if name in row["scores"]]
            _figure(report, f"{name}, {corpus}, {size}", scores)
        ahead = [row["scores"][CHOICE] - row["scores"][PLAIN] for row in some]
        chosen = [row["chosen"] for row in some]
        _figure(report, f"gain of the choice, {corpus}, {size}", ahead, chosen=chosen)
        gains.get(size, []).append(statistics.mean(ahead))
        worst = min(worst, statistics.mean(ahead))
    for size, each in gains.items():
        gain = statistics.mean(each)
        report.figure(f"gain of the choice, mean at {size}", gain, at_least=GAINS[size])
    report.figure("gain of the choice, least of all corpora", worst, at_least=WORST)


def _figure(report: Report, metric: str, values: list[float], **more: Any) -> None:
    """The mean, with its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    more |= {"standard_error": error if error is None else round(error, 2), "draws": len(values)}
    report.figure(metric, statistics.mean(values), **more)
