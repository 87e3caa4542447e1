"""Search for the best labellings of one sequence under constraints: by a beam, or exactly."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxseq.constraints._constraint import BEFORE_THE_FIRST, Constraint, Constraints, as_violations
from jaxseq.lattice import NO_LABEL, Chain, as_count

__all__ = ["Folded", "Labellings", "beam_search", "exact_search", "fold_local", "joint_states"]

WIDTH = 50
"""Hypotheses in a beam, unless more labellings are asked for."""

MOST_STATES = 4096
"""Joint states that can be searched exactly: each position has [states, s, s] steps."""


class Folded(NamedTuple):
    """A chain whose scores hold all soft local constraints, and what is left.

    chain: with other scores. hard_nodes [n, s] and hard_edges [n − 1, s, s]: violations of hard
    local constraints, None if there are none. stateful: numbers of the constraints that have a
    state.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=1.5)
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> fold_local(chain, rules, (None,)).stateful
        (0,)
    """

    chain: Chain
    hard_nodes: Int[Array, "n s"] | None
    hard_edges: Int[Array, "m s s"] | None
    stateful: tuple[int, ...]

    def slots(self) -> tuple[Any, ...]:
        """What a scan from left to right reads at each position: t, whether it is real, scores of
        labels and of transitions into it, and the hard violations of both."""
        positions = jnp.arange(len(self.chain.nodes), dtype=jnp.int32)
        return (
            positions, self.chain.valid, self.chain.nodes, _into(self.chain.edges),
            self.hard_nodes, _into(self.hard_edges),
        )  # fmt: skip


def fold_local(chain: Chain, constraints: Constraints, x: tuple[Any, ...]) -> Folded:
    """Put local constraints into a chain's scores.

    Args:
        chain: the model's scores.
        constraints: from `bind_constraints`.
        x: from `Constraints.observe`, as arrays with a row for each position of the chain.

    Cost: O(n s²) for each constraint that looks at two labels, O(n s) for others.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import StartsWith, bind_constraints
        >>> rules = bind_constraints([StartsWith(["A"])], ["A", "B"], penalty=1.5)
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> fold_local(chain, rules, (None,)).chain.nodes.tolist()
        [[0.0, -1.5], [0.0, 0.0]]
    """
    if chain.num_labels != constraints.num_labels:
        raise ValueError(
            f"constraints: expected them for {chain.num_labels} labels, as the chain has, got "
            f"{constraints.num_labels}"
        )
    nodes, edges = chain.nodes, chain.edges
    # Hard violations are counted apart and never become −∞: where no labelling satisfies all of
    # them, the one with the fewest is wanted.
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
    stateful = tuple(i for i, part in enumerate(constraints.parts) if not part.is_local)
    return Folded(Chain(nodes, edges, chain.length), hard_nodes, hard_edges, stateful)


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
    # The first position has no edge into it: its violations go to the label itself.
    at_first = jnp.zeros((n, s), jnp.int32).at[0].set(by_label(jnp.int32(0), first, labels))
    by_pair = jax.vmap(by_label, (None, 0, None))
    positions = jnp.arange(1, n, dtype=jnp.int32)
    return at_first, jax.vmap(by_pair, (0, None, None))(positions, labels, labels)


def _into(edges: Array | None) -> Array | None:
    """Edges into each position, zeros into the first; None where all share them or there are none.

    A scan reads one row per position, and there is one edge less.
    """
    if edges is None or edges.ndim == 2:
        return None
    return jnp.pad(edges, ((1, 0), (0, 0), (0, 0)))


def without_dead_ends(chain: Chain) -> Chain:
    """The same chain with −inf for labels after which no labelling can be legal. Cost O(n s²).

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> edges = jnp.array([[-jnp.inf, -jnp.inf], [0.0, 0.0]])
        >>> without_dead_ends(jaxseq.Chain(jnp.zeros((2, 2)), edges)).nodes.tolist()
        [[-inf, 0.0], [0.0, 0.0]]
    """
    # Without this a narrow beam could fill up with prefixes that lead nowhere, and end empty.
    per_position = chain.edges if chain.edges.ndim == 3 else None

    def back(after: Array, slot) -> tuple[Array, Array]:
        node, edge, link = slot
        edge = chain.edges if edge is None else edge
        goes_on = ((edge > -jnp.inf) & after).any(1) | ~link  # at the true end nothing need follow
        alive = (node > -jnp.inf) & goes_on
        return alive, alive

    last = chain.nodes[-1] > -jnp.inf
    slots = (chain.nodes[:-1], per_position, chain.linked)
    _, before = lax.scan(back, last, slots, reverse=True)
    alive = jnp.concatenate([before, last[None]])
    return Chain(jnp.where(alive, chain.nodes, -jnp.inf), chain.edges, chain.length)


class Labellings(NamedTuple):
    r"""The best labellings that a search has come upon, best first, all different.

    paths: −1 on padding. scores: :math:`\mathrm{score}(y) - \sum_k \rho_k d_k`, of soft constraints
    only; −inf where there are fewer than k labellings, whose paths repeat the last one. hard: how
    often each violates hard constraints: above 0 where none satisfies them all, and then the least
    violation (as far as the search has looked).

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


def _charge(
    constraints: Constraints, number: int, counts: Array, scores: Array, hard: Any
) -> tuple[Array, Any]:  # an array, or None where no constraint is hard
    """Scores and hard violations after so many violations of a constraint."""
    if constraints.hard[number]:
        assert hard is not None
        return scores, hard + counts
    return scores - constraints.penalties[number].astype(scores.dtype) * counts, hard


def _best(scores: Array, hard: Array | None, count: int) -> tuple[Array, Array | None, Array]:
    """The best `count`, the first of equals first: scores, hard violations and places."""
    missing = max(0, count - scores.size)
    scores = jnp.pad(scores, (0, missing), constant_values=-jnp.inf)
    if hard is None:  # by far the faster way, and the usual one
        top, chosen = lax.top_k(scores, count)
        return top, None, jnp.where(top > -jnp.inf, chosen, 0).astype(jnp.int32)
    hard = jnp.pad(hard, (0, missing))
    dead = jnp.isneginf(scores)
    places = jnp.arange(scores.size, dtype=jnp.int32)
    # What no path leads to comes last, however few hard violations it has.
    _, violated, lost, chosen = lax.sort(
        (dead.astype(jnp.int32), hard, -scores, places), num_keys=3, is_stable=True
    )
    alive = lost[:count] < jnp.inf
    return -lost[:count], violated[:count], jnp.where(alive, chosen[:count], 0)


def _ranks(scores: Array) -> tuple[Array, Array]:
    """Whether there is a labelling at all, and ranks [k] that repeat the last one there is."""
    legal = (scores > -jnp.inf).sum()
    ranks = jnp.minimum(jnp.arange(len(scores)), jnp.maximum(legal - 1, 0))
    return legal > 0, ranks


# -------------------------------------------------------------------------------------------------
# By a beam of prefixes.


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
        constraints: from `bind_constraints`.
        x: from `Constraints.observe`, as arrays with a row for each position of the chain.
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
        >>> best = beam_search(jaxseq.Chain(nodes, jnp.zeros((2, 2))), rules, (None,), k=2)
        >>> best.paths.tolist(), best.scores.tolist()
        ([[0, 1, 1], [0, 0, 0]], [2.0, 2.0])

    References:
        Chang, Ratinov & Roth 2007, equation 1 and section 7. Certified against enumeration,
        Viterbi and `exact_search`.
    """
    number = as_count("k", k, 1)  # static: it is a shape
    kept = max(WIDTH, number) if width is None else as_count("width", width, 1)
    if number > kept:
        raise ValueError(f"k: expected at most the width of the beam, {kept}, got {number}")
    return _search_beam(chain, constraints, x, number, kept)


@partial(jax.jit, static_argnums=(3, 4))
def _search_beam(chain: Chain, constraints: Constraints, x: Any, k: int, width: int) -> Labellings:
    chain = lax.stop_gradient(chain)  # a best labelling has no derivative; sorts would make one
    folded = fold_local(without_dead_ends(chain), constraints, x)
    beam, parents, labels = _run_beam(folded, constraints, x, width)
    scores, hard = beam.scores, beam.hard
    for number, states in zip(folded.stateful, beam.states):
        part = constraints.parts[number]
        ends = jax.vmap(lambda state, part=part: as_violations(part.final(state)), axis_size=width)
        scores, hard = _charge(constraints, number, ends(states), scores, hard)
    scores, hard, chosen = _best(scores, hard, k)
    any_legal, ranks = _ranks(scores)

    def back(place, step):
        parent, label = step
        return parent[place], label[place]

    _, paths = lax.scan(back, chosen[ranks], (parents, labels), reverse=True)
    paths = jnp.where(any_legal & chain.valid, paths.T, NO_LABEL)
    return Labellings(paths, scores, jnp.zeros(k, jnp.int32) if hard is None else hard[ranks])


def _run_beam(
    folded: Folded, constraints: Constraints, x: Any, width: int
) -> tuple[_Beam, Array, Array]:
    """The beam at the end, and of each position the parents and labels of its hypotheses."""
    chain = folded.chain
    s = chain.num_labels
    parts = [(number, constraints.parts[number], x[number]) for number in folded.stateful]

    def repeat(state: Any) -> Any:
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (width, *jnp.shape(a))), state)

    start = _Beam(
        # One empty prefix; the other places are taken when there are more.
        jnp.full(width, -jnp.inf, chain.nodes.dtype).at[0].set(0),
        jnp.zeros(width, jnp.int32) if constraints.any_hard else None,
        jnp.full(width, BEFORE_THE_FIRST, jnp.int32),
        tuple(repeat(part.init(seen)) for _, part, seen in parts),
    )

    def advance(beam: _Beam, slot):
        t, valid, node, edge, hard_node, hard_edge = slot
        first, before = t == 0, jnp.maximum(beam.last, 0)
        edge = chain.edges if edge is None else edge
        # [b, s]: every hypothesis with every next label.
        scores = beam.scores[:, None] + jnp.where(first, 0, edge[before]) + node
        hard = None
        if beam.hard is not None:
            hard = jnp.broadcast_to(beam.hard[:, None], scores.shape)
            hard = hard if hard_node is None else hard + hard_node
            hard = hard if hard_edge is None else hard + jnp.where(first, 0, hard_edge[before])
        for (number, part, seen), states in zip(parts, beam.states):
            counts = _violations_after(part, states, t, beam.last, s, seen)
            scores, hard = _charge(constraints, number, counts, scores, hard)
        top, kept, chosen = _best(scores.ravel(), None if hard is None else hard.ravel(), width)
        parent, label = chosen // s, chosen % s
        # States are computed once more, for the b chosen continuations: b · s of them would have
        # to be held otherwise.
        states = tuple(
            _states_after(part, jax.tree.map(lambda a: a[parent], state), t, beam.last[parent],
                          label, seen)
            for (_, part, seen), state in zip(parts, beam.states)
        )  # fmt: skip
        following = _Beam(top, kept, label, states)
        # On padding every hypothesis stays what it is, and is its own parent.
        beam = jax.tree.map(lambda new, old: jnp.where(valid, new, old), following, beam)
        stay = jnp.arange(width, dtype=jnp.int32)
        return beam, (jnp.where(valid, parent, stay), label)

    beam, (parents, labels) = lax.scan(advance, start, folded.slots())
    return beam, parents, labels


def _violations_after(part, states, t, last, s: int, x) -> Array:
    """Violations [b, s] of every continuation."""
    labels = jnp.arange(s, dtype=jnp.int32)

    def one(state, before, label):
        return as_violations(part.step(state, t, before, label, x)[0])

    return jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))(states, last, labels)


def _states_after(part, states, t, last, label, x) -> Any:
    """States after one continuation of each hypothesis."""
    return jax.vmap(lambda state, before, y: part.step(state, t, before, y, x)[1])(
        states, last, label
    )


# -------------------------------------------------------------------------------------------------
# Exactly, on the product of the chain and the automata.


def joint_states(constraints: Constraints) -> int | None:
    """How many states all constraints have together; None if one of them does not say.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, FieldLength, bind_constraints
        >>> rules = [AtMostOnce(), FieldLength(at_least=3)]
        >>> joint_states(bind_constraints(rules, ["A", "B"], penalty=1.0))  # 2 · 2 · 4
        16
    """
    # Local constraints are in the scores of the chain, and multiply nothing.
    sizes = [part.num_states for part in constraints.parts if not part.is_local]
    if any(size is None for size in sizes):
        return None
    return math.prod(size for size in sizes if size is not None)


class _Product(NamedTuple):
    """The product of the automata: a joint state is the number of a state of each, mixed radix."""

    folded: Folded
    constraints: Constraints
    x: Any
    q: int

    def _sizes(self) -> list[int]:
        sizes = [self.constraints.parts[index].num_states for index in self.folded.stateful]
        return [size for size in sizes if size is not None]  # `joint_states` has refused None

    def _split(self, joint: Array) -> list[Array]:
        numbers = []
        for size in self._sizes():
            numbers.append(joint % size)
            joint = joint // size
        return numbers

    def _join(self, numbers: list[Array]) -> Array:
        joint, radix = jnp.int32(0), 1
        for size, number in zip(self._sizes(), numbers):
            joint, radix = joint + radix * number, radix * size
        return joint

    def first(self) -> Array:
        """The joint state before position 0."""
        parts = [(self.constraints.parts[i], self.x[i]) for i in self.folded.stateful]
        return self._join([part.as_number(part.init(seen)) for part, seen in parts])

    def _no_charge(self) -> tuple[Array, Array]:
        return jnp.zeros((), self.folded.chain.nodes.dtype), jnp.int32(0)

    def steps(self, t: Array) -> tuple[Array, Array, Array]:
        """Of each joint state, label and next label: the next state, soft penalty, hard
        violations; all [q, s, s]."""

        def one(joint: Array, before: Array, label: Array):
            before = jnp.where(t == 0, BEFORE_THE_FIRST, before)  # see `start`: label 0 stands in
            numbers, (scores, hard) = [], self._no_charge()
            for index, number in zip(self.folded.stateful, self._split(joint)):
                part = self.constraints.parts[index]
                counts, state = part.step(part.as_state(number), t, before, label, self.x[index])
                numbers.append(part.as_number(state))
                counts = as_violations(counts)
                scores, hard = _charge(self.constraints, index, counts, scores, hard)
            return self._join(numbers), -scores, hard

        labels = jnp.arange(self.folded.chain.num_labels, dtype=jnp.int32)
        pairs = jax.vmap(jax.vmap(one, (None, None, 0)), (None, 0, None))
        joint = jnp.arange(self.q, dtype=jnp.int32)
        return jax.vmap(pairs, (0, None, None))(joint, labels, labels)

    def ends(self) -> tuple[Array, Array]:
        """Of each joint state [q], the soft penalty and hard violations at the end."""

        def one(joint: Array):
            scores, hard = self._no_charge()
            for index, number in zip(self.folded.stateful, self._split(joint)):
                part = self.constraints.parts[index]
                counts = as_violations(part.final(part.as_state(number)))
                scores, hard = _charge(self.constraints, index, counts, scores, hard)
            return -scores, hard

        return jax.vmap(one)(jnp.arange(self.q, dtype=jnp.int32))


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
        chain: as in `beam_search`, like the others.
        constraints: from `bind_constraints`.
        x: from `Constraints.observe`.
        k: labellings wanted.

    Raises:
        ValueError: if the constraints have more than 4,096 states together, or one does not say
            how many it has.

    Cost: O(n q s² k²) time and O(n q s k) memory for q joint states.

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=5.0)
        >>> nodes = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> best = exact_search(jaxseq.Chain(nodes, jnp.zeros((2, 2))), rules, (None,), k=2)
        >>> best.scores.tolist()
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
    s = chain.num_labels
    product = _Product(fold_local(chain, constraints, x), constraints, x, q)
    cells, origins = _run_exact(product, k)
    soft, hard = product.ends()
    scores, violated, chosen = _best(
        (cells.scores - soft[:, None, None]).ravel(),
        (cells.hard + hard[:, None, None]).ravel(),
        k,
    )
    any_legal, ranks = _ranks(scores)

    def back(place, origin):  # a place is (state · s + label) · k + rank
        return origin.ravel()[place], (place // k) % s

    _, paths = lax.scan(back, chosen[ranks], origins, reverse=True)
    paths = jnp.where(any_legal & chain.valid, paths.T, NO_LABEL)
    assert violated is not None
    return Labellings(paths, scores, violated[ranks])


def _run_exact(product: _Product, k: int) -> tuple[_Cells, Array]:
    """Cells at the end, and of each position the cells that each comes from, as places."""
    chain, q = product.folded.chain, product.q
    s = chain.num_labels
    empty = jnp.full((q, s, k), -jnp.inf, chain.nodes.dtype)
    # Before position 0 there is no label: the empty prefix stands at label 0, and its edges are 0.
    start = _Cells(empty.at[product.first(), 0, 0].set(0), jnp.zeros((q, s, k), jnp.int32))

    def advance(cells: _Cells, slot):
        t, valid, node, edge, hard_node, hard_edge = slot
        first = t == 0
        edge = chain.edges if edge is None else edge
        following, soft, hard = product.steps(t)
        gains = (jnp.where(first, 0, edge) + node)[None] - soft  # [q, s, s]
        if hard_node is not None:
            hard = hard + hard_node
        if hard_edge is not None:
            hard = hard + jnp.where(first, 0, hard_edge)
        scores = cells.scores[:, :, None, :] + gains[..., None]  # [q, s, s', k]
        violated = cells.hard[:, :, None, :] + hard[..., None]
        # For each next label s' apart: candidates [q, s, k] meet in the next joint states.
        merged = jax.vmap(partial(_merge, q=q, k=k), (2, 2, 2), (1, 1, 1))
        top, worst, origin = merged(scores, violated, following)
        stay = jnp.arange(q * s * k, dtype=jnp.int32).reshape(q, s, k)
        cells = _Cells(jnp.where(valid, top, cells.scores), jnp.where(valid, worst, cells.hard))
        return cells, jnp.where(valid, origin, stay)

    return lax.scan(advance, start, product.folded.slots())


def _merge(scores: Array, hard: Array, following: Array, q: int, k: int):
    """The k best of the candidates [q, s, k] that go to each joint state, k times the best."""
    target = jnp.broadcast_to(following[..., None], scores.shape).ravel()
    scores, hard = scores.ravel(), hard.ravel()
    places = jnp.arange(scores.size, dtype=jnp.int32)
    most = jnp.iinfo(jnp.int32).max

    def take(scores: Array, _):
        # The fewest hard violations, of those the highest score, of those the first place.
        alive = scores > -jnp.inf
        fewest = jax.ops.segment_min(jnp.where(alive, hard, most), target, q)
        among = alive & (hard == fewest[target])
        top = jax.ops.segment_max(jnp.where(among, scores, -jnp.inf), target, q)
        first = among & (scores == top[target])
        place = jax.ops.segment_min(jnp.where(first, places, most), target, q)
        any_left = place < most
        taken = jnp.where(any_left, place, scores.size)  # out of range, and so dropped, for none
        scores = scores.at[taken].set(-jnp.inf, mode="drop")
        top = jnp.where(any_left, top, -jnp.inf)
        return scores, (top, jnp.where(any_left, fewest, 0), jnp.where(any_left, place, 0))

    _, best = lax.scan(take, scores, None, length=k)
    return tuple(array.T for array in best)
