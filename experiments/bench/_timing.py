"""Timing on a machine that others use too: interleaved rounds, best of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


def best_seconds(
    candidates: Mapping[str, Callable[[], Any]], *, rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """Shortest time of each candidate.

    Every round runs all candidates, so that a slow spell of the machine falls on all of them; the
    best of many rounds is the time least disturbed by it. Within a round a candidate runs twice
    in a row: the first run after another candidate's pays for the memory that one gave back.
    """
    for run in candidates.values():
        for _ in range(warm_up):
            jax.block_until_ready(run())
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            for _ in range(2):
                started = time.perf_counter()
                jax.block_until_ready(run())
                times[name].append(time.perf_counter() - started)
    return {name: min(values) for name, values in times.items()}


def fitted_slope(sizes: list[int], seconds: list[float]) -> float:
    """Exponent p of the least-squares fit seconds ∝ sizeᵖ (a line on log–log axes)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
