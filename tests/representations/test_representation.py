"""Representations: what words they know, the disk, and taggers that use them."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import jaxseq
from jaxseq.representations import (
    Representation,
    learn_representation,
    load_representation,
    representation_from_vectors,
)
from jaxseq.text import TemplateExtractor, read_corpus
from tests.representations.test_clusters import animals


@pytest.fixture(scope="module")
def learnt():
    text = animals(80) + [[f"{first}ville", "sleeps"] for first in "ABCDEFGHIJKLMNOPQRST"]
    return learn_representation(
        text, kinds=("clusters", "brown", "states"), sizes=(3, 6), brown_classes=5, num_states=4,
        state_iterations=3,
    )  # fmt: skip


def labelled() -> tuple[list[list[str]], list[list[str]]]:
    return animals(4, seed=3), [["D", "N", "V"]] * 4


# ------------------------------------------------------------------------------------- words


def test_unknown_words_are_taken_for_the_rare_ones_that_are_spelled_like_them(learnt):
    assert learnt.cluster("Zville", 6) == learnt.cluster("Bville", 6) is not None
    assert learnt.brown_path("Zville", 9) == learnt.brown_path("Bville", 9) is not None
    # Of a shape that no rare word has: the class of all rare words.
    assert learnt.cluster("§§", 6) is not None
    assert learnt.coverage(["dog", "§§", "Bville", "THE"]) == 0.5


def test_a_word_of_no_class_has_no_feature():
    words = learn_representation(animals(), kinds=("clusters", "brown", "states"), sizes=(3,),
                                 brown_classes=3, num_states=3, state_iterations=0)  # fmt: skip
    assert len(words.lexicon.classes) == 0
    assert words.cluster("zebra", 3) is None
    assert words.brown_path("zebra", 3) is None
    columns, lengths = read_corpus([["zebra"], [], ["the", "zebra", "barks"]], ["word"])
    states = words.states(columns["word"], lengths)
    # Its neighbours say what an unknown word is.
    names = [states.strings[code] for code in states.codes.tolist()]
    columns, lengths = read_corpus([["the", "dog", "barks"]], ["word"])
    known = words.states(columns["word"], lengths)
    assert names[1:] == [known.strings[code] for code in known.codes.tolist()]


def test_states_are_those_of_each_sentence_alone(learnt):
    text = [*animals(9, seed=5), ["dog"], [], ["my", "cow", "eats", "the", "hen", "Zville"]]
    columns, lengths = read_corpus(text, ["word"])
    together = learnt.states(columns["word"], lengths).codes.tolist()
    alone = []
    for sentence in text:
        columns, lengths = read_corpus([sentence], ["word"])
        alone += learnt.states(columns["word"], lengths).codes.tolist()
    assert together == alone


def test_a_posterior_of_states_is_that_of_enumeration(learnt):
    model = learnt.state_model
    rows = learnt.lexicon.rows(["the", "dog", "barks"])
    scores = np.log(model.emission[rows].astype(float))
    paths = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3)
    log_p = np.log(model.initial[paths[:, 0]]) + scores[np.arange(3), paths].sum(1)
    log_p += np.log(model.transition[paths[:, :-1], paths[:, 1:]]).sum(1)
    posterior = np.stack([
        np.bincount(paths[:, place], np.exp(log_p), minlength=4) for place in range(3)
    ])  # fmt: skip
    found = model.states(rows, np.array([3]))
    assert found.tolist() == posterior.argmax(1).tolist()


def test_one_word_and_nothing_to_learn_from():
    one = learn_representation([["a", "a"]], kinds=("clusters", "brown", "states"), sizes=(5,))
    assert one.cluster("A", 5) == "0"
    assert one.brown_path("a", 6) == ""
    with pytest.raises(ValueError, match="sentences: expected at least one with a token, got none"):
        learn_representation([[], []])
    with pytest.raises(ValueError, match="expected a word that occurs 2 times"):
        learn_representation([["a", "b"]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ("clusters", "magic")}, "kinds: expected some of clusters, brown, states"),
        ({"kinds": ()}, "kinds: expected some of"),
        ({"sizes": (3, 3)}, "sizes: expected one or more different numbers"),
        ({"sizes": ()}, "sizes: expected one or more different numbers"),
        ({"sizes": (0,)}, "sizes: expected whole numbers from 1 on, got 0"),
        ({"sizes": (2.5,)}, "sizes: expected whole numbers from 1 on, got 2.5"),
        ({"offsets": (0,)}, "offsets: expected whole numbers other than 0, got 0"),
        ({"dimensions": 0}, "dimensions: expected whole numbers from 1 on, got 0"),
        ({"seed": -1}, "seed: expected whole numbers from 0 on, got -1"),
        ({"min_count": True}, "min_count: expected whole numbers from 1 on, got True"),
        ({"column": 3}, "column: expected the name of one"),
    ],
)
def test_settings_that_make_no_sense(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        learn_representation(animals(), **options)


# -------------------------------------------------------------------------------------- disk


def test_what_is_loaded_is_what_was_saved(learnt, tmp_path):
    learnt.save(tmp_path / "words")
    again = load_representation(tmp_path / "words")
    assert again.digest == learnt.digest
    assert repr(again) == repr(learnt)
    learnt.save(tmp_path / "twice")
    assert (tmp_path / "words").read_bytes() == (tmp_path / "twice").read_bytes()
    arrays = learnt.to_state()[1]
    for name, array in again.to_state()[1].items():
        assert array.tobytes() == arrays[name].tobytes()
        assert array.dtype == arrays[name].dtype


def _rewrite(path, change):
    with safe_open(path, framework="numpy") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(metadata, arrays)
    save_file(arrays, path, metadata)


def test_a_changed_file_is_refused(learnt, tmp_path):
    path = tmp_path / "words"
    learnt.save(path)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(ValueError, match="expected a sound representation"):
        load_representation(path)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ValueError, match="they were changed"):
        load_representation(path)
    with pytest.raises(ValueError, match="expected a file of a representation, found none"):
        load_representation(tmp_path)
    path.write_bytes(data)
    _rewrite(path, lambda metadata, arrays: metadata.update({"jaxseq representation": "[]"}))
    with pytest.raises(ValueError, match="they were changed"):
        load_representation(path)
    _rewrite(path, lambda metadata, arrays: metadata.clear())
    with pytest.raises(ValueError, match="got another file of safetensors"):
        load_representation(path)


def _version(meta, arrays):
    meta["version"] = 2


def _dtype(meta, arrays):
    arrays["clusters.3"] = arrays["clusters.3"].astype(np.int64)


def _range(meta, arrays):
    arrays["clusters.3"] = arrays["clusters.3"] + 3


def _shape(meta, arrays):
    arrays["states.emission"] = arrays["states.emission"][:-1]


def _nan(meta, arrays):
    arrays["states.initial"] = arrays["states.initial"] * np.float32(np.nan)


def _more(meta, arrays):
    arrays["more"] = np.zeros(1)


def _lexicon(meta, arrays):
    meta["normalisation"] = {"lower": 1}


def _sizes(meta, arrays):
    meta["sizes"] = [3, "6"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_version, "version: expected 1, the one that this jaxseq reads, got 2"),
        (_dtype, "clusters.3: expected int32"),
        (_range, "clusters.3: expected numbers from -1 to 2"),
        (_shape, "states.emission: expected float32"),
        (_nan, "states.initial: expected finite numbers above 0"),
        (_more, "expected no other arrays"),
        (_lexicon, "expected whether to lower and digits"),
        (_sizes, "sizes: expected whole numbers"),
    ],
)
def test_a_state_that_is_not_sound_is_refused(learnt, change, message):
    meta, arrays = learnt.to_state()
    meta, arrays = json.loads(json.dumps(meta)), dict(arrays)
    change(meta, arrays)
    with pytest.raises(ValueError, match=message):
        Representation.from_state(meta, arrays)


# ------------------------------------------------------------------------------------ taggers


def test_templates_call_what_was_learnt(learnt):
    templates = [
        "cluster(word[0], 3)|cluster(lower(word[1]), 6)",
        "brown(word[-1], 2)",
        "state(-1)",
    ]
    extractor = TemplateExtractor(templates, representation=learnt)
    ids = extractor.fit_transform([["the", "dog", "barks"]]).ids
    assert (ids >= 0).all()
    names = extractor.attribute_names()
    dog, barks = learnt.cluster("dog", 3), learnt.cluster("barks", 6)
    assert f"{templates[0]}={dog}|{barks}" in names
    assert f"brown(word[-1], 2)={learnt.brown_path('the', 2)}" in names
    assert "state(word[-1])=_B-1" in names


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("cluster(word[0], 4)", r"cluster: expected one of the sizes \[3, 6\], got 4"),
        ("state(lower(word[0]))", "expected state"),
    ],
)
def test_templates_that_ask_for_what_there_is_not(learnt, template, message):
    with pytest.raises(ValueError, match=message):
        TemplateExtractor([template], representation=learnt)
    with pytest.raises(ValueError, match="expected a representation along with"):
        TemplateExtractor([template])


def test_a_representation_without_brown_clusters_or_states_says_so():
    words = learn_representation(animals(), sizes=(3,))
    for template, message in (("brown(word[0], 4)", "brown: expected"), ("state(0)", "state: exp")):
        with pytest.raises(ValueError, match=message):
            TemplateExtractor([template], representation=words)


def test_a_tagger_knows_words_that_it_has_seen_without_labels_only(learnt):
    X = [["the"], ["dog"], ["barks"], ["a"], ["cat"], ["sleeps"]]
    y = [["D"], ["N"], ["V"]] * 2
    tests, gold = [["my"], ["hen"], ["eats"]], [["D"], ["N"], ["V"]]
    plain = jaxseq.CRFTagger(["word[0]"], l2=0.1, progress=False).fit(X, y)
    better = jaxseq.CRFTagger(["word[0]"], l2=0.1, progress=False, representation=learnt).fit(X, y)
    assert better.predict(tests) == gold
    assert plain.predict(tests) != gold


def test_a_tagger_keeps_its_representation_on_the_disk(learnt, tmp_path):
    tagger = jaxseq.CRFTagger(["word[0]"], progress=False, representation=learnt).fit(*labelled())
    tagger.save(tmp_path / "model")
    again = jaxseq.load(tmp_path / "model")
    tests = [["my", "zebra", "eats"], ["Zville", "sleeps"], []]
    assert again.representation.digest == learnt.digest
    for one, other in zip(tagger.predict_proba(tests), again.predict_proba(tests)):
        assert (one == other).all()
    again.save(tmp_path / "again")
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    # And it can be trained anew, as it is or as a clone of scikit-learn's.
    from sklearn.base import clone

    assert clone(again).fit(*labelled()).representation is again.representation


def test_a_file_will_do(learnt, tmp_path):
    learnt.save(tmp_path / "words")
    X, y = labelled()
    by_file = jaxseq.CRFTagger(["word[0]"], progress=False, representation=tmp_path / "words")
    by_file.fit(X, y)
    other = jaxseq.CRFTagger(["word[0]"], progress=False, representation=learnt).fit(X, y)
    assert (by_file.predict_proba(X)[0] == other.predict_proba(X)[0]).all()
    by_file.save(tmp_path / "model")
    assert jaxseq.load(tmp_path / "model").representation.digest == learnt.digest


def test_own_templates_that_use_the_representation_are_left_as_they_are(learnt):
    own = jaxseq.CRFTagger(
        ["word[0]", "cluster(word[0], 6)"], progress=False, representation=learnt
    ).fit(*labelled())
    assert [str(one) for one in own.extractor_.templates.unigram] == own.templates


def test_representations_that_do_not_go_with_the_tagger(learnt, unchecked):
    X, y = labelled()

    def tagger(representation, templates=("word[0]",)):
        return jaxseq.CRFTagger(list(templates), progress=False, representation=representation)

    with pytest.raises(ValueError, match="expected a Representation, its file or None, got 3"):
        tagger(3).fit(X, y)
    other = representation_from_vectors(["uno", "dos"], np.eye(2), sizes=(2,))
    with pytest.raises(ValueError, match="representation: expected one that knows words of X"):
        tagger(other).fit(X, y)
    elsewhere = learn_representation([{"form": ["a", "b"]}] * 3, sizes=(2,), column="form")
    with pytest.raises(ValueError, match="expected a column 'form'"):
        tagger(elsewhere).fit(X, y)
    with pytest.raises(ValueError, match="representation: expected none where sentences come with"):
        jaxseq.CRFTagger(representation=learnt, progress=False).fit([[{"w": 1.0}]], [["A"]])
    # The same names of attributes, of other clusters.
    older = tagger(learnt).fit(X, y)
    again = learn_representation(animals(), sizes=(3, 6))
    with pytest.raises(ValueError, match="warm_start_from: expected a tagger with the same rep"):
        tagger(again).fit(X, y, warm_start_from=older)
    tagger(learnt).fit(X, y, warm_start_from=older)
