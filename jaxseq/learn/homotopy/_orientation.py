r"""Which way a path is followed: whether a step has leapt over a fold and turned back.

Along a curve of solutions ``z(s) = (Θ̃, λ)`` with the unit tangent η, the determinant of
``[J; ηᵀ]`` keeps its sign, and so does what follows from it,

.. math::
    \operatorname{sign} \det(I - g_2(\lambda) \nabla E) \cdot \operatorname{sign}(d\lambda / ds)
    = (-1)^{\#\{\mu : g_2(\lambda) \mu > 1\}} \operatorname{sign}(d\lambda / ds),

with μ the eigenvalues of ∇E, which are real: a fold changes both signs, and only at a bifurcation
that is leapt over does one change alone. At λ = 0 it is +1. Both sides of a hairpin lie side by
side, with tangents alike but for their signs. A step from one to the other passes for a step along
the path, and leads back on it, all the way to λ = 0: by this sign it is found out.

References:
    Allgower & Georg, Introduction to numerical continuation methods, SIAM 2003, chapter 2.1.
"""

from __future__ import annotations

import numpy as np

from jaxseq.learn.homotopy._leading import Leading, Seen
from jaxseq.learn.homotopy._path import NewPoint
from jaxseq.learn.homotopy._solver import Solver

UNSURE = 1e-3
"""An eigenvalue of ``g2(λ)·∇E − I`` nearer to 0 than this has no sign to be trusted."""
NEAR = 0.2
"""Those up to so far below 0 are looked at closely, in case of doubt."""
CLOSE = 1e-4
"""Steps that turn back are tried again shorter; one as short as this share of ‖z‖ passes a
bifurcation, or two branches that come as near to each other as that."""
SHORTER = 0.25
"""How much shorter."""


def sign_of(shifted: np.ndarray, slope: float, unsure: float = 0.0) -> int:
    """The sign above, of eigenvalues of ``g2(λ)·∇E − I`` and dλ/ds; 0 if one may be 0.

    Example:
        >>> sign_of(np.array([0.5, -0.5]), 1.0), sign_of(np.array([0.5, 0.5]), 1.0)
        (-1, 1)
    """
    if (np.abs(shifted) <= unsure).any() or slope == 0:
        return 0
    return (-1 if (shifted > 0).sum() % 2 else 1) * (1 if slope > 0 else -1)


def expected_sign(crossed: int) -> int:
    """+1, changed by every bifurcation that was passed."""
    return -1 if crossed % 2 else 1


def turns_back(solver: Solver, crossed: int, new: NewPoint, seen: Seen) -> bool:
    """Whether a point is on a part of the path that leads back.

    Args:
        solver: with the problem, and settings that keep eigenvectors; False without.
        crossed: bifurcations that the path has passed so far.
        new: the point, with eigenvalues of ∇E, all but the first of them rough.
        seen: what was seen of ∇E there.

    Cost: none, unless signs say so: then some ten products with ∇E.
    """
    slope, weight = float(new.tangent[-1]), new.second_weight
    if not solver.keeps_leading:
        return False
    expected, values = expected_sign(crossed), new.leading.values
    if sign_of(weight * values - 1, slope) == expected:
        return False
    count = int((weight * values > 1 - NEAR).sum()) + 1
    exact: Leading = solver.leading(new.point, seen, new.leading, count)
    noise = 10 * solver.settings.kernel_tolerance(solver.problem.dtype)
    if abs(slope) <= noise:
        return False
    return sign_of(weight * exact.values - 1, slope, UNSURE) == -expected


def is_crossing(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a step that turns back is short enough to have passed a bifurcation."""
    return bool(np.linalg.norm(after - before) <= CLOSE * np.linalg.norm(before))
