"""The loop of active learning against a source that records every look."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.active import Answer, GroupQueries, Query, SequenceQueries, SpanQueries, TokenQueries
from jaxseq.active._training import warm_settings
from jaxseq.crf import Settings
from tests.taggers.toys import LABELS, negative_log_likelihood, squares, toy_corpus, words_of

DICTS, Y = toy_corpus(5, sentences=30)
X = words_of(DICTS)
TEMPLATES = ["word[0]", "word[-1]"]
STRATEGIES = {
    "tokens": TokenQueries(4, 0.9),
    "all tokens": TokenQueries(None, 0.9),
    "few of a form": TokenQueries(4, 0.9, per_sentence=1, per_form=1),
    "groups": GroupQueries("word[0]|word[-1]", 4, 0.9),
    "spans": SpanQueries(2, 4, 0.9),
    "fusal": SequenceQueries(3),
    "by entropy": SequenceQueries(3, by="entropy"),
    "by n-best": SequenceQueries(3, by="n_best", n_best=3),
    "tomanek": SequenceQueries(3, ask="unsure", threshold=0.8, keep_sure="model"),
    "wanvarie": SequenceQueries(3, ask="unsure", threshold=0.8),
    "bootstrap": SequenceQueries(3, ask="none", threshold=0.8, keep_sure="model"),
}


def tagger(**settings):
    given = {"cores": 1, "l2": 0.5, "weights": "dense", "max_iterations": 25}
    return jaxseq.CRFTagger(TEMPLATES, **{**given, **settings})


def tokens_of(query: Query) -> list[tuple[int, int]]:
    return [(query.sentence, t) for t in range(query.start, query.stop)]


class Recorder:
    """Hands out what is asked for, and writes down what was."""

    classes = LABELS

    def __init__(self):
        self.seen: list[tuple[int, int]] = []

    def __call__(self, query: Query) -> list[str]:
        self.seen += tokens_of(query)
        return [Y[s][t] for s, t in tokens_of(query)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_label_is_seen_that_was_not_given(name):
    source, rounds = Recorder(), []
    learner = jaxseq.ActiveLearner(tagger(), STRATEGIES[name], initial=2, max_rounds=3)
    records = learner.simulate(X, source, watch=rounds.append)
    assert rounds == records
    assert len(set(source.seen)) == len(source.seen)  # nothing is asked twice
    assert records[-1]["labelled_tokens"] == len(source.seen)
    known = learner._run.known
    starts = np.cumsum([len(s) for s in X]) - [len(s) for s in X]
    given = np.zeros(sum(map(len, X)), bool)
    given[[starts[s] + t for s, t in source.seen]] = True
    np.testing.assert_array_equal(known.answered, given)
    # What it trains on: the labels that were given, its own guesses, and nothing else.
    trained, labels = known.to_train_on()
    inside = np.repeat(trained, [len(s) for s in X])
    truth = np.array([LABELS.index(label) for labels in Y for label in labels])
    np.testing.assert_array_equal(labels.gold[given[inside]], truth[given])
    open_to_all = ~given & ~known.guessed
    if labels.allowed is not None:
        assert labels.allowed[open_to_all[inside]].all()
    else:
        assert not open_to_all[inside].any()
    if name in ("bootstrap", "tomanek"):
        assert known.guessed.any()
    else:
        assert not known.guessed.any()


def test_a_sentence_without_labels_is_not_trained_on():
    learner = jaxseq.ActiveLearner(tagger(), TokenQueries(2, 0.9), initial=2, max_rounds=2)
    learner.simulate(X, Y)
    trained, _ = learner._run.known.to_train_on()
    assert trained.sum() == learner.status().labelled_sentences < len(X)
    assert learner.history_[-1]["sentences"] == trained.sum()


def test_a_whole_run_is_a_plain_loop():
    """The same tokens as of a tagger with the pool's attributes, trained anew each round."""
    strategy = TokenQueries(3, 0.95)
    learner = jaxseq.ActiveLearner(
        tagger(dtype="float64", tolerance=1e-12, max_iterations=300), strategy, initial=1,
        max_rounds=3, check_warm_start=False,
    )  # fmt: skip
    asked: list[list[tuple[int, int]]] = []

    class Source(Recorder):
        def __call__(self, query):
            asked[-1].extend(tokens_of(query))
            return super().__call__(query)

    asked.append([])
    learner.simulate(X, Source(), watch=lambda record: asked.append([]))
    known: dict[tuple[int, int], str] = {}
    longest = max(range(len(X)), key=lambda s: (len(X[s]), -s))
    wanted = [(longest, t) for t in range(len(X[longest]))]
    for number in range(4):
        if number:
            y = [[known.get((s, t)) for t in range(len(X[s]))] for s in range(len(X))]
            wanted = plain_choice(y, known, strategy)
        assert sorted(asked[number]) == sorted(wanted), f"round {number}"
        known |= {(s, t): Y[s][t] for s, t in wanted}


def plain_choice(y, known, strategy) -> list[tuple[int, int]]:
    """The least confident tokens by a tagger that is trained from zeros on all sentences.

    Those without labels are there for their attributes only: they add nothing.
    """
    found = tagger(dtype="float64", tolerance=1e-12, max_iterations=300)
    rows = [[label if label is not None else set(LABELS) for label in labels] for labels in y]
    found.fit(X, rows)
    best, p = found.predict(X), found.predict_proba(X)
    doubts = []
    for s, labels in enumerate(best):
        for t, label in enumerate(labels):
            confidence = p[s][t][LABELS.index(label)]
            if (s, t) not in known and confidence < strategy.threshold:
                doubts.append((confidence, s, t))
    return [(s, t) for _, s, t in sorted(doubts)[: strategy.count]]


def test_the_objective_is_that_of_what_is_known():
    learner = jaxseq.ActiveLearner(tagger(dtype="float64"), TokenQueries(5, 0.95), initial=2)
    learner.begin(X, classes=LABELS)
    for _ in range(2):
        answers = [Answer(s, t, Y[s][t]) for q in learner.propose() for s, t in tokens_of(q)]
        learner.answer([*answers, Answer(3, 0, ("A", "C"))])
        learner.train()
    known = learner._run.known
    y, place = [], 0
    for s, sentence in enumerate(X):
        row = []
        for t in range(len(sentence)):
            row.append(Y[s][t] if known.answered[place] else None)
            place += 1
        y.append(row)
    y[3][0] = {"A", "C"}
    tokens = [
        [{f"word[0]={w}": 1.0, f"word[-1]={b}": 1.0} for w, b in zip(words, ["_B-1", *words])]
        for words in X
    ]
    found = learner.tagger_
    by_hand = negative_log_likelihood(found, tokens, y) + 0.5 / 2 * squares(found)
    assert learner.history_[-1]["objective"] == pytest.approx(by_hand, rel=1e-9)


# ------------------------------------------------------------------------------- warm starts


@pytest.mark.parametrize("weights", ["dense", "mixed"])
def test_a_warm_start_ends_no_worse_than_one_from_zeros(weights):
    strategy = TokenQueries(6, 0.95)
    learner = jaxseq.ActiveLearner(
        tagger(weights=weights, max_iterations=200), strategy, initial=2, max_rounds=4
    )
    learner.begin(X, classes=LABELS)
    for most in (None, None, None, None, 1):
        asked = [token for query in learner.propose() for token in tokens_of(query)]
        learner.answer([Answer(s, t, Y[s][t]) for s, t in asked[:most]])
        learner.train()
        warm = learner.history_[-1]
        assert not learner.recheck(), "the model from zeros was better"
        cold = learner._train(older=None).record
        assert warm["objective"] <= cold["objective"] * (1 + 1e-3)
    assert warm["iterations"] < cold["iterations"]
    assert warm["start"] == "warm"
    assert cold["start"] == "cold"


def test_a_worse_warm_start_is_replaced():
    learner = jaxseq.ActiveLearner(tagger(max_iterations=100), TokenQueries(3, 0.9), initial=3)
    learner.begin(X, classes=LABELS)
    learner.answer([Answer(s, t, Y[s][t]) for q in learner.propose() for s, t in tokens_of(q)])
    learner.train()
    learner.answer([Answer(s, t, Y[s][t]) for q in learner.propose() for s, t in tokens_of(q)])
    learner.estimator.set_params(max_iterations=1)
    learner.train(start="cold")  # stops far from the optimum
    poor, labels = learner.history_[-1]["objective"], learner.look().labels
    learner.estimator.set_params(max_iterations=100)
    assert learner.recheck()
    assert learner.tagger_.loss_ < poor * (1 - 1e-3)
    assert learner.status().round == 2
    again = jaxseq.active.agreement(labels, learner.look().labels)
    assert learner.status().kappa == again


def test_a_model_from_zeros_that_is_better_by_rounding_replaces_nothing(monkeypatch):
    learner = jaxseq.ActiveLearner(tagger(), TokenQueries(3, 0.9), initial=3).begin(
        X, classes=LABELS
    )
    learner.answer([Answer(s, t, Y[s][t]) for q in learner.propose() for s, t in tokens_of(q)])
    learner.train()
    tokens = sum(len(X[s]) for s in np.flatnonzero(learner._run.known.to_train_on()[0]))
    found = learner.history_[-1]["objective"]
    eps = np.finfo(np.float32).eps
    for below, replaced in ((0.5 * eps * tokens, False), (1.5 * eps * tokens, True)):
        worse = (found + below) / (1 - 1e-3)  # above it by 1e-3 of itself, and that
        learner.tagger_.loss_ = worse
        assert learner.recheck() is replaced


def test_a_search_from_an_older_model_ends_sooner():
    settings = warm_settings(Settings(tolerance=1e-6, memory_size=30))
    assert settings.tolerance == pytest.approx(1e-5)
    assert (settings.memory_size, settings.period) == (30, 5)
    learner = jaxseq.ActiveLearner(
        tagger(max_iterations=200, l2=0.1), TokenQueries(6, 0.9), initial=3
    )
    learner.begin(X, classes=LABELS)
    counts = []
    for _ in range(4):
        learner.answer([Answer(s, t, Y[s][t]) for q in learner.propose() for s, t in tokens_of(q)])
        warm = learner.train().history_[-1]
        zeros = learner._train(older=None).record
        counts.append((warm["iterations"], zeros["iterations"]))
        assert warm["objective"] <= zeros["objective"] * (1 + 1e-3)
    warm, zeros = np.sum(counts[1:], 0)
    assert 1.5 * warm < zeros


def test_training_without_new_labels_does_not_count_for_kappa(tmp_path):
    learner = jaxseq.ActiveLearner(tagger(), TokenQueries(4, 0.9), initial=2)
    learner.begin(X, classes=LABELS, folder=tmp_path / "run")

    def ask_and_train(queries):
        learner.answer(
            Answer(q.sentence, t, Y[q.sentence][t]) for q in queries for t in range(q.start, q.stop)
        )
        learner.train()

    ask_and_train(learner.propose())
    assert learner.train().status().kappa is None  # the same labels once more
    ask_and_train(learner.propose())
    before = learner.status()
    assert before.kappa is not None
    learner.answer([Answer(0, 0, Y[0][0])] if learner._run.known.answered[0] else [])
    after = learner.train().status()
    assert (after.kappa, after.round) == (before.kappa, before.round + 1)
    assert [one["new_labels"] for one in learner.history_] == [True, False, True, False]
    again = jaxseq.ActiveLearner.resume(tmp_path / "run", X)
    assert again.status() == after
    assert again._run.has_news is False


def test_sentences_are_sampled_also_where_nothing_is_asked_of_them():
    strategy = SequenceQueries(3, ask="none", keep_sure="model", threshold=0.01)
    learner = jaxseq.ActiveLearner(tagger(), strategy, initial=2)
    learner.begin(X, classes=LABELS)
    learner.answer(
        Answer(q.sentence, t, Y[q.sentence][t])
        for q in learner.propose()
        for t in range(q.start, q.stop)
    )
    first = learner.train().status()
    learner.propose()
    second = learner.train().status()
    assert first.sampled_sentences == first.labelled_sentences == second.labelled_sentences
    assert second.sampled_sentences == first.sampled_sentences + 3
    assert learner.history_[-1]["new_labels"]  # those that the model gives itself


def test_padding_to_few_shapes_changes_nothing():
    """Shards of one shape and spare weights give the model of a plain `fit`."""
    settings = {"weights": "mixed", "dtype": "float64", "tolerance": 1e-13, "max_iterations": 400}
    learner = jaxseq.ActiveLearner(tagger(**settings))
    learner.begin(X, Y).train()
    plain = tagger(**settings).fit(X, Y)
    assert learner.history_[-1]["objective"] == pytest.approx(plain.loss_, rel=1e-9)
    np.testing.assert_allclose(learner.tagger_.model_.weights, plain.model_.weights, atol=1e-4)
    assert learner.tagger_.predict(X) == plain.predict(X)


# ----------------------------------------------------------------------------------- the end


def test_it_stops_by_each_of_its_rules():
    def last(**settings):
        learner = jaxseq.ActiveLearner(tagger(), initial=2, **settings)
        return learner.simulate(X, Y)[-1]

    assert last(strategy=TokenQueries(5, 0.9), budget=13)["labelled_tokens"] == 13
    by_budget = last(strategy=SequenceQueries(3), budget=13)
    assert by_budget["labelled_tokens"] == 13
    assert by_budget["why"].startswith("the budget of 13 tokens")
    by_rounds = last(strategy=TokenQueries(2, 0.99), max_rounds=2)
    assert by_rounds["why"].startswith("the number of rounds asked for, 2")
    assert by_rounds["round"] == 3
    everything = last(strategy=SequenceQueries(20), kappa=1.0)
    assert everything["why"].startswith("nothing informative is left")
    assert everything["labelled_share"] == 1
    stable = last(strategy=TokenQueries(40, 0.8), kappa=0.5)
    assert stable["why"].startswith(f"κ = {stable['kappa']:.6f} is above 0.5, and ")
    assert stable["kappa"] > 0.5
    assert 0 < stable["informative"] < 40


def test_a_tagger_is_scored_on_held_out_sentences():
    learner = jaxseq.ActiveLearner(tagger(), TokenQueries(3, 0.9), initial=2, max_rounds=1)
    records = learner.simulate(X, Y, dev=(X[:5], Y[:5]))
    predicted = learner.tagger_.predict(X[:5])
    assert records[-1]["dev_accuracy"] == jaxseq.metrics.token_accuracy(Y[:5], predicted)
    assert records[-1]["dev_f1"] == jaxseq.metrics.span_scores(Y[:5], predicted).overall.f1


def not_a_source(query):
    """A function that does not say which labels there are."""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gold": Y[:1]}, f"gold: expected labels of {len(X)} sentences, got those of 1"),
        ({"gold": [*Y, ["N"]]}, f"of {len(X)} sentences, got those of {len(X) + 1}"),
        ({"gold": [Y[0][:-1], *Y[1:]]}, r"gold\[0\]: expected \d+ labels, got \d+"),
        ({"gold": ["NV", *Y[1:]]}, r"gold\[0\]: expected a list of labels, got 'NV'"),
        ({"gold": 3}, "gold: expected the labels of every sentence, got 3"),
        ({"gold": [[None, *Y[0][1:]], *Y[1:]]}, r"gold\[0\]\[0\]: expected a label, got None"),
        ({"gold": not_a_source}, "gold: expected a function with an attribute `classes`"),
        ({"dev": 3}, r"dev: expected \(sentences, labels\), got 3"),
        ({"dev": (X, Y[:2])}, f"dev: expected labels of {len(X)} sentences, got those of 2"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_is_written(given, told, tmp_path):
    learner = jaxseq.ActiveLearner(tagger(), initial=2, max_rounds=1)
    with pytest.raises(ValueError, match=told):
        learner.simulate(**{"X": X, "gold": Y, **given}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_objectives_of_other_labels_are_not_compared():
    """After a retraction the last round's objective is of labels that are known no more."""
    learner = jaxseq.ActiveLearner(tagger(), TokenQueries(4, 0.9), initial=2).begin(
        X, classes=LABELS
    )
    learner.answer([Answer(0, t, label) for t, label in enumerate(Y[0])])
    learner.train()
    learner.retract([(0, 0)])
    with pytest.raises(ValueError, match="recheck: expected the labels of the last round"):
        learner.recheck()
    learner.train()
    learner.recheck()


# ------------------------------------------------------------------------------- word forms


def test_no_word_is_asked_twice_in_a_round_and_the_limit_is_kept(tmp_path):
    pool = [["The", "dog"], ["the", "cat"], ["THE", "dog"], ["a", "cat"]]
    strategy = TokenQueries(8, 1.0, per_form=1)
    learner = jaxseq.ActiveLearner(tagger(), strategy, initial=1, initial_how="shortest")
    learner.begin(pool, classes=["D", "N"], folder=tmp_path / "state")
    learner.answer([Answer(0, 0, "D"), Answer(0, 1, "N")])
    queries = learner.train().propose()
    asked = [pool[query.sentence][query.start].lower() for query in queries]
    assert sorted(asked) == ["a", "cat", "dog", "the"]
    resumed = jaxseq.ActiveLearner.resume(tmp_path / "state", pool)
    assert resumed.strategy == strategy
    assert resumed.propose() == queries


def test_a_limit_by_word_needs_words():
    learner = jaxseq.ActiveLearner(
        jaxseq.CRFTagger(cores=1), TokenQueries(4, per_form=1), initial=1
    )
    with pytest.raises(
        ValueError, match=r"X: expected sentences with words for TokenQueries\(.*per_form=1\)"
    ):
        learner.begin(DICTS, classes=LABELS)


# ----------------------------------------------------------------------------------- groups


def test_no_group_is_asked_twice_in_a_round_and_its_template_is_kept(tmp_path):
    pool = [["The", "dog"], ["the", "cat"], ["THE", "dog"], ["a", "cat"], ["the", "dog"]]
    strategy = GroupQueries("lower(word[0])|word[1]", 9, 1.0)
    learner = jaxseq.ActiveLearner(tagger(), strategy, initial=1, initial_how="shortest")
    learner.begin(pool, classes=["D", "N"], folder=tmp_path / "state")
    learner.answer([Answer(0, 0, "D"), Answer(0, 1, "N")])
    queries = learner.train().propose()
    asked = [pool[query.sentence][query.start].lower() for query in queries]
    assert sorted(asked) == ["a", "cat", "dog", "the", "the"]  # the dog, the cat
    resumed = jaxseq.ActiveLearner.resume(tmp_path / "state", pool)
    assert resumed.strategy == strategy
    assert resumed.propose() == queries


@pytest.mark.parametrize(
    ("alike", "message"),
    [("word[0", "alike: template"), ("pos[0]", "alike: .*pos")],
)
def test_groups_need_a_template_of_columns_that_are_there(alike, message):
    learner = jaxseq.ActiveLearner(tagger(), GroupQueries(alike), initial=1)
    with pytest.raises(ValueError, match=message):
        learner.begin(X, classes=LABELS)
    dicts = jaxseq.ActiveLearner(jaxseq.CRFTagger(cores=1), GroupQueries("word[0]"), initial=1)
    with pytest.raises(ValueError, match="alike: "):
        dicts.begin(DICTS, classes=LABELS)
