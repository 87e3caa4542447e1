"""Violations of a given labelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxseq.chain import Chain, path_score
from jaxseq.chain._numerics import matmul
from jaxseq.constraints._constraint import BEFORE_THE_FIRST, Constraint, as_violations
from jaxseq.constraints._labels import Labels, Scheme
from jaxseq.constraints._rules import Rule
from jaxseq.constraints._set import Constraints


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
    if isinstance(x, Sequence) and not isinstance(x, str) and len(x) != len(y):
        raise ValueError(f"y: expected {len(x)} labels, one a token, got {len(y)}")
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
            raise ValueError(f"y: expected {len(leaf)} labels, one a token, got {len(path)}")
    observed = jax.tree.map(jnp.asarray, observed)
    found = int(count_one(constraint, observed, jnp.asarray(path, jnp.int32), len(path)))
    if found < 0:
        raise ValueError(f"constraint: expected 0 violations or more, got {found}")
    return found


@eqx.filter_jit
def count_one(
    constraint: Constraint, x: Any, path: Int[Array, " n"], length: Any
) -> Int[Array, ""]:
    """Violations of one constraint by the first `length` labels of a path."""

    def advance(carry, inputs):
        state, before, total = carry
        t, label = inputs
        found, following = constraint.step(state, t, before, jnp.maximum(label, 0), x)
        inside = t < length
        state = jax.tree.map(lambda new, old: jnp.where(inside, new, old), following, state)
        total = total + jnp.where(inside, as_violations(found), 0)
        return (state, jnp.where(inside, label, before), total), None

    first = (constraint.init(x), jnp.int32(BEFORE_THE_FIRST), jnp.int32(0))
    positions = jnp.arange(len(path), dtype=jnp.int32)
    (state, _, total), _ = lax.scan(advance, first, (positions, path))
    return total + as_violations(constraint.final(state))


def count_violations(
    constraints: Constraints, x: tuple[Any, ...], path: Int[Array, " n"], length: Any = None
) -> Int[Array, " c"]:
    """Violations of each constraint by a path.

    Args:
        constraints: of `bind_constraints`. x: of `Constraints.observe`, as arrays.
        path: label numbers. length: how many of them are real; None for all.

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
    return jnp.stack(counts) if counts else jnp.zeros(0, jnp.int32)


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
