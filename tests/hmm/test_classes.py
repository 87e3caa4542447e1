"""Labels that the labelled sentences do not show."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.constraints import Penalised, Words, WordsImply

X, Y = [["the", "dog", "barks"], ["a", "dog"]], [["D", "N", "V"], ["D", "N"]]
EVERY = ["V", "N", "D", "P"]


def test_an_unseen_label_has_the_probabilities_of_smoothing():
    tagger = jaxseq.HMMTagger(unknown_below=1, classes=EVERY).fit(X, Y)
    assert tagger.classes_.tolist() == ["D", "N", "P", "V"]
    initial, transition, emission = map(np.asarray, tagger.model_.probabilities)
    assert initial[2] == pytest.approx(0.2 / (2 + 4 * 0.2))
    assert transition[2] == pytest.approx(np.full(4, 1 / 4))
    assert emission[:, 2] == pytest.approx(np.full(len(emission), 1 / len(emission)))
    assert transition[0, 2] == pytest.approx(0.2 / (2 + 4 * 0.2))


def test_all_seen_labels_are_the_same_as_none():
    one = jaxseq.HMMTagger(unknown_below=1, classes=["V", "N", "D"]).fit(X, Y)
    other = jaxseq.HMMTagger(unknown_below=1).fit(X, Y)
    for a, b in zip(one.model_.probabilities, other.model_.probabilities):
        assert np.array_equal(a, b)


def test_rules_may_speak_of_an_unseen_label():
    rules = [Penalised(WordsImply(Words(["barks"]), ["P"]), 50.0)]
    tagger = jaxseq.HMMTagger(unknown_below=1, classes=EVERY).fit(X, Y)
    assert tagger.predict([["the", "dog", "barks"]], constraints=rules)[0][2] == "P"
    found = jaxseq.CoDL(tagger, rules, k=1, cycles=1, progress=False)
    found.fit(X, Y, unlabelled=[["the", "cat", "barks"]] * 3)
    assert found.tagger_.predict([["the", "dog", "barks"]])[0][2] == "P"


def test_it_is_stored(tmp_path):
    tagger = jaxseq.HMMTagger(unknown_below=1, classes=np.array(EVERY)).fit(X, Y)
    tagger.save(tmp_path / "model")
    loaded = jaxseq.load(tmp_path / "model")
    assert loaded.classes_.tolist() == tagger.classes_.tolist()
    assert list(loaded.classes) == EVERY


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["D", "N"], "y: expected labels among classes, D, N, got 'V'"),
        ("DNV", "classes: expected a list of labels or None, got 'DNV'"),
        ([1, 2], "classes: expected a list of labels or None"),
    ],
)
def test_refusals(classes, said):
    with pytest.raises(ValueError, match=said):
        jaxseq.HMMTagger().set_params(classes=classes).fit(X, Y)
