"""Mini-batch descent, for corpora that are too large to go through at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxseq._runtime import Outcome

Algorithm = Literal["adamw", "sgd"]

MOMENTUM = 0.9
"""Of SGD: the share of the last step that goes into the next."""


class StochasticSettings(NamedTuple):
    """`epochs` passes over the batches in an order drawn from `seed`; the learning rate falls to 0
    along a cosine. Penalties are for the whole corpus; each of `batches` takes its part."""

    algorithm: Algorithm
    epochs: int
    batches: int
    learning_rate: float
    seed: int
    l1: float = 0.0
    l2: float = 0.0
    sentences: float = 1.0


class StochasticState(NamedTuple):
    """Parameters, what the optimiser remembers, epochs done, and the mean loss of the last one."""

    parameters: Any
    memory: Any
    iteration: int
    values: tuple[float, ...]


def _schedule(settings: StochasticSettings) -> optax.Schedule:
    return optax.cosine_decay_schedule(
        settings.learning_rate, max(1, settings.epochs * settings.batches)
    )


def _optimiser(settings: StochasticSettings) -> optax.GradientTransformation:
    # Decoupled from the gradient for AdamW (Loshchilov & Hutter 2019), a part of it for SGD.
    decay = settings.l2 / settings.sentences  # the loss below is that of an average sentence
    schedule = _schedule(settings)
    if settings.algorithm == "adamw":
        return optax.adamw(schedule, weight_decay=decay)
    return optax.chain(optax.add_decayed_weights(decay), optax.sgd(schedule, momentum=MOMENTUM))


def begin_descent(start: Any, settings: StochasticSettings) -> StochasticState:
    """The state before the first epoch."""
    return StochasticState(start, _optimiser(settings).init(start), 0, ())


def descend(
    objective: Callable[[Any, int, int], tuple[Array, Any]],
    start: Any,
    settings: StochasticSettings,
    watch: Callable[[StochasticState], bool | None] = lambda state: None,
) -> tuple[StochasticState, Outcome]:
    """Minimise the mean of ``objective(parameters, batch, step)`` over batches, plus penalties.

    l1 is taken by a proximal step after each update: weights within reach of 0 become 0. With SGD
    this is the minimum of the penalised loss; AdamW scales its gradients but not the penalties,
    as its authors want it, and so ends elsewhere.

    Args:
        objective: summed loss of one batch, and its gradient; it is told how many steps were done.
        start: parameters, or the `StochasticState` after some epoch to go on from.
        settings: see there.
        watch: called after every epoch; ends the descent by returning True.
    """
    optimiser, schedule = _optimiser(settings), _schedule(settings)
    share = settings.batches / settings.sentences
    # Momentum sums a steady gradient up to 1 / (1 - momentum) times itself; l1 must keep up.
    pull = settings.l1 / settings.sentences
    pull = pull / (1 - MOMENTUM) if settings.algorithm == "sgd" else pull

    # Compiled once per search: the settings are constants of the program.
    @jax.jit
    def update(parameters, memory, gradient, step):
        gradient = jax.tree.map(lambda g: g * share, gradient)
        updates, memory = optimiser.update(gradient, memory, parameters)
        parameters = optax.apply_updates(parameters, updates)
        reach = schedule(step) * pull  # soft thresholding, the proximal operator of the l1 term
        shrunk = jax.tree.map(
            lambda p: jnp.sign(p) * jnp.maximum(jnp.abs(p) - reach, 0), parameters
        )
        return (shrunk if settings.l1 > 0 else parameters), memory

    state = start if isinstance(start, StochasticState) else begin_descent(start, settings)
    try:
        while state.iteration < settings.epochs:
            epoch = state.iteration
            # By epoch, so that a search that is taken up again draws the same orders.
            order = np.random.default_rng([settings.seed, epoch]).permutation(settings.batches)
            parameters, memory, total = state.parameters, state.memory, 0.0
            for place, batch in enumerate(order.tolist()):
                step = epoch * settings.batches + place
                loss, gradient = objective(parameters, batch, step)
                parameters, memory = update(parameters, memory, gradient, step)
                total += float(loss)
            state = StochasticState(parameters, memory, epoch + 1, (total,))
            if watch(state):
                return state, Outcome.INTERRUPTED
    except KeyboardInterrupt:
        return state, Outcome.INTERRUPTED
    return state, Outcome.MAX_ITERATIONS
