"""The lattices in C++ give what XLA's give, for every number of labels, rows and slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from jaxseq.native import call_native, has_native, is_worthwhile, why_not
from jaxseq.verify import Enumeration

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no native kernels: {why_not()}")

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-11}
ROWS, SLOTS, LABELS = 40, 30, 25
"""Of the batch by which all are judged, padded to it: log space is compiled once."""


def make_batch(rows: int, slots: int, labels: int, seed: int, dtype, spread: float = 2.0):
    """Rows of several sequences with padding between, −inf scores, ties and forbidden pairs."""
    rng = np.random.default_rng(seed)
    nodes = np.round(rng.normal(size=(rows, slots, labels)) * spread, 1)
    nodes[rng.random(nodes.shape) < 0.1] = -np.inf
    edges = np.round(rng.normal(size=(labels, labels)), 1)
    edges[rng.random(edges.shape) < 0.1] = -np.inf
    breaks = rng.random((rows, slots)) < 0.2
    breaks[:, 0] = True
    numbers = np.cumsum(breaks.ravel()).reshape(rows, slots) - 1
    segments = np.where(rng.random((rows, slots)) < 0.1, -1, numbers)
    for row in segments:  # a sequence is in one piece: what follows padding is another
        for t in range(1, slots):
            if row[t] >= 0 and row[t] != row[t - 1] and (row[:t] == row[t]).any():
                row[t] = -1
    segments[segments >= 0] = np.unique(segments[segments >= 0], return_inverse=True)[1]
    parts = (jnp.asarray(nodes.astype(dtype)), jnp.asarray(edges.astype(dtype)))
    return jaxseq.PackedBatch(*parts, jnp.asarray(segments.astype(np.int32)), ROWS * SLOTS)


def everything(batch, method):
    marginals = jaxseq.batch_marginals(batch, method=method)
    entropy = jaxseq.batch_entropy_gradient(batch, method=method)
    return {
        "log Z": jaxseq.batch_log_partition(batch, method=method),
        "log Z beside marginals": marginals.log_partition,
        "nodes": marginals.nodes,
        "edges": marginals.edges,
        "entropy": entropy.entropy,
        "entropy by nodes": entropy.nodes,
        "entropy by edges": entropy.edges,
    }


def in_logs(batch):
    """`everything` in log space, by a batch of ROWS, SLOTS and LABELS."""
    rows, slots, labels = batch.nodes.shape
    more = ((0, ROWS - rows), (0, SLOTS - slots))
    extra = (0, LABELS - labels)
    larger = jaxseq.PackedBatch(
        jnp.pad(batch.nodes, (*more, extra), constant_values=-jnp.inf),
        jnp.pad(batch.edges, (extra, extra), constant_values=-jnp.inf),
        jnp.pad(batch.segments, more, constant_values=-1),
        batch.num_sequences,
    )
    found = everything(larger, "log")
    for name, values in found.items():
        if name.endswith("nodes"):
            found[name] = values[:rows, :slots, :labels]
        elif name.endswith("edges"):
            found[name] = values[:labels, :labels]
    return found


def assert_same(batch, method="native", scale=1.0):
    dtype = np.dtype(batch.nodes.dtype).type
    found, exact = everything(batch, method), in_logs(batch)
    for name, values in found.items():
        wanted = np.asarray(exact[name], np.float64)
        size = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
        atol = TOLERANCE[dtype] * size * scale
        np.testing.assert_allclose(np.asarray(values), wanted, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 22, 25])
def test_every_number_of_labels(labels, dtype):
    """So that every remainder of a tile occurs."""
    batch = make_batch(19, 7, labels, seed=labels, dtype=dtype)
    assert has_native("entropy", batch.nodes)
    assert_same(batch)


@pytest.mark.parametrize(("rows", "slots"), [(1, 1), (1, 30), (15, 2), (16, 1), (17, 26), (40, 3)])
def test_every_number_of_rows_and_slots(rows, slots):
    """Groups that are full or not; slots of one chunk and of two."""
    assert_same(make_batch(rows, slots, 3, seed=rows, dtype=np.float32))


@given(seed=st.integers(0, 10**6), rows=st.integers(1, ROWS), slots=st.integers(1, SLOTS))
def test_batches_of_any_kind(seed, rows, slots):
    assert_same(make_batch(rows, slots, 4, seed, np.float64))


def test_several_blocks():
    """Of more than 128 rows, the last one not full; sums are of blocks."""
    batch = make_batch(20, 6, 3, seed=2, dtype=np.float64)
    copies, most = np.arange(14)[:, None, None], int(batch.segments.max()) + 1
    numbers = np.where(batch.segments < 0, -1, np.asarray(batch.segments) + most * copies)
    tiled = jaxseq.PackedBatch(
        jnp.tile(batch.nodes, (14, 1, 1)),
        batch.edges,
        jnp.asarray(numbers.reshape(-1, 6).astype(np.int32)),
        14 * most,
    )
    one, many = (jaxseq.batch_marginals(each, method="native") for each in (batch, tiled))
    np.testing.assert_array_equal(many.nodes, jnp.tile(one.nodes, (14, 1, 1)))
    np.testing.assert_allclose(many.edges, 14 * one.edges, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_enumeration(dtype):
    rng = np.random.default_rng(5)
    nodes = rng.normal(size=(5, 3)).astype(dtype)
    edges = rng.normal(size=(3, 3)).astype(dtype)
    edges[0, 1] = -np.inf
    table = Enumeration(nodes.astype(np.float64), edges.astype(np.float64), 4)
    batch = jaxseq.PaddedBatch(jnp.asarray(nodes)[None], jnp.asarray(edges), jnp.array([4]))
    found = everything(batch, "native")
    by_node, by_edge = table.entropy_gradient()
    tolerance = TOLERANCE[dtype]
    for name, wanted in {
        "log Z": np.array([table.log_partition]),
        "nodes": np.asarray(table.node_marginals())[None],
        "edges": np.asarray(table.edge_marginals()).sum(0),
        "entropy": np.array([table.entropy()]),
        "entropy by nodes": np.asarray(by_node)[None],
        "entropy by edges": np.asarray(by_edge).reshape(-1, 3, 3).sum(0),
    }.items():
        got = np.asarray(found[name])
        if got.shape != wanted.shape:  # the oracle may leave padding out
            got = got[:, : wanted.shape[1]]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance, err_msg=name)


def test_padding_is_exactly_nothing():
    batch = make_batch(20, 9, 5, seed=3, dtype=np.float32)
    padding = np.asarray(batch.segments) < 0
    assert padding.any()
    for method in ("auto", "native"):
        found = everything(batch, method)
        assert (np.asarray(found["nodes"])[padding] == 0).all()
        assert (np.asarray(found["entropy by nodes"])[padding] == 0).all()


def test_what_stands_on_padding_does_not_matter():
    batch = make_batch(20, 9, 5, seed=3, dtype=np.float32)
    padding = (batch.segments < 0)[..., None]
    for junk in (jnp.nan, jnp.inf, -jnp.inf, 1e30):
        other = jaxseq.PackedBatch(
            jnp.where(padding, junk, batch.nodes), batch.edges, batch.segments, batch.num_sequences
        )
        for name, values in everything(other, "native").items():
            np.testing.assert_array_equal(values, everything(batch, "native")[name], err_msg=name)


@pytest.mark.parametrize("spread", [30.0, 200.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_underflow_is_found_and_rescued(spread, dtype):
    """Where C++ would lose something, XLA does it in log space."""
    batch = make_batch(40, 6, 4, seed=1, dtype=dtype, spread=spread)
    assert_same(batch, "auto", scale=10)
    for values in everything(batch, "auto").values():
        assert not np.isnan(values).any()


def test_underflow_matters():
    """The test before could not fail if nothing underflowed."""
    batch = make_batch(40, 6, 4, seed=1, dtype=np.float32, spread=200.0)
    with pytest.raises(AssertionError):
        assert_same(batch, "native", scale=10)


def test_a_legal_factor_below_the_smallest_number_is_not_taken_for_forbidden():
    """e⁻⁸⁸ is no normal float32, and all other ways lead through e⁻⁶⁶ twice."""
    no = -np.inf
    nodes = np.array([[0, no, no], [no, 0, -88], [0, no, no]], np.float32)
    edges = np.array([[0, -66, 0], [-66, 0, 0], [0, 0, 0]], np.float32)
    batch = jaxseq.PaddedBatch(jnp.stack([jnp.asarray(nodes)] * 2), jnp.asarray(edges))
    np.testing.assert_allclose(jaxseq.batch_log_partition(batch), -88, rtol=1e-5)


@pytest.mark.parametrize("quantity", ["forward", "marginals", "entropy"])
def test_what_is_certified_is_right(quantity):
    """Row by row, where scores are about as far apart as float32 can take."""
    rng = np.random.default_rng(7)
    rows, slots, labels = 4096, 4, 3
    spread = rng.choice([20.0, 40.0, 60.0, 90.0], size=(rows, 1, 1))
    nodes = -np.round(rng.random((rows, slots, labels)) * spread).astype(np.float32)
    nodes[rng.random(nodes.shape) < 0.2] = -np.inf
    edges = -np.round(rng.random((labels, labels)) * 60).astype(np.float32)
    edges[0, 1] = -np.inf
    segments = np.repeat(np.arange(rows, dtype=np.int32)[:, None], slots, 1)
    parts = [jnp.asarray(a) for a in (edges, segments, np.ones((rows, slots), np.float32), nodes)]
    by_slot, by_node, _, certified = call_native(quantity, *parts, 1)
    exact = everything(jaxseq.PaddedBatch(*(jnp.asarray(a, float) for a in (nodes, edges))), "log")
    certified = np.asarray(certified)
    assert 0.1 < certified.mean() < 0.9
    values = np.asarray(by_slot, float).sum(1)[certified]
    wanted = np.asarray(exact["entropy" if quantity == "entropy" else "log Z"])[certified]
    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-4)
    if quantity != "forward":
        name = "entropy by nodes" if quantity == "entropy" else "nodes"
        np.testing.assert_allclose(
            np.asarray(by_node)[certified], np.asarray(exact[name])[certified], atol=1e-4
        )


@pytest.mark.parametrize("method", ["auto", "scaled", "log"])
def test_nan_among_nodes_is_told_of_its_row_alone(method):
    """It is no forbidden label, whatever the engine, and on padding it is nothing at all."""
    nodes = jnp.zeros((4, 3, 2)).at[1, 1, 0].set(jnp.nan).at[2, 2, 1].set(jnp.nan)
    batch = jaxseq.PaddedBatch(nodes, jnp.zeros((2, 2)), jnp.array([3, 3, 2, 1]))
    wanted = [False, True, False, False]
    assert np.isnan(jaxseq.batch_log_partition(batch, method=method)).tolist() == wanted
    assert np.isnan(jaxseq.batch_entropy(batch, method=method)).tolist() == wanted
    marginals = jaxseq.batch_marginals(batch, method=method).nodes
    assert np.isnan(marginals).any((1, 2)).tolist() == wanted


def test_nan_among_edges_is_told():
    batch = jaxseq.PaddedBatch(jnp.zeros((3, 4, 2)), jnp.array([[0.0, jnp.nan], [0.0, 0.0]]))
    assert np.isnan(jaxseq.batch_log_partition(batch)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_and_logarithms(dtype):
    """Of one slot marginals are a softmax, whose range covers all that is not rescued."""
    limit = 60.0 if dtype == np.float32 else 600.0
    lower = -np.linspace(0, limit, 4001).astype(dtype)
    nodes = np.stack([np.zeros_like(lower), lower], 1)[:, None]
    batch = jaxseq.PaddedBatch(jnp.asarray(nodes), jnp.zeros((2, 2), dtype))
    found = jaxseq.batch_marginals(batch, method="native")
    wide = lower.astype(np.longdouble)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(
        np.asarray(found.nodes)[:, 0, 1], np.exp(wide) / (1 + np.exp(wide)), rtol=6 * eps
    )
    np.testing.assert_allclose(found.log_partition, np.log1p(np.exp(wide)), atol=4 * eps)


def test_weights_count_in_sums_alone():
    """The gradient of a weighted sum, whose edges are computed anew with the weights."""
    batch = make_batch(33, 6, 5, seed=8, dtype=np.float64)
    weights = jnp.asarray(np.random.default_rng(0).random(batch.num_sequences))
    alive = jaxseq.batch_log_partition(batch, method="log") > -jnp.inf

    def total(nodes, edges, method):
        other = jaxseq.PackedBatch(nodes, edges, batch.segments, batch.num_sequences)
        values = jaxseq.batch_log_partition(other, method=method)
        values += jaxseq.batch_entropy(other, method=method)
        return (weights * jnp.where(alive, values, 0)).sum()

    gradient = jax.grad(total, (0, 1))
    for found, exact in zip(*(gradient(batch.nodes, batch.edges, m) for m in ("auto", "log"))):
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-9)


def test_vmap_and_jit_and_two_threads():
    batches = [make_batch(18, 5, 3, seed, np.float32) for seed in (0, 1)]
    nodes = jnp.stack([batch.nodes for batch in batches])

    def one(nodes):
        padded = jaxseq.PaddedBatch(nodes, batches[0].edges)
        return jaxseq.batch_marginals(padded).nodes, jaxseq.batch_entropy(padded)

    together = jax.jit(jax.vmap(one))(nodes)
    at_once = jaxseq.map_on_cores(one, list(nodes))
    for index in (0, 1):
        for a, b in zip(jax.tree.map(lambda part: part[index], together), at_once[index]):
            np.testing.assert_array_equal(a, b)


def test_long_rows_are_left_to_xla():
    nodes = jnp.zeros((1, 200_000, 3), jnp.float32)
    assert not has_native("marginals", nodes)
    batch = jaxseq.PaddedBatch(nodes, jnp.zeros((3, 3), jnp.float32))
    with pytest.raises(ValueError, match="method: expected auto, scaled, log, got 'native'"):
        jaxseq.batch_marginals(batch, method="native")


def test_a_single_row_is_left_to_xla():
    """Which is as quick, or quicker, where lanes would be empty."""
    assert not is_worthwhile(jnp.zeros((1, 9, 4), jnp.float32))
    assert is_worthwhile(jnp.zeros((2, 9, 4), jnp.float32))
    assert not is_worthwhile(jnp.zeros((7, 9, 64), jnp.float32))
    assert is_worthwhile(jnp.zeros((8, 9, 64), jnp.float32))


def test_half_precision_is_left_to_xla():
    assert not has_native("marginals", jnp.zeros((2, 3, 4), jnp.float16))
