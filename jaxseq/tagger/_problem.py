"""What a tagger learns from, and which weights it learns."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxseq.learn._corpus import EncodedLabels
from jaxseq.learn._parameters import Legal, Spread, WeightSet, observed_places
from jaxseq.models._linear import padded_labels
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


def make_spread(problem: Problem, weights: WeightSet) -> Spread:
    """Which weights are learnt."""
    s, gold = len(problem.classes), problem.labels.gold
    learnt = None if problem.transitions else np.zeros((s, s), bool)
    places = groups = None
    num_groups = 0
    if weights in ("observed", "mixed"):
        dense_from = DENSE_FROM if weights == "mixed" else None
        ids, allowed = problem.features.ids, problem.labels.allowed
        places = observed_places(ids, gold, allowed, problem.attributes, s, dense_from)
        if problem.transitions and weights == "observed":
            learnt = _observed_transitions(problem)
    elif weights == "dense" and padded_labels(s) > DENSE_WASTE * s:
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
