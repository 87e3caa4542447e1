"""The lattices against plain autodiff, against pytorch-crf, and against their own cost models."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq
from experiments.bench import _plain
from experiments.bench._report import Report
from experiments.bench._timing import best_seconds, fitted_slope
from jaxseq.native import why_not

SEQUENCES, POSITIONS, LABELS = 8936, 24, 22
"""As many sentences as the CoNLL-2000 training set has, at its mean length, with its labels."""

SHAPE: dict[str, Any] = {
    "sequences": SEQUENCES,
    "positions": POSITIONS,
    "labels": LABELS,
    "dtype": "float32",
}
UNGUARDED = "native" if why_not() is None else "scaled"
"""What the default engine runs, without its looking for underflow."""


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench lattice``."""
    _speed(report)
    _memory(report)
    _growth(report, out)


def _scores(*shape: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    nodes = rng.normal(size=shape).astype(np.float32) * 2
    edges = rng.normal(size=(shape[-1], shape[-1])).astype(np.float32)
    return jnp.asarray(nodes), jnp.asarray(edges)


def _speed(report: Report) -> None:
    nodes, edges = _scores(SEQUENCES, POSITIONS, LABELS)
    batch = jaxseq.PaddedBatch(nodes, edges)
    seconds = best_seconds(
        {
            "marginals": lambda: jaxseq.batch_marginals(batch),
            "marginals, uncertified": lambda: jaxseq.batch_marginals(batch, method=UNGUARDED),
            "marginals, XLA": lambda: jaxseq.batch_marginals(batch, method="scaled"),
            "marginals, plain": lambda: _plain.batch_marginals(nodes, edges),
            "entropy": lambda: jaxseq.batch_entropy_gradient(batch),
            "entropy, XLA": lambda: jaxseq.batch_entropy_gradient(batch, method="scaled"),
            "entropy, plain": lambda: _plain.batch_entropy_gradient(nodes, edges),
        },
        rounds=15,
    )
    ours, entropy = seconds["marginals"], seconds["entropy"]
    engine: dict[str, Any] = {"kernels": "C++" if UNGUARDED == "native" else f"XLA ({why_not()})"}
    report.figure(
        "log Z and marginals: plain log-space autodiff / jaxseq",
        seconds["marginals, plain"] / ours,
        at_least=5,
        **SHAPE,
        **engine,
        jaxseq_seconds=ours,
    )
    _against_pytorch_crf(report, nodes, edges, ours)
    report.figure(
        "underflow check and rescue, when none is needed: checked / unchecked",
        ours / seconds["marginals, uncertified"],
        at_most=1.1,
        **SHAPE,
        **engine,
    )
    report.figure(
        "Mann's gradient / forward–backward", entropy / ours, at_most=2.5, **SHAPE, **engine
    )
    by_xla = seconds["marginals, XLA"], seconds["entropy, XLA"]
    report.figure("the same, both by XLA", by_xla[1] / by_xla[0], at_most=2.5, **SHAPE)
    report.figure("log Z and marginals: by XLA / jaxseq", by_xla[0] / ours, **SHAPE, **engine)
    report.figure(
        "Mann's gradient: autodiff of the log-space entropy / jaxseq",
        seconds["entropy, plain"] / entropy,
        at_least=3,
        **SHAPE,
        **engine,
        jaxseq_seconds=entropy,
    )


def _against_pytorch_crf(
    report: Report, nodes: jax.Array, edges: jax.Array, one_core: float
) -> None:
    """Both on all cores, and both on one."""
    metric = "log Z and marginals: pytorch-crf / jaxseq"
    try:  # by name: the extra is for these figures, and no type checker should ask for it
        torch = importlib.import_module("torch")
        CRF = importlib.import_module("torchcrf").CRF
    except ImportError:
        report.figure(metric, None, at_least=50, **SHAPE, needs="the extra jaxseq[bench]")
        return
    cores = os.cpu_count() or 1
    parts = [jaxseq.PaddedBatch(part, edges) for part in jnp.array_split(nodes, cores)]
    ours = best_seconds(
        {"all": lambda: jaxseq.map_on_cores(jaxseq.batch_marginals, parts)}, rounds=10
    )["all"]
    gradient = _pytorch_crf_gradient(torch, CRF, nodes, edges)
    theirs = {}
    for threads in {cores, 1}:
        torch.set_num_threads(threads)
        theirs[threads] = best_seconds({"pytorch-crf": gradient}, rounds=4)["pytorch-crf"]
    torch.set_num_threads(cores)
    report.figure(metric, theirs[cores] / ours, at_least=50, **SHAPE, threads=cores)
    report.figure(f"{metric}, each on one core", theirs[1] / one_core, **SHAPE, threads=1)


def _pytorch_crf_gradient(
    torch: Any, CRF: Any, nodes: jax.Array, edges: jax.Array
) -> Callable[[], None]:
    """pytorch-crf's log-likelihood and its gradient, in which the marginals sit.

    It offers no log Z by itself; the score of a path that comes with it costs next to nothing.
    """
    emissions = torch.tensor(np.asarray(nodes), requires_grad=True)
    tags = torch.zeros(emissions.shape[:2], dtype=torch.long)
    model = CRF(LABELS, batch_first=True)
    with torch.no_grad():
        model.transitions.copy_(torch.tensor(np.asarray(edges)))

    def gradient() -> None:
        model.zero_grad()
        emissions.grad = None
        model(emissions, tags, reduction="sum").backward()

    return gradient


# ------------------------------------------------------------------------------------ memory


def _memory(report: Report) -> None:
    """Peak memory of the gradients, by XLA's own plan and by what the process took."""
    nodes, edges = _scores(SEQUENCES, POSITIONS, LABELS)

    def gradient(fn: Callable[..., Any]):
        total = lambda nodes, edges: fn(jaxseq.PaddedBatch(nodes, edges)).sum()  # noqa: E731
        return jax.jit(jax.grad(total, (0, 1)))

    for name in ("batch_log_partition", "batch_entropy"):
        compiled = gradient(getattr(jaxseq, name)).lower(nodes, edges).compile()
        plan = compiled.memory_analysis()
        planned = sum(
            getattr(plan, f"{part}_size_in_bytes") for part in ("argument", "output", "temp")
        )
        report.figure(
            f"peak memory of the gradient of {name}, input and output included / node scores",
            planned / nodes.nbytes,
            at_most=6,
            **SHAPE,
            method="XLA's buffer plan",
        )
        if RESET_PEAK.exists():
            report.figure(
                f"memory that the gradient of {name} adds to the process / node scores",
                _resident_growth(name) / nodes.nbytes,
                at_most=6,
                **SHAPE,
                method="peak resident size less the size before, in a process of its own",
            )


RESET_PEAK = Path("/proc/self/clear_refs")
"""Where Linux lets a process forget its peak so far (that of compiling, here)."""


def _resident_growth(name: str) -> int:
    """Bytes that a fresh process needs on top to run the gradient."""
    code = f"from experiments.bench.lattice import print_resident_growth as p; p({name!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def print_resident_growth(name: str) -> None:
    """Run a gradient, compiled beforehand on the same shape, and print the growth in bytes."""
    nodes, edges = _scores(SEQUENCES, POSITIONS, LABELS)
    total = lambda n, e: getattr(jaxseq, name)(jaxseq.PaddedBatch(n, e)).sum()  # noqa: E731
    compiled = jax.jit(jax.grad(total, (0, 1))).lower(nodes, edges).compile()
    before = _resident("VmRSS")
    RESET_PEAK.write_text("5")
    jax.block_until_ready(compiled(nodes, edges))
    print(_resident("VmHWM") - before)


def _resident(field: str) -> int:
    """A field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


# ------------------------------------------------------------------------------------ growth

GROWTH = {
    "Mann in n": {"n": [256, 512, 1024, 2048], "s": 16, "rows": 64},
    "Mann in s": {"n": 32, "s": [16, 32, 64, 128], "rows": 128},
    "Jiao in n": {"n": [64, 128, 256, 512], "s": 32, "rows": 1},
    "Jiao in s": {"n": 8, "s": [512, 1024, 2048], "rows": 1},
}
"""Sizes past the overheads: for Mann rows that fill groups, and no longer than that their messages
stay in the cache, past which a position takes longer; for Jiao products that outweigh the s²
exponentials of a step."""

BARS = {
    "Mann in n": {"at_least": 0.9, "at_most": 1.1},
    "Mann in s": {"at_most": 2.1},
    "Jiao in n": {"at_least": 1.8, "at_most": 2.2},
    "Jiao in s": {"at_least": 2.6, "at_most": 3.4},
}


def _growth(report: Report, out: Path) -> None:
    curves = {}
    for name, sizes in GROWTH.items():
        axis = name[-1]
        points = [{**sizes, axis: size} for size in sizes[axis]]
        runs = {str(point[axis]): _one_size(name, **point) for point in points}
        seconds = list(best_seconds(runs, rounds=4).values())
        slope = fitted_slope(sizes[axis], seconds)
        curves[name] = (sizes[axis], seconds, slope)
        report.figure(f"growth of the entropy gradient, {name}", slope, **BARS[name], **sizes)
    _draw_growth(curves, out)


def _one_size(name: str, n: int, s: int, rows: int) -> Callable[[], Any]:
    nodes, edges = _scores(rows, n, s)
    if name.startswith("Mann"):
        batch = jaxseq.PaddedBatch(nodes, edges)
        return lambda: jaxseq.batch_entropy_gradient(batch)
    chain = jaxseq.Chain(nodes[0], edges)
    return lambda: jaxseq.jiao_entropy_gradient(chain)


def _draw_growth(curves: dict[str, tuple[list[int], list[float], float]], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    labels = {"n": "positions n", "s": "labels s"}
    for panel, axis in zip(panels, labels):
        ticks: set[int] = set()
        for (name, (sizes, seconds, slope)), marker in zip(curves.items(), "osos"):
            if name.endswith(axis):
                algorithm = name.split()[0]
                colour = {"Mann": "tab:blue", "Jiao": "tab:orange"}[algorithm]
                fixed = "s" if axis == "n" else "n"
                size = GROWTH[name]
                what = f"{algorithm}: slope {slope:.2f} ({fixed} = {size[fixed]}, {size['rows']} "
                what += "sequences)" if size["rows"] > 1 else "sequence)"
                panel.plot(sizes, seconds, marker=marker, color=colour, label=what)
                ticks |= set(sizes)
        panel.set(xscale="log", yscale="log", xlabel=labels[axis])
        panel.set_xticks(sorted(ticks), [str(tick) for tick in sorted(ticks)])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    panels[0].set_ylabel("seconds for one gradient")
    figure.suptitle("Growth of the entropy gradient: Mann O(n s²), Jiao O(n² s³)")
    out.mkdir(parents=True, exist_ok=True)
    temporary = out / ".lattice_growth.png"
    figure.savefig(temporary, format="png", dpi=150)
    temporary.replace(out / "lattice_growth.png")
    pyplot.close(figure)
