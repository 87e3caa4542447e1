"""The ways to a model, and to λ: EM, sweeps, held-out sentences, and points of a path."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.haffari2008._task import Task
from jaxseq.hmm import (
    HMM,
    HMM_SETTINGS,
    EMOperator,
    HMMPath,
    Multinomials,
    WordCorpus,
    em,
    has_turned,
    hmm_path,
)
from jaxseq.homotopy import PathOutcome

RULES = ("monotone", "min_eigenvalue", "max_entropy")
"""By which a point of a path is chosen."""


class Search(NamedTuple):
    """How EM and paths are ended: iterations and relative improvement, tried steps."""

    iterations: int
    tolerance: float
    path_steps: int


class Trained(NamedTuple):
    """A model with the λ that it was trained with."""

    balance: float
    model: HMM


def operator_of(task: Task, balance: float) -> EMOperator:
    """EM at λ with the task's smoothing and frozen families."""
    return EMOperator(
        task.labelled,
        task.unlabelled,
        balance,
        task.setting.smoothing,
        frozen=task.setting.frozen,
    )


def train(task: Task, balance: float, search: Search, start: HMM | None = None) -> Trained:
    """EM at λ, from the supervised model or another."""
    begin = task.supervised if start is None else start
    if balance == 0:
        return Trained(0.0, task.supervised)
    found = em(
        begin,
        operator_of(task, balance),
        max_iterations=search.iterations,
        tolerance=search.tolerance,
    )
    return Trained(balance, found.model)


def sweep(task: Task, balances: Sequence[float], search: Search, warm: bool) -> list[Trained]:
    """EM at each λ; warm starts from the model of the λ before, cold ones from the supervised."""
    found: list[Trained] = []
    for balance in balances:
        start = found[-1].model if warm and found else None
        found.append(train(task, balance, search, start))
    return found


def most_likely(task: Task, candidates: Sequence[Trained], corpus: WordCorpus) -> Trained:
    """The candidate under which the words and labels of a corpus are most probable."""
    values = [task.log_likelihood(one.model, corpus) for one in candidates]
    return candidates[int(np.argmax(values))]


class Followed(NamedTuple):
    """A path, and the seconds that it took."""

    hmms: HMMPath
    seconds: float

    def chosen(self, rule: str) -> Trained:
        """The model that a rule chooses."""
        selection = self.hmms.select(rule)
        return Trained(selection.lam, self.hmms.model(selection.index))

    def residuals(self, task: Task) -> np.ndarray:
        """‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖ of the free families at each point, by the EM operator itself."""
        return np.array([self._residual(task, index) for index in range(len(self.hmms.path.lam))])

    def _residual(self, task: Task, index: int) -> float:
        point = self.hmms.parameters(index)
        following = operator_of(task, float(self.hmms.path.lam[index]))(point).following
        free = [name for name in Multinomials._fields if name not in task.setting.frozen]
        gaps = [np.asarray(getattr(following, n) - getattr(point, n)) for n in free]
        sizes = [np.asarray(getattr(point, n)) for n in free]
        square = [sum(float((array**2).sum()) for array in some) for some in (gaps, sizes)]
        return float(np.sqrt(square[0] / square[1]))

    def norms(self) -> list[float]:
        """‖Θ̃‖ of the free families at each point."""
        paths = range(len(self.hmms.path.lam))
        moving = [jax.tree.leaves(self.hmms.path.parameters(index)) for index in paths]
        return [
            float(np.sqrt(sum(float((np.asarray(leaf) ** 2).sum()) for leaf in leaves)))
            for leaves in moving
        ]

    def summary(self, task: Task) -> dict[str, Any]:
        """What the report says of it."""
        path = self.hmms.path
        assert path.outcome is not None
        turned = path.outcome is PathOutcome.INTERRUPTED and has_turned(path)
        return {
            "points": len(path.lam),
            "steps": len(path.events),
            "turns": int((np.diff(path.direction) != 0).sum()),
            "last": float(path.lam[-1]),
            "outcome": "stopped where λ turned" if turned else path.outcome.value,
            "residual": float(self.residuals(task).max()),
            "seconds": round(self.seconds, 2),
        }


def follow(task: Task, search: Search, whole: bool) -> Followed:
    """The path to λ = 1, or only until λ first turns."""
    began = time.perf_counter()
    hmms = hmm_path(
        task.labelled,
        task.unlabelled,
        smoothing=task.setting.smoothing,
        frozen=task.setting.frozen,
        settings=HMM_SETTINGS._replace(max_steps=search.path_steps),
        unknown=task.vocabulary.unknown,
        until=(lambda path: None) if whole else has_turned,
    )
    return Followed(hmms, time.perf_counter() - began)
