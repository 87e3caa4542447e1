"""Training from shards on disk, by mini-batches, with one shard in memory at a time."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from jaxseq.learn import _stochastic
from jaxseq.learn._checkpoint import load_checkpoint, save_checkpoint
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._objective import Objective
from jaxseq.learn._parameters import Legal, Spread
from jaxseq.learn._progress import progress_bar
from jaxseq.learn._stochastic import Algorithm, StochasticSettings, StochasticState
from jaxseq.learn._streamed_corpus import StreamedCorpus
from jaxseq.models._linear import padded_labels
from jaxseq.tagger._labels import check_paths_legal, legal_by_scheme
from jaxseq.tagger._plan import Plan, plan_of
from jaxseq.tagger._problem import DENSE_FROM, Problem, make_spread
from jaxseq.tagger._tagger import CRFTagger
from jaxseq.text import TemplateExtractor


def train_from_shards(
    folder: str | os.PathLike[str],
    tagger: CRFTagger | None = None,
    *,
    stop_after: int | None = None,
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

    Returns:
        The tagger, trained. With a checkpoint, training that was stopped (by `stop_after`, Ctrl-C
        or the end of the process) goes on from the last step kept, and ends with the same bits.

    Raises:
        ValueError: for shards that are not whole, an algorithm that needs the corpus at once, and
            what `CRFTagger.fit` refuses.

    Cost: a step as in `CRFTagger.fit`, and reading each shard once an epoch; memory for the model,
    the optimiser and one shard.

    Example:
        >>> import tempfile, jaxseq
        >>> from jaxseq.tagger._shard_writer import write_shards
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(lambda: corpus, place + "/s", templates=["word[0]"])
        ...     tagger = train_from_shards(folder, jaxseq.CRFTagger(algorithm="adamw"))
        >>> tagger.predict([["the", "cat"]])
        [['D', 'N']]
    """
    tagger = CRFTagger(algorithm="adamw") if tagger is None else tagger
    plan = plan_of(tagger)
    if plan.algorithm == "lbfgs":
        raise ValueError("algorithm: expected adamw or sgd, which work by mini-batches, got lbfgs")
    if stop_after is not None and stop_after < 1:
        raise ValueError(f"stop_after: expected 1 or more, got {stop_after}")
    began = time.perf_counter()
    corpus = StreamedCorpus(folder, batch_size=plan.batch_size, seed=plan.seed)
    extractor = corpus.extractor()
    by_template = isinstance(extractor, TemplateExtractor)
    templates = extractor.templates if by_template else None
    tagger.set_params(templates=templates, cutoff=corpus.index.features["cutoff"])
    legal = legal_by_scheme(corpus.classes, tagger.scheme)
    transitions = templates is None or templates.transitions
    spread = _spread_of(corpus, plan, transitions, legal)
    search = _Search(corpus, plan, spread, legal)
    search.run(corpus.num_batches * plan.epochs if stop_after is None else stop_after)
    state = search.state
    tagger._take(spread.model(state.parameters, legal), corpus.classes, extractor)
    tagger.loss_, tagger.outcome_ = search.loss, search.outcome.value
    tagger.n_iter_, tagger.n_evaluations_ = state.iteration, state.iteration
    tagger.seconds_ = {"all": time.perf_counter() - began}
    return tagger


def _spread_of(
    corpus: StreamedCorpus, plan: Plan, transitions: bool, legal: Legal | None
) -> Spread:
    """Which weights are learnt, as `make_spread` would say of the whole; one shard at a time."""
    index, s = corpus.index, len(corpus.classes)
    by_pairs = plan.weights in ("observed", "mixed")
    places, counts = np.zeros(0, np.int64), np.zeros(index.attributes, np.int64)
    found: Spread | None = None
    learnt = np.zeros((s, s), bool)
    for number in range(corpus.num_shards):
        features, labels = corpus.part(number)
        check_paths_legal(labels, features.lengths, legal, corpus.classes)
        if found is not None and not by_pairs:
            continue
        problem = Problem(
            features, labels, corpus.classes, index.attributes, index.edge_attributes,
            transitions, legal, None,
        )  # fmt: skip
        found = make_spread(problem, "observed" if by_pairs else plan.weights)
        if by_pairs:
            places = np.union1d(places, np.asarray(found.places))
            ids = np.asarray(features.ids)
            counts += np.bincount(ids[ids >= 0], minlength=index.attributes)
            learnt |= np.asarray(found.transitions)
    assert found is not None
    if not by_pairs:
        return found
    if plan.weights == "mixed":
        frequent = np.flatnonzero(counts >= DENSE_FROM) * padded_labels(s)
        places = np.union1d(places, np.add.outer(frequent, np.arange(s)).ravel())
        learnt = None if transitions else np.zeros((s, s), bool)
    return replace(
        found,
        places=jnp.asarray(places, jnp.int32),
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


class _Search:
    """The descent, a step of the corpus at a time."""

    def __init__(self, corpus: StreamedCorpus, plan: Plan, spread: Spread, legal: Legal | None):
        self._corpus, self._plan = corpus, plan
        self._objective = Objective([], spread, 0.0, legal)
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
        self._start = spread.zeros(corpus.index.edge_attributes, plan.dtype)
        self.state = _stochastic.begin(self._start, self._settings)
        self.loss, self.outcome = 0.0, Outcome.MAX_ITERATIONS

    def run(self, stop: int) -> None:
        """All steps before `stop`, from the one that is kept, or the first, on."""
        path = None if self._plan.checkpoint is None else Path(self._plan.checkpoint)
        if path is not None and path.is_dir():
            raise ValueError(f"{path}: expected a file to keep the search in, got a folder")
        if path is not None and path.exists():
            self._resume(path)
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
                return state.iteration >= steps or pressed()

            if self.state.iteration < steps:
                _stochastic.descend(self._loss, self.state, self._settings, watch)
        finished = self.state.iteration >= self._settings.epochs
        self.outcome = Outcome.MAX_ITERATIONS if finished else Outcome.INTERRUPTED
        if path is not None and finished:
            path.unlink(missing_ok=True)
        elif path is not None:
            self._keep(path)

    def _loss(self, parameters: Any, _batch: int, step: int) -> tuple[Any, Any]:
        self._objective.take([self._corpus.batch_at(step)])
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
        digest = hashlib.sha256(repr([*parts, self._settings, index.classes]).encode())
        for mask in self._objective.legal or ():
            digest.update(np.asarray(mask).tobytes())
        return digest.hexdigest()

    def _keep(self, path: Path) -> None:
        tree = {"parameters": self.state.parameters, "memory": self.state.memory}
        extra = {"iteration": self.state.iteration, "loss": self.loss}
        save_checkpoint(path, tree, self._about(), extra)

    def _resume(self, path: Path) -> None:
        tree = {"parameters": self.state.parameters, "memory": self.state.memory}
        tree, extra = load_checkpoint(path, tree, self._about())
        self.loss = float(extra["loss"])
        values = (self.loss,)
        self.state = StochasticState(**tree, iteration=int(extra["iteration"]), values=values)
