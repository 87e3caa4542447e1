"""The descent on shards of a corpus, a step at a time, by one process or by several together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from jaxseq.learn import _stochastic
from jaxseq.learn._checkpoint import load_checkpoint, save_checkpoint
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._mesh_objective import MeshObjective
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Legal, Parameters, Spread
from jaxseq.learn._progress import progress_bar
from jaxseq.learn._stochastic import Algorithm, StochasticSettings, StochasticState
from jaxseq.learn._streamed_corpus import StreamedCorpus
from jaxseq.scale._mesh import from_first, in_host_memory, off_mesh, place
from jaxseq.tagger._plan import Plan

LOOK_EVERY = 8
"""Steps of several processes between two looks at whether one of them was interrupted: they ask
each other, which takes as long as a small step."""


class StreamedSearch:
    """The descent, a step of the corpus at a time.

    On a mesh each device works on its own rows of a batch, and the gradients are summed along
    ``"data"``; the parameters and what the optimiser remembers are whole on all devices. Process 0
    alone reads and writes the checkpoint, which does not say how many processes there were.
    """

    def __init__(self, corpus: StreamedCorpus, plan: Plan, spread: Spread, legal: Legal | None):
        self._corpus, self._plan, self._legal = corpus, plan, legal
        self._peers = peers_of(plan.mesh)
        self._objective = (
            Objective([], spread, 0.0, legal)
            if plan.mesh is None
            else MeshObjective([], spread, 0.0, legal, mesh=plan.mesh)
        )
        # To the descent every step is an epoch of one batch: it can then be stopped, kept and
        # taken up after any of them. Its penalties are those of the whole corpus in batches.
        batches = corpus.num_batches
        self._settings = StochasticSettings(
            algorithm=cast(Algorithm, plan.algorithm),
            epochs=plan.epochs * batches,
            batches=1,
            learning_rate=plan.learning_rate,
            seed=plan.seed,
            l1=plan.settings.l1 / batches,
            l2=plan.l2 / batches,
            sentences=corpus.sentences / batches,
        )
        start = spread.zeros(corpus.index.edge_attributes, plan.dtype)
        self.state = _stochastic.begin(start, self._settings)
        self.loss, self.outcome = 0.0, Outcome.MAX_ITERATIONS
        self._begun_at, self._stopped = 0, False

    @property
    def parameters(self) -> Parameters:
        """Where the search is."""
        return off_mesh(self.state.parameters)

    def run(self, stop: int) -> None:
        """All steps before `stop`, from the one that is kept, or the first, on."""
        path = None if self._plan.checkpoint is None else Path(self._plan.checkpoint)
        if path is not None:
            self._resume(path)
        if self._plan.mesh is not None:
            parts = place((self.state.parameters, self.state.memory), self._plan.mesh)
            self.state = self.state._replace(parameters=parts[0], memory=parts[1])
        self._begun_at = self.state.iteration
        steps = min(stop, self._settings.epochs)
        title = "training from shards"
        with (
            progress_bar(title, self._settings.epochs, self._plan.progress) as tick,
            interrupts_deferred() as pressed,
        ):

            def watch(state: StochasticState) -> bool:
                self.state = state
                self._add_loss(state)
                tick(state.iteration, self.loss)
                if path is not None and state.iteration % self._plan.checkpoint_every == 0:
                    self._keep(path)
                self._stopped = state.iteration >= steps or self._interrupted(pressed)
                return self._stopped

            if self.state.iteration < steps:
                _stochastic.descend(self._loss, self.state, self._settings, watch)
                if self._peers.count > 1 and not self._stopped:
                    raise KeyboardInterrupt  # of this process alone, in the middle of a step
        finished = self.state.iteration >= self._settings.epochs
        self.outcome = Outcome.MAX_ITERATIONS if finished else Outcome.INTERRUPTED
        if path is not None and not finished:
            self._keep(path)
        elif path is not None:
            with self._peers.guard():
                if self._peers.is_first:
                    path.unlink(missing_ok=True)

    def _interrupted(self, pressed: Callable[[], bool]) -> bool:
        """Whether to stop. If one process does, all do: none can go on without the others."""
        if self._peers.count > 1 and self.state.iteration % LOOK_EVERY:
            return False
        return any(self._peers.exchange(pressed()))

    def _loss(self, parameters: Any, _batch: int, step: int) -> tuple[Any, Any]:
        if isinstance(self._objective, Objective):
            self._objective.take([self._corpus.batch_at(step)])
            return self._objective(parameters)
        if step == self._begun_at or self._corpus.begins_shard(step):
            with self._peers.guard():  # a shard that cannot be read is an error of all
                self._corpus.open(step)
        with in_host_memory():
            parts = [self._corpus.batch_at(step, place) for place in self._corpus.own]
        self._objective.take(parts)
        return self._objective(parameters)

    def _add_loss(self, state: StochasticState) -> None:
        """The loss of the epoch so far."""
        begins = (state.iteration - 1) % self._corpus.num_batches == 0
        self.loss = state.values[-1] + (0.0 if begins else self.loss)
        if not np.isfinite(self.loss):
            raise ValueError(
                "learning_rate: expected one at which the loss falls, and labels that the scheme "
                f"allows, got a loss of {self.loss}"
            )

    # ----------------------------------------------------------------------------- on disk

    def _about(self) -> str:
        """Says which training this is: the corpus, the settings, the weights that are learnt."""
        plan, index = self._plan, self._corpus.index
        files = [shard.sha256 for shard in index.shards]
        parts = [index.vocabulary, files, plan.weights, plan.batch_size, plan.dtype]
        parts += [self._corpus.streams, self._settings, index.classes]
        digest = hashlib.sha256(repr(parts).encode())
        for mask in self._legal or ():
            digest.update(np.asarray(mask).tobytes())
        return digest.hexdigest()

    def _keep(self, path: Path) -> None:
        with self._peers.guard():
            if not self._peers.is_first:
                return
            tree = {"parameters": self.state.parameters, "memory": self.state.memory}
            extra = {"iteration": self.state.iteration, "loss": self.loss}
            save_checkpoint(path, tree, self._about(), extra)

    def _resume(self, path: Path) -> None:
        """Go on from the state on disk, if there is one where process 0 looks."""
        tree = {"parameters": self.state.parameters, "memory": self.state.memory}
        extra = None
        with self._peers.guard():
            if self._peers.is_first and path.is_dir():
                raise ValueError(f"{path}: expected a file to keep the search in, got a folder")
            if self._peers.is_first and path.exists():
                tree, extra = load_checkpoint(path, tree, self._about())
            extra = self._peers.exchange(extra)[0]
        if extra is None:
            return
        tree = from_first(tree) if self._peers.count > 1 else tree
        self.loss = float(extra["loss"])
        values = (self.loss,)
        self.state = StochasticState(**tree, iteration=int(extra["iteration"]), values=values)
