"""Which search this is, whoever has which of its sentences."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._parameters import Parameters
from jaxseq.tagger._plan import EntropyTerm, Plan
from jaxseq.tagger._problem import Problem
from jaxseq.text import TokenFeatures

MODULUS = 1 << 256


def shared_fingerprint(
    problem: Problem, plan: Plan, start: Parameters, term: EntropyTerm, warm: bool
) -> str:
    """A hash of all processes' data, the settings of L-BFGS and the starting point.

    Neither the number of processes or devices nor the order of the sentences is in it: a search
    that was stopped on some goes on, up to rounding, on others.
    """
    settings = plan.settings._replace(max_iterations=0)
    parts: list[Any] = [problem.classes, problem.attributes, problem.transitions]
    parts += [plan.weights, plan.algorithm, settings, plan.l2]
    labels, weights = problem.labels, problem.sentence_weights
    # One label that is known and a set of one are the same, as is a sentence that counts once.
    known = _allowed(labels.gold, labels.allowed, len(problem.classes))
    count = len(problem.features.lengths)
    each = np.ones(count) if weights is None else np.asarray(weights, float)
    sums = [sum_of_sentences(problem.features, known, each)]
    if problem.unlabelled is not None:
        iterations = plan.settings.max_iterations
        parts += [term.gradient, warm]
        constant = warm and not callable(term.weight)
        parts += [term.weight] if constant else [term.pieces(iterations), iterations]
        ones = np.ones(len(problem.unlabelled.lengths))
        sums.append(sum_of_sentences(problem.unlabelled, None, ones))
    found = peers_of(plan.mesh).exchange([f"{value:x}" for value in sums])
    parts += [sum(int(value, 16) for value in values) % MODULUS for values in zip(*found)]
    digest = hashlib.sha256(repr(parts).encode())
    for array in [*(problem.legal or ()), *jax.tree.leaves(start)]:
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"shared {digest.hexdigest()}"


def _allowed(gold: np.ndarray, allowed: np.ndarray | None, labels: int) -> np.ndarray:
    """Bits of the labels that each token may have."""
    which = gold[:, None] == np.arange(labels) if allowed is None else allowed
    return np.packbits(which, axis=1)


def sum_of_sentences(features: TokenFeatures, known: np.ndarray | None, weights: np.ndarray) -> int:
    """The sum of a hash of every sentence, which its order does not change."""
    arrays = [features.ids, features.values, features.edge_ids, known]
    ends, total = np.cumsum(features.lengths), 0
    for end, length, weight in zip(ends.tolist(), features.lengths.tolist(), weights.tolist()):
        digest = hashlib.sha256(repr((length, weight)).encode())
        for array in arrays:
            digest.update(b"-" if array is None else array[end - length : end].tobytes())
        total += int.from_bytes(digest.digest(), "big")
    return total % MODULUS
