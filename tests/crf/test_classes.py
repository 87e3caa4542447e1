"""Labels that the labelled sentences do not show: `CRFTagger(classes=…)` and what follows."""

import numpy as np
import pytest

import jaxseq
from jaxseq.active import ActiveLearner
from jaxseq.constraints import CoDL, Words, WordsImply
from jaxseq.shards import read_index, train_from_shards, write_shards

X = [["the", "dog"], ["a", "cat"], ["the", "cat", "runs"]]
Y = [["D", "N"], ["D", "N"], ["D", "N", "V"]]
ALL = ["V", "A", "N", "D"]  # in no order, and A is in no sentence


def tagger(**settings):
    return jaxseq.CRFTagger(["word[0]", "word[-1]"], classes=ALL, cores=1, **settings)


@pytest.mark.parametrize("weights", ["observed", "mixed", "dense", "tied"])
def test_labels_that_no_sentence_shows_are_in_order_and_never_nan(weights):
    trained = tagger(weights=weights).fit(X, Y)
    assert trained.classes_.tolist() == sorted(ALL)
    table = trained.predict_proba(X)
    assert all(np.isfinite(rows).all() for rows in table)
    assert trained.predict(X) == Y


def test_an_unseen_label_gets_less_weight_the_more_is_known():
    """Attributes on ten tokens have weights for all labels: what never occurs is unlikely."""
    trained = tagger(l2=0.01).fit(X * 10, Y * 10)
    assert max(rows[:, 0].max() for rows in trained.predict_proba(X)) < 0.02


def test_the_labels_of_y_alone_change_nothing():
    """With all labels seen, classes and None give the same bits."""
    plain = jaxseq.CRFTagger(["word[0]"], cores=1).fit(X, Y)
    named = jaxseq.CRFTagger(["word[0]"], cores=1, classes={"N", "V", "D"}).fit(X, Y)
    np.testing.assert_array_equal(plain.model_.weights, named.model_.weights)
    assert "classes" not in plain.settings_to_json()


def test_saved_and_loaded(tmp_path):
    trained = tagger(max_iterations=3).fit(X, Y)
    trained.save(tmp_path / "m")
    again = jaxseq.load(tmp_path / "m")
    assert again.classes == tuple(ALL)
    assert tagger().set_params(classes=set(ALL)).settings_to_json()["classes"] == sorted(ALL)
    assert again.classes_.tolist() == sorted(ALL)
    for one, other in zip(trained.predict_proba(X), again.predict_proba(X)):
        np.testing.assert_array_equal(one, other)


def test_a_checkpoint_of_other_classes_is_refused(tmp_path):
    stopped = tmp_path / "search"

    tagger(checkpoint=stopped).fit(X, Y)  # of which no model is saved
    assert stopped.exists()
    with pytest.raises(ValueError, match="search"):
        jaxseq.CRFTagger(["word[0]", "word[-1]"], cores=1, checkpoint=stopped).fit(X, Y)
    resumed = tagger(checkpoint=stopped).fit(X, Y)
    np.testing.assert_array_equal(resumed.model_.weights, tagger().fit(X, Y).model_.weights)


@pytest.mark.parametrize("pool", [False, True])
def test_codl_learns_a_label_from_a_rule_alone(pool):
    rules = [WordsImply(Words(["red"]), ["A"])]
    unlabelled = [["the", "red", "cat"], ["a", "red", "dog"]]
    learner = CoDL(tagger(), rules, penalty=50.0, k=1, cycles=2, pool=pool)
    learner.fit(X, Y, unlabelled=unlabelled)
    assert learner.tagger_.classes_.tolist() == sorted(ALL)
    assert learner.tagger_.predict([["the", "red", "cat"]])[0][1] == "A"


def test_shards_know_classes(tmp_path):
    folder = write_shards(lambda: zip(X, Y), tmp_path / "s", templates=["word[0]"], classes=ALL)
    assert read_index(folder).classes == sorted(ALL)
    trained = train_from_shards(folder, tagger(algorithm="adamw", epochs=2))
    assert trained.classes_.tolist() == sorted(ALL)
    other = jaxseq.CRFTagger(algorithm="adamw", classes=["D", "N", "V"])
    with pytest.raises(ValueError, match="classes: expected None, or the labels of the shards"):
        train_from_shards(folder, other)
    with pytest.raises(ValueError, match="expected labels among classes, D, got 'N'"):
        write_shards(lambda: zip(X, Y), tmp_path / "t", templates=["word[0]"], classes=["D"])
    assert not (tmp_path / "t").exists()


def test_active_learning_may_be_answered_with_them():
    learner = ActiveLearner(tagger()).begin(X, Y)
    assert learner.classes_.tolist() == sorted(ALL)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("NV", "classes: expected a list of labels or None, got 'NV'"),
        ([1], "classes: expected a list of labels or None"),
        (["N", "D"], "y: expected labels among classes, D, N, got 'V'"),
    ],
)
def test_what_is_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        jaxseq.CRFTagger(["word[0]"]).set_params(classes=classes).fit(X, Y)
