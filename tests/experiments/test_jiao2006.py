"""Jiao et al. 2006: sets, scores and tests by other means, and cells on a small corpus."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from experiments._config import read_config
from experiments._figures import draw
from experiments._paper import discover
from experiments._results import without_seconds
from experiments.data import Data, Source
from experiments.jiao2006 import run
from experiments.jiao2006._scoring import compare, count_found, score_mentions
from experiments.jiao2006._sets import draw_sets
from experiments.jiao2006._settings import SETTINGS
from experiments.jiao2006._summary import Scores, against_supervised, best_weight, paired
from experiments.jiao2006.report import report
from jaxseq.metrics import span_scores
from jaxseq.text import Sentence

FOLDER = discover()["jiao2006"].folder
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text("utf-8"))
CELL = {"corpus": "genetag", "words": 60, "unlabelled": "B", "seed": 3}
TAGS = st.lists(st.sampled_from(["B-GENE", "I-GENE", "O"]), min_size=0, max_size=8)


def _config(preset="smoke", **changes):
    found, _ = read_config(FOLDER / "config.toml", preset, run.Config)
    return dataclasses.replace(found, **changes)


@pytest.fixture(scope="module")
def config():
    return _config(
        words=60,
        entropy_weights=(0.0, 1.0),
        max_iterations=4,
        folds=2,
        gradient_sentences=4,
        gradient_iterations=5,  # rounding errors grow with each
        settings_weights=(1.0,),
    )


class _Small(Data):
    """Generated corpora of few sentences, so that there is little to test on."""

    def corpus(self, name, split="train", count=None):
        return super().corpus(name, split, 80 if count is None else count)


@pytest.fixture(scope="module")
def data():
    return _Small({name: Source(name) for name in run.CORPORA})


# ------------------------------------------------------------------------------------- sets


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    words=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_sets_are_parts_of_the_corpus(lengths, words, seed):
    corpus = [Sentence({"word": ["w"] * n}, str(i)) for i, n in enumerate(lengths)]
    try:
        sets = draw_sets(corpus, seed, words, (1, 2, 3))
    except ValueError:
        # Too few: even the shortest A there can be, of the longest sentences, leaves nothing.
        longest = np.cumsum(sorted(lengths, reverse=True))
        fewest = int((longest < words).sum()) + 1
        assert 7 * max(fewest, 1) >= len(corpus) or max(lengths) < words
        return
    parts = [sets.labelled, *sets.unlabelled.values(), sets.held_out]
    assert sorted(s.name or "" for part in parts for s in part) == sorted(s.name for s in corpus)
    count = len(sets.labelled)
    assert [len(part) for part in sets.unlabelled.values()] == [count, 2 * count, 3 * count]
    assert sets.held_out
    assert sets.words("A") >= words > sets.words("A") - len(sets.labelled[-1])
    assert draw_sets(corpus, seed, words, (1, 2, 3)) == sets


def test_sets_depend_on_the_seed():
    corpus = [Sentence({"word": ["w"]}, str(i)) for i in range(200)]
    firsts = {draw_sets(corpus, seed, 3, (1, 2, 5)).labelled[0].name for seed in range(8)}
    assert len(firsts) > 4
    with pytest.raises(ValueError, match="of 200 are needed"):
        draw_sets(corpus, 0, 30, (1, 2, 5))
    with pytest.raises(ValueError, match="multiples: expected 3 numbers"):
        draw_sets(corpus, 0, 30, (1, 2))


# ----------------------------------------------------------------------------------- scores


def _most_found(gold, predicted, alternatives):
    """By trying every way to give predicted mentions to gold ones."""
    fits = [
        [g for g in gold if p == g or (p in alternatives and p[0] < g[1] and g[0] < p[1])]
        for p in predicted
    ]
    choices = itertools.product(*([None, *some] for some in fits))
    return max(
        len(taken)
        for choice in choices
        for taken in [[g for g in choice if g is not None]]
        if len(set(taken)) == len(taken)
    )


@given(TAGS, TAGS, st.sets(st.tuples(st.integers(0, 7), st.integers(1, 8)), max_size=8))
def test_as_many_are_found_as_can_be(gold_tags, predicted_tags, some):
    gold, predicted = run_mentions(gold_tags), run_mentions(predicted_tags)
    alternatives = some | set(predicted[::2])
    assert count_found(gold, predicted, alternatives) == _most_found(gold, predicted, alternatives)
    assert count_found(gold, predicted) == len(set(gold) & set(predicted))


def run_mentions(tags):
    return [(start, stop) for start, stop, _ in jaxseq.metrics.spans(tags)]


@given(st.lists(st.tuples(TAGS, st.randoms(use_true_random=False)), max_size=6))
def test_exact_scores_are_those_of_the_metrics(drawn):
    gold = [tags for tags, _ in drawn]
    predicted = [random.sample(tags, len(tags)) for tags, random in drawn]
    sentences = [Sentence({"label": tags}, str(i)) for i, tags in enumerate(gold)]
    exact = span_scores(gold, predicted).overall
    assert score_mentions(sentences, predicted) == exact
    wide = {str(i): run_mentions(tags) for i, tags in enumerate(predicted)}
    assert score_mentions(sentences, predicted, wide).tp >= exact.tp


def test_sentences_are_compared_as_wholes():
    labels = [["B-GENE", "O", "B-GENE"], ["O", "O", "O"], ["O", "B-GENE", "O"], ["O"] * 3]
    sentences = [Sentence({"label": tags}) for tags in labels]
    ours = [labels[0], labels[1], ["O", "O", "O"], labels[3]]
    theirs = [["B-GENE", "O", "O"], ["B-GENE", "O", "O"], labels[2], labels[3]]
    found = compare(sentences, ours, theirs)
    assert (found["only_ours"], found["only_theirs"], found["p_value"]) == (2, 1, 1.0)


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=7))
def test_signs_are_counted_right(gaps):
    found = paired(gaps, [0] * len(gaps))
    nonzero = [gap for gap in gaps if gap]
    excess = abs(sum(np.sign(nonzero)))
    flips = itertools.product((-1, 1), repeat=len(nonzero))
    as_far = np.mean([abs(sum(signs)) >= excess for signs in flips])
    assert found.sign_test == pytest.approx(as_far)
    assert (found.t_test is None) == (len(set(gaps)) == 1)


def test_the_paired_t_test():
    gaps = np.array([0.02, -0.01, 0.03, 0.01])
    found = paired(list(gaps + 0.4), [0.4] * 4)
    t = gaps.mean() / (gaps.std(ddof=1) / 2)
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(200_000, 4))
    chance = np.abs(drawn.mean(1) / (drawn.std(1, ddof=1) / 2)) >= t
    assert found.t_test == pytest.approx(chance.mean(), abs=0.005)
    with pytest.raises(ValueError, match="expected pairs"):
        paired([1.0], [])


def _scores(found: int) -> Scores:
    counts = {"predicted": 50, "gold": 100, "exact": found, "with_alternatives": found}
    return Scores({seed: {"held_out": counts, "transductive": counts} for seed in (0, 1)})


def test_the_best_weight_is_a_positive_one():
    runs = {0.0: _scores(30), 0.1: _scores(20), 1.0: _scores(25)}
    assert best_weight(runs) == 1.0
    assert best_weight({0.0: _scores(30)}) is None
    assert against_supervised(runs, 1.0).mean == pytest.approx(2 * (25 - 30) / 150)


# ------------------------------------------------------------------------------------ cells


def test_every_preset_has_different_cells():
    for preset in ("smoke", "default", "paper"):
        cells = run.cells(_config(preset), range(5))
        assert len({json.dumps(cell, sort_keys=True) for cell in cells}) == len(cells)
    paper = run.cells(_config("paper"), range(5))
    assert {"part": "gradients"} in paper
    reported = {cell["seed"] for cell in paper if cell["part"] == "entropy"}
    assert not reported & {cell["seed"] for cell in paper if cell["part"] == "settings"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": 0}, "words: expected 1 or more, got 0"),
        ({"entropy_weights": (0.0, -1.0)}, "entropy_weights: expected numbers of 0 or more"),
        ({"entropy_weights": (1.0,)}, "entropy_weights: expected 0 first"),
        ({"second_sets": ("E",)}, "second_sets: expected some of B, C, D"),
        ({"settings": ("none",)}, "settings: expected some of paper, "),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(ValueError, match=message):
        _config(**changes)


def test_annealing_ends_at_the_weight():
    schedule = SETTINGS["annealed"].schedule(5.0)
    values = [float(schedule(step)) for step in range(0, 100, 5)]
    assert values[0] == pytest.approx(0.05)
    assert values[-1] == pytest.approx(5.0)
    assert values == sorted(values)
    assert SETTINGS["paper"].schedule(5.0) == 5.0


def test_the_entropy_cell(config, data, monkeypatch):
    seen = []
    fit = jaxseq.CRFTagger.fit

    def spy(self, X, y, **options):
        seen.append(options)
        return fit(self, X, y, **options)

    monkeypatch.setattr(jaxseq.CRFTagger, "fit", spy)
    found = run.run_cell(config, {"part": "entropy", **CELL}, data)
    assert [one["entropy_weight"] for one in found["runs"]] == [0.0, 1.0]
    assert seen[0] == {}
    assert all("label" not in sentence for sentence in seen[1]["unlabelled"])
    sets = draw_sets(data.corpus("genetag"), 3, 60, config.multiples)
    assert found["words"] == {name: sets.words(name) for name in "ABE"}
    gold = [sentence["label"] for sentence in sets.held_out]
    plain = config.tagger().fit(sets.labelled, [s["label"] for s in sets.labelled])
    overall = span_scores(gold, plain.predict(sets.held_out)).overall
    held_out = found["runs"][0]["held_out"]
    assert (held_out["exact"], held_out["predicted"], held_out["gold"]) == (
        overall.tp,
        overall.predicted,
        overall.gold,
    )
    assert held_out["with_alternatives"] == held_out["exact"], "generators have no alternatives"
    inside = sum(label != "O" for s in sets.unlabelled["B"] for label in s["label"])
    assert found["leaning"]["in_mentions"] == inside
    again = run.run_cell(config, {"part": "entropy", **CELL}, data)
    assert without_seconds(again) == without_seconds(found)


def test_a_cell_says_which_corpus_it_used(config, data):
    run._sets(config, data, "genetag", 60, 3)
    data.take_used()
    run._Task(config, CELL, data)
    assert data.take_used() == {"genetag": "embedded"}


def test_both_gradients_train_the_same_model(config, data):
    found = run.run_cell(config, {"part": "gradients"}, data)["runs"]
    assert found["jiao"]["same_labels"]
    assert found["jiao"]["weights_differ_below"] <= 1e-6
    assert found["jiao"]["iterations"] == found["mann"]["iterations"] > 0


# ----------------------------------------------------------------------------------- report


def test_the_papers_numbers_agree_with_each_other():
    for table in EXPECTED["table1"].values():
        for p, r, f in zip(table["precision"], table["recall"], table["f1"], strict=True):
            assert 2 * p * r / (p + r) == pytest.approx(f, abs=0.0125)  # printed digits
    gold = EXPECTED["table2"]["gold"]
    for name in "BCD":
        assert EXPECTED["table2"][name]["found"][0] / gold == pytest.approx(0.33, abs=0.005)


def _counts(exact: int) -> dict[str, int]:
    return {"predicted": 80, "gold": 100, "exact": exact, "with_alternatives": exact + 5}


def _run(weight: float, exact: int) -> dict:
    test = {} if weight == 0 else {"mcnemar": {"only_ours": 9, "only_theirs": 1, "p_value": 0.02}}
    scores = {"transductive": _counts(exact), "held_out": _counts(exact + 10)}
    return {"entropy_weight": weight, **scores, **test}


def _results() -> list[dict]:
    leaning = dict.fromkeys(("in_mentions_lean_outside", "unsure_lean_outside_rightly"), 4)
    leaning |= {"in_mentions": 8, "unsure": 10, "unsure_lean_outside": 5}
    lines = []
    for seed, corpus, name in itertools.product((0, 1), ("genetag", "bc2gm"), "BCD"):
        cell = {"corpus": corpus, "words": 5448, "unlabelled": name, "seed": seed}
        runs = [_run(0.0, 30 + seed), _run(1.0, 40 + 3 * seed)]
        lines.append(({"part": "entropy", **cell}, {"leaning": leaning, "runs": runs}))
        if corpus == "genetag":
            ended = {"rounds": 2, "outcome": "converged: no label changes"}
            result = {"self_trained": _run(0.5, 20), **ended}
            lines.append(({"part": "self-training", **cell}, result))
            result = {"weights": [0.0, 1.0], "scores": [[0.1], [0.2]], "best": 1.0}
            lines.append(({"part": "cross-validation", **cell}, result))
    one = {"iterations": 3, "weights_differ_below": 1e-9, "same_labels": True, "seconds": 0.5}
    sizes = {"labelled_words": 70, "unlabelled_words": 80, "longest": 9}
    runs = {"mann": one, "jiao": {**one, "seconds": 2.0}}
    lines.append(({"part": "gradients"}, {**sizes, "runs": runs}))
    runs = [_run(0.0, 30), _run(1.0, 25)]
    lines.append(({"part": "settings", "setting": "l2 10", "seed": 100}, {"runs": runs}))
    return [{"cell": cell, "corpora": {}, "result": result} for cell, result in lines]


def test_the_report_tells_the_numbers():
    section = report(_results(), EXPECTED, _config("paper"))
    text = section.markdown
    # F on E: 2 · 40 / 180 and 2 · 41 / 180 without, 2 · 50 / 180 and 2 · 53 / 180 with γ = 1
    assert "0.450 → 0.572" in text
    assert "a clear" in text or "no clear difference" in text
    assert "| C, γ = 1 | 3588/2580 | 0.467 | 80 | 52 |" in text
    assert "2 / 0 of 2" in text
    assert "| B, γ = 0 | 0.80 | 0.36 | 0.50 |" in text
    assert "| Jiao et al. | 2000.0 | 4.00 |" in text
    assert "-0.056" in text, "the setting's loss"
    assert "for 50% of the words in mentions" in text
    for figure in section.figures:
        assert draw(figure, "light", "png").startswith(b"\x89PNG")


def test_unfinished_results_have_a_report():
    results = _results()
    for count in range(0, len(results), 3):
        report(results[:count], EXPECTED, _config("paper"))
    for line in results:
        report([line], EXPECTED, _config("paper"))
