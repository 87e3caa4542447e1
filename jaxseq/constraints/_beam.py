"""Beam search for the best labellings under constraints."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxseq.chain import Chain
from jaxseq.chain._chain import as_count
from jaxseq.chain._decode import NO_LABEL
from jaxseq.constraints._constraint import BEFORE_THE_FIRST, as_violations
from jaxseq.constraints._fold import Folded, fold_local, without_dead_ends
from jaxseq.constraints._set import Constraints

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
    return _search(chain, constraints, x, number, kept)


@partial(jax.jit, static_argnums=(3, 4))
def _search(chain: Chain, constraints: Constraints, x: Any, k: int, width: int) -> Labellings:
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
        for place, (number, part, seen) in enumerate(parts):
            found = _of_all(part, beam.states[place], t, beam.last, s, seen)
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
