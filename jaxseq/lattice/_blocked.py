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
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, DTypeLike, Float

from jaxseq.lattice._chain import Edges, Linked, Nodes, Valid
from jaxseq.lattice._engines import (
    log_backward,
    log_forward,
    log_forward_backward,
    rescue,
    scan_edges,
    smallest_trusted,
)
from jaxseq.lattice._numerics import finite_top, inverse, logsumexp, matmul, normalise, safe_log
from jaxseq.lattice._propagate import conditionals, weigh_centred

# -------------------------------------------------------------------------------------------------
# One long row of positions cut into blocks, which stand side by side in groups.
#
# A group holds `columns` blocks of `length` positions. The blocks of a group advance together, one
# position a step, so that a step is a wide operation although a chain is a narrow thing; groups are
# done one after another, and are small enough for a core's cache.


LONGEST_BLOCK, SHORTEST_BLOCK = 99, 4
"""The longest is odd: columns a power of two apart would contend for the same lines of a cache."""

MOST_COLUMNS, VECTOR = 256, 8
CACHE_ENTRIES = 2**18
"""Scores in a group: 1 MiB in float32."""

PROOF = 8


class Plan(NamedTuple):
    """How a row is cut; decides shapes."""

    length: int  # positions in a block
    groups: int
    columns: int  # blocks in a group
    warm_up: int  # from how many positions the messages between blocks are guessed
    proof: int  # from how many it is seen that a block forgets

    @property
    def blocks(self) -> int:
        return self.groups * self.columns


def plan_blocks(n: int, s: int, dtype: DTypeLike) -> Plan:
    """Blocks of about √n positions, up to a length past which they gain nothing.

    There is always at least one empty place after the last position, where the kernels put what
    they know at a position's right.
    """
    length = min(LONGEST_BLOCK, max(SHORTEST_BLOCK, math.isqrt(n)))
    blocks = -(-(n + 1) // length)
    fitting = max(VECTOR, CACHE_ENTRIES // (length * s))
    groups = -(-blocks // min(MOST_COLUMNS, fitting))
    columns = -(-blocks // groups)
    if groups > 1:
        columns = -(-columns // VECTOR) * VECTOR
    warm_up = int(jnp.finfo(dtype).nmant) + 1  # chains are expected to forget a bit per position
    return Plan(length, groups, columns, min(warm_up, length), min(PROOF, length))


class Blocks(NamedTuple):
    """A row in blocks: nodes [g, c, l, s]; linked [g, c, l], whether a position continues the one
    before it; valid [g, c, l]; edges arriving at each position [g, c, l, s, s], or shared [s, s].
    """

    nodes: Float[Array, "*g c l s"]
    linked: Bool[Array, "*g c l"]
    valid: Bool[Array, "*g c l"]
    edges: Float[Array, "..."]


def cut_row(nodes: Nodes, edges: Edges, linked: Linked, valid: Valid, plan: Plan) -> Blocks:
    """The row in blocks, filled up with positions that are not valid."""
    arriving = edges if edges.ndim == 2 else _fold(edges, 1, plan)
    return Blocks(_fold(nodes, 0, plan), _fold(linked, 1, plan), _fold(valid, 0, plan), arriving)


def _fold(array: Array, before: int, plan: Plan) -> Array:
    size = plan.blocks * plan.length
    missing = size - before - array.shape[0]
    array = jnp.pad(array, [(before, missing)] + [(0, 0)] * (array.ndim - 1))
    return array.reshape(plan.groups, plan.columns, plan.length, *array.shape[1:])


def unfold(blocks: Float[Array, "g c l *rest"], start: int, n: int) -> Float[Array, "n *rest"]:
    """Positions start … start + n − 1 of an array in blocks."""
    flat = blocks.reshape(-1, *blocks.shape[3:])
    return lax.slice_in_dim(flat, start, start + n)


def cut_positions(blocks: Blocks, start: int, stop: int) -> Blocks:
    """The same positions of every block."""
    edges = blocks.edges if blocks.edges.ndim == 2 else blocks.edges[..., start:stop, :, :]
    return Blocks(
        blocks.nodes[..., start:stop, :], blocks.linked[..., start:stop],
        blocks.valid[..., start:stop], edges,
    )  # fmt: skip


def map_groups(function: Callable[..., Any], blocks: Blocks, *others: Array) -> Any:
    """``function(group, *others)`` of one group after another, results stacked."""
    shared = blocks.edges.ndim == 2

    def run(inputs):
        (nodes, linked, valid), edges, extra = inputs
        return function(Blocks(nodes, linked, valid, blocks.edges if shared else edges), *extra)

    return lax.map(run, (blocks[:3], None if shared else blocks.edges, others))


# -------------------------------------------------------------------------------------------------
# Forward–backward on a group of blocks in scaled space, given what comes before and after each.
#
# Layout is [positions, labels, columns]. With e and E the factors exp(score − largest) of nodes and
# of arriving edges, and a link between t − 1 and t,
#
#     α_t ∝ (Eᵀ α_{t−1}) ⊙ e_t        β_{t−1} ∝ E (e_t ⊙ β_t)
#
# A block starts from the α of the position before it and from the β of its own last position. Step
# t of the way back ends at position t − 1 and meets the pair (t − 1, t): so what a block returns
# for its place t belongs to position t − 1.


class Factors(NamedTuple):
    """Scores as factors, and the logarithm of what was `taken` out at each position."""

    nodes: Float[Array, "l s c"]
    edges: Float[Array, "..."]
    taken: Float[Array, "l c"]
    linked: Bool[Array, "l 1 c"]
    valid: Bool[Array, "l c"]
    # No edge is so small that a message entry could come out 0 but by being impossible: then a 0
    # among messages that are otherwise well above underflow is exact.
    plain_zeros: Bool[Array, ""]


class Sweep(NamedTuple):
    """What one pass over a group leaves behind."""

    nodes: Float[Array, "c l s"]  # marginals of the position before each place
    edges: Float[Array, "..."]  # of the pairs that arrive at each place, or their sum
    log_z: Float[Array, ""]  # the group's share
    alphas: Float[Array, "s c"]  # at the last position of each block
    betas: Float[Array, "s c"]  # at the position before each block
    lowest: Float[Array, ""]  # the smallest entry that had to be ample


def factorise(group: Blocks) -> Factors:
    """exp of the scores, each less the largest of its position; 0 for forbidden and padding."""
    # A legal factor that would underflow is held at the smallest number instead, where it cannot
    # be taken for a forbidden one.
    floor = jnp.finfo(group.nodes.dtype).tiny
    valid, linked = group.valid.T, group.linked.T
    nodes = group.nodes.transpose(1, 2, 0)
    legal = (nodes > -jnp.inf) & valid[:, None]
    top = finite_top(jnp.where(legal, nodes, -jnp.inf), 1)
    factors = jnp.where(legal, jnp.maximum(jnp.exp(nodes - top[:, None]), floor), 0)

    edges, counts = group.edges, jnp.ones((), bool)
    if edges.ndim == 4:
        edges, counts = edges.transpose(1, 2, 3, 0), linked[:, None, None]
    legal = (edges > -jnp.inf) & counts
    labels = (0, 1) if edges.ndim == 2 else (1, 2)
    edge_top = finite_top(jnp.where(legal, edges, -jnp.inf), labels, keepdims=True)
    edges = jnp.where(legal, jnp.maximum(jnp.exp(edges - edge_top), floor), 0)
    trusted = smallest_trusted(nodes.dtype) / nodes.shape[1]
    plain_zeros = jnp.where(legal, edges, 1).min() * trusted > 2 * floor
    edge_top = edge_top[0, 0] if edges.ndim == 2 else edge_top[:, 0, 0]
    taken = jnp.where(valid, top, 0) + jnp.where(linked, edge_top, 0)
    return Factors(factors, edges, taken, linked[:, None], valid, plain_zeros)


def sweep_group(
    group: Blocks, before: Float[Array, "s c"], after: Float[Array, "s c"], summed: bool
) -> Sweep:
    """Marginals and log Z of a group, from the α `before` each block, summing to 1, and the β of
    its last position, `after`, at most 1."""
    factors = factorise(group)
    ahead = _sweep_ahead(factors, before)
    labels = before.shape[0]

    def step(carry, edge, alpha_before, factor, link):
        beta, alpha, counts, lowest = carry
        following = beta * factor
        lowest = jnp.minimum(lowest, jnp.where((alpha > 0) & (beta > 0), following, 1))
        arrived = go_back(edge, following)
        raw = jnp.where(link, arrived, 1)
        total = (alpha_before * raw).sum(0)
        share = alpha_before * inverse(total)
        possible = alpha_before > 0
        looked_at = jnp.minimum(jnp.where(factors.plain_zeros & (raw == 0), 1, raw), total)
        lowest = jnp.minimum(lowest, jnp.where(possible, looked_at, 1))
        linked_share = jnp.where(link, share, 0)
        pairs = jnp.zeros((0, 0, 0, 0), before.dtype)
        if summed:
            counts = counts + matmul(linked_share, following.T)
        else:
            pairs = linked_share[:, None] * (edge[:, :, None] if edge.ndim == 2 else edge)
            pairs = pairs * following
        beta = raw * inverse(raw.max(0))
        return (beta, alpha_before, counts, lowest), (share * raw, pairs)

    counts = jnp.zeros((labels, labels), before.dtype)
    carry = (after, ahead.last, counts, ahead.lowest)
    inputs = (factors.edges, ahead.alphas, factors.nodes, factors.linked)
    (beta, _, counts, lowest), (nodes, pairs) = scan_edges(step, carry, *inputs, reverse=True)
    by_edge = counts * factors.edges if summed else pairs.transpose(3, 0, 1, 2)
    by_node = nodes.transpose(2, 0, 1)
    return Sweep(by_node, by_edge, ahead.log_z, ahead.last, beta, lowest.min())


class _Ahead(NamedTuple):
    alphas: Float[Array, "l s c"]  # of the position before each place
    last: Float[Array, "s c"]
    log_z: Float[Array, ""]
    lowest: Float[Array, "s c"]


def _sweep_ahead(factors: Factors, before: Float[Array, "s c"]) -> _Ahead:
    def step(carry, edge, factor, link):
        alpha, lowest = carry
        mass = jnp.where(link, go_ahead(edge, alpha), 1)
        raw = mass * factor
        reachable = (factor > 0) & ~(factors.plain_zeros & (mass == 0))
        lowest = jnp.minimum(lowest, jnp.where(reachable, raw, 1))
        total = raw.sum(0)
        return (raw * inverse(total), lowest), (alpha, total)

    inputs = (factors.edges, factors.nodes, factors.linked)
    (last, lowest), (alphas, totals) = scan_edges(step, (before, jnp.ones_like(before)), *inputs)
    log_z = jnp.where(factors.valid, jnp.log(totals) + factors.taken, 0).sum(1).sum()
    return _Ahead(alphas, last, log_z, lowest)


def go_ahead(edge: Array, alpha: Float[Array, "s c"]) -> Float[Array, "s c"]:
    """Eᵀ α, with one matrix for all columns or one for each."""
    return matmul(edge.T, alpha) if edge.ndim == 2 else (edge * alpha[:, None]).sum(0)


def go_back(edge: Array, following: Float[Array, "s c"]) -> Float[Array, "s c"]:
    """E (e ⊙ β), with one matrix for all columns or one for each."""
    return matmul(edge, following) if edge.ndim == 2 else (edge * following).sum(1)


# -------------------------------------------------------------------------------------------------
# Forward–backward on one long chain, block by block, in log space: right for all scores.
#
# For each label that may stand before a block, the forward recursion over the block says where it
# leads and at what score: an s × s matrix. These are multiplied along the chain, forwards and
# backwards, which gives the exact messages between blocks; then every block is done by itself, with
# the message from its left as one more position in front and the message from its right added to
# the scores of its last position. Nothing is stored of the first pass but the matrices, so memory
# stays bounded, for twice the work of a forward pass and s times the work of another.


def log_blocked(nodes, edges, linked, valid, *, plan: Plan, summed: bool):
    """(log Z, node marginals, edge marginals or their sum) of a row that holds one sequence, in
    places: each holds those of the node before it, and of the edge that arrives."""
    blocks = cut_row(nodes, edges, linked, valid, plan)
    transfers = map_groups(_transfer_log, blocks)
    transfers = transfers.reshape(plan.blocks, *transfers.shape[2:])
    is_full = blocks.valid[:, :, -1].reshape(-1)
    continues = jnp.roll(blocks.linked[:, :, 0].reshape(-1), -1)
    before, after = _messages_before(transfers), _messages_after(transfers, is_full & continues)
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


def _transfer_log(group: Blocks) -> Float[Array, "c s s"]:
    """Log score [from, to] of crossing each block; where the sequence ends inside, of its end.

    What all labels gain alike at a position is left out, and with it the large numbers.
    """
    s = group.nodes.shape[2]
    zero = jnp.zeros((), group.nodes.dtype)
    starts = jnp.where(jnp.eye(s, dtype=bool), zero, -jnp.inf)

    def cross(block):
        run = lambda start: log_forward(*_with_message(block, start))  # noqa: E731
        log_alphas, increments = jax.vmap(run)(starts)
        gains = (increments - finite_top(increments, 0)).sum(1)
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
        return raw - finite_top(logsumexp(raw, 0)), log_alpha

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
        return raw - finite_top(raw), own

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


FURTHER_ROUNDS = 3
"""Of messages through whole blocks, where the first guess does not do."""

LARGEST_DIAMETER = 4 * math.atanh(1 - 1 / 16)
"""Of Δ, so that errors add up to no more than 16 times what neighbours differ by."""


class BlockedLattice(NamedTuple):
    """As `Lattice`, with log Z itself; edge marginals may be summed over positions."""

    log_z: Float[Array, ""]
    nodes: Float[Array, "n s"]
    edges: Float[Array, "s s"] | Float[Array, "n-1 s s"]


def blocked_forward_backward(
    nodes: Nodes,
    edges: Edges,
    linked: Linked,
    valid: Valid,
    *,
    summed: bool,
    plan: Plan | None = None,
) -> BlockedLattice:
    """The lattice of a row that holds one sequence; `summed`: edge marginals as their sum [s, s].

    Cost: O(n s²) time where the chain forgets, else O(n s³); memory O(n s) besides edge marginals.
    """
    n, s = nodes.shape
    plan = plan_blocks(n, s, nodes.dtype) if plan is None else plan
    how = {"plan": plan, "summed": summed}
    # Three stages, each for what the one before it could not prove: a guess and one sweep; messages
    # sent through whole blocks first; log space without guesses. Nested, so that the last stage is
    # reached from the second and costs nothing where the first one does.
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

    `rounds`: how often messages go once through all of every block before the sweep.
    """
    blocks = cut_row(nodes, edges, linked, valid, plan)
    starts = blocks.linked[:, :, 0].reshape(-1)  # whether a block continues the one before it
    is_full = blocks.valid[:, :, -1].reshape(-1)  # its last α is used by the block after it
    ends_inside = ~jnp.roll(is_full, 1)

    def handed_over(messages: _Messages) -> list[Array]:
        """What each block is told: by its left neighbour, and by its right."""
        # Past a block that the sequence does not fill there is nothing to continue; 0 rather than
        # what `roll` brings round from the other end.
        before = jnp.where(ends_inside, 0, jnp.roll(messages.alphas, 1, axis=1))
        after = jnp.roll(messages.betas, -1, axis=1)
        return [_in_groups(message, plan) for message in (before, after)]

    guess = map_groups(partial(_ask_neighbours, plan=plan), blocks)
    assumed = _Messages(_in_line(guess.alphas), _in_line(guess.betas))
    for _ in range(rounds):
        passed = map_groups(_pass_on, blocks, *handed_over(assumed))
        assumed = _Messages(*map(_in_line, passed))
    sweep = map_groups(partial(sweep_group, summed=summed), blocks, *handed_over(assumed))
    messages = _Messages(_in_line(sweep.alphas), _in_line(sweep.betas))

    # Where the next block begins another sequence, nothing of this one has to be forgotten.
    shrinks = _shrinking(_in_line(guess.transfers), messages.alphas) | ~jnp.roll(starts, -1)
    ample = sweep.lowest.min() >= smallest_trusted(nodes.dtype)
    result = sweep.log_z.sum(), sweep.nodes, sweep.edges.sum(0) if summed else sweep.edges
    return result, _agree(assumed, messages, starts, is_full) & ample & shrinks.all()


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
    last = factorise(cut_positions(group, plan.length - plan.warm_up, plan.length))
    first = factorise(cut_positions(group, 0, plan.warm_up))
    ones = jnp.ones_like(last.nodes[0])
    return _Guess(_go_ahead_all(last, ones), _go_back_all(first, ones), _transfer(last, plan.proof))


def _pass_on(group: Blocks, before: Float[Array, "s c"], after: Float[Array, "s c"]):
    """Messages of each block, given those of its neighbours."""
    factors = factorise(group)
    return _go_ahead_all(factors, before), _go_back_all(factors, after)


def _transfer(factors: Factors, count: int) -> Float[Array, "s s c"]:
    """The product of the last steps; what starts from one label is scaled to a maximum of 1."""
    _, s, columns = factors.nodes.shape

    def step(transfer, edge, factor, link):
        if edge.ndim == 2:  # one matrix times all columns at once
            arrived = go_ahead(edge, transfer.reshape(s, s * columns))
            arrived = arrived.reshape(s, s, columns)
        else:
            arrived = (edge[:, :, None] * transfer[:, None]).sum(0)
        raw = jnp.where(link, arrived, 1) * factor[:, None]
        return raw * inverse(raw.max(0)), None

    edges = factors.edges if factors.edges.ndim == 2 else factors.edges[-count:]
    eye = jnp.eye(s, dtype=factors.nodes.dtype)[:, :, None]
    start = jnp.broadcast_to(eye, (s, s, columns))
    return scan_edges(step, start, edges, factors.nodes[-count:], factors.linked[-count:])[0]


def _go_ahead_all(factors: Factors, start: Float[Array, "s c"]) -> Float[Array, "s c"]:
    def step(alpha, edge, factor, link):
        raw = jnp.where(link, go_ahead(edge, alpha), 1) * factor
        return raw * inverse(raw.sum(0)), None

    return scan_edges(step, start, factors.edges, factors.nodes, factors.linked)[0]


def _go_back_all(factors: Factors, start: Float[Array, "s c"]) -> Float[Array, "s c"]:
    def step(beta, edge, factor, link):
        raw = jnp.where(link, go_back(edge, beta * factor), 1)
        return raw * inverse(raw.max(0)), None

    inputs = (factors.edges, factors.nodes, factors.linked)
    return scan_edges(step, start, *inputs, reverse=True)[0]


def _agree(
    old: _Messages, new: _Messages, starts: Bool[Array, " b"], is_full: Bool[Array, " b"]
) -> Bool[Array, ""]:
    """Whether the messages that were used are what their block had been told.

    The α at the end of a full block gives the marginals there, also where no link leaves it.
    """
    # Looser than rounding, which adds up over a block.
    close = 4 * float(jnp.finfo(old.alphas.dtype).eps) ** 0.75
    differ = lambda a, b: jnp.abs(a - b) > close * jnp.minimum(a, b)  # noqa: E731
    from_left = differ(old.alphas, new.alphas) & is_full
    possible = jnp.roll(new.alphas, 1, axis=1) > 0
    from_right = differ(old.betas, new.betas) & possible & starts
    return ~from_left.any() & ~from_right.any()


def _shrinking(transfers: Float[Array, "s s b"], alphas: Float[Array, "s b"]) -> Bool[Array, " b"]:
    """Whether Δ of each block's transfer matrix is small enough."""
    positive = transfers >= smallest_trusted(transfers.dtype)  # [to, from, block]
    alive = positive.any(0)  # labels that lead nowhere do not count
    # All others must reach the same labels, which must be the ones that the final α give a chance:
    # otherwise something has been lost to underflow, or the matrix is not positive.
    reached = (alphas > 0)[:, None]
    same_support = ((positive == reached) | ~alive).all((0, 1))
    total = transfers.sum(1, keepdims=True)
    ratios = jnp.log(jnp.where(positive, transfers, 1) / jnp.where(reached, total, 1))
    highest = jnp.where(reached, ratios, -jnp.inf).max(0)
    lowest = jnp.where(reached, ratios, jnp.inf).min(0)
    # Each row's distance from their sum bounds, doubled, the distance of any two.
    diameter = 2 * jnp.where(alive, highest - lowest, 0).max(0)
    return same_support & (diameter <= LARGEST_DIAMETER)


def _in_line(grouped: Float[Array, "g *labels c"]) -> Float[Array, "*labels b"]:
    moved = jnp.moveaxis(grouped, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)


def _in_groups(line: Float[Array, "s b"], plan: Plan) -> Float[Array, "g s c"]:
    return jnp.moveaxis(line.reshape(-1, plan.groups, plan.columns), 1, 0)


# -------------------------------------------------------------------------------------------------
# Entropy of one long chain and its gradient, block by block, in bounded memory.
#
# Of a chain's messages α and β, which take O(n s), the edge marginals of any position follow at
# once: they are formed for a block of positions at a time, used, and forgotten. One pass from the
# left gives H^α, one from the right H^β with all that is summed up (math in
# `mann_entropy_gradient`). Messages are of log space: right for all scores.


LENGTH = 1024
"""Positions of a block."""


class EntropyTotals(NamedTuple):
    """H, and its gradient by nodes and by shared edges."""

    entropy: Float[Array, ""]
    nodes: Float[Array, "n s"]
    edges: Float[Array, "s s"]


class _Positions(NamedTuple):
    """What the entropy has to know of positions t."""

    alphas: Array  # log α_t
    following: Array  # log β_{t+1} with the scores of t + 1
    linked: Array  # whether a link goes on from t
    both: Array  # log α_t + log β_t
    starts: Array  # whether a sequence starts at t


def blocked_entropy(
    nodes: Nodes, edges: Float[Array, "s s"], linked: Linked, valid: Valid
) -> EntropyTotals:
    """Sum of the entropies of a row's sequences, and its gradient, in O(n s) memory."""
    n, s = nodes.shape
    blocks = _cut(nodes, edges, linked, valid)
    nothing = jnp.zeros(s, nodes.dtype)

    def from_left(carry, block):
        pairs, backward, _ = _pairs(block, edges)
        return _scan_entropies(carry, pairs, backward, axis=0)

    def from_right(carry, inputs):
        value, total, by_edge = carry
        block, left = inputs
        pairs, _, forward = _pairs(block, edges)
        after, right = _scan_entropies(value, pairs, forward, axis=1)
        # What is known after each position: of the block's last one, by the block after it.
        arrived = jnp.concatenate([right[1:], value[None]])
        marginals = normalise(block.both, 1)
        first = -(marginals * safe_log(marginals)).sum(1)
        total += jnp.where(block.starts, first, 0).sum() - (pairs * safe_log(forward)).sum()
        surprise = -safe_log(pairs) + left[:, :, None] + arrived[:, None, :]
        by_edge += weigh_centred(pairs, surprise, axis=(1, 2)).sum(0)
        by_node = weigh_centred(marginals, -safe_log(marginals) + left + right, axis=1)
        return (after, total, by_edge), by_node

    _, left = lax.scan(from_left, nothing, blocks)
    start = (nothing, jnp.zeros((), nodes.dtype), jnp.zeros_like(edges))
    (_, total, by_edge), by_node = lax.scan(from_right, start, (blocks, left), reverse=True)
    return EntropyTotals(total, by_node.reshape(-1, s)[:n], by_edge)


def _cut(nodes: Array, edges: Array, linked: Array, valid: Array) -> _Positions:
    """The row in blocks, [blocks, length, …], filled up with positions without a label."""
    alphas, betas = log_forward(nodes, edges, linked, valid)[0], log_backward(nodes, edges, linked)
    following = jnp.concatenate([(nodes + betas)[1:], jnp.full_like(nodes[:1], -jnp.inf)])
    links = jnp.concatenate([linked, jnp.zeros(1, bool)])
    starts = jnp.concatenate([jnp.ones(1, bool), ~linked])
    length = min(LENGTH, len(nodes))
    missing = -len(nodes) % length

    def fold(array: Array, fill: Any) -> Array:
        padding = jnp.full((missing, *array.shape[1:]), fill, array.dtype)
        return jnp.concatenate([array, padding]).reshape(-1, length, *array.shape[1:])

    never = -jnp.inf
    return _Positions(
        fold(alphas, never), fold(following, never), fold(links, False),
        fold(alphas + betas, never), fold(starts, False),
    )  # fmt: skip


def _pairs(block: _Positions, edges: Array) -> tuple[Array, Array, Array]:
    """Edge marginals of a block's positions, and the conditionals to the left and to the right."""
    scores = block.alphas[:, :, None] + edges + block.following[:, None, :]
    pairs = normalise(jnp.where(block.linked[:, None, None], scores, -jnp.inf), (1, 2))
    return pairs, *conditionals(pairs)


def _scan_entropies(
    start: Float[Array, " s"],
    pairs: Float[Array, "l s s"],
    conditional: Float[Array, "l s s"],
    axis: int,
) -> tuple[Float[Array, " s"], Float[Array, "l s"]]:
    """H^α from the left (axis 0) or H^β from the right (axis 1), one position per step.

    Each is less its mean: a constant that the gradient's own centring cancels, and which would
    take more and more of the digits along a long chain. Also returned: what goes to the next block.
    """
    own = -(conditional * safe_log(conditional)).sum(axis + 1)

    def step(value, inputs):
        conditional, entropy, weights = inputs
        moved = value[:, None] if axis == 0 else value[None]
        following = (conditional * moved).sum(axis) + entropy
        following -= (weights * following).sum()
        return following, value if axis == 0 else following

    return lax.scan(step, start, (conditional, own, pairs.sum(axis + 1)), reverse=axis == 1)
