"""Searching many sequences gives what searching each alone gives."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxseq.constraints import (
    AtMostOnce,
    Penalised,
    StartsWith,
    TransitionsOnlyOn,
    WordsImply,
    beam_search,
    bind_constraints,
    exact_search,
    search_corpus,
)
from jaxseq.lattice import Chain
from tests.constraints.cases import MARKED, WORDS

LABELS = ["A", "B", "C"]
LONGEST, MANY = 8, 9
SOFT = bind_constraints(
    [AtMostOnce(), WordsImply(MARKED, ["A"]), TransitionsOnlyOn(MARKED)], LABELS, penalty=0.8
)
HARD = bind_constraints(
    [
        Penalised(AtMostOnce(), math.inf),
        Penalised(WordsImply(MARKED, ["A"]), math.inf),
        Penalised(StartsWith(["C"]), 1.0),
    ],
    LABELS,
)
LOCAL = bind_constraints([WordsImply(MARKED, ["A"]), StartsWith(["B"])], LABELS, penalty=0.6)
FREE = bind_constraints([AtMostOnce(), StartsWith(["B"])], LABELS, penalty=0.0)
NONE = bind_constraints([], LABELS)


def corpus(seed, lengths, per_token=False):
    """Scores of all tokens and transitions, and sentences."""
    rng, total = np.random.default_rng(seed), sum(lengths)
    nodes = rng.normal(size=(total, 3))
    edges = rng.normal(size=(total, 3, 3) if per_token else (3, 3))
    words = rng.choice(WORDS, total).tolist()
    ends = np.cumsum(lengths)
    return nodes, edges, [words[end - n : end] for n, end in zip(lengths, ends)]


def alone(search, nodes, edges, sentences, rules, *numbers):
    """Each sequence by itself, padded to one length; those without a token are left out."""
    start = 0
    for words in sentences:
        n, here = len(words), slice(start, start + len(words))
        start += n
        if not n:
            yield None
            continue
        padded = np.zeros((LONGEST, 3))
        padded[:n] = nodes[here]
        moves = edges
        if edges.ndim == 3:
            moves = np.zeros((LONGEST - 1, 3, 3))
            moves[: n - 1] = edges[here][1:]
        x = rules.observe(words)
        x = tuple(None if a is None else np.pad(a, (0, LONGEST - n)) for a in x)
        yield search(Chain(padded, moves, n), rules, x, *numbers)


lengths_of_corpora = st.lists(st.integers(0, LONGEST), min_size=1, max_size=MANY)


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("rules", [SOFT, HARD], ids=["soft", "hard"])
@settings(max_examples=6)
@given(lengths=lengths_of_corpora, seed=st.integers(0, 9999))
def test_together_as_alone(rules, per_token, lengths, seed):
    nodes, edges, sentences = corpus(seed, lengths, per_token)
    x = rules.observe_all(sentences)
    found = search_corpus(nodes, edges, np.array(lengths), rules, x, 3, 6, "beam")
    assert not found.exact
    check_rows(found, alone(beam_search, nodes, edges, sentences, rules, 3, 6), lengths)


@pytest.mark.parametrize("rules", [SOFT, HARD], ids=["soft", "hard"])
@settings(max_examples=5)
@given(lengths=lengths_of_corpora, seed=st.integers(0, 9999))
def test_exact_as_alone(rules, lengths, seed):
    nodes, edges, sentences = corpus(seed, lengths)
    x = rules.observe_all(sentences)
    found = search_corpus(nodes, edges, np.array(lengths), rules, x, 1, method="exact")
    assert found.exact
    check_rows(found, alone(exact_search, nodes, edges, sentences, rules, 1), lengths)


def check_rows(found, rows, lengths):
    ends = np.cumsum(lengths)
    for number, (row, n, end) in enumerate(zip(rows, lengths, ends)):
        labels = found.labels[end - n : end].T
        if row is not None:
            assert labels.tolist() == row.paths[:, :n].tolist()
            assert found.scores[number].tolist() == pytest.approx(row.scores.tolist())
            assert found.hard[number].tolist() == row.hard.tolist()


@settings(max_examples=5)
@given(lengths=lengths_of_corpora, seed=st.integers(0, 9999), order=st.randoms())
def test_the_order_of_sequences_does_not_matter(lengths, seed, order):
    nodes, edges, sentences = corpus(seed, lengths)
    numbers = list(range(len(lengths)))
    order.shuffle(numbers)
    ends = np.cumsum(lengths)
    tokens = [t for i in numbers for t in range(ends[i] - lengths[i], ends[i])]
    first = search_corpus(
        nodes, edges, np.array(lengths), SOFT, SOFT.observe_all(sentences), 3, 6, "beam"
    )
    x = SOFT.observe_all([sentences[i] for i in numbers])
    other = np.array(lengths)[numbers]
    moved = search_corpus(nodes[tokens], edges, other, SOFT, x, 3, 6, "beam")
    assert moved.labels.tolist() == first.labels[tokens].tolist()
    assert moved.scores.tolist() == first.scores[numbers].tolist()


@pytest.mark.parametrize(("method", "k"), [("beam", 3), ("exact", 1), ("auto", 1)])
def test_penalties_of_0_change_no_bit(method, k):
    lengths = [3, 0, 8, 1, 5, 5, 2]
    nodes, edges, _ = corpus(5, lengths)
    nodes = nodes.astype(np.float32)
    edges = edges.astype(np.float32)
    found = [
        search_corpus(nodes, edges, np.array(lengths), rules, (None,) * len(rules), k, 6, method)
        for rules in (FREE, NONE)
    ]
    assert found[0].labels.tobytes() == found[1].labels.tobytes()
    if method == "beam":
        assert found[0].scores.tobytes() == found[1].scores.tobytes()
    else:  # no constraints at all are searched by Viterbi, which adds in another order
        assert found[0].scores == pytest.approx(found[1].scores)


def test_local_constraints_are_searched_exactly():
    lengths = [3, 8, 1, 5]
    nodes, edges, sentences = corpus(6, lengths)
    x = LOCAL.observe_all(sentences)
    found = search_corpus(nodes, edges, np.array(lengths), LOCAL, x, 3)
    assert found.exact
    wide = search_corpus(nodes, edges, np.array(lengths), LOCAL, x, 3, 60, "beam")
    assert not wide.exact
    assert found.labels[:3].tolist() == wide.labels[:3].tolist()
    assert found.scores[0].tolist() == pytest.approx(wide.scores[0].tolist())


def test_hard_constraints_that_cannot_be_met():
    rules = bind_constraints([Penalised(StartsWith(["A"]), math.inf)], LABELS)
    nodes = np.zeros((3, 3))
    nodes[0, 0] = -np.inf  # the first of the first sequence cannot be A
    found = search_corpus(nodes, np.zeros((3, 3)), np.array([2, 1]), rules, (None,))
    assert found.hard.tolist() == [[1], [0]]
    assert found.labels[:, 0].tolist() == [1, 0, 0]
    assert found.scores.tolist() == [[0.0], [0.0]]


def test_sequences_without_a_labelling_and_without_a_token():
    nodes = np.zeros((3, 3))
    nodes[1] = -np.inf
    x = (None, None)
    found = search_corpus(nodes, np.zeros((3, 3)), np.array([0, 2, 1, 0]), FREE, x, 2, 6, "beam")
    assert found.labels.tolist() == [[-1, -1], [-1, -1], [0, 1]]
    assert np.isneginf(found.scores[1]).all()
    assert found.scores[2].tolist() == [0, 0]
    empty = search_corpus(nodes[:0], np.zeros((3, 3)), np.array([0, 0]), FREE, x)
    assert (empty.labels.shape, empty.scores.tolist()) == ((0, 1), [[0], [0]])
    assert NONE.observe_all([]) == ()


def test_many_sequences_fill_several_blocks():
    lengths = [1 + number % 7 for number in range(150)]
    nodes, edges, sentences = corpus(7, lengths)
    x = SOFT.observe_all(sentences)
    found = search_corpus(nodes, edges, np.array(lengths), SOFT, x, 3, 6, "beam", cores=1)
    again = search_corpus(nodes, edges, np.array(lengths), SOFT, x, 3, 6, "beam", cores=2)
    assert found.labels.tobytes() == again.labels.tobytes()
    first = alone(beam_search, nodes, edges, sentences[:5], SOFT, 3, 6)
    check_rows(found, first, lengths[:5])


REFUSED = {
    "nodes": (dict(nodes=np.zeros((2, 3))), r"nodes: expected shape \[3, 3\], got \[2, 3\]"),
    "labels": (dict(nodes=np.zeros((3, 2))), r"nodes: expected shape \[3, 3\], got \[3, 2\]"),
    "edges": (dict(edges=np.zeros((2, 3, 3))), r"edges: expected shape \[3, 3\] or \[3, 3, 3\]"),
    "x": (dict(x=(None,)), "x: expected one of each of 2 constraints, got 1"),
    "tokens": (dict(x=(np.ones(2, bool), None)), "x: expected arrays of 3 tokens, got one of 2"),
    "k": (dict(k=0), r"^k: "),
    "width": (dict(k=7, width=6), "k: expected at most the width of the beam, 6, got 7"),
}


@pytest.mark.parametrize(("wrong", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(wrong, message):
    given = dict(
        nodes=np.zeros((3, 3)), edges=np.zeros((3, 3)), lengths=np.array([2, 1]),
        constraints=LOCAL, x=(np.ones(3, bool), None), method="beam",
    )  # fmt: skip
    with pytest.raises(ValueError, match=message):
        search_corpus(**(given | wrong))
