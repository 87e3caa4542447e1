"""The settings of a training, checked once."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import jax
import numpy as np

from jaxseq._runtime import usable_cores
from jaxseq.crf._lbfgs import Settings
from jaxseq.crf._parameters import WeightSet
from jaxseq.crf._score_gradient import BY_ROW, EntropyGradient
from jaxseq.taggers import MAX_CORES, check_classes, check_number

if TYPE_CHECKING:
    from jaxseq.crf._tagger import CRFTagger

LEARNING_RATES = {"adamw": 0.05, "sgd": 0.5}
"""That suit most corpora, where none is asked for."""

CHOICES = {
    "weights": ("mixed", "observed", "dense", "tied"),
    "algorithm": ("lbfgs", "adamw", "sgd"),
    "dtype": ("float32", "float64"),
}
"""Parameters that are one of a few words."""

AT_LEAST = {
    "seed": 0,
    **dict.fromkeys(
        ("max_iterations", "epochs", "batch_size", "memory_size", "checkpoint_every"), 1
    ),
}
"""Parameters that are whole numbers, and the least of each."""

SMALLEST_L2, LARGEST_L2 = 0.001, 1.0
TOKENS_OF_LARGEST_L2 = 200_000
"""The l2 of a training where none is set is in proportion to the number of labelled tokens: the
likelihood is a sum over tokens, so that a constant l2 is stronger the fewer there are. Below the
smallest one nothing is gained, and the search takes longer. Chosen on parts of training data: see
``python -m experiments bench defaults``."""


@dataclass(frozen=True)
class Plan:
    """How to search: the estimator's parameters, checked."""

    weights: WeightSet
    algorithm: str
    settings: Settings
    l2: float
    l2_is_set: bool
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    cores: int
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    dtype: str

    @classmethod
    def from_tagger(cls, tagger: CRFTagger) -> Plan:
        """How to search, by the estimator's parameters; ValueError if one makes no sense."""
        rate = tagger.learning_rate
        if rate is None:
            rate = LEARNING_RATES.get(tagger.algorithm, 0.0)
        # Each parameter once, with the message that names it; what follows takes them as they are.
        l2 = LARGEST_L2 if tagger.l2 is None else tagger.l2
        reals = {"l1": tagger.l1, "l2": l2, "tolerance": tagger.tolerance}
        for name, value in {**reals, "learning_rate": rate}.items():
            check_number(name, value, 0, numbers.Real)
        for name, low in AT_LEAST.items():
            check_number(name, getattr(tagger, name), low, numbers.Integral)
        if tagger.cores is not None:
            check_number("cores", tagger.cores, 1, numbers.Integral, MAX_CORES)
        if not isinstance(tagger.checkpoint, str | os.PathLike | None):
            raise ValueError(f"checkpoint: expected a path or None, got {tagger.checkpoint!r:.60}")
        check_classes(tagger.classes)
        for name, among in CHOICES.items():
            if (value := getattr(tagger, name)) not in among:
                raise ValueError(f"{name}: expected one of {list(among)}, got {value!r}")
        # JAX would train in float32 without a word.
        if jax.dtypes.canonicalize_dtype(tagger.dtype) != tagger.dtype:
            raise ValueError(
                "dtype: expected JAX to have 64-bit numbers switched on (jax_enable_x64) for "
                "float64, got them switched off"
            )
        most = float(np.finfo(tagger.dtype).max)
        for name in ("l1", "l2"):  # above it they would be infinite, and 0 times them NaN
            if (value := reals[name]) > most:
                raise ValueError(
                    f"{name}: expected at most {most:.3g}, the largest number of {tagger.dtype}, "
                    f"got {value}"
                )
        settings = Settings(
            max_iterations=int(tagger.max_iterations),
            tolerance=float(tagger.tolerance),
            memory_size=int(tagger.memory_size),
            l1=float(tagger.l1),
        )
        return cls(
            weights=cast(WeightSet, tagger.weights),
            algorithm=tagger.algorithm,
            settings=settings,
            l2=float(l2),
            l2_is_set=tagger.l2 is not None,
            epochs=int(tagger.epochs),
            batch_size=int(tagger.batch_size),
            learning_rate=float(rate),
            seed=int(tagger.seed),
            cores=int(tagger.cores or usable_cores()),
            progress=tagger.progress,
            checkpoint=tagger.checkpoint,
            checkpoint_every=int(tagger.checkpoint_every),
            dtype=tagger.dtype,
        )

    def scaled(self, tokens: float) -> Plan:
        """The plan for so many labelled tokens: with an l2 to suit them, unless one is set."""
        if self.l2_is_set:
            return self
        l2 = LARGEST_L2 * tokens / TOKENS_OF_LARGEST_L2
        return replace(self, l2=min(max(l2, SMALLEST_L2), LARGEST_L2))


ExpectationMethod = Literal["gradient", "projection"]
"""How expectations are met; see `CRFTagger.fit`."""

Schedule = Callable[[int], Any]
"""From the number of steps done to a weight, as in optax."""

ANNEAL_EVERY = 10
"""Iterations of L-BFGS between two looks at a schedule: curvature is learnt anew at each change."""


@dataclass(frozen=True)
class EntropyTerm:
    """How unlabelled sentences enter the objective: their weight γ, or its schedule, and the
    derivation of its gradient."""

    weight: float | Schedule = 0.0
    gradient: EntropyGradient = "mann"
    projection: float | None = None
    """How much a token counts where expectations are met by projection; None elsewhere."""

    @classmethod
    def from_arguments(cls, weight: Any, gradient: Any) -> EntropyTerm:
        """Those of `CRFTagger.fit`; ValueError if they make no sense."""
        if not isinstance(gradient, str) or gradient not in BY_ROW:
            raise ValueError(f"entropy_gradient: expected one of {list(BY_ROW)}, got {gradient!r}")
        if callable(weight):
            return cls(weight, gradient)
        check_number("entropy_weight", weight, 0, numbers.Real)
        return cls(float(weight), gradient)

    def scaled(self, factor: float) -> EntropyTerm:
        """The same with every γ times a factor."""
        weight = self.weight
        if callable(weight):
            return replace(self, weight=lambda step: EntropyTerm(weight).at(step) * factor)
        return replace(self, weight=weight * factor)

    @property
    def absent(self) -> bool:
        """Whether there is nothing to add."""
        return not callable(self.weight) and self.weight == 0

    def at(self, step: int) -> float:
        """γ after so many steps."""
        if not callable(self.weight):
            return self.weight
        # A schedule of optax gives an array of JAX; booleans and strings are mistakes.
        weight = np.asarray(self.weight(step))
        is_number = weight.shape == () and weight.dtype.kind in "iuf"
        if not is_number or not 0 <= float(weight) < np.inf:
            raise ValueError(
                f"entropy_weight: expected a schedule of finite numbers, 0 or more, got {weight} "
                f"at step {step}"
            )
        return float(weight)

    def pieces(self, iterations: int) -> list[tuple[float, int]]:
        """The schedule as (γ, iterations) of a search of so many, equal neighbours as one."""
        if not callable(
            self.weight
        ):  # whatever the number of iterations, of which there may be many
            return [(self.at(0), iterations)] if iterations else []
        pieces: list[tuple[float, int]] = []
        for start in range(0, iterations, ANNEAL_EVERY):
            weight, count = self.at(start), min(ANNEAL_EVERY, iterations - start)
            # Equals must be one stage: each begins with an empty memory of curvature.
            if pieces and pieces[-1][0] == weight:
                pieces[-1] = (weight, pieces[-1][1] + count)
            else:
                pieces.append((weight, count))
        return pieces
