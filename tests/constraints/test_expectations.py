"""Rules turned into expectations, and files of expectations."""

from __future__ import annotations

import numpy as np
import pytest

from jaxseq.constraints import (
    AtMostOnce,
    Count,
    EndsWith,
    FieldLength,
    MustAppear,
    OnlyOn,
    Order,
    StartsWith,
    TransitionsOnlyOn,
    Words,
    WordsImply,
    rule_expectations,
    violations,
)
from jaxseq.expectations import encode_expectations, read_expectations

LABELS = ["A", "B", "C"]
SENTENCES = [["pp", "3", ".", "x"], ["x", "pp", "."], ["y"]]
RULES = {
    "words": WordsImply(Words(["pp"]), ["A", "B"]),
    "only": OnlyOn(["C"], Words(pattern="[0-9]+")),
    "transitions": TransitionsOnlyOn(),
    "after": TransitionsOnlyOn(Words(["pp"]), "after"),
    "starts": StartsWith(["A"]),
    "ends": EndsWith(["B", "C"]),
    "once": AtMostOnce(["A", "B"]),
    "appears": MustAppear(["C"]),
    "words of": Count(["A"], at_least=1, at_most=2),
}


def shares(expectations, labellings):
    """What a text with these labels has, by the matrix of the encoding."""
    lengths = np.array([len(words) for words in SENTENCES])
    encoded = encode_expectations(expectations, SENTENCES, lengths, LABELS)
    assert encoded is not None
    p, q, s = encoded.sizes
    tokens, pairs = np.zeros((p, s)), np.zeros((q, s, s))
    flat = [(n, t) for n, words in enumerate(SENTENCES) for t in range(len(words))]
    for row, (n, t) in enumerate(flat):
        label = LABELS.index(labellings[n][t])
        for predicate in encoded.predicates.ids[row]:
            if predicate >= 0:
                tokens[predicate, label] += 1
        if t:
            before = LABELS.index(labellings[n][t - 1])
            ids = encoded.predicates.edge_ids
            for predicate in [0] if ids is None else ids[row]:
                if predicate >= 0 and q:
                    pairs[predicate, before, label] += 1
    counts = np.concatenate([tokens.ravel(), pairs.ravel()])
    result = np.zeros(encoded.least.size)
    np.add.at(result, encoded.rows, encoded.coefficients * counts[encoded.columns])
    return encoded, result.reshape(encoded.least.shape)


KEPT = {
    "words": ["AABC", "CBA", "C"],
    "only": ["ACAA", "ABA", "B"],
    "transitions": ["AAAB", "BBB", "C"],
    "after": ["AAAA", "BCC", "C"],
    "starts": ["ABCA", "ABC", "A"],
    "ends": ["AAAB", "AAC", "C"],
    "once": ["ABCC", "BBA", "C"],
    "appears": ["ABCC", "CAA", "C"],
    "words of": ["ABAC", "ABB", "A"],
}
BROKEN = {
    "words": ["CABC", "CCA", "C"],
    "only": ["CACC", "CBC", "B"],
    "transitions": ["ABAB", "BCB", "C"],
    "after": ["ABAB", "BBC", "C"],
    "starts": ["BBCA", "CBC", "C"],
    "ends": ["AAAA", "AAA", "A"],
    "once": ["ABAB", "ABA", "A"],
    "appears": ["ABBB", "AAA", "A"],
    "words of": ["AAAA", "AAA", "A"],
}


@pytest.mark.parametrize("name", RULES)
def test_a_labelling_that_keeps_a_rule_meets_its_expectations(name):
    expectations = rule_expectations([RULES[name]], LABELS, broken=0.0)
    for labellings, fine in ((KEPT[name], True), (BROKEN[name], False)):
        encoded, found = shares(expectations, labellings)
        met = (found >= encoded.least - 1e-9) & (found <= encoded.most + 1e-9)
        assert bool(met[encoded.present].all()) is fine
        total = sum(
            violations(RULES[name], words, list(labels), labels=LABELS)
            for words, labels in zip(SENTENCES, labellings)
        )
        assert (total == 0) is fine


def test_what_cannot_be_turned_is_left_out_with_a_warning():
    rules = [RULES["words"], FieldLength(at_least=2), Order(["A", "B"])]
    with pytest.warns(UserWarning, match="no expectations follow from FieldLength, Order"):
        assert len(rule_expectations(rules, LABELS)) == 1


def write(tmp_path, text):
    path = tmp_path / "expected.toml"
    path.write_text(text)
    return path


def test_a_file_holds_the_fields_of_expectations(tmp_path):
    path = write(
        tmp_path,
        '[[expectation]]\nwhen = "word[0]=pp"\ntargets = { A = 0.9 }\n'
        '[[expectation]]\ntargets = { "A -> B" = [0.1, 0.2] }\nweight = 50\npenalty = "l2"\n',
    )
    first, second = read_expectations(path)
    assert (first.when, first.targets) == ("word[0]=pp", {"A": (0.9, 0.9)})
    assert (second.targets, second.weight, second.penalty) == ({"A -> B": (0.1, 0.2)}, 50, "l2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[expectation", r"expected\.toml: expected TOML"),
        ("[[rule]]\na = 1", r"expected tables \[\[expectation\]\]"),
        ("[[expectation]]\nwhen = 'x=y'", "expectation 1: expected targets"),
        ("[[expectation]]\ntargets = {A = 2}", r"expectation 1: targets\['A'\]: expected a share"),
        ("[[expectation]]\ntargets = {A = 1}\nfoo = 2", "expectation 1: .* got 'foo'"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_expectations(write(tmp_path, text))
