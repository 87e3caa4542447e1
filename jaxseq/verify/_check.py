"""The library against autodiff, differences and enumeration: `jaxseq.verify.check`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import jaxseq
from jaxseq.native import why_not
from jaxseq.verify._cases import EDGE_KINDS, EdgeKind
from jaxseq.verify._precision import DTYPES, check_dtypes
from jaxseq.verify._programs import run_library
from jaxseq.verify._quantities import QUANTITIES, Library, Quantity
from jaxseq.verify._report import Report, Row
from jaxseq.verify._truth import Truth, reference_columns

METHODS = ("scaled", "log", "native")
MOST_SCORES = 1000
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
    order = {quantity.name: position for position, quantity in enumerate(chosen)}
    rows.sort(key=lambda row: order[row.quantity])
    return Report(tuple(rows), time.perf_counter() - started)


def _rows(truth: Truth, library: Library, dtype: str, method: str) -> list[Row]:
    chosen = [q for q in truth.quantities.values() if method in q.methods]
    forward = dtype == "float64"
    results = run_library(chosen, library, truth.cases, truth.directions, dtype, method, forward)
    rows = []
    for quantity in chosen:
        columns = truth.columns(quantity, library, method)
        if quantity.value is not None:
            own = reference_columns(results.derived[quantity.name], "library")
            # Without a closed form, reverse mode is what is being checked.
            columns += own if quantity.hand is not None else own[1:]
        hand = results.hand[quantity.name]
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


def _check_options(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    for each in given:
        if each not in known:
            raise ValueError(f"{name}: expected some of {', '.join(known)}, got {each!r}")
