"""The linear-chain conditional random field on sparse attributes."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from jaxseq.lattice import Chain

# Scores that are sums of weights, one for each attribute that a token has.
#
# :math:`\phi_t(j) = \sum_k v_{tk} W[a_{tk}, j]` for the attributes :math:`a_{tk}` of token t and
# their values. The table W has one more row than there are attributes, of zeros, where absent
# attributes point; and its label axis is padded to a multiple of eight, because gathers and
# scatters of whole vector registers are several times quicker.


UNROLLED = 24
"""Attributes of a token that are gathered in one straight line of code; more go in a loop."""


def padded_labels(labels: int) -> int:
    """The width of a table for so many labels."""
    return -(-labels // 8) * 8


def empty_table(attributes: int, labels: int, dtype=jnp.float32) -> Float[Array, "a1 p"]:
    """All weights 0."""
    return jnp.zeros((attributes + 1, padded_labels(labels)), dtype)


def _columns(ids: Array, values: Array | None, lead: int):
    """The k axis in groups: the first `lead` in one, the later ones as arrays to scan over."""
    later = ids[:, lead:].T, None if values is None else values[:, lead:].T
    return ids[:, :lead], None if values is None else values[:, :lead], later


def sum_weights(
    table: Float[Array, "a1 p"], ids: Int[Array, "n k"], values: Float[Array, "n k"] | None
) -> Float[Array, "n p"]:
    """Scores of n tokens. Cost O(n k p).

    Every column of ids is a gather of its own: as one big gather the [n, k, p] array would be
    formed first and take twenty times as long.
    """

    def one(column: Array, value: Array | None) -> Array:
        # Ids are in bounds by construction; a check of each would cost as much as the gather.
        rows = table.at[column].get(mode="promise_in_bounds")
        return rows if value is None else rows * value[:, None]

    lead, lead_values, later = _columns(ids, values, min(UNROLLED, ids.shape[1]))
    total = jnp.zeros((ids.shape[0], table.shape[1]), table.dtype)
    for k in range(lead.shape[1]):
        total = total + one(lead[:, k], None if lead_values is None else lead_values[:, k])
    if ids.shape[1] > UNROLLED:
        total, _ = lax.scan(lambda sums, column: (sums + one(*column), None), total, later)
    return total


def spread_gradient(
    by_token: Float[Array, "n p"],
    ids: Int[Array, "n k"],
    values: Float[Array, "n k"] | None,
    attributes: int,
    start: Float[Array, "a1 p"] | None = None,
) -> Float[Array, "a1 p"]:
    """The transpose of `sum_weights`: what each weight gets from the gradient by scores.

    The row of zeros gets nothing. `start` is a table to add it to. Cost O(n k p).
    """

    def add(table: Array, column: Array, value: Array | None) -> Array:
        rows = by_token if value is None else by_token * value[:, None]
        return table.at[column].add(rows, mode="promise_in_bounds")

    lead, lead_values, later = _columns(ids, values, min(UNROLLED, ids.shape[1]))
    table = start
    if table is None:
        table = jnp.zeros((attributes + 1, by_token.shape[1]), by_token.dtype)
    for k in range(lead.shape[1]):
        table = add(table, lead[:, k], None if lead_values is None else lead_values[:, k])
    if ids.shape[1] > UNROLLED:
        table, _ = lax.scan(lambda sums, column: (add(sums, *column), None), table, later)
    # Absent attributes have added to the last row too: it stays the row of zeros.
    return table.at[attributes].set(0)


class CRF(eqx.Module):
    r"""A linear-chain conditional random field.

    .. math::
        p(y \mid x) \propto \exp\Big(\text{start}[y_1] + \sum_t \sum_k v_{tk} W[a_{tk}, y_t]
        + \sum_{t>1} \big(T[y_{t-1}, y_t] + \sum_k U[b_{tk}, y_{t-1}, y_t]\big)
        + \text{stop}[y_n]\Big)

    for the attributes :math:`a_{tk}` of token t with values :math:`v_{tk}` and the attributes
    :math:`b_{tk}` of the pair (t−1, t). Forbidden transitions, starts and stops are −inf.

    Args:
        weights: W [attributes, labels].
        transitions: T [labels, labels], from row to column.
        start, stop: [labels]; 0 by default.
        edge_weights: U [edge attributes, labels, labels], or None for a model without them.

    Inside, the label axis of W is padded for speed; `weights` never shows the padding.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> crf = jaxseq.CRF(jnp.array([[1.0, 0.0], [0.0, 2.0]]), jnp.zeros((2, 2)))
        >>> crf.chain(jnp.array([[0, -1], [0, 1]])).nodes.tolist()
        [[1.0, 0.0], [1.0, 2.0]]
        >>> jaxseq.viterbi(crf.chain(jnp.array([[0, -1], [0, 1]])))[0].tolist()
        [0, 1]

    References:
        Lafferty, McCallum & Pereira 2001.
    """

    table: Float[Array, "a1 p"]
    transitions: Float[Array, "s s"]
    start: Float[Array, " s"]
    stop: Float[Array, " s"]
    edge_weights: Float[Array, "b s s"] | None

    def __init__(
        self,
        weights: ArrayLike,
        transitions: ArrayLike,
        start: ArrayLike | None = None,
        stop: ArrayLike | None = None,
        edge_weights: ArrayLike | None = None,
    ):
        weights, transitions = jnp.asarray(weights), jnp.asarray(transitions)
        if weights.ndim != 2 or not jnp.issubdtype(weights.dtype, jnp.floating):
            raise ValueError(
                f"weights: expected floats of shape [attributes, labels], got dtype "
                f"{weights.dtype.name} of shape {list(weights.shape)}"
            )
        attributes, s = weights.shape
        shapes = {"transitions": (s, s), "start": (s,), "stop": (s,)}
        arrays = {"transitions": transitions, "start": start, "stop": stop}
        for name, shape in shapes.items():
            array = jnp.zeros(shape) if arrays[name] is None else jnp.asarray(arrays[name])
            if array.shape != shape:
                raise ValueError(
                    f"{name}: expected shape {list(shape)} to go with weights of shape "
                    f"{list(weights.shape)}, got {list(array.shape)}"
                )
            setattr(self, name, array.astype(weights.dtype))
        if edge_weights is not None:
            edge_weights = jnp.asarray(edge_weights, weights.dtype)
            if edge_weights.ndim != 3 or edge_weights.shape[1:] != (s, s):
                raise ValueError(
                    f"edge_weights: expected shape [edge attributes, {s}, {s}], "
                    f"got {list(edge_weights.shape)}"
                )
        self.edge_weights = edge_weights
        # Kept as the padded table with its row of zeros: what gathers take as it is.
        table = empty_table(attributes, s, weights.dtype)
        self.table = table.at[:attributes, :s].set(weights)

    @property
    def num_labels(self) -> int:
        """s."""
        return self.transitions.shape[0]

    @property
    def num_attributes(self) -> int:
        """How many attributes have weights."""
        return self.table.shape[0] - 1

    @property
    def weights(self) -> Float[Array, "a s"]:
        """W [attributes, labels]."""
        return self.table[:-1, : self.num_labels]

    def scores(self, ids: ArrayLike, values: ArrayLike | None = None) -> Float[Array, "n s"]:
        """Node scores of n tokens from their attributes, without start and stop.

        Args:
            ids: integers [n, k]; −1, or one that the model does not have, is no attribute.
            values: [n, k], by default 1 everywhere.
        """
        ids = jnp.asarray(ids)
        if ids.ndim != 2 or not jnp.issubdtype(ids.dtype, jnp.integer):
            raise ValueError(
                f"ids: expected integers of shape [tokens, attributes of a token], got dtype "
                f"{ids.dtype.name} of shape {list(ids.shape)}"
            )
        if values is not None:
            values = jnp.asarray(values, self.table.dtype)
            if values.shape != ids.shape:
                raise ValueError(
                    f"values: expected the shape of ids {list(ids.shape)}, got {list(values.shape)}"
                )
        present = (ids >= 0) & (ids < self.num_attributes)
        # Times 0, or gradients would reach the row of zeros and a step would make it another.
        values = jnp.where(present, 1 if values is None else values, 0).astype(self.table.dtype)
        ids = jnp.where(present, ids, self.num_attributes)
        return sum_weights(self.table, ids, values)[:, : self.num_labels]

    def chain(
        self,
        ids: ArrayLike,
        values: ArrayLike | None = None,
        length: ArrayLike | None = None,
        edge_ids: ArrayLike | None = None,
    ) -> Chain:
        """The `jaxseq.Chain` of one sentence: give it to `viterbi`, `marginals`, `entropy`, ….

        Args:
            ids: as in `scores`.
            values: as in `scores`.
            length: tokens in the sentence, if fewer than n; may be traced.
            edge_ids: integers [n, m], the attributes of the pair (t−1, t) at row t; row 0 is not
                looked at.

        Cost: O(n k s).
        """
        nodes = self.scores(ids, values)
        n = nodes.shape[0]
        if n == 0:
            raise ValueError("ids: expected at least one token to make a chain of, got none")
        last = n - 1 if length is None else jnp.asarray(length) - 1
        nodes = nodes.at[0].add(self.start)
        # Where the sentence ends may be traced: a mask, as an index would be out of bounds for 0.
        nodes = nodes + jnp.where((jnp.arange(n) == last)[:, None], self.stop, 0)
        edges = self.transitions
        if edge_ids is not None:
            edge_ids = jnp.asarray(edge_ids)
            integers = jnp.issubdtype(edge_ids.dtype, jnp.integer)
            if edge_ids.ndim != 2 or edge_ids.shape[0] != n or not integers:
                raise ValueError(
                    f"edge_ids: expected integers of shape [{n}, attributes of a pair], a row per "
                    f"token, got dtype {edge_ids.dtype.name} of shape {list(edge_ids.shape)}"
                )
            if self.edge_weights is not None:
                edges = edges + sum_edge_weights(self.edge_weights, edge_ids[1:])
        return Chain(nodes, edges, length)


def sum_edge_weights(
    edge_weights: Float[Array, "b s s"], edge_ids: ArrayLike
) -> Float[Array, "m s s"]:
    """Scores of pairs of labels from the attributes of m pairs of tokens; −1 is no attribute."""
    ids = jnp.asarray(edge_ids)
    known = (ids >= 0) & (ids < edge_weights.shape[0])
    scores = edge_weights[jnp.where(known, ids, 0)]
    return jnp.where(known[..., None, None], scores, 0).sum(1)
