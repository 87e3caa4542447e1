"""Scores of spans against counts and lines worked out by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.metrics import (
    SpanCounts,
    SpanScores,
    label_scores,
    span_scores,
    spans,
    spell_spans,
)

# Gold:      NP NP  VP  NP NP | PP  NP  -  | VP
# Predicted: NP NP  VP  NP  - | PP  NP(2)  | ADJP
GOLD = [
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-PP", "B-NP", "O"],
    ["B-VP"],
    [],
]
PREDICTED = [
    ["B-NP", "I-NP", "B-VP", "B-NP", "O"],
    ["B-PP", "B-NP", "I-NP"],
    ["B-ADJP"],
    [],
]
# Right spans: NP 0–2, VP 2–3, PP 0–1. Right tags: 4 of 5, 2 of 3, 0 of 1.
TABLE = """\
processed 9 tokens with 6 phrases; found: 6 phrases; correct: 3.
accuracy:  66.67%; precision:  50.00%; recall:  50.00%; FB1:  50.00
             ADJP: precision:   0.00%; recall:   0.00%; FB1:   0.00  1
               NP: precision:  33.33%; recall:  33.33%; FB1:  33.33  3
               PP: precision: 100.00%; recall: 100.00%; FB1: 100.00  1
               VP: precision: 100.00%; recall:  50.00%; FB1:  66.67  1"""


def test_table_of_a_worked_example():
    scores = span_scores(GOLD, PREDICTED)
    assert scores.table() == TABLE
    assert scores.overall == SpanCounts(tp=3, predicted=6, gold=6)
    assert scores.by_type == {
        "ADJP": SpanCounts(0, 1, 0),
        "NP": SpanCounts(1, 3, 3),
        "PP": SpanCounts(1, 1, 1),
        "VP": SpanCounts(1, 1, 2),
    }
    assert list(scores.by_type) == ["ADJP", "NP", "PP", "VP"]
    assert (scores.tokens, scores.correct_tokens) == (9, 6)


def test_table_with_the_figures_of_the_shared_task():
    """The example on the shared task's page: 371 right of 539 found and 459 there."""
    scores = SpanScores(SpanCounts(371, 539, 459), {"ADJP": SpanCounts(0, 1, 2)}, 961, 808)
    assert scores.table().splitlines() == [
        "processed 961 tokens with 459 phrases; found: 539 phrases; correct: 371.",
        "accuracy:  84.08%; precision:  68.83%; recall:  80.83%; FB1:  74.35",
        "             ADJP: precision:   0.00%; recall:   0.00%; FB1:   0.00  1",
    ]


def test_dict_is_json_with_plain_numbers():
    scores = json.loads(json.dumps(span_scores(GOLD, PREDICTED).as_dict()))
    assert scores["overall"] == {
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
        "tp": 3,
        "predicted": 6,
        "gold": 6,
    }
    assert scores["by_type"]["VP"]["recall"] == 0.5
    assert scores["accuracy"] == pytest.approx(2 / 3)


def test_nothing_to_score():
    scores = span_scores([], [])
    assert scores.table() == "processed 0 tokens with 0 phrases; found: 0 phrases; correct: 0."
    assert scores.overall.f1 == scores.overall.precision == scores.overall.recall == 0


TAGS = st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-B"])
PAIRS = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=8), max_size=4)


@given(pairs=PAIRS)
def test_laws_of_counts(pairs):
    gold = [[right for right, _ in sentence] for sentence in pairs]
    predicted = [[guess for _, guess in sentence] for sentence in pairs]
    scores, swapped = span_scores(gold, predicted), span_scores(predicted, gold)
    assert scores.overall.precision == swapped.overall.recall
    assert scores.overall.f1 == pytest.approx(swapped.overall.f1)
    assert scores.overall.gold == sum(len(spans(tags)) for tags in gold)
    for name in ("tp", "predicted", "gold"):
        total = sum(getattr(counts, name) for counts in scores.by_type.values())
        assert getattr(scores.overall, name) == total
    p, r = scores.overall.precision, scores.overall.recall
    assert scores.overall.f1 == pytest.approx(2 * p * r / (p + r) if p + r else 0)
    same = span_scores(gold, gold)
    assert same.overall.tp == same.overall.predicted == same.overall.gold
    # Spans counted right are those whose text, with its place, is in both.
    marked = [
        {(i, *span) for i, tags in enumerate(side) for span in spans(tags)}
        for side in (gold, predicted)
    ]
    assert scores.overall.tp == len(marked[0] & marked[1])


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([["O"]], [], "gold, predicted: expected equally many sentences, got gold 1, predicted 0"),
        (
            [["O"], ["O", "O"]],
            [["O"], ["O"]],
            "sentence 1: expected equal lengths, got gold 2, predicted 1",
        ),
        (["O"], ["O"], "gold, sentence 0: expected a sequence of labels, got 'O'"),
    ],
)
def test_errors(gold, predicted, message):
    with pytest.raises(ValueError, match=r".") as caught:
        span_scores(gold, predicted)
    assert str(caught.value) == message


def test_ties_are_rounded_as_conlleval_rounds_them():
    """23 of 160 is 14.375 per cent: 100 · 23 / 160 is exact, and rounds to even."""
    gold = [["B-X"] * 23 + ["O"] * 137]
    predicted = [["B-X"] * 160]
    assert "precision:  14.38%; recall: 100.00%" in span_scores(gold, predicted).table()


# Odd tags: counts and lines of conlleval.pl for them, which follow from its rules tag by tag.
ODD = {
    "brackets are spans of one token each": (
        [["[-A", "[-A", "]-A", "O"]],
        [["[-A", "O", "]-A", "]-A"]],
        "processed 4 tokens with 3 phrases; found: 3 phrases; correct: 2.",
    ),
    "a typed full stop neither begins nor ends a span": (
        [["B-A", ".-A", "I-A", "O"]],
        [["B-A", ".-A", "I-A", "O"]],
        "processed 4 tokens with 1 phrases; found: 1 phrases; correct: 1.",
    ),
    "a typed full stop in one of them only": (
        [["B-A", ".-A", "O"]],
        [["B-A", "O", "O"]],
        "processed 3 tokens with 1 phrases; found: 1 phrases; correct: 0.",
    ),
    "what a full stop leaves open is never right": (
        [["B-A", ".-A"], ["B-A"]],
        [["B-A", ".-A"], ["B-A"]],
        "processed 3 tokens with 2 phrases; found: 2 phrases; correct: 1.",
    ),
    "a full stop of another type ends it": (
        [["B-A", ".-B", "I-B"]],
        [["B-A", ".-B", "I-B"]],
        "processed 3 tokens with 1 phrases; found: 1 phrases; correct: 1.",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_tags_as_conlleval_counts_them(case):
    gold, predicted, first = ODD[case]
    assert span_scores(gold, predicted).table().splitlines()[0] == first


def test_conlleval_lists_the_empty_type_twice():
    line = "                 : precision: 100.00%; recall: 100.00%; FB1: 100.00  1"
    assert span_scores([["B", "I"]], [["B", "I"]]).table().splitlines()[2:] == [line, line]


SCHEME_TAGS = st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-A", "U-B", "L-B"])


@given(pairs=st.lists(st.lists(st.tuples(SCHEME_TAGS, SCHEME_TAGS), max_size=8), max_size=4))
def test_tag_by_tag_or_by_lists_of_spans(pairs):
    """Tags of the schemes leave nothing open, so that right spans are those in both lists."""
    gold, predicted = ([[pair[k] for pair in sentence] for sentence in pairs] for k in (0, 1))
    lists = [(spans(one), spans(other)) for one, other in zip(gold, predicted)]
    both = sum(len(set(one) & set(other)) for one, other in lists)
    counts = both, sum(len(other) for _, other in lists), sum(len(one) for one, _ in lists)
    assert span_scores(gold, predicted).overall == SpanCounts(*counts)


# ------------------------------------------------------------------------------- classes of tokens

POS_GOLD = [["DT", "NN", "-LRB-", "NN", "."], ["NN"]]
POS_PREDICTED = [["DT", "NN", "-LRB-", "VB", "."], ["DT"]]


def test_labels_that_spell_no_spans():
    scores = label_scores(POS_GOLD, POS_PREDICTED)
    assert (scores.tokens, scores.correct_tokens) == (6, 4)
    assert scores.accuracy == 4 / 6
    assert scores.by_label == {
        "-LRB-": SpanCounts(1, 1, 1),
        ".": SpanCounts(1, 1, 1),
        "DT": SpanCounts(1, 2, 1),
        "NN": SpanCounts(1, 1, 3),
        "VB": SpanCounts(0, 1, 0),
    }
    assert scores.table().splitlines()[-6:] == [
        "       -LRB-  .  DT  NN  VB",
        "-LRB-      1  0   0   0   0",
        "    .      0  1   0   0   0",
        "   DT      0  0   1   0   0",
        "   NN      0  0   1   1   1",
        "   VB      0  0   0   0   0",
    ]
    report = json.loads(json.dumps(scores.as_dict()))
    assert report["confusion"]["NN"] == {"DT": 1, "NN": 1, "VB": 1}
    assert report["by_label"]["DT"]["precision"] == 0.5


def test_of_many_labels_the_matrix_has_those_that_are_confused():
    names = [f"L{k:02}" for k in range(30)]
    predicted = [*names[:28], "L29", "L28"]
    lines = label_scores([names], [predicted]).table().splitlines()
    assert lines[-3:] == ["     L28  L29", "L28    0    1", "L29    1    0"]
    assert sum(line.startswith("  ") and "precision" in line for line in lines) == 30


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["O", "B-NP"], True),
        (["B", "I", "O"], True),
        (["O"], True),
        (["[-A", "O"], True),
        (["B-NP", "?"], True),
        (["NN", "I", "O"], False),
        (["NN", "-LRB-", "-RRB-", ".", ","], False),
        (["FEATURES", "O"], False),
        (["NOUN", "X"], False),
    ],
)
def test_which_labels_spell_spans(labels, expected):
    assert spell_spans(labels) == expected
