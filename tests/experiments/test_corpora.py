"""The embedded corpora: the same bytes everywhere, and what their columns may hold."""

from __future__ import annotations

import doctest
import hashlib
import importlib
import pkgutil
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import corpora
from experiments.corpora._stream import Stream, Weighted
from jaxseq.text import Sentence, legal_transitions

GENERATORS = {
    "citations": corpora.citations,
    "ads": corpora.ads,
    "gene_mentions": corpora.gene_mentions,
    "chunks": corpora.chunks,
}
COLUMNS = {
    "citations": ("word", "label"),
    "ads": ("word", "label"),
    "gene_mentions": ("word", "pos", "label"),
    "chunks": ("word", "pos", "label"),
}
LABELS = {
    "citations": "author booktitle date editor institution journal location note pages publisher "
    "tech title volume",
    "ads": "ADDRESS AVAILABLE CONTACT FEATURES NEIGHBORHOOD PHOTOS RENT RESTRICTIONS ROOMATES "
    "SIZE UTILITIES",
    "gene_mentions": "B-GENE I-GENE O",
    "chunks": "B-ADJP B-ADVP B-CONJP B-NP B-PP B-PRT B-SBAR B-VP I-ADJP I-ADVP I-CONJP I-NP I-PP "
    "I-VP O",
}
# Of the first 20 sentences of seed 0. A change here is a change of every result on these corpora.
SHA256 = {
    "citations": "ec327fbd6c6f5ac35f549df1fd68a2bea022c4b58a6b10211a8d4136fe454bd0",
    "ads": "2955b5c1c166a78be9f0855eb813f3bdd09ab7c69de1967685f69589b1f86a3a",
    "gene_mentions": "8c784259f88b0ed99cb05b3238793cf27bf034f4b103662cbdcfaf450ccc4e3c",
    "chunks": "8757782d70d37209ef5a67bab4d8badfb444a22d2c20bd741789eebbe999dfcc",
}

NAMES = sorted(GENERATORS)
seeds = st.integers(0, 2**64 - 1)


def _bytes(sentences: list[Sentence]) -> bytes:
    """One line a token, its cells between tabs, and an empty line after each sentence."""
    lines = []
    for sentence in sentences:
        lines += ["\t".join(cells) for cells in zip(*(sentence[c] for c in sentence.columns))]
        lines.append("")
    return "\n".join(lines).encode()


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_pinned(name):
    assert hashlib.sha256(_bytes(GENERATORS[name](20))).hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, count=st.integers(0, 12), more=st.integers(0, 5))
def test_a_longer_corpus_begins_with_the_shorter(name, seed, count, more):
    longer = GENERATORS[name](count + more, seed)
    assert len(longer) == count + more
    assert longer[:count] == GENERATORS[name](count, seed)


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
def test_every_sentence_is_well_formed(name, seed):
    for sentence in GENERATORS[name](10, seed):
        assert sentence.columns == COLUMNS[name]
        assert len(sentence) > 0
        assert set(sentence["label"]) <= set(LABELS[name].split())
        for column in sentence.columns:
            assert all(cell.isascii() and cell.split() == [cell] for cell in sentence[column])


@pytest.mark.parametrize("name", NAMES)
def test_every_label_occurs(name):
    found = {label for sentence in GENERATORS[name](1500, 5) for label in sentence["label"]}
    assert found == set(LABELS[name].split())


def test_listed_labels():
    assert list(corpora.CITATION_LABELS) == LABELS["citations"].split()
    assert list(corpora.AD_LABELS) == LABELS["ads"].split()


@pytest.mark.parametrize("name", NAMES)
def test_other_seeds_give_other_sentences(name):
    texts = [sentence["word"] for seed in range(4) for sentence in GENERATORS[name](50, seed)]
    assert len(set(texts)) >= 199


@pytest.mark.parametrize("name", ["gene_mentions", "chunks"])
def test_tags_are_legal_iob2(name):
    tags = LABELS[name].split()
    legal = legal_transitions(tags, "IOB2")
    index = {tag: at for at, tag in enumerate(tags)}
    for sentence in GENERATORS[name](400, 3):
        path = [index[label] for label in sentence["label"]]
        assert legal.start[path[0]]
        assert all(legal.allowed[before, after] for before, after in pairwise(path))


def test_unlabelled_citations_are_the_labelled_ones_without_labels():
    labelled = corpora.citations(30, 8)
    assert corpora.citations(30, 8, labelled=False) == [s.without("label") for s in labelled]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [-1, 1.0, "3", None, True])
def test_count_that_is_none(name, count):
    with pytest.raises(ValueError, match=r"count: expected an integer of 0 or more, got"):
        GENERATORS[name](count)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [-1, 2**64, 0.0, "0", None, False])
def test_seed_that_is_none(name, seed):
    with pytest.raises(ValueError, match=r"seed: expected an integer from 0 to 2\*\*64 - 1, got"):
        GENERATORS[name](1, seed)


@pytest.mark.parametrize("name", NAMES)
def test_integers_of_numpy_count_too(name):
    assert GENERATORS[name](np.int64(2), np.uint64(9)) == GENERATORS[name](2, 9)


@pytest.mark.parametrize(
    "module", [module.name for module in pkgutil.iter_modules(corpora.__path__)]
)
def test_examples(module):
    loaded = importlib.import_module(f"experiments.corpora.{module}")
    assert doctest.testmod(loaded).failed == 0


# ------------------------------------------------------------------------------ the stream


def test_stream_is_splitmix64():
    """The first outputs from 1234567, as published for the C program of Vigna."""
    stream = Stream(1234567)
    assert [stream.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(key=st.lists(seeds, min_size=1, max_size=4), at=st.integers(0, 3), bit=st.integers(0, 63))
def test_every_bit_of_a_key_matters(key, at, bit):
    at %= len(key)
    other = [*key[:at], key[at] ^ (1 << bit), *key[at + 1 :]]
    assert Stream.keyed(*key).next() != Stream.keyed(*other).next()


@given(state=seeds, low=st.integers(-9, 9), width=st.integers(0, 9))
def test_between_stays_between(state, low, width):
    stream = Stream(state)
    assert {stream.between(low, low + width) for _ in range(200)} == set(
        range(low, low + width + 1)
    )


def test_ranks_follow_zipf():
    """Within an octave ranks are equally likely; every octave is as likely as the others."""
    stream = Stream(3)
    ranks = Counter(stream.rank(5) for _ in range(31_000))
    assert set(ranks) == set(range(31))
    for octave in range(5):
        expected = 31_000 / 5 / 2**octave
        for rank in range(2**octave - 1, 2 ** (octave + 1) - 1):
            assert abs(ranks[rank] - expected) < 5 * expected**0.5


def test_weights_are_proportions():
    stream, table = Stream(4), Weighted(("a", 1), ("never", 0), ("b", 3))
    drawn = Counter(table.draw(stream) for _ in range(8000))
    assert set(drawn) == {"a", "b"}
    assert abs(drawn["a"] - 2000) < 200


@given(state=seeds, items=st.lists(st.integers(), max_size=8))
def test_shuffling_keeps_the_items(state, items):
    assert sorted(Stream(state).shuffled(items)) == sorted(items)
