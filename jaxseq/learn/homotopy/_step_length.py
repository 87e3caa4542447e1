"""How long the next step should be, by how the last one went."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxseq.learn.homotopy._path import StepOutcome

CONTRACTION, SLOW = 0.1, 0.3
"""Wanted and greatest ratio of a Newton step's length to that of the one before."""
DISTANCE, FAR = 0.06, 0.2
"""Wanted and greatest length of the first Newton step, as a share of the step along the path."""
ANGLE, SHARP = 0.4, 0.8
"""Wanted and greatest angle between tangents, in radians."""
UNEVEN, LEAP = 1.3, 0.1
"""On a smooth arc the angles from a chord to the tangents at its ends add up to the angle between
these; if they are more than UNEVEN times that and LEAP, the chord may lead to another part of the
path, past folds in between."""
LEAST, MOST = 0.1, 2.5
"""Factors between one step and the next."""


class Step(NamedTuple):
    """How a step went.

    Attributes:
        contraction: greatest ratio of the lengths of two Newton steps in a row.
        distance: length of the first Newton step, as a share of the step along the path.
        angle: between the tangents at both ends, in radians; 0 if not known.
        chord: sum of the angles from the chord to either; 0 if not known.
        growth: by how much the predictor's error, as a share of the step, grows when steps are
            so many times as long.
    """

    contraction: float
    distance: float
    angle: float = 0.0
    chord: float = 0.0
    growth: Callable[[float], float] = lambda factor: factor


class Verdict(NamedTuple):
    """Whether a step is kept, and the factor by which to lengthen the next."""

    outcome: StepOutcome
    factor: float


def judge(step: Step, noise: float = 0.0) -> Verdict:
    """Compare a step with the wanted one (Allgower & Georg 2003, chapter 6).

    The contraction of Newton's method grows with the distance of the predicted point from the
    path, this as the predictor's error does, and angles in proportion to the step.

    Args:
        step: how it went.
        noise: error of a chord's angles.

    Example:
        >>> judge(Step(0.0, 0.03, 0.1))
        Verdict(outcome=<StepOutcome.ACCEPTED: 'accepted'>, factor=2.0)
        >>> judge(Step(0.0, 0.03, 0.9)).outcome.value
        'step shortened because the path bends too much along it'
    """
    by_contraction = _longest(lambda f: f * step.growth(f) * step.contraction <= CONTRACTION)
    by_distance = _longest(lambda f: step.growth(f) * step.distance <= DISTANCE)
    by_angle = _longest(lambda f: f * step.angle <= ANGLE)
    shortest = min(by_contraction, by_distance, by_angle)
    if not step.distance <= FAR:
        return Verdict(StepOutcome.SHORTENED_DISTANCE, min(by_distance, 0.5))
    if not step.contraction <= SLOW:
        return Verdict(StepOutcome.SHORTENED_CONTRACTION, min(by_contraction, 0.5))
    if not step.angle <= SHARP:
        return Verdict(StepOutcome.SHORTENED_ANGLE, min(by_angle, 0.5))
    if not step.chord <= UNEVEN * step.angle + LEAP + noise:
        return Verdict(StepOutcome.SHORTENED_LEAP, min(shortest, 0.5))
    return Verdict(StepOutcome.ACCEPTED, shortest)


def _longest(holds: Callable[[float], bool]) -> float:
    """The largest factor allowed with which a condition holds, about; the least if none."""
    if holds(MOST):
        return MOST
    low, high = LEAST, MOST
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return round(low, 5)
