"""Stored extractors come back the same, and unsound states are refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import (
    DictExtractor,
    TemplateExtractor,
    Templates,
    TokenFeatures,
    extractor_from_state,
)
from jaxseq.text import _vocabulary as keys

TEMPLATES = Templates(
    ["bias", "word[0]", "word[-1]|lower(word[0])|word[2]", "has_digit(word[0])"],
    bigram=["word[0]"],
    transitions=False,
)
CRFPP = Templates.parse("U:%x[0,0]\nU:%x[-1,1]\nB:%x[0,0]\nB", columns=("word", "pos"))
CORPUS = [{"word": ["Ü1", "\ud800", "", "b"], "pos": ["x", "b", "y", "x"]}, {"word": [], "pos": []}]


def _through_json(state):
    meta, arrays = state
    return json.loads(json.dumps(meta)), {name: array.copy() for name, array in arrays.items()}


def _same(one: TokenFeatures, two: TokenFeatures) -> bool:
    pairs = zip(vars(one).values(), vars(two).values())
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)


WORDS = st.lists(st.sampled_from(["a", "B", "b", "Ü1", "\ud800", ""]), max_size=4)
SENTENCES = st.lists(WORDS.map(lambda w: {"word": w, "pos": w[::-1]}), max_size=4)


@pytest.mark.parametrize("largest", [5, 2**62])
@pytest.mark.parametrize("templates", [TEMPLATES, CRFPP], ids=["native", "crfpp"])
@given(corpus=SENTENCES, other=SENTENCES, cutoff=st.integers(1, 2))
def test_template_extractor_comes_back(largest, templates, corpus, other, cutoff):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "LARGEST_KEY", largest)
        extractor = TemplateExtractor(templates, cutoff)
        extractor.fit_transform(corpus)
        again = extractor_from_state(*_through_json(extractor.state()))
        assert isinstance(again, TemplateExtractor)
        assert again.templates == templates
        assert again.cutoff == cutoff
        assert again.attribute_names() == extractor.attribute_names()
        assert again.edge_attribute_names() == extractor.edge_attribute_names()
        assert _same(again.transform(other), extractor.transform(other))
        with pytest.raises(ValueError, match="frozen"):
            again.fit_transform(corpus)


def test_dict_extractor_comes_back():
    extractor = DictExtractor(cutoff=2)
    extractor.fit_transform([[["a", "ü", "b"], {"a": 2.0, "b": True, "w": "\ud800"}]])
    again = extractor_from_state(*_through_json(extractor.state()))
    assert isinstance(again, DictExtractor)
    assert again.cutoff == 2
    assert again.attribute_names() == ["a", "b"]
    other = [[["b", "c"], {"a": 0.5}]]
    assert _same(again.transform(other), extractor.transform(other))


def test_arrays_are_plain():
    """One-dimensional numbers, so that every format can hold them; no objects."""
    extractor = TemplateExtractor(TEMPLATES)
    extractor.fit_transform(CORPUS)
    for array in extractor.state()[1].values():
        assert array.ndim == 1
        assert array.dtype in (np.uint8, np.int64)


# ------------------------------------------------------------------------------ unsound states


def _template_state():
    extractor = TemplateExtractor(TEMPLATES)
    extractor.fit_transform(CORPUS)
    return _through_json(extractor.state())


def _dict_state():
    extractor = DictExtractor()
    extractor.fit_transform([[["a", "ü", "b"]]])
    return _through_json(extractor.state())


@pytest.mark.parametrize("state", [_template_state, _dict_state])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "other"),
        ("kind", None),
        ("kind", ["templates"]),
        ("version", 2),
        ("version", True),
        ("version", "1"),
        ("cutoff", 0),
        ("cutoff", 1.5),
        ("cutoff", "1"),
        ("cutoff", True),
        ("more", 1),
    ],
)
def test_wrong_meta_is_refused(state, key, value):
    meta, arrays = state()
    extractor_from_state(meta, arrays)
    with pytest.raises(ValueError, match="expected"):
        extractor_from_state({**meta, key: value}, arrays)


@pytest.mark.parametrize("state", [_template_state, _dict_state])
def test_what_is_missing_or_too_much_is_refused(state):
    meta, arrays = state()
    for key in meta:
        with pytest.raises(ValueError, match="expected"):
            extractor_from_state({k: v for k, v in meta.items() if k != key}, arrays)
    for name in arrays:
        with pytest.raises(ValueError, match="expected"):
            extractor_from_state(meta, {k: v for k, v in arrays.items() if k != name})
    with pytest.raises(ValueError, match="expected the arrays"):
        extractor_from_state(meta, {**arrays, "more": np.zeros(1)})


@pytest.mark.parametrize("state", [_template_state, _dict_state])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda array: array.tolist(),
        lambda array: None,
        lambda array: array[:, None],
        lambda array: array.astype(np.float64),
        lambda array: array.astype(np.int16),
        lambda array: array.astype(object),
    ],
    ids=["list", "none", "matrix", "float", "int16", "object"],
)
def test_arrays_of_the_wrong_type_are_refused(state, spoil):
    meta, arrays = state()
    for name in arrays:
        with pytest.raises(ValueError, match=f"{name}: expected a one-dimensional array"):
            extractor_from_state(meta, {**arrays, name: spoil(arrays[name])})


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("table0.ends", lambda a: a[::-1].copy()),
        ("table0.ends", lambda a: a + 1),
        ("table0.ends", lambda a: a[:-1]),
        ("table0.ends", lambda a: np.append(a, a[-1])),  # a second empty string
        ("table0.bytes", lambda a: a[:-1]),
        ("table0.bytes", lambda a: np.full_like(a, 255)),
        ("unigram1.keys", lambda a: a[::-1].copy()),
        ("unigram1.keys", lambda a: np.repeat(a, 2)),
        ("unigram1.keys", lambda a: a + 100),
        ("unigram1.keys", lambda a: a - 100),
        ("unigram2.keys", lambda a: np.append(a, 2**62)),
        ("unigram0.keys", lambda a: np.array([1])),
        ("bigram0.keys", lambda a: a[::-1].copy()),
    ],
)
def test_arrays_with_wrong_content_are_refused(name, spoil):
    meta, arrays = _template_state()
    with pytest.raises(ValueError, match=r"(table0|unigram\d|bigram0).*: expected"):
        extractor_from_state(meta, {**arrays, name: spoil(arrays[name])})


def test_ends_of_strings_must_ascend():
    """These would give three different strings in sound UTF-8."""
    meta, arrays = _dict_state()
    assert arrays["attributes.ends"].tolist() == [1, 3, 4]
    with pytest.raises(ValueError, match=r"attributes\.ends: expected ascending ends up to 4"):
        extractor_from_state(meta, {**arrays, "attributes.ends": np.array([3, 1, 4])})


def test_numberings_on_the_way_are_checked():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "LARGEST_KEY", 5)
        meta, arrays = _template_state()
        steps = [name for name in arrays if ".step" in name and len(arrays[name]) > 1]
        assert steps
        for name in steps:
            for wrong in (arrays[name][::-1].copy(), arrays[name] + 10**6, arrays[name][:0]):
                with pytest.raises(ValueError, match=r"unigram2\.\w+: expected"):
                    extractor_from_state(meta, {**arrays, name: wrong})


@pytest.mark.parametrize(
    "change",
    [
        {"ids": np.zeros((2, 1), np.int64)},
        {"ids": np.zeros(2, np.int32)},
        {"ids": np.zeros((3, 1), np.int32)},
        {"lengths": np.array([2], np.int32)},
        {"values": np.zeros((2, 1))},
        {"values": np.zeros((2, 2), np.float32)},
        {"edge_ids": np.zeros((1, 1), np.int32)},
    ],
)
def test_token_features_fit_together(change):
    fields = {
        "ids": np.zeros((2, 1), np.int32),
        "values": None,
        "lengths": np.array([2]),
        "edge_ids": None,
    }
    TokenFeatures(**fields)
    with pytest.raises(ValueError, match="expected"):
        TokenFeatures(**{**fields, **change})
