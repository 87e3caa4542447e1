"""Training from shards: the same model as in memory, bounded memory, exact resuming."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

from jaxseq.crf import (
    CRFTagger,
    EncodedLabels,
    Plan,
    Problem,
    ShardMaker,
    entropy_regularised_gradient,
    lay_out,
    make_spread,
)
from jaxseq.parallel import Devices
from jaxseq.shards import StreamedCorpus, train_from_shards, write_shards
from jaxseq.shards._training import spread_over_shards
from jaxseq.text import TemplateExtractor, TokenFeatures

TEMPLATES = ["word[0]", "word[-1]"]
LABELS = ["X", "Y", "Z"]
WORDS = ["a", "b", "c", "d", "e", "f", "g"]


def corpus_of(sentences: int = 120):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(sentences):
        chosen = rng.integers(len(WORDS), size=rng.integers(1, 6))
        noisy = np.where(rng.random(len(chosen)) < 0.2, rng.integers(3, size=len(chosen)), chosen)
        found.append(([WORDS[k] for k in chosen], [LABELS[k % 3] for k in noisy]))
    return found


CORPUS = corpus_of()


def tagger_of(**changes) -> CRFTagger:
    settings = {"algorithm": "adamw", "epochs": 3, "batch_size": 4, "seed": 5, "l2": 0.7}
    settings |= {"dtype": "float64", "progress": False, "learning_rate": 0.05}
    return CRFTagger(**(settings | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("streaming") / "shards"
    return write_shards(lambda: CORPUS, place, templates=TEMPLATES, shard_tokens=150)


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory):
    place = tmp_path_factory.mktemp("streaming") / "one"
    return write_shards(lambda: CORPUS, place, templates=TEMPLATES)


def arrays_of(tagger) -> list[np.ndarray]:
    model = tagger.model_
    return [np.asarray(a) for a in (model.weights, model.transitions, model.start, model.stop)]


def bits_of(tagger) -> list[bytes]:
    return [array.tobytes() for array in arrays_of(tagger)]


# ------------------------------------------------------------------ the same as in memory


def test_one_batch_an_epoch_is_ordinary_training(one_shard):
    """Where there is only one order, nothing is left that could differ."""
    options = {"algorithm": "sgd", "batch_size": 1000, "epochs": 8, "l1": 0.3}
    streamed = train_from_shards(one_shard, tagger_of(**options))
    usual = tagger_of(**options, templates=TEMPLATES).fit(*map(list, zip(*CORPUS)))
    assert streamed.classes_.tolist() == usual.classes_.tolist()
    assert streamed.extractor_.attribute_names() == usual.extractor_.attribute_names()
    assert np.abs(arrays_of(usual)[0]).max() > 0.01
    for found, expected in zip(arrays_of(streamed), arrays_of(usual)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert streamed.loss_ == pytest.approx(usual.loss_, abs=1e-6)


def in_memory_parts(tokens: int):
    """The whole corpus in memory, cut where shards of so many tokens are."""
    extractor = TemplateExtractor(TEMPLATES)
    features = extractor.fit_transform([words for words, _ in CORPUS])
    gold = np.array([LABELS.index(x) for _, labels in CORPUS for x in labels], np.int32)
    problem = Problem(
        features, EncodedLabels(gold, None), LABELS, extractor.attribute_count, 0, True, None, None
    )
    parts, first, start, size = [], 0, 0, 0
    for number, length in enumerate(features.lengths.tolist(), 1):
        size += length
        if size >= tokens or number == len(features.lengths):
            here = slice(start, start + size)
            lengths = features.lengths[first:number]
            part = TokenFeatures(features.ids[here], None, lengths, None)
            parts.append((part, EncodedLabels(gold[here], None)))
            first, start, size = number, start + size, 0
    return parts, problem


# Where a gradient is nearly 0, AdamW divides rounding errors by it.
TOLERANCES = [("sgd", 1e-12), ("adamw", 1e-9)]


def optimiser_of(algorithm: str, steps: int):
    schedule, decay = optax.cosine_decay_schedule(0.05, steps), 0.7 / len(CORPUS)
    if algorithm == "adamw":
        return optax.adamw(schedule, weight_decay=decay)
    return optax.chain(optax.add_decayed_weights(decay), optax.sgd(schedule, momentum=0.9))


@pytest.mark.parametrize(("algorithm", "tolerance"), TOLERANCES)
def test_streamed_training_is_in_memory_training_in_the_same_order(folder, algorithm, tolerance):
    """By hand: the published order, optax, and the gradient of each batch."""
    streamed = train_from_shards(folder, tagger_of(algorithm=algorithm))
    parts, problem = in_memory_parts(150)
    spread = make_spread(problem, "mixed")
    rows = [lay_out(features.lengths, 1, width=128).rows for features, _ in parts]
    of_batch = max(1, round(sum(rows) * 4 / len(CORPUS)))
    counts = [-(-count // of_batch) for count in rows]
    total = sum(counts)
    optimiser = optimiser_of(algorithm, 3 * total)
    point = spread.zeros(0, np.float64)
    memory = optimiser.init(point)
    gradient = jax.jit(
        lambda point, shard: entropy_regularised_gradient(point, [shard], [], spread)
    )
    for epoch in range(3):
        for number in np.random.default_rng([5, epoch]).permutation(len(parts)).tolist():
            features, labels = parts[number]
            layout = lay_out(features.lengths, counts[number], width=128)
            maker = ShardMaker(layout, features, problem.attributes, labels)
            order = np.random.default_rng([5, epoch, number]).permutation(counts[number])
            for batch in order.tolist():
                slope = gradient(point, maker(batch))[1]
                slope = jax.tree.map(lambda g: g * total / len(CORPUS), slope)
                updates, memory = optimiser.update(slope, memory, point)
                point = optax.apply_updates(point, updates)
    expected = spread.model(point)
    assert streamed.n_iter_ == 3 * total
    assert len(parts) > 2
    assert total > len(parts)
    for found, array in zip(arrays_of(streamed), (expected.weights, expected.transitions)):
        np.testing.assert_allclose(found, np.asarray(array), rtol=0, atol=tolerance)


@pytest.mark.parametrize("weights", ["mixed", "observed", "dense", "tied"])
@pytest.mark.parametrize("frequent", [2, 10])
def test_weights_that_are_learnt_are_those_of_the_whole(folder, weights, frequent, monkeypatch):
    monkeypatch.setattr("jaxseq.crf._parameters.DENSE_FROM", frequent)
    corpus = StreamedCorpus(folder)
    plan = Plan.from_tagger(tagger_of(weights=weights))
    found = spread_over_shards(corpus, plan, True, None, Devices.alone())
    expected = make_spread(in_memory_parts(150)[1], weights)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_dicts_with_values_and_partial_labels(tmp_path):
    corpus = [
        ([{"w": word, "size": len(word) / 4} for word in words], [*labels[:-1], None])
        if place % 3 == 0
        else ([{"w": word} for word in words], labels)
        for place, (words, labels) in enumerate(CORPUS)
    ]
    folder = write_shards(lambda: corpus, tmp_path / "s", shard_tokens=1000)
    options = {"batch_size": 1000, "epochs": 4}
    streamed = train_from_shards(folder, tagger_of(**options))
    usual = tagger_of(**options).fit(*map(list, zip(*corpus)))
    for found, expected in zip(arrays_of(streamed), arrays_of(usual)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    several = write_shards(lambda: corpus, tmp_path / "t", shard_tokens=5)
    assert train_from_shards(several, tagger_of()).n_iter_ > 20


# --------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize(("algorithm", "stops"), [("adamw", [4, 9]), ("sgd", [1])])
def test_training_that_was_stopped_ends_with_the_same_bits(folder, tmp_path, algorithm, stops):
    whole = train_from_shards(folder, tagger_of(algorithm=algorithm, l1=0.1))
    kept = tmp_path / "kept"
    for stop in stops:
        part = tagger_of(algorithm=algorithm, l1=0.1, checkpoint=kept)
        part = train_from_shards(folder, part, stop_after=stop)
        assert (part.n_iter_, kept.exists()) == (stop, True)
        assert bits_of(part) != bits_of(whole)
    last = train_from_shards(folder, tagger_of(algorithm=algorithm, l1=0.1, checkpoint=kept))
    assert bits_of(last) == bits_of(whole)
    assert last.loss_ == whole.loss_
    last.save(tmp_path / "model")
    assert not kept.exists()


def test_a_process_that_died_goes_on_from_the_last_step_kept(folder, tmp_path, monkeypatch):
    whole = train_from_shards(folder, tagger_of())
    kept = tmp_path / "kept"
    true, calls = StreamedCorpus.batch_at, []

    def dying(corpus, step):
        calls.append(step)
        if step == 7:
            raise MemoryError
        return true(corpus, step)

    monkeypatch.setattr(StreamedCorpus, "batch_at", dying)
    with pytest.raises(MemoryError):
        train_from_shards(folder, tagger_of(checkpoint=kept, checkpoint_every=3))
    seen = []
    monkeypatch.setattr(
        StreamedCorpus, "batch_at", lambda corpus, step: (seen.append(step), true(corpus, step))[1]
    )
    last = train_from_shards(folder, tagger_of(checkpoint=kept, checkpoint_every=3))
    assert seen[0] == 6
    assert bits_of(last) == bits_of(whole)


def test_the_checkpoint_of_another_training_is_refused(folder, tmp_path):
    kept = tmp_path / "kept"
    train_from_shards(folder, tagger_of(checkpoint=kept), stop_after=2)
    with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
        train_from_shards(folder, tagger_of(checkpoint=kept, seed=6))


# --------------------------------------------------------------------------------- refusals


def test_what_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="algorithm: expected adamw or sgd"):
        train_from_shards(folder, CRFTagger())
    with pytest.raises(ValueError, match="stop_after: expected 1 or more, got 0"):
        train_from_shards(folder, tagger_of(), stop_after=0)
    with pytest.raises(ValueError, match="expected nothing there, or an empty folder"):
        write_shards(lambda: CORPUS, folder, templates=TEMPLATES)
    with pytest.raises(ValueError, match="shard_tokens: expected 1 or more, got 0"):
        write_shards(lambda: CORPUS, tmp_path / "s", shard_tokens=0)
    with pytest.raises(ValueError, match="expected at least one sentence, got none"):
        write_shards(lambda: [], tmp_path / "s", templates=TEMPLATES)
    with pytest.raises(ValueError, match="expected at least one token with a label, got none"):
        write_shards(lambda: [(["a"], [None])], tmp_path / "s", templates=TEMPLATES)
    assert not list(tmp_path.iterdir())


def test_a_corpus_that_cannot_be_read_to_its_end_leaves_nothing(tmp_path):
    def broken():
        yield from CORPUS
        raise ValueError("corpus.txt:99: expected two columns")

    with pytest.raises(ValueError, match=r"corpus.txt:99"):
        write_shards(broken, tmp_path / "s", templates=TEMPLATES, shard_tokens=10)
    assert not list(tmp_path.iterdir())
