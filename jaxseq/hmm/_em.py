"""EM for hidden Markov models: soft or hard, supervised, unsupervised and in between."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq._runtime import Outcome, interrupts_deferred, progress_bar
from jaxseq.hmm._corpus import WordCorpus
from jaxseq.hmm._counts import (
    FAMILIES,
    Tally,
    check_corpus,
    check_families,
    check_fits,
    expected_counts,
    known_counts,
    log_likelihoods,
    viterbi_counts,
)
from jaxseq.hmm._model import HMM, Multinomials
from jaxseq.homotopy import linear_weights
from jaxseq.parallel import Peers, mesh_peers

# -------------------------------------------------------------------------------------------------
# The operator that EM iterates, between labelled and unlabelled sequences, and what it increases.
#
# .. math::
#     \tilde\Theta \leftarrow \mathrm{EM}_\lambda(\Theta)
#         = g_1(\lambda) \, c_L + g_2(\lambda) \, E_U(\Theta)


class Smoothing(NamedTuple):
    """What is added to the count of every event of the labelled sequences (add-ε).

    The paper's .2 for transitions and .05 for emissions. It takes the first label for a transition
    from a symbol *begin*, hence .2 for the initial probabilities too.

    Example:
        >>> Smoothing(emission=0.1)
        Smoothing(initial=0.2, transition=0.2, emission=0.1)
    """

    initial: float = 0.2
    transition: float = 0.2
    emission: float = 0.05


def check_smoothing(smoothing: Any) -> None:
    """ValueError unless it is a number of 0 or more for each family."""
    if not isinstance(smoothing, tuple) or len(smoothing) != len(FAMILIES):
        raise ValueError(f"smoothing: expected a Smoothing, got {smoothing!r:.60}")
    for family, amount in zip(FAMILIES, smoothing):
        if not (isinstance(amount, numbers.Real) and 0 <= float(amount) < np.inf):
            raise ValueError(f"smoothing.{family}: expected a number ≥ 0, got {amount!r:.60}")


class Evaluation(NamedTuple):
    """Θ̃ after a step, the objective before it, and the log-likelihood of the unlabelled
    sequences before it (of words and best labels, in hard EM; 0 when they have no weight)."""

    following: Multinomials
    objective: float
    log_likelihood: float


@dataclass(frozen=True)
class EMOperator:
    r"""One step of EM on labelled sequences L and unlabelled ones U.

    .. math::
        \tilde\Theta' = g_1 \tfrac{1}{|L|} \Big(\sum_L \mathrm{Count} + \varepsilon\Big)
                      + g_2 \tfrac{1}{|U|} \sum_U E_{P(y \mid x, \Theta)}[\mathrm{Count}]

    It never decreases

    .. math::
        \tfrac{g_1}{|L|} \Big(\sum_L \log P(x, y \mid \Theta) + \sum_\omega \varepsilon_\omega
        \log \Theta(\omega)\Big) + \tfrac{g_2}{|U|} \sum_U \log P(x \mid \Theta)

    that is, smoothing is a Dirichlet prior with parameters 1 + ε on L's side. Where labels of L
    are partly known, Count is its expectation given what is known, and log P(x, y) the
    log-probability of the words and of that. Hard EM takes counts of the best labelling instead,
    and :math:`\max_y \log P(x, y)` in the objective. Frozen families do not move; their share of
    the prior, and of a completely labelled L, is constant and left out of the objective.

    With g = (1 − λ, λ), the default, λ = 0 is relative-frequency estimation and λ = 1 EM on U
    alone; λ = \|U\| / (\|L\| + \|U\|) is maximum likelihood on all, each sequence counting the
    same.

    Args:
        labelled, unlabelled: of `word_corpus`; None for no sequences. Labels of the latter, where
            known, are respected.
        balance: λ, 0 … 1; None for \|U\| / (\|L\| + \|U\|).
        smoothing: ε, of each family.
        weights: λ ↦ (g₁, g₂).
        frozen: names of the families that keep their values.
        hard: Viterbi counts.
        count_unlabelled: counts U in another way: from the normalised Θ, counts and their part of
            the objective. None for the usual ones.
        mesh: devices to share the sequences out to, as in `expected_counts`. Where it spans several
            processes, the corpora are the parts of this one, which may have no sequences, and all
            do the same together.

    Raises:
        ValueError: when a side without sequences has weight, or nothing fits; in all processes,
            where only some have a corpus, or their settings differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> known = word_corpus([[0, 1], [1]], 2, labels=[[0, 1], [1]], num_labels=2)
        >>> step = EMOperator(known, None, smoothing=Smoothing(0, 0, 0))
        >>> uniform = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.ones((2, 2)))
        >>> step(uniform).following.emission.tolist()
        [[0.5, 0.0], [0.0, 1.0]]

    References:
        Haffari & Sarkar 2008, equations 5 and 6.
    """

    labelled: WordCorpus | None
    unlabelled: WordCorpus | None
    balance: float | None = None
    smoothing: Smoothing = field(default_factory=Smoothing)
    weights: Callable[[float], tuple[float, float]] = linear_weights
    frozen: tuple[str, ...] = ()
    hard: bool = False
    mesh: Mesh | None = None
    count_unlabelled: Callable[[Multinomials], Tally] | None = None

    def __post_init__(self):
        peers = mesh_peers(self.mesh)
        with peers.guard():  # what one process is refused for, all are
            self._check()
            if peers.count > 1:
                self._check_alike(peers)

    def _check(self) -> None:
        check_families("frozen", self.frozen)
        if self.balance is not None and not 0 <= self.balance <= 1:
            raise ValueError(f"balance: expected 0 … 1, got {self.balance}")
        check_smoothing(self.smoothing)
        for name in ("labelled", "unlabelled"):
            if getattr(self, name) is not None:
                check_corpus(name, getattr(self, name))
        if sum(self.sizes) == 0:
            raise ValueError("corpora: expected at least one sequence with a token, got none")
        for name, weight, size in zip(("labelled", "unlabelled"), self.shares, self.sizes):
            if not 0 <= weight < np.inf:
                raise ValueError(f"weights: expected numbers ≥ 0, got {weight} for {name}")
            if weight > 0 and size == 0:
                raise ValueError(
                    f"{name}: expected at least one sequence with a token, since its weight is "
                    f"{weight}, got none"
                )

    def _check_alike(self, peers: Peers) -> None:
        """ValueError in all processes where one would wait for what another never does."""
        for name in ("labelled", "unlabelled"):
            corpus: WordCorpus | None = getattr(self, name)
            absent = peers.exchange(corpus is None)
            if any(absent) and not all(absent):
                raise ValueError(
                    f"{name}: expected a corpus in all processes or in none, where one without "
                    f"sequences has a corpus of none, got None in process {absent.index(True)} and "
                    f"a corpus in process {absent.index(False)}"
                )
            if corpus is not None:
                peers.check_same(f"{name}: words and labels", [corpus.num_words, corpus.num_labels])
        settings = {"shares": self.shares, "smoothing": [float(each) for each in self.smoothing]}
        peers.check_same("settings", settings | {"frozen": self.frozen, "hard": bool(self.hard)})

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """|L| and |U|, of all processes together."""
        own = [
            0 if corpus is None else corpus.num_sequences
            for corpus in (self.labelled, self.unlabelled)
        ]
        known, unknown = (sum(numbers) for numbers in zip(*mesh_peers(self.mesh).exchange(own)))
        return known, unknown

    @cached_property
    def all_known(self) -> bool:
        """Whether every label of L is known, in all processes."""
        own = self.labelled is None or self.labelled.is_labelled
        return all(mesh_peers(self.mesh).exchange(own))

    @cached_property
    def shares(self) -> tuple[float, float]:
        """g₁(λ) and g₂(λ)."""
        known, unknown = self.sizes
        # λ_MLE: by it every sequence has the weight of every other.
        balance = unknown / (known + unknown) if self.balance is None else self.balance
        try:
            by_label, by_word = (float(weight) for weight in self.weights(balance))
        except TypeError:
            got = self.weights(balance)
            raise ValueError(f"weights: expected two numbers of λ, got {got!r:.60}") from None
        return by_label, by_word

    def __call__(self, parameters: Multinomials) -> Evaluation:
        """The next Θ̃ from any Θ̃ (not normalised; normalise it for probabilities)."""
        by_label, by_word = self.shares
        following, objective, log_likelihood = jax.tree.map(jnp.zeros_like, parameters), 0.0, 0.0
        if by_label > 0:
            counts, value = self._count_labelled(parameters)
            following = _add(following, _divide(counts, self.sizes[0]), by_label)
            objective += by_label / self.sizes[0] * value
        if by_word > 0:
            assert self.unlabelled is not None
            check_fits(parameters, self.unlabelled, "unlabelled")
            if self.count_unlabelled is None:
                tally = self._count(parameters, self.unlabelled)
            else:
                tally = self.count_unlabelled(parameters.normalised())
            following = _add(following, _divide(tally.counts, self.sizes[1]), by_word)
            log_likelihood = float(tally.log_likelihood)
            objective += by_word / self.sizes[1] * log_likelihood
        # Not normalised: a frozen family comes out as it came in, to the bit.
        kept = {name: getattr(parameters, name) for name in self.frozen}
        return Evaluation(following._replace(**kept), objective, log_likelihood)

    def check_possible(
        self,
        parameters: Multinomials,
        labelled: str = "labelled",
        model: str = "the model to start from",
        advice: str = "",
    ) -> None:
        """Refuse a model under which a sequence that has to be explained is impossible: EM could
        learn nothing from it, since what is impossible stays so.

        The other arguments are what the labelled sequences and the model are called, and the end of
        the message.
        """
        corpora = ((labelled, self.labelled), ("unlabelled", self.unlabelled))
        with mesh_peers(self.mesh).guard():
            for (name, corpus), weight in zip(corpora, self.shares):
                if corpus is None or weight == 0:
                    continue
                check_fits(parameters, corpus, name)
                if corpus is self.labelled and self.all_known:
                    continue  # its counts do not depend on the model
                impossible = np.isneginf(log_likelihoods(parameters, corpus))
                if impossible.any():
                    raise ValueError(
                        f"{name}[{corpus.index[int(impossible.argmax())]}]: expected sentences "
                        f"that {model} holds possible, got one of probability 0 "
                        f"({impossible.sum()} of {corpus.num_sequences} are){advice}"
                    )

    def _count(self, parameters: Multinomials, corpus: WordCorpus) -> Tally:
        count = viterbi_counts if self.hard else expected_counts
        return count(parameters, corpus, mesh=self.mesh)

    @cached_property
    def _known(self) -> Multinomials:
        """Smoothed counts of labels that are all known."""
        assert self.labelled is not None
        counts = known_counts(self.labelled, self.labelled.num_labels or 0, mesh=self.mesh)
        return Multinomials(*(family + e for family, e in zip(counts, self.smoothing)))

    def _count_labelled(self, parameters: Multinomials) -> tuple[Multinomials, float]:
        """Smoothed counts, and the log-posterior up to a constant."""
        assert self.labelled is not None
        theta = parameters.normalised()
        moving = [family for family in FAMILIES if family not in self.frozen]
        check_fits(theta, self.labelled, "labelled")
        if self.all_known:  # the counts do not depend on the model: taken once
            return self._known, _log_score(self._known, theta, moving)
        counts, log_likelihood = self._count(parameters, self.labelled)
        epsilon = Multinomials(
            *(jnp.full_like(family, amount) for family, amount in zip(theta, self.smoothing))
        )
        value = float(log_likelihood) + _log_score(epsilon, theta, moving)
        return _add(counts, epsilon, 1.0), value


def _add(one: Multinomials, other: Multinomials, times: float) -> Multinomials:
    return jax.tree.map(lambda a, b: a + times * b.astype(a.dtype), one, other)


def _divide(counts: Multinomials, number: int) -> Multinomials:
    return jax.tree.map(lambda family: family / number, counts)


def _log_score(counts: Multinomials, theta: Multinomials, moving: list[str]) -> float:
    """Σ count · log θ, with 0 · log 0 = 0."""
    total = 0.0
    for name in moving:  # in NumPy: three small programs of JAX would take as long as an E-step
        count, share = (np.asarray(getattr(m, name), float) for m in (counts, theta))
        occurs = count > 0
        likely = share[occurs] > 0
        logs = np.log(share[occurs], where=likely, out=np.full(likely.shape, -np.inf))
        total += float((count[occurs] * logs).sum())
    return total


class EMResult(NamedTuple):
    """Where `em` ended.

    Attributes:
        model: the best model.
        parameters: its unnormalised Θ̃.
        objectives: what EM increases (see `EMOperator`), before the first step and after each.
        log_likelihoods: of the unlabelled sequences, likewise.
        outcome: why it ended, in words as ``outcome.value``.

    Example:
        >>> EMResult._fields
        ('model', 'parameters', 'objectives', 'log_likelihoods', 'outcome')
    """

    model: HMM
    parameters: Multinomials
    objectives: tuple[float, ...]
    log_likelihoods: tuple[float, ...]
    outcome: Outcome

    @property
    def iterations(self) -> int:
        """Steps that were taken."""
        return len(self.objectives) - 1


def em(
    start: HMM,
    operator: EMOperator,
    *,
    max_iterations: int = 500,
    tolerance: float = 1e-7,
    progress: bool | None = False,
) -> EMResult:
    """Iterate an `EMOperator` until its objective hardly improves.

    Args:
        start: the model to begin with; EM finds a local maximum near it. Frozen families keep its
            values.
        operator: the corpora, and the kind of EM.
        max_iterations: steps at most.
        tolerance: it has converged when a step improves the objective by no more than this part
            of it.
        progress: a bar on standard error; None shows it on a terminal.

    Returns:
        An `EMResult`. Ctrl-C ends the search after the iteration with what was found; in one of
        several processes, that of all.

    Raises:
        ValueError: when a sequence is impossible under `start` (EM cannot learn from it: what is
            impossible stays so), or sizes do not fit.

    Cost: an E-step (`expected_counts`) an iteration.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import HMM, EMOperator, word_corpus
        >>> start = HMM(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> result = em(start, EMOperator(None, word_corpus([[0, 0, 1, 1]] * 4, 2)))
        >>> print(result.outcome)
        converged: the value hardly improves any more
        >>> result.model.probabilities.emission.round(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    References:
        Dempster, Laird & Rubin 1977; Haffari & Sarkar 2008, section 3.2.
    """
    if max_iterations < 0:
        raise ValueError(f"max_iterations: expected 0 or more, got {max_iterations}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected a number ≥ 0, got {tolerance}")
    operator.check_possible(start.probabilities)
    likelihoods = []
    with interrupts_deferred() as pressed, progress_bar("EM", max_iterations, progress) as tick:

        def watch(state: EMState, now: Evaluation) -> None:
            likelihoods.append(now.log_likelihood)
            if state.iteration:
                tick(state.iteration, -now.objective)

        state, _, outcome = iterate_em(
            operator, EMState(start.probabilities), max_iterations, tolerance, watch, pressed
        )
    model = HMM(*state.parameters, unknown=start.unknown)
    return EMResult(model, state.parameters, state.values, tuple(likelihoods), outcome)


class EMState(NamedTuple):
    """Everything that EM needs to go on: Θ̃, iterations done, and the objective at each."""

    parameters: Multinomials
    iteration: int = 0
    values: tuple[float, ...] = ()


def iterate_em(
    operator: EMOperator,
    state: EMState,
    max_iterations: int,
    tolerance: float,
    watch: Callable[[EMState, Evaluation], Any],
    pressed: Callable[[], bool],
    keep: Callable[[EMState], Any] = lambda state: None,
) -> tuple[EMState, Evaluation, Outcome]:
    """The loop of EM, under `em` and `HMMTagger`: the best state, what the operator says of it, and
    why EM ended.

    `max_iterations` has those before `state` in it. `watch` is called with each state, the first
    one included, and what the operator says of it; `keep` with each from which it goes on. Ctrl-C
    (`pressed`) in one process ends all.
    """
    peers = mesh_peers(operator.mesh)
    now = operator(state.parameters)
    if not state.values:
        state = state._replace(values=(now.objective,))
    watch(state, now)
    while state.iteration < max_iterations:
        # The next state's evaluation is its E-step too: one per iteration.
        following = operator(now.following)
        outcome = _why_stop(now, following, tolerance, peers)
        if outcome is not Outcome.PRECISION:  # else rounding has made it worse, and it is dropped
            values = (*state.values, following.objective)
            state, now = EMState(now.following, state.iteration + 1, values), following
            watch(state, now)
            if outcome is None:
                keep(state)
        if outcome is None and any(peers.exchange(bool(pressed()))):
            outcome = Outcome.INTERRUPTED
        if outcome is not None:
            return state, now, outcome
    return state, now, Outcome.MAX_ITERATIONS


def _why_stop(
    before: Evaluation, now: Evaluation, tolerance: float, peers: Peers
) -> Outcome | None:
    """Why EM ends with its newest objective; None where it goes on."""
    improvement = now.objective - before.objective
    ended = None
    if not improvement >= 0:  # EM never falls but by rounding; also where it is not a number
        ended = Outcome.PRECISION
    elif improvement <= tolerance * abs(now.objective):
        ended = Outcome.CONVERGED_VALUE
    if peers.count == 1:
        return ended
    # None can go on without the others, and the last digits of an objective may differ from one
    # kind of machine to another: what the first process found holds. By name, as JSON is what
    # processes exchange.
    first = peers.exchange(None if ended is None else ended.name)[0]
    return None if first is None else Outcome[first]


def estimate_hmm(
    labelled: WordCorpus,
    num_labels: int,
    *,
    smoothing: Smoothing = Smoothing(),  # noqa: B008 - an immutable tuple
    unknown: int | None = None,
    dtype=None,
    mesh: Mesh | None = None,
) -> HMM:
    r"""Relative frequencies with add-ε smoothing.

    .. math::
        \Theta_m(\omega) \propto \varepsilon + \sum_L \mathrm{Count}(x, y, \omega)

    the most probable parameters under a Dirichlet prior. Where labels are only partly known, EM
    on what is known, from the counts of the events that are known for sure.

    Args:
        labelled: of `word_corpus`, with labels.
        num_labels: s.
        smoothing: ε, of each family.
        unknown: the model's unknown word.
        dtype: of the probabilities; JAX's default float if None.
        mesh: devices to share the sequences out to, as in `EMOperator`.

    Raises:
        ValueError: for a corpus without a token; or, without smoothing, when what is known rules
            all labellings of a sequence out.

    Cost: O(N + v s), and an E-step an iteration where labels are partly known.

    Example:
        >>> from jaxseq.hmm import Smoothing, word_corpus
        >>> corpus = word_corpus([[0, 1, 1]], 2, labels=[[0, 0, 1]], num_labels=2)
        >>> estimate_hmm(corpus, 2, smoothing=Smoothing(0, 0, 1)).probabilities.emission.tolist()
        [[0.5, 0.3333333432674408], [0.5, 0.6666666865348816]]

    References:
        Haffari & Sarkar 2008, section 5.
    """
    operator = EMOperator(labelled, None, balance=0.0, smoothing=smoothing, mesh=mesh)
    known = known_counts(labelled, num_labels, dtype, mesh=mesh)
    start = Multinomials(*(family + amount for family, amount in zip(known, smoothing)))
    model = HMM(*start, unknown=unknown)
    # Where labels are missing, counts of what is known are only where EM begins.
    return model if operator.all_known else em(model, operator).model
