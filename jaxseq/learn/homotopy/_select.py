"""Choosing one point of a path, and with it λ.

A rule looks at the path as far as it was followed. One that ended neither at λ = 1 nor because the
caller ended it says so, by a warning and in the reasons: its end is where steps failed or ran out,
and means nothing. (For `select_monotone` what comes after the first turn does not matter.)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxseq.learn.homotopy._path import Outcome, Path

WHOLE = (Outcome.REACHED_ONE, Outcome.INTERRUPTED)
"""Ends of a path that are as they should be."""


class Selection(NamedTuple):
    """A point of a path that a rule has chosen: its index, λ, Θ̃, and why, in words."""

    index: int
    lam: float
    parameters: Any
    why: str


def select_monotone(path: Path) -> Selection:
    """The last point before dλ/ds first changes sign; the last of all if it never does.

    Beyond it, a fixed point may have no root in the labelled data any more.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Structure, follow_path
        >>> bent = lambda x: 1 / (0.3 * (x**2 - 4.5 * x + 6))
        >>> problem = Problem(bent, jnp.zeros(1), structure=Structure.SYMMETRIC)
        >>> round(select_monotone(follow_path(problem)).lam, 1)
        0.7

    References:
        Haffari & Sarkar 2008, section 5.2; Corduneanu & Jaakkola 2002.
    """
    turned = np.flatnonzero(path.slope <= 0)
    if turned.size:
        return _at(path, max(int(turned[0]) - 1, 0), "the last point before λ turns")
    return choose(path, len(path.points) - 1, "λ has not turned: the last point")


def select_min_eigenvalue(path: Path) -> Selection:
    """The point at which an eigenvalue of ``g2(λ)·∇E − I`` is nearest to 0.

    The path must have been followed with ``Settings(eigenvalues=k)``, k ≥ 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Settings, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> select_min_eigenvalue(follow_path(half, Settings(eigenvalues=1))).lam
        1.0

    References:
        Haffari & Sarkar 2008, section 5.2.
    """
    sizes = np.abs(path.nearest_to_singular)
    index = int(sizes.argmin())
    return choose(path, index, f"an eigenvalue of g2(λ)·∇E − I is {sizes[index]:.3g} from 0")


def select_max_entropy(path: Path, entropy: Callable[[Any], Any]) -> Selection:
    """The point after the first with the greatest entropy of labels on the unlabelled data.

    The paper chooses among iterations, each of which has made a step: λ = 0, where the path begins,
    is the model without unlabelled data, with which the choice is to be compared. Where entropy
    falls all along, as unlabelled data make a model surer of itself, the first step's end is chosen
    (λ = .004 to .008 in the paper).

    Args:
        path: the path.
        entropy: of Θ̃, a pytree; called for every point.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> select_max_entropy(follow_path(half), lambda theta: -theta.sum()).index
        1

    References:
        Haffari & Sarkar 2008, section 5.2; Ji, Watson & Carin 2007.
    """
    values = np.array([float(entropy(path.parameters(i))) for i in range(len(path.points))])
    if not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"entropy: expected finite numbers, got {values[where]} at point {where}")
    index = greatest_after_start(values)
    return choose(path, index, f"the entropy there, {values[index]:.6g}, is the greatest")


def greatest_after_start(values: np.ndarray) -> int:
    """Where the greatest number is, the first one left out unless it is the only one.

    Example:
        >>> greatest_after_start(np.array([3.0, 1.0, 2.0])), greatest_after_start(np.ones(1))
        (2, 0)
    """
    return 1 + int(values[1:].argmax()) if len(values) > 1 else 0


def choose(path: Path, index: int, why: str) -> Selection:
    """The selection of a point, by a rule that all of the path matters to.

    Warns if the path died on its way, and raises ValueError if it never left λ = 0.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem, Structure, follow_path
        >>> half = Problem(lambda x: x / 2 + 1, jnp.array([1.0]), structure=Structure.SYMMETRIC)
        >>> choose(follow_path(half), -1, "it is the last").why
        'it is the last; path: reached λ = 1'
    """
    if path.outcome is None:
        return _at(path, index, f"{why}; path: still being followed")
    ended = path.outcome.value
    if path.outcome not in WHOLE:
        if len(path.points) == 1:
            raise ValueError(f"path: expected one that leaves λ = 0, got one point; it {ended}")
        warnings.warn(
            f"path: {ended}, at λ = {path.lam[-1]:.6g}; a choice among its {len(path.points)} "
            "points knows nothing of what would come after",
            stacklevel=3,
        )
    return _at(path, index, f"{why}; path: {ended}")


def _at(path: Path, index: int, why: str) -> Selection:
    return Selection(index, float(path.lam[index]), path.parameters(index), why)
