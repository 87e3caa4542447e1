"""`HMMTagger` against a model of dictionaries that goes through all labellings."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from jaxseq.taggers import SelfTraining
from jaxseq.text import Sentence
from tests.hmm.plain import SMOOTHING, assert_same_model, counted, em_step, smoothed
from tests.hmm.toys import LABELS, MORE, WORDS, X, Y, saved_bytes, tagger


@st.composite
def corpora(draw):
    """Labelled sentences, empty ones among them; every word and label occurs."""
    sentence = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(LABELS)), max_size=4)
    found = [*draw(st.lists(sentence, max_size=6)), list(zip(WORDS, LABELS + "A"))]
    return [[w for w, _ in s] for s in found], [[label for _, label in s] for s in found]


# --------------------------------------------------------------------------------- estimation


@given(corpora(), st.integers(1, 4), st.sampled_from([0.0, 0.3, 2.0]))
def test_supervised_model_is_counting(corpus, unknown_below, epsilon):
    x, y = corpus
    one = tagger(unknown_below=unknown_below, emission_smoothing=epsilon).fit(x, y)
    smoothing = {**SMOOTHING, "emission": epsilon}
    assert_same_model(one, counted(x, y, unknown_below, smoothing))
    assert one.n_iter_ == 0
    assert one.outcome_.startswith("converged")


def test_loss_of_the_supervised_model_is_its_penalised_log_likelihood_a_sentence():
    one, plain = tagger().fit(X, Y), counted(X, Y)
    value = sum(math.log(plain.joint(x, y)) for x, y in zip(X, Y))
    value += sum(SMOOTHING[event[0]] * math.log(plain.probability(event)) for event in plain.counts)
    assert one.loss_ == pytest.approx(-value / len(X), rel=1e-9)
    assert one.log_likelihood_ is None


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
@pytest.mark.parametrize(
    ("weight", "frozen"),
    [(None, ()), (0.3, ()), (0.3, ("transition",)), (1.0, ()), (0.6, ("initial", "emission"))],
)
def test_em_is_that_of_all_labellings(hard, weight, frozen):
    kind = "hard" if hard else "soft"
    one = tagger(weight=weight, frozen=frozen, em=kind, max_iterations=3)
    one.fit(X, Y, unlabelled=MORE)
    plain = counted(X, Y, also=MORE)
    labelled, balance = plain.counts, 4 / 9 if weight is None else weight
    likelihoods = []
    for _ in range(3):
        plain, value = em_step(plain, labelled, len(X), MORE, balance, frozen, hard)
        likelihoods.append(value)
    if hard and one.n_iter_ < 3:  # a step that changes nothing ends it
        assert likelihoods[-1] == pytest.approx(likelihoods[-2], rel=1e-9)
    else:
        assert one.n_iter_ == 3
    assert_same_model(one, plain)
    _, value = plain.expected(MORE, hard=hard)
    assert one.log_likelihood_ == pytest.approx(value, rel=1e-9)
    assert (np.diff(one.objectives_) >= -1e-12).all()


def test_partial_labels_are_summed_over():
    y = [["A", {"B", "C"}, None], [{"B"}, "A"], ["A"], ["C", None, None, "B"], list("BC")]
    allowed = [[LABELS if k is None else k for k in labels] for labels in y]
    sure = [("initial", None, "A"), ("initial", None, "A"), ("initial", None, "B")]
    sure += [("initial", None, "B"), ("initial", None, "C"), ("transition", "B", "A")]
    sure += [("transition", "B", "C")]
    pairs = [(w, k) for x, labels in zip(X, y) for w, k in zip(x, labels) if isinstance(k, str)]
    sure += [("emission", k, w) for w, k in pairs] + [("emission", "B", "v")]
    plain = counted(X, Y)
    begin = dict.fromkeys(plain.counts, 0)
    for event in sure:
        begin[event] += 1
    plain.__init__(plain.labels, plain.vocabulary, smoothed(begin, plain.labels, plain.vocabulary))
    for _ in range(4):
        found, _ = plain.expected(X, allowed)
        counts = smoothed(found, plain.labels, plain.vocabulary)
        plain = type(plain)(plain.labels, plain.vocabulary, counts)
    one = tagger(max_iterations=4).fit(X, y)
    assert_same_model(one, plain)
    assert (np.diff(one.objectives_) >= -1e-12).all()
    both = tagger(max_iterations=4, weight=0.5).fit(X, y, unlabelled=MORE)
    assert both.n_iter_ == 8  # four on what is labelled, four on all
    assert (np.diff(both.objectives_) >= -1e-12).all()


@pytest.mark.parametrize("unlabelled", [None, [], [[]], [[], []], iter([])])
def test_without_unlabelled_tokens_the_model_is_the_supervised_one_to_the_bit(unlabelled, tmp_path):
    alone = saved_bytes(tagger().fit(X, Y), tmp_path / "a")
    assert saved_bytes(tagger().fit(X, Y, unlabelled=unlabelled), tmp_path / "b") == alone


def test_weight_zero_trains_as_if_there_were_no_unlabelled_sentences():
    one = tagger(weight=0.0).fit(X, Y, unlabelled=MORE)
    other = tagger().fit(X, Y)
    assert one.vocabulary_.words == other.vocabulary_.words
    for a, b in zip(one.model_.probabilities, other.model_.probabilities):
        np.testing.assert_array_equal(a, b)


def test_vocabulary_of_all_or_of_labelled_sentences():
    everything = tagger(unknown_below=2).fit(X, Y, unlabelled=[list("zzqu")])
    assert set(everything.vocabulary_.words) == {*WORDS, "z"}
    labelled = tagger(vocabulary="labelled", weight=0.5, max_iterations=2)
    labelled.fit(X, Y, unlabelled=[list("zzqu")])
    assert set(labelled.vocabulary_.words) == set(WORDS)
    plain = counted(X, Y)
    known = plain.counts
    for _ in range(2):
        plain, _ = em_step(plain, known, len(X), [list("zzqu")], 0.5)
    assert_same_model(labelled, plain)


# --------------------------------------------------------------------------------- prediction


@given(corpora(), st.lists(st.lists(st.sampled_from("uvwxz"), max_size=4), max_size=4))
def test_predictions_are_those_of_all_labellings(corpus, sentences):
    one, plain = tagger().fit(*corpus), counted(*corpus)
    viterbi, by_token = one.predict(sentences), one.set_params(decoding="max_marginal")
    by_token = by_token.predict(sentences)
    tables, lists = one.predict_proba(sentences), one.predict_marginals(sentences)
    ranked = one.predict_k_best(sentences, 3)
    for index, sentence in enumerate(sentences):
        if not sentence:
            assert viterbi[index] == by_token[index] == lists[index] == []
            assert tables[index].shape == (0, 3)
            assert ranked[index] == [([], 0.0)]
            continue
        paths, marginals = plain.paths(sentence), plain.marginals(sentence)
        total = sum(paths.values())
        best = sorted(paths.values(), reverse=True)
        assert paths[tuple(viterbi[index])] == pytest.approx(best[0], rel=1e-9)
        wanted = [[token[label] for label in LABELS] for token in marginals]
        np.testing.assert_allclose(tables[index], wanted, rtol=1e-9)
        np.testing.assert_allclose([list(t.values()) for t in lists[index]], wanted, rtol=1e-9)
        for label, token in zip(by_token[index], marginals):
            assert token[label] == pytest.approx(max(token.values()), rel=1e-9)
        assert len(ranked[index]) == min(3, 3 ** len(sentence))
        for rank, (path, log_probability) in enumerate(ranked[index]):
            assert math.exp(log_probability) == pytest.approx(best[rank] / total, rel=1e-8)
            assert paths[tuple(path)] == pytest.approx(best[rank], rel=1e-9)


def test_the_two_decodings_differ_where_they_should():
    x, y = [list("aa"), list("ab"), list("ab")], [list("BC"), list("AB"), list("AC")]
    x, y = x + [list("ab")] * 2, y + [list("BC")] * 2
    plain = counted(x, y)
    one = tagger().fit(x, y)
    found = set()
    for sentence in map(list, itertools.product("ab", repeat=3)):
        paths, marginals = plain.paths(sentence), plain.marginals(sentence)
        by_token = tuple(max(token, key=token.get) for token in marginals)
        best = max(paths, key=paths.get)
        assert one.set_params(decoding="viterbi").predict([sentence]) == [list(best)]
        assert one.set_params(decoding="max_marginal").predict([sentence]) == [list(by_token)]
        found.add(best == by_token)
    assert found == {True, False}


def test_float32_agrees():
    one = tagger(dtype="float32", weight=0.4, max_iterations=5).fit(X, Y, unlabelled=MORE)
    other = tagger(weight=0.4, max_iterations=5).fit(X, Y, unlabelled=MORE)
    assert one.model_.probabilities.emission.dtype == "float32"
    for a, b in zip(one.model_.probabilities, other.model_.probabilities):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_sentences_are_labelled_alike_alone_and_among_others():
    rng = np.random.default_rng(0)
    one = tagger().fit(X, Y)
    sentences = [rng.choice(list(WORDS), size=n).tolist() for n in (100, 1, 0, 90, 5)]
    found = one.predict(sentences)
    assert [len(labels) for labels in found] == [len(sentence) for sentence in sentences]
    assert found == [one.predict([sentence])[0] for sentence in sentences]
    for table in one.predict_proba(sentences):
        np.testing.assert_allclose(table.sum(1), 1, rtol=1e-9)


def test_score_counts_known_labels():
    one = tagger().fit(X, Y)
    predicted = one.predict(X)
    y = [[None if t == 0 else label for t, label in enumerate(labels)] for labels in Y]
    right = [a == b for p, g in zip(predicted, y) for a, b in zip(p, g) if b is not None]
    assert one.score(X, y) == pytest.approx(np.mean(right))
    weights = [1.0, 0.0, 0.0, 2.0, 0.0]
    pairs = [(w, a == b) for w, p, g in zip(weights, predicted, Y) for a, b in zip(p, g)]
    wanted = sum(w * hit for w, hit in pairs) / sum(w for w, _ in pairs)
    assert one.score(X, Y, weights) == pytest.approx(wanted)


def test_sentences_of_every_kind():
    one = tagger().fit(X, Y)
    words = list("uvwz")
    kinds = [words, tuple(words), np.array(words), {"word": words, "pos": list("pppp")}]
    kinds.append(Sentence({"pos": list("pppp"), "word": words}))
    assert len({tuple(labels) for labels in one.predict(kinds)}) == 1
    other = tagger(column="form").fit([{"form": x} for x in X], Y)
    assert other.predict([{"form": words, "word": list("zzzz")}]) == one.predict([words])


# ------------------------------------------------------------------------------ as an estimator


def test_scikit_learns_contract():
    one = tagger(weight=0.2, frozen=("transition",))
    copy = clone(one)
    assert copy.get_params() == one.get_params()
    assert one.fit(X, Y) is one
    search = GridSearchCV(tagger(), {"unknown_below": [1, 99]}, cv=KFold(2)).fit(X * 2, Y * 2)
    assert search.best_params_ == {"unknown_below": 1}


def test_self_training_ends_at_a_fixed_point():
    trained = SelfTraining(tagger()).fit(X, Y, unlabelled=MORE)
    assert trained.outcome_.startswith("converged")
    again = tagger().fit(X + MORE, Y + trained.labels_)
    assert again.predict(MORE) == trained.labels_ == trained.predict(MORE)


def test_self_training_learns_from_labels_that_are_sure_enough():
    trained = SelfTraining(tagger(), confidence=0.8, confidence_of="token")
    trained.fit(X, Y, unlabelled=MORE)
    tables = trained.tagger_.predict_proba(MORE)
    sure = [(table.max(1) >= 0.8).tolist() for table in tables]
    assert [[label is not None for label in labels] for labels in trained.labels_] == sure
    assert {True, False} == {known for sentence in sure for known in sentence}
