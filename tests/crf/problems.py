"""Small convex problems, and slow searches for their minima that need no explanation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

COLUMNS = 6


@jax.jit
@jax.value_and_grad
def logistic_loss(point, inputs, targets, ridge):
    """Σ log(1 + exp(−target · input · p)) + ridge/2 ‖p‖², of parameters in a tree."""
    weights = jnp.concatenate([point["a"], point["b"].ravel()])
    losses = jnp.logaddexp(0, -targets * (inputs @ weights))
    return losses.sum() + ridge / 2 * (weights**2).sum()


@dataclass(frozen=True)
class Logistic:
    """Logistic regression on 40 points; the labels are noisy, so the minimum is not at infinity."""

    inputs: np.ndarray
    targets: np.ndarray
    ridge: float

    def __call__(self, point):
        return logistic_loss(point, self.inputs, self.targets, self.ridge)

    def of_vector(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """The same in numpy."""
        margins = self.targets * (self.inputs @ vector)
        value = np.logaddexp(0, -margins).sum() + self.ridge / 2 * (vector**2).sum()
        slopes = -self.targets / (1 + np.exp(margins))
        return value, self.inputs.T @ slopes + self.ridge * vector


def draw_logistic(seed: int, ridge: float) -> Logistic:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(40, COLUMNS)) * np.array([1, 2, 0.5, 1, 3, 1])
    truth = np.array([1, -0.5, 0, 0, 0.3, 0])
    noisy = inputs @ truth + rng.logistic(size=40)
    return Logistic(inputs, np.where(noisy > 0, 1.0, -1.0), ridge)


def zeros(dtype=jnp.float64):
    """Where searches start: a tree of two arrays."""
    return {"a": jnp.zeros(2, dtype), "b": jnp.zeros((2, 2), dtype)}


def as_vector(point) -> np.ndarray:
    """A tree as one vector."""
    return np.concatenate([np.asarray(point["a"]), np.asarray(point["b"]).ravel()])


def minimum_by_scipy(problem: Logistic) -> np.ndarray:
    found = minimize(
        problem.of_vector, np.zeros(COLUMNS), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    return found.x


def minimum_by_proximal_steps(problem: Logistic, l1: float, l2: float = 0.0) -> np.ndarray:
    """Of the problem with penalties: gradient steps short enough for the largest curvature, each
    followed by a step of length l1 towards 0."""
    curvature = np.linalg.norm(problem.inputs, 2) ** 2 / 4 + problem.ridge + l2
    point = np.zeros(COLUMNS)
    for _ in range(20_000):
        gradient = problem.of_vector(point)[1] + l2 * point
        moved = point - gradient / curvature
        following = np.sign(moved) * np.maximum(np.abs(moved) - l1 / curvature, 0)
        if np.abs(following - point).max() < 1e-13:
            break
        point = following
    return point


def batches_of(problem: Logistic, number: int):
    """An objective of parameters, a batch's number and a step, whose sum is the problem's."""
    parts = [
        partial(
            logistic_loss,
            inputs=problem.inputs[batch::number],
            targets=problem.targets[batch::number],
            ridge=problem.ridge / number,
        )
        for batch in range(number)
    ]
    return lambda point, batch, _step: parts[batch](point)
