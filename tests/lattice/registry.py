"""Every public function of `jaxseq.lattice`: how to call it, and what enumeration answers.

The laws (`test_enumeration`, `test_padding`, …) run over this one list; `test_registry` fails when
a public function is missing from it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq import lattice as library
from jaxseq.verify import Enumeration
from tests.lattice.cases import Case, Scores, enumerate_chain, scores_of, with_scores

KEY = jax.random.key(7)
K, NUM = 7, 6  # more than the paths of some chains; unlike any other size of a shape

Kind = Literal["smooth", "piecewise", "discrete"]


class Tolerance(NamedTuple):
    """Absolute and relative."""

    absolute: float
    relative: float


FLOAT64 = Tolerance(1e-9, 1e-9)
FLOAT32 = Tolerance(3e-5, 1e-4)
TOLERANCES = {"float64": FLOAT64, "float32": FLOAT32}


@dataclass(frozen=True)
class Entry:
    """One public function.

    function: as exported.
    call: calls it on a case by a method (ignored where it takes none).
    oracle: the answer from enumeration, structured like the function's; a path that ties may be
        another than the function's, see `check`.
    kind: whether derivatives exist everywhere, away from ties only, or not at all.
    in_nats: whether the output is a sum of scores, whose rounding error grows with them.
    check: what has to hold of the output, where that is not mere equality with the oracle.
    """

    function: Callable[..., Any]
    call: Callable[[Case, str], Any]
    oracle: Callable[[Enumeration, Case], Any]
    kind: Kind = "smooth"
    in_nats: bool = False
    check: Callable[[Entry, Any, Enumeration, Case, Tolerance], None] | None = None

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def takes_method(self) -> bool:
        return "method" in inspect.signature(self.function).parameters

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that may differ; `test_parallel` and `test_blocked` try the ones for long chains
        where they have code of their own."""
        differ = self.takes_method and self.function is not library.viterbi
        return ("auto", "scaled", "log") if differ else ("auto",)

    def assert_agrees(self, output: Any, case: Case, tolerance: Tolerance | None = None) -> None:
        """`output` of this function on `case` is what enumeration says."""
        dtype = case.chain.nodes.dtype
        for leaf in jax.tree.leaves(output):
            assert leaf.dtype in (dtype, jnp.int32), f"{leaf.dtype} from {dtype}"
        tolerance = self.tolerance(case) if tolerance is None else tolerance
        table = enumerate_chain(case.chain)
        if self.check is not None:
            self.check(self, output, table, case, tolerance)
        else:
            assert_trees_close(output, self.oracle(table, case), tolerance)

    def tolerance(self, case: Case) -> Tolerance:
        """Rounding grows with the scores: of their sums, and a little of probabilities."""
        tolerance = TOLERANCES[case.chain.nodes.dtype.name]
        finite = [np.asarray(x)[np.isfinite(x)] for x in scores_of(case)]
        largest = max(np.abs(x).max(initial=0) for x in finite)
        factor = max(1.0, largest if self.in_nats else largest / 2000)
        return tolerance._replace(absolute=tolerance.absolute * factor)

    def __repr__(self):  # what pytest and Hypothesis print
        return self.name


def assert_trees_close(actual: Any, expected: Any, tolerance: Tolerance, where: str = "") -> None:
    """Equal structure, equal shapes, close numbers; never broadcasting, never NaN."""
    got, wanted = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(got) == len(wanted), f"{where}: {len(got)} arrays, expected {len(wanted)}"
    for index, (leaf, answer) in enumerate(zip(got, wanted)):
        leaf, answer = np.asarray(leaf), np.asarray(answer)
        assert leaf.shape == answer.shape, f"{where} [{index}]: {leaf.shape} is not {answer.shape}"
        if np.issubdtype(answer.dtype, np.integer):
            np.testing.assert_array_equal(leaf, answer, err_msg=f"{where} [{index}]")
        else:
            assert not np.isnan(answer).any(), f"{where} [{index}]: NaN is no answer"
            np.testing.assert_allclose(
                leaf.astype(np.float64),
                answer.astype(np.float64),
                rtol=tolerance.relative,
                atol=tolerance.absolute,
                err_msg=f"{where} [{index}]",
            )


# ------------------------------------------------------------------------- answers and checks


def _path_score(table: Enumeration, path) -> np.ndarray:
    length = table.length
    same = (table.paths[:, :length] == np.asarray(path)[:length]).all(1)
    return np.asarray(table.scores[same].sum() if same.any() else -np.inf)


def _log_prob(table: Enumeration, path) -> np.ndarray:
    score = _path_score(table, path)
    return score - table.log_partition if score > -np.inf else score


def _best(table: Enumeration, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best paths; ties to the smaller label, decided from the last position backwards."""
    keys = [*table.paths.T[: table.length], -table.scores]
    order = np.lexsort(keys)[:k]
    found = int((table.scores[order] > -np.inf).sum())
    if found == 0:
        return np.full((k, len(table.nodes)), -1), np.full(k, -np.inf)
    chosen = order[np.minimum(np.arange(k), found - 1)]
    missing = np.arange(k) >= found
    return table.paths[chosen], np.where(missing, -np.inf, table.scores[chosen])


def _viterbi(table: Enumeration, case: Case):
    paths, scores = _best(table, 1)
    return paths[0], scores[0]


def _check_viterbi(entry: Entry, output, table, case, tolerance):
    path, score = output
    expected_path, expected_score = _viterbi(table, case)
    assert_trees_close(score, expected_score, tolerance, "score")
    if _exact(case):
        assert_trees_close(path, expected_path, tolerance, "path")
    else:
        _assert_scores_of_paths(path[None], score[None], table, tolerance)


def _check_k_best(entry: Entry, output, table, case, tolerance):
    paths, scores = np.asarray(output[0]), np.asarray(output[1])
    assert_trees_close(scores, table.k_best_scores(K), tolerance, "scores")
    assert (np.diff(scores[scores > -np.inf]) <= 0).all(), "not sorted"
    _assert_scores_of_paths(paths, scores, table, tolerance)
    found = int((scores > -np.inf).sum())
    assert len(np.unique(paths[:found], axis=0)) == found, "a path occurs twice"
    last = paths[found - 1] if found else np.full(paths.shape[1], -1)
    for path in paths[found:]:
        np.testing.assert_array_equal(path, last)


def _assert_scores_of_paths(paths, scores, table, tolerance):
    for path, score in zip(np.asarray(paths), np.asarray(scores)):
        if score > -np.inf:
            assert_trees_close(score, _path_score(table, path), tolerance, f"score of {path}")
            assert (path[table.length :] == -1).all(), f"labels on padding: {path}"
        elif not table.legal:
            assert (path == -1).all(), f"an illegal path: {path}"


def _max_marginal(table: Enumeration, case: Case):
    nodes = table.node_marginals()
    return np.where(nodes.any(1), nodes.argmax(1), -1)


def _check_max_marginal(entry: Entry, output, table, case, tolerance):
    nodes, path = table.node_marginals(), np.asarray(output)
    assert path.shape == nodes.shape[:1]
    for t, label in enumerate(path):
        if nodes[t].any():
            assert nodes[t, label] >= nodes[t].max() - tolerance.absolute, f"position {t}"
        else:
            assert label == -1, f"position {t}"


def _check_sample(entry: Entry, output, table, case, tolerance):
    """Only legal paths are drawn (`test_sampling` asks how often)."""
    paths = np.asarray(output)
    assert paths.shape == (NUM, len(table.nodes))
    legal = table.paths[table.probabilities > 0] if table.legal else np.full_like(paths[:1], -1)
    for path in paths:
        assert (legal == path).all(1).any(), f"drew {path}"


def _check_lattices(entry: Entry, output, table, case, tolerance):
    """Labels whose probability is no normal number count as impossible: 0 or the exact value."""
    exact = (table.left_entropies(), table.right_entropies())
    improbable = table.node_marginals() < _smallest_probability(case)
    expected = [np.where(improbable & (got == 0), 0, x) for got, x in zip(output, exact)]
    assert_trees_close(output, expected, tolerance)


def _check_rest_entropy(entry: Entry, output, table, case, tolerance):
    """The same for the given labels."""
    given, labels = int(case.given), np.asarray(case.labels)
    expected = table.rest_entropy(given, labels)
    labels = labels[: max(table.length - given, 0)]
    matching = (table.paths[:, given : given + len(labels)] == labels).all(1)
    improbable = table.probabilities[matching].sum() < _smallest_probability(case)
    assert_trees_close(output, 0.0 if improbable and output == 0 else expected, tolerance)


def _smallest_probability(case: Case) -> float:
    return float(jnp.finfo(case.chain.nodes.dtype).tiny)


def _exact(case: Case) -> bool:
    """Whether scores are small integers, so that sums have no rounding and ties are exact."""
    finite = [np.asarray(x)[np.isfinite(x)] for x in (case.chain.nodes, case.chain.edges)]
    return all(((x == np.round(x)) & (np.abs(x) < 1e6)).all() for x in finite)


def _constrained(table: Enumeration, case: Case):
    nodes = np.where(np.asarray(case.allowed), table.nodes, -np.inf)
    return Enumeration(nodes, table.edges, table.length).log_partition


def _covariance_product(table: Enumeration, case: Case):
    vector = np.concatenate([np.ravel(case.tangent.nodes), np.ravel(case.tangent.edges)])
    product = table.covariance() @ vector.astype(np.float64)
    size = table.nodes.size
    return product[:size].reshape(table.nodes.shape), product[size:].reshape(table.edges.shape)


def _feature_covariance(table: Enumeration, case: Case):
    matrix, size = table.covariance(), table.nodes.size
    nodes, edges = table.nodes.shape, table.edges.shape
    return (
        matrix[:size, :size].reshape(nodes + nodes),
        matrix[:size, size:].reshape(nodes + edges),
        matrix[size:, size:].reshape(edges + edges),
    )


# -------------------------------------------------------------------------------- the registry


def _simple(name: str, oracle: Callable[[Enumeration, Case], Any], **options) -> Entry:
    """A function of a chain alone."""
    function = getattr(library, name)
    by_method = "method" in inspect.signature(function).parameters
    keywords = lambda method: {"method": method} if by_method else {}  # noqa: E731
    return Entry(function, lambda case, m: function(case.chain, **keywords(m)), oracle, **options)


_entropy_gradient = lambda table, case: table.entropy_gradient()  # noqa: E731

ENTRIES = [
    _simple("log_partition", lambda table, case: table.log_partition, in_nats=True),
    _simple("marginals", lambda table, case: (table.node_marginals(), table.edge_marginals())),
    Entry(
        library.path_score,
        lambda case, method: library.path_score(case.chain, case.path),
        lambda table, case: _path_score(table, case.path),
        in_nats=True,
    ),
    Entry(
        library.log_prob,
        lambda case, method: library.log_prob(case.chain, case.path, method=method),
        lambda table, case: _log_prob(table, case.path),
        in_nats=True,
    ),
    _simple("viterbi", _viterbi, kind="piecewise", in_nats=True, check=_check_viterbi),
    Entry(
        library.k_best,
        lambda case, method: library.k_best(case.chain, K),
        lambda table, case: _best(table, K),
        kind="piecewise",
        in_nats=True,
        check=_check_k_best,
    ),
    _simple("max_marginal", _max_marginal, kind="discrete", check=_check_max_marginal),
    Entry(
        library.sample,
        lambda case, method: library.sample(case.chain, key=KEY, num=NUM, method=method),
        lambda table, case: None,
        kind="discrete",
        check=_check_sample,
    ),
    Entry(
        library.constrain,
        lambda case, method: library.log_partition(library.constrain(case.chain, case.allowed)),
        _constrained,
        in_nats=True,
    ),
    _simple("entropy", lambda table, case: table.entropy()),
    _simple(
        "entropy_lattices",
        lambda table, case: (table.left_entropies(), table.right_entropies()),
        check=_check_lattices,
    ),
    Entry(
        library.span_entropy,
        lambda case, method: library.span_entropy(case.chain, case.start, case.stop, method=method),
        lambda table, case: table.span_entropy(int(case.start), int(case.stop)),
    ),
    Entry(
        library.rest_entropy,
        lambda case, method: library.rest_entropy(
            case.chain, case.given, case.labels, method=method
        ),
        lambda table, case: table.rest_entropy(int(case.given), np.asarray(case.labels)),
        check=_check_rest_entropy,
    ),
    Entry(
        library.cross_entropy,
        lambda case, method: library.cross_entropy(case.chain, case.other, method=method),
        lambda table, case: table.cross_entropy(enumerate_chain(case.other)),
        in_nats=True,
    ),
    Entry(
        library.kl_divergence,
        lambda case, method: library.kl_divergence(case.chain, case.other, method=method),
        lambda table, case: table.kl_divergence(enumerate_chain(case.other)),
        in_nats=True,
    ),
    _simple("mann_entropy_gradient", _entropy_gradient),
    _simple("jiao_entropy_gradient", _entropy_gradient, in_nats=True),
    Entry(
        library.covariance_product,
        lambda case, method: library.covariance_product(case.chain, case.tangent, method=method),
        _covariance_product,
    ),
    _simple("feature_covariance", _feature_covariance),
]
DIFFERENTIABLE = [entry for entry in ENTRIES if entry.kind != "discrete"]


# ------------------------------------------------------------------------ derivatives, compiled


class Derivatives(NamedTuple):
    """A function's output, and first and second derivatives of one weighted sum of it."""

    output: Any
    value: jax.Array
    slope: jax.Array  # along a direction, by forward mode
    gradient: Scores  # by reverse mode
    curve: Scores  # Hessian times the direction, forward over reverse


def project(output: Any, xp=jnp):
    """A sum of all finite float outputs, each weighted differently."""
    total = 0.0
    for leaf in jax.tree.leaves(output):
        leaf = xp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            total = total + (_weights(leaf) * xp.where(xp.isfinite(leaf), leaf, 0)).sum()
    return total


def _weights(leaf) -> np.ndarray:
    """A product over axes, so that an entry keeps its weight when an axis is cut short."""
    weights = np.ones(leaf.shape, leaf.dtype)
    for axis, size in enumerate(leaf.shape):
        along = [1] * leaf.ndim
        along[axis] = size
        weights = weights * np.cos(1 + axis + np.arange(size)).astype(leaf.dtype).reshape(along)
    return weights


def projected(entry: Entry, case: Case, method: str = "auto") -> Callable[[Scores], Any]:
    """The weighted output, and the output, as a function of the scores."""

    def function(scores: Scores):
        output = entry.call(with_scores(case, scores), method)
        return project(output), output

    return function


def differentiate(entry: Entry, case: Case, direction: Scores, method: str = "auto"):
    # Everything in one go, which halves the time to compile.
    function = jax.value_and_grad(projected(entry, case, method), has_aux=True)
    ((value, output), gradient), ((slope, _), curve) = jax.jvp(
        function, (scores_of(case),), (direction,)
    )
    return Derivatives(output, value, slope, gradient, curve)


def value_and_gradient(entry: Entry, case: Case) -> tuple[Any, Scores]:
    function = jax.value_and_grad(projected(entry, case), has_aux=True)
    (_, output), gradient = function(scores_of(case))
    return output, gradient


@functools.cache
def derivatives(name: str) -> Callable[[Case, Scores], Derivatives]:
    """`differentiate`, compiled once for all tests of a worker."""
    return jax.jit(functools.partial(differentiate, by_name(name)))


def by_name(name: str) -> Entry:
    (entry,) = (entry for entry in ENTRIES if entry.name == name)
    return entry


def oracle_projection(entry: Entry, case: Case, scores: Scores) -> float:
    """What `projected` ought to give, by enumeration; on padding by what the case holds."""
    moved = with_scores(case, Scores(*(np.asarray(x, np.float64) for x in scores)))
    return float(project(entry.oracle(enumerate_chain(moved.chain), moved), np))
