"""Scale: two processes against one, one very long chain, and a model of what larger machines do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.bench._cost_model import (
    Machine,
    Work,
    all_reduce_seconds,
    predicted_tokens_per_second,
)
from experiments.bench._long_chain import measure_long_chain
from experiments.bench._processes import measure_processes
from experiments.bench._report import Report

GPU = Machine("GPU of 2 TB/s", flops=1e13, bandwidth=2e12, link=2e11, latency=1e-5)
"""Full-precision arithmetic on small matrices, and memory, of a data-centre GPU of 2021; the link
is what its kind reaches between neighbours in one box."""
NETWORK, NETWORK_LATENCY = 12.5e9, 5e-5
"""Bytes a second and seconds a message of an Ethernet of 100 Gbit/s."""
GPUS, HOSTS = 8, 256
REACHED = 0.1
"""Part of the roofline that gathers and scatters of short rows reach on a GPU: a guess, which no
run here can check."""
MODEL_BAR = 1.25
"""The model is right when what it foresees and what was measured differ by no more."""


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench scale``."""
    for metric, value, at_most, measured_on in measure_long_chain():
        report.figure(metric, value, at_most=at_most, **measured_on)
    for found in measure_processes():
        record: dict[str, Any] = dict(found)
        report.figure(record.pop("metric"), record.pop("value"), **record)
        if found["value"] is not None:
            _model(report, found)


def _model(report: Report, found: dict[str, Any]) -> None:
    """What the model says of this machine, checked, and of larger ones."""
    work = Work(
        found["tokens"], found["attributes_per_token"], found["labels"],
        found["all_reduced_bytes"] // 4,
    )  # fmt: skip
    each = found["one_process"]
    about = {
        "flops_per_token": round(work.flops_per_token),
        "bytes_per_token": round(work.bytes_per_token),
        "all_reduce_bytes_per_step": work.all_reduce_bytes,
        "steps_of_tokens": work.tokens,
    }
    report.figure("one core: gigabytes a second moved, on paper", each * work.bytes_per_token / 1e9,
                  gigaflops=each * work.flops_per_token / 1e9, **about)  # fmt: skip
    link = work.all_reduce_bytes / found["all_reduce_seconds"]
    foreseen = predicted_tokens_per_second(work, 2, each, link)
    off = max(foreseen, found["two_processes"]) / min(foreseen, found["two_processes"])
    report.figure(
        "two processes: foreseen and measured differ by a factor of", off, at_most=MODEL_BAR,
        foreseen=foreseen, measured=found["two_processes"], link=link,
        all_reduce_seconds=all_reduce_seconds(work, 2, link), **about,
    )  # fmt: skip
    gpu = REACHED * GPU.tokens_per_second(work)
    for name, devices, speed, link, latency in (
        (f"{GPUS} × {GPU.name}", GPUS, gpu, GPU.link, GPU.latency),
        (f"{HOSTS} hosts of 2 such cores, 100 Gbit/s", HOSTS, 2 * each, NETWORK, NETWORK_LATENCY),
    ):
        for copies in (1, 100):
            larger = Work(work.tokens * copies, work.attributes, work.labels, work.weights)
            total = predicted_tokens_per_second(larger, devices, speed, link, latency)
            report.figure(
                f"foreseen tokens a second, {name}, {larger.tokens:,} tokens a step",
                total,
                times_one_device=total / speed,
                all_reduce_seconds=all_reduce_seconds(larger, devices, link, latency),
                **about,
            )
