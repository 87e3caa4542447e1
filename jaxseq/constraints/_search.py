"""Exact search for the best labellings, on the product of the chain and the automata."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.constraints._constraint import BEFORE_THE_FIRST, Constraint, Constraints, as_violations
from jaxseq.lattice import NO_LABEL, Chain, as_count, k_best
from jaxseq.parallel import BY_DATA, EVERYWHERE, check_mesh, own_mesh, own_parts, place, place_rows

# -------------------------------------------------------------------------------------------------
# Local constraints as scores of the chain.


class Folded(NamedTuple):
    """A chain whose scores hold all soft local constraints, and what is left.

    chain: with other scores. hard_nodes [n, s] and hard_edges [n − 1, s, s]: violations of hard
    local constraints, None if there are none. rest: numbers of the constraints that have a state.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=1.5)
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> fold_local(chain, rules, (None,)).rest  # has a state, and is left
        (0,)
    """

    chain: Chain
    hard_nodes: Int[Array, "n s"] | None
    hard_edges: Int[Array, "m s s"] | None
    rest: tuple[int, ...]


def fold_local(chain: Chain, constraints: Constraints, x: tuple[Any, ...]) -> Folded:
    """Put local constraints into a chain's scores.

    Args:
        chain: the model's scores. constraints: of `bind_constraints`.
        x: of `Constraints.observe`, as arrays with a row for each position of the chain.

    Cost: O(n s²) for each constraint that looks at two labels, O(n s) for others.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import StartsWith, bind_constraints
        >>> rules = bind_constraints([StartsWith(["A"])], ["A", "B"], penalty=1.5)
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> fold_local(chain, rules, (None,)).chain.nodes.tolist()
        [[0.0, -1.5], [0.0, 0.0]]
    """
    check_fits(chain, constraints)
    nodes, edges = chain.nodes, chain.edges
    hard_nodes, hard_edges = None, None
    for number, (part, seen) in enumerate(zip(constraints.parts, x)):
        if not part.is_local:
            continue
        by_node, by_edge = _tables(part, seen, *nodes.shape)
        if constraints.hard[number]:
            hard_nodes = by_node if hard_nodes is None else hard_nodes + by_node
            if by_edge is not None:
                hard_edges = by_edge if hard_edges is None else hard_edges + by_edge
            continue
        penalty = constraints.penalties[number].astype(nodes.dtype)
        nodes = nodes - penalty * by_node
        if by_edge is not None:
            edges = edges - penalty * by_edge
    rest = tuple(i for i, part in enumerate(constraints.parts) if not part.is_local)
    return Folded(Chain(nodes, edges, chain.length), hard_nodes, hard_edges, rest)


def _tables(part: Constraint, x: Any, n: int, s: int) -> tuple[Array, Array | None]:
    """Violations [n, s] of labels, and [n − 1, s, s] of pairs."""
    labels, state = jnp.arange(s, dtype=jnp.int32), part.init(x)

    def one(t: Array, before: Array, label: Array) -> Array:
        return as_violations(part.step(state, t, before, label, x)[0])

    by_label = jax.vmap(one, (None, None, 0))
    first = jnp.int32(BEFORE_THE_FIRST)
    if part.is_unary:
        positions = jnp.arange(n, dtype=jnp.int32)
        return jax.vmap(by_label, (0, None, None))(positions, first, labels), None
    at_first = jnp.zeros((n, s), jnp.int32).at[0].set(by_label(jnp.int32(0), first, labels))
    by_pair = jax.vmap(by_label, (None, 0, None))
    positions = jnp.arange(1, n, dtype=jnp.int32)
    return at_first, jax.vmap(by_pair, (0, None, None))(positions, labels, labels)


def without_dead_ends(chain: Chain) -> Chain:
    """The same chain with −inf for labels after which no labelling can be legal. Cost O(n s²).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> edges = jnp.array([[-jnp.inf, -jnp.inf], [0.0, 0.0]])
        >>> without_dead_ends(jaxseq.Chain(jnp.zeros((2, 2)), edges)).nodes.tolist()
        [[-inf, 0.0], [0.0, 0.0]]
    """
    per_position = chain.edges if chain.edges.ndim == 3 else None

    def back(after: Array, slot) -> tuple[Array, Array]:
        node, edge, link = slot
        edge = chain.edges if edge is None else edge
        goes_on = ((edge > -jnp.inf) & after).any(1) | ~link
        alive = (node > -jnp.inf) & goes_on
        return alive, alive

    last = chain.nodes[-1] > -jnp.inf
    slots = (chain.nodes[:-1], per_position, chain.linked)
    _, before = lax.scan(back, last, slots, reverse=True)
    alive = jnp.concatenate([before, last[None]])
    return Chain(jnp.where(alive, chain.nodes, -jnp.inf), chain.edges, chain.length)


def check_fits(chain: Chain, constraints: Constraints) -> None:
    """ValueError unless the constraints are for as many labels as the chain has."""
    if chain.num_labels != constraints.num_labels:
        raise ValueError(
            f"constraints: expected them for {chain.num_labels} labels, as the chain has, got "
            f"{constraints.num_labels}"
        )


# -------------------------------------------------------------------------------------------------
# Beam search for the best labellings under constraints.


WIDTH = 50
"""Hypotheses kept, unless more labellings are asked for."""


class Labellings(NamedTuple):
    r"""The best labellings that were found, best first, all different.

    paths: −1 on padding. scores: :math:`\mathrm{score}(y) - \sum_k \rho_k d_k`, of soft constraints
    only; −inf where there are fewer than k labellings, whose paths repeat the last one. hard: how
    often each violates hard constraints: above 0 where none satisfies them all, and what is found
    is the least violation (as far as it was looked for).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import StartsWith, beam_search, bind_constraints
        >>> rules = bind_constraints([StartsWith(["A"])], ["A", "B"], penalty=float("inf"))
        >>> chain = jaxseq.Chain(jnp.zeros((1, 2)), jnp.zeros((2, 2)))
        >>> beam_search(chain, rules, (None,), k=2).hard.tolist()
        [0, 1]
    """

    paths: Int[Array, "k n"]
    scores: Float[Array, " k"]
    hard: Int[Array, " k"]


class _Beam(NamedTuple):
    """Hypotheses [b], best first: score, hard violations, last label, states of constraints."""

    scores: Array
    hard: Array | None
    last: Array
    states: tuple[Any, ...]


def beam_search(
    chain: Chain,
    constraints: Constraints,
    x: tuple[Any, ...],
    k: SupportsIndex = 1,
    width: SupportsIndex | None = None,
) -> Labellings:
    r"""The k best labellings under constraints, by a beam of prefixes.

    .. math::
        \arg\max_y \; \mathrm{score}(y) - \sum_k \rho_k \, d_k(x, y)

    At each position the `width` best prefixes are kept, of all continuations of those before. Ties
    go to the continuation of the better prefix, then to the smaller label. Hard constraints come
    first: fewer violations beat any score. A prefix that no legal labelling (of finite score)
    begins with is never kept. With a beam as wide as there are prefixes, or with one
    position, the result is exact.

    Args:
        chain: the model's scores; any model that makes a `Chain` will do.
        constraints: of `bind_constraints`.
        x: of `Constraints.observe`, as arrays with a row for each position of the chain.
        k: labellings wanted, at most `width`; a Python integer.
        width: hypotheses; None for 50, or k if that is more.

    Returns:
        `Labellings`.

    Cost: O(n b (s + log(b s))) for a beam of b, and for each constraint with a state O(n b s).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=5.0)
        >>> nodes = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> found = beam_search(jaxseq.Chain(nodes, jnp.zeros((2, 2))), rules, (None,), k=2)
        >>> found.paths.tolist(), found.scores.tolist()
        ([[0, 1, 1], [0, 0, 0]], [2.0, 2.0])

    References:
        Chang, Ratinov & Roth 2007, equation 1 and section 7. Certified against enumeration,
        Viterbi and `exact_search`.
    """
    number = as_count("k", k, 1)
    kept = max(WIDTH, number) if width is None else as_count("width", width, 1)
    if number > kept:
        raise ValueError(f"k: expected at most the width of the beam, {kept}, got {number}")
    return _search_beam(chain, constraints, x, number, kept)


@partial(jax.jit, static_argnums=(3, 4))
def _search_beam(chain: Chain, constraints: Constraints, x: Any, k: int, width: int) -> Labellings:
    chain = lax.stop_gradient(chain)
    folded = fold_local(without_dead_ends(chain), constraints, x)
    beam, parents, labels = _run(folded, constraints, x, width)
    beam = _with_ends(beam, folded, constraints)
    scores, hard, chosen = _best(beam.scores, beam.hard, k)
    legal = (scores > -jnp.inf).sum()
    ranks = jnp.minimum(jnp.arange(k), jnp.maximum(legal - 1, 0))
    paths = _trace_back(parents, labels, chosen[ranks])
    paths = jnp.where((legal > 0) & chain.valid, paths, NO_LABEL)
    none = jnp.zeros(k, jnp.int32)
    return Labellings(paths, scores, none if hard is None else hard[ranks])


def _run(
    folded: Folded, constraints: Constraints, x: Any, width: int
) -> tuple[_Beam, Array, Array]:
    """The beam at the end, and of each position the parents and labels of its hypotheses."""
    chain = folded.chain
    n, s = chain.nodes.shape
    parts = [(number, constraints.parts[number], x[number]) for number in folded.rest]
    start = _Beam(
        jnp.full(width, -jnp.inf, chain.nodes.dtype).at[0].set(0),
        jnp.zeros(width, jnp.int32) if constraints.any_hard else None,
        jnp.full(width, BEFORE_THE_FIRST, jnp.int32),
        tuple(_repeat(part.init(seen), width) for _, part, seen in parts),
    )

    def advance(beam: _Beam, slot):
        t, valid, node, edge, hard_node, hard_edge = slot
        first, before = t == 0, jnp.maximum(beam.last, 0)
        edge = chain.edges if edge is None else edge
        scores = beam.scores[:, None] + jnp.where(first, 0, edge[before]) + node
        hard = None
        if beam.hard is not None:
            hard = jnp.broadcast_to(beam.hard[:, None], scores.shape)
            hard = hard if hard_node is None else hard + hard_node
            hard = hard if hard_edge is None else hard + jnp.where(first, 0, hard_edge[before])
        for rank, (number, part, seen) in enumerate(parts):
            found = _of_all(part, beam.states[rank], t, beam.last, s, seen)
            if constraints.hard[number]:
                assert hard is not None
                hard = hard + found
            else:
                scores = scores - constraints.penalties[number].astype(scores.dtype) * found
        top, kept, chosen = _best(scores.ravel(), None if hard is None else hard.ravel(), width)
        parent, label = chosen // s, chosen % s
        states = tuple(
            _of_chosen(part, _rows(state, parent), t, beam.last[parent], label, seen)
            for (_, part, seen), state in zip(parts, beam.states)
        )
        following = _Beam(top, kept, label, states)
        beam = jax.tree.map(lambda new, old: jnp.where(valid, new, old), following, beam)
        stay = jnp.arange(width, dtype=jnp.int32)
        return beam, (jnp.where(valid, parent, stay), label)

    slots = (
        jnp.arange(n, dtype=jnp.int32), chain.valid, chain.nodes, _with_first(chain.edges),
        folded.hard_nodes, _with_first(folded.hard_edges),
    )  # fmt: skip
    beam, (parents, labels) = lax.scan(advance, start, slots)
    return beam, parents, labels


def _with_first(edges: Array | None) -> Array | None:
    """Edges into each position, zeros into the first; None where they are shared or none."""
    if edges is None or edges.ndim == 2:
        return None
    return jnp.pad(edges, ((1, 0), (0, 0), (0, 0)))


def _rows(tree: Any, rows: Array) -> Any:
    return jax.tree.map(lambda array: array[rows], tree)


def _repeat(state: Any, width: int) -> Any:
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (width, *jnp.shape(a))), state)


def _of_all(part, states, t, last, s: int, x) -> Array:
    """Violations [b, s] of every continuation."""
    labels = jnp.arange(s, dtype=jnp.int32)

    def one(state, before, label):
        return as_violations(part.step(state, t, before, label, x)[0])

    return jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))(states, last, labels)


def _of_ends(part, states, width: int) -> Array:
    """Violations [b] that only the end shows."""
    return jax.vmap(lambda state: as_violations(part.final(state)), axis_size=width)(states)


def _of_chosen(part, states, t, last, label, x) -> Any:
    """States after the continuations that were chosen."""
    return jax.vmap(lambda state, before, y: part.step(state, t, before, y, x)[1])(
        states, last, label
    )


def _best(scores: Array, hard: Array | None, count: int) -> tuple[Array, Array | None, Array]:
    """The best `count`, the first of equals first: scores, hard violations and places."""
    missing = max(0, count - scores.size)
    scores = jnp.pad(scores, (0, missing), constant_values=-jnp.inf)
    if hard is None:
        top, chosen = lax.top_k(scores, count)
        return top, None, jnp.where(top > -jnp.inf, chosen, 0).astype(jnp.int32)
    hard = jnp.pad(hard, (0, missing))
    dead = jnp.isneginf(scores)
    places = jnp.arange(scores.size, dtype=jnp.int32)
    _, violated, lost, chosen = lax.sort(
        (dead.astype(jnp.int32), hard, -scores, places), num_keys=3, is_stable=True
    )
    alive = lost[:count] < jnp.inf
    return -lost[:count], violated[:count], jnp.where(alive, chosen[:count], 0)


def _with_ends(beam: _Beam, folded: Folded, constraints: Constraints) -> _Beam:
    """With the violations that only the end shows."""
    scores, hard = beam.scores, beam.hard
    for number, states in zip(folded.rest, beam.states):
        part = constraints.parts[number]
        ends = jax.vmap(
            lambda state, part=part: as_violations(part.final(state)), axis_size=len(scores)
        )
        found = ends(states)
        if constraints.hard[number]:
            assert hard is not None
            hard = hard + found
        else:
            scores = scores - constraints.penalties[number].astype(scores.dtype) * found
    return beam._replace(scores=scores, hard=hard)


def _trace_back(parents: Array, labels: Array, chosen: Array) -> Array:
    """Labels [k, n] of the hypotheses `chosen` at the end."""

    def back(place, step):
        parent, label = step
        return parent[place], label[place]

    _, paths = lax.scan(back, chosen, (parents, labels), reverse=True)
    return paths.T


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
    return _search_exactly(chain, constraints, x, as_count("k", k, 1), states)


@partial(jax.jit, static_argnums=(3, 4))
def _search_exactly(chain: Chain, constraints: Constraints, x: Any, k: int, q: int) -> Labellings:
    chain = lax.stop_gradient(chain)
    folded = fold_local(chain, constraints, x)
    cells, origins = _run_exact(folded, constraints, x, k, q)
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
    paths = _trace_back_exact(origins, order[ranks], k, chain.num_labels)
    paths = jnp.where((legal > 0) & chain.valid, paths, NO_LABEL)
    return Labellings(paths, -lost, violated[ranks])


def _run_exact(
    folded: Folded, constraints: Constraints, x: Any, k: int, q: int
) -> tuple[_Cells, Array]:
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


def _trace_back_exact(origins: Array, chosen: Array, k: int, s: int) -> Array:
    """Labels [k, n] of the cells `chosen` at the end; a place is (state · s + label) · k + rank."""

    def back(place, origin):
        return origin.ravel()[place], (place // k) % s

    _, paths = lax.scan(back, chosen, origins, reverse=True)
    return paths.T


# -------------------------------------------------------------------------------------------------
# The search under constraints on the devices of a mesh.


SearchBlock = Callable[..., Labellings]
"""From nodes, edges, lengths, observations, constraints and a search to the labellings."""


@partial(jax.jit, static_argnames=("search_block", "run", "mesh", "shared"))
def _search_shard(blocks, edges, constraints, search_block, run, mesh: Mesh, shared: bool):
    def on_device(blocks, edges, constraints):
        nodes, own_edges, lengths, x = jax.tree.map(lambda array: array[0], blocks)
        edges = edges if shared else own_edges
        found = search_block(nodes, edges, lengths, x, constraints, run)
        return jax.tree.map(lambda array: array[None], found)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE)
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=BY_DATA, check_vma=False)(
        blocks, edges, constraints
    )


def search_on_mesh(
    chunks: list[np.ndarray],
    pad: Callable[[np.ndarray, int], tuple[Any, Any, np.ndarray, Any]],
    longest: Callable[[np.ndarray], int],
    constraints: Constraints,
    run: Any,
    search_block: SearchBlock,
    mesh: Mesh,
) -> list[Labellings]:
    """The labellings of every chunk of sequences, as many chunks at a time as there are devices.

    Sequences do not depend on each other: only the devices of this process take part, and nothing
    is sent between them.

    Args:
        chunks: sequences that are searched together.
        pad: the arrays of a chunk, padded to a length. longest: the padded length of a chunk.
        constraints, run, search_block: what is searched under, and how.
        mesh: as of `jaxseq.parallel.make_mesh`.
    """
    mesh = own_mesh(check_mesh(mesh))
    places, constraints = mesh.devices.shape[0], place(constraints, mesh)
    found: list[Labellings] = []
    for first in range(0, len(chunks), places):
        group = chunks[first : first + places]
        length = max(map(longest, group))
        blocks = [pad(chunk, length) for chunk in group]
        shared = np.ndim(blocks[0][1]) == 2
        edges = place(blocks[0][1], mesh) if shared else None
        blocks = [(nodes, None if shared else e, count, x) for nodes, e, count, x in blocks]
        blocks += [blocks[-1]] * (places - len(blocks))
        placed = place_rows(blocks, mesh)
        result = _search_shard(placed, edges, constraints, search_block, run, mesh, shared)
        parts = [own_parts(array) for array in result]
        found += [Labellings(*each) for each in list(zip(*parts))[: len(group)]]
    return found


# -------------------------------------------------------------------------------------------------
# The best labellings of many sequences under constraints, in few shapes and on all cores.


Search = Literal["auto", "beam", "exact"]

CHUNK = 64
"""Sequences of similar length that are done together."""

FEW_STATES = 64
"""Joint states that are searched exactly without being asked to, for a single labelling."""


class CorpusLabellings(NamedTuple):
    """The best labellings of many sequences.

    labels [N, k]: of all tokens, one sequence after another; −1 where a sequence has no legal
    labelling at all. scores [B, k]: less the soft penalties, −inf where there are fewer than k.
    hard [B, k]: violations of hard constraints. exact: whether the best ones were surely found.

    Example:
        >>> import numpy as np
        >>> from jaxseq.constraints import bind_constraints
        >>> nodes, edges = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
        >>> found = search_corpus(nodes, edges, np.array([2]), bind_constraints([], ["A", "B"]), ())
        >>> found.labels.shape, found.scores.shape
        ((2, 1), (1, 1))
    """

    labels: Int[np.ndarray, "N k"]
    scores: Float[np.ndarray, "B k"]
    hard: Int[np.ndarray, "B k"]
    exact: bool


def search_corpus(
    nodes: Float[np.ndarray, "N s"],
    edges: Any,
    lengths: Int[np.ndarray, " B"],
    constraints: Constraints,
    x: tuple[Any, ...],
    k: int = 1,
    width: int | None = None,
    method: Search = "auto",
    cores: int | None = None,
    mesh: Mesh | None = None,
) -> CorpusLabellings:
    """The k best labellings of each sequence under constraints.

    Args:
        nodes: scores of all tokens' labels, one sequence after another.
        edges: scores of transitions, [s, s]; or [N, s, s], those *into* each token.
        lengths: tokens of each sequence, N together.
        constraints: of `bind_constraints`.
        x: of `Constraints.observe_all`.
        k: labellings wanted.
        width: of the beam; None for 50, or k if that is more.
        method: ``"beam"``; ``"exact"``; or ``"auto"``, which is exact where that is as cheap: soft
            local constraints, and few joint states with k = 1.
        cores: threads; None for all.
        mesh: devices to share the sequences out to, along the axis ``"data"`` of
            `jaxseq.parallel.make_mesh`; where it spans several processes, each searches its own.

    Raises:
        ValueError: for shapes that do not fit, or constraints that cannot be searched exactly.

    Cost: as `beam_search`, a thread a core; one program is compiled for each of few lengths.

    Example:
        >>> import numpy as np
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=5.0)
        >>> nodes = np.array([[1, 0], [0, 1], [1.5, 0], [0, 1]], np.float32)
        >>> found = search_corpus(
        ...     nodes, np.zeros((2, 2), np.float32), np.array([3, 1]), rules, (None,))
        >>> found.labels[:, 0].tolist(), found.scores.tolist(), found.exact
        ([0, 0, 0, 1], [[2.5], [1.0]], True)
    """
    nodes, lengths = np.asarray(nodes), np.asarray(lengths, np.int64)
    _check(nodes, edges, lengths, constraints, x)
    constraints, x = _without_free(constraints, x)
    run, exact = _choose(constraints, k, width, method)
    labels = np.full((len(nodes), k), -1, np.int32)
    scores, hard = np.zeros((len(lengths), k), nodes.dtype), np.zeros((len(lengths), k), np.int32)
    starts = np.cumsum(lengths) - lengths
    chunks = _chunks(lengths)

    def search(members: np.ndarray) -> Labellings:
        block = _pad(members, starts, lengths, nodes, edges, x)
        return jax.tree.map(np.asarray, _search_block(*block, constraints, run))

    def pad(members: np.ndarray, width: int):
        return _pad(members, starts, lengths, nodes, edges, x, CHUNK, width)

    def longest(members: np.ndarray) -> int:
        return padded_length(int(lengths[members].max()))

    if mesh is None:
        step, results = cores or usable_cores(), []
        for first in range(0, len(chunks), step):
            results += map_on_cores(search, chunks[first : first + step])
    else:
        results = search_on_mesh(chunks, pad, longest, constraints, run, _search_block, mesh)
    for members, found in zip(chunks, results):
        for row, member in enumerate(members):
            here = slice(starts[member], starts[member] + lengths[member])
            labels[here] = found.paths[row, :, : lengths[member]].T
        scores[members], hard[members] = (
            found.scores[: len(members)],
            found.hard[: len(members)],
        )
    return CorpusLabellings(labels, scores, hard, exact)


def _without_free(constraints: Constraints, x: tuple[Any, ...]) -> tuple[Constraints, Any]:
    """Without those that cost nothing, so that the search is that of a model without them; and
    without names, which are no reason to compile anew."""
    chosen = constraints.costly
    kept = constraints.only(chosen)
    nameless = Constraints(kept.parts, kept.penalties, kept.hard, (), kept.num_labels)
    return nameless, tuple(x[number] for number in chosen)


def _viterbi(chain: Chain, constraints: Constraints, x: tuple[Any, ...], k: int) -> Labellings:
    paths, scores = k_best(fold_local(chain, constraints, x).chain, k)
    return Labellings(paths, scores, jnp.zeros(k, jnp.int32))


class _Run(eqx.Module):
    """A search with its numbers, equal to another with the same: one compilation for both."""

    search: Callable = eqx.field(static=True)
    numbers: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, chain: Chain, constraints: Constraints, x: tuple[Any, ...]) -> Labellings:
        return self.search(chain, constraints, x, *self.numbers)


def _choose(constraints: Constraints, k: int, width: int | None, method: str) -> tuple[_Run, bool]:
    """How to search, and whether that is exact."""
    if method not in ("auto", "beam", "exact"):
        raise ValueError(f"method: expected 'auto', 'beam' or 'exact', got {method!r}")
    if width is not None:
        as_count("width", width, 1)
    states = joint_states(constraints)
    folds = constraints.all_local and not constraints.any_hard
    if method != "beam" and folds:
        return _Run(_viterbi, (k,)), True
    few = k == 1 and states is not None and states <= FEW_STATES
    if method == "exact" or (method == "auto" and few):
        return _Run(exact_search, (k,)), True
    return _Run(beam_search, (k, max(WIDTH, k) if width is None else width)), False


@partial(jax.jit, static_argnums=5)
def _search_block(nodes, edges, lengths, x, constraints: Constraints, run: _Run) -> Labellings:
    def one(nodes, edges, length, x):
        return run(Chain(nodes, edges, length), constraints, x)

    shared = edges.ndim == 2
    return jax.vmap(one, (0, None if shared else 0, 0, 0))(nodes, edges, lengths, x)


def _chunks(lengths: np.ndarray) -> list[np.ndarray]:
    """Sequences of similar lengths, at most `CHUNK` together."""
    order = np.argsort(lengths, kind="stable")
    return [order[first : first + CHUNK] for first in range(0, len(order), CHUNK)]


def padded_length(n: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, …: few shapes, little padding."""
    power = max(8, 1 << max(n - 1, 0).bit_length())
    return power * 3 // 4 if n <= power * 3 // 4 and power > 8 else power


def _pad(
    members, starts, lengths, nodes, edges, x, rows: int | None = None, width: int | None = None
) -> tuple[Any, Any, np.ndarray, Any]:
    """The arrays of some sequences, padded to a common length and a common number."""
    rows = rows or (1 if len(members) == 1 else CHUNK)
    count, spread = padding_of(members, starts, lengths, rows, width)
    moved = edges if np.ndim(edges) == 2 else spread(edges)[:, 1:]
    return spread(nodes), jnp.asarray(moved), count, jax.tree.map(spread, x)


def padding_of(
    members: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    rows: int,
    width: int | None = None,
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Lengths of some sequences, and the function that makes [rows, width, …] of tokens [N, …]."""
    width = padded_length(int(lengths[members].max())) if width is None else width
    count, begin = np.zeros(rows, np.int32), np.zeros(rows, np.int64)
    count[: len(members)], begin[: len(members)] = lengths[members], starts[members]
    inside = np.arange(width) < count[:, None]
    index = np.where(inside, begin[:, None] + np.arange(width), 0)

    def spread(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        if not len(array):  # sequences without a token, all of them
            array = np.zeros((1, *array.shape[1:]), array.dtype)
        mask = inside.reshape(*inside.shape, *(1,) * (array.ndim - 1))
        return np.where(mask, array[index], np.zeros((), array.dtype))

    return count, spread


def _check(nodes, edges, lengths, constraints: Constraints, x: tuple[Any, ...]) -> None:
    if (lengths < 0).any():
        raise ValueError(f"lengths: expected numbers of tokens, got {lengths.min()}")
    total, s = int(lengths.sum()), constraints.num_labels
    if nodes.shape != (total, s):
        raise ValueError(f"nodes: expected shape [{total}, {s}], got {list(nodes.shape)}")
    if np.shape(edges) not in ((s, s), (total, s, s)):
        wanted = f"[{s}, {s}] or [{total}, {s}, {s}]"
        raise ValueError(f"edges: expected shape {wanted}, got {list(np.shape(edges))}")
    if len(x) != len(constraints):
        raise ValueError(f"x: expected one of each of {len(constraints)} constraints, got {len(x)}")
    for leaf in jax.tree.leaves(x):
        if len(leaf) != total:
            raise ValueError(f"x: expected arrays of {total} tokens, got one of {len(leaf)}")
