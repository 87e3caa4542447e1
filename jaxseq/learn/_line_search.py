"""How far to go along a direction: a step that satisfies the strong Wolfe conditions.

Runs on the host, on plain numbers: an evaluation is a pass over a whole corpus, on several cores
and in several programs, which cannot be a part of one compiled loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Payload = TypeVar("Payload")

DECREASE, CURVATURE = 1e-4, 0.9
"""Fractions of the first slope: how much the value must fall, how flat the slope must get."""

ROUNDING = 1e-6
"""Relative change of the value that may be rounding, in float32."""


@dataclass(frozen=True)
class Trial(Generic[Payload]):
    """A step, what the function is there, and what the caller wants to keep of the evaluation."""

    step: float
    value: float
    slope: float
    payload: Payload


def zoom(
    evaluate: Callable[[float], Trial[Payload]],
    value: float,
    slope: float,
    first_step: float = 1.0,
    max_trials: int = 20,
) -> Trial[Payload] | None:
    """A step along which the function falls enough and its slope flattens enough.

    Brackets such a step by doubling, then narrows the bracket by cubic interpolation. Near the
    minimum, where the fall drowns in rounding, slopes alone decide (Hager & Zhang's approximate
    Wolfe conditions).

    Args:
        evaluate: the function at a step.
        value, slope: at step 0; the slope must be negative.
        first_step: what to try first.
        max_trials: how many evaluations at most.

    Returns:
        The trial accepted; failing that, the lowest one that is below `value`; None if none is.

    Example:
        >>> parabola = lambda step: Trial(step, (step - 3) ** 2, 2 * (step - 3), None)
        >>> abs(zoom(parabola, 9.0, -6.0).step - 3) < 3
        True

    References:
        Nocedal & Wright 1999, algorithms 3.5 and 3.6; Hager & Zhang 2006, eq. 23.
    """
    if not slope < 0:
        raise ValueError(f"slope: expected a negative number, for a way down, got {slope}")
    low, high = Trial(0.0, value, slope, None), None
    step, best = first_step, None
    for _ in range(max_trials):
        trial = evaluate(step)
        if math.isfinite(trial.value) and trial.value < (best.value if best else value):
            best = trial
        if _acceptable(trial, value, slope):
            return trial
        too_high = not trial.value <= value + DECREASE * trial.step * slope  # also when NaN
        if too_high or (trial.value >= low.value and low.step > 0):
            high = trial
        else:
            # Of the two sides of the new lowest point, the bracket is the one it falls towards.
            ahead = math.inf if high is None else high.step
            if trial.slope * (ahead - trial.step) >= 0:
                high = low
            low = trial
        if high is None:
            step = 2 * step
            continue
        if abs(high.step - low.step) <= 1e-9 * max(abs(high.step), abs(low.step)):
            break
        step = _interpolate(low, high)
    return best


def _acceptable(trial: Trial, value: float, slope: float) -> bool:
    flat = abs(trial.slope) <= CURVATURE * abs(slope)
    falls = trial.value <= value + DECREASE * trial.step * slope
    level = trial.value <= value + ROUNDING * abs(value)
    slopes_agree = trial.slope <= (2 * DECREASE - 1) * slope
    return flat and (falls or (level and slopes_agree))


def _interpolate(low: Trial, high: Trial) -> float:
    """Minimum of the cubic through both ends, kept off the ends; else the middle."""
    width = high.step - low.step
    middle = low.step + width / 2
    if not (math.isfinite(high.value) and math.isfinite(high.slope)):
        return low.step + width / 10
    bend = low.slope + high.slope - 3 * (low.value - high.value) / (low.step - high.step)
    under_root = bend * bend - low.slope * high.slope
    if under_root < 0:
        return middle
    root = math.copysign(math.sqrt(under_root), width)
    denominator = high.slope - low.slope + 2 * root
    if denominator == 0:
        return middle
    step = high.step - width * (high.slope + root - bend) / denominator
    nearest, farthest = sorted((low.step + 0.1 * width, high.step - 0.1 * width))
    return step if nearest <= step <= farthest else middle
