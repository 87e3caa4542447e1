"""The estimator's parameters, checked, as the plan of a search."""

from __future__ import annotations

import numbers
import os
from typing import TYPE_CHECKING, cast

from jaxseq.learn._lbfgs import Settings
from jaxseq.learn._parameters import WeightSet
from jaxseq.tagger._checks import check_number
from jaxseq.tagger._fit import Plan

if TYPE_CHECKING:
    from jaxseq.tagger._tagger import CRFTagger

LEARNING_RATES = {"adamw": 0.05, "sgd": 0.5}


def plan_of(tagger: CRFTagger) -> Plan:
    """How to search, by the estimator's parameters; ValueError on one that makes no sense."""
    rate = tagger.learning_rate
    if rate is None:
        rate = LEARNING_RATES.get(tagger.algorithm, 0.0)
    for name in ("l1", "l2", "tolerance"):
        check_number(name, getattr(tagger, name), 0, numbers.Real)
    check_number("learning_rate", rate, 0, numbers.Real)
    counts = ("max_iterations", "epochs", "batch_size", "memory_size", "checkpoint_every")
    for name, low in {"seed": 0, **dict.fromkeys(counts, 1)}.items():
        check_number(name, getattr(tagger, name), low, numbers.Integral)
    if tagger.cores is not None:
        check_number("cores", tagger.cores, 1, numbers.Integral)
    if not isinstance(tagger.checkpoint, str | os.PathLike | None):
        raise ValueError(f"checkpoint: expected a path or None, got {tagger.checkpoint!r:.60}")
    choices = {
        "weights": ("mixed", "observed", "dense", "tied"),
        "algorithm": ("lbfgs", "adamw", "sgd"),
    }
    for name, among in choices.items():
        if getattr(tagger, name) not in among:
            raise ValueError(
                f"{name}: expected one of {list(among)}, got {getattr(tagger, name)!r}"
            )
    settings = Settings(
        max_iterations=int(tagger.max_iterations),
        tolerance=float(tagger.tolerance),
        memory_size=int(tagger.memory_size),
        l1=float(tagger.l1),
    )
    return Plan(
        weights=cast(WeightSet, tagger.weights),
        algorithm=tagger.algorithm,
        settings=settings,
        l2=float(tagger.l2),
        epochs=int(tagger.epochs),
        batch_size=int(tagger.batch_size),
        learning_rate=float(rate),
        seed=int(tagger.seed),
        cores=int(tagger.cores or os.cpu_count() or 1),
        progress=tagger.progress,
        checkpoint=tagger.checkpoint,
        checkpoint_every=int(tagger.checkpoint_every),
    )
