"""Attributes given token by token, in the convention of python-crfsuite."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import DictExtractor


def _tokens(features, names):
    """Name → weight of each token."""
    values = features.values
    if values is None:
        values = np.where(features.ids >= 0, np.float32(1), np.float32(0))
    return [
        {names[i]: float(v) for i, v in zip(ids, row) if i >= 0}
        for ids, row in zip(features.ids.tolist(), values)
    ]


# The right-hand sides were read off python-crfsuite's ItemSequence(…).items(); a weight of 0 is
# left out here.
CONVENTION = [
    ({"w": "the"}, {"w:the": 1.0}),
    ({"w": "a:b"}, {"w:a:b": 1.0}),
    ({"w": ""}, {"w:": 1.0}),
    ({"t": True, "f": False}, {"t": 1.0}),
    ({"x": 0.5, "n": -2, "z": 0, "y": 0.0}, {"x": 0.5, "n": -2.0}),
    ({"n": {"a": "b", "c": True, "d": {"e": 0.5}}}, {"n:a:b": 1.0, "n:c": 1.0, "n:d:e": 0.5}),
    ({"l": ["x", "y"], "s": {"q"}}, {"l:x": 1.0, "l:y": 1.0, "s:q": 1.0}),
    ({"nl": {"k": ["u"]}}, {"nl:k:u": 1.0}),
    (["p", "q"], {"p": 1.0, "q": 1.0}),
    (("p", "q"), {"p": 1.0, "q": 1.0}),
    ({"p", "q"}, {"p": 1.0, "q": 1.0}),
    ({"l": [], "n": {}}, {}),
    ([], {}),
    ({}, {}),
]


@pytest.mark.parametrize(("token", "attributes"), CONVENTION)
def test_convention_of_python_crfsuite(token, attributes):
    extractor = DictExtractor()
    features = extractor.fit_transform([[token]])
    assert _tokens(features, extractor.attribute_names()) == [attributes]


def test_numpy_numbers_are_numbers():
    extractor = DictExtractor()
    token = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.bool_(False)}
    features = extractor.fit_transform([[token]])
    assert _tokens(features, extractor.attribute_names()) == [{"a": 0.5, "b": 3.0, "c": 1.0}]


def test_weights_of_one_attribute_add():
    extractor = DictExtractor()
    features = extractor.fit_transform([[{"a": {"b": 1.5}, "a:b": 2.0}, ["p", "q", "p"]]])
    names = extractor.attribute_names()
    assert _tokens(features, names) == [{"a:b": 3.5}, {"p": 2.0, "q": 1.0}]
    assert features.ids.shape == (2, 2)


def test_values_are_left_out_when_all_are_one():
    features = DictExtractor().fit_transform([[["a"], {"b": 1.0, "c": "d"}]])
    assert features.values is None
    assert features.ids.tolist() == [[0, -1], [1, 2]]


NAME = st.sampled_from(["a", "b", "c", "ü"])
WEIGHT = st.sampled_from([-1.5, 0.25, 1.0, 2.0])
TOKEN = st.dictionaries(NAME, WEIGHT | NAME | st.booleans()) | st.lists(NAME)
CORPUS = st.lists(st.lists(TOKEN, max_size=4), max_size=4)


def _oracle(token):
    """Name → summed weight."""
    weights = Counter()
    if isinstance(token, list):
        weights.update(token)
    else:
        for name, value in token.items():
            if isinstance(value, str):
                weights[f"{name}:{value}"] += 1
            elif value is not False:
                weights[name] += float(value)
    return {name: float(weight) for name, weight in weights.items()}


@given(corpus=CORPUS, other=CORPUS, cutoff=st.integers(1, 3))
def test_tokens_have_the_attributes_they_were_given(corpus, other, cutoff):
    extractor = DictExtractor(cutoff)
    fitted, moved = extractor.fit_transform(corpus), extractor.transform(other)
    expected = [_oracle(token) for sentence in corpus for token in sentence]
    counts = Counter(name for token in expected for name in token)
    order = [name for name, count in counts.items() if count >= cutoff]
    names = extractor.attribute_names()
    assert sorted(names) == sorted(order)
    assert extractor.attribute_count == len(order)
    assert fitted.lengths.tolist() == list(map(len, corpus))
    for features, sentences in ((fitted, corpus), (moved, other)):
        wanted = [_oracle(token) for sentence in sentences for token in sentence]
        wanted = [{n: w for n, w in token.items() if n in order} for token in wanted]
        assert _tokens(features, names) == wanted
        assert features.ids.shape == (len(wanted), max(map(len, wanted), default=0))
        assert all(row == sorted(row, key=lambda i: (i < 0, i)) for row in features.ids.tolist())


def test_numbers_are_in_the_order_of_first_occurrence():
    extractor = DictExtractor()
    extractor.fit_transform([[["z", "a"]], [{"m": {"q", "p", "o"}}, ["a", "b"]]])
    assert extractor.attribute_names() == ["z", "a", "m:o", "m:p", "m:q", "b"]


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"abc", "expected a list, tuple, set or dict of attributes, found b'abc'"),
        ("abc", "expected a list, tuple, set or dict of attributes, found 'abc'"),
        (None, "expected a list, tuple, set or dict"),
        ([b"a"], "expected attributes that are strings, found b'a'"),
        ([1], "expected attributes that are strings, found 1"),
        ([["a"]], "expected attributes that are strings"),
        ({1: "a"}, "expected names that are strings, found 1"),
        ({b"a": 1.0}, "expected names that are strings, found b'a'"),
        ({"a": b"x"}, "attribute 'a': expected a string, a bool, a number"),
        ({"a": None}, "attribute 'a': expected a string, a bool, a number"),
        ({"a": 1j}, "attribute 'a': expected a string, a bool, a number"),
        ({"a": float("nan")}, "attribute 'a': expected a finite number"),
        ({"a": float("-inf")}, "attribute 'a': expected a finite number"),
        ({"a": 1e300}, "attribute 'a': expected a finite number that float32 holds"),
        ({"a": 10**400}, "attribute 'a': expected a finite number that float32 holds"),
        ({"a": {"b": {"c": None}}}, "attribute 'a:b:c': expected"),
        ({"a": [{"b": 1}]}, "expected attributes that are strings"),
    ],
)
def test_wrong_tokens_are_named(token, message):
    with pytest.raises(ValueError, match="sentence 1, token 2") as error:
        DictExtractor().fit_transform([[["a"]], [["a"], {}, token]])
    assert f"sentence 1, token 2: {message}" in str(error.value)


@pytest.mark.parametrize("sentence", ["abc", b"abc", {"a": 1}, 3, None])
def test_wrong_sentences_are_named(sentence):
    with pytest.raises(ValueError, match="sentence 1: expected a list of tokens"):
        DictExtractor().fit_transform([[], sentence])


def test_order_of_calls():
    extractor = DictExtractor()
    for call in (extractor.state, extractor.attribute_names, extractor.edge_attribute_names):
        with pytest.raises(ValueError, match="call fit_transform first"):
            call()
    with pytest.raises(ValueError, match="call fit_transform first"):
        extractor.transform([[["a"]]])
    extractor.fit_transform([[["a"]]])
    assert extractor.edge_attribute_count == 0
    with pytest.raises(ValueError, match="frozen"):
        extractor.fit_transform([[["a"]]])
