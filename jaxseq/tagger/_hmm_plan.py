"""The parameters of an `HMMTagger`, checked."""

from __future__ import annotations

import numbers
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh

from jaxseq.batch._cores import usable_cores
from jaxseq.learn._counts import FAMILIES, check_families
from jaxseq.learn._em_operator import Smoothing
from jaxseq.scale._mesh import check_mesh, spans_processes
from jaxseq.tagger._checks import check_number

if TYPE_CHECKING:
    from jaxseq.tagger._hmm_tagger import HMMTagger

CHOICES = {
    "em": ("soft", "hard"),
    "vocabulary": ("all", "labelled"),
    "decoding": ("viterbi", "max_marginal"),
    "dtype": ("float32", "float64"),
}
"""Parameters that are one of a few words."""


@dataclass(frozen=True)
class HMMPlan:
    """How to read sentences, and how to search."""

    column: str
    unknown_below: int
    vocabulary: str
    smoothing: Smoothing
    hard: bool
    weight: float | None
    frozen: tuple[str, ...]
    max_iterations: int
    tolerance: float
    cores: int
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    classes: tuple[str, ...] | None
    dtype: str
    mesh: Mesh | None = None


def check_own_mesh(mesh: Any, instead: str = "") -> Mesh | None:
    """The mesh, or None for none; ValueError where it has devices of other processes.

    Args:
        mesh: of `jaxseq.scale.make_mesh`. instead: what takes those, for the message.
    """
    if mesh is not None and spans_processes(mesh := check_mesh(mesh)):
        raise ValueError(
            "mesh: expected devices of this process alone, got those of several processes" + instead
        )
    return mesh


def hmm_plan_of(tagger: HMMTagger, mesh: Mesh | None = None) -> HMMPlan:
    """How to train, by the estimator's parameters; ValueError on one that makes no sense."""
    check_hmm_settings(tagger)
    if jax.dtypes.canonicalize_dtype(tagger.dtype) != tagger.dtype:
        raise ValueError(
            "dtype: expected JAX to have 64-bit numbers switched on (jax_enable_x64) for float64, "
            "got them switched off"
        )
    mesh = None if mesh is None else check_mesh(mesh)
    return HMMPlan(
        column=tagger.column,
        unknown_below=int(tagger.unknown_below),
        vocabulary=tagger.vocabulary,
        smoothing=Smoothing(
            **{name: float(getattr(tagger, f"{name}_smoothing")) for name in FAMILIES}
        ),
        hard=tagger.em == "hard",
        weight=None if tagger.weight is None else float(tagger.weight),
        frozen=tuple(tagger.frozen),
        max_iterations=int(tagger.max_iterations),
        tolerance=float(tagger.tolerance),
        cores=int(tagger.cores or usable_cores()),
        progress=tagger.progress,
        checkpoint=tagger.checkpoint,
        checkpoint_every=int(tagger.checkpoint_every),
        classes=None if tagger.classes is None else tuple(tagger.classes),
        dtype=tagger.dtype,
        mesh=mesh,
    )


def check_hmm_settings(tagger: HMMTagger) -> None:
    """ValueError on a parameter that makes no sense on any machine."""
    if not isinstance(tagger.column, str):
        raise ValueError(f"column: expected the name of one, a string, got {tagger.column!r:.60}")
    for name in (*(f"{family}_smoothing" for family in FAMILIES), "tolerance"):
        check_number(name, getattr(tagger, name), 0, numbers.Real)
    for name, low in {"unknown_below": 1, "max_iterations": 0, "checkpoint_every": 1}.items():
        check_number(name, getattr(tagger, name), low, numbers.Integral)
    if tagger.cores is not None:
        check_number("cores", tagger.cores, 1, numbers.Integral)
    check_balance("weight", tagger.weight)
    for name, among in CHOICES.items():
        if getattr(tagger, name) not in among:
            raise ValueError(
                f"{name}: expected one of {list(among)}, got {getattr(tagger, name)!r:.60}"
            )
    check_families("frozen", tagger.frozen)
    _check_classes(tagger.classes)
    if not isinstance(tagger.checkpoint, str | os.PathLike | None):
        raise ValueError(f"checkpoint: expected a path or None, got {tagger.checkpoint!r:.60}")


def _check_classes(classes: Any) -> None:
    if classes is None:
        return
    fine = not isinstance(classes, str) and isinstance(classes, Collection)
    if not fine or not all(isinstance(label, str) for label in classes):
        raise ValueError(f"classes: expected a list of labels or None, got {classes!r:.60}")


def check_balance(name: str, balance: Any) -> None:
    """ValueError unless it is λ: a number from 0 to 1, or None for the one of most likelihood."""
    if balance is None:
        return
    check_number(name, balance, 0, numbers.Real)
    if balance > 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, or None, got {balance}")
