"""The active learner: a tagger that asks for the labels it learns most from."""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from sklearn.base import BaseEstimator

from jaxseq._runtime import progress_bar
from jaxseq.active._labels import KnownLabels, new_label_names
from jaxseq.active._pool import Pool
from jaxseq.active._query import Answer, Look, Proposal, Query, Strategy, informative, propose
from jaxseq.active._run import (
    Run,
    RunFolder,
    initial_events,
    learner_settings,
    proposal_as_json,
    read_run,
    settings_from_json,
)
from jaxseq.active._stop import HOW, ActiveStatus, agreement, first_sentences, is_stable
from jaxseq.active._strategies import GroupQueries
from jaxseq.active._training import train_on
from jaxseq.crf import (
    CRF,
    FOLDS,
    L2_VALUES,
    CRFTagger,
    EncodedLabels,
    Fitted,
    Plan,
    best_labels,
    cross_validate,
)
from jaxseq.metrics import span_scores
from jaxseq.taggers import check_number, fresh, legal_by_scheme, split_by_sentence
from jaxseq.text import find_representation

FIXED = (
    "templates", "representation", "cutoff", "scheme", "checkpoint", "checkpoint_every", "progress",
)  # fmt: skip
"""Settings that `ActiveLearner.refit` cannot change: the pool was read by the first four, and the
search is neither kept nor shown."""

ASKING_L2 = 1.0
"""Of the models that ask, where the estimator has none. It is larger than what suits few labels, so
that they are less sure, and there is more to ask below the threshold."""

WORSE = 1e-3
"""How much lower, relatively, an objective from zeros must be to replace a warm-started one."""


class Trained(NamedTuple):
    """A tagger for what is known, its look at the pool, and a record of its training."""

    tagger: CRFTagger
    look: Look
    record: dict[str, Any]

    def after(self, first: Trained) -> Trained:
        """The same as the end of a training whose first part was cut short."""
        parts = first.record, self.record
        seconds = [part["seconds"] for part in parts]
        names = dict.fromkeys(name for part in seconds for name in part)
        together = {
            "start": first.record["start"],
            **{name: sum(part[name] for part in parts) for name in ("iterations", "evaluations")},
            "seconds": {name: sum(part.get(name, 0.0) for part in seconds) for name in names},
        }
        return self._replace(record={**self.record, **together})


class ActiveLearner(BaseEstimator):
    r"""Active learning with partial labels: ask, be answered, train, until it is enough.

    A round proposes queries, takes answers (some, all, or labels nobody asked for) and trains on
    the sentences that have any label, by the likelihood of what is known,

    .. math:: \sum_x \log P(Y_L | x) = \sum_x \big(\log Z_{Y_L}(x) - \log Z(x)\big).

    Training starts from the weights of the round before, and ends sooner than from zeros: when the
    objective improves by less than 10 times the estimator's `tolerance` over 5 iterations. It is
    not convex with partial labels, so a warm start could end in a worse place than one from
    scratch: see `recheck`.

    Args:
        estimator: the tagger; it is cloned, not changed. Without an `l2`, models that ask have 1,
            and those of `refit` one that suits the number of labels.
        strategy: what to ask; see `jaxseq.active.Strategy`. `jaxseq.active.GroupQueries` learns
            most from few labels.
        initial: sentences to be labelled whole before there is a model, if no label is known.
        initial_how: the ``"longest"``, ``"random"`` or ``"shortest"`` ones.
        kappa: stop when the labellings of the pool by the models of two rounds agree by more, and
            less than a round's number of informative units is left; 1 for never.
        max_rounds: at most so many rounds after the initial one.
        budget: at most so many labelled tokens.
        seed: of random initial sentences.
        progress: show a progress bar in `simulate`; None shows it on a terminal.
        check_warm_start: in `simulate`, `recheck` the last model before stopping.
        between: iterations (or epochs of mini-batches) of a warm start, at most, in rounds after
            which it is not yet time to stop; None for as many as it takes. After few new labels
            the first iterations say well enough what to ask next. A training that was cut short
            goes on to its end where it would be time to stop: no such model is the last one.

    Attributes:
        tagger_: the tagger of the last round.
        history_: for every training its objective, iterations, κ and seconds.
        classes_: the labels.

    Example:
        >>> import jaxseq
        >>> from jaxseq.active import Answer, TokenQueries
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
        >>> learner = jaxseq.ActiveLearner(tagger, TokenQueries(1, 0.99), initial=1)
        >>> X = [["the", "dog", "barks"], ["the", "cat"]]
        >>> learner.begin(X, classes=["D", "N", "V"]).propose()
        [Query(sentence=0, start=0, stop=3, score=0.0)]
        >>> learner.answer([Answer(0, t, label) for t, label in enumerate("DNV")])
        >>> [(query.sentence, query.start) for query in learner.train().propose()]
        [(1, 1)]

    References:
        Wanvarie, Takamura & Okumura 2011; Tsuboi et al. 2008.
    """

    def __init__(
        self,
        estimator: CRFTagger,
        strategy: Strategy = GroupQueries(count=500),  # noqa: B008 - immutable
        *,
        initial: int = 50,
        initial_how: Literal["longest", "random", "shortest"] = "longest",
        kappa: float = 0.9999,
        max_rounds: int | None = None,
        budget: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
        check_warm_start: bool = True,
        between: int | None = None,
    ):
        self.estimator = estimator
        self.strategy = strategy
        self.initial = initial
        self.initial_how: Literal["longest", "random", "shortest"] = initial_how
        self.kappa = kappa
        self.max_rounds = max_rounds
        self.budget = budget
        self.seed = seed
        self.progress = progress
        self.check_warm_start = check_warm_start
        self.between = between

    def begin(
        self,
        X: Iterable[Any],
        y: Sequence[Any] | None = None,
        classes: Iterable[str] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
    ) -> ActiveLearner:
        """Take a pool of sentences.

        Args:
            X: sentences, as for the estimator.
            y: what is known of their labels: for every sentence None, or a label, a set of
                possible ones or None for every token.
            classes: all labels that may be given; None for those in y.
            folder: where to keep the state, for `resume`: a database of settings, queries and
                answers, and the model of the last round; None keeps nothing.

        Returns:
            Itself.
        """
        self._check()
        pool = Pool.read(self.estimator, X, y, classes, self.strategy)
        run = Run(pool, KnownLabels(pool.lengths, pool.classes, pool.legal))
        if y is not None:
            y = list(y)
            run.known.take_initial(y)
            run.has_news = bool(run.known.answered.any())
        if folder is not None:  # last: arguments that are refused leave no folder behind
            settings = learner_settings(self, pool)
            run.folder = RunFolder.create(
                folder,
                settings,
                initial_events(y or []),
                find_representation(self.estimator.representation),
            )
        return self._take(run)

    @classmethod
    def resume(
        cls, folder: str | os.PathLike[str], X: Iterable[Any], *, read_only: bool = False
    ) -> ActiveLearner:
        """Go on with what `begin` started in a folder, as if it had never stopped.

        Args:
            folder: that `begin` made.
            X: the same sentences.
            read_only: only look, also while another process is at work on the folder: then nothing
                in it changes, and asking, answering and training are refused.

        Raises:
            ValueError: for another pool, and for a folder that is not sound.
        """
        state = RunFolder(folder, read_only=read_only)
        settings = state.settings()
        learner = cls(**settings_from_json(settings, state.path))
        try:
            learner._check()
        except (ValueError, TypeError) as error:  # of another type than is compared with
            raise ValueError(f"{state.path}: expected settings that make sense: {error}") from error
        return learner._take(read_run(state, learner, settings, X))

    def _check(self) -> None:
        """ValueError on a setting that makes no sense."""
        if not isinstance(self.estimator, CRFTagger):
            raise ValueError(f"estimator: expected a CRFTagger, got {self.estimator!r:.60}")
        if not isinstance(self.strategy, Strategy):
            raise ValueError(
                f"strategy: expected one such as TokenQueries(), got {self.strategy!r:.60}"
            )
        Plan.from_tagger(self.estimator)  # refuses what would only fail in the first training
        check_number("initial", self.initial, 1, numbers.Integral)
        check_number("seed", self.seed, 0, numbers.Integral)
        check_number("kappa", self.kappa, -1, numbers.Real)
        if self.kappa > 1:
            raise ValueError(f"kappa: expected a number from -1 to 1, got {self.kappa}")
        for name, least in (("max_rounds", 0), ("budget", 1), ("between", 1)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least, numbers.Integral)
        if self.initial_how not in HOW:
            raise ValueError(
                f"initial_how: expected one of {list(HOW)}, got {self.initial_how!r:.60}"
            )

    def _take(self, run: Run) -> ActiveLearner:
        self.__dict__.pop("tagger_", None)  # of a run before this one
        self._run, self.history_ = run, run.history
        self.classes_ = np.array(run.pool.classes, dtype=object)
        if run.tagger is not None:
            self.tagger_ = run.tagger
        return self

    def add_labels(self, names: Iterable[str]) -> ActiveLearner:
        """Allow labels that were not thought of at the beginning.

        What is known stays as it is, and the queries of this round too. The model says the same as
        before; the next training starts from its weights, those of the new labels at 0.

        Args:
            names: of the labels; none of them known yet.

        Returns:
            Itself.

        Example:
            >>> import jaxseq
            >>> learner = jaxseq.ActiveLearner(jaxseq.CRFTagger(["word[0]"]), initial=1)
            >>> _ = learner.begin([["the", "dog"]], classes=["D", "N"]).add_labels(["A"])
            >>> learner.classes_.tolist()
            ['A', 'D', 'N']
        """
        run = self._begun()
        plain = new_label_names(names, run.pool.classes)
        legal_by_scheme([*run.pool.classes, *plain], self.estimator.scheme)  # refuses strange ones
        run.write("labels", labels=plain)
        run.add_labels(plain, self.estimator)
        return self._take(run)

    def propose(self) -> list[Query]:
        """The queries of this round that have no, or not all, answers yet.

        They are chosen when first asked for, and stay the same until `train`. Before there is a
        model they are the initial sentences; none where labels were given with the pool.
        """
        run = self._begun()
        if run.queries is None:
            proposal = self._choose()
            # Written before it is shown: who resumes is asked the same.
            run.write("proposed", **proposal_as_json(proposal))
            run.take(proposal)
        return run.waiting()

    def _choose(self) -> Proposal:
        """What to ask in this round, within the budget."""
        run = self._begun()
        if run.tagger is not None:
            known = run.known
            proposal = propose(self.look(), known.known, self.strategy, sampled=known.sampled)
        elif run.known.answered.any():
            proposal = Proposal.only([])  # there is something to train on, which asks better
        else:
            lengths = run.pool.lengths
            first = first_sentences(lengths, self.initial, self.initial_how, self.seed)
            proposal = Proposal.only([Query(b, 0, int(lengths[b]), 0.0) for b in first.tolist()])
        if self.budget is None:
            return proposal
        left, kept = self.budget - int(run.known.answered.sum()), []
        for query in proposal.queries:  # the last one is cut short
            stop = min(query.stop, query.start + left)
            if stop > query.start:
                kept.append(query._replace(stop=stop))
                left -= stop - query.start
        return replace(proposal, queries=kept)

    def answer(self, answers: Iterable[Answer], *, round: int | None = None) -> None:
        """Take in labels of tokens, asked for or not; a later answer replaces an earlier one.

        Args:
            answers: `Answer(sentence, position, label)`; several labels stand for one of them.
            round: that the answers are of, to be refused when it is over; None for this one.

        Raises:
            ValueError: for a round that is over, an unknown label, a token that is not there, or
                labels that the scheme forbids. Then none of the answers is taken in.
        """
        run = self._begun()
        if round is not None and round != run.round:
            raise ValueError(f"round: expected answers of round {run.round}, got round {round!r}")
        plain = run.known.check(answers)
        if plain:  # on disk before it counts: no answer that was taken in is lost
            run.write("answers", answers=[list(one) for one in plain])
        # The same label again is no news: training on it would change nothing.
        run.has_news |= run.known.is_news(plain)
        run.note([(one.sentence, one.position) for one in plain], answered=True)
        run.known.answer(plain)

    def retract(self, tokens: Iterable[tuple[int, int]]) -> None:
        """Take back the labels of tokens: they count as never given, from the next training on.

        Args:
            tokens: (sentence, position) of each; one without a label stays so.

        Raises:
            ValueError: for a token that is not there. Then none of the labels is taken back.

        Example:
            >>> import jaxseq
            >>> learner = jaxseq.ActiveLearner(jaxseq.CRFTagger(["word[0]"]), initial=1)
            >>> _ = learner.begin([["the", "dog"]], classes=["D", "N"])
            >>> learner.answer([(0, 0, "D"), (0, 1, "D")])
            >>> learner.retract([(0, 1)])
            >>> learner.status().labelled_tokens
            1
        """
        run = self._begun()
        plain = run.known.check_places(tokens)
        if plain:
            run.write("answers", answers=[[*token, None] for token in plain])
        run.has_news |= any(run.known.label_at(*token) is not None for token in plain)
        run.note(plain, answered=False)
        run.known.retract(plain)

    def train(
        self, *, start: Literal["warm", "cold"] = "warm", full: bool = False
    ) -> ActiveLearner:
        """Train on the sentences that have a label, which ends the round.

        Args:
            start: ``"warm"`` from the weights of the round before, ``"cold"`` from zeros.
            full: train to the end whatever `between` says, as from zeros and before a stop: for a
                model that is to be used, and not only to ask. ``short`` in `history_` tells.

        Returns:
            Itself. After Ctrl-C (KeyboardInterrupt) all is as it was before.
        """
        if start not in ("warm", "cold"):
            raise ValueError(f"start: expected 'warm' or 'cold', got {start!r:.60}")
        run = self._begun()
        older = run.tagger.model_ if start == "warm" and run.tagger is not None else None
        trained = self._train(older, None if full or older is None else self.between)
        # A model that is half trained may agree with the last one for that reason alone.
        if trained.record["short"] and self._would_stop(trained):
            trained = self._train(trained.tagger.model_).after(trained)
        return self._keep(trained, run.round)

    def _train(self, older: CRF | None, most: int | None = None) -> Trained:
        """Train from an older model or from zeros, and look at the pool."""
        began = time.perf_counter()
        run = self._begun()
        before = None if run.tagger is None else self.look()  # kept from the last round, as a rule
        tagger, clock = fresh(self.estimator), time.perf_counter()
        if tagger.l2 is None:
            tagger.set_params(l2=ASKING_L2)
        complete = self.strategy.completes_sentences
        fitted, is_short, sentences = self._fit(tagger, older, most, complete=complete)
        seconds = {**fitted.seconds, "training": time.perf_counter() - clock}
        clock = time.perf_counter()
        look = run.pool.view.look(tagger.model_, self.strategy)
        now = time.perf_counter()
        record = {
            "start": "cold" if older is None else "warm",
            "sentences": sentences,
            "objective": float(fitted.loss),
            "iterations": fitted.iterations,
            "evaluations": fitted.evaluations,
            "outcome": fitted.outcome,
            "short": is_short,
            "new_labels": run.has_news,
            "kappa": None if before is None else agreement(before.labels, look.labels),
            "seconds": {**seconds, "look": now - clock, "all": now - began},
        }
        return Trained(tagger, look, record)

    def _fit(
        self, tagger: CRFTagger, older: CRF | None, most: int | None = None, *, complete: bool
    ) -> tuple[Fitted, bool, int]:
        """Train a new tagger: where the search ended, whether it was cut short, and on how many
        sentences. If `complete`, no later training needs a program for sets of labels."""
        run = self._begun()
        trained, labels = run.known.to_train_on()
        if not trained.any():
            raise ValueError("labels: expected at least one, got none; answer some queries first")
        if not complete and labels.allowed is None:
            # As sets, which later rounds need: no other program is compiled for this one.
            allowed = labels.gold[:, None] == np.arange(len(run.pool.classes))
            labels = EncodedLabels(labels.gold, allowed)
        problem = run.pool.problem(trained, labels)
        plan = Plan.from_tagger(tagger).scaled(problem.labelled_tokens())
        model, fitted, is_short = train_on(problem, plan, older, run.pool.shape, most)
        # As if `fit` had been called on these sentences, so that the tagger is like any other.
        tagger._take(model, run.pool.classes, run.pool.extractor)
        tagger._report(fitted, plan)
        return fitted, is_short, int(trained.sum())

    def recheck(self) -> bool:
        """Train the last round once more from zeros, and take that model if it is better.

        The likelihood of partial labels has many optima, and a warm start ends near the last one.
        A model from zeros whose objective is lower by more than 1e-3 of it, and by more than the
        rounding of a sum over that many tokens, replaces the one of the last round, and is compared
        with it for κ: if they label the pool differently, it is not yet time to stop.

        Returns:
            Whether the model was replaced.

        Raises:
            ValueError: without a model, or where labels have changed since: the objectives would
                be of different labels.
        """
        run = self._begun()
        if run.tagger is None:
            raise ValueError("recheck: expected a trained model, got none; call `train` first")
        if run.has_news:
            raise ValueError(
                "recheck: expected the labels of the last round, got others since; call `train`"
            )
        trained, warm = self._train(older=None), run.tagger.loss_
        # A search ends where no step improves the objective within its precision, sooner or later:
        # a unit in the last place per token may be rounding.
        tokens = int(run.pool.lengths[run.known.to_train_on()[0]].sum())
        rounding = float(np.finfo(self.estimator.dtype).eps) * tokens
        if not trained.record["objective"] < warm - WORSE * abs(warm) - rounding:
            return False
        # Of the labels of the round that it replaces the model of.
        trained.record["new_labels"] = run.history[-1].get("new_labels", True)
        self._keep(trained, run.round - 1)
        return True

    def _keep(self, trained: Trained, number: int) -> ActiveLearner:
        run, record = self._begun(), {"round": number, **trained.record}
        if run.folder is not None:
            # On the disk first: after an error or a kill the round is as it was before.
            run.folder.keep_model(trained.tagger, {"kind": "trained", **record})
        run.tagger, run.look = trained.tagger, trained.look
        run.end_round(number)
        run.history.append(record)
        self.tagger_ = trained.tagger
        return self

    def refit(self, **changes: Any) -> CRFTagger:
        """Another tagger of the labels so far, from zeros: the run itself stays as it is.

        The model that asks best need not be the best to use: with a larger `l2` it is less sure,
        and goes on asking below the same threshold; a smaller one makes more of the labels then.

        Args:
            changes: settings of the estimator that are others for this tagger; all but
                `templates`, `cutoff`, `scheme`, `progress` and those of checkpoints. ``l2="auto"``
                takes the best of a few in five-fold cross-validation, by the share of the
                annotator's labels in held-out sentences that the model gives too.

        Returns:
            The tagger, of the annotator's labels and those that the strategy took from the model.

        Raises:
            ValueError: for a setting that cannot be, and without labels.

        Example:
            >>> import jaxseq
            >>> learner = jaxseq.ActiveLearner(jaxseq.CRFTagger(["word[0]"], l2=1.0), initial=1)
            >>> _ = learner.simulate([["the", "dog"], ["dog"]], [["D", "N"], ["N"]])
            >>> learner.refit(l2=0.1).predict([["the", "dog"]])
            [['D', 'N']]
        """
        self._begun()
        may_change = sorted(set(self.estimator.get_params(deep=False)) - set(FIXED))
        for name in changes:
            if name not in may_change:
                expected = ", ".join(may_change)
                raise ValueError(f"refit: expected settings among {expected}, got {name}")
        automatic = isinstance(changes.get("l2"), str) and changes["l2"] == "auto"
        tagger = fresh(self.estimator).set_params(**changes | ({"l2": None} if automatic else {}))
        if automatic:
            tagger.set_params(l2=self._choose_l2(tagger))
        self._fit(tagger, older=None, complete=True)  # there is no later round to compile for
        return tagger

    def _choose_l2(self, tagger: CRFTagger) -> float:
        """The l2 for a tagger of the labels so far, by cross-validation on their sentences."""
        pool, known = self._begun().pool, self._begun().known
        trained, labels = known.to_train_on()
        sentences = np.flatnonzero(trained)
        if len(sentences) < FOLDS:
            raise ValueError(
                f"refit, l2: expected labels in at least {FOLDS} sentences to choose it by, got "
                f"them in {len(sentences)}"
            )
        sentence = np.repeat(np.arange(len(sentences)), pool.lengths[sentences])
        # Labels that the model gave itself say nothing of how good it is.
        is_scored = known.answered[np.repeat(trained, pool.lengths)] & (labels.gold >= 0)

        def take(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """The sentences as a mask of the pool's, and their tokens of those trained on."""
            mask = np.zeros_like(trained)
            mask[sentences[chosen]] = True
            return mask, np.isin(sentence, chosen)

        def on_fold(train: np.ndarray, held_out: np.ndarray) -> Callable[[float], float]:
            (mask, tokens), (held_mask, held_tokens) = take(train), take(held_out)
            allowed = None if labels.allowed is None else labels.allowed[tokens]
            problem = pool.problem(mask, EncodedLabels(labels.gold[tokens], allowed))
            features, gold = pool.features.take(held_mask), labels.gold[held_tokens]
            counted = is_scored[held_tokens]

            def score(l2: float) -> float:
                plan = Plan.from_tagger(fresh(tagger).set_params(l2=l2))
                model, *_ = train_on(problem, plan, None, pool.shape)
                right = best_labels(model, features) == gold
                return float(right[counted].mean()) if counted.any() else float("nan")

            return score

        return cross_validate(
            L2_VALUES, len(sentences), on_fold, folds=FOLDS, seed=self.seed, progress=False
        ).best

    def _begun(self) -> Run:
        if not hasattr(self, "_run"):
            raise ValueError("ActiveLearner: expected a pool, got none; call `begin` or `resume`")
        return self._run

    def look(self) -> Look:
        """What the model of the last round says of the pool."""
        run = self._begun()
        if run.tagger is None:
            raise ValueError("look: expected a trained model, got none; call `train` first")
        if run.look is None:  # taken once per model
            run.look = run.pool.view.look(run.tagger.model_, self.strategy)
        return run.look

    def status(self) -> ActiveStatus:
        """Where it stands: labels, κ, informative units left, whether to stop and why."""
        run = self._begun()
        known, left = run.known, None if run.tagger is None else self._left(self.look())
        last, kappa = run.history[-1] if run.history else {}, _agreement(run.history)
        stop, why = self._why_stop(run.round, left or 0, kappa)
        return ActiveStatus(
            round=run.round,
            tokens=len(known.answered),
            sentences=len(run.pool.lengths),
            labelled_tokens=int(known.answered.sum()),
            labelled_sentences=known.labelled_sentences(),
            sampled_sentences=known.sampled_sentences(),
            guessed_tokens=int(known.guessed.sum()),
            waiting=len(run.waiting()),
            informative=left,
            kappa=kappa,
            objective=last.get("objective"),
            stop=stop,
            why=why,
        )

    def _left(self, look: Look) -> int:
        known = self._begun().known
        return informative(look, known.known, self.strategy, sampled=known.sampled)

    def _would_stop(self, trained: Trained) -> bool:
        """Whether it would be time to stop with a model that ends the round under way."""
        run = self._begun()
        agreed = _agreement([*run.history, trained.record])
        return self._why_stop(run.round + 1, self._left(trained.look), agreed)[0]

    def _why_stop(self, trained: int, left: int, agreed: float | None) -> tuple[bool, str]:
        """Whether to stop after so many trainings, with so many informative units left, and why."""
        budget, rounds = self.budget, self.max_rounds
        if not trained:
            return False, "there is no model yet"
        if budget is not None and int(self._begun().known.answered.sum()) >= budget:
            return True, f"the budget of {budget} tokens is spent"
        if rounds is not None and trained > rounds:
            return True, f"the number of rounds asked for, {rounds}, is reached"
        if not left:
            return True, "nothing informative is left to ask"
        if agreed is None:
            return False, "there is only one model yet, and none to compare it with"
        q = 1 if self.strategy.count is None else self.strategy.count
        if is_stable(agreed, left, q, self.kappa):
            units = f"{left} informative units are below {q}"
            return True, f"κ = {agreed:.6f} is above {self.kappa}, and {units}"
        if agreed <= self.kappa:
            return False, f"κ = {agreed:.6f} of the last two models is not above {self.kappa}"
        return False, f"{left} informative units are left, {q} or more"

    def simulate(
        self,
        X: Iterable[Any],
        gold: Any,
        dev: Any = None,
        watch: Callable[[dict[str, Any]], Any] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Run the loop to its stop against labels that are known.

        Args:
            X: the pool.
            gold: its labels; or a function from a `Query` to the labels of its tokens, with an
                attribute `classes`, all labels there are. Nothing else of it is looked at.
            dev: (sentences, labels) to score the tagger of every round on.
            watch: called with the record of every round.
            folder: as of `begin`.

        Returns:
            A record a round: of its training (`history_`), its `status`, and span F1 and token
            accuracy on `dev`, as ``dev_f1`` and ``dev_accuracy``.

        Example:
            >>> import jaxseq
            >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
            >>> learner = jaxseq.ActiveLearner(tagger, initial=1, max_rounds=2)
            >>> X, y = [["the", "dog"], ["dog"]], [["D", "N"], ["N"]]
            >>> learner.simulate(X, y)[-1]["labelled_tokens"]
            3
        """
        sentences = list(X)
        (source, classes), dev = _source(gold, sentences), _dev_corpus(dev)
        self.begin(sentences, classes=classes, folder=folder)
        score = _scorer(self, dev)
        records: list[dict[str, Any]] = []
        most = 50 if self.max_rounds is None else self.max_rounds + 1  # a guess, for the bar
        with progress_bar("active learning", most, self.progress, "labelled share") as tick:
            while not records or not records[-1]["stop"]:
                clock = time.perf_counter()
                self.answer(_answers(self.propose(), source))
                asking = time.perf_counter() - clock
                self.train()
                records.append(_record(self, score, asking))
                # A warm start may end in a worse optimum: the last model is compared with another.
                if records[-1]["stop"] and self.check_warm_start and self.recheck():
                    records[-1] = _record(self, score, asking)
                if watch is not None:
                    watch(records[-1])
                tick(len(records), records[-1]["labelled_share"])
        return records


def _agreement(history: list[dict[str, Any]]) -> float | None:
    """κ of the last training that had new labels: another of the same labels says nothing."""
    counted = [record for record in history if record["new_labels"]]
    return counted[-1]["kappa"] if counted else None


# Simulation: labels that are known to a source, which hands out what is asked.


def _source(gold: Any, sentences: list[Any]) -> tuple[Callable[[Query], Sequence[str]], list[str]]:
    """What answers queries, the caller's function or all labels, and the labels there are."""
    if callable(gold):
        if not hasattr(gold, "classes"):
            raise ValueError("gold: expected a function with an attribute `classes`, got none")
        return cast(Callable[[Query], Sequence[str]], gold), cast(Any, gold).classes
    y = _labellings("gold", gold, sentences)
    for index, (sentence, labels) in enumerate(zip(sentences, y)):
        for place, label in enumerate(labels):
            if not isinstance(label, str):
                raise ValueError(f"gold[{index}][{place}]: expected a label, got {label!r:.60}")
        if isinstance(sentence, Sized) and len(sentence) != len(labels):
            raise ValueError(f"gold[{index}]: expected {len(sentence)} labels, got {len(labels)}")
    # Only the tokens that are asked for are ever looked at.
    return lambda query: y[query.sentence][query.start : query.stop], sorted(set().union(*y))


def _dev_corpus(dev: Any) -> tuple[list[Any], list[list[str]]] | None:
    """Sentences with as many labellings."""
    if dev is None:
        return None
    try:
        X, y = dev
        X = list(X)
    except (TypeError, ValueError):
        raise ValueError(f"dev: expected (sentences, labels), got {dev!r:.60}") from None
    return X, _labellings("dev", y, X)


def _labellings(name: str, y: Any, sentences: list[Any]) -> list[list[Any]]:
    """As many lists of labels as sentences; ValueError otherwise."""
    if not isinstance(y, Iterable) or isinstance(y, str):
        raise ValueError(f"{name}: expected the labels of every sentence, got {y!r:.60}")
    listed = list(y)
    for index, labels in enumerate(listed):
        if not isinstance(labels, Iterable) or isinstance(labels, str):
            raise ValueError(f"{name}[{index}]: expected a list of labels, got {labels!r:.60}")
    if len(listed) != len(sentences):
        raise ValueError(
            f"{name}: expected labels of {len(sentences)} sentences, got those of {len(listed)}"
        )
    return [list(labels) for labels in listed]


def _answers(queries: list[Query], source: Callable[[Query], Sequence[Any]]) -> list[Answer]:
    answers = []
    for query in queries:
        labels = list(source(query))
        if len(labels) != query.stop - query.start:
            raise ValueError(
                f"gold: expected {query.stop - query.start} labels for {query}, got {len(labels)}"
            )
        answers += [
            Answer(query.sentence, query.start + t, label) for t, label in enumerate(labels)
        ]
    return answers


def _record(
    learner: ActiveLearner, score: Callable[[], dict[str, float]], asking: float
) -> dict[str, Any]:
    """The record of a round: status, training, and scores on held-out sentences."""
    trained, clock = learner.history_[-1], time.perf_counter()
    scores = score()
    seconds = {**trained["seconds"], "asking": asking, "scoring": time.perf_counter() - clock}
    return {**trained, **learner.status().as_dict(), **scores, "seconds": seconds}


def _scorer(learner: ActiveLearner, dev: Any) -> Callable[[], dict[str, float]]:
    """Span F1 and token accuracy of the last tagger."""
    if dev is None:
        return dict
    X, gold = dev
    pool = learner._begun().pool
    features = pool.extractor.transform(X)  # once for all rounds

    def score() -> dict[str, float]:
        best = best_labels(learner.tagger_.model_, features)
        # A sentence without a legal labelling has the label −1, which counts as wrong.
        names = ["" if k < 0 else pool.classes[k] for k in best.tolist()]
        scores = span_scores(gold, split_by_sentence(names, features.lengths))
        return {"dev_f1": scores.overall.f1, "dev_accuracy": scores.accuracy}

    return score
