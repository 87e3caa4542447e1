"""Law: reverse mode, forward mode and differences of the enumeration agree, in both orders.

And the three facts that tie the library together: ∇ log Z = marginals, ∇² log Z = covariance,
∇H = Mann's closed form = Jiao's covariance product.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jaxseq.lattice import (
    Chain,
    entropy,
    feature_covariance,
    jiao_entropy_gradient,
    log_partition,
    mann_entropy_gradient,
    marginals,
)
from tests.lattice.cases import (
    ONE_LABEL,
    ONE_POSITION,
    PER_POSITION,
    SHARED,
    Case,
    Scores,
    Shape,
    cases,
    continuous,
    direction_for,
    enumerate_chain,
    random_case,
    scores_of,
)
from tests.lattice.registry import (
    DIFFERENTIABLE,
    FLOAT64,
    K,
    Tolerance,
    assert_trees_close,
    derivatives,
    oracle_projection,
)

MATRICES = [Shape(4, 2, True), Shape(4, 3, False)]
HESSIANS = {
    "forward over reverse": jax.hessian,
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(f)),
}


def _along(case: Case, direction: Scores, step: float) -> Scores:
    pairs = zip(scores_of(case), direction)
    return Scores(*(np.asarray(x, np.float64) + step * np.asarray(v) for x, v in pairs))


def _inner(a: Scores, b: Scores) -> float:
    return sum(float((np.asarray(x, np.float64) * np.asarray(y)).sum()) for x, y in zip(a, b))


def _away_from_ties(case: Case) -> bool:
    scores = enumerate_chain(case.chain).k_best_scores(K + 1)
    return not (np.abs(np.diff(scores[scores > -np.inf])) < 1e-2).any()


def _assert_derivatives(entry, case, order_one: Tolerance, order_two: Tolerance, exact: Tolerance):
    if entry.kind == "piecewise":
        assume(_away_from_ties(case))
    direction = direction_for(case)
    result = derivatives(entry.name)(case, direction)
    entry.assert_agrees(result.output, case)
    for leaf in jax.tree.leaves((result.gradient, result.curve)):
        assert np.isfinite(leaf).all()

    ask = lambda step: oracle_projection(entry, case, _along(case, direction, step))  # noqa: E731
    first = (ask(1e-5) - ask(-1e-5)) / 2e-5
    second = (ask(1e-3) - 2 * ask(0) + ask(-1e-3)) / 1e-6
    assert_trees_close(result.slope, first, order_one, "forward mode")
    assert_trees_close(_inner(result.gradient, direction), first, order_one, "reverse mode")
    assert_trees_close(_inner(result.curve, direction), second, order_two, "second derivative")
    slope = float(result.slope)
    assert_trees_close(_inner(result.gradient, direction), slope, exact, "reverse and forward")


@pytest.mark.parametrize("shape", [SHARED, ONE_POSITION, ONE_LABEL], ids=str)
@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
@given(data=st.data())
def test_derivatives_equal_differences_of_enumeration(entry, shape, data):
    finite = continuous if entry.kind == "piecewise" else None
    case = data.draw(cases(shape, finite=finite))
    close = Tolerance(1e-7, 1e-6)
    _assert_derivatives(entry, case, close, Tolerance(2e-5, 2e-5), FLOAT64)


@pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=repr)
@given(data=st.data())
def test_float32_derivatives_equal_differences_of_enumeration(entry, data):
    finite = continuous if entry.kind == "piecewise" else None
    case = data.draw(cases(PER_POSITION, np.float32, finite=finite))
    close = Tolerance(1e-3, 1e-3)
    _assert_derivatives(entry, case, close, close, close)


# --------------------------------------------------------------- the facts, entry for entry


def _on(chain: Chain, function):
    """`function` of the chain's (nodes, edges), for derivatives by JAX."""
    return lambda scores: function(Chain(*scores, chain.length))


def _blocks(hessian) -> np.ndarray:
    """A nested pair of pairs of arrays as one matrix."""
    (nodes_nodes, nodes_edges), (edges_nodes, edges_edges) = hessian
    nodes, edges = nodes_nodes.shape[: nodes_nodes.ndim // 2], edges_edges.shape
    rows, columns = int(np.prod(nodes)), int(np.prod(edges[: len(edges) // 2]))
    return np.block(
        [
            [np.reshape(nodes_nodes, (rows, rows)), np.reshape(nodes_edges, (rows, columns))],
            [np.reshape(edges_nodes, (columns, rows)), np.reshape(edges_edges, (columns, columns))],
        ]
    )


@pytest.fixture(scope="module", params=MATRICES, ids=str)
def chains(request):
    """Some chains of one shape: whole, padded, with forbidden scores, of length 1 and 0."""
    lengths_and_bans = [(4, 0.0), (3, 0.0), (4, 0.25), (3, 0.2), (1, 0.0), (0, 0.0)]
    return [
        random_case(request.param, seed, length=length, forbid=forbid).chain
        for seed, (length, forbid) in enumerate(lengths_and_bans)
    ]


def _compiled(function):
    """A function of (scores, chain) that is compiled once for all chains of a shape."""
    compiled = jax.jit(lambda chain: function(_scores(chain), chain))
    return lambda chain: compiled(chain)


def _scores(chain: Chain):
    return chain.nodes, chain.edges


def test_gradient_of_log_partition_is_the_marginals(chains):
    gradient = _compiled(lambda scores, chain: jax.grad(_on(chain, log_partition))(scores))
    for chain in chains:
        table, expected = enumerate_chain(chain), marginals(chain)
        edges = expected.edges.sum(0) if chain.edges.ndim == 2 else expected.edges
        assert_trees_close(gradient(chain), (expected.nodes, edges), FLOAT64)
        assert_trees_close(expected.nodes, table.node_marginals(), FLOAT64)


def test_gradient_of_entropy_is_manns_and_jiaos(chains):
    gradient = _compiled(lambda scores, chain: jax.grad(_on(chain, entropy))(scores))
    for chain in chains:
        expected = enumerate_chain(chain).entropy_gradient()
        assert_trees_close(gradient(chain), expected, FLOAT64, "jax.grad")
        assert_trees_close(mann_entropy_gradient(chain), expected, FLOAT64, "Mann")
        assert_trees_close(jiao_entropy_gradient(chain), expected, FLOAT64, "Jiao")


@pytest.mark.parametrize("modes", HESSIANS)
def test_hessian_of_log_partition_is_the_covariance(chains, modes):
    hessian = HESSIANS[modes]
    compiled = _compiled(lambda scores, chain: hessian(_on(chain, log_partition))(scores))
    for chain in chains:
        matrix, expected = _blocks(compiled(chain)), enumerate_chain(chain).covariance()
        assert_trees_close(matrix, expected, FLOAT64, "hessian")
        assert_trees_close(feature_covariance(chain).matrix, expected, FLOAT64, "covariance")


@pytest.mark.parametrize("modes", ["forward over reverse", "reverse over reverse"])
def test_hessian_of_entropy_equals_differences_of_its_gradient(chains, modes):
    hessian = HESSIANS[modes]
    compiled = _compiled(lambda scores, chain: hessian(_on(chain, entropy))(scores))
    for chain in chains:
        matrix = _blocks(compiled(chain))
        expected = _differences_of_the_entropy_gradient(chain, 1e-5)
        assert_trees_close(matrix, expected, Tolerance(1e-8, 1e-7))
        assert_trees_close(matrix, matrix.T, FLOAT64, "symmetry")


def _differences_of_the_entropy_gradient(chain: Chain, step: float) -> np.ndarray:
    flat = np.concatenate([np.ravel(chain.nodes), np.ravel(chain.edges)])
    size = chain.nodes.size
    length = None if chain.length is None else chain.length

    def gradient(vector):
        nodes = vector[:size].reshape(chain.nodes.shape)
        edges = vector[size:].reshape(chain.edges.shape)
        pair = enumerate_chain(Chain(nodes, edges, length)).entropy_gradient()
        return np.concatenate([x.ravel() for x in pair])

    return np.stack(
        [
            (gradient(flat + step * e) - gradient(flat - step * e)) / (2 * step)
            for e in np.eye(flat.size)
        ],
        axis=1,
    )


def test_third_derivative_of_log_partition_equals_differences_of_the_covariance(chains):
    def third(chain, direction):
        function = _on(chain, lambda c: feature_covariance_by_hessian(c, direction))
        return jax.jvp(function, (_scores(chain),), (direction,))[1]

    def feature_covariance_by_hessian(chain, direction):
        gradient = jax.grad(_on(chain, log_partition))
        return jax.jvp(gradient, (_scores(chain),), (direction,))[1]

    compiled = jax.jit(third)
    for chain in chains:
        v = tuple(direction_for(random_case(_shape(chain), 0))[:2])
        plus, minus = (
            enumerate_chain(Chain(chain.nodes + h * v[0], chain.edges + h * v[1], chain.length))
            for h in (1e-5, -1e-5)
        )
        expected = [
            (a - b) / 2e-5
            for a, b in zip(plus.covariance_product(*v), minus.covariance_product(*v))
        ]
        assert_trees_close(compiled(chain, v), expected, Tolerance(1e-8, 1e-7))


def _shape(chain: Chain) -> Shape:
    return Shape(chain.num_positions, chain.num_labels, chain.edges.ndim == 3)


def test_a_chain_with_a_length_can_be_differentiated_as_a_whole():
    chain = random_case(SHARED, 0, length=4).chain
    gradient = eqx.filter_grad(log_partition)(chain)
    assert gradient.length is None
    expected = enumerate_chain(chain).node_marginals()
    assert_trees_close(gradient.nodes, expected, FLOAT64)


def test_gradient_does_not_depend_on_the_method():
    chain = random_case(SHARED, 1, length=4, forbid=0.2).chain
    assert jnp.isfinite(log_partition(chain))
    for function in (log_partition, entropy):
        auto, scaled, log = (
            jax.jit(lambda chain, m=method, f=function: _gradient(chain, f, m))(chain)
            for method in ("auto", "scaled", "log")
        )
        assert_trees_close(auto, log, FLOAT64)
        assert_trees_close(scaled, log, FLOAT64)


def _gradient(chain: Chain, function, method: str):
    return jax.grad(_on(chain, lambda c: function(c, method=method)))(_scores(chain))
