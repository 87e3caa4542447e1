"""The contract of scikit-learn, and what is refused."""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import jaxseq
from tests.taggers.toys import toy_corpus, words_of

pytestmark = pytest.mark.usefixtures("unchecked")

X, Y = toy_corpus(0)


def tagger(**params):
    return jaxseq.CRFTagger(**{"cores": 1, "max_iterations": 15, "weights": "dense", **params})


@pytest.fixture(scope="module")
def fitted():
    return tagger().fit(X, Y)


def test_parameters_can_be_read_set_and_cloned():
    templates = jaxseq.text.Templates(["word[0]", "word[-1]"])
    given = {"templates": templates, "l1": 0.25, "l2": 3.0, "weights": "dense", "seed": 7}
    one = jaxseq.CRFTagger(**given)
    assert {name: one.get_params()[name] for name in given} == given
    other = clone(one.set_params(l2=5.0, scheme="IOB2"))
    assert other is not one
    assert other.get_params() == {**one.get_params(), "l2": 5.0, "scheme": "IOB2"}
    assert "l2=5.0" in repr(other)
    with pytest.raises(ValueError, match="nonsense"):
        one.set_params(nonsense=1)


def test_fit_returns_the_tagger_and_leaves_its_parameters_and_the_data_alone():
    one = tagger(weights="dense", l2=np.float32(0.5), max_iterations=np.int64(3), progress=False)
    before, data = copy.deepcopy(one.get_params()), copy.deepcopy((X, Y))
    assert one.fit(X, Y) is one
    assert one.get_params() == before
    assert data == (X, Y)
    assert one.classes_.tolist() == ["A", "B", "C"]
    assert one.n_iter_ == 3


def test_clone_of_a_fitted_tagger_is_not_fitted(fitted):
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.predict(X),
        lambda t: t.predict_proba(X),
        lambda t: t.predict_marginals(X),
        lambda t: t.predict_k_best(X, 2),
        lambda t: t.score(X, Y),
        lambda t: t.top_features("A"),
        lambda t: t.top_transitions(),
        lambda t: t.save("never written"),
        lambda t: tagger().fit(X, Y, warm_start_from=t),
    ],
)
def test_before_fit_everything_says_so(use):
    with pytest.raises(NotFittedError):
        use(jaxseq.CRFTagger())


def test_a_failed_fit_keeps_the_old_model(fitted):
    one = copy.copy(fitted)
    expected = one.predict(X)
    with pytest.raises(ValueError, match="y: expected"):
        one.fit(X, Y[:-1])
    assert one.predict(X) == expected


def test_cross_validation_scores_the_folds():
    folds = KFold(2)
    found = cross_val_score(tagger(), X, Y, cv=folds)
    by_hand = []
    for train, test in folds.split(X):
        one = tagger().fit([X[i] for i in train], [Y[i] for i in train])
        predicted = one.predict([X[i] for i in test])
        pairs = [(guess, gold) for p, i in zip(predicted, test) for guess, gold in zip(p, Y[i])]
        by_hand.append(sum(guess == gold for guess, gold in pairs) / len(pairs))
    assert found.tolist() == by_hand


def test_grid_search_over_l2_takes_the_best_and_refits():
    search = GridSearchCV(tagger(), {"l2": [0.1, 1000.0]}, cv=2).fit(X, Y)
    means = search.cv_results_["mean_test_score"]
    assert search.best_params_["l2"] == [0.1, 1000.0][int(np.argmax(means))]
    assert search.best_estimator_.l2 == search.best_params_["l2"]
    assert search.predict(X) == search.best_estimator_.predict(X)


def test_score_is_the_share_of_known_labels_that_are_right(fitted):
    predicted = fitted.predict(X)
    other = {"A": "B", "B": "C", "C": "A"}
    y = [[other[label] for label in labels] for labels in predicted]
    assert fitted.score(X, y) == 0
    y[0] = list(predicted[0])
    tokens = sum(map(len, y))
    assert fitted.score(X, y) == pytest.approx(len(y[0]) / tokens)
    unknown = [predicted[0], [None] * len(y[1]), [{"A", "B"}] * len(y[2]), *y[3:]]
    left = tokens - len(y[1]) - len(y[2])
    assert fitted.score(X, unknown) == pytest.approx(len(y[0]) / left)
    weights = [3.0] + [1.0] * (len(y) - 1)
    share = 3 * len(y[0]) / (tokens + 2 * len(y[0]))
    assert fitted.score(X, y, sample_weight=weights) == pytest.approx(share)
    with pytest.raises(ValueError, match="y: expected at least one token with a known label"):
        fitted.score(X, [[None] * len(labels) for labels in y])


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"l1": -1}, "l1: expected a finite number, 0 or more, got -1"),
        ({"l2": float("nan")}, "l2: expected a finite number"),
        ({"l2": float("inf")}, "l2: expected a finite number"),
        ({"l2": "1"}, "l2: expected a number, got '1'"),
        ({"l2": True}, "l2: expected a number, got True"),
        ({"tolerance": None}, "tolerance: expected a number"),
        ({"max_iterations": 0}, "max_iterations: expected a finite number, 1 or more"),
        ({"max_iterations": 2.5}, "max_iterations: expected a whole number, got 2.5"),
        ({"seed": -1}, "seed: expected a finite number, 0 or more"),
        ({"epochs": 0}, "epochs: expected"),
        ({"batch_size": 0}, "batch_size: expected"),
        ({"learning_rate": -0.1}, "learning_rate: expected"),
        ({"memory_size": 0}, "memory_size: expected"),
        ({"checkpoint_every": 0}, "checkpoint_every: expected"),
        ({"checkpoint": 3}, "checkpoint: expected a path"),
        ({"cores": 0}, "cores: expected"),
        ({"cores": True}, "cores: expected a whole number"),
        ({"cutoff": 0}, "cutoff: expected"),
        ({"weights": "sparse"}, r"weights: expected one of \[.*'dense'.*\], got 'sparse'"),
        ({"algorithm": "newton"}, "algorithm: expected one of"),
        ({"scheme": "BOI"}, "scheme: expected one of"),
        ({"templates": "word[0]"}, "templates: expected a list of templates"),
        ({"templates": 3}, "templates: expected a list of templates"),
        ({"templates": ["word["]}, "template 'word\\['"),
    ],
)
def test_bad_parameters_are_refused_by_fit(params, says):
    with pytest.raises(ValueError, match=says):
        tagger(**params).fit(X, Y)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ([], [], "X: expected at least one sentence"),
        (None, Y, "X: expected sentences, got None"),
        ([[]], [[]], "y: expected at least one token with a label"),
        (X, Y[:-1], f"y: expected labels for {len(X)} sentences, got {len(X) - 1}"),
        (X, None, "y: expected labels"),
        (X, [None] * len(X), r"y\[0\]: expected \d labels, one per token, got None"),
        (X, ["A"] * len(X), r"y\[0\]: expected \d labels, one per token, got 'A'"),
        (X, [Y[0], [*Y[1], "A"], *Y[2:]], r"y\[1\]: expected \d labels"),
        (X, [[1] * len(labels) for labels in Y], r"y\[0\]\[0\]: expected a label"),
        (X, [*Y[:-1], [set()]], rf"y\[{len(X) - 1}\]\[0\]: expected a label"),
        (X, [*Y[:-1], [{1}]], rf"y\[{len(X) - 1}\]\[0\]: expected a label"),
        (X, [[None] * len(labels) for labels in Y], "y: expected at least one token with a label"),
        (["ab"], [["A", "B"]], "sentence 0: expected a Sentence, a mapping"),
        ([[{"a": object()}]], [["A"]], "sentence 0, token 0"),
        ([[{"a": float("nan")}]], [["A"]], "sentence 0, token 0"),
    ],
)
def test_bad_data_are_refused_by_fit(x, y, says):
    with pytest.raises(ValueError, match=says):
        tagger().fit(x, y)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1.0], r"sample_weight: expected \d+ numbers"),
        ([-1.0] + [1.0] * (len(X) - 1), r"sample_weight\[0\]: expected a finite number"),
        ([1.0] * (len(X) - 1) + [float("nan")], rf"sample_weight\[{len(X) - 1}\]: expected"),
        (["a"] * len(X), "sample_weight: expected numbers"),
        ([0.0] * len(X), "sample_weight: expected at least one weight above 0"),
    ],
)
def test_bad_weights_of_sentences_are_refused(weights, says):
    with pytest.raises(ValueError, match=says):
        tagger().fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize("k", [0, -1, 1.5, "2", True])
def test_a_bad_k_is_refused(k, fitted):
    with pytest.raises(ValueError, match="k: expected an integer of at least 1"):
        fitted.predict_k_best(X, k)


def test_a_label_that_the_model_does_not_have_has_no_features(fitted):
    with pytest.raises(ValueError, match=r"label: expected one of \['A', 'B', 'C'\], got 'Z'"):
        fitted.top_features("Z")


def test_top_features_and_transitions_are_the_largest_weights_in_order(fitted):
    names, weights = fitted.extractor_.attribute_names(), np.asarray(fitted.model_.weights)
    for column, label in enumerate("ABC"):
        found = fitted.top_features(label, 3)
        assert [weight for _, weight in found] == sorted(weights[:, column].tolist())[::-1][:3]
        assert all(weights[names.index(name), column] == weight for name, weight in found)
    assert len(fitted.top_features("A", 1000)) == len(names)
    transitions = np.asarray(fitted.model_.transitions)
    found = fitted.top_transitions(4)
    assert [weight for *_, weight in found] == sorted(transitions.ravel().tolist())[::-1][:4]
    for before, after, weight in found:
        assert transitions["ABC".index(before), "ABC".index(after)] == weight
    assert len(fitted.top_transitions(1000)) == 9


def test_sentences_may_come_from_generators_and_numpy():
    expected = tagger().fit(X, Y)
    found = tagger().fit((tuple(sentence) for sentence in X), (np.array(labels) for labels in Y))
    np.testing.assert_array_equal(found.model_.weights, expected.model_.weights)
    assert all(type(label) is str for label in found.classes_)
    assert found.predict(iter(X)) == expected.predict(X)
    words = tagger(templates=["word[0]"]).fit([list(np.array(words)) for words in words_of(X)], Y)
    assert words.predict([[np.str_("u")]]) == words.predict([["u"]])
