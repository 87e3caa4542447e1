r"""What is learnt, and how it spreads into the tables of a model.

*Dense*: every attribute has a weight for every label. *Observed*: only pairs of an attribute and
a label that occur together in the training data have one, and only transitions that occur; the
rest are 0, as in CRFsuite: less to learn by a factor of s, and a little less accurate. *Mixed*:
dense for frequent attributes, whose absence with a label says something, and observed for rare
ones. *Tied*: labels of one type (``B-NP``, ``I-NP``) share the weights of attributes and differ in
transitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils.validation import check_is_fitted

from jaxseq.crf._model import CRF, padded_labels
from jaxseq.lattice import matmul
from jaxseq.taggers import Legal
from jaxseq.text import FeatureExtractor

if TYPE_CHECKING:
    from jaxseq.crf._tagger import CRFTagger
from jaxseq.crf._problem import Problem
from jaxseq.parallel import Devices

WeightSet = Literal["mixed", "observed", "dense", "tied"]


class Parameters(NamedTuple):
    """A point of the search. `weights` is the whole table, or its learnt entries."""

    weights: Float[Array, "..."]
    transitions: Float[Array, "s s"]
    start: Float[Array, " s"]
    stop: Float[Array, " s"]
    edge_weights: Float[Array, "b s s"] | None


class Spread(eqx.Module):
    """From the learnt weights to the table, and from a gradient by the table back to them.

    At most one of `places` (observed, mixed) and `groups` (tied) is given.
    """

    attributes: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)
    places: Int[Array, " p"] | None = None
    groups: Int[Array, " s"] | None = None
    num_groups: int = eqx.field(static=True, default=0)
    transitions: Bool[Array, "s s"] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of the table."""
        return self.attributes + 1, padded_labels(self.labels)

    @property
    def sparse(self) -> bool:
        """Whether the learnt weights are other than the table itself."""
        return self.places is not None or self.groups is not None

    def zeros(self, edge_attributes: int = 0, dtype=jnp.float32) -> Parameters:
        """Where the search starts."""
        s = self.labels
        if self.places is not None:
            weights = jnp.zeros(self.places.shape[0], dtype)
        elif self.groups is not None:
            weights = jnp.zeros((self.attributes + 1, self.num_groups), dtype)
        else:
            weights = jnp.zeros(self.shape, dtype)
        pairs = jnp.zeros((edge_attributes, s, s), dtype) if edge_attributes else None
        vector = jnp.zeros(s, dtype)
        return Parameters(weights, jnp.zeros((s, s), dtype), vector, vector, pairs)

    def to_table(self, weights: Array, old: Array | None = None) -> Float[Array, "a1 p"]:
        """The table that the scores are summed from.

        `old` is a table of an earlier point, to be written over where a caller gives it away:
        its zeros are right already.
        """
        if self.places is not None:
            flat = jnp.zeros(self.shape, weights.dtype) if old is None else old
            flat = flat.reshape(-1)
            # Places are sorted and differ: without these promises XLA sorts and sums for safety.
            placed = flat.at[self.places].set(
                weights, unique_indices=True, indices_are_sorted=True, mode="promise_in_bounds"
            )
            return placed.reshape(self.shape)
        if self.groups is not None:
            return (
                jnp.zeros(self.shape, weights.dtype)
                .at[:, : self.labels]
                .set(weights[:, self.groups])
            )
        return weights

    def from_table(self, gradient: Float[Array, "a1 p"]) -> Array:
        """The transpose of `to_table`."""
        if self.places is not None:
            return gradient.reshape(-1).at[self.places].get(mode="promise_in_bounds")
        if self.groups is not None:
            # A product with the indicator of each group sums its columns.
            member = self.groups[:, None] == jnp.arange(self.num_groups)
            return matmul(gradient[:, : self.labels], member.astype(gradient.dtype))
        return gradient

    def keep_learnt(self, gradient: Array) -> Array:
        """An array by transitions, 0 at those that are not learnt."""
        return gradient if self.transitions is None else jnp.where(self.transitions, gradient, 0)

    def model(self, parameters: Parameters, legal: Legal | None = None) -> CRF:
        """The model of a point, with the forbidden at −inf."""
        # Without the row of zeros and the padding, which `CRF` adds by itself.
        weights = self.to_table(parameters.weights)[:-1, : self.labels]
        transitions, start, stop = mask_forbidden(parameters, legal)
        return CRF(weights, transitions, start, stop, parameters.edge_weights)

    def parameters(self, model: CRF) -> Parameters:
        """The point of a model, for a search to start from; −inf becomes 0."""
        table = model.table
        if self.places is not None:
            weights = table.reshape(-1)[self.places]
        elif self.groups is not None:
            # Tied weights are equal: the first label of each group stands for all.
            first = jnp.array([int((self.groups == g).argmax()) for g in range(self.num_groups)])
            weights = table[:, first]
        else:
            weights = table
        transitions, start, stop = (
            jnp.where(jnp.isneginf(array), 0, array)
            for array in (model.transitions, model.start, model.stop)
        )
        # Others would never change, and yet be in the model: as if they were 0.
        transitions = self.keep_learnt(transitions)
        return Parameters(weights, transitions, start, stop, model.edge_weights)


def mask_forbidden(parameters: Parameters, legal: Legal | None) -> tuple[Array, Array, Array]:
    """Transitions, start and stop, −inf where forbidden."""
    scores = (parameters.transitions, parameters.start, parameters.stop)
    if legal is None:
        return scores
    masked = [jnp.where(allowed, score, -jnp.inf) for allowed, score in zip(legal, scores)]
    return masked[0], masked[1], masked[2]


# ----------------------------------------------- the weights of one tagger in the places of another


def carry_over(old: CRFTagger, extractor: FeatureExtractor, classes: list[str]) -> CRF:
    """A model for new attributes and labels, with the old weights where names agree, else 0.

    Args:
        old: a trained tagger.
        extractor: of the new attributes.
        classes: the new labels.

    """
    check_is_fitted(old, "model_")
    old_classes = old.classes_.tolist()
    shared = [label for label in classes if label in old_classes]
    new_labels = np.array([classes.index(label) for label in shared], np.int64)
    old_labels = np.array([old_classes.index(label) for label in shared], np.int64)
    s, model = len(classes), old.model_
    dtype = np.asarray(model.transitions).dtype

    # Attributes and labels are matched by name: the numbers of two taggers have nothing in common.

    def carry(old_names: list[str], new_names: list[str], old_values: Any, labels: int) -> Any:
        """Rows by their names, the axes after the first by labels."""
        place = {name: index for index, name in enumerate(old_names)}
        pairs = [(new, place[name]) for new, name in enumerate(new_names) if name in place]
        values = np.zeros((len(new_names), *[s] * labels), dtype)
        if pairs:
            new_rows, old_rows = (np.array(rows) for rows in zip(*pairs))
            block = np.asarray(old_values)[old_rows]
            for axis in range(1, block.ndim):  # the label axes: one of weights, two of pairs
                block = np.take(block, old_labels, axis)
            values[np.ix_(new_rows, *[new_labels] * labels)] = block
        return values

    def among_labels(scores: Any) -> np.ndarray:
        values = np.zeros([s] * np.ndim(scores), dtype)
        block = np.asarray(scores)[np.ix_(*[old_labels] * np.ndim(scores))]
        # What was forbidden under the old scheme says nothing about the new one.
        values[np.ix_(*[new_labels] * np.ndim(scores))] = np.where(np.isneginf(block), 0, block)
        return values

    names = (old.extractor_.attribute_names(), extractor.attribute_names())
    weights, pairs = carry(*names, model.weights, 1), None
    if extractor.edge_attribute_count:
        # The older tagger may have had templates without attributes of pairs.
        has_pairs = model.edge_weights is not None
        old_names = old.extractor_.edge_attribute_names() if has_pairs else []
        pairs = carry(old_names, extractor.edge_attribute_names(), model.edge_weights, 2)
    transitions, start, stop = map(among_labels, (model.transitions, model.start, model.stop))
    return CRF(weights, transitions, start, stop, pairs)


# ------------------------------------------------------------------------- which weights are learnt

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
