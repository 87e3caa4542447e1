"""``jaxseq doctor``: what this machine has, what jaxseq will use of it, and whether that works."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq
from jaxseq._runtime import usable_cores
from jaxseq.native import why_not

# -------------------------------------------------------------------------------------------------
# What this machine has and what jaxseq will use of it, without computing anything.


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
    from jaxseq.parallel import find_meeting

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


# -------------------------------------------------------------------------------------------------
# The self-check of ``jaxseq doctor``: a few answers known beforehand, and a speed.


TOLERANCE = 1e-4
"""Of float32, absolute, on chains of a few positions."""

ROWS, SLOTS, LABELS = 256, 128, 8
"""The batch whose speed is measured."""


class Finding(NamedTuple):
    """What a check found on a device. passed: None when it was not run, for want of time."""

    name: str
    device: str
    passed: bool | None
    said: str
    seconds: float


class CheckError(Exception):
    """Something is not as it ought to be."""


def run_checks(devices: Sequence[Any], seconds: float) -> list[Finding]:
    """Every check on every device, until the time is up; what goes wrong is a finding as well."""
    began = time.perf_counter()
    findings = []
    for device in devices:
        for name, check in CHECKS.items():
            start = time.perf_counter()
            if start - began > seconds:
                findings.append(Finding(name, device.platform, None, "", 0.0))
                continue
            try:
                with jax.default_device(device):
                    said, passed = check(), True
            except CheckError as error:
                said, passed = str(error), False
            except Exception as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                passed = False
            spent = round(time.perf_counter() - start, 3)
            findings.append(Finding(name, device.platform, passed, said, spent))
    return findings


def _agree(name: str, found: object, expected: object) -> None:
    """CheckError unless two arrays are close; NaN is close to nothing."""
    got, wanted = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if got.shape != wanted.shape:
        raise CheckError(f"{name}: expected shape {list(wanted.shape)}, got {list(got.shape)}")
    if not np.allclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE):
        worst = np.unravel_index(np.argmax(_distance(got, wanted)), got.shape)
        raise CheckError(f"{name}: expected {wanted[worst]:.6g}, got {got[worst]:.6g}")


def _distance(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    same = got == wanted  # infinities too
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0, np.abs(got - wanted))
    return np.where(np.isnan(gap), np.inf, gap)


def _check_inference() -> str:
    """Values and gradients of a padded chain with forbidden transitions, against enumeration."""
    from jaxseq.verify import Enumeration

    random = np.random.default_rng(0)
    nodes, edges = (random.normal(size=shape).astype(np.float32) for shape in ((6, 3), (3, 3)))
    edges[1, 2] = -np.inf
    table = Enumeration(nodes, edges, 5)

    @jax.jit
    def answers(nodes, edges, length):
        of = lambda f: lambda a, b: f(jaxseq.Chain(a, b, length))  # noqa: E731
        log_z, by_log_z = jax.value_and_grad(of(jaxseq.log_partition), (0, 1))(nodes, edges)
        entropy, by_entropy = jax.value_and_grad(of(jaxseq.entropy), (0, 1))(nodes, edges)
        best = jaxseq.viterbi(jaxseq.Chain(nodes, edges, length))[1]
        return log_z, by_log_z, entropy, by_entropy, best

    log_z, by_log_z, entropy, by_entropy, best = answers(nodes, edges, 5)
    by_node, by_edge = table.entropy_gradient()
    _agree("log Z", log_z, table.log_partition)
    _agree("gradient of log Z by nodes", by_log_z[0], table.node_marginals())
    _agree("gradient of log Z by edges", by_log_z[1], table.edge_marginals().sum(0))
    _agree("entropy", entropy, table.entropy())
    _agree("gradient of the entropy by nodes", by_entropy[0], by_node)
    _agree("gradient of the entropy by edges", by_entropy[1], np.asarray(by_edge))
    _agree("score of the best path", best, table.k_best_scores(1)[0])
    nothing = answers(np.full_like(nodes, -np.inf), edges, 5)
    _agree("log Z of an impossible chain", nothing[0], -np.inf)
    _agree("its gradient", nothing[1][0], np.zeros_like(nodes))
    return f"{len(table.paths)} labellings enumerated"


def _check_training() -> str:
    """A supervised step: the loss at 0 is known, and the gradient is its slope."""
    from jaxseq import crf
    from jaxseq.text import TokenFeatures

    ids = np.array([[0, 2], [1, 2], [0, 3], [1, 3]], np.int32)
    lengths = np.array([3, 1])
    features = TokenFeatures(ids, None, lengths, None)
    gold = crf.EncodedLabels(np.array([0, 1, 0, 1], np.int32), None)
    (shard,) = crf.make_shards(crf.lay_out(lengths, 1, width=8), features, 4, gold)
    spread = crf.Spread(attributes=4, labels=2)
    evaluate = jax.jit(lambda point: crf.entropy_regularised_gradient(point, [shard], [], spread))

    start = spread.zeros()
    loss, gradient = evaluate(start)
    _agree("loss of a model that knows nothing", loss, len(ids) * np.log(2))
    length = 0.1
    after = evaluate(jax.tree.map(lambda p, g: p - length * g, start, gradient))[0]
    before = evaluate(jax.tree.map(lambda p, g: p + length * g, start, gradient))[0]
    if not float(after) < float(loss):
        raise CheckError(f"a step along the gradient: expected a loss below {loss}, got {after}")
    squares = sum(float(jnp.vdot(leaf, leaf)) for leaf in jax.tree.leaves(gradient))
    slope = (float(before) - float(after)) / (2 * length)
    if not abs(slope - squares) <= 0.1 * squares:
        raise CheckError(f"gradient: expected a slope near {slope:.4g}, got {squares:.4g}")
    return f"loss {float(loss):.4f} to {float(after):.4f} in a step"


def _check_speed() -> str:
    """Marginals of a batch a core: they sum to 1, and how many tokens are done in a second."""
    from jaxseq._runtime import usable_cores

    random = np.random.default_rng(1)
    nodes = random.normal(size=(ROWS, SLOTS, LABELS)).astype(np.float32)
    batch = jaxseq.PaddedBatch(nodes, nodes[0, :LABELS])
    items = [batch] * (usable_cores() if jax.default_backend() == "cpu" else 1)
    (found, *_) = jaxseq.map_on_cores(jaxseq.batch_marginals, items)  # compiles
    _agree("sums of marginals", np.asarray(found.nodes).sum(2), np.ones((ROWS, SLOTS)))
    best, end = np.inf, time.perf_counter() + 0.5
    while time.perf_counter() < end or not np.isfinite(best):
        start = time.perf_counter()
        jaxseq.map_on_cores(jaxseq.batch_marginals, items)
        best = min(best, time.perf_counter() - start)
    rate = len(items) * ROWS * SLOTS / best
    return f"{rate / 1e6:.1f} million tokens/s, forward–backward with {LABELS} labels"


CHECKS: dict[str, Callable[[], str]] = {
    "inference": _check_inference,
    "training step": _check_training,
    "speed of the lattice": _check_speed,
}
"""Each says something about what it found, or raises; on JAX's default device."""


SECONDS = 10.0
"""Past this, no further check is begun."""


def add_doctor(subparsers: Any) -> None:
    """Add the parser of ``jaxseq doctor``."""
    parser = subparsers.add_parser(
        "doctor",
        help="devices, versions, caches and settings, and a quick self-check",
        description="Print what this machine has and what jaxseq will use of it, and run a "
        f"self-check of about {SECONDS:.0f} seconds. Exit status 1 when something is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, not text")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    report = examine()
    print(json.dumps(report, allow_nan=False) if options.json else as_text(report))
    return 0 if report["well"] else 1


def examine(seconds: float | None = None) -> dict[str, Any]:
    """Everything there is to say, ready for JSON; ``"well"`` says whether nothing is wrong.

    Args:
        seconds: no further check is begun after so many; None for `SECONDS`.
    """

    facts, notes, problems = collect_facts()
    findings = run_checks(default_devices(), SECONDS if seconds is None else seconds)
    for finding in findings:
        where = f"{finding.name} on {finding.device}: {finding.said}"
        if finding.passed is None:
            notes.append(f"not checked, for want of time: {finding.name} on {finding.device}")
        elif not finding.passed:
            problems.append(where)
    if not findings:
        problems.append("no device: nothing could be checked")
    checks = [finding._asdict() for finding in findings]
    well = {"notes": notes, "problems": problems, "well": not problems}
    return {**facts, "checks": checks, **well}


# ------------------------------------------------------------------------------------- text


def as_text(report: dict[str, Any]) -> str:
    """A report of `examine`, to be read."""
    lines: list[str] = []
    for title in ("versions", "devices", "machine", "compilation_cache", "numbers", "jaxseq"):
        lines += _section(title.replace("_", " "), report[title])
    lines += _section("environment", report["environment"] or {"(no variable that matters)": ""})
    lines += _section("distributed", report["distributed"])
    lines += ["", "self-check"]
    for check in report["checks"]:
        verdict = {True: "ok", False: "FAILED", None: "skipped"}[check["passed"]]
        seconds = f"{check['seconds']:.1f} s"
        lines.append(f"  {check['device']:<5} {check['name']:<22} {verdict:<8} {seconds:>7}  "
                     f"{check['said']}".rstrip())  # fmt: skip
    lines += [""] + [f"note: {note}" for note in report["notes"]]
    if report["well"]:
        whole = all(check["passed"] for check in report["checks"])
        return "\n".join([*lines, "all well" if whole else "nothing wrong in what was checked"])
    count = len(report["problems"])
    head = f"{count} problem{'s' if count > 1 else ''}:"
    return "\n".join([*lines, head, *(f"  {problem}" for problem in report["problems"])])


def _section(title: str, entries: Any) -> list[str]:
    rows = [entry for entry in entries] if isinstance(entries, list) else [entries]
    lines = ["", title]
    for row in rows:
        if isinstance(entries, list):
            lines.append("  " + "  ".join(f"{name} {_shown(row[name])}" for name in row))
        else:
            width = max(map(len, row), default=0)
            lines += [f"  {name:<{width}}  {_shown(row[name])}".rstrip() for name in row]
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
