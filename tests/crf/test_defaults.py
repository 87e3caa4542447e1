"""What a tagger does that was told nothing: templates, and l2."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.text import GENERAL, DictExtractor, Sentence, TemplateExtractor, general_templates
from tests.taggers.toys import toy_corpus, words_of

DICTS, Y = toy_corpus(3, sentences=12)
X = words_of(DICTS)
TOKENS = sum(map(len, X))
PER_TOKEN = 1 / 200_000


def tagger(**settings):
    return jaxseq.CRFTagger(**{"cores": 1, "progress": False, "max_iterations": 15, **settings})


def same_model(one, other):
    for name in ("table", "transitions", "start", "stop"):
        np.testing.assert_array_equal(getattr(one.model_, name), getattr(other.model_, name))


# -------------------------------------------------------------------------------- templates


def test_words_get_general_templates():
    expected = tagger(templates=GENERAL).fit(X, Y)
    columns = [Sentence({"label": y, "word": x, "pos": x[::-1]}) for x, y in zip(X, Y)]
    mappings = [{"word": x} for x in X]
    for sentences in (X, columns, mappings, [np.array(x) for x in X], [[], *X]):
        fitted = tagger().fit(sentences, Y if len(sentences) == len(Y) else [[], *Y])
        assert isinstance(fitted.extractor_, TemplateExtractor)
        assert fitted.extractor_.templates == GENERAL
        # The labels, which are a column as well, are not among the attributes.
        same_model(fitted, expected)


def test_attributes_of_tokens_stay_what_they_are():
    for sentences in (DICTS, [[], *DICTS], [[list(token) for token in x] for x in DICTS]):
        fitted = tagger().fit(sentences, Y if len(sentences) == len(Y) else [[], *Y])
        assert isinstance(fitted.extractor_, DictExtractor)


def test_words_among_attributes_are_refused():
    with pytest.raises(ValueError, match="sentence 1"):
        tagger().fit([DICTS[0], ["u"]], [Y[0], ["A"]])
    with pytest.raises(ValueError, match="sentence 1"):
        tagger().fit([["u"], [{"w": "u"}]], [["A"], ["A"]])


def test_a_model_by_default_is_stored_whole(tmp_path):
    fitted = tagger().fit(X, Y)
    fitted.save(tmp_path / "m")
    loaded = jaxseq.load(tmp_path / "m")
    assert loaded.predict(X) == fitted.predict(X)
    assert (loaded.templates, loaded.l2, loaded.l2_) == (None, None, fitted.l2_)
    assert loaded.extractor_.templates == GENERAL


def test_general_templates_read_all_columns():
    assert general_templates(["word"]) == GENERAL
    with_pos = general_templates(["pos", "word"])
    assert set(with_pos.columns) == {"word", "pos"}
    assert set(GENERAL.unigram) < set(with_pos.unigram)
    assert "shape(form[0])" in map(str, general_templates(["form", "pos"]).unigram)
    with pytest.raises(ValueError, match="columns: expected at least one"):
        general_templates([])


def test_shards_by_default_are_of_general_templates(tmp_path):
    def corpus():
        return list(zip(X, Y))

    shards = jaxseq.write_shards(corpus, tmp_path / "words")
    trained = jaxseq.train_from_shards(shards, tagger(algorithm="adamw", epochs=1))
    assert trained.extractor_.templates == GENERAL
    assert trained.l2_ == 0.001
    shards = jaxseq.write_shards(lambda: list(zip(DICTS, Y)), tmp_path / "dicts")
    trained = jaxseq.train_from_shards(shards, tagger(algorithm="adamw", epochs=1))
    assert isinstance(trained.extractor_, DictExtractor)


# --------------------------------------------------------------------------------------- l2


@pytest.mark.parametrize("times", [1, 1_000, 3_000, 10**9])
def test_l2_grows_with_the_labelled_tokens(times):
    weights = [float(times)] * len(X)
    fitted = tagger(templates=["word[0]"]).fit(X, Y, sample_weight=weights)
    assert fitted.l2_ == pytest.approx(min(max(TOKENS * times * PER_TOKEN, 0.001), 1.0))
    same = tagger(templates=["word[0]"], l2=fitted.l2_).fit(X, Y, sample_weight=weights)
    same_model(fitted, same)


def test_only_tokens_of_which_something_is_known_count():
    unknown = [[None] * len(y) if number % 2 else y for number, y in enumerate(Y)]
    known = sum(len(y) for y in Y[::2])
    some = [[{"A", "B"}] if len(y) == 1 else y for y in unknown]  # which says something
    weights = [5_000.0] * len(X)
    fitted = tagger(templates=["word[0]"]).fit(X, unknown, sample_weight=weights, unlabelled=X)
    assert fitted.l2_ == pytest.approx(known * 5_000 * PER_TOKEN)
    more = sum(y == [None] for y in unknown)
    fitted = tagger(templates=["word[0]"]).fit(X, some, sample_weight=weights)
    assert fitted.l2_ == pytest.approx((known + more) * 5_000 * PER_TOKEN)


@pytest.mark.parametrize("l2", [0.0, 0.5, 7.0])
def test_an_l2_that_is_set_stays(l2):
    assert tagger(templates=["word[0]"], l2=l2).fit(X, Y).l2_ == l2


# ------------------------------------------------------------------------ cross-validation


def test_the_chosen_l2_is_that_of_a_plain_loop():
    from sklearn.model_selection import KFold

    plain = tagger(templates=["word[0]"])
    choice = jaxseq.choose_l2(plain, X, Y, values=(0.01, 30.0), folds=2, seed=4, progress=False)
    assert not hasattr(plain, "model_")
    for fold, (train, held_out) in enumerate(KFold(2, shuffle=True, random_state=4).split(X)):
        for row, l2 in enumerate((0.01, 30.0)):
            one = tagger(templates=["word[0]"], l2=l2).fit(
                [X[i] for i in train], [Y[i] for i in train]
            )
            score = one.score([X[i] for i in held_out], [Y[i] for i in held_out])
            assert choice.scores[row, fold] == pytest.approx(score)
    assert choice.values == (0.01, 30.0)
    assert choice.best in choice.values


def test_l2_is_chosen_by_the_labels_that_are_known():
    partial = [[None, *y[1:]] for y in Y]
    how = {"values": (0.01, 1.0), "folds": 2, "progress": False}
    choice = jaxseq.choose_l2(tagger(templates=["word[0]"]), X, partial, **how)
    assert ((choice.scores >= 0) & (choice.scores <= 1)).all()
    with pytest.raises(ValueError, match="expected a known label"):
        jaxseq.choose_l2(tagger(), X, partial, scoring="span_f1", **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"values": ()}, "values: expected at least one"),
        ({"values": (-1.0,)}, "values: expected a finite number, 0 or more"),
        ({"folds": 1}, "folds: expected"),
        ({"folds": 100}, "folds: expected at most one per sentence"),
        ({"scoring": "f1"}, "scoring: expected one of"),
    ],
)
def test_what_l2_cannot_be_chosen_by(how, message):
    with pytest.raises(ValueError, match=message):
        jaxseq.choose_l2(tagger(), X, Y, progress=False, **how)
