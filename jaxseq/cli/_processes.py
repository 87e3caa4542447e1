"""Runs of several processes: options, the part of the corpus that each reads, and their end."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jaxseq.cli._corpus import Corpus, read_corpus

if TYPE_CHECKING:
    from jaxseq.scale import Peers

FAILED, REFUSED, INTERRUPTED = 1, 2, 130

FAREWELL_SECONDS = 2.0
"""How long process 0 stays after an error: when it goes, JAX ends the others in mid-sentence."""

ALONE = ("codl", "self_training", "choose_entropy_weight")
"""Ways of training a CRF that one process does alone."""


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a run one of several processes."""
    group = parser.add_argument_group(
        "several processes and devices",
        "Started once for each, with the same options but --process-id; each reads its own part of "
        "the corpus (whole files, or every Nth sentence), and process 0 writes. Without these "
        "options, the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID are "
        "looked at, and those of SLURM. JAX_NUM_CPU_DEVICES=N makes each use N cores. When a "
        "process ends early, or is not heard of for 45 seconds, the others end as well.",
    )
    add = group.add_argument
    add("--coordinator", metavar="HOST:PORT", help="where process 0 can be reached")
    add("--num-processes", type=int, metavar="N", help="how many there are")
    add("--process-id", type=int, metavar="I", help="which this is, 0 to N - 1")
    add(
        "--model-devices",
        type=int,
        metavar="N",
        help="share the weights out over N devices of a process, for a model that does not fit "
        "one; with --weights dense",
    )


def check_process_options(options: argparse.Namespace) -> None:
    """ValueError for what several processes cannot do together."""
    for name in ALONE:
        by_counting = name == "codl" and options.model == "hmm"
        if getattr(options, name, None) and not by_counting:
            flag = f"--{name.replace('_', '-')}"
            also = ", or with --model hmm" if name == "codl" else ""
            raise ValueError(f"{flag}: expected in a run of one process only{also}")
    if options.algorithm != "lbfgs" and options.shards is None:
        raise ValueError(
            "--algorithm: expected lbfgs with several processes, unless they train from --shards, "
            f"got {options.algorithm}"
        )


def check_model_devices(options: argparse.Namespace) -> None:
    """ValueError where weights cannot be shared out over so many devices."""
    count = options.model_devices
    if count is None:
        return
    if count < 1:
        raise ValueError(f"--model-devices: expected 1 or more, got {count}")
    for name in ALONE:
        if getattr(options, name, None):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"--model-devices: expected no {flag} along with it")
    if options.algorithm != "lbfgs":
        raise ValueError(f"--model-devices: expected --algorithm lbfgs, got {options.algorithm}")
    if count > 1 and options.weights != "dense":
        raise ValueError(f"--model-devices: expected --weights dense, got {options.weights}")
    import jax

    there = jax.local_device_count()
    if there % count:
        raise ValueError(
            f"--model-devices: expected a number that the {there} devices of this process can be "
            f"divided by, got {count} (JAX_NUM_CPU_DEVICES=N makes N of the cores)"
        )


def run_in_processes(
    options: argparse.Namespace, run: Callable[[argparse.Namespace, Peers | None], int]
) -> int:
    """Run a command in this process, and in those that it is told to join.

    A process that fails, or that loses another, says why in one line and ends at once: one that
    waited for the others would keep them waiting.
    """
    from jaxseq.scale import join_processes, leave_processes
    from jaxseq.scale._errors import in_words, is_lost

    def lost(index: int, reason: str) -> None:
        _leave(index, FAILED, _lost(options, reason))

    peers = join_processes(
        options.coordinator, options.num_processes, options.process_id, when_lost=lost
    )
    if peers is None or peers.count == 1:
        return run(options, peers)
    try:
        with peers.guard():
            check_process_options(options)
            peers.check_same("options", _shared_options(options))
        status = run(options, peers)
        sys.stdout.flush()
        leave_processes(peers)
        return status
    except KeyboardInterrupt:
        _leave(peers.index, INTERRUPTED, "interrupted")
    except Exception as error:
        if is_lost(error):
            _leave(peers.index, FAILED, _lost(options, str(error)))
        if isinstance(error, ValueError | OSError):
            _leave(peers.index, REFUSED, in_words(error))
        traceback.print_exc()  # nobody has thought of it, so that it has to be looked into
        _leave(peers.index, FAILED, in_words(error))


OF_EACH = ("process_id", "run", "usual", "out", "dev", "quiet", "json", "cores", "shards")
"""Options that may differ, as they change nothing that processes do together."""


def _shared_options(options: argparse.Namespace) -> dict[str, Any]:
    """What all processes must have been told alike: else one would wait for ever for the rest."""
    kept = {name: value for name, value in vars(options).items() if name not in OF_EACH}
    return {name: str(kept[name]) for name in sorted(kept)}


def _lost(options: argparse.Namespace, error: str) -> str:
    from jaxseq.scale._watch import LOST

    kept = ""
    if options.checkpoint is not None and os.path.exists(options.checkpoint):
        kept = f"; the search up to its last checkpoint is in {options.checkpoint}"
    reason = " ".join(error.split())
    return f"{LOST}{kept} ({reason:.200})"


_LEAVING = threading.Lock()
"""Taken for good by the thread that says why this process ends: there is one reason only."""


def _leave(index: int, status: int, message: str) -> NoReturn:
    """End this process without waiting for any other."""
    _LEAVING.acquire()
    line = " ".join(message.split("\n"))
    print(f"jaxseq: error: process {index}: {line}", file=sys.stderr, flush=True)
    if index == 0:
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


def on_all_devices(
    options: argparse.Namespace, peers: Peers | None, numbers: np.ndarray | None
) -> dict[str, Any]:
    """What `fit` is to be told of a run of several processes, or of weights in blocks."""
    several = peers is not None and peers.count > 1
    if not several and options.model_devices is None:
        return {}
    from jaxseq.scale import make_mesh

    mesh = make_mesh(model=options.model_devices or 1)
    return {"mesh": mesh, "sentence_numbers": numbers} if several else {"mesh": mesh}
