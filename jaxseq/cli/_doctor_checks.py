"""The self-check of ``jaxseq doctor``: a few answers known beforehand, and a speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq

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
    from jaxseq.verify._oracle import Enumeration

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
    from jaxseq import learn
    from jaxseq.text import TokenFeatures

    ids = np.array([[0, 2], [1, 2], [0, 3], [1, 3]], np.int32)
    lengths = np.array([3, 1])
    features = TokenFeatures(ids, None, lengths, None)
    gold = learn.EncodedLabels(np.array([0, 1, 0, 1], np.int32), None)
    (shard,) = learn.make_shards(learn.lay_out(lengths, 1, width=8), features, 4, gold)
    spread = learn.Spread(attributes=4, labels=2)
    evaluate = jax.jit(lambda point: learn.entropy_regularised_gradient(point, [shard], [], spread))

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
    from jaxseq.batch._cores import usable_cores

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
