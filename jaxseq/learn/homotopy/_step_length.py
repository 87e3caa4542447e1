"""How long the next step should be, by how the last one went."""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxseq.learn.homotopy._path import StepOutcome

CONTRACTION = 0.25
"""Wanted ratio of the second Newton step's length to the first's."""
DISTANCE = 0.1
"""Wanted length of the first Newton step, as a share of the step along the path."""
ANGLE = 0.3
"""Wanted angle between tangents, in radians."""
MOST = 2.0
"""A step is at most doubled; one that ought to have been shorter by more than this is undone."""


class Verdict(NamedTuple):
    """Whether a step is kept, and the factor by which to shorten the next."""

    outcome: StepOutcome
    shorten: float


def judge(contraction: float, distance: float, angle: float) -> Verdict:
    """Compare a step with the wanted one (Allgower & Georg 2003, chapter 6).

    The contraction of Newton's method falls with the square of the step length; the distance of
    the predicted point from the path, as a share of the step, and the angle fall with it at least
    in proportion.

    Args:
        contraction: ratio of the lengths of the first two Newton steps.
        distance: length of the first Newton step, as a share of the step along the path.
        angle: between the tangents at both ends, in radians.

    Example:
        >>> judge(0.0, 0.05, 0.15)
        Verdict(outcome=<StepOutcome.ACCEPTED: 'accepted'>, shorten=0.5)
        >>> judge(0.0, 0.05, 0.9).outcome.value
        'step halved because the path bends too much along it'
    """
    factors = {
        StepOutcome.HALVED_CONTRACTION: math.sqrt(contraction / CONTRACTION),
        StepOutcome.HALVED_DISTANCE: distance / DISTANCE,
        StepOutcome.HALVED_ANGLE: angle / ANGLE,
    }
    worst = max(factors, key=lambda outcome: factors[outcome])
    if not factors[worst] <= MOST:
        return Verdict(worst, MOST)
    return Verdict(StepOutcome.ACCEPTED, max(factors[worst], 1 / MOST))
