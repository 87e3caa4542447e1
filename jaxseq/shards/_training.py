"""The descent on shards of a corpus, a step at a time, by one process or by several together."""

from __future__ import annotations

import hashlib
import numbers
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq._io import load_checkpoint, save_checkpoint
from jaxseq._runtime import Outcome, interrupts_deferred, progress_bar
from jaxseq.crf import (
    DENSE_FROM,
    Algorithm,
    CRFTagger,
    EncodedLabels,
    Legal,
    MeshObjective,
    Objective,
    Parameters,
    Plan,
    Problem,
    Spread,
    StochasticSettings,
    StochasticState,
    begin_descent,
    descend,
    make_spread,
    padded_labels,
    plan_of,
)
from jaxseq.parallel import (
    DATA,
    MODEL,
    Peers,
    check_mesh,
    from_first,
    in_host_memory,
    mesh_peers,
    off_mesh,
    own_rows,
    place,
)
from jaxseq.shards._files import StreamedCorpus
from jaxseq.taggers import OF_EACH, Together, check_number, check_paths_legal, legal_by_scheme
from jaxseq.text import TemplateExtractor, TokenFeatures

# -------------------------------------------------------------------------------------------------
# Which weights are learnt from shards on disk, of which one at a time is looked at.


def spread_of_shards(
    corpus: StreamedCorpus, plan: Plan, transitions: bool, legal: Legal | None, together: Together
) -> Spread:
    """Which weights are learnt, as `make_spread` would say of the whole.

    Args:
        corpus: the shards; each is looked at by one of the processes that read it.
        plan: how to search. transitions: whether they are learnt at all.
        legal: transitions that may be used; ValueError for labels that use others.
        together: the processes, which must call this together.
    """
    index, s = corpus.index, len(corpus.classes)
    by_pairs = plan.weights in ("observed", "mixed")
    rule = "observed" if by_pairs else plan.weights

    def learnt_from(features: TokenFeatures, labels: EncodedLabels) -> Spread:
        problem = Problem(
            features, labels, corpus.classes, index.attributes, index.edge_attributes,
            transitions, legal, None,
        )  # fmt: skip
        return make_spread(problem, rule)

    spread = learnt_from(*_no_sentence())
    places, counts = np.zeros(0, np.int64), np.zeros(index.attributes, np.int64)
    learnt = np.zeros((s, s), bool)
    for number in _looked_at(corpus, together):
        features, labels = corpus.part(number)
        check_paths_legal(labels, features.lengths, legal, corpus.classes)
        if by_pairs:
            found = learnt_from(features, labels)
            places = np.union1d(places, np.asarray(found.places))
            ids = np.asarray(features.ids)
            counts += np.bincount(ids[ids >= 0], minlength=index.attributes)
            learnt |= np.asarray(found.transitions)
    if not by_pairs:
        return spread
    places, learnt = together.places(places), together.peers.any(learnt)
    if plan.weights == "mixed":
        frequent = together.peers.sum(counts) >= DENSE_FROM
        rows = np.flatnonzero(frequent) * padded_labels(s)
        places = np.union1d(places, np.add.outer(rows, np.arange(s)).ravel())
        learnt = None if transitions else np.zeros((s, s), bool)
    return replace(
        spread,
        places=jnp.asarray(places, jnp.int32),
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


def _no_sentence() -> tuple[TokenFeatures, EncodedLabels]:
    features = TokenFeatures(np.zeros((0, 1), np.int32), None, np.zeros(0, np.int64), None)
    return features, EncodedLabels(np.zeros(0, np.int32), None)


def _looked_at(corpus: StreamedCorpus, together: Together) -> list[int]:
    """The shards that it is this process's turn to look at."""
    readers = together.peers.exchange(corpus.own_shards)
    turns = {}
    for number in corpus.own_shards:
        among = [process for process, shards in enumerate(readers) if number in shards]
        turns[number] = among[number // corpus.streams % len(among)]
    return [number for number, process in turns.items() if process == together.peers.index]


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
        self._peers = mesh_peers(plan.mesh)
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
        self.state = begin_descent(start, self._settings)
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
                descend(self._loss, self.state, self._settings, watch)
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


# -------------------------------------------------------------------------------------------------
# Training from shards on disk, by mini-batches, with one shard in memory at a time.


def train_from_shards(
    folder: str | os.PathLike[str],
    tagger: CRFTagger | None = None,
    *,
    stop_after: int | None = None,
    streams: int = 1,
    mesh: Mesh | None = None,
) -> CRFTagger:
    """Train a tagger on a corpus that does not fit into memory.

    Args:
        folder: of `write_shards`.
        tagger: not trained, for its settings: `algorithm` (``"adamw"`` or ``"sgd"``), `epochs`,
            `batch_size`, `learning_rate`, `seed`, `weights`, `l1`, `l2`, `scheme`, `dtype`,
            `progress`, `checkpoint` and `checkpoint_every`, which here counts steps. Its
            templates and cutoff become those of the shards. None for AdamW and the defaults.
        stop_after: steps to make, of all from the first on; None for all of the epochs. The
            learning rate falls as if none were left out.
        streams: shards that every batch has sentences of. Stream g of G goes through the shards
            whose number is g modulo G, beside the others.
        mesh: with the axes of `jaxseq.parallel.make_mesh`, to train on its devices; where it spans
            several processes, all call this together. A batch is what it is without a mesh. With
            `streams` = processes, process i looks at the shards of stream i alone, and need not
            have others; with more streams, at several; with fewer, processes share the rows of a
            stream, and all of them must see its shards. Each needs the index and the vocabulary.
            Process 0 alone reads and writes the checkpoint. A row of a batch has 128 tokens, or
            those of the longest sentence; with fewer rows than devices, some have nothing to do.

    Returns:
        The tagger, trained. With a checkpoint, training that was stopped (by `stop_after`, Ctrl-C
        or the end of the process) goes on from the last step kept, and ends with the same bits;
        on another number of devices or processes, with the same numbers up to rounding.

    Raises:
        ValueError: for shards that are not whole, an algorithm that needs the corpus at once, a
            mesh along ``"model"``, and what `CRFTagger.fit` refuses; of several processes, in all
            when in one.

    Cost: a step as in `CRFTagger.fit`, and reading each shard once an epoch; memory for the model,
    the optimiser and one shard of each stream. On a mesh, the gradient is all-reduced at each step.

    Example:
        >>> import tempfile, jaxseq
        >>> from jaxseq.shards import write_shards
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(lambda: corpus, place + "/s", templates=["word[0]"])
        ...     tagger = train_from_shards(folder, jaxseq.CRFTagger(algorithm="adamw"))
        >>> tagger.predict([["the", "cat"]])
        [['D', 'N']]
    """
    tagger = CRFTagger(algorithm="adamw") if tagger is None else tagger
    began = time.perf_counter()
    peers = mesh_peers(mesh)
    with peers.guard():
        plan = _plan(tagger, stop_after, mesh, peers)
        corpus = _corpus(folder, plan, streams)
        _check_alike(tagger, plan, corpus, stop_after, peers)
        extractor = corpus.extractor()
        by_template = isinstance(extractor, TemplateExtractor)
        templates = extractor.templates if by_template else None
        tagger.set_params(templates=templates, cutoff=corpus.index.features["cutoff"])
        legal = legal_by_scheme(corpus.classes, tagger.scheme)
        transitions = templates is None or templates.transitions
        spread = spread_of_shards(corpus, plan, transitions, legal, Together(peers))
    search = StreamedSearch(corpus, plan, spread, legal)
    search.run(corpus.num_batches * plan.epochs if stop_after is None else stop_after)
    tagger._take(spread.model(search.parameters, legal), corpus.classes, extractor)
    tagger.loss_, tagger.outcome_ = search.loss, search.outcome
    tagger.n_iter_ = tagger.n_evaluations_ = search.state.iteration
    tagger.seconds_ = {"all": time.perf_counter() - began}
    return tagger


def _plan(tagger: CRFTagger, stop_after: int | None, mesh: Mesh | None, peers: Peers) -> Plan:
    """How to search, checked."""
    plan = plan_of(tagger)
    if plan.algorithm == "lbfgs":
        raise ValueError("algorithm: expected adamw or sgd, which work by mini-batches, got lbfgs")
    if stop_after is not None and stop_after < 1:
        raise ValueError(f"stop_after: expected 1 or more, got {stop_after}")
    if mesh is None:
        return plan
    mesh = check_mesh(mesh)
    if mesh.shape[MODEL] > 1:
        raise ValueError(
            f"mesh: expected one device along {MODEL!r} to train from shards, got "
            f"{mesh.shape[MODEL]}"
        )
    return replace(plan, mesh=mesh, progress=plan.progress if peers.is_first else False)


def _corpus(folder: str | os.PathLike[str], plan: Plan, streams: int) -> StreamedCorpus:
    """The shards, with the places of a mesh where there is one."""
    check_number("streams", streams, 1, numbers.Integral)
    places, own = 1, [0]
    if plan.mesh is not None:
        places, own = plan.mesh.shape[DATA], own_rows(plan.mesh)
    return StreamedCorpus(
        folder,
        batch_size=plan.batch_size,
        seed=plan.seed,
        streams=int(streams),
        places=places,
        own=own,
    )


def _check_alike(
    tagger: CRFTagger, plan: Plan, corpus: StreamedCorpus, stop_after: int | None, peers: Peers
) -> None:
    """ValueError unless all processes have the same settings, and shards of the same corpus."""
    if peers.count == 1:
        return
    index = corpus.index
    files = hashlib.sha256(repr([index.classes, index.shards]).encode()).hexdigest()
    corpora = {"vocabulary": index.vocabulary[:16], "files": files[:16]}
    peers.check_same("shards: the index", corpora)
    from_shards = ("templates", "cutoff")
    told: dict[str, Any] = {
        name: str(value)
        for name, value in tagger.get_params(deep=False).items()
        if name not in (*OF_EACH, *from_shards)
    }
    told |= {"streams": corpus.streams, "stop_after": stop_after}
    told["checkpoint"] = "none" if plan.checkpoint is None else "given"
    peers.check_same("settings", told)
