"""EM for hidden Markov models: soft or hard, supervised, unsupervised and in between."""

from __future__ import annotations

from typing import NamedTuple

from jax.sharding import Mesh

from jaxseq.learn._counts import known_counts
from jaxseq.learn._em_corpus import WordCorpus
from jaxseq.learn._em_operator import EMOperator, Evaluation, Smoothing
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._progress import progress_bar
from jaxseq.models._hmm import HMM, Multinomials
from jaxseq.scale import Peers


class EMResult(NamedTuple):
    """What `em` found.

    model: the best model. parameters: its unnormalised Θ̃. objectives: what EM increases (see
    `EMOperator`), before the first step and after each. log_likelihoods: of the unlabelled
    sequences, likewise. outcome: why it ended, in words as ``outcome.value``.

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
        >>> from jaxseq.learn import EMOperator, word_corpus
        >>> from jaxseq.models import HMM
        >>> start = HMM(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> found = em(start, EMOperator(None, word_corpus([[0, 0, 1, 1]] * 4, 2)))
        >>> found.outcome.value
        'converged: the value hardly improves any more'
        >>> found.model.probabilities.emission.round(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    References:
        Dempster, Laird & Rubin 1977; Haffari & Sarkar 2008, section 3.2.
    """
    if max_iterations < 0:
        raise ValueError(f"max_iterations: expected 0 or more, got {max_iterations}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected a number ≥ 0, got {tolerance}")
    peers = peers_of(operator.mesh)
    operator.check_possible(start.probabilities)
    point, now = start.probabilities, operator(start.probabilities)
    values, likelihoods = [now.objective], [now.log_likelihood]
    outcome = Outcome.MAX_ITERATIONS
    with interrupts_deferred() as pressed, progress_bar("EM", max_iterations, progress) as tick:
        for iteration in range(max_iterations):
            following = operator(now.following)
            ended = agree(peers, why_stop(now, following, tolerance))
            if ended is Outcome.PRECISION:
                outcome = ended
                break
            point, now = now.following, following
            values.append(now.objective)
            likelihoods.append(now.log_likelihood)
            tick(iteration + 1, -now.objective)
            if any(peers.exchange(bool(pressed()))):
                ended = Outcome.INTERRUPTED
            if ended is not None:
                outcome = ended
                break
    model = HMM(*point, unknown=start.unknown)
    return EMResult(model, point, tuple(values), tuple(likelihoods), outcome)


def why_stop(before: Evaluation, now: Evaluation, tolerance: float) -> Outcome | None:
    """Why EM ends with its newest objective; None where it goes on."""
    improvement = now.objective - before.objective
    if not improvement >= 0:
        return Outcome.PRECISION
    if improvement <= tolerance * abs(now.objective):
        return Outcome.CONVERGED_VALUE
    return None


def agree(peers: Peers, ended: Outcome | None) -> Outcome | None:
    """Why EM ends in all processes, by what the first one found; None where it goes on.

    None can go on without the others, and the last digits of an objective may differ from one kind
    of machine to another.
    """
    if peers.count == 1:
        return ended
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
        ValueError: for a corpus without a token; or without smoothing, when what is known rules
            all labellings of a sequence out.

    Cost: O(N + v s), and an E-step an iteration where labels are partly known.

    Example:
        >>> from jaxseq.learn import Smoothing, word_corpus
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
    return model if operator.all_known else em(model, operator).model
