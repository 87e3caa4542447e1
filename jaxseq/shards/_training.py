"""Training from shards on disk, by mini-batches, with one shard in memory at a time."""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome
from jaxseq.crf import (
    Algorithm,
    CRFTagger,
    DescentStage,
    EncodedLabels,
    Layout,
    Legal,
    Objective,
    Plan,
    Problem,
    Shard,
    ShardMaker,
    Spread,
    StochasticSettings,
    StochasticState,
    frequent_places,
    join_shards,
    lay_out,
    make_spread,
    run_stages,
    spread_from_places,
)
from jaxseq.parallel import Devices, off_mesh, own_rows, place
from jaxseq.shards._files import ShardIndex, check_shard, read_arrays, read_extractor, read_index
from jaxseq.taggers import check_number, check_paths_legal, legal_by_scheme
from jaxseq.text import FeatureExtractor, TemplateExtractor, TokenFeatures

# Which rows of a batch are whose, where many devices train on shards of one corpus.
#
# The shards of a corpus are dealt out to streams: stream g of G has those whose number is g modulo
# G, and a batch has rows of every stream. A place, one along ``"data"`` of a mesh, works on all
# rows of some streams, or where there are more places than streams, on some rows of one stream. So
# what a batch is depends on the number of streams, and not on that of places.


class Piece(NamedTuple):
    """What a place takes of a stream: of its rows in a batch, each `parts`-th from `part` on."""

    stream: int
    part: int = 0
    parts: int = 1


def deal_streams(streams: int, places: int) -> list[list[Piece]]:
    """The pieces of each place: neighbours have neighbouring streams, or share one."""
    if places <= streams:
        pieces: list[list[Piece]] = [[] for _ in range(places)]
        for stream in range(streams):
            pieces[stream * places // streams].append(Piece(stream))
        return pieces
    chosen = [place * streams // places for place in range(places)]
    return [
        [Piece(stream, place - chosen.index(stream), chosen.count(stream))]
        for place, stream in enumerate(chosen)
    ]


@dataclass(frozen=True)
class Place:
    """Where a step's batch is."""

    epoch: int
    shard: int
    batch: int | None  # within the shard; None where a stream has nothing for a step


class StreamedCorpus:
    """Mini-batches of a corpus on disk, with one shard of each stream in memory at a time.

    The batches of a shard are cut once and for all: its sentences are packed into rows, and the
    rows dealt out to batches of equal shape. An epoch goes through all shards in an order drawn
    from (seed, epoch), and through the batches of each in an order drawn from (seed, epoch,
    shard). So the batch of a step depends on the seed and the step alone: training that was
    stopped goes on at any step without knowing how it came there.

    Several streams go through shards of their own in this way, side by side, and a batch has rows
    of all of them. A stream with fewer batches than the longest has nothing for some steps, which
    are spread over the epoch. Neither depends on how many places there are.

    Args:
        folder: of `jaxseq shard`, or `jaxseq.shards.write_shards`.
        batch_size: sentences of a batch, about; more of them where sentences are short, and at
            least a row of each stream.
        seed: of the order, 0 or more.
        streams: shards that are gone through side by side, at most as many as there are.
        places: among which the rows of a batch are dealt out.
        own: those of this process, which looks for the shards of their streams alone.

    Raises:
        ValueError: for a folder without an index, and for a shard that is missing, cut off, changed
            or of another vocabulary, with the file; all are looked for at once, the content of
            each when it is first read.

    Cost: memory for the arrays of the shards at hand that are looked at, one of each stream: they
    are mapped.

    Example:
        >>> import tempfile
        >>> from jaxseq.shards import write_shards
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(lambda: corpus, place + "/shards", templates=["word[0]"])
        ...     streamed = StreamedCorpus(folder, batch_size=1)
        ...     streamed.sentences, streamed.classes, streamed.batch_at(0).segments.shape
        (2, ['D', 'N'], (1, 128))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        batch_size: int = 64,
        seed: int = 0,
        streams: int = 1,
        places: int = 1,
        own: Sequence[int] = (0,),
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, got {batch_size}")
        if seed < 0:
            raise ValueError(f"seed: expected 0 or more, got {seed}")
        self.folder, self.seed, self.streams = Path(folder), seed, streams
        self.index: ShardIndex = read_index(self.folder)
        if not 1 <= streams <= self.num_shards:
            raise ValueError(
                f"streams: expected 1 … {self.num_shards}, the number of shards in {folder}, got "
                f"{streams}"
            )
        self._pieces, self.own = deal_streams(streams, places), list(own)
        self._own_streams = {piece.stream for place in own for piece in self._pieces[place]}
        for number in self.own_shards:
            check_shard(self.folder, self.index, self.index.shards[number])
        rows = sum(shard.rows for shard in self.index.shards)
        share = rows * batch_size / max(1, self.sentences)
        self.rows_of_stream = max(1, round(share / streams))
        self._batches = np.array([-(-s.rows // self.rows_of_stream) for s in self.index.shards])
        self._checked: set[int] = set()  # shards whose content was seen to be that of the index
        self._held: dict[int, tuple[int, ShardMaker]] = {}  # stream → its shard at hand
        self._drawn: tuple[int, list[np.ndarray]] | None = None  # the last epoch and its orders
        self.loads = 0  # how often a shard was opened

    @property
    def classes(self) -> list[str]:
        """The labels."""
        return self.index.classes

    @property
    def sentences(self) -> int:
        """Of the whole corpus."""
        return self.index.sentences

    @property
    def num_shards(self) -> int:
        """Files of the corpus."""
        return len(self.index.shards)

    @property
    def num_batches(self) -> int:
        """Batches, and so steps, of an epoch."""
        return max(int(self._batches[g :: self.streams].sum()) for g in range(self.streams))

    @property
    def own_shards(self) -> list[int]:
        """The numbers of those that this process reads."""
        shards = range(self.num_shards)
        return [number for number in shards if number % self.streams in self._own_streams]

    def extractor(self) -> FeatureExtractor:
        """What the corpus was featurised by, with its vocabulary."""
        return read_extractor(self.folder, self.index)

    def _orders(self, epoch: int) -> list[np.ndarray]:
        """The shards of each stream, in the order of an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            drawn = np.random.default_rng([self.seed, epoch]).permutation(self.num_shards)
            orders = [drawn[drawn % self.streams == stream] for stream in range(self.streams)]
            self._drawn = epoch, orders
        return self._drawn[1]

    def locate(self, step: int, stream: int = 0) -> Place:
        """Where the batch of a step is, or a stream's rows of it."""
        if step < 0:
            raise ValueError(f"step: expected 0 or more, got {step}")
        epoch, position = divmod(step, self.num_batches)
        order = self._orders(epoch)[stream]
        ends = np.cumsum(self._batches[order])
        # The stream's batches spread over the steps of the epoch, as Bresenham draws a line.
        number, after = (p * int(ends[-1]) // self.num_batches for p in (position, position + 1))
        turn = int(np.searchsorted(ends, number, side="right"))
        shard = int(order[turn])
        if after == number:
            return Place(epoch, shard, None)
        within = number - int(ends[turn] - self._batches[shard])
        random = np.random.default_rng([self.seed, epoch, shard])
        return Place(epoch, shard, int(random.permutation(self._batches[shard])[within]))

    def begins_shard(self, step: int) -> bool:
        """Whether any stream, of any process, goes on to another shard at a step."""
        epoch, position = divmod(step, self.num_batches)
        for order in self._orders(epoch):
            ends = np.cumsum(self._batches[order])
            first = -((self._batches[order] - ends) * self.num_batches // ends[-1])
            if position in first:
                return True
        return False

    def open(self, step: int) -> None:
        """Have the shards at hand that this process needs for a step."""
        for stream in self._own_streams:
            self._maker(stream, self.locate(step, stream).shard)

    def batch_at(self, step: int, place: int = 0) -> Shard:
        """The batch of a step, or a place's rows of it; all have the same shape."""
        pieces = self._pieces[place]
        batches = [self._piece_at(step, piece) for piece in pieces]
        # Places with fewer streams than others get empty rows: compiled programs want one shape.
        missing = max(map(len, self._pieces)) - len(pieces)
        batches += [self._piece_at(step, pieces[0], empty=True) for _ in range(missing)]
        return join_shards(batches)

    def batches(self, start: int, stop: int) -> Iterator[Shard]:
        """The batches of the steps from `start` on, up to the one before `stop`."""
        return (self.batch_at(step) for step in range(start, stop))

    def _piece_at(self, step: int, piece: Piece, empty: bool = False) -> Shard:
        place = self.locate(step, piece.stream)
        maker = self._maker(piece.stream, place.shard)
        number = maker.num_shards  # one past the last: a batch without a sentence
        if not empty and place.batch is not None:
            number = place.batch * piece.parts + piece.part
        batch = maker(number)
        missing = self.index.columns - batch.ids.shape[1]
        if not missing:
            return batch
        # As many columns as the widest shard has, again for the sake of one shape.
        width = ((0, 0), (0, missing))
        ids = jnp.pad(batch.ids, width, constant_values=self.index.attributes)
        batch = eqx.tree_at(lambda batch: batch.ids, batch, ids)
        if batch.values is None:
            return batch
        return eqx.tree_at(lambda batch: batch.values, batch, jnp.pad(batch.values, width))

    def _maker(self, stream: int, shard: int) -> ShardMaker:
        """Of the batches of a stream's shard."""
        if stream not in self._held or self._held[stream][0] != shard:
            self._held.pop(stream, None)  # before the next is there: there are never two
            self._held[stream] = shard, self._open_shard(shard)
        return self._held[stream][1]

    def part(self, number: int) -> tuple[TokenFeatures, EncodedLabels]:
        """Features and labels of a shard, mapped.

        Its labels are never None where any shard of the corpus has some that are not known.
        """
        unread = number not in self._checked
        arrays = read_arrays(self.folder, self.index, self.index.shards[number], check=unread)
        self._checked.add(number)
        self.loads += 1
        lengths, gold = np.array(arrays["lengths"]), np.array(arrays["gold"])
        values = arrays.get("values")
        if values is None and self.index.weighted:
            values = (arrays["ids"] >= 0).astype(np.float32)  # as other shards have them
        features = TokenFeatures(arrays["ids"], values, lengths, arrays.get("edge_ids"))
        allowed = arrays.get("allowed")
        if allowed is None and self.index.partial:
            allowed = gold[:, None] == np.arange(len(self.classes))
        return features, EncodedLabels(gold, allowed)

    def _open_shard(self, number: int) -> ShardMaker:
        """Of the batches of a shard; part p of P of batch b is made as number b·P + p."""
        features, labels = self.part(number)
        layout = lay_out(features.lengths, int(self._batches[number]), width=self.index.width)
        every = [piece for pieces in self._pieces for piece in pieces]
        # Rows enough for the stream with fewest parts: again one shape for all.
        rows = -(-self.rows_of_stream // min(piece.parts for piece in every))
        parts = next(p.parts for p in every if p.stream == number % self.streams)
        row, offset = np.divmod(layout.slot, layout.width)
        shard, slot = layout.shard * parts + row % parts, row // parts * layout.width + offset
        layout = Layout(shard, slot, rows, layout.width, rows * layout.width)
        return ShardMaker(layout, features, self.index.attributes, labels)


# ------------------------------------------------------------------------- training from shards

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
        chosen = corpus.classes if tagger.classes is None else sorted(set(tagger.classes))
        if chosen != corpus.classes:
            raise ValueError(
                "classes: expected None, or the labels of the shards, "
                f"{', '.join(corpus.classes)}, got {', '.join(chosen)}"
            )
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
