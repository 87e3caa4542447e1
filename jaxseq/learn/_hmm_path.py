"""The path of hidden Markov models from labelled to unlabelled data, and choices on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxseq.batch import batch_entropy, map_on_cores
from jaxseq.learn._counts import check_fits
from jaxseq.learn._em_corpus import WordCorpus, WordShard
from jaxseq.learn._em_lattice import shard_batch
from jaxseq.learn._em_operator import Smoothing
from jaxseq.learn._hmm_problem import homotopy_problem, smoothed_means
from jaxseq.learn.homotopy import (
    CriticalPoint,
    Path,
    Predictor,
    Problem,
    Selection,
    Settings,
    find_critical_points,
    follow_path,
    linear_weights,
    select_min_eigenvalue,
    select_monotone,
)
from jaxseq.learn.homotopy._select import choose, greatest_after_start
from jaxseq.models._hmm import HMM, Multinomials

RULES = ("monotone", "min_eigenvalue", "max_entropy")
"""By which a point of a path is chosen."""

HMM_SETTINGS = Settings(
    step=0.05,
    predictor=Predictor.HERMITE,
    max_step=2.0,
    max_steps=20000,
    linear_tolerance=2e-2,
    tangent_tolerance=1e-4,
    krylov_size=100,
    krylov_restarts=2,
    eigenvalues=2,
    lanczos_accuracy=1e-2,
    deflated=16,
    stretch=0.03,
)
"""For HMMs, in float32 and float64. Lengths are those of `homotopy_problem`'s scaled unknowns, in
which ‖Θ̃‖ is about the square root of a sequence's length. Of ∇E the two largest eigenvalues are
recorded, and so bifurcations of these two are found: more (``eigenvalues=k``) cost more products
at every point."""


@dataclass(frozen=True)
class HMMPath:
    """A path of HMMs, as `hmm_path` follows it.

    path: points, λ, arc length, residuals, eigenvalues; see `jaxseq.learn.homotopy.Path`.
    problem: whose fixed points they are. settings: how they were found. supervised: the model at
    λ = 0. unlabelled: the sequences whose labels' entropy is looked at.

    Example:
        See `hmm_path`.
    """

    path: Path
    problem: Problem
    settings: Settings
    supervised: HMM
    unlabelled: WordCorpus

    def parameters(self, index: int) -> Multinomials:
        """Θ̃ at a point, with the values of frozen families."""
        moving = self.path.parameters(index)
        held = self.supervised.probabilities
        return Multinomials(*(h if m is None else m for m, h in zip(moving, held)))

    def model(self, index: int) -> HMM:
        """The HMM at a point."""
        return HMM(*self.parameters(index), unknown=self.supervised.unknown)

    @cached_property
    def entropies(self) -> np.ndarray:
        """Entropy of the unlabelled sequences' labels at each point, in nats a sequence."""
        count = range(len(self.path.points))
        values = [label_entropy(self.parameters(i), self.unlabelled) for i in count]
        return np.array(values) / self.unlabelled.num_sequences

    def select(self, rule: str) -> Selection:
        """The point that a rule chooses, among those of the path as far as it was followed.

        ``"monotone"``: the last before λ first turns. ``"min_eigenvalue"``: where an eigenvalue
        of g₂(λ)·∇E − I is nearest to 0. ``"max_entropy"``: where labels of the unlabelled
        sequences have most entropy, after a step at least (λ = 0 is the supervised model). Warns
        if the path ended where it should not have, as `jaxseq.learn.homotopy.select_monotone` and
        its neighbours do.
        """
        if rule == "monotone":
            return select_monotone(self.path)
        if rule == "min_eigenvalue":
            return select_min_eigenvalue(self.path)
        if rule != "max_entropy":
            raise ValueError(f"rule: expected one of {', '.join(RULES)}, got {rule!r:.60}")
        index = greatest_after_start(self.entropies)
        why = f"the entropy there, {self.entropies[index]:.6g} nats a sequence, is the greatest"
        return choose(self.path, index, why)

    def critical_points(self, accuracy: float = 1e-6) -> list[CriticalPoint]:
        """Folds, and bifurcations of the eigenvalues that the settings had recorded, between the
        points; `find_critical_points`, which see."""
        return find_critical_points(self.problem, self.path, self.settings, accuracy)


def hmm_path(
    labelled: WordCorpus,
    unlabelled: WordCorpus,
    *,
    smoothing: Smoothing = Smoothing(),  # noqa: B008 - an immutable tuple
    frozen: tuple[str, ...] = (),
    weights: Callable[[Any], tuple[Any, Any]] = linear_weights,
    settings: Settings = HMM_SETTINGS,
    unknown: int | None = None,
    dtype: Any = None,
    until: Callable[[Path], bool | None] = lambda path: None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = False,
) -> HMMPath:
    r"""Follow the fixed points of EM from labelled (λ = 0) to unlabelled sequences (λ = 1).

    .. math::
        \tilde\Theta = g_1(\lambda) \, c_L + g_2(\lambda) \, E_U(\Theta)

    At λ = 0 that is the supervised model; every further point is a (local) maximum, or a saddle,
    of the weighted likelihood. λ may turn back and forth; see `homotopy.follow_path`. Both sides of
    a turn may lie so close together that a step from one to the other looks like any other, and
    leads all the way back: it is found out by the sign of the determinant of λ∇E − I, and not made.

    Args:
        labelled: of `word_corpus`, every label known.
        unlabelled: of `word_corpus`.
        smoothing: ε, of each family.
        frozen: families that keep their supervised values: for the paper's citations
            ``("initial", "transition")``.
        weights: λ ↦ (g₁, g₂).
        settings: how to follow the path.
        unknown: the models' unknown word.
        dtype: of the parameters; JAX's default float if None. Residuals are within 1e-8 in
            float64, and 1e-5 in float32.
        until: called with the path after every step tried; ends it by returning True. `has_turned`
            suffices for the rule "monotone".
        checkpoint: a file to keep the path in, and to go on from if it is there.
        progress: show a bar; None shows it on a terminal.

    Returns:
        An `HMMPath`.

    Raises:
        ValueError: as `homotopy_problem` and `homotopy.follow_path`.

    Cost: about 3 linearisations of the E-step and 35 products with the Jacobian a step. Where
    transitions are frozen, both are done by kernels in C++ if there is a compiler: on one core, a
    product (in float32) takes 14 ns and linearising (in float64) 34 ns a token of 13 labels. Steps
    are many where words change their labels, above all words that the labelled sequences lack: with
    300 labelled and 1,000 unlabelled citations λ turns some 550 times on its way.

    Example:
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.learn.homotopy import Settings
        >>> known = word_corpus([[0, 1], [0, 1]], 2, labels=[[0, 1], [0, 1]], num_labels=2)
        >>> found = hmm_path(known, word_corpus([[0, 1, 1]], 2), settings=Settings())
        >>> found.path.outcome.value
        'reached λ = 1'
        >>> found.model(found.select("monotone").index).num_words
        2

    References:
        Haffari & Sarkar 2008.
    """
    problem = homotopy_problem(
        labelled, unlabelled, smoothing=smoothing, frozen=frozen, weights=weights, dtype=dtype
    )
    supervised = HMM(*smoothed_means(labelled, smoothing, dtype), unknown=unknown)
    path = follow_path(
        problem, settings, watch=until, checkpoint=checkpoint, progress=progress
    )  # fmt: skip
    return HMMPath(path, problem, settings, supervised, unlabelled)


def has_turned(path: Path) -> bool:
    """Whether λ has turned back: all that the rule "monotone" looks for.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> has_turned(follow_path(half, watch=has_turned))
        False
    """
    return bool(path.slope[-1] <= 0)


@jax.jit
def _entropy_of_shard(parameters: Multinomials, shard: WordShard) -> Array:
    return batch_entropy(shard_batch(parameters.normalised(), shard)).sum()


def label_entropy(parameters: Multinomials, corpus: WordCorpus) -> float:
    r"""Entropy of the labels given the words, :math:`\sum_x H(Y \mid x, \Theta)`, in nats.

    Args:
        parameters: as in `expected_counts`.
        corpus: of `word_corpus`; labels that are known are respected.

    Cost: O(N s²) for N tokens, on all cores.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.models import Multinomials
        >>> uniform = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.ones((1, 2)))
        >>> round(label_entropy(uniform, word_corpus([[0, 0], [0]], 1)), 4)  # 3 · log 2
        2.0794

    References:
        Mann & McCallum 2007; for the choice of λ Ji, Watson & Carin 2007.
    """
    check_fits(parameters, corpus)
    found = map_on_cores(lambda shard: _entropy_of_shard(parameters, shard), corpus.shards)
    return float(sum(float(value) for value in found))
