"""Which weights are learnt, by what occurs in the training data."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxseq.crf._model import padded_labels
from jaxseq.crf._parameters import Spread, WeightSet
from jaxseq.crf._problem import Problem
from jaxseq.parallel import Devices

DENSE_FROM = 10
"""Tokens that an attribute must be on to have a weight for every label, among mixed weights."""

DENSE_WASTE = 1.5
"""Columns of a table per label, above which the search is in the labels' columns alone: with three
labels it would otherwise carry five columns of zeros through every step."""


def make_spread(problem: Problem, weights: WeightSet, devices: Devices | None = None) -> Spread:
    """Which weights are learnt.

    Args:
        problem: the data; with several processes, the part of this one.
        weights: by which rule.
        devices: the processes, if there are several.
    """
    devices = devices or Devices.alone()
    s, ids = len(problem.classes), problem.features.ids
    learnt = None if problem.transitions else np.zeros((s, s), bool)
    if weights in ("observed", "mixed"):
        # A place that any process has observed is learnt in all of them.
        gold, allowed = problem.labels.gold, problem.labels.allowed
        places = observed_places(ids, gold, allowed, problem.attributes, s)
        if weights == "mixed":
            counts = np.bincount(ids[ids >= 0], minlength=problem.attributes)
            places = np.union1d(places, frequent_places(devices.sum(counts), s))
        elif problem.transitions:
            learnt = devices.anywhere(_observed_transitions(problem))
        return spread_from_places(problem.attributes, s, devices.merge(places), learnt)
    if weights == "dense" and padded_labels(s) > DENSE_WASTE * s:
        places = np.add.outer(np.arange(problem.attributes) * padded_labels(s), np.arange(s))
        return spread_from_places(problem.attributes, s, places.ravel(), learnt)
    # Otherwise the parameters are the table itself, or (tied) one column of it for each type.
    groups, num_groups = None, 0
    if weights == "tied":
        types = [label.split("-", 1)[-1] for label in problem.classes]
        names = sorted(set(types))
        groups = jnp.asarray([names.index(each) for each in types], jnp.int32)
        num_groups = len(names)
    return Spread(
        attributes=problem.attributes,
        labels=s,
        groups=groups,
        num_groups=num_groups,
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


def spread_from_places(
    attributes: int, labels: int, places: np.ndarray, transitions: Any
) -> Spread:
    """Weights at some places of the table alone; `transitions` None learns all of them."""
    return Spread(
        attributes=attributes,
        labels=labels,
        places=jnp.asarray(places, jnp.int32),
        transitions=None if transitions is None else jnp.asarray(transitions),
    )


def observed_places(
    ids: np.ndarray,
    gold: np.ndarray,
    allowed: np.ndarray | None,
    attributes: int,
    labels: int,
    dense_from: int | None = None,
) -> np.ndarray:
    """Flat places in the table of the pairs (attribute, label) that occur together, sorted.

    A token with several possible labels counts for each of them, one with all for none. With
    `dense_from`, attributes of at least so many tokens have all labels.
    """
    width = padded_labels(labels)
    seen = np.zeros((attributes + 1) * width, bool)
    rows = np.where(ids < 0, attributes, ids).astype(np.int64) * width
    known = gold >= 0
    for column in rows.T:  # column by column: [tokens, k] at once would need k times the memory
        seen[column[known] + gold[known]] = True
    if allowed is not None:
        partial = ~known & ~allowed.all(1)  # all labels say nothing about any of them
        for label in range(labels):
            tokens = partial & allowed[:, label]
            seen[rows[tokens].ravel() + label] = True
    if dense_from is not None:
        counts = np.bincount(ids[ids >= 0], minlength=attributes)
        seen[frequent_places(counts, labels, dense_from)] = True
    seen[attributes * width :] = False  # the row that absent attributes point at
    return np.flatnonzero(seen)


def frequent_places(counts: np.ndarray, labels: int, dense_from: int | None = None) -> np.ndarray:
    """The places of all labels, for attributes that are on enough tokens; sorted.

    Args:
        counts: tokens that each attribute is on, in the whole corpus.
        labels: how many there are.
        dense_from: how many tokens are enough; None for `DENSE_FROM`.
    """
    enough = DENSE_FROM if dense_from is None else dense_from
    rows = np.flatnonzero(counts >= enough) * padded_labels(labels)
    return np.add.outer(rows, np.arange(labels)).ravel()


def _observed_transitions(problem: Problem) -> np.ndarray:
    """Transitions between labels that neighbours in the data have, or may have."""
    s, labels, lengths = len(problem.classes), problem.labels, problem.features.lengths
    # Each token but a first one is linked to the one before it; sentences may be empty.
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    linked = np.ones(len(labels.gold), bool)
    linked[starts] = False
    seen = np.zeros((s, s), bool)
    second = np.flatnonzero(linked)
    gold = labels.gold
    known = second[(gold[second] >= 0) & (gold[second - 1] >= 0)]
    seen[gold[known - 1], gold[known]] = True
    if labels.allowed is not None:
        # Counts of pairs of possible labels as one product of matrices.
        allowed = labels.allowed.astype(np.float32)
        partial = second[(gold[second] < 0) | (gold[second - 1] < 0)]
        seen |= allowed[partial - 1].T @ allowed[partial] > 0
    return seen
