"""What this machine has and what jaxseq will use of it, without computing anything."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from jaxseq.batch._cores import usable_cores
from jaxseq.native import why_not

NEEDED = ("jaxseq", "jax", "jaxlib", "numpy", "equinox", "optax", "safetensors", "scipy")
OPTIONAL = (
    "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu", "python-crfsuite",
    "matplotlib",
)  # fmt: skip
PREFIXES = ("JAX_", "XLA_", "JAXSEQ_", "NCCL_", "LIBTPU_")
NAMES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_GPU_ALLOCATOR")
GIGA = 1 << 30


def collect_facts(
    environment: Mapping[str, str] = os.environ,
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Facts by topic, ready for JSON; what is worth knowing; and what is wrong."""
    notes: list[str] = []
    problems: list[str] = []
    devices = _devices(problems)
    facts = {
        "versions": _versions(),
        "devices": devices,
        "machine": _machine(),
        "compilation_cache": _cache(notes, problems),
        "numbers": _numbers(devices, notes),
        "jaxseq": _used(devices),
        "environment": _variables(environment),
        "distributed": _distributed(environment, problems),
    }
    if Path("/dev/nvidia0").exists() and not any(d["platform"] == "gpu" for d in devices):
        notes.append("there is an NVIDIA GPU that JAX does not see; pip install 'jax[cuda12]'")
    return facts, notes, problems


def _setting(name: str) -> Any:
    """Of JAX."""
    return getattr(jax.config, name)


def default_devices() -> list[Any]:
    """The first device of each platform that is there, the default one first."""
    try:
        found = [jax.devices()[0]]
    except RuntimeError:
        return []
    if found[0].platform != "cpu":
        with contextlib.suppress(RuntimeError):  # where JAX_PLATFORMS leaves it out
            found.append(jax.devices("cpu")[0])
    return found


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in (*NEEDED, *OPTIONAL):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if found["jaxseq"] is None:
        found["jaxseq"] = "(not installed)"
    return found


def _devices(problems: list[str]) -> list[dict[str, Any]]:
    try:
        devices = jax.devices()
    except RuntimeError as error:
        problems.append(f"JAX finds no device: {' '.join(str(error).split())[:300]}")
        return []
    return [
        {
            "id": device.id,
            "platform": device.platform,
            "kind": device.device_kind,
            "process": device.process_index,
            "memory": _memory_of(device),
        }
        for device in devices
    ]


def _memory_of(device: Any) -> str | None:
    """Bytes that the device lets JAX have; None where it does not say."""
    try:
        limit = (device.memory_stats() or {}).get("bytes_limit")
    except (RuntimeError, NotImplementedError):  # of a platform that does not know, or of others
        return None
    return None if limit is None else f"{limit / GIGA:.1f} GiB"


def _machine() -> dict[str, Any]:
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIGA:.1f} GiB"
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "cores usable": usable_cores(),
        "memory": memory,
    }


def _cache(notes: list[str], problems: list[str]) -> dict[str, Any]:
    """JAX's persistent compilation cache."""
    place = _setting("jax_compilation_cache_dir")
    on = bool(_setting("jax_enable_compilation_cache") and place)
    if not on:
        notes.append("programs are compiled anew in every process; JAX_COMPILATION_CACHE_DIR=DIR "
                     "keeps them")  # fmt: skip
        return {"on": False, "folder": place, "files": None, "size": None}
    folder = Path(str(place))
    files = [file for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []
    if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK)):
        problems.append(f"{folder}: expected a folder that can be written, for compiled programs")
    size = sum(file.stat().st_size for file in files)
    return {"on": True, "folder": str(folder), "files": len(files), "size": f"{size / 1e6:.1f} MB"}


def _numbers(devices: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    wide = bool(_setting("jax_enable_x64"))
    if wide and any(device["platform"] == "tpu" for device in devices):
        notes.append("64-bit numbers are on: TPUs emulate float64; keep models in float32")
    return {
        "default float": "float64" if wide else "float32",
        "64-bit numbers (jax_enable_x64)": wide,
        "precision of products": str(_setting("jax_default_matmul_precision") or "default"),
    }


def _used(devices: list[dict[str, Any]]) -> dict[str, Any]:
    """What the library's defaults come to here."""
    if not devices:
        return {}
    on_cpu = devices[0]["platform"] == "cpu"
    return {
        "device": f"{devices[0]['platform']} ({devices[0]['kind']})",
        "engine": "auto: scaled space, log space for what underflows",
        "batches": _kernels(on_cpu),
        "rows at a time": "blocks that fit the cache" if on_cpu else "all",
        "shards of a corpus": usable_cores(),
        "shards at a time": usable_cores() if on_cpu else 1,
    }


def _kernels(on_cpu: bool) -> str:
    """What runs the scaled space of batches."""
    why = why_not() if on_cpu else "for CPUs alone"
    return "kernels in C++" if why is None else f"by XLA; no kernels in C++: {why}"


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    chosen = (name for name in environment if name.startswith(PREFIXES) or name in NAMES)
    return {name: environment[name] for name in sorted(chosen)}


def _distributed(environment: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Whether training would join other processes."""
    from jaxseq.scale._start import find_meeting

    try:
        meeting = find_meeting(None, None, None, environment)
    except ValueError as error:
        problems.append(str(error))
        return {"other processes": "the environment contradicts itself"}
    if meeting is None:
        return {"other processes": False}
    if meeting.coordinator is None:
        names = ("SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
        return {"other processes": "by SLURM", **{name: environment.get(name) for name in names}}
    return {
        "other processes": "by JAX_* variables",
        "coordinator": meeting.coordinator,
        "processes": meeting.count,
        "this one": meeting.index,
    }
