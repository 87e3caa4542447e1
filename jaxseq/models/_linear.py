r"""Scores that are sums of weights, one for each attribute that a token has.

:math:`\phi_t(j) = \sum_k v_{tk} W[a_{tk}, j]` for the attributes :math:`a_{tk}` of token t and
their values. The table W has one more row than there are attributes, of zeros, where absent
attributes point; and its label axis is padded to a multiple of eight, because gathers and
scatters of whole vector registers are several times quicker.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

UNROLLED = 24
"""Attributes of a token that are gathered in one straight line of code; more go in a loop."""


def padded_labels(labels: int) -> int:
    """The width of a table for so many labels."""
    return -(-labels // 8) * 8


def empty_table(attributes: int, labels: int, dtype=jnp.float32) -> Float[Array, "a1 p"]:
    """All weights 0."""
    return jnp.zeros((attributes + 1, padded_labels(labels)), dtype)


def _columns(ids: Array, values: Array | None, lead: int):
    """The k axis in groups: the first `lead` in one, the rest as arrays to scan over."""
    rest = ids[:, lead:].T, None if values is None else values[:, lead:].T
    return ids[:, :lead], None if values is None else values[:, :lead], rest


def sum_weights(
    table: Float[Array, "a1 p"], ids: Int[Array, "n k"], values: Float[Array, "n k"] | None
) -> Float[Array, "n p"]:
    """Scores of n tokens. Cost O(n k p).

    Every column of ids is a gather of its own: as one big gather the [n, k, p] array would be
    formed first and take twenty times as long.
    """

    def one(column: Array, value: Array | None) -> Array:
        rows = table.at[column].get(mode="promise_in_bounds")
        return rows if value is None else rows * value[:, None]

    lead, lead_values, rest = _columns(ids, values, min(UNROLLED, ids.shape[1]))
    total = jnp.zeros((ids.shape[0], table.shape[1]), table.dtype)
    for k in range(lead.shape[1]):
        total = total + one(lead[:, k], None if lead_values is None else lead_values[:, k])
    if ids.shape[1] > UNROLLED:
        total, _ = lax.scan(lambda sums, column: (sums + one(*column), None), total, rest)
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

    lead, lead_values, rest = _columns(ids, values, min(UNROLLED, ids.shape[1]))
    table = start
    if table is None:
        table = jnp.zeros((attributes + 1, by_token.shape[1]), by_token.dtype)
    for k in range(lead.shape[1]):
        table = add(table, lead[:, k], None if lead_values is None else lead_values[:, k])
    if ids.shape[1] > UNROLLED:
        table, _ = lax.scan(lambda sums, column: (add(sums, *column), None), table, rest)
    return table.at[attributes].set(0)
