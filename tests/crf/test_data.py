"""Where the tokens of a corpus go, and that they come back in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxseq.crf import EncodedLabels, ShardMaker, lay_out, make_shards
from jaxseq.text import TokenFeatures

LENGTHS = st.lists(st.one_of(st.integers(0, 12), st.just(0)), max_size=40)
SHARDS = st.integers(1, 6)
ATTRIBUTES = 1000


def corpus_of(lengths: list[int]):
    """Tokens whose attributes, values, pairs and labels say which token they are."""
    tokens = sum(lengths)
    number = np.arange(tokens, dtype=np.int32)
    features = TokenFeatures(
        ids=np.stack([number, np.full(tokens, -1, np.int32)], 1),
        values=np.stack([number + 0.5, number * 0], 1).astype(np.float32),
        lengths=np.array(lengths, np.int64),
        edge_ids=number[:, None] + 7,
    )
    labels = EncodedLabels(number % 3, (number[:, None] % 3) == np.arange(3))
    return features, labels, np.arange(len(lengths)) + 1.0


@given(LENGTHS, SHARDS)
@example([], 2)
@example([0, 0], 3)
@example([300], 2)  # longer than the usual width
def test_every_token_is_in_one_slot_of_its_own(lengths, shards):
    layout = lay_out(np.array(lengths, np.int64), shards)
    places = set(zip(layout.shard.tolist(), layout.slot.tolist()))
    assert len(places) == len(layout.slot) == sum(lengths)
    assert all(0 <= shard < shards for shard in layout.shard)
    assert all(0 <= slot < layout.rows * layout.width for slot in layout.slot)
    ends = np.cumsum(lengths).tolist()
    for end, length in zip(ends, lengths):
        sentence = slice(end - length, end)
        assert len(set(layout.shard[sentence].tolist())) <= 1
        assert len(set((layout.slot[sentence] // layout.width).tolist())) <= 1
        assert (np.diff(layout.slot[sentence]) == 1).all()


@given(LENGTHS, SHARDS)
@example([], 2)
@example([0, 0], 3)
@example([300, 2], 2)
def test_collecting_restores_the_order(lengths, shards):
    layout = lay_out(np.array(lengths, np.int64), shards)
    number = np.arange(sum(lengths))
    parts = [np.full((layout.rows, layout.width, 2), -1) for _ in range(shards)]
    for token, (shard, slot) in enumerate(zip(layout.shard, layout.slot)):
        parts[shard][slot // layout.width, slot % layout.width] = [token, 10 * token]
    collected = layout.collect(parts)
    np.testing.assert_array_equal(collected, np.stack([number, 10 * number], 1))


@given(LENGTHS, SHARDS)
@example([], 2)
@example([0, 0], 3)
@example([300, 2], 2)
def test_shards_hold_every_token_with_all_that_belongs_to_it(lengths, shards):
    features, labels, weights = corpus_of(lengths)
    layout = lay_out(features.lengths, shards)
    made = make_shards(layout, features, ATTRIBUTES, labels, weights)
    assert len({shard.ids.shape for shard in made}) == 1
    found = {}
    for shard in made:
        slots = np.prod(shard.segments.shape)
        ids, values, pairs = (np.asarray(a) for a in (shard.ids, shard.values, shard.edge_ids))
        segments, gold, weight, first = (
            np.asarray(a).reshape(slots)
            for a in (shard.segments, shard.gold, shard.weights, shard.first)
        )
        allowed = np.asarray(shard.allowed).reshape(slots, 3)
        real = np.flatnonzero(segments >= 0)
        numbered = set(segments[real].tolist())
        assert numbered == set(range(len(numbered)))
        assert len(numbered) <= shard.num_sequences
        assert (ids[:, 1] == ATTRIBUTES).all()
        for slot in set(range(slots)) - set(real.tolist()):
            assert ids[slot, 0] == ATTRIBUTES
            assert gold[slot] == -1
            assert weight[slot] == 0
            assert not first[slot]
        for slot in real.tolist():
            token = int(ids[slot, 0])
            assert token not in found
            found[token] = (
                values[slot, 0], pairs[slot, 0], gold[slot], tuple(allowed[slot]), weight[slot],
                first[slot],
            )  # fmt: skip
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths) if lengths else []
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    assert found == {
        token: (
            token + 0.5, token + 7, token % 3, tuple(np.arange(3) == token % 3),
            sentence[token] + 1, token == starts[token],
        )
        for token in range(sum(lengths))
    }  # fmt: skip


def test_shards_may_be_made_one_by_one():
    features, labels, _ = corpus_of([3, 130, 1, 0, 2])
    layout = lay_out(features.lengths, 2)
    maker = ShardMaker(layout, features, ATTRIBUTES, labels)
    every = make_shards(layout, features, ATTRIBUTES, labels)
    assert maker.num_shards == len(every) == 2
    np.testing.assert_array_equal(maker(1).ids, every[1].ids)
    assert set(np.unique(every[0].weights)) <= {0, 1}


def test_prediction_needs_no_labels():
    features, _, _ = corpus_of([2, 3])
    (shard,) = make_shards(lay_out(features.lengths, 1), features, ATTRIBUTES)
    assert shard.allowed is None
    assert (np.asarray(shard.gold) == -1).all()


def test_rows_that_are_too_narrow_are_refused():
    with pytest.raises(ValueError, match="width: expected at least 9"):
        lay_out(np.array([9, 1]), 1, width=8)
