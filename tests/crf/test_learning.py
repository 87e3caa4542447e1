"""What is learnt: objectives by enumeration, partial labels, weights, warm starts, schemes."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from tests.taggers.toys import (
    attributes_of,
    negative_log_likelihood,
    squares,
    toy_corpus,
    words_of,
)

X, Y = toy_corpus(0)
TOKENS = [[attributes_of(token) for token in sentence] for sentence in X]


def tagger(**params):
    return jaxseq.CRFTagger(**{"cores": 1, "l2": 0.5, "weights": "dense", **params})


@pytest.fixture(scope="module")
def fitted():
    return tagger().fit(X, Y)


def same_model(one, other, atol=2e-3):
    for name in ("weights", "transitions", "start", "stop"):
        a, b = (np.asarray(getattr(t.model_, name)) for t in (one, other))
        np.testing.assert_allclose(a, b, atol=atol, err_msg=name)


# ---------------------------------------------------------------------------- the objective


def partial_labels():
    """Sets, None and labels in turn; one sentence wholly unknown."""
    kinds = [lambda label: label, lambda label: {label, "A"}, lambda label: None]
    y = [[kinds[(i + t) % 3](label) for t, label in enumerate(ls)] for i, ls in enumerate(Y)]
    y[1] = [None] * len(Y[1])
    return y


WEIGHTS = np.linspace(0, 2, len(X)).tolist()


@pytest.mark.parametrize(
    ("y", "weights", "params"),
    [
        (Y, None, {}),
        (Y, WEIGHTS, {}),
        (partial_labels(), None, {}),
        (partial_labels(), WEIGHTS, {"weights": "observed"}),
        (Y, None, {"weights": "observed"}),
        (Y, None, {"l1": 0.3}),
    ],
    ids=["plain", "weighted", "partial", "partial, weighted, observed", "observed", "l1"],
)
def test_loss_is_the_penalised_likelihood_by_enumeration(y, weights, params):
    found = tagger(**params).fit(X, y, sample_weight=weights)
    expected = negative_log_likelihood(found, TOKENS, y, weights) + found.l2 / 2 * squares(found)
    if found.l1:
        model = found.model_
        arrays = (model.weights, model.transitions, model.start, model.stop)
        expected += found.l1 * sum(float(np.abs(np.asarray(a)).sum()) for a in arrays)
    assert found.loss_ == pytest.approx(expected, rel=1e-5)


def test_no_small_step_improves_the_objective(fitted):
    """At the optimum, by enumeration, along random directions of all parameters."""
    rng = np.random.default_rng(0)
    model, best = fitted.model_, fitted.loss_
    moved = tagger()
    for _ in range(10):
        noise = [
            a + 0.05 * rng.normal(size=a.shape)
            for a in (model.weights, model.transitions, model.start, model.stop)
        ]
        crf = jaxseq.CRF(*(np.asarray(a, np.float32) for a in noise))
        moved._take(crf, fitted.classes_.tolist(), fitted.extractor_)
        loss = negative_log_likelihood(moved, TOKENS, Y) + moved.l2 / 2 * squares(moved)
        assert loss > best


def test_bigram_features_have_the_likelihood_by_enumeration():
    templates = jaxseq.text.Templates.parse("U00:%x[0,0]\nB01:%x[0,0]\nB", columns=["word"])
    words = words_of(X)
    tokens = [[{f"U00:{word}": 1.0} for word in sentence] for sentence in words]
    pairs = [[[f"B01:{word}"] for word in sentence[1:]] for sentence in words]
    for y in (Y, partial_labels()):
        found = tagger(templates=templates).fit(words, y)
        likelihood = negative_log_likelihood(found, tokens, y, pairs=pairs)
        assert found.loss_ == pytest.approx(likelihood + found.l2 / 2 * squares(found), rel=1e-5)


# --------------------------------------------------------------------------- partial labels


def test_a_set_of_one_is_the_label(fitted):
    y = [[{label} if t % 2 else label for t, label in enumerate(ls)] for ls in Y]
    np.testing.assert_array_equal(tagger().fit(X, y).model_.weights, fitted.model_.weights)


def test_labels_that_are_all_known_cost_the_same_as_partial_ones(fitted):
    """One more sentence, of which nothing is known, changes nothing but the way of computing."""
    found = tagger().fit([*X, X[0]], [*Y, [None] * len(X[0])])
    assert found.loss_ == pytest.approx(fitted.loss_, rel=1e-5)
    same_model(found, fitted)


def test_classes_are_found_in_sets():
    y = [[{label, "C"} if label == "A" else "B" for label in labels] for labels in Y]
    assert tagger(max_iterations=1).fit(X, y).classes_.tolist() == ["A", "B", "C"]


def test_the_missing_labels_are_inferred_from_the_known():
    by_word = {"u": "A", "v": "B", "w": "C", "x": {"A", "B"}}
    y = [[by_word[token["w"]] for token in sentence] for sentence in X]
    y[-1] = ["B"]  # the only x whose label is known
    found = tagger(l2=0.1).fit(X, y)
    assert found.predict([[{"w": "x", "size": 1.0}]]) == [["B"]]


# ------------------------------------------------------------------------ weights of sentences


def test_weight_two_is_the_sentence_twice():
    doubled = tagger().fit(X, Y, sample_weight=[2.0] + [1.0] * (len(X) - 1))
    twice = tagger().fit([*X, X[0]], [*Y, Y[0]])
    assert doubled.loss_ == pytest.approx(twice.loss_, rel=1e-5)
    same_model(doubled, twice)


def test_weight_zero_leaves_a_sentence_out(fitted):
    wrong = [["C"] * len(labels) for labels in Y]
    both = tagger().fit(X + X, Y + wrong, sample_weight=[1.0] * len(X) + [0.0] * len(X))
    assert both.loss_ == pytest.approx(fitted.loss_, rel=1e-5)
    same_model(both, fitted)


# --------------------------------------------------------------------------------- warm start


def test_warm_start_takes_fewer_iterations_to_the_same_model(fitted):
    warm = tagger().fit(X, Y, warm_start_from=fitted)
    assert warm.n_iter_ < fitted.n_iter_ / 2
    assert warm.loss_ == pytest.approx(fitted.loss_, rel=1e-5)


@pytest.mark.parametrize("weights", ["mixed", "observed", "tied"])
def test_warm_start_from_other_kinds_of_weights_ends_at_the_same_optimum(weights, fitted):
    cold = tagger(weights=weights).fit(X, Y)
    warm = tagger(weights=weights).fit(X, Y, warm_start_from=fitted)
    assert warm.loss_ == pytest.approx(cold.loss_, rel=1e-4)
    unseen = np.asarray(cold.model_.transitions) == 0
    assert unseen.any() == (weights == "observed")
    assert not np.asarray(warm.model_.transitions)[unseen].any()


def test_warm_start_carries_what_both_have_and_nothing_else(fitted):
    """Labels and attributes in part shared: names decide, not numbers."""
    rename = {"A": "Z", "B": "B", "C": "C"}
    y = [[rename[label] for label in labels] for labels in Y]
    x = [[{"new": 1.0, **token} for token in sentence] for sentence in X]
    from jaxseq.crf import carry_over

    target = tagger(max_iterations=1).fit(x, y)
    carried = carry_over(fitted, target.extractor_, target.classes_.tolist())
    old_names = fitted.extractor_.attribute_names()
    for row, name in enumerate(target.extractor_.attribute_names()):
        for column, label in enumerate(["B", "C", "Z"]):
            expected = 0.0
            if name in old_names and label != "Z":
                expected = float(fitted.model_.weights[old_names.index(name), "ABC".index(label)])
            assert float(carried.weights[row, column]) == expected
    old = np.asarray(fitted.model_.transitions)
    np.testing.assert_array_equal(np.asarray(carried.transitions)[:2, :2], old[1:, 1:])
    assert not np.asarray(carried.transitions)[2].any()
    np.testing.assert_array_equal(carried.start, [*fitted.model_.start[1:], 0])
    np.testing.assert_array_equal(carried.stop, [*fitted.model_.stop[1:], 0])
    cold, warm = tagger().fit(x, y), tagger().fit(x, y, warm_start_from=fitted)
    assert warm.loss_ == pytest.approx(cold.loss_, rel=1e-5)


def test_warm_start_carries_the_weights_of_pairs():
    templates = jaxseq.text.Templates(["word[0]"], bigram=["word[0]"])
    words = words_of(X)
    cold = tagger(templates=templates).fit(words, Y)
    warm = tagger(templates=templates).fit(words, Y, warm_start_from=cold)
    assert warm.n_iter_ < cold.n_iter_ / 2
    np.testing.assert_allclose(warm.model_.edge_weights, cold.model_.edge_weights, atol=5e-3)


# ------------------------------------------------------------------------------------- schemes

IOB = ["B-X", "I-X", "O", "B-Y", "I-Y"]
IOB_WORDS = [["u", "v", "w", "x"], ["w", "u", "v"], ["x", "w"], ["v"]]
IOB_LABELS = [["B-X", "I-X", "O", "B-Y"], ["O", "B-Y", "I-Y"], ["B-X", "O"], ["O"]]


@pytest.fixture(scope="module")
def iob_fitted():
    return jaxseq.CRFTagger(["word[0]"], l2=1.0, cores=1, scheme="IOB2").fit(IOB_WORDS, IOB_LABELS)


@given(st.lists(st.lists(st.sampled_from("uvwxz"), max_size=7), max_size=5))
def test_a_scheme_is_always_obeyed(iob_fitted, words):
    best = iob_fitted.predict_k_best(words, 5)
    probabilities = iob_fitted.predict_proba(words)
    for path, candidates, proba in zip(iob_fitted.predict(words), best, probabilities):
        for labels in [path, *(labels for labels, _ in candidates)]:
            jaxseq.text.tag_spans(labels, "IOB2")
        if path:
            inside = [label.startswith("I-") for label in iob_fitted.classes_]
            assert not proba[0][inside].any()
            np.testing.assert_allclose(proba.sum(1), 1, atol=1e-5)


def test_without_a_scheme_the_same_weights_would_break_it(iob_fitted):
    """What the test above would miss if nothing were forbidden."""
    model = iob_fitted.model_
    assert bool(np.isneginf(np.asarray(model.transitions)).any())
    free = jaxseq.CRFTagger(["word[0]"], cores=1, l2=0.01)
    free.fit([["u"], ["v"]], [["B-X"], ["I-X"]])
    with pytest.raises(ValueError, match="tag 0"):
        jaxseq.text.tag_spans(free.predict([["v"]])[0], "IOB2")


def test_loss_under_a_scheme_is_by_legal_paths_only(iob_fitted):
    tokens = [[{f"word[0]={word}": 1.0} for word in sentence] for sentence in IOB_WORDS]
    model = iob_fitted.model_
    finite = [np.asarray(a, np.float64) for a in (model.transitions, model.start, model.stop)]
    total = sum((a[np.isfinite(a)] ** 2).sum() for a in [*finite, np.asarray(model.weights)])
    likelihood = negative_log_likelihood(iob_fitted, tokens, IOB_LABELS)
    assert iob_fitted.loss_ == pytest.approx(likelihood + total / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("sentence", "labels", "says"),
    [
        (2, ["I-X", "O"], r"y\[2\]\[0\]: expected .* got 'I-X' at the start"),
        (1, ["O", "I-Y", "I-Y"], r"y\[1\]\[1\]: expected .* got 'I-Y' after 'O'"),
        (0, ["B-X", "I-X", "B-X", "I-Y"], r"y\[0\]\[3\]: expected .* got 'I-Y' after 'B-X'"),
    ],
)
def test_labels_that_the_scheme_forbids_are_refused_with_their_place(sentence, labels, says):
    y = [list(ls) for ls in IOB_LABELS]
    y[sentence] = labels
    with pytest.raises(ValueError, match=says):
        jaxseq.CRFTagger(["word[0]"], scheme="IOB2").fit(IOB_WORDS, y)


def test_a_last_label_that_the_scheme_forbids_is_refused():
    with pytest.raises(ValueError, match=r"y\[0\]\[1\]: expected labels that the scheme allows"):
        jaxseq.CRFTagger(["word[0]"], scheme="IOBES").fit(
            [["u", "v"], ["u", "v"]], [["S-X", "B-X"], ["B-X", "E-X"]]
        )


def test_partial_labels_that_leave_nothing_legal_are_refused():
    y = [[{"I-X", "I-Y"}, *IOB_LABELS[0][1:]], *IOB_LABELS[1:]]
    with pytest.raises(ValueError, match="at least one legal labelling"):
        jaxseq.CRFTagger(["word[0]"], cores=1, scheme="IOB2").fit(IOB_WORDS, y)


# ------------------------------------------------------------------------- sets of weights


def test_observed_weights_are_those_of_pairs_that_occur():
    found = tagger(weights="observed").fit(X, Y)
    seen = {
        (name, label)
        for sentence, labels in zip(TOKENS, Y)
        for token, label in zip(sentence, labels)
        for name in token
    }
    pairs = {(a, b) for labels in Y for a, b in itertools.pairwise(labels)}
    weights = np.asarray(found.model_.weights)
    for row, name in enumerate(found.extractor_.attribute_names()):
        for column, label in enumerate("ABC"):
            assert (weights[row, column] != 0) == ((name, label) in seen), (name, label)
    for i, before in enumerate("ABC"):
        for j, after in enumerate("ABC"):
            assert (found.model_.transitions[i, j] != 0) == ((before, after) in pairs)


def test_mixed_weights_are_dense_for_frequent_attributes_and_observed_for_rare_ones():
    found = tagger(weights="mixed").fit(X, Y)
    pairs = [
        (name, label)
        for sentence, labels in zip(TOKENS, Y)
        for token, label in zip(sentence, labels)
        for name in token
    ]
    count = collections.Counter(name for name, _ in pairs)
    assert min(count.values()) < 10 <= max(count.values())
    weights = np.asarray(found.model_.weights)
    for row, name in enumerate(found.extractor_.attribute_names()):
        for column, label in enumerate("ABC"):
            learnt = count[name] >= 10 or (name, label) in pairs
            assert (weights[row, column] != 0) == learnt, (name, label)
    assert np.asarray(found.model_.transitions).all()


def test_dense_weights_are_all_used(fitted):
    assert np.asarray(fitted.model_.weights).all()
    assert np.asarray(fitted.model_.transitions).all()


def test_tied_weights_are_shared_by_labels_of_one_type():
    one = jaxseq.CRFTagger(["word[0]"], l2=1.0, cores=1, weights="tied")
    found = one.fit(IOB_WORDS, IOB_LABELS)
    columns = dict(zip(found.classes_, np.asarray(found.model_.weights).T))
    np.testing.assert_array_equal(columns["B-X"], columns["I-X"])
    np.testing.assert_array_equal(columns["B-Y"], columns["I-Y"])
    assert (columns["B-X"] != columns["B-Y"]).any()
    tokens = [[{f"word[0]={word}": 1.0} for word in sentence] for sentence in IOB_WORDS]
    model = found.model_
    shared = np.stack([columns[label] for label in ("B-X", "B-Y", "O")])
    arrays = (shared, model.transitions, model.start, model.stop)
    penalty = sum(float((np.asarray(a, np.float64) ** 2).sum()) for a in arrays) / 2
    likelihood = negative_log_likelihood(found, tokens, IOB_LABELS)
    assert found.loss_ == pytest.approx(likelihood + penalty, rel=1e-5)


def test_cutoff_leaves_rare_attributes_out():
    x = [[{"often": 1.0, "rare": 1.0}, {"often": 1.0}]]
    found = tagger(cutoff=2, max_iterations=1).fit(x, [["A", "B"]])
    assert found.extractor_.attribute_names() == ["often"]


# --------------------------------------------------------------------------------- algorithms


MANY_X, MANY_Y = toy_corpus(2, sentences=150)  # several rows, and so several batches


def test_sgd_comes_near_the_optimum_of_the_objective():
    best = tagger().fit(MANY_X, MANY_Y)
    found = tagger(algorithm="sgd", epochs=40, batch_size=40).fit(MANY_X, MANY_Y)
    tokens = [[attributes_of(token) for token in sentence] for sentence in MANY_X]
    loss = negative_log_likelihood(found, tokens, MANY_Y) + found.l2 / 2 * squares(found)
    assert found.n_iter_ == 40
    assert found.n_evaluations_ > 40
    assert best.loss_ * (1 - 1e-5) < loss < best.loss_ * 1.01


def test_adamw_comes_to_a_good_likelihood(fitted):
    found = tagger(algorithm="adamw", epochs=60, learning_rate=0.1).fit(X, Y)
    reached = negative_log_likelihood(found, TOKENS, Y)
    assert reached < 1.1 * negative_log_likelihood(fitted, TOKENS, Y)


def test_mini_batches_depend_on_the_seed_alone():
    def train(seed):
        options = {"algorithm": "sgd", "epochs": 1, "batch_size": 40}
        return np.asarray(tagger(seed=seed, **options).fit(MANY_X, MANY_Y).model_.weights)

    np.testing.assert_array_equal(train(1), train(1))
    assert (train(1) != train(2)).any()


def test_l1_gives_zeros_and_more_of_them_when_stronger():
    zeros = [
        int((np.asarray(tagger(l1=l1, l2=0.0).fit(X, Y).model_.weights) == 0).sum())
        for l1 in (0.1, 1.0, 100.0)
    ]
    assert 0 < zeros[0] < zeros[1] < zeros[2] == 18


def test_interrupting_keeps_the_best_model_so_far(monkeypatch):
    from jaxseq.crf import _lbfgs

    real, calls = _lbfgs.iterate, []

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(_lbfgs, "iterate", interrupted)
    found = tagger().fit(X, Y)
    monkeypatch.undo()
    assert found.n_iter_ == 3
    assert found.outcome_.startswith("interrupted")
    three = tagger(max_iterations=3).fit(X, Y)
    np.testing.assert_array_equal(found.model_.weights, three.model_.weights)
