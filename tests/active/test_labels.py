"""Labels that are added while active learning is under way."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.active import Answer, SequenceQueries, TokenQueries
from jaxseq.active._labels import new_label_names, with_labels
from tests.taggers.toys import LABELS, toy_corpus, words_of

DICTS, Y = toy_corpus(5, sentences=30)
X = words_of(DICTS)
NEW = ["A-first", "ZZ"]
"""One that comes before all others, so that all numbers change, and one after them."""


def new_learner(strategy=TokenQueries(4, 0.95), **settings):  # noqa: B008 - immutable
    given = {"cores": 1, "l2": 0.5, "max_iterations": 8, "weights": "dense", **settings}
    tagger = jaxseq.CRFTagger(["word[0]", "word[-1]"], **given)
    return jaxseq.ActiveLearner(tagger, strategy, initial=2)


def gold(queries) -> list[Answer]:
    return [
        Answer(q.sentence, t, Y[q.sentence][t]) for q in queries for t in range(q.start, q.stop)
    ]


def labels_of(learner) -> list[str]:
    return [learner.classes_[k] for k in learner.look().labels]


STRATEGIES = {
    "tokens": TokenQueries(4, 0.95),
    "guesses": SequenceQueries(3, ask="unsure", threshold=0.5, keep_sure="model"),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_everything_stays_but_for_the_new_labels(name, tmp_path):
    learner = new_learner(STRATEGIES[name])
    learner.begin(X, classes=LABELS, folder=tmp_path / "run")
    learner.answer(gold(learner.propose()))
    learner.train()
    queries = learner.propose()
    answers = gold(queries)
    learner.answer(answers[:1])
    look, labels, status = learner.look(), labels_of(learner), learner.status()
    guessed = learner._run.known.guessed.copy()
    learner.add_labels(NEW)
    assert learner.classes_.tolist() == sorted([*LABELS, *NEW])
    assert labels_of(learner) == labels
    np.testing.assert_allclose(learner.look().confidence, look.confidence, atol=1e-5)
    assert learner.status().labelled_tokens == status.labelled_tokens
    assert (learner._run.known.guessed == guessed).all()
    assert learner.propose() == learner._run.waiting()
    learner.answer([*answers[1:], Answer(0, 0, "ZZ")])
    learner.train()
    assert learner.tagger_.classes_.tolist() == learner.classes_.tolist()
    assert np.isfinite(np.asarray(learner.tagger_.model_.transitions)).all()
    assert learner.history_[-1]["start"] == "warm"
    assert learner.history_[-1]["kappa"] > 0.2  # labels were compared by name


@pytest.mark.parametrize("moment", ["before a model", "before answers", "after answers", "later"])
def test_a_run_with_more_labels_resumes_exactly(moment, tmp_path):
    def run(stop):
        folder = tmp_path / f"{stop}"
        learner = new_learner(STRATEGIES["guesses"]).begin(X, classes=LABELS, folder=folder)

        def here(name):
            nonlocal learner
            if name == moment:
                learner.add_labels(NEW)
            if stop:
                learner = jaxseq.ActiveLearner.resume(folder, X)

        here("before a model")
        learner.answer(gold(learner.propose()))
        learner.train()
        learner.propose()
        here("before answers")
        learner.answer(gold(learner.propose()))
        here("after answers")
        learner.train()
        here("later")
        learner.propose()
        learner.answer([Answer(0, 0, "ZZ"), Answer(1, 0, ("A-first", LABELS[0]))])
        learner.train()
        known = learner._run.known
        return (
            learner.status(),
            known.guessed.tolist(),
            [known.label_at(0, 0), known.label_at(1, 0)],
            np.asarray(learner.tagger_.model_.weights).tobytes(),
            learner.propose(),
        )

    assert run(stop=True) == run(stop=False)


def test_the_next_training_starts_from_the_known_weights():
    learner = new_learner(max_iterations=60).begin(X, classes=LABELS)
    learner.answer(gold(learner.propose()))
    learner.train()
    learner.add_labels(NEW)
    learner.train()
    zeros = learner.train(start="cold").history_[-1]
    warm = learner.history_[-2]
    assert warm["iterations"] < zeros["iterations"]


@pytest.mark.parametrize("weights", ["tied", "mixed"])
def test_labels_of_a_known_type_share_its_weights(weights):
    learner = new_learner(weights=weights, scheme="IOB2")
    X, y = [["the", "dog"], ["a", "cat"]], [["B-NP", "I-NP"], ["O", "B-VP"]]
    learner.begin(X, y).train()
    before = learner.tagger_
    classes = sorted([*before.classes_, "I-VP"])
    wide = with_labels(before, classes)
    assert with_labels(wide, classes) is wide
    assert wide.predict(X) == before.predict(X)
    columns = np.asarray(wide.model_.weights)
    same = (columns[:, classes.index("I-VP")] == columns[:, classes.index("B-VP")]).all()
    assert same == (weights == "tied")
    learner.add_labels(["I-VP"])
    learner.train()
    assert learner.classes_.tolist() == classes


@pytest.mark.parametrize("wrong", [[], "Z", [LABELS[0]], [""], [3], None])
def test_strange_labels_are_refused_and_change_nothing(wrong, tmp_path):
    learner = new_learner().begin(X, classes=LABELS, folder=tmp_path / "run")
    before = (tmp_path / "run" / "run.sqlite").read_bytes()
    with pytest.raises(ValueError, match="names: expected"):
        new_label_names(wrong, sorted(LABELS))
    if isinstance(wrong, list) and all(isinstance(name, str) for name in wrong):
        with pytest.raises(ValueError, match="names: expected"):
            learner.add_labels(wrong)
    assert (tmp_path / "run" / "run.sqlite").read_bytes() == before
    assert learner.classes_.tolist() == sorted(LABELS)
