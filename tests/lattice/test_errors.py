"""Wrong arguments: a `ValueError` that names the argument, what was expected, and what came.

The annotations' own checks are off here, so that these are the errors of a user without them.
"""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jaxseq
from jaxseq.lattice import Chain, ChainVector


@pytest.fixture(autouse=True)
def _without_checked_annotations():
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def _chain(n=4, s=3) -> Chain:
    return Chain(jnp.zeros((n, s)), jnp.zeros((s, s)))


def _raises(call, *words: str):
    """`call` fails with an error that says all the words, in this order."""
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    message = str(caught.value)
    position = -1
    for word in words:
        found = message.find(word, position + 1)
        assert found > position, f"{word!r} is missing, or too early, in: {message}"
        position = found


zeros = jnp.zeros


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        ((4,), (3, 3), ["nodes", "expected", "[n, s]", "got", "[4]"]),
        ((2, 4, 3), (3, 3), ["nodes", "expected", "[n, s]", "got", "[2, 4, 3]"]),
        ((0, 3), (3, 3), ["nodes", "expected", "n ≥ 1", "got", "[0, 3]"]),
        ((4, 0), (0, 0), ["nodes", "expected", "s ≥ 1", "got", "[4, 0]"]),
        ((4, 3), (3,), ["edges", "expected", "[3, 3]", "[3, 3, 3]", "got", "[3]"]),
        ((4, 3), (4, 4), ["edges", "expected", "[3, 3]", "got", "[4, 4]"]),
        ((4, 3), (4, 3, 3), ["edges", "expected", "[3, 3, 3]", "got", "[4, 3, 3]"]),
        ((1, 3), (1, 3, 3), ["edges", "expected", "[0, 3, 3]", "got", "[1, 3, 3]"]),
    ],
)
def test_shapes_of_scores(nodes, edges, words):
    _raises(lambda: Chain(zeros(nodes), zeros(edges)), *words)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float16, jnp.bfloat16, bool, jnp.complex64])
@pytest.mark.parametrize("which", ["nodes", "edges"])
def test_dtypes_of_scores(dtype, which):
    scores = {"nodes": zeros((4, 3)), "edges": zeros((3, 3))}
    scores[which] = scores[which].astype(dtype)
    name = jnp.dtype(dtype).name
    _raises(lambda: Chain(**scores), which, "expected", "float32 or float64", "got", name)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (5, ["length", "expected", "0 … 4", "got", "5"]),
        (-1, ["length", "expected", "0 … 4", "got", "-1"]),
        (jnp.asarray(7), ["length", "expected", "0 … 4", "got", "7"]),
        (np.int64(5), ["length", "expected", "0 … 4", "got", "5"]),
        (2.0, ["length", "expected", "integer", "got", "float"]),
        (True, ["length", "expected", "integer", "got", "bool"]),
        (jnp.array([2]), ["length", "expected", "one integer", "got", "[1]"]),
    ],
)
def test_lengths(length, words):
    _raises(lambda: Chain(zeros((4, 3)), zeros((3, 3)), length), *words)


@pytest.mark.parametrize("function", [jaxseq.path_score, jaxseq.log_prob])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (np.zeros(3, int), ["path", "expected", "[4]", "got", "[3]"]),
        (np.zeros((1, 4), int), ["path", "expected", "[4]", "got", "[1, 4]"]),
        (np.zeros(4), ["path", "expected", "integers", "[4]", "got", "float64"]),
        (np.zeros(4, bool), ["path", "expected", "integers", "[4]", "got", "bool"]),
    ],
)
def test_paths(function, path, words):
    _raises(lambda: function(_chain(), path), *words)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None, "3"])
def test_k(k):
    _raises(lambda: jaxseq.k_best(_chain(), k), "k", "expected", "at least 1", "got", repr(k))


@pytest.mark.parametrize("num", [-1, 1.5, True, None])
def test_num(num):
    key = jax.random.key(0)
    _raises(
        lambda: jaxseq.sample(_chain(), key=key, num=num),
        "num",
        "expected",
        "at least 0",
        "got",
        repr(num),
    )


METHODS = {
    "log_partition": lambda f, method: f(_chain(), method=method),
    "marginals": lambda f, method: f(_chain(), method=method),
    "log_prob": lambda f, method: f(_chain(), np.zeros(4, int), method=method),
    "viterbi": lambda f, method: f(_chain(), method=method),
    "max_marginal": lambda f, method: f(_chain(), method=method),
    "sample": lambda f, method: f(_chain(), key=jax.random.key(0), num=1, method=method),
    "entropy": lambda f, method: f(_chain(), method=method),
    "entropy_lattices": lambda f, method: f(_chain(), method=method),
    "mann_entropy_gradient": lambda f, method: f(_chain(), method=method),
    "span_entropy": lambda f, method: f(_chain(), 0, 2, method=method),
    "rest_entropy": lambda f, method: f(_chain(), 0, np.zeros(2, int), method=method),
    "cross_entropy": lambda f, method: f(_chain(), _chain(), method=method),
    "kl_divergence": lambda f, method: f(_chain(), _chain(), method=method),
    "covariance_product": lambda f, method: f(_chain(), _chain(), method=method),
    "feature_covariance": lambda f, method: f(_chain(), method=method),
}


@pytest.mark.parametrize("method", ["logs", "", None])
@pytest.mark.parametrize("name", METHODS)
def test_methods(name, method):
    call = METHODS[name]
    words = ["method", "expected", "auto, scaled, log", "got", repr(method)]
    _raises(lambda: call(getattr(jaxseq, name), method), *words)


@pytest.mark.parametrize("method", ["parallel", "blocked"])
def test_methods_for_one_chain_are_not_for_batches(method):
    batch = jaxseq.PaddedBatch(zeros((2, 3, 2)), zeros((2, 2)))
    words = ["method", "expected", "auto, scaled, log", "got", method]
    _raises(lambda: jaxseq.batch_log_partition(batch, method=method), *words)


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 2), (3, 2), (0, 5), (5, 5), (jnp.asarray(3), np.int32(2))]
)
def test_spans(start, stop):
    words = ["start", "stop", "expected", "0 ≤ start ≤ stop ≤ 4"]
    words += ["got", str(int(start)), str(int(stop))]
    _raises(lambda: jaxseq.span_entropy(_chain(), start, stop), *words)


@pytest.mark.parametrize(
    ("start", "stop", "name"),
    [(0.5, 2, "start"), (0, 2.0, "stop"), (jnp.array([0, 1]), 2, "start")],
)
def test_spans_that_are_no_integers(start, stop, name):
    call = lambda: jaxseq.span_entropy(_chain(), start, stop)  # noqa: E731
    _raises(call, name, "expected", "integer", "got")


@pytest.mark.parametrize(
    ("start", "labels", "words"),
    [
        (-1, np.zeros(2, int), ["start", "expected", "0 … 2", "got", "-1"]),
        (3, np.zeros(2, int), ["start", "expected", "0 … 2", "for 2 labels", "got", "3"]),
        (0.5, np.zeros(2, int), ["start", "expected", "integer", "got"]),
        (0, np.zeros(2), ["labels", "expected", "integers", "got", "float64"]),
        (0, np.zeros((2, 2), int), ["labels", "expected", "[w]", "got", "[2, 2]"]),
        (0, np.zeros(0, int), ["labels", "expected", "w ≥ 1", "got", "[0]"]),
        (0, np.zeros(5, int), ["labels", "expected", "4", "got", "5"]),
    ],
)
def test_given_labels(start, labels, words):
    _raises(lambda: jaxseq.rest_entropy(_chain(), start, labels), *words)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (np.ones((3, 4), bool), ["allowed", "expected", "[4, 3]", "got", "[3, 4]"]),
        (np.ones(3, bool), ["allowed", "expected", "[4, 3]", "got", "[3]"]),
        (np.ones((4, 3)), ["allowed", "expected", "booleans", "got", "float64"]),
        (np.ones((4, 3), int), ["allowed", "expected", "booleans", "got", "int"]),
    ],
)
def test_allowed_labels(allowed, words):
    _raises(lambda: jaxseq.constrain(_chain(), allowed), *words)


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        (zeros((4, 2)), zeros((3, 3)), ["tangent.nodes", "[4, 3]", "got", "[4, 2]"]),
        (zeros((1, 3)), zeros((3, 3)), ["tangent.nodes", "[4, 3]", "got", "[1, 3]"]),
        (zeros((4, 3)), zeros((3, 3, 3)), ["tangent.edges", "[3, 3]", "got", "[3, 3, 3]"]),
        (zeros((4, 3), int), zeros((3, 3)), ["tangent.nodes", "float32", "got", "int"]),
    ],
)
def test_tangents(nodes, edges, words):
    tangent = ChainVector(nodes, edges)
    _raises(lambda: jaxseq.covariance_product(_chain(), tangent), *words)


@pytest.mark.parametrize("function", [jaxseq.kl_divergence, jaxseq.cross_entropy])
def test_pairs(function):
    chain = _chain()
    _raises(lambda: function(chain, _chain(3)), "p, q", "expected", "got", "[4, 3]", "[3, 3]")
    shorter = Chain(chain.nodes, chain.edges, 2)
    _raises(lambda: function(chain, shorter), "p, q", "expected equal lengths", "got 4 and 2")


def test_errors_are_raised_under_jit_too():
    """Shapes are known while tracing."""
    _raises(lambda: jax.jit(Chain)(zeros((4, 3)), zeros((4, 4))), "edges", "got [4, 4]")
