"""Chang, Ratinov & Roth 2007: rules, draws, plain beam and scores by other means; tiny cells."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments._config import read_config
from experiments._figures import draw
from experiments._paper import discover
from experiments._results import parts, without_seconds
from experiments.bench import _python_beam as plain
from experiments.bench import codl
from experiments.chang2007 import run
from experiments.chang2007._analysis import analysis
from experiments.chang2007._domains import DOMAINS, Parts, read_rules, rules_about
from experiments.chang2007._evidence import evidence, meetings, violation_counts
from experiments.chang2007._methods import INFERENCE, METHODS, PLAIN, Search, Task
from experiments.chang2007._settings import BASES, CHANGES, find_setting
from experiments.chang2007._summary import Scores, by_size, gain, mcnemar_counts
from experiments.chang2007.report import report
from experiments.data import Data, Source
from jaxseq.constraints import CorpusLabellings
from jaxseq.text import Sentence

FOLDER = discover()["chang2007"].folder
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text("utf-8"))


def _config(preset="smoke", **changes):
    found, _ = read_config(FOLDER / "config.toml", preset, run.Config)
    return dataclasses.replace(found, **changes)


@pytest.fixture(scope="module")
def config():
    return _config(
        domains=("citations",), citations_labelled=(5,), unlabelled=6, test=4, apart=4, top_k=2,
        width=4, cycles=1, soft_labelled=6, beyond_labelled=5, beyond_draws=1, settings=("base",),
        settings_labelled=(5,), settings_methods=("sup",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return Data({name: Source(name) for name in run.CORPORA})


@pytest.fixture(scope="module")
def results(config, data):
    lines = []
    wanted = [*run.cells(config, [0]), {"part": "soft", "domain": "ads", "seed": 0}]
    for cell in wanted:
        result = run.run_cell(config, cell, data)
        lines.append({"cell": cell, "corpora": data.take_used(), "result": result, "seconds": 0.1})
    return lines


# ------------------------------------------------------------------------------------- rules


def _broken_by_hand(words, labels):
    """The eleven rules of citations on one labelling, counted without automata."""
    runs = [label for label, _ in itertools.groupby(labels)]
    low = [word.lower() for word in words]

    def wrong(matches, *allowed):
        return sum(bool(matches(w)) and y not in allowed for w, y in zip(low, labels))

    return [
        len(runs) - len(set(runs)),
        sum(
            a != b and re.search(r"\w", word) is not None
            for word, a, b in zip(words, labels, labels[1:])
        ),
        int(labels[0] not in ("author", "editor")),
        wrong({"pp", "pages"}.__contains__, "pages"),
        wrong(lambda w: len(w) == 4 and w.isdigit() and w[:2] in ("19", "20"), "date"),
        wrong(lambda w: w in '"“”`', "title"),
        wrong({"note", "submitted", "appear"}.__contains__, "note"),
        wrong({"ca", "australia", "ny"}.__contains__, "location"),
        wrong({"tech", "technical"}.__contains__, "tech"),
        wrong({"proc", "journal", "proceedings", "acm"}.__contains__, "journal", "booktitle"),
        wrong({"ed", "editors"}.__contains__, "editor"),
    ]


def test_rules_of_citations_count_as_by_hand(data):
    rng = np.random.default_rng(0)
    sentences = data.corpus("citations", "labelled", 12)
    fields = sorted({label for sentence in sentences for label in sentence["label"]})
    wrong = [
        Sentence({"word": one["word"], "label": rng.choice(fields, len(one)).tolist()})
        for one in sentences
    ]
    both = sentences + wrong
    expected = [_broken_by_hand(one["word"], one["label"]) for one in both]
    found = violation_counts(read_rules("citations"), both)
    assert found.tolist() == expected
    assert found[12:].sum() > found[:12].sum()
    told = evidence(read_rules("citations"), both)
    assert [one["violations"] for one in told["rules"]] == np.sum(expected, 0).tolist()
    assert told["without_any"] == sum(not any(row) for row in expected)


def test_both_lists_are_those_of_the_paper():
    for domain, count, probability in (("citations", 11, 1e-4), ("ads", 13, 0.1)):
        rules = read_rules(domain)
        assert len(rules) == count
        assert all(one.penalty == pytest.approx(-math.log(probability)) for one in rules)
        numbers = [int(str(one.name).split()[0]) for one in rules]
        assert numbers == [n for n in range(1, 15) if n != 7 or domain == "citations"][:count]


def test_every_label_of_the_rules_is_a_field(data):
    for domain, split in (("citations", "labelled"), ("ads", "train")):
        fields = {label for one in data.corpus(domain, split, 100) for label in one["label"]}
        named = {n for one in read_rules(domain) for n in getattr(one.rule, "labels", None) or ()}
        assert named <= fields


@given(st.sets(st.sampled_from(["author", "editor", "journal", "title", "pages"])))
def test_rules_lose_unknown_labels_only(known):
    kept = {one.name: one.rule for one in rules_about(read_rules("citations"), known)}
    for one in read_rules("citations"):
        named = getattr(one.rule, "labels", None)
        left = None if named is None else [label for label in named if label in known]
        if left == []:
            assert one.name not in kept
        else:
            labels = getattr(kept[one.name], "labels", None)
            assert (labels if labels is None else list(labels)) == left


def test_meetings_are_told_by_their_side():
    words, labels = ["a", ",", "b", "(", "c", ",", "(", "d"], list("XXYZZZVV")
    assert meetings([Sentence({"word": words, "label": labels})]) == {
        "before": 1, "after": 1, "both": 1, "neither": 0
    }  # fmt: skip


# ------------------------------------------------------------------------- draws and settings


@pytest.mark.parametrize("domain", DOMAINS)
def test_draws_are_disjoint_and_grow(data, domain):
    chosen = Parts(data, domain, 20, 20)
    few, more = chosen.draw(3, 5, 2), chosen.draw(3, 25, 2)
    assert more.labelled[:5] == few.labelled
    assert more.test == few.test
    assert [len(more.labelled), len(more.unlabelled), len(more.test)] == [25, 2, 20]
    tested, apart = {id(s) for s in more.test}, {id(s) for s in chosen.apart}
    trained = {id(s) for s in more.labelled}
    assert not tested & trained
    assert not apart & (tested | trained)
    assert chosen.draw(4, 5, 2).labelled != few.labelled
    tuning = chosen.draw_for_settings(3, 25, 2)
    assert {id(s) for s in tuning.test} == apart
    assert not {id(s) for s in tuning.labelled} & apart
    with pytest.raises(ValueError, match="at most"):
        chosen.draw(0, 1000, 2)


def test_settings_change_what_they_say():
    one = Sentence({"word": ["Vol", "12"], "label": ["X", "Y"]})
    assert find_setting("citations", "lower case, digits").read([one])[0]["form"] == ("vol", "00")
    read = find_setting("citations").read([one])[0]
    assert read["form"] == ("vol", "12")
    assert (read["word"], read["label"]) == (one["word"], one["label"])
    tagger = find_setting("ads", "cut-off 10").tagger(["A"])
    assert (tagger.unknown_below, tagger.vocabulary, tagger.column) == (10, "all", "form")
    moved = find_setting("ads", "either side").rules(read_rules("ads"))
    assert getattr(moved[0].rule, "side", None) == "either"
    assert moved[1:] == list(read_rules("ads"))[1:]
    for domain, base in BASES.items():
        assert find_setting(domain) == base
        assert all(find_setting(domain, name) for name in CHANGES)


def test_constraints_correct_a_label(data):
    sets = Parts(data, "citations", 4, 10).draw(0, 30, 5)
    task = Task(sets, find_setting("citations"), read_rules("citations"), Search(2, 50, 0.1, 1))
    labels = task.labellings(task.train("sup"))
    broken = {
        how: sum(sum(_broken_by_hand(one["word"], y)) for one, y in zip(task.test, found))
        for how, found in labels.items()
    }
    assert broken[INFERENCE] < broken[PLAIN]
    right = sum(a == b for g, y in zip(task.gold, labels[PLAIN]) for a, b in zip(g, y))
    assert task.accuracy(labels[PLAIN]) == right / sum(map(len, task.gold))
    assert task.compare(labels[INFERENCE], labels[INFERENCE])["p_value"] == 1


# --------------------------------------------------------------------------- plain beam search


@given(st.integers(0, 99))
def test_plain_beam_is_enumeration_where_it_is_wide(seed):
    rng = np.random.default_rng(seed)
    names = ["author", "date", "editor", "journal", "booktitle", "location", "note", "pages"]
    names += ["tech", "title"]
    chosen = rng.normal(size=(12, len(names))).tolist()
    words = rng.choice(["Pages", ",", "1999", "CA", "x"], 3).tolist()
    emission = {word: chosen[index] for index, word in enumerate(["Pages", ",", "1999"])}
    model = plain.Model(chosen[3], chosen[-len(names) :], emission, chosen[4])
    found = plain.search(model, plain.citation_rules(names), 2.0, words, 1000)
    every = []
    for path in itertools.product(range(len(names)), repeat=3):
        score = chosen[3][path[0]]
        score += sum(model.transition[a][b] for a, b in itertools.pairwise(path))
        score += sum(emission.get(w, chosen[4])[y] for w, y in zip(words, path))
        score -= 2.0 * sum(_broken_by_hand(words, [names[y] for y in path]))
        every.append((score, path))
    every.sort(reverse=True)
    assert len(found) == len(every)
    assert [score for score, _ in found] == pytest.approx([score for score, _ in every])


def test_plain_beam_is_the_library_s(data):
    case = codl.make_case(data, "citations", 60, 3)
    rules = plain.citation_rules(case.labels)
    found = {
        number: plain.search(case.model, rules, case.penalty, one["word"], codl.WIDTH)
        for number, one in enumerate(case.sentences)
    }
    ours = case.decode()
    gap, best, lists = codl.compare(case, ours, found)
    assert gap < 1e-5
    assert (best, lists) == (1, 1)
    other = CorpusLabellings(1 - ours.labels, 2 * ours.scores, ours.hard, False)
    gap, best, lists = codl.compare(case, other, found)
    assert gap == pytest.approx(1, abs=1e-5)
    assert (best, lists) == (0, 0)


# ------------------------------------------------------------------------------ cells, report


@pytest.mark.parametrize("preset", ["smoke", "default", "paper"])
def test_cells_are_different_and_of_json(preset):
    config, seeds = read_config(FOLDER / "config.toml", preset, run.Config)
    texts = [json.dumps(cell, sort_keys=True) for cell in run.cells(config, seeds)]
    assert len(set(texts)) == len(texts) > 4
    assert not set(seeds) & set(config.settings_seeds)


@pytest.mark.parametrize(
    "wrong",
    [
        {"test": 0}, {"width": 1}, {"keep": 1.5}, {"settings": ("none",)},
        {"settings_methods": ("sub",)}, {"soft_probability": 0.0},
    ],
)  # fmt: skip
def test_bad_configurations_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        _config(**wrong)


def test_cells_measure_what_they_say(config, results):
    found = {line["cell"]["part"] for line in results}
    assert found == {"rules", "table", "soft", "beyond", "settings"}
    assert all(set(line["corpora"].values()) == {"embedded"} for line in results)
    methods = parts(results, "table")[0]["result"]["methods"]
    assert tuple(methods) == METHODS
    assert all(0 < one[how] <= 1 for one in methods.values() for how in (PLAIN, INFERENCE))
    accuracy = parts(results, "soft")[0]["result"]["accuracy"]
    assert set(accuracy) == {"none", "C1, soft", "C1, hard", "all, soft", "all, hard"}
    penalties = parts(results, "beyond")[0]["result"]["penalties"]
    assert all(0 <= rho < math.inf for rho in penalties.values())


def test_the_same_cell_gives_the_same(config, data, results):
    line = parts(results, "table")[0]
    again = run.run_cell(config, line["cell"], data)
    assert without_seconds(again) == without_seconds(line["result"])


def test_report_of_all_and_of_some(config, results):
    section = report(results, EXPECTED, config)
    for heading in ("What comes out", "Table 2", "Section 7", "Beyond", "Table 1", "leaves open"):
        assert heading in section.markdown
    assert "nan" not in section.markdown
    for figure in section.figures:
        assert draw(figure, "light", "png").startswith(b"\x89PNG")
    for line in results:
        assert report([line], EXPECTED, config).markdown
    assert report([], EXPECTED, config).figures == ()


# ---------------------------------------------------------------------------------- summaries


def _line(domain, labelled, seed, accuracies, p_value=0.01):
    methods = {
        name: {PLAIN: a, INFERENCE: b, "seconds": 1.0} for name, (a, b) in accuracies.items()
    }
    test = {"only_ours": 9, "only_theirs": 1, "p_value": p_value}
    result = {"methods": methods, "mcnemar": {"learning": test, "inference": test}, "fields": 9}
    cell = {"part": "table", "domain": domain, "labelled": labelled, "seed": seed}
    return {"cell": cell, "result": result}


def _lines(domain, labelled, base):
    """Two draws in which each method is better than the one before, and + I than without."""
    lines = []
    for seed in (0, 1):
        steps = [0.01 * (seed + index) for index in range(len(METHODS))]
        scores = {n: (base + step, base + 2 * step + 0.01) for n, step in zip(METHODS, steps)}
        lines.append(_line(domain, labelled, seed, scores))
    return lines


def test_numbers_of_the_paper_stand_in_their_rows(config):
    lines = _lines("citations", 20, 0.5) + _lines("ads", 100, 0.5)
    rows = report(lines, EXPECTED, config).markdown.splitlines()
    first = next(row for row in rows if row.startswith("| 20, no I"))
    assert [cell.strip() for cell in first.split("|")][2] == "50.5 ± 0.7 (70.1)"
    last = next(row for row in rows if row.startswith("| 100, I"))
    assert "(81.7)" in last


def test_gain_is_that_of_a_paired_t_test():
    ours = Scores({0: {"I": 0.9}, 1: {"I": 0.8}, 2: {"I": 0.85}, 5: {"I": 0.1}})
    theirs = Scores({0: {"I": 0.7}, 1: {"I": 0.7}, 2: {"I": 0.7}})
    found = gain(ours, "I", theirs, "I")
    assert found is not None
    assert (round(found.mean, 9), found.draws) == (15, 3)
    gaps = np.array([20.0, 10.0, 15.0])
    t = gaps.mean() / (gaps.std(ddof=1) / math.sqrt(3))
    # Two degrees of freedom have this distribution in closed form.
    assert found.p_value == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert gain(ours, "I", Scores({9: {"I": 0.5}}), "I") is None


def test_analysis_says_what_the_numbers_say():
    lines = _lines("citations", 20, 0.5) + _lines("citations", 300, 0.3)
    text = analysis(lines, EXPECTED)
    assert "reaches" in text
    assert "does not hurt" in text
    assert "help at every N ≤ 25" in text
    worse = [*_lines("citations", 20, 0.3), *_lines("citations", 300, 0.8)]
    assert "does not reach" in analysis(worse, EXPECTED)
    assert mcnemar_counts(lines, "learning") == (4, 0, 4)
    assert mcnemar_counts([_line("ads", 5, 0, {}, 0.5)], "learning") == (0, 0, 1)
    assert list(by_size(lines)) == [20, 300]
