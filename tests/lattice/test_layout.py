"""Packing and unpacking, and what batches refuse."""

from __future__ import annotations

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 10))
def test_packing_places_every_sequence_once_without_overlap(lengths, slack):
    longest = max(lengths, default=1)
    rows, offsets, width = jaxseq.pack_lengths(lengths, max(longest, 1) + slack)
    taken = set()
    for length, row, offset in zip(lengths, rows, offsets):
        slots = {(row, slot) for slot in range(offset, offset + length)}
        assert offset + length <= width
        assert not slots & taken
        taken |= slots


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 2**32 - 1))
def test_unpack_undoes_pack(lengths, seed):
    rng = np.random.default_rng(seed)
    sequences = [rng.normal(size=(n, 3)) for n in lengths]
    batch = jaxseq.pack(sequences, np.zeros((3, 3)), width=10)
    for before, after in zip(sequences, jaxseq.unpack(batch, batch.nodes), strict=True):
        np.testing.assert_array_equal(before, after)


def test_packing_wastes_little():
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(4, 6, 2000).astype(int), 1, 80).tolist()
    rows, _, width = jaxseq.pack_lengths(lengths)
    assert sum(lengths) > 0.95 * (max(rows) + 1) * width


@pytest.fixture
def plain_errors():
    """What a user sees, who does not run the type checker that the tests run."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


NODES, EDGES = np.zeros((2, 3, 2)), np.zeros((2, 2))

BAD_INPUT = {
    "two axes": (lambda: jaxseq.PaddedBatch(np.zeros((3, 2)), EDGES), r"nodes.*got \[3, 2\]"),
    "edges of another size": (
        lambda: jaxseq.PaddedBatch(NODES, np.zeros((3, 3))),
        r"edges.*\[2, 2\].*got \[3, 3\]",
    ),
    "edges by position": (
        lambda: jaxseq.PaddedBatch(NODES, np.zeros((2, 2, 2))),
        r"edges.*got \[2, 2, 2\]",
    ),
    "integer scores": (lambda: jaxseq.PaddedBatch(NODES.astype(int), EDGES), "nodes.*int"),
    "too long": (lambda: jaxseq.PaddedBatch(NODES, EDGES, [3, 4]), r"lengths\[1\].*0 … 3.*got 4"),
    "negative length": (lambda: jaxseq.PaddedBatch(NODES, EDGES, [-1, 1]), r"lengths\[0\].*got -1"),
    "lengths of another batch": (
        lambda: jaxseq.PaddedBatch(NODES, EDGES, [3]),
        r"lengths.*\[2\].*got.*\[1\]",
    ),
    "segments out of range": (
        lambda: jaxseq.PackedBatch(NODES, EDGES, np.full((2, 3), 5), 2),
        r"segments\[0, 0\].*got 5",
    ),
    "a sequence in two pieces": (
        lambda: jaxseq.PackedBatch(NODES, EDGES, [[0, 1, 0], [2, 2, -1]], 3),
        r"segments\[0, 2\].*sequence 0 a second time",
    ),
    "a number of sequences that is none": (
        lambda: jaxseq.PackedBatch(NODES, EDGES, np.full((2, 3), -1), 2.0),
        "num_sequences.*2.0",
    ),
    "a sequence with other labels": (
        lambda: jaxseq.pack([np.zeros((2, 2)), np.zeros((2, 3))], EDGES),
        r"nodes\[1\].*\[n, 2\].*got \[2, 3\]",
    ),
    "a row too narrow": (
        lambda: jaxseq.pack([np.zeros((5, 2))], EDGES, width=4),
        "width.*5.*got 4",
    ),
    "values of another batch": (
        lambda: jaxseq.unpack(jaxseq.PaddedBatch(NODES, EDGES), np.zeros((3, 3))),
        r"values.*\[2, 3\].*got shape \[3, 3\]",
    ),
    "an unknown method": (
        lambda: jaxseq.batch_entropy(jaxseq.PaddedBatch(NODES, EDGES), method="fast"),
        "method.*auto, scaled, log.*'fast'",
    ),
    "a tangent of another shape": (
        lambda: jaxseq.batch_covariance_product(
            jaxseq.PaddedBatch(NODES, EDGES), jaxseq.PaddedBatch(NODES[:1], EDGES)
        ),
        r"tangent.nodes.*\[2, 3, 2\].*got \[1, 3, 2\]",
    ),
}


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused_with_expected_and_actual(name):
    call, message = BAD_INPUT[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_an_empty_list_packs_into_an_empty_batch():
    batch = jaxseq.pack([], EDGES)
    assert jaxseq.batch_log_partition(batch).shape == (0,)
    assert jaxseq.unpack(batch, batch.nodes) == []


def test_a_batch_of_no_rows():
    batch = jaxseq.PaddedBatch(np.zeros((0, 3, 2)), EDGES)
    assert jaxseq.batch_log_partition(batch).shape == (0,)
    assert jaxseq.batch_viterbi(batch)[0].shape == (0, 3)
    for result in (
        jaxseq.batch_marginals(batch),
        jaxseq.batch_entropy_gradient(batch),
        jaxseq.batch_covariance_product(batch, batch),
    ):
        assert result.nodes.shape == (0, 3, 2)
        assert (np.asarray(result.edges) == 0).all()
