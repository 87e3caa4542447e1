"""Batches of several streams, and the rows of them that each of several places takes."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pytest

from jaxseq.shards import StreamedCorpus, write_shards
from tests.shards.test_files import sentences_of as numbered_sentences_of

SIZES = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (3, 2), (3, 8), (5, 5)]
"""Streams and places."""


def draw_corpus():
    """Sentences so long that few are in a row, no two alike."""
    rng, found = np.random.default_rng(8), []
    for _ in range(50):
        words = rng.integers(20, size=rng.integers(20, 70))
        found.append(([f"w{word}" for word in words], ["XYZ"[word % 3] for word in words]))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("streams") / "shards"
    return write_shards(draw_corpus, place, templates=["word[0]"], shard_tokens=450)


def corpus_of(folder, streams, places=1, own=None):
    own = range(places) if own is None else own
    given = {"batch_size": 9, "seed": 2}
    return StreamedCorpus(folder, **given, streams=streams, places=places, own=own)


def sentences_of(batch, corpus):
    """Attributes and labels of each; streams leave gaps in the numbers of sentences."""
    return [each for each in numbered_sentences_of(batch, corpus.index.attributes) if each[0]]


def sentences_at(corpus, step, places):
    """Those of all places, and the shapes of what they have."""
    parts = [corpus.batch_at(step, place) for place in range(places)]
    found = Counter(each for part in parts for each in sentences_of(part, corpus))
    return found, {(part.ids.shape, part.segments.shape, part.num_sequences) for part in parts}


@pytest.mark.parametrize(("streams", "places"), SIZES)
def test_a_batch_does_not_depend_on_how_many_places_there_are(folder, streams, places):
    one, many = corpus_of(folder, streams), corpus_of(folder, streams, places)
    assert one.num_batches == many.num_batches > 2
    shapes, seen = set(), Counter()
    for step in reversed(range(one.num_batches)):
        whole, _ = sentences_at(one, step, 1)
        dealt, shape = sentences_at(many, step, places)
        assert dealt == whole
        shapes |= shape
        seen += whole
    assert len(shapes) == 1
    assert sum(seen.values()) == len(seen) == one.sentences  # each once an epoch


def test_rows_are_shared_out_evenly(folder):
    corpus = corpus_of(folder, 1, 2)
    for step in range(corpus.num_batches):
        rows = [
            int((np.asarray(corpus.batch_at(step, place).segments) >= 0).any(1).sum())
            for place in range(2)
        ]
        assert abs(rows[0] - rows[1]) <= 1
        assert sum(rows) > 1


def test_every_stream_is_in_most_batches(folder):
    """One with fewer batches waits at times, and not at the end of the epoch alone."""
    corpus = corpus_of(folder, 2)
    steps = range(corpus.num_batches)
    idle = [[corpus.locate(step, stream).batch is None for step in steps] for stream in range(2)]
    assert not any(idle[0])
    assert 0 < sum(idle[1]) < len(steps) / 2
    assert not all(idle[1][-2:])


@pytest.mark.parametrize("streams", [1, 2, 3, 5])
def test_steps_at_which_a_shard_begins(folder, streams):
    corpus = corpus_of(folder, streams)
    for step in range(2 * corpus.num_batches):
        now, before = (
            [corpus.locate(at, stream).shard for stream in range(streams)]
            for at in (step, max(step - 1, 0))
        )
        first = step % corpus.num_batches == 0
        assert corpus.begins_shard(step) == (first or now != before)


def test_shards_of_other_places_are_not_needed(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    whole = corpus_of(folder, 2, 2)
    for number in range(0, whole.num_shards, 2):
        (copy / whole.index.shards[number].file).unlink()
    second = corpus_of(copy, 2, 2, own=[1])
    assert second.own_shards == list(range(1, whole.num_shards, 2))
    for step in range(whole.num_batches):
        second.open(step)
        found, expected = (sentences_of(c.batch_at(step, 1), c) for c in (second, whole))
        assert found == expected
    assert second.loads == len(second.own_shards)  # once an epoch
    for place in ({"own": [0]}, {}):
        with pytest.raises(ValueError, match=r"00000\.safetensors: expected a shard of the corpus"):
            corpus_of(copy, 2, 2, **place)


@pytest.mark.parametrize("streams", [0, 99])
def test_streams_without_shards_are_refused(folder, streams):
    with pytest.raises(ValueError, match=r"streams: expected 1 … \d, the number of shards in"):
        corpus_of(folder, streams)
