"""Sentences of all lengths, and what was never seen in training."""

import time

import numpy as np
import pytest

import jaxseq
from tests.taggers.toys import toy_corpus

X, Y = toy_corpus(0)


@pytest.fixture(scope="module")
def fitted():
    return jaxseq.CRFTagger(cores=1, weights="dense").fit(X, Y)


def test_empty_sentences_change_nothing(fitted):
    x = [[], *X[:3], [], [], *X[3:], []]
    y = [[], *Y[:3], [], [], *Y[3:], []]
    found = jaxseq.CRFTagger(cores=1, weights="dense").fit(x, y)
    np.testing.assert_array_equal(found.model_.weights, fitted.model_.weights)
    predicted = found.predict(x)
    assert [p for p in predicted if p] == fitted.predict(X)
    assert [len(p) for p in predicted] == [len(labels) for labels in y]
    assert found.score(x, y) == fitted.score(X, Y)


@pytest.mark.parametrize(
    "x", [[], [[]], [[], []], iter([])], ids=["none", "one", "two", "iterator"]
)
def test_nothing_to_tag_gives_nothing(x, fitted):
    x = list(x)
    assert fitted.predict(x) == [[]] * len(x)
    assert fitted.predict_marginals(x) == [[]] * len(x)
    assert [p.shape for p in fitted.predict_proba(x)] == [(0, 3)] * len(x)
    assert fitted.predict_k_best(x, 2) == [[([], 0.0)]] * len(x)


def test_one_token_sentences_alone_can_be_learnt():
    x, y = [[sentence[0]] for sentence in X], [[labels[0]] for labels in Y]
    found = jaxseq.CRFTagger(cores=1, l2=0.01, weights="dense").fit(x, y)
    assert not np.asarray(found.model_.transitions).any()
    assert found.score(x, y) >= 0.7


def test_a_corpus_with_one_label_is_certain():
    found = jaxseq.CRFTagger(cores=1).fit(X, [["A"] * len(labels) for labels in Y])
    assert found.predict(X[:1]) == [["A"] * len(X[0])]
    for proba in found.predict_proba(X):
        np.testing.assert_allclose(proba, 1, atol=1e-6)


def test_a_token_without_attributes_is_scored_by_its_place(fitted):
    (path,) = fitted.predict([[{}]])
    model = fitted.model_
    assert path == ["ABC"[int(np.argmax(np.asarray(model.start + model.stop)))]]
    found = jaxseq.CRFTagger(cores=1, max_iterations=2).fit([[{}, {}]], [["A", "B"]])
    assert found.predict([[{}, {"unseen": 1.0}]]) == [["A", "B"]]


def test_unseen_attributes_are_ignored(fitted):
    strange = [[{**token, "unseen": "x", "other": 1e30} for token in sentence] for sentence in X]
    for a, b in zip(fitted.predict_proba(strange), fitted.predict_proba(X)):
        np.testing.assert_array_equal(a, b)


def test_labels_never_seen_in_training_count_as_wrong(fitted):
    tokens = sum(map(len, Y))
    right = fitted.score(X, Y) * tokens
    guess = fitted.predict(X)[0][0]
    y = [["NEW", *Y[0][1:]], *Y[1:]]
    assert fitted.score(X, y) == pytest.approx((right - (guess == Y[0][0])) / tokens)
    assert fitted.score(X, [["NEW"] * len(labels) for labels in Y]) == 0


def test_a_sentence_of_20000_tokens_trains_and_is_tagged():
    """Measured on two busy cores, compiling included: training 7 s, tagging 1 s, marginals 2 s,
    the best paths 2 s; tagging once more 0.03 s."""
    rng = np.random.default_rng(0)
    words = rng.choice(["u", "v", "w", "x"], 20_000).tolist()
    labels = [{"u": "A", "v": "B", "w": "C", "x": "A"}[word] for word in words]
    began = time.perf_counter()
    found = jaxseq.CRFTagger(["word[0]"], cores=1, max_iterations=10).fit([words], [labels])
    assert found.predict([words, ["u"], words]) == [labels, ["A"], labels]
    (proba,) = found.predict_proba([words])
    assert proba.shape == (20_000, 3)
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-4)
    ((best, log_prob),) = found.predict_k_best([words], 1)[0]
    assert best == labels
    assert -1000 < log_prob < 0
    assert time.perf_counter() - began < 120  # of a machine that others use too


def test_a_long_sentence_among_short_ones_is_tagged_as_alone(fitted):
    long = X * 40
    long = [token for sentence in long for token in sentence]
    together = fitted.predict_proba([*X, long])
    np.testing.assert_allclose(together[-1], fitted.predict_proba([long])[0], atol=1e-5)
    np.testing.assert_allclose(together[0], fitted.predict_proba([X[0]])[0], atol=1e-5)


def test_sentences_with_many_attributes_and_large_values():
    x = [
        [{f"a{k}": 1.0 for k in range(40)} | {"big": 1e4 * (1 if t % 2 else -1)} for t in range(3)]
    ]
    found = jaxseq.CRFTagger(cores=1).fit(x, [["A", "B", "A"]])
    assert np.isfinite(found.loss_)
    assert found.predict(x) == [["A", "B", "A"]]


def test_a_rate_that_is_too_large_is_blamed_for_what_it_does():
    too_large = jaxseq.CRFTagger(["word[0]"], algorithm="sgd", learning_rate=1e30, progress=False)
    with pytest.raises(ValueError, match="learning_rate: expected one at which the loss falls"):
        too_large.fit([["a", "b"]] * 3, [["P", "Q"]] * 3)


def test_a_sentence_without_a_legal_labelling_is_refused():
    """Under IOBES one word needs S, and there is none."""
    found = jaxseq.CRFTagger(["word[0]"], scheme="IOBES", progress=False)
    found.fit([["a", "b"]], [["B-X", "E-X"]])
    assert found.predict([["a", "b"]]) == [["B-X", "E-X"]]
    for predict in (found.predict, found.predict_proba, found.predict_marginals):
        with pytest.raises(ValueError, match=r"X\[1\]: expected .* labelling, got one of 1 tokens"):
            predict([["a", "b"], ["a"]])
    assert found.predict_k_best([["a"]], 2) == [[]]


def test_negative_counts_and_used_up_templates_are_refused():
    fitted = jaxseq.CRFTagger(["word[0]"], progress=False).fit([["a"]], [["P"]])
    for ask in (lambda: fitted.top_features("P", -1), lambda: fitted.top_transitions(-1)):
        with pytest.raises(ValueError, match="count: expected"):
            ask()
    fitted.set_params(templates=(template for template in ["word[0]"]))
    with pytest.raises(ValueError, match="templates: expected a list"):
        fitted.fit([["a"]], [["P"]])


def test_sentences_may_be_arrays_of_strings():
    fitted = jaxseq.CRFTagger(["word[0]"], progress=False).fit([np.array(["a", "b"])], [["P", "Q"]])
    assert fitted.predict([np.array(["a", "b"])]) == [["P", "Q"]]
