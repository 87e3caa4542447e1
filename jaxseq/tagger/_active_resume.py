"""A run of active learning as its folder has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jaxseq.tagger._active_checks import check_pool
from jaxseq.tagger._active_folder import StateFolder
from jaxseq.tagger._active_known import KnownLabels
from jaxseq.tagger._active_labels import add_to_run, check_new_labels, with_labels
from jaxseq.tagger._active_pool import Pool
from jaxseq.tagger._active_replay import Run, replay

if TYPE_CHECKING:
    from jaxseq.tagger._active import ActiveLearner


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
