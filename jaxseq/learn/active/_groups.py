"""Tokens to ask by what is expected to be wrong among tokens like them."""

from __future__ import annotations

import numpy as np

from jaxseq.learn.active._plain import Look, Query
from jaxseq.learn.active._ranks import rank_among_equals
from jaxseq.learn.active._strategies import Groups


def propose_groups(look: Look, known: np.ndarray, strategy: Groups) -> list[Query]:
    """The least sure token of each group, those of the most valuable groups first.

    Args:
        look: with `groups`. known: bool [N]. strategy: `Groups`.

    Cost: O(N log N).
    """
    if look.groups is None:
        raise ValueError("look.groups: expected the groups of the tokens, got None")
    values = group_values(look, known)
    unsure = np.flatnonzero(~known & (look.confidence < strategy.threshold))
    chosen = unsure[np.argsort(look.confidence[unsure], kind="stable")]
    chosen = chosen[rank_among_equals(look.groups[chosen]) < 1]
    chosen = chosen[np.argsort(-values[look.groups[chosen]], kind="stable")]
    if strategy.per_sentence is not None:
        chosen = chosen[rank_among_equals(look.sentence[chosen]) < strategy.per_sentence]
    chosen = chosen[: strategy.count]
    columns = (look.sentence[chosen], look.position[chosen], values[look.groups[chosen]])
    return [Query(s, t, t + 1, score) for s, t, score in zip(*(c.tolist() for c in columns))]


def group_values(look: Look, known: np.ndarray) -> np.ndarray:
    """[groups]: labels expected to be wrong in each, by 1 and the labels that it has."""
    assert look.groups is not None
    size = int(look.groups.max(initial=-1)) + 1
    doubt = np.where(known, 0.0, 1 - look.confidence.astype(np.float64))
    wrong = np.bincount(look.groups, weights=doubt, minlength=size)
    return wrong / (1 + np.bincount(look.groups[known], minlength=size))
