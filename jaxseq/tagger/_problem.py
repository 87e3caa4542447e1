"""What a tagger learns from, and which weights it learns."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxseq.learn._corpus import EncodedLabels
from jaxseq.learn._parameters import Legal, Spread, WeightSet, observed_places
from jaxseq.models._linear import padded_labels
from jaxseq.tagger._together import Together
from jaxseq.text import TokenFeatures

DENSE_FROM = 10
"""Tokens that an attribute must be on to have a weight for every label, among mixed weights."""


DENSE_WASTE = 1.5
"""Columns of a table for every label, above which the search is in the labels' columns alone: with
three labels it would otherwise carry five columns of zeros through every step."""


@dataclass(frozen=True)
class Problem:
    """What is to be learnt from: labelled sentences, and perhaps unlabelled ones."""

    features: TokenFeatures
    labels: EncodedLabels
    classes: list[str]
    attributes: int
    edge_attributes: int
    transitions: bool
    legal: Legal | None
    sentence_weights: np.ndarray | None
    unlabelled: TokenFeatures | None = None


def make_spread(
    problem: Problem,
    weights: WeightSet,
    together: Together | None = None,
    in_blocks: bool = False,
) -> Spread:
    """Which weights are learnt.

    Args:
        problem: the data; with several processes (`together`), the part of this one.
        weights: by which rule.
        in_blocks: whether the whole table is wanted, as it is to be cut.
    """
    s, gold = len(problem.classes), problem.labels.gold
    learnt = None if problem.transitions else np.zeros((s, s), bool)
    places = groups = None
    num_groups = 0
    if weights in ("observed", "mixed"):
        dense_from = DENSE_FROM if weights == "mixed" else None
        ids, allowed = problem.features.ids, problem.labels.allowed
        if together is None or together.is_alone:
            places = observed_places(ids, gold, allowed, problem.attributes, s, dense_from)
        else:
            places = observed_places(ids, gold, allowed, problem.attributes, s)
            frequent = _frequent_places(ids, problem.attributes, s, dense_from, together)
            places = together.places(np.union1d(places, frequent))
        if problem.transitions and weights == "observed":
            learnt = _observed_transitions(problem)
            learnt = learnt if together is None else together.peers.any(learnt)
    elif weights == "dense" and padded_labels(s) > DENSE_WASTE * s and not in_blocks:
        places = np.add.outer(np.arange(problem.attributes) * padded_labels(s), np.arange(s))
        places = places.ravel()
    elif weights == "tied":
        types = [label.split("-", 1)[-1] for label in problem.classes]
        names = sorted(set(types))
        groups, num_groups = np.array([names.index(t) for t in types], np.int32), len(names)
    return Spread(
        attributes=problem.attributes,
        labels=s,
        places=None if places is None else jnp.asarray(places, jnp.int32),
        groups=None if groups is None else jnp.asarray(groups),
        num_groups=num_groups,
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


def _frequent_places(
    ids: np.ndarray, attributes: int, labels: int, dense_from: int | None, together: Together
) -> np.ndarray:
    """Places of all labels for the attributes that are on enough tokens of all processes."""
    if dense_from is None:
        return np.zeros(0, np.int64)
    counts = together.peers.sum(np.bincount(ids[ids >= 0], minlength=attributes))
    frequent = np.flatnonzero(counts >= dense_from) * padded_labels(labels)
    return np.add.outer(frequent, np.arange(labels)).ravel()


def _observed_transitions(problem: Problem) -> np.ndarray:
    """Transitions between labels that neighbours in the data have, or may have."""
    s, labels, lengths = len(problem.classes), problem.labels, problem.features.lengths
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    linked = np.ones(len(labels.gold), bool)
    linked[starts] = False
    seen = np.zeros((s, s), bool)
    second = np.flatnonzero(linked)
    gold = labels.gold
    known = second[(gold[second] >= 0) & (gold[second - 1] >= 0)]
    seen[gold[known - 1], gold[known]] = True
    if labels.allowed is not None:
        allowed = labels.allowed.astype(np.float32)
        partial = second[(gold[second] < 0) | (gold[second - 1] < 0)]
        seen |= allowed[partial - 1].T @ allowed[partial] > 0
    return seen
