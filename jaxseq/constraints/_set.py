"""Constraints with their penalties, bound to the labels of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxseq.constraints._constraint import Constraint
from jaxseq.constraints._labels import Labels, Scheme
from jaxseq.constraints._rules import Rule

MOST_PENALTY = 1e12
"""The largest finite ρ: in single precision, scores would be lost beside it."""


class Penalised(NamedTuple):
    """A rule (or a constraint of one's own) and what a violation costs.

    penalty: ρ ≥ 0; ``math.inf`` makes it hard. name: for reports; None for that of the rule.

    Example:
        >>> from jaxseq.constraints import MustAppear
        >>> Penalised(MustAppear(["TITLE"]), 2.5).penalty
        2.5
    """

    rule: Rule | Constraint
    penalty: float
    name: str | None = None


class Constraints(eqx.Module):
    r"""Constraints on the labellings of one model, :math:`-\sum_k \rho_k d_k(x, y)`.

    Made by `bind_constraints`. An `equinox.Module`: penalties are arrays, and may change without
    compiling anew.

    parts: the automata. penalties: ρ, [c], 0 for hard ones. hard: which are. names: for reports.
    num_labels: s.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, StartsWith
        >>> rules = bind_constraints([AtMostOnce(), StartsWith(["A"])], ["A", "B"], penalty=9.2)
        >>> rules.with_penalties([1.0, float("inf")]).hard
        (False, True)
    """

    parts: tuple[Constraint, ...]
    penalties: Float[Array, " c"]
    hard: tuple[bool, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    num_labels: int = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def any_hard(self) -> bool:
        """Whether some penalty is infinite."""
        return any(self.hard)

    @property
    def all_local(self) -> bool:
        """Whether Viterbi's search on a chain with other scores is exact."""
        return all(part.is_local for part in self.parts)

    def with_penalties(self, penalties: Sequence[float]) -> Constraints:
        """The same constraints with other penalties."""
        if len(penalties) != len(self.parts):
            raise ValueError(f"penalties: expected {len(self.parts)}, got {len(penalties)}")
        checked = [check_penalty(float(penalty)) for penalty in penalties]
        return Constraints(self.parts, *_split_penalties(checked), self.names, self.num_labels)

    @property
    def costly(self) -> tuple[int, ...]:
        """Numbers of those that cost something: with ρ = 0 a constraint changes nothing."""
        pairs = enumerate(zip(self.hard, np.asarray(self.penalties)))
        return tuple(number for number, (hard, penalty) in pairs if hard or penalty > 0)

    def only(self, numbers: Sequence[int]) -> Constraints:
        """Some of the constraints, by their numbers."""
        return Constraints(
            tuple(self.parts[number] for number in numbers),
            self.penalties[np.asarray(numbers, np.int32)],
            tuple(self.hard[number] for number in numbers),
            tuple(self.names[number] for number in numbers),
            self.num_labels,
        )

    def observe(self, sentence: Any) -> tuple[Any, ...]:
        """What each constraint looks at of a sentence, on the host: arrays [n, …] or None."""
        return tuple(part.observe(sentence) for part in self.parts)

    def observe_all(self, sentences: Iterable[Any]) -> tuple[Any, ...]:
        """The same of many sentences, their tokens one after another: arrays [N, …] or None.

        Raises:
            ValueError: for what is no sentence, with its number.
        """
        looks, rows = [part.observe for part in self.parts], []
        for number, sentence in enumerate(sentences):
            try:
                rows.append(tuple(look(sentence) for look in looks))
            except ValueError as error:
                raise ValueError(f"X[{number}]: {error}") from None
        if not rows:
            return tuple(None for _ in self.parts)
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *rows)


def bind_constraints(
    rules: Iterable[Penalised | Rule | Constraint],
    labels: Sequence[str],
    *,
    penalty: float | None = None,
    scheme: Scheme = "plain",
) -> Constraints:
    """Constraints for a model with these labels.

    Args:
        rules: with penalties of their own, or without.
        labels: names of the labels in the model's order: a tagger's `classes_`.
        penalty: ρ of the rules that have none.
        scheme: how labels stand for fields.

    Raises:
        ValueError: for an unknown label or a penalty that is none, with the number of the rule.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, StartsWith
        >>> found = bind_constraints([AtMostOnce(), StartsWith(["A"])], ["A", "B"], penalty=9.2)
        >>> found.names, found.all_local
        (('AtMostOnce', 'StartsWith'), False)
    """
    known = Labels(labels, scheme)
    parts, penalties, names = [], [], []
    for number, item in enumerate(rules):
        try:
            one = item if isinstance(item, Penalised) else Penalised(item, _default(penalty))
            penalties.append(check_penalty(one.penalty))
            parts.append(_bound(one.rule, known))
        except ValueError as error:
            raise ValueError(f"rules[{number}]: {error}") from None
        names.append(one.name or type(one.rule).__name__)
    return Constraints(tuple(parts), *_split_penalties(penalties), tuple(names), len(known))


def _default(penalty: float | None) -> float:
    if penalty is None:
        raise ValueError("penalty: expected one, of the rule or for all, got none")
    return penalty


def _bound(rule: Any, labels: Labels) -> Constraint:
    if isinstance(rule, Constraint):
        return rule
    if not isinstance(rule, Rule):
        raise ValueError(f"rule: expected a rule or a Constraint, got {rule!r:.60}")
    return rule.bind(labels)


def check_penalty(penalty: Any) -> float:
    """ρ as a number; ValueError for less than 0 or none."""
    try:
        value = math.nan if isinstance(penalty, bool | str) else float(penalty)
    except (TypeError, ValueError):
        value = math.nan
    if MOST_PENALTY < value < math.inf:
        raise ValueError(
            f"penalty: expected at most {MOST_PENALTY:g}, or inf for a hard constraint, got {value}"
        )
    if not value >= 0:
        raise ValueError(f"penalty: expected a number, 0 or more, got {penalty!r:.40}")
    return value


def _split_penalties(penalties: Sequence[float]) -> tuple[Array, tuple[bool, ...]]:
    """Soft penalties (0 for hard), and which are hard."""
    hard = tuple(math.isinf(penalty) for penalty in penalties)
    soft = np.array([0.0 if h else p for p, h in zip(penalties, hard)], np.float64)
    return jnp.asarray(soft, jnp.result_type(float)), hard
