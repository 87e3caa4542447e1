"""Training from shards on disk, by mini-batches, with one shard in memory at a time."""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jax.sharding import Mesh

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome
from jaxseq.crf import (
    Algorithm,
    CRFTagger,
    DescentStage,
    EncodedLabels,
    Legal,
    Objective,
    Plan,
    Problem,
    Spread,
    StochasticSettings,
    StochasticState,
    frequent_places,
    make_spread,
    run_stages,
    spread_from_places,
)
from jaxseq.parallel import Devices, off_mesh, own_rows, place
from jaxseq.shards._stream import StreamedCorpus
from jaxseq.taggers import check_number, check_paths_legal, legal_by_scheme
from jaxseq.text import TemplateExtractor, TokenFeatures

ASK_EVERY = 8
"""Steps of several processes between two times that they ask each other whether to stop, which
takes as long as a small step."""


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
        mesh: of `jaxseq.parallel.make_mesh`, to train on its devices; where it spans several
            processes, all call this together. A batch is what it is without a mesh. With
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
        ValueError: for shards that are not whole, an algorithm that needs the corpus at once, and
            settings that `CRFTagger.fit` refuses; of several processes, in all when in one.

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
    devices = Devices.from_mesh(mesh)
    with devices.agreeing():
        plan = Plan.from_tagger(tagger)
        if plan.algorithm == "lbfgs":
            raise ValueError(
                "algorithm: expected adamw or sgd, which work by mini-batches, got lbfgs"
            )
        if stop_after is not None and stop_after < 1:
            raise ValueError(f"stop_after: expected 1 or more, got {stop_after}")
        check_number("streams", streams, 1, numbers.Integral)
        corpus = StreamedCorpus(
            folder,
            batch_size=plan.batch_size,
            seed=plan.seed,
            streams=int(streams),
            places=1 if mesh is None else mesh.size,
            own=[0] if mesh is None else own_rows(mesh),
        )
        _check_alike(tagger, corpus, stop_after, devices)
        plan = plan.scaled(float(corpus.index.tokens))
        extractor = corpus.extractor()
        by_template = isinstance(extractor, TemplateExtractor)
        templates = extractor.templates if by_template else None
        # The shards were featurised with these, whatever the tagger was told.
        tagger.set_params(templates=templates, cutoff=corpus.index.features["cutoff"])
        legal = legal_by_scheme(corpus.classes, tagger.scheme)
        transitions = tagger._learns_transitions()
        spread = spread_over_shards(corpus, plan, transitions, legal, devices)
    stage = StreamedStage(corpus, plan, spread, legal, devices)
    start = spread.zeros(corpus.index.edge_attributes, plan.dtype)
    fitted = run_stages(
        [stage],
        start if mesh is None else place(start, mesh),
        SearchStore(plan.checkpoint, lambda: stage.fingerprint(), devices),
        keep_every=plan.checkpoint_every,
        title="training from shards",
        progress=plan.progress,
        devices=devices,
        ask_every=ASK_EVERY,
        stop_at=stop_after,
    )
    tagger._take(spread.model(off_mesh(fitted.parameters), legal), corpus.classes, extractor)
    tagger._report(fitted, plan)
    tagger.seconds_ = {"all": time.perf_counter() - began}
    return tagger


class StreamedStage(DescentStage):
    """The descent, a step of the corpus at a time.

    On a mesh each device works on its own rows of a batch, and the gradients are summed along
    ``"data"``; the parameters and what the optimiser remembers are on all devices.
    """

    def __init__(
        self,
        corpus: StreamedCorpus,
        plan: Plan,
        spread: Spread,
        legal: Legal | None,
        devices: Devices,
    ):
        self._corpus, self._plan, self._legal, self._devices = corpus, plan, legal, devices
        self._objective_of_batch = Objective([], spread, 0.0, legal, mesh=devices.mesh)
        # To the descent every step is an epoch of one batch: it can then be stopped, kept and
        # taken up after any of them. Its penalties are those of the whole corpus in batches.
        batches = corpus.num_batches
        settings = StochasticSettings(
            algorithm=cast(Algorithm, plan.algorithm),
            epochs=plan.epochs * batches,
            batches=1,
            learning_rate=plan.learning_rate,
            seed=plan.seed,
            l1=plan.settings.l1 / batches,
            l2=plan.l2 / batches,
            sentences=corpus.sentences / batches,
        )
        super().__init__(self._loss, settings, _check_finite)
        self._begun_at = 0

    def run(
        self, state: StochasticState, watch: Callable[[Any], bool]
    ) -> tuple[StochasticState, Outcome]:
        """The descent; values are the loss of the epoch so far, over its steps."""
        self._begun_at = state.iteration
        # A state on disk has the loss of the epoch so far, which the steps to come add to.
        loss = state.values[-1] if state.values else 0.0

        def with_loss(state: StochasticState) -> bool:
            nonlocal loss
            begins = (state.iteration - 1) % self._corpus.num_batches == 0
            loss = state.values[-1] + (0.0 if begins else loss)
            return watch(state._replace(values=(loss,)))

        state, outcome = super().run(state, with_loss)
        return state._replace(values=(loss,)), outcome

    def _loss(self, parameters: Any, _batch: int, step: int) -> tuple[Any, Any]:
        if self._devices.mesh is None:
            parts = [self._corpus.batch_at(step)]
        else:
            if step == self._begun_at or self._corpus.begins_shard(step):
                # Not at every step: to agree takes as long as a small step.
                with self._devices.agreeing():  # a shard that cannot be read is an error of all
                    self._corpus.open(step)
            parts = [self._corpus.batch_at(step, place) for place in self._corpus.own]
        self._objective_of_batch.take(parts)
        return self._objective_of_batch(parameters)

    def fingerprint(self) -> Fingerprint:
        """Says which training this is: the corpus, the settings, the weights that are learnt."""
        plan, index = self._plan, self._corpus.index
        files = [shard.sha256 for shard in index.shards]
        digest = Fingerprint("shards", index.vocabulary, files, index.classes, plan.weights)
        digest.add(plan.batch_size, plan.dtype, self._corpus.streams, self._settings)
        return digest.add(*(self._legal or ()))


def _check_finite(loss: float) -> None:
    if not np.isfinite(loss):
        raise ValueError(
            "learning_rate: expected one at which the loss falls, and labels that the scheme "
            f"allows, got a loss of {loss}"
        )


def _check_alike(
    tagger: CRFTagger, corpus: StreamedCorpus, stop_after: int | None, devices: Devices
) -> None:
    """ValueError unless all processes have the same settings, and shards of the same corpus."""
    if devices.is_alone:
        return
    index = corpus.index
    files = str(Fingerprint(index.classes, list(map(repr, index.shards))))
    corpora = {"vocabulary": index.vocabulary[:16], "files": files[:16]}
    devices.check_same("shards: the index", corpora)
    settings = tagger.get_params(deep=False)
    for name in ("templates", "cutoff"):  # those of the shards
        settings.pop(name)
    own = {"streams": corpus.streams, "stop_after": stop_after}
    devices.check_settings(settings, own, checkpoint=tagger.checkpoint)


def spread_over_shards(
    corpus: StreamedCorpus, plan: Plan, transitions: bool, legal: Legal | None, devices: Devices
) -> Spread:
    """Which weights are learnt, as `make_spread` would say of the whole corpus; ValueError for
    labels that use transitions which are not legal."""
    index, s = corpus.index, len(corpus.classes)
    by_pairs = plan.weights in ("observed", "mixed")
    rule = "observed" if by_pairs else plan.weights

    def learnt_from(features: TokenFeatures, labels: EncodedLabels) -> Spread:
        problem = Problem(
            features, labels, corpus.classes, index.attributes, index.edge_attributes,
            transitions, legal, None,
        )  # fmt: skip
        return make_spread(problem, rule)

    # Rules that do not depend on the data need none of them.
    nothing = TokenFeatures(np.zeros((0, 1), np.int32), None, np.zeros(0, np.int64), None)
    spread = learnt_from(nothing, EncodedLabels(np.zeros(0, np.int32), None))
    places, counts = np.zeros(0, np.int64), np.zeros(index.attributes, np.int64)
    learnt = np.zeros((s, s), bool)
    for number in _shards_to_look_at(corpus, devices):
        features, labels = corpus.part(number)
        # In any case: labels that the scheme forbids would make the loss infinite, hours later.
        check_paths_legal(labels, features.lengths, legal, corpus.classes)
        if by_pairs:
            part = learnt_from(features, labels)
            places = np.union1d(places, np.asarray(part.places))
            ids = np.asarray(features.ids)
            counts += np.bincount(ids[ids >= 0], minlength=index.attributes)
            learnt |= np.asarray(part.transitions)
    if not by_pairs:
        return spread
    # All processes exchange the same things in the same order, whatever they have looked at.
    places, learnt = devices.merge(places), devices.anywhere(learnt)
    if plan.weights == "mixed":
        places = np.union1d(places, frequent_places(devices.sum(counts), s))
        learnt = None if transitions else np.zeros((s, s), bool)
    return spread_from_places(index.attributes, s, places, learnt)


def _shards_to_look_at(corpus: StreamedCorpus, devices: Devices) -> list[int]:
    """The shards that it is this process's turn to look at."""
    # Shards that several processes can read are shared out by turns among those.
    readers = devices.peers.exchange(corpus.own_shards)
    turns = {}
    for number in corpus.own_shards:
        among = [process for process, shards in enumerate(readers) if number in shards]
        turns[number] = among[number // corpus.streams % len(among)]
    return [number for number, process in turns.items() if process == devices.peers.index]
