"""The library against autodiff, differences and enumeration: `jaxseq.verify.check`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

import jaxseq
from jaxseq.native import why_not
from jaxseq.verify._cases import (
    DTYPES,
    EDGE_KINDS,
    Case,
    EdgeKind,
    check_dtypes,
    draw_cases,
    flatten,
    wide,
)
from jaxseq.verify._oracle import Matrix
from jaxseq.verify._plain import MOST_PATHS
from jaxseq.verify._quantities import QUANTITIES, Enumerated, Library, Quantity, Scores
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

# Every number that a check compares, computed for a whole stack of cases by few programs.
#
# Compiling is what a check spends its time on. All quantities of one setting therefore go into one
# program, where XLA merges the forward–backward passes that they have in common.


Function = Callable[[Case], Any]


class Derivatives(NamedTuple):
    """Derivatives of a function with k values in all d scores, by three kinds of autodiff."""

    grad: Float[Array, "*b k d"]  # reverse mode
    jacfwd: Float[Array, "*b k d"] | None  # forward mode; None when it was not asked for
    jvp: Float[Array, "*b k r"] | None  # along r given directions; None likewise


def stacked(functions: Sequence[Function], case: Case):
    """The functions' values, each flattened to a vector, as a function of the scores."""
    return lambda theta: tuple(flatten(function(case.at(theta))) for function in functions)


def differentiate(
    functions: Sequence[Function], case: Case, directions: Float[Array, "r d"], forward: bool
) -> tuple[Derivatives, ...]:
    """Derivatives of every function at the case's scores."""
    if not functions:
        return ()
    # All functions at once: what they have in common is computed once.
    values, theta = stacked(functions, case), case.theta
    reverse = jax.jacrev(values)(theta)
    if not forward:
        return tuple(Derivatives(grad, None, None) for grad in reverse)  # half the compiling
    # jax.jacfwd is jax.jvp mapped over the unit vectors; one map serves both columns.
    tangents = jnp.concatenate([jnp.eye(theta.size, dtype=theta.dtype), directions])
    push = lambda tangent: jax.jvp(values, (theta,), (tangent,))[1]  # noqa: E731
    pushed = jax.vmap(push, out_axes=1)(tangents)
    return tuple(
        Derivatives(grad, along[:, : theta.size], along[:, theta.size :])
        for grad, along in zip(reverse, pushed)
    )


def result_matrix(result: Any, quantity: Quantity, size: int) -> Array:
    """A library result as a vector (values) or as a matrix with `size` columns (derivatives)."""
    flat = flatten(result)
    return flat if quantity.value is None else flat.reshape(-1, size)


# The programs run once, on tiny arrays: optimising them would be the greater part of a check.
QUICK_COMPILING = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


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

    with wide(True):  # references are the truth, also for what the library does in float32
        values, derived = run_stack(program, cases.cast("float64"), jnp.asarray(directions))
    as_value, as_derivative = dict(zip(plain, values)), dict(zip(unique, derived))
    return {
        quantity.name: (as_value if quantity.value is None else as_derivative)[quantity.reference]
        for quantity in quantities
    }


def run_library(
    quantities: Sequence[Quantity], library: Library, cases: Case, directions: Matrix,
    dtype: str, method: str, forward: bool,
) -> tuple[dict[str, Matrix], dict[str, Derivatives]]:  # fmt: skip
    """By quantity: what the library computes, and its derivatives of the quantity's `value`."""
    closed = {quantity: quantity.hand for quantity in quantities if quantity.hand is not None}
    functions = _value_functions(quantities, library, method)
    unique = _unique(functions.values())

    def program(case: Case, directions: Array):
        size = case.theta.size
        hand = tuple(
            result_matrix(function(library, case, method), quantity, size)
            for quantity, function in closed.items()
        )
        return hand, differentiate(unique, case, directions, forward)

    with wide(dtype == "float64"):
        hand, derived = run_stack(program, cases.cast(dtype), jnp.asarray(directions, dtype))
    # Several quantities may be derivatives of one function, which was differentiated once.
    by_function = dict(zip(unique, derived))
    by_name = {name: by_function[function] for name, function in functions.items()}
    by_hand = {quantity.name: result for quantity, result in zip(closed, hand)}
    # Where there is no closed form the library's own `jax.grad` is what is checked.
    implied = {name: by_name[name].grad for name in by_name if name not in by_hand}
    return by_hand | implied, by_name


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
    step = steps(theta)  # [levels, b, d]
    # One score is moved at a time: row d of the last two axes moves score d alone.
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
        slopes = [extrapolate(*one) for one in zip(above, below, step)]  # each [d, k]
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
    # What batch functions are derivatives of is a function of one chain.
    engine = "scaled" if method == "native" else method
    values = {q.name: q.value for q in quantities if q.value is not None}
    bound = {
        function: lambda case, function=function: function(library, case, engine)
        for function in values.values()
    }
    return {name: bound[function] for name, function in values.items()}


def _unique(functions) -> list[Function]:
    return list(dict.fromkeys(functions))


# What a quantity ought to be, in several independent ways, and the verdict on what it is.

DIRECTIONS = 2  # random ones for `jax.jvp`, which sees every score along each
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
DIFFERENCE_TOLERANCES = {"float32": 1e-4, "float64": 1e-7}  # as they lose digits themselves


class Column(NamedTuple):
    """One independent computation of a quantity."""

    check: str  # its name in the table
    expected: Matrix  # [b, k] for a value, [b, k, d] for a derivative, [b, k, r] along directions
    along: bool = False  # whether a derivative is multiplied by the directions before comparing
    compare: Matrix | None = None  # [b, d], which scores count; None for all


class Truth:
    """Reference, enumeration and differences for a stack of cases of one shape.

    `forward`: whether forward-mode derivatives are computed as well as reverse-mode ones.
    """

    def __init__(
        self, quantities: Sequence[Quantity], n: int, s: int, edges: EdgeKind, seed: int,
        forward: bool = True,
    ):  # fmt: skip
        self.shape, self.edges, self.forward = (n, s), edges, forward
        self.quantities = {quantity.name: quantity for quantity in quantities}
        self.cases, self.kinds = draw_cases(n, s, edges, seed)
        self.theta = thetas(self.cases)
        batch, size = self.theta.shape
        self.directions = np.random.default_rng(seed).normal(size=(batch, DIRECTIONS, size))
        # Kept by method, and names by quantity: each of them takes a program of its own.
        self._differences: dict[str, dict[str, Matrix]] = {}
        self._output_names: dict[str, list[str]] = {}

    @property
    def small(self) -> bool:
        """Whether all labellings can be listed."""
        n, s = self.shape
        return s**n <= MOST_PATHS

    @cached_property
    def reference(self) -> dict[str, Any]:
        chosen = [q for q in self.quantities.values() if self.small or not q.tabular]
        return run_reference(chosen, self.cases, self.directions, self.forward)

    @cached_property
    def tables(self) -> list[Enumerated]:
        return [Enumerated(self.cases.pick(b)) for b in range(len(self.kinds))]

    def differences(self, library: Library, method: str) -> dict[str, Matrix]:
        """Central differences of the library's values, by derivative."""
        if method not in self._differences:
            chosen = [q for q in self.quantities.values() if method in q.methods]
            self._differences[method] = run_differences(chosen, library, self.cases, method)
        return self._differences[method]

    def enumerated(self, quantity: Quantity) -> Matrix:
        """The quantity by enumeration, stacked over the cases."""
        rows = []
        for table in self.tables:
            leaves = jax.tree.leaves(quantity.enumerated(table))
            flat = np.concatenate([np.ravel(leaf) for leaf in leaves])
            rows.append(flat if quantity.value is None else flat.reshape(-1, self.theta.shape[1]))
        return np.stack(rows)

    def columns(self, quantity: Quantity, library: Library, method: str) -> list[Column]:
        """Every independent computation that applies, the library's own autodiff excepted."""
        columns = []
        if self.small or not quantity.tabular:
            columns += reference_columns(self.reference[quantity.name], "reference")
        if quantity.value is not None:
            slopes = self.differences(library, method)[quantity.name]
            # A score of −inf stays −inf however much is added: no difference sees it.
            columns.append(Column("central differences", slopes, compare=np.isfinite(self.theta)))
        if self.small:
            columns.append(Column("enumeration", self.enumerated(quantity)))
        return columns

    def judge(
        self, quantity: Quantity,
        hand: Matrix, column: Column, dtype: str, method: str,
        only: Sequence[int] | None = None,
    ) -> Row:  # fmt: skip
        """Hold what the library computed, ``[b, k]`` or ``[b, k, d]``, against one column.

        `only` says which cases of the stack were computed, when not all.
        """
        errors: dict[int, Error] = {}
        for case, result in zip(range(len(self.kinds)) if only is None else only, hand):
            if column.along:
                result = np.asarray(result, np.float64) @ self.directions[case].T
            mask = None if column.compare is None else column.compare[case]
            errors[case] = worst_error(result, column.expected[case], mask)
        # One row says the worst of all kinds of chains, and names the kind.
        worst = max(errors, key=lambda case: errors[case].severity)
        by_differences = column.check == "central differences"
        tolerance = (DIFFERENCE_TOLERANCES if by_differences else TOLERANCES)[dtype]
        n, s = self.shape
        setting = {"dtype": dtype, "method": method, "shape": f"{n}x{s}", "edges": self.edges}
        place = f"{self.kinds[worst]}: {self._name(quantity, column, errors[worst])}"
        return Row(quantity.name, column.check, setting, errors[worst], place, tolerance)

    def _name(self, quantity: Quantity, column: Column, error: Error) -> str:
        if error.index is None:
            return "nothing to compare"
        output = self._output_name(quantity, error.index[0])
        if quantity.value is None:
            return output or "value"
        where = error.index[1]
        score = f"direction {where}" if column.along else self._score_names[where]
        return f"{output} × {score}" if output else score

    @cached_property
    def _score_names(self) -> list[str]:
        case = self.cases.pick(0)
        return entry_names(Scores(case.nodes, case.edges))

    def _output_name(self, quantity: Quantity, index: int) -> str:
        """The name of one of the numbers that a quantity (or what it is derived from) returns."""
        if quantity.tabular and not self.small:
            return f"entry {index}"
        if quantity.name not in self._output_names:
            case = self.cases.pick(0).cast("float32")
            self._output_names[quantity.name] = entry_names(
                jax.eval_shape(quantity.reference, case)
            )
        return self._output_names[quantity.name][index]


def reference_columns(result: Any, source: str) -> list[Column]:
    """Columns of a value, or of the derivatives that autodiff made of it."""
    if not isinstance(result, Derivatives):
        return [Column(f"plain value ({source})", result)]
    columns = [Column(f"jax.grad ({source})", np.asarray(result.grad))]
    if result.jacfwd is not None:
        columns.append(Column(f"jax.jacfwd ({source})", np.asarray(result.jacfwd)))
    if result.jvp is not None:
        columns.append(Column(f"jax.jvp ({source})", np.asarray(result.jvp), along=True))
    return columns


METHODS = ("scaled", "log", "native")
MOST_SCORES = 1000  # of a chain: its full covariance has the square of that
SHAPES = ((5, 3),)
QUICK_QUANTITIES = (
    "log_partition", "marginals", "covariance_product", "feature_covariance", "entropy",
    "entropy_lattices", "mann_entropy_gradient", "jiao_entropy_gradient",
)  # fmt: skip


def quick_options() -> dict[str, Any]:
    """Arguments of `check` for a smoke run: one small shape, the central quantities."""
    return {"shapes": ((4, 3),), "edges": ("per position",), "quantities": QUICK_QUANTITIES}


def check(
    shapes: Iterable[tuple[int, int]] = SHAPES,
    dtypes: Sequence[str] = DTYPES,
    *,
    seed: int = 0,
    quantities: Iterable[str | Quantity] | None = None,
    methods: Sequence[str] | None = None,
    edges: Sequence[EdgeKind] = EDGE_KINDS,
    library: Library = jaxseq,
) -> Report:
    """Check every hand-derived quantity of the library in every independent way that applies.

    For each shape, dtype, method and kind of edges, on random chains (dense, padded, with −inf
    scores, with a wide range of scores, with no legal path), each quantity is compared with

    - ``jax.grad``, ``jax.jacfwd`` and ``jax.jvp`` of a *reference*: plain log-space code that
      shares nothing with the library (for quantities that are values: its value);
    - the same three of the *library*, whose derivative rules are hand-derived too;
    - central differences of the library's values, extrapolated;
    - enumeration of all labellings, in NumPy.

    References and differences are computed in float64, also to judge float32, which is given the
    very same scores. Chains of more than 1024 labellings are checked without enumeration, and
    entropies of parts and divergences of such chains without a reference. Forward mode of the
    library's rules, which do not depend on the dtype, is run in float64.

    Args:
        shapes: pairs (n, s).
        dtypes: of "float32" and "float64". The process's own setting is left as it is.
        seed: of the random chains.
        quantities: names, or `Quantity` objects of your own; all of `QUANTITIES` by default.
        methods: of "scaled", "log" and "native", which batch functions alone have; by default all
            that can be had here.
        edges: of "shared" and "per position".
        library: what is checked, anything with jaxseq's public names.

    Returns:
        a `Report`: ``report.passed``, ``report.rows``, ``str(report)``.

    Raises:
        ValueError: for a shape, dtype, method or quantity that does not exist.

    Tolerances: 1e-9 in float64 (1e-7 against differences), 1e-4 in float32, absolute or relative to
    the largest entry.

    Example:
        >>> import jaxseq.verify
        >>> report = jaxseq.verify.check([(2, 2)], ["float64"], quantities=["log_partition"])
        >>> report.passed
        True
    """
    started = time.perf_counter()
    pairs = _checked_shapes(shapes)
    check_dtypes(tuple(dtypes))
    if methods is None:
        methods = METHODS if why_not() is None else METHODS[:-1]
    _check_options("methods", methods, METHODS)
    _check_options("edges", edges, EDGE_KINDS)
    chosen = choose_quantities(quantities)
    rows: list[Row] = []
    for n, s in pairs:
        for kind in edges:
            applicable = [quantity for quantity in chosen if kind in quantity.edges]
            truth = Truth(applicable, n, s, kind, seed)
            for dtype in dtypes:
                for method in methods:
                    rows += _rows(truth, library, dtype, method)
    # Rows came by shape and dtype; the table has them by quantity.
    order = {quantity.name: position for position, quantity in enumerate(chosen)}
    rows.sort(key=lambda row: order[row.quantity])
    return Report(tuple(rows), time.perf_counter() - started)


def _rows(truth: Truth, library: Library, dtype: str, method: str) -> list[Row]:
    chosen = [q for q in truth.quantities.values() if method in q.methods]
    forward = dtype == "float64"  # rules do not depend on the dtype, and compiling takes long
    cases, directions = truth.cases, truth.directions
    results = run_library(chosen, library, cases, directions, dtype, method, forward)
    by_hand, derived = results
    rows = []
    for quantity in chosen:
        columns = truth.columns(quantity, library, method)
        if quantity.value is not None:
            own = reference_columns(derived[quantity.name], "library")
            # Without a closed form, reverse mode is what is being checked.
            columns += own if quantity.hand is not None else own[1:]
        hand = by_hand[quantity.name]
        rows += [truth.judge(quantity, hand, column, dtype, method) for column in columns]
    return rows


def choose_quantities(wanted: Iterable[str | Quantity] | None) -> tuple[Quantity, ...]:
    """The quantities of these names (all for None), and any given as objects."""
    if wanted is None:
        return QUANTITIES
    known = {quantity.name: quantity for quantity in QUANTITIES}
    chosen = []
    for each in wanted:
        if isinstance(each, str) and each not in known:
            raise ValueError(f"quantities: expected some of {', '.join(known)}, got {each!r}")
        chosen.append(known[each] if isinstance(each, str) else each)
    names = [quantity.name for quantity in chosen]
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"quantities: expected different names, at least one, got {names}")
    return tuple(chosen)


def _checked_shapes(shapes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    checked = list(shapes)
    for shape in checked:
        if len(shape) != 2 or not all(isinstance(x, int) and x >= 1 for x in shape):
            raise ValueError(f"shapes: expected pairs (n ≥ 1, s ≥ 1) of integers, got {shape}")
        n, s = shape
        if (scores := n * s + (n - 1) * s * s) > MOST_SCORES:
            raise ValueError(
                f"shapes: expected chains of at most {MOST_SCORES} scores, whose full covariance "
                f"fits into memory, got {n}x{s} with {scores}"
            )
    if not checked:
        raise ValueError("shapes: expected at least one, got none")
    return checked


def _check_options(name: str, chosen: Sequence[str], known: Sequence[str]) -> None:
    for each in chosen:
        if each not in known:
            raise ValueError(f"{name}: expected some of {', '.join(known)}, got {each!r}")


# --------------------------------------------------------------------- a gradient of the user's own

# Looser in float32 than `DIFFERENCE_TOLERANCES`: the user's function itself runs in float32.
OWN_DIFFERENCE_TOLERANCES = DIFFERENCE_TOLERANCES | {"float32": 1e-3}


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
        loose = OWN_DIFFERENCE_TOLERANCES[dtype] if loose is None else loose
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
