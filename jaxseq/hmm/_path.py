"""EM between labelled and unlabelled sequences as a problem for homotopy continuation."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxseq._runtime import map_on_cores
from jaxseq.hmm._corpus import WordCorpus, WordShard
from jaxseq.hmm._counts import (
    FAMILIES,
    add_up,
    check_corpus,
    check_families,
    check_fits,
    count_sequences,
    known_counts,
    shard_batch,
    shard_tally,
)
from jaxseq.hmm._em import EMOperator, Smoothing, check_smoothing
from jaxseq.hmm._jacobian import linearise_counts
from jaxseq.hmm._model import EVENT_AXES, HMM, Multinomials
from jaxseq.hmm._native import NativeProduct, find_kernels
from jaxseq.homotopy import (
    CriticalPoint,
    Path,
    PathSettings,
    Predictor,
    Problem,
    Selection,
    find_critical_points,
    follow_path,
    freeze,
    linear_weights,
    select_max_entropy,
    select_min_eigenvalue,
    select_monotone,
)
from jaxseq.lattice import batch_entropy


def homotopy_problem(
    labelled: WordCorpus,
    unlabelled: WordCorpus,
    *,
    smoothing: Smoothing = Smoothing(),  # noqa: B008 - an immutable tuple
    frozen: tuple[str, ...] = (),
    weights: Callable[[Any], tuple[Any, Any]] = linear_weights,
    dtype: Any = None,
) -> Problem:
    r"""The fixed points of EM for every balance λ, for `jaxseq.homotopy.follow_path`.

    .. math::
        \tilde\Theta = g_1(\lambda) \, c_L + g_2(\lambda) \, E_U(\Theta), \qquad
        c_L = \tfrac{1}{|L|} \Big(\sum_L \mathrm{Count} + \varepsilon\Big)

    As in `EMOperator`, smoothing included. Unknowns are the families that are not frozen, scaled
    by :math:`\sigma = \sqrt{(c_L + E_U(c_L)) / 2}`: so the length of a step is about that of
    Fisher's metric, in which rare words count as they count in the likelihood.

    Args:
        labelled: of `word_corpus`, every label known.
        unlabelled: of `word_corpus`; products with the Jacobian run one shard per core.
        smoothing: ε, of each family.
        frozen: families that keep their values of λ = 0, at least one left out.
        weights: λ ↦ (g₁, g₂) with g(0) = (1, 0) and g(1) = (0, 1), differentiable by JAX.
        dtype: of the unknowns; JAX's default float if None.

    Returns:
        A `Problem` on `Multinomials` with None for the families that are frozen.

    Raises:
        ValueError: when a side has no sequence, a label is not known, sizes do not fit, all
            families are frozen, or the supervised model holds an unlabelled sequence impossible.

    Cost: O(N) for counting, and an E-step on the unlabelled sequences.

    Example:
        >>> from jaxseq.hmm import word_corpus
        >>> known = word_corpus([[0, 1], [1]], 2, labels=[[0, 1], [1]], num_labels=2)
        >>> problem = homotopy_problem(known, word_corpus([[0, 0]], 2), frozen=("initial",))
        >>> problem.size, problem.constant.initial
        (8, None)

    References:
        Haffari & Sarkar 2008, equations 5–7; section 3.3 for frozen families.
    """
    check_families("frozen", frozen)
    if set(frozen) == set(FAMILIES):
        raise ValueError(f"frozen: expected a family to be left out, got {', '.join(frozen)}")
    check_corpus("unlabelled", unlabelled)
    constant = smoothed_means(labelled, smoothing, dtype)
    count_sequences(unlabelled, name="unlabelled")
    # What is impossible at λ = 0 stays so: the path would lead nowhere.
    EMOperator(None, unlabelled, 1.0).check_possible(constant)
    is_free = Multinomials(*cast(Any, (family not in frozen for family in FAMILIES)))
    traced = _MeanCounts(unlabelled.shards, unlabelled.num_sequences)
    expect, moving = freeze(traced, constant, constant, is_free)
    linearise = Linearisation(constant, unlabelled, frozen)
    # By the path's own engine, so that the scale is what it would make of the first point.
    expected = linearise(moving)[0]
    scales = (None if c is None else _root_of_mean(c, e) for c, e in zip(moving, expected))
    scale = Multinomials(*cast(Any, scales))
    return Problem(
        expect,
        moving,
        weights=weights,
        axes=tuple(axis for axis, free in zip(EVENT_AXES, is_free) if free),
        scale=scale,
        linearise=linearise,
    )


def smoothed_means(labelled: WordCorpus, smoothing: Smoothing, dtype: Any = None) -> Multinomials:
    """c: smoothed counts of completely labelled sequences, divided by their number."""
    check_corpus("labelled", labelled)
    check_smoothing(smoothing)
    number = count_sequences(labelled, name="labelled")
    if not labelled.is_labelled or labelled.num_labels is None:
        missing = int((labelled.labels < 0).sum())
        raise ValueError(
            f"labelled: expected a label for each of {labelled.num_tokens} tokens, got "
            f"{missing} without; the counts of the labelled side must not depend on the model"
        )
    known = known_counts(labelled, labelled.num_labels, dtype)
    return Multinomials(*((family + e) / number for family, e in zip(known, smoothing)))


def _root_of_mean(constant: Any, expected: Any) -> Any:
    """σ of a family."""
    # With the bits of a float32: a path may turn on the last ones of a float64, in which sums over
    # the shards of other cores, or by another engine, differ.
    mean = (constant + expected) / 2
    return jnp.where(mean > 0, jnp.sqrt(mean), 1).astype(jnp.float32).astype(constant.dtype)


class _MeanCounts(eqx.Module):
    """`mean_counts` of a corpus, whose arrays compiled programs are passed."""

    shards: list[WordShard]
    number: int = eqx.field(static=True)

    def __call__(self, parameters: Multinomials) -> Multinomials:
        counts = add_up([shard_tally(parameters, shard).counts for shard in self.shards])
        return jax.tree.map(lambda family: family / self.number, counts)


PRODUCTS = jnp.float32
"""Of products with ∇E: twice as quick as in float64, and Newton's method, whose residuals are in
the unknowns' own dtype, loses nothing by it."""


class Linearisation:
    """E and the product with ∇E at a point, on all cores.

    By the kernels in C++ where there are any and they serve, else by compiled programs, one shard
    per core. The last point's are remembered: Newton's method ends at a point at which the tangent
    is wanted next.
    """

    def __init__(self, constant: Multinomials, unlabelled: WordCorpus, frozen: tuple[str, ...]):
        self._constant, self._unlabelled, self._frozen = constant, unlabelled, frozen
        self._free = tuple(family for family in FAMILIES if family not in frozen)
        self._point = np.zeros(0)
        self._last: tuple[Multinomials, Callable[[Multinomials], Multinomials]] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._kernels = None
        if "transition" in frozen:
            self._kernels = find_kernels(unlabelled, constant.initial.shape[0])
        self.points = self.products = self.native = 0

    @property
    def engine(self) -> str:
        """What the points so far were linearised by."""
        if not self.native:
            return "XLA"
        return "C++" if self.native == self.points else f"C++, XLA at {self.points - self.native}"

    def __call__(self, moving: Multinomials) -> tuple[Multinomials, Callable]:
        point = np.concatenate([np.asarray(getattr(moving, name)).ravel() for name in self._free])
        with self._lock:  # paths of one problem may be followed at the same time
            if self._last is None or not np.array_equal(self._point, point):
                self._last = None  # so that the kernels may use its memory again
                held = {name: getattr(self._constant, name) for name in self._frozen}
                parameters = moving._replace(**held)
                self._last = self._by_kernels(parameters) or self._by_programs(parameters)
                self._point = point
                self.points += 1
            return self._last

    def _by_kernels(self, parameters: Multinomials) -> tuple[Multinomials, Callable] | None:
        if self._kernels is None or not all((getattr(parameters, n) > 0).all() for n in self._free):
            return None
        number, dtype = self._unlabelled.num_sequences, self._constant.initial.dtype
        for precision in (PRODUCTS, np.float64):  # the wider where the narrower would underflow
            linear = self._kernels.linearise(parameters, precision, with_transitions=False)
            if linear is not None:
                counts, product = linear
                self.native += 1
                mean = {name: (getattr(counts, name) / number).astype(dtype) for name in self._free}
                return self._free_only(mean), _KernelProduct(self, product)
        return None

    def _by_programs(self, parameters: Multinomials) -> tuple[Multinomials, Callable]:
        point = jax.tree.map(jnp.asarray, parameters)
        linearise = partial(linearise_counts, point, free=self._free, dtype=PRODUCTS)
        counts, products = zip(*self._on_cores(linearise, self._unlabelled.shards))
        number = self._unlabelled.num_sequences
        mean = jax.tree.map(lambda family: family / number, add_up(list(counts)))
        return self._free_only(mean._asdict()), partial(self._product, products)

    def _product(self, products: Iterable[Callable], tangent: Multinomials) -> Multinomials:
        self.products += 1
        moves = {name: np.asarray(getattr(tangent, name)) for name in self._free}
        parts = self._on_cores(lambda multiply: multiply(moves), products)
        number = self._unlabelled.num_sequences
        total = {name: sum(np.asarray(part[name]) for part in parts) for name in self._free}
        return self._free_only({name: family / number for name, family in total.items()})

    def _on_cores(self, function: Callable, items: Iterable) -> list:
        """On threads that stay: starting them anew costs as much as a part of a product."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self._unlabelled.shards))
        # Asked here, in the thread that follows the path.
        double = jax.dtypes.canonicalize_dtype("float64") == "float64"

        def finish(item: Any) -> Any:
            # PathSettings made by a `with` block hold for the thread that made them.
            with jax.enable_x64(double):
                return jax.block_until_ready(function(item))

        return list(self._threads.map(finish, items))

    def _free_only(self, families: dict[str, Any]) -> Multinomials:
        """As the problem's constant is: None for frozen families."""
        return Multinomials(
            *cast(Any, (families[name] if name in self._free else None for name in FAMILIES))
        )


class _KernelProduct:
    """The product of the kernels, on pytrees, and on vectors where emissions alone are free."""

    def __init__(self, owner: Linearisation, product: NativeProduct):
        self._owner, self._product = owner, product

    def __call__(self, tangent: Multinomials) -> Multinomials:
        owner = self._owner
        owner.products += 1
        moves = {name: np.asarray(getattr(tangent, name)) for name in owner._free}
        number = owner._unlabelled.num_sequences
        changes = self._product(moves)
        return owner._free_only({name: change / number for name, change in changes.items()})

    def on_flat(self, scale: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """As `jaxseq.homotopy.Problem.linearise` says."""
        owner = self._owner
        if owner._free != ("emission",):  # the flat kernel moves emissions alone
            return None
        product = self._product.on_flat(scale, owner._unlabelled.num_sequences)

        def counted(vector: np.ndarray) -> np.ndarray:
            owner.products += 1
            return product(vector)

        return counted


# -------------------------------------------------------------------------------------------------
# The path of hidden Markov models from labelled to unlabelled data, and choices on it.


RULES = ("monotone", "min_eigenvalue", "max_entropy")
"""By which a point of a path is chosen."""

HMM_SETTINGS = PathSettings(
    step=0.05,
    predictor=Predictor.HERMITE,
    max_step=2.0,
    max_steps=20000,
    linear_tolerance=2e-2,
    last_share=0.3,
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

    Attributes:
        path: points, λ, arc length, residuals, eigenvalues; see `jaxseq.homotopy.Path`.
        problem: whose fixed points they are.
        settings: how they were found.
        supervised: the model at λ = 0.
        unlabelled: the sequences whose labels' entropy is looked at.

    Example:
        See `hmm_path`.
    """

    path: Path
    problem: Problem
    settings: PathSettings
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
        """Entropy of the unlabelled sequences' labels at each point, in nats per sequence."""
        count = range(len(self.path.points))
        values = [label_entropy(self.parameters(i), self.unlabelled) for i in count]
        return np.array(values) / self.unlabelled.num_sequences

    def select(self, rule: str) -> Selection:
        """The point that a rule chooses, among those of the path as far as it was followed.

        ``"monotone"``: the last before λ first turns. ``"min_eigenvalue"``: where an eigenvalue
        of g₂(λ)·∇E − I is nearest to 0. ``"max_entropy"``: where labels of the unlabelled
        sequences have most entropy, after a step at least (λ = 0 is the supervised model). Warns
        if the path ended where it should not have, as `jaxseq.homotopy.select_monotone` and
        its neighbours do.
        """
        if rule == "monotone":
            return select_monotone(self.path)
        if rule == "min_eigenvalue":
            return select_min_eigenvalue(self.path)
        if rule == "max_entropy":
            return select_max_entropy(self.path, self.entropies)
        raise ValueError(f"rule: expected one of {', '.join(RULES)}, got {rule!r:.60}")

    def critical_points(self, accuracy: float = 1e-6) -> list[CriticalPoint]:
        """Folds, and bifurcations of the eigenvalues that the settings had recorded, between the
        points; see `find_critical_points`."""
        return find_critical_points(self.problem, self.path, self.settings, accuracy)


def hmm_path(
    labelled: WordCorpus,
    unlabelled: WordCorpus,
    *,
    smoothing: Smoothing = Smoothing(),  # noqa: B008 - an immutable tuple
    frozen: tuple[str, ...] = (),
    weights: Callable[[Any], tuple[Any, Any]] = linear_weights,
    settings: PathSettings = HMM_SETTINGS,
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
    product (in float32) takes 14 ns and linearising (in float64) 34 ns per token of 13 labels.
    Steps are many where words change their labels, above all words that the labelled sequences
    lack: with 300 labelled and 1,000 unlabelled citations λ turns some 550 times on its way.

    Example:
        >>> from jaxseq.hmm import word_corpus
        >>> from jaxseq.homotopy import PathSettings
        >>> known = word_corpus([[0, 1], [0, 1]], 2, labels=[[0, 1], [0, 1]], num_labels=2)
        >>> hmms = hmm_path(known, word_corpus([[0, 1, 1]], 2), settings=PathSettings())
        >>> hmms.path.outcome.value
        'reached λ = 1'
        >>> hmms.model(hmms.select("monotone").index).num_words
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
        >>> from jaxseq.homotopy import Problem, Structure, follow_path
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
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> uniform = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.ones((1, 2)))
        >>> round(label_entropy(uniform, word_corpus([[0, 0], [0]], 1)), 4)  # 3 · log 2
        2.0794

    References:
        Mann & McCallum 2007; for the choice of λ Ji, Watson & Carin 2007.
    """
    check_fits(parameters, corpus)
    parts = map_on_cores(lambda shard: _entropy_of_shard(parameters, shard), corpus.shards)
    return float(sum(float(value) for value in parts))
