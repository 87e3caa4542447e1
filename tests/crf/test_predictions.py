"""Predictions are those of the model, by going through all labellings."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from tests.taggers.toys import (
    LABELS,
    WORDS,
    all_paths,
    attributes_of,
    log_sum,
    node_probabilities,
    path_scores,
    toy_corpus,
)

X, Y = toy_corpus(0)

tokens = st.builds(
    lambda word, size: {"w": word, "size": size, "bias": True},
    st.sampled_from([*WORDS, "unseen"]),
    st.floats(-3, 3, allow_subnormal=False),
)
corpora = st.lists(st.lists(tokens, max_size=5), max_size=6)


@pytest.fixture(scope="module")
def fitted():
    return jaxseq.CRFTagger(cores=1, l2=0.1, weights="dense").fit(X, Y)


@given(corpus=corpora)
def test_all_predictions_agree_with_enumeration(corpus, fitted):
    found = zip(
        corpus,
        fitted.predict(corpus),
        fitted.predict_proba(corpus),
        fitted.predict_marginals(corpus),
        fitted.predict_k_best(corpus, 4),
        strict=True,
    )
    for sentence, path, proba, marginals, best in found:
        if not sentence:
            assert path == marginals == []
            assert proba.shape == (0, 3)
            assert best == [([], 0.0)]
            continue
        paths, scores = path_scores(fitted, [attributes_of(token) for token in sentence])
        score_of = {tuple(LABELS[k] for k in p): s for p, s in zip(paths, scores)}
        log_z = log_sum(scores)
        assert score_of[tuple(path)] == pytest.approx(scores.max(), abs=1e-4)
        np.testing.assert_allclose(proba, node_probabilities(paths, scores, 3), atol=1e-5)
        assert marginals == [dict(zip(LABELS, row)) for row in proba.tolist()]
        count = min(4, len(paths))
        assert len(best) == len({tuple(labels) for labels, _ in best}) == count
        expected = np.sort(scores)[::-1][:count] - log_z
        np.testing.assert_allclose([log_prob for _, log_prob in best], expected, atol=1e-4)
        for labels, log_prob in best:
            assert log_prob == pytest.approx(score_of[tuple(labels)] - log_z, abs=1e-4)


def test_predictions_agree_with_the_chain_functions(fitted):
    longest = [sentence for sentence in X if len(sentence) == 4]  # one length, one compilation
    assert len(longest) > 1
    found = zip(longest, fitted.predict(longest), fitted.predict_proba(longest))
    for sentence, path, proba in found:
        features = fitted.extractor_.transform([sentence])
        values = None if features.values is None else jnp.asarray(features.values)
        chain = fitted.model_.chain(jnp.asarray(features.ids), values)
        assert [LABELS[k] for k in jaxseq.viterbi(chain)[0].tolist()] == path
        np.testing.assert_allclose(jaxseq.marginals(chain).nodes, proba, atol=1e-6)
        ((best, log_prob),) = fitted.predict_k_best([sentence], 1)[0]
        assert best == path
        codes = jnp.array([LABELS.index(label) for label in best])
        assert log_prob == pytest.approx(float(jaxseq.log_prob(chain, codes)), abs=1e-5)


def test_a_sentence_is_tagged_alike_alone_and_among_others(fitted):
    corpus, _ = toy_corpus(5, sentences=40)
    together = fitted.predict_proba(corpus)
    for sentence, proba in zip(corpus[:10], together):
        np.testing.assert_allclose(fitted.predict_proba([sentence])[0], proba, atol=1e-6)


def pair_names(sentence):
    return [[f"B01:{word}"] for word in sentence[1:]]


CRFPP = "U00:%x[0,0]\nU01:%x[-1,0]\nB01:%x[0,0]\n"


def crfpp_attributes(sentence):
    return [
        {f"U00:{word}": 1.0, f"U01:{before}": 1.0}
        for before, word in zip(["_B-1", *sentence], sentence)
    ]


@pytest.fixture(scope="module", params=[True, False], ids=["with transitions", "without"])
def crfpp_fitted(request):
    text = CRFPP + "B\n" * request.param
    templates = jaxseq.text.Templates.parse(text, columns=["word"])
    assert templates.transitions == request.param
    words = [[token["w"] for token in sentence] for sentence in X]
    return jaxseq.CRFTagger(templates, cores=1, l2=0.2).fit(words, Y)


def test_crfpp_bigram_features_agree_with_enumeration(crfpp_fitted):
    tagger = crfpp_fitted
    assert set(tagger.extractor_.edge_attribute_names()) <= {f"B01:{word}" for word in WORDS}
    assert float(jnp.abs(tagger.model_.edge_weights).max()) > 0.01
    corpus = [["u"], ["u", "v", "unseen", "w"], [], ["x", "x", "w"], ["v", "u"]]
    found = zip(
        corpus,
        tagger.predict(corpus),
        tagger.predict_proba(corpus),
        tagger.predict_k_best(corpus, 3),
    )
    for sentence, path, proba, best in found:
        if not sentence:
            assert path == []
            assert proba.shape == (0, 3)
            assert best == [([], 0.0)]
            continue
        paths, scores = path_scores(tagger, crfpp_attributes(sentence), pair_names(sentence))
        score_of = {tuple(LABELS[k] for k in p): s for p, s in zip(paths, scores)}
        assert score_of[tuple(path)] == pytest.approx(scores.max(), abs=1e-4)
        np.testing.assert_allclose(proba, node_probabilities(paths, scores, 3), atol=1e-5)
        expected = np.sort(scores)[::-1][:3] - log_sum(scores)
        np.testing.assert_allclose([p for _, p in best], expected, atol=1e-4)


def test_templates_without_transitions_give_a_model_without(crfpp_fitted):
    assert crfpp_fitted.templates.transitions == bool(
        jnp.abs(crfpp_fitted.model_.transitions).max() > 0
    )


def test_without_transitions_and_pairs_tokens_are_labelled_each_for_itself():
    templates = jaxseq.text.Templates(["word[0]"], transitions=False)
    words = [["u", "v", "w", "x"], ["x", "u"]]
    tagger = jaxseq.CRFTagger(templates, cores=1).fit(words, [["A", "B", "C", "A"], ["B", "A"]])
    assert not np.asarray(tagger.model_.transitions).any()
    alone = tagger.model_.scores(tagger.extractor_.transform([["u", "v", "w"]]).ids)
    expected = np.exp(alone[1]) / np.exp(alone[1]).sum()
    np.testing.assert_allclose(tagger.predict_proba([["u", "v", "w"]])[0][1], expected, atol=1e-6)


def test_enumeration_itself_counts_all_paths():
    assert len({tuple(path) for path in all_paths(3, 2).tolist()}) == 8
