"""Runs of several processes: options, the part of the corpus that each reads, and their end."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jaxseq.cli._corpus import Corpus, read_corpus

if TYPE_CHECKING:
    from jaxseq.scale import Peers

LOST, REFUSED, INTERRUPTED = 1, 2, 130

FAREWELL_SECONDS = 2.0
"""How long process 0 stays after an error: when it goes, JAX ends the others in mid-sentence."""

ALONE = ("codl", "self_training", "choose_entropy_weight")
"""Ways of training that one process does alone."""


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a run one of several processes."""
    group = parser.add_argument_group(
        "several processes",
        "Started once for each, with the same options but --process-id; each reads its own part of "
        "the corpus (whole files, or every Nth sentence), and process 0 writes. Without these "
        "options, the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID are "
        "looked at, and those of SLURM. JAX_NUM_CPU_DEVICES=N makes each use N cores.",
    )
    add = group.add_argument
    add("--coordinator", metavar="HOST:PORT", help="where process 0 can be reached")
    add("--num-processes", type=int, metavar="N", help="how many there are")
    add("--process-id", type=int, metavar="I", help="which this is, 0 to N - 1")


def check_process_options(options: argparse.Namespace) -> None:
    """ValueError for what several processes cannot do together."""
    for name in ALONE:
        if getattr(options, name, None):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: expected in a run of one process only")
    if options.model != "crf":
        raise ValueError("--model: expected crf with several processes, got hmm")
    if options.algorithm != "lbfgs":
        raise ValueError(
            f"--algorithm: expected lbfgs with several processes, got {options.algorithm}"
        )


def run_in_processes(
    options: argparse.Namespace, run: Callable[[argparse.Namespace, Peers | None], int]
) -> int:
    """Run a command in this process, and in those that it is told to join.

    A process that fails, or that loses another, says why in one line and ends at once: one that
    waited for the others would keep them waiting.
    """
    from jaxseq.scale import join_processes, leave_processes

    peers = join_processes(options.coordinator, options.num_processes, options.process_id)
    if peers is None or peers.count == 1:
        return run(options, peers)
    import jax

    try:
        with peers.guard():
            check_process_options(options)
            peers.check_same("options", _shared_options(options))
        status = run(options, peers)
        sys.stdout.flush()
        leave_processes(peers)
        return status
    except (ValueError, OSError, jax.errors.JaxRuntimeError) as error:
        # JAX has different exceptions for a connection that broke.
        if isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error):
            _leave(peers, LOST, _lost(options, error))
        _leave(peers, REFUSED, str(error))
    except KeyboardInterrupt:
        _leave(peers, INTERRUPTED, "interrupted")


OF_EACH = ("process_id", "run", "usual", "out", "dev", "quiet", "json", "cores")
"""Options that may differ, as they change nothing that processes do together."""


def _shared_options(options: argparse.Namespace) -> dict[str, Any]:
    """What all processes must have been told alike: else one would wait for ever for the rest."""
    kept = {name: value for name, value in vars(options).items() if name not in OF_EACH}
    return {name: str(kept[name]) for name in sorted(kept)}


def _lost(options: argparse.Namespace, error: Exception) -> str:
    kept = ""
    if options.checkpoint is not None and os.path.exists(options.checkpoint):
        kept = f"; the search up to its last checkpoint is in {options.checkpoint}"
    reason = " ".join(str(error).split())
    return f"another process of this run has ended or cannot be reached{kept} ({reason:.200})"


def _leave(peers: Peers, status: int, message: str) -> NoReturn:
    """End this process without waiting for any other."""
    line = " ".join(message.split("\n"))
    print(f"jaxseq: error: process {peers.index}: {line}", file=sys.stderr, flush=True)
    if peers.is_first:
        time.sleep(FAREWELL_SECONDS)
    os._exit(status)


def read_training(
    files: Sequence[str], options: argparse.Namespace, peers: Peers | None
) -> tuple[Corpus, np.ndarray | None]:
    """The labelled sentences of this process, and their places in the whole corpus.

    With as many files as processes or more, each reads its own; with fewer, every Nth sentence of
    all. One process reads everything, and needs no places.
    """
    if peers is None or peers.count == 1:
        return _joined(_read_each(files, options)), None
    with peers.guard():
        if len(files) >= peers.count:
            own = _read_each(files[peers.index :: peers.count], options)
            corpus, numbers = _joined(own), _numbers_of_files(own, len(files), peers)
        else:
            corpus = _joined(_read_each(files, options, peers))
            count = len(corpus.sentences)
            numbers = peers.index + peers.count * np.arange(count, dtype=np.int64)
        peers.check_same(f"{', '.join(files)}: columns", list(corpus.names))
    return corpus, numbers


def _read_each(
    files: Sequence[str], options: argparse.Namespace, peers: Peers | None = None
) -> list[Corpus]:
    """The sentences of every file; with processes, those that are this one's turn."""
    found: list[Corpus] = []
    before = 0
    for path in files:
        part = None if peers is None else ((peers.index - before) % peers.count, peers.count)
        like = found[0].names if found else None
        corpus = read_corpus(path, options, scheme=options.scheme, like=like, part=part)
        found.append(corpus)
        before += corpus.whole
    return found


def _joined(corpora: list[Corpus]) -> Corpus:
    if len(corpora) == 1:
        return corpora[0]
    first = corpora[0]
    sentences = [sentence for corpus in corpora for sentence in corpus.sentences]
    labels = [each for corpus in corpora for each in corpus.labels]
    return Corpus(first.path, sentences, labels, first.names)


def _numbers_of_files(own: list[Corpus], files: int, peers: Peers) -> np.ndarray:
    """Places of the sentences of files that were dealt out by turns."""
    lengths = np.zeros(files, np.int64)
    lengths[peers.index :: peers.count] = [len(corpus.sentences) for corpus in own]
    starts = np.cumsum(peers.sum(lengths))
    starts = np.concatenate([np.zeros(1, np.int64), starts])[peers.index : files : peers.count]
    parts = [start + np.arange(len(c.sentences)) for start, c in zip(starts.tolist(), own)]
    return np.concatenate(parts).astype(np.int64)


def own_part(sentences: list[Any], peers: Peers | None) -> list[Any]:
    """Every Nth sentence of a list that all have."""
    return sentences if peers is None else sentences[peers.index :: peers.count]


def on_all_devices(peers: Peers | None, numbers: np.ndarray | None) -> dict[str, Any]:
    """What `CRFTagger.fit` is to be told of a run of several processes; nothing of one."""
    if peers is None or peers.count == 1:
        return {}
    from jaxseq.scale import make_mesh

    return {"mesh": make_mesh(), "sentence_numbers": numbers}
