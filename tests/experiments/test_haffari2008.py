"""Haffari & Sarkar 2008: splits, decodings and scores by other means; cells on few citations."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from experiments._config import read_config
from experiments._figures import draw
from experiments._paper import discover
from experiments._precision import double_precision
from experiments._results import parts, without_seconds
from experiments.data import Data, Source
from experiments.haffari2008 import run
from experiments.haffari2008._methods import Search, most_likely, sweep, train
from experiments.haffari2008._settings import NORMALISED, SETTINGS, Setting
from experiments.haffari2008._summary import by_method, by_size, gains
from experiments.haffari2008._task import Task, decode, draw_split
from experiments.haffari2008.report import report
from jaxseq.hmm import HMM, word_corpus
from jaxseq.text import Sentence

FOLDER = discover()["haffari2008"].folder
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text("utf-8"))


def _config(preset="smoke", **changes):
    found, _ = read_config(FOLDER / "config.toml", preset, run.Config)
    return dataclasses.replace(found, **changes)


@pytest.fixture(scope="module")
def config():
    return _config(
        labelled=20, dev=2, test=8, held_out=5, unlabelled=(12,), free_unlabelled=(12,),
        transitions=("frozen",), small_labelled=20, small_unlabelled=(12,), small_pool=12,
        sweep_unlabelled=12, path_unlabelled=12, path_steps=4, max_iterations=2, search_step=1.0,
        sweep_step=0.5, settings=("paper",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return Data({name: Source(name) for name in run.CORPORA})


@pytest.fixture(scope="module")
def results(config, data):
    lines = []
    for cell in run.cells(config, [0]):
        result = run.run_cell(config, cell, data)
        lines.append({"cell": cell, "corpora": data.take_used(), "result": result, "seconds": 0.1})
    return lines


# --------------------------------------------------------------------------- splits, decoding


@given(st.integers(3, 40), st.integers(0, 99), st.data())
def test_parts_are_disjoint_and_the_test_part_stays(count, seed, drawn):
    corpus = [Sentence({"word": [str(i)]}, str(i)) for i in range(count)]
    test = drawn.draw(st.integers(1, count - 2))
    dev = drawn.draw(st.integers(0, count - test - 1))
    train = drawn.draw(st.integers(1, count - test - dev))
    split = draw_split(corpus, seed, (train, dev, test))
    assert [len(part) for part in (split.train, split.dev, split.test)] == [train, dev, test]
    names = [s.name for part in (split.train, split.dev, split.test) for s in part]
    assert len(set(names)) == len(names)
    assert draw_split(corpus, seed, (1, dev, test)).test == split.test
    with pytest.raises(ValueError, match="at most"):
        draw_split(corpus, seed, (count, dev, test))


@given(st.integers(0, 99))
def test_decoding_is_that_of_single_chains(seed):
    rng = np.random.default_rng(seed)
    hmm = HMM(*(rng.random(shape) + 0.1 for shape in ((3,), (3, 3), (4, 3))))
    sequences = [rng.integers(0, 4, n).tolist() for n in (4, 1, 4)]
    corpus = word_corpus(sequences, 4, cores=2)
    best, most = decode(hmm, corpus, "viterbi"), decode(hmm, corpus, "sms")
    for words, one, other in zip(sequences, best, most):
        chain = hmm.chain(jnp.asarray(words))
        assert one == jaxseq.viterbi(chain)[0].tolist()
        assert other == jaxseq.max_marginal(chain).tolist()
    with pytest.raises(ValueError, match="decoding: expected"):
        decode(hmm, corpus, "map")


def test_impossible_words_tell_nothing():
    hmm = HMM(jnp.array([0.9, 0.1]), jnp.eye(2), jnp.array([[1.0, 1.0], [0.0, 0.0]]))
    assert decode(hmm, word_corpus([[1, 0, 1]], 2), "viterbi") == [[0, 0, 0]]
    assert decode(hmm, word_corpus([[1, 0, 1]], 2), "sms") == [[0, 0, 0]]


def _sentences(pairs):
    return [Sentence({"word": list(words), "label": list(labels)}) for words, labels in pairs]


def test_scores_count_tokens_and_segments():
    sentences = _sentences([("aabb", "XXYY")] * 3)
    task = Task(Setting("", unknown_below=1), sentences, sentences, sentences, ["X", "Y"])
    scores = task.score(task.supervised)
    for decoding in ("viterbi", "sms"):
        assert scores[decoding] == {"accuracy": 1.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}
    always = HMM(jnp.array([1.0, 0.0]), jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.ones((3, 2)))
    found = task.score(always)["viterbi"]
    assert found == {"accuracy": 0.5, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert task.balance == 0.5


def test_words_are_normalised_and_counted():
    sentences = _sentences([(["A1", "b"], "XY"), (["a2", "c"], "XY")])
    more = _sentences([(["c"], "X")])

    def words(**changes):
        return set(Task(Setting("", **changes), sentences, more, more, ["X", "Y"]).vocabulary.words)

    assert words(unknown_below=1) == {"A1", "a2", "b", "c"}
    assert words(unknown_below=2) == {"c"}
    assert words(unknown_below=2, vocabulary="labelled") == set()
    assert words(unknown_below=2, normalise="lower case and digits") == {"a0", "c"}
    assert NORMALISED["digits"]("Vol. 12a") == "Vol. 00a"
    assert all(setting.what for setting in SETTINGS.values())


def test_the_most_likely_model_is_taken():
    sentences = _sentences([("ab", "XY"), ("ba", "YX")] * 4)
    task = Task(Setting("", unknown_below=1), sentences, sentences, sentences, ["X", "Y"])
    tried = sweep(task, [0.0, 0.5], Search(3, 0.0, 5), warm=True)
    assert [one.balance for one in tried] == [0.0, 0.5]
    likelihoods = [task.log_likelihood(one.model, task.labelled) for one in tried]
    assert most_likely(task, tried, task.labelled) is tried[int(np.argmax(likelihoods))]


def test_precision_is_put_back():
    before = jnp.zeros(1).dtype
    jax.config.update("jax_enable_x64", False)
    try:
        with double_precision():
            assert jnp.zeros(1).dtype == jnp.float64
        assert jnp.zeros(1).dtype == jnp.float32
    finally:
        jax.config.update("jax_enable_x64", True)
    assert jnp.zeros(1).dtype == before


# ------------------------------------------------------------------------------ cells, report


@pytest.mark.parametrize("preset", ["smoke", "default", "paper"])
def test_cells_are_different_and_of_json(preset):
    config, seeds = read_config(FOLDER / "config.toml", preset, run.Config)
    texts = [json.dumps(cell, sort_keys=True) for cell in run.cells(config, seeds)]
    assert len(set(texts)) == len(texts) > 4


@pytest.mark.parametrize(
    "wrong",
    [{"labelled": 0}, {"held_out": 60}, {"search_step": 0.0}, {"settings": ("none",)}],
)
def test_bad_configurations_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        _config(**wrong)


def test_settings_never_see_a_test_citation(config, data):
    sentences, _ = run._labelled(data)
    split = draw_split(sentences, 3, (config.labelled, config.dev, config.test))
    assert not {id(one) for one in split.dev} & {id(one) for one in split.test}
    task = run._task(config, data, SETTINGS["paper"], 12, 3, on_dev=True)
    assert list(task.test) == list(split.dev)
    assert list(run._task(config, data, SETTINGS["paper"], 12, 3).test) == list(split.test)


def test_cells_measure_what_they_say(config, results):
    assert {line["cell"]["part"] for line in results} == {
        "table", "small", "sweep", "path", "settings"
    }  # fmt: skip
    assert all(line["corpora"] == {"citations": "embedded"} for line in results)
    table = parts(results, "table")[0]["result"]
    methods = table["methods"]
    assert methods["supervised"]["balance"] == 0
    assert methods["em"]["balance"] == pytest.approx(12 / 32)
    assert 0 <= methods["monotone"]["balance"] <= 1
    assert table["path"]["residual"] < 1e-8
    path = parts(results, "path")[0]["result"]
    assert path["series"]["lam"][0] == 0
    assert path["scored"][0]["viterbi"] == methods["supervised"]["viterbi"]
    lengths = {len(values) for values in path["series"].values()}
    assert lengths == {path["summary"]["points"]}
    runs = parts(results, "sweep", start="cold")[0]["result"]["runs"]
    assert [one["balance"] for one in runs] == [0, 0.5, 1]
    assert runs[0]["sms"] == methods["supervised"]["sms"]


def test_the_held_out_model_is_measured_with_its_own_words(config, data, results):
    line = parts(results, "table")[0]
    found, cell = line["result"]["methods"]["held-out"], line["cell"]
    sentences, classes = run._labelled(data)
    split = draw_split(sentences, cell["seed"], (config.labelled, config.dev, config.test))
    setting = run._with_transitions(cell["setting"], cell["transitions"])
    more = run._unlabelled(data, setting, cell["unlabelled"], cell["seed"])
    task = Task(setting, split.train[config.held_out :], more, split.test, classes)
    trained = train(task, found["balance"], config.search)
    assert found == {"balance": trained.balance, **task.score(trained.model)}


def test_the_same_cell_gives_the_same(config, data, results):
    line = parts(results, "small")[0]
    again = run.run_cell(config, line["cell"], data)
    assert without_seconds(again) == without_seconds(line["result"])


def test_report_of_all_and_of_some(config, results):
    section = report(results, EXPECTED, config)
    for heading in ("What is claimed", "Table 1", "Figure 2", "Figures 3", "Whole paths", "open"):
        assert heading in section.markdown
    assert "nan" not in section.markdown
    for figure in section.figures:
        assert draw(figure, "light", "png").startswith(b"\x89PNG")
    for line in results:
        assert report([line], EXPECTED, config).markdown
    assert report([], EXPECTED, config).figures == ()


def test_numbers_of_the_paper_stand_in_their_rows(config):
    score = {"accuracy": 0.5, "precision": 0.1, "recall": 0.1, "f1": 0.1}
    one = {"balance": 0.1, "viterbi": score, "sms": score}
    names = ("supervised", "em", "max_entropy", "monotone", "min_eigenvalue")
    path = {"last": 0.1, "residual": 1e-9, "seconds": 1.0, "points": 3}
    cell = {"part": "table", "setting": config.setting, "transitions": "frozen"}
    cell |= {"unlabelled": 1000, "seed": 0}
    line = {"cell": cell, "result": {"methods": dict.fromkeys(names, one), "path": path}}
    rows = report([line], EXPECTED, config).markdown.splitlines()
    em = next(row for row in rows if row.startswith("| EM, λ of maximum likelihood, 1000"))
    assert [cell.strip() for cell in em.split("|")][2:6] == ["0.100", "0.770", "50.0", "83.7"]
    best = next(row for row in rows if row.startswith("| homotopy, maxEnt, 1000"))
    assert "88.6" in best
    assert "87.9" in best
    assert gains(by_method([line])["em"], by_method([line])["supervised"], "sms") == [0.0]
    assert list(by_size([line])) == [1000]


def test_claims_are_bold_where_they_hold(config):
    def scored(percent):
        score = {"accuracy": percent / 100, "precision": 0.1, "recall": 0.1, "f1": 0.1}
        return {"balance": 0.1, "viterbi": score, "sms": score}

    methods = {"supervised": 86.5, "em": 82.0, "monotone": 86.25, "min_eigenvalue": 87.0}
    path = {"last": 0.1, "residual": 1e-9, "seconds": 1.0, "points": 3}
    cell = {"part": "table", "setting": config.table_settings[0], "transitions": "free"}
    lines = [
        {
            "cell": {**cell, "unlabelled": 1000, "seed": seed},
            "result": {
                "methods": {
                    **{name: scored(percent) for name, percent in methods.items()},
                    "max_entropy": scored(84.5 + seed),
                },
                "path": path,
            },
        }
        for seed in (0, 1)
    ]
    rows = report(lines, EXPECTED, config).markdown.splitlines()
    claims = next(row for row in rows if row.startswith(f"| {config.table_settings[0]} | free"))
    assert [cell.strip() for cell in claims.split("|")][3:-1] == [
        "Viterbi", "**86.50**", "-0.25 ± 0.00", "**+4.25 ± 0.00**", "**+0.50 ± 0.00**",
        "**+5.00 ± 0.00**", "-1.50 ± 0.50", "**+3.00 ± 0.50**",
    ]  # fmt: skip
