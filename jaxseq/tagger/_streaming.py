"""Training from shards on disk, by mini-batches, with one shard in memory at a time."""

from __future__ import annotations

import hashlib
import numbers
import os
import time
from dataclasses import replace
from typing import Any

from jax.sharding import Mesh

from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._streamed_corpus import StreamedCorpus
from jaxseq.scale import DATA, MODEL, Peers
from jaxseq.scale._mesh import check_mesh, own_rows
from jaxseq.tagger._alike import OF_EACH
from jaxseq.tagger._checks import check_number
from jaxseq.tagger._labels import legal_by_scheme
from jaxseq.tagger._plan import Plan, plan_of
from jaxseq.tagger._streaming_search import StreamedSearch
from jaxseq.tagger._streaming_weights import spread_of_shards
from jaxseq.tagger._tagger import CRFTagger
from jaxseq.tagger._together import Together
from jaxseq.text import TemplateExtractor


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
        mesh: with the axes of `jaxseq.scale.make_mesh`, to train on its devices; where it spans
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
        >>> from jaxseq.tagger._shard_writer import write_shards
        >>> corpus = [(["the", "dog"], ["D", "N"]), (["a", "cat"], ["D", "N"])]
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = write_shards(lambda: corpus, place + "/s", templates=["word[0]"])
        ...     tagger = train_from_shards(folder, jaxseq.CRFTagger(algorithm="adamw"))
        >>> tagger.predict([["the", "cat"]])
        [['D', 'N']]
    """
    tagger = CRFTagger(algorithm="adamw") if tagger is None else tagger
    began = time.perf_counter()
    peers = peers_of(mesh)
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
    tagger.loss_, tagger.outcome_ = search.loss, search.outcome.value
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
