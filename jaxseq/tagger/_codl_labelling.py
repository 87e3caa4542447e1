"""The labellings that constraint-driven learning learns from, and what to tell of them."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh

from jaxseq.constraints import Constraints, bind_constraints, corpus_violations
from jaxseq.learn._codl import labelling_weights
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.tagger._constrained import search_scored

SAME_WEIGHT = 1e-6
"""Difference of a labelling's weights that does not count as one."""


NO_TOKENS = "unlabelled: expected at least one sentence with a token, got none"


class Learner(Protocol):
    """Trains taggers: θ0 from labelled sentences, and θ from labellings of unlabelled ones."""

    classes: list[str]

    def supervised(self) -> Any:
        """The tagger of θ0."""
        ...

    def learn(self, first: Any, labels: np.ndarray, weights: np.ndarray) -> Any:
        """The tagger of θ, from labels [N, k] with weights [B, k] and the tagger of θ0."""
        ...


class Labelling(NamedTuple):
    """The best labellings of the unlabelled sentences.

    labels [N, k] of all tokens, scores [B, k] less the penalties, and weights [B, k]; hard [B]:
    violations of hard constraints by the best one.
    """

    labels: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    hard: np.ndarray

    def same(self, other: Labelling) -> bool:
        """Whether there is nothing new to learn from the other one."""
        close = np.abs(self.weights - other.weights) <= SAME_WEIGHT
        return bool(np.array_equal(self.labels, other.labels) and close.all())


class Labeller:
    """Labels the same sentences with one tagger after another.

    Args:
        sentences: unlabelled ones. constraints: bound to the labels.
        learn_with: whether they are respected; if not, they are only told of.
        k: labellings a sentence. width: of the beam. how, temperature: of `labelling_weights`.
        mesh: devices to search on; where it spans several processes, those of this one, which
            labels its own sentences.
    """

    def __init__(
        self,
        sentences: list[Any],
        constraints: Constraints,
        learn_with: bool,
        k: int,
        width: int | None,
        how: Any,
        temperature: float,
        mesh: Mesh | None = None,
    ):
        self._mesh, self._peers = mesh, peers_of(mesh)
        self._sentences, self._constraints, self._k, self._width = sentences, constraints, k, width
        self._how, self._temperature = how, temperature
        self._x = constraints.observe_all(sentences)
        self.lengths = np.zeros(0, np.int64)
        free = [str(number) for number in range(constraints.num_labels)]
        self._used = constraints if learn_with else bind_constraints([], free)

    def __call__(self, tagger: Any) -> Labelling:
        """The best labellings by a tagger, under the constraints."""
        scored = tagger._scored(self._sentences)
        self.lengths = scored.features.lengths
        x = self._x[: len(self._used)]
        found = search_scored(scored, self._used, self._k, self._width, x, self._mesh)
        return self.weighted(found.labels, np.asarray(found.scores), found.hard[:, 0])

    def weighted(self, labels: np.ndarray, scores: np.ndarray, hard: np.ndarray) -> Labelling:
        """Labellings with what each of them counts."""
        found = labelling_weights(scores.astype(np.float64), self._how, self._temperature)
        return Labelling(labels, scores, np.asarray(found), hard)

    def told(self, now: Labelling, before: Labelling | None) -> dict[str, Any]:
        """The entry of a history: what changed, scores and violations of the best labellings.

        Of the sentences of all processes, which ask for it together.
        """
        lengths = self.lengths
        real = np.isfinite(now.scores[:, 0]) & (lengths > 0)
        changed = now.labels.size if before is None else int((now.labels != before.labels).sum())
        best = now.scores[real, 0].astype(np.float64)
        broken = corpus_violations(self._constraints, self._x, now.labels[:, 0], lengths)[real] > 0
        unmet = int((now.hard[real] > 0).sum())
        own = [int(changed), unmet, len(best), float(best.sum()), *broken.sum(0).tolist()]
        found = self._peers.exchange(own)
        changed, unmet, count, score, *violated = (sum(numbers) for numbers in zip(*found))
        shares = [number / max(count, 1) for number in violated]
        return {
            "changed": changed,
            "mean_score": score / max(count, 1),
            "unmet": unmet,
            "violated": dict(zip(_different(self._constraints.names), shares)),
        }


def _different(names: tuple[str, ...]) -> list[str]:
    """Names of which the second of the same name says so."""
    found: list[str] = []
    for number, name in enumerate(names):
        times = names[:number].count(name)
        found.append(f"{name} ({times + 1})" if times else name)
    return found


def fingerprint(constraints: Constraints) -> str:
    """Says which constraints these are, the same in every process."""
    leaves, structure = jax.tree.flatten(constraints)
    digest = hashlib.sha256(str(structure).encode("utf-8", "surrogatepass"))
    for leaf in leaves:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
