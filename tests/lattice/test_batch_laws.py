"""Batches give what the single-chain functions give, packed or padded, extreme scores or not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxseq
from jaxseq.native import why_not

WIDTH = 12
NUM = 40


@pytest.fixture(scope="module", autouse=True, params=["native", "XLA"])
def engine(request):
    """All of it with lattices in C++, where they can be had, and by XLA alone."""
    if request.param == "native":
        if why_not() is not None:
            pytest.skip(f"no native kernels: {why_not()}")
        yield
        return
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxseq.lattice._batch.has_native", lambda *_: False)
        yield
    jax.clear_caches()


@dataclass
class Case:
    """The same sequences three ways: a list, a padded batch and a packed batch."""

    sequences: list[np.ndarray]
    lengths: np.ndarray
    padded: jaxseq.PaddedBatch
    packed: jaxseq.PackedBatch

    @property
    def edges(self):
        return self.padded.edges

    def batch(self, layout: str) -> jaxseq.lattice.Batch:
        return self.padded if layout == "padded" else self.packed

    def index(self, layout: str):
        """What tells a batch's sequences apart: lengths, or segments."""
        return jnp.asarray(self.lengths) if layout == "padded" else self.packed.segments

    def batched(self, fn, layout: str):
        """`fn(batch)`, compiled."""
        return run_batch(fn, self.batch(layout))

    def single(self, fn):
        """`fn(chain)` for each sequence."""
        return run_single(fn, self.padded.nodes, self.edges, jnp.asarray(self.lengths))

    def to_padded(self, layout: str, values) -> np.ndarray:
        """Per-slot values in the padded layout, 0 on padding."""
        out = np.zeros((NUM, WIDTH, *np.shape(values)[2:]), np.asarray(values).dtype)
        for index, rows in enumerate(jaxseq.unpack(self.batch(layout), values)):
            out[index, : len(rows)] = rows
        return out


# Module-level and jitted, with all arrays as arguments: one compilation serves every case.


def rebuild(layout: str, nodes, edges, index) -> jaxseq.lattice.Batch:
    if layout == "padded":
        return jaxseq.PaddedBatch(nodes, edges, index)
    return jaxseq.PackedBatch(nodes, edges, index, NUM)


@partial(jax.jit, static_argnames="fn")
def run_batch(fn, batch):
    return fn(batch)


@partial(jax.jit, static_argnames="fn")
def run_single(fn, nodes, edges, lengths):
    return jax.vmap(lambda a, length: fn(jaxseq.Chain(a, edges, length)))(nodes, lengths)


@partial(jax.jit, static_argnames=("fns", "layout"))
def batch_gradients(fns, layout, nodes, edges, index, weights, alive):
    """For each function, the gradient of a weighted sum over the sequences."""

    def total(fn, nodes, edges):
        return (weights * jnp.where(alive, fn(rebuild(layout, nodes, edges, index)), 0)).sum()

    return [jax.grad(partial(total, fn), (0, 1))(nodes, edges) for fn in fns]


@partial(jax.jit, static_argnames="fns")
def single_gradients(fns, nodes, edges, lengths, weights, alive):
    def total(fn, nodes, edges):
        values = jax.vmap(lambda a, n: fn(jaxseq.Chain(a, edges, n), method="log"))(nodes, lengths)
        return (weights * jnp.where(alive, values, 0)).sum()

    return [jax.grad(partial(total, fn), (0, 1))(nodes, edges) for fn in fns]


@partial(jax.jit, static_argnames=("fn", "layout"))
def batch_second(fn, layout, nodes, edges, index, v_nodes, v_edges):
    """Hessian of Σ fn times v, forward over reverse."""

    def gradient(nodes, edges):
        total = lambda n, e: fn(rebuild(layout, n, e, index)).sum()  # noqa: E731
        return jax.grad(total, (0, 1))(nodes, edges)

    return jax.jvp(gradient, (nodes, edges), (v_nodes, v_edges))[1]


@partial(jax.jit, static_argnames=("fn", "layout"))
def batch_second_reverse(fn, layout, nodes, edges, index, v_nodes, v_edges):
    """The same, reverse over reverse."""

    def pairing(nodes, edges):
        total = lambda n, e: fn(rebuild(layout, n, e, index)).sum()  # noqa: E731
        by_node, by_edge = jax.grad(total, (0, 1))(nodes, edges)
        return (by_node * v_nodes).sum() + (by_edge * v_edges).sum()

    return jax.grad(pairing, (0, 1))(nodes, edges)


@partial(jax.jit, static_argnames="fn")
def single_second(fn, nodes, edges, lengths, v_nodes, v_edges):
    def gradient(nodes, edges):
        def total(nodes, edges):
            return jax.vmap(lambda a, n: fn(jaxseq.Chain(a, edges, n)))(nodes, lengths).sum()

        return jax.grad(total, (0, 1))(nodes, edges)

    return jax.jvp(gradient, (nodes, edges), (v_nodes, v_edges))[1]


# Several functions in one program, which has the passes that they share once.


def sums(batch: jaxseq.lattice.Batch, method: str = "auto"):
    """All that a batch has of sums over paths."""
    return (
        jaxseq.batch_log_partition(batch, method=method),
        jaxseq.batch_entropy(batch, method=method),
        jaxseq.batch_marginals(batch, method=method),
        jaxseq.batch_entropy_gradient(batch, method=method),
    )


BATCHED = (jaxseq.batch_log_partition, jaxseq.batch_entropy)
SINGLE = (jaxseq.log_partition, jaxseq.entropy)
sums_in_logs = partial(sums, method="log")
scaled_marginals = partial(jaxseq.batch_marginals, method="scaled")


def single_sums_in_logs(chain: jaxseq.Chain):
    """Of a chain: log Z, entropy and marginals."""
    return (
        jaxseq.log_partition(chain, method="log"),
        jaxseq.entropy(chain, method="log"),
        jaxseq.marginals(chain, method="log"),
    )


def single_log_partition_and_entropy(chain: jaxseq.Chain):
    return jaxseq.log_partition(chain), jaxseq.entropy(chain)


covariance_product = jax.jit(jaxseq.batch_covariance_product)

SCALES = {"moderate": 1.0, "extreme": 200.0}


def make_case(kind: str, forbidden: bool, dtype: str, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    s = 4
    scale = SCALES[kind] if dtype == "float32" or kind == "moderate" else 1500.0
    lengths = rng.integers(0, WIDTH + 1, NUM)
    lengths[:3] = 0, 1, WIDTH
    sequences = [(rng.normal(size=(n, s)) * scale).astype(dtype) for n in lengths]
    edges = (rng.normal(size=(s, s)) * min(scale, 3)).astype(dtype)
    if forbidden:
        edges[rng.random(edges.shape) < 0.3] = -np.inf
        for sequence in sequences:
            sequence[rng.random(sequence.shape) < 0.15] = -np.inf
    nodes = np.full((NUM, WIDTH, s), 1e6, dtype)  # what padding holds must not matter
    for index, sequence in enumerate(sequences):
        nodes[index, : len(sequence)] = sequence
    padded = jaxseq.PaddedBatch(nodes, edges, lengths)
    return Case(sequences, lengths, padded, jaxseq.pack(sequences, edges, width=16))


CASES = [
    pytest.param(
        kind, forbidden, dtype, id=f"{kind}-{'forbidden' if forbidden else 'free'}-{dtype}"
    )
    for kind in SCALES
    for forbidden in (False, True)
    for dtype in ("float64", "float32")
]
LAYOUTS = ("padded", "packed")


def tolerance(dtype, scale: float = 1.0) -> dict:
    unit = 1e-9 if dtype == "float64" else 2e-4
    return {"rtol": unit, "atol": unit * scale}


def assert_close(actual, expected, **tolerances):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, **tolerances)


def each_case(test):
    return pytest.mark.parametrize("layout", LAYOUTS)(
        pytest.mark.parametrize(("kind", "forbidden", "dtype"), CASES)(test)
    )


@each_case
def test_values_equal_single_chains(kind, forbidden, dtype, layout):
    case = make_case(kind, forbidden, dtype)
    log_z, entropies, expected = case.single(single_sums_in_logs)
    found_log_z, found_entropies, found, gradient = case.batched(sums, layout)
    assert_close(found_log_z, log_z, **tolerance(dtype))
    assert_close(found_entropies, entropies, **tolerance(dtype))
    assert_close(gradient.entropy, entropies, **tolerance(dtype))
    assert_close(found.log_partition, log_z, **tolerance(dtype))
    assert_close(case.to_padded(layout, found.nodes), expected.nodes, **tolerance(dtype))
    assert_close(found.edges, expected.edges.sum((0, 1)), **tolerance(dtype, NUM))


@each_case
def test_gradients_of_weighted_sums_equal_single_chains(kind, forbidden, dtype, layout):
    case = make_case(kind, forbidden, dtype)
    batch = case.batch(layout)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=NUM).astype(dtype))
    alive = case.single(single_sums_in_logs)[0] > -jnp.inf

    found = batch_gradients(
        BATCHED, layout, batch.nodes, batch.edges, case.index(layout), weights, alive
    )
    expected = single_gradients(
        SINGLE, case.padded.nodes, case.edges, jnp.asarray(case.lengths), weights, alive
    )
    for single, (nodes, edges), (expected_nodes, expected_edges) in zip(SINGLE, found, expected):
        # Entropy gradients carry scores as factors: their rounding scales with the scores.
        loose = tolerance(dtype, 1 if kind == "moderate" or single is jaxseq.log_partition else 1e3)
        assert_close(case.to_padded(layout, nodes), expected_nodes, **loose)
        assert_close(edges, expected_edges, **tolerance(dtype, NUM * loose["atol"] / loose["rtol"]))
        padding = np.asarray(batch.segments) < 0
        assert (np.asarray(nodes)[padding] == 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_plain_sum_takes_the_same_gradient_as_equal_weights(layout):
    """The edge gradient of a plain sum is not computed again; it must agree all the same."""
    case = make_case("moderate", True, "float64")
    batch = case.batch(layout)
    twice, alive = jnp.full(NUM, 2.0), jnp.ones(NUM, bool)
    found = batch_gradients(
        BATCHED, layout, batch.nodes, batch.edges, case.index(layout), twice, alive
    )
    for (nodes, edges), direct in zip(found, case.batched(sums, layout)[2:], strict=True):
        assert_close(nodes, 2 * direct.nodes, rtol=1e-12, atol=1e-12)
        assert_close(edges, 2 * direct.edges, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", list(SCALES))
def test_hessian_products(kind, layout):
    """Forward over reverse, reverse over reverse and the direct product all equal vmap's."""
    case = make_case(kind, True, "float64")
    batch = case.batch(layout)
    rng = np.random.default_rng(2)
    v_nodes = jnp.asarray(rng.normal(size=batch.nodes.shape))
    v_edges = jnp.asarray(rng.normal(size=batch.edges.shape))

    padded_v = jnp.asarray(case.to_padded(layout, v_nodes))
    expected_nodes, expected_edges = single_second(
        jaxseq.log_partition, case.padded.nodes, case.edges, jnp.asarray(case.lengths),
        padded_v, v_edges,
    )  # fmt: skip
    point = (batch.nodes, batch.edges, case.index(layout), v_nodes, v_edges)
    forward = batch_second(jaxseq.batch_log_partition, layout, *point)
    reverse = batch_second_reverse(jaxseq.batch_log_partition, layout, *point)
    direct = covariance_product(batch, jaxseq.PaddedBatch(v_nodes, v_edges))
    for nodes, edges in (forward, (direct.nodes, direct.edges), reverse):
        assert_close(case.to_padded(layout, nodes), expected_nodes, rtol=1e-9, atol=1e-9)
        assert_close(edges, expected_edges, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_derivative_of_entropy(layout):
    case = make_case("moderate", True, "float64")
    batch = case.batch(layout)
    rng = np.random.default_rng(3)
    v_nodes = jnp.asarray(rng.normal(size=batch.nodes.shape))
    v_edges = jnp.asarray(rng.normal(size=batch.edges.shape))

    point = (batch.nodes, batch.edges, case.index(layout), v_nodes, v_edges)
    found = batch_second(jaxseq.batch_entropy, layout, *point)
    padded_v = jnp.asarray(case.to_padded(layout, v_nodes))
    expected = single_second(
        jaxseq.entropy, case.padded.nodes, case.edges, jnp.asarray(case.lengths), padded_v, v_edges
    )
    assert_close(case.to_padded(layout, found[0]), expected[0], rtol=1e-9, atol=1e-9)
    assert_close(found[1], expected[1], rtol=1e-9, atol=1e-8)


@each_case
def test_viterbi_equals_single_chains(kind, forbidden, dtype, layout):
    case = make_case(kind, forbidden, dtype)
    labels, scores = case.batched(jaxseq.batch_viterbi, layout)
    expected_labels, expected_scores = case.single(jaxseq.viterbi)
    assert_close(scores, expected_scores, **tolerance(dtype))
    for index, path in enumerate(jaxseq.unpack(case.batch(layout), labels)):
        assert path.tolist() == expected_labels[index, : len(path)].tolist()
    assert (np.asarray(labels)[np.asarray(case.batch(layout).segments) < 0] == -1).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_extreme_sequence_is_rescued_and_changes_no_other(layout):
    """A label 150 below at one step that is the only way on at the next underflows float32."""
    case = make_case("moderate", False, "float32")
    sequences = [sequence.copy() for sequence in case.sequences]
    long = next(i for i in range(3, NUM) if len(sequences[i]) > 4)
    sequences[long][1] = [0, -150, -150, -150]
    sequences[long][2] = [-400, 0, 0, 0]
    edges = np.asarray(case.edges).copy()
    edges[0] = [0, -350, -350, -350]
    if layout == "packed":
        batch = jaxseq.pack(sequences, edges, width=16)
    else:
        nodes = np.asarray(case.padded.nodes).copy()
        nodes[long, : len(sequences[long])] = sequences[long]
        batch = jaxseq.PaddedBatch(nodes, edges, case.lengths)
    naive = run_batch(scaled_marginals, batch)
    _, _, found, gradient = run_batch(sums, batch)
    _, _, exact, expected = run_batch(sums_in_logs, batch)
    assert not np.allclose(naive.nodes, exact.nodes, atol=1e-3), "the example no longer underflows"
    assert_close(found.nodes, exact.nodes, rtol=1e-5, atol=1e-6)
    assert_close(found.log_partition, exact.log_partition, rtol=1e-5, atol=1e-4)
    assert_close(gradient.entropy, expected.entropy, rtol=1e-4, atol=1e-4)
    assert_close(gradient.nodes, expected.nodes, rtol=1e-4, atol=1e-3)


def test_more_rows_than_a_block_and_not_a_multiple_of_it():
    rng = np.random.default_rng(4)
    nodes = rng.normal(size=(300, 5, 3))
    edges = rng.normal(size=(3, 3))
    lengths = rng.integers(0, 6, 300)
    batch = jaxseq.PaddedBatch(nodes, edges, lengths)
    log_z, entropies = run_single(single_log_partition_and_entropy, nodes, edges, lengths)
    assert_close(jaxseq.batch_log_partition(batch), log_z, rtol=1e-9, atol=1e-9)
    assert_close(jaxseq.batch_entropy(batch), entropies, rtol=1e-9, atol=1e-9)
    counts = jaxseq.batch_marginals(batch).edges.sum()
    assert_close(counts, np.float64(np.maximum(lengths - 1, 0).sum()), rtol=1e-12)


def test_left_to_right_topology_is_not_mistaken_for_underflow():
    """Labels that cannot be reached yet are zeros of the model's making."""
    s = 5
    edges = np.full((s, s), -np.inf)
    edges[np.arange(s), np.arange(s)] = 0.0
    edges[np.arange(s - 1), np.arange(1, s)] = -1.0
    nodes = np.random.default_rng(5).normal(size=(8, 9, s))
    nodes[:, 0, 1:] = -np.inf
    batch = jaxseq.PaddedBatch(nodes, edges)
    found, exact = jaxseq.batch_marginals(batch), jaxseq.batch_marginals(batch, method="log")
    assert_close(found.nodes, exact.nodes, rtol=1e-9, atol=1e-12)
    assert_close(found.edges, exact.edges, rtol=1e-9, atol=1e-12)


def test_one_trace_a_shape():
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(1)
    def total(nodes, edges, lengths):
        batch = jaxseq.PaddedBatch(nodes, edges, lengths)
        return jaxseq.batch_log_partition(batch).sum() + jaxseq.batch_entropy(batch).sum()

    for seed in range(3):
        case = make_case("moderate", False, "float32", seed)
        assert np.isfinite(total(case.padded.nodes, case.edges, jnp.asarray(case.lengths)))


def test_never_four_dimensional():
    """No [rows, slots, s, s] array outside the log-space rescue, which works block by block."""
    nodes = jnp.zeros((1000, 7, 5), jnp.float32)
    edges = jnp.zeros((5, 5), jnp.float32)

    def total(nodes, edges):
        batch = jaxseq.PaddedBatch(nodes, edges)
        return jaxseq.batch_log_partition(batch).sum() + jaxseq.batch_entropy(batch).sum()

    text = jax.jit(jax.grad(total, (0, 1))).lower(nodes, edges).as_text()
    assert "1000x7x5x" in text
    assert "1000x7x5x5x" not in text
    assert "1000x6x5x5x" not in text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_legal_path_anywhere(layout):
    """In all sequences but one of full length, and those of no length, which have one path."""
    case = make_case("moderate", False, "float32")
    alive = case.lengths == 0
    alive[2] = True
    sequences = [np.where(fine, a, -np.inf) for fine, a in zip(alive, case.sequences)]
    nodes = np.where(alive[:, None, None], case.padded.nodes, -np.inf)
    padded = jaxseq.PaddedBatch(nodes, case.edges, case.lengths)
    packed = jaxseq.pack(sequences, np.asarray(case.edges), width=16)
    batch = padded if layout == "padded" else packed
    log_z, entropies, found, gradient = run_batch(sums, batch)
    np.testing.assert_array_equal(np.isneginf(log_z), ~alive)
    assert (np.asarray(entropies)[~alive] == 0).all()
    assert_close(np.asarray(found.edges).sum(), np.float32(WIDTH - 1), rtol=1e-6)
    for array in (found.nodes, found.edges, gradient.nodes, gradient.edges):
        assert np.isfinite(array).all()
    labels, scores = run_batch(jaxseq.batch_viterbi, batch)
    np.testing.assert_array_equal(np.isneginf(scores), ~alive)
    for fine, path in zip(alive, jaxseq.unpack(batch, labels), strict=True):
        assert (path == -1).all() or fine


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_of_viterbi_scores_is_the_path(layout):
    case = make_case("moderate", True, "float64")
    batch = case.batch(layout)
    labels, best = case.batched(jaxseq.batch_viterbi, layout)
    legal = best > -jnp.inf

    def scores(batch):
        return jaxseq.batch_viterbi(batch)[1]

    ((nodes, edges),) = batch_gradients(
        (scores,), layout, batch.nodes, batch.edges, case.index(layout), jnp.ones(NUM), legal
    )
    assert_close(nodes, jax.nn.one_hot(labels, 4), rtol=0, atol=0)
    steps = sum(max(n - 1, 0) for n, fine in zip(case.lengths, legal) if fine)
    assert_close(edges.sum(), np.float64(steps), rtol=0, atol=0)
    assert (np.asarray(edges)[np.isneginf(case.edges)] == 0).all()


def test_many_labels_take_the_other_way_to_the_maximum():
    """Past a number of labels the Viterbi step is one reduction instead of a written-out one."""
    from jaxseq.lattice._scaled import UNROLLED_LABELS

    s = UNROLLED_LABELS + 1
    rng = np.random.default_rng(6)
    nodes, edges = rng.normal(size=(3, 4, s)), rng.normal(size=(s, s))
    labels, scores = jaxseq.batch_viterbi(jaxseq.PaddedBatch(nodes, edges))
    expected = jax.vmap(lambda a: jaxseq.viterbi(jaxseq.Chain(a, edges)))(nodes)
    assert labels.tolist() == expected[0].tolist()
    assert_close(scores, expected[1], rtol=1e-12)
