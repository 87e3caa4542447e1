"""Unfinished searches of a tagger on disk.

A search may have several stages, one after another; a file on disk says which of them it is of.
It says neither how many processes there were nor how many blocks the weights were in.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxseq.learn._checkpoint import (
    load_checkpoint,
    read_about,
    save_checkpoint,
)
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._mesh_checkpoint import any_in_blocks, load_parts, remove_parts, save_parts
from jaxseq.learn._parameters import Parameters
from jaxseq.scale import Peers
from jaxseq.scale._mesh import off_mesh
from jaxseq.tagger._plan import EntropyTerm, Plan
from jaxseq.tagger._problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxseq.learn._mesh_blocks import Blocks


class Before(NamedTuple):
    """Iterations and evaluations of the stages before the one that is running."""

    iterations: int = 0
    evaluations: int = 0


class Keeper:
    """Keeps the stages of one search in a file, or nowhere.

    Args:
        path: the file; None keeps nothing.
        about: says which search this is.
        also: another name of the same search, under which a file is read, but none is written.
        peers: on a mesh, all its processes. The first one writes; where weights are in blocks, each
            writes some of them. All must see the file.
        blocks: how the weights are cut in this search; None where they never are.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        about: str,
        also: Callable[[], str] | None = None,
        peers: Peers | None = None,
        blocks: Blocks | None = None,
    ):
        self._path = None if path is None else Path(path)
        self._about = self._about_on_disk = about
        self._on_mesh, self._blocks = peers is not None, blocks
        self._peers = Peers(0, 1, lambda message: [message]) if peers is None else peers
        if self._path is None:
            return
        if self._path.is_dir():
            raise ValueError(f"{path}: expected a file to keep the search in, got a folder")
        exists = self._path.exists()
        self._peers.check_same(f"{path}: is there", exists)
        if not exists:
            return
        found = read_about(self._path) or ""
        if also is not None and not found.startswith(about) and found.startswith(other := also()):
            self._about_on_disk = other

    def _name_on_disk(self, stage: int) -> str:
        return _name(self._about_on_disk, stage)

    def stage(self, stages: int) -> int:
        """The stage on disk; the first where there is none, or another search's (which `resumed`
        refuses)."""
        if self._path is None or not self._path.exists():
            return 0
        found = read_about(self._path)
        return next((stage for stage in range(stages) if found == self._name_on_disk(stage)), 0)

    def resumed(self, begun: Any, stage: int) -> tuple[Any, Before | None]:
        """The state on disk, and what was done before its stage; else the one given, and None.

        A file of an earlier stage of the same search is over, and only waits to be replaced.
        """
        if self._path is None or not self._path.exists():
            return begun, None
        if read_about(self._path) in [self._name_on_disk(earlier) for earlier in range(stage)]:
            return begun, None
        like, name = _arrays_of(begun), self._name_on_disk(stage)
        with self._peers.guard():
            if self._blocks is None:
                tree, extra = load_checkpoint(self._path, like, name)
            else:
                tree, extra = load_parts(self._path, like, name, self._blocks)
        before = Before(*extra.pop("before"))
        return begun._replace(**tree, **{**extra, "values": tuple(extra["values"])}), before

    def keep(self, state: Any, stage: int, before: Before) -> None:
        """Write a state."""
        if self._path is None:
            return
        names = ("value", "iteration", "values", "evaluations")
        extra = {name: getattr(state, name) for name in names if hasattr(state, name)}
        extra["before"] = list(before)
        arrays, about = _arrays_of(state), _name(self._about, stage)
        self._about_on_disk = self._about
        if self._blocks is not None and any_in_blocks(arrays):
            save_parts(self._path, arrays, about, extra, self._blocks, self._peers)
            return
        arrays = off_mesh(arrays) if self._on_mesh else arrays
        with self._peers.guard():
            if self._peers.is_first:
                save_checkpoint(self._path, arrays, about, extra)
                remove_parts(self._path)  # also of a search that was killed

    def finish(
        self, outcome: Outcome, state: Any | None, stage: int, before: Before, last: bool
    ) -> None:
        """A search that is over leaves nothing. One that was interrupted or cut short does, and so
        does a stage that others follow: to go on from its end is to begin the next."""
        if self._path is None:
            return
        goes_on = not last or outcome in (Outcome.INTERRUPTED, Outcome.MAX_ITERATIONS)
        if not goes_on:
            with self._peers.guard():
                if self._peers.is_first:
                    self._path.unlink(missing_ok=True)
                    remove_parts(self._path)  # also of a search that was killed
        elif state is not None:
            self.keep(state, stage, before)


def _name(about: str, stage: int) -> str:
    return f"{about} stage {stage}"


def _arrays_of(state: Any) -> dict[str, Any]:
    names = ("parameters", "gradient", "memory")
    return {name: getattr(state, name) for name in names if hasattr(state, name)}


def fingerprint(
    problem: Problem, plan: Plan, start: Parameters, term: EntropyTerm, warm: bool, steps: int
) -> str:
    """Says which search this is: a hash of the data, the settings and the starting point.

    A search in one stage may be taken further by more iterations; with several stages, that would
    be another search from the first of them on. `steps` is how many will be made, by mini-batches.
    """
    settings = plan.settings._replace(max_iterations=0)
    parts: list[Any] = [problem.classes, problem.attributes, problem.transitions]
    parts += [plan.weights, plan.algorithm, settings, plan.l2, plan.batch_size, plan.cores]
    if plan.algorithm != "lbfgs":
        parts += [plan.epochs, plan.learning_rate, plan.seed]
    features = [problem.features]
    if problem.unlabelled is not None:
        features.append(problem.unlabelled)
        parts += [term.gradient, warm]
        iterations = plan.settings.max_iterations
        if plan.algorithm != "lbfgs":
            parts.append([term.at(step) for step in range(steps if callable(term.weight) else 1)])
        elif warm and not callable(term.weight):
            parts.append(term.weight)
        else:
            parts += [term.pieces(iterations), iterations]
    digest = hashlib.sha256(repr(parts).encode())
    arrays: list[Any] = [problem.labels.gold, problem.labels.allowed, problem.sentence_weights]
    for each in features:
        arrays += [each.ids, each.values, each.lengths, each.edge_ids]
    arrays += [*(problem.legal or ()), *jax.tree.leaves(start)]
    for array in arrays:
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
