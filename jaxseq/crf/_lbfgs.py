"""L-BFGS on objectives that are evaluated outside of one compiled program.

The line search and the loop run on the host, on plain numbers: an evaluation is a pass over a whole
corpus, on several cores and in several programs, which cannot be a part of one compiled loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from jaxseq._runtime import Outcome
from jaxseq.parallel import place

Payload = TypeVar("Payload")

DECREASE, CURVATURE = 1e-4, 0.9
"""Fractions of the first slope: how much the value must fall, how flat the slope must get."""

ROUNDING = 1e-6
"""Relative change of the value that may be rounding, in float32."""

MAX_HALVINGS = 30
"""Of an orthant-wise step, before it counts as none: it would be below float32's precision."""


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
    # The bracket: `low` has the least value so far that falls enough, and its slope points towards
    # `high`, so that a minimum is between them. Without `high` all is still to the right.
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
        if high is None:  # the way is still down: algorithm 3.5, which looks for a bracket
            step = 2 * step
            continue
        # No two steps are left between the ends: what remains of the fall is rounding.
        if abs(high.step - low.step) <= 1e-9 * max(abs(high.step), abs(low.step)):
            break
        step = _interpolate(low, high)
    return best


def _acceptable(trial: Trial, value: float, slope: float) -> bool:
    flat = abs(trial.slope) <= CURVATURE * abs(slope)  # strong curvature condition, eq. 3.7b
    falls = trial.value <= value + DECREASE * trial.step * slope
    # Hager & Zhang, eq. 23: for a parabola the slopes say as much as the fall, and do not drown.
    level = trial.value <= value + ROUNDING * abs(value)
    slopes_agree = trial.slope <= (2 * DECREASE - 1) * slope
    return flat and (falls or (level and slopes_agree))


def _interpolate(low: Trial, high: Trial) -> float:
    """Minimum of the cubic through both ends, kept off the ends; else the middle."""
    width = high.step - low.step
    middle = low.step + width / 2
    if not (math.isfinite(high.value) and math.isfinite(high.slope)):
        return low.step + width / 10  # far beyond where the objective overflows: come back boldly
    bend = low.slope + high.slope - 3 * (low.value - high.value) / (low.step - high.step)
    under_root = bend * bend - low.slope * high.slope
    if under_root < 0:  # the cubic has no minimum
        return middle
    root = math.copysign(math.sqrt(under_root), width)
    denominator = high.slope - low.slope + 2 * root
    if denominator == 0:
        return middle
    step = high.step - width * (high.slope + root - bend) / denominator
    nearest, farthest = sorted((low.step + 0.1 * width, high.step - 0.1 * width))
    return step if nearest <= step <= farthest else middle


# Orthant-wise steps: L-BFGS for objectives with an l1 term.
#
# :math:`F(x) = f(x) + c \|x\|_1` is smooth inside every orthant. Directions come from the curvature
# of f, corrected so that they descend; a step that would leave the orthant stops at its border,
# which is how weights become exactly zero.
#
# References:
#     Andrew & Gao 2007, "Scalable training of L1-regularized log-linear models".


@jax.jit
def l1_norm(parameters) -> Array:
    """Sum of absolute values."""
    return jnp.stack([jnp.abs(leaf).sum() for leaf in jax.tree.leaves(parameters)]).sum()


@jax.jit
def pseudo_gradient(parameters, gradient, l1):
    """The one-sided derivative of F along which it falls fastest; 0 where it falls to no side."""

    def one_sided(x: Array, g: Array) -> Array:
        right, left = g + l1, g - l1
        at_zero = jnp.where(right < 0, right, jnp.where(left > 0, left, 0))
        return jnp.where(x == 0, at_zero, g + l1 * jnp.sign(x))

    return jax.tree.map(one_sided, parameters, gradient)


@jax.jit
def orthant_direction(memory, pseudo):
    """Minus the inverse-Hessian estimate times the pseudo-gradient, where that descends.

    `memory` is the state of `optax.scale_by_lbfgs`, whose own product is with the gradient that
    it remembers; here it is with another one.
    """
    steps, changes, weights = (
        memory.diff_params_memory,
        memory.diff_updates_memory,
        memory.weights_memory,
    )
    size = weights.shape[0]
    # The two-loop recursion (Nocedal & Wright, algorithm 7.4) over a ring of slots:
    # slots count − 2, count − 3, … hold the newest pairs; unused ones have weight 0. Backtracking
    # does not promise positive curvature: pairs without it are left out.
    order = (memory.count - 2 - jnp.arange(size)) % size
    weights = jnp.maximum(weights, 0).astype(jax.tree.leaves(pseudo)[0].dtype)

    def at(tree, index):
        return jax.tree.map(lambda leaf: leaf[index], tree)

    def newest_first(vector, index):
        share = weights[index] * optax.tree.vdot(at(steps, index), vector)
        return optax.tree.add_scale(vector, -share, at(changes, index)), share

    vector, shares = jax.lax.scan(newest_first, pseudo, order)
    last_step, last_change = at(steps, order[0]), at(changes, order[0])
    curvature = jnp.asarray(optax.tree.vdot(last_change, last_change))
    agreement = jnp.asarray(optax.tree.vdot(last_step, last_change))
    norm = optax.tree.norm(pseudo)
    first = 1 / jnp.maximum(norm, 1)  # before anything is known of the curvature
    scale = jnp.where(agreement > 0, agreement / jnp.where(curvature > 0, curvature, 1), first)
    vector = optax.tree.scale(scale, vector)

    def oldest_first(vector, pair):
        index, share = pair
        back = weights[index] * optax.tree.vdot(at(changes, index), vector)
        return optax.tree.add_scale(vector, share - back, at(steps, index)), None

    vector, _ = jax.lax.scan(oldest_first, vector, (order, shares), reverse=True)
    # Entries that would not descend are dropped (Andrew & Gao, eq. 6).
    return jax.tree.map(lambda v, g: jnp.where(v * g > 0, -v, 0), vector, pseudo)


@jax.jit
def move(parameters, direction, pseudo, step):
    """The point reached, held within the orthant; and the slope times the way gone."""

    def held(x: Array, d: Array, g: Array) -> Array:
        # A weight of 0 may leave it to the side where F falls; others stop where the sign changes.
        side = jnp.where(x == 0, -jnp.sign(g), jnp.sign(x))
        moved = x + step * d
        return jnp.where(moved * side > 0, moved, 0)

    moved = jax.tree.map(held, parameters, direction, pseudo)
    gone = jax.tree.map(jnp.subtract, moved, parameters)
    return moved, optax.tree.vdot(pseudo, gone)


Tree = TypeVar("Tree")


class State(NamedTuple):
    """Everything that a search needs to go on: parameters, value and gradient there (without the
    l1 term), curvature memory, iterations done and the last values."""

    parameters: Any
    value: float
    gradient: Any
    memory: optax.ScaleByLBFGSState
    iteration: int
    values: tuple[float, ...]
    evaluations: int


class Settings(NamedTuple):
    """When to stop: after `max_iterations`; or when the value has improved by less than
    `tolerance` of itself over `period` iterations; or when the gradient's norm is less than
    `gradient_tolerance` times that of the parameters (or 1). `memory_size` pairs of steps are
    remembered."""

    max_iterations: int = 1000
    tolerance: float = 1e-5
    period: int = 10
    gradient_tolerance: float = 1e-5
    memory_size: int = 6
    l1: float = 0.0


@partial(jax.jit, donate_argnums=0)
def _take_in(pairs, counters, gradient, parameters):
    """Quasi-Newton direction, its slope, and the memory with the last step taken in.

    The remembered pairs are most of the memory, and are updated in place.
    """
    memory = counters._replace(diff_params_memory=pairs[0], diff_updates_memory=pairs[1])
    size = memory.weights_memory.shape[0]
    scaled, memory = optax.scale_by_lbfgs(size).update(gradient, memory, parameters)
    direction = jax.tree.map(jnp.negative, scaled)
    return direction, optax.tree.vdot(direction, gradient), memory


def _direction(gradient, memory, parameters):
    pairs = (memory.diff_params_memory, memory.diff_updates_memory)
    # Apart, since the caller's state still has the rest, which must not be given away.
    counters = memory._replace(diff_params_memory=None, diff_updates_memory=None)
    direction, slope, memory = _take_in(pairs, counters, gradient, parameters)
    return direction, memory, float(slope)


@jax.jit
def _move(parameters, direction, step):
    return jax.tree.map(lambda p, d: p + step * d, parameters, direction)


@jax.jit
def _dot(a, b) -> Array:
    return jnp.asarray(optax.tree.vdot(a, b))


@jax.jit
def _norms(gradient, parameters) -> tuple[Array, Array]:
    return optax.tree.norm(gradient), optax.tree.norm(parameters)


def begin_search(objective: Callable, parameters, settings: Settings) -> State:
    """The state before the first iteration."""
    value, gradient = objective(parameters)
    memory = _empty_memory(parameters, settings)
    total = float(value) + settings.l1 * float(l1_norm(parameters))
    return State(parameters, float(value), gradient, memory, 0, (total,), 1)


def iterate(objective: Callable, state: State, settings: Settings) -> State | None:
    """One iteration; None when no step improves the value."""
    if settings.l1 > 0:
        return _iterate_orthantwise(objective, state, settings)
    direction, memory, slope = _direction(state.gradient, state.memory, state.parameters)
    if not slope < 0:  # of a gradient that is 0 or not a number, or a memory that misleads
        return None
    evaluations = 0

    def along(step: float) -> Trial:
        nonlocal evaluations
        evaluations += 1
        moved = _move(state.parameters, direction, step)
        value, gradient = objective(moved)
        return Trial(step, float(value), float(_dot(gradient, direction)), (moved, gradient))

    accepted = zoom(along, state.value, slope)
    if accepted is None:
        return None
    parameters, gradient = accepted.payload
    return State(
        parameters,
        accepted.value,
        gradient,
        memory,
        state.iteration + 1,
        (*state.values, accepted.value)[-settings.period - 1 :],
        state.evaluations + evaluations,
    )


def _iterate_orthantwise(objective: Callable, state: State, settings: Settings) -> State | None:
    """The same with an l1 term (Andrew & Gao 2007)."""
    _, memory, _ = _direction(state.gradient, state.memory, state.parameters)
    pseudo = pseudo_gradient(state.parameters, state.gradient, settings.l1)
    direction = orthant_direction(memory, pseudo)
    before = state.values[-1]
    step = 1.0
    for trial in range(MAX_HALVINGS):
        moved, slope = move(state.parameters, direction, pseudo, step)
        value, gradient = objective(moved)
        total = float(value) + settings.l1 * float(l1_norm(moved))
        # `slope` is along the way that was really gone, cut off at the borders of the orthant.
        if total <= before + DECREASE * float(slope) and total < before:
            return State(
                moved,
                float(value),
                gradient,
                memory,
                state.iteration + 1,
                (*state.values, total)[-settings.period - 1 :],
                state.evaluations + trial + 1,
            )
        step /= 2
    return None


def why_stop(state: State, settings: Settings) -> Outcome | None:
    """Whether the search is over."""
    if state.iteration >= settings.max_iterations:
        return Outcome.MAX_ITERATIONS
    gradient = state.gradient
    if settings.l1 > 0:
        gradient = pseudo_gradient(state.parameters, gradient, settings.l1)
    norm, size = (float(x) for x in _norms(gradient, state.parameters))
    if norm <= settings.gradient_tolerance * max(1.0, size):
        return Outcome.CONVERGED_GRADIENT
    # Over several iterations: a single one may happen to be short.
    if len(state.values) > settings.period:
        before, now = state.values[-settings.period - 1], state.values[-1]
        if before - now <= settings.tolerance * abs(now):
            return Outcome.CONVERGED_VALUE
    return None


def minimise(
    objective: Callable[[Tree], tuple[Array, Tree]],
    start: Tree | State,
    settings: Settings = Settings(),  # noqa: B008 - an immutable tuple
    watch: Callable[[State], bool | None] = lambda state: None,
) -> tuple[State, Outcome]:
    """Search for the minimum of ``objective(p)[0] + l1 · ‖p‖₁``.

    `optax.scale_by_lbfgs` gives the directions, `zoom` (or backtracking in the orthant, with l1)
    the steps.

    Args:
        objective: value and gradient at a point, a pytree of arrays.
        start: a point, or the `State` of an earlier search to go on from, exactly as if it had
            not stopped (after an interrupt, curvature is learnt anew). Its `memory` is updated in
            place: a state can be gone on from once, and the one that `watch` sees is used up by
            the next iteration.
        settings: when to stop.
        watch: called with the state after every iteration; ends the search by returning True. A
            `KeyboardInterrupt`, there or anywhere else, ends it with the last completed iteration.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> objective = jax.value_and_grad(lambda p: ((p - 2) ** 2).sum())
        >>> state, outcome = minimise(objective, jnp.zeros(3))
        >>> state.parameters.round(3).tolist()
        [2.0, 2.0, 2.0]
    """
    state = start if isinstance(start, State) else begin_search(objective, start, settings)
    retried = False
    try:
        while (outcome := why_stop(state, settings)) is None:
            following = iterate(objective, state, settings)
            if following is None:
                if retried:
                    return _with_fresh_memory(state, settings), Outcome.PRECISION
                # The memory may be what misleads: once more from the gradient alone.
                state, retried = _with_fresh_memory(state, settings), True
                continue
            state, retried = following, False
            if watch(state):
                return state, Outcome.INTERRUPTED
    except KeyboardInterrupt:
        # The iteration that was cut short may have written over the memory already.
        return _with_fresh_memory(state, settings), Outcome.INTERRUPTED
    return state, outcome


def _with_fresh_memory(state: State, settings: Settings) -> State:
    return state._replace(memory=_empty_memory(state.parameters, settings))


def _empty_memory(parameters, settings: Settings) -> optax.ScaleByLBFGSState:
    memory: Any = optax.scale_by_lbfgs(settings.memory_size).init(parameters)
    sharding = getattr(jax.tree.leaves(parameters)[0], "sharding", None)
    if isinstance(sharding, NamedSharding):
        # On all devices of the mesh, as the parameters are: new arrays are on one device, which
        # does not go together with arrays that span processes.
        memory = place(memory, cast(Mesh, sharding.mesh))
    # optax hands out one array of zeros twice; each must be its own to be updated in place. And it
    # keeps numbers in JAX's default float, by which all that they multiply would become float64.
    return memory._replace(
        diff_updates_memory=jax.tree.map(jnp.copy, memory.diff_updates_memory),
        weights_memory=memory.weights_memory.astype(jnp.result_type(*jax.tree.leaves(parameters))),
    )
