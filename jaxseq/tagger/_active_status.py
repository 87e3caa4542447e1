"""Where active learning stands, and whether to go on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from jaxseq.learn.active import informative, is_stable
from jaxseq.tagger._active_replay import Run
from jaxseq.tagger._active_round import Trained, look_at_pool

if TYPE_CHECKING:
    from jaxseq.tagger._active import ActiveLearner


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
