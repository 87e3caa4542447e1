"""A user's own gradient against autodiff and differences: `jaxseq.verify.gradient`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxseq.verify._cases import DTYPES, wide
from jaxseq.verify._oracle import Matrix
from jaxseq.verify._report import (
    Error,
    Report,
    Row,
    entry_name,
    entry_names,
    extrapolate,
    leaf_names,
    steps,
    worst_error,
)

TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
# Looser in float32 than those of `check`: the user's function itself runs in float32.
DIFFERENCE_TOLERANCES = {"float32": 1e-3, "float64": 1e-7}


def gradient(
    fn: Callable[..., Any],
    hand_gradient: Callable[..., Any],
    args: Any,
    *,
    seed: int = 0,
    directions: int = 3,
    most_coordinates: int = 256,
    step: float | None = None,
    tolerance: float | None = None,
    difference_tolerance: float | None = None,
) -> Report:
    """Check a hand-derived gradient of a scalar function.

    `hand_gradient(*args)` is compared with ``jax.grad``, with ``jax.jacfwd``, with ``jax.jvp``
    along random directions, and with central differences, extrapolated (Ridders' method).

    Arguments that are −inf are legal (a forbidden score): differences leave those entries out,
    and directions are 0 there. Arguments of float64 are checked in float64, whatever the process
    has set.

    Args:
        fn: ``fn(*args)`` is a float scalar; traceable by JAX.
        hand_gradient: ``hand_gradient(*args)`` is shaped like `args`, one entry per argument. For
            a single argument the gradient may stand alone, without the tuple around it.
        args: a tuple of pytrees of float32 or float64 arrays.
        seed: of the directions, and of the choice of coordinates.
        directions: how many for ``jax.jvp``.
        most_coordinates: forward mode and differences go through the entries one by one; where
            there are more than this, through as many drawn at random.
        step: largest step of the differences; by default a tenth of max(1, |entry|).
        tolerance: absolute, or relative to the largest entry; 1e-9 in float64, 1e-4 in float32.
        difference_tolerance: the same against differences, where it is multiplied by
            max(1, |fn(*args)|), as their rounding error is; 1e-7 in float64, 1e-3 in float32.

    Returns:
        a `Report` with one row per check: worst errors, and the coordinate where they are.

    Raises:
        ValueError: when `args` hold NaN, +inf or integers, when `fn` is not scalar, or when the
            gradient is not shaped like `args`.

    Example:
        >>> import jax.numpy as jnp, jaxseq.verify
        >>> x = jnp.array([1.0, 2.0])
        >>> cube = lambda x: (x**3).sum()
        >>> jaxseq.verify.gradient(cube, lambda x: (3 * x**2,), (x,)).passed
        True
        >>> jaxseq.verify.gradient(cube, lambda x: (2 * x**2,), (x,)).worst.coordinate
        'args[0][1]'
    """
    started = time.perf_counter()
    dtypes = _check_args(args)
    dtype = min(dtypes)  # the narrowest decides on the tolerances
    with wide("float64" in dtypes):
        args = jax.tree.map(jnp.asarray, args)
        _check_scalar(fn, args)
        problem = _Problem(fn, args, seed, most_coordinates)
        hand = _flatten_hand(hand_gradient(*args), args)
        exact = TOLERANCES[dtype] if tolerance is None else tolerance
        loose = difference_tolerance
        loose = DIFFERENCE_TOLERANCES[dtype] if loose is None else loose
        loose *= problem.size_of_value  # the rounding error of a difference is that of the values
        rows = tuple(
            Row("gradient", check, {"dtype": dtype}, error, coordinate, allowed)
            for check, (error, coordinate), allowed in (
                ("jax.grad", problem.reverse(hand), exact),
                ("jax.jacfwd", problem.forward(hand), exact),
                ("jax.jvp", problem.along(hand, directions), exact),
                ("central differences", problem.differences(hand, step), loose),
            )
        )
    return Report(rows, time.perf_counter() - started)


class _Problem:
    """`fn` as a function of one vector, and the errors of a gradient of it."""

    def __init__(self, fn: Callable[..., Any], args: Any, seed: int, most_coordinates: int):
        leaves, treedef = jax.tree.flatten(args)
        sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]
        self.names = entry_names(args, "args")
        self.point = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves])
        self.finite = np.isfinite(self.point)
        self.rng = np.random.default_rng(seed)
        usable = np.flatnonzero(self.finite)  # a difference of a −inf would be ∞ − ∞
        if len(usable) > most_coordinates:
            usable = np.sort(self.rng.choice(usable, most_coordinates, replace=False))
        self.chosen = usable

        def on_vector(vector: Float[Array, " d"]):
            # One vector of the widest dtype holds all leaves; each gets its own dtype back.
            parts = [
                part.reshape(leaf.shape).astype(leaf.dtype)
                for part, leaf in zip(jnp.split(vector, sizes), leaves)
            ]
            return fn(*jax.tree.unflatten(treedef, parts))

        widest = jnp.result_type(*leaves)
        self.vector = jnp.asarray(self.point, widest)
        self.value = on_vector
        size = abs(float(jax.jit(on_vector)(self.vector)))
        self.size_of_value = max(1.0, size) if np.isfinite(size) else 1.0

    def reverse(self, hand: Matrix) -> tuple[Error, str]:
        return self._compare(hand, np.asarray(jax.jit(jax.grad(self.value))(self.vector)))

    def forward(self, hand: Matrix) -> tuple[Error, str]:
        chosen = jnp.asarray(self.chosen)
        along = lambda entries: self.value(self.vector.at[chosen].set(entries))  # noqa: E731
        slopes = jax.jit(jax.jacfwd(along))(self.vector[chosen])
        return self._compare_chosen(hand, np.asarray(slopes))

    def along(self, hand: Matrix, count: int) -> tuple[Error, str]:
        tangents = np.where(self.finite, self.rng.normal(size=(count, self.point.size)), 0)
        push = lambda tangent: jax.jvp(self.value, (self.vector,), (tangent,))[1]  # noqa: E731
        pushed = jax.jit(jax.vmap(push))(jnp.asarray(tangents, self.vector.dtype))
        # 0 · ∞ must not come up: directions are 0 where scores are −inf.
        error = worst_error(tangents @ np.where(self.finite, hand, 0), np.asarray(pushed))
        return error, "no direction" if error.index is None else f"direction {error.index[0]}"

    def differences(self, hand: Matrix, step: float | None) -> tuple[Error, str]:
        value = jax.jit(self.value)
        sizes = steps(self.point[self.chosen], step)  # [levels, c]
        values = np.zeros((2, *sizes.shape))
        for level, column in np.ndindex(*sizes.shape):
            for side, sign in enumerate((1, -1)):
                moved = np.asarray(self.vector).copy()
                moved[self.chosen[column]] += sign * sizes[level, column]
                values[side, level, column] = float(value(moved))
        return self._compare_chosen(hand, extrapolate(values[0], values[1], sizes))

    def _compare(self, hand: Matrix, expected: Matrix) -> tuple[Error, str]:
        error = worst_error(hand, expected)
        return error, "no entry" if error.index is None else self.names[error.index[0]]

    def _compare_chosen(self, hand: Matrix, expected: Matrix) -> tuple[Error, str]:
        error = worst_error(hand[self.chosen], expected)
        if error.index is None:
            return error, "no entry"
        return error, self.names[self.chosen[error.index[0]]]


def _check_args(args: Any) -> set[str]:
    """The dtypes among the leaves, all of which must be floats without NaN or +inf."""
    if not isinstance(args, tuple) or not jax.tree.leaves(args):
        raise ValueError(
            f"args: expected a tuple of arguments, at least one array in it, got {type(args)}"
        )
    dtypes = set()
    for name, leaf in zip(leaf_names(args, "args"), jax.tree.leaves(args)):
        array = np.asarray(jnp.asarray(leaf) if isinstance(leaf, float) else leaf)
        if array.dtype.name not in DTYPES:
            raise ValueError(f"{name}: expected {' or '.join(DTYPES)}, got {array.dtype.name}")
        bad = np.argwhere(np.isnan(array) | np.isposinf(array))
        if len(bad):
            index = tuple(int(i) for i in bad[0])
            raise ValueError(
                f"{entry_name(name, index)}: expected a finite number or −inf, got {array[index]}"
            )
        dtypes.add(array.dtype.name)
    return dtypes


def _check_scalar(fn: Callable[..., Any], args: Any) -> None:
    result = jax.eval_shape(fn, *args)
    scalar = isinstance(result, jax.ShapeDtypeStruct) and result.shape == ()
    if not scalar or not jnp.issubdtype(result.dtype, jnp.floating):
        raise ValueError(f"fn: expected one float, shape [], got {result}")


def _flatten_hand(hand: Any, args: Any) -> Matrix:
    """The hand gradient as one vector, checked to be shaped like `args`."""
    expected, actual = jax.tree.structure(args), jax.tree.structure(hand)
    if len(args) == 1 and actual == jax.tree.structure(args[0]) and actual != expected:
        return _flatten_hand((hand,), args)
    # The gradient of a Chain may come as a ChainVector: what must agree is the arrays.
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (args, hand)]
    if actual != expected and shapes[0] != shapes[1]:
        raise ValueError(f"hand_gradient: expected the structure of args, {expected}, got {actual}")
    names = leaf_names(hand, "hand_gradient")
    for name, leaf, like in zip(names, jax.tree.leaves(hand), jax.tree.leaves(args)):
        if np.shape(leaf) != like.shape:
            raise ValueError(
                f"{name}: expected shape {list(like.shape)}, got {list(np.shape(leaf))}"
            )
    leaves = [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(hand)]
    return np.concatenate(leaves)
