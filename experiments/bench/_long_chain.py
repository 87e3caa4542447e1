"""One very long chain: memory and time of its gradient against those of many short chains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq
from experiments.bench._timing import best_seconds

POSITIONS, LABELS = 1_000_000, 8
SHORT = 25
"""Positions of a short chain: the mean length of a sentence."""

MOST_GIGABYTES, MOST_TIMES = 2.0, 2.0


class Record(NamedTuple):
    """One figure, with the arguments that `Report.figure` takes."""

    metric: str
    value: float | None
    at_most: float | None
    measured_on: dict[str, Any]


def measure_long_chain(rounds: int = 10) -> list[Record]:
    """Peak memory, and time a token against a batch of short chains of as many tokens.

    Memory is that of a process which does nothing else, everything included: the interpreter, the
    compiler, the scores and the gradient. Times are the best of interleaved rounds in this one.
    """
    shape = {"positions": POSITIONS, "labels": LABELS, "dtype": "float32", "method": "blocked"}
    peak = _peak_gigabytes()
    seconds = best_seconds(
        {"long": partial(_gradient_of_long, *_scores()), "short": _gradient_of_short()},
        rounds=rounds,
    )
    per_token = {name: 1e9 * value / POSITIONS for name, value in seconds.items()}
    return [
        Record("gradient of log Z of one chain: peak gigabytes", peak, MOST_GIGABYTES, shape),
        Record(
            "gradient of log Z: one long chain / a batch of short chains, time a token",
            seconds["long"] / seconds["short"],
            MOST_TIMES,
            {**shape, "short": SHORT, "nanoseconds_per_token": per_token},
        ),
    ]


def _scores() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(POSITIONS, LABELS)).astype(np.float32) * 2
    return jnp.asarray(nodes), jnp.asarray(rng.normal(size=(LABELS, LABELS)).astype(np.float32))


@jax.jit
def _gradient_of_long(nodes: jax.Array, edges: jax.Array) -> Any:
    def log_z(nodes, edges):
        return jaxseq.log_partition(jaxseq.Chain(nodes, edges), method="blocked")

    return jax.value_and_grad(log_z, (0, 1))(nodes, edges)


def _gradient_of_short() -> partial[Any]:
    nodes, edges = _scores()

    @jax.jit
    def gradient(nodes, edges):
        total = lambda *scores: jaxseq.batch_log_partition(jaxseq.PaddedBatch(*scores)).sum()  # noqa: E731
        return jax.value_and_grad(total, (0, 1))(nodes, edges)

    return partial(gradient, nodes.reshape(-1, SHORT, LABELS), edges)


ALONE = """
import json, resource
import jax
from experiments.bench import _long_chain
value, gradient = jax.block_until_ready(_long_chain._gradient_of_long(*_long_chain._scores()))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"kilobytes": peak, "log_z": float(value)}))
"""


def _peak_gigabytes() -> float | None:
    """Of one gradient in a process of its own; None where the process failed."""
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    if done.returncode != 0:
        return None
    return json.loads(done.stdout.splitlines()[-1])["kilobytes"] * 1024 / 1e9
