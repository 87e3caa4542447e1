"""Attributes by templates, against plain strings token by token."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.text import Sentence, TemplateExtractor, Templates
from jaxseq.text import _vocabulary as keys

# ------------------------------------------------- the oracle: strings, one token at a time

NOTHING = object()


def _plain(word):
    return word


def _prefix2(word):
    return word[0] + word[1] if len(word) > 1 else NOTHING


def _suffix3(word):
    return "".join(reversed("".join(reversed(word))[:3])) if len(word) > 2 else NOTHING


def _digit(word):
    return "1" if set(word) & set("0123456789") else NOTHING


# Each template with its atoms: column, offset, function, whether it is a flag.
ORACLE = {
    "word[0]": [("word", 0, _plain, False)],
    "word[-1]": [("word", -1, _plain, False)],
    "word[-3]": [("word", -3, _plain, False)],
    "word[7]": [("word", 7, _plain, False)],
    "pos[1]": [("pos", 1, _plain, False)],
    "word[-1]|word[0]": [("word", -1, _plain, False), ("word", 0, _plain, False)],
    "pos[0]|word[0]": [("pos", 0, _plain, False), ("word", 0, _plain, False)],
    "word[-2]|pos[0]|word[2]": [
        ("word", -2, _plain, False),
        ("pos", 0, _plain, False),
        ("word", 2, _plain, False),
    ],
    "word[1]|word[2]|word[3]|word[4]": [("word", k, _plain, False) for k in (1, 2, 3, 4)],
    "lower(word[1])": [("word", 1, str.lower, False)],
    "prefix(word[-1], 2)": [("word", -1, _prefix2, False)],
    "suffix(word[0], 3)": [("word", 0, _suffix3, False)],
    "has_digit(word[1])": [("word", 1, _digit, True)],
    "has_digit(word[0])|lower(pos[-1])": [
        ("word", 0, _digit, True),
        ("pos", -1, str.lower, False),
    ],
    "bias": [],
}


def _attribute(text, sentence, place):
    """The attribute as (template, values) and its name; NOTHING where there is none."""
    values = []
    for column, offset, function, flag in ORACLE[text]:
        cells, at = sentence[column], place + offset
        if 0 <= at < len(cells):
            value = function(cells[at])
        elif flag:
            value = NOTHING
        else:  # an int, so that no word can be the same
            value = at if at < 0 else at - len(cells) + 1
        if value is NOTHING:
            return NOTHING, None
        values.append(value)
    shown = [value if isinstance(value, str) else f"_B{value:+d}" for value in values]
    return (text, *values), f"{text}={'|'.join(shown)}" if values else text


def _attributes(texts, sentences):
    return [
        [_attribute(text, sentence, place) for text in texts]
        for sentence in sentences
        for place in range(len(sentence["word"]))
    ]


def _check_against_oracle(extractor, texts, corpus, other, cutoff):
    fitted, moved = extractor.fit_transform(corpus), extractor.transform(other)
    attributes = _attributes(texts, corpus)
    counts = Counter(key for row in attributes for key, _ in row if key is not NOTHING)
    known = {key for key, count in counts.items() if count >= cutoff}
    assert extractor.attribute_count == len(known)
    names = extractor.attribute_names()
    assert len(names) == len(known)
    id_of = {}
    for features, sentences in ((fitted, corpus), (moved, other), (None, other)):
        features = features or extractor.transform(sentences)
        expected = _attributes(texts, sentences)
        assert features.ids.shape == (len(expected), len(texts))
        assert features.ids.dtype == np.int32
        assert features.lengths.tolist() == [len(sentence["word"]) for sentence in sentences]
        assert features.values is None
        for row, found in zip(expected, features.ids.tolist()):
            for (key, name), number in zip(row, found):
                if key in known:
                    assert id_of.setdefault(key, number) == number
                    assert names[number] == name
                else:
                    assert number == -1
    assert sorted(id_of.values()) == list(range(len(known)))


# A word may look like a boundary, hold the separator, or be empty.
WORD = st.sampled_from(
    ["a", "A", "b", "ab", "Ab1", "_B-1", "_B+1", "|", "", "ü1", "中文字", "\ud800"]
)
ROWS = st.lists(st.tuples(WORD, st.sampled_from(["N", "V", "a"])), max_size=6)
SENTENCE = ROWS.map(lambda rows: {"word": [r[0] for r in rows], "pos": [r[1] for r in rows]})
CORPUS = st.lists(SENTENCE, max_size=5)
TEXTS = st.lists(st.sampled_from(list(ORACLE)), min_size=1, unique=True)


@given(texts=TEXTS, corpus=CORPUS, other=CORPUS, cutoff=st.integers(1, 3))
def test_attributes_are_those_of_the_oracle(texts, corpus, other, cutoff):
    extractor = TemplateExtractor(texts, cutoff=cutoff)
    _check_against_oracle(extractor, texts, corpus, other, cutoff)


@pytest.mark.parametrize(("largest", "dense"), [(1, 8), (30, 0), (400, 8), (2**62, 0)])
@given(texts=TEXTS, corpus=CORPUS, other=CORPUS, cutoff=st.integers(1, 2))
def test_numbering_in_steps_changes_nothing(largest, dense, texts, corpus, other, cutoff):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "LARGEST_KEY", largest)
        patch.setattr(keys, "DENSE_FACTOR", dense)
        extractor = TemplateExtractor(texts, cutoff=cutoff)
        _check_against_oracle(extractor, texts, corpus, other, cutoff)


def test_combinations_past_int64_are_kept_apart():
    """Eight words of 3,000 are 92 bits; that many would fold onto each other."""
    words = [f"w{number}" for number in range(3000)]
    extractor = TemplateExtractor(["|".join(f"word[{k}]" for k in range(8))])
    ids = extractor.fit_transform([words, words[:20][::-1]]).ids[:, 0]
    assert len(set(ids.tolist())) == 3020
    assert len(extractor.state()[1]) > 3
    names = extractor.attribute_names()
    assert names[ids[5]].endswith("=w5|w6|w7|w8|w9|w10|w11|w12")
    again = extractor.transform([words[5:13], [*words[6:13], "w5"]]).ids[:, 0]
    assert again[0] == ids[5]
    assert again[8] == -1


@given(corpus=CORPUS, cutoff=st.integers(2, 4))
def test_cutoff_drops_the_rare_and_renames_nothing(corpus, cutoff):
    texts = ["word[0]", "word[-1]|word[0]"]
    every, frequent = TemplateExtractor(texts), TemplateExtractor(texts, cutoff=cutoff)
    all_ids, kept_ids = every.fit_transform(corpus).ids, frequent.fit_transform(corpus).ids
    counts = Counter(all_ids.ravel().tolist())
    rare = np.vectorize(lambda number: counts[number] < cutoff, otypes=[bool])(all_ids)
    assert np.array_equal(kept_ids == -1, rare)
    names, kept_names = every.attribute_names(), frequent.attribute_names()
    assert kept_names == [name for i, name in enumerate(names) if counts[i] >= cutoff]


# --------------------------------------------------------------------------- pairs of labels


def test_edge_attributes_belong_to_pairs():
    templates = Templates(["word[0]"], bigram=["word[0]", "word[-1]|word[0]"])
    extractor = TemplateExtractor(templates)
    features = extractor.fit_transform([["a", "b", "b"], [], ["c"], ["b", "a"]])
    assert features.edge_ids is not None
    assert features.edge_ids.dtype == np.int32
    names = extractor.edge_attribute_names()
    found = [[names[i] if i >= 0 else None for i in row] for row in features.edge_ids.tolist()]
    assert found == [
        [None, None],
        ["word[0]=b", "word[-1]|word[0]=a|b"],
        ["word[0]=b", "word[-1]|word[0]=b|b"],
        [None, None],
        [None, None],
        ["word[0]=a", "word[-1]|word[0]=b|a"],
    ]
    assert extractor.edge_attribute_count == len(names) == 5
    assert extractor.attribute_count == 3


# ------------------------------------------------------------------------------------- input


def test_all_forms_of_a_sentence_are_the_same():
    forms = [
        ["the", "dog"],
        ("the", "dog"),
        {"word": ["the", "dog"], "pos": ["DT", "NN"]},
        Sentence({"word": ["the", "dog"], "pos": ["DT", "NN"]}),
    ]
    features = TemplateExtractor(["word[0]"]).fit_transform(iter(forms))
    assert features.ids.ravel().tolist() == [0, 1] * 4


def test_templates_without_columns_still_count_tokens():
    features = TemplateExtractor(["bias"]).fit_transform(
        [["a", "b"], [], {"x": ["a"]}, Sentence({"y": ["a", "b"]})]
    )
    assert features.ids.tolist() == [[0]] * 5
    assert features.lengths.tolist() == [2, 0, 1, 2]


def test_no_sentences_and_no_tokens():
    for corpus in ([], [[]], [[], []]):
        extractor = TemplateExtractor(["word[0]", "word[-1]|word[1]", "bias"])
        assert extractor.fit_transform(corpus).ids.shape == (0, 3)
        assert extractor.attribute_count == 0
        assert extractor.attribute_names() == []
        assert extractor.transform([["a"]]).ids.tolist() == [[-1, -1, -1]]


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (["a"], "sentence 1: expected a column 'pos', found the columns 'word'"),
        ({"word": ["a"]}, "sentence 1: expected a column 'pos', found the columns 'word'"),
        (
            Sentence({"tag": ["a"], "word": ["b"]}),
            "sentence 1: expected a column 'pos', found the columns 'tag', 'word'",
        ),
        ({}, "sentence 1: expected a column 'word', found the columns none"),
        (
            {"word": ["a"], "pos": ["N", "V"]},
            "sentence 1: expected columns of equal length, found 'word' with 1 and 'pos' with 2",
        ),
        ({"word": "a", "pos": ["N"]}, "sentence 1, column 'word': expected a list of strings"),
        ({"word": None, "pos": ["N"]}, "sentence 1, column 'word': expected a list of strings"),
        (
            {"word": ["a", "b"], "pos": ["N", 3]},
            "sentence 1, token 1, column 'pos': expected a string, found 3",
        ),
        (
            {"word": [["a"]], "pos": ["N"]},
            "sentence 1, token 0, column 'word': expected a string",
        ),
        ("a string", "sentence 1: expected a Sentence, a mapping column → strings, or a list"),
        (7, "sentence 1: expected a Sentence"),
    ],
)
def test_wrong_sentences_are_named(sentence, message):
    extractor = TemplateExtractor(["word[0]", "pos[0]"])
    good = {"word": ["a"], "pos": ["N"]}
    with pytest.raises(ValueError, match="sentence") as error:
        extractor.fit_transform([good, sentence])
    assert message in str(error.value)
    assert extractor.fit_transform([good]).ids.tolist() == [[0, 1]]  # nothing was learnt of it
    with pytest.raises(ValueError, match="sentence 0"):
        extractor.transform([sentence])


def test_order_of_calls():
    extractor = TemplateExtractor(["word[0]"])
    with pytest.raises(ValueError, match="call fit_transform first"):
        extractor.transform([["a"]])
    with pytest.raises(ValueError, match="call fit_transform first"):
        _ = extractor.attribute_count
    with pytest.raises(ValueError, match="call fit_transform first"):
        extractor.state()
    extractor.fit_transform([["a"]])
    with pytest.raises(ValueError, match="frozen"):
        extractor.fit_transform([["a"]])


def test_the_caller_cannot_change_the_names():
    extractor = TemplateExtractor(["word[0]"])
    extractor.fit_transform([["a"]])
    extractor.attribute_names().append("b")
    assert extractor.attribute_names() == ["word[0]=a"]


@pytest.mark.parametrize("cutoff", [0, -1, True])
def test_wrong_cutoff(cutoff):
    with pytest.raises(ValueError, match="cutoff: expected a whole number from 1 on"):
        TemplateExtractor(["word[0]"], cutoff=cutoff)
