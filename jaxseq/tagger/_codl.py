"""Constraint-driven learning: a tagger that learns from its own labels under constraints."""

from __future__ import annotations

import enum
import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from jax.sharding import Mesh
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from jaxseq.constraints._labels import Scheme
from jaxseq.learn._codl import LabellingWeights, check_share, check_weighing
from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.learn._progress import progress_bar
from jaxseq.scale import Peers
from jaxseq.tagger._alike import check_codl_alike
from jaxseq.tagger._checks import check_number
from jaxseq.tagger._codl_crf import CRFLearner
from jaxseq.tagger._codl_hmm import HMMLearner
from jaxseq.tagger._codl_labelling import Labeller, Labelling, Learner, fingerprint
from jaxseq.tagger._codl_notes import CoDLNotes, Kept
from jaxseq.tagger._constrained import bound_to, warn_unmet
from jaxseq.tagger._hmm_plan import check_own_mesh
from jaxseq.tagger._hmm_tagger import HMMTagger
from jaxseq.tagger._labels import Label
from jaxseq.tagger._notes import settings_of
from jaxseq.tagger._predictions import token_score
from jaxseq.tagger._tagger import CRFTagger
from jaxseq.tagger._together import Together
from jaxseq.tagger._unlabelled import check_unlabelled


class Outcome(enum.Enum):
    """Why constraint-driven learning ended, in words."""

    FIXED_POINT = "converged: no label of the unlabelled sentences changes any more"
    MAX_CYCLES = "stopped: the number of cycles asked for is reached"
    INTERRUPTED = "interrupted: the tagger of the last complete cycle is kept"


class CoDL(BaseEstimator):
    r"""Constraint-driven learning: label the unlabelled sentences under constraints, learn, repeat.

    .. math::
        \theta_0 &= \mathrm{learn}(L) \\
        T &= \{(x, y^1), \dots, (x, y^K) : x \in U\}, \quad
        y^1, \dots, y^K = \operatorname{top-}K_y \;
        \mathrm{score}_\theta(x, y) - \sum_k \rho_k d_k(x, y) \\
        \theta &= \gamma \theta_0 + (1 - \gamma) \, \mathrm{learn}(T)

    the last two again and again. Without constraints and with K = 1 this is hard EM, with γ the
    "H&W" of Chang et al., and with `pool`, θ = learn(L ∪ T), their "H".

    Args:
        estimator: a `jaxseq.HMMTagger` or `jaxseq.CRFTagger`; it is cloned, not changed. Of an HMM,
            learning is counting, and it costs the same whatever K is; a CRF is trained on K copies
            of each unlabelled sentence.
        constraints: rules, with penalties of their own (`jaxseq.constraints.Penalised`) or
            without; a file of them; or `jaxseq.constraints.Constraints` for the labels, sorted.
            Those of ρ = 0 change nothing, to the bit.
        penalty: ρ of the rules that have none. scheme: how labels stand for fields.
        k: K, labellings of each unlabelled sentence to learn from.
        width: of the beam; None for 50, or k if that is more.
        weights: of the K labellings, 1 together: ``"uniform"``; or ``"score"``, by
            :math:`\exp(\mathrm{score} / \tau)`, which for τ = 1 is EM with the posterior
            probabilities within the K best.
        temperature: τ.
        keep: γ, 0 … 1, what is kept of the supervised model.
        cycles: at most so many.
        pool: learn from labelled sentences and labellings together; `keep` does not matter then.
        learn_with_constraints, predict_with_constraints: where constraints are respected.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep the labellings of the last cycle in. If it is there when `fit`
            starts, learning goes on from it, with the same result as if it had never stopped.

    Attributes:
        tagger_: the tagger of the last cycle. constraints_: bound to its labels. outcome_: why it
        ended. history_: for each cycle, of the labellings that it learnt from: ``"changed"``, how
        many labels of all K are others than in the cycle before (all of them, in the first);
        ``"mean_score"``, of the best ones, less the penalties; ``"unmet"``, how many sentences
        violate hard constraints; ``"violated"``, from each constraint's name to the share of
        sentences whose best labelling violates it.

    Sentences that have no legal labelling are not learnt from.

    Cost: a cycle is `jaxseq.constraints.search_corpus` and a training.

    Example:
        >>> import jaxseq
        >>> from jaxseq.constraints import Tokens, WordsImply
        >>> X, y = [["a", "dog"], ["a", "cat"], ["runs"]], [["D", "N"], ["D", "N"], ["V"]]
        >>> rules = [WordsImply(Tokens(["purrs"]), ["V"])]
        >>> learner = jaxseq.CoDL(jaxseq.HMMTagger(unknown_below=1), rules, penalty=5.0, k=2)
        >>> learner = learner.fit(X, y, unlabelled=[["a", "cat", "purrs"]])
        >>> learner.predict([["dog", "purrs"]], constrained=False)
        [['N', 'V']]

    References:
        Chang, Ratinov & Roth 2007, figure 2.
    """

    def __init__(
        self,
        estimator: Any,
        constraints: Any = (),
        *,
        penalty: float | None = None,
        scheme: Scheme = "plain",
        k: int = 50,
        width: int | None = None,
        weights: LabellingWeights = "uniform",
        temperature: float = 1.0,
        keep: float = 0.1,
        cycles: int = 5,
        pool: bool = False,
        learn_with_constraints: bool = True,
        predict_with_constraints: bool = True,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ):
        self.estimator = estimator
        self.constraints = constraints
        self.penalty = penalty
        self.scheme: Scheme = scheme
        self.k = k
        self.width = width
        self.weights = weights
        self.temperature = temperature
        self.keep = keep
        self.cycles = cycles
        self.pool = pool
        self.learn_with_constraints = learn_with_constraints
        self.predict_with_constraints = predict_with_constraints
        self.progress = progress
        self.checkpoint = checkpoint

    # ------------------------------------------------------------------------------ training

    def fit(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[Label]],
        *,
        unlabelled: Iterable[Any],
        mesh: Mesh | None = None,
        sentence_numbers: Sequence[int] | None = None,
    ) -> CoDL:
        """Train.

        Args:
            X, y: sentences and labels, as for the estimator.
            unlabelled: more sentences, at least one with a token.
            mesh: devices to share them out to while they are labelled under the constraints, of
                `jaxseq.scale.make_mesh`. With an HMM it may span several processes: the sentences
                are then the part of this one, which may be empty, and all call `fit` together, to
                get what one process gets up to rounding.
            sentence_numbers: as in `HMMTagger.fit`.

        Returns:
            Itself. After Ctrl-C it holds the tagger of the last complete cycle.

        Raises:
            ValueError: for parameters that make no sense, a rule with a label that is not in y,
                and no unlabelled sentence.

        Warns:
            ConstraintWarning: where hard constraints cannot all be met in unlabelled sentences (of
                this process).
        """
        peers = peers_of(mesh)
        with peers.guard():
            self._check()
            check_codl_alike(self, mesh, {"sentence_numbers": sentence_numbers}, peers)
            together = Together.of(mesh, sentence_numbers)
            X, y, others = list(X), list(y), check_unlabelled(unlabelled)
            learner = self._learner(X, y, others, mesh, together)
            self.constraints_ = bound_to(
                learner.classes, self.constraints, self.penalty, self.scheme
            )
            peers.check_same("constraints", fingerprint(self.constraints_))
            labeller = self._labeller(others, mesh)
            notes = CoDLNotes(self.checkpoint, self._about(), X, y, others, together)
            kept = notes.load()
        self.tagger_, self.history_ = learner.supervised(), []
        self.outcome_ = Outcome.INTERRUPTED.value
        if _interrupted(self.tagger_):
            return self
        past, first = None, self.tagger_
        # One process stops where it is; of several, none can without the others.
        deferred = nullcontext(lambda: False) if together.is_alone else interrupts_deferred()
        with deferred as pressed, progress_bar("CoDL", self.cycles, self.progress) as tick:
            job = _Job(learner, labeller, notes, peers, pressed)
            if kept is not None:
                past = self._resume(job, kept)
            outcome, past = self._go_on(job, first, past, tick)
        self.outcome_ = outcome.value
        if outcome is not Outcome.INTERRUPTED:
            notes.remove()
        if past is not None:
            warn_unmet(past.hard, "unlabelled")
        return self

    def _learner(
        self, X: list[Any], y: list[Any], others: list[Any], mesh: Mesh | None, together: Together
    ) -> HMMLearner | CRFLearner:
        keep = None if self.pool else float(self.keep)
        if isinstance(self.estimator, HMMTagger):
            return HMMLearner(self.estimator, X, y, others, keep, mesh, together)
        check_own_mesh(mesh, "; with an HMMTagger it may have them")
        return CRFLearner(self.estimator, X, y, others, keep)

    def _go_on(
        self, job: _Job, first: Any, past: Labelling | None, tick: Any
    ) -> tuple[Outcome, Labelling | None]:
        """Cycles until one of the ends; the labelling that the last one learnt from."""
        try:
            while len(self.history_) < self.cycles:
                with job.peers.guard():
                    found = job.labeller(self.tagger_)
                if job.stopped():
                    return Outcome.INTERRUPTED, past
                if past is not None and all(job.peers.exchange(found.same(past))):
                    return Outcome.FIXED_POINT, past
                if not any(job.peers.exchange(bool(found.weights.any()))):
                    raise ValueError(
                        "unlabelled: expected a sentence that the model gives a labelling, got none"
                    )
                tagger = job.learner.learn(first, found.labels, found.weights)
                if _interrupted(tagger) or job.stopped():
                    return Outcome.INTERRUPTED, past
                history = [*self.history_, job.labeller.told(found, past)]
                self.tagger_, self.history_, past = tagger, history, found
                job.notes.save(found, job.labeller.lengths, history)
                tick(len(history), history[-1]["changed"])
        except KeyboardInterrupt:
            if job.peers.count > 1:
                raise  # a second one: the others are still at work
            return Outcome.INTERRUPTED, past
        return Outcome.MAX_CYCLES, past

    def _resume(self, job: _Job, kept: Kept) -> Labelling:
        """The labelling of the last cycle that was complete, whose tagger is learnt again."""
        scores = kept.scores.astype(self.tagger_.dtype)
        past = job.labeller.weighted(kept.labels, scores, kept.hard)
        tagger = job.learner.learn(self.tagger_, past.labels, past.weights)
        if _interrupted(tagger):
            raise KeyboardInterrupt
        self.tagger_, self.history_ = tagger, kept.history
        return past

    def _labeller(self, others: list[Any], mesh: Mesh | None = None) -> Labeller:
        return Labeller(
            others,
            self.constraints_,
            bool(self.learn_with_constraints),
            int(self.k),
            self.width,
            self.weights,
            float(self.temperature),
            mesh,
        )

    def _about(self) -> Any:
        """What the results depend on, apart from the data and the number of cycles."""
        names = ("k", "width", "weights", "temperature", "keep", "pool", "learn_with_constraints")
        own = {name: getattr(self, name) for name in names}
        settings = settings_of(self.estimator)
        if isinstance(self.estimator, HMMTagger):
            settings.pop("cores")  # nothing but rounding depends on it, or on processes
        return settings, own, fingerprint(self.constraints_)

    def _check(self) -> None:
        if not isinstance(self.estimator, HMMTagger | CRFTagger):
            raise ValueError(
                f"estimator: expected an HMMTagger or a CRFTagger, got {self.estimator!r:.60}"
            )
        for name in ("k", "cycles"):
            check_number(name, getattr(self, name), 1, numbers.Integral)
        if self.width is not None:
            check_number("width", self.width, int(self.k), numbers.Integral)
        check_weighing(self.weights, self.temperature)
        check_share("keep", self.keep)

    # ---------------------------------------------------------- as the tagger of the last cycle

    def _used(self, constrained: bool | None) -> Any:
        check_is_fitted(self, "tagger_")
        wanted = self.predict_with_constraints if constrained is None else constrained
        return self.constraints_ if wanted else None

    def predict(self, X: Iterable[Any], *, constrained: bool | None = None) -> list[list[str]]:
        """The best labelling of each sentence, by the last tagger.

        Args:
            X: sentences.
            constrained: whether constraints are respected; None for `predict_with_constraints`.
        """
        used = self._used(constrained)
        return self.tagger_.predict(X, constraints=used, width=self.width)

    def predict_k_best(
        self, X: Iterable[Any], k: int, *, constrained: bool | None = None
    ) -> list[list[tuple[list[str], float]]]:
        """The k best labellings of each sentence, with log P(y | x) less the soft penalties."""
        used = self._used(constrained)
        width = self.width if self.width is None else max(int(k), self.width)
        return self.tagger_.predict_k_best(X, k, constraints=used, width=width)

    def score(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[Label]],
        sample_weight: Any = None,
        *,
        constrained: bool | None = None,
    ) -> float:
        """Share of tokens that get their label; those without a known label do not count."""
        return token_score(self.predict(X, constrained=constrained), y, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the last tagger; `jaxseq.load` reads it. Constraints are no part of the file."""
        check_is_fitted(self, "tagger_")
        self.tagger_.save(path)


class _Job(NamedTuple):
    """Who learns, who labels, where it is written down, and with which processes; whether Ctrl-C
    was pressed in this one."""

    learner: Learner
    labeller: Labeller
    notes: CoDLNotes
    peers: Peers
    pressed: Callable[[], bool]

    def stopped(self) -> bool:
        """Whether Ctrl-C was pressed in any process."""
        return any(self.peers.exchange(bool(self.pressed())))


def _interrupted(tagger: Any) -> bool:
    return tagger.outcome_.startswith("interrupted")
