r"""What is learnt, and how it spreads into the tables of a model.

*Dense*: every attribute has a weight for every label. *Observed*: only pairs of an attribute and
a label that occur together in the training data have one, and only transitions that occur; the
rest are 0, as in CRFsuite: less to learn by a factor of s, and a little less accurate. *Mixed*:
dense for frequent attributes, whose absence with a label says something, and observed for rare
ones. *Tied*: labels of one type (``B-NP``, ``I-NP``) share the weights of attributes and differ in
transitions.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxseq.crf._model import CRF, padded_labels
from jaxseq.lattice import matmul
from jaxseq.taggers import Legal

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
