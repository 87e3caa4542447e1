"""Constraint-driven learning: a tagger that learns from its own labels under constraints."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from sklearn.utils.validation import check_is_fitted

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome, interrupts_deferred, progress_bar
from jaxseq.constraints._constraint import Constraints, Scheme
from jaxseq.constraints._decoding import bound_to, search_scored, warn_unmet
from jaxseq.constraints._learning import (
    CRFLearner,
    HMMLearner,
    LabellingWeights,
    check_share,
    check_weighing,
    labelling_weights,
)
from jaxseq.constraints._penalties import corpus_violations
from jaxseq.crf import CRFTagger
from jaxseq.hmm import HMMTagger, check_own_mesh
from jaxseq.parallel import PER_PROCESS, Devices
from jaxseq.taggers import (
    KeepsSearch,
    Label,
    check_number,
    check_unlabelled,
    settings_of,
    token_score,
)
from jaxseq.text import token_rows

SAME_WEIGHT = 1e-6  # labellings whose weights differ by less teach the same: rounding moves them


class Labelling(NamedTuple):
    """The best labellings of the unlabelled sentences: labels [N, k], scores [B, k] less penalties,
    weights [B, k], and hard [B], violations of hard constraints by the best one."""

    labels: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    hard: np.ndarray

    def teaches_the_same_as(self, other: Labelling) -> bool:
        """Whether there is nothing new to learn from the other one."""
        close = np.abs(self.weights - other.weights) <= SAME_WEIGHT
        return bool(np.array_equal(self.labels, other.labels) and close.all())


class Labeller:
    """Labels the unlabelled sentences of this process with one tagger after another."""

    def __init__(self, codl: CoDL, sentences: list[Any], devices: Devices):
        self._codl, self._sentences, self._constraints = codl, sentences, codl.constraints_
        self._devices = devices
        # The words never change: what the constraints see of them is looked up once.
        self._x = self._constraints.observe_all(sentences)
        self.lengths = np.zeros(0, np.int64)
        # Constraints that are not learnt with are counted all the same, in the history.
        self._used = (
            self._constraints if codl.learn_with_constraints else self._constraints.only(())
        )

    def __call__(self, tagger: Any) -> Labelling:
        """The best labellings by a tagger, under the constraints."""
        scored = tagger._scored(self._sentences)
        self.lengths = scored.features.lengths
        k, width, x = int(self._codl.k), self._codl.width, self._x[: len(self._used)]
        best = search_scored(scored, self._used, k, width, x, self._devices.mesh)
        return self.weigh(best.labels, np.asarray(best.scores), best.hard[:, 0])

    def weigh(self, labels: np.ndarray, scores: np.ndarray, hard: np.ndarray) -> Labelling:
        """Labellings with how much each of them counts."""
        how, temperature = self._codl.weights, float(self._codl.temperature)
        # Weights are of float64 whatever the scores are, so that a resumed job gets the same ones.
        weights = labelling_weights(scores.astype(np.float64), how, temperature)
        return Labelling(labels, scores, np.asarray(weights), hard)

    def history_entry(self, now: Labelling, before: Labelling | None) -> dict[str, Any]:
        """What changed, and scores and violations of the best labellings, over all processes."""
        real = np.isfinite(now.scores[:, 0]) & (self.lengths > 0)
        changed = now.labels.size if before is None else int((now.labels != before.labels).sum())
        best = now.scores[real, 0].astype(np.float64)
        counts = corpus_violations(self._constraints, self._x, now.labels[:, 0], self.lengths)
        violated = (counts[real] > 0).sum(0).tolist()
        unmet = int((now.hard[real] > 0).sum())
        own = [int(changed), unmet, len(best), float(best.sum()), *violated]
        totals = (sum(parts) for parts in zip(*self._devices.peers.exchange(own)))
        changed, unmet, count, score, *violated = totals
        names = self._constraints.names
        times = [names[:number].count(name) + 1 for number, name in enumerate(names)]
        distinct = [f"{name} ({n})" if n > 1 else name for name, n in zip(names, times)]
        return {
            "changed": changed,
            "mean_score": score / max(count, 1),
            "unmet": unmet,
            "violated": {name: n / max(count, 1) for name, n in zip(distinct, violated)},
        }


def fingerprint(constraints: Constraints) -> str:
    """Says which constraints these are, the same in every process."""
    leaves, structure = jax.tree.flatten(constraints)
    return str(Fingerprint(str(structure), *map(np.asarray, leaves)))


DTYPES = {"lengths": "<i4", "labels": "<i4", "scores": "<f8", "hard": "<i4"}
"""The arrays of the notes; float64 holds either kind of score."""


class Kept(NamedTuple):
    """Notes about this process's sentences, as in `Labelling`; and the history of all."""

    labels: np.ndarray
    scores: np.ndarray
    hard: np.ndarray
    history: list[dict[str, Any]]


class CoDLNotes:
    """The labellings that the last cycle learnt from, in a file; nothing is kept without a path.

    Those of all processes stand in the order of the whole corpus, so that another number of
    processes, with other parts of it, can go on. All processes call every method together.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        about: Any,
        X: list[Any],
        y: list[Any],
        unlabelled: list[Any],
        devices: Devices,
    ):
        self._peers, job = devices.peers, Fingerprint("CoDL", about)
        if path is not None:
            numbers = devices.numbers_by_turns(len(unlabelled))
            digests = [bytes.fromhex(str(Fingerprint(sentence))) for sentence in unlabelled]
            own = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
            parts = self._peers.exchange_arrays(numbers, own)
            self._order = np.argsort(np.concatenate([part[0] for part in parts]), kind="stable")
            first = sum(len(part[0]) for part in parts[: self._peers.index])
            # The inverse permutation: where this process's sentences stand in the file.
            self._own = np.argsort(self._order)[first : first + len(unlabelled)]
            # The order of labelled sentences does not matter: a sum of hashes.
            pairs = sum(int(Fingerprint(pair)) for pair in zip(X, y, strict=True))
            every = np.concatenate([part[1] for part in parts])
            job.add(devices.total(pairs), every[self._order])
        self.store = SearchStore(path, job, devices)

    def load(self) -> Kept | None:
        """What the last `save` wrote of this process's sentences; None where there is nothing."""
        saved = self.store.load()
        if saved is None:
            return None
        lengths, labels, scores, hard = (saved.arrays[name] for name in DTYPES)
        labels = labels[token_rows(lengths, self._own)]
        return Kept(labels, scores[self._own], hard[self._own], saved.notes)

    def save(
        self, labelling: Labelling, lengths: np.ndarray, history: list[dict[str, Any]]
    ) -> None:
        """Replace the notes by the labellings of all, of sentences of these lengths."""
        if self.store.path is None:
            return
        own = (lengths, labelling.labels, labelling.scores, labelling.hard)
        typed = (np.asarray(array, dtype) for array, dtype in zip(own, DTYPES.values()))
        parts = self._peers.exchange_arrays(*typed)
        lengths, labels, scores, hard = (np.concatenate(each) for each in zip(*parts))
        labels = labels[token_rows(lengths, self._order)]
        ordered = (lengths[self._order], labels, scores[self._order], hard[self._order])
        self.store.save(history, dict(zip(DTYPES, ordered)))


class CoDL(KeepsSearch):
    r"""Constraint-driven learning: label the unlabelled sentences under constraints, learn, repeat.

    .. math::
        \theta_0 &= \mathrm{learn}(L) \\
        T &= \{(x, y^1), \dots, (x, y^K) : x \in U\}, \quad
        y^1, \dots, y^K = \operatorname{top-}K_y \;
        \mathrm{score}_\theta(x, y) - \sum_k \rho_k d_k(x, y) \\
        \theta &= \gamma \theta_0 + (1 - \gamma) \, \mathrm{learn}(T)

    the last two again and again. Without constraints and with K = 1 this is hard EM, with γ the
    "H&W" of Chang et al., and with `pool`, θ = learn(L ∪ T), their "H". Sentences without a legal
    labelling are not learnt from.

    Args:
        estimator: a `jaxseq.HMMTagger` or `jaxseq.CRFTagger`; it is cloned, not changed. Of an HMM,
            learning is counting, and it costs the same whatever K is; a CRF is trained on K copies
            of each unlabelled sentence.
        constraints: rules, with penalties of their own (`jaxseq.constraints.Penalised`) or
            without; a file of them; or `jaxseq.constraints.Constraints` for the labels, sorted.
            Those of ρ = 0 change nothing, to the bit.
        penalty: ρ of the rules that have none.
        scheme: how labels stand for fields.
        k: K, labellings of each unlabelled sentence to learn from.
        width: of the beam; None for 50, or k if that is more.
        weights: of the K labellings, which add up to 1: ``"uniform"``; or ``"score"``, by
            :math:`\exp(\mathrm{score} / \tau)`, which for τ = 1 is EM with the posterior
            probabilities within the K best.
        temperature: τ.
        keep: γ, 0 … 1, how much is kept of the supervised model.
        cycles: at most so many.
        pool: learn from labelled sentences and labellings together; `keep` does not matter then.
        learn_with_constraints: whether labellings to learn from respect the constraints.
        predict_with_constraints: whether predictions do.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep the labellings of the last cycle in. If it is there when `fit`
            starts, learning goes on from it, with the same result as if it had never stopped.

    Attributes:
        tagger_: the tagger of the last cycle.
        constraints_: bound to its labels.
        outcome_: why it ended.
        history_: an entry for each cycle, about the labellings that it learnt from: ``"changed"``,
            how many labels of all K differ from the cycle before (all of them, in the first);
            ``"mean_score"``, of the best ones, less the penalties; ``"unmet"``, how many sentences
            violate hard constraints; ``"violated"``, from each constraint's name to the share of
            sentences whose best labelling violates it.

    Cost: a cycle is `jaxseq.constraints.search_corpus` and a training.

    Example:
        >>> import jaxseq
        >>> from jaxseq.constraints import Words, WordsImply
        >>> X, y = [["a", "dog"], ["a", "cat"], ["runs"]], [["D", "N"], ["D", "N"], ["V"]]
        >>> rules = [WordsImply(Words(["purrs"]), ["V"])]
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
        # scikit-learn's contract: parameters are kept as they are, and checked in `fit`.
        self.estimator = estimator
        self.constraints = constraints
        self.penalty = penalty
        self.scheme: Scheme = scheme
        self.k = k
        self.width = width
        self.weights: LabellingWeights = weights
        self.temperature = temperature
        self.keep = keep
        self.cycles = cycles
        self.pool = pool
        self.learn_with_constraints = learn_with_constraints
        self.predict_with_constraints = predict_with_constraints
        self.progress = progress
        self.checkpoint = checkpoint

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
            X: sentences, as for the estimator.
            y: their labels.
            unlabelled: more sentences, at least one with a token.
            mesh: devices of `jaxseq.parallel.make_mesh` to share them out to while they are
                labelled under the constraints. With an HMM it may span several processes: the
                sentences are then the part of this one, which may be empty, and all call `fit`
                together, to get what one process gets up to rounding.
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
        with Devices.from_mesh(mesh).agreeing():
            self._check()
            devices = Devices.from_mesh(mesh, sentence_numbers)
            estimator = self.estimator.get_params(deep=False).items()
            own = {"estimator": type(self.estimator).__name__, "constraints": None}
            devices.check_settings(
                {f"estimator: {k}": value for k, value in estimator if k not in PER_PROCESS},
                {**self.get_params(deep=False), **own},
                sentence_numbers=sentence_numbers,
                checkpoint=self.checkpoint,
            )
            X, y, unlabelled = list(X), list(y), check_unlabelled(unlabelled)
            learner = self._learner(X, y, unlabelled, devices)
            self.constraints_ = bound_to(
                learner.classes, self.constraints, self.penalty, self.scheme
            )
            devices.check_same("constraints", fingerprint(self.constraints_))
            labeller = Labeller(self, unlabelled, devices)
            notes = CoDLNotes(self.checkpoint, self._about(), X, y, unlabelled, devices)
        with notes.store.alone():
            return self._fit(learner, labeller, notes, devices)

    def _fit(self, learner: Any, labeller: Labeller, notes: CoDLNotes, devices: Devices) -> CoDL:
        with devices.agreeing():
            kept = notes.load()
        self.tagger_, self.history_ = learner.supervised(), []
        self.outcome_ = Outcome.INTERRUPTED  # until something else ends it
        if self.tagger_.interrupted_:
            return self
        # One process stops where it is; of several, none can without the others.
        deferred = nullcontext(lambda: False) if devices.is_alone else interrupts_deferred()
        with deferred as pressed, progress_bar("CoDL", self.cycles, self.progress) as tick:
            last = self._run_cycles(learner, labeller, notes, devices, pressed, tick, kept)
        if not self.interrupted_:
            self.tagger_._remove_when_saved(notes.store.of_one_process())
        if last is not None:
            warn_unmet(last.hard, "unlabelled")
        return self

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended `fit`."""
        return self.outcome_ is Outcome.INTERRUPTED

    def _learner(
        self, X: list[Any], y: list[Any], unlabelled: list[Any], devices: Devices
    ) -> HMMLearner | CRFLearner:
        keep = None if self.pool else float(self.keep)
        if isinstance(self.estimator, HMMTagger):
            return HMMLearner(self.estimator, X, y, unlabelled, keep, devices.mesh, devices)
        check_own_mesh(devices.mesh, "; with an HMMTagger it may have them")
        return CRFLearner(self.estimator, X, y, unlabelled, keep)

    def _run_cycles(
        self,
        learner: Any,  # either kind: each takes its own kind of tagger
        labeller: Labeller,
        notes: CoDLNotes,
        devices: Devices,
        pressed: Callable[[], bool],
        tick: Callable[[int, int], None],
        kept: Kept | None,
    ) -> Labelling | None:
        """Label and learn until one of the ends; the labelling that the last cycle learnt from."""
        last, first = None, self.tagger_
        if kept is not None:
            # The notes hold no tagger: the one of the last complete cycle is learnt again.
            last = labeller.weigh(kept.labels, kept.scores.astype(first.dtype), kept.hard)
            tagger = learner.learn(first, last.labels, last.weights)
            if tagger.interrupted_:
                raise KeyboardInterrupt  # nothing better than the notes is there to return
            self.tagger_, self.history_ = tagger, kept.history

        try:
            while len(self.history_) < self.cycles:
                with devices.agreeing():
                    labelling = labeller(self.tagger_)
                if devices.any(pressed()):
                    return last
                if devices.all(last is not None and labelling.teaches_the_same_as(last)):
                    self.outcome_ = Outcome.FIXED_POINT
                    return last
                if not devices.any(labelling.weights.any()):
                    raise ValueError(
                        "unlabelled: expected a sentence that the model gives a labelling, got none"
                    )
                tagger = learner.learn(first, labelling.labels, labelling.weights)
                if tagger.interrupted_ or devices.any(pressed()):
                    return last
                history = [*self.history_, labeller.history_entry(labelling, last)]
                # In one line: Ctrl-C then leaves one complete cycle or the next.
                self.tagger_, self.history_, last = tagger, history, labelling
                notes.save(labelling, labeller.lengths, history)
                tick(len(history), history[-1]["changed"])
        except KeyboardInterrupt:
            if not devices.is_alone:
                raise  # the second Ctrl-C: the other processes are still at work
            return last
        self.outcome_ = Outcome.MAX_ROUNDS
        return last

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

    def _constraints_if(self, constrained: bool | None) -> Constraints | None:
        """The constraints where they are respected in a prediction."""
        check_is_fitted(self, "tagger_")
        wanted = self.predict_with_constraints if constrained is None else constrained
        return self.constraints_ if wanted else None

    def predict(self, X: Iterable[Any], *, constrained: bool | None = None) -> list[list[str]]:
        """The best labelling of each sentence, by the last tagger.

        Args:
            X: sentences.
            constrained: whether constraints are respected; None for `predict_with_constraints`.
        """
        constraints = self._constraints_if(constrained)
        return self.tagger_.predict(X, constraints=constraints, width=self.width)

    def predict_k_best(
        self, X: Iterable[Any], k: int, *, constrained: bool | None = None
    ) -> list[list[tuple[list[str], float]]]:
        """The k best labellings of each sentence, with log P(y | x) less the soft penalties."""
        constraints = self._constraints_if(constrained)
        width = self.width if self.width is None else max(int(k), self.width)
        return self.tagger_.predict_k_best(X, k, constraints=constraints, width=width)

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
