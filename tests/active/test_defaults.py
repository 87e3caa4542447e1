"""Active learning that was told nothing, and what it is compared with."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.active import Answer, GroupQueries, Look, RandomQueries, informative, propose
from jaxseq.active import _learner as _active_learner
from jaxseq.text import Sentence
from tests.taggers.toys import LABELS, toy_corpus, words_of

DICTS, Y = toy_corpus(7, sentences=24)
X = words_of(DICTS)


def tagger(**settings):
    return jaxseq.CRFTagger(**{"cores": 1, "progress": False, "max_iterations": 15, **settings})


def simulated(X=X, strategy=None, **settings):
    given = {} if strategy is None else {"strategy": strategy}
    learner = jaxseq.ActiveLearner(
        tagger(**settings), **given, initial=2, max_rounds=2, progress=False
    )
    learner.simulate(X, Y)
    return learner


def test_groups_are_asked_of_words_in_any_column():
    assert jaxseq.ActiveLearner(tagger()).strategy == GroupQueries(count=500)
    queries = simulated(strategy=GroupQueries(count=3), templates=["word[0]"])._run.history
    columns = [Sentence({"form": x}) for x in X]
    others = simulated(columns, GroupQueries(count=3), templates=["form[0]"])._run.history
    assert [one["objective"] for one in queries] == [one["objective"] for one in others]


def test_tokens_without_words_are_groups_of_one():
    learner = jaxseq.ActiveLearner(tagger(), GroupQueries(count=4), initial=2)
    learner.begin(DICTS, classes=LABELS)
    groups = learner._run.pool.groups
    assert len(set(groups.tolist())) == len(groups) == sum(map(len, DICTS))
    assert simulated(DICTS).status().labelled_tokens > 4


# ----------------------------------------------------------------------------------- random


def pool():
    lengths = np.array([3, 2, 0, 4, 1])
    look = Look(np.array([0] * 9 + [-1]), np.full(10, 0.5), lengths)
    return look, np.array([True, True, False, True, True, *[False] * 5])


def test_random_tokens_are_open_ones():
    look, known = pool()
    every = propose(look, known, RandomQueries(None, units="tokens")).queries
    # The last sentence has no legal labelling, and all of the second is known.
    places = {(0, 2), (3, 0), (3, 1), (3, 2), (3, 3)}
    assert {(q.sentence, q.start) for q in every} == places
    assert all(q.stop == q.start + 1 and q.score == 0 for q in every)
    assert informative(look, known, RandomQueries(2, units="tokens")) == 5
    drawn = [propose(look, known, RandomQueries(2, "tokens", draw)).queries for draw in range(20)]
    assert all(len(set(one)) == 2 for one in drawn)
    assert {(q.sentence, q.start) for one in drawn for q in one} == places
    assert propose(look, known, RandomQueries(2, "tokens", 3)).queries == drawn[3]


def test_random_sentences_are_asked_whole():
    look, known = pool()
    both = propose(look, known, RandomQueries(None)).queries
    assert {(q.sentence, q.start, q.stop) for q in both} == {(0, 2, 3), (3, 0, 4)}
    assert informative(look, known, RandomQueries()) == 2
    first = {propose(look, known, RandomQueries(1, draw=n)).queries[0] for n in range(20)}
    assert first == set(both)
    nothing = propose(look, np.ones(10, bool), RandomQueries())
    assert nothing.queries == []


def test_a_random_run_is_taken_up_where_it_was(tmp_path):
    learner = jaxseq.ActiveLearner(tagger(), RandomQueries(2, draw=5), initial=2)
    learner.begin(X, classes=LABELS, folder=tmp_path / "run")
    learner.answer(Answer(0, t, label) for t, label in enumerate(Y[0]))
    asked = learner.train().propose()
    again = jaxseq.ActiveLearner.resume(tmp_path / "run", X)
    assert again.strategy == RandomQueries(2, draw=5)
    assert again.propose() == asked


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"draw": -1}, "draw: expected a whole number, 0 or more"), ({"count": 0}, "count: ")],
)
def test_settings_that_cannot_be_drawn_by(settings, message):
    with pytest.raises(ValueError, match=message):
        RandomQueries(**settings)


# ------------------------------------------------------------------------------- refit, l2


def test_refit_chooses_l2_by_the_labels_so_far(monkeypatch):
    learner, values = simulated(strategy=RandomQueries(8, "tokens")), []
    monkeypatch.setattr(_active_learner, "L2_VALUES", (0.02, 50.0))
    real = _active_learner.train_on

    def watched(problem, plan, *more):
        values.append((plan.l2, len(problem.features.lengths)))
        return real(problem, plan, *more)

    monkeypatch.setattr(_active_learner, "train_on", watched)
    chosen = learner.refit(l2="auto")
    assert chosen.l2 == 0.02  # with 50 all tokens get one label
    trained = int(learner._run.known.to_train_on()[0].sum())
    assert [l2 for l2, _ in values] == [0.02, 50.0] * 5 + [0.02]
    assert sum(count for l2, count in values[:-1] if l2 == 50.0) == 4 * trained
    assert values[-1] == (0.02, trained)
    np.testing.assert_array_equal(chosen.model_.table, learner.refit(l2=0.02).model_.table)


def test_models_ask_with_a_larger_l2_than_the_last_one():
    learner = simulated(strategy=RandomQueries(8, "tokens"))
    assert (learner.estimator.l2, learner.tagger_.l2_, learner.refit().l2_) == (None, 1.0, 0.001)
    learner = simulated(strategy=RandomQueries(8, "tokens"), l2=0.5)
    assert (learner.tagger_.l2_, learner.refit().l2_) == (0.5, 0.5)


def test_refit_needs_a_few_sentences_to_choose_by():
    learner = jaxseq.ActiveLearner(tagger(), initial=2).begin(X, classes=LABELS)
    learner.answer([Answer(0, 0, "A")])
    with pytest.raises(ValueError, match="refit, l2: expected labels in at least 5 sentences"):
        learner.refit(l2="auto")
