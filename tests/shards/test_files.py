"""A corpus on disk: its vocabulary, its order, its batches, and files that are not whole."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from jaxseq.shards import StreamedCorpus, write_shards
from jaxseq.shards._files import learn_in_passes
from jaxseq.text import DictExtractor, TemplateExtractor

TEMPLATES = ["word[0]", "word[-1]|word[0]", "word[0]|word[1]|word[2]"]
WORDS = ["a", "b", "c", "dd", "e"]


def corpus_of(sentences: int, seed: int = 0, words=WORDS):
    """Sentences of words, some of one word alone, and labels."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(sentences):
        chosen = rng.integers(len(words), size=rng.integers(1, 7))
        found.append(([words[k] for k in chosen], ["XYZ"[k % 3] for k in chosen]))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two hundred sentences in several shards."""
    place = tmp_path_factory.mktemp("streaming") / "shards"
    return write_shards(lambda: corpus_of(200), place, templates=TEMPLATES, shard_tokens=200)


# ------------------------------------------------------------------------------ vocabulary


def new_extractor(kind: str, cutoff: int):
    if kind == "dicts":
        return DictExtractor(cutoff=cutoff)
    return TemplateExtractor(TEMPLATES, cutoff=cutoff)


@pytest.mark.parametrize("kind", ["templates", "dicts"])
@given(data=st.data())
def test_vocabulary_in_parts_is_that_of_the_whole(kind, data):
    sentence = st.lists(st.sampled_from(WORDS), max_size=4)
    sentences = data.draw(st.lists(sentence, min_size=1, max_size=8))
    cuts = data.draw(st.lists(st.integers(0, len(sentences)), max_size=3).map(sorted))
    if kind == "dicts":
        sentences = [[{"w": word, "size": len(word)} for word in words] for words in sentences]
    cutoff = data.draw(st.sampled_from([1, 2]))
    bounds = [0, *cuts, len(sentences)]
    parts = [sentences[low:high] for low, high in itertools.pairwise(bounds)]
    found = {}
    extractor = learn_in_passes(
        lambda: new_extractor(kind, cutoff),
        lambda: iter(parts),
        lambda number, _, features: found.update({number: features}),
    )
    whole = new_extractor(kind, cutoff)
    features = whole.fit_transform(sentences)
    meta, arrays = whole.state()
    assert extractor.state()[0] == meta
    assert {name: array.tolist() for name, array in extractor.state()[1].items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    rows = [ids[ids >= 0].tolist() for number in sorted(found) for ids in found[number].ids]
    assert rows == [ids[ids >= 0].tolist() for ids in features.ids]


def test_a_corpus_that_changes_while_it_is_read_is_refused():
    reads = iter(range(1000))
    with pytest.raises(ValueError, match="expected the same sentences in every pass"):
        learn_in_passes(
            lambda: TemplateExtractor(["word[0]"]),
            lambda: [[[f"w{next(reads)}"]]],
            lambda *_: None,
        )


# ------------------------------------------------------------------------------------ order


def sentences_of(batch, absent: int) -> list[tuple]:
    """Attributes and labels of every sentence of a batch."""
    segments, gold = np.asarray(batch.segments).ravel(), np.asarray(batch.gold).ravel()
    ids = np.asarray(batch.ids)
    found = []
    for number in range(segments.max() + 1):
        here = np.flatnonzero(segments == number)
        tokens = [tuple(row[row < absent].tolist()) for row in ids[here]]
        found.append((tuple(tokens), tuple(gold[here].tolist())))
    return found


def test_an_epoch_is_the_whole_corpus(folder):
    corpus = StreamedCorpus(folder, batch_size=8, seed=3)
    assert corpus.num_shards > 2
    assert corpus.num_batches > corpus.num_shards
    whole = TemplateExtractor(TEMPLATES)
    features = whole.fit_transform([words for words, _ in corpus_of(200)])
    rows = iter(features.ids.tolist())
    expected = Counter(
        (tuple(tuple(next(rows)) for _ in labels), tuple("XYZ".index(label) for label in labels))
        for _, labels in corpus_of(200)
    )
    for epoch in range(2):
        steps = range(epoch * corpus.num_batches, (epoch + 1) * corpus.num_batches)
        batches = [corpus.batch_at(step) for step in steps]
        assert len({batch.ids.shape for batch in batches}) == 1
        absent = corpus.index.attributes
        found = Counter(each for batch in batches for each in sentences_of(batch, absent))
        assert found == expected


def test_the_order_is_of_seed_and_step_alone(folder):
    one, other = (StreamedCorpus(folder, batch_size=8, seed=seed) for seed in (3, 4))
    steps = range(3 * one.num_batches)
    places = [one.locate(step) for step in steps]
    fresh = StreamedCorpus(folder, batch_size=8, seed=3)
    assert [fresh.locate(step) for step in reversed(steps)] == places[::-1]
    assert [other.locate(step) for step in steps] != places
    epochs = [places[i : i + one.num_batches] for i in range(0, len(places), one.num_batches)]
    orders = [[(place.shard, place.batch) for place in epoch] for epoch in epochs]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert orders[0] != orders[1]


def test_one_shard_is_held_at_a_time_and_read_once_an_epoch(folder):
    corpus = StreamedCorpus(folder, batch_size=8)
    held = []
    for step in range(2 * corpus.num_batches):
        corpus.batch_at(step)
        held.append(corpus._held[0])
    # The last one of an epoch may be the first one of the next.
    assert corpus.loads in (2 * corpus.num_shards - 1, 2 * corpus.num_shards)
    changes = sum(one != two for one, two in itertools.pairwise(held))
    assert changes == corpus.loads - 1
    features, _ = corpus.part(0)
    assert isinstance(features.ids, np.memmap)


def test_bad_arguments(folder):
    with pytest.raises(ValueError, match="batch_size: expected 1 or more, got 0"):
        StreamedCorpus(folder, batch_size=0)
    with pytest.raises(ValueError, match="seed: expected 0 or more, got -1"):
        StreamedCorpus(folder, seed=-1)
    with pytest.raises(ValueError, match="step: expected 0 or more, got -1"):
        StreamedCorpus(folder).locate(-1)


# ------------------------------------------------------------- damaged files, and forged ones


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def shard_files(place):
    return sorted(place.glob("shard-*.safetensors"))


@pytest.mark.parametrize("kept", [0, 5, 40, -1])
def test_a_shard_that_is_cut_off(copy, kept):
    victim = shard_files(copy)[1]
    victim.write_bytes(victim.read_bytes()[:kept])
    with pytest.raises(ValueError, match=f"{victim.name}: expected .* bytes, got .* cut off"):
        StreamedCorpus(copy)


def test_a_shard_that_is_missing(copy):
    victim = shard_files(copy)[2]
    victim.unlink()
    with pytest.raises(ValueError, match=f"{victim.name}: expected a shard .* found none"):
        StreamedCorpus(copy)


def test_a_shard_of_another_vocabulary(copy, tmp_path):
    others = corpus_of(200, words=["p", "q", "r", "s", "t"])
    foreign = write_shards(
        lambda: others, tmp_path / "foreign", templates=TEMPLATES, shard_tokens=200
    )
    victim = shard_files(copy)[0]
    shutil.copy(foreign / victim.name, victim)
    with pytest.raises(ValueError, match=f"{victim.name}: expected a shard of the vocabulary"):
        StreamedCorpus(copy)


def test_a_shard_with_a_byte_changed(copy):
    victim = shard_files(copy)[0]
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    corpus = StreamedCorpus(copy)
    with pytest.raises(ValueError, match=f"{victim.name}: expected the file that index.json"):
        corpus.part(0)


def test_an_index_that_was_changed_and_a_folder_without_one(copy, tmp_path):
    index = copy / "index.json"
    index.write_text(index.read_text().replace('"longest": 6', '"longest": 7'))
    with pytest.raises(ValueError, match=r"index.json: expected the text that its checksum is of"):
        StreamedCorpus(copy)
    index.write_text("{")
    with pytest.raises(ValueError, match=r"index.json: expected jaxseq shards"):
        StreamedCorpus(copy)
    with pytest.raises(ValueError, match=r"index.json: expected the index .* there is none"):
        StreamedCorpus(tmp_path / "nowhere")


def test_a_vocabulary_that_was_changed(copy):
    where = copy / "vocabulary.safetensors"
    data = bytearray(where.read_bytes())
    data[-1] ^= 1
    where.write_bytes(data)
    with pytest.raises(ValueError, match=r"vocabulary.safetensors: expected the file that"):
        StreamedCorpus(copy).extractor()


def forge(place, name="shard-00001.safetensors", change=None, **fields):
    """Another array in a shard, or other fields of the index, with checksums that fit."""
    where = place / "index.json"
    body = json.loads(where.read_text())
    entry = next(shard for shard in body["shards"] if shard["file"] == name)
    if change is not None:
        arrays = load_file(place / name)
        change(arrays)
        data = save(arrays, {"vocabulary": body["vocabulary"]})
        (place / name).write_bytes(data)
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    of_shard = {"file", "sentences", "tokens", "rows"} & set(fields)
    entry |= {field: fields.pop(field) for field in of_shard}
    body |= fields
    del body["checksum"]
    checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    where.write_text(json.dumps({**body, "checksum": checksum}))


def put(name, value):
    """Write a number into an array of a shard."""

    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = value

    return change


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (put("ids", 10**6), "ids: expected numbers from -1 to "),
        (put("ids", -2), "ids: expected numbers from -1 to .*, got -2"),
        (put("gold", 3), "gold: expected numbers from -1 to 2, got 0 … 3"),
        (put("gold", -1), "gold: expected all labels to be known"),
        (put("lengths", -1), "lengths: expected numbers from 0 to 6"),
        (put("lengths", 7), "lengths: expected numbers from 0 to 6"),
        (lambda arrays: arrays.pop("gold"), "gold: expected an array of shape"),
        (lambda arrays: arrays.update(gold=arrays["gold"][1:]), "gold: expected an array of sh"),
        (lambda arrays: arrays.update(ids=np.tile(arrays["ids"], 2)), "ids: expected at most 3"),
        (lambda arrays: arrays.update(ids=arrays["ids"][:, 0]), "ids: expected at most 3"),
        (
            lambda arrays: arrays.update(values=np.full(arrays["ids"].shape, np.nan, np.float32)),
            "values: expected finite numbers",
        ),
        (
            lambda arrays: arrays.update(edge_ids=np.full((len(arrays["gold"]), 1), 5, np.int32)),
            "edge_ids: expected numbers from -1 to -1, got 5",
        ),
    ],
)
def test_a_forged_shard(copy, change, wrong):
    forge(copy, change=change)
    corpus = StreamedCorpus(copy)
    corpus.part(0)
    with pytest.raises(ValueError, match=f"shard-00001.safetensors: {wrong}"):
        corpus.part(1)


@pytest.mark.parametrize(
    "fields",
    [
        {"width": 10**12},
        {"longest": 10**12, "width": 10**12},
        {"columns": 10**9},
        {"attributes": -1},
        {"attributes": "many"},
        {"attributes": True},
        {"classes": ["X", "X", "Y"]},
        {"classes": [1, 2, 3]},
        {"classes": 3},
        {"vocabulary": 3},
        {"shards": []},
        {"file": "../shard-00001.safetensors"},
        {"rows": 10**9},
        {"tokens": 0.5},
    ],
    ids=str,
)
def test_a_forged_index(copy, fields):
    forge(copy, **fields)
    with pytest.raises(ValueError, match=r"index.json: expected an index of shards, got"):
        StreamedCorpus(copy)


@pytest.mark.parametrize("fields", [{"rows": 1}, {"sentences": 3}, {"tokens": 2}], ids=str)
def test_an_index_whose_counts_are_not_those_of_a_shard(copy, fields):
    forge(copy, **fields)
    with pytest.raises(ValueError, match=r"shard-00001.safetensors: \w+: expected"):
        StreamedCorpus(copy).part(1)


def test_an_index_with_another_number_of_attributes(copy):
    index = StreamedCorpus(copy).index
    forge(copy, attributes=index.attributes + 1)
    with pytest.raises(ValueError, match=rf"\({index.attributes + 1}, 0\) attributes, got"):
        StreamedCorpus(copy).extractor()


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{", b'{"__metadata__": []}', b'{"__metadata__": 3}', b"[" * 9999, b"\xff"],
)
def test_a_forged_header(copy, header):
    victim = copy / "shard-00001.safetensors"
    data = len(header).to_bytes(8, "little") + header
    victim.write_bytes(data.ljust(victim.stat().st_size, b"\0"))
    with pytest.raises(ValueError, match=r"shard-00001.safetensors: expected"):
        StreamedCorpus(copy).part(1)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "I32", "shape": [1], "data_offsets": [0, 1 << 70]},
        {"dtype": "I32", "shape": [-1, -1], "data_offsets": [0, 4]},
        {"dtype": "I32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "I32", "shape": [0, 1 << 80], "data_offsets": [0, 0]},
        {"dtype": ["I32"], "shape": 1, "data_offsets": None},
        3,
    ],
    ids=str,
)
def test_a_forged_entry_of_a_header(copy, entry):
    victim = copy / "shard-00001.safetensors"
    vocabulary = StreamedCorpus(copy).index.vocabulary
    header = json.dumps({"__metadata__": {"vocabulary": vocabulary}, "ids": entry}).encode()
    data = len(header).to_bytes(8, "little") + header
    victim.write_bytes(data.ljust(victim.stat().st_size, b"\0"))
    with pytest.raises(ValueError, match=r"shard-00001.safetensors: expected safetensors"):
        StreamedCorpus(copy).part(1)
