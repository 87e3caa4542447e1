"""Features of some sentences, and of several corpora together."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import TokenFeatures


@st.composite
def features(draw, values=None, edges=None):
    """A corpus with sentences of 0 to 3 tokens; values and edges: True, False, or either."""
    lengths = np.array(draw(st.lists(st.integers(0, 3), max_size=5)), np.int64)
    tokens, width, edge_width = int(lengths.sum()), draw(st.integers(0, 3)), draw(st.integers(0, 2))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    ids = random.integers(-1, 9, (tokens, width)).astype(np.int32)
    sizes = random.random((tokens, width)).astype(np.float32)
    edge_ids = random.integers(-1, 9, (tokens, edge_width)).astype(np.int32)
    valued = draw(st.booleans()) if values is None else values
    paired = draw(st.booleans()) if edges is None else edges
    return TokenFeatures(ids, sizes if valued else None, lengths, edge_ids if paired else None)


def _rows(corpus):
    """Of each sentence a list of its tokens: attributes with their values, and pairs."""
    sentences, row = [], 0
    for length in corpus.lengths.tolist():
        tokens = []
        for token in range(row, row + length):
            ids = corpus.ids[token].tolist()
            sizes = [1.0] * len(ids) if corpus.values is None else corpus.values[token].tolist()
            pairs = [] if corpus.edge_ids is None else corpus.edge_ids[token].tolist()
            present = [(i, size) for i, size in zip(ids, sizes) if i >= 0]
            tokens.append((present, [i for i in pairs if i >= 0]))
        sentences.append(tokens)
        row += length
    return sentences


def _equal(one, two):
    for name in ("ids", "values", "lengths", "edge_ids"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b, err_msg=name)


@given(features(), st.data())
def test_take_gives_the_sentences_asked_for(corpus, data):
    count = len(corpus.lengths)
    numbers = data.draw(st.lists(st.integers(0, count - 1), max_size=6)) if count else []
    taken, rows = corpus.take(numbers), _rows(corpus)
    assert _rows(taken) == [rows[number] for number in numbers]
    assert taken.ids.shape[1] == corpus.ids.shape[1]
    assert (taken.values is None) == (corpus.values is None)
    assert (taken.edge_ids is None) == (corpus.edge_ids is None)
    mask = np.isin(np.arange(count), numbers)
    _equal(corpus.take(mask), corpus.take(sorted(set(numbers))))


@given(features(), st.data())
def test_take_of_a_slice_is_take_of_its_numbers(corpus, data):
    chosen = data.draw(st.slices(len(corpus.lengths)))
    taken = corpus.take(chosen)
    _equal(taken, corpus.take(np.arange(len(corpus.lengths))[chosen]))
    if chosen.step in (None, 1) and len(taken.ids) and taken.ids.size:
        assert np.shares_memory(taken.ids, corpus.ids)


@given(features(), st.data())
def test_concatenate_undoes_taking_apart(corpus, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(corpus.lengths)), max_size=3)))
    bounds = [0, *cuts, len(corpus.lengths)]
    parts = [corpus.take(slice(*pair)) for pair in itertools.pairwise(bounds)]
    _equal(TokenFeatures.concatenate(parts), corpus)


@given(st.lists(features(), min_size=1, max_size=4))
def test_take_finds_each_part_in_the_concatenation(parts):
    whole, first = TokenFeatures.concatenate(parts), 0
    assert (whole.values is None) == all(part.values is None for part in parts)
    assert (whole.edge_ids is None) == all(part.edge_ids is None for part in parts)
    for part in parts:
        last = first + len(part.lengths)
        assert _rows(whole.take(np.arange(first, last))) == _rows(part)
        first = last
    assert first == len(whole.lengths)


def test_concatenate_fills_up_what_a_part_lacks():
    one = TokenFeatures(np.array([[3, -1]], np.int32), None, np.array([1]), None)
    two = TokenFeatures(
        np.array([[4]], np.int32),
        np.array([[0.5]], np.float32),
        np.array([0, 1]),
        np.array([[7]], np.int32),
    )
    both = TokenFeatures.concatenate([one, two])
    assert both.ids.tolist() == [[3, -1], [4, -1]]
    assert both.values is not None
    assert both.values.tolist() == [[1, 0], [0.5, 0]]
    assert both.lengths.tolist() == [1, 0, 1]
    assert both.edge_ids is not None
    assert both.edge_ids.tolist() == [[-1], [7]]


def test_wrong_arguments():
    with pytest.raises(ValueError, match="parts: expected at least one, got none"):
        TokenFeatures.concatenate([])
    corpus = TokenFeatures(np.array([[3]], np.int32), None, np.array([1]), None)
    with pytest.raises(IndexError, match="out of bounds"):
        corpus.take([1])
