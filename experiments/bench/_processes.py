"""The objective by two processes on two cores, against one process pinned to one core."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COPIES = 10
"""Times that CoNLL-2000 is replicated."""

SECONDS = 20.0
"""Of evaluations, after one to compile and one to warm up."""

BAR = 1.6


def measure_processes(copies: int = COPIES, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Tokens a second of the objective and its gradient, as records for `Report.figure`.

    Each process has half of the corpus and one device, and is pinned to a core of its own; the
    gradient is all-reduced over loopback by gloo. The one process has all of the corpus.

    Args:
        copies: of the corpus.
        seconds: to go on evaluating for.

    Returns:
        Records with the entries metric, value, at_least and what it was measured on. The value is
        None where the corpus or a second core is missing.
    """
    metric = "tokens a second of the objective: 2 processes on 2 cores / 1 on 1"
    corpus = Path(os.environ.get("JAXSEQ_DATA", "data")) / "conll2000/train.txt"
    about = {"corpus": f"CoNLL-2000 train, {copies} times", "weights": "mixed", "l2": 1}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not corpus.is_file() or len(cores) < 2:
        needs = "the corpora, by JAXSEQ_DATA" if len(cores) > 1 else "two cores"
        return [{"metric": metric, "value": None, "at_least": BAR, "needs": needs, **about}]
    one = _run(1, cores, copies, seconds)[0]
    two = _run(2, cores, copies, seconds)[0]
    return [
        {
            "metric": metric,
            "value": two["tokens_per_second"] / one["tokens_per_second"],
            "at_least": BAR,
            **about,
            "tokens": one["tokens"],
            "one_process": one["tokens_per_second"],
            "two_processes": two["tokens_per_second"],
            "all_reduced_bytes": two["all_reduced_bytes"],
            "all_reduce_seconds": two["all_reduce_seconds"],
            "attributes_per_token": one["attributes_per_token"],
            "labels": one["labels"],
            "relative_difference_of_loss": abs(two["loss"] / one["loss"] - 1),
        }
    ]


def _run(count: int, cores: list[int], copies: int, seconds: float) -> list[dict[str, Any]]:
    """What each of so many processes measured."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running = []
    for index in range(count):
        call = f"evaluate({port}, {count}, {index}, {cores[index]}, {copies}, {seconds})"
        code = f"from experiments.bench import _processes; _processes.{call}"
        command = [sys.executable, "-c", code]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    told = [process.communicate()[0] for process in running]
    failed = [process.returncode for process in running if process.returncode]
    if failed:
        raise RuntimeError(f"{count} processes: expected them to end well, got {failed}")
    return [json.loads(text.splitlines()[-1]) for text in told]


# ------------------------------------------------------------------------- in their own processes


def evaluate(port: int, count: int, index: int, core: int, copies: int, seconds: float) -> None:
    """Time the objective on this process's part of the corpus; print what was measured."""
    os.sched_setaffinity(0, {core})
    import jax

    from jaxseq.parallel import all_peers, join_processes, leave_processes, make_mesh

    if count > 1:
        join_processes(f"127.0.0.1:{port}", count, index)
    mesh = make_mesh()
    objective, point, facts = _objective(count, index, copies, mesh)
    tokens = facts["tokens"]
    for _ in range(2):
        value, gradient = objective(point)
    times = 3 + int(seconds / _longest(objective, point, count))
    began = time.perf_counter()
    for _ in range(times):  # by number, not by the clock: all must make as many
        value, gradient = objective(point)
    taken = time.perf_counter() - began
    reduced = sum(leaf.nbytes for leaf in jax.tree.leaves(gradient))
    found = {
        **facts,
        "tokens_per_second": tokens * times / taken,
        "loss": float(value),
        "all_reduced_bytes": reduced,
        "all_reduce_seconds": _all_reduce_seconds(reduced, mesh),
    }
    print(json.dumps(found), flush=True)
    leave_processes(all_peers())


def _all_reduce_seconds(bytes: int, mesh: Any, times: int = 10) -> float:
    """Of so many bytes and nothing else, the median of some times."""
    import jax
    import numpy as np
    from jax.sharding import PartitionSpec

    from jaxseq.parallel import DATA, own_rows, place_rows

    array = place_rows([np.ones(bytes // 4, np.float32) for _ in own_rows(mesh)], mesh)
    spec = PartitionSpec(DATA)
    add = jax.jit(
        jax.shard_map(
            lambda part: jax.lax.psum(part, DATA),
            mesh=mesh,
            in_specs=spec,
            out_specs=PartitionSpec(),
        )
    )
    found = []
    for _ in range(times + 2):
        began = time.perf_counter()
        jax.block_until_ready(add(array))
        found.append(time.perf_counter() - began)
    return float(np.median(found[2:]))


def _longest(objective: Any, point: Any, count: int) -> float:
    """Seconds of an evaluation, the most of all processes."""
    from jaxseq.parallel import all_peers

    began = time.perf_counter()
    objective(point)
    own = time.perf_counter() - began
    return max(all_peers().exchange(own)) if count > 1 else own


def _objective(count: int, index: int, copies: int, mesh: Any) -> tuple[Any, Any, dict[str, float]]:
    """The objective on every count-th sentence of the copies, its starting point, and facts."""
    import jax.numpy as jnp
    import numpy as np

    from jaxseq.crf import (
        EncodedLabels,
        Objective,
        Spread,
        lay_out,
        make_shards,
        observed_places,
        padded_labels,
    )
    from jaxseq.text import CONLL2000, TemplateExtractor, read_conll, token_rows

    path = Path(os.environ.get("JAXSEQ_DATA", "data")) / "conll2000/train.txt"
    sentences = read_conll(path, ("word", "pos", "chunk"))
    extractor = TemplateExtractor(CONLL2000)
    features = extractor.fit_transform([sentence.without("chunk") for sentence in sentences])
    tags = [tag for sentence in sentences for tag in sentence["chunk"]]
    classes = sorted(set(tags))
    number = {label: place for place, label in enumerate(classes)}
    gold = np.array([number[tag] for tag in tags], np.int32)
    attributes, s = extractor.attribute_count, len(classes)
    places = observed_places(features.ids, gold, None, attributes, s, dense_from=10)
    spread = Spread(attributes=attributes, labels=s, places=jnp.asarray(places, jnp.int32))
    chosen = np.tile(np.arange(len(sentences)), copies)[index::count]
    part = features.take(chosen)
    labels = EncodedLabels(gold[token_rows(features.lengths, chosen)], None)
    shards = make_shards(lay_out(part.lengths, 1), part, attributes, labels)
    objective = Objective(shards, spread, 1.0, mesh=mesh)
    point = objective.place(spread.zeros())
    facts = {
        "tokens": len(tags) * copies,
        "attributes_per_token": float((np.asarray(features.ids) >= 0).sum() / len(tags)),
        "labels": padded_labels(s),
    }
    return objective, point, facts
