"""Every number that a check compares, computed for a whole stack of cases by few programs.

Compiling is what a check spends its time on. All quantities of one setting therefore go into one
program, where XLA merges the forward–backward passes that they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxseq.verify import _differences as differences
from jaxseq.verify._cases import Case, flatten
from jaxseq.verify._oracle import Matrix
from jaxseq.verify._precision import wide
from jaxseq.verify._quantities import Library, Quantity

Function = Callable[[Case], Any]


class Derivatives(NamedTuple):
    """Derivatives of a function with k values in all d scores, by three kinds of autodiff.

    grad: reverse mode, ``[k, d]``.
    jacfwd: forward mode, ``[k, d]``; None when only reverse mode was asked for.
    jvp: along r given directions, ``[k, r]``; None likewise.
    """

    grad: Float[Array, "*b k d"]
    jacfwd: Float[Array, "*b k d"] | None
    jvp: Float[Array, "*b k r"] | None


def stacked(functions: Sequence[Function], case: Case):
    """The functions' values, each flattened to a vector, as a function of the scores."""
    return lambda theta: tuple(flatten(function(case.at(theta))) for function in functions)


def differentiate(
    functions: Sequence[Function], case: Case, directions: Float[Array, "r d"], forward: bool
) -> tuple[Derivatives, ...]:
    """Derivatives of every function at the case's scores."""
    if not functions:
        return ()
    values, theta = stacked(functions, case), case.theta
    reverse = jax.jacrev(values)(theta)
    if not forward:
        return tuple(Derivatives(grad, None, None) for grad in reverse)
    # jax.jacfwd is jax.jvp mapped over the unit vectors; one map serves both columns.
    tangents = jnp.concatenate([jnp.eye(theta.size, dtype=theta.dtype), directions])
    push = lambda tangent: jax.jvp(values, (theta,), (tangent,))[1]  # noqa: E731
    pushed = jax.vmap(push, out_axes=1)(tangents)
    return tuple(
        Derivatives(grad, along[:, : theta.size], along[:, theta.size :])
        for grad, along in zip(reverse, pushed)
    )


def matrix_of(result: Any, quantity: Quantity, size: int) -> Array:
    """A library result as a vector (values) or as a matrix with `size` columns (derivatives)."""
    flat = flatten(result)
    return flat if quantity.value is None else flat.reshape(-1, size)


QUICK_COMPILING = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""The programs run once, on tiny arrays: optimising them would be the greater part of a check."""


def run_stack(function: Callable[..., Any], *args: Any) -> Any:
    """`function` mapped over the leading axis of its arguments, as NumPy arrays."""
    lowered = jax.jit(jax.vmap(function)).lower(*args)
    try:
        compiled = lowered.compile(QUICK_COMPILING)
    except jax.errors.JaxRuntimeError:  # another backend, or an XLA without these options
        compiled = lowered.compile()
    return jax.tree.map(np.asarray, compiled(*args))


def run_reference(
    quantities: Sequence[Quantity], cases: Case, directions: Matrix, forward: bool
) -> dict[str, Any]:
    """By quantity: its plain value, or the derivatives of the plain function. In float64."""
    plain = [quantity.reference for quantity in quantities if quantity.value is None]
    unique = _unique(quantity.reference for quantity in quantities if quantity.value is not None)

    def program(case: Case, directions: Array):
        return stacked(plain, case)(case.theta), differentiate(unique, case, directions, forward)

    with wide(True):
        values, derived = run_stack(program, cases.cast("float64"), jnp.asarray(directions))
    as_value, as_derivative = dict(zip(plain, values)), dict(zip(unique, derived))
    return {
        quantity.name: (as_value if quantity.value is None else as_derivative)[quantity.reference]
        for quantity in quantities
    }


class LibraryResults(NamedTuple):
    """By quantity: what the library computes, and its derivatives of the quantity's `value`."""

    hand: dict[str, Matrix]
    derived: dict[str, Derivatives]


def run_library(
    quantities: Sequence[Quantity],
    library: Library,
    cases: Case,
    directions: Matrix,
    dtype: str,
    method: str,
    forward: bool,
) -> LibraryResults:
    """The quantities by the library, in the dtype and by the method given."""
    closed = [quantity for quantity in quantities if quantity.hand is not None]
    functions = _value_functions(quantities, library, method)
    unique = _unique(functions.values())

    def program(case: Case, directions: Array):
        size = case.theta.size
        hand = tuple(
            matrix_of(quantity.hand(library, case, method), quantity, size)
            for quantity in closed
            if quantity.hand is not None
        )
        return hand, differentiate(unique, case, directions, forward)

    with wide(dtype == "float64"):
        hand, derived = run_stack(program, cases.cast(dtype), jnp.asarray(directions, dtype))
    by_function = dict(zip(unique, derived))
    by_name = {name: by_function[function] for name, function in functions.items()}
    by_hand = {quantity.name: result for quantity, result in zip(closed, hand)}
    implied = {name: by_name[name].grad for name in by_name if name not in by_hand}
    return LibraryResults(by_hand | implied, by_name)


def run_differences(
    quantities: Sequence[Quantity], library: Library, cases: Case, method: str
) -> dict[str, Matrix]:
    """By derivative: central differences ``[b, k, d]`` of its `value`, taken in float64."""
    functions = _value_functions(quantities, library, method)
    unique = _unique(functions.values())
    if not unique:
        return {}
    theta = thetas(cases)
    batch, size = theta.shape
    step = differences.steps(theta)  # [levels, b, d]
    shift = np.einsum("lbd,de->blde", step, np.eye(size))
    points = [theta[:, None, None] + sign * shift for sign in (1, -1)]
    points = np.stack(points, 1).reshape(batch, -1, size, size)

    def program(case: Case, points: Array):
        # One step size after the other, all coordinates at once: long chains fit into memory.
        return lax.map(jax.vmap(stacked(unique, case)), points)

    with wide(True):
        values = run_stack(program, cases.cast("float64"), jnp.asarray(points))
    step = np.moveaxis(step, 1, 0)[..., None]  # [b, levels, d, 1]
    results = []
    for value in values:
        above, below = np.moveaxis(value.reshape(batch, 2, *step.shape[1:3], -1), 1, 0)
        slopes = [differences.extrapolate(*one) for one in zip(above, below, step)]  # each [d, k]
        results.append(np.stack(slopes).swapaxes(1, 2))
    by_function = dict(zip(unique, results))
    return {name: by_function[function] for name, function in functions.items()}


def thetas(cases: Case) -> Matrix:
    """The scores of a stack of cases, one vector each: ``[b, d]``."""
    batch = cases.nodes.shape[0]
    parts = [np.asarray(part).reshape(batch, -1) for part in (cases.nodes, cases.edges)]
    return np.concatenate(parts, axis=1)


def _value_functions(
    quantities: Sequence[Quantity], library: Library, method: str
) -> dict[str, Function]:
    """By derivative: its `value`, bound to library and method; equal ones are one object."""
    bound: dict[Any, Function] = {}
    for quantity in quantities:
        if quantity.value is not None and quantity.value not in bound:
            bound[quantity.value] = _bind(quantity.value, library, method)
    return {q.name: bound[q.value] for q in quantities if q.value is not None}


def _bind(function: Any, library: Library, method: str) -> Function:
    # What batch functions are derivatives of is a function of one chain.
    engine = "scaled" if method == "native" else method
    return lambda case: function(library, case, engine)


def _unique(functions) -> list[Function]:
    return list(dict.fromkeys(functions))
