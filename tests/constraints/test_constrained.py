"""Predictions under constraints against going through all labellings."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import jaxseq
from jaxseq.constraints import (
    AtMostOnce,
    ConstraintWarning,
    MustAppear,
    Penalised,
    StartsWith,
    Words,
    WordsImply,
    bind_constraints,
)
from jaxseq.text import Templates
from tests.hmm.toys import MORE, WORDS, X, Y, tagger
from tests.taggers.toys import log_sum, path_scores

LABELS = ["A", "B", "C"]
SENTENCE = st.lists(st.sampled_from([*WORDS, "z"]), min_size=1, max_size=4)


def rules(again=1.5, first=0.7, words=math.inf):
    return [
        Penalised(AtMostOnce(), again),
        Penalised(StartsWith(["A", "B"]), first),
        Penalised(WordsImply(Words(["w"]), ["B", "C"]), words, "words"),
    ]


def plain_violations(words, labels) -> tuple[int, int, int]:
    """Of `rules`, on strings."""
    fields = [label for label, _ in itertools.groupby(labels)]
    wrong = sum(word == "w" and label == "A" for word, label in zip(words, labels))
    return len(fields) - len(set(fields)), int(labels[0] == "C"), wrong


@pytest.fixture(scope="module")
def hmm():
    return tagger().fit(X, Y)


OPTIONS = {"l2": 1.0, "cores": 1, "progress": False, "max_iterations": 20, "dtype": "float64"}


@pytest.fixture(scope="module")
def crf():
    return jaxseq.CRFTagger(["word[0]", "word[-1]"], **OPTIONS).fit(X, Y)


@pytest.fixture(scope="module")
def of_pairs():
    found = jaxseq.CRFTagger(Templates(["word[0]"], ["word[0]"]), **OPTIONS).fit(X, Y)
    assert np.abs(np.asarray(found.model_.edge_weights)).max() > 0.01
    return found


def all_scores(one, words):
    """Every labelling of a sentence, and its log P(y | x)."""
    labels = one.classes_.tolist()
    if isinstance(one, jaxseq.HMMTagger):
        theta, known = one.model_.probabilities, one.vocabulary_.words
        numbers = [known.index(word) + 1 if word in known else 0 for word in words]
        paths = list(itertools.product(range(len(labels)), repeat=len(words)))
        scores = []
        for path in paths:
            score = math.log(theta.initial[path[0]])
            score += sum(math.log(theta.transition[pair]) for pair in itertools.pairwise(path))
            score += sum(math.log(theta.emission[pair]) for pair in zip(numbers, path))
            scores.append(score)
    else:
        tokens = one._scored([words]).features
        names = one.extractor_.attribute_names()
        given_ = [{names[i]: 1.0 for i in row if i >= 0} for row in tokens.ids]
        pairs = None
        if tokens.edge_ids is not None:
            of_pairs = one.extractor_.edge_attribute_names()
            pairs = [[of_pairs[i] for i in row if i >= 0] for row in tokens.edge_ids[1:]]
        paths, scores = path_scores(one, given_, pairs)
    scores = np.array(scores)
    named = [[labels[i] for i in path] for path in paths]
    return named, scores - log_sum(scores)


def best_plain(one, words, penalties):
    """All labellings by fewest violations of what is hard, then by score less soft penalties."""
    found = []
    for labels, score in zip(*all_scores(one, words)):
        broken = plain_violations(words, labels)
        soft = sum(n * rho for n, rho in zip(broken, penalties) if rho < math.inf)
        hard = sum(n for n, rho in zip(broken, penalties) if rho == math.inf)
        found.append((hard, soft - score, labels))
    return sorted(found)


def check_against_plain(one, words, penalties, k=4):
    wanted = best_plain(one, words, penalties)
    # Where hard constraints bind, labellings that break them more often are none.
    wanted = [one for one in wanted if one[0] == wanted[0][0]]
    constraints = rules(*penalties)
    found = one.predict_k_best([words], k, constraints=constraints)[0]
    np.testing.assert_allclose(
        [score for _, score in found], [-w[1] for w in wanted[:k]], rtol=1e-6
    )
    by_labels = {tuple(labels): -cost for _, cost, labels in wanted}
    for labels, score in found:
        assert by_labels[tuple(labels)] == pytest.approx(score, rel=1e-6)
    best = one.predict([words], constraints=constraints)[0]
    assert by_labels[tuple(best)] == pytest.approx(-wanted[0][1], rel=1e-6)


@given(words=SENTENCE)
def test_an_hmm_finds_the_best_of_all_labellings(hmm, words):
    check_against_plain(hmm, words, (1.5, 0.7, math.inf))


@given(words=SENTENCE)
def test_a_crf_finds_the_best_of_all_labellings(crf, words):
    check_against_plain(crf, words, (1.5, 0.7, math.inf))


@pytest.mark.parametrize("kind", ["hmm", "crf"])
def test_constraints_change_labels(kind, request):
    one = request.getfixturevalue(kind)
    sentences = [list(words) for words in itertools.product("uvwx", repeat=3)]
    free, bound = one.predict(sentences), one.predict(sentences, constraints=rules(50.0, 50.0))
    assert free != bound
    broken = [plain_violations(*pair) for pair in zip(sentences, bound)]
    assert not np.array(broken).any()


@pytest.mark.parametrize("kind", ["hmm", "crf"])
def test_no_penalty_and_no_rule_are_no_constraints_to_the_bit(kind, request):
    one = request.getfixturevalue(kind)
    free, best = one.predict(X + MORE), one.predict_k_best(X + MORE, 3)
    for constraints in (None, [], rules(0.0, 0.0, 0.0), bind_constraints([], LABELS)):
        assert one.predict(X + MORE, constraints=constraints) == free
        assert one.predict_k_best(X + MORE, 3, constraints=constraints) == best


@pytest.mark.parametrize("kind", ["hmm", "crf"])
def test_all_forms_of_constraints_are_the_same(kind, request):
    class File(NamedTuple):
        rules: list
        scheme: str

    one, wanted = request.getfixturevalue(kind), None
    for form in (
        rules(),
        tuple(rules()),
        File(rules(), "plain"),
        bind_constraints(rules(), LABELS),
    ):
        found = one.predict_k_best(MORE, 4, constraints=form)
        assert wanted is None or found == wanted
        wanted = found


@pytest.mark.parametrize("kind", ["hmm", "crf"])
def test_sentences_may_come_in_any_number_and_order(kind, request):
    one, many = request.getfixturevalue(kind), [*MORE, [], *X]
    found = one.predict(iter(many), constraints=rules())
    assert found[::-1] == one.predict(many[::-1], constraints=rules())
    assert found[len(MORE)] == []
    assert found[0] == one.predict(MORE[:1], constraints=rules())[0]
    assert one.predict([], constraints=rules()) == []
    assert one.predict([[]], constraints=rules()) == [[]]
    assert one.predict_k_best([], 2, constraints=rules()) == []


def test_fewer_labellings_than_asked_for(hmm):
    found = hmm.predict_k_best([["u"]], 4, constraints=rules())[0]
    assert len(found) == 3
    assert len({tuple(labels) for labels, _ in found}) == 3


# ------------------------------------------------------------------------- pairs of tokens


@given(words=SENTENCE)
def test_attributes_of_pairs_count(of_pairs, words):
    check_against_plain(of_pairs, words, (1.5, 0.7, math.inf))


def test_groups_of_sentences_are_as_all_at_once(of_pairs, monkeypatch):
    wanted = of_pairs.predict_k_best(X + MORE + [[]], 4, constraints=rules())
    monkeypatch.setattr("jaxseq.constraints._decoding.MOST_NUMBERS", 4 * 9)
    assert of_pairs.predict_k_best(X + MORE + [[]], 4, constraints=rules()) == wanted


# --------------------------------------------------------------------------- what cannot be


def test_hard_constraints_that_cannot_be_met_are_violated_least_and_said_so(hmm):
    needs = [Penalised(MustAppear(LABELS), math.inf)]
    with pytest.warns(ConstraintWarning, match=r"X\[1\]: .* for 2 of 3 sentences") as said:
        found = hmm.predict([list("uvwx"), ["u"], list("vw")], constraints=needs)
    assert len(said) == 1
    assert set(found[0]) == set(LABELS)
    assert len(set(found[2])) == 2
    with pytest.warns(ConstraintWarning, match="1 of 1"):
        hmm.predict_k_best([["u"]], 2, constraints=needs)


def test_hard_constraints_that_can_be_met_are_met_in_silence(hmm, recwarn):
    found = hmm.predict([list("wwww")], constraints=rules())[0]
    assert "A" not in found
    assert not [w for w in recwarn if issubclass(w.category, ConstraintWarning)]


def test_impossible_sentences_are_refused_with_constraints_too():
    strict = {f"{name}_smoothing": 0.0 for name in ("initial", "transition", "emission")}
    one = tagger(**strict).fit(X, Y)
    with pytest.raises(ValueError, match=r"X\[1\]: expected a sentence that the model holds"):
        one.predict([["u"], ["z"]], constraints=rules())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", ["hmm", "crf"])
@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        ([Penalised(StartsWith(["Z"]), 1.0)], r"constraints: rules\[0\]: labels: expected one of"),
        ([StartsWith(["A"])], r"constraints: rules\[0\]: penalty: expected one"),
        (bind_constraints([], ["A"]), "constraints: expected them for 3 labels"),
        ("rules.toml", "constraints: expected rules with penalties, got 'rules.toml'"),
        ([3], r"rules\[0\]"),
        (StartsWith(["A"]), "constraints: expected rules with penalties"),
    ],
)
def test_bad_constraints_are_refused(kind, constraints, said, request):
    one = request.getfixturevalue(kind)
    with pytest.raises(ValueError, match=said):
        one.predict(X, constraints=constraints)
    with pytest.raises(ValueError, match=said):
        one.predict_k_best(X, 2, constraints=constraints)


@pytest.mark.usefixtures("unchecked")
def test_bad_numbers_are_refused(hmm, crf):
    for one in (hmm, crf):
        with pytest.raises(ValueError, match="k: expected"):
            one.predict_k_best(X, 0, constraints=rules())
        with pytest.raises(ValueError, match="k: expected at most the width"):
            one.predict_k_best(X, 5, constraints=rules(), width=2)
    with pytest.raises(NotFittedError):
        tagger().predict(X, constraints=rules())
