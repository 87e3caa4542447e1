r"""Forward–backward on one long chain, block by block, in log space: right for all scores.

For each label that may stand before a block, the forward recursion over the block says where it
leads and at what score: an s × s matrix. These are multiplied along the chain, forwards and
backwards, which gives the exact messages between blocks; then every block is done by itself, with
the message from its left as one more position in front and the message from its right added to
the scores of its last position. Nothing is stored of the first pass but the matrices, so memory
stays bounded, for twice the work of a forward pass and s times the work of another.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.chain._block_layout import Blocks, Plan, cut_row, map_groups
from jaxseq.chain._engines import log_forward, log_forward_backward
from jaxseq.chain._numerics import logsumexp


def log_blocked(nodes, edges, linked, valid, *, plan: Plan, summed: bool):
    """(log Z, node marginals, edge marginals or their sum) of a row that holds one sequence.

    Marginals come in places: each holds those of the node before it, and of the edge that arrives.
    """
    blocks = cut_row(nodes, edges, linked, valid, plan)
    transfers = map_groups(_transfer, blocks)
    transfers = transfers.reshape(plan.blocks, *transfers.shape[2:])
    whole = blocks.valid[:, :, -1].reshape(-1)
    continues = jnp.roll(blocks.linked[:, :, 0].reshape(-1), -1)
    before, after = _messages_before(transfers), _messages_after(transfers, whole & continues)
    grouped = [message.reshape(plan.groups, plan.columns, -1) for message in (before, after)]
    log_z, by_node, by_edge = map_groups(partial(_run_group, summed=summed), blocks, *grouped)
    places = by_node.reshape(-1, by_node.shape[-1])
    places = jnp.roll(places, 1, axis=0).reshape(by_node.shape)
    return log_z.sum(), places, by_edge.sum(0) if summed else by_edge


def _with_message(block: Blocks, message: Float[Array, " s"]):
    """One block as a row, with the message as its first position."""
    nodes = jnp.concatenate([message[None], block.nodes])
    valid = jnp.concatenate([jnp.ones(1, bool), block.valid])
    return nodes, block.edges, block.linked, valid


def _transfer(group: Blocks) -> Float[Array, "c s s"]:
    """Log score [from, to] of crossing each block; where the sequence ends inside, of its end.

    What all labels gain alike at a position is left out, and with it the large numbers.
    """
    s = group.nodes.shape[2]
    zero = jnp.zeros((), group.nodes.dtype)
    starts = jnp.where(jnp.eye(s, dtype=bool), zero, -jnp.inf)

    def cross(block):
        run = lambda start: log_forward(*_with_message(block, start))  # noqa: E731
        log_alphas, increments = jax.vmap(run)(starts)
        gains = (increments - _finite(increments.max(0))).sum(1)
        ends = jnp.where(block.valid[-1], log_alphas[:, -1], 0)
        return gains[:, None] + ends

    return _over_columns(cross, group)


def _over_columns(function, group: Blocks, *others: Array):
    axes = (0, 0, 0, None if group.edges.ndim == 2 else 0)
    one = lambda *args: function(Blocks(*args[:4]), *args[4:])  # noqa: E731
    return jax.vmap(one, (*axes, *(0 for _ in others)))(*group, *others)


def _messages_before(transfers: Float[Array, "b s s"]) -> Float[Array, "b s"]:
    """Log α of the position before each block, of total 0 (−inf where nothing is possible)."""

    def step(log_alpha, transfer):
        raw = logsumexp(log_alpha[:, None] + transfer, 0)
        return raw - _finite(logsumexp(raw, 0)), log_alpha

    return lax.scan(step, jnp.zeros_like(transfers[0, 0]), transfers)[1]


def _messages_after(
    transfers: Float[Array, "b s s"], crossed: Bool[Array, " b"]
) -> Float[Array, "b s"]:
    """Log β of the last position of each block, 0 at most; `crossed`: the next one belongs to the
    same sequence."""

    def step(log_beta, inputs):
        transfer, cross = inputs
        own = jnp.where(cross, log_beta, 0)
        raw = logsumexp(transfer + own, 1)
        return raw - _finite(raw.max()), own

    start = jnp.zeros_like(transfers[0, 0])
    return lax.scan(step, start, (transfers, crossed), reverse=True)[1]


def _run_group(group: Blocks, before: Array, after: Array, summed: bool):
    def run(block, message, own):
        nodes, edges, linked, valid = _with_message(block, message)
        lattice = log_forward_backward(nodes.at[-1].add(own), edges, linked, valid)
        # The message itself sums to 1; its increment is rounding, and the rest is log Z's share
        # with the block's right neighbour counted in: that belongs to the neighbour.
        log_z = log_forward(nodes, edges, linked, valid)[1][1:].sum()
        return log_z, lattice.nodes[1:], lattice.edges

    log_z, by_node, by_edge = _over_columns(run, group, before, after)
    return log_z.sum(), by_node, by_edge.sum((0, 1)) if summed else by_edge


def _finite(top: Array) -> Array:
    return jnp.where(jnp.isneginf(top), 0, top)
