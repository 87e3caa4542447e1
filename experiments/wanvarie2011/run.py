"""Wanvarie, Takamura & Okumura 2011: how few labels of tokens do as well as all of them?"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jaxseq
from experiments.wanvarie2011._loop import Loop, Round
from experiments.wanvarie2011._rows import TASKS, Row, Start, Usual, row_named, task_and_row
from experiments.wanvarie2011._task import CORPUS, Judge, Labels, Task, read_part

CORPORA = ("conll2000", "conll2003")
STATE = "JAXSEQ_STATE"
"""Variable with a folder for rows that are under way: one that is stopped goes on where it was."""


@dataclass(frozen=True)
class Config:
    """See ``config.toml``."""

    rows: tuple[str, ...]
    train: int
    test: int
    l2: dict[str, float]
    max_iterations: int
    initial: int
    start: Start
    threshold: float
    query_size: int
    kappa: float
    per_sentence: int
    span_width: int
    most_rounds: int

    def __post_init__(self) -> None:
        for name in ("max_iterations", "initial", "query_size", "span_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        for name in ("train", "test", "per_sentence", "most_rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold: expected above 0, at most 1, got {self.threshold}")
        if set(self.l2) != set(TASKS) or min(self.l2.values()) < 0:
            raise ValueError(f"l2: expected 0 or more for {', '.join(TASKS)}, got {self.l2}")
        for text in self.rows:
            row_named(task_and_row(text)[1], self.usual)

    @property
    def usual(self) -> Usual:
        """Settings of rows whose names do not say otherwise."""
        return Usual(
            self.threshold,
            self.query_size,
            self.per_sentence,
            self.span_width,
            self.start,
            self.initial,
        )


def cells(config: Config, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A cell for every row, and for every seed where chance has a part in it."""
    cells: list[dict[str, Any]] = []
    for text in config.rows:
        task, row = task_and_row(text)
        cell = {"task": task, "row": row}
        drawn = row_named(row, config.usual).is_drawn
        cells += [{**cell, "seed": seed} for seed in seeds] if drawn else [cell]
    return cells


def run_cell(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """The results of one row."""
    data.corpus(CORPUS[cell["task"]], "train", 0)  # noted as used, also when it is known already
    row = row_named(cell["row"], config.usual)
    task = make_task(config, cell["task"], data, row.l2)
    size = {"tokens": task.pool.tokens, "sentences": len(task.pool.sentences)}
    sup_labels, sup = train_sup(make_task(config, cell["task"], data, row.sup_l2))
    if row.kind == "Sup":
        return {**size, **sup}
    judge = Judge(task, sup_labels)
    if row.is_supervised:
        return {**size, **_trained_once(task, judge)}
    learner = make_learner(config, row, task, cell.get("seed", 0))
    rounds = _rounds(config, cell, Loop(learner, task.pool, judge, last_l2=row.last_l2))
    return {**size, **rounds[-1], "rounds": rounds, "seconds": total_seconds(rounds)}


def make_task(config: Config, name: str, data: Any, l2: float | None = None) -> Task:
    """A task with its sentences, and another l2 than that of the settings where it is given."""
    sizes = (config.train, config.test)
    strength = config.l2[name] if l2 is None else l2
    return _read_task(data, name, *sizes, strength, config.max_iterations)


@lru_cache(maxsize=3)  # a task is asked for with its own l2 and with the two of some rows
def _read_task(data: Any, name: str, train: int, test: int, l2: float, max_iterations: int) -> Task:
    pool, held_out = (
        read_part(data, name, split, count or None)
        for split, count in (("train", train), ("test", test))
    )
    return Task(name, pool, held_out, l2, max_iterations)


@lru_cache(maxsize=3)
def train_sup(task: Task) -> tuple[Labels, dict[str, Any]]:
    """What Sup says of the test sentences, and its row; the last three are kept."""
    clock = time.perf_counter()
    tagger = task.supervised()
    seconds = time.perf_counter() - clock
    predicted = tagger.predict(task.test.sentences)
    return predicted, _whole(task, tagger, Judge(task, predicted), seconds)


def _trained_once(task: Task, judge: Judge) -> dict[str, Any]:
    """Pointwise: no transitions between labels (section 5.4)."""
    clock = time.perf_counter()
    tagger = task.supervised(transitions=False)
    return _whole(task, tagger, judge, time.perf_counter() - clock)


def _whole(task: Task, tagger: Any, judge: Judge, seconds: float) -> dict[str, Any]:
    return {
        "labelled_tokens": task.pool.tokens,
        "labelled_sentences": len(task.pool.sentences),
        "sampled_sentences": len(task.pool.sentences),
        **judge(tagger),
        "objective": float(tagger.loss_),
        "iterations": tagger.n_iter_,
        "seconds": round(seconds, 3),
    }


# ----------------------------------------------------------------------------- active learning


def make_learner(
    config: Config, row: Row, task: Task, seed: int = 0, most_rounds: int | None = None
) -> jaxseq.ActiveLearner:
    """The learner of a row.

    Args:
        config: the settings. row: what to ask. task: what of. seed: of a random start.
        most_rounds: after the initial one; None for those of the row or of the settings.
    """
    most = row.rounds if row.rounds is not None else config.most_rounds or None
    return jaxseq.ActiveLearner(
        task.tagger(),
        row.strategy,
        initial=row.initial,
        initial_how=row.start,
        kappa=config.kappa,
        max_rounds=most if most_rounds is None else most_rounds,
        budget=None if row.most_percent is None else int(row.most_percent / 100 * task.pool.tokens),
        seed=seed,
        progress=False,
        between=row.between or None,
    )


def _rounds(config: Config, cell: dict[str, Any], loop: Loop) -> list[Round]:
    """The rounds of a row, which goes on where it was stopped if there is a folder for that."""
    kept = os.environ.get(STATE)
    if not kept:
        return loop.run()
    size = [len(loop.pool.sentences), loop.pool.tokens]  # generated sentences are another pool
    about = json.dumps([asdict(config), cell, size], sort_keys=True)
    folder = Path(kept) / f"wanvarie2011-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    rounds = replace(loop, folder=folder).run()
    done = folder.with_name(f"{folder.name}.done")
    shutil.rmtree(done, ignore_errors=True)
    folder.rename(done)  # removing it may be killed halfway: the rest is nothing to go on with
    shutil.rmtree(done)
    return rounds


def total_seconds(rounds: Sequence[Round]) -> float:
    """Of all rounds, scoring left out."""
    return round(sum(one["seconds"]["all"] for one in rounds), 3)
