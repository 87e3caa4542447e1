"""Short trainings between the rounds of active learning: how long, when not, and on disk."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.active import Answer, TokenQueries
from tests.taggers.toys import LABELS, toy_corpus, words_of

DICTS, Y = toy_corpus(5, sentences=30)
X = words_of(DICTS)
SHORT = 2


def new_learner(between: int | None = SHORT, strategy=TokenQueries(6, 0.95), **settings):  # noqa: B008
    tagger = jaxseq.CRFTagger(
        ["word[0]", "word[-1]"],
        cores=1,
        l2=0.1,
        weights="mixed",
        max_iterations=200,
        **settings.pop("tagger", {}),
    )
    return jaxseq.ActiveLearner(tagger, strategy, initial=2, between=between, **settings)


def answer(learner) -> None:
    learner.answer(
        Answer(q.sentence, t, Y[q.sentence][t])
        for q in learner.propose()
        for t in range(q.start, q.stop)
    )


def begun(*arguments, **settings):
    """After the initial round."""
    learner = new_learner(*arguments, **settings).begin(X, classes=LABELS)
    answer(learner)
    return learner.train()


# -------------------------------------------------------------------------------- how long


def test_trainings_between_rounds_are_short_and_the_last_is_whole():
    learner = new_learner(max_rounds=3, check_warm_start=False)
    records = learner.simulate(X, Y)
    assert [one["short"] for one in records] == [False, True, True, False]
    assert [one["start"] for one in records] == ["cold", "warm", "warm", "warm"]
    assert [one["iterations"] for one in records[1:3]] == [SHORT, SHORT]
    assert records[-1]["iterations"] > SHORT
    outcomes = [one["outcome"] for one in records]
    assert outcomes[1].startswith("stopped: the number of iterations")
    assert outcomes[-1].startswith(("converged", "stopped: no step"))
    whole = new_learner(None, max_rounds=3, check_warm_start=False).simulate(X, Y)
    assert not any(one["short"] for one in whole)
    assert sum(one["iterations"] for one in records) < sum(one["iterations"] for one in whole)


def test_the_last_model_is_as_good_as_one_from_zeros():
    learner = new_learner(max_rounds=4, check_warm_start=False)
    objective = learner.simulate(X, Y)[-1]["objective"]
    cold = learner._train(older=None).record["objective"]
    assert objective <= cold * (1 + 1e-3)
    assert not learner.recheck()


def test_a_training_that_ends_by_itself_is_not_short():
    learner = begun(1000)
    answer(learner)
    same = begun(None)
    answer(same)
    (mine, theirs) = (one.train().history_[-1] for one in (learner, same))
    assert not mine["short"]
    assert mine["iterations"] == theirs["iterations"]
    assert learner.tagger_.loss_ == same.tagger_.loss_


def test_the_setting_does_not_lengthen_a_training():
    learner = begun(5)
    learner.estimator.set_params(max_iterations=3)  # as many as the tagger itself has: all of them
    answer(learner)
    last = learner.train().history_[-1]
    assert (last["iterations"], last["short"]) == (3, False)


def test_epochs_are_limited_likewise():
    # Cold trainings have all their epochs, and a step of a mini-batch is one of many of an epoch.
    settings = {"tagger": {"algorithm": "sgd", "epochs": 6, "batch_size": 4}}
    learner = begun(1, **settings)
    answer(learner)
    short = learner.train().history_[-1]
    answer(learner)
    whole = learner.train(full=True).history_[-1]
    assert (short["short"], whole["short"]) == (True, False)
    assert short["iterations"] < whole["iterations"]


# ------------------------------------------------------------------------------- when not


@pytest.mark.parametrize(("start", "full"), [("cold", False), ("warm", True)])
def test_a_training_may_be_asked_for_in_full(start, full):
    learner = begun()
    answer(learner)
    last = learner.train(start=start, full=full).history_[-1]
    assert not last["short"]
    assert last["iterations"] > SHORT


STOPS = {
    "budget": ({"budget": 30}, "budget"),
    "rounds": ({"max_rounds": 1}, "number of rounds"),
    "nothing left": ({"strategy": TokenQueries(6, 1e-9)}, "nothing informative"),
    "kappa": ({"kappa": -1.0, "strategy": TokenQueries(1000, 0.999, per_sentence=1)}, "κ"),
}


@pytest.mark.parametrize("name", STOPS)
def test_no_short_training_is_the_last(name):
    settings, why = STOPS[name]
    learner = begun(**settings)
    learner.answer([Answer(3, 0, Y[3][0]), Answer(4, 0, Y[4][0])])  # also where nothing is asked
    while True:
        answer(learner)
        if learner.train().status().stop:
            break
        assert learner.history_[-1]["short"]
    assert why in learner.status().why
    assert not learner.history_[-1]["short"]
    assert learner.history_[-1]["iterations"] > SHORT


def test_kappa_of_a_training_that_went_on_is_that_with_the_round_before():
    learner = begun(max_rounds=1)
    before = learner.look().labels
    answer(learner)
    record = learner.train().history_[-1]
    assert len(learner.history_) == 2  # one training, of two parts
    found = jaxseq.active.agreement(before, learner.look().labels)
    assert learner.status().kappa == record["kappa"] == found
    assert record["start"] == "warm"


def test_the_parts_of_a_training_are_added_up():
    learner = begun(max_rounds=1)
    answer(learner)
    first = learner._train(learner.tagger_.model_, SHORT)
    rest = learner._train(first.tagger.model_)
    both = learner.train().history_[-1]
    for name in ("iterations", "evaluations"):
        assert both[name] == first.record[name] + rest.record[name]
    assert both["objective"] == rest.record["objective"]
    together = rest.after(first).record["seconds"]
    for name, seconds in together.items():
        parts = (part.record["seconds"].get(name, 0.0) for part in (first, rest))
        assert seconds == pytest.approx(sum(parts))


# --------------------------------------------------------------------------------- on disk


def test_stopped_in_every_round_it_ends_the_same(tmp_path):
    whole = new_learner(max_rounds=3)
    whole.simulate(X, Y)
    new_learner(max_rounds=3).begin(X, classes=LABELS, folder=tmp_path / "run")
    for _ in range(4):
        learner = jaxseq.ActiveLearner.resume(tmp_path / "run", X)
        assert learner.between == SHORT
        answer(learner)
        learner.train()
    for name in ("short", "iterations", "objective", "kappa"):
        assert [r[name] for r in learner.history_] == [r[name] for r in whole.history_]
    mine, theirs = (np.asarray(one.tagger_.model_.weights) for one in (learner, whole))
    np.testing.assert_array_equal(mine, theirs)
