"""Local constraints as scores of the chain."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from jaxseq.chain import Chain
from jaxseq.constraints._constraint import BEFORE_THE_FIRST, Constraint, as_violations
from jaxseq.constraints._set import Constraints


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
