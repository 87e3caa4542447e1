"""Another tagger of the labels of an active learner: what it is trained on, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.active import Answer, SequenceQueries, TokenQueries
from jaxseq.active import _learner as _active_round
from tests.taggers.toys import LABELS, toy_corpus, words_of

DICTS, Y = toy_corpus(7, sentences=24)
X = words_of(DICTS)


def begun(folder=None, strategy=TokenQueries(6, 0.95), rounds=2):  # noqa: B008
    """A learner after some rounds, whose next queries are answered but not trained on."""
    tagger = jaxseq.CRFTagger(["word[0]", "word[-1]"], cores=1, l2=1.0)
    learner = jaxseq.ActiveLearner(tagger, strategy, initial=2)
    learner.begin(X, classes=LABELS, folder=folder)
    for number in range(rounds):
        learner.answer(
            Answer(q.sentence, t, Y[q.sentence][t])
            for q in learner.propose()
            for t in range(q.start, q.stop)
        )
        if number < rounds - 1:
            learner.train()
    return learner


def labelled(learner):
    """The sentences that have a label, and what is known of their labels."""
    known = learner._run.known
    rows = [[known.label_at(s, t) for t in range(len(X[s]))] for s in range(len(X))]
    some = [s for s, row in enumerate(rows) if any(row)]
    return [X[s] for s in some], [rows[s] for s in some]


@pytest.mark.parametrize("strategy", [TokenQueries(6, 0.95), SequenceQueries(2)])
def test_it_is_the_tagger_of_these_labels_and_settings(strategy):
    learner = begun(strategy=strategy)
    found = learner.refit(l2=0.1)
    sentences, labels = labelled(learner)
    same = jaxseq.CRFTagger(["word[0]", "word[-1]"], cores=1, l2=0.1).fit(sentences, labels)
    assert (found.l2, learner.estimator.l2, learner.tagger_.l2) == (0.1, 1.0, 1.0)
    assert float(found.loss_) == pytest.approx(float(same.loss_), rel=1e-4)
    assert found.predict(X) == same.predict(X)
    norms = [np.linalg.norm(one.model_.table) for one in (found, learner.refit())]
    assert norms[0] > norms[1]
    assert found.n_iter_ > 0
    assert found.outcome_


def test_it_starts_from_zeros(monkeypatch):
    learner, real, starts = begun(), _active_round.train_on, []

    def watched(problem, plan, older, shape, most):
        starts.append(older)
        return real(problem, plan, older, shape, most)

    monkeypatch.setattr(_active_round, "train_on", watched)
    learner.refit(l2=0.1)
    learner.train()
    assert [older is None for older in starts] == [True, False]


def test_labels_that_a_strategy_took_from_the_model_count():
    learner = begun(strategy=SequenceQueries(2, ask="unsure", threshold=0.35, keep_sure="model"))
    assert learner._run.known.guessed.any()
    sentences, labels = labelled(learner)
    alone = jaxseq.CRFTagger(["word[0]", "word[-1]"], cores=1, l2=1.0).fit(sentences, labels)
    assert float(learner.refit().loss_) > float(alone.loss_) * 1.01  # more terms


def test_labels_that_no_round_has_trained_on_count():
    learner = begun()
    known = learner.status().labelled_tokens
    before = learner.refit(l2=0.1).loss_
    label_at = learner._run.known.label_at
    tokens = ((s, t) for s, row in enumerate(Y) for t in range(len(row)))
    sentence, position = next(token for token in tokens if label_at(*token) is None)
    learner.answer([Answer(sentence, position, Y[sentence][position])])
    assert learner.status().labelled_tokens == known + 1
    assert learner.refit(l2=0.1).loss_ > before  # one more term of the likelihood


def test_the_run_stays_as_it_is(tmp_path):
    learner = begun(tmp_path / "run")
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    tagger, history, status = learner.tagger_, list(learner.history_), learner.status()
    learner.refit(l2=0.01, max_iterations=3, weights="dense")
    assert learner.tagger_ is tagger
    assert (learner.history_, learner.status()) == (history, status)
    assert files == {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    plain = begun()
    assert learner.train().propose() == plain.train().propose()
    looking = jaxseq.ActiveLearner.resume(tmp_path / "run", X, read_only=True)
    assert looking.refit(l2=0.1).predict(X) == learner.refit(l2=0.1).predict(X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"l3": 1.0}, r"refit: expected settings among .*l2.*, got l3"),
        ({"templates": ["word[0]"]}, "refit: expected settings .*, got templates"),
        ({"cutoff": 2}, "got cutoff"),
        ({"scheme": "IOB2"}, "got scheme"),
        ({"checkpoint": "file"}, "got checkpoint"),
        ({"progress": True}, "got progress"),
        ({"l2": 1e39}, r"l2: expected at most 3.4e\+38, the largest number of float32, got 1e\+39"),
        ({"l1": 1e39}, "l1: expected at most"),
        ({"l2": -1.0}, "l2: expected"),
        ({"weights": "some"}, "weights: expected"),
        ({"max_iterations": 0}, "max_iterations: expected"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    learner = begun(rounds=1)
    with pytest.raises(ValueError, match=message):
        learner.refit(**changes)


def test_without_labels_or_a_pool_it_is_refused():
    learner = jaxseq.ActiveLearner(jaxseq.CRFTagger(["word[0]"]), initial=1)
    with pytest.raises(ValueError, match="expected a pool"):
        learner.refit()
    with pytest.raises(ValueError, match=r"^labels: expected at least one, got none"):
        learner.begin(X, classes=LABELS).refit(l2=0.1)
