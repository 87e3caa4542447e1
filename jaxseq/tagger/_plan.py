"""The estimator's parameters, checked, as the plan of a search."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jax.sharding import Mesh

from jaxseq.batch._cores import usable_cores
from jaxseq.learn._entropy_derivations import BY_ROW, EntropyGradient
from jaxseq.learn._lbfgs import Settings
from jaxseq.learn._parameters import WeightSet
from jaxseq.scale._mesh import check_mesh
from jaxseq.tagger._checks import check_number

if TYPE_CHECKING:
    from jaxseq.tagger._tagger import CRFTagger


@dataclass(frozen=True)
class Plan:
    """How to search: the estimator's parameters, checked."""

    weights: WeightSet
    algorithm: str
    settings: Settings
    l2: float
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    cores: int
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    dtype: str
    mesh: Mesh | None = None


LEARNING_RATES = {"adamw": 0.05, "sgd": 0.5}


def plan_of(tagger: CRFTagger, mesh: Mesh | None = None) -> Plan:
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
        "dtype": ("float32", "float64"),
    }
    for name, among in choices.items():
        if getattr(tagger, name) not in among:
            raise ValueError(
                f"{name}: expected one of {list(among)}, got {getattr(tagger, name)!r}"
            )
    if jax.dtypes.canonicalize_dtype(tagger.dtype) != tagger.dtype:
        raise ValueError(
            "dtype: expected JAX to have 64-bit numbers switched on (jax_enable_x64) for float64, "
            "got them switched off"
        )
    most = float(np.finfo(tagger.dtype).max)
    for name in ("l1", "l2"):
        if getattr(tagger, name) > most:
            raise ValueError(
                f"{name}: expected at most {most:.3g}, the largest number of {tagger.dtype}, got "
                f"{getattr(tagger, name)}"
            )
    if mesh is not None:
        mesh = check_mesh(mesh)
        if tagger.algorithm != "lbfgs":
            raise ValueError(f"algorithm: expected 'lbfgs' with a mesh, got {tagger.algorithm!r}")
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
        cores=int(tagger.cores or usable_cores()),
        progress=tagger.progress if mesh is None or jax.process_index() == 0 else False,
        checkpoint=tagger.checkpoint,
        checkpoint_every=int(tagger.checkpoint_every),
        dtype=tagger.dtype,
        mesh=mesh,
    )


Schedule = Callable[[int], Any]
"""From the number of steps done to a weight, as in optax."""

ANNEAL_EVERY = 10
"""Iterations of L-BFGS between two looks at a schedule: curvature is learnt anew at each change."""


@dataclass(frozen=True)
class EntropyTerm:
    """How unlabelled sentences enter the objective: their weight γ, or its schedule, and the
    derivation of its gradient."""

    weight: float | Schedule
    gradient: EntropyGradient

    @classmethod
    def of(cls, weight: Any, gradient: Any) -> EntropyTerm:
        """ValueError on what makes no sense."""
        if not isinstance(gradient, str) or gradient not in BY_ROW:
            raise ValueError(f"entropy_gradient: expected one of {list(BY_ROW)}, got {gradient!r}")
        if callable(weight):
            return cls(weight, gradient)
        check_number("entropy_weight", weight, 0, numbers.Real)
        return cls(float(weight), gradient)

    @property
    def absent(self) -> bool:
        """Whether there is nothing to add."""
        return not callable(self.weight) and self.weight == 0

    def at(self, step: int) -> float:
        """γ after so many steps."""
        if not callable(self.weight):
            return self.weight
        found = np.asarray(self.weight(step))
        is_number = found.shape == () and found.dtype.kind in "iuf"
        if not is_number or not 0 <= float(found) < np.inf:
            raise ValueError(
                f"entropy_weight: expected a schedule of finite numbers, 0 or more, got {found} "
                f"at step {step}"
            )
        return float(found)

    def pieces(self, iterations: int) -> list[tuple[float, int]]:
        """The schedule as (γ, iterations) of a search of so many, equal neighbours as one."""
        found: list[tuple[float, int]] = []
        for start in range(0, iterations, ANNEAL_EVERY):
            weight, count = self.at(start), min(ANNEAL_EVERY, iterations - start)
            if found and found[-1][0] == weight:
                found[-1] = (weight, found[-1][1] + count)
            else:
                found.append((weight, count))
        return found
