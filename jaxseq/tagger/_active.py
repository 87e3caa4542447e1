"""Active learning: a tagger that asks for the labels it learns most from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from jaxseq.learn.active import Answer, Look, Query, Strategy, Tokens
from jaxseq.tagger._active_checks import check_learner, check_pool
from jaxseq.tagger._active_folder import StateFolder
from jaxseq.tagger._active_known import KnownLabels
from jaxseq.tagger._active_labels import add_to_run, check_new_labels
from jaxseq.tagger._active_pool import Pool
from jaxseq.tagger._active_refit import refit
from jaxseq.tagger._active_replay import (
    Run,
    answer_lines,
    given_lines,
    learner_settings,
    proposal_lines,
    settings_from,
)
from jaxseq.tagger._active_resume import run_of_folder
from jaxseq.tagger._active_round import (
    Trained,
    choose_queries,
    look_at_pool,
    rounding_of,
    train_round,
)
from jaxseq.tagger._active_simulate import Watch, run_simulation
from jaxseq.tagger._active_status import ActiveStatus, status_of, would_stop
from jaxseq.tagger._labels import legal_by_scheme
from jaxseq.tagger._tagger import CRFTagger

WORSE = 1e-3
"""How much lower, relatively, an objective from scratch must be to replace a warm-started one."""


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
        estimator: the tagger; it is cloned, not changed.
        strategy: what to ask: `jaxseq.learn.active.Tokens`, `Groups`, `Spans` or `Sequences`.
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
        tagger_: the tagger of the last round. history_: for every training its objective,
        iterations, κ and seconds. classes_: the labels.

    Example:
        >>> import jaxseq
        >>> from jaxseq.learn.active import Answer, Tokens
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
        >>> learner = jaxseq.ActiveLearner(tagger, Tokens(1, 0.99), initial=1)
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
        strategy: Strategy = Tokens(500, 0.99),  # noqa: B008 - immutable
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

    # ------------------------------------------------------------------------------ beginning

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
            folder: where to keep the state, for `resume`; None keeps nothing. Settings, a journal
                of queries and answers that only grows, and the model of the last round.

        Returns:
            Itself.
        """
        check_learner(self)
        pool = Pool.of(self.estimator, X, y, classes, self.strategy)
        check_pool(self, pool)
        run = Run(pool, KnownLabels(pool.lengths, pool.classes, pool.legal))
        if y is not None:
            y = list(y)
            run.known.given(y)
            run.has_news = bool(run.known.answered.any())
        if folder is not None:
            settings = learner_settings(self, pool)
            run.folder = StateFolder.create(folder, settings, given_lines(y or []))
        return self._take(run)

    @classmethod
    def resume(
        cls, folder: str | os.PathLike[str], X: Iterable[Any], *, read_only: bool = False
    ) -> ActiveLearner:
        """Go on with what `begin` started in a folder, as if it had never stopped.

        Args:
            folder: as of `begin`. X: the same sentences.
            read_only: only look, also while another process is at work on the folder: then nothing
                in it changes, and asking, answering and training are refused.

        Raises:
            ValueError: for another pool, and for a folder that is not sound.
        """
        state = StateFolder(folder, read_only=read_only)
        found = state.settings()
        learner = cls(**settings_from(found))
        check_learner(learner)
        return learner._take(run_of_folder(learner, state, found, X))

    def _take(self, run: Run) -> ActiveLearner:
        self.__dict__.pop("tagger_", None)
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
        plain = check_new_labels(names, run.pool.classes)
        legal_by_scheme([*run.pool.classes, *plain], self.estimator.scheme)  # refuses strange ones
        run.write([{"kind": "labels", "round": run.round, "labels": plain}])
        add_to_run(run, plain, self.estimator)
        return self._take(run)

    # ------------------------------------------------------------------------------- a round

    def propose(self) -> list[Query]:
        """The queries of this round that have no, or not all, answers yet.

        They are chosen when first asked for, and stay the same until `train`. Before there is a
        model they are the initial sentences; none where labels were given with the pool.
        """
        run = self._begun()
        if run.queries is None:
            proposal = choose_queries(self, run)
            run.write(proposal_lines(run.round, proposal))
            run.take(proposal)
        return run.waiting()

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
        run.write(answer_lines(run.round, plain))
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
        run.write(answer_lines(run.round, [(*token, None) for token in plain]))
        run.has_news |= any(run.known.label_of(*token) is not None for token in plain)
        run.note(plain, answered=False)
        run.known.retract(plain)

    def train(
        self, *, start: Literal["warm", "cold"] = "warm", whole: bool = False
    ) -> ActiveLearner:
        """Train on the sentences that have a label, which ends the round.

        Args:
            start: ``"warm"`` from the weights of the round before, ``"cold"`` from zeros.
            whole: train to the end whatever `between` says, as from zeros and before a stop: for a
                model that is to be used, and not only to ask. ``short`` in `history_` tells.

        Returns:
            Itself. After Ctrl-C (KeyboardInterrupt) all is as it was before.
        """
        if start not in ("warm", "cold"):
            raise ValueError(f"start: expected 'warm' or 'cold', got {start!r:.60}")
        run = self._begun()
        older = run.tagger.model_ if start == "warm" and run.tagger is not None else None
        most = None if whole or older is None else self.between
        trained = train_round(self, run, older, most)
        if trained.record["short"] and would_stop(self, run, trained):
            trained = train_round(self, run, trained.tagger.model_).after(trained)
        return self._keep(trained, run.round)

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
        trained, warm = train_round(self, run, older=None), run.tagger.loss_
        if not trained.record["objective"] < warm - WORSE * abs(warm) - rounding_of(self, run):
            return False
        # Of the labels of the round that it replaces the model of.
        trained.record["new_labels"] = run.history[-1].get("new_labels", True)
        self._keep(trained, run.round - 1)
        return True

    def _keep(self, trained: Trained, number: int) -> ActiveLearner:
        run, record = self._begun(), {"round": number, **trained.record}
        if run.folder is not None:
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
                `templates`, `cutoff`, `scheme`, `progress` and those of checkpoints.

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
        return refit(self.estimator, self._begun(), changes)

    # ----------------------------------------------------------------------------- inspection

    def _begun(self) -> Run:
        if not hasattr(self, "_run"):
            raise ValueError("ActiveLearner: expected a pool, got none; call `begin` or `resume`")
        return self._run

    def look(self) -> Look:
        """What the model of the last round says of the pool."""
        return look_at_pool(self, self._begun())

    def status(self) -> ActiveStatus:
        """Where it stands: labels, κ, informative units left, whether to stop and why."""
        return status_of(self, self._begun())

    # ----------------------------------------------------------------------------- simulation

    def simulate(
        self,
        X: Iterable[Any],
        gold: Any,
        dev: Any = None,
        watch: Watch | None = None,
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
        return run_simulation(self, X, gold, dev, watch, folder)
