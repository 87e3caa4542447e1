"""Wanvarie et al. 2011: rows, rounds that go on after a stop, summaries by other means, report."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments._config import read_config
from experiments._figures import draw
from experiments._paper import discover
from experiments._results import without_seconds
from experiments.bench import active
from experiments.bench._report import Report
from experiments.data import Data, Source
from experiments.wanvarie2011 import run
from experiments.wanvarie2011._drawings import DRAWINGS, GROUPS, PROPOSED, SPANS
from experiments.wanvarie2011._loop import Loop
from experiments.wanvarie2011._rows import KINDS, row_named, task_and_row
from experiments.wanvarie2011._summary import (
    Curve,
    at_share,
    first_not_worse,
    gap,
    is_worse,
)
from experiments.wanvarie2011._task import Judge, Part, read_part
from experiments.wanvarie2011.report import report
from jaxseq.active import GroupQueries, SequenceQueries, SpanQueries, TokenQueries
from jaxseq.active import _learner as _active_round

FOLDER = discover()["wanvarie2011"].folder
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text("utf-8"))
PRESETS = ("smoke", "default", "paper", "overnight")


def _config(preset="smoke", **changes):
    found, _ = read_config(FOLDER / "config.toml", preset, run.Config)
    return dataclasses.replace(found, **changes)


USUAL = _config("default").usual


@pytest.fixture(scope="module")
def config():
    return _config(
        rows=("np: Sup", "np: Proposed δ=.90", "np: Spans δ=.90", "np: Pointwise"),
        train=16, test=8, max_iterations=6, initial=2, query_size=9, most_rounds=2,
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


def _result(results, row):
    return next(line["result"] for line in results if line["cell"]["row"] == row)


# -------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("Partial δ=.90", TokenQueries(None, 0.9)),
        ("Proposed δ=.60", TokenQueries(500, 0.6)),
        ("Proposed δ=.90", TokenQueries(500, 0.9)),
        ("Proposed δ=.90 each=1", TokenQueries(500, 0.9, 1)),
        ("Proposed δ=.99 q=50", TokenQueries(50, 0.99)),
        ("Proposed each=2", TokenQueries(500, 0.99, 2)),
        ("Proposed each=1 forms=3 q=100 l2=1 most=4.73", TokenQueries(100, 0.99, 1, 3)),
        ("Groups δ=.999 each=1", GroupQueries("lower(word[0])|pos[-1]|pos[1]", 500, 0.999, 1)),
        ("Spans δ=.90 width=2", SpanQueries(2, 500, 0.9)),
        ("FuSAL", SequenceQueries(500, ask="all")),
        ("Bootstrap", SequenceQueries(500, ask="none", keep_sure="model")),
        ("Tomanek09", SequenceQueries(500, ask="unsure", keep_sure="model")),
        ("Wanvarie10 q=7", SequenceQueries(7, ask="unsure", keep_sure="open")),
    ],
)
def test_rows_are_those_of_the_paper(name, strategy):
    row = row_named(name, USUAL)
    assert row.strategy == strategy
    assert row.rounds == (1 if name.startswith("Partial") else None)
    assert (row.is_supervised, row.is_drawn, row.start) == (False, False, "longest")


def test_the_row_with_our_limit_stands_beside_the_published_one():
    for preset, tasks in (("default", ("np",)), ("paper", ("np", "conll2000"))):
        config = _config(preset)
        assert config.usual == USUAL
        for task in tasks:
            assert {f"{task}: Proposed δ=.90", f"{task}: Proposed δ=.90 each=1"} <= {*config.rows}


def test_a_row_may_have_its_own_penalty_start_and_budget(config, data):
    row = row_named("Proposed initial=3 l2=2 most=50", config.usual)
    task = run.make_task(config, "np", data, row.l2)
    learner = run.make_learner(config, row, task)
    assert (task.l2, learner.estimator.l2, learner.initial) == (2, 2, 3)
    assert learner.budget == task.pool.tokens // 2
    plain = run.make_learner(config, row_named("Proposed", config.usual), task)
    assert (plain.initial, plain.budget, plain.between) == (config.initial, None, None)
    short = run.make_learner(config, row_named("Proposed between=7", config.usual), task)
    assert short.between == 7
    assert run.make_task(config, "np", data).l2 == config.l2["np"]


def test_a_row_is_compared_with_the_sup_of_its_last_tagger(config, data):
    assert row_named("Groups l2=1 last=.1", USUAL).sup_l2 == 0.1
    assert row_named("Groups l2=1", USUAL).sup_l2 == 1
    assert row_named("Groups", USUAL).sup_l2 is None
    plain, last = (
        run.run_cell(config, {"task": "np", "row": f"Proposed l2=1{more}"}, data)
        for more in ("", " last=.001")
    )
    assert last["asking"]["f1"] == plain["f1"]  # the same tagger has asked
    assert [one["f1"] for one in last["rounds"][:-1]] == [one["f1"] for one in plain["rounds"][:-1]]
    assert not any("asking" in one for one in last["rounds"][:-1])
    sup = run.train_sup(run.make_task(config, "np", data, 0.001))[0]
    judge = Judge(run.make_task(config, "np", data), sup)
    row = row_named("Proposed l2=1", config.usual)
    task = run.make_task(config, "np", data, 1.0)
    learner = run.make_learner(config, row, task)
    Loop(learner, task.pool, lambda tagger: {}).run()
    assert {name: last[name] for name in ("f1", "only_sup", "only_ours")}.items() <= judge(
        learner.refit(l2=0.001)
    ).items()


def test_rows_that_ask_nothing_and_rows_of_chance():
    assert all(row_named(name, USUAL).is_supervised for name in ("Sup", "Pointwise"))
    assert row_named("Proposed start=random", USUAL).is_drawn
    with pytest.raises(ValueError, match="asks"):
        _ = row_named("Sup", USUAL).strategy


@pytest.mark.parametrize(
    "wrong",
    [
        "Supp",
        "Proposed δ=much",
        "Proposed δ=2",
        "Proposed q=0",
        "Proposed start=middle",
        "Sup x=1",
        "Proposed initial=0",
        "Sup l2=-1",
        "Proposed most=0",
        "Proposed between=-1",
        "",
        "Groups forms=1",
        "Spans each=1",
        "Wanvarie10 forms=2",
        "Partial q=5",
        "Sup δ=.9",
        "Proposed δ=.9 δ=.5",
        "Proposed between=1.5",
        "Groups last=-1",
        "Groups last=inf",
        "Sup last=.1",
    ],
)
def test_unknown_rows_are_refused(wrong):
    with pytest.raises(ValueError, match=r"row .*expected"):
        row_named(wrong, USUAL)


@pytest.mark.parametrize("preset", PRESETS)
def test_cells_are_different_and_the_main_ones_come_first(preset):
    config, seeds = read_config(FOLDER / "config.toml", preset, run.Config)
    cells = run.cells(config, seeds)
    texts = [json.dumps(cell, sort_keys=True) for cell in cells]
    assert len(set(texts)) == len(texts) >= 4
    assert [cell["row"] for cell in cells[:2]] == ["Sup", "Proposed δ=.90"]
    random = [cell for cell in cells if "random" in cell["row"]]
    assert [cell["seed"] for cell in random] == (list(seeds) if random else [])


def test_the_paper_preset_has_every_row_and_every_figure():
    rows = {tuple(task_and_row(text)) for text in _config("paper").rows}
    published = {(task, row) for task in ("np", "conll2000", "conll2003") for row in EXPECTED[task]}
    assert published <= rows
    assert {row.split()[0] for _, row in rows} == set(KINDS)
    rows |= {tuple(task_and_row(text)) for text in _config("overnight").rows}
    for drawing in DRAWINGS:
        if drawing.rows != SPANS or drawing.task == "np":
            wanted = (*drawing.rows, *([drawing.level] if drawing.level else []))
            assert {(drawing.task, row) for row in wanted} <= rows
    assert [drawing.name for drawing in DRAWINGS[:7]] == [f"figure-{n}" for n in range(3, 10)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": 0}, {"train": -1}, {"threshold": 0.0}, {"l2": {"np": 1.0}},
        {"rows": ("np Sup",)}, {"rows": ("genes: Sup",)}, {"rows": ("np: Sub",)},
    ],
)  # fmt: skip
def test_bad_configurations_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        _config(**wrong)


def test_claims_of_the_paper_are_those_of_its_tables():
    for task, percent in EXPECTED["goals"].items():
        assert EXPECTED[task]["Proposed δ=.90"]["tokens"] == percent == active.SHARE[task]
    assert EXPECTED["np"]["Bootstrap"]["tokens"] < EXPECTED["np"]["Proposed δ=.90"]["tokens"]
    best = max(row["f1"] for row in EXPECTED["np"].values())
    assert best == 93.90


# ------------------------------------------------------------------------------- tasks, rounds


def test_only_noun_phrases_are_left(data):
    chunks, phrases = (read_part(data, task, "train", 5) for task in ("conll2000", "np"))
    for before, after in zip(chunks.labels, phrases.labels):
        expected = [label if label in ("B-NP", "I-NP") else "O" for label in before]
        assert after == expected
    assert {"B-VP"} <= {label for labels in chunks.labels for label in labels}
    assert all("label" not in sentence.columns for sentence in phrases.sentences)
    assert phrases.tokens == sum(map(len, phrases.labels))


def test_scores_are_those_counted_by_hand(config, data):
    task = run.make_task(config, "np", data)
    gold = task.test.labels
    sup = [["O", *labels[1:]] for labels in gold]  # wrong only where a sentence begins with B-NP

    class Mute:
        def predict(self, sentences):
            return [["O"] * len(sentence) for sentence in sentences]

    found = Judge(task, sup)(Mute())  # pyright: ignore[reportArgumentType]
    only_sup = sum(label != "O" for labels in gold for label in labels[1:])
    assert (found["f1"], found["only_sup"], found["only_ours"]) == (0, only_sup, 0)
    outside = sum(label == "O" for labels in gold for label in labels)
    assert found["accuracy"] == pytest.approx(100 * outside / task.test.tokens)
    statistic = (only_sup - 1) ** 2 / only_sup
    assert found["p_value"] == pytest.approx(math.erfc(math.sqrt(statistic / 2)))


def _loop(config, data, folder=None, row="Proposed δ=.90"):
    task = run.make_task(config, "np", data)
    asked = row_named(row, config.usual)
    learner = run.make_learner(config, asked, task)
    score = lambda tagger: {"loss": float(tagger.loss_)}  # noqa: E731
    return Loop(learner, task.pool, score, folder, asked.last_l2)


@pytest.mark.parametrize("row", ["Proposed δ=.90", "Proposed δ=.90 last=.1"])
def test_rounds_say_what_was_asked(config, data, row):
    learners = []
    loop = _loop(config, data, row=row)
    rounds = loop.run(lambda one, learner: learners.append(learner.status().round))
    assert learners == [1, 2, 3]
    assert [one["round"] for one in rounds] == [1, 2, 3]
    pool = run.make_task(config, "np", data).pool
    initial = sum(sorted(map(len, pool.labels))[-config.initial :])
    assert [one["labelled_tokens"] for one in rounds] == [initial, initial + 9, initial + 18]
    assert [one["stop"] for one in rounds] == [False, False, True]
    for one in rounds:
        parts = {name: value for name, value in one["seconds"].items() if name != "all"}
        assert one["seconds"]["all"] == pytest.approx(sum(parts.values()), abs=1e-3)
        assert min(parts.values()) >= 0
    has_last = [one["seconds"].get("last training", 0) > 0 for one in rounds]
    assert has_last == [False, False, "last" in row]


class _Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


@pytest.mark.parametrize(
    ("step", "row"),
    [
        *((step, "Proposed δ=.90") for step in ("propose", "answer", "train", "record")),
        ("train", "Proposed δ=.90 between=1"),
        ("last", "Proposed δ=.90 last=.1"),
    ],
)
def test_a_row_that_is_stopped_goes_on_as_if_it_had_not(
    config, data, tmp_path, monkeypatch, step, row
):
    whole = _loop(config, data, row=row).run()
    loop = _loop(config, data, tmp_path / "row", row)
    if step in ("record", "last"):
        calls, fatal = itertools.count(), {"record": 1, "last": len(whole)}[step]

        def score(tagger):
            if next(calls) == fatal:
                raise _Killed
            return {"loss": float(tagger.loss_)}

        stopped = dataclasses.replace(loop, score=score)
    else:
        stopped, real, calls = loop, getattr(loop.learner, step), itertools.count()

        def once(*arguments, **named):
            found = real(*arguments, **named)
            if next(calls) == 1:
                raise _Killed
            return found

        monkeypatch.setattr(loop.learner, step, once)
    with pytest.raises(_Killed):
        stopped.run()
    monkeypatch.undo()
    again = _loop(config, data, tmp_path / "row", row).run()
    assert without_seconds(again) == without_seconds(whole)
    for one in again:  # also of a round that was trained before, and not recorded
        assert min(one["seconds"][name] for name in ("training", "looking")) > 0


def test_a_row_that_is_done_is_not_trained_again(config, data, tmp_path, monkeypatch):
    row = "Proposed δ=.90 last=.1"
    whole = _loop(config, data, tmp_path / "row", row).run()
    monkeypatch.setattr(Loop, "_with_last", None)
    assert _loop(config, data, tmp_path / "row", row).run() == whole


def test_the_state_of_a_row_is_there_until_it_ends(config, data, tmp_path, monkeypatch, results):
    monkeypatch.setenv(run.STATE, str(tmp_path))
    cell = {"task": "np", "row": "Proposed δ=.90"}
    kept = []
    real = Loop._keep

    def keep(self, rounds):
        real(self, rounds)
        kept.append(sorted(path.name for path in self.folder.iterdir()))
        if len(kept) == 2:
            raise _Killed

    monkeypatch.setattr(Loop, "_keep", keep)
    with pytest.raises(_Killed):
        run.run_cell(config, cell, data)
    assert len(list(tmp_path.iterdir())) == 1
    again = run.run_cell(config, cell, data)
    assert kept == [["learner", "rounds.jsonl"]] * 3
    assert not list(tmp_path.iterdir())
    assert without_seconds(again) == without_seconds(_result(results, cell["row"]))


# ------------------------------------------------------------------------------ cells, report


def test_cells_measure_what_they_say(config, results):
    assert all(set(line["corpora"].values()) == {"embedded"} for line in results)
    json.dumps([line["result"] for line in results], allow_nan=False)
    sup = _result(results, "Sup")
    assert (sup["only_sup"], sup["only_ours"], sup["p_value"]) == (0, 0, 1)
    assert sup["labelled_tokens"] == sup["tokens"]
    tokens, spans = (_result(results, row) for row in SPANS)
    assert tokens["labelled_tokens"] == spans["labelled_tokens"] < tokens["tokens"]
    assert spans["labelled_sentences"] <= tokens["labelled_sentences"]
    assert tokens["f1"] == tokens["rounds"][-1]["f1"]
    assert _result(results, "Pointwise")["objective"] != sup["objective"]


def test_pointwise_has_no_transitions(config, data):
    task = run.make_task(config, "np", data)
    assert np.abs(np.asarray(task.supervised(transitions=False).model_.transitions)).max() == 0
    assert np.abs(np.asarray(task.supervised().model_.transitions)).max() > 0


def test_report_of_all_and_of_some(config, results):
    section = report(results, EXPECTED, config)
    for text in ("Tables 4 and 5", "What a round costs", "| Sup |", "(4.73)"):
        assert text in section.markdown
    assert "nan" not in section.markdown
    assert [figure.name for figure in section.figures] == ["figure-6", "figure-7", "spans-np"]
    for figure in section.figures:
        assert draw(figure, "light", "png").startswith(b"\x89PNG")
    for line in results:
        assert report([line], EXPECTED, config).markdown
    assert report([], EXPECTED, config).figures == ()


def _line(row, shares_and_f1, p_value=0.5, seed=None, **more):
    rounds = [
        {
            "labelled_tokens": int(1000 * percent), "labelled_sentences": 10,
            "sampled_sentences": 20, "f1": f1,
            "p_value": p_value, "only_sup": 9, "only_ours": 3, "iterations": 7, "why": "κ",
            "seconds": {"training": 2.0, "all": 2.0},
        }
        for percent, f1 in shares_and_f1
    ]  # fmt: skip
    result = {"tokens": 100_000, "sentences": 50, **rounds[-1], "rounds": rounds, "seconds": 4.0}
    cell = {"task": "np", "row": row} | ({} if seed is None else {"seed": seed})
    return {"cell": cell, "result": {**result, **more}}


def test_rows_stand_beside_the_paper_s_at_equal_labels(config):
    sup = _line("Sup", [(100, 94.0)])
    del sup["result"]["rounds"]
    ours = _line("Proposed δ=.90", [(2, 90.0), (4.5, 93.0), (6, 93.9)], p_value=1e-9)
    rows = report([sup, ours], EXPECTED, config).markdown.splitlines()
    table = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row[:1] == "|"]
    final, equal = (row for row in table if row[0] == "Proposed δ=.90" and "(93.67)" in str(row))
    assert final[1:4] == ["93.90 (93.67)", "< .001*", "6.00 (4.73)"]
    assert final[4:6] == ["40.00 (51.75)", "20.00"]
    assert equal[1:] == ["4.50 (4.73)", "93.00 (93.67)", "-1.00", "< .001*"]


@pytest.mark.parametrize(
    ("lift", "verdict"), [(0.5, "better than"), (-0.5, "worse than"), (0.01, "no better and no")]
)
def test_the_verdict_on_spans_is_that_of_the_curves(config, lift, verdict):
    tokens = [(2, 90.0), (4, 92.0), (6, 93.0)]
    spans = [(2, 90.0), *((x, y + lift) for x, y in tokens[1:])]
    lines = [_line(SPANS[0], tokens), _line(SPANS[1], spans)]
    assert f"entropy are {verdict}" in report(lines, EXPECTED, config).markdown


def test_groups_are_drawn_beside_the_published_rule(config):
    lines = [_line(row, [(2, 90.0), (4, 92.0)]) for row in ("Proposed δ=.90", GROUPS["np"])]
    figures = report(lines, EXPECTED, config).figures
    assert [figure.name for figure in figures] == ["figure-6", "figure-7", "groups-np"]
    text = draw(figures[-1], "light", "svg").decode()
    assert "Groups δ=.90" in text
    assert "initial=10" not in text  # the whole name would fill the panel
    assert "groups-np" not in [f.name for f in report(lines[1:], EXPECTED, config).figures]


def test_seeds_of_a_row_are_averaged(config):
    lines = [
        _line("Proposed δ=.99 start=random", [(2, f1)], seed=seed)
        for seed, f1 in enumerate((90.0, 92.0))
    ]
    assert "91.00 ± 1.41" in report(lines, EXPECTED, config).markdown
    sup = _line("Sup", [(100, 94.0)])
    del sup["result"]["rounds"]
    lines = [
        _line("Proposed δ=.90", [(2, f1), (6, 95.0)], seed=seed)
        for seed, f1 in enumerate((90.0, 92.0))
    ]
    lines += [
        _line("Spans δ=.90", [(2, f1), (6, 95.0 + lift)], seed=seed)
        for seed, (f1, lift) in enumerate(((90.0, 1.0), (92.0, -1.0)))
    ]
    text = report([sup, *lines], EXPECTED, config).markdown
    assert "| 2.00 ± 0.00 (4.73) | 91.00 ± 1.41 (93.67) | -3.00 |" in text
    assert "from 2.00 ± 0.00 % of the tokens on (F1 91.00 ± 1.41)" in text
    assert "no better and no worse than tokens" in text  # the two seeds cancel out


def test_a_last_tagger_is_apart_from_the_one_that_asked(config):
    rounds = [(2, 90.0), (4, 92.0)]
    plain, other = _line("Proposed δ=.90", rounds), _line("Proposed δ=.90 last=.1", rounds)
    last = other["result"]["rounds"][-1]
    last |= {"asking": dict(last), "f1": 93.5}
    last["seconds"] = {**last["seconds"], "last training": 900.0, "all": 1000.0}
    other["result"] |= {"f1": 93.5, "asking": last["asking"]}
    assert Curve.of(other["result"]).f1.tolist() == [90.0, 92.0]
    text = report([plain, other], EXPECTED, config).markdown
    assert "last training 9" in text
    assert "Proposed δ=.90 from" in text
    assert "Proposed δ=.90 last=.1 from" not in text
    assert "last=.1 never" not in text


def test_captions_say_which_rows_are_lacking(config):
    rounds = [(2, 90.0), (4, 92.0)]
    lines = [_line(row, rounds) for row in ("Wanvarie10", "Tomanek09", "Proposed δ=.90")]
    captions = {f.name: f.caption for f in report(lines, EXPECTED, config).figures}
    assert captions["figure-4"].endswith("Rows that are lacking here: FuSAL, Bootstrap, Sup.")
    assert captions["figure-7"].endswith("Rows that are lacking here: Proposed δ=.99, Sup.")
    whole = [_line(row, rounds) for row in ("Wanvarie10", "Sup", *PROPOSED)]
    captions = {f.name: f.caption for f in report(whole, EXPECTED, config).figures}
    assert "lacking" not in captions["figure-7"]


def test_named_entities_are_read_as_the_files_have_them(tmp_path):
    (tmp_path / "conll2003").mkdir()
    rows = ["-DOCSTART- -X- O O", "", "EU NNP I-NP I-ORG", "rejects VBZ I-VP O", ""]
    (tmp_path / "conll2003" / "eng.train").write_text("\n".join(rows))
    data = Data({"conll2003": Source("conll2003", tmp_path)})
    part = read_part(data, "conll2003", "train", None)
    assert (part.labels, part.tokens) == ([["O"], ["I-ORG", "O"]], 3)
    usual = data.corpus("conll2003", "train")  # of other experiments
    assert [list(sentence["label"]) for sentence in usual] == [["B-ORG", "O"]]


def test_the_report_says_whose_the_limit_is(config):
    rounds = [(2, 90.0), (4, 92.0)]
    plain, limited = (_line(f"Proposed δ=.90{more}", rounds) for more in ("", " each=1"))
    assert "limit is ours" in report([plain, limited], EXPECTED, config).markdown
    assert "limit is ours" not in report([plain], EXPECTED, config).markdown


@pytest.mark.parametrize("more", ["", " between=20"])
@pytest.mark.parametrize("row", ["Proposed δ=.90 each=1 forms=1", "Groups δ=.90"])
def test_the_report_says_where_models_are_half_trained(config, more, row):
    line = _line(f"{row}{more}", [(2, 90.0), (4, 92.0)])
    told = "only the last round is of a model that is trained to the end"
    assert (told in report([line], EXPECTED, config).markdown) is bool(more)


# ---------------------------------------------------------------------------------- summaries


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.floats(0, 100))
def test_the_last_round_within_a_share(steps, percent):
    tokens = np.cumsum(steps).tolist()
    rounds = [{"labelled_tokens": n} for n in tokens]
    found = at_share({"tokens": 200, "rounds": rounds}, percent)
    fitting = [n for n in tokens if n <= percent * 2]
    assert (found and found["labelled_tokens"]) == (max(fitting) if fitting else None)


@given(st.lists(st.booleans(), max_size=8))
def test_no_round_after_the_first_good_one_is_bad(bad):
    rounds = [
        {"n": n, "p_value": 0.01 if worse else 0.2, "only_sup": 5, "only_ours": 1}
        for n, worse in enumerate(bad)
    ]
    found = first_not_worse({"rounds": rounds})
    good = [n for n in range(len(bad)) if not any(bad[n:])]
    assert (found and found["n"]) == (good[0] if good else None)


def _curve(steps, f1):
    tokens = np.cumsum(steps).astype(float)
    return Curve(tokens, np.array(f1[: len(tokens)]), np.zeros(len(tokens)))


@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=6),
    st.lists(st.integers(1, 9), min_size=3, max_size=6),
    st.lists(st.floats(0, 100), min_size=6, max_size=6),
    st.floats(-5, 5),
)
def test_gaps_of_curves_obey_their_laws(first, second, f1, lift):
    a, b = _curve(first, f1), _curve(second, f1[::-1])
    there, back = gap(a, b), gap(b, a)
    if there is None or back is None:
        assert there == back
        return
    assert there.mean == pytest.approx(-back.mean, abs=1e-9)
    assert (there.lowest, there.highest) == pytest.approx((-back.highest, -back.lowest))
    lifted = gap(Curve(a.tokens, a.f1 + lift, a.seconds), b)
    assert lifted is not None
    assert lifted.mean == pytest.approx(there.mean + lift, abs=1e-6)


def test_better_than_sup_is_not_worse():
    assert is_worse({"p_value": 0.01, "only_sup": 9, "only_ours": 1})
    assert not is_worse({"p_value": 0.01, "only_sup": 1, "only_ours": 9})
    assert not is_worse({"p_value": 0.06, "only_sup": 9, "only_ours": 1})


# -------------------------------------------------------------------------------------- bench


def _figures(capsys):
    return {line["metric"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}


def test_bench_without_corpora_fails_its_bar(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JAXSEQ_DATA", str(tmp_path))
    told = Report("active")
    active.run(told, tmp_path)
    assert not told.held
    assert all(line["holds"] is False for line in _figures(capsys).values())


def test_bench_does_not_look_into_the_current_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("JAXSEQ_DATA", raising=False)
    (tmp_path / "conll2000").mkdir()
    monkeypatch.chdir(tmp_path)
    told = Report("active")
    active.run(told, tmp_path)
    lines = _figures(capsys).values()
    assert len(lines) == 2
    assert all("JAXSEQ_DATA" in line["measured_on"]["needs"] for line in lines)


def test_bench_of_a_small_task(config, data, tmp_path, capsys):
    told = Report("active")
    bench = active.Bench(told, config, "np", data)
    rounds = bench.tokens()
    bench.spans(rounds, tmp_path)
    found = _figures(capsys)
    minutes = sum(one["seconds"]["all"] for one in rounds) / 60
    line = found["minutes to its own stop, NP chunking, published rule, δ = .90"]
    assert line["value"] == pytest.approx(minutes, abs=1e-4)
    assert line["measured_on"]["rounds"] == 2
    stages = [
        name
        for name in found
        if name.startswith("seconds a round, NP chunking, published rule, δ = .90: ")
    ]
    assert {name.split(": ")[1] for name in stages} == set(rounds[0]["seconds"])
    same = "objective, warm-started / from zeros − 1, NP chunking, published rule, δ = .90"
    assert found[f"{same}, the last round"]["bar"] == "≤ 0.001"
    other = "McNemar's p against Sup of l2 = 1, NP chunking, published rule, δ = .90"
    published = "McNemar's p against Sup, NP chunking, published rule, δ = .90"
    for name in (other, published):  # 4.73 % are less than the initial set of so few sentences
        line = found[f"{name}, at most 4.73 % labelled"]
        assert (line["value"], line["bar"]) == (None, None)
    assert told.held
    assert all(line["measured_on"]["l2"] == config.l2["np"] for line in found.values())
    assert (tmp_path / "active_spans.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("last", ["", " last=.1"])
def test_bench_judges_random_starts_by_their_median_run(config, data, capsys, monkeypatch, last):
    told = Report("active")
    row = f"{active.DRAWN['np']}{last}"
    monkeypatch.setitem(active.CALLED, row, active.CALLED[active.DRAWN["np"]])
    every = active.Bench(told, config, "np", data).drawn(row, runs=3)
    found = _figures(capsys)
    title = f"McNemar's p against Sup, NP chunking, {active.CALLED[row]}"
    values = [found[f"{title}, seed {seed}"]["value"] for seed in range(3)]
    median = found[f"{title}, at most 4.73 % labelled, median of 3 runs"]
    assert median["value"] == sorted(values)[1]
    assert median["holds"] == told.held == (median["value"] >= 0.05)
    assert median["measured_on"]["runs_not_below"] == sum(value > 0.05 for value in values)
    assert [name for name, line in found.items() if line["bar"]] == [median["metric"]]
    assert len({rounds[-1]["objective"] for rounds in every}) > 1  # they differ by their starts
    assert all(("asking" in rounds[-1]) is bool(last) for rounds in every)
    assert median["measured_on"].get("l2_of_last") == (0.1 if last else None)
    sup = run.train_sup(run.make_task(config, "np", data, 0.1 if last else 0.3))[1]
    assert median["measured_on"]["f1_of_sup"] == round(sup["f1"], 2)


def test_bench_judges_the_warm_start_that_a_recheck_has_replaced(
    config, data, tmp_path, capsys, monkeypatch
):
    real = _active_round.train_on

    def lazy(problem, plan, older, shape, most):
        if older is not None:
            plan = dataclasses.replace(plan, settings=plan.settings._replace(max_iterations=1))
        return real(problem, plan, older, shape, most)

    monkeypatch.setattr(_active_round, "train_on", lazy)
    told = Report("active")
    bench = active.Bench(told, config, "np", data)
    rounds = bench.tokens()
    bench.early_start()
    found = _figures(capsys)
    assert rounds[-1]["replaced"]
    assert rounds[-1]["objective"] < rounds[-1]["before_recheck"]["objective"]
    assert (rounds[-1]["start"], rounds[-1]["before_recheck"]["start"]) == ("cold", "warm")
    for when, replaced in (("the last round", True), (f"round {active.EARLY}", False)):
        where = f"NP chunking, published rule, δ = .90, {when}"
        line = found[f"objective, warm-started / from zeros − 1, {where}"]
        assert line["holds"] is False
        assert line["measured_on"]["replaced"] is replaced
        name = f"iterations, from zeros / warm-started, {where}"
        assert found[name]["measured_on"]["iterations"][0] == 1


@given(st.integers(0, 40), st.integers(0, 40))
def test_p_is_one_where_nothing_is_worse(only_sup, only_ours):
    discordant = only_sup + only_ours
    statistic = max(abs(only_sup - only_ours) - 1, 0) ** 2 / max(discordant, 1)
    p = math.erfc(math.sqrt(statistic / 2))
    found = active.not_below({"p_value": p, "only_sup": only_sup, "only_ours": only_ours})
    assert found == (p if only_sup > only_ours else 1.0)


def test_parts_count_their_tokens():
    assert Part([], [["O"], ["B-NP", "I-NP"]]).tokens == 3
