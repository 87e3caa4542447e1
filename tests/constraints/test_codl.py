"""Constraint-driven learning against a plain loop over all labellings, EM and self-training."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sklearn.base import clone

import jaxseq
from jaxseq.constraints import AtMostOnce, Penalised, StartsWith, Words, WordsImply
from jaxseq.hmm import HMM, Smoothing, expected_counts, word_corpus
from tests.hmm.toys import MORE, X, Y, saved_bytes, tagger

OPTIONS = {"l2": 1.0, "cores": 1, "progress": False, "max_iterations": 20, "dtype": "float64"}
CONSTRAINTS = [Penalised(AtMostOnce(), 1.5), Penalised(StartsWith(["A"]), 0.75)]
U = [*MORE, [], list("wx")]
TOKENS = sum(map(len, U))


def crf_tagger():
    return jaxseq.CRFTagger(["word[0]"], **OPTIONS)


def codl(*arguments, **options):
    given = {"k": 3, "cycles": 2, "progress": False}
    return jaxseq.CoDL(*(arguments or (tagger(), CONSTRAINTS)), **{**given, **options})


def learnt(*arguments, **options):
    return codl(*arguments, **options).fit(X, Y, unlabelled=U)


# --------------------------------------------------------- figure 2 of the paper, in plain Python

LABELS = ["A", "B", "C"]
WORDS = ["?", *"uvwxz"]  # the unknown word first


class Counts(dict):
    """Probabilities of events (family, given, what), from counts and smoothing."""

    @classmethod
    def learn(cls, weighed):
        counts = cls()
        size = {"initial": LABELS, "transition": LABELS, "emission": WORDS}
        epsilon = {"initial": 0.2, "transition": 0.2, "emission": 0.05}
        for family, outcomes in size.items():
            for given in [None] if family == "initial" else LABELS:
                for what in outcomes:
                    counts[family, given, what] = epsilon[family]
        for words, labels, weight in weighed:
            for event in events(words, labels):
                counts[event] += weight
        totals = {}
        for (family, given, _), count in counts.items():
            totals[family, given] = totals.get((family, given), 0.0) + count
        return cls({event: count / totals[event[:2]] for event, count in counts.items()})

    def mixed(self, other, share):
        return Counts({event: share * self[event] + (1 - share) * other[event] for event in self})

    def score(self, words, labels):
        return sum(math.log(self[event]) for event in events(words, labels))

    def assert_is(self, model: HMM):
        theta = model.probabilities
        for (family, given, what), value in self.items():
            table = np.asarray(getattr(theta, family))
            if family == "initial":
                found = table[LABELS.index(what)]
            elif family == "transition":
                found = table[LABELS.index(given), LABELS.index(what)]
            else:
                found = table[WORDS.index(what), LABELS.index(given)]
            assert found == pytest.approx(value, rel=1e-9), (family, given, what)


def events(words, labels):
    if labels:
        yield "initial", None, labels[0]
    for before, after in itertools.pairwise(labels):
        yield "transition", before, after
    for word, label in zip(words, labels):
        yield "emission", label, word


def penalty(labels) -> float:
    fields = [label for label, _ in itertools.groupby(labels)]
    return 1.5 * (len(fields) - len(set(fields))) + 0.75 * (labels[0] != "A")


def top(theta, words, k, constrained):
    """The k best of all labellings with their scores."""
    found = []
    for labels in itertools.product(LABELS, repeat=len(words)):
        cost = penalty(labels) if constrained else 0.0
        found.append((theta.score(words, labels) - cost, labels))
    return sorted(found, key=lambda pair: -pair[0])[:k]


def plain_codl(k, cycles, keep, weights, constrained):
    supervised = [(words, labels, 1.0) for words, labels in zip(X, Y)]
    theta = first = Counts.learn(supervised)
    for _ in range(cycles):
        found = []
        for words in filter(None, U):
            best = top(theta, words, k, constrained)
            each = [math.exp(score - best[0][0]) for score, _ in best]
            each = [1.0] * len(best) if weights == "uniform" else each
            found += [(words, labels, w / sum(each)) for w, (_, labels) in zip(each, best)]
        theta = first.mixed(Counts.learn(found), keep)
    return theta


@pytest.mark.parametrize(
    "options",
    [
        {"k": 3, "keep": 0.1},
        {"k": 1, "keep": 0.25},
        {"k": 3, "keep": 0.0, "weights": "score"},
        {"k": 3, "learn_with_constraints": False},
        {"k": 1, "learn_with_constraints": False, "cycles": 1},
    ],
)
def test_it_is_figure_2(options):
    found = learnt(**options)
    plain = {"keep": 0.1, "cycles": 2, "weights": "uniform", **options}
    constrained = plain.pop("learn_with_constraints", True)
    wanted = plain_codl(**plain, constrained=constrained)
    assert found.tagger_.vocabulary_.words == WORDS[1:]
    wanted.assert_is(found.tagger_.model_)


def test_pooled_it_learns_from_everything_together():
    # All words of the unlabelled sentences are known, so that every model has one vocabulary.
    more = [words for words in U if "z" not in words]
    found = codl(k=3, pool=True).fit([*X, ["z"]], [*Y, ["A"]], unlabelled=more)
    again = codl(k=3, pool=True, keep=0.9).fit([*X, ["z"]], [*Y, ["A"]], unlabelled=more)
    for one, other in zip(found.tagger_.model_.probabilities, again.tagger_.model_.probabilities):
        np.testing.assert_array_equal(one, other)
    supervised = [*zip([*X, ["z"]], [*Y, ["A"]], [1.0] * 6)]
    theta = Counts.learn(supervised)
    for _ in range(2):
        labelled = [
            (words, labels, 1.0 / len(best))
            for words in filter(None, more)
            for best in [top(theta, words, 3, True)]
            for _, labels in best
        ]
        theta = Counts.learn(supervised + labelled)
    theta.assert_is(found.tagger_.model_)


def test_all_labellings_by_score_are_expected_counts():
    found = learnt(tagger(), k=3**4, weights="score", keep=0.0, cycles=1)
    first = learnt(tagger(), k=1, keep=1.0, cycles=1).tagger_.model_
    words = [[WORDS.index(word) for word in sentence] for sentence in U if sentence]
    counts = expected_counts(first.probabilities, word_corpus(words, len(WORDS))).counts
    wanted = HMM(*(a + b for a, b in zip(counts, Smoothing(0.2, 0.2, 0.05)))).probabilities
    for name in wanted._fields:
        got = getattr(found.tagger_.model_.probabilities, name)
        np.testing.assert_allclose(got, getattr(wanted, name), rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("make", [tagger, crf_tagger])
def test_one_pooled_cycle_with_one_labelling_is_self_training(make):
    found = learnt(make(), k=1, cycles=1, pool=True)
    wanted = jaxseq.SelfTraining(make(), max_rounds=1).fit(X, Y, unlabelled=U)
    assert found.tagger_.predict(U) == wanted.labels_
    for one, other in zip(found.tagger_.predict_proba(U), wanted.tagger_.predict_proba(U)):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("make", [tagger, crf_tagger])
def test_no_penalty_is_no_constraint_to_the_bit(make, tmp_path):
    free = [Penalised(AtMostOnce(), 0.0), Penalised(StartsWith(["A"]), 0.0)]
    one, other = learnt(make(), free), learnt(make())
    assert saved_bytes(one, tmp_path / "a") == saved_bytes(other, tmp_path / "b")
    assert one.predict(U) == other.predict(U)


# ------------------------------------------------------------------------------ what it is for


NAMES, TITLES, BOTH = ([f"{letter}{i}" for i in range(n)] for letter, n in zip("ntc", (12, 12, 6)))


def citations(rng, count):
    """Two fields in order, of words of their own and words that may be in both."""

    def field(own, length):
        return [str(rng.choice(BOTH if rng.random() < 0.5 else own)) for _ in range(length)]

    lengths = rng.integers(2, 6, size=(count, 2))
    words = [field(NAMES, a) + field(TITLES, b) for a, b in lengths]
    return words, [["N"] * int(a) + ["T"] * int(b) for a, b in lengths]


def test_constraints_teach_what_labels_alone_do_not():
    seeds = [(TITLES[:3], ["T"]), (NAMES[:3], ["N"])]
    rules = [AtMostOnce(), StartsWith(["N"]), *(WordsImply(Words(w), y) for w, y in seeds)]
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        few, (many, _), test = (citations(rng, n) for n in (2, 60, 30))
        base = jaxseq.HMMTagger(unknown_below=1, transition_smoothing=5.0)
        one = jaxseq.CoDL(base, rules, penalty=5.0, k=5, cycles=3, progress=False)
        taught = clone(one).fit(*few, unlabelled=many)
        alone = one.set_params(learn_with_constraints=False).fit(*few, unlabelled=many)
        learners = [clone(base).fit(*few).score(*test)]
        for learner in (alone, taught):
            learners += [learner.score(*test, constrained=flag) for flag in (False, True)]
        scores.append(learners)
    supervised, alone, alone_with, taught, taught_with = np.mean(scores, axis=0)
    assert taught > alone + 0.05  # in learning
    assert alone_with > alone + 0.02  # in inference
    assert taught_with >= taught
    assert taught_with > supervised + 0.1


# ---------------------------------------------------------------------------- what it tells


def test_history():
    found = learnt(cycles=4)
    assert 1 <= len(found.history_) <= 4
    assert found.history_[0]["changed"] == TOKENS * 3
    for entry in found.history_:
        assert list(entry) == ["changed", "mean_score", "unmet", "violated"]
        assert 0 <= entry["changed"] <= TOKENS * 3
        assert entry["unmet"] == 0
        assert entry["mean_score"] < 0
        assert list(entry["violated"]) == ["AtMostOnce", "StartsWith"]
        assert all(0 <= share <= 1 for share in entry["violated"].values())
    assert all(entry["changed"] > 0 for entry in found.history_)


def test_the_first_entry_is_of_the_supervised_model():
    found = learnt(cycles=1, k=1)
    theta = Counts.learn((words, labels, 1.0) for words, labels in zip(X, Y))
    best = [top(theta, words, 1, True)[0] for words in filter(None, U)]
    entry = found.history_[0]
    assert entry["mean_score"] == pytest.approx(np.mean([score for score, _ in best]))
    starts = [labels[0] != "A" for _, labels in best]
    assert entry["violated"]["StartsWith"] == pytest.approx(np.mean(starts))


def test_it_ends_when_no_label_changes():
    found = learnt(cycles=50, k=1)
    assert found.outcome_.startswith("converged")
    assert len(found.history_) < 50
    one_more = learnt(cycles=len(found.history_), k=1)
    for a, b in zip(found.tagger_.model_.probabilities, one_more.tagger_.model_.probabilities):
        np.testing.assert_array_equal(a, b)
    assert one_more.outcome_.startswith("stopped")


def test_constraints_of_one_name_are_told_apart():
    rules = [Penalised(StartsWith(["A"]), 1.0), Penalised(StartsWith(["B"]), 1.0)]
    found = learnt(tagger(), rules, cycles=1)
    assert list(found.history_[0]["violated"]) == ["StartsWith", "StartsWith (2)"]


def test_labels_by_the_last_tagger(tmp_path):
    found = learnt()
    constrained = found.tagger_.predict(X, constraints=CONSTRAINTS)
    assert found.predict(X) == constrained == found.predict(X, constrained=True)
    assert found.predict(X, constrained=False) == found.tagger_.predict(X)
    best = found.predict_k_best(X, 2)
    assert best == found.tagger_.predict_k_best(X, 2, constraints=CONSTRAINTS)
    assert [labels[0][0] for labels in best] == constrained
    found.set_params(predict_with_constraints=False)
    assert found.predict(X) == found.tagger_.predict(X)
    assert found.score(X, Y) == found.tagger_.score(X, Y)
    found.save(tmp_path / "model")
    assert jaxseq.load(tmp_path / "model").predict(U) == found.tagger_.predict(U)


def test_the_estimator_is_not_changed():
    one = codl()
    fitted = clone(one).fit(X, Y, unlabelled=U)
    assert not hasattr(fitted.estimator, "model_")
    assert fitted.get_params()["k"] == 3
    assert fitted.constraints_.names == ("AtMostOnce", "StartsWith")


@pytest.mark.parametrize("weights", ["uniform", "score"])
def test_nothing_is_learnt_from_labellings_that_break_a_hard_rule(weights):
    """Of nine labellings three keep the rule; the model alone prefers one that does not."""
    X, y = [["a", "dog"]] * 20, [["D", "N"]] * 20
    rules = [Penalised(StartsWith(["N"]), math.inf)]
    tagger = jaxseq.HMMTagger(unknown_below=1, classes=["D", "N", "V"])
    found = jaxseq.CoDL(tagger, rules, k=9, keep=0.0, cycles=1, weights=weights, progress=False)
    found.fit(X, y, unlabelled=[["a", "dog"]] * 50)
    initial = np.asarray(found.tagger_.model_.probabilities.initial)
    assert initial[1] == pytest.approx((50 + 0.2) / (50 + 0.6))
    best = found.tagger_.predict_k_best([["a", "dog"]], 9, constraints=rules)[0]
    assert len(best) == 3
    assert all(labels[0] == "N" for labels, _ in best)
    scores = [score for _, score in best]
    assert scores == sorted(scores, reverse=True)
