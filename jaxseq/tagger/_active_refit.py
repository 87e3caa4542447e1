"""Another tagger of the labels that active learning has gathered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxseq.tagger._active_replay import Run
from jaxseq.tagger._active_round import fit_known
from jaxseq.tagger._notes import fresh
from jaxseq.tagger._tagger import CRFTagger

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
