"""How a path is followed."""

from __future__ import annotations

import enum
import math
from typing import Any, NamedTuple

import numpy as np


class Predictor(enum.Enum):
    """How the next point is predicted from the tangents ``η(z)`` of the path."""

    EULER = "z + h·η(z)"
    RK2 = "the midpoint rule"
    RK3 = "Kutta's third-order rule"
    HERMITE = "Hermite's cubic through the last two points and their tangents; Euler at first"


class Jacobian(enum.Enum):
    """How linear systems with ∇E are solved."""

    MATRIX_FREE = "GMRES on products with ∇E, which is linearised once per system"
    DENSE = "the matrix ∇E, its LU decomposition, and its SVD for the kernel"


class PathSettings(NamedTuple):
    """How a path is followed, and when that ends.

    Attributes:
        step: arc length of the first step, and of every step if they are not corrected.
        predictor: how the next point is predicted.
        corrected: whether Newton's method brings each predicted point back to the path, with the
            step length adapted to how hard that is. Without, the path drifts.
        jacobian: matrix-free, or dense for small problems.
        tolerance: bound on ‖EM_λ(Θ̃) − Θ̃‖ / ‖Θ̃‖ at every corrected point; None is 9e-9 in
            float64 (so that it is within 1e-8 however it is summed up) and 1e-5 in float32.
        min_step: shortest step.
        max_step: longest step.
        max_steps: how many steps to try at most.
        max_corrections: steps of Newton's method at most, for one point.
        linear_tolerance: relative residual of the linear systems of Newton's method.
        last_share: the last of these systems for a point is solved only to this share of what the
            point's residual still lacks; 0 solves all to `linear_tolerance`.
        tangent_tolerance: the same for tangents; None is 1e-5 in float64 and 1e-4 in float32.
        krylov_size: vectors that GMRES keeps before it restarts.
        krylov_restarts: restarts of GMRES at most.
        eigenvalues: how many of the largest eigenvalues of ∇E to record at every point.
        lanczos_steps: products with ∇E that these may take.
        lanczos_accuracy: a relative residual of eigenvectors with which the search for them ends
            earlier; eigenvalues err by about its square.
        deflated: how many eigenvectors of ∇E to keep from point to point, to leave them out of
            what GMRES iterates. Their eigenvalues also reveal a step that would lead back on the
            path (`follow_path`). Not where `jacobian` is dense or the structure is GENERAL.
        stretch: δ; lengths along these eigenvectors are stretched near turning points, up to 1/δ
            times, so that a hairpin becomes a bend. None for plain lengths.

    Example:
        >>> PathSettings(step=0.05).max_step
        1.0
    """

    step: float = 0.1
    predictor: Predictor = Predictor.EULER
    corrected: bool = True
    jacobian: Jacobian = Jacobian.MATRIX_FREE
    tolerance: float | None = None
    min_step: float = 1e-7
    max_step: float = 1.0
    max_steps: int = 1000
    max_corrections: int = 10
    linear_tolerance: float = 1e-4
    last_share: float = 0.0
    tangent_tolerance: float | None = None
    krylov_size: int = 40
    krylov_restarts: int = 5
    eigenvalues: int = 0
    lanczos_steps: int = 40
    lanczos_accuracy: float = 1e-3
    deflated: int = 0
    stretch: float | None = None

    def point_tolerance(self, dtype: np.dtype) -> float:
        """The bound on the relative residual, for numbers of a dtype."""
        if self.tolerance is not None:
            return self.tolerance
        return 9e-9 if np.dtype(dtype).itemsize >= 8 else 1e-5

    def kernel_tolerance(self, dtype: np.dtype) -> float:
        """The relative residual of the systems for tangents, for numbers of a dtype."""
        if self.tangent_tolerance is not None:
            return self.tangent_tolerance
        return 1e-5 if np.dtype(dtype).itemsize >= 8 else 1e-4


def published_settings(step: float = 0.01, **others) -> PathSettings:
    """Algorithm 1 of Haffari & Sarkar (2008): Euler steps of a fixed length, never corrected.

    Such a path drifts, and its parameters may become negative: no model has them.

    Example:
        >>> published_settings(0.02).corrected
        False
    """
    return PathSettings(step=step, predictor=Predictor.EULER, corrected=False, **others)


POSITIVE = (
    "step", "min_step", "max_step", "max_steps", "max_corrections", "linear_tolerance",
    "krylov_size", "krylov_restarts", "lanczos_steps", "lanczos_accuracy", "tolerance",
    "tangent_tolerance", "stretch",
)  # fmt: skip
ROUNDINGS = 10
"""A relative residual below so many roundings is out of reach."""


def check_settings(settings: Any, dtype: np.dtype) -> None:
    """ValueError if a path with numbers of a dtype cannot be followed so."""
    if not isinstance(settings, PathSettings):
        raise ValueError(f"settings: expected PathSettings, got {settings!r:.60}")
    for name in POSITIVE:
        value = getattr(settings, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}: expected a positive number, got {value}")
    least = least_tolerance(np.dtype(dtype))
    for name in ("tolerance", "tangent_tolerance"):
        value = getattr(settings, name)
        if value is not None and value < least:
            wanted = f"None, or at least {least:.2g}, within reach of {np.dtype(dtype)}"
            raise ValueError(f"{name}: expected {wanted}, got {value}")
    if settings.corrected and not settings.min_step <= settings.step <= settings.max_step:
        between = f"between min_step {settings.min_step} and max_step {settings.max_step}"
        raise ValueError(f"step: expected one {between}, got {settings.step}")
    for name in ("eigenvalues", "deflated", "last_share"):
        if getattr(settings, name) < 0:
            raise ValueError(f"{name}: expected 0 or more, got {getattr(settings, name)}")
    if settings.stretch is not None and not settings.deflated:
        raise ValueError("stretch: expected None, as deflated is 0, got one")


def least_tolerance(dtype: np.dtype) -> float:
    """The least relative residual within reach of a dtype."""
    return ROUNDINGS * float(np.finfo(dtype).eps)
