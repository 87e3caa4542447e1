"""Active learning: a tagger that asks for the labels it learns most from."""

from __future__ import annotations

import dataclasses
import numbers
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from jaxseq.active._journal import (
    Run,
    StateFolder,
    add_to_run,
    answer_lines,
    check_new_labels,
    given_lines,
    learner_settings,
    proposal_lines,
    replay,
    settings_from,
    with_labels,
)
from jaxseq.active._pool import (
    KnownLabels,
    Pool,
    train_on,
)
from jaxseq.active._simulate import Watch, run_simulation
from jaxseq.active._stop import HOW, agreement, first_sentences, is_stable
from jaxseq.active._strategies import (
    Answer,
    Groups,
    Look,
    Proposal,
    Query,
    Sequences,
    Spans,
    Strategy,
    Tokens,
    informative,
    propose,
)
from jaxseq.crf import CRF, CRFTagger, EncodedLabels, Fitted, Plan
from jaxseq.taggers import check_number, fresh, legal_by_scheme

# -------------------------------------------------------------------------------------------------
# What an active learner refuses of its settings.


if TYPE_CHECKING:
    pass


def check_learner(learner: ActiveLearner) -> None:
    """ValueError on a setting that makes no sense."""
    if not isinstance(learner.estimator, CRFTagger):
        raise ValueError(f"estimator: expected a CRFTagger, got {learner.estimator!r:.60}")
    if not isinstance(learner.strategy, Tokens | Groups | Spans | Sequences):
        raise ValueError(
            f"strategy: expected Tokens, Groups, Spans or Sequences, got {learner.strategy!r:.60}"
        )
    Plan.from_tagger(learner.estimator)
    check_number("initial", learner.initial, 1, numbers.Integral)
    check_number("seed", learner.seed, 0, numbers.Integral)
    check_number("kappa", learner.kappa, -1, numbers.Real)
    if learner.kappa > 1:
        raise ValueError(f"kappa: expected a number from -1 to 1, got {learner.kappa}")
    for name, least in (("max_rounds", 0), ("budget", 1), ("between", 1)):
        if getattr(learner, name) is not None:
            check_number(name, getattr(learner, name), least, numbers.Integral)
    if learner.initial_how not in HOW:
        raise ValueError(
            f"initial_how: expected one of {list(HOW)}, got {learner.initial_how!r:.60}"
        )


def check_pool(learner: ActiveLearner, pool: Pool) -> None:
    """ValueError where the strategy wants to know more of the tokens than the pool says."""
    limited = isinstance(learner.strategy, Tokens) and learner.strategy.per_form is not None
    if limited and pool.forms is None:
        raise ValueError("X: expected sentences with words for per_form, got none")


# -------------------------------------------------------------------------------------------------
# A run of active learning as its folder has it.


if TYPE_CHECKING:
    pass


def run_of_folder(
    learner: ActiveLearner, state: StateFolder, settings: Mapping[str, Any], X: Iterable[Any]
) -> Run:
    """What the journal of a folder tells, done again on its pool.

    Args:
        learner: with the settings of the folder. state: the folder. settings: as it has them.
        X: the sentences of the pool.

    Raises:
        ValueError: for another pool, and for a folder that is not sound.
    """
    estimator = learner.estimator
    pool = Pool.of(estimator, X, None, settings.get("classes"), learner.strategy)
    if pool.digest() != settings.get("pool"):
        raise ValueError(
            f"X: expected the pool of {state.path} ({settings.get('sentences')} sentences, "
            f"{settings.get('tokens')} tokens), got another ({len(pool.lengths)} sentences, "
            f"{int(pool.lengths.sum())} tokens)"
        )
    check_pool(learner, pool)
    run = Run(pool, KnownLabels(pool.lengths, pool.classes, pool.legal), state)

    def add(names: Any) -> None:
        add_to_run(run, check_new_labels(names, run.pool.classes), estimator)

    replay(run, state.journal(), add)
    if run.tagger is not None:
        run.tagger = with_labels(run.tagger, run.pool.classes)
    return run


# -------------------------------------------------------------------------------------------------
# What an active learner does in a round: choose queries, and train.


if TYPE_CHECKING:
    pass


def look_at_pool(learner: ActiveLearner, run: Run) -> Look:
    """What the model of the last round says; taken once a round."""
    if run.tagger is None:
        raise ValueError("look: expected a trained model, got none; call `train` first")
    if run.look is None:
        run.look = run.pool.view.look(run.tagger.model_, learner.strategy)
    return run.look


def choose_queries(learner: ActiveLearner, run: Run) -> Proposal:
    """What to ask in this round, within the budget."""
    none = np.zeros(0, np.int64)
    if run.tagger is not None:
        look, known = look_at_pool(learner, run), run.known
        found = propose(look, known.known, learner.strategy, sampled=known.sampled)
    elif run.known.answered.any():
        found = Proposal([], none, none, none)
    else:
        lengths = run.pool.lengths
        first = first_sentences(lengths, learner.initial, learner.initial_how, learner.seed)
        queries = [Query(sentence, 0, int(lengths[sentence]), 0.0) for sentence in first.tolist()]
        found = Proposal(queries, none, none, none)
    if learner.budget is None:
        return found
    left = learner.budget - int(run.known.answered.sum())
    return dataclasses.replace(found, queries=_first_tokens(found.queries, left))


def _first_tokens(queries: list[Query], left: int) -> list[Query]:
    """Queries, the last one perhaps cut short, for so many tokens at most."""
    kept = []
    for query in queries:
        stop = min(query.stop, query.start + left)
        if stop > query.start:
            kept.append(query._replace(stop=stop))
            left -= stop - query.start
    return kept


class Trained(NamedTuple):
    """A tagger for what is known, its look at the pool, and what is to be said of its training."""

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


def train_round(
    learner: ActiveLearner, run: Run, older: CRF | None, most: int | None = None
) -> Trained:
    """Train on the sentences that have a label, and look at the pool.

    Args:
        learner: its settings. run: what is known. older: the model to begin with; None for zeros.
        most: as of `train_on`.
    """
    began = time.perf_counter()
    before = None if run.tagger is None else look_at_pool(learner, run)
    tagger, clock = fresh(learner.estimator), time.perf_counter()
    found, is_short, sentences = fit_known(tagger, run, older, most, _always_whole(learner))
    seconds = {**found.seconds, "training": time.perf_counter() - clock}
    clock = time.perf_counter()
    look = run.pool.view.look(tagger.model_, learner.strategy)
    now = time.perf_counter()
    record = {
        "start": "cold" if older is None else "warm",
        "sentences": sentences,
        "objective": float(found.loss),
        "iterations": found.iterations,
        "evaluations": found.evaluations,
        "outcome": found.outcome,
        "short": is_short,
        "new_labels": run.has_news,
        "kappa": None if before is None else agreement(before.labels, look.labels),
        "seconds": {**seconds, "look": now - clock, "all": now - began},
    }
    return Trained(tagger, look, record)


def fit_known(
    tagger: CRFTagger, run: Run, older: CRF | None, most: int | None = None, whole: bool = False
) -> tuple[Fitted, bool, int]:
    """Train a new tagger on the sentences of a pool that have a label.

    Args:
        tagger: to be trained. run: what is known. older, most: as of `train_on`.
        whole: whether all labels of these sentences are known as a rule, or no program for sets of
            them is needed later.

    Returns:
        Where the search ended, whether it was cut short, and the number of sentences.
    """
    trained, labels = run.known.to_train_on()
    if not trained.any():
        raise ValueError("labels: expected at least one, got none; answer some queries first")
    if not whole:
        labels = _as_sets(labels, len(run.pool.classes))
    problem = run.pool.problem(trained, labels)
    model, found, is_short = train_on(problem, Plan.from_tagger(tagger), older, run.pool.shape, most)
    tagger._take(model, run.pool.classes, run.pool.extractor)
    tagger.loss_, tagger.outcome_ = found.loss, found.outcome
    tagger.n_iter_, tagger.n_evaluations_ = found.iterations, found.evaluations
    return found, is_short, int(trained.sum())


def rounding_of(learner: ActiveLearner, run: Run) -> float:
    """How much of a difference of objectives may be rounding: a unit in the last place a token.

    A search ends where no step improves the objective within its precision, sooner or later.
    """
    trained, _ = run.known.to_train_on()
    return float(np.finfo(learner.estimator.dtype).eps) * int(run.pool.lengths[trained].sum())


def _always_whole(learner: ActiveLearner) -> bool:
    """Whether every sentence that is trained on has all its labels, as a rule."""
    return isinstance(learner.strategy, Sequences) and learner.strategy.ask == "all"


def _as_sets(labels: EncodedLabels, classes: int) -> EncodedLabels:
    """With possible labels of every token also where each is known: the program that later rounds
    need, and no other to compile for the first one."""
    if labels.allowed is not None:
        return labels
    return EncodedLabels(labels.gold, labels.gold[:, None] == np.arange(classes))


# -------------------------------------------------------------------------------------------------
# Another tagger of the labels that active learning has gathered.


FIXED = ("templates", "cutoff", "scheme", "checkpoint", "checkpoint_every", "progress")
"""Settings that stay as they are: the pool was read by the first three, and the search is neither
kept nor shown."""


def refit(estimator: CRFTagger, run: Run, changes: Mapping[str, Any]) -> CRFTagger:
    """A tagger with some other settings, trained from zeros on all labels that are known now,
    those that a strategy has taken from the model included.

    Args:
        estimator: with the settings that do not change; it is not trained itself.
        run: what is known; it stays as it is.
        changes: settings of the tagger that are others.

    Raises:
        ValueError: for a setting that there is not, or that cannot be another one.
    """
    may_change = sorted(set(estimator.get_params(deep=False)) - set(FIXED))
    for name in changes:
        if name not in may_change:
            raise ValueError(f"refit: expected settings among {', '.join(may_change)}, got {name}")
    tagger = fresh(estimator).set_params(**changes)
    fit_known(tagger, run, older=None, whole=True)  # there is no later round to compile for
    return tagger


# -------------------------------------------------------------------------------------------------
# Where active learning stands, and whether to go on.


if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class ActiveStatus:
    """Where active learning stands.

    Args:
        round: trainings done; the number of the round under way. 0 has the initial sentences.
        tokens, sentences: in the pool.
        labelled_tokens: with a label from the annotator. labelled_share: of all tokens.
        labelled_sentences: with such a token. sentence_share: of all sentences.
        sampled_sentences: with such a token, or chosen whole by `Sequences`, which may find
            nothing to ask in them.
        guessed_tokens: that took the model's label.
        waiting: queries of this round with a token that has no answer.
        informative: units that the strategy could still ask: tokens, or sentences.
        kappa: agreement on the pool of the last model that learnt new labels with the one before
            it; None before there is such a pair. Training once more on the same labels changes
            next to nothing, and says nothing of whether to stop.
        objective: of the last training.
        stop: whether to stop. why: in words, or why not.

    Example:
        >>> status = ActiveStatus(1, 10, 3, 4, 1, 1, 0, 2, 5, None, 0.5, False, "…")
        >>> status.labelled_share
        0.4
    """

    round: int
    tokens: int
    sentences: int
    labelled_tokens: int
    labelled_sentences: int
    sampled_sentences: int
    guessed_tokens: int
    waiting: int
    informative: int | None
    kappa: float | None
    objective: float | None
    stop: bool
    why: str

    @property
    def labelled_share(self) -> float:
        """Of all tokens."""
        return self.labelled_tokens / self.tokens

    @property
    def sentence_share(self) -> float:
        """Of all sentences."""
        return self.labelled_sentences / self.sentences

    def as_dict(self) -> dict[str, Any]:
        """Everything, the shares too, for JSON."""
        shares = {"labelled_share": self.labelled_share, "sentence_share": self.sentence_share}
        return {**asdict(self), **shares}


def why_stop(
    *,
    trained: int,
    labelled: int,
    left: int,
    found: float | None,
    count: int | None,
    kappa: float,
    max_rounds: int | None,
    budget: int | None,
) -> tuple[bool, str]:
    """Whether to stop, and why, or why not.

    Args:
        trained: trainings done. labelled: tokens with an answer. left: informative units.
        found: the agreement of the last two models. count: units asked a round; None for all.
        kappa, max_rounds, budget: of the learner.
    """
    if not trained:
        return False, "there is no model yet"
    if budget is not None and labelled >= budget:
        return True, f"the budget of {budget} tokens is spent"
    if max_rounds is not None and trained > max_rounds:
        return True, f"the number of rounds asked for, {max_rounds}, is reached"
    if not left:
        return True, "nothing informative is left to ask"
    if found is None:
        return False, "there is only one model yet, and none to compare it with"
    q = 1 if count is None else count
    if is_stable(found, left, q, kappa):
        return True, f"κ = {found:.6f} is above {kappa}, and {left} informative units are below {q}"
    if found <= kappa:
        return False, f"κ = {found:.6f} of the last two models is not above {kappa}"
    return False, f"{left} informative units are left, {q} or more"


def _agreement(history: list[dict[str, Any]]) -> float | None:
    """κ of the last training that had new labels."""
    counted = [one for one in history if one.get("new_labels", True)]
    return counted[-1]["kappa"] if counted else None


def _why_stop(
    learner: ActiveLearner, run: Run, trained: int, left: int, found: float | None
) -> tuple[bool, str]:
    return why_stop(
        trained=trained,
        labelled=int(run.known.answered.sum()),
        left=left,
        found=found,
        count=learner.strategy.count,
        kappa=learner.kappa,
        max_rounds=learner.max_rounds,
        budget=learner.budget,
    )


def would_stop(learner: ActiveLearner, run: Run, trained: Trained) -> bool:
    """Whether it would be time to stop with a model that ends the round under way."""
    known = run.known
    left = informative(trained.look, known.known, learner.strategy, sampled=known.sampled)
    found = _agreement([*run.history, trained.record])
    return _why_stop(learner, run, run.round + 1, left, found)[0]


def status_of(learner: ActiveLearner, run: Run) -> ActiveStatus:
    """Where a learner stands."""
    known, left = run.known, None
    if run.tagger is not None:
        look = look_at_pool(learner, run)
        left = informative(look, known.known, learner.strategy, sampled=known.sampled)
    last = run.history[-1] if run.history else {}
    labelled, agreed = int(known.answered.sum()), _agreement(run.history)
    stop, why = _why_stop(learner, run, run.round, left or 0, agreed)
    return ActiveStatus(
        round=run.round,
        tokens=len(known.answered),
        sentences=len(run.pool.lengths),
        labelled_tokens=labelled,
        labelled_sentences=known.labelled_sentences(),
        sampled_sentences=known.sampled_sentences(),
        guessed_tokens=int(known.guessed.sum()),
        waiting=len(run.waiting()),
        informative=left,
        kappa=agreed,
        objective=last.get("objective"),
        stop=stop,
        why=why,
    )


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
        strategy: what to ask: `jaxseq.active.Tokens`, `Groups`, `Spans` or `Sequences`.
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
        >>> from jaxseq.active import Answer, Tokens
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
