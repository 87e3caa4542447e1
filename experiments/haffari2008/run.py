"""Haffari & Sarkar 2008: how much should unlabelled citations weigh in an HMM?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from experiments._precision import double_precision
from experiments.haffari2008._methods import (
    RULES,
    Search,
    Trained,
    follow,
    most_likely,
    sweep,
    train,
)
from experiments.haffari2008._settings import SETTINGS, Setting
from experiments.haffari2008._task import Task, draw_split
from jaxseq.text import Sentence

CORPORA = ("citations",)
FROZEN = {"frozen": ("initial", "transition"), "free": ()}
"""Families that keep their supervised values."""
SCORED = 40
"""Models on a path that are tested, about as many."""


@dataclass(frozen=True)
class Config:
    """See ``config.toml``."""

    setting: str
    table_settings: tuple[str, ...]
    labelled: int
    dev: int
    test: int
    held_out: int
    unlabelled: tuple[int, ...]
    transitions: tuple[Literal["frozen", "free"], ...]
    free_unlabelled: tuple[int, ...]
    search_step: float
    small_labelled: int
    small_unlabelled: tuple[int, ...]
    small_pool: int
    small_repeats: int
    sweep_unlabelled: int
    sweep_step: float
    sweep_seeds: int
    path_unlabelled: int
    path_seeds: int
    path_steps: int
    critical_points: bool
    max_iterations: int
    tolerance: float
    settings: tuple[str, ...]
    settings_seeds: tuple[int, ...]
    settings_balances: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("labelled", "dev", "test", "small_labelled", "path_steps", "max_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if not 0 < self.held_out < self.labelled:
            raise ValueError(f"held_out: expected 1 … {self.labelled - 1}, got {self.held_out}")
        for name in ("search_step", "sweep_step"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected more than 0 up to 1, got {getattr(self, name)}")
        named = (self.setting, *self.table_settings, *self.settings)
        if not set(named) <= set(SETTINGS):
            known, got = ", ".join(SETTINGS), ", ".join(named)
            raise ValueError(
                f"setting, table_settings, settings: expected some of {known}, got {got}"
            )

    @property
    def search(self) -> Search:
        """How searches are ended."""
        return Search(self.max_iterations, self.tolerance, self.path_steps)


def cells(config: Config, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Table 1, figures 2, 3 and 4, whole paths, and settings that the paper leaves open."""
    found: list[dict[str, Any]] = []
    for seed, name in itertools.product(seeds, config.table_settings):
        for transitions in config.transitions:
            sizes = config.unlabelled if transitions == "frozen" else config.free_unlabelled
            kind = {"part": "table", "setting": name, "transitions": transitions}
            found += [{**kind, "unlabelled": size, "seed": seed} for size in sizes]
    for repeat in range(config.small_repeats):
        found += [
            {"part": "small", "unlabelled": size, "repeat": repeat}
            for size in config.small_unlabelled
        ]
    for seed in list(seeds)[: config.sweep_seeds]:
        found += [{"part": "sweep", "start": start, "seed": seed} for start in ("cold", "warm")]
    for name in config.settings:
        found += [
            {"part": "settings", "setting": name, "seed": seed} for seed in config.settings_seeds
        ]
    for seed in list(seeds)[: config.path_seeds]:
        found += [
            {"part": "path", "transitions": transitions, "seed": seed}
            for transitions in config.transitions
        ]
    return found


def run_cell(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """The results of one cell."""
    parts = {
        "table": _table,
        "small": _small,
        "sweep": _sweep,
        "path": _path,
        "settings": _setting,
    }
    with double_precision():
        return parts[cell["part"]](config, cell, data)


# ------------------------------------------------------------------------------------- data


@lru_cache(maxsize=1)
def _labelled(data: Any) -> tuple[list[Sentence], list[str]]:
    sentences = data.corpus("citations", "labelled")
    return sentences, sorted({label for sentence in sentences for label in sentence["label"]})


def _unlabelled(data: Any, setting: Setting, count: int, seed: int) -> list[Sentence]:
    if setting.pool == "first":
        return data.corpus("citations", "unlabelled", count)
    every = data.corpus("citations", "unlabelled")
    order = np.random.default_rng([2008, 1, seed]).permutation(len(every))
    return [every[index] for index in order[:count]]


def _task(
    config: Config, data: Any, setting: Setting, count: int, seed: int, on_dev: bool = False
) -> Task:
    """300 labelled citations, the first unlabelled ones, and others to be scored on."""
    data.corpus("citations", "labelled", 0)  # noted as used, also when it is known already
    sentences, classes = _labelled(data)
    split = draw_split(sentences, seed, (config.labelled, config.dev, config.test))
    scored = split.dev if on_dev else split.test
    return Task(setting, split.train, _unlabelled(data, setting, count, seed), scored, classes)


def _with_transitions(setting: str, transitions: str) -> Setting:
    return replace(SETTINGS[setting], frozen=FROZEN[transitions])


def _grid(step: float) -> list[float]:
    return np.linspace(0, 1, round(1 / step) + 1).tolist()


def _candidates(step: float) -> list[float]:
    """λ to choose from: not 1, which forgets all labels, and takes EM longer than all the rest."""
    return _grid(step)[:-1]


def _measured(task: Task, trained: Trained) -> dict[str, Any]:
    return {"balance": trained.balance, **task.score(trained.model)}


# ------------------------------------------------------------------------------------- cells


def _table(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """Table 1: homotopy, held-out λ, the oracle's λ, EM at λ of maximum likelihood, supervised."""
    setting = _with_transitions(cell["setting"], cell["transitions"])
    task = _task(config, data, setting, cell["unlabelled"], cell["seed"])
    candidates = sweep(task, _candidates(config.search_step), config.search, warm=False)
    trained = {
        "supervised": Trained(0.0, task.supervised),
        "em": train(task, task.balance, config.search),
        "oracle": most_likely(task, candidates, task.encode(task.test)),
    }
    followed = follow(task, config.search, whole=False)
    trained |= {rule: followed.chosen(rule) for rule in RULES}
    methods = {name: _measured(task, one) for name, one in trained.items()}
    return {
        "words": len(task.vocabulary),
        "methods": {**methods, "held-out": _held_out(config, data, setting, cell)},
        "path": followed.summary(task),
    }


def _held_out(config: Config, data: Any, setting: Setting, cell: dict[str, Any]) -> dict[str, Any]:
    """λ chosen by a part of the labelled citations, which are then not trained on.

    Measured here: with fewer sentences, words have other numbers.
    """
    sentences, classes = _labelled(data)
    split = draw_split(sentences, cell["seed"], (config.labelled, config.dev, config.test))
    held, rest = split.train[: config.held_out], split.train[config.held_out :]
    unlabelled = _unlabelled(data, setting, cell["unlabelled"], cell["seed"])
    task = Task(setting, rest, unlabelled, split.test, classes)
    candidates = sweep(task, _candidates(config.search_step), config.search, warm=False)
    return _measured(task, most_likely(task, candidates, task.encode(held)))


def _small(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """Figures 3 and 4: few labelled citations, unlabelled ones drawn anew for each repeat."""
    setting, repeat = SETTINGS[config.setting], cell["repeat"]
    data.corpus("citations", "labelled", 0)
    sentences, classes = _labelled(data)
    split = draw_split(sentences, repeat, (config.labelled, config.dev, config.test))
    pool = data.corpus("citations", "unlabelled", config.small_pool)
    order = np.random.default_rng([2008, 2, repeat]).permutation(len(pool))
    unlabelled = [pool[index] for index in order[: cell["unlabelled"]]]
    task = Task(setting, split.train[: config.small_labelled], unlabelled, split.test, classes)
    followed = follow(task, config.search, whole=False)
    trained = {
        "supervised": Trained(0.0, task.supervised),
        "em": train(task, task.balance, config.search),
        **{rule: followed.chosen(rule) for rule in RULES},
    }
    return {
        "words": len(task.vocabulary),
        "methods": {name: _measured(task, one) for name, one in trained.items()},
        "path": followed.summary(task),
    }


def _sweep(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """Figure 2: EM at λ = 0, .025, …, from the supervised model or from the λ before."""
    setting = SETTINGS[config.setting]
    task = _task(config, data, setting, config.sweep_unlabelled, cell["seed"])
    warm = cell["start"] == "warm"
    trained = sweep(task, _grid(config.sweep_step), config.search, warm)
    return {"balance": task.balance, "runs": [_measured(task, one) for one in trained]}


def _path(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """The whole path, with what is seen along it."""
    setting = _with_transitions(config.setting, cell["transitions"])
    task = _task(config, data, setting, config.path_unlabelled, cell["seed"])
    followed = follow(task, config.search, whole=True)
    path = followed.hmms.path
    critical = followed.hmms.critical_points() if config.critical_points else []
    chosen = {rule: followed.chosen(rule) for rule in RULES}
    return {
        "summary": followed.summary(task),
        "series": {
            "arc": path.arc.tolist(),
            "lam": path.lam.tolist(),
            "norm": followed.norms(),
            "residual": followed.residuals(task).tolist(),
            "eigenvalue": (path.second_weight * path.eigenvalues[:, 0]).tolist(),
            "entropy": followed.hmms.entropies.tolist(),
        },
        "scored": [
            {"arc": float(path.arc[index]), **task.score(followed.hmms.model(index))}
            for index in range(0, len(path.lam), max(1, len(path.lam) // SCORED))
        ],
        "critical": [
            {
                "kind": one.kind.name.lower(),
                "lam": one.lam,
                "arc": one.arc,
                "refined": one.is_refined,
            }
            for one in critical
        ],
        "methods": {name: _measured(task, one) for name, one in chosen.items()},
    }


def _setting(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """One way that the paper leaves open: supervised, EM at some λ, and the first turn.

    Scored on the development part: what is chosen by it has not seen a label of the test part of
    the same split. What is chosen by the parts of all splits together has.
    """
    setting = SETTINGS[cell["setting"]]
    task = _task(config, data, setting, config.path_unlabelled, cell["seed"], on_dev=True)
    balances = [0.0, *config.settings_balances, task.balance]
    runs = [_measured(task, train(task, balance, config.search)) for balance in balances]
    followed = follow(task, config.search, whole=False)
    return {
        "words": len(task.vocabulary),
        "runs": runs,
        "monotone": _measured(task, followed.chosen("monotone")),
        "path": followed.summary(task),
    }
