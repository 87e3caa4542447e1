"""How often labellings violate constraints, and the penalties that a labelled corpus speaks for."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxseq.constraints._constraint import (
    BEFORE_THE_FIRST,
    Constraint,
    Constraints,
    Labels,
    Penalised,
    Rule,
    Scheme,
    as_violations,
    bind_constraints,
)
from jaxseq.constraints._corpus import make_padding
from jaxseq.constraints._search import MOST_STATES
from jaxseq.lattice import Chain, matmul, path_score

__all__ = [
    "corpus_violations",
    "count_violations",
    "estimate_penalties",
    "penalised_score",
    "violations",
]


def violations(
    constraint: Constraint | Rule,
    x: Any,
    y: Sequence[str | int],
    *,
    labels: Sequence[str] | None = None,
    scheme: Scheme = "plain",
) -> int:
    r"""How often a labelling violates a constraint: :math:`d(x, y)`.

    To try a constraint alone.

    Args:
        constraint: a rule, or a constraint of one's own.
        x: a sentence: a list of words, or a mapping from columns to strings.
        y: its labels, names or numbers.
        labels: all labels; needed for a rule with labels that are not in y. By default those of y,
            sorted.
        scheme: how labels stand for fields.

    Raises:
        ValueError: for labels that do not fit.

    Cost: O(n).

    Example:
        >>> from jaxseq.constraints import AtMostOnce
        >>> violations(AtMostOnce(), ["a", "b", "c"], ["X", "Y", "X"])
        1

    References:
        Chang, Ratinov & Roth 2007, section 7.
    """
    # `observe` may look at nothing, and then nothing else would notice that lengths differ.
    if isinstance(x, Sequence) and not isinstance(x, str) and len(x) != len(y):
        raise ValueError(f"y: expected {len(x)} labels, one per token, got {len(y)}")
    if isinstance(constraint, Rule):
        names = sorted({label for label in y if isinstance(label, str)})
        names = names if labels is None else labels
        if not names:
            raise ValueError("labels: expected the names of the labels, got none")
        known = Labels(names, scheme)
        constraint, path = constraint.bind(known), known.encode(y)
    elif labels is not None:
        path = Labels(labels, scheme).encode(y)
    else:
        path = np.array([int(label) for label in y], np.int32)
        if (path < 0).any():
            raise ValueError(f"y: expected numbers of labels, 0 or more, got {path.min()}")
    observed = constraint.observe(x)
    for leaf in jax.tree.leaves(observed):
        if not np.ndim(leaf):
            raise ValueError("observe: expected arrays with a row for each token, got a number")
        if len(leaf) != len(path):
            raise ValueError(f"y: expected {len(leaf)} labels, one per token, got {len(path)}")
    observed = jax.tree.map(jnp.asarray, observed)
    count = int(count_one(constraint, observed, jnp.asarray(path, jnp.int32), len(path)))
    if count < 0:  # of a constraint of one's own: searches prune by counts that never fall
        raise ValueError(f"constraint: expected 0 violations or more, got {count}")
    return count


@eqx.filter_jit
def count_one(
    constraint: Constraint, x: Any, path: Int[Array, " n"], length: Any, num_labels: int = 0
) -> Int[Array, ""]:
    """Violations of one constraint by the first `length` labels of a path, whatever there are."""

    def advance(carry, inputs):
        state, before, total = carry
        t, label = inputs
        # Padding may be −1, which would read the last label; what it gives is thrown away.
        added, following = constraint.step(state, t, before, jnp.maximum(label, 0), x)
        inside = t < length
        state = jax.tree.map(lambda new, old: jnp.where(inside, new, old), following, state)
        total = total + jnp.where(inside, as_violations(added), 0)
        return (state, jnp.where(inside, label, before), total), None

    # int32 throughout: types of a carry must be the same whether float64 is enabled or not.
    first = (constraint.init(x), jnp.int32(BEFORE_THE_FIRST), jnp.int32(0))
    positions = jnp.arange(len(path), dtype=jnp.int32)
    (state, _, total), _ = lax.scan(advance, first, (positions, path))
    return total + as_violations(constraint.final(state))


def count_violations(
    constraints: Constraints, x: tuple[Any, ...], path: Int[Array, " n"], length: Any = None
) -> Int[Array, " c"]:
    """Violations of each constraint by a path.

    Args:
        constraints: from `bind_constraints`.
        x: from `Constraints.observe`, as arrays.
        path: label numbers.
        length: how many of them are real; None for all.

    Cost: O(n c).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.constraints import AtMostOnce, StartsWith, bind_constraints
        >>> rules = bind_constraints([AtMostOnce(), StartsWith(["A"])], ["A", "B"], penalty=1)
        >>> count_violations(rules, (None, None), jnp.array([1, 0, 1])).tolist()
        [1, 1]
    """
    n = len(path) if length is None else length
    counts = [count_one(part, seen, path, n) for part, seen in zip(constraints.parts, x)]
    return jnp.stack(counts) if counts else jnp.zeros(0, jnp.int32)  # `stack` refuses none


def penalised_score(
    chain: Chain, constraints: Constraints, x: tuple[Any, ...], path: Int[Array, " n"]
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    r"""The score of a path less its soft penalties, and its violations of hard constraints.

    .. math:: \mathrm{score}(y) - \sum_k \rho_k \, d_k(x, y)

    Example:
        >>> import jax.numpy as jnp, jaxseq
        >>> from jaxseq.constraints import StartsWith, bind_constraints
        >>> rules = bind_constraints([StartsWith(["A"])], ["A", "B"], penalty=1.5)
        >>> chain = jaxseq.Chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
        >>> score, hard = penalised_score(chain, rules, (None,), jnp.array([1, 0]))
        >>> float(score), int(hard)
        (-1.5, 0)
    """
    counts = count_violations(constraints, x, path, chain.length)
    dtype = chain.nodes.dtype
    cost = matmul(counts.astype(dtype), constraints.penalties.astype(dtype))
    return path_score(chain, path) - cost, counts @ jnp.asarray(constraints.hard, jnp.int32)


TOGETHER = 64  # sequences of similar length that are counted together


def estimate_penalties(
    constraints: Any,
    X: Iterable[Any],
    y: Iterable[Any],
    smoothing: float = 1.0,
    *,
    labels: Sequence[str] | None = None,
    scheme: Scheme = "plain",
) -> list[float]:
    r"""Penalties from labelled sentences: the log-odds of a violation not happening.

    .. math::
        \rho_k = \max\Big(0, \log \frac{o_k - v_k + \varepsilon}{v_k + \varepsilon}\Big)

    with :math:`v_k = \sum d_k(x, y)` violations at :math:`o_k` opportunities: the tokens at which
    some label would have been a violation after the labels before it, and the ends of sentences
    for a constraint that they decide (`MustAppear`, `EndsWith`). So a dictionary has as many as
    its words occur, and `StartsWith` one per sentence. A rule that is broken at every second
    opportunity or more often is worth nothing.

    Args:
        constraints: rules, with or without penalties, a `ConstraintFile`, or `Constraints`; the
            penalties that they have do not matter.
        X: sentences, as the constraints look at them.
        y: their labels, names or numbers; all known.
        smoothing: ε, 0 or more. Above 0 all penalties are finite; with 0, a rule that is never
            broken becomes hard.
        labels: all labels, in the model's order; None for those of y, sorted.
        scheme: how labels stand for fields; a `ConstraintFile` has its own.

    Returns:
        A penalty for each constraint, as `Constraints.with_penalties` takes them.

    Raises:
        ValueError: for labels that do not fit.

    Cost: O(N c s) for N tokens, c constraints and s labels.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, StartsWith
        >>> X, y = [["a", "b"], ["c", "d", "e"]], [["A", "B"], ["B", "A", "A"]]
        >>> penalties = estimate_penalties([AtMostOnce(), StartsWith(["A"])], X, y)
        >>> [round(penalty, 4) for penalty in penalties]  # log(2 / 1), log(2 / 2)
        [0.6931, 0.0]

    References:
        Chang, Ratinov & Roth 2007, section 5, who suggest it and set all to one value.
    """
    is_number = isinstance(smoothing, numbers.Real) and not isinstance(smoothing, bool)
    if not is_number or not 0 <= smoothing < math.inf:
        raise ValueError(f"smoothing: expected a finite number, 0 or more, got {smoothing!r:.40}")
    sentences, labellings = list(X), list(y)
    for number, labelling in enumerate(labellings):
        if isinstance(labelling, str) or not isinstance(labelling, Iterable):
            raise ValueError(f"y[{number}]: expected a list of labels, got {labelling!r:.40}")
        labellings[number] = list(labelling)
    if len(sentences) != len(labellings):
        raise ValueError(
            f"y: expected labels for {len(sentences)} sentences, got {len(labellings)}"
        )
    bound, names = _bind(constraints, labellings, labels, scheme)
    paths = [_encode(names, n, *pair) for n, pair in enumerate(zip(sentences, labellings))]
    lengths = np.array([len(path) for path in paths], np.int64)
    flat = np.concatenate(paths) if paths else np.zeros(0, np.int32)
    x = bound.observe_all(sentences)
    violated = corpus_violations(bound, x, flat, lengths).sum(0)
    chances = _by_block(_chances, bound, x, flat, lengths).sum(0)
    return [_log_odds(int(count), int(at), smoothing) for count, at in zip(violated, chances)]


def _log_odds(violated: int, opportunities: int, smoothing: float) -> float:
    # One position may be violated more than once, and so more often than there are opportunities.
    against = max(opportunities - violated, 0) + smoothing
    if against == 0:  # without smoothing, a rule that is always broken: log 0 is no penalty
        return 0.0
    happened = violated + smoothing  # 0 without smoothing: never broken, and so hard
    return max(0.0, math.log(against / happened)) if happened else math.inf


def _bind(
    constraints: Any, y: list[list[Any]], labels: Sequence[str] | None, scheme: Scheme
) -> tuple[Constraints, Labels]:
    """The constraints and the labels that they are for."""
    if isinstance(constraints, Constraints):
        count = constraints.num_labels
        if labels is None:
            names = {label for labelling in y for label in labelling if isinstance(label, str)}
            # Numbers stand for themselves where y does not name every label.
            labels = sorted(names) if len(names) == count else [str(n) for n in range(count)]
        if len(labels) != count:
            raise ValueError(
                f"labels: expected {count}, as the constraints have, got {len(labels)}"
            )
        return constraints, Labels(labels, scheme)
    rules = getattr(constraints, "rules", constraints)
    scheme = getattr(constraints, "scheme", scheme)
    if labels is None:
        labels = sorted({str(label) for labelling in y for label in labelling})
    # A penalty that is wrong must not matter: they are asked for here.
    free = [Penalised(rule.rule, 0.0) if isinstance(rule, Penalised) else rule for rule in rules]
    return bind_constraints(free, labels, penalty=0.0, scheme=scheme), Labels(labels, scheme)


def _encode(names: Labels, number: int, sentence: Any, labelling: list[Any]) -> np.ndarray:
    if isinstance(sentence, Sequence) and len(sentence) != len(labelling):
        wanted = f"{len(sentence)} labels, one per token"
        raise ValueError(f"y[{number}]: expected {wanted}, got {len(labelling)}")
    try:
        return names.encode(labelling)
    except ValueError as error:
        # `encode` knows positions alone; the sentence is put in front of them.
        raise ValueError(str(error).replace("y[", f"y[{number}][", 1)) from None


def _chances(part: Constraint, x: Any, path: Array, length: Array, labels: int) -> Array:
    """Positions at which some label would have been a violation, and the end where it decides."""

    def advance(carry, inputs):
        state, before = carry
        t, label = inputs

        def one(candidate: Array) -> Array:
            return jnp.asarray(part.step(state, t, before, candidate, x)[0], jnp.int32)

        could = (jax.vmap(one)(jnp.arange(labels, dtype=jnp.int32)) > 0).any()
        return (part.step(state, t, before, label, x)[1], label), could & (t < length)

    positions = jnp.arange(len(path), dtype=jnp.int32)
    first = (part.init(x), jnp.int32(BEFORE_THE_FIRST))
    _, could = lax.scan(advance, first, (positions, path))
    # A sentence without a token has no end that could decide anything.
    return could.sum(dtype=jnp.int32) + (_ends_decide(part) & (length > 0))


def _ends_decide(part: Constraint) -> Array:
    """Whether the end can show a violation; assumed where the states cannot all be tried."""
    if type(part).final is Constraint.final:
        return jnp.array(False)
    if part.num_states is None or part.num_states > MOST_STATES:
        return jnp.array(True)
    states = jax.vmap(part.as_state)(jnp.arange(part.num_states, dtype=jnp.int32))
    return (jax.vmap(part.final)(states) > 0).any()


def corpus_violations(
    constraints: Constraints, x: tuple[Any, ...], labels: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    r"""How often each of many labellings violates each constraint: :math:`d_k(x_b, y_b)`, [B, c].

    Args:
        constraints: from `bind_constraints`.
        x: from `Constraints.observe_all`.
        labels: numbers [N] of all tokens' labels, one sequence after another.
        lengths: [B], tokens of each sequence, N together. Nothing is violated by one without any.

    Raises:
        ValueError: for shapes that do not fit.

    Cost: O(N c); one program is compiled for each of few lengths.

    Example:
        >>> import numpy as np
        >>> from jaxseq.constraints import AtMostOnce, StartsWith, bind_constraints
        >>> rules = bind_constraints([AtMostOnce(), StartsWith(["A"])], ["A", "B"], penalty=1)
        >>> labels, lengths = np.array([1, 0, 1, 0]), np.array([3, 1])
        >>> corpus_violations(rules, (None, None), labels, lengths).tolist()
        [[1, 1], [0, 0]]
    """
    labels, lengths = np.asarray(labels, np.int32), np.asarray(lengths, np.int64)
    total = int(lengths.sum())
    for name, array in [("labels", labels), *(("x", leaf) for leaf in jax.tree.leaves(x))]:
        if len(array) != total:
            raise ValueError(f"{name}: expected {total} tokens, as lengths say, got {len(array)}")
    return _by_block(count_one, constraints, x, labels, lengths)


def _by_block(
    count: Callable[..., Array],
    constraints: Constraints,
    x: tuple[Any, ...],
    labels: np.ndarray,
    lengths: np.ndarray,
) -> np.ndarray:
    """What `count` gives for each sequence and constraint, [B, c]; 0 without a token."""
    counts = np.zeros((len(lengths), len(constraints)), np.int64)
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")  # neighbours share a shape, and so a program
    order = order[lengths[order] > 0]
    for first in range(0, len(order) if len(constraints) else 0, TOGETHER):
        members = order[first : first + TOGETHER]
        real, spread = make_padding(members, starts, lengths, TOGETHER)
        rows = _count_rows(count, constraints, jax.tree.map(spread, x), spread(labels), real)
        counts[members] = np.asarray(rows)[: len(members)]
    return counts


@partial(jax.jit, static_argnums=0)
def _count_rows(
    count: Callable[..., Array], constraints: Constraints, x: Any, paths: Array, lengths: Array
) -> Array:
    def one(seen: Any, path: Array, length: Array) -> Array:
        parts, s = zip(constraints.parts, seen), constraints.num_labels
        return jnp.stack([count(part, its, path, length, s) for part, its in parts])

    return jax.vmap(one)(x, paths, lengths)
