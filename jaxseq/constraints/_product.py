"""Exact search for the best labellings, on the product of the chain and the automata."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxseq.chain import Chain
from jaxseq.chain._chain import as_count
from jaxseq.chain._decode import NO_LABEL
from jaxseq.constraints._beam import Labellings
from jaxseq.constraints._constraint import BEFORE_THE_FIRST, as_violations
from jaxseq.constraints._fold import Folded, fold_local
from jaxseq.constraints._set import Constraints

MOST_STATES = 4096
"""Joint states that are searched; past that, labellings have to be searched with a beam."""


def joint_states(constraints: Constraints) -> int | None:
    """How many states all constraints have together; None if one of them does not say.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, FieldLength, bind_constraints
        >>> rules = [AtMostOnce(), FieldLength(at_least=3)]
        >>> joint_states(bind_constraints(rules, ["A", "B"], penalty=1.0))  # 2 · 2 · 4
        16
    """
    sizes = [part.num_states for part in constraints.parts if not part.is_local]
    if any(size is None for size in sizes):
        return None
    return math.prod(size for size in sizes if size is not None)


class _Cells(NamedTuple):
    """The k best prefixes of each joint state and last label: [q, s, k]."""

    scores: Array
    hard: Array


def exact_search(
    chain: Chain, constraints: Constraints, x: tuple[Any, ...], k: SupportsIndex = 1
) -> Labellings:
    r"""The k best labellings under constraints, exactly: Viterbi's search on the product lattice.

    A state of the lattice is a label with a state of every constraint. As `beam_search`, but
    nothing is lost; for constraints with few states together.

    Args:
        chain, constraints, x, k: as in `beam_search`.

    Raises:
        ValueError: if the constraints have more than 4,096 states together, or one does not say
            how many it has.

    Cost: O(n q s² k²) time and O(n q s k) memory for q joint states.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=5.0)
        >>> nodes = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> found = exact_search(jaxseq.Chain(nodes, jnp.zeros((2, 2))), rules, (None,), k=2)
        >>> found.scores.tolist()
        [2.0, 2.0]

    References:
        Certified against enumeration.
    """
    states = joint_states(constraints)
    if states is None or states > MOST_STATES:
        got = "one that does not say" if states is None else states
        raise ValueError(f"constraints: expected at most {MOST_STATES} joint states, got {got}")
    return _search(chain, constraints, x, as_count("k", k, 1), states)


@partial(jax.jit, static_argnums=(3, 4))
def _search(chain: Chain, constraints: Constraints, x: Any, k: int, q: int) -> Labellings:
    chain = lax.stop_gradient(chain)
    folded = fold_local(chain, constraints, x)
    cells, origins = _run(folded, constraints, x, k, q)
    soft, hard = _ends(folded, constraints, q)
    scores = (cells.scores - soft[:, None, None]).ravel()
    violated = (cells.hard + hard[:, None, None]).ravel()
    dead = jnp.isneginf(scores)
    places = jnp.arange(scores.size, dtype=jnp.int32)
    _, violated, lost, order = lax.sort(
        (dead.astype(jnp.int32), violated, -scores, places), num_keys=3, is_stable=True
    )
    missing = max(0, k - scores.size)
    lost = jnp.pad(lost[:k], (0, missing), constant_values=jnp.inf)
    legal = (lost < jnp.inf).sum()
    ranks = jnp.minimum(jnp.arange(k), jnp.maximum(legal - 1, 0))
    paths = _trace_back(origins, order[ranks], k, chain.num_labels)
    paths = jnp.where((legal > 0) & chain.valid, paths, NO_LABEL)
    return Labellings(paths, -lost, violated[ranks])


def _run(folded: Folded, constraints: Constraints, x: Any, k: int, q: int) -> tuple[_Cells, Array]:
    """Cells at the end, and of each position the cells that each comes from, as places."""
    chain = folded.chain
    n, s = chain.nodes.shape
    dtype = chain.nodes.dtype
    begin = _first_state(constraints, folded, x)
    empty = jnp.full((q, s, k), -jnp.inf, dtype)
    start = _Cells(empty.at[begin, 0, 0].set(0), jnp.zeros((q, s, k), jnp.int32))

    def advance(cells: _Cells, slot):
        t, valid, node, edge, hard_node, hard_edge = slot
        first = t == 0
        edge = chain.edges if edge is None else edge
        following, soft, hard = _steps(folded, constraints, x, t, q, s)
        local = jnp.where(first, 0, edge) + node  # [s, s]
        gains = local[None] - soft  # [q, s, s]
        if hard_node is not None:
            hard = hard + hard_node
        if hard_edge is not None:
            hard = hard + jnp.where(first, 0, hard_edge)
        scores = cells.scores[:, :, None, :] + gains[..., None]  # [q, s, s', k]
        violated = cells.hard[:, :, None, :] + hard[..., None]
        merged = jax.vmap(partial(_merge, q=q, k=k), (2, 2, 2), (1, 1, 1))
        top, worst, origin = merged(scores, violated, following)
        stay = jnp.arange(q * s * k, dtype=jnp.int32).reshape(q, s, k)
        cells = _Cells(jnp.where(valid, top, cells.scores), jnp.where(valid, worst, cells.hard))
        return cells, jnp.where(valid, origin, stay)

    edges = None if chain.edges.ndim == 2 else jnp.pad(chain.edges, ((1, 0), (0, 0), (0, 0)))
    hard_edges = folded.hard_edges
    if hard_edges is not None:
        hard_edges = jnp.pad(hard_edges, ((1, 0), (0, 0), (0, 0)))
    slots = (
        jnp.arange(n, dtype=jnp.int32), chain.valid, chain.nodes, edges, folded.hard_nodes,
        hard_edges,
    )  # fmt: skip
    return lax.scan(advance, start, slots)


def _merge(scores: Array, hard: Array, following: Array, q: int, k: int):
    """The k best of the candidates [q, s, k] that go to each joint state, k times the best."""
    target = jnp.broadcast_to(following[..., None], scores.shape).ravel()
    scores, hard = scores.ravel(), hard.ravel()
    places = jnp.arange(scores.size, dtype=jnp.int32)
    most = jnp.iinfo(jnp.int32).max

    def take(scores: Array, _):
        alive = scores > -jnp.inf
        fewest = jax.ops.segment_min(jnp.where(alive, hard, most), target, q)
        among = alive & (hard == fewest[target])
        top = jax.ops.segment_max(jnp.where(among, scores, -jnp.inf), target, q)
        first = among & (scores == top[target])
        place = jax.ops.segment_min(jnp.where(first, places, most), target, q)
        found = place < most
        taken = jnp.where(found, place, scores.size)
        scores = scores.at[taken].set(-jnp.inf, mode="drop")
        top = jnp.where(found, top, -jnp.inf)
        return scores, (top, jnp.where(found, fewest, 0), jnp.where(found, place, 0))

    _, found = lax.scan(take, scores, None, length=k)
    return tuple(array.T for array in found)


# ------------------------------------------------------------------------------- joint states


def _split(folded: Folded, constraints: Constraints, number: Array) -> list[Array]:
    """The numbers of the constraints' states in a joint one."""
    parts = []
    for index in folded.rest:
        size = constraints.parts[index].num_states
        assert size is not None
        parts.append(number % size)
        number = number // size
    return parts


def _join(folded: Folded, constraints: Constraints, numbers: list[Array]) -> Array:
    joint, radix = jnp.int32(0), 1
    for index, number in zip(folded.rest, numbers):
        size = constraints.parts[index].num_states
        assert size is not None
        joint, radix = joint + radix * number, radix * size
    return joint


def _first_state(constraints: Constraints, folded: Folded, x: Any) -> Array:
    parts = [(constraints.parts[index], x[index]) for index in folded.rest]
    return _join(folded, constraints, [part.as_number(part.init(seen)) for part, seen in parts])


def _steps(folded: Folded, constraints: Constraints, x: Any, t: Array, q: int, s: int):
    """Of each joint state, label and next label: the next state, soft penalty, hard violations."""
    labels = jnp.arange(s, dtype=jnp.int32)

    def one(joint: Array, before: Array, label: Array):
        before = jnp.where(t == 0, BEFORE_THE_FIRST, before)
        numbers, soft, hard = [], jnp.zeros((), folded.chain.nodes.dtype), jnp.int32(0)
        split = _split(folded, constraints, joint)
        for index, number in zip(folded.rest, split):
            part = constraints.parts[index]
            found, state = part.step(part.as_state(number), t, before, label, x[index])
            found = as_violations(found)
            numbers.append(part.as_number(state))
            if constraints.hard[index]:
                hard = hard + found
            else:
                soft = soft + constraints.penalties[index].astype(soft.dtype) * found
        return _join(folded, constraints, numbers), soft, hard

    pairs = jax.vmap(jax.vmap(one, (None, None, 0)), (None, 0, None))
    return jax.vmap(pairs, (0, None, None))(jnp.arange(q, dtype=jnp.int32), labels, labels)


def _ends(folded: Folded, constraints: Constraints, q: int) -> tuple[Array, Array]:
    """Of each joint state, the soft penalty and hard violations at the end."""

    def one(joint: Array):
        soft, hard = jnp.zeros((), folded.chain.nodes.dtype), jnp.int32(0)
        for index, number in zip(folded.rest, _split(folded, constraints, joint)):
            part = constraints.parts[index]
            found = as_violations(part.final(part.as_state(number)))
            if constraints.hard[index]:
                hard = hard + found
            else:
                soft = soft + constraints.penalties[index].astype(soft.dtype) * found
        return soft, hard

    return jax.vmap(one)(jnp.arange(q, dtype=jnp.int32))


def _trace_back(origins: Array, chosen: Array, k: int, s: int) -> Array:
    """Labels [k, n] of the cells `chosen` at the end; a place is (state · s + label) · k + rank."""

    def back(place, origin):
        return origin.ravel()[place], (place // k) % s

    _, paths = lax.scan(back, chosen, origins, reverse=True)
    return paths.T
