"""What an active learner refuses of its settings."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING

from jaxseq.learn.active import Groups, Sequences, Spans, Tokens
from jaxseq.learn.active._start import HOW
from jaxseq.tagger._active_pool import Pool
from jaxseq.tagger._checks import check_number
from jaxseq.tagger._plan import plan_of
from jaxseq.tagger._tagger import CRFTagger

if TYPE_CHECKING:
    from jaxseq.tagger._active import ActiveLearner


def check_learner(learner: ActiveLearner) -> None:
    """ValueError on a setting that makes no sense."""
    if not isinstance(learner.estimator, CRFTagger):
        raise ValueError(f"estimator: expected a CRFTagger, got {learner.estimator!r:.60}")
    if not isinstance(learner.strategy, Tokens | Groups | Spans | Sequences):
        raise ValueError(
            f"strategy: expected Tokens, Groups, Spans or Sequences, got {learner.strategy!r:.60}"
        )
    plan_of(learner.estimator)
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
