"""The table of mutants: one wrong sign, term, position or axis in each hand-derived formula.

A check that would not notice these would prove nothing. Constants that cancel by design (the
centring of the lattices) are not mutated: changing them is no mistake.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import jax
import numpy as np

import jaxseq
from jaxseq.native import why_not
from jaxseq.verify._cases import EDGE_KINDS, wide
from jaxseq.verify._check import (
    Column,
    Row,
    Truth,
    choose_quantities,
    format_table,
    matrix_of,
    stacked,
)
from jaxseq.verify._oracle import Matrix
from jaxseq.verify._quantities import Library, Quantity

Kind = Literal["sign", "dropped term", "off-by-one position", "swapped axes"]


@dataclass(frozen=True)
class Mutant:
    """One wrong library.

    Attributes:
        module: below ``jaxseq``, such as ``lattice._entropy``, or a C++ file, ``native/entropy.h``.
        function: see `jaxseq.verify._mutants.replace_in_function`.
        before, after: the snippet and what replaces it.
        kind: of mistake.
        quantity: the name of the quantity that must notice.
        by: whether through its closed form, or through `jax.grad` of what it is derived from.
        method: the engine to run.
    """

    module: str
    function: str
    before: str
    after: str
    kind: Kind
    quantity: str
    by: Literal["hand", "grad"] = "hand"
    method: str = "log"

    @property
    def is_in_cpp(self) -> bool:
        """Whether a C++ source is changed."""
        return "/" in self.module

    def __str__(self) -> str:
        before, after = _around_change(self.before, self.after)
        return f"{self.module}.{self.function}: {before or 'nothing'} → {after or 'nothing'}"


def _around_change(before: str, after: str, context: int = 10) -> tuple[str, str]:
    """Both snippets without what they have in common, but for some characters on either side."""
    start = _common(before, after)
    tail = min(_common(before[::-1], after[::-1]), min(len(before), len(after)) - start)
    first, last = max(start - context, 0), max(tail - context, 0)
    cut = lambda text: ("…" if first else "") + text[first : len(text) - last]  # noqa: E731
    return cut(before) + ("…" if last else ""), cut(after) + ("…" if last else "")


SIGN: Kind = "sign"
DROPPED: Kind = "dropped term"
POSITION: Kind = "off-by-one position"
AXES: Kind = "swapped axes"


def _common(one: str, other: str) -> int:
    """How many characters both start with."""
    pairs = enumerate(zip(one, other))
    return next((k for k, (a, b) in pairs if a != b), min(len(one), len(other)))


def _mutants(
    module: str,
    function: str,
    quantity: str,
    *changes: tuple[Kind, str, str],
    by: Literal["hand", "grad"] = "hand",
    method: str = "log",
) -> tuple[Mutant, ...]:
    """Several mutants of one function, each a kind, a snippet, and what replaces it."""
    return tuple(
        Mutant(module, function, before, after, kind, quantity, by, method)
        for kind, before, after in changes
    )


MUTANTS: tuple[Mutant, ...] = (
    # Conditionals, and both lattices of an additive functional.
    *_mutants(
        "lattice._propagate", "conditionals", "entropy_lattices",
        (AXES, "edge_marginals.sum(1, keepdims=True)", "edge_marginals.sum(2, keepdims=True)"),
    ),
    *_mutants(
        "lattice._propagate", "conditionals", "mann_entropy_gradient",
        (AXES, "edge_marginals.sum(2, keepdims=True)", "edge_marginals.sum(1, keepdims=True)"),
    ),
    *_mutants(
        "lattice._propagate", "left_lattice", "covariance_product",
        (SIGN, "(value + node)[:, None] + edge", "(value - node)[:, None] + edge"),
    ),
    *_mutants(
        "lattice._propagate", "left_lattice", "entropy_lattices",
        (DROPPED, "(value + node)[:, None] + edge", "(value + node)[:, None]"),
    ),
    *_mutants(
        "lattice._propagate", "left_lattice", "covariance_product",
        (DROPPED, "(value + node)[:, None] + edge", "node[:, None] + edge"),
        (AXES, "(value + node)[:, None] + edge", "(value + node)[None, :] + edge"),
        (POSITION, "node_values[:-1]", "node_values[1:]"),
    ),
    *_mutants(
        "lattice._propagate", "right_lattice", "entropy_lattices",
        (SIGN, "edge + value + node", "edge - value + node"),
    ),
    *_mutants(
        "lattice._propagate", "right_lattice", "covariance_product",
        (DROPPED, "edge + value + node", "edge + value"),
        (AXES, "edge + value + node", "edge + (value + node)[:, None]"),
        (POSITION, "node_values[1:]", "node_values[:-1]"),
    ),
    # The covariance times a vector.
    *_mutants(
        "lattice._propagate", "covariance_from_marginals", "covariance_product",
        (
            SIGN,
            "at_left, at_right = left + node_tangent",
            "at_left, at_right = left - node_tangent",
        ),
        (DROPPED, "left + at_right, axis=1", "at_right, axis=1"),
        (DROPPED, "+ edge_tangent +", "+"),
        (POSITION, "at_right[1:, None, :]", "at_right[:-1, None, :]"),
        (AXES, "at_left[:-1, :, None]", "at_left[:-1, None, :]"),
    ),
    *_mutants(
        "lattice._propagate", "weigh_centred", "mann_entropy_gradient",
        (SIGN, "values - (weights", "values + (weights"),
    ),
    # The derivative rules of log Z and of the marginals.
    *_mutants(
        "lattice._marginals", "row_marginals.defjvp", "covariance_product",
        (
            SIGN,
            "edge_marginals, node_tangent, edge_tangent, parallel",
            "edge_marginals, node_tangent, -edge_tangent, parallel",
        ),
        by="grad",
    ),
    *_mutants(
        "lattice._marginals", "row_log_partition.defjvp", "marginals",
        (DROPPED, "jnp.sum(by_node * node_tangent) +", ""),
        (SIGN, "+ jnp.sum(by_edge", "- jnp.sum(by_edge"),
        by="grad",
    ),
    # Entropy, its lattices, Mann's gradient, and the derivative rule made of it.
    *_mutants(
        "lattice._entropy", "lattices_from_marginals", "entropy_lattices",
        (SIGN, "-safe_log(backward)", "safe_log(backward)"),
    ),
    *_mutants(
        "lattice._entropy", "lattices_from_marginals", "mann_entropy_gradient",
        (
            AXES,
            "to_right(forward, nothing, -safe_log(forward))",
            "to_right(forward, nothing, -safe_log(forward).swapaxes(1, 2))",
        ),
    ),
    *_mutants(
        "lattice._entropy", "gradient_from_marginals", "mann_entropy_gradient",
        (SIGN, "-safe_log(node_marginals) + left", "safe_log(node_marginals) + left"),
        (DROPPED, "+ left + right", "+ left"),
        (DROPPED, "-safe_log(edge_marginals) + left", "left"),
        (POSITION, "right[1:, None, :]", "right[:-1, None, :]"),
        (AXES, "left[:-1, :, None]", "left[:-1, None, :]"),
    ),
    *_mutants(
        "lattice._entropy", "step_entropies", "entropy",
        (SIGN, "return -(", "return ("),
    ),
    *_mutants(
        "lattice._entropy", "row_entropy.defjvp", "mann_entropy_gradient",
        (DROPPED, "jnp.sum(by_node * node_tangent) +", ""),
        (SIGN, "+ jnp.sum(by_edge", "- jnp.sum(by_edge"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_span_entropy", "∂ span_entropy",
        (POSITION, "position[:-1] >= start", "position[:-1] > start"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_rest_entropy", "rest_entropy",
        (POSITION, "right[positions[last], safe[last]]", "right[positions[0], safe[0]]"),
    ),
    *_mutants(
        "lattice._entropy", "_rest_entropy", "∂ rest_entropy",
        (DROPPED, "total = left[positions[0], safe[0]] +", "total ="),
        by="grad",
    ),
    # Jiao's nested program.
    *_mutants(
        "lattice._jiao", "row_gradient", "jiao_entropy_gradient",
        (
            SIGN,
            "seen_from_left, seen_from_right = node_scores + outgoing",
            "seen_from_left, seen_from_right = node_scores - outgoing",
        ),
        (
            AXES,
            "right_of_a + matmul(segment, seen_from_left[b])",
            "right_of_a + matmul(segment.T, seen_from_left[b])",
        ),
        (POSITION, "lax.fori_loop(a + 1, length,", "lax.fori_loop(a + 2, length,"),
        (POSITION, "left_mass.at[b].add(arriving)", "left_mass.at[b - 1].add(arriving)"),
        (DROPPED, "(to_left + right + outgoing)", "(to_left + right)"),
        (SIGN, "+ scores + to_right[t + 1]", "- scores + to_right[t + 1]"),
        (AXES, "to_left[t][:, None]", "to_left[t][None, :]"),
    ),
    # The full covariance.
    *_mutants(
        "lattice._moments", "_feature_covariance", "feature_covariance",
        (DROPPED, "+ joint.transpose(2, 3, 0, 1)", ""),
        (SIGN, "(2, 3, 0, 1) - same", "(2, 3, 0, 1) + same"),
        (POSITION, "edge, segments[:, 1:])", "edge, segments[:, :-1])"),
        (POSITION, "edge, segments[:-1, 1:],", "edge, segments[:-1, :-1],"),
        (AXES, "tij,utjk,ukl->tijukl", "tij,utkj,ukl->tijukl"),
        (SIGN, "nodes_edges - jnp", "nodes_edges + jnp"),
    ),
    # Marginals, the hand-derived gradient of log Z, in both engines.
    *_mutants(
        "lattice._engines", "scaled_forward_backward", "marginals",
        (POSITION, "scores.nodes[1:] * betas[1:]", "scores.nodes[1:] * betas[:-1]"),
        (DROPPED, "[:, None] * betas", "[:, None]"),
        (AXES, "after[:, None, :]", "after[:, :, None]"),
        method="scaled",
    ),
    *_mutants(
        "lattice._engines", "_scaled_backward", "marginals",
        (AXES, "matmul(edge, factor * beta)", "matmul(edge.T, factor * beta)"),
        method="scaled",
    ),
    *_mutants(
        "lattice._engines", "log_forward_backward", "marginals",
        (SIGN, "nodes[1:] + log_betas[1:]", "nodes[1:] - log_betas[1:]"),
        (POSITION, "nodes[1:] + log_betas[1:]", "nodes[:-1] + log_betas[1:]"),
        (DROPPED, "[:-1, :, None] + edges +", "[:-1, :, None] +"),
    ),
    *_mutants(
        "lattice._engines", "log_backward", "marginals",
        (AXES, "logsumexp(edge + node + log_beta, 1)", "logsumexp(edge + node + log_beta, 0)"),
    ),
    # The batch kernels in scaled space.
    *_mutants(
        "lattice._scaled", "marginals", "batch_marginals",
        (DROPPED, "share * (weight * link)", "share * weight"),
        (AXES, "matmul(factors.edges, after)", "matmul(factors.edges.T, after)"),
        (DROPPED, "inverse(raw.max(0)) * factor", "inverse(raw.max(0))"),
        method="scaled",
    ),
    *_mutants(
        "lattice._scaled", "entropy", "batch_entropy_gradient",
        (SIGN, "(factors.edge_top - edges) * matrix", "(edges - factors.edge_top) * matrix"),
        (AXES, "[surprise.T, matrix.T]", "[surprise, matrix.T]"),
        (DROPPED, "+ value + _log_or_zero(total)", "+ _log_or_zero(total)"),
        (DROPPED, "scale * raw + node * coming", "scale * raw"),
        (SIGN, "(coming + _log_or_zero(top) + value)", "(coming + _log_or_zero(top) - value)"),
        (AXES, "products[:s, s:] + products[s:, :s]", "products[:s, s:] + products[s:, :s].T"),
        (DROPPED, " + surprise * products[:s, :s]", ""),
        method="scaled",
    ),
    *_mutants(
        "lattice._scaled", "entropy", "batch_entropy",
        (DROPPED, "mean + _log_or_zero(total)", "mean"),
        method="scaled",
    ),
    *_mutants(
        "lattice._scaled", "covariance", "batch_covariance_product",
        (POSITION, "factors.linked[1:]", "factors.linked[:-1]"),
        (AXES, "ij,tic->tjc", "ji,tic->tjc"),
        (SIGN, "ahead_of).sum(0) + value", "ahead_of).sum(0) - value"),
        (DROPPED, "products * matrix + counts * weighted", "products * matrix"),
        (DROPPED, "total = seen + ahead_of", "total = seen"),
        method="scaled",
    ),
    # The same in C++.
    *_mutants(
        "native/forward_backward.h", "run_back", "batch_marginals",
        (DROPPED, "share = choose(linked, scale * group->weights[t], fill(0))", "share = scale"),
        (AXES, "multiply(edges->back,", "multiply(edges->ahead,"),
        (DROPPED, "factor[i] *= raw[i] * over_top", "factor[i] = raw[i] * over_top"),
        (POSITION, "group->linked[t + 1]", "group->linked[t]"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_ahead", "batch_entropy_gradient",
        (AXES, "edges->surprise_ahead", "edges->surprise_back"),
        (DROPPED, " + surprise[j];", ";"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_ahead", "batch_entropy",
        (DROPPED, "(seen[j] + log_total)", "seen[j]"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_back", "batch_entropy_gradient",
        (DROPPED, " + both * coming[i]", ""),
        (SIGN, "log_top + surprise[i]", "log_top - surprise[i]"),
        (SIGN, "share * (seen[i] - alpha[i] * mean)", "share * (seen[i] + alpha[i] * mean)"),
        (POSITION, "surprise + s, raw", "surprise, raw"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_back", "batch_entropy",
        (DROPPED, "mean + log_of(total)", "mean"),
        method="native",
    ),
    # Divergences.
    *_mutants(
        "lattice._entropy", "_cross_entropy", "∂ cross_entropy / ∂p",
        (SIGN, "- node_terms - edge_terms", "- node_terms + edge_terms"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_cross_entropy", "∂ cross_entropy / ∂q",
        (DROPPED, "jnp.where(possible, log_z, 0) - node_terms", "-node_terms"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_kl_divergence", "∂ kl_divergence / ∂p",
        (SIGN, "crossed - jnp", "crossed + jnp"),
        by="grad",
    ),
)  # fmt: skip


# -------------------------------------------------------------------------------------------------
# A second copy of the library with one line changed, beside the real one.
#
# The copy is a package of its own, imported from the library's source text under another name. Its
# modules see each other and not the originals, so a changed function reaches everything built on it,
# and the real library, with all that JAX has cached for it, is never touched.


ORIGINAL = "jaxseq"
COPY = "jaxseq_under_test"


def read_source(module: str) -> str:
    """The source text of a module of the library, such as ``jaxseq.lattice._entropy``."""
    return Path(_origin(module)).read_text(encoding="utf-8")


def replace_in_function(module: str, function: str, before: str, after: str) -> str:
    """The module's source with `before` replaced by `after` inside one function.

    Args:
        module: such as ``jaxseq.lattice._entropy``.
        function: the name of a top-level function; ``f.defjvp`` means the derivative rule that is
            decorated with it.
        before: must occur in the function exactly once.
        after: what to put there.

    Raises:
        ValueError: when the function or the snippet is not there, or the result is not Python.
    """
    source = read_source(module)
    first, last = _lines_of(source, module, function)
    lines = source.splitlines(keepends=True)
    text = "".join(lines[first:last])
    if (count := text.count(before)) != 1:
        raise ValueError(
            f"the table of mutants is out of date: {module}.{function}: "
            f"expected {before!r} exactly once, found it {count} times"
        )
    changed = "".join(lines[:first]) + text.replace(before, after) + "".join(lines[last:])
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise ValueError(f"{module}.{function}: {after!r} is not Python: {error}") from error
    return changed


def replace_in_cpp(file: str, function: str, before: str, after: str) -> str:
    """As `replace_in_function`, for a function of a C++ source such as ``native/entropy.h``."""
    source = (Path(_origin(ORIGINAL)).parent / file).read_text(encoding="utf-8")
    found = re.search(rf"^\S.*\b{re.escape(function)}\(.*?^}}$", source, re.M | re.S)
    if found is None:
        raise ValueError(f"the table of mutants is out of date: {file} has no {function}")
    if (count := found[0].count(before)) != 1:
        raise ValueError(
            f"the table of mutants is out of date: {file}, {function}: "
            f"expected {before!r} exactly once, found it {count} times"
        )
    changed = found[0].replace(before, after)
    return source[: found.start()] + changed + source[found.end() :]


def _lines_of(source: str, module: str, function: str) -> tuple[int, int]:
    """First and one past the last line of a top-level function, decorators included."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if node.name == function or function in decorators:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return first - 1, node.end_lineno or node.lineno
    raise ValueError(f"the table of mutants is out of date: {module} has no function {function}")


@contextmanager
def library_copy(changed: Mapping[str, str] | None = None) -> Iterator[ModuleType]:
    """A fresh copy of the library for the length of a `with` block.

    Args:
        changed: source text by module name, or by the name of a C++ file such as
            ``native/entropy.h``, in place of its own.
    """
    finder = _CopyFinder(dict(changed or {}))
    sys.meta_path.insert(0, finder)
    try:
        with tempfile.TemporaryDirectory() as folder:
            finder.lay_cpp_sources(Path(folder))
            yield importlib.import_module(COPY)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == COPY]:
            del sys.modules[name]


class _CopyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``jaxseq_under_test.x`` from the source text of ``jaxseq.x``."""

    def __init__(self, changed: dict[str, str]):
        self.changed = changed
        self.cpp_folder: Path | None = None

    def lay_cpp_sources(self, folder: Path) -> None:
        """Copies of the C++ sources, where one is changed."""
        wrong = {Path(name).name: text for name, text in self.changed.items() if "/" in name}
        if not wrong:
            return
        self.cpp_folder = folder
        for file in Path(_origin(f"{ORIGINAL}.native")).parent.iterdir():
            if file.suffix not in (".h", ".cc"):
                continue
            text = wrong.get(file.name) or file.read_text(encoding="utf-8")
            (folder / file.name).write_text(text, encoding="utf-8")

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] != COPY:
            return None
        origin = _origin(_original_name(fullname))
        is_package = Path(origin).name == "__init__.py"
        return importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=is_package)

    def create_module(self, spec):
        return None  # an ordinary module

    def exec_module(self, module):
        name = _original_name(module.__name__)
        module.__file__ = _origin(name)
        if self.cpp_folder and name == f"{ORIGINAL}.native._loader":  # C++ sources lie beside it
            module.__file__ = str(self.cpp_folder / "_loader.py")
        source = self.changed.get(name) or read_source(name)
        # Only import statements: a docstring may speak of the library by its name.
        source = re.sub(rf"^(\s*(?:from|import)) {ORIGINAL}\b", rf"\1 {COPY}", source, flags=re.M)
        exec(compile(source, f"<copy of {name}>", "exec"), module.__dict__)
        if self.cpp_folder and name == f"{ORIGINAL}.native._loader":
            folder = self.cpp_folder  # nor do wrong libraries belong among the right ones
            flags = [flag.replace("-O3", "-O1") for flag in vars(module)["FLAGS"]]  # for once
            vars(module).update(_folders=lambda: [folder], FLAGS=tuple(flags))


def _original_name(copied: str) -> str:
    return ORIGINAL + copied.removeprefix(COPY)


def _origin(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"the table of mutants is out of date: there is no module {module}")
    return spec.origin


# -------------------------------------------------------------------------------------------------
# The self-test: break the library on purpose, and see that the checks notice.


SHAPE = (4, 3)
EXAMINED = (0, 1, 3)
"""Which of a stack's cases a mutant is run on, in this order, until one of them gives it away."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: which.
        failed: the comparisons that the original passes and the mutant does not.
        error: the name of the exception that it raised, if any.
    """

    mutant: Mutant
    failed: tuple[Row, ...] = ()
    error: str = ""

    @property
    def caught(self) -> bool:
        """Whether anything noticed."""
        return bool(self.failed or self.error)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        mutant = self.mutant
        return {
            "module": mutant.module if mutant.is_in_cpp else f"jaxseq.{mutant.module}",
            "function": mutant.function,
            "before": mutant.before, "after": mutant.after, "kind": mutant.kind,
            "quantity": mutant.quantity, "caught": self.caught, "error": self.error,
            "failed": [row.to_dict() for row in self.failed],
        }  # fmt: skip


@dataclass(frozen=True)
class MutationReport:
    """Verdicts on all mutants, and how the unchanged library fares under the same checks."""

    verdicts: tuple[Verdict, ...]
    originals: tuple[Row, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def survivors(self) -> tuple[Verdict, ...]:
        """Mutants that no check noticed."""
        return tuple(verdict for verdict in self.verdicts if not verdict.caught)

    @property
    def passed(self) -> bool:
        """Whether every mutant is caught, and everything unchanged passes."""
        return bool(self.verdicts) and not self.survivors and all(r.passed for r in self.originals)

    def to_dict(self) -> dict[str, Any]:
        """The whole report in plain values, ready for `json.dumps`."""
        return {
            "passed": self.passed,
            "mutants": len(self.verdicts),
            "survivors": len(self.survivors),
            "originals_passed": all(row.passed for row in self.originals),
            "seconds": round(self.seconds, 2),
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "originals": [row.to_dict() for row in self.originals],
        }

    def __str__(self) -> str:
        lines = [_line(number, verdict) for number, verdict in enumerate(self.verdicts, 1)]
        header = ("", "kind", "mutant", "verdict", "by", "error", "in")
        failed = [row for row in self.originals if not row.passed]
        unchanged = f"{len(self.originals)} checks of the unchanged library, " + (
            f"{len(failed)} FAILED" if failed else "all passed"
        )
        for row in failed:
            unchanged += f"\n  FAIL {row.quantity}, {row.check}: {row.absolute:.1e}"
        return (
            f"{format_table(header, lines)}\n{unchanged}\n"
            f"{len(self.verdicts)} mutants, {len(self.verdicts) - len(self.survivors)} caught, "
            f"{len(self.survivors)} survived ({self.seconds:.1f} s)"
        )


def _line(number: int, verdict: Verdict) -> tuple[str, ...]:
    mutant, failed = verdict.mutant, list(verdict.failed)
    word = "caught" if verdict.caught else "SURVIVED"
    by = f"raised {verdict.error}" if verdict.error else ""
    error, place = "", mutant.quantity
    if failed:
        by = failed[0].check + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
        error, place = f"{failed[0].absolute:.1e}", f"{mutant.quantity} {failed[0].coordinate}"
    return (str(number), mutant.kind, str(mutant), word, by, error, place)


def mutate(mutants: Iterable[Mutant] = MUTANTS, *, seed: int = 0) -> MutationReport:
    """Run every mutant of the library against the checks.

    Each mutant is a copy of the library with one snippet of one hand-derived formula replaced:
    a sign, a dropped term, a position off by one, two axes swapped. It is caught when a check of
    `jaxseq.verify.check` that the original passes fails on it.

    Args:
        mutants: which; all of the table by default. Those in C++ are left out where there is no
            compiler.
        seed: of the random chains.

    Raises:
        ValueError: when the table does not fit the library's source any more.

    Example:
        >>> from jaxseq.verify import MUTANTS, mutate
        >>> mutate(MUTANTS[:1]).passed
        True
    """
    started = time.perf_counter()
    mutants = tuple(m for m in mutants if m.method != "native" or why_not("float64") is None)
    sources = [_mutated_source(mutant) for mutant in mutants]  # all, before anything slow
    court = _Court(mutants, seed)
    with library_copy() as library:
        originals = court.examine_originals(library)
    verdicts = []
    for mutant, source in zip(mutants, sources):
        name = mutant.module if mutant.is_in_cpp else f"jaxseq.{mutant.module}"
        with library_copy({name: source}) as library:
            verdicts.append(court.judge(mutant, library))
    return MutationReport(tuple(verdicts), tuple(originals), time.perf_counter() - started)


def _mutated_source(mutant: Mutant) -> str:
    where = (mutant.function, mutant.before, mutant.after)
    if mutant.is_in_cpp:
        return replace_in_cpp(mutant.module, *where)
    return replace_in_function(f"jaxseq.{mutant.module}", *where)


class _Court:
    """The truth about the chains that mutants are run on.

    Libraries are run operation by operation, not compiled: a mutant then costs milliseconds,
    since all mutants are made of the same few operations.
    """

    def __init__(self, mutants: Sequence[Mutant], seed: int):
        names = dict.fromkeys(mutant.quantity for mutant in mutants)
        self.quantities = {quantity.name: quantity for quantity in choose_quantities(names)}
        self.truths = {
            kind: Truth(
                [q for q in self.quantities.values() if q.edges[-1] == kind],
                *SHAPE, kind, seed, False,
            )
            for kind in EDGE_KINDS
        }  # fmt: skip
        self.trials = list(dict.fromkeys((m.quantity, m.by, m.method) for m in mutants))
        self.columns: dict[tuple[str, str], list[Column]] = {
            (name, method): self._truth(name).columns(self.quantities[name], jaxseq, method)
            for name, _, method in self.trials
        }

    def _truth(self, name: str) -> Truth:
        """Chains with edges by position tell more; a quantity that cannot take them has others."""
        return self.truths[self.quantities[name].edges[-1]]

    def examine_originals(self, library: Library) -> list[Row]:
        """The unchanged library on everything that mutants will be asked."""
        rows = []
        for name, by, method in self.trials:
            for case in EXAMINED:
                rows += self._rows(library, name, by, method, case)
        return rows

    def judge(self, mutant: Mutant, library: Library) -> Verdict:
        """Whether the checks tell this library from the original."""
        for case in EXAMINED:
            if mutant.is_in_cpp and (why := library.native.why_not("float64")) is not None:
                raise ValueError(f"the table of mutants is out of date: {mutant}: {why}")
            try:
                rows = self._rows(library, mutant.quantity, mutant.by, mutant.method, case)
            except Exception as error:  # a mutant may break in any way
                return Verdict(mutant, error=type(error).__name__)
            if failed := tuple(row for row in rows if not row.passed):
                return Verdict(mutant, failed)
        return Verdict(mutant)

    def _rows(self, library: Library, name: str, by: str, method: str, case: int) -> list[Row]:
        quantity = self.quantities[name]
        result = self._run(library, quantity, by, method, case)[None]
        return [
            self._truth(name).judge(quantity, result, column, "float64", method, (case,))
            for column in self.columns[name, method]
        ]

    def _run(
        self, library: Library, quantity: Quantity, by: str, method: str, index: int
    ) -> Matrix:
        with wide(True), jax.disable_jit():
            case = self._truth(quantity.name).cases.pick(index).cast("float64")
            hand, value = quantity.hand, quantity.value
            if value is None or (by == "hand" and hand is not None):
                result = hand and hand(library, case, method)
                return np.asarray(matrix_of(result, quantity, case.theta.size))
            function = lambda case: value(library, case, method)  # noqa: E731
            return np.asarray(jax.jacrev(stacked([function], case))(case.theta)[0])
