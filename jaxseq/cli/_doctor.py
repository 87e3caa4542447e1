"""``jaxseq doctor``: the versions, devices and folders that jaxseq uses on this machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

PACKAGES = (
    "jaxseq", "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu", "numpy",
    "equinox", "optax", "safetensors", "scipy", "scikit-learn",
)  # fmt: skip
PREFIXES = ("JAX_", "XLA_", "JAXSEQ_", "NCCL_", "LIBTPU_")  # of variables that matter
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_GPU_ALLOCATOR")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print the versions, devices and folders that jaxseq uses on this machine. Exit status 1 "
        "if something is wrong. Whether the results are right is for jaxseq verify."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    report = examine()
    print(json.dumps(report) if options.json else _text(report))
    return 1 if report["problems"] else 0


def examine(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Facts by topic, and ``"problems"``; ready for JSON."""
    import jax

    from jaxseq._runtime import usable_cores
    from jaxseq.native import why_not

    problems: list[str] = []
    try:  # JAX raises where JAX_PLATFORMS insists on what is not there
        devices = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
    except RuntimeError as error:
        problems.append(f"JAX finds no device: {' '.join(str(error).split())[:300]}")
        devices = []
    kernels = "for CPUs only"
    if devices and devices[0].startswith("cpu"):
        reason = why_not()  # compiles them, if that was never done on this machine
        kernels = "in C++" if reason is None else f"by XLA; none in C++: {reason}"
    system = f"{platform.system()} {platform.machine()}"
    chosen = sorted(n for n in environment if n.startswith(PREFIXES) or n in VARIABLES)
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {"system": system, "cores": os.cpu_count() or 1, "cores usable": usable_cores()},
        "devices": dict(enumerate(devices)),
        "jaxseq": {
            "kernels": kernels,
            "default float": str(jax.numpy.zeros(0).dtype) if devices else "unknown",
            "other processes": _meeting(environment, problems),
        },
        "folders": {
            "compiled programs": _cache_folder(problems),
            "data": environment.get("JAXSEQ_DATA", "none; JAXSEQ_DATA names one"),
        },
        "environment": {name: environment[name] for name in chosen},
        "problems": problems,
    }


def _versions() -> dict[str, str | None]:
    """None for an optional package, and for a checkout that is not installed."""
    installed = {package.name: package.version for package in distributions()}
    return {name: installed.get(name) for name in PACKAGES}


def _cache_folder(problems: list[str]) -> str:
    """Of JAX's persistent compilation cache."""
    import jax

    settings: Any = jax.config  # whose attributes type checkers do not know
    folder = settings.jax_compilation_cache_dir
    if not (folder and settings.jax_enable_compilation_cache):
        return "none; JAX_COMPILATION_CACHE_DIR names one"
    if Path(folder).exists() and not (Path(folder).is_dir() and os.access(folder, os.W_OK)):
        problems.append(f"{folder}: expected a folder that can be written, for compiled programs")
    return str(folder)


def _meeting(environment: Mapping[str, str], problems: list[str]) -> str:
    """Which run of several processes training would join."""
    from jaxseq.parallel import find_meeting

    try:
        meeting = find_meeting(None, None, None, environment)
    except ValueError as error:
        problems.append(str(error))
        return "the environment contradicts itself"
    if meeting is None:
        return "none"
    if meeting.coordinator is None:
        return f"by SLURM, job {environment.get('SLURM_JOB_ID')}"
    return f"at {meeting.coordinator}, {meeting.count} in all, this one is {meeting.index}"


def _text(report: dict[str, Any]) -> str:
    lines: list[str] = []
    for title, entries in report.items():
        if isinstance(entries, dict):
            width = max(map(len, map(str, entries)), default=0)
            shown = {name: "not installed" if v is None else v for name, v in entries.items()}
            lines += [title, *(f"  {name!s:<{width}}  {shown[name]}" for name in shown), ""]
    problems = report["problems"]
    return "\n".join(
        [*lines, "problems:", *problems] if problems else [*lines, "no problems found"]
    )
