"""The family of fixed-point problems that a homotopy goes through."""

from __future__ import annotations

import enum
import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike

LEAST_SHARE = 0.01
"""A parameter keeps at least this share of itself in one move, so that none gets stuck at 0."""


class Structure(enum.Enum):
    """What is known of E and its Jacobian ∇E."""

    MULTINOMIALS = "Θ̃ ≥ 0, E depends on its normalised multinomials only, and ∇E = COV·H"
    SYMMETRIC = "Θ̃ is any real vector, and ∇E is symmetric"
    GENERAL = "Θ̃ is any real vector; eigenvalues of ∇E need its dense matrix"


def linear_weights(lam: ArrayLike) -> tuple[Any, Any]:
    """The weights ``g(λ) = (1 − λ, λ)``.

    Example:
        >>> linear_weights(0.25)
        (0.75, 0.25)
    """
    return 1 - lam, lam


class Problem(eqx.Module):
    """Fixed points of ``EM_λ(Θ̃) = g1(λ)·c + g2(λ)·E(Θ̃)``, for λ between 0 and 1.

    ``R(Θ̃, λ) = Θ̃ − EM_λ(Θ̃) = 0`` has the solution c at λ = 0, and fixed points of E at λ = 1.

    Attributes:
        expect: E, a pure and differentiable function from a pytree to one of the same structure
            and shapes. Give an `equinox.Module` or a `jax.tree_util.Partial` to have its arrays
            passed to compiled programs, not built into them.
        constant: c, a pytree of floating arrays of one dtype. Parameters that are held fixed are
            not in it (`freeze` leaves them out).
        weights: λ ↦ (g1(λ), g2(λ)) with g(0) = (1, 0) and g(1) = (0, 1), differentiable.
        structure: what is known of E.
        axes: the axis along which each leaf's multinomials lie; one number for all leaves, or one
            per leaf in the order of `jax.tree.leaves`.
        scale: σ, positive, a pytree like c: the path is followed in the unknowns Θ̃/σ, by whose
            length steps, angles and residuals are measured. With σ² about as large as Θ̃ itself,
            a change of a small parameter counts by what it does to the likelihood (it is Fisher's
            metric there), and ∇E is nearly symmetric, which Krylov methods like. None for 1.
        linearise: takes Θ̃ and returns E(Θ̃) and the product with ∇E(Θ̃), both on pytrees. It is
            called outside of compiled programs, and so may use several cores; None for
            ``jax.linearize`` of `expect` in one compiled program. The product may have a method
            ``on_flat(σ)`` that returns the same product on flat vectors of Θ̃/σ, or None.

    Example:
        >>> import jax.numpy as jnp
        >>> def em_1(tilde):
        ...     share = tilde / tilde.sum()
        ...     return jnp.array([share[0] + 0.5, share[1]])
        >>> Problem(em_1, jnp.array([0.4, 0.6])).size
        2

    References:
        Haffari & Sarkar, Homotopy-based semi-supervised hidden Markov models for sequence
        labeling, COLING 2008: equations 5–7 and footnote 5.
    """

    expect: Callable[[Any], Any]
    constant: Any
    weights: Callable[[Any], tuple[Any, Any]] = eqx.field(static=True, default=linear_weights)
    structure: Structure = eqx.field(static=True, default=Structure.MULTINOMIALS)
    axes: int | tuple[int, ...] = eqx.field(static=True, default=-1)
    scale: Any = None
    linearise: Callable[[Any], tuple[Any, Callable[[Any], Any]]] | None = eqx.field(
        static=True, default=None
    )

    def __check_init__(self) -> None:
        leaves = jax.tree.leaves(self.constant)
        _check_constant(leaves, self.structure)
        for lam, want in ((0.0, (1.0, 0.0)), (1.0, (0.0, 1.0))):
            got = tuple(float(weight) for weight in self.weights(jnp.asarray(lam)))
            if not np.allclose(got, want, rtol=0, atol=1e-6):
                raise ValueError(f"weights: expected {want} at λ = {lam:g}, got {got}")
        if isinstance(self.axes, tuple) and len(self.axes) != len(leaves):
            raise ValueError(f"axes: expected one per leaf ({len(leaves)}), got {len(self.axes)}")
        if self.scale is not None:
            _check_scale(leaves, jax.tree.leaves(self.scale))
        # Shapes alone, without computing anything; E of another shape would fail far from here.
        got = eqx.filter_eval_shape(self.expect, self.constant)
        want = eqx.filter_eval_shape(lambda tree: tree, self.constant)
        if not eqx.tree_equal(got, want):
            raise ValueError(f"expect: expected it to give {want} for the constant, got {got}")

    @property
    def size(self) -> int:
        """The number of unknowns beside λ."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.constant))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the unknowns."""
        return jax.tree.leaves(self.constant)[0].dtype

    def leaf_axes(self) -> tuple[int, ...]:
        """The axis of the multinomials of each leaf."""
        if isinstance(self.axes, tuple):
            return self.axes
        return (self.axes,) * len(jax.tree.leaves(self.constant))


def _check_constant(leaves: list, structure: Structure) -> None:
    if not leaves or not sum(np.size(leaf) for leaf in leaves):
        raise ValueError("constant: expected at least one number, got none")
    dtypes = {np.asarray(leaf).dtype for leaf in leaves}
    if len(dtypes) != 1 or not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes):
        names = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise ValueError(f"constant: expected floating arrays of one dtype, got {names}")
    for number, leaf in enumerate(leaves):
        values = np.asarray(leaf)
        if not np.isfinite(values).all():
            raise ValueError(f"constant: expected finite numbers, got others in leaf {number}")
        if structure is Structure.MULTINOMIALS and (values < 0).any():
            least = values.min()
            raise ValueError(f"constant: expected no negative count, got {least} in leaf {number}")


def _check_scale(constant: list, scale: list) -> None:
    want, got = ([np.shape(leaf) for leaf in leaves] for leaves in (constant, scale))
    if want != got:
        raise ValueError(f"scale: expected the constant's shapes, {want}, got {got}")
    for number, leaf in enumerate(scale):
        if not ((np.asarray(leaf) > 0) & np.isfinite(leaf)).all():
            raise ValueError(f"scale: expected positive numbers, got others in leaf {number}")


def freeze(
    expect: Callable[[Any], Any], constant: Any, held: Any, is_free: Any
) -> tuple[Callable[[Any], Any], Any]:
    """E and c with some leaves held fixed, and so taken out of the unknowns.

    Args:
        expect: E of all leaves.
        constant: c of all leaves.
        held: a pytree like `constant`; its leaves that are not free are the fixed values.
        is_free: a pytree like `constant` (or a prefix of it) of booleans.

    Returns:
        `expect` and `constant` of the free leaves alone, for `Problem`; None stands for the rest.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> both = {"emission": jnp.array([0.2, 0.8]), "transition": jnp.array([0.5, 0.5])}
        >>> halves = lambda tree: jax.tree.map(lambda leaf: leaf / 2, tree)
        >>> expect, free = freeze(halves, both, both, {"emission": True, "transition": False})
        >>> expect(free)["emission"].tolist(), expect(free)["transition"]
        ([0.10000000149011612, 0.4000000059604645], None)
    """
    free, _ = eqx.partition(constant, is_free)
    _, fixed = eqx.partition(held, is_free)
    return _PartlyFrozen(expect, fixed, is_free), free


class _PartlyFrozen(eqx.Module):
    """E as a function of the free leaves."""

    expect: Callable
    fixed: Any
    is_free: Any = eqx.field(static=True)

    def __call__(self, free: Any) -> Any:
        return eqx.filter(self.expect(eqx.combine(free, self.fixed)), self.is_free)


def flat_scale(problem: Problem) -> Array | float:
    """σ as a vector, or 1."""
    return 1.0 if problem.scale is None else ravel_pytree(problem.scale)[0]


def unraveller(problem: Problem) -> Callable[[Any], Any]:
    """The function that makes a pytree Θ̃ of the flat unknowns Θ̃/σ."""
    _, unravel = ravel_pytree(problem.constant)
    scale = flat_scale(problem)
    return lambda theta: unravel(theta * scale)


def flat_map(problem: Problem) -> tuple[Array, Callable[[Array], Array]]:
    """The constant c and the map E, on vectors of the unknowns Θ̃/σ."""
    scale, make_tree = flat_scale(problem), unraveller(problem)
    constant = ravel_pytree(problem.constant)[0] / scale
    return constant, lambda theta: ravel_pytree(problem.expect(make_tree(theta)))[0] / scale


class Flat:
    """A problem's numbers as NumPy's flat vectors of its unknowns Θ̃/σ: σ, or 1, and c/σ."""

    def __init__(self, problem: Problem):
        leaves, self._tree = jax.tree.flatten(problem.constant)
        self._shapes = [leaf.shape for leaf in leaves]
        ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
        self._slices = [slice(start, end) for start, end in zip([0, *ends], ends)]
        self._weights, self._dtype = problem.weights, problem.dtype
        self._last: tuple[float, tuple[tuple[float, ...], tuple[float, ...]]] | None = None
        self.scale = np.asarray(flat_scale(problem))
        self.constant = self.as_vector(problem.constant) / self.scale

    def as_tree(self, vector: np.ndarray) -> Any:
        """Θ̃ of Θ̃/σ, as the pytree that c is."""
        flat = (vector * self.scale).astype(self._dtype, copy=False)
        parts = [flat[place].reshape(shape) for place, shape in zip(self._slices, self._shapes)]
        return self._tree.unflatten(parts)

    def as_vector(self, tree: Any) -> np.ndarray:
        """The leaves one after another, not scaled."""
        leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)]
        return leaves[0] if len(leaves) == 1 else np.concatenate(leaves)

    def weights(self, lam: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """g(λ) and g'(λ)."""
        if self._weights is linear_weights:
            return (1 - lam, lam), (-1.0, 1.0)
        # The last ones are remembered: a step asks for those of one λ several times.
        if self._last is None or self._last[0] != lam:
            at = jnp.asarray(lam, self._dtype)
            pairs = jax.jvp(self._weights, (at,), (jnp.ones_like(at),))
            values, slopes = (tuple(float(number) for number in pair) for pair in pairs)
            self._last = (lam, (values, slopes))
        return self._last[1]


_MADE: dict[int, Flat] = {}


def find_flat(problem: Problem) -> Flat:
    """The flat numbers of a problem, made once and kept as long as it is.

    A path asks for them at every step, and each operation of JAX outside of a compiled program
    costs as much as a product of such vectors.
    """
    number = id(problem)
    if number not in _MADE:
        _MADE[number] = Flat(problem)
        # By its number, as a problem has arrays and no hash; gone before another has that number.
        weakref.finalize(problem, _MADE.pop, number, None).atexit = False
    return _MADE[number]


def keep_positive(problem: Problem, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The point `after`, (Θ̃, λ), moved to where solutions can be.

    As E ≥ 0, every solution has ``Θ̃ ≥ g1(λ)·c``: projecting on that box brings an iterate nearer
    to each of them. In log Θ̃ all would be positive too, but the path would be infinitely long
    where a parameter vanishes towards λ = 1. Each parameter also keeps a share of what it was
    before, as 0 is a fixed point of its own from which EM never returns.
    """
    if problem.structure is not Structure.MULTINOMIALS:
        return after
    flat = find_flat(problem)
    first_weight = flat.weights(float(after[-1]))[0][0]
    bound = np.maximum(max(first_weight, 0.0) * flat.constant, LEAST_SHARE * before[:-1])
    return np.append(np.maximum(after[:-1], bound.astype(after.dtype)), after[-1:])


# --------------------------------------------------------------------------- how a path is followed


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
