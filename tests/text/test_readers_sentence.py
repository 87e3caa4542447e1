"""The sentence: immutable, of equal columns."""

import copy
import dataclasses
import inspect
import pickle

import pytest

from jaxseq.text import Sentence
from jaxseq.text._sentence import _as_cells

WORDS = ["the", "dog"]


def test_contents():
    words = list(WORDS)
    sentence = Sentence({"word": words, "pos": ("DT", "NN")}, name="s1")
    words.append("barks")
    assert sentence["word"] == ("the", "dog")
    assert len(sentence) == 2
    assert sentence.columns == ("word", "pos")
    assert sentence.name == "s1"
    assert "pos" in sentence
    assert "chunk" not in sentence
    assert repr(sentence.without("pos")) == "Sentence({'word': ('the', 'dog')}, name='s1')"
    assert repr(Sentence({"word": []})) == "Sentence({'word': ()})"
    assert len(Sentence({"word": []})) == 0


def test_equality_and_copies():
    sentence = Sentence({"word": WORDS, "pos": ["DT", "NN"]})
    same = Sentence({"pos": ("DT", "NN"), "word": tuple(WORDS)})
    assert sentence == same
    assert hash(sentence) == hash(same)
    assert sentence != Sentence({"word": WORDS, "pos": ["DT", "NNS"]})
    assert sentence != Sentence({"word": WORDS, "pos": ["DT", "NN"]}, name="s1")
    assert sentence != sentence.without("pos")
    assert pickle.loads(pickle.dumps(sentence)) == sentence
    assert copy.deepcopy(sentence) == sentence


def test_immutable():
    sentence = Sentence({"word": WORDS})
    with pytest.raises(dataclasses.FrozenInstanceError):
        sentence.name = "other"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        sentence.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        sentence["word"] = ("x",)  # type: ignore[index]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sentence({}), "columns: expected at least one column, got none"),
        (
            lambda: Sentence({"word": WORDS, "pos": ["DT"]}),
            "columns: expected equal lengths, got word 2, pos 1",
        ),
        (
            lambda: Sentence({"word": "ab"}),
            "column 'word': expected a sequence of strings, got 'ab'",
        ),
        (lambda: Sentence({"word": WORDS})["pos"], "column: expected one of word, got 'pos'"),
        (lambda: Sentence({"word": WORDS}).without("x"), "column: expected one of word, got 'x'"),
        (
            lambda: Sentence({"word": WORDS}).without("word"),
            "columns: expected at least one column",
        ),
        # The suite's own checks of types would come first, so the function is called bare.
        (
            lambda: inspect.unwrap(_as_cells)("w", ["a", 1]),
            "column 'w', token 1: expected a string",
        ),
        (lambda: inspect.unwrap(_as_cells)("w", 7), "column 'w': expected a sequence of strings"),
        (lambda: inspect.unwrap(_as_cells)(7, ["a"]), "columns: expected names that are strings"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert str(caught.value).startswith(message)
