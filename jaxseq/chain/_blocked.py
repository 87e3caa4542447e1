r"""Forward–backward on one long chain, block by block, in bounded memory.

The chain is cut into blocks which are done side by side (`_block_layout`, `_block_sweep`). What a
block has to know of its neighbours is guessed, checked and proved right:

*Guess.* A chain forgets: α after some positions hardly depends on the α it began with. So each
block's neighbours are first asked about the few positions next to it.

*Check.* After a sweep every block has computed messages for its neighbours from its own guess.
Where they are not, to rounding, what the neighbours had guessed, all is done again, and before the
sweep messages go some rounds through whole blocks: each round carries news a block further.

*Proof.* Agreement of neighbours alone would let errors add up along a chain that does not forget.
By Birkhoff's theorem a positive matrix T shrinks Hilbert's projective distance by the factor

.. math:: \kappa = \tanh(\Delta / 4), \qquad
          \Delta = \max_{i,j,k,l} \log \frac{T_{ik} T_{jl}}{T_{jk} T_{il}},

forwards and backwards alike. With κ of a part of every block known, and neighbours that agree to
ε, no message is off by more than ε / (1 − κ).

Where the proof fails, or scaled space underflows, the chain is done again by `_blocked_log`, which
guesses nothing and is right for all scores.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxseq.chain._block_layout import (
    Blocks,
    Plan,
    cut_row,
    map_groups,
    part_of,
    plan_blocks,
    unfold,
)
from jaxseq.chain._block_sweep import (
    Factors,
    factorise,
    go_ahead,
    go_back,
    inverse,
    sweep_group,
)
from jaxseq.chain._blocked_log import log_blocked
from jaxseq.chain._engines import Edges, smallest_trusted
from jaxseq.chain._rescue import rescue

FURTHER_ROUNDS = 3
"""Of messages through whole blocks, where the first guess does not do."""

LARGEST_DIAMETER = 4 * math.atanh(1 - 1 / 16)
"""Of Δ, so that errors add up to no more than 16 times what neighbours differ by."""


class BlockedLattice(NamedTuple):
    """log Z, node marginals, and edge marginals or their sum over positions."""

    log_z: Float[Array, ""]
    nodes: Float[Array, "n s"]
    edges: Float[Array, "s s"] | Float[Array, "n-1 s s"]


def blocked_forward_backward(
    nodes: Float[Array, "n s"],
    edges: Edges,
    linked: Bool[Array, " n-1"],
    valid: Bool[Array, " n"],
    *,
    summed: bool,
    plan: Plan | None = None,
) -> BlockedLattice:
    """The lattice of a row that holds one sequence.

    Args:
        nodes, edges, linked, valid: the row; its valid positions come first.
        summed: whether edge marginals are wanted as their sum [s, s]; the edges must be shared.
        plan: how to cut the row; by default as `plan_blocks` says.

    Cost: O(n s²) time where the chain forgets, else O(n s³); memory O(n s) besides edge marginals.
    """
    n, s = nodes.shape
    plan = plan_blocks(n, s, nodes.dtype) if plan is None else plan
    how = {"plan": plan, "summed": summed}
    fast = partial(_scaled_blocked, rounds=0, **how)
    farther = partial(_scaled_blocked, rounds=FURTHER_ROUNDS, **how)
    slow = partial(log_blocked, **how)
    run = rescue(fast, rescue(farther, slow))
    log_z, by_node, by_edge = run(nodes, edges, linked, valid)
    # Cut out here, where it is no pass of its own: it becomes part of what is done next.
    by_edge = by_edge if summed else unfold(by_edge, 1, n - 1)
    return BlockedLattice(log_z, unfold(by_node, 1, n), by_edge)


def _scaled_blocked(nodes, edges, linked, valid, *, plan: Plan, summed: bool, rounds: int):
    """The lattice by one sweep in scaled space, in places, and whether it is proved right.

    A place holds what belongs to the node before it, and to the edge that arrives at it.
    `rounds`: how often messages go once through all of every block before the sweep.
    """
    blocks = cut_row(nodes, edges, linked, valid, plan)
    starts = blocks.linked[:, :, 0].reshape(-1)  # whether a block continues the one before it
    is_full = blocks.valid[:, :, -1].reshape(-1)  # its last α is used by the block after it
    ends_inside = ~jnp.roll(is_full, 1)

    def handed_over(messages: _Messages) -> list[Array]:
        """What each block is told: by its left neighbour, and by its right."""
        before = jnp.where(ends_inside, 0, jnp.roll(messages.alphas, 1, axis=1))
        after = jnp.roll(messages.betas, -1, axis=1)
        return [_in_groups(message, plan) for message in (before, after)]

    guess = map_groups(partial(_ask_neighbours, plan=plan), blocks)
    told = _Messages(_in_line(guess.alphas), _in_line(guess.betas))
    for _ in range(rounds):
        passed = map_groups(_pass_on, blocks, *handed_over(told))
        told = _Messages(*map(_in_line, passed))
    found = map_groups(partial(sweep_group, summed=summed), blocks, *handed_over(told))
    messages = _Messages(_in_line(found.alphas), _in_line(found.betas))

    shrinks = _shrinking(_in_line(guess.transfers), messages.alphas) | ~jnp.roll(starts, -1)
    ample = found.lowest.min() >= smallest_trusted(nodes.dtype)
    result = found.log_z.sum(), found.nodes, found.edges.sum(0) if summed else found.edges
    return result, _agree(told, messages, starts, is_full) & ample & shrinks.all()


class _Messages(NamedTuple):
    """Of each block, in order: α at its last position, and β at the position before it."""

    alphas: Float[Array, "s b"]
    betas: Float[Array, "s b"]


class _Guess(NamedTuple):
    """The same for a group, and the transfer matrices [to, from, c] of the last few positions."""

    alphas: Float[Array, "s c"]
    betas: Float[Array, "s c"]
    transfers: Float[Array, "s s c"]


def _ask_neighbours(group: Blocks, plan: Plan) -> _Guess:
    """Messages of each block from its last, and its first, few positions."""
    last = factorise(part_of(group, plan.length - plan.warm_up, plan.length))
    first = factorise(part_of(group, 0, plan.warm_up))
    ones = jnp.ones_like(last.nodes[0])
    return _Guess(_go_ahead_all(last, ones), _go_back_all(first, ones), _transfer(last, plan.proof))


def _pass_on(group: Blocks, before: Float[Array, "s c"], after: Float[Array, "s c"]):
    """Messages of each block, given those of its neighbours."""
    factors = factorise(group)
    return _go_ahead_all(factors, before), _go_back_all(factors, after)


def _transfer(factors: Factors, count: int) -> Float[Array, "s s c"]:
    """The product of the last steps; what starts from one label is scaled to a maximum of 1."""
    _, s, columns = factors.nodes.shape

    def step(transfer, inputs):
        factor, link, edge = inputs
        if edge is None:
            arrived = go_ahead(factors.edges, transfer.reshape(s, s * columns))
            arrived = arrived.reshape(s, s, columns)
        else:
            arrived = (edge[:, :, None] * transfer[:, None]).sum(0)
        raw = jnp.where(link, arrived, 1) * factor[:, None]
        return raw * inverse(raw.max(0)), None

    edges = None if factors.edges.ndim == 2 else factors.edges[-count:]
    eye = jnp.eye(s, dtype=factors.nodes.dtype)[:, :, None]
    start = jnp.broadcast_to(eye, (s, s, columns))
    return lax.scan(step, start, (factors.nodes[-count:], factors.linked[-count:], edges))[0]


def _go_ahead_all(factors: Factors, start: Float[Array, "s c"]) -> Float[Array, "s c"]:
    def step(alpha, inputs):
        factor, link, edge = inputs
        edge = factors.edges if edge is None else edge
        raw = jnp.where(link, go_ahead(edge, alpha), 1) * factor
        return raw * inverse(raw.sum(0)), None

    edges = None if factors.edges.ndim == 2 else factors.edges
    return lax.scan(step, start, (factors.nodes, factors.linked, edges))[0]


def _go_back_all(factors: Factors, start: Float[Array, "s c"]) -> Float[Array, "s c"]:
    def step(beta, inputs):
        factor, link, edge = inputs
        edge = factors.edges if edge is None else edge
        raw = jnp.where(link, go_back(edge, beta * factor), 1)
        return raw * inverse(raw.max(0)), None

    edges = None if factors.edges.ndim == 2 else factors.edges
    return lax.scan(step, start, (factors.nodes, factors.linked, edges), reverse=True)[0]


def _agree(
    old: _Messages, new: _Messages, starts: Bool[Array, " b"], is_full: Bool[Array, " b"]
) -> Bool[Array, ""]:
    """Whether the messages that were used are what their block had been told.

    The α at the end of a full block gives the marginals there, also where no link leaves it.
    """
    close = 4 * float(jnp.finfo(old.alphas.dtype).eps) ** 0.75
    differ = lambda a, b: jnp.abs(a - b) > close * jnp.minimum(a, b)  # noqa: E731
    from_left = differ(old.alphas, new.alphas) & is_full
    possible = jnp.roll(new.alphas, 1, axis=1) > 0
    from_right = differ(old.betas, new.betas) & possible & starts
    return ~from_left.any() & ~from_right.any()


def _shrinking(transfers: Float[Array, "s s b"], alphas: Float[Array, "s b"]) -> Bool[Array, " b"]:
    """Whether Δ of each block's transfer matrix is small enough.

    Labels that lead nowhere do not count. All others must reach the same labels, which must be
    the ones that the final α give a chance: otherwise something has been lost to underflow, or
    the matrix is not positive. Each row's distance from their sum bounds, doubled, the distance of
    any two.
    """
    positive = transfers >= smallest_trusted(transfers.dtype)  # [to, from, block]
    alive = positive.any(0)
    reached = (alphas > 0)[:, None]
    whole = ((positive == reached) | ~alive).all((0, 1))
    total = transfers.sum(1, keepdims=True)
    ratios = jnp.log(jnp.where(positive, transfers, 1) / jnp.where(reached, total, 1))
    highest = jnp.where(reached, ratios, -jnp.inf).max(0)
    lowest = jnp.where(reached, ratios, jnp.inf).min(0)
    diameter = 2 * jnp.where(alive, highest - lowest, 0).max(0)
    return whole & (diameter <= LARGEST_DIAMETER)


def _in_line(grouped: Float[Array, "g *labels c"]) -> Float[Array, "*labels b"]:
    moved = jnp.moveaxis(grouped, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)


def _in_groups(line: Float[Array, "s b"], plan: Plan) -> Float[Array, "g s c"]:
    return jnp.moveaxis(line.reshape(-1, plan.groups, plan.columns), 1, 0)
