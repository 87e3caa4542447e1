"""Viterbi on a block of rows, in the layout [positions, labels, rows] of `_scaled`."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxseq.batch._scaled import Block

UNROLLED_LABELS = 64
"""Up to so many labels the maximum is written out, label by label: twice as fast on a CPU as one
reduction over [s, s, rows], at a compile time that grows with the labels."""


def best_labels(block: Block, edges: Float[Array, "s s"]) -> Int[Array, "c t"]:
    """The best label of every slot; arbitrary on padding and where no path is legal.

    Ties go to the smaller label, decided from a sequence's last slot backwards.
    """
    nodes = jnp.where(block.valid.T[:, None, :], block.nodes.transpose(1, 2, 0), 0)
    linked = block.linked.T[:, None, :]

    def ahead(best, inputs):
        node, link = inputs
        raw = jnp.where(link, _best_arrivals(best, edges), 0) + node
        # Only differences matter; without the shift, long rows would lose digits to large sums.
        top = raw.max(0)
        best = raw - jnp.where(jnp.isneginf(top), 0, top)
        return best, best

    _, bests = lax.scan(ahead, jnp.zeros_like(nodes[0]), (nodes, linked))
    labels = jnp.arange(edges.shape[0], dtype=jnp.int32)[:, None]

    def back(label, inputs):
        best, link = inputs
        scores = best + jnp.where(link, edges[:, label], 0)
        # The first of the best; XLA's own argmax carries pairs along, and is slower.
        label = jnp.where(scores == scores.max(0), labels, len(labels)).min(0)
        return label, label

    linked_after = jnp.concatenate([linked[1:], jnp.zeros_like(linked[:1])])
    last = jnp.zeros(nodes.shape[2], jnp.int32)
    _, path = lax.scan(back, last, (bests, linked_after), reverse=True)
    return path.T


def _best_arrivals(best: Float[Array, "s c"], edges: Float[Array, "s s"]) -> Float[Array, "s c"]:
    """max_i best(i) + edges(i, j)."""
    if edges.shape[0] > UNROLLED_LABELS:
        return (best[:, None, :] + edges[:, :, None]).max(0)
    arrivals = best[0] + edges[0][:, None]
    for i in range(1, edges.shape[0]):
        arrivals = jnp.maximum(arrivals, best[i] + edges[i][:, None])
    return arrivals
