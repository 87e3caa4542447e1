"""Following the path of fixed points from λ = 0 to λ = 1."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxseq.learn._interrupts import interrupts_deferred
from jaxseq.learn._progress import progress_bar
from jaxseq.learn.homotopy._flat import keep_positive
from jaxseq.learn.homotopy._frame import Frame
from jaxseq.learn.homotopy._hermite import Hermite, hermite_cubic
from jaxseq.learn.homotopy._host import one_thread
from jaxseq.learn.homotopy._leading import Leading
from jaxseq.learn.homotopy._orientation import SHORTER, is_crossing, turns_back
from jaxseq.learn.homotopy._path import (
    Event,
    NewPoint,
    Outcome,
    Path,
    StepOutcome,
    extend,
    first_point,
    tried,
)
from jaxseq.learn.homotopy._problem import Problem, flat_map, unraveller
from jaxseq.learn.homotopy._settings import Predictor, Settings, check_settings, least_tolerance
from jaxseq.learn.homotopy._solver import Base, Correction, Solver, Tangent
from jaxseq.learn.homotopy._step_length import LEAP, Step, Verdict, judge
from jaxseq.learn.homotopy._store import PathKeeper, load_path

STUCK, TINY, CAREFUL = 4, 1e-6, 12
"""After so many failures in a row, or a step shorter than that share of ‖z‖, so many steps are
taken with care: see `_with_care`."""
NEAR, SHORT_OF_ONE = 0.05, 1e-4
"""No farther than this from λ = 1, a step shorter than that share is tiny already, and the first
with care tries to land."""
EXACT = 1e-4
"""Accuracy of the last point's eigenvalues, which are sought anew, once a path."""
SHORT = 1e-3
"""Steps shorter than this share of ‖z‖ count as that long when their ends' distance from the path
is judged: the distance of their beginnings, within the tolerance, would be taken for it."""


def follow_path(
    problem: Problem,
    settings: Settings = Settings(),  # noqa: B008 - an immutable tuple
    start: Path | None = None,
    watch: Callable[[Path], bool | None] = lambda path: None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = False,
) -> Path:
    """Follow the fixed points of EM_λ from λ = 0 to λ = 1 along arc length.

    The points ``z(s) = (Θ̃, λ)`` with ``R(z) = Θ̃ − EM_λ(Θ̃) = 0`` are a curve with the unit tangent
    ``R'(z) η = 0``, on which λ may turn back and forth again. From z, a predictor along η goes a
    step h further; Newton's method on ``R(z) = 0, η·(z − z_predicted) = 0`` brings that point
    back to the curve, to ‖EM_λ(Θ̃) − Θ̃‖ ≤ 1e-8 ‖Θ̃‖ (1e-5 in float32). The step length follows from
    how hard that was. The last step ends on λ = 1 exactly. Parameters of multinomials stay
    positive. At a bifurcation the path goes straight on (η·η_old ≥ 0): a step leaps over it. A step
    to the other side of a hairpin, from which the path would lead back, is found out where
    eigenvectors are kept (`Settings.deflated`; `_orientation`).

    With `published_settings` it is the algorithm as published: steps η·δ, uncorrected, up to the
    first point with λ ≥ 1.

    A corrected step costs 2 or 3 linearisations of E for Newton's method and one for the tangent
    (RK2 has one, RK3 two more), with about 5 to 30 products with ∇E for each.

    Args:
        problem: the problem.
        settings: how to follow it.
        start: a path to go on from, exactly as if it had not stopped; None goes on from the
            checkpoint, if it is there.
        watch: called with the path after every step tried; ends it by returning True.
        checkpoint: a file to keep the path in, every ten seconds and at its end.
        progress: whether to show a bar; None shows it when standard error is a terminal.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn.homotopy import Problem
        >>> def em_1(tilde):
        ...     share = tilde / tilde.sum()
        ...     return jnp.array([share[0] / 2 + 0.5, share[1] / 2])
        >>> path = follow_path(Problem(em_1, jnp.array([0.4, 0.6])))
        >>> path.lam[-1].item(), path.parameters(-1).round(3).tolist()
        (1.0, [1.0, 0.0])

    References:
        Haffari & Sarkar 2008, algorithm 1; Allgower & Georg, Introduction to numerical
        continuation methods, SIAM 2003, chapters 2, 6 and 7.
    """
    check_settings(settings, problem.dtype)
    solver = Solver(problem, settings)
    if start is None and checkpoint is not None and os.path.exists(checkpoint):
        start = load_path(checkpoint, problem, settings)
    keeper = PathKeeper(checkpoint, problem, settings)
    path = (start or _begin(solver))._replace(outcome=None)
    advance = _advance_corrected if settings.corrected else _advance_as_published
    bar = progress_bar("homotopy", 100, progress, "residual")
    with bar as tick, interrupts_deferred() as pressed, one_thread():
        try:
            while (outcome := _why_stop(path, settings)) is None:
                path = advance(solver, path)
                keeper.keep(path)
                tick(int(100 * min(max(path.lam[-1], 0), 1)), float(path.residual[-1]))
                if path.outcome is None and (watch(path) or pressed()):
                    return path._replace(outcome=Outcome.INTERRUPTED)
                if path.outcome is not None:
                    return path
        finally:
            keeper.keep(path, at_once=True)
    return path._replace(outcome=outcome)


def _why_stop(path: Path, settings: Settings) -> Outcome | None:
    if path.lam[-1] >= 1:
        return Outcome.REACHED_ONE
    if len(path.events) >= settings.max_steps:
        return Outcome.MAX_STEPS
    if settings.corrected and path.next_step < settings.min_step:
        return Outcome.STEP_TOO_SMALL
    return None


def _begin(solver: Solver) -> Path:
    """The path that is only its point at λ = 0, where c is the solution."""
    point = np.append(np.asarray(flat_map(solver.problem)[0]), np.zeros(1, solver.problem.dtype))
    upwards = np.zeros_like(point)
    upwards[-1] = 1
    tangent = solver.tangent(point, upwards)
    if not (math.isfinite(tangent.residual) and np.isfinite(tangent.direction).all()):
        raise ValueError("expect: expected finite values and slopes at the constant, got others")
    new = _measure(solver, point, tangent, 0.0, None)
    return first_point(new, solver.settings.step, unraveller(solver.problem))


def _measure(
    solver: Solver,
    point: np.ndarray,
    tangent: Tangent,
    step: float,
    before: Leading | None,
    last: bool = False,
) -> NewPoint:
    """What is recorded of a point.

    Where parameters vanish, the last point is unlike the one before it, and what was known there
    of ∇E need not lead to the largest eigenvalues here: Lanczos, with nothing presumed, looks for
    them too. Both find none that are too large (Cauchy's interlacing): the greater are nearer.
    """
    leading = solver.leading(point, tangent.seen, before)
    count = solver.settings.eigenvalues
    if not solver.keeps_leading:
        eigenvalues = solver.eigenvalues(point)
    else:
        short = max(count - len(leading.values), 0)
        eigenvalues = np.pad(leading.values, (0, short))[:count].astype(point.dtype)
        if last and count:
            exact = solver._replace(settings=solver.settings._replace(lanczos_accuracy=EXACT))
            found = exact.eigenvalues(point)
            eigenvalues[: len(found)] = np.maximum(eigenvalues[: len(found)], found)
    weight = solver.second_weight(float(point[-1]))
    return NewPoint(point, tangent.residual, step, tangent.direction, eigenvalues, weight, leading)


class _Trial(NamedTuple):
    """A step that was tried, before it is judged."""

    correction: Correction
    step: float
    lands: bool
    at_once: bool = False


def _is_stuck(path: Path, events: tuple[Event, ...]) -> bool:
    """Whether, a few steps ago at most, many in a row have failed or one was tiny."""
    share = SHORT_OF_ONE if 1 - float(path.lam[-1]) <= NEAR else TINY
    failures, tiny = 0, share * float(np.linalg.norm(path.points[-1]))
    recent = events[-(STUCK + CAREFUL) + 1 :]
    for number, event in enumerate(recent):
        failures = 0 if event.outcome.is_accepted else failures + 1
        short = event.step < tiny and number >= len(recent) - CAREFUL
        if failures >= STUCK or short:
            return True
    return False


def _with_care(solver: Solver, path: Path) -> Solver:
    """The solver for the next step: as the settings say, unless the path is stuck.

    Where ∇E is nearly singular and yet nothing turns, as it is towards a λ = 1 whose fixed points
    are many, a frame stretches errors of points and tangents, within their tolerances, to more
    than a step's length, and a cubic through points so near together foretells nothing. Plain
    lengths, Euler's steps and exact tangents then lead on.
    """
    if not _is_stuck(path, path.events):
        return solver
    settings, dtype = solver.settings, solver.problem.dtype
    careful = settings._replace(
        predictor=Predictor.EULER,
        stretch=None,
        linear_tolerance=min(settings.linear_tolerance, 1e-4),
        tangent_tolerance=max(settings.kernel_tolerance(dtype) / 100, least_tolerance(dtype)),
    )
    return Solver(solver.problem, careful)


def _cubic(solver: Solver, path: Path, base: Base) -> Hermite | None:
    """The cubic through the last two points, if it is wanted and there are two."""
    if solver.settings.predictor is not Predictor.HERMITE or len(path.points) < 2:
        return None
    begin, end = path.points[-2:]
    return hermite_cubic(base.frame, begin, end, path.earlier, path.tangent)


def _try_step(solver: Solver, path: Path, base: Base, cubic: Hermite | None) -> _Trial:
    """Predict and correct; a step that passes λ = 1 is ended there."""
    point, step = path.points[-1], path.next_step
    unit = path.tangent / base.frame.length(path.tangent)

    def predict(length: float) -> np.ndarray:
        if cubic is None:
            return solver.predict(point, unit, length, base)
        return keep_positive(solver.problem, point, cubic.at(length).astype(point.dtype))

    if _should_land(path):
        landed = _land_at_once(solver, path, base)
        if landed is not None:
            return landed
    predicted = predict(step)
    if predicted[-1] <= 1:
        correction = solver.correct(predicted, unit, base, _yardstick(point, step))
        if not correction.converged or correction.point[-1] <= 1:
            return _Trial(correction, step, False)
        predicted = correction.point
    share = float((1 - point[-1]) / (predicted[-1] - point[-1]))
    start = point + share * (predicted - point) if cubic is None else predict(share * step)
    landed = solver.land(start, 1.0, base, _yardstick(point, share * step))
    return _Trial(landed, share * step, True)


def _should_land(path: Path) -> bool:
    """Where the path gets stuck, and then at every so many steps: most are in vain, and cost little
    beside the crawling that one of them ends."""
    if not _is_stuck(path, path.events):
        return False
    return not _is_stuck(path, path.events[:-1]) or len(path.events) % CAREFUL == 0


def _land_at_once(solver: Solver, path: Path, base: Base) -> _Trial | None:
    """A step along the tangent to λ = 1, if that is near and can be corrected."""
    point, unit = path.points[-1], path.tangent / base.frame.length(path.tangent)
    left = 1 - float(point[-1])
    if not (unit[-1] > 0 and left <= NEAR):
        return None
    step = left / float(unit[-1])
    start = keep_positive(solver.problem, point, point + step * unit)
    landed = solver.land(start, 1.0, base, _yardstick(point, step))
    if base.frame.angle(landed.point - point, unit) > LEAP:
        return None
    return _Trial(landed, step, True, at_once=True) if landed.converged else None


def _yardstick(point: np.ndarray, step: float) -> float:
    return max(step, SHORT * float(np.linalg.norm(point)))


def _advance_corrected(solver: Solver, path: Path) -> Path:
    """One step more, or the same path with a shorter step to try next."""
    solver, usual = _with_care(solver, path), solver
    base = solver.base(path.points[-1], path.leading)
    cubic = _cubic(solver, path, base)
    trial = _try_step(solver, path, base, cubic)
    correction, lam = trial.correction, float(path.lam[-1])
    went = Step(correction.contraction, correction.first / _yardstick(path.points[-1], trial.step))
    if cubic is not None:
        went = went._replace(growth=partial(cubic.growth, trial.step))

    def followed_by(following: Path, factor: float, chord: np.ndarray) -> Path:
        """The path with its next step: a factor times this one, as the next frame measures it."""
        after = _with_care(usual, following).base(following.points[-1], following.leading)
        measured = after.frame.length(chord) / base.frame.length(chord)
        length = min(trial.step * measured * factor, solver.settings.max_step)
        return following._replace(next_step=length)

    def shortened(outcome: StepOutcome, factor: float = 0.5) -> Path:
        event = Event(outcome, trial.step, lam, correction.steps)
        return followed_by(tried(path, event), factor, path.tangent)

    if not correction.converged:
        return shortened(*_why_not(trial, judge(went)))
    if correction.point[-1] < 0:
        return shortened(StepOutcome.SHORTENED_RANGE)
    guess = None if cubic is None else cubic.slope(trial.step)
    tangent = solver.tangent(correction.point, path.tangent, base, guess)
    if not np.isfinite(tangent.direction).all():
        return shortened(StepOutcome.SHORTENED_NOT_FINITE)
    chord, frame = correction.point - path.points[-1], base.frame
    if not chord.any():
        return shortened(StepOutcome.SHORTENED_DIVERGED)
    if trial.at_once:  # where fixed points are many, so are tangents, and most lead nowhere
        tangent = tangent._replace(direction=chord / np.linalg.norm(chord))
    if trial.lands and not tangent.direction[-1] > 0:
        return shortened(StepOutcome.SHORTENED_OVERSHOT)  # λ = 1 is first reached from below
    ends = (path.tangent, tangent.direction)
    verdict = judge(
        went._replace(angle=frame.angle(*ends), chord=sum(frame.angle(chord, end) for end in ends)),
        noise=_noise(solver, correction.point, frame) / trial.step,
    )
    if not verdict.outcome.is_accepted:
        return shortened(*verdict)
    new = _measure(
        solver, correction.point, tangent, trial.step, path.leading, last=trial.lands
    )  # fmt: skip
    outcome = StepOutcome.LANDED if trial.lands else StepOutcome.ACCEPTED
    if not trial.lands and turns_back(solver, path.crossed, new, tangent.seen):
        if not is_crossing(path.points[-1], new.point):
            return shortened(StepOutcome.SHORTENED_REVERSED, SHORTER)
        outcome = StepOutcome.CROSSED
    event = Event(outcome, trial.step, lam, correction.steps)
    # A length that has just failed would fail again: no growth right after.
    failed = bool(path.events) and not path.events[-1].outcome.is_accepted
    factor = min(verdict.factor, 1.0) if failed else verdict.factor
    return followed_by(tried(extend(path, new), event), factor, chord)


def _noise(solver: Solver, point: np.ndarray, frame: Frame) -> float:
    """About how far a corrected point may be from the path, in a frame.

    Along an eigenvector the distance is 1/|1 − g2(λ)·μ| times the residual, about the square root
    of its weight in the frame, which stretches it by as much again.
    """
    residual = solver.tolerance * float(np.linalg.norm(point))
    return 10 * residual * (1 + float(frame.weights.max(initial=0.0)))


def _why_not(trial: _Trial, verdict: Verdict) -> Verdict:
    """What came of a step whose end could not be corrected."""
    if not math.isfinite(trial.correction.residual) and trial.correction.steps == 0:
        return Verdict(StepOutcome.SHORTENED_NOT_FINITE, 0.5)
    if trial.lands:
        return Verdict(StepOutcome.SHORTENED_OVERSHOT, 0.5)
    if verdict.outcome.is_accepted:
        return Verdict(StepOutcome.SHORTENED_DIVERGED, 0.5)
    return verdict


def _advance_as_published(solver: Solver, path: Path) -> Path:
    """Algorithm 1 of the paper: one Euler step, whatever comes of it."""
    step, lam = solver.settings.step, float(path.lam[-1])
    point = path.points[-1] + step * path.tangent
    tangent = solver.tangent(point, path.tangent)
    event = Event(StepOutcome.ACCEPTED, step, lam, 0)
    if not (math.isfinite(tangent.residual) and np.isfinite(tangent.direction).all()):
        return path._replace(outcome=Outcome.NOT_FINITE)
    longer = extend(path, _measure(solver, point, tangent, step, path.leading))
    outcome = Outcome.LEFT_RANGE if point[-1] < 0 else None
    return tried(longer, event)._replace(outcome=outcome)
